//! Counting filters against an exact model: how often each item was added and not deleted since.

use std::collections::HashMap;

use redis_bloom::filter::{Error, Plan, paged::Paged};
use redis_bloom_harness::Random;

use super::{CLIENT, add, check_equal, check_rate, counting, false_positives, try_add};
use crate::support::item;

fn delete(paged: &mut Paged, number: u64) -> bool {
    super::delete(paged, &item(1, number))
}

fn count(paged: &Paged, number: u64) -> u64 {
    paged.count(paged.hash(&item(1, number)))
}

/// Every item is replaced 20 times; some come up to 15 times. At a rate of 1e-9, no item takes
/// another one's slot by chance: some 10^5 items at some 10^5 times are 10^-4 cases.
#[test]
fn counts_are_exact_through_twenty_turnovers() {
    for (capacity, expansion) in [(5_000, 0), (5_000, 2), (100, 2)] {
        let mut paged = counting(1e-9, capacity, expansion);
        let (mut random, mut model, mut fresh) = (Random::new(capacity), HashMap::new(), 0_u64);
        let mut present: Vec<u64> = Vec::new();
        let most = 5_000;
        while fresh < 20 * most as u64 {
            let known = random.below(3) == 0 && !present.is_empty();
            let number = if known { *random.pick(&present) } else { fresh };
            if !known && present.len() < most {
                fresh += 1;
                present.push(number);
            } else if !known || model[&number] >= 15 {
                // Deletes an item as often as it was added.
                let number = present.swap_remove(random.below(present.len()));
                for _ in 0..model.remove(&number).expect("a member") {
                    assert!(delete(&mut paged, number), "{number}");
                }
                assert!(!delete(&mut paged, number), "{number} is still there");
                continue;
            }
            assert_eq!(add(&mut paged, &item(1, number)), !known);
            *model.entry(number).or_insert(0) += 1_u64;
            assert_eq!(paged.items(0), present.len() as u64);
        }
        for (&number, &expected) in &model {
            assert_eq!(count(&paged, number), expected, "{number}");
        }
        for (number, times) in model {
            (0..times).for_each(|_| assert!(delete(&mut paged, number)));
        }
        check_equal(&paged, &counting(1e-9, capacity, expansion), "nothing is left");
        assert_eq!(paged.refused_deletions(), 0);
    }
}

/// A page takes memory with its first item, and none after its last.
#[test]
fn a_reservation_takes_memory_as_items_come() {
    let mut paged = counting(0.01, 1_000_000_000, 2);
    let reserved = paged.bytes();
    // A pointer, a length and a capacity for each of half a million pages. They take 2 GB when they
    // are full.
    assert!(reserved < 16_000_000, "{reserved} bytes");
    let mut last = reserved;
    for number in 0..100 {
        assert!(!delete(&mut paged, number));
        assert!(add(&mut paged, &item(1, number)));
        let more = paged.bytes() - last;
        assert!([0, 16].contains(&more), "{more} bytes");
        last = paged.bytes();
    }
    let copy = paged.duplicate().expect("memory");
    check_equal(&copy, &paged, "a copy");
    for number in 0..100 {
        assert_eq!(count(&paged, number), 1);
        assert!(delete(&mut paged, number));
    }
    assert_eq!((paged.bytes(), paged.items(0)), (reserved, 0));
}

/// At 1 %, the rate holds at the capacity after 20 turnovers, and no count is too low.
#[test]
fn the_rate_holds_after_turnovers() {
    for expansion in [0, 2] {
        let (capacity, rate) = (30_000, 0.01);
        let mut paged = counting(rate, capacity, expansion);
        let mut first = 0;
        for next in 0..20 * capacity {
            while paged.items(0) >= capacity {
                assert!(delete(&mut paged, first), "{first} is lost");
                first += 1;
            }
            add(&mut paged, &item(1, next));
        }
        let last = 20 * capacity;
        assert!((first..last).all(|number| count(&paged, number) > 0));
        check_rate(false_positives(&paged, 200_000), 200_000, rate, "after turnovers");
        // Items that share a slot: at most as many as the rate says.
        check_rate(last - first - paged.items(0), last - first, rate, "items");
        (first..last).for_each(|number| assert!(delete(&mut paged, number)));
        assert_eq!(paged.items(0), 0);
        check_equal(&paged, &counting(rate, capacity, expansion), "nothing is left");
    }
}

