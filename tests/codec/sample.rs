//! Filters of every shape for the tests to store and to damage.

use redis_bloom::{
    codec::native::dump,
    filter::{CellKind, Filter, Params},
    sharding::Shard,
};

use crate::support::{CELLS, add, fill, filter, item, params};

/// A filter with a name for messages.
type Named = (String, Filter);

/// Name, rate, capacity, expansion, items.
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

/// A filter of each shape, with bits and with counters.
pub(crate) fn all() -> Vec<Named> {
    let make = |(name, rate, capacity, expansion, items), cells| {
        let mut filter = filter(&Params { cells, ..params(rate, capacity, expansion, 0x5EED) });
        fill(&mut filter, 1, items);
        delete_some(&mut filter, items);
        (format!("{name}, {cells:?}"), filter)
    };
    let past = ("a count past the capacity".to_owned(), past_its_capacity());
    SHAPES
        .into_iter()
        .flat_map(|shape| CELLS.map(|cells| make(shape, cells)))
        .chain([past])
        .chain(CELLS.map(|cells| (format!("a shard, {cells:?}"), shard_of(cells))))
        .collect()
}

/// A counting filter whose count is 3 above its capacity: it was kept full, and its oldest items
/// were replaced by new ones.
fn past_its_capacity() -> Filter {
    let mut filter = filter(&Params { cells: CellKind::Counters, ..params(0.05, 100, 2, 0x5EED) });
    let (mut oldest, mut next) = (0, 0);
    while filter.newest().counted() < 103 {
        if filter.newest().is_full() {
            assert!(filter.delete(filter.hash(&item(1, oldest))));
            oldest += 1;
        } else {
            add(&mut filter, &item(1, next));
            next += 1;
        }
        assert!(next < 100_000, "the count stays below its capacity");
    }
    assert_eq!(filter.layers().len(), 1);
    assert!(filter.items() <= 100);
    filter
}

/// Deletes every seventh item if the filter has counters.
fn delete_some(filter: &mut Filter, items: u64) {
    for number in (0..items).step_by(7) {
        filter.delete(filter.hash(&item(1, number)));
    }
}

/// A filter of three layers and 300 bytes of bits: small enough to damage each bit.
pub(crate) fn small() -> Filter {
    small_of(CellKind::Bits)
}

/// A filter of three layers: 300 bytes of bits, or 1,200 bytes of counters.
pub(crate) fn small_of(cells: CellKind) -> Filter {
    let mut filter = filter(&Params { cells, ..params(0.01, 20, 2, 0x5EED) });
    fill(&mut filter, 1, 100);
    delete_some(&mut filter, 100);
    assert_eq!(filter.layers().len(), 3);
    filter
}

/// A filter of [`small_of`] that is shard 5 of 8.
pub(crate) fn shard_of(cells: CellKind) -> Filter {
    small_of(cells).with_shard(Shard::new(5, 8))
}

/// The filters of [`small_of`] for bits and for counters, and a shard: one for each version of the
/// header.
pub(crate) fn smalls() -> [Filter; 3] {
    let [bits, counters] = CELLS.map(small_of);
    [bits, counters, shard_of(CellKind::Bits)]
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
