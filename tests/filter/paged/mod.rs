//! Paged filters: what grows, what counts, and what forgets.

// It uses the global allocator of `pages/allocation.rs`.
#[cfg(not(feature = "module"))]
mod allocation;
mod count;
mod figures;
mod grow;
mod merge;
mod model;
mod size;
mod stored;
mod window;

use redis_bloom::filter::{
    Addition, Author, Error, Expansion, Params, Plan, Rules, Span, paged::Paged,
};

use crate::{
    pages::copy,
    support::{item, params},
};

/// A client of a filter that has no clock.
pub(crate) const CLIENT: Author = Author::Client(0);

/// An empty filter without a ceiling; an expansion of 0 makes it non-scaling.
#[track_caller]
pub(crate) fn paged(params: &Params, rules: Option<Rules>) -> Paged {
    Paged::new(params, rules, u64::MAX).unwrap_or_else(|error| panic!("{params:?}: {error}"))
}

/// A window of the last N items, divided into `generations`.
pub(crate) fn last_items(generations: u8, refresh: bool) -> Rules {
    Rules { span: Span::Items, generations, refresh }
}

/// An empty filter that grows from nothing.
pub(crate) fn growing(error_rate: f64) -> Paged {
    paged(&params(error_rate, 100, 2, 0x5EED), None)
}

/// An empty counting filter.
pub(crate) fn counting(error_rate: f64, capacity: u64, expansion: u64) -> Paged {
    paged(&Params { counts: true, ..params(error_rate, capacity, expansion, 0x5EED) }, None)
}

/// Adds an item without a ceiling.
pub(crate) fn try_add(paged: &mut Paged, item: &[u8]) -> Result<Addition, Error> {
    paged.add(paged.hash(item), CLIENT, |_| u64::MAX)
}

/// Adds an item without a ceiling; returns whether it was new.
#[track_caller]
pub(crate) fn add(paged: &mut Paged, item: &[u8]) -> bool {
    try_add(paged, item).expect("room for the item").new
}

/// Deletes an item; returns whether it was there and was deleted.
pub(crate) fn delete(paged: &mut Paged, item: &[u8]) -> bool {
    let mut deleted = 0;
    paged.delete_each([item].into_iter(), |answers| deleted += answers.ones());
    deleted == 1
}

pub(crate) fn has(paged: &Paged, item: &[u8]) -> bool {
    paged.contains(paged.hash(item), 0)
}

/// How many of `queries` items that were never added are found.
pub(crate) fn false_positives(paged: &Paged, queries: u64) -> u64 {
    (0..queries).filter(|&number| has(paged, &item(u64::MAX, number))).count() as u64
}

/// Checks a number of false positives. It is binomial with a share of at most `rate`, so it stays
/// within five deviations in all but 3 of 10^7 cases, and within five more where it is not nearly
/// normal. The seeds are fixed.
#[track_caller]
pub(crate) fn check_rate(found: u64, queries: u64, rate: f64, what: &str) {
    let mean = rate * queries as f64;
    let most = mean + 5.0 * mean.sqrt() + 5.0;
    assert!(found as f64 <= most, "{what}: {found} of {queries}, for a rate of {rate}");
}

/// Writes all of a filter out and reads it in, as a codec does.
#[track_caller]
pub(crate) fn stored(paged: &Paged) -> Paged {
    let plan = Plan::of_pages(paged);
    assert_eq!(plan.check(), Ok(()));
    let pages = copy(paged.pages());
    let base = paged.base().map(|base| base.duplicate().expect("memory"));
    plan.with_pages(base, pages)
}

/// Checks that two filters are equal word for word.
#[track_caller]
pub(crate) fn check_equal(a: &Paged, b: &Paged, what: &str) {
    assert!(Plan::of_pages(a) == Plan::of_pages(b), "{what}: {:?}\n{:?}", a.window(), b.window());
    assert!(a.pages() == b.pages(), "{what}: other pages");
    let bits = |paged: &Paged| paged.base().map(|base| base.bits().words().to_vec());
    assert!(bits(a) == bits(b), "{what}: other bits");
    assert_eq!(a.bytes(), b.bytes(), "{what}");
}

/// The expansion of a factor.
pub(crate) fn expansion(factor: u64) -> Expansion {
    Expansion::new(factor).expect("an expansion in range")
}
