//! What is written is read back word for word.

use redis_bloom::{
    codec::{
        Error,
        native::{Load, Stored, Taken, dump, rdb},
    },
    filter::{
        Error as FilterError,
        pages::{END, Pages, Plan},
    },
};

use super::{
    COUNT, all, bits, check_equal, crowded, filled, finished, frame, loaded, paged, strings,
};
use crate::support::{Reading, Strings};

#[test]
fn an_rdb_gives_the_same_words() {
    for (name, filter) in all() {
        let stored = strings(&filter);
        let copy = loaded(&stored);
        check_equal(&copy, &filter, name);
        assert_eq!(strings(&copy), stored, "{name}");
    }
}

#[test]
fn an_unchanged_filter_gives_the_same_words_in_any_chunks() {
    for (name, filter) in all() {
        for count in [1, 2, 3, 7, usize::MAX] {
            let (mut iterator, header) = dump::header(&filter);
            let mut load = Load::begin(&header, u64::MAX).expect(name);
            assert!(load.began_with(&header), "{name}");
            while let Some((_, chunk)) = dump::at(&filter, iterator) {
                let (next, chunk) = frame::cut(&chunk, bits(&filter), count);
                let taken = load.take(next, &chunk, |_| u64::MAX).expect(name);
                let last = dump::at(&filter, next).is_none();
                assert_eq!(taken, if last { Taken::Last } else { Taken::Next }, "{name}");
                if !last {
                    // A repeated chunk, and one after a gap.
                    assert_eq!(load.take(next, &chunk, |_| 0), Ok(Taken::Repeated), "{name}");
                    let (_, later) = dump::at(&filter, next).expect("a chunk");
                    let records = frame::records(&later, bits(&filter));
                    let skipped = next + records[0].1 as i64;
                    if let Some((end, gap)) = dump::at(&filter, skipped) {
                        let refused = load.take(end, &gap, |_| u64::MAX);
                        assert!(matches!(refused, Err(Error::Order { .. })), "{name}: {refused:?}");
                    }
                    // The rest is loaded from a copy that was saved and read back.
                    load = resumed(&load);
                }
                iterator = next;
            }
            check_equal(&finished(load), &filter, name);
        }
    }
}

/// A load that was saved half-way and read back.
#[track_caller]
fn resumed(load: &Load) -> Load {
    let mut strings = Strings::default();
    rdb::save(load, &mut strings);
    let Ok(Stored::Partial(again)) = rdb::load(&mut Reading(strings.0.iter()), u64::MAX) else {
        panic!("not a partial filter");
    };
    let mut stored = Strings::default();
    rdb::save(&*again, &mut stored);
    assert_eq!(stored, strings);
    assert_eq!(again.received(), load.received());
    *again
}

/// A half-loaded filter can be dumped, as a rewritten AOF needs, and the rest continues from there.
#[test]
fn a_half_loaded_filter_is_dumped_and_completed() {
    for (name, filter) in all() {
        let (_, whole) = dump::at(&filter, 1).expect("a chunk");
        for part in 1..frame::records(&whole, bits(&filter)).len().min(6) {
            let (_, header) = dump::header(&filter);
            let mut load = Load::begin(&header, u64::MAX).expect(name);
            assert_eq!(dump::at(&load, 1), None);
            let (middle, head) = frame::cut(&whole, bits(&filter), part);
            load.take(middle, &head, |_| u64::MAX).expect(name);
            let mut copy = Load::begin(&dump::header(&load).1, u64::MAX).expect(name);
            let (next, chunk) = dump::at(&load, 1).expect(name);
            assert_eq!(next, middle, "{name}");
            assert_eq!(copy.take(next, &chunk, |_| u64::MAX), Ok(Taken::Next), "{name}");
            assert_eq!(dump::at(&load, next), None, "{name}");
            let (next, rest) = dump::at(&filter, next).expect(name);
            for mut load in [load.duplicate().expect("memory"), load, copy] {
                let mut part = Some((next, rest.clone()));
                while let Some((next, rest)) = part {
                    load.take(next, &rest, |_| u64::MAX).expect(name);
                    part = dump::at(&filter, next);
                }
                check_equal(&finished(load), &filter, name);
            }
        }
    }
}

/// Two chunks of 16 MiB and a last one, and strings of 1 MiB.
#[test]
fn chunks_and_strings_are_bounded() {
    let mut pages = Pages::new(Plan { page_slots: 2_000, ..crowded(36, COUNT) }).expect("memory");
    for number in 0..4_500_000 {
        super::raise(&mut pages, number);
    }
    let filter = paged(&pages);
    let (mut iterator, mut lengths) = (1, Vec::new());
    let mut load = Load::begin(&dump::header(&filter).1, u64::MAX).expect("its header");
    while let Some((next, chunk)) = dump::at(&filter, iterator) {
        load.take(next, &chunk, |_| u64::MAX).expect("the next chunk");
        lengths.push(chunk.len());
        iterator = next;
    }
    assert_eq!(iterator as u64, END + 1);
    let frame = 200;
    let most = (16 << 20) + frame;
    let least = (16 << 20) - (64 << 10);
    let (last, first) = lengths.split_last().expect("a chunk");
    assert_eq!(first.len(), 1, "{lengths:?}");
    assert!(first.iter().all(|length| (least..=most).contains(length)) && *last <= most);
    check_equal(&finished(load), &filter, "chunks");
    let strings = strings(&filter);
    assert!(strings.0.len() > 24 && strings.0.iter().all(|string| string.len() <= 1 << 20));
    check_equal(&loaded(&strings), &filter, "strings");
}

#[test]
fn a_filter_above_the_ceiling_is_refused() {
    let filter = paged(&filled(crowded(9, COUNT), 3_000));
    let stored = strings(&filter);
    let table = |ceiling| rdb::load(&mut Reading(stored.0.iter()), ceiling);
    let bytes = filter.pages().pages().len() as u64 * 500;
    assert!(matches!(
        table(bytes).map(drop),
        Err(Error::Filter(FilterError::Ceiling { ceiling, .. })) if ceiling == bytes
    ));
    let mut load = Load::begin(&dump::header(&filter).1, u64::MAX).expect("its header");
    let (next, chunk) = dump::at(&filter, 1).expect("a chunk");
    let refused = load.take(next, &chunk, |demand| demand.wanted - 1);
    assert!(matches!(refused, Err(Error::Filter(FilterError::Ceiling { .. }))), "{refused:?}");
    assert_eq!((load.received(), load.bytes()), (0, 0));
    assert_eq!(load.take(next, &chunk, |demand| demand.wanted), Ok(Taken::Last));
}
