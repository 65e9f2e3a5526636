//! Guava's filters, and bitmaps that clients fill by its recipe: the hash, and the formulas between capacity, rate, bits and
//! probes.
//!
//! ```text
//!   hash of an item    MurmurHash3, 128 bits, seed 0, of its bytes
//!   bits               -n ln(p) / ln(2)^2, cut to whole
//!   probes             k = round(bits / n * ln(2)), at least 1; newer releases: round(-ln(p) / ln(2))
//!   design point       n = bits / k * ln(2): there half of the bits are set, and the rate is 2^-k
//!   items in it        n = -bits / k * ln(1 - fill)
//! ```
//!
//! What Guava writes has bits and probes alone. Which of its two strategies finds the positions is the rule of the layer
//! (`layer/walks.rs`). Such a filter never grows: in Guava there is no growth to go on with.

use super::{hash::Hash, murmur3};

const LN2: f64 = std::f64::consts::LN_2;

/// The hash of an item.
pub(super) fn hash(item: &[u8]) -> Hash {
    let [block, probes] = murmur3::hash128(item, 0);
    Hash { block, probes }
}

/// Bits and probes that Guava gives a filter for `capacity` items at `rate` in (0, 1).
#[must_use]
pub fn optimal(capacity: u64, rate: f64) -> (u64, u64) {
    // The conversion stops at the largest number, as Java's does.
    let bits = (-(capacity as f64) * libm::log(rate) / (LN2 * LN2)) as u64;
    (bits, optimal_probes(bits, capacity))
}

/// Probes that Guava's formula gives a filter of so many bits, whatever rate they were made for.
#[must_use]
pub fn optimal_probes(bits: u64, capacity: u64) -> u64 {
    let probes = (bits as f64 / capacity as f64 * LN2).round() as u64;
    probes.max(1)
}

/// The same of newer releases, from the rate.
#[must_use]
pub fn probes_of_rate(rate: f64) -> u64 {
    let probes = (-libm::log(rate) / LN2).round() as u64;
    probes.max(1)
}

/// Capacity and rate of the design point of so many bits and probes, neither of them 0.
#[must_use]
pub fn design(bits: u64, probes: u16) -> (u64, f64) {
    let capacity = (bits as f64 / f64::from(probes) * LN2).round() as u64;
    (capacity.max(1), 0.5_f64.powi(i32::from(probes)))
}

/// Items that set so many of the bits, most likely; `u64::MAX` where all are set.
#[must_use]
pub fn items_of(set: u64, bits: u64, probes: u16) -> u64 {
    let items = -(bits as f64) / f64::from(probes) * libm::log1p(-(set as f64 / bits as f64));
    items.round() as u64
}
