//! The model: the false positive rate of a layer of blocks. `mod.rs` searches with it.
//!
//! # Blocks
//!
//! An item sets k bits of one block of B bits. With n items, the load of a block is Poisson with
//! mean n / blocks (Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters",
//! 2007). So
//!
//! ```text
//!   rate = sum over j of Poisson(j) * hit(j)
//!   hit(j) = f^k * e^(k (k-1) / 2 * v / f^2)
//!
//!   f = 1 - (1 - 1/B)^(k j)                 share of bits set
//!   v = e^-a (1 - (1 + a) e^-a) / B         variance of that share, a = k j / B
//! ```
//!
//! The second factor, which the textbook leaves out, accounts for the spread of f around its mean:
//! 2 % at B = 512 and k = 9. A single block has no spread of loads: its rate is hit(n).
//!
//! # Lines
//!
//! In a block of L > 1 cache lines, probes come in groups of four, each group in one line, and the
//! last group takes what is left (`hash.rs`). So hit(j) distinguishes pairs of probes. With s
//! pairs in the same group and d pairs in different groups, s + d = k (k-1) / 2,
//!
//! ```text
//!   hit(j) = f^k * e^((s u + d v) / f^2)    f = 1 - c
//!   u = c / 512 + (1 - 1/512) t - c^2       variance of the share of set bits in a line
//!   v = u / L + (1 - 1/L) (r - c^2)         variance of the share of set bits in the block
//! ```
//!
//! c, t and r are exact: the product over all groups of an item, to the power of j, of the
//! probability that a group of g probes leaves clear
//!
//! ```text
//!   c   one bit                      1 - (1 - (1 - 1/512)^g) / L
//!   t   two bits of one line         1 - (1 - (1 - 2/512)^g) / L
//!   r   two bits of two lines        1 - (1 - (1 - 1/512)^g) / L * 2
//! ```
//!
//! The simulated rate of random groups is 0.985 to 1.001 of this. The formula of the first section
//! holds for blocks of one line, blocks that are not of whole lines, and the only block of a layer.

use crate::filter::hash::PROBE_GROUP;

/// Probes in a line before the next is chosen.
const GROUP: u32 = PROBE_GROUP as u32;
const LINE_BITS: f64 = 512.0;

/// Limit of the terms summed on either side of the peak, of which about 20 are needed.
const MOST_TERMS: u32 = 1000;

/// A block and the probes of an item in it.
#[derive(Clone, Copy)]
pub(in crate::filter) struct Block {
    bits: f64,
    probes: u32,
    /// The logarithm of the probability that a probe anywhere leaves a bit clear.
    spared: f64,
    /// `None` if each probe lies anywhere.
    groups: Option<Groups>,
}

/// Logarithms of the probabilities that an item leaves certain bits clear, and numbers of pairs.
#[derive(Clone, Copy)]
struct Groups {
    lines: f64,
    one: f64,
    two: f64,
    apart: f64,
    same: f64,
    different: f64,
}

impl Block {
    /// One of several blocks of `bits` bits, a whole number of words.
    pub(in crate::filter) fn new(bits: f64, probes: u32) -> Self {
        let lines = bits / LINE_BITS;
        let groups = lines > 1.0 && lines.floor() == lines;
        Self { groups: groups.then(|| Groups::new(lines, probes)), ..Self::single(bits, probes) }
    }

    /// The only block of a layer: each probe lies anywhere in it.
    pub(in crate::filter) fn single(bits: f64, probes: u32) -> Self {
        Self { bits, probes, spared: libm::log1p(-1.0 / bits), groups: None }
    }

    /// The rate of one block that holds `items` items: `hit(j)` above.
    pub(in crate::filter) fn hit(&self, items: f64) -> f64 {
        let k = f64::from(self.probes);
        let (fill, exponent) = match self.groups {
            None => {
                let clear = libm::exp(k * items * self.spared);
                let variance = clear * (1.0 - (1.0 + k * items / self.bits) * clear) / self.bits;
                (1.0 - clear, k * (k - 1.0) / 2.0 * variance)
            }
            Some(groups) => groups.fill(items),
        };
        if fill <= 0.0 {
            return 0.0;
        }
        (power(fill, self.probes) * libm::exp(exponent / (fill * fill))).min(1.0)
    }

