//! BF.LOADCHUNK in order, out of order, again, from another filter, and while the original goes on.

use redis_bloom::{
    codec::{
        Error,
        chunk::{self, Load, Taken},
    },
    filter::{Cells, Filter, Params},
};

use crate::{
    forge, sample,
    support::{Strings, add, fill, filter, has, item, params},
};

/// The header of a filter, and its stream in chunks of some words each.
fn cut(filter: &Filter, words: usize) -> (Vec<u8>, Vec<(i64, Vec<u8>)>) {
    let (_, header) = chunk::header(filter);
    let mut rest = chunk::at(filter, 1).expect("a chunk");
    let mut chunks = Vec::new();
    let bits = |chunk: &[u8]| chunk.len() - forge::frame::BITS - forge::SEAL;
    while bits(&rest.1) > 8 * words {
        let [head, tail] = forge::split(rest.0, &rest.1, 8 * words);
        chunks.push(head);
        rest = tail;
    }
    chunks.push(rest);
    (header, chunks)
}

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
        // Everything behind the next one.
        for (iterator, data) in &chunks[index + 1..] {
            let (received, first) = (load.received(), forge::first_byte(data));
            let outcome = load.take(*iterator, data);
            let to = *iterator as u64 - 1;
            assert_eq!(
                outcome,
                Err(Error::Order {
                    from: first,
                    to,
                    received
                })
            );
            assert_eq!(load.received(), received);
        }
        let last = index + 1 == chunks.len();
        let expected = if last { Taken::Last } else { Taken::Next };
        assert_eq!(load.take(*iterator, data), Ok(expected));
    }
    assert_eq!(Strings::of(&load.into_filter()), Strings::of(filter));
}

#[test]
fn a_chunk_that_is_in_is_taken_again() {
    for filter in sample::smalls() {
        check_a_chunk_that_is_in_is_taken_again(&filter);
    }
}

fn check_a_chunk_that_is_in_is_taken_again(filter: &Filter) {
    let (header, chunks) = cut(filter, 5);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for index in 0..chunks.len() {
        let (iterator, data) = &chunks[index];
        assert_ne!(load.take(*iterator, data), Ok(Taken::Repeated));
        let received = load.received();
        // A client repeats what it got no answer for: this one, or all from the start.
        for (iterator, data) in &chunks[..=index] {
            assert_eq!(
                load.take(*iterator, data),
                Ok(Taken::Repeated),
                "after chunk {index}"
            );
            assert_eq!(load.received(), received);
        }
    }
    let loaded = load.into_filter();
    assert_eq!(Strings::of(&loaded), Strings::of(filter));
    // The filter is complete: repeats are accepted, changes are not.
    for (iterator, data) in &chunks {
        assert_eq!(chunk::repeat(&loaded, *iterator, data), Ok(()));
    }
}

#[test]
fn a_chunk_with_fewer_items_than_are_in_is_of_another_filter() {
    // Counts only rise, so a lower one was cut from a filter that took this one's place, or before what is in already.
    let mut original = filter(&params(0.01, 1_000, 2, 23));
    fill(&mut original, 1, 300);
    let (header, earlier) = cut(&original, 20);
    fill(&mut original, 1, 600);
    let (_, later) = cut(&original, 20);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for (later, earlier) in later.iter().zip(&earlier) {
        load.take(later.0, &later.1).expect("the next chunk");
        assert_eq!(load.take(earlier.0, &earlier.1), Err(Error::OtherFilter));
    }
    assert_eq!(Strings::of(&load.into_filter()), Strings::of(&original));
}

#[test]
fn no_chunk_takes_away_what_is_in() {
    for filter in sample::smalls() {
        check_no_chunk_takes_away_what_is_in(&filter);
    }
}

