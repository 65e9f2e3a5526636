//! What a sharded filter is made of: the rule for its items, the keys of the shards, their
//! capacity, the marks of complete shards, and the hash that lists the shards.
//! `docs/reference/sharding.md` specifies all of it. This crate sends no commands: the library for
//! Rust and the CLI do.
//!
//! ```text
//!   name ──HGETALL──▶ descriptor ──▶ generation ──┐
//!   item ──CRC-32, times n, top bits──▶ shard i ──┴──▶ key of shard i ──▶ BF.INSERT, BF.MEXISTS
//! ```
//!
//! Nothing of this can change: clients in many languages compute the same numbers.

use std::collections::BTreeMap;

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

/// The item that marks the base of a sharded filter as complete.
pub const BASE_MARK: &str = "filter: complete";

/// For each shard the item that marks it as complete: `filter: complete K` with the smallest K of
/// that shard. Clients add it last, and trust a "no" only if the shard contains it.
#[must_use]
pub fn marks(shards: u16) -> Vec<String> {
    let mut found = BTreeMap::new();
    let mut items = (0u64..).map(|number| format!("{BASE_MARK} {number}"));
    while let (true, Some(item)) = (found.len() < shards.into(), items.next()) {
        found.entry(shard_of(item.as_bytes(), shards)).or_insert(item);
    }
    found.into_values().collect()
}
