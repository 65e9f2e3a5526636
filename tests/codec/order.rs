//! BF.LOADCHUNK with chunks in order, out of order, repeated, and from another filter.

use redis_bloom::{
    codec::{
        Error,
        native::{Load, Taken, dump},
    },
    filter::{Demand, Error as FilterError, Filter, Params},
};

use crate::{
    forge::{self, cut},
    sample,
    support::{Strings, fill, filter, layers, params},
};

#[test]
fn a_gap_is_refused_and_changes_nothing() {
    for filter in sample::smalls() {
        check_a_gap_is_refused_and_changes_nothing(&filter);
    }
}

fn check_a_gap_is_refused_and_changes_nothing(filter: &Filter) {
    let (header, chunks) = cut(filter, 5);
    assert!(chunks.len() > 5);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for (index, (iterator, data)) in chunks.iter().enumerate() {
        // All chunks after the next one.
        for (iterator, data) in &chunks[index + 1..] {
            let (received, first) = (load.received(), forge::first_byte(data));
            let outcome = load.take(*iterator, data, |_| u64::MAX);
            let to = *iterator as u64 - 1;
            assert_eq!(outcome, Err(Error::Order { from: first, to, received }));
            assert_eq!(load.received(), received);
        }
        let last = index + 1 == chunks.len();
        let expected = if last { Taken::Last } else { Taken::Next };
        assert_eq!(load.take(*iterator, data, |_| u64::MAX), Ok(expected));
    }
    assert_eq!(Strings::of(&layers(load)), Strings::of(filter));
}

/// The memory of a load comes with its chunks, at most eight times as much as is in of a layer and
/// a word of each; and a filter that is complete has all of it.
#[test]
fn a_load_has_room_for_what_has_come_and_is_whole_at_the_end() {
    for (name, filter) in sample::all() {
        for words in [1, 3, 64] {
            let (header, chunks) = cut(&filter, words);
            let mut load = Load::begin(&header, u64::MAX).expect("its header");
            let a_word_each = filter.layers().len() as u64 * 8;
            let bytes = load.layered().expect("layers").bytes();
            assert_eq!(load.bytes(), a_word_each, "{name}");
            let mut asked = 0;
            for (iterator, data) in &chunks {
                let (before, ceiling) = (load.bytes(), |_| filter.bit_bytes());
                let asks = |demand: Demand| {
                    asked += 1;
                    assert_eq!(demand.present, before);
                    ceiling(demand)
                };
                load.take(*iterator, data, asks).expect("the next chunk");
                assert!(load.bytes() <= load.received() * 8 + a_word_each, "{name}");
                assert_eq!(load.bytes(), load.layered().expect("layers").room(), "{name}");
                assert_eq!(
                    load.layered().expect("layers").bytes(),
                    bytes + load.bytes() - a_word_each,
                    "{name}"
                );
            }
            assert!(asked <= chunks.len());
            let loaded = layers(load);
            assert!(
                loaded
                    .layers()
                    .all(|layer| layer.bits().words().len() as u64 == layer.shape().words()),
                "{name}"
            );
            assert_eq!(loaded.bytes(), filter.bytes(), "{name}");
            assert_eq!(Strings::of(&loaded), Strings::of(&filter), "{name}");
        }
    }
}

/// A chunk that needs room which the filter may not have changes nothing; once it may, it is taken.
#[test]
fn a_chunk_beyond_the_ceiling_is_refused_and_changes_nothing() {
    for filter in sample::smalls() {
        let (header, chunks) = cut(&filter, 5);
        let (wanted, ceiling) = (filter.bit_bytes(), filter.bit_bytes() - 1);
        let mut load = Load::begin(&header, wanted).expect("its header");
        let (iterator, data) = &chunks[0];
        let before = forge::stored(&load);
        let refused = load.take(*iterator, data, |_| ceiling);
        assert_eq!(refused, Err(FilterError::Ceiling { wanted, ceiling }.into()));
        assert_eq!(forge::stored(&load), before);
        // Bytes that are no chunk are refused as such, before the ceiling is asked for.
        let garbage = load.take(*iterator, b"garbage", |_| panic!("asked"));
        assert!(garbage.is_err());
        assert_eq!(load.take(*iterator, data, |_| wanted), Ok(Taken::Next));
        let again = load.take(*iterator, data, |_| panic!("asked"));
        assert_eq!(again, Ok(Taken::Repeated));
    }
}

#[test]
fn a_repeated_chunk_is_accepted() {
    for filter in sample::smalls() {
        check_a_repeated_chunk_is_accepted(&filter);
    }
}

