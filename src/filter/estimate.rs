//! How full a filter of layers is, and its false positive rate now: estimates from the set bits.
//!
//! A block with a share f of set bits answers a random item wrongly with probability f^k, and the
//! rate of a layer is the mean over its blocks. A classic layer is one block. In layers of several
//! blocks of cache lines, probes come in groups of four, each in one line (`hash/probe.rs`). There
//! the mean of f^4 over the lines of a block replaces each group's factor. The rate of the filter
//! is the probability that at least one layer answers wrongly.
//!
//! It comes from a sample of at most `SAMPLE_WORDS` words over all layers, in evenly spaced runs of
//! at most a block: all bits of a filter of 1 GiB would block the server for 100 ms and more.
//!
//! - The oldest layer has the highest rate of a stack, so half of the sample is for it, or all of
//!   it in a filter of one layer.
//! - The other half, and what the oldest layer does not use, is divided evenly among the newest
//!   layer and the `SAMPLED_LAYERS` layers after the oldest, at least 512 words each.
//! - Any other layer is read completely if enough words are left over, or not at all. A layer that
//!   is not read is reported with the rate it was built for, and with the share of set bits that
//!   its items give on average.

#![expect(clippy::disallowed_methods, reason = "estimates are shown, and decide nothing")]

use super::{
    geometry::{LINE_WORDS, PROBE_GROUP},
    layer::{Classic, Layer, Shape},
    stack::Filter,
};

/// The most words read over all layers.
const SAMPLE_WORDS: usize = 65_536;

/// The number of layers after the oldest that are always sampled. The newest is sampled too.
const SAMPLED_LAYERS: usize = 63;

/// The most words read of one block. It covers the blocks of rates down to 1e-9. From a part of the
/// lines of a block, the mean of f^4 raised to k / 4 comes out too high.
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
    /// Estimates the whole filter: the share of set bits over all layers, and the rate of all
    /// layers together.
    #[must_use]
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
        self.samples().map(|(layer, sample)| (layer, sample.estimate))
    }

    /// Samples each layer, oldest first. All samples together have at most `SAMPLE_WORDS` words.
    fn samples(&self) -> impl Iterator<Item = (&Layer, Sample)> {
        let newest = self.layers().len() - 1;
        let words = |layer: &Layer| layer.bits().words().len();
        let first = if newest == 0 { SAMPLE_WORDS } else { SAMPLE_WORDS / 2 };
        let oldest = self.layers().next().map_or(0, words);
        let others = newest.clamp(1, SAMPLED_LAYERS + 1);
        let each = (SAMPLE_WORDS - oldest.min(first)) / others;
        // Words left over after the newest layer has its part.
        let mut left = SAMPLE_WORDS - if newest == 0 { 0 } else { words(self.newest()).min(each) };
        self.layers().enumerate().map(move |(index, layer)| {
            if index == newest && index > 0 {
                return (layer, layer.sample(each));
            }
            let sample = match index {
                0 => layer.sample(first),
                _ if index <= SAMPLED_LAYERS => layer.sample(each),
                _ if words(layer) <= left => layer.sample(left),
                _ => layer.expected(),
            };
            left = left.saturating_sub(sample.read);
            (layer, sample)
        })
    }
}

/// An estimate of a layer.
struct Sample {
    estimate: Estimate,
    /// The number of words read for it.
    read: usize,
}

impl Layer {
    /// Estimates from the number of items, without reading the bits: a full layer has the rate that
    /// it was built for.
    fn expected(&self) -> Sample {
        let (cells, probes) = match self.shape() {
            Shape::Blocked(geometry) => (geometry.words() * 64, u16::from(geometry.probes)),
            Shape::Classic(shape) => (shape.bits, shape.probes),
        };
        let spared = f64::from(probes) * (-1.0 / cells as f64).ln_1p();
        let fill = |items: u64| -(items as f64 * spared).exp_m1();
        let (items, capacity) = (self.counted(), self.capacity());
        let share = if items == capacity {
            1.0
        } else {
            (fill(items) / fill(capacity)).powi(i32::from(probes))
        };
        let estimate = Estimate { fill: fill(items), error_rate: self.error_rate() * share };
        Sample { estimate, read: 0 }
    }

