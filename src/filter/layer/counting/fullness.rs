//! How full a counting layer is, judged by two numbers that err in different ways.
//!
//! n, the items counted: those that tested absent when they came, less those that test absent once
//! they went. Exact as long as nothing is deleted. An addition that tests present by accident is
//! not counted, and a deletion after which the item still tests present takes nothing away. Each
//! happens with the layer's rate p at most, alike often, so n does a random walk: after D
//! deletions, and as many additions, its variance is at most
//!
//! ```text
//!   V = 2 p D
//! ```
//!
//! r, the counters that are not 0: a function of the items that are in, and of nothing else. It
//! cannot drift, but the same number of items raises now more, now fewer. An item raises c (1 - (1
//! - 1/c)^k) = k' different ones of the c counters of its block; in one of l lines, of 512 counters
//! each, c (1 - (1 - h(4) / l)^(k / 4)) where h(g) = 1 - (1 - 1/512)^g is how likely four (or what
//! is left over) hit a counter of their line. At a share f = r / m of m counters raised, another
//! counted item comes with m / k' * (1 - f^k) / (1 - f) of them: 1 - f^k of all items are counted,
//! and raise k' (1 - f) each. Summed up from the empty layer that is, without a logarithm,
//!
//! ```text
//!   n(r) = m / k' * (f + f^2 / 2 + ... + f^k / k)
//! ```
//!
//! in the units of n, with what is not counted left out, as the sizing does (`distinct` in
//! `sizing.rs`). It has an end, where all counters are raised: twice the capacity at 50 %, four
//! times at 1 %. The classical occupancy problem gives the variance of r for a known number of
//! items, and its square root over the slope k e^-a the error of n(r) (Johnson and Kotz, "Urn
//! Models", 1977), with a = -ln(1 - f) at the capacity:
//!
//! ```text
//!   S = m (e^a - 1 - a) / k^2
//! ```
//!
//! Blocks whose loads differ add k^2 / c of it, 7 % at 1 %. Measured (`tests/filter/fullness.rs`,
//! 400 filters a row), at nine tenths of the capacity, in items:
//!
//! | rate  | items  | n(r) - n, mean | deviation | root of S there |
//! |-------|--------|----------------|-----------|-----------------|
//! | 25 %  | 900    | 0.3            | 9.1       | 12.3            |
//! | 5 %   | 900    | -0.2           | 8.8       | 8.8             |
//! | 1 %   | 900    | -0.3           | 7.0       | 7.1             |
//! | 1 %   | 18,000 | 6.2            | 34.0      | 31.3            |
//! | 0.1 % | 18,000 | 2.8            | 27.3      | 25.4            |
//! | 1e-6  | 1,800  | 0.3            | 5.6       | 5.9             |
//!
//! (At 25 % n misses what n(r) leaves out, too, and they err alike.)
//!
//! Two numbers whose errors have the variances V and S, and nothing to do with each other, are best
//! weighed by the inverse of those:
//!
//! ```text
//!   items = n + w (n(r) - n)          w = V / (V + S)
//! ```
//!
//! which is n where nothing was deleted, still n to the item after a few deletions (V is a
//! thousandth of S in a filter of 1,000 items at 5 %, one of which is replaced), and n(r) after a
//! million. Its variance, V S / (V + S), is below both. Neither alone will do. By n, filters for
//! 1,000 at 5 % of which 950 items were replaced 100,000 times took anything between 560 and 1,000
//! for their count, and let 1,093 items in. By r, a filter of exactly its capacity that loses an
//! item and gets another is full half of the time, by chance. By both, after 110,000 replacements:
//!
//! | rate | items shown (young filter) | deviation | full with (young filter) | deviation | rate when full, of the asked |
//! |------|----------------------------|-----------|--------------------------|-----------|------------------------------|
//! | 25 % | 880 (876)                  | 10        | 1,102 (1,108)            | 15        | 0.967                        |
//! | 5 %  | 941 (941)                  | 10        | 1,012 (1,011)            | 10        | 0.963                        |
//! | 1 %  | 949 (949)                  | 7         | 1,001 (1,002)            | 7         | 0.971                        |
//!
//! Filters kept full: the oldest item is deleted, then new ones are added until the filter is full
//! again. Each item is added once and deleted once. The rate at the end, of the asked (200 filters
//! a row, +- 0.014):
//!
//! | rate   | turnovers | 30 items | 100   | 300   | 1,000 |
//! |--------|-----------|----------|-------|-------|-------|
//! | 1 %    | 30        | 0.951    | 0.863 | 0.908 | 0.977 |
//! | 0.1 %  | 30        | 0.863    | 0.966 | 0.966 | 0.975 |
//! | 0.01 % | 100       | 0.918    | 0.941 | 0.922 | 0.988 |
//!
//! (Young filters of so few items differ as much: their bits are rounded up to whole words.)
//!
//! That number, or the capacity if it is higher, is what BF.CARD and BF.INFO show, and what decides
//! whether the layer takes more. n itself may pass the capacity. Its walk is that of a layer at the
//! capacity: cut off there, it could only go down, and a layer with too low an n takes too many
//! items (with it the row at 0.01 % measured 1.07 to 1.17). n is cut off at 0, where its walk
//! seldom is and too high an n is harmless. A layer without a raised counter is empty, and its n
//! and its D begin at 0 again. A counter at 15 stays raised when its items are gone: it takes room
//! for ever, as it makes the rate what it is.
//!
//! Replicas must agree when a layer is full, so the arithmetic here is as in `sizing.rs`: +, -, *,
//! / and `libm`.

