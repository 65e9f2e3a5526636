//! Compares a filter of layers with an exact set under random operations: no false negative, no
//! wrong item count, and copies that answer as the original. A filter is merged with others of
//! equal parameters.
//!
//! The first 12 bytes of the input choose the filter. Then each operation is one byte, followed by
//! its arguments. The operation also says whether a batch of items is a list or packed.

#![no_main]

#[path = "shared/strings.rs"]
mod strings;

use std::{collections::BTreeSet, num::NonZeroUsize};

use libfuzzer_sys::fuzz_target;
use redis_bloom::{
    codec::{
        native::{Load, Stored, Taken, dump, rdb},
        packed::{Format, Packed, pack, pack_answers},
    },
    filter::{Answers, Error, Expansion, Filter, Member, Params, Union, Unmergeable},
};

const RATES: [f64; 8] = [0.999, 0.5, 0.25, 0.01, 0.001, 1e-6, 1e-15, f64::MIN_POSITIVE];

fn params(head: [u8; 12]) -> Params {
    let [rate, capacity, expansion, rest @ ..] = head;
    let [_, seed @ ..] = rest;
    Params {
        error_rate: RATES[usize::from(rate) % RATES.len()],
        capacity: u64::from(capacity) + 1,
        expansion: Expansion::new(u64::from(expansion % 4)).unwrap_or(Expansion::NONSCALING),
        seed: u64::from_le_bytes(seed),
        counts: false,
        shard: None,
    }
}

fn stored(filter: &Filter) -> Filter {
    let mut strings = strings::Strings::default();
    rdb::save(filter, &mut strings);
    match rdb::load(&mut strings::Reading(strings.0.iter()), u64::MAX) {
        Ok(Stored::Layers(filter)) => filter,
        other => panic!("the filter's own RDB is refused: {other:?}"),
    }
}

fn dumped(filter: &Filter) -> Filter {
    let (mut iterator, header) = dump::header(filter);
    let mut load = Load::begin(&header, u64::MAX).expect("the filter's own header");
    loop {
        let (next, data) = dump::at(filter, iterator).expect("a chunk: the load is not complete");
        iterator = next;
        if load.take(iterator, &data, |_| u64::MAX).expect("the filter's own chunk") == Taken::Last
        {
            assert!(dump::at(filter, iterator).is_none());
            return match load.finish() {
                Ok(Stored::Layers(filter)) => filter,
                other => panic!("the filter's own dump is refused: {other:?}"),
            };
        }
    }
}

/// The items in a blob of the format number `way`, or of LENGTHS if that format cannot hold them.
fn blob(way: u8, items: &[Vec<u8>]) -> (Format, Vec<u8>) {
    let width = items.first().and_then(|item| NonZeroUsize::new(item.len()));
    let width = width.filter(|width| items.iter().all(|item| item.len() == width.get()));
    match (way, width) {
        (1, _) if items.iter().all(|item| !item.contains(&b'\n')) => {
            (Format::Lines, items.iter().flat_map(|item| [item, &b"\n"[..]].concat()).collect())
        }
        (2, Some(width)) => (Format::Width(width), items.concat()),
        _ => (Format::Lengths, pack(items.iter().map(Vec::as_slice))),
    }
}

/// The bits of a packed answer, one by one.
fn unpacked(bits: &[u8]) -> impl Iterator<Item = bool> {
    bits.iter().flat_map(|byte| (0..8).map(move |at| byte << at & 0x80 != 0))
}

