//! Guava's filters, and bitmaps that clients fill by its recipe: the hash, and the formulas between
//! capacity, rate, bits and probes.
//!
//! ```text
//!   hash of an item    MurmurHash3, 128 bits, seed 0, of its bytes
//!   bits               -n ln(p) / ln(2)^2, cut to whole
//!   probes             k = round(bits / n * ln(2)), at least 1; newer releases: round(-ln(p) / ln(2))
//!   design point       n = bits / k * ln(2): there half of the bits are set, and the rate is 2^-k
//!   items in it        n = -bits / k * ln(1 - fill)
//! ```
//!
//! What Guava writes has bits and probes alone. Which of its two strategies finds the positions is
//! the rule of the layer (`layer/classic/positions.rs`). Such a filter never grows: in Guava there
//! is no growth to go on with.
//!
//! The logarithm is `libm`'s: what is accepted and where a bitmap's bits lie must be the same on
//! every machine. Java's own may differ from it in the last bit, which moves no size unless `-n
//! ln(p) / ln(2)^2` lies that close to a whole number: of the 90,000 capacities and rates of the
//! test below, none does.

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

/// Bits for `capacity` items at a rate of this logarithm.
fn bits_of(capacity: u64, ln_rate: f64) -> u64 {
    // The conversion stops at the largest number, as Java's does.
    (-(capacity as f64) * ln_rate / (LN2 * LN2)) as u64
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
    probes_of(libm::log(rate))
}

/// Probes at a rate of this logarithm, by the formula of newer releases.
fn probes_of(ln_rate: f64) -> u64 {
    let probes = (-ln_rate / LN2).round() as u64;
    probes.max(1)
}

/// Capacity and rate of the design point of so many bits and probes, neither of them 0.
#[must_use]
pub fn design(bits: u64, probes: u16) -> (u64, f64) {
    let capacity = (bits as f64 / f64::from(probes) * LN2).round() as u64;
    (capacity.max(1), libm::ldexp(1.0, -i32::from(probes)))
}

/// Items that set so many of the bits, most likely; `u64::MAX` where all are set.
#[must_use]
pub fn items_of(set: u64, bits: u64, probes: u16) -> u64 {
    let items = -(bits as f64) / f64::from(probes) * libm::log1p(-(set as f64 / bits as f64));
    items.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whichever logarithm Guava computed with, as long as it is off by no more than a unit in the
    /// last place, it decided the same. Java promises that of its own.
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
        // What `writeTo` can say: a number of longs in an `int`. Of more bits a last place weighs
        // more.
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
            // One bit, where the format has it.
            let bits = match probes {
                1..=1_022 => (1_023 - u64::from(probes)) << 52,
                _ => 1 << (1_074 - probes),
            };
            assert_eq!(rate.to_bits(), bits, "{probes}");
        }
    }
}
