//! RedisBloom's filters: how an item is hashed, how a layer is sized, and how a filter grows.
//!
//! ```text
//!   hash of an item a = MurmurHash2(item, public seed), b = MurmurHash2(item, a)
//!   bits per item   bpe  = |ln(rate)| / ln(2)^2
//!   probes          k    = ceil(ln(2) * bpe)
//!                   RedisBloom writes both constants with 15 digits; at rates of 2^-n the
//!                   missing digits decide k
//!   exact form      bits = capacity * bpe, truncated, then rounded up to whole words
//!                          (before 2.2.9: to bytes; before 2.2: not rounded)
//!   rounded form    bits = the power of two above capacity * bpe; the capacity rises to
//!                          what fits (before 2.2)
//!   next layer      rate / 2, capacity * expansion, whichever version made the last one
//! ```
//!
//! A filter grows as it would have in RedisBloom, so it always gives RedisBloom's answers, false
//! positives included. A stored shape that does not follow from capacity and rate is forged.
//!
//! The logarithm is `libm`'s. It differs from the C library's by at most the last bit. At powers of
//! two, where k depends on it, both are exact.

use super::{ROUNDING, murmur};
use crate::filter::{
    hash::Hash,
    layer::{Classic, LayerPlan, Rule, Shape},
};

/// What differs among RedisBloom's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisBloom {
    /// MurmurHash64A (since 2.0) if true, else the 32-bit MurmurHash2.
    pub hash64: bool,
    /// Whether a new layer has the rounded form (before 2.2).
    pub rounds: bool,
}

/// First seed of the 64-bit hash (RedisBloom, `deps/bloom/bloom.c`); the second is the first hash.
const SEED_64: u64 = 0xC6A4_A793_5BD1_E995;
/// First seed of the 32-bit hash.
const SEED_32: u32 = 0x9747_B28C;

/// ln(2) with RedisBloom's digits.
#[expect(
    clippy::approx_constant,
    reason = "the digits that are missing decide the probes at powers of two"
)]
const LN2: f64 = 0.693_147_180_559_945;
/// ln(2)^2 with RedisBloom's digits.
const LN2_SQUARED: f64 = 0.480_453_013_918_201;
/// The rate of a layer relative to that of the layer before.
pub(in crate::filter) const LAYER_RATE_RATIO: f64 = 0.5;

/// Bits per item at a rate in (0, 1).
pub fn bits_per_item(rate: f64) -> f64 {
    (libm::log(rate) / LN2_SQUARED).abs()
}

/// Probes at this many bits per item.
pub fn probes(bits_per_item: f64) -> u64 {
    (LN2 * bits_per_item).ceil() as u64
}

/// RedisBloom 8 lowers a higher rate of a new filter to this one.
pub const MAX_RATE: f64 = 0.25;

/// The rate of a filter whose first layer has the rate `first`. The rate of a stack is the sum over
/// its layers: twice `first`. Before 2.2 the first layer got the whole rate, so `first` may be
/// above one half.
#[must_use]
pub fn error_rate(first: f64, scales: bool) -> f64 {
    if scales { (first / LAYER_RATE_RATIO).min(1.0 - f64::EPSILON) } else { first }
}

impl RedisBloom {
    /// What RedisBloom 2.2.9 and later make.
    pub const PRESENT: Self = Self { hash64: true, rounds: false };

    /// The hash of an item: a and b of its positions a + i b in a classic layer.
    pub(in crate::filter) fn hash(self, item: &[u8]) -> Hash {
        if self.hash64 {
            let block = murmur::hash64(item, SEED_64);
            Hash { block, probes: murmur::hash64(item, block) }
        } else {
            let start = murmur::hash32(item, SEED_32);
            Hash { block: start.into(), probes: murmur::hash32(item, start).into() }
        }
    }

    /// A layer for `capacity` items at `rate`, in [0, 1); `None` if RedisBloom refuses it.
    pub(in crate::filter) fn layer(self, mut capacity: u64, rate: f64) -> Option<LayerPlan> {
        let per_item = bits_per_item(rate);
        let wanted = capacity as f64 * per_item;
        // A rate of 0 has too many.
        let probes = u16::try_from(probes(per_item)).ok()?;
        if wanted >= MAX_LAYER_BITS {
            return None;
        }
        let (bits, bytes, rule) = if self.rounds {
            // The power of two above: 2^n <= wanted < 2^(n+1).
            let bits = 2 << (wanted as u64).checked_ilog2()?;
            let spare = (bits as f64 - wanted) as u64;
            capacity = capacity.saturating_add((spare as f64 / per_item) as u64);
            (bits, (bits / 8).max(8), Rule::LowBits)
        } else {
            let words = (wanted as u64).max(1).div_ceil(64);
            (words * 64, words * 8, Rule::Remainder)
        };
        let shape = Shape::Classic(Classic { bits, bytes, probes, rule });
        Some(LayerPlan { capacity, items: 0, error_rate: rate, shape })
    }
}

/// The most bits of a layer; far more than memory holds.
const MAX_LAYER_BITS: f64 = (1_u64 << 61) as f64;

/// Whether some version of RedisBloom gives a layer of `capacity` items at `rate` this shape.
pub fn fits(shape: &Classic, capacity: u64, rate: f64) -> bool {
    let per_item = bits_per_item(rate);
    if u64::from(shape.probes) != probes(per_item) {
        return false;
    }
    let wanted = capacity as f64 * per_item;
    let Classic { bits, bytes, .. } = *shape;
    match shape.rule {
        Rule::Remainder => {
            // Any number in this range may be `wanted` truncated.
            let [least, most] =
                [1.0 - ROUNDING, 1.0 + ROUNDING].map(|by| ((wanted * by) as u64).max(1));
            let within = |unit: u64, found: u64| {
                (least.div_ceil(unit)..=most.div_ceil(unit)).contains(&found)
            };
            let whole = bytes.checked_mul(8) == Some(bits);
            let as_bits = within(1, bits) && bytes == bits.div_ceil(8);
            let as_bytes = whole && within(8, bytes);
            let as_words = whole && bytes.is_multiple_of(8) && within(64, bytes / 8);
            as_bits || as_bytes || as_words
        }
        Rule::LowBits => {
            // The capacity was raised to what fits, so less than one item's bits are left over.
            let bits = bits as f64;
            let full = wanted <= bits * (1.0 + ROUNDING)
                && wanted + per_item + 1.0 >= bits * (1.0 - ROUNDING);
            let least = shape.bits.div_ceil(8);
            full && (bytes == least || bytes == least.max(8))
        }
        Rule::Prime | Rule::Mitz32 | Rule::Mitz64 => false,
    }
}
