//! A native Bloom filter for Redis and Valkey.
//!
//! ```text
//!   filter  ◀──  codec  ◀──  command     ◀──  module
//!   maths        bytes       arguments        everything that needs a server
//! ```
//!
//! * [`filter`]: blocked Bloom layers, and pages for filters that grow, count or forget. The false
//!   positive rate is, on average over seeds, at most the configured rate.
//! * [`sharding`]: which shard of a sharded filter an item belongs to.
//! * [`codec`]: the filter as bytes, for RDB, AOF and dumps. Decoders do not trust any input.
//! * [`command`]: the options of commands and the texts of error replies.
//! * `module`: the data type, the `BF.*` commands, configuration, replication. Without the feature
//!   of this name the crate links no server; tests, benches and fuzzers build it that way.

#![deny(
    clippy::disallowed_methods,
    reason = "bits, sizes and accepted inputs must be the same on every machine"
)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a panic stops the database"
)]

pub mod codec;
pub mod command;
#[expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "its input was checked, and its loops are hot"
)]
pub mod filter;
#[cfg(feature = "module")]
pub mod module;
pub mod sharding;
