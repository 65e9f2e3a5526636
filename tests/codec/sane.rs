//! Checks whatever a decoder accepted, however wrong the bytes were.

use redis_bloom::{
    codec::native::{Load, Stored, dump, rdb},
    filter::{Filter, Plan},
};

use crate::support::{Reading, Strings, item};

/// Checks that a filter works. It may be wrong about its items, because a forged file may have any
/// bits.
#[track_caller]
pub(crate) fn check_filter(filter: &mut Filter, ceiling: u64) {
    check_shape(filter, ceiling);
    let stored = Strings::of(filter);
    let again = stored.filter();
    assert_eq!(Strings::of(&again), stored);
    // It answers queries and accepts additions until it is full.
    let items: Vec<_> = (0..70).map(|number| item(9, number)).collect();
    let mut answers = 0;
    filter.contains_each(items.iter().map(<[u8; 16]>::as_slice), |found| {
        answers += found.count();
    });
    assert_eq!(answers, items.len());
    for item in &items {
        let hash = filter.hash(item);
        match filter.add(hash, |_| ceiling) {
            Ok(_) => assert!(filter.contains(hash)),
            Err(_) => break,
        }
    }
    check_shape(filter, ceiling);
    let answered = filter.estimate();
    assert!((0.0..=1.0).contains(&answered.fill) && (0.0..=1.0).contains(&answered.error_rate));
}

#[track_caller]
fn check_shape(filter: &Filter, ceiling: u64) {
    assert_eq!(Plan::of(filter).check(), Ok(()));
    assert!(filter.bit_bytes() <= ceiling);
    assert!(filter.items() <= filter.capacity());
}

/// Checks that a half-loaded filter can be stored, read back and dumped.
#[track_caller]
pub(crate) fn check_load(load: &Load, ceiling: u64) {
    check_shape(load.layered().expect("layers"), ceiling);
    assert!(load.received() < load.layered().expect("layers").bit_bytes());
    let mut stored = Strings::default();
    rdb::save(load, &mut stored);
    let again = match rdb::load(&mut Reading(stored.0.iter()), ceiling) {
        Ok(Stored::Partial(again)) => again,
        other => panic!("{other:?}"),
    };
    assert_eq!(again.received(), load.received());
    assert_eq!(dump::at(load, 1).is_some(), load.received() > 0);
}

/// Checks a filter that is complete or half-loaded.
#[track_caller]
pub(crate) fn check_stored(stored: Stored, ceiling: u64) {
    match stored {
        Stored::Layers(mut filter) => check_filter(&mut filter, ceiling),
        Stored::Partial(load) => check_load(&load, ceiling),
        other => panic!("{other:?}"),
    }
}