fuzz_target!(|data: &[u8]| {
    let Some((head, mut data)) = data.split_first_chunk::<12>() else {
        return;
    };
    let params = params(*head);
    let mut filter = Filter::new(&params, u64::MAX).expect("a small filter");
    let mut exact: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut added = 0;
    // After a merge the count is an estimate, to which additions are exact.
    let mut merged = false;
    while let [operation, count, rest @ ..] = data {
        data = rest;
        // `count % 80` items; the first byte of each item gives its length.
        let mut items: Vec<Vec<u8>> = Vec::new();
        for number in 0..usize::from(count % 80) {
            let length = data.first().map_or(0, |&length| usize::from(length)).min(data.len());
            let (item, rest) = data.split_at(length.min(1 + number % 7));
            data = rest;
            items.push([item, &number.to_le_bytes()[..number % 3]].concat());
        }
        let way = operation / 7 % 4;
        let (format, blob) = blob(way, &items);
        let packed = Packed::new(format, &blob).expect("a blob").items();
        assert!(packed.clone().eq(items.iter()), "{format:?}");
        let borrowed = items.iter().map(Vec::as_slice);
        match operation % 8 {
            0 => {
                for item in &items {
                    let hash = filter.hash(item);
                    let there = filter.contains(hash);
                    match filter.add(hash, |_| u64::MAX) {
                        Ok(new) => {
                            assert_eq!(new, !there);
                            added += u64::from(new);
                            exact.insert(item.clone());
                        }
                        Err(_) => assert!(!there && filter.newest().is_full()),
                    }
                }
            }
            1 => {
                let mut answers = Vec::new();
                // Single additions to a copy must give the same answers.
                let mut twin = filter.duplicate().expect("memory");
                let mut chunks = Vec::new();
                let push = |chunk| chunks.push(chunk);
                let outcome = match way {
                    0 => filter.add_each(borrowed, |_| u64::MAX, push),
                    _ => filter.add_each(packed, |_| u64::MAX, push),
                };
                answers.extend(chunks.iter().flat_map(|chunk| chunk.each()));
                let bits = pack_answers(chunks.into_iter());
                assert_eq!(bits.len(), answers.len().div_ceil(8));
                assert!(unpacked(&bits).take(answers.len()).eq(answers.iter().copied()));
                assert!(!unpacked(&bits).skip(answers.len()).any(|unused| unused));
                for (item, &new) in items.iter().zip(&answers) {
                    assert_eq!(twin.add(twin.hash(item), |_| u64::MAX), Ok(new));
                    added += u64::from(new);
                    exact.insert(item.clone());
                }
                match items.get(answers.len()) {
                    Some(item) => {
                        assert_eq!(twin.add(twin.hash(item), |_| u64::MAX).err(), outcome.err())
                    }
                    None => assert_eq!(outcome, Ok(())),
                }
            }
            2 => {
                let mut answers = Vec::new();
                let push = |there: Answers| answers.extend(there.each());
                match way {
                    0 => filter.contains_each(borrowed, push),
                    _ => filter.contains_each(packed, push),
                }
                assert_eq!(answers.len(), items.len());
                for (item, there) in items.iter().zip(answers) {
                    assert_eq!(filter.contains(filter.hash(item)), there);
                    assert!(there || !exact.contains(item), "a false negative");
                }
            }
            3 => filter = stored(&filter),
            4 => filter = dumped(&filter),
            5 | 6 => {
                // A filter that was reserved alike and got these items, merged into this one.
                let mut other = Filter::new(&params, u64::MAX).expect("a small filter");
                let mut new = Vec::new();
                for item in &items {
                    if other.add(other.hash(item), |_| u64::MAX).is_ok() {
                        new.push(item.clone());
                    }
                }
                let other = [Member::Layers(&other)];
                let all = [Member::Layers(&filter), other[0]];
                match Union::of(&all, true, |_| unreachable!("no memory is wanted")) {
                    Ok(union) => {
                        if let Some(Union::Layer(items)) = union {
                            filter.unite(&other, items);
                        }
                        exact.extend(new);
                        added = filter.items();
                        merged = true;
                    }
                    Err(Error::Unmergeable(Unmergeable::Full { .. })) => {}
                    Err(error) => panic!("filters of equal parameters are refused: {error}"),
                }
            }
            _ => {
                let estimate = filter.estimate();
                assert!(
                    (0.0..=1.0).contains(&estimate.fill)
                        && (0.0..=1.0).contains(&estimate.error_rate)
                );
                filter = filter.duplicate().expect("memory");
            }
        }
        assert!(filter.items() <= filter.capacity());
        assert_eq!(filter.items(), added);
        assert!(merged || added <= exact.len() as u64);
        assert_eq!(filter.params(), params);
    }
    for item in &exact {
        assert!(filter.contains(filter.hash(item)), "a false negative");
    }
});
