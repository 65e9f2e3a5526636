//! The Bloom filter: mathematics and memory only. No server, no bytes on disk.
//!
//! ```text
//!   params ─▶ stack ─▶ layer/ ─┬─ blocked    bits, in blocks       (reserved filters)
//!               │              ├─ classic    bits of other products' filters
//!               │              └─ bits, item_set, occupancy
//!               ├─▶ plan       the numbers of its layers, their invariants ─▶ sizing/ (block_rate)
//!               ├─▶ foreign/   family: redisbloom, valkey_bloom, guava
//!               └─▶ hash/      XXH3-128 once per item; probe: its positions in a block
//!
//!   batch      many items through the stack at once       geometry       size of a layer's blocks
//!   estimate   fill and rate right now                    prefetch_hint  prefetch an item early
//!   expected   memory and rate before a filter is made    merge          the union of filters
//!   processor  whether code for AVX2, AVX-512 and BMI2 may run
//!   pages/     pages that split: the one structure of filters that grow, count or forget
//!   paged/     those filters
//! ```
//!
//! A foreign filter is one that another product made. It keeps that product's hash and layers.

mod batch;
mod error;
mod estimate;
mod expected;
pub mod foreign;
mod geometry;
mod hash;
mod layer;
mod merge;
pub mod paged;
pub mod pages;
mod params;
mod plan;
mod prefetch_hint;
#[cfg(target_arch = "x86_64")]
mod processor;
mod sizing;
mod stack;

pub use error::{Demand, Error, Unmergeable};
pub use estimate::Estimate;
pub use expected::{expected_bytes, expected_rate};
pub use foreign::{FIXED_SEED, Family, RedisBloom, TIGHTENING, Valkey};
pub use geometry::Geometry;
pub use hash::{Hash, checksum, probe::scale};
pub use layer::{
    Classic, Layer, LayerPlan, MAX_BITS, MAX_CLASSIC_PROBES, Rule, Shape, Start, bits::Bits,
    item_set::Answers, uses_avx512,
};
pub use merge::{Member, Union};
pub use paged::{
    Addition, Additions, Author, MAX_GENERATIONS, MAX_MILLISECONDS, MAX_TIME, NEVER, Paged, Rules,
    Span,
};
pub use params::{Expansion, MAX_CAPACITY, MAX_EXPANSION, MAX_LAYERS, Params, check_ranges};
pub use plan::{PagedPlan, Plan};
pub use prefetch_hint::PrefetchHint;
pub use sizing::{MAX_PROBES, geometry, layer_rate};
pub use stack::Filter;
