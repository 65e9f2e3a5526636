//! Batches give the same answers as single calls, in order, across the borders of chunks and of
//! layers.

use std::cell::Cell;

use redis_bloom::filter::{Demand, Error, Filter, Shape, uses_avx512};

use crate::support::{Strings, add, fill, filter, has, item, params, stack};

/// The answers of `add_each`, then its error, if any.
fn add_each(filter: &mut Filter, items: &[Vec<u8>], ceiling: u64) -> Vec<Result<bool, Error>> {
    let mut answers = Vec::new();
    let outcome = filter.add_each(
        items.iter().map(Vec::as_slice),
        |_| ceiling,
        |new| answers.extend(new.each().map(Ok)),
    );
    answers.extend(outcome.err().map(Err));
    answers
}

fn contains_each(filter: &Filter, items: &[Vec<u8>]) -> Vec<bool> {
    let mut answers = Vec::new();
    filter.contains_each(items.iter().map(Vec::as_slice), |found| {
        answers.extend(found.each());
    });
    answers
}

/// Items `from .. to`, of different lengths up to 40 bytes.
fn items(from: u64, to: u64) -> Vec<Vec<u8>> {
    (from..to)
        .map(|number| {
            let mut bytes = number.to_string().into_bytes();
            bytes.resize(bytes.len() + (number % 34) as usize, b'-');
            bytes
        })
        .collect()
}

/// Sizes around multiples of the chunk of 64, and larger than the largest batch of the server.
const SIZES: [u64; 12] = [0, 1, 2, 63, 64, 65, 127, 128, 129, 640, 1_000, 100_000];

#[test]
fn a_batch_of_any_size_answers_once_for_each_item() {
    for (size, expansion) in SIZES.iter().flat_map(|size| [0, 1, 2].map(|e| (*size, e))) {
        let mut filter = match expansion {
            0 => filter(&params(0.001, size.max(1), 0, size)),
            _ => stack(&params(0.001, size.max(1).div_ceil(4), expansion, 0)),
        };
        let batch = items(0, size);
        let answers = add_each(&mut filter, &batch, u64::MAX);
        let case = format!("{size} items, {} layers", filter.layers().len());
        assert_eq!(answers.len() as u64, size, "{case}");
        let new = answers.iter().filter(|&answer| *answer == Ok(true)).count() as u64;
        assert_eq!(filter.items(), new, "{case}");
        assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 0, "{case}");
        let found = contains_each(&filter, &batch);
        assert_eq!(found.len() as u64, size, "{case}");
        assert!(found.iter().all(|&found| found), "{case}");
        // Absent items, too, get the answers of single calls.
        let others = items(size, 2 * size);
        let alone: Vec<bool> = others.iter().map(|item| has(&filter, item)).collect();
        assert_eq!(contains_each(&filter, &others), alone, "{case}");
    }
}

/// Rates with one probe and with many, blocks of one line and of many, so that every code path
/// runs. False positives must be the same in a batch and in single calls.
#[test]
fn at_every_rate_a_batch_answers_like_single_calls() {
    for (rate, capacity) in
        [(0.9, 20_000), (0.4, 20_000), (0.01, 3_000), (1e-3, 200_000), (1e-7, 50_000)]
    {
        let params = params(rate, 2 * capacity, 2, 9);
        let (mut together, mut alone) = (filter(&params), filter(&params));
        let batch = items(0, 2 * capacity);
        let answers = add_each(&mut together, &batch, u64::MAX);
        for (item, answer) in batch.iter().zip(answers) {
            assert_eq!(answer, Ok(add(&mut alone, item)), "{rate}: {item:?}");
        }
        assert!(Strings::of(&together) == Strings::of(&alone), "{rate}");
        let others = items(2 * capacity, 4 * capacity);
        for (item, found) in others.iter().zip(contains_each(&together, &others)) {
            assert_eq!(found, has(&alone, item), "{rate}: {item:?}");
        }
    }
}

/// A layer of more than 2^32 bits with long blocks. Beyond 4 MiB a layer is probed in stages.
#[test]
fn in_layers_larger_than_the_cache_a_batch_answers_like_single_calls() {
    let capacity = 20_000;
    let mut filter = filter(&params(1e-3, capacity << 15, 0, 9));
    let members = items(0, 2 * capacity);
    assert!(add_each(&mut filter, &members, u64::MAX).iter().all(Result::is_ok));
    let Shape::Blocked(newest) = filter.newest().shape() else {
        panic!("a native layer is blocked");
    };
    assert!(newest.block_words >= 16 && newest.words() > 1 << 26, "{newest:?}");
    assert!(contains_each(&filter, &members).iter().all(|&found| found));
    let others = items(2 * capacity, 4 * capacity);
    let alone: Vec<bool> = others.iter().map(|item| has(&filter, item)).collect();
    assert_eq!(contains_each(&filter, &others), alone);
}

#[test]
fn a_duplicate_in_a_batch_is_new_once() {
    // Duplicates in one chunk, in different chunks, and in different layers.
    for capacity in [1, 10, 1_000] {
        for distance in [1, 5, 63, 64, 65, 200] {
            let mut filter = stack(&params(0.000_1, capacity, 2, 4));
            let first = items(0, distance);
            let twice: Vec<Vec<u8>> = first.iter().chain(&first).cloned().collect();
            let answers = add_each(&mut filter, &twice, u64::MAX);
            let (first, second) = answers.split_at(distance as usize);
            let case = format!("capacity {capacity}, {distance} apart");
            assert_eq!(first[0], Ok(true), "{case}");
            assert!(second.iter().all(|&answer| answer == Ok(false)), "{case}: {second:?}");
        }
    }
}

