//! A native Bloom filter for Redis and Valkey.
//!
//! ```text
//!   filter  ◀──  codec  ◀──  command   ◀──  module
//!   maths        bytes       words          everything that needs a server
//! ```
//!
//! * [`filter`]: a scaling stack of blocked Bloom layers under one seed, never above the asked
//!   error rate.
//! * [`codec`]: that filter as bytes, for RDB, AOF and dumps; every input hostile.
//! * [`command`]: the options of commands, and the texts of their refusals.
//! * `module` (feature `module`, on by default): the data type, the `BF.*` commands, configuration,
//!   replication.
//!
//! Without the feature the crate is the pure half: it links no server, and benches and fuzzers
//! build on it.

#![deny(
    clippy::disallowed_methods,
    reason = "what decides bits, sizes or acceptance must be the same on every machine"
)]

pub mod codec;
pub mod command;
pub mod filter;
#[cfg(feature = "module")]
pub mod module;
