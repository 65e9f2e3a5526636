//! Bytes to filter and back; pure, every input hostile.
//!
//! ```text
//!   header   the numbers of a filter: parameters, plan of each layer          (one layout for both users below)
//!   stream   the bits of all layers, oldest first, as one stream of bytes
//!   values   the strings and numbers of an RDB, as traits: the server's stream, or a test's
//!   v100     RDB and DUMP: header + stream in pieces of 1 MiB                 encoding version 100
//!   chunk    SCANDUMP, LOADCHUNK, AOF: header, then stream in framed chunks of at most 16 MiB
//!   redisbloom   its RDB, encoding versions 0 to 4, and its chunks; what comes from it is dumped in its format again
//!   valkey       its RDB, encoding version 1, and the blob of its BF.LOAD
//!   guava        what Guava's BloomFilter.writeTo wrote, and bitmaps that were filled by its recipe; read only
//! ```
//!
//! All our numbers are little-endian on every machine. A decoder believes no count before it
//! checked it, allocates nothing before `filter::Plan::check` passed, and takes its ceiling from
//! the caller. A shipped layout is never edited; a new one is added beside it.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::arithmetic_side_effects,
    reason = "every input is hostile, and a panic takes the database down"
)]

mod error;
pub mod guava;
pub mod io;
pub mod native;
mod reader;
pub mod redisbloom;
pub mod valkey_bloom;

pub use error::Error;
