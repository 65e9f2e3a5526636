//! Capacity and error rate in, geometry out: how many blocks, how long, how many probes.
//!
//! # The model
//!
//! A layer is `blocks` blocks of B bits; an item sets k bits of one block. With n items the load of a block is Poisson
//! with mean n / blocks (Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007), so
//!
//! ```text
//!   rate = sum over j of Poisson(j) * hit(j)
//!   hit(j) = f^k * e^(k (k-1) / 2 * v / f^2)         f = 1 - (1 - 1/B)^(k j)          share of bits set
//!                                                     v = e^-a (1 - (1 + a) e^-a) / B   its variance, a = k j / B
//! ```
//!
//! The second factor is the spread of f around its mean (the textbook f^k leaves it out; at B = 512 and k = 9 it is
//! worth 2 %; the exponential also bounds the higher orders, which matter for a few items in a few words). A single block has no spread of loads: its rate is hit(n).
//!
//! n is not the capacity but a little more. The server counts an item when it changed a bit; items that tested present
//! by accident are not counted, so when the count reaches the capacity, more distinct items have been added. `distinct`
//! gives how many: 1.002 times the capacity at 1 %, 1.11 times at 25 %. Left out, a full filter of 25 % would measure
//! 28 %.
//!
//! # The rule
//!
//! Small blocks are fast (one cache line, one page) and pay for the spread of loads in memory. So: the smallest
//! power-of-two block with which the whole layer stays within `slack` of the classic optimum ln(1/p) / ln(2)^2 bits
//! per item; then the fewest probes that stay within it; then the fewest blocks that keep the rate. A layer too small
//! for that (its blocks would be too few to divide the bits well) takes as few equal blocks as hold it, of any whole
//! number of words; most often that is one block of exactly the bits that it needs.
//!
//! # Determinism
//!
//! A replica that is told (capacity, rate, expansion, seed) must arrive at the same bits on any machine. Everything here is
//! +, -, *, / and square roots, which IEEE 754 fixes, and `libm`, which is the same code everywhere; never the
//! platform's `ln`, `exp` or `powf`.
//!
//! One call costs under a microsecond for a filter of one page, some 10 at 1 %, and up to 50 at rates of 1e-9 and below,
//! where small blocks are tried in vain.

use std::f64::consts::LN_2;

use super::bits::MAX_WORDS;

/// Shape of one layer. `blocks * block_words` words of bits in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// Words of 64 bits in a block, at least 1.
    pub block_words: u16,
    /// Bits set per item, in [1, `MAX_PROBES`].
    pub probes: u8,
}

impl Geometry {
    /// Words of the whole layer.
    #[must_use]
    pub fn words(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_words)
    }
}

/// The most probes that any rate asks for (see `FLOOR`).
pub const MAX_PROBES: u8 = 128;

/// Rates below this are sized as this: a 128-bit hash of 2^28 items collides with a random one at 2^-100 = 8e-31, so
/// more bits could not lower the rate.
const FLOOR: f64 = 1e-30;

/// The rate that the sizing asks of the model is this share of the rate asked of the layer: room for what the model
/// leaves out. Measured rates lie within 1 % of the model (`tests/filter/rate.rs`).
const SHARE: f64 = 0.99;

/// Block sizes tried, in words: one cache line (512 bits) to 32 KiB. Rates down to 1e-7 need no more than a page (512
/// words).
const BLOCK_WORDS: [u16; 10] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// A layer that fits in one page of memory is one block.
const PAGE_BITS: f64 = 32_768.0;

/// How much larger than the classic optimum a layer may be, by its rate.
///
/// The last bound keeps a reserved filter no larger than the ln(2/p) / ln(2)^2 bits per item of RedisBloom: its first
/// layer is sized for rate = 3/4 p (`budget.rs`), so there are ln(1.5) = 0.405 nats an item to spend.
fn slack(rate: f64) -> f64 {
    let most: f64 = if rate >= 0.001 {
        1.06
    } else if rate >= 0.000_1 {
        1.04
    } else {
        1.025
    };
    most.min(1.0 + 0.4 / -libm::log(rate))
}

/// Rates at which the slack is the whole allowance.
///
/// Above, the uncounted items weigh and no whole number of probes comes near the optimum; below, `slack` tends to 1,
/// which the longest blocks cannot reach. There 2 % over the classic filter that exists is the measure. The lower end
/// lies under 3/4 of 1e-9, so that reserved filters keep RedisBloom's formula down to 1e-9.
const TIGHT: std::ops::RangeInclusive<f64> = 5e-10..=0.1;

