//! BF.MERGE: two filters that a decoder accepted from any bytes are merged, or refused without a
//! change. Their union has all items of both, is valid, and reads back as it was written.
//!
//! ```text
//!   ┌─────────┬─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┬──────────────┬─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┐
//!   │ control │ strings of filter a    │ empty string │ strings of filter b      │
//!   │ u8      │ (codec/native/rdb.rs)  │              │                          │
//!   └─────────┴─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┴──────────────┴─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┘
//!   control    bit 6         no number of items is refused, as from a primary
//!              bit 7         b gets the parameters of a: a fuzzer seldom makes two equal headers
//! ```

#![no_main]

#[path = "shared/sane.rs"]
mod sane;
#[path = "shared/strings.rs"]
mod strings;

use libfuzzer_sys::fuzz_target;
use redis_bloom::{
    codec::native::{Stored, rdb},
    filter::{Filter, Member, Plan, Union},
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
        Ok(Stored::Layers(filter)) => Some(filter),
        _ => None,
    }
}

/// A filter with the parameters of `a`, and with the bits and counts of `b` as far as its layers
/// have room for them.
fn with_parameters(a: &Filter, b: &Filter) -> Option<Filter> {
    let mut plan = Plan::of(a);
    for (to, from) in plan.layers.iter_mut().zip(b.layers()) {
        to.items = from.counted;
    }
    plan.check().ok()?;
    let mut filter = plan.allocate(sane::CEILING).ok()?;
    for (to, from) in filter.layers_from_mut(0).zip(b.layers()) {
        to.bits_mut().merge(0, &mut from.bits().words().iter().copied());
    }
    Some(filter)
}

/// The union of filters; an error for those that have none, `None` if it is the first one.
fn of(filters: &[&Filter], limited: bool) -> Result<Option<u64>, ()> {
    let members: Vec<Member> = filters.iter().copied().map(Member::Layers).collect();
    match Union::of(&members, limited, |_| unreachable!("no memory is wanted")) {
        Ok(None) => Ok(None),
        Ok(Some(Union::Layer(items))) => Ok(Some(items)),
        _ => Err(()),
    }
}

/// The union of the two, written into a copy of `a`.
fn merged(a: &Filter, b: &Filter, limited: bool) -> Option<Filter> {
    let union = of(&[a, b], limited).ok()?;
    let mut filter = a.duplicate().expect("memory");
    if let Some(items) = union {
        filter.unite(&[Member::Layers(b)], items);
    }
    assert_eq!(stored(&filter) != stored(a), union.is_some());
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
    let limited = control >> 6 & 1 == 0;
    let before = [stored(&a), stored(&b)];
    let union = merged(&a, &b, limited);
    assert_eq!([stored(&a), stored(&b)], before, "a source changed");
    // The order does not matter: neither for what is refused, nor for bits and counts.
    let turned = merged(&b, &a, limited);
    assert_eq!(union.is_some(), turned.is_some());
    let (Some(mut union), Some(turned)) = (union, turned) else {
        return;
    };
    for (one, other) in union.layers().zip(turned.layers()) {
        assert_eq!(one.bits().words(), other.bits().words());
        assert_eq!(one.counted, other.counted);
    }
    for number in 0..ITEMS {
        let hash = union.hash(&number.to_le_bytes());
        assert!(union.contains(hash) || !(a.contains(hash) || b.contains(hash)), "forgotten");
    }
    // Merged once more, it stays as it is.
    assert_eq!(of(&[&union, &b, &a], false), Ok(None));
    let again = read(&stored(&union)).expect("the union's own RDB");
    assert_eq!(stored(&again), stored(&union));
    sane::check(&mut union);
});
