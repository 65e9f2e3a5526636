//! Checks a filter that a decoder accepted from any bytes: its plan is valid, it answers queries,
//! accepts additions and deletions, and reads back as it was written.

use redis_bloom::filter::{Filter, Plan};

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

fn shape(filter: &Filter) {
    assert_eq!(Plan::of(filter).check(), Ok(()));
    assert!(filter.bit_bytes() <= CEILING && filter.items() <= filter.capacity());
}
