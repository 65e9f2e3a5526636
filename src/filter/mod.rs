//! The Bloom filter: mathematics and memory only. No server, no bytes on disk.
//!
//! ```text
//!   params ─▶ stack ─▶ layer/ ─┬─ blocked    bits, in blocks       (reserved filters)
//!               │              ├─ classic    bits of other products' filters
//!               │              └─ bits, item_set, occupancy
//!               ├─▶ plan       the numbers of its layers, their invariants ─▶ sizing
//!               ├─▶ foreign/   family: redisbloom, valkey_bloom, guava
//!               └─▶ hash       XXH3-128 once per item; its positions in a block
//!
//!   batch      many items through the stack at once       merge    the union of filters
//!   estimate   fill and rate right now
//!   expected   memory and rate before a filter is made
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
mod hash;
mod layer;
mod merge;
pub mod paged;
pub mod pages;
mod params;
mod plan;
mod sizing;
mod stack;

pub use batch::PrefetchHint;
pub use error::{Demand, Error, Unmergeable};
pub use estimate::Estimate;
pub use expected::{expected_bytes, expected_rate};
pub use foreign::{FIXED_SEED, Family, RedisBloom, TIGHTENING, Valkey};
pub use hash::{Hash, checksum, scale};
pub use layer::{
    Classic, Geometry, Layer, LayerPlan, MAX_BITS, MAX_CLASSIC_PROBES, Rule, Shape, Start,
    bits::Bits, item_set::Answers, uses_avx512,
};
pub use merge::{Member, Union};
pub use paged::{
    Addition, Additions, Author, MAX_GENERATIONS, MAX_MILLISECONDS, MAX_TIME, NEVER, Paged, Rules,
    Span,
};
pub use params::{Expansion, MAX_CAPACITY, MAX_EXPANSION, MAX_LAYERS, Params, check_ranges};
pub use plan::{PagedPlan, Plan};
pub use sizing::{MAX_PROBES, geometry, layer_rate};
pub use stack::Filter;

/// Whether code for AVX2, AVX-512 and BMI2 may run, if the processor has the instructions. In a
/// build with debug assertions the environment variable `REDIS_BLOOM_PORTABLE` forbids it, so that
/// tests run the portable code on every processor.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn allows_extensions() -> bool {
    static PORTABLE: std::sync::LazyLock<bool> =
        std::sync::LazyLock::new(|| std::env::var_os("REDIS_BLOOM_PORTABLE").is_some());
    !cfg!(debug_assertions) || !*PORTABLE
}
