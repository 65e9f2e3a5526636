//! Items hashed before their filter is at hand: the hash is the filter's, or none.

use redis_bloom::filter::{
    CellKind, Family, Filter, Layer, Params, PrefetchHint, PrefetchHintCell,
};

use crate::support::{filter, item, params};

/// Large enough to be worth it: some 1.2 MB.
const LARGE: u64 = 1_000_000;

fn ahead(filter: &Filter) -> PrefetchHint {
    PrefetchHint::of(filter).expect("a large native filter")
}

#[test]
fn the_hash_is_that_of_the_filter() {
    for error_rate in [0.01, 1e-6] {
        let filter = filter(&params(error_rate, LARGE, 2, 7));
        for number in 0..1_000 {
            let item = item(1, number);
            assert_eq!(ahead(&filter).hash(&item).of(&filter), Some(filter.hash(&item)));
        }
    }
}

#[test]
fn another_filter_does_not_take_it() {
    let (one, other) = (filter(&params(0.01, LARGE, 2, 7)), filter(&params(0.01, LARGE, 2, 8)));
    let item = item(1, 1);
    assert_ne!(one.hash(&item), other.hash(&item));
    assert_eq!(ahead(&one).hash(&item).of(&other), None);
    assert_eq!(ahead(&other).hash(&item).of(&one), None);
}

#[test]
fn nor_does_a_filter_that_grew_or_went() {
    let mut grown = filter(&params(0.01, LARGE, 2, 7));
    let ahead = ahead(&grown);
    let item = item(1, 1);
    grown.grow(u64::MAX).expect("memory");
    assert_eq!(ahead.hash(&item).of(&grown), None);
    drop(grown);
    // Nothing is read where it was, be there nothing or another.
    let other = filter(&params(0.01, LARGE, 2, 8));
    assert_eq!(ahead.hash(&item).of(&other), None);
}

#[test]
fn there_is_none_of_filters_that_gain_nothing() {
    let small = filter(&params(0.01, 10_000, 2, 7));
    assert_eq!(PrefetchHint::of(&small), None);
    let counting = filter(&Params { cells: CellKind::Counters, ..params(0.01, LARGE, 2, 7) });
    assert_eq!(PrefetchHint::of(&counting), None);
    let native = filter(&params(0.01, LARGE, 2, 7));
    let layer = Layer::new(native.newest().shape(), LARGE, 0.01).expect("memory");
    let foreign = Filter::from_layers(Family::Guava, 7, 0.01, native.expansion(), vec![layer])
        .expect("a layer");
    assert_eq!(PrefetchHint::of(&foreign), None);
}

#[test]
fn a_cell_gives_back_what_was_put_in() {
    let cell = PrefetchHintCell::empty();
    assert_eq!(cell.get(), None);
    // One line a block, and many.
    for error_rate in [0.01, 1e-9] {
        let ahead = ahead(&filter(&params(error_rate, LARGE, 2, u64::MAX)));
        cell.set(Some(ahead));
        assert_eq!(cell.get(), Some(ahead));
    }
    cell.set(None);
    assert_eq!(cell.get(), None);
}