/// The geometry of a layer for `capacity` items (at least 1) at `rate` in (0, 1), or `None` when the bits are more
/// than can be addressed (2^50, 128 TiB: a 32-bit number of the longest blocks).
#[must_use]
pub fn geometry(capacity: u64, rate: f64) -> Option<Geometry> {
    let target = SHARE * rate.max(FLOOR);
    let classic = Classic::at(target);
    let optimum = -libm::log(rate.max(FLOOR)) / (LN_2 * LN_2);
    let items = |k| distinct(capacity as f64, target, k);
    let mut allowed = slack(rate) * optimum * capacity as f64;
    if !TIGHT.contains(&rate) {
        allowed = allowed.max(1.02 * classic.bits_per_item * items(classic.probes));
    }
    if allowed / 64.0 >= MAX_WORDS as f64 {
        return None;
    }
    if allowed > PAGE_BITS {
        for block_words in BLOCK_WORDS {
            let bits = f64::from(block_words) * 64.0;
            let blocks = (allowed / bits).floor();
            if blocks < 1.0 || blocks > f64::from(u32::MAX) {
                continue;
            }
            // The evenly loaded block is a lower bound that costs one term: it spares the sum for blocks far too small.
            let keeps = |k| {
                let load = items(k) / blocks;
                hit(load, bits, k) <= target && model_rate(load, bits, k) <= target
            };
            let Some(probes) = fewest_probes(classic.probes, keeps) else {
                continue;
            };
            let items = items(probes);
            let most = most_items_per_block(bits, probes, items / blocks, target);
            let blocks = (items / most).ceil().min(blocks);
            return Some(Geometry {
                blocks: blocks as u32,
                block_words,
                probes: probes as u8,
            });
        }
    }
    few_blocks(items, target, classic, allowed)
}

/// As few equal blocks as hold the layer, each as short as the rate allows: nearly always one.
fn few_blocks(items: impl Fn(u32) -> f64, target: f64, classic: Classic, allowed: f64) -> Option<Geometry> {
    let longest = f64::from(BLOCK_WORDS[BLOCK_WORDS.len() - 1]) * 64.0;
    let blocks = (allowed / longest).ceil().max(1.0);
    if blocks > f64::from(u32::MAX) {
        return None;
    }
    let one = blocks == 1.0;
    let rate = |words: f64, k: u32| {
        let load = items(k) / blocks;
        if one {
            hit(load, words * 64.0, k)
        } else {
            model_rate(load, words * 64.0, k)
        }
    };
    // One block is tried from the classic optimum up, word by word; several start at the memory that is allowed.
    let first = if one {
        items(classic.probes) * classic.bits_per_item
    } else {
        allowed / blocks
    };
    let mut words = (first / 64.0).floor().max(1.0);
    while words <= f64::from(u16::MAX) {
        if let Some(probes) = fewest_probes(classic.probes, |k| rate(words, k) <= target) {
            return Some(Geometry {
                blocks: blocks as u32,
                block_words: words as u16,
                probes: probes as u8,
            });
        }
        words += (words / 256.0).floor().max(1.0);
    }
    None
}

/// The classic (unblocked) filter of least memory at a rate: a whole number of probes and its bits per item.
#[derive(Clone, Copy)]
struct Classic {
    probes: u32,
    bits_per_item: f64,
}

impl Classic {
    fn at(rate: f64) -> Self {
        let real = -libm::log(rate) / LN_2;
        let with = |k: f64| -k / libm::log1p(-libm::pow(rate, 1.0 / k));
        let (low, high) = (real.floor().max(1.0), real.ceil().max(1.0));
        let k = if with(low) <= with(high) { low } else { high };
        Self {
            probes: k as u32,
            bits_per_item: with(k),
        }
    }
}

/// How many distinct items must be added until `counted` of them changed a bit, when the rate is `rate` at the end.
///
/// With a = k n / m the rate after a share of the items is (1 - e^-x)^k, x in [0, a]; its mean is what goes uncounted:
/// I_k / a where I_k = integral of (1 - e^-x)^k = I_(k-1) - (1 - e^-a)^k / k and I_0 = a.
fn distinct(counted: f64, rate: f64, k: u32) -> f64 {
    // Below this the mean is under 1e-4 and the recurrence would lose it to cancellation.
    if rate < 1e-3 {
        return counted;
    }
    let fill = libm::pow(rate, 1.0 / f64::from(k));
    let a = -libm::log1p(-fill);
    let (mut integral, mut power) = (a, 1.0);
    for i in 1..=k {
        power *= fill;
        integral -= power / f64::from(i);
    }
    counted * a / (a - integral)
}

