//! Support code of the black-box tests: a real server with the module loaded, and a client that
//! keeps the wire type of each reply.
//!
//! ```text
//!   Server::with()...start() ──> Server (own port, own directory, killed on drop)
//!            │ client() / resp3()
//!            v
//!   Client  run("BF.ADD k a")  ──>  Reply::Int(1)        RESP2
//!           run("BF.ADD k a")  ──>  Reply::Bool(true)    RESP3
//! ```
//!
//! Tests use the module only through its commands: nothing here may `use redis_bloom`. Two
//! environment variables name the programs: `REDIS_BLOOM_SO` (the module, required) and
//! `REDIS_SERVER` (the server, default `redis-server`). A wrapper script must `exec` the server,
//! because tests kill the process that they started.

mod bloom;
mod builder;
mod child;
mod client;
mod clock;
mod cluster;
mod commands;
mod decode;
mod header;
mod pieces;
mod port;
mod proxy;
mod random;
mod rdb;
mod reply;
mod sane;
mod server;
mod skipped;
mod table;
mod version;
mod wait;

pub use bloom::{
    add_until_card, add_until_refused, bits, digest, info, layers, madd, mexists, numbered,
};
pub use builder::{Builder, can_contain, module_path};
pub use child::{Stopped, child, signal};
pub use client::{Client, Protocol};
pub use clock::Clock;
pub use cluster::{Cluster, ClusterClient, PRIMARIES, SLOTS, slot};
pub use commands::{ADDS, CREATES, Command, DELETES, OWN, READS, REDISBLOOMS, commands, listed};
pub use header::{Header, StoredLayer, sealed_with_xxh3};
pub use pieces::{Piece, dump, load};
pub use port::free_port;
pub use proxy::{Fault, Proxy};
pub use random::Random;
pub use rdb::{Payload, sealed};
pub use reply::{NO_COPY, Reply, array, bulk, err, int, ints, map, null, ok, simple};
pub use rustix::process::Signal;
pub use sane::{assert_no_crash, assert_sane, assert_unharmed, settled_memory};
pub use server::Server;
pub use skipped::skipped;
pub use table::{Case, check, fresh};
pub use version::{Version, config_name, version};
pub use wait::wait_until;
