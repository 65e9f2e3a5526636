//! Checks a filter that a decoder accepted from any bytes: its plan is valid, it answers queries,
//! accepts additions and deletions, and reads back as it was written.

use redis_bloom::filter::{Author, Dropped, Filter, NEVER, Plan, Window};

/// The most bytes of bits that a decoder may allocate.
pub(crate) const CEILING: u64 = 4 << 20;

pub(crate) fn check(filter: &mut Filter) {
    shape(filter);
    let mut strings = super::strings::Strings::default();
    redis_bloom::codec::native::rdb::save(filter, &mut strings);
    let again = redis_bloom::codec::native::rdb::load(
        &mut super::strings::Reading(strings.0.iter()),
        CEILING,
    );
    let Ok(redis_bloom::codec::native::rdb::Stored::Complete(again)) = again else {
        panic!("the filter's own RDB is refused");
    };
    assert_eq!(Plan::of(&again), Plan::of(filter));
    if let Ok(mut window) = Window::try_from(again) {
        forget(&mut window);
    }
    for number in 0..20_u64 {
        let hash = filter.hash(&number.to_le_bytes());
        match filter.add(hash, |_| CEILING) {
            Ok(_) => assert!(filter.contains(hash)),
            Err(_) => break,
        }
    }
    if filter.counts() {
        for number in 0..20_u64 {
            let hash = filter.hash(&number.to_le_bytes());
            let before = filter.count(hash);
            assert!(filter.delete(hash) || filter.count(hash) == before);
            assert!(filter.count(hash) <= before);
        }
    }
    let estimate = filter.estimate();
    assert!((0.0..=1.0).contains(&estimate.fill) && (0.0..=1.0).contains(&estimate.error_rate));
    shape(filter);
}

/// Adds to a filter that forgets while its clock runs, jumps and is set back. A copy that gets only
/// the effects is equal.
fn forget(window: &mut Window) {
    let newest = match window.ring().newest().start {
        NEVER => 0,
        start => start,
    };
    let mut copy = window.filter().duplicate().ok().and_then(|copy| Window::try_from(copy).ok());
    let mut dropped = Dropped::default();
    for (number, after) in [0, 1, 1_000, 1 << 30, -1_000_000, 1 << 40].into_iter().enumerate() {
        let now = newest.saturating_add(after);
        let (shift, turned) = window.turn(now, |_| CEILING, &mut dropped);
        let hash = window.filter().hash(&number.to_le_bytes());
        let added = window.add(hash, Author::Client(now), |_| CEILING, &mut dropped);
        if turned.is_ok() && added.is_ok() {
            assert!(window.contains(hash, now));
        }
        if let Some(copy) = &mut copy {
            if let Some(shift) = shift {
                copy.obey(shift, |_| u64::MAX, &mut dropped).expect("its author's shift");
            }
            if added.is_ok_and(|added| added.changed) {
                let obeyed = copy.add(hash, Author::Obeyed, |_| u64::MAX, &mut dropped);
                assert!(obeyed.is_ok_and(|added| added.changed));
            }
            assert_eq!(Plan::of(copy.filter()), Plan::of(window.filter()));
        }
        shape(window.filter());
    }
    window.forget(i64::MAX, &mut dropped);
    shape(window.filter());
}

fn shape(filter: &Filter) {
    assert_eq!(Plan::of(filter).check(), Ok(()));
    assert!(filter.bit_bytes() <= CEILING && filter.items() <= filter.capacity());
}
