//! What is written is read back word for word.

use redis_bloom::{
    codec::{
        Error,
        native::{
            dump::Taken,
            paged::{
                Settings,
                dump::{self, Load},
                rdb::{self, Stored},
            },
        },
    },
    filter::{
        Error as FilterError, Expansion,
        pages::{END, Plan},
    },
};

use super::{COUNT, all, filled, frame, hash, loaded, settings, shard, strings, strings_of};
use crate::support::{Reading, Strings};

#[test]
fn an_rdb_gives_the_same_words() {
    for (name, pages) in all() {
        let stored = strings(&pages);
        let (read, copy) = loaded(&stored);
        assert_eq!((read, &copy), (settings(), &pages), "{name}");
        assert_eq!(copy.bytes(), pages.bytes(), "{name}");
        assert_eq!(strings(&copy), stored, "{name}");
    }
}

#[test]
fn an_unchanged_filter_gives_the_same_words_in_any_chunks() {
    for (name, pages) in all() {
        for count in [1, 2, 3, 7, usize::MAX] {
            let (mut iterator, header) = dump::header(&settings(), &pages);
            let mut load = Load::begin(&header).expect(name);
            assert!(load.began_with(&header), "{name}");
            while let Some((_, chunk)) = dump::at(&settings(), &pages, iterator) {
                let (next, chunk) = frame::cut(&chunk, count);
                let taken = load.take(next, &chunk, |_| u64::MAX).expect(name);
                let last = dump::at(&settings(), &pages, next).is_none();
                assert_eq!(taken, if last { Taken::Last } else { Taken::Next }, "{name}");
                if !last {
                    // A repeated chunk, and one after a gap.
                    assert_eq!(load.take(next, &chunk, |_| 0), Ok(Taken::Repeated), "{name}");
                    let (_, later) = dump::at(&settings(), &pages, next).expect("a chunk");
                    let records = frame::records(&later);
                    let skipped = next + records[0].1 as i64;
                    if let Some((end, gap)) = dump::at(&settings(), &pages, skipped) {
                        let refused = load.take(end, &gap, |_| u64::MAX);
                        assert!(matches!(refused, Err(Error::Order { .. })), "{name}: {refused:?}");
                    }
                    // The rest is loaded from a copy that was saved and read back.
                    load = resumed(&load);
                }
                iterator = next;
            }
            assert_eq!(load.finish(), Ok((settings(), pages.duplicate().expect("memory"))));
        }
    }
}

/// A load that was saved half-way and read back.
#[track_caller]
fn resumed(load: &Load) -> Load {
    let mut strings = Strings::default();
    rdb::save_partial(load, &mut strings);
    let Ok(Stored::Partial(again)) = rdb::load(&mut Reading(strings.0.iter()), u64::MAX) else {
        panic!("not a partial filter");
    };
    let mut stored = Strings::default();
    rdb::save_partial(&again, &mut stored);
    assert_eq!(stored, strings);
    assert_eq!((again.received(), again.bytes()), (load.received(), load.bytes()));
    again
}

/// A half-loaded filter can be dumped, as a rewritten AOF needs, and the rest continues from there.
#[test]
fn a_half_loaded_filter_is_dumped_and_completed() {
    for (name, pages) in all() {
        let (_, whole) = dump::at(&settings(), &pages, 1).expect("a chunk");
        for part in 1..frame::records(&whole).len().min(6) {
            let (_, header) = dump::header(&settings(), &pages);
            let mut load = Load::begin(&header).expect(name);
            assert_eq!(load.at(1), None);
            let (middle, head) = frame::cut(&whole, part);
            load.take(middle, &head, |_| u64::MAX).expect(name);
            let mut copy = Load::begin(&load.header().1).expect(name);
            let (next, chunk) = load.at(1).expect(name);
            assert_eq!(next, middle, "{name}");
            assert_eq!(copy.take(next, &chunk, |_| u64::MAX), Ok(Taken::Next), "{name}");
            assert_eq!(load.at(next), None, "{name}");
            let (next, rest) = dump::at(&settings(), &pages, next).expect(name);
            for mut load in [load.duplicate().expect("memory"), load, copy] {
                assert_eq!(load.take(next, &rest, |_| u64::MAX), Ok(Taken::Last), "{name}");
                assert_eq!(load.finish().expect("memory").1, pages, "{name}");
            }
        }
    }
}

#[test]
fn all_settings_are_stored() {
    let pages = filled(super::crowded(9, COUNT), 300);
    let settings = Settings {
        seed: u64::MAX,
        error_rate: 1e-7,
        capacity: 1 << 61,
        expansion: Expansion::NONSCALING,
        shard: shard(),
    };
    let (read, copy) = loaded(&strings_of(&settings, &pages));
    assert_eq!((read, &copy), (settings, &pages));
    let mut load = Load::begin(&dump::header(&settings, &pages).1).expect("its header");
    let (next, chunk) = dump::at(&settings, &pages, 1).expect("a chunk");
    assert_eq!(load.take(next, &chunk, |_| u64::MAX), Ok(Taken::Last));
    assert_eq!(load.finish(), Ok((settings, pages)));
}

/// Two chunks of 16 MiB and a last one, and strings of 1 MiB.
#[test]
fn chunks_and_strings_are_bounded() {
    let plan = Plan { page_slots: 2_000, ..super::crowded(36, super::COUNT) };
    let mut pages = redis_bloom::filter::pages::Pages::new(plan).expect("memory");
    for number in 0..4_500_000 {
        pages.raise(hash(number)).expect("memory");
    }
    let (mut iterator, mut lengths) = (1, Vec::new());
    let mut load = Load::begin(&dump::header(&settings(), &pages).1).expect("its header");
    while let Some((next, chunk)) = dump::at(&settings(), &pages, iterator) {
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
    assert_eq!(load.finish().expect("memory").1, pages);
    let strings = strings(&pages);
    assert!(strings.0.len() > 24 && strings.0.iter().all(|string| string.len() <= 1 << 20));
    assert_eq!(loaded(&strings).1, pages);
}

#[test]
fn a_filter_above_the_ceiling_is_refused() {
    let pages = filled(super::crowded(9, COUNT), 3_000);
    let stored = strings(&pages);
    let table = |ceiling| rdb::load(&mut Reading(stored.0.iter()), ceiling);
    let bytes = pages.pages().len() as u64 * 500;
    assert!(matches!(
        table(bytes).map(drop),
        Err(Error::Filter(FilterError::Ceiling { ceiling, .. })) if ceiling == bytes
    ));
    let mut load = Load::begin(&dump::header(&settings(), &pages).1).expect("its header");
    let (next, chunk) = dump::at(&settings(), &pages, 1).expect("a chunk");
    let refused = load.take(next, &chunk, |demand| demand.wanted - 1);
    assert!(matches!(refused, Err(Error::Filter(FilterError::Ceiling { .. }))), "{refused:?}");
    assert_eq!((load.received(), load.bytes()), (0, 0));
    assert_eq!(load.take(next, &chunk, |demand| demand.wanted), Ok(Taken::Last));
}
