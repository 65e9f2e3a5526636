//! Filters of every shape for the tests to store and to damage.

use redis_bloom::{
    codec::native::dump,
    filter::{Filter, Params},
    sharding::Shard,
};

use crate::support::{self, fill, filter, params};

/// A filter with a name for messages.
type Named = (String, Filter);

/// Name, rate, capacity, expansion, items.
const SHAPES: [(&str, f64, u64, u64, u64); 6] = [
    ("empty", 0.01, 100, 2, 0),
    ("one item", 0.5, 1, 0, 1),
    ("one block", 0.01, 100, 2, 60),
    ("full, non-scaling", 0.001, 50, 0, 50),
    ("full", 0.01, 50, 2, 50),
    ("blocks", 0.01, 5_000, 2, 3_000),
];

/// As [`SHAPES`], in stacks of layers.
const STACKS: [(&str, f64, u64, u64, u64); 3] = [
    ("layers that double", 0.01, 10, 2, 90),
    ("one layer an item", 0.01, 1, 1, 40),
    ("large layers", 0.000_1, 2_000, 1, 5_500),
];

/// A filter of each shape.
pub(crate) fn all() -> Vec<Named> {
    let native = SHAPES.map(|(name, rate, capacity, expansion, items)| {
        let mut filter = filter(&params(rate, capacity, expansion, 0x5EED));
        fill(&mut filter, 1, items);
        (name.to_owned(), filter)
    });
    let stacks = STACKS.map(|(name, rate, capacity, expansion, items)| {
        (name.to_owned(), stack(&params(rate, capacity, expansion, 0), items))
    });
    native.into_iter().chain(stacks).chain([("a shard".to_owned(), shard())]).collect()
}

/// A filter as valkey-bloom makes it, with so many items: it grows by layers.
#[track_caller]
pub(crate) fn stack(params: &Params, items: u64) -> Filter {
    let mut filter = support::stack(params);
    fill(&mut filter, 1, items);
    filter
}

/// A filter of one layer of some 250 bytes: small enough to damage each bit.
pub(crate) fn small() -> Filter {
    with_shard(None)
}

fn with_shard(shard: Option<Shard>) -> Filter {
    let mut filter = filter(&Params { shard, ..params(0.01, 200, 2, 0x5EED) });
    fill(&mut filter, 1, 100);
    filter
}

/// A filter of three layers, as small.
pub(crate) fn small_stack() -> Filter {
    let filter = stack(&params(0.01, 20, 2, 0), 100);
    assert_eq!(filter.layers().len(), 3);
    filter
}

/// [`small`] as shard 5 of 8.
pub(crate) fn shard() -> Filter {
    with_shard(Shard::new(5, 8))
}

/// A small filter for each version of the header.
pub(crate) fn smalls() -> [Filter; 3] {
    [small(), small_stack(), shard()]
}

/// The bits of all layers as one stream, without the codec.
pub(crate) fn stream(filter: &Filter) -> Vec<u8> {
    let words = filter.layers().flat_map(|layer| layer.bits().words());
    words.flat_map(|word| word.to_le_bytes()).collect()
}

/// Iterator and bytes of each part of a dump: the header, then the chunks.
pub(crate) fn dump(filter: &Filter) -> Vec<(i64, Vec<u8>)> {
    let mut pieces = vec![dump::header(filter)];
    while let Some(piece) = dump::at(filter, pieces[pieces.len() - 1].0) {
        pieces.push(piece);
    }
    pieces
}