use crate::filter::{
    geometry::{Geometry, PROBE_GROUP},
    layer::shape::Counting,
};

/// Powers of f below this are left out of the sum.
const SMALL: f64 = 1e-15;
/// Newton's method ends with a step below this; the next would be its square.
const CLOSE: f64 = 1e-9;
/// Steps that it takes at most: some five are needed; the bound ends the loop whatever the numbers.
const STEPS: u32 = 100;

/// What of a layer's judgement never changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fullness {
    capacity: u64,
    /// 2 p: what a deletion and the addition after it add to V.
    drift: f64,
    /// S: variance of n(r) at the capacity.
    spread: f64,
    /// m / k': items for each whole of the sum over f.
    scale: f64,
    /// The fewest raised counters that stand for a full layer, in [1, m].
    full_at: u64,
}

impl Fullness {
    /// Of a layer for `capacity` items at `error_rate`.
    pub(super) fn new(shape: &Counting, capacity: u64, error_rate: f64) -> Self {
        let counters = shape.counters() as f64;
        let probes = f64::from(shape.geometry.probes);
        let mut fullness = Self {
            capacity,
            drift: 2.0 * error_rate,
            spread: 0.0,
            scale: counters / distinct(shape.geometry),
            full_at: 0,
        };
        fullness.full_at = fullness.find_full(shape);
        // A stored shape may be too small for its capacity, and never reach it: half a counter is
        // left then.
        let clear = (1.0 - fullness.full_at as f64 / counters).max(0.5 / counters);
        fullness.spread = counters * (1.0 / clear - 1.0 + libm::log(clear)) / (probes * probes);
        fullness
    }

    /// The fewest raised counters at which n(r) rounds to the capacity; all of them, if it never
    /// does.
    fn find_full(&self, shape: &Counting) -> u64 {
        let counters = shape.counters();
        let goal = self.capacity as f64 - 0.5;
        // The sum is at least f, so this lies to the right of the solution; and it rises and bends
        // upwards, so that Newton's method comes down to the solution from there and never passes
        // it.
        let mut fill = (goal / self.scale).min(1.0);
        for _ in 0..STEPS {
            let (sum, slope) = series(fill, shape.geometry.probes);
            let step = (sum - goal / self.scale) / slope;
            if step <= 0.0 {
                break;
            }
            fill -= step;
            if step < CLOSE {
                break;
            }
        }
        // To the counter, whatever was rounded above.
        let is_full = |nonzero| self.by_counters(shape, nonzero) >= goal;
        let mut nonzero = ((fill * counters as f64) as u64).clamp(1, counters);
        while nonzero > 1 && is_full(nonzero - 1) {
            nonzero -= 1;
        }
        while nonzero < counters && !is_full(nonzero) {
            nonzero += 1;
        }
        nonzero
    }

    /// n(r).
    fn by_counters(&self, shape: &Counting, nonzero: u64) -> f64 {
        let fill = nonzero as f64 / shape.counters() as f64;
        self.scale * series(fill, shape.geometry.probes).0
    }

    /// The items of a layer that counts `counted` and has `nonzero` counters raised, at most its
    /// capacity.
    pub(super) fn items(&self, shape: &Counting, counted: u64, nonzero: u64) -> u64 {
        if shape.deletions == 0 {
            return counted.min(self.capacity);
        }
        let drift = self.drift * shape.deletions as f64;
        let weight = drift / (drift + self.spread);
        let items = counted as f64 + weight * (self.by_counters(shape, nonzero) - counted as f64);
        // Half a unit up, as `full_at` is found.
        ((items + 0.5) as u64).min(self.capacity)
    }

    /// Whether [`Self::items`] is the capacity. Asked at each addition, so where both numbers agree
    /// nothing is computed: what is weighed lies between them.
    #[inline]
    pub(super) fn is_full(&self, shape: &Counting, counted: u64, nonzero: u64) -> bool {
        let by_count = counted >= self.capacity;
        if shape.deletions == 0 || by_count == (nonzero >= self.full_at) {
            by_count
        } else {
            self.items(shape, counted, nonzero) >= self.capacity
        }
    }
}

/// Different counters that an item raises: k' in the essay.
fn distinct(geometry: Geometry) -> f64 {
    let counters = f64::from(geometry.block_words) * 64.0;
    let (fours, left) = (geometry.probes / PROBE_GROUP, geometry.probes % PROBE_GROUP);
    let hit =
        |line: f64, probes: u8| -line * libm::expm1(f64::from(probes) * libm::log1p(-1.0 / line));
    match geometry.lines() {
        // A counter is missed by a four in another line, and by one in its own whose places are
        // others.
        Some(lines) if lines > 1 => {
            let line = counters / lines as f64;
            let by = |probes| libm::log1p(-hit(line, probes) / counters);
            -counters * libm::expm1(f64::from(fours) * by(PROBE_GROUP) + by(left))
        }
        _ => hit(counters, geometry.probes),
    }
}

/// f + f^2 / 2 + ... + f^k / k, and its slope 1 + f + ... + f^(k - 1).
fn series(fill: f64, probes: u8) -> (f64, f64) {
    let (mut sum, mut slope, mut power) = (0.0, 0.0, 1.0);
    for i in 1..=probes {
        slope += power;
        power *= fill;
        sum += power / f64::from(i);
        if power < SMALL {
            break;
        }
    }
    (sum, slope)
}
