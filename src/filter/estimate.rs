//! How full a filter is, and how wrong it is right now: estimates from the bits that are set, or the counters that are not 0.
//!
//! The rate that a layer was built for holds at its capacity; before that it is lower, and after damage to a plan (a copy
//! of a filter that items went into meanwhile) it could be higher. What it is now shows in the bits: a block of which a
//! share f is set takes a random item for its own with probability f^k, and the layer's rate is the mean over its blocks.
//! A classic layer is one block. In layers of several blocks of cache lines probes come in groups of four, each in a line
//! of its own choice (`probe.rs`): there f^4 is taken for each line, and its mean over the lines stands for each group.
//! The filter's rate is that of meeting at least one such layer.
//!
//! Counters are counted as they change, so the share of those that are not 0 is exact, as is the number of those at 15.
//!
//! Of the rest only a sample is read, of at most `SAMPLE` words over all layers (but at least one word of each), in runs of at most a
//! block that lie evenly spaced: counting all bits of a filter of 1 GiB would block the server for 100 ms and more. 65,536
//! words with half of their bits set give the share of bits set to 1 in 4,000.

use super::{
    geometry::LINE_WORDS,
    layer::{Classic, Layer, Shape},
    probe::FOUR,
    scaling::Filter,
};

/// Words read at most, over all layers.
const SAMPLE: usize = 65_536;

/// Words of bits, or as many counters, read of one block at most: all of blocks down to 1e-9. Of fewer lines than there are
/// the mean of f^4 raised to k / 4 comes out too high.
const RUN: usize = 1024;
/// The least that is read of one, in words.
const LEAST: usize = 256;

/// What the bits of a filter or a layer say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Share of bits set, or of counters that are not 0, in [0, 1].
    pub fill: f64,
    /// Probability that an item which was never added tests present, in [0, 1].
    pub error_rate: f64,
}

impl Filter {
    /// Counters that reached 15 and stay there; `None` without counters.
    #[must_use]
    pub fn stuck(&self) -> Option<u64> {
        self.layers().map(Layer::stuck).sum()
    }

    /// Estimates the whole filter: the share of all its bits that is set, the rate of its layers together.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let (mut set, mut all, mut absent) = (0.0, 0.0, 1.0);
        for (layer, estimate) in self.estimate_layers() {
            let words = layer.bits().words().len() as f64;
            set += estimate.fill * words;
            all += words;
            absent *= 1.0 - estimate.error_rate;
        }
        Estimate {
            fill: set / all,
            error_rate: 1.0 - absent,
        }
    }

    /// Estimates each layer, oldest first.
    pub fn estimate_layers(&self) -> impl Iterator<Item = (&Layer, Estimate)> {
        let sample = (SAMPLE / self.layers().len()).max(1);
        self.layers().map(move |layer| (layer, layer.estimate(sample)))
    }
}

impl Layer {
    /// Estimates from at most `sample` words, or a run of the first block.
    fn estimate(&self, sample: usize) -> Estimate {
        let geometry = match self.shape() {
            Shape::Blocked(geometry) => geometry,
            Shape::Classic(shape) => return self.estimate_classic(shape, sample),
            Shape::Counting(shape) => shape.geometry,
        };
        let blocks = geometry.blocks;
        let length = self.bits().words().len() / blocks as usize;
        let probes = i32::from(geometry.probes);
        // Words of counters for one of bits.
        let width = length / usize::from(geometry.block_words);
        // A layer of one block is that block; of others a run tells the share of bits set of its block.
        let run = if blocks == 1 {
            length.min(sample)
        } else {
            length.min(RUN * width).min(sample.max(LEAST))
        };
        let blocks = self.bits().words().chunks_exact(length);
        let stride = blocks.len().div_ceil((sample / run).max(1));
        let (part, group) = if geometry.lines().is_some() {
            (LINE_WORDS * width, i32::from(FOUR).min(probes))
        } else {
            (run, probes)
        };
        let (mut read, mut fill, mut rate) = (0.0, 0.0, 0.0);
        for block in blocks.step_by(stride) {
            let (mut parts, mut shares, mut whole, mut rest) = (0.0, 0.0, 0.0, 0.0);
            for words in block[..run].chunks(part) {
                let words = words.iter().map(|&word| self.taken(word));
                let (set, all) = words.fold((0, 0), |sum, word| (sum.0 + word.0, sum.1 + word.1));
                let share = f64::from(set) / f64::from(all);
                parts += 1.0;
                shares += share;
                whole += share.powi(group);
                rest += share.powi(probes % group);
            }
            read += 1.0;
            fill += shares / parts;
            rate += (whole / parts).powi(probes / group) * (rest / parts);
        }
        Estimate {
            fill: self.fill().unwrap_or(fill / read),
            error_rate: rate / read,
        }
    }

    /// The same for a layer whose bits are those of all items: the share of bits set is that of the array. The last words
    /// may hold bits that no position reaches, and are few.
    fn estimate_classic(&self, shape: Classic, sample: usize) -> Estimate {
        let runs = self.bits().words().chunks(RUN);
        let stride = runs.len().div_ceil((sample / RUN).max(1));
        let (mut set, mut bits) = (0_u64, 0_u64);
        for run in runs.step_by(stride) {
            set += run.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            bits += run.len() as u64 * 64;
        }
        let fill = (set as f64 / bits.min(shape.bits) as f64).min(1.0);
        Estimate {
            fill,
            error_rate: fill.powi(i32::from(shape.probes)),
        }
    }
}
