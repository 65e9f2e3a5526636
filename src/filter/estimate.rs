//! How full a filter of layers is, and its false positive rate now: estimates from the set bits.
//!
//! A block with a share f of set bits answers a random item wrongly with probability f^k; a classic
//! layer is one block. In blocks of several lines, probes come in groups of four (`hash/probe.rs`),
//! and the mean of f^4 over the lines replaces each group's factor. The rate of the filter is the
//! probability that at least one layer answers wrongly.
//!
//! It comes from a sample of `SAMPLE_WORDS` words, divided evenly among the layers, in evenly
//! spaced runs: all bits of a filter of 1 GiB would block the server for 100 ms and more.

#![expect(clippy::disallowed_methods, reason = "estimates are shown, and decide nothing")]

use super::{
    geometry::{Geometry, LINE_WORDS, PROBE_GROUP},
    layer::{Classic, Layer, Shape},
    stack::Filter,
};

/// The most words read over all layers.
const SAMPLE_WORDS: usize = 65_536;

/// The most words read of one block: from fewer lines, the mean of f^4 raised to k / 4 is too high.
const RUN_WORDS: usize = 1024;

/// What the bits of a filter or a layer show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Share of bits set, or of slots taken, in [0, 1].
    pub fill: f64,
    /// Probability that an item which was never added tests present, in [0, 1].
    pub error_rate: f64,
}

impl Filter {
    /// The share of set bits over all layers, and the rate of all layers together.
    pub fn estimate(&self) -> Estimate {
        let (mut set, mut all, mut absent) = (0.0, 0.0, 1.0);
        for (layer, estimate) in self.estimate_layers() {
            let words = layer.bits().words().len() as f64;
            set += estimate.fill * words;
            all += words;
            absent *= 1.0 - estimate.error_rate;
        }
        Estimate { fill: set / all, error_rate: 1.0 - absent }
    }

    /// Estimates each layer, oldest first.
    pub fn estimate_layers(&self) -> impl Iterator<Item = (&Layer, Estimate)> {
        let each = (SAMPLE_WORDS / self.layers().len()).max(1);
        self.layers().map(move |layer| (layer, layer.sample(each)))
    }
}

impl Layer {
    /// Estimates the layer from at most `SAMPLE_WORDS` words.
    pub fn estimate(&self) -> Estimate {
        self.sample(SAMPLE_WORDS)
    }

    /// Estimates from at most `sample` words. Several layers are classic ones.
    fn sample(&self, sample: usize) -> Estimate {
        match self.shape() {
            Shape::Blocked(geometry) => self.sample_blocks(geometry),
            Shape::Classic(shape) => self.sample_array(shape, sample),
        }
    }

    /// Estimates from whole lines of blocks. A run stands for a block that is longer.
    fn sample_blocks(&self, geometry: Geometry) -> Estimate {
        let words = self.bits().words();
        let (length, probes) = (usize::from(geometry.block_words), i32::from(geometry.probes));
        let (part, group) = match geometry.lines() {
            Some(_) => (LINE_WORDS, i32::from(PROBE_GROUP).min(probes)),
            None => (length, probes),
        };
        let run = if geometry.blocks == 1 { length } else { length.min(RUN_WORDS) };
        let blocks = words.chunks_exact(length);
        let stride = blocks.len().div_ceil(SAMPLE_WORDS / run);
        let (mut fill, mut rate, mut runs) = (0.0, 0.0, 0.0);
        for block in blocks.step_by(stride) {
            let (mut parts, mut shares, mut whole, mut extra) = (0.0, 0.0, 0.0, 0.0);
            for words in block[..run].chunks(part) {
                let set: u32 = words.iter().map(|word| word.count_ones()).sum();
                let share = f64::from(set) / (words.len() as u64 * 64) as f64;
                parts += 1.0;
                shares += share;
                whole += share.powi(group);
                extra += share.powi(probes % group);
            }
            runs += 1.0;
            fill += shares / parts;
            rate += (whole / parts).powi(probes / group) * (extra / parts);
        }
        Estimate { fill: fill / runs, error_rate: rate / runs }
    }

    /// Estimates one share of set bits for a whole array.
    fn sample_array(&self, shape: Classic, sample: usize) -> Estimate {
        let run = RUN_WORDS.min(sample);
        let runs = self.bits().words().chunks(run);
        let stride = runs.len().div_ceil(sample / run);
        let (mut set, mut read) = (0_u64, 0);
        for run in runs.step_by(stride) {
            set += run.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            read += run.len();
        }
        let fill = (set as f64 / (read as u64 * 64).min(shape.bits) as f64).min(1.0);
        Estimate { fill, error_rate: fill.powi(i32::from(shape.probes)) }
    }
}
