//! The memory and the rate that a plan shows are those of the filter.

use redis_bloom::filter::{Params, Rules, Span, expected_bytes, expected_rate, paged::Paged};

use super::{add, paged};
use crate::support::{self, fill, filter, item, params};

/// Adds items to a filter until it has so many; compares memory and rate with the plan at some
/// sizes.
fn check(mut made: Paged, params: &Params, rules: Option<Rules>, most: u64) {
    let (mut next, mut size) = (0, made.items(0).max(1));
    while size <= most {
        while made.items(0) < size {
            add(&mut made, &item(2, next));
            next += 1;
        }
        let planned = expected_bytes(params, rules, size).expect("a sound filter") as f64;
        let slots = size - made.base().map_or(0, |layer| layer.capacity);
        // A page takes one of two classes, which differ by at most a quarter, so its standard
        // deviation is at most an eighth of its bytes.
        let pages = (slots as f64 / 2_000.0).max(1.0);
        let ratio = made.bytes() as f64 / planned;
        let far = 2.0 / 8.0 / pages.sqrt();
        assert!((ratio - 1.0).abs() <= far, "{params:?}, {rules:?}: {size} items, {ratio}");
        // A slot counts twice as much in a page that is not split: as many of n slots are in such
        // pages, to a half of their root, and some 100 pages are read. The layer below is one of
        // many, whose rates differ by 2 %.
        let planned = expected_rate(params, rules, size).expect("a sound filter");
        let ratio = made.estimate().error_rate / planned;
        let far = 0.02 + 2.0 / (slots as f64).sqrt();
        assert!((ratio - 1.0).abs() <= far, "{params:?}, {rules:?}: {size} items, rate {ratio}");
        size = (size * 5 / 4).max(size + 1);
    }
}

#[test]
fn the_expected_memory_is_that_of_the_filter() {
    let counting = |rate, capacity, expansion| Params {
        counts: true,
        ..params(rate, capacity, expansion, 0x5EED)
    };
    let rules = |generations| Rules { span: Span::Time(1_000), generations, refresh: true };
    for (params, rules, most) in [
        (params(0.01, 100, 2, 0x5EED), None, 1_000_000),
        (params(1e-6, 1, 2, 0x5EED), None, 100_000),
        (counting(0.01, 1_000, 0), None, 1_000),
        (counting(0.01, 300_000, 0), None, 300_000),
        (counting(0.001, 100_000, 2), None, 500_000),
        (params(0.01, 20_000, 2, 0x5EED), Some(rules(4)), 50_000),
        (params(0.001, 300_000, 0, 0x5EED), Some(rules(32)), 300_000),
    ] {
        assert!(params.has_pages(rules));
        check(paged(&params, rules), &params, rules, most);
    }
}

#[test]
fn the_expected_memory_is_that_of_pages_above_bits() {
    let params = params(0.01, 10_000, 2, 0x5EED);
    let mut full = filter(&params);
    fill(&mut full, 1, 10_000);
    assert_eq!(expected_bytes(&params, None, 10_000), Ok(full.bytes()));
    let base = full.newest().duplicate().expect("memory");
    check(Paged::above(|| base, &params).expect("a sound filter"), &params, None, 1_000_000);
}

#[test]
fn a_filter_that_is_never_made_has_no_size() {
    let params = support::params(0.01, 1_000, 0, 0x5EED);
    assert!(expected_bytes(&params, None, 1_001).is_err());
    assert!(expected_bytes(&Params { error_rate: 1.0, ..params }, None, 1).is_err());
    assert!(expected_rate(&params, None, 1_001).is_err());
}

#[test]
fn the_expected_rate_is_that_of_a_layer_as_it_fills() {
    for (rate, capacity, expansion) in [(0.2, 100_000, 0), (0.01, 100_000, 2), (1e-6, 1_000, 0)] {
        let params = params(rate, capacity, expansion, 0x5EED);
        let mut made = filter(&params);
        assert_eq!(expected_rate(&params, None, 0), Ok(0.0));
        for quarter in 1..=4 {
            // Of distinct items, some of which are not counted.
            let most = capacity * quarter / 4;
            for number in most - capacity / 4..most {
                support::add(&mut made, &item(1, number));
            }
            let planned = expected_rate(&params, None, most).expect("a sound filter");
            let ratio = made.estimate().error_rate / planned;
            // Blocks of a thousand items have 2 % more or less bits, and a rate of 20 probes is
            // that share to the power of 20.
            let far = if capacity == 1_000 { 0.4 } else { 0.03 };
            assert!((ratio - 1.0).abs() <= far, "{params:?}: {most} items, {ratio}");
        }
    }
}
