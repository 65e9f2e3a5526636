//! Capacity and error rate in, geometry out: how many blocks, how long, how many probes.
//!
//! What rate a geometry has is told by the model (`block_rate.rs`); this is the search.
//!
//! # What a filter counts
//!
//! n is not the capacity but a little more. The server counts an item when it changed a bit; items
//! that tested present by accident are not counted, so when the count reaches the capacity, more
//! distinct items have been added. `distinct` gives how many: 1.002 times the capacity at 1 %, 1.11
//! times at 25 %. Left out, a full filter of 25 % would measure 28 %.
//!
//! # The rule
//!
//! Small blocks are fast (one cache line, one page) and pay for the spread of loads in memory. So:
//! the smallest power-of-two block with which the whole layer stays within `slack` of the classic
//! optimum ln(1/p) / ln(2)^2 bits per item; then the fewest probes that stay within it; then the
//! fewest blocks that keep the rate. A layer too small for that (its blocks would be too few to
//! divide the bits well) takes as few equal blocks as hold it, of any whole number of words; most
//! often that is one block of exactly the bits that it needs. (Of whole lines it would have to be
//! 0.4 % to 1 % longer: one that just misses the rate there takes a word more.)
//!
//! # Determinism
//!
//! A replica that is told (capacity, rate, expansion, seed) must arrive at the same bits on any
//! machine. Everything here and in `block_rate.rs` is +, -, *, / and square roots, which IEEE 754
//! fixes, and `libm`, which is the same code everywhere; never the platform's `ln`, `exp` or
//! `powf`, which clippy refuses in all of src (`clippy.toml`).
//!
//! One call costs a microsecond or two for a filter of one page, some 10 at 1 %, and up to 80 at
//! rates of 1e-9 and below, where small blocks are tried in vain.

use std::f64::consts::LN_2;

mod block_rate;
mod budget;

pub use budget::layer_rate;

use block_rate::Block;

use super::geometry::{Geometry, MAX_WORDS};

/// The most probes that any rate asks for (see `FLOOR`).
pub const MAX_PROBES: u8 = 128;

/// Rates below this are sized as this: a 128-bit hash of 2^28 items collides with a random one at
/// 2^-100 = 8e-31, so more bits could not lower the rate.
const FLOOR: f64 = 1e-30;

/// The rate that the sizing asks of the model is this share of the rate asked of the layer: room
/// for what the model leaves out. Measured rates lie within 1 % of the model
/// (`tests/filter/rate.rs`), or below it: single blocks at 0.01 % by 4 %.
const SHARE: f64 = 0.99;

/// Block sizes tried, in words: one cache line (512 bits) to 32 KiB. Rates down to 1e-6 need no
/// more than a page (512 words).
const BLOCK_WORDS: [u16; 10] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// A layer that fits in one page of memory is one block.
const PAGE_BITS: f64 = 32_768.0;

/// How much larger than the classic optimum a layer may be, by its rate.
///
/// The last bound keeps a reserved filter no larger than the ln(2/p) / ln(2)^2 bits per item of
/// RedisBloom: its first layer is sized for rate = 3/4 p (`budget.rs`), so there are ln(1.5) =
/// 0.405 nats an item to spend.
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
/// Above, the uncounted items weigh and no whole number of probes comes near the optimum; below,
/// `slack` tends to 1, which the longest blocks cannot reach. There 2 % over the classic filter
/// that exists is the measure above, and 3.2 % below, where probes in groups alone take 1 %. The
/// lower end lies under 3/4 of 1e-9, so that reserved filters keep RedisBloom's formula down to
/// 1e-9.
const TIGHT: std::ops::RangeInclusive<f64> = 5e-10..=0.1;

/// The geometry of a layer for `capacity` items (at least 1) at `rate` in (0, 1), or `None` when
/// the bits are more than can be addressed (2^50, 128 TiB: a 32-bit number of the longest blocks).
#[must_use]
pub fn geometry(capacity: u64, rate: f64) -> Option<Geometry> {
    let target = SHARE * rate.max(FLOOR);
    let classic = Classic::at(target);
    let optimum = -libm::log(rate.max(FLOOR)) / (LN_2 * LN_2);
    let items = |k| distinct(capacity as f64, target, k);
    let mut allowed = slack(rate) * optimum * capacity as f64;
    if !TIGHT.contains(&rate) {
        let over = if rate > *TIGHT.end() { 1.02 } else { 1.032 };
        allowed = allowed.max(over * classic.bits_per_item * items(classic.probes));
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
            // The evenly loaded block is a lower bound that costs one term: it spares the sum for
            // blocks far too small.
            let keeps = |k| {
                let (block, load) = (Block::new(bits, k), items(k) / blocks);
                block.hit(load) <= target && block.rate(load) <= target
            };
            let Some(probes) = fewest_probes(classic.probes, keeps) else {
                continue;
            };
            let items = items(probes);
            let most = most_items_per_block(Block::new(bits, probes), items / blocks, target);
            let blocks = (items / most).ceil().min(blocks);
            return Some(Geometry { blocks: blocks as u32, block_words, probes: probes as u8 });
        }
    }
    few_blocks(items, target, classic, allowed)
}

/// As few equal blocks as hold the layer, each as short as the rate allows: nearly always one.
fn few_blocks(
    items: impl Fn(u32) -> f64,
    target: f64,
    classic: Classic,
    allowed: f64,
) -> Option<Geometry> {
    let longest = f64::from(BLOCK_WORDS[BLOCK_WORDS.len() - 1]) * 64.0;
    let blocks = (allowed / longest).ceil().max(1.0);
    if blocks > f64::from(u32::MAX) {
        return None;
    }
    let one = blocks == 1.0;
    let rate = |words: f64, k: u32| {
        let load = items(k) / blocks;
        if one {
            Block::single(words * 64.0, k).hit(load)
        } else {
            Block::new(words * 64.0, k).rate(load)
        }
    };
    // One block is tried from the classic optimum up, word by word; several start at the memory
    // that is allowed.
    let first = if one { items(classic.probes) * classic.bits_per_item } else { allowed / blocks };
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

/// The classic (unblocked) filter of least memory at a rate: a whole number of probes and its bits
/// per item.
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
        Self { probes: k as u32, bits_per_item: with(k) }
    }
}

/// How many distinct items must be added until `counted` of them changed a bit, when the rate is
/// `rate` at the end.
///
/// With a = k n / m the rate after a share of the items is (1 - e^-x)^k, x in [0, a]; its mean is
/// what goes uncounted: I_k / a where I_k = integral of (1 - e^-x)^k = I_(k-1) - (1 - e^-a)^k / k
/// and I_0 = a.
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

/// The fewest probes that `keeps` the rate, or `None`. The rate falls and then rises with k, lowest
/// near or a little below the classic `best` (spread loads favour fewer probes), so the search
/// starts there and walks down.
fn fewest_probes(best: u32, keeps: impl Fn(u32) -> bool) -> Option<u32> {
    let near = best - best / 8;
    let mut probes = [best, near].into_iter().find(|&k| keeps(k))?;
    while probes > 1 && keeps(probes - 1) {
        probes -= 1;
    }
    Some(probes)
}

/// The most items per block at which the model keeps `target`, from a load that keeps it: a secant
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
    // A ten-thousandth of memory instead of a last check: the secant has converged to better than
    // that.
    load.max(libm::exp(far) * 0.999_9)
}
