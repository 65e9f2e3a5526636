//! BF.MERGE: two filters that a decoder accepted from any bytes are merged, or refused without a
//! change. Their union has all items of both, is valid, and reads back as it was written.
//!
//! ```text
//!   ┌─────────┬─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┬──────────────┬─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┐
//!   │ control │ strings of filter a    │ empty string │ strings of filter b      │
//!   │ u8      │ (codec/native/rdb.rs)  │              │                          │
//!   └─────────┴─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┴──────────────┴─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┘
//!   control    bits 0 to 1   how often a is named besides
//!              bits 2 to 5   how often b is named besides
//!              bit 6         no number of items is refused, as from a primary
//!              bit 7         b gets the parameters of a: a fuzzer seldom makes two equal headers
//! ```

#![no_main]

#[path = "shared/sane.rs"]
mod sane;
#[path = "shared/strings.rs"]
mod strings;

use std::iter::repeat_n;

use libfuzzer_sys::fuzz_target;
use redis_bloom::{
    codec::native::rdb::{self, Stored},
    filter::{Filter, Plan, Shape, Union, repeats},
};

/// Items that are looked for. A filter of random bits holds many of them.
const ITEMS: u64 = 300;

fn stored(filter: &Filter) -> Vec<Vec<u8>> {
    let mut strings = strings::Strings::default();
    rdb::save(filter, &mut strings);
    strings.0
}

fn read(strings: &[Vec<u8>]) -> Option<Filter> {
    match rdb::load(&mut strings::Reading(strings.iter()), sane::CEILING) {
        Ok(Stored::Complete(filter)) => Some(filter),
        _ => None,
    }
}

/// A filter with the parameters of `a`, and with the bits, counts and deletions of `b` as far as
/// its layers have room for them.
fn with_parameters(a: &Filter, b: &Filter) -> Option<Filter> {
    let mut plan = Plan::of(a);
    plan.layers.truncate(b.layers().len());
    for (to, from) in plan.layers.iter_mut().zip(b.layers()) {
        to.items = from.counted();
        if let (Shape::Counting(to), Shape::Counting(from)) = (&mut to.shape, from.shape()) {
            (to.changes, to.deletions) = (from.changes, from.deletions);
        }
    }
    plan.check().ok()?;
    let mut filter = plan.allocate(sane::CEILING).ok()?;
    for (to, from) in filter.layers_from_mut(0).zip(b.layers()) {
        to.merge(0, &mut from.bits().words().iter().copied());
    }
    Some(filter)
}

/// The union of `own` + 1 times `a` and `times` times `b`, written into a copy of `a`.
fn merged(a: &Filter, own: usize, b: &Filter, times: usize, limited: bool) -> Option<Filter> {
    let others: Vec<&Filter> = repeat_n(b, times).collect();
    let all: Vec<&Filter> = repeat_n(a, own + 1).chain(others.iter().copied()).collect();
    let union = Union::of(&all, limited).ok()?;
    let changes = union.changes();
    let bytes = a.bit_bytes().max(b.bit_bytes());
    assert_eq!(union.check_memory(0, |_| bytes), Ok(()));
    assert!(union.check_memory(0, |_| bytes - 1).is_err());
    let mut filter = a.duplicate().expect("memory");
    union.write(&mut filter, own, &others).expect("memory");
    assert_eq!(stored(&filter) != stored(a), changes);
    Some(filter)
}

fuzz_target!(|data: &[u8]| {
    let Some((&control, data)) = data.split_first() else {
        return;
    };
    let strings = strings::split(data);
    let mut parts = strings.split(Vec::is_empty);
    let (Some(a), Some(b)) = (parts.next().and_then(read), parts.next().and_then(read)) else {
        return;
    };
    let Some(b) = (if control >> 7 == 1 { with_parameters(&a, &b) } else { Some(b) }) else {
        return;
    };
    let own = repeats(&a, usize::from(control % 4));
    let times = repeats(&b, usize::from(control / 4 % 16)) + 1;
    let limited = control >> 6 & 1 == 0;
    let before = [stored(&a), stored(&b)];
    let union = merged(&a, own, &b, times, limited);
    assert_eq!([stored(&a), stored(&b)], before, "a source changed");
    // The order does not matter: neither for what is refused, nor for bits and counts.
    let turned = merged(&b, times - 1, &a, own + 1, limited);
    assert_eq!(union.is_some(), turned.is_some());
    let (Some(mut union), Some(turned)) = (union, turned) else {
        return;
    };
    for (one, other) in union.layers().zip(turned.layers()) {
        assert_eq!(one.bits().words(), other.bits().words());
        assert_eq!((one.counted(), one.items()), (other.counted(), other.items()));
    }
    for number in 0..ITEMS {
        let hash = union.hash(&number.to_le_bytes());
        assert!(union.contains(hash) || !(a.contains(hash) || b.contains(hash)), "forgotten");
        if union.counts() {
            let sum = (own as u64 + 1) * a.count(hash) + times as u64 * b.count(hash);
            assert!(union.count(hash) >= sum.min(15), "counters are lost");
        }
    }
    if !union.counts() {
        // Merged once more, it stays as it is.
        assert!(!Union::of(&[&union, &b, &a], false).expect("it was merged").changes());
    }
    let again = read(&stored(&union)).expect("the union's own RDB");
    assert_eq!(stored(&again), stored(&union));
    for (one, other) in again.layers().zip(union.layers()) {
        let numbers = |layer: &redis_bloom::filter::Layer| {
            layer.counting().map(|layer| (layer.nonzero(), layer.saturated()))
        };
        assert_eq!(numbers(one), numbers(other));
    }
    sane::check(&mut union);
});
