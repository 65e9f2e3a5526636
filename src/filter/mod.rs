//! The Bloom filter itself: pure maths and memory, no server, no bytes on disk.
//!
//! ```text
//!   params ─▶ scaling ─▶ layer ─▶ bits            batch: many items through scaling at once
//!                │         └───▶ probe            check: what must hold of a stored filter
//!                ├─▶ budget (whose share of the error rate)
//!                └─▶ sizing (how many bits)       hash: one XXH3-128 per item      estimate: how full it is now
//!                       └─▶ block_rate            geometry: the shape of a layer   ahead: an item before its filter
//! ```
//!
//! A filter that also deletes has counters where others have bits: `counting`, `layer::counting`.
//!
//! Filters that other products made live here too, with their own hash and their own shapes:
//! `family` is the tag, `redisbloom`, `valkey` and `guava` are the rules of each, `murmur` and
//! `murmur3` hashes of two, `layer::classic` holds the bits.

mod ahead;
mod batch;
mod check;
mod deletion;
mod error;
mod estimate;
mod extra;
pub mod foreign;
mod geometry;
mod hash;
mod layer;
mod params;
mod plan;
mod sizing;
mod stack;

pub use ahead::{PrefetchHint, PrefetchHintCell, PrehashedItem};
pub use check::{Broken, Plan};
pub use error::Error;
pub use estimate::Estimate;
pub use foreign::{FIXED_SEED, Family, RedisBloom, TIGHTENING, Valkey};
pub use geometry::Geometry;
pub use hash::{
    Hash, checksum,
    probe::{all_positions, scale},
};
pub use layer::{
    Blocked, Classic, ClassicLayer, Counting, CountingLayer, Layer, MAX_BITS, MAX_CLASSIC_PROBES,
    Rule, Shape, Start, bits::Bits, item_set::Answers,
};
pub use params::{CellKind, Expansion, MAX_CAPACITY, MAX_EXPANSION, MAX_LAYERS, Params};
pub use plan::LayerPlan;
pub use sizing::{MAX_PROBES, geometry, layer_rate};
pub use stack::Filter;
#[cfg(test)]
pub(crate) use stack::steps;