fn check_no_chunk_takes_away_what_is_in(filter: &Filter) {
    let (end, data) = chunk::at(filter, 1).expect("a chunk");
    let mut load = Load::begin(&chunk::header(filter).1, u64::MAX).expect("its header");
    let [head, _] = forge::split(end, &data, 40);
    assert_eq!(load.take(head.0, &head.1), Ok(Taken::Next));
    // All of it, but with zeros where the first part is in.
    let forged = forge::patched(&data, forge::frame::BITS, &[0; 40]);
    assert_eq!(load.take(end, &forged), Ok(Taken::Last));
    assert_eq!(Strings::of(&load.into_filter()), Strings::of(filter));
}

#[test]
fn a_header_that_is_sent_again_is_known() {
    let original = sample::small();
    let (header, chunks) = cut(&original, 5);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for (iterator, data) in &chunks {
        assert!(load.began_with(&header));
        load.take(*iterator, data).expect("the next chunk");
    }
    let load = Load::begin(&header, u64::MAX).expect("its header");
    // The same filter with fewer items is the same filter.
    let shape = params(0.01, 20, 2, 0x5EED);
    let same = {
        let mut same = filter(&shape);
        fill(&mut same, 1, 70);
        same
    };
    assert!(load.began_with(&chunk::header(&same).1));
    let other = filter(&Params { seed: 1, ..shape });
    let not = [
        &b""[..],
        &header[1..],
        &chunks[0].1,
        &Strings::of(&original).0[0],
        &chunk::header(&other).1,
    ];
    for bytes in not {
        assert!(!load.began_with(bytes), "{} bytes", bytes.len());
    }
}

#[test]
fn chunks_that_overlap_are_taken_if_they_leave_no_gap() {
    for filter in sample::smalls() {
        check_chunks_that_overlap_are_taken_if_they_leave_no_gap(&filter);
    }
}

fn check_chunks_that_overlap_are_taken_if_they_leave_no_gap(filter: &Filter) {
    let (header, small) = cut(filter, 3);
    let (_, large) = cut(filter, 7);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    let mut complete = false;
    for (iterator, data) in small.iter().zip(&large).flat_map(|(small, large)| [small, large]) {
        complete |= load.take(*iterator, data).expect("no gap") == Taken::Last;
    }
    assert!(complete);
    assert_eq!(Strings::of(&load.into_filter()), Strings::of(filter));
}

#[test]
fn a_repeat_that_would_change_a_complete_filter_is_refused() {
    let mut original = filter(&params(0.01, 1_000, 2, 3));
    fill(&mut original, 1, 100);
    let before = original.duplicate().expect("memory");
    fill(&mut original, 1, 200);
    let (iterator, later) = chunk::at(&original, 1).expect("a chunk");
    assert_eq!(chunk::repeat(&before, iterator, &later), Err(Error::Complete));
    let (_, earlier) = chunk::at(&before, 1).expect("a chunk");
    assert_eq!(chunk::repeat(&original, iterator, &earlier), Ok(()));
}

#[test]
fn a_chunk_of_another_filter_is_refused() {
    let base = params(0.01, 20, 2, 0x5EED);
    let make = |params: Params, items| {
        let mut filter = filter(&params);
        fill(&mut filter, 1, items);
        filter
    };
    let filter = make(base, 100);
    let (header, _) = cut(&filter, 5);
    let others = [
        ("another seed", make(Params { seed: 1, ..base }, 100)),
        (
            "another rate",
            make(
                Params {
                    error_rate: 0.010_000_000_000_000_002,
                    ..base
                },
                100,
            ),
        ),
        ("another expansion", make(params(0.01, 20, 3, 0x5EED), 100)),
        ("another capacity", make(Params { capacity: 21, ..base }, 100)),
        ("fewer layers", make(base, 50)),
        ("more layers", make(base, 200)),
    ];
    for (case, other) in others {
        let (_, chunks) = cut(&other, 5);
        let mut load = Load::begin(&header, u64::MAX).expect("its header");
        for (iterator, data) in &chunks {
            let outcome = load.take(*iterator, data);
            assert!(
                matches!(outcome, Err(Error::OtherFilter | Error::TooBig { .. })),
                "{case}: {outcome:?}"
            );
            let outcome = chunk::repeat(&filter, *iterator, data);
            assert!(
                matches!(outcome, Err(Error::OtherFilter | Error::TooBig { .. })),
                "{case}: {outcome:?}"
            );
        }
        assert_eq!(load.received(), 0, "{case}");
    }
}

