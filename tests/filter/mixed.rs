//! Stacks of layers with any shapes in any order: a batch answers like single calls, whether or not
//! four probes share a line in a layer, in the one above or in the one below.

use redis_bloom::filter::{Expansion, Family, Filter, Geometry, Layer, Shape};

use crate::support::item;

/// Blocks and words per block: one line, two lines, not whole lines, a single block of whole lines,
/// eight lines, larger than the caches.
const BLOCKS: [(u32, u16); 6] = [(50, 8), (50, 16), (50, 15), (1, 16), (50, 64), (600, 32)];

/// Enough items to set some hundred bits of each layer, and too few to fill a block.
const ITEMS: u64 = 120;

fn layer(blocks: u32, block_words: u16, probes: u8) -> Layer {
    let shape = Shape::from(Geometry { blocks, block_words, probes });
    Layer::new(shape, 1_000, 0.01).expect("memory")
}

/// A stack of three layers, which hold the items of set 0, 1 and 2.
fn stack(shapes: [(u32, u16); 3], probes: u8) -> Filter {
    let mut filled = Vec::new();
    for (set, (blocks, words)) in (0..).zip(shapes) {
        // A filter of one layer: its layer is copied into the stack.
        let layer = layer(blocks, words, probes);
        let mut one = of(vec![layer]);
        for number in 0..ITEMS {
            let hash = one.hash(&item(set, number));
            one.add(hash, |_| u64::MAX).expect("room");
        }
        filled.push(one);
    }
    let layers = filled.iter().map(|one| one.newest().duplicate().expect("memory"));
    of(layers.collect())
}

fn of(layers: Vec<Layer>) -> Filter {
    let expansion = Expansion::new(2).expect("in range");
    Filter::from_layers(Family::Native, 9, 0.01, expansion, layers).expect("a layer")
}

#[test]
fn a_batch_answers_like_single_calls_in_layers_of_any_shapes() {
    for probes in [1, 3, 4, 5, 8, 9, 127] {
        for &one in &BLOCKS {
            for &two in &BLOCKS {
                for &three in &BLOCKS {
                    check([one, two, three], probes);
                }
            }
        }
    }
}

#[track_caller]
fn check(shapes: [(u32, u16); 3], probes: u8) {
    let case = format!("{shapes:?}, {probes} probes");
    let mut filter = stack(shapes, probes);
    // Items of each layer, and absent items.
    let items: Vec<_> = (0..4).flat_map(|set| (0..40).map(move |n| item(set, n * 3))).collect();
    let alone: Vec<bool> = items.iter().map(|item| filter.contains(filter.hash(item))).collect();
    assert!(alone[..120].iter().all(|&found| found), "{case}");
    for size in [10, 160] {
        let mut together = Vec::new();
        for batch in items.chunks(size) {
            filter.contains_each(batch.iter().map(<[u8; 16]>::as_slice), |found| {
                together.extend(found.each());
            });
        }
        assert_eq!(together, alone, "{case}, batches of {size}");
    }
    let mut other = filter.duplicate().expect("memory");
    let mut together = Vec::new();
    other
        .add_each(
            items.iter().map(<[u8; 16]>::as_slice),
            |_| u64::MAX,
            |new| together.extend(new.each()),
        )
        .expect("room");
    let alone: Vec<bool> = items
        .iter()
        .map(|item| filter.add(filter.hash(item), |_| u64::MAX).expect("room"))
        .collect();
    assert_eq!(together, alone, "{case}, added");
    for (one, other) in filter.layers().zip(other.layers()) {
        assert!(one.bits().words() == other.bits().words(), "{case}, added");
        assert_eq!(one.counted(), other.counted(), "{case}, added");
    }
}
