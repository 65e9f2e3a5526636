//! What a sharded filter is made of: the rule for its items, the keys of the shards, their
//! capacity, and the hash that lists them. `docs/reference/sharding.md` specifies all of it. This
//! crate sends no commands: the library for Rust and the CLI do.
//!
//! ```text
//!   name ──HGETALL──▶ descriptor ──▶ generation ──┐
//!   item ──CRC-32, times n, top bits──▶ shard i ──┴──▶ key of shard i ──▶ BF.INSERT, BF.MEXISTS
//! ```
//!
//! Nothing of this can change: clients in many languages compute the same numbers.

mod capacity;
mod descriptor;
pub mod keys;

pub use capacity::shard_capacity;
pub use descriptor::{Descriptor, Field, Generation, Malformed, POLL, State};
pub use keys::{NameError, key_slot, shard_keys};

/// The name of the rule in a descriptor.
pub const RULE: &str = "crc32";

/// The largest number of shards.
pub const MAX_SHARDS: u16 = 1024;

/// The shard of `item` among `count` shards: a number below `count`, or 0 if `count` is 0.
#[inline]
#[must_use]
pub fn shard_of(item: &[u8], count: u16) -> u16 {
    ((u64::from(crc32fast::hash(item)) * u64::from(count)) >> 32) as u16
}
