//! Guava's filters, and bitmaps that clients fill by its recipe: the hash, and the formulas that
//! relate capacity, rate, bits and probes.
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
//! The logarithm is `libm`'s: the accepted sizes and the positions in a bitmap must be the same on
//! every machine. Java's logarithm may differ in the last bit. This changes a size only if -n ln(p)
//! / ln(2)^2 is that close to a whole number; none of the 90,000 capacities and rates in the test
//! below is.

use super::murmur3;
use crate::filter::hash::Hash;

const LN2: f64 = std::f64::consts::LN_2;

/// The hash of an item.
pub(in crate::filter) fn hash(item: &[u8]) -> Hash {
    let [block, probes] = murmur3::hash128(item, 0);
    Hash { block, probes }
}

/// Bits and probes that Guava gives a filter for `capacity` items at `rate` in (0, 1).
#[must_use]
pub fn optimal(capacity: u64, rate: f64) -> (u64, u64) {
    let bits = bits_of(capacity, libm::log(rate));
    (bits, optimal_probes(bits, capacity))
}

/// Bits for `capacity` items at the rate with this logarithm.
fn bits_of(capacity: u64, ln_rate: f64) -> u64 {
    // The conversion saturates, as Java's does.
    (-(capacity as f64) * ln_rate / (LN2 * LN2)) as u64
}

/// Probes that Guava's formula gives a filter of this many bits, whatever rate they were made for.
#[must_use]
pub fn optimal_probes(bits: u64, capacity: u64) -> u64 {
    let probes = (bits as f64 / capacity as f64 * LN2).round() as u64;
    probes.max(1)
}

/// Probes that newer releases of Guava give a filter at `rate`.
#[must_use]
pub fn probes_of_rate(rate: f64) -> u64 {
    probes_of(libm::log(rate))
}

/// Probes at the rate with this logarithm, by the formula of newer releases.
fn probes_of(ln_rate: f64) -> u64 {
    let probes = (-ln_rate / LN2).round() as u64;
    probes.max(1)
}

/// Capacity and rate at the design point for this many bits and probes, both at least 1.
#[must_use]
pub fn design(bits: u64, probes: u16) -> (u64, f64) {
    let capacity = (bits as f64 / f64::from(probes) * LN2).round() as u64;
    (capacity.max(1), libm::ldexp(1.0, -i32::from(probes)))
}

/// The most likely number of items if `set` bits are set; `u64::MAX` if all are.
#[must_use]
pub fn items_of(set: u64, bits: u64, probes: u16) -> u64 {
    let items = -(bits as f64) / f64::from(probes) * libm::log1p(-(set as f64 / bits as f64));
    items.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every logarithm that is at most one unit in the last place off gives the same sizes. Java
    /// guarantees this accuracy for its own.
    #[test]
    fn no_logarithm_within_a_unit_of_the_last_place_decides_otherwise() {
        let decimals = (1..=15)
            .flat_map(|n| (1..=9).map(move |digit| f64::from(digit) / libm::exp10(f64::from(n))));
        let halves = (1..=60).map(|n| libm::ldexp(1.0, -n));
        let thirds = (1..=20).map(|n| 1.0 / f64::from(3 * n));
        let rates: Vec<f64> = decimals.chain(halves).chain(thirds).collect();
        let capacities: Vec<u64> = (0..10)
            .flat_map(|power| (1..=47).map(move |digits| digits * 10_u64.pow(power)))
            .collect();
        // The most bits that `writeTo` can write: the number of longs is an `int`. With more bits,
        // a last place weighs more.
        let most = 64 * i32::MAX as u64;
        let mut decided = 0;
        for &rate in &rates {
            let ln = libm::log(rate);
            let near = [ln.next_down(), ln.next_up()];
            for &capacity in &capacities {
                let bits = bits_of(capacity, ln);
                if bits > most {
                    continue;
                }
                decided += 1;
                assert_eq!(
                    near.map(|ln| bits_of(capacity, ln)),
                    [bits; 2],
                    "{capacity} at {rate:e}"
                );
            }
            let probes = probes_of(ln);
            assert_eq!(near.map(probes_of), [probes; 2], "{rate:e}");
        }
        assert!(decided > 30_000, "{decided}");
    }

    #[test]
    fn the_rate_of_the_design_point_is_a_power_of_two_to_the_bit() {
        for probes in 1..=1_074 {
            let (_, rate) = design(64, probes);
            // The IEEE 754 pattern of 2^-probes: a single bit, of the exponent or of a subnormal.
            let bits = match probes {
                1..=1_022 => (1_023 - u64::from(probes)) << 52,
                _ => 1 << (1_074 - probes),
            };
            assert_eq!(rate.to_bits(), bits, "{probes}");
        }
    }
}
