//! Filters that grow: nothing is lost, the rate holds at every size, and BF.INFO reports a stack.

use redis_bloom::filter::{Answers, Author, Error, Params, paged::Paged};

use super::{CLIENT, add, check_equal, check_rate, false_positives, growing, has, paged, try_add};
use crate::support::{self, fill, filter, item, params};

/// A filter whose first layer has become full, and the items in it.
fn above(error_rate: f64, capacity: u64) -> (Paged, u64) {
    let params = params(error_rate, capacity, 2, 0x5EED);
    let mut full = filter(&params);
    let items = fill(&mut full, 1, capacity);
    let paged = full.overflow().expect("a sound filter");
    assert_eq!((full.items(), paged.params()), (0, params));
    (paged, items)
}

/// Adds items up to a million to a filter that has `first` of them. At some sizes, looks for all of
/// them, and for items that were not added.
fn check_sizes(mut paged: Paged, first: u64, rate: f64) {
    let (mut next, mut new) = (first, paged.items(0));
    let sizes = [1, 2, 10, 64, 65, 128, 129, 1_000, 3_000, 10_000, 60_000, 200_000, 1_000_000];
    for size in sizes.into_iter().filter(|&size| size > first) {
        for number in next..size {
            new += u64::from(add(&mut paged, &item(1, number)));
        }
        next = size;
        assert_eq!(paged.items(0), new);
        let lost = (0..size).find(|&number| !has(&paged, &item(1, number)));
        assert_eq!(lost, None, "of {size} items");
        let queries = 100_000;
        let found = false_positives(&paged, queries);
        check_rate(found, queries, rate, &format!("{size} items above {first}"));
    }
}

#[test]
fn nothing_is_lost_and_the_rate_holds_at_every_size() {
    for rate in [0.25, 0.01, 0.000_1] {
        check_sizes(growing(rate), 0, rate);
    }
}

#[test]
fn nothing_is_lost_and_the_rate_holds_above_a_layer() {
    for (rate, capacity) in [(0.01, 100), (0.01, 50_000), (0.001, 10_000)] {
        let (paged, items) = above(rate, capacity);
        assert_eq!(paged.items(0), capacity);
        check_sizes(paged, items, rate);
    }
}

/// 17.8 bits at 1 % and 21.8 at 0.1 %.
#[test]
fn bits_of_an_item_stay_below_those_of_the_plan() {
    for (rate, most) in [(0.01, 17.8), (0.001, 21.8)] {
        let mut paged = growing(rate);
        for number in 0..800_000 {
            add(&mut paged, &item(1, number));
            if number >= 12_000 && number % 1_009 == 0 {
                let bits = paged.bytes() as f64 * 8.0 / number as f64;
                assert!(bits <= most + 1.0, "{bits} bits at {number} items");
            }
        }
        let bits = paged.bytes() as f64 * 8.0 / 800_000.0;
        assert!(bits <= most, "{bits} bits");
    }
    let mut ten = growing(0.01);
    (0..10).for_each(|number| assert!(add(&mut ten, &item(1, number))));
    assert!(ten.bytes() <= 160, "{} bytes for ten items", ten.bytes());
}

#[test]
fn a_stack_is_reported_as_a_stack_of_layers_has_it() {
    for (capacity, expansion, items) in
        [(1, 1, 300), (1, 2, 5_000), (7, 3, 3_000), (100, 2, 9_000), (100, 1, 900), (10, 0, 10)]
    {
        let params = params(0.000_1, capacity, expansion, 0);
        let mut filter = support::stack(&params);
        let paged = paged(&params, None);
        for number in 0..items {
            support::add(&mut filter, &item(1, number));
            let expected = (filter.layers().len() as u64, filter.capacity());
            assert_eq!(paged.stack(filter.items()), expected, "{params:?}: {number} items");
        }
    }
    // Sums and layers at their highest.
    let paged = |expansion| paged(&params(0.01, 1 << 40, expansion, 1), None);
    assert_eq!(paged(1).stack(u64::MAX), (1 << 24, u64::MAX));
    assert_eq!(paged(32_768).stack(u64::MAX), (6, u64::MAX), "none above 2^62");
    assert_eq!(paged(2).stack(0), (1, 1 << 40));
}

