//! A layer of blocks of any shape: a batch answers like single calls, whether or not four probes
//! share a line.

use redis_bloom::filter::{Expansion, Filter, Geometry, LayerPlan, Plan, Shape};

use crate::support::item;

/// Blocks and words per block: one line, two lines, not whole lines, a single block of whole lines,
/// eight lines, larger than the caches.
const BLOCKS: [(u32, u16); 6] = [(50, 8), (50, 16), (50, 15), (1, 16), (50, 64), (600, 32)];

/// Enough items to set some hundred bits of each layer, and too few to fill a block.
const ITEMS: u64 = 120;

/// A filter that holds items.
fn filled(blocks: u32, block_words: u16, probes: u8) -> Filter {
    let shape = Shape::Blocked(Geometry { blocks, block_words, probes });
    let layer =
        LayerPlan { capacity: 1_000, items: 0, error_rate: 0.01, shape }.empty().expect("memory");
    let expansion = Expansion::new(2).expect("in range");
    let plan = Plan { seed: 9, error_rate: 0.01, expansion, ..Plan::default() };
    let mut filter = plan.with_layers(vec![layer]).expect("a layer");
    for number in 0..ITEMS {
        let hash = filter.hash(&item(0, number));
        filter.add(hash, |_| u64::MAX).expect("room");
    }
    filter
}

#[test]
fn a_batch_answers_like_single_calls_in_a_layer_of_any_shape() {
    for probes in [1, 3, 4, 5, 8, 9, 127] {
        for (blocks, words) in BLOCKS {
            check(blocks, words, probes);
        }
    }
}

#[track_caller]
fn check(blocks: u32, words: u16, probes: u8) {
    let case = format!("{blocks} blocks of {words} words, {probes} probes");
    let mut filter = filled(blocks, words, probes);
    // Members, and absent items.
    let items: Vec<_> = (0..4).flat_map(|set| (0..40).map(move |n| item(set, n * 3))).collect();
    let alone: Vec<bool> = items.iter().map(|item| filter.contains(filter.hash(item))).collect();
    assert!(alone[..40].iter().all(|&found| found), "{case}");
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
    let (one, other) = (filter.newest(), other.newest());
    assert!(one.bits().words() == other.bits().words(), "{case}, added");
    assert_eq!(one.counted, other.counted, "{case}, added");
}
