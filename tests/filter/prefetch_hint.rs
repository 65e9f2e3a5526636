//! A prefetch hint hashes an item as every filter does that the hint fits.

use redis_bloom::filter::{Family, Filter, Plan, PrefetchHint};

use crate::support::{filter, item, params};

/// A capacity at which a prefetch gains time: the filter has about 1.2 MB.
const LARGE: u64 = 1_000_000;

fn hint(filter: &Filter) -> PrefetchHint {
    PrefetchHint::of(filter).expect("a large native filter")
}

#[test]
fn the_hint_and_the_filter_compute_equal_hashes() {
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
    // A filter with an equal seed has another address.
    let twin = filter(&params(0.01, LARGE, 2, 7));
    assert!(!hint(&one).fits(&twin));
}

#[test]
fn a_hint_does_not_fit_a_filter_that_grew_or_was_freed() {
    let mut grown = filter(&params(0.01, LARGE, 2, 7));
    let hint = hint(&grown);
    let paged = grown.overflow().expect("memory");
    assert!(!hint.fits(&grown));
    drop(paged);
    // The hint never reads at the old address, so the freed filter does no harm.
    let other = filter(&params(0.01, LARGE, 2, 8));
    let item = item(1, 1);
    assert_ne!(hint.hash(&item), other.hash(&item));
    assert!(!hint.fits(&other));
}

#[test]
fn filters_that_gain_nothing_have_no_hint() {
    let small = filter(&params(0.01, 10_000, 2, 7));
    assert_eq!(PrefetchHint::of(&small), None);
    let native = filter(&params(0.01, LARGE, 2, 7));
    let plan = Plan { family: Family::Guava, ..Plan::of(&native) };
    let foreign = plan.allocate(u64::MAX).expect("memory");
    assert_eq!(PrefetchHint::of(&foreign), None);
}
