//! Capacity and error rate in, geometry out: number of blocks, block length, number of probes.
//!
//! Small blocks are fast (one cache line, one page), but cost memory, because their loads differ.
//! So the search takes, in this order:
//!
//! 1. the smallest power-of-two block with which the layer stays within `slack` of the classic
//!    optimum of ln(1/p) / ln(2)^2 bits per item;
//! 2. the fewest probes that stay within it;
//! 3. the fewest blocks that keep the rate.
//!
//! A replica must compute the same sizes on every machine. So the sizing uses only +, -, *, /,
//! square roots and `libm` (`clippy.toml`). One call takes 2 to 80 microseconds.
//!
//! # The model: the false positive rate of a layer of blocks
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
//! # Blocks of several lines
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
//! c, t and r are exact. Each is a product over all groups of an item, to the power of j. Its
//! factors are the probabilities that a group of g probes leaves clear:
//!
//! ```text
//!   c   one bit                      1 - (1 - (1 - 1/512)^g) / L
//!   t   two bits of one line         1 - (1 - (1 - 2/512)^g) / L
//!   r   two bits of two lines        1 - (1 - (1 - 1/512)^g) / L * 2
//! ```
//!
//! The simulated rate of random groups is 0.985 to 1.001 of this. The first formula holds for
//! blocks of one line, blocks that are not of whole lines, and the only block of a layer.

use std::f64::consts::LN_2;

use super::{
    hash::PROBE_GROUP,
    layer::{Geometry, bits::MAX_WORDS},
};

/// The most probes that any rate needs (see `FLOOR`).
pub const MAX_PROBES: u8 = 128;

/// Lower rates are sized as this one: with 2^28 items, 128-bit hashes collide at 8e-31.
const FLOOR: f64 = 1e-30;

/// The model has to reach this share of the rate: measured rates are at most 1 % above the model
/// (`tests/filter/rate.rs`).
const SHARE: f64 = 0.99;

/// Block sizes that are tried, in words: one cache line (512 bits) to 32 KiB.
const BLOCK_WORDS: [u16; 10] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// A layer that fits in one page of memory is one block.
const PAGE_BITS: f64 = 32_768.0;

/// Probes in a line before the next is chosen.
const GROUP: u32 = PROBE_GROUP as u32;
const LINE_BITS: f64 = 512.0;

/// Limit of the terms summed on either side of the peak, of which about 20 are needed.
const MOST_TERMS: u32 = 1000;

/// The rate that the layer of a filter of rate `asked` is built for. Pages above it get the rest.
pub fn layer_rate(asked: f64, scales: bool) -> f64 {
    // Keeps the rate above zero for an asked rate near the smallest double.
    (asked * if scales { 0.75 } else { 1.0 }).max(f64::MIN_POSITIVE)
}

/// The memory that a layer may take, relative to the classic optimum, by its rate.
///
/// The last bound keeps a reserved filter within RedisBloom's ln(2/p) / ln(2)^2 bits per item: its
/// layer is sized for 3/4 p, so it may spend ln(1.5) = 0.405 nats per item.
fn slack(rate: f64) -> f64 {
    let most: f64 = match rate {
        0.001.. => 1.06,
        0.000_1.. => 1.04,
        _ => 1.025,
    };
    most.min(1.0 + 0.4 / -libm::log(rate))
}

/// Inside this range of rates, `slack` alone limits the memory.
///
/// Above the range, no whole number of probes comes near the optimum: a layer may take 2 % more
/// memory than the best classic filter. Below it, `slack` tends to 1, which the longest blocks
/// cannot reach: a layer may take 3.2 % more. Reserved filters (3/4 of the rate) stay within
/// RedisBloom's formula down to 1e-9.
const TIGHT: std::ops::RangeInclusive<f64> = 5e-10..=0.1;

/// The geometry of a layer for `capacity` items (at least 1) at `rate` in (0, 1). `None` above 2^50
/// bits (128 TiB), the most that 32-bit numbers of the longest blocks address.
pub fn geometry(capacity: u64, rate: f64) -> Option<Geometry> {
    let target = SHARE * rate.max(FLOOR);
    let (best, bits_per_item) = classic_optimum(target);
    let optimum = -libm::log(rate.max(FLOOR)) / (LN_2 * LN_2);
    let items = |k| distinct(capacity as f64, target, k);
    let mut allowed = slack(rate) * optimum * capacity as f64;
    if !TIGHT.contains(&rate) {
        let over = if rate > *TIGHT.end() { 1.02 } else { 1.032 };
        allowed = allowed.max(over * bits_per_item * items(best));
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
            // An evenly loaded block gives a lower bound, which rejects far too small blocks.
            let keeps = |k| {
                let (block, load) = (Block::new(bits, k), items(k) / blocks);
                block.hit(load) <= target && block.rate(load) <= target
            };
            let Some(probes) = fewest_probes(best, keeps) else {
                continue;
            };
            let items = items(probes);
            let most = most_items_per_block(Block::new(bits, probes), items / blocks, target);
            let blocks = (items / most).ceil().min(blocks);
            return Some(Geometry { blocks: blocks as u32, block_words, probes: probes as u8 });
        }
    }
    // A small layer has as few equal blocks as possible, nearly always one, each of any number of
    // words.
    let longest = f64::from(BLOCK_WORDS[BLOCK_WORDS.len() - 1]) * 64.0;
    let blocks = (allowed / longest).ceil().max(1.0);
    if blocks > f64::from(u32::MAX) {
        return None;
    }
    // A single block grows word by word from the classic optimum, several from the allowed memory.
    let first = if blocks == 1.0 { items(best) * bits_per_item } else { allowed / blocks };
    let mut words = (first / 64.0).floor().max(1.0);
    while words <= f64::from(u16::MAX) {
        let keeps = |k| rate_of(blocks, words, k, items(k)) <= target;
        if let Some(probes) = fewest_probes(best, keeps) {
            let (blocks, block_words) = (blocks as u32, words as u16);
            return Some(Geometry { blocks, block_words, probes: probes as u8 });
        }
        words += (words / 256.0).floor().max(1.0);
    }
    None
}