fn check_a_repeated_chunk_is_accepted(filter: &Filter) {
    let (header, chunks) = cut(filter, 5);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for index in 0..chunks.len() {
        let (iterator, data) = &chunks[index];
        assert_ne!(load.take(*iterator, data, |_| u64::MAX), Ok(Taken::Repeated));
        let received = load.received();
        // A client without a reply repeats this chunk, or starts again from the first.
        let again = if index + 1 == chunks.len() { Taken::Last } else { Taken::Repeated };
        for (iterator, data) in &chunks[..=index] {
            assert_eq!(load.take(*iterator, data, |_| u64::MAX), Ok(again), "after chunk {index}");
            assert_eq!(load.received(), received);
        }
    }
    let loaded = layers(load);
    assert_eq!(Strings::of(&loaded), Strings::of(filter));
    // The filter is complete: repeats are accepted, changes are not.
    for (iterator, data) in &chunks {
        assert_eq!(dump::repeat(&loaded, *iterator, data), Ok(()));
    }
}

#[test]
fn a_chunk_with_a_lower_count_is_refused() {
    // Counts only rise. A chunk with a lower count comes from another filter, or is older than the
    // loaded chunks.
    let mut original = filter(&params(0.01, 1_000, 2, 23));
    fill(&mut original, 1, 300);
    let (header, earlier) = cut(&original, 20);
    fill(&mut original, 1, 600);
    let (_, later) = cut(&original, 20);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for (later, earlier) in later.iter().zip(&earlier) {
        load.take(later.0, &later.1, |_| u64::MAX).expect("the next chunk");
        assert_eq!(load.take(earlier.0, &earlier.1, |_| u64::MAX), Err(Error::OtherFilter));
    }
    assert_eq!(Strings::of(&layers(load)), Strings::of(&original));
}

#[test]
fn no_chunk_clears_a_bit() {
    for filter in sample::smalls() {
        check_no_chunk_clears_a_bit(&filter);
    }
}

fn check_no_chunk_clears_a_bit(filter: &Filter) {
    let (end, data) = dump::at(filter, 1).expect("a chunk");
    let mut load = Load::begin(&dump::header(filter).1, u64::MAX).expect("its header");
    let [head, _] = forge::split(end, &data, 40);
    assert_eq!(load.take(head.0, &head.1, |_| u64::MAX), Ok(Taken::Next));
    // The whole chunk, with zeros in place of the part that is loaded.
    let forged = forge::patched(&data, forge::frame::bits(&data), &[0; 40]);
    assert_eq!(load.take(end, &forged, |_| u64::MAX), Ok(Taken::Last));
    assert_eq!(Strings::of(&layers(load)), Strings::of(filter));
}

#[test]
fn a_repeated_header_is_recognized() {
    let original = sample::small();
    let (header, chunks) = cut(&original, 5);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for (iterator, data) in &chunks {
        assert!(load.began_with(&header));
        load.take(*iterator, data, |_| u64::MAX).expect("the next chunk");
    }
    let load = Load::begin(&header, u64::MAX).expect("its header");
    // The same filter with fewer items is the same filter.
    let shape = params(0.01, 200, 2, 0x5EED);
    let same = {
        let mut same = filter(&shape);
        fill(&mut same, 1, 70);
        same
    };
    assert!(load.began_with(&dump::header(&same).1));
    let other = filter(&Params { seed: 1, ..shape });
    let not = [
        &b""[..],
        &header[1..],
        &chunks[0].1,
        &Strings::of(&original).0[0],
        &dump::header(&other).1,
    ];
    for bytes in not {
        assert!(!load.began_with(bytes), "{} bytes", bytes.len());
    }
}

#[test]
fn overlapping_chunks_without_a_gap_are_accepted() {
    for filter in sample::smalls() {
        check_overlapping_chunks_without_a_gap_are_accepted(&filter);
    }
}

fn check_overlapping_chunks_without_a_gap_are_accepted(filter: &Filter) {
    let (header, small) = cut(filter, 3);
    let (_, large) = cut(filter, 7);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    let mut complete = false;
    for (iterator, data) in small.iter().zip(&large).flat_map(|(small, large)| [small, large]) {
        complete |= load.take(*iterator, data, |_| u64::MAX).expect("no gap") == Taken::Last;
    }
    assert!(complete);
    assert_eq!(Strings::of(&layers(load)), Strings::of(filter));
}