    /// Estimates the layer from at most `SAMPLE_WORDS` words.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        self.sample(SAMPLE_WORDS).estimate
    }

    /// Estimates from at most `sample` words.
    fn sample(&self, sample: usize) -> Sample {
        let geometry = match self.shape() {
            Shape::Blocked(geometry) => geometry,
            Shape::Classic(shape) => return self.sample_classic(shape, sample),
        };
        let blocks = geometry.blocks;
        let length = self.bits().words().len() / blocks as usize;
        let probes = i32::from(geometry.probes);
        let (part, group) = if geometry.lines().is_some() {
            (LINE_WORDS, i32::from(PROBE_GROUP).min(probes))
        } else {
            (length, probes)
        };
        // A layer of one block reads the whole block. Of other blocks, a run stands for the block.
        // Lines are read whole.
        let most = if blocks == 1 { length } else { RUN_WORDS };
        let run = length.min(most).min(sample);
        let run = if run > part { run - run % part } else { run };
        let blocks = self.bits().words().chunks_exact(length);
        let stride = blocks.len().div_ceil((sample / run).max(1));
        let (mut read, mut fill, mut rate) = (0, 0.0, 0.0);
        let mut runs = 0.0;
        for block in blocks.step_by(stride) {
            let (mut parts, mut shares, mut whole, mut extra) = (0.0, 0.0, 0.0, 0.0);
            for words in block[..run].chunks(part) {
                read += words.len();
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
        let estimate = Estimate { fill: fill / runs, error_rate: rate / runs };
        Sample { estimate, read }
    }

    /// [`Self::sample`] for a classic layer: one share of set bits for the whole array. The last
    /// words may hold a few bits that no position reaches.
    fn sample_classic(&self, shape: Classic, sample: usize) -> Sample {
        let run = RUN_WORDS.min(sample);
        let runs = self.bits().words().chunks(run);
        let stride = runs.len().div_ceil(sample / run);
        let (mut set, mut read) = (0_u64, 0);
        for run in runs.step_by(stride) {
            set += run.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            read += run.len();
        }
        let fill = (set as f64 / (read as u64 * 64).min(shape.bits) as f64).min(1.0);
        let estimate = Estimate { fill, error_rate: fill.powi(i32::from(shape.probes)) };
        Sample { estimate, read }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{CellKind, Expansion, Params, Valkey};

    fn params(error_rate: f64, capacity: u64) -> Params {
        let expansion = Expansion::new(1).expect("in range");
        Params { error_rate, capacity, expansion, seed: 0x5EED, cells: CellKind::Bits }
    }

    /// A layer of blocks, or a stack of layers of valkey-bloom.
    fn stack(layers: usize, params: &Params) -> Filter {
        if layers == 1 {
            return Filter::new(params, u64::MAX).expect("memory");
        }
        let valkey = Valkey { seed: [7; 32], tightening: 0.999 };
        let mut filter = Filter::of_valkey(valkey, params, u64::MAX).expect("memory");
        (1..layers).for_each(|_| filter.grow(|_| u64::MAX).expect("memory for a layer"));
        filter
    }

    #[test]
    fn at_most_65_536_words_are_read_of_any_stack() {
        for (layers, rate, capacity) in [
            (1, 0.01, 1_000_000),
            (1, 0.01, 10_000),
            (1, 1e-9, 1_000_000),
            (2, 0.01, 400_000),
            (12, 0.000_1, 20_000),
            (64, 0.01, 5_000),
            (65, 0.01, 5_000),
            (66, 1e-9, 5_000),
            (300, 0.25, 20_000),
            (5_000, 0.01, 20),
        ] {
            let filter = stack(layers, &params(rate, capacity));
            let read: usize = filter.samples().map(|(_, sample)| sample.read).sum();
            let words = filter.bit_bytes() as usize / 8;
            let case = format!("{layers} layers of {capacity} at {rate}: {read} of {words}");
            assert!(read <= SAMPLE_WORDS, "{case}");
            // And not much less: all words of small layers, or what is left over.
            assert!(read >= words.min(SAMPLE_WORDS) / 2, "{case}");
        }
    }
}
