//! A filter that changes during its dump: it grows, gets items, counts them.

use redis_bloom::{
    codec::{
        Error,
        native::dump::{self, Load, Taken},
    },
    filter::{CellKind, Filter, Window},
};

use crate::{
    forge::cut,
    sample,
    support::{Strings, add, add_at, fill, filter, has, item, last_items, params, window},
};

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
        assert!(matches!(outcome, Err(Error::OtherFilter | Error::TooBig { .. })), "{outcome:?}");
    }
    assert_eq!(load.received(), received);
}

/// A window of items keeps its number of generations and layers, but drops the oldest.
#[test]
fn a_window_of_items_that_shifts_during_a_dump_is_refused() {
    let rules = last_items(4, true);
    let mut window = window(&params(0.01, 60, 0, 0x5EED), rules);
    let mut number = 0;
    let mut add_generations = |window: &mut Window, count: u64| {
        for _ in 0..count * 15 {
            add_at(window, &item(1, number), 0);
            number += 1;
        }
    };
    add_generations(&mut window, 9);
    for shifts in 1..=10 {
        let (header, chunks) = cut(window.filter(), 5);
        let mut load = Load::begin(&header, u64::MAX).expect("its header");
        assert_eq!(load.take(chunks[0].0, &chunks[0].1), Ok(Taken::Next));
        add_generations(&mut window, shifts);
        assert_eq!(window.ring().generations.len(), rules.most_generations());
        let (changed, later) = cut(window.filter(), 5);
        for (iterator, data) in &later {
            assert_eq!(load.take(*iterator, data), Err(Error::OtherFilter), "{shifts}");
        }
        assert!(!load.began_with(&changed), "{shifts}");
    }
}

#[test]
fn additions_during_a_dump_lose_no_older_item() {
    // Three chunks of up to 16 MiB, with additions before each.
    let mut original = filter(&params(0.01, 30_000_000, 2, 21));
    fill(&mut original, 1, 20_000);
    let (mut iterator, header) = dump::header(&original);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    let mut chunks = 0;
    loop {
        fill(&mut original, 2 + chunks, 30_000 + 10_000 * chunks);
        let (next, data) = dump::at(&original, iterator).expect("a chunk");
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
    // The count is that of the last chunk, so it includes additions during the dump.
    assert_eq!(copy.items(), 50_000);
    // Every bit of the copy is set in the original.
    let holds = sample::stream(&copy)
        .iter()
        .zip(sample::stream(&original))
        .all(|(copied, bits)| copied & !bits == 0);
    assert!(holds);
    let mut copy = copy;
    let again = (0..10_000).filter(|&number| add(&mut copy, &item(2, number))).count();
    assert_eq!(again, 0, "what was added before the first chunk is in every chunk");
}

#[test]
fn a_filter_that_fills_up_during_its_dump_loads_as_full() {
    let mut original = filter(&params(0.01, 100, 0, 22));
    fill(&mut original, 1, 60);
    let (_, header) = dump::header(&original);
    fill(&mut original, 1, 100);
    let (iterator, data) = dump::at(&original, 1).expect("a chunk");
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    assert_eq!(load.filter().items(), 60);
    assert_eq!(load.take(iterator, &data), Ok(Taken::Last));
    assert_eq!(Strings::of(&load.into_filter()), Strings::of(&original));
}

/// Counters from before and after a change do not fit together: an item whose counters were raised
/// in one half only tests absent, and its deletion would lower counters of other items.
#[test]
fn a_counting_filter_that_changes_during_its_dump_is_refused() {
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
        let mut original = sample::small_of(CellKind::Counters);
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
        // A copy from before the change gives the remaining chunks.
        for (iterator, data) in &cut(&copy, 20).1[1..] {
            load.take(*iterator, data).expect("the next chunk");
        }
        assert_eq!(Strings::of(&load.into_filter()), Strings::of(&copy), "{case}");
    }
}

/// The identity depends on the changed items and on the order of the changes, not only on their
/// number.
#[test]
fn copies_with_different_changes_have_different_identities() {
    type Changes<'a> = &'a [(bool, u64)];
    let rows: [(&str, [Changes; 2]); 4] = [
        ("another item", [&[(true, 1)], &[(true, 2)]]),
        ("another order", [&[(true, 1), (true, 2)], &[(true, 2), (true, 1)]]),
        ("other items, which are gone", [&[(true, 1), (false, 1)], &[(true, 2), (false, 2)]]),
        (
            "the same changes in another order",
            [
                &[(true, 1), (true, 2), (false, 1), (false, 2)],
                &[(true, 1), (true, 2), (false, 2), (false, 1)],
            ],
        ),
    ];
    for (case, changes) in rows {
        let original = sample::small_of(CellKind::Counters);
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