#[test]
fn a_repeat_that_would_change_a_complete_filter_is_refused() {
    let mut original = filter(&params(0.01, 1_000, 2, 3));
    fill(&mut original, 1, 100);
    let before = original.duplicate().expect("memory");
    fill(&mut original, 1, 200);
    let (iterator, later) = dump::at(&original, 1).expect("a chunk");
    assert_eq!(dump::repeat(&before, iterator, &later), Err(Error::Complete));
    let (_, earlier) = dump::at(&before, 1).expect("a chunk");
    assert_eq!(dump::repeat(&original, iterator, &earlier), Ok(()));
}

#[test]
fn a_chunk_of_another_filter_is_refused() {
    let base = params(0.01, 200, 2, 0x5EED);
    let make = |params: Params, items| {
        let mut filter = filter(&params);
        fill(&mut filter, 1, items);
        filter
    };
    let filter = make(base, 100);
    let others = [
        ("another seed", make(Params { seed: 1, ..base }, 100)),
        ("another rate", make(Params { error_rate: 0.010_000_000_000_000_002, ..base }, 100)),
        ("another expansion", make(params(0.01, 200, 3, 0x5EED), 100)),
        ("another capacity", make(Params { capacity: 201, ..base }, 100)),
    ];
    for (case, other) in others {
        check_other(case, &filter, &other);
    }
    let stack = |items| sample::stack(&params(0.01, 20, 2, 0), items);
    check_other("fewer layers", &stack(100), &stack(50));
    check_other("more layers", &stack(100), &stack(200));
}

#[track_caller]
fn check_other(case: &str, filter: &Filter, other: &Filter) {
    let (header, _) = cut(filter, 5);
    let (_, chunks) = cut(other, 5);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for (iterator, data) in &chunks {
        let outcome = load.take(*iterator, data, |_| u64::MAX);
        assert!(
            matches!(outcome, Err(Error::OtherFilter | Error::TooBig { .. })),
            "{case}: {outcome:?}"
        );
        let outcome = dump::repeat(filter, *iterator, data);
        assert!(
            matches!(outcome, Err(Error::OtherFilter | Error::TooBig { .. })),
            "{case}: {outcome:?}"
        );
    }
    assert_eq!(load.received(), 0, "{case}");
}

#[test]
fn headers_and_chunks_are_not_mixed_up() {
    for filter in sample::smalls() {
        check_headers_and_chunks_are_not_mixed_up(&filter);
    }
}

fn check_headers_and_chunks_are_not_mixed_up(filter: &Filter) {
    let (iterator, data) = dump::at(filter, 1).expect("a chunk");
    let (_, header) = dump::header(filter);
    assert_eq!(
        Load::begin(&data, u64::MAX).map(|_| ()),
        Err(Error::Malformed("the magic of another layout"))
    );
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for iterator in [1, iterator] {
        assert_eq!(
            load.take(iterator, &header, |_| u64::MAX),
            Err(Error::Malformed("the magic of another layout"))
        );
    }
    // The header of an RDB announces bits that a dump does not have.
    let rdb = &Strings::of(filter).0[0];
    assert!(matches!(Load::begin(rdb, u64::MAX), Err(Error::Order { .. })));
}

#[test]
fn an_empty_chunk_is_refused() {
    for filter in sample::smalls() {
        check_an_empty_chunk_is_refused(&filter);
    }
}

fn check_an_empty_chunk_is_refused(filter: &Filter) {
    let (end, data) = dump::at(filter, 1).expect("a chunk");
    let [(iterator, empty), _] = forge::split(end, &data, 0);
    let mut load = Load::begin(&dump::header(filter).1, u64::MAX).expect("its header");
    assert!(matches!(load.take(iterator, &empty, |_| u64::MAX), Err(Error::Order { .. })));
}

#[test]
fn a_repeated_chunk_of_bits_below_pages_changes_no_bit() {
    let mut full = filter(&params(0.01, 500, 2, 7));
    fill(&mut full, 1, 500);
    let paged = full.overflow().expect("a sound filter");
    let (iterator, data) = dump::at(&paged, 1).expect("a chunk");
    let at = forge::frame::bits(&data);
    let word = u64::from_le_bytes(data[at..at + 8].try_into().expect("8 bytes"));
    for (bits, expected) in [
        (word, Ok(())),
        (word & (word - 1), Ok(())),
        (0, Ok(())),
        (word | (word + 1), Err(Error::Complete)),
        (!word, Err(Error::Complete)),
    ] {
        let forged = forge::patched(&data, at, &bits.to_le_bytes());
        assert_eq!(dump::repeat(&paged, iterator, &forged), expected, "{bits:x} of {word:x}");
    }
}
