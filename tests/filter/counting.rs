//! Filters with counters: their counters correspond to the bits of a plain filter; effects of a
//! deletion.
//!
//! `model.rs` tests the promise against an exact multiset; `fullness.rs` measures the item count.

use redis_bloom::filter::{CellKind, Expansion, Family, Filter, Layer, Params};

use crate::support::{CELLS, Strings, add, fill, filter, has, item, params};

/// A filter of counters.
fn counting(error_rate: f64, capacity: u64, expansion: u64, seed: u64) -> Filter {
    filter(&Params { cells: CellKind::Counters, ..params(error_rate, capacity, expansion, seed) })
}

fn delete(filter: &mut Filter, item: &[u8]) -> bool {
    let hash = filter.hash(item);
    filter.delete(hash)
}

fn count(filter: &Filter, item: &[u8]) -> u64 {
    filter.count(filter.hash(item))
}

/// The counters of all layers, one by one.
fn counters(filter: &Filter) -> Vec<u64> {
    let words = filter.layers().flat_map(|layer| layer.bits().words());
    words.flat_map(|word| (0..16).map(move |i| word >> (4 * i) & 15)).collect()
}

#[test]
fn counters_are_raised_at_the_positions_of_set_bits() {
    for (rate, capacity) in [
        (0.25, 10),
        (0.01, 100),
        (0.01, 10_000),
        // Blocks of several lines.
        (0.001, 10_000),
        (0.000_1, 10_000),
        (0.000_1, 2_000),
        (1e-6, 5_000),
    ] {
        for seed in 0..5 {
            let plain = params(rate, capacity, 0, seed);
            let [mut bits, mut counts] = CELLS.map(|cells| filter(&Params { cells, ..plain }));
            let added = fill(&mut bits, 1, capacity);
            for number in 0..added {
                add(&mut counts, &item(1, number));
            }
            let case = format!("{capacity} items at {rate}, seed {seed}");
            assert_eq!(counts.items(), bits.items(), "{case}");
            let set: Vec<bool> = bits
                .layers()
                .flat_map(|layer| layer.bits().words())
                .flat_map(|word| (0..64).map(move |i| word >> i & 1 == 1))
                .collect();
            let raised: Vec<bool> = counters(&counts).iter().map(|&counter| counter > 0).collect();
            assert!(set == raised, "{case}");
            // So false positives are the same; `rate.rs` measures their rate.
            for number in 0..10_000 {
                let absent = item(2, number);
                assert_eq!(has(&counts, &absent), has(&bits, &absent), "{case}, item {number}");
            }
            let (exact, estimate) = (bits.estimate(), counts.estimate());
            let equal = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
            assert!(equal(exact.fill, estimate.fill), "{case}");
            assert!(equal(exact.error_rate, estimate.error_rate), "{case}");
        }
    }
}

#[test]
fn an_item_added_and_deleted_leaves_no_trace() {
    for (rate, capacity) in [(0.25, 10), (0.01, 100), (0.01, 10_000), (1e-6, 5_000)] {
        let mut filter = counting(rate, capacity, 0, 3);
        fill(&mut filter, 1, capacity / 2);
        let before = counters(&filter);
        let others: Vec<_> = (0..capacity / 3).map(|number| item(2, number)).collect();
        for item in &others {
            add(&mut filter, item);
        }
        assert_ne!(counters(&filter), before);
        // In reverse order.
        for item in others.iter().rev() {
            assert!(delete(&mut filter, item), "{capacity} at {rate}");
        }
        assert_eq!(counters(&filter), before, "{capacity} items at {rate}");
    }
}

#[test]
fn each_addition_counts_and_each_deletion_takes_one() {
    let mut filter = counting(0.001, 100, 2, 4);
    fill(&mut filter, 1, 50);
    assert_eq!(count(&filter, b"x"), 0);
    for times in 1..=5 {
        assert_eq!(add(&mut filter, b"x"), times == 1);
        assert_eq!(count(&filter, b"x"), times);
    }
    assert_eq!(filter.items(), 51, "an item fills a layer once");
    for left in (0..5).rev() {
        assert!(delete(&mut filter, b"x"));
        assert_eq!((count(&filter, b"x"), has(&filter, b"x")), (left, left > 0));
    }
    assert_eq!(filter.items(), 50);
    let stored = Strings::of(&filter);
    assert!(!delete(&mut filter, b"x"), "it is not there");
    assert_eq!((Strings::of(&filter), filter.refused_deletions()), (stored, 0));
}