    /// The rate of a layer of such blocks that hold `load` items on average: the sum over j above.
    ///
    /// Sums outwards from the largest term; above a standard deviation of 6 every second (third,
    /// ...) j. With s nodes per deviation, the trapezoid rule on a bell curve is exact to e^(-2
    /// pi^2 s^2).
    pub(in crate::filter) fn rate(&self, load: f64) -> f64 {
        let peak = peak_of_sum(load, self.bits, f64::from(self.probes));
        let stride = (peak.sqrt() / 3.0).floor().max(1.0);
        let at_peak = libm::exp(peak * libm::log(load) - load - libm::lgamma(peak + 1.0));
        let mut sum = at_peak * self.hit(peak);

        for up in [true, false] {
            let (mut j, mut poisson) = (peak, at_peak);
            for _ in 0..MOST_TERMS {
                for _ in 0..stride as u32 {
                    if up {
                        j += 1.0;
                        poisson *= load / j;
                    } else {
                        poisson *= j / load;
                        j -= 1.0;
                    }
                }
                if j < 0.0 {
                    break;
                }
                let term = poisson * self.hit(j);
                sum += term;
                if term <= sum * 1e-6 {
                    break;
                }
            }
        }
        sum * stride
    }
}

impl Groups {
    fn new(lines: f64, probes: u32) -> Self {
        let (full, extra) = (probes / GROUP, probes % GROUP);
        // That all groups of an item leave clear `bits` bits in each of a `share` of the lines.
        let spared = |bits: f64, share: f64| {
            let group =
                |probes| libm::log1p(-(1.0 - power(1.0 - bits / LINE_BITS, probes)) * share);
            f64::from(full) * group(GROUP) + group(extra)
        };
        let pairs = |probes: u32| f64::from(probes) * (f64::from(probes) - 1.0) / 2.0;
        let same = f64::from(full) * pairs(GROUP) + pairs(extra);
        Self {
            lines,
            one: spared(1.0, 1.0 / lines),
            two: spared(2.0, 1.0 / lines),
            apart: spared(1.0, 2.0 / lines),
            same,
            different: pairs(probes) - same,
        }
    }

    /// The share of set bits, and s u + d v.
    fn fill(&self, items: f64) -> (f64, f64) {
        let [clear, two, apart] =
            [self.one, self.two, self.apart].map(|spared| libm::exp(items * spared));
        let line = clear / LINE_BITS + (1.0 - 1.0 / LINE_BITS) * two - clear * clear;
        let block = line / self.lines + (1.0 - 1.0 / self.lines) * (apart - clear * clear);
        (1.0 - clear, self.same * line + self.different * block)
    }
}

/// The j at which Poisson(j) f(j)^k is largest, above the mean. Newton's method on the derivative
/// of the logarithm, which falls and is convex: steps from the left never overshoot.
fn peak_of_sum(load: f64, bits: f64, k: f64) -> f64 {
    let mut j = load;
    for _ in 0..12 {
        let grown = libm::expm1(k * j / bits);
        let slope = libm::log(load / j) + k * k / bits / grown;
        let curve = 1.0 / j + k * k * k / (bits * bits) * (grown + 1.0) / (grown * grown);
        let step = slope / curve;
        j += step;
        if step < 0.05 * j.sqrt() {
            break;
        }
    }
    j.round()
}

/// x^n by squaring, in the order of the compiler's `powi`, which valkey-bloom uses. The result is
/// the same on every machine, unlike that of the platform's `powi`.
pub(in crate::filter) fn power(mut x: f64, mut n: u32) -> f64 {
    let mut product = 1.0;
    while n > 0 {
        if n & 1 == 1 {
            product *= x;
        }
        x *= x;
        n >>= 1;
    }
    product
}
