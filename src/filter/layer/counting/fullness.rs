//! How full a counting layer is, computed from two estimates with different errors.
//!
//! # n: the count
//!
//! n is the number of items that tested absent when they were added, minus the number that tested
//! absent after their deletion. It is exact as long as nothing is deleted. It has two errors: an
//! addition that tests present by accident is not counted, and a deletion after which the item
//! still tests present subtracts nothing. Each happens at most with the layer's rate p, and both
//! are equally likely, so n does a random walk. After D deletions and as many additions its
//! variance is at most
//!
//! ```text
//!   V = 2 p D
//! ```
//!
//! # r: the nonzero counters
//!
//! r is the number of counters that are not 0. It depends only on the items in the layer, so it
//! cannot drift. But the same number of items may give more or fewer nonzero counters. With m
//! counters, `layer/occupancy.rs` computes n(r), the number of counted items, from r. The classical
//! occupancy problem (Johnson and Kotz, "Urn Models", 1977) gives the variance of r for a known
//! number of items. Its square root divided by the slope k e^-a is the error of n(r). With a =
//! -ln(1 - f) at the capacity, where f = r / m, the variance of n(r) is
//!
//! ```text
//!   S = m (e^a - 1 - a) / k^2
//! ```
//!
//! Differing loads of blocks add k^2 / c of it, 7 % at 1 %. Measured at nine tenths of the
//! capacity, in items (`tests/filter/fullness.rs`, 400 filters a row):
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
//! (At 25 %, n and n(r) both leave out uncounted items, so part of their errors is common.)
//!
//! # Both
//!
//! Two estimates with independent errors of variances V and S are best weighted by the inverse of
//! the variances:
//!
//! ```text
//!   items = n + w (n(r) - n)          w = V / (V + S)
//! ```
//!
//! Without deletions, this is n. After a few deletions it is still n to the item: in a filter of
//! 1,000 items at 5 %, one of which is replaced, V is a thousandth of S. After a million deletions
//! it is n(r). Its variance, V S / (V + S), is below both.
//!
//! Neither estimate is enough alone. n drifts with the number of deletions. By r alone, a full
//! filter that loses one item and gets another is full only half of the time, by chance.
//!
//! # Use
//!
//! BF.CARD and BF.INFO show this number, but at most the capacity. It also decides whether the
//! layer takes more items.
//!
//! n itself may exceed the capacity. If n were cut off there, a full layer could only drift down,
//! and with too low an n it would take too many items. n is cut off at 0: it seldom gets there, and
//! too high an n is harmless. A layer without a nonzero counter is empty, so its n and its D start
//! again at 0. A counter at 15 stays nonzero when its items are gone. It still counts as filled,
//! since it still raises the rate.
//!
//! Replicas must agree on when a layer is full, so this file computes as `sizing/mod.rs` does: with
//! +, -, *, / and `libm`.

use crate::filter::layer::{
    occupancy::{distinct, series},
    shape::Counting,
};

/// Newton's method ends with a step below this; the next step would be its square.
const CLOSE: f64 = 1e-9;
/// Limit of the steps of Newton's method. About five are needed; the limit ends the loop for any
/// input.
const STEPS: u32 = 100;

/// The constants of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fullness {
    capacity: u64,
    /// 2 p: what a deletion and the addition after it add to V.
    drift: f64,
    /// S: the variance of n(r) at the capacity.
    spread: f64,
    /// m / k' (`layer/occupancy.rs`): the factor from the sum over f to items.
    scale: f64,
    /// The fewest nonzero counters of a full layer, in [1, m].
    full_at: u64,
}

impl Fullness {
    /// The constants of a layer for `capacity` items at `error_rate`.
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
        // A stored shape may be too small for its capacity, so that all its counters would have to
        // be nonzero. Half a counter counts as clear then.
        let clear = (1.0 - fullness.full_at as f64 / counters).max(0.5 / counters);
        fullness.spread = counters * (1.0 / clear - 1.0 + libm::log(clear)) / (probes * probes);
        fullness
    }

    /// The fewest nonzero counters at which n(r) rounds to the capacity, or all counters if it
    /// never does.
    fn find_full(&self, shape: &Counting) -> u64 {
        let counters = shape.counters();
        let goal = self.capacity as f64 - 0.5;
        // The sum is at least f, so this start is to the right of the solution. The sum rises and
        // is convex, so Newton's method approaches from the right and never overshoots.
        let mut fill = (goal / self.scale).min(1.0);
        for _ in 0..STEPS {
            let (sum, slope) = series(fill, shape.geometry.probes.into());
            let step = (sum - goal / self.scale) / slope;
            if step <= 0.0 {
                break;
            }
            fill -= step;
            if step < CLOSE {
                break;
            }
        }
        // The exact counter, whatever was rounded above.
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
        self.scale * series(fill, shape.geometry.probes.into()).0
    }

    /// The number of items in a layer that counts `counted` and has `nonzero` nonzero counters, at
    /// most the capacity.
    pub(super) fn items(&self, shape: &Counting, counted: u64, nonzero: u64) -> u64 {
        if shape.deletions == 0 {
            return counted.min(self.capacity);
        }
        let drift = self.drift * shape.deletions as f64;
        let weight = drift / (drift + self.spread);
        let items = counted as f64 + weight * (self.by_counters(shape, nonzero) - counted as f64);
        // Rounded half up, as in `find_full`.
        ((items + 0.5) as u64).min(self.capacity)
    }

    /// Returns whether [`Self::items`] is the capacity. Every addition calls this. If both
    /// estimates agree it computes nothing: the weighted mean lies between them.
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