#[test]
fn a_counter_that_reached_15_stays_and_loses_nothing() {
    let mut filter = counting(0.001, 100, 2, 5);
    assert_eq!(filter.saturated(), Some(0));
    for _ in 0..40 {
        add(&mut filter, b"often");
    }
    assert_eq!(count(&filter, b"often"), 15);
    let probes = u64::from(filter.newest().shape().probes());
    let saturated = filter.saturated().expect("a filter that counts");
    assert!((1..=probes).contains(&saturated), "{saturated} of {probes} probes");
    // No counter can be lowered, so every deletion is refused.
    for refusals in 1..=40 {
        assert!(!delete(&mut filter, b"often"));
        assert_eq!(filter.refused_deletions(), refusals);
    }
    assert_eq!((count(&filter, b"often"), filter.saturated()), (15, Some(saturated)));
    // Items that share some of these counters can still be added and deleted.
    fill(&mut filter, 1, 60);
    for number in 0..50 {
        assert!(delete(&mut filter, &item(1, number)), "item {number}");
    }
    assert!(has(&filter, b"often"));
}

#[test]
fn saturated_counters_of_a_large_filter_are_counted_exactly() {
    // A sample of 65,536 of the 400,000 words would miss most of them.
    let mut filter = counting(0.01, 600_000, 0, 6);
    assert!(filter.bit_bytes() > 8 * 65_536 * 4);
    for number in 0..20 {
        for _ in 0..20 {
            add(&mut filter, &item(1, number));
        }
    }
    let exact = counters(&filter).iter().filter(|&&counter| counter == 15).count() as u64;
    assert!(exact >= 20, "{exact}");
    assert_eq!(filter.saturated(), Some(exact));
}

#[test]
fn a_deletion_of_an_item_in_two_layers_is_refused_and_counted() {
    let mut filter = counting(1e-6, 10, 2, 7);
    add(&mut filter, b"x");
    fill(&mut filter, 1, 11);
    assert_eq!(filter.layers().len(), 2);
    // An item in the older layer only is deleted there.
    assert!(delete(&mut filter, &item(1, 0)));
    assert!(!has(&filter, &item(1, 0)));
    assert!(filter.layers().next().expect("a layer").items() < 10);
    // An item in both layers.
    assert!(!add(&mut filter, b"x"), "present, and counted again");
    assert_eq!(count(&filter, b"x"), 2);
    let stored = Strings::of(&filter);
    assert!(!delete(&mut filter, b"x"));
    assert_eq!((Strings::of(&filter), filter.refused_deletions()), (stored.clone(), 1));
    assert!(has(&filter, b"x"));
    // The count of refusals is neither stored nor copied.
    assert_eq!(stored.filter().refused_deletions(), 0);
    assert_eq!(filter.duplicate().expect("memory").refused_deletions(), 0);
}

#[test]
fn a_full_filter_accepts_present_items_and_a_deletion_makes_room() {
    let mut filter = counting(1e-6, 10, 0, 8);
    let added = fill(&mut filter, 1, 10);
    assert_eq!(added, 10);
    let hash = filter.hash(b"new");
    let stored = Strings::of(&filter);
    assert!(filter.add(hash, |_| u64::MAX).is_err());
    assert_eq!(Strings::of(&filter), stored);
    assert!(!add(&mut filter, &item(1, 3)), "present, and counted");
    assert_eq!(count(&filter, &item(1, 3)), 2);
    assert!(delete(&mut filter, &item(1, 4)));
    assert!(add(&mut filter, b"new"));
}

#[test]
fn deleting_what_was_never_added_can_lose_another_item() {
    // The documented hazard: of 1,000 items that were never added, the false positives are deleted.
    let mut filter = counting(0.25, 10, 0, 9);
    fill(&mut filter, 1, 10);
    let lost = |filter: &Filter| (0..10).filter(|&number| !has(filter, &item(1, number))).count();
    assert_eq!(lost(&filter), 0);
    let strangers = (0..1_000).filter(|&number| delete(&mut filter, &item(2, number)));
    assert!(strangers.count() > 0, "some test present by accident");
    assert!(lost(&filter) > 0);
}

/// The sum of the rates of all layers.
fn rates(filter: &Filter) -> f64 {
    filter.layers().map(Layer::error_rate).sum()
}

