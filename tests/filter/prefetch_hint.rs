//! Items hashed before their filter is at hand: a filter that the hint fits has the same hash.

use redis_bloom::filter::{CellKind, Family, Filter, Layer, Params, PrefetchHint};

use crate::support::{filter, item, params};

/// Large enough to be worth it: some 1.2 MB.
const LARGE: u64 = 1_000_000;

fn hint(filter: &Filter) -> PrefetchHint {
    PrefetchHint::of(filter).expect("a large native filter")
}

#[test]
fn the_hash_is_that_of_the_filter() {
    for error_rate in [0.01, 1e-6] {
        let filter = filter(&params(error_rate, LARGE, 2, 7));
        for number in 0..1_000 {
            let item = item(1, number);
            assert!(hint(&filter).fits(&filter));
            assert_eq!(hint(&filter).hash(&item), filter.hash(&item));
        }
    }
}

#[test]
fn a_hint_does_not_fit_another_filter() {
    let (one, other) = (filter(&params(0.01, LARGE, 2, 7)), filter(&params(0.01, LARGE, 2, 8)));
    assert!(!hint(&one).fits(&other) && !hint(&other).fits(&one));
    // Equal seeds at another address are another filter too.
    let twin = filter(&params(0.01, LARGE, 2, 7));
    assert!(!hint(&one).fits(&twin));
}

#[test]
fn nor_one_that_grew_or_went() {
    let mut grown = filter(&params(0.01, LARGE, 2, 7));
    let hint = hint(&grown);
    grown.grow(|_| u64::MAX).expect("memory");
    assert!(!hint.fits(&grown));
    drop(grown);
    // Nothing is read where it was, be there nothing or another.
    let other = filter(&params(0.01, LARGE, 2, 8));
    let item = item(1, 1);
    assert_ne!(hint.hash(&item), other.hash(&item));
    assert!(!hint.fits(&other));
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
