//! How full a layer is, and its false positive rate now: estimates from a sample of the set bits.
//! All bits of a filter of 1 GiB would take 100 ms and more.
//!
//! A classic layer with a share f of set bits answers a random item wrongly with probability f^k.
//! In a layer of blocks, the share says how many items there are (`layer/occupancy.rs`), and the
//! model gives the rate (`sizing.rs`).

#![expect(clippy::disallowed_methods, reason = "estimates are shown, and decide nothing")]

use super::{
    layer::{Layer, Shape, occupancy},
    sizing::expected_rate,
};

/// The most words read of a filter.
pub(super) const SAMPLE_WORDS: usize = 65_536;

/// The most words that are read one after the other.
const RUN_WORDS: usize = 1024;

/// What the bits of a filter or a layer show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Share of bits set, or of slots taken, in [0, 1].
    pub fill: f64,
    /// Probability that an item which was never added tests present, in [0, 1].
    pub error_rate: f64,
}

impl Layer {
    /// Estimates the layer from at most `SAMPLE_WORDS` words.
    pub fn estimate(&self) -> Estimate {
        self.sample(SAMPLE_WORDS)
    }

    /// Estimates the layer from at most that many words.
    pub(super) fn sample(&self, sample: usize) -> Estimate {
        let run = RUN_WORDS.min(sample);
        let runs = self.bits().words().chunks(run);
        let stride = runs.len().div_ceil(sample / run);
        let (mut set, mut read) = (0_u64, 0);
        for run in runs.step_by(stride) {
            set += run.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            read += run.len() as u64 * 64;
        }
        let shape = self.shape();
        let positions = if let Shape::Classic(classic) = shape { classic.bits } else { read };
        let fill = (set as f64 / read.min(positions) as f64).min(1.0);
        let error_rate = match shape {
            Shape::Blocked(geometry) => expected_rate(geometry, occupancy::all(geometry, fill)),
            Shape::Classic(classic) => fill.powi(classic.probes.into()),
        };
        Estimate { fill, error_rate }
    }
}
