//! One logical filter as many filters in a cluster: the keys of the shards, their capacity, and the
//! hash that lists them. `docs/sharding.md` specifies all of it for other implementations.
//!
//! ```text
//!   name ──HGETALL──▶ descriptor ──▶ generation ──┐
//!   item ──CRC-32, times n, top bits──▶ shard i ──┴──▶ key of shard i ──▶ BF.INSERT, BF.MEXISTS
//! ```
//!
//! The rule by which an item belongs to a shard is the server's, too: `bloom::sharding`. Nothing of
//! this can change: clients in many languages compute the same numbers.

mod capacity;
pub(crate) mod descriptor;
pub(crate) mod keys;

pub(crate) use bloom::sharding::*;
pub(crate) use capacity::shard_capacity;
pub(crate) use descriptor::{Descriptor, Field, Generation, Malformed, State};
pub(crate) use keys::{NameError, key_slot};
