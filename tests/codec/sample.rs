//! Filters of every shape, to store and to damage.

use redis_bloom::{codec::chunk, filter::Filter};

use crate::support::{fill, filter, params};

/// A name, for messages.
type Named = (&'static str, Filter);

/// Rate, capacity, expansion, items.
const SHAPES: [(&str, f64, u64, u64, u64); 8] = [
    ("empty", 0.01, 100, 2, 0),
    ("one item", 0.5, 1, 0, 1),
    ("one block", 0.01, 100, 2, 60),
    ("full, non-scaling", 0.001, 50, 0, 50),
    ("layers that double", 0.01, 10, 2, 90),
    ("one layer an item", 0.01, 1, 1, 40),
    ("blocks", 0.01, 5_000, 2, 3_000),
    ("layers of blocks", 0.000_1, 2_000, 1, 5_500),
];

/// A filter of each shape.
pub(crate) fn all() -> Vec<Named> {
    let make = |(name, rate, capacity, expansion, items)| {
        let mut filter = filter(&params(rate, capacity, expansion, 0x5EED));
        fill(&mut filter, 1, items);
        (name, filter)
    };
    SHAPES.map(make).into()
}

/// Three layers, 300 bytes of bits: small enough to try every damage.
pub(crate) fn small() -> Filter {
    let mut filter = filter(&params(0.01, 20, 2, 0x5EED));
    fill(&mut filter, 1, 100);
    assert_eq!(filter.layers().len(), 3);
    filter
}

/// The bits of all layers as one stream, made without the codec.
pub(crate) fn stream(filter: &Filter) -> Vec<u8> {
    let words = filter.layers().flat_map(|layer| layer.bits().words());
    words.flat_map(|word| word.to_le_bytes()).collect()
}

/// The header and the chunks of a dump, each with its iterator.
pub(crate) fn dump(filter: &Filter) -> Vec<(i64, Vec<u8>)> {
    let mut pieces = vec![chunk::header(filter)];
    while let Some(piece) = chunk::at(filter, pieces[pieces.len() - 1].0) {
        pieces.push(piece);
    }
    pieces
}
