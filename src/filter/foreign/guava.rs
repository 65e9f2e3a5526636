//! Guava's filters: the hash, and the formulas that relate capacity, rate, bits and probes.
//!
//! ```text
//!   hash of an item    MurmurHash3, 128 bits, seed 0, of its bytes
//!   bits               -n ln(p) / ln(2)^2, truncated
//!   probes             k = round(bits / n * ln(2)), at least 1
//!                      newer releases: round(-ln(p) / ln(2)), at least 1
//!   design point       n = bits / k * ln(2): half of the bits are set, and the rate is 2^-k
//!   items in it        n = -bits / k * ln(1 - fill)
//! ```
//!
//! Guava's files contain only bits and probes. The rule of the layer says which of its two
//! strategies gives the positions (`layer/classic/positions.rs`). Such a filter never grows,
//! because Guava has no rule for growth.
//!
//! The logarithm is `libm`'s, so that every machine accepts the same sizes. Java's may differ in
//! the last bit.

use super::murmur3;
use crate::filter::hash::Hash;

const LN2: f64 = std::f64::consts::LN_2;

pub(in crate::filter) fn hash(item: &[u8]) -> Hash {
    let [block, probes] = murmur3::hash128(item);
    Hash { block, probes }
}

/// Bits and probes that Guava gives a filter for `capacity` items at `rate` in (0, 1).
pub fn optimal(capacity: u64, rate: f64) -> (u64, u64) {
    // The conversion saturates, as Java's does.
    let bits = (-(capacity as f64) * libm::log(rate) / (LN2 * LN2)) as u64;
    let probes = (bits as f64 / capacity as f64 * LN2).round() as u64;
    (bits, probes.max(1))
}

/// Probes that newer releases of Guava give a filter at `rate`.
pub fn probes_of_rate(rate: f64) -> u64 {
    let probes = (-libm::log(rate) / LN2).round() as u64;
    probes.max(1)
}

/// Capacity and rate at the design point for this many bits and probes, both at least 1.
pub fn design(bits: u64, probes: u16) -> (u64, f64) {
    let capacity = (bits as f64 / f64::from(probes) * LN2).round() as u64;
    (capacity.max(1), libm::ldexp(1.0, -i32::from(probes)))
}

/// The most likely number of items if `set` bits are set; `u64::MAX` if all are.
pub fn items_of(set: u64, bits: u64, probes: u16) -> u64 {
    let items = -(bits as f64) / f64::from(probes) * libm::log1p(-(set as f64 / bits as f64));
    items.round() as u64
}