/// The fewest probes that `keeps` the rate, or `None`. The rate falls and then rises with k, lowest near or a little
/// below the classic `best` (spread loads favour fewer probes), so the search starts there and walks down.
fn fewest_probes(best: u32, keeps: impl Fn(u32) -> bool) -> Option<u32> {
    let near = best - best / 8;
    let mut probes = [best, near].into_iter().find(|&k| keeps(k))?;
    while probes > 1 && keeps(probes - 1) {
        probes -= 1;
    }
    Some(probes)
}

/// The most items per block at which the model keeps `target`, from a load that keeps it: a secant on
/// log(rate) against log(load), which is nearly straight.
fn most_items_per_block(bits: f64, probes: u32, load: f64, target: f64) -> f64 {
    let log_rate = |log_load: f64| libm::log(model_rate(libm::exp(log_load), bits, probes));
    let goal = libm::log(target);
    let (mut near, mut far) = (libm::log(load), libm::log(load) + 0.02);
    let mut near_rate = log_rate(near);
    for _ in 0..3 {
        let far_rate = log_rate(far);
        let slope = (far_rate - near_rate) / (far - near);
        let next = far + (goal - far_rate) / slope;
        (near, near_rate, far) = (far, far_rate, next);
        if (far - near).abs() < 1e-5 {
            break;
        }
    }
    // A ten-thousandth of memory instead of a last check: the secant has converged to better than that.
    load.max(libm::exp(far) * 0.999_9)
}

/// Terms on either side of the peak: some 20 are needed; the bound ends the loop whatever the numbers.
const MOST_TERMS: u32 = 1000;

/// The rate of a layer whose blocks hold `load` items on average: the sum over j in the file's essay.
///
/// Summed outwards from the largest term. Beyond a standard deviation of 6 only every second (third, ...) j is taken:
/// the trapezoid rule on a bell curve is exact to e^(-2 pi^2 s^2) at s nodes a deviation.
fn model_rate(load: f64, bits: f64, probes: u32) -> f64 {
    let peak = peak_of_sum(load, bits, f64::from(probes));
    let stride = (peak.sqrt() / 3.0).floor().max(1.0);
    let at_peak = libm::exp(peak * libm::log(load) - load - libm::lgamma(peak + 1.0));
    let mut sum = at_peak * hit(peak, bits, probes);

    let (mut j, mut poisson) = (peak, at_peak);
    for _ in 0..MOST_TERMS {
        for _ in 0..stride as u32 {
            j += 1.0;
            poisson *= load / j;
        }
        let term = poisson * hit(j, bits, probes);
        sum += term;
        if term <= sum * 1e-6 {
            break;
        }
    }
    (j, poisson) = (peak, at_peak);
    for _ in 0..MOST_TERMS {
        for _ in 0..stride as u32 {
            poisson *= j / load;
            j -= 1.0;
        }
        if j < 0.0 {
            break;
        }
        let term = poisson * hit(j, bits, probes);
        sum += term;
        if term <= sum * 1e-6 {
            break;
        }
    }
    sum * stride
}

/// The j at which Poisson(j) f(j)^k is largest: above the mean, because full blocks answer wrong most often. Newton on
/// the derivative of its logarithm, which falls and is convex, so that the steps from the left never overshoot.
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

/// The rate of one block of `bits` bits that holds `items` items: `hit(j)` in the file's essay.
fn hit(items: f64, bits: f64, probes: u32) -> f64 {
    let k = f64::from(probes);
    let clear = libm::exp(k * items * libm::log1p(-1.0 / bits));
    let fill = 1.0 - clear;
    if fill <= 0.0 {
        return 0.0;
    }
    let variance = clear * (1.0 - (1.0 + k * items / bits) * clear) / bits;
    (power(fill, probes) * libm::exp(k * (k - 1.0) / 2.0 * variance / (fill * fill))).min(1.0)
}

/// x^n by squaring, the same on every machine (the platform's `powi` is not).
fn power(mut x: f64, mut n: u32) -> f64 {
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