#[test]
fn headers_and_chunks_are_not_mixed_up() {
    for filter in sample::smalls() {
        check_headers_and_chunks_are_not_mixed_up(&filter);
    }
}

fn check_headers_and_chunks_are_not_mixed_up(filter: &Filter) {
    let (iterator, data) = chunk::at(filter, 1).expect("a chunk");
    let (_, header) = chunk::header(filter);
    assert_eq!(
        Load::begin(&data, u64::MAX).map(|_| ()),
        Err(Error::Magic("rbloom"))
    );
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for iterator in [1, iterator] {
        assert_eq!(load.take(iterator, &header), Err(Error::Magic("rbchnk")));
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
    let (end, data) = chunk::at(filter, 1).expect("a chunk");
    let [(iterator, empty), _] = forge::split(end, &data, 0);
    let mut load = Load::begin(&chunk::header(filter).1, u64::MAX).expect("its header");
    assert!(matches!(
        load.take(iterator, &empty),
        Err(Error::Unaligned { .. })
    ));
}

#[test]
fn growing_during_a_dump_is_refused() {
    let mut filter = sample::small();
    let (header, chunks) = cut(&filter, 5);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for (iterator, data) in &chunks[..3] {
        assert_eq!(load.take(*iterator, data), Ok(Taken::Next));
    }
    let capacity = filter.capacity();
    fill(&mut filter, 2, capacity + 1);
    assert_eq!(filter.layers().len(), 4);
    let (_, later) = cut(&filter, 5);
    let received = load.received();
    for (iterator, data) in &later {
        let outcome = load.take(*iterator, data);
        assert!(
            matches!(outcome, Err(Error::OtherFilter | Error::TooBig { .. })),
            "{outcome:?}"
        );
    }
    assert_eq!(load.received(), received);
}

#[test]
fn additions_during_a_dump_lose_nothing_that_was_in_before() {
    // Three chunks of up to 16 MiB, with additions before each.
    let mut original = filter(&params(0.01, 30_000_000, 2, 21));
    fill(&mut original, 1, 20_000);
    let (mut iterator, header) = chunk::header(&original);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    let mut chunks = 0;
    loop {
        fill(&mut original, 2 + chunks, 30_000 + 10_000 * chunks);
        let (next, data) = chunk::at(&original, iterator).expect("a chunk");
        let taken = load.take(next, &data).expect("the next chunk");
        (iterator, chunks) = (next, chunks + 1);
        if taken == Taken::Last {
            break;
        }
    }
    assert_eq!(chunks, 3);
    fill(&mut original, 9, 60_000);
    let copy = load.into_filter();
    for number in 0..20_000 {
        assert!(has(&copy, &item(1, number)), "item {number}");
    }
    // The count is that of the last chunk: room that additions during the dump used is not promised again.
    assert_eq!(copy.items(), 50_000);
    // Every bit of the copy is one of the original.
    let holds = sample::stream(&copy)
        .iter()
        .zip(sample::stream(&original))
        .all(|(copied, bits)| copied & !bits == 0);
    assert!(holds);
    // And the additions are in where their chunk came after them: all of the last one's share of blocks.
    let mut copy = copy;
    let again = (0..10_000)
        .filter(|&number| add(&mut copy, &item(2, number)))
        .count();
    assert_eq!(
        again, 0,
        "what was added before the first chunk is in every chunk"
    );
}

#[test]
fn the_count_of_a_dump_that_filled_the_filter_leaves_no_room() {
    let mut original = filter(&params(0.01, 100, 0, 22));
    fill(&mut original, 1, 60);
    let (_, header) = chunk::header(&original);
    fill(&mut original, 1, 100);
    let (iterator, data) = chunk::at(&original, 1).expect("a chunk");
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    assert_eq!(load.filter().items(), 60);
    assert_eq!(load.take(iterator, &data), Ok(Taken::Last));
    assert_eq!(Strings::of(&load.into_filter()), Strings::of(&original));
}

/// Halves of counters from before and after a change would not fit together: an item whose counters were raised in one half
/// alone tests absent, and a deletion of it would lower those of others.
#[test]
fn a_filter_that_counts_and_changes_during_a_dump_is_refused() {
    type Change = fn(&mut Filter);
    let changes: [(&str, Change); 3] = [
        ("an addition", |filter| assert!(add(filter, &item(2, 1)))),
        ("an addition of what is in", |filter| {
            assert!(!add(filter, &item(1, 90)));
        }),
        ("a deletion and an addition", |filter| {
            assert!(filter.delete(filter.hash(&item(1, 90))));
            add(filter, &item(1, 90));
        }),
    ];
    for (case, change) in changes {
        let mut original = sample::small_of(Cells::Counters);
        let (header, chunks) = cut(&original, 20);
        let copy = original.duplicate().expect("memory");
        let mut load = Load::begin(&header, u64::MAX).expect("its header");
        assert_eq!(load.take(chunks[0].0, &chunks[0].1), Ok(Taken::Next));
        change(&mut original);
        let (changed, later) = cut(&original, 20);
        for (iterator, data) in &later {
            assert_eq!(load.take(*iterator, data), Err(Error::OtherFilter), "{case}");
        }
        assert!(!load.began_with(&changed), "{case}");
        // A copy stays as it was, and so the rest of the dump can be had from it.
        for (iterator, data) in &cut(&copy, 20).1[1..] {
            load.take(*iterator, data).expect("the next chunk");
        }
        assert_eq!(Strings::of(&load.into_filter()), Strings::of(&copy), "{case}");
    }
}

/// As many changes, of the same sorts, and the same items: what was changed and in which order is in the identity.
#[test]
fn copies_that_saw_as_many_other_changes_are_told_apart() {
    type Changes<'a> = &'a [(bool, u64)];
    let rows: [(&str, [Changes; 2]); 4] = [
        ("another item", [&[(true, 1)], &[(true, 2)]]),
        (
            "another order",
            [&[(true, 1), (true, 2)], &[(true, 2), (true, 1)]],
        ),
        (
            "other items, which are gone",
            [&[(true, 1), (false, 1)], &[(true, 2), (false, 2)]],
        ),
        (
            "the same changes in another order",
            [
                &[(true, 1), (true, 2), (false, 1), (false, 2)],
                &[(true, 1), (true, 2), (false, 2), (false, 1)],
            ],
        ),
    ];
    for (case, changes) in rows {
        let original = sample::small_of(Cells::Counters);
        let copies = changes.map(|changes| {
            let mut copy = original.duplicate().expect("memory");
            for &(adds, number) in changes {
                let hash = copy.hash(&item(2, number));
                if adds {
                    copy.add(hash, |_| u64::MAX).expect("room for an item");
                } else {
                    assert!(copy.delete(hash), "{case}");
                }
            }
            cut(&copy, 20)
        });
        let [(header, chunks), (_, others)] = &copies;
        let mut load = Load::begin(header, u64::MAX).expect("its header");
        for (iterator, data) in others {
            assert_eq!(load.take(*iterator, data), Err(Error::OtherFilter), "{case}");
        }
        for (iterator, data) in chunks {
            load.take(*iterator, data).expect(case);
        }
    }
}
