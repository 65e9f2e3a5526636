//! Compares a filter with an exact multiset under random operations: no false negative, no wrong
//! item count, and copies that answer as the original. From a filter with counters only added items
//! are deleted.
//!
//! The first 12 bytes of the input choose the filter. Then each operation is one byte, followed by
//! its arguments.

#![no_main]

#[path = "shared/strings.rs"]
mod strings;

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use redis_bloom::{
    codec::{
        native::dump::{self, Load, Taken},
        native::rdb::{self, Stored},
    },
    filter::{CellKind, Expansion, Filter, Params},
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
        cells: if expansion < 128 { CellKind::Bits } else { CellKind::Counters },
    }
}

fn stored(filter: &Filter) -> Filter {
    let mut strings = strings::Strings::default();
    rdb::save(filter, &mut strings);
    match rdb::load(&mut strings::Reading(strings.0.iter()), u64::MAX) {
        Ok(Stored::Complete(filter)) => filter,
        other => panic!("the filter's own RDB is refused: {other:?}"),
    }
}

fn dumped(filter: &Filter) -> Filter {
    let (mut iterator, header) = dump::header(filter);
    let mut load = Load::begin(&header, u64::MAX).expect("the filter's own header");
    loop {
        let (next, data) = dump::at(filter, iterator).expect("a chunk: the load is not complete");
        iterator = next;
        if load.take(iterator, &data).expect("the filter's own chunk") == Taken::Last {
            assert!(dump::at(filter, iterator).is_none());
            return load.into_filter();
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((head, mut data)) = data.split_first_chunk::<12>() else {
        return;
    };
    let params = params(*head);
    let mut filter = Filter::new(&params, u64::MAX).expect("a small filter");
    // For each item, its additions minus its deletions.
    let mut exact: HashMap<Vec<u8>, u64> = HashMap::new();
    let mut added = 0;
    // Each layer slows down every operation; a few dozen layers are enough.
    while let [operation, count, rest @ ..] = data {
        data = rest;
        if filter.layers().len() > 40 || filter.bit_bytes() > 1 << 20 {
            break;
        }
        // `count % 80` items; the first byte of each item gives its length.
        let mut items: Vec<Vec<u8>> = Vec::new();
        for number in 0..usize::from(count % 80) {
            let length = data.first().map_or(0, |&length| usize::from(length)).min(data.len());
            let (item, rest) = data.split_at(length.min(1 + number % 7));
            data = rest;
            items.push([item, &number.to_le_bytes()[..number % 3]].concat());
        }
        let borrowed = items.iter().map(Vec::as_slice);
        match operation % 7 {
            0 => {
                for item in &items {
                    let hash = filter.hash(item);
                    let there = filter.contains(hash);
                    match filter.add(hash, |_| u64::MAX) {
                        Ok(new) => {
                            assert_eq!(new, !there);
                            added += u64::from(new);
                            *exact.entry(item.clone()).or_default() += 1;
                        }
                        Err(_) => assert!(!there && filter.expansion().factor().is_none()),
                    }
                }
            }
            1 => {
                let mut answers = Vec::new();
                // Single additions to a copy must give the same answers.
                let mut twin = filter.duplicate().expect("memory");
                let outcome =
                    filter.add_each(borrowed, |_| u64::MAX, |chunk| answers.extend(chunk.each()));
                for (item, &new) in items.iter().zip(&answers) {
                    assert_eq!(twin.add(twin.hash(item), |_| u64::MAX), Ok(new));
                    added += u64::from(new);
                    *exact.entry(item.clone()).or_default() += 1;
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
                filter.contains_each(borrowed, |there| answers.extend(there.each()));
                assert_eq!(answers.len(), items.len());
                for (item, there) in items.iter().zip(answers) {
                    assert_eq!(filter.contains(filter.hash(item)), there);
                    assert!(there || !exact.contains_key(item), "a false negative");
                }
            }
            3 => filter = stored(&filter),
            4 => filter = dumped(&filter),
            5 if filter.counts() => {
                for item in &items {
                    let Some(times) = exact.get_mut(item) else {
                        continue;
                    };
                    let hash = filter.hash(item);
                    assert!(filter.count(hash) >= (*times).min(15));
                    if filter.delete(hash) {
                        *times -= 1;
                    }
                    exact.retain(|_, times| *times > 0);
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
        if !filter.counts() {
            assert_eq!(filter.items(), added);
            assert!(added <= exact.len() as u64);
        }
        assert_eq!(filter.params(), params);
    }
    for item in exact.keys() {
        assert!(filter.contains(filter.hash(item)), "a false negative");
    }
});
