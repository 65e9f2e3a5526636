//! An operation that finds no memory fails, and has changed nothing.

use redis_bloom::filter::{Author, Error, paged::Paged};

use super::{check_equal, counting, growing, paged};
use crate::{
    pages::allocation::starved,
    support::{fill, filter, item, params, time},
};

/// Does an operation with memory for no, one, two ... allocations until it succeeds. Returns the
/// number of failures.
fn struggle<T>(
    filter: &mut Paged,
    steady: &mut Paged,
    operation: impl Fn(&mut Paged) -> Result<T, Error>,
) -> u64 {
    let mut failures = 0;
    loop {
        match starved(failures, || operation(filter)) {
            Ok(_) => break,
            Err(Error::OutOfMemory(_)) => check_equal(filter, steady, "a failure"),
            Err(other) => panic!("{other:?}"),
        }
        failures += 1;
    }
    assert!(operation(steady).is_ok());
    failures
}

/// Filters of all kinds that grow, and none that shrinks.
#[test]
fn an_addition_without_memory_changes_nothing() {
    let shared = params(0.01, 10_000, 0, 1);
    let mut full = filter(&params(0.01, 100, 2, 1));
    fill(&mut full, 2, 100);
    let base = || full.newest().duplicate().expect("memory");
    let kinds: [&dyn Fn() -> Paged; 5] = [
        &|| growing(0.01),
        &|| Paged::above(base, &params(0.01, 100, 2, 1)).expect("a sound filter"),
        &|| counting(0.01, 100, 2),
        &|| paged(&shared, Some(super::last_items(4, true))),
        &|| paged(&shared, Some(time(60_000, 4, true))),
    ];
    for make in kinds {
        let (mut filter, mut steady) = (make(), make());
        filter.turn(0);
        steady.turn(0);
        let mut failures = 0;
        for number in 0..6_000 {
            failures += struggle(&mut filter, &mut steady, |filter| {
                filter.add(filter.hash(&item(1, number)), Author::Client(0), |_| u64::MAX)
            });
        }
        check_equal(&filter, &steady, "in the end");
        assert!(failures > 20, "{failures}: the test shows nothing");
        if filter.counts() {
            for number in 0..6_000 {
                let item = item(1, number);
                let left = if number < 3_000 { 0 } else { u64::MAX };
                let deleted = starved(left, || super::delete(&mut filter, &item));
                assert_eq!(deleted, super::delete(&mut steady, &item), "{number}");
            }
            check_equal(&filter, &steady, "in the end");
        }
    }
}

#[test]
fn a_batch_without_memory_stops_where_its_answers_stop() {
    let makes = [
        || growing(0.01),
        || counting(0.01, 100, 2),
        || paged(&params(0.01, 10_000, 0, 1), Some(super::last_items(4, true))),
        || paged(&params(0.01, 10_000, 0, 1), Some(time(60_000, 4, true))),
    ];
    for make in makes {
        let (mut filter, mut steady) = (make(), make());
        filter.turn(0);
        steady.turn(0);
        let batch: Vec<_> = (0..6_000).map(|number| item(1, number)).collect();
        let mut next = 0;
        while next < batch.len() {
            let mut answered = 0;
            let each = batch[next..].iter().map(<[u8; 16]>::as_slice);
            let outcome = starved(3, || {
                filter.add_each(
                    each,
                    Author::Client(0),
                    |_| u64::MAX,
                    |done| {
                        answered += done.new.count();
                    },
                )
            });
            for item in &batch[next..next + answered] {
                super::add(&mut steady, item);
            }
            check_equal(&filter, &steady, "a batch");
            next += answered;
            assert_eq!(outcome.is_ok(), next == batch.len(), "{outcome:?}");
            // One item needs more than three allocations, to split a page.
            if answered == 0 {
                super::add(&mut filter, &batch[next]);
                super::add(&mut steady, &batch[next]);
                next += 1;
            }
        }
    }
}

/// Memory that is not returned now is returned later, and nothing is lost or remembered for longer.
#[test]
fn a_window_that_finds_no_memory_to_return_memory_keeps_its_promise() {
    let mut window = paged(&params(1e-9, 1_000, 2, 1), Some(time(400, 4, true)));
    let mut now = 0;
    for round in 0..60_u64 {
        let items = if round % 12 == 0 { 20_000 } else { 100 };
        window.turn(now);
        for number in 0..items {
            let hash = window.hash(&item(round, number));
            window.add(hash, Author::Client(now), |_| u64::MAX).expect("room");
        }
        starved(0, || {
            window.sweep(50);
            // Twice, everything is forgotten.
            now += if round % 29 == 28 { 1_000 } else { 100 };
            window.turn(now);
        });
        for old in round.saturating_sub(8)..=round {
            let age = (round - old + 1) as i64 * 100;
            let found =
                (0..100).filter(|&number| window.contains(window.hash(&item(old, number)), now));
            let found = found.count();
            match age {
                500.. => assert_eq!(found, 0, "round {old} in round {round}"),
                _ if round % 29 > 23 || round % 29 < 5 => {}
                _ => assert_eq!(found, 100, "round {old} in round {round}"),
            }
        }
    }
    while window.sweep(1).is_some() {}
    assert!(window.pages().bytes() < 20_000, "{}", window.pages().bytes());
}

#[test]
fn nothing_is_made_or_copied_without_memory() {
    let rules = Some(time(60_000, 4, true));
    let mut copies = 0;
    let mut full = growing(0.01);
    (0..10_000).for_each(|number| assert!(super::try_add(&mut full, &item(1, number)).is_ok()));
    for left in 0..4 {
        let copied = starved(left, || full.duplicate().map(drop));
        copies += u64::from(copied.is_ok());
        let made = starved(0, || Paged::new(&params(0.01, 100, 2, 1), rules, u64::MAX).map(drop));
        assert!(matches!(made, Err(Error::OutOfMemory(_))), "{made:?}");
    }
    assert_eq!(copies, 0);
}
