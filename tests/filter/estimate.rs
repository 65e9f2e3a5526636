//! The estimate of a filter's own rate, from a sample of its words, compared with the rate by all
//! words.

use redis_bloom::filter::{CellKind, Counting, Filter, Hash, Layer, Params, Shape};

use crate::support::{CELLS, filter, params};

/// A stack of full layers of `capacity` items each. Items are added to a layer without a query of
/// the older layers, which hold almost none of them.
fn stack(layers: usize, capacity: u64, cells: CellKind) -> Filter {
    let mut filter = filter(&Params { cells, ..params(0.01, capacity, 1, 0x5EED) });
    let mut number = 0_u64;
    for index in 0..layers {
        if index > 0 {
            filter.grow(|_| u64::MAX).expect("memory for a layer");
        }
        let newest = filter.layers_from_mut(0).last().expect("a layer");
        while !newest.is_full() {
            newest.add(Hash::of(&number.to_le_bytes(), 0x5EED));
            number += 1;
        }
    }
    filter
}

/// Whether each bit of the layer is set, or each counter is not 0.
fn cells(layer: &Layer) -> Vec<bool> {
    let words = layer.bits().words().iter();
    match layer.counts() {
        true => words.flat_map(|word| (0..16).map(move |i| word >> (4 * i) & 15 != 0)).collect(),
        false => words.flat_map(|word| (0..64).map(move |i| word >> i & 1 != 0)).collect(),
    }
}

fn share(cells: &[bool]) -> f64 {
    cells.iter().filter(|&&taken| taken).count() as f64 / cells.len() as f64
}

/// The rate by all words of the layer: the mean over blocks of the chance that a random item tests
/// positive in the block. In a block of several lines, each group of four probes is in one line.
fn rate(layer: &Layer, cells: &[bool]) -> f64 {
    let geometry = match layer.shape() {
        Shape::Blocked(geometry) | Shape::Counting(Counting { geometry, .. }) => geometry,
        Shape::Classic(shape) => panic!("{shape:?}"),
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

/// Bounds of the total: the oldest layer is read whole in all rows but the last, where its sample
/// of 32,768 words has 1,024 blocks or more, and an error of at most 3 %. Layer i of the others has
/// 1 / (4 i (i + 1)) of the rate. A sample of 512 words has an error of about 25 %, all of them
/// together 0.25 * 0.54 / 4 = 3.4 %, and three times that is allowed. Layers that are not read have
/// 1/256 of the rate.
///
/// Bounds of a single layer: the estimate is by its sample, or by the rate that it was sized for,
/// from which a layer of 20 items differs by a factor of up to 6.
#[test]
fn deep_stacks_are_estimated_near_the_truth() {
    let mut table = String::new();
    let mut hold = true;
    for (layers, capacity) in [
        (64, 20_000),
        (1_000, 100),
        (1_000, 2_000),
        (1_000, 5_000),
        (5_000, 20),
        (5_000, 300),
        (3, 1_000_000),
    ] {
        for kind in CELLS {
            let filter = stack(layers, capacity, kind);
            let (mut absent, mut set, mut all) = (1.0, 0.0, 0.0);
            let (mut least, mut most, mut fill) = (1.0_f64, 1.0_f64, 0.0_f64);
            for (layer, estimate) in filter.estimate_layers() {
                let cells = cells(layer);
                let truth = rate(layer, &cells);
                absent *= 1.0 - truth;
                set += share(&cells) * cells.len() as f64;
                all += cells.len() as f64;
                least = least.min(estimate.error_rate / truth);
                most = most.max(estimate.error_rate / truth);
                fill = fill.max((estimate.fill - share(&cells)).abs());
            }
            let whole = filter.estimate();
            let total = whole.error_rate / (1.0 - absent);
            let whole_fill = (whole.fill - set / all).abs();
            hold &= (total - 1.0).abs() < 0.1
                && least > 0.125
                && most < 8.0
                && fill < 0.1
                && whole_fill < 0.01;
            table += &format!(
                "{layers:>5} layers of {capacity:>7}, {kind:?}: {total:.4} of the rate, one layer \
                 {least:.2} to {most:.2}, fill off by {whole_fill:.4}, one layer {fill:.3}\n"
            );
        }
    }
    println!("{table}");
    assert!(hold, "{table}");
}
