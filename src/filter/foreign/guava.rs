//! Guava's filters: the capacity and rate of a number of bits and probes.
//!
//! ```text
//!   design point       n = bits / k * ln(2): half of the bits are set, and the rate is 2^-k
//!   items in it        n = -bits / k * ln(1 - fill)
//! ```
//!
//! Guava's files contain only bits and probes. Such a filter never grows, because Guava has no rule
//! for growth.

use std::f64::consts::LN_2;

/// Capacity and rate at the design point for this many bits and probes, both at least 1.
pub fn design(bits: u64, probes: u16) -> (u64, f64) {
    let capacity = (bits as f64 / f64::from(probes) * LN_2).round() as u64;
    (capacity.max(1), libm::ldexp(1.0, -i32::from(probes)))
}

/// The most likely number of items if `set` bits are set; `u64::MAX` if all are.
pub fn items_of(set: u64, bits: u64, probes: u16) -> u64 {
    let items = -(bits as f64) / f64::from(probes) * libm::log1p(-(set as f64 / bits as f64));
    items.round() as u64
}
