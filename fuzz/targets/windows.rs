//! Compares a window with an exact model under random operations: no item of the window is lost,
//! whatever the clock does. A copy that gets only the effects, under a wrong clock, is equal after
//! each operation, and so is one that is stored and read back.
//!
//! The first 12 bytes of the input choose the filter. Then each operation is one byte, followed by
//! its arguments.

#![no_main]

#[path = "shared/strings.rs"]
mod strings;

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use redis_bloom::{
    codec::native::{Stored, rdb},
    filter::{
        Author, Expansion, Params, Plan, Rules, Span,
        paged::{Paged, Shift},
    },
};

const RATES: [f64; 4] = [0.25, 0.01, 0.001, 1e-9];
/// T, in milliseconds.
const LENGTH: u64 = 1_000;
const START: i64 = 1_790_000_000_000;

fn empty([rate, capacity, expansion, generations, seed @ ..]: [u8; 12]) -> Paged {
    let in_time = generations < 192;
    let rules = Rules {
        span: if in_time { Span::Time(LENGTH) } else { Span::Items },
        generations: generations % 32 + 1,
        refresh: generations & 32 == 0,
    };
    let factor = if in_time { u64::from(expansion % 4) } else { 0 };
    let params = Params {
        error_rate: RATES[usize::from(rate) % RATES.len()],
        capacity: u64::from(capacity) + 1,
        expansion: Expansion::new(factor).unwrap_or(Expansion::NONSCALING),
        seed: u64::from_le_bytes(seed),
        counts: false,
        shard: None,
    };
    Paged::new(&params, Some(rules), u64::MAX).expect("a small window")
}

fn stored(filter: &Paged) -> Vec<Vec<u8>> {
    let mut strings = strings::Strings::default();
    rdb::save(filter, &mut strings);
    strings.0
}

fn loaded(strings: &[Vec<u8>]) -> Paged {
    match rdb::load(&mut strings::Reading(strings.iter()), u64::MAX) {
        Ok(Stored::Pages(filter)) => filter,
        other => panic!("the window's own RDB is refused: {other:?}"),
    }
}

struct Model {
    filter: Paged,
    copy: Paged,
    rules: Rules,
    now: i64,
    /// How far the clock advanced.
    advanced: u64,
    /// Additions that changed the filter.
    changes: u64,
    /// For each item, both numbers when it was remembered last.
    remembered: BTreeMap<u8, (u64, u64)>,
}

impl Model {
    fn set(&mut self, by: i64) {
        self.now = self.now.saturating_add(by);
        self.advanced = self.advanced.saturating_add(by.max(0).unsigned_abs());
    }

    fn obey(&mut self, shift: Option<Shift>) {
        if let Some(shift) = shift {
            self.copy.obey(shift).expect("its primary's shift");
        }
    }

    /// Adds items one by one, and the same items to `batch`.
    fn add(&mut self, items: &[u8]) {
        if items.is_empty() {
            return;
        }
        let client = Author::Client(self.now);
        let shift = self.filter.turn(self.now);
        self.obey(shift);
        let mut batch = loaded(&stored(&self.filter));
        let mut answers = Vec::new();
        for &item in items {
            let hash = self.filter.hash(&[item]);
            let Ok(done) = self.filter.add(hash, client, |_| u64::MAX) else {
                break;
            };
            answers.push((done.new, done.changed));
            assert!(done.changed || !done.new);
            self.changes += u64::from(done.changed);
            if done.changed {
                let obeyed = self.copy.add(hash, Author::Obeyed, |_| u64::MAX);
                assert!(obeyed.is_ok_and(|obeyed| obeyed.changed));
            }
            if done.changed || (self.rules.refresh && self.rules.span != Span::Items) {
                self.remembered.insert(item, (self.advanced, self.changes));
            }
        }
        let (mut done, each) = (Vec::new(), items.iter().map(std::slice::from_ref));
        let outcome = batch.add_each(
            each,
            client,
            |_| u64::MAX,
            |chunk| done.extend(chunk.new.each().zip(chunk.changed.each())),
        );
        assert_eq!(outcome.is_ok(), answers.len() == items.len());
        assert_eq!(done, answers);
        assert_eq!(stored(&batch), stored(&self.filter));
    }

    fn check(&self) {
        let strings = stored(&self.filter);
        assert_eq!(stored(&self.copy), strings);
        assert_eq!(stored(&loaded(&strings)), strings);
        assert_eq!(Plan::of_pages(&self.filter).check(), Ok(()));
        for (item, (advanced, changes)) in &self.remembered {
            let must = match self.rules.span {
                Span::Time(length) => self.advanced - advanced <= length,
                Span::Items => self.changes - changes < self.filter.capacity(),
            };
            let hash = self.filter.hash(&[*item]);
            assert!(!must || self.filter.contains(hash, self.now), "{item} is lost");
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((head, data)) = data.split_first_chunk::<12>() else {
        return;
    };
    let filter = empty(*head);
    let rules = filter.window().expect("a window").rules;
    let mut model = Model {
        filter,
        copy: empty(*head),
        rules,
        now: START,
        advanced: 0,
        changes: 0,
        remembered: BTreeMap::new(),
    };
    // Each operation compares all bytes.
    let mut data = data.iter().copied().take(200);
    while let (Some(operation), Some(argument)) = (data.next(), data.next()) {
        let by = i64::from(argument);
        match operation % 9 {
            0 | 1 => model.add(&[argument]),
            2 => {
                let items: Vec<u8> = data.by_ref().take(usize::from(argument)).collect();
                model.add(&items);
            }
            3 => model.set(by),
            4 => model.set(by * 16),
            5 => model.set(-by * 16),
            6 => {
                let shift = model.filter.forget(model.now);
                model.obey(shift);
            }
            7 => {
                let shift = model.filter.sweep(u64::from(argument % 4));
                model.obey(shift);
            }
            _ => {
                std::mem::swap(&mut model.filter, &mut model.copy);
                model.set(by * 8 - 1_024);
            }
        }
        model.check();
    }
});
