//! The estimate of a filter's own rate, from a sample of its words, compared with the rate by all
//! words.

use redis_bloom::filter::{Filter, Layer, Shape};

use crate::support::{fill, filter, item, params, stack};

/// A full filter: a layer of blocks, or several layers of valkey-bloom.
fn full(layers: usize, capacity: u64, rate: f64) -> Filter {
    if layers == 1 {
        let mut filter = filter(&params(rate, capacity, 0, 0x5EED));
        fill(&mut filter, 1, capacity);
        return filter;
    }
    let mut filter = stack(&params(rate, capacity, 1, 0));
    let mut number = 0;
    for index in 0..layers {
        if index > 0 {
            filter.grow(|_| u64::MAX).expect("memory for a layer");
        }
        // Without a query of the older layers, which hold almost none of them.
        while !filter.newest().is_full() {
            let hash = filter.hash(&item(1, number));
            filter.newest_mut().add(hash);
            number += 1;
        }
    }
    filter
}

/// Whether each bit of the layer is set.
fn cells(layer: &Layer) -> Vec<bool> {
    let words = layer.bits().words().iter();
    words.flat_map(|word| (0..64).map(move |i| word >> i & 1 != 0)).collect()
}

fn share(cells: &[bool]) -> f64 {
    cells.iter().filter(|&&taken| taken).count() as f64 / cells.len() as f64
}

/// The rate by all words of the layer: the mean over blocks of the chance that a random item tests
/// positive in the block. In a block of several lines, each group of four probes is in one line.
fn rate(layer: &Layer, cells: &[bool]) -> f64 {
    let geometry = match layer.shape() {
        Shape::Blocked(geometry) => geometry,
        Shape::Classic(shape) => return share(cells).powi(shape.probes.into()),
    };
    let (block, probes) = (usize::from(geometry.block_words) * 64, i32::from(geometry.probes));
    let (part, group) = match geometry.lines() {
        Some(_) => (512, probes.min(4)),
        None => (block, probes),
    };
    let of_block = |block: &[bool]| {
        let mean = |power| {
            let parts: Vec<f64> = block.chunks(part).map(|part| share(part).powi(power)).collect();
            parts.iter().sum::<f64>() / parts.len() as f64
        };
        mean(group).powi(probes / group) * mean(probes % group)
    };
    let blocks: Vec<f64> = cells.chunks(block).map(of_block).collect();
    blocks.iter().sum::<f64>() / blocks.len() as f64
}

/// The oldest layer and up to 64 others are read, of a sample of 65,536 words: all of a small
/// layer. A sample of a large one has an error of at most 3 %.
#[test]
fn filters_are_estimated_near_the_truth() {
    let mut table = String::new();
    let mut hold = true;
    for (layers, capacity, rate) in [
        (1, 1_000, 0.01),
        (1, 1_000_000, 0.25),
        (1, 1_000_000, 0.01),
        (1, 1_000_000, 1e-3),
        (1, 200_000, 1e-6),
        (3, 100_000, 0.01),
        (12, 20_000, 0.25),
    ] {
        let filter = full(layers, capacity, rate);
        let (mut absent, mut set, mut all) = (1.0, 0.0, 0.0);
        let mut fill = 0.0_f64;
        for (layer, estimate) in filter.estimate_layers() {
            let cells = cells(layer);
            absent *= 1.0 - self::rate(layer, &cells);
            set += share(&cells) * cells.len() as f64;
            all += cells.len() as f64;
            fill = fill.max((estimate.fill - share(&cells)).abs());
        }
        let whole = filter.estimate();
        let total = whole.error_rate / (1.0 - absent);
        let whole_fill = (whole.fill - set / all).abs();
        hold &= (total - 1.0).abs() < 0.1 && fill < 0.1 && whole_fill < 0.01;
        table += &format!(
            "{layers:>5} layers of {capacity:>7} at {rate}: {total:.4} of the rate, fill off by \
             {whole_fill:.4}, one layer {fill:.3}\n"
        );
    }
    println!("{table}");
    assert!(hold, "{table}");
}