/// The rate of `blocks` blocks with `items` distinct items.
fn rate_of(blocks: f64, block_words: f64, probes: u32, items: f64) -> f64 {
    let (bits, load) = (block_words * 64.0, items / blocks);
    if blocks == 1.0 {
        Block::single(bits, probes).hit(load)
    } else {
        Block::new(bits, probes).rate(load)
    }
}

/// The rate of a layer with `items` distinct items, on average over all seeds.
pub(super) fn expected_rate(geometry: Geometry, items: f64) -> f64 {
    let Geometry { blocks, block_words, probes } = geometry;
    if items > 0.0 {
        rate_of(blocks.into(), block_words.into(), probes.into(), items).min(1.0)
    } else {
        0.0
    }
}

/// Probes and bits per item of the classic (unblocked) filter of least memory at a rate.
fn classic_optimum(rate: f64) -> (u32, f64) {
    let real = -libm::log(rate) / LN_2;
    let with = |k: f64| -k / libm::log1p(-libm::pow(rate, 1.0 / k));
    let (low, high) = (real.floor().max(1.0), real.ceil().max(1.0));
    let k = if with(low) <= with(high) { low } else { high };
    (k as u32, with(k))
}

/// The distinct items that must be added until `counted` of them changed a bit, at the end at
/// `rate`: 1.002 times as many at 1 %, 1.11 times at 25 %.
///
/// With a = k n / m, the rate after a share of the items is (1 - e^-x)^k, x in [0, a]. Its mean is
/// the share of uncounted items, I_k / a, where I_k is the integral of (1 - e^-x)^k over [0, a]:
/// I_k = I_(k-1) - (1 - e^-a)^k / k, and I_0 = a.
fn distinct(counted: f64, rate: f64, k: u32) -> f64 {
    // Below this rate the mean is under 1e-4, and the recurrence would lose it to cancellation.
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

/// The fewest probes for which `keeps` is true. The rate is lowest at the classic `best` or a
/// little below, so the search starts there and goes down.
fn fewest_probes(best: u32, keeps: impl Fn(u32) -> bool) -> Option<u32> {
    let near = best - best / 8;
    let mut probes = [best, near].into_iter().find(|&k| keeps(k))?;
    while probes > 1 && keeps(probes - 1) {
        probes -= 1;
    }
    Some(probes)
}

/// The most items per block at which the model keeps `target`, from a load that keeps it. A secant
/// on log(rate) against log(load), which is nearly straight.
fn most_items_per_block(block: Block, load: f64, target: f64) -> f64 {
    let log_rate = |log_load: f64| libm::log(block.rate(libm::exp(log_load)));
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
    // The secant is more accurate than this margin of a ten-thousandth of the memory.
    load.max(libm::exp(far) * 0.999_9)
}

/// A block and the probes of an item in it.
#[derive(Clone, Copy)]
struct Block {
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
    /// Of one bit, of two bits of one line, and of two bits of two lines: c, t and r for one item.
    spared: [f64; 3],
    same: f64,
    different: f64,
}

impl Block {
    /// One of several blocks of `bits` bits, a whole number of words.
    fn new(bits: f64, probes: u32) -> Self {
        let lines = bits / LINE_BITS;
        let groups = lines > 1.0 && lines.floor() == lines;
        Self { groups: groups.then(|| Groups::new(lines, probes)), ..Self::single(bits, probes) }
    }

    /// The only block of a layer: each probe lies anywhere in it.
    fn single(bits: f64, probes: u32) -> Self {
        Self { bits, probes, spared: libm::log1p(-1.0 / bits), groups: None }
    }

    /// The rate of one block that holds `items` items: `hit(j)` above.
    fn hit(&self, items: f64) -> f64 {
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
    fn rate(&self, load: f64) -> f64 {
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
        let apart = spared(1.0, 2.0 / lines);
        let spared = [spared(1.0, 1.0 / lines), spared(2.0, 1.0 / lines), apart];
        Self { lines, spared, same, different: pairs(probes) - same }
    }

    /// The share of set bits, and s u + d v.
    fn fill(&self, items: f64) -> (f64, f64) {
        let [clear, two, apart] = self.spared.map(|spared| libm::exp(items * spared));
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
/// the same on every machine, unlike the platform's `powi`.
pub(super) fn power(mut x: f64, mut n: u32) -> f64 {
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
