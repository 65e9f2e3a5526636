//! Compares a filter that forgets with an exact model under random operations: no item of the
//! window is lost, whatever the clock does. A copy that gets only the effects, under a wrong clock,
//! is equal after each operation.
//!
//! The first 12 bytes of the input choose the filter. Then each operation is one byte, followed by
//! its arguments.

#![no_main]

#[path = "shared/strings.rs"]
mod strings;

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use redis_bloom::{
    codec::native::rdb::{self, Stored},
    filter::{
        Addition, Author, CellKind, Dropped, Expansion, MAX_TIME, Params, Plan, Rules, Shift, Span,
        Window,
    },
};

const RATES: [f64; 4] = [0.5, 0.01, 0.001, 1e-9];
/// T, in milliseconds.
const LENGTH: u64 = 1_000;
const START: i64 = 1_790_000_000_000;

fn empty([rate, capacity, expansion, generations, seed @ ..]: [u8; 12]) -> Window {
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
        cells: CellKind::Bits,
    };
    Window::new(&params, rules, u64::MAX).expect("a small window")
}

fn stored(window: &Window) -> Vec<Vec<u8>> {
    let mut strings = strings::Strings::default();
    rdb::save(window.filter(), &mut strings);
    strings.0
}

fn loaded(strings: &[Vec<u8>]) -> Window {
    match rdb::load(&mut strings::Reading(strings.iter()), u64::MAX) {
        Ok(Stored::Complete(filter)) => Window::try_from(filter).expect("a window"),
        other => panic!("the window's own RDB is refused: {other:?}"),
    }
}

struct Model {
    window: Window,
    copy: Window,
    now: i64,
    /// How far the clock advanced.
    advanced: u64,
    /// Items that changed the filter.
    counted: u64,
    /// For each item, both numbers when it was remembered last.
    remembered: BTreeMap<u8, (u64, u64)>,
}

impl Model {
    fn set(&mut self, by: i64) {
        self.now = self.now.saturating_add(by);
        self.advanced = self.advanced.saturating_add(by.max(0).unsigned_abs());
    }

    fn obey(&mut self, shift: Shift) {
        self.copy.obey(shift, |_| u64::MAX, &mut Dropped::default()).expect("its primary's shift");
    }

    /// Adds items one by one, in place where that is possible, and the same items to `batch`.
    fn add(&mut self, items: &[u8]) {
        let mut batch = loaded(&stored(&self.window));
        let refresh = self.window.ring().rules.refresh;
        let in_time = self.window.ring().rules.span != Span::Items;
        let client = Author::Client(self.now);
        let mut answers = Vec::new();
        for &item in items {
            let hash = self.window.filter().hash(&[item]);
            let done = self.window.add_in_place(hash, client).map_or_else(
                || {
                    let mut dropped = Dropped::default();
                    let (shift, turned) = self.window.turn(self.now, |_| u64::MAX, &mut dropped);
                    turned.expect("memory");
                    let done = self.window.add(hash, client, |_| u64::MAX, &mut dropped);
                    shift.into_iter().for_each(|shift| self.obey(shift));
                    done
                },
                Ok,
            );
            let Ok(done) = done else {
                break;
            };
            answers.push((done.new, done.changed));
            assert!(done.changed || !done.new);
            self.counted += u64::from(done.changed);
            if done.changed {
                let obeyed =
                    self.copy.add(hash, Author::Obeyed, |_| u64::MAX, &mut Dropped::default());
                assert!(obeyed.is_ok_and(|Addition { changed, .. }| changed));
            }
            if done.changed || (refresh && in_time) {
                self.remembered.insert(item, (self.advanced, self.counted));
            }
        }
        let mut dropped = Dropped::default();
        if !items.is_empty() {
            batch.turn(self.now, |_| u64::MAX, &mut dropped).1.expect("memory");
        }
        let (mut done, each) = (Vec::new(), items.iter().map(std::slice::from_ref));
        let outcome = batch.add_each(
            each,
            client,
            |_| u64::MAX,
            &mut dropped,
            |chunk| {
                done.extend(chunk.new.each().zip(chunk.changed.each()));
            },
        );
        assert_eq!(outcome.is_ok(), answers.len() == items.len());
        assert_eq!(done, answers);
        assert_eq!(stored(&batch), stored(&self.window));
    }

    fn forget(&mut self) {
        let mut dropped = Dropped::default();
        if self.window.forget(self.now, &mut dropped) > 0 {
            self.obey(Shift { start: self.now.clamp(0, MAX_TIME), capacity: 0 });
        }
    }

    fn check(&self) {
        let strings = stored(&self.window);
        assert_eq!(stored(&self.copy), strings);
        assert_eq!(stored(&loaded(&strings)), strings);
        assert_eq!(Plan::of(self.window.filter()).check(), Ok(()));
        for (item, (advanced, counted)) in &self.remembered {
            let must = match self.window.ring().rules.span {
                Span::Time(length) => self.advanced - advanced <= length,
                Span::Items => self.counted - counted < self.window.ring().capacity,
            };
            let hash = self.window.filter().hash(&[*item]);
            assert!(!must || self.window.contains(hash, self.now), "{item} is lost");
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((head, data)) = data.split_first_chunk::<12>() else {
        return;
    };
    let mut model = Model {
        window: empty(*head),
        copy: empty(*head),
        now: START,
        advanced: 0,
        counted: 0,
        remembered: BTreeMap::new(),
    };
    // Each operation compares all bytes.
    let mut data = data.iter().copied().take(200);
    while let (Some(operation), Some(argument)) = (data.next(), data.next()) {
        let by = i64::from(argument);
        match operation % 8 {
            0 | 1 => model.add(&[argument]),
            2 => {
                let items: Vec<u8> = data.by_ref().take(usize::from(argument)).collect();
                model.add(&items);
            }
            3 => model.set(by),
            4 => model.set(by * 16),
            5 => model.set(-by * 16),
            6 => model.forget(),
            _ => {
                std::mem::swap(&mut model.window, &mut model.copy);
                model.set(by * 8 - 1_024);
            }
        }
        model.check();
    }
});