#[test]
fn chunks_do_what_single_additions_do() {
    for (mut batch, mut single) in
        [(growing(0.1), growing(0.1)), (above(0.1, 700).0, above(0.1, 700).0)]
    {
        let mut next = 0;
        for count in [0, 1, 2, 63, 64, 65, 1_000, 5_000].into_iter().cycle().take(40) {
            // A third of the items come again.
            let items: Vec<_> = (0..count).map(|i| item(1, (next + i) * 2 / 3)).collect();
            next += count;
            let expected: Vec<_> = items.iter().map(|item| add(&mut single, item)).collect();
            let each = || items.iter().map(<[u8; 16]>::as_slice);
            let mut new = Vec::new();
            batch
                .add_each(
                    each(),
                    CLIENT,
                    |_| u64::MAX,
                    |done| {
                        assert_eq!(done.new, done.changed);
                        new.extend(done.new.each());
                    },
                )
                .expect("memory");
            assert_eq!(new, expected);
            check_equal(&batch, &single, "a batch");
            let others: Vec<_> = (0..count).map(|i| item(2, i)).collect();
            for queried in [&items, &others] {
                let mut found = Vec::new();
                let each = queried.iter().map(<[u8; 16]>::as_slice);
                batch.contains_each(each, 0, |answers: Answers| found.extend(answers.each()));
                let expected: Vec<_> = queried.iter().map(|item| has(&single, item)).collect();
                assert_eq!(found, expected);
            }
        }
    }
}

/// The ceiling is asked only for a page more, and then with what the filter has.
#[test]
fn a_ceiling_changes_nothing_and_refuses_only_new_items() {
    for ((mut paged, first), author) in [
        ((growing(0.01), 0), CLIENT),
        (above(0.01, 5_000), CLIENT),
        ((growing(0.01), 0), Author::Obeyed),
    ] {
        let (mut refused, mut next) = (0, first);
        while refused < 20 {
            let hash = paged.hash(&item(1, next));
            let mut asked = None;
            let before = paged.duplicate().expect("memory");
            let outcome = paged.add(hash, author, |demand| {
                asked = Some(demand);
                demand.present
            });
            if let Err(error) = outcome {
                let demand = asked.expect("a refusal comes of a demand");
                let (wanted, ceiling) = (demand.wanted, demand.present);
                assert_eq!(error, Error::Ceiling { wanted, ceiling });
                assert!(wanted > ceiling && ceiling <= paged.bytes());
                check_equal(&paged, &before, "refused");
                assert!(!add(&mut paged, &item(1, first.saturating_sub(1))), "a known item");
                let pages = paged.pages().pages().len();
                assert!(add(&mut paged, &item(1, next)));
                assert_eq!(paged.pages().pages().len(), pages + 1);
                refused += 1;
            }
            next += 1;
            assert!(next < 200_000, "{refused} splits asked for memory");
        }
        // A batch stops at the item that is refused.
        let batch: Vec<_> = (next..next + 5_000).map(|number| item(1, number)).collect();
        let mut answered = 0;
        let each = batch.iter().map(<[u8; 16]>::as_slice);
        let outcome = paged.add_each(each, CLIENT, |_| 0, |done| answered += done.new.count());
        assert!(matches!(outcome, Err(Error::Ceiling { .. })), "{outcome:?}");
        assert!(answered > 0 && answered < batch.len());
        assert!(!has(&paged, &batch[answered]));
        assert!(batch[..answered].iter().all(|item| has(&paged, item)));
    }
}

#[test]
fn a_filter_that_cannot_be_made_is_refused() {
    let refused = |params: &Params, ceiling| Paged::new(params, None, ceiling).map(drop);
    assert_eq!(refused(&params(0.0, 100, 2, 1), u64::MAX), Err(Error::ErrorRate(0.0)));
    assert_eq!(refused(&params(0.01, 0, 2, 1), u64::MAX), Err(Error::Capacity(0)));
    let error = refused(&params(0.01, 100, 2, 1), 100);
    assert!(matches!(error, Err(Error::Ceiling { ceiling: 100, .. })), "{error:?}");
    assert!(try_add(&mut growing(0.01), b"").is_ok_and(|done| done.new && done.changed));
}