/// A rate of 1e-9, so that no item is a false positive.
#[test]
fn a_batch_ends_when_the_filter_is_full() {
    for room in [1, 10, 63, 64, 65] {
        for beyond in [0, 1] {
            let mut filter = filter(&params(1e-9, 100, 0, 11));
            assert_eq!(add_each(&mut filter, &items(room, 100), u64::MAX).len() as u64, 100 - room);
            // The first item is present and takes no room.
            let batch = [items(99, 100), items(200, 200 + room + beyond)].concat();
            let answers = add_each(&mut filter, &batch, u64::MAX);
            let mut expected = vec![Ok(false)];
            expected.resize(1 + room as usize, Ok(true));
            expected.resize(1 + (room + beyond) as usize, Err(Error::Full));
            assert_eq!(answers, expected, "room {room}, {beyond} beyond");
            assert_eq!(filter.items(), 100, "room {room}, {beyond} beyond");
        }
    }
}

#[test]
fn the_first_error_is_the_last_answer() {
    for capacity in [1, 60, 64, 70, 128, 130] {
        let mut filter = filter(&params(0.000_1, capacity, 0, 11));
        let batch = items(0, 300);
        let answers = add_each(&mut filter, &batch, u64::MAX);
        let (last, before) = answers.split_last().expect("answers");
        assert_eq!(*last, Err(Error::Full), "capacity {capacity}");
        assert!(before.iter().all(Result::is_ok), "capacity {capacity}");
        assert_eq!(filter.items(), capacity);
        assert!(answers.len() < 300, "capacity {capacity}");
        // Items after the error were not added.
        let stored = Strings::of(&filter);
        let known: Vec<Vec<u8>> = batch[..before.len()].to_vec();
        assert!(add_each(&mut filter, &known, u64::MAX).iter().all(|&answer| answer == Ok(false)));
        assert_eq!(Strings::of(&filter), stored);
    }
}

#[test]
fn a_batch_stops_at_the_ceiling() {
    let mut filter = stack(&params(0.01, 100, 2, 12));
    let ceiling = filter.bit_bytes() * 5;
    let answers = add_each(&mut filter, &items(0, 5_000), ceiling);
    assert!(matches!(answers.last(), Some(Err(Error::Ceiling { .. }))), "{:?}", answers.last());
    assert!(filter.bit_bytes() <= ceiling);
    assert_eq!(filter.items(), filter.capacity());
    assert_eq!(filter.layers().len(), 2, "one layer more fits");
}

#[test]
fn a_batch_asks_for_the_ceiling_only_to_grow() {
    let mut filter = stack(&params(0.01, 100, 2, 13));
    let asked = Cell::new(0);
    for from in (0..2_000).step_by(100) {
        let batch = items(from, from + 100);
        let layers = filter.layers().len();
        asked.set(0);
        let ceiling = |demand: Demand| {
            assert!(0 < demand.present && demand.present < demand.wanted, "{demand:?}");
            asked.set(asked.get() + 1);
            u64::MAX
        };
        filter.add_each(batch.iter().map(Vec::as_slice), ceiling, |_| {}).expect("memory");
        assert_eq!(asked.get(), filter.layers().len() - layers);
    }
    assert!(filter.layers().len() > 3);
}

#[test]
fn long_and_empty_items_are_items() {
    let mut filter = filter(&params(0.01, 1_000, 2, 14));
    let batch: Vec<Vec<u8>> =
        [0, 1, 240, 241, 1 << 20, 3 << 20].into_iter().map(|length| vec![0; length]).collect();
    assert_eq!(contains_each(&filter, &batch), [false; 6]);
    assert_eq!(add_each(&mut filter, &batch, u64::MAX), [Ok(true); 6]);
    assert_eq!(add_each(&mut filter, &batch, u64::MAX), [Ok(false); 6]);
    assert_eq!(contains_each(&filter, &batch), [true; 6]);
}

#[test]
fn a_batch_finds_items_in_every_layer() {
    let mut filter = stack(&params(0.001, 20, 2, 15));
    let added = fill(&mut filter, 1, 20 * 127);
    assert_eq!(filter.layers().len(), 7);
    // Items of old and new layers and absent items in one chunk.
    let mixed: Vec<Vec<u8>> = (0..added)
        .flat_map(|number| [item(1, number).to_vec(), item(2, number).to_vec()])
        .collect();
    let found = contains_each(&filter, &mixed);
    for (number, found) in found.chunks_exact(2).enumerate() {
        assert!(found[0], "item {number}");
        assert_eq!(found[1], has(&filter, &item(2, number as u64)), "absent item {number}");
    }
}

/// The tests above compare batches, which may use AVX-512, with single calls, which do not.
#[test]
fn avx512_is_used_where_the_processor_has_it() {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = processor.split_whitespace().any(|flag| flag == "avx512vl");
    let portable = std::env::var_os("REDIS_BLOOM_PORTABLE").is_some();
    let hidden = portable || cfg!(any(miri, not(target_arch = "x86_64")));
    assert!(!portable || cfg!(debug_assertions), "a release build ignores the variable");
    // valgrind hides it, too.
    assert_eq!(uses_avx512(), has && !hidden);
}

/// Answers take half a byte an item, also where a full filter refuses nothing.
#[test]
fn a_full_filter_answers_by_chunks() {
    let mut filter = filter(&params(0.01, 10, 0, 3));
    let (items, mut counts) = (items(0, 200), Vec::new());
    let each = items.iter().map(Vec::as_slice);
    filter.add_each_uncounted(each, |answers| counts.push(answers.count()));
    assert_eq!(counts, [64, 64, 64, 8]);
    assert!(items.iter().all(|item| filter.contains(filter.hash(item))));
}
