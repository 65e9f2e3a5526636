//! One logical filter as many filters in a cluster: which shard an item belongs to, the keys of the
//! shards, and the hash that lists them.
//!
//! ```text
//!   name ──HGETALL──▶ descriptor ──▶ generation ──┐
//!   item ──CRC-32, times n, top bits──▶ shard i ──┴──▶ key of shard i ──▶ BF.INSERT, BF.MEXISTS
//! ```
//!
//! `docs/sharding.md` specifies all of it for other implementations. Nothing of this can change:
//! clients in many languages compute the same numbers. A new rule gets a new name.
//!
//! This module knows no filter and no server.
//!
//! ```
//! use redis_bloom::sharding::Descriptor;
//!
//! let urls = Descriptor::new(b"urls", 8, 0.001, 1_000_000, 10)?;
//! assert_eq!(urls.current.key_of(b"https://example.com/"), b"{urls:43610}:1");
//! # Ok::<(), redis_bloom::sharding::NameError>(())
//! ```

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a panic stops the database"
)]

mod capacity;
mod descriptor;
mod keys;
mod rule;

pub use capacity::shard_capacity;
pub use descriptor::{Descriptor, Field, Generation, Malformed, POLL, State};
pub use keys::{NameError, key_slot, middle_slot, shard_keys};
pub use rule::{MAX_SHARDS, RULE, Shard, shard_of};
