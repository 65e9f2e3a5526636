//! The rate of pages: computed from all slots, and measured.
//!
//! No query matches two slots, so the rate is a sum over the slots (`exact_rate`), and has no
//! deviation but that of the places where items happen to fall. A measured share of Q queries is
//! binomial around that sum: 4.5 standard errors are exceeded in 7 of 10^6 cases. The seeds are
//! fixed, so a row that passes continues to pass until the code changes.

use std::thread;

use redis_bloom::filter::pages::{Growth, Pages, Payload};

use super::{add, exact_rate, hash, pages};

const RATES: [f64; 7] = [0.25, 0.1, 0.01, 0.001, 1e-6, 1e-9, 1e-12];

/// Queries a share of wrong answers, and compares it with the sum.
fn measure(pages: &Pages, queries: u64, context: &str) {
    let sum = exact_rate(pages);
    let wrong =
        (1 << 40..(1 << 40) + queries).filter(|&number| pages.find(hash(number)).is_some()).count();
    let mean = sum * queries as f64;
    let off = (wrong as f64 - mean).abs();
    // A Poisson number below 1 is seldom above 7.
    assert!(off <= 4.5 * mean.sqrt() + 7.0, "{context}: {wrong} of {queries}, the sum is {sum}");
}

/// Grows, and checks the sum at some 10 sizes of each power of ten. Half of the rate is left for
/// growing a thousand times more, so no size comes near the rate.
fn keep_their_rates_while_they_grow(most: u64, rates: &[f64]) {
    let keeps = |asked: f64| {
        let mut pages = pages(asked, 0, Growth::Endless, Payload::Nothing);
        let mut next = 1;
        for number in 0..most {
            add(&mut pages, number);
            if number + 1 == next {
                let sum = exact_rate(&pages);
                assert!(sum <= asked, "{asked}: {sum} at {next} items");
                next = (next * 5).div_ceil(4);
            }
        }
        let sum = exact_rate(&pages);
        assert!(sum >= asked / 40.0, "{asked}: {sum} wastes memory");
        measure(&pages, 1_000_000, &format!("{asked} at {most} items"));
    };
    // The scope panics if one of its threads did.
    thread::scope(|scope| {
        for &asked in rates {
            scope.spawn(move || keeps(asked));
        }
    });
}

#[test]
fn growing_pages_keep_their_rate_up_to_a_million() {
    keep_their_rates_while_they_grow(1_000_000, &RATES);
}

#[test]
#[ignore = "takes half a minute: make test-huge"]
fn growing_pages_keep_their_rate_up_to_ten_million() {
    keep_their_rates_while_they_grow(10_000_000, &[0.25, 0.001, 1e-12]);
}

/// Full as reserved, and then as often as it may grow. The sum of the places is not exact: an item
/// counts half where its page is split, which happens to a binomial number of items. Its relative
/// deviation is at most 1 / (4 sqrt(n)).
#[test]
fn reserved_pages_keep_their_rate_when_they_are_full() {
    for asked in RATES {
        for capacity in [1_000, 3_000, 10_000, 30_000] {
            for (growth, times) in [(Growth::Never, 1), (Growth::Doublings(4), 16)] {
                let mut pages = pages(asked, capacity, growth, Payload::Nothing);
                let mut number = 0;
                while pages.items() < capacity * times {
                    add(&mut pages, number);
                    number += 1;
                }
                let sum = exact_rate(&pages);
                let most = asked * (1.0 + 4.5 / (4.0 * (capacity as f64).sqrt()));
                let plan = pages.plan();
                assert!(sum <= most, "{asked}, {capacity} items {times} times: {sum}, {plan:?}");
                assert!(
                    growth != Growth::Never
                        || u64::from(plan.first_pages) == pages.pages().len() as u64
                        || plan.first_pages == 1
                );
            }
        }
    }
}

/// Longer tags beyond the doublings that are planned.
#[test]
fn the_rate_is_kept_beyond_the_doublings_that_are_planned() {
    let mut pages = pages(0.01, 1_000, Growth::Doublings(1), Payload::Nothing);
    for number in 0..600_000 {
        add(&mut pages, number);
    }
    let sum = exact_rate(&pages);
    assert!(sum <= 0.01, "{sum} after 9 doublings");
    measure(&pages, 1_000_000, "9 doublings where 1 is planned");
    assert!((0..600_000).all(|number| pages.find(hash(number)).is_some()));
}
