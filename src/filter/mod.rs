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
//! Filters that other products made live here too, with their own hash and their own shapes: `family` is the tag,
//! `redisbloom`, `valkey` and `guava` are the rules of each, `murmur` and `murmur3` hashes of two, `layer::classic` holds
//! the bits.

mod ahead;
mod batch;
mod bits;
mod block_rate;
mod budget;
mod check;
mod chunk;
mod counting;
mod error;
mod estimate;
mod family;
mod geometry;
mod guava;
mod hash;
mod layer;
mod layer_plan;
mod murmur;
mod murmur3;
mod params;
mod probe;
mod redisbloom;
mod rest;
mod scaling;
mod sizing;
mod valkey;

pub use ahead::{Ahead, AheadCell, Hashed};
pub use bits::Bits;
pub use budget::layer_rate;
pub use check::{Broken, Plan};
pub use chunk::Answers;
pub use error::Error;
pub use estimate::Estimate;
pub use family::{Family, RedisBloom};
pub use geometry::Geometry;
pub use guava::{design, items_of, optimal, optimal_probes, probes_of_rate};
pub use hash::{Hash, checksum};
pub use layer::{
    Blocked, Classic, ClassicLayer, Counting, CountingLayer, Layer, MAX_BITS, MAX_CLASSIC_PROBES, Rule,
    Shape, Start,
};
pub use layer_plan::LayerPlan;
pub use params::{Cells, Expansion, MAX_CAPACITY, MAX_EXPANSION, MAX_LAYERS, Params};
pub use probe::{all_positions, scale};
pub use redisbloom::{bits_per_item, fits, probes};
pub use scaling::Filter;
#[cfg(test)]
pub(crate) use scaling::steps;
pub use sizing::{MAX_PROBES, geometry};
pub use valkey::{FIXED_SEED, TIGHTENING, Valkey};
