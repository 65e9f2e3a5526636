//! Checks a filter that a decoder accepted from any bytes: its plan is valid, it answers queries,
//! accepts additions and deletions, and reads back as it was written.

#![allow(clippy::allow_attributes, dead_code, reason = "not every target uses every item")]

use redis_bloom::{
    codec::native::{Load, Stored, rdb},
    filter::{Author, Error, Filter, NEVER, Plan, paged::Paged},
};

use super::strings::{Reading, Strings};

/// The most bytes of bits or pages that a decoder may allocate.
pub(crate) const CEILING: u64 = 4 << 20;

/// Checks what was stored, complete or not.
pub(crate) fn check_stored(stored: Stored) {
    match stored {
        Stored::Layers(mut filter) => check(&mut filter),
        Stored::Pages(mut filter) => check_pages(&mut filter),
        Stored::Partial(load) => {
            let written = written(&load);
            let again = rdb::load(&mut Reading(written.0.iter()), CEILING);
            let Ok(Stored::Partial(again)) = again else {
                panic!("the load's own RDB is refused");
            };
            assert!(self::written(&again).0 == written.0);
        }
    }
}

fn written(load: &Load) -> Strings {
    let mut strings = Strings::default();
    rdb::save(load, &mut strings);
    strings
}

pub(crate) fn check(filter: &mut Filter) {
    shape(filter);
    let mut strings = Strings::default();
    rdb::save(&*filter, &mut strings);
    let again = rdb::load(&mut Reading(strings.0.iter()), CEILING);
    let Ok(Stored::Layers(again)) = again else {
        panic!("the filter's own RDB is refused");
    };
    assert_eq!(Plan::of(&again), Plan::of(filter));
    for number in 0..20_u64 {
        let hash = filter.hash(&number.to_le_bytes());
        match filter.add(hash, |_| CEILING) {
            Ok(_) => assert!(filter.contains(hash)),
            Err(Error::Overflow) => {
                let mut paged = filter.overflow().expect("memory");
                return check_pages(&mut paged);
            }
            Err(_) => break,
        }
    }
    let estimate = filter.estimate();
    assert!((0.0..=1.0).contains(&estimate.fill) && (0.0..=1.0).contains(&estimate.error_rate));
    shape(filter);
}

fn shape(filter: &Filter) {
    assert_eq!(Plan::of(filter).check(), Ok(()));
    assert!(filter.bit_bytes() <= CEILING && filter.items() <= filter.capacity());
}

fn saved(filter: &Paged) -> Strings {
    let mut strings = Strings::default();
    rdb::save(filter, &mut strings);
    strings
}

fn read(strings: &Strings) -> Paged {
    match rdb::load(&mut Reading(strings.0.iter()), u64::MAX) {
        Ok(Stored::Pages(filter)) => filter,
        other => panic!("the filter's own RDB is refused: {other:?}"),
    }
}

/// Adds to a filter of pages while its clock, if it has one, runs, jumps and is set back, and
/// deletes. A copy that gets only the effects is equal.
pub(crate) fn check_pages(filter: &mut Paged) {
    let strings = saved(filter);
    let mut copy = read(&strings);
    assert!(saved(&copy).0 == strings.0);
    let newest = filter.window().map_or(0, |window| window.newest().start);
    let newest = if newest == NEVER { 0 } else { newest };
    for (number, after) in (0..20_u64).zip([0, 1, 1_000, 1 << 30, -1_000_000, 1 << 40].repeat(4)) {
        let now = newest.saturating_add(after);
        if let Some(shift) = filter.turn(now) {
            copy.obey(shift).expect("its author's shift");
        }
        let hash = filter.hash(&number.to_le_bytes());
        if let Ok(added) = filter.add(hash, Author::Client(now), |_| CEILING) {
            assert!(filter.contains(hash, now));
            if added.changed {
                let obeyed = copy.add(hash, Author::Obeyed, |_| u64::MAX);
                assert!(obeyed.is_ok_and(|obeyed| obeyed.changed));
            }
        }
        assert_eq!(Plan::of_pages(filter).check(), Ok(()));
    }
    for number in 0..20_u64 {
        let item = number.to_le_bytes();
        let (hash, mut deleted, mut there) = (filter.hash(&item), false, false);
        let before = filter.count(hash);
        filter.delete_each([&item[..]].into_iter(), |answers| deleted = answers.ones() == 1);
        copy.delete_each([&item[..]].into_iter(), |answers| there = answers.ones() == 1);
        assert_eq!(there, deleted);
        assert_eq!(filter.count(hash), before - u64::from(deleted));
    }
    for shift in [filter.forget(i64::MAX), filter.sweep(16)].into_iter().flatten() {
        copy.obey(shift).expect("its author's shift");
    }
    assert!(saved(&copy).0 == saved(filter).0);
    let estimate = filter.estimate();
    assert!(estimate.fill >= 0.0 && (0.0..=1.0).contains(&estimate.error_rate));
}
