//! Black-box tests of the tool: the built program against real servers.
//!
//! Run them with `make test-cli`, which builds the module and the tool. Each file covers one
//! subcommand or one behaviour. Each test starts its own server.

// The name that examples/replica.rs uses.
extern crate bloom as redis_bloom;

use redis_bloom_harness as harness;
use redis_bloom_sharding as sharding;

mod check;
mod completion;
mod connect;
mod create;
mod documents;
mod drop;
mod dump;
mod fake;
mod info;
mod load;
mod load_model;
mod packaging;
mod pictures;
mod plan;
mod relay;
mod run;
mod schema;
mod sharded_admin;
mod sharded_faults;
mod sharded_load;
mod sharded_move;
mod sharded_rebuild;
mod sharded_rebuild_model;
mod sharded_replica;
/// Tests of what the tool and the libraries compute of sharded filters.
#[path = "sharding/main.rs"]
mod sharding_rules;
mod terminal;
mod top;
mod verify;
mod windows;
