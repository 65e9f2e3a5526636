//! Filters of every shape for the tests to store and to damage.

use redis_bloom::{
    codec::native::dump,
    filter::{CellKind, Filter, Params, Rules},
    sharding::Shard,
};

use crate::support::{CELLS, add, add_at, fill, filter, item, last_items, params, time, window};

/// When the first item is added to a window.
pub(crate) const NOW: i64 = 1_790_000_000_000;

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
        .chain(windows())
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

/// A window of `items` items, added `step` milliseconds apart.
pub(crate) fn window_of(params: &Params, rules: Rules, items: u64, step: u64) -> Filter {
    let mut window = window(params, rules);
    for number in 0..items {
        add_at(&mut window, &item(1, number), NOW + (number * step) as i64);
    }
    window.into_filter()
}

/// Windows of every kind.
fn windows() -> Vec<Named> {
    let double = params(0.01, 60, 2, 0x5EED);
    let fixed = params(0.01, 60, 0, 0x5EED);
    [
        ("a window of time that was not used", window_of(&double, time(1_000, 4, true), 0, 0)),
        ("a window of time", window_of(&fixed, time(1_000, 4, false), 60, 20)),
        ("a window of time, grown", small_window()),
        ("a window of items", window_of(&fixed, last_items(4, true), 100, 0)),
    ]
    .map(|(name, filter)| (name.to_owned(), filter))
    .into()
}

/// A window of four generations and five layers, the first of which grew.
pub(crate) fn small_window() -> Filter {
    let mut window = window(&params(0.01, 40, 2, 0x5EED), time(1_000, 4, true));
    // 10 items are planned for each generation, and two standard deviations.
    for (number, at) in (0..30).zip([0; 27].into_iter().chain([300, 600, 900])) {
        add_at(&mut window, &item(1, number), NOW + at);
    }
    let layers = window.generations().map(|(_, layers)| layers.len());
    assert_eq!(layers.collect::<Vec<_>>(), [2, 1, 1, 1]);
    window.into_filter()
}

/// The filters of [`small_of`] for bits and for counters, a shard and a window: at least one for
/// each version of the header.
pub(crate) fn smalls() -> [Filter; 4] {
    let [bits, counters] = CELLS.map(small_of);
    [bits, counters, shard_of(CellKind::Bits), small_window()]
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