#[test]
fn a_filter_that_cannot_grow_is_full_exactly_at_its_capacity() {
    for capacity in [1, 2, 64, 100, 128, 129, 2_000, 30_000] {
        let mut paged = counting(0.000_001, capacity, 0);
        for number in 0..capacity {
            assert!(add(&mut paged, &item(1, number)), "{number} of {capacity}");
        }
        let full = paged.duplicate().expect("memory");
        assert_eq!(try_add(&mut paged, &item(2, 0)), Err(Error::Full));
        let batch = [item(1, 0), item(2, 0), item(1, 0)];
        let mut answers = Vec::new();
        let outcome = paged.add_each(
            batch.iter().map(<[u8; 16]>::as_slice),
            CLIENT,
            |_| u64::MAX,
            |done| answers.extend(done.new.each()),
        );
        assert_eq!((outcome, answers), (Err(Error::Full), vec![false]), "up to the new one");
        assert_eq!((count(&paged, 0), paged.items(0)), (2, capacity));
        assert!(delete(&mut paged, 0));
        check_equal(&paged, &full, "refusals");
        assert!(delete(&mut paged, 0) && add(&mut paged, &item(2, 0)));
        assert_eq!(try_add(&mut paged, &item(2, 1)), Err(Error::Full));
        // What a primary took is never refused.
        let hash = paged.hash(&item(2, 1));
        let obeyed = paged.add(hash, redis_bloom::filter::Author::Obeyed, |_| 0);
        assert!(obeyed.is_ok_and(|done| done.new));
        assert_eq!(paged.items(0), capacity + 1);
    }
}

#[test]
fn a_saturated_count_stays_and_its_deletion_is_refused() {
    let mut paged = counting(0.01, 1_000, 2);
    let hash = paged.hash(b"often");
    for expected in 1..=20_u64 {
        let done = try_add(&mut paged, b"often").expect("room");
        assert_eq!((done.new, done.changed), (expected == 1, expected <= 16));
        assert_eq!(paged.count(hash), expected.min(16));
    }
    let before = paged.duplicate().expect("memory");
    assert_eq!((super::delete(&mut paged, b"often"), paged.refused_deletions()), (false, 1));
    let mut answers = Vec::new();
    paged.delete_each([&b"often"[..], b"never"].into_iter(), |each| answers.extend(each.each()));
    assert_eq!((answers, paged.refused_deletions()), (vec![false, false], 2));
    check_equal(&paged, &before, "refused");
    assert_eq!((before.refused_deletions(), paged.items(0)), (0, 1));
}

#[test]
fn chunks_do_what_single_operations_do() {
    let (mut batch, mut single) = (counting(0.1, 500, 2), counting(0.1, 500, 2));
    let mut random = Random::new(8);
    for step in 0..200 {
        let items: Vec<_> =
            (0..random.below(300)).map(|_| item(1, random.below(10_000) as u64)).collect();
        let each = || items.iter().map(<[u8; 16]>::as_slice);
        let mut answers = Vec::new();
        let expected: Vec<_> = if step % 5 < 3 {
            let collect = |done: redis_bloom::filter::Additions| answers.extend(done.new.each());
            batch.add_each(each(), CLIENT, |_| u64::MAX, collect).expect("memory");
            items.iter().map(|item| add(&mut single, item)).collect()
        } else {
            batch.delete_each(each(), |done| answers.extend(done.each()));
            items.iter().map(|item| super::delete(&mut single, item)).collect()
        };
        assert_eq!(answers, expected, "step {step}");
        check_equal(&batch, &single, "a batch");
    }
}

#[test]
fn what_does_not_count_deletes_nothing() {
    let mut paged = super::growing(0.01);
    add(&mut paged, b"item");
    assert!(!super::delete(&mut paged, b"item"));
    assert_eq!(paged.count(paged.hash(b"item")), 0);
    assert!(super::has(&paged, b"item"));
    // Each item has an answer, whether the layer below the pages holds it or not.
    let mut full = crate::support::filter(&crate::support::params(0.01, 100, 2, 7));
    crate::support::fill(&mut full, 1, 100);
    let mut above = full.overflow().expect("memory");
    let items: Vec<_> = (0..200).map(|number| item(1, number)).collect();
    let mut answers = 0;
    above.delete_each(items.iter().map(|item| &item[..]), |some| {
        assert_eq!(some.ones(), 0);
        answers += some.count();
    });
    assert_eq!(answers, 200);
}

/// A deletion that is refused is not replicated, so it must not join pages either. Of a small
/// filter at a high rate, a third of the items come often enough to have the highest count once
/// their slots are united with others.
#[test]
fn copies_without_the_refused_deletions_are_equal() {
    let seed = 365;
    let mut paged = counting(0.25, 100, 2);
    let is_often = |number: u64| number >= 1_950 && number.is_multiple_of(3);
    for number in 0..3_700 {
        for _ in 0..if is_often(number) { 16 } else { 1 } {
            add(&mut paged, &item(seed, number));
        }
    }
    let mut copy = paged.duplicate().expect("memory");
    for number in (0..3_700).filter(|&number| !is_often(number)) {
        if super::delete(&mut paged, &item(seed, number)) {
            assert!(super::delete(&mut copy, &item(seed, number)), "{number}");
        }
        assert!(Plan::of_pages(&copy) == Plan::of_pages(&paged), "{number}");
    }
}