/// At 1e-9, none of these items tests present in a layer that it is not in. So each deletion
/// empties its layer a bit more, and at most four layers hold 250 items in the order of their age.
#[test]
fn an_emptied_older_layer_leaves_a_filter_and_its_copies_at_once() {
    let mut one_by_one = counting(1e-9, 100, 1, 3);
    let mut batches = one_by_one.duplicate().expect("memory");
    let mut dropped = 0;
    for first in (0..20_000).step_by(50) {
        let items: Vec<_> = (first..first + 50).map(|number| item(1, number)).collect();
        items.iter().for_each(|item| assert!(add(&mut one_by_one, item)));
        let each = || items.iter().map(<[u8; 16]>::as_slice);
        batches.add_each(each(), |_| u64::MAX, |_| {}).expect("it grows");
        if let Some(oldest) = u64::checked_sub(first, 200) {
            let items: Vec<_> = (oldest..oldest + 50).map(|number| item(1, number)).collect();
            items.iter().for_each(|item| assert!(delete(&mut one_by_one, item)));
            let each = items.iter().map(<[u8; 16]>::as_slice);
            let before = batches.layers().len();
            batches.delete_each(each, |_| {});
            dropped += before - batches.layers().len();
            assert!((oldest + 50..first + 50).all(|number| has(&batches, &item(1, number))));
        }
        assert!(batches.layers().len() <= 4, "{} layers", batches.layers().len());
        assert!(batches.older().all(|layer| layer.items() > 0));
        assert!(rates(&batches) <= 1e-9, "{}", rates(&batches));
        let stored = Strings::of(&batches);
        assert_eq!(Strings::of(&one_by_one), stored);
        assert_eq!(Strings::of(&stored.filter()), stored);
        assert_eq!(stored.filter().bytes(), batches.bytes());
    }
    assert!(dropped > 150, "{dropped}");
}

#[test]
fn a_layer_between_others_leaves_and_their_items_stay() {
    let mut filter = counting(1e-9, 100, 1, 4);
    let added = fill(&mut filter, 1, 250);
    assert_eq!((added, filter.layers().len()), (250, 3));
    let words = |filter: &Filter| -> Vec<Vec<u64>> {
        filter.layers().map(|layer| layer.bits().words().to_vec()).collect()
    };
    let mut expected = words(&filter);
    expected.remove(1);
    assert!((100..200).all(|number| delete(&mut filter, &item(1, number))));
    assert!(words(&filter) == expected);
    // The newest layer stays, even if it is empty.
    assert!((200..250).all(|number| delete(&mut filter, &item(1, number))));
    assert_eq!(filter.layers().len(), 2);
    assert!((0..100).all(|number| has(&filter, &item(1, number))));
    assert!((0..100).all(|number| delete(&mut filter, &item(1, number))));
    assert_eq!((filter.layers().len(), filter.items()), (1, 0));
}

#[test]
fn refused_deletions_are_counted_on_when_their_layer_leaves() {
    // An item that was never added and tests present in two layers, of which the second is the
    // newest; a seed at which all items that were added can be deleted.
    let counted = (0..50).any(|seed| {
        let mut filter = counting(0.1, 10, 1, seed);
        fill(&mut filter, 1, 20);
        if filter.layers().len() != 2 {
            return false;
        }
        let in_both =
            |item: &[u8; 16]| filter.layers().all(|layer| layer.contains(filter.hash(item)));
        let Some(accident) = (0..10_000).map(|number| item(2, number)).find(in_both) else {
            return false;
        };
        assert!(!delete(&mut filter, &accident));
        while filter.layers().len() == 2 {
            let number = filter.items();
            add(&mut filter, &item(3, number));
        }
        (0..20).for_each(|number| {
            delete(&mut filter, &item(1, number));
        });
        let refused = filter.refused_deletions();
        filter.layers().len() == 1 && {
            assert_eq!(refused, 1);
            true
        }
    });
    assert!(counted, "no seed of these");
}

/// A filter of an older file may have one. Only deletions reach the copies.
#[test]
fn an_empty_older_layer_stays_until_something_is_deleted() {
    let layer = || counting(0.01, 100, 1, 5).newest().duplicate().expect("memory");
    let expansion = Expansion::new(1).expect("in range");
    let mut filter =
        Filter::from_layers(Family::Native, 5, 0.01, expansion, vec![layer(), layer()])
            .expect("layers");
    let absent = item(1, 0);
    assert!(!delete(&mut filter, &absent));
    filter.delete_each([absent.as_slice()].into_iter(), |_| {});
    assert_eq!(filter.layers().len(), 2);
    assert!(add(&mut filter, &absent));
    filter.delete_each([absent.as_slice()].into_iter(), |_| {});
    assert_eq!(filter.layers().len(), 1);
}
