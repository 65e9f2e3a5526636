//! Windows after random sequences of operations, checked against an exact model: when each item was
//! added.
//!
//! The clock of the server runs, is set forward and is set back. The model counts for each item how
//! much the clock advanced since, whether it ran or was set forward. To set it back counts nothing.
//! Up to an age of T, an item must be found. After T (1 + 1/G) by the clock, it must not be found,
//! unless the clock was set back since. Half of the filters check this: they have tags of 36 bits,
//! with which no item is found by chance.
//!
//! A window of items is checked by counts in the same way: an item must be found while fewer than N
//! items were counted after it, and be gone after (G + 1) generations.
//!
//! A copy gets only effects: shifts, and the items that changed the filter. It is queried with a
//! clock that is wrong, and is equal word for word after each step.

use std::collections::HashMap;

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngAlgorithm, RngSeed},
};
use redis_bloom::filter::{
    Additions, Author, Error, Plan, Rules, Span,
    paged::{Paged, Shift},
    pages::Pages,
};

use super::{check_equal, paged, stored};
use crate::{
    steps::bytes,
    support::{params, time},
};

/// The length of a window of time, in milliseconds. No number of generations but 1, 2, 4 and 10
/// divides it.
const LENGTH: u64 = 1_000;

#[derive(Clone, Debug)]
enum Step {
    Add(u16),
    Batch(Vec<u16>),
    /// So many items that were never added before.
    Burst(u16),
    /// The clock runs.
    Run(i64),
    /// The clock is set: forward, or back.
    Set(i64),
    Forget,
    Sweep(u64),
    Store,
    Copy,
    /// The copy takes the place of the primary, with a clock that differs by so much.
    Promote(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let number = || prop_oneof![3 => 0..40_u16, 1 => 0..2_000_u16];
    let length = LENGTH as i64;
    prop_oneof![
        6 => number().prop_map(Step::Add),
        4 => vec(number(), 0..200).prop_map(Step::Batch),
        1 => (0..2_000_u16).prop_map(Step::Burst),
        6 => prop_oneof![0..length / 4, 0..3 * length, Just(length), Just(length / 4)]
            .prop_map(Step::Run),
        1 => (-2 * length..2 * length).prop_map(Step::Set),
        1 => Just(Step::Forget),
        1 => prop_oneof![Just(1), 0..5_u64, Just(1_000)].prop_map(Step::Sweep),
        1 => Just(Step::Store),
        1 => Just(Step::Copy),
        1 => (-length..length).prop_map(Step::Promote),
    ]
}

/// What the model knows of an item.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    /// How far the clock had advanced.
    advanced: i64,
    /// The latest time that the clock had shown; `None` once it was set back after that. A
    /// generation may have started then, before the clock was set back by less than T/G.
    latest: Option<i64>,
    /// Items counted, including this one.
    counted: u64,
}

struct Model {
    window: Paged,
    /// Fed by effects alone.
    copy: Paged,
    clock: i64,
    /// The latest time that it has shown.
    latest: i64,
    /// How far the clock advanced, by running or by being set forward.
    advanced: i64,
    /// Items that changed the filter.
    counted: u64,
    remembered: HashMap<u16, Remembered>,
    /// The number of the next item of a burst.
    fresh: u16,
}

/// Adds items; returns for each whether it was new and whether it changed the filter.
fn added(
    paged: &mut Paged,
    items: &[Vec<u8>],
    author: Author,
) -> (Vec<(bool, bool)>, Result<(), Error>) {
    let mut done = Vec::new();
    let each = items.iter().map(Vec::as_slice);
    let answer = |chunk: Additions| done.extend(chunk.new.each().zip(chunk.changed.each()));
    let outcome = paged.add_each(each, author, |_| u64::MAX, answer);
    (done, outcome)
}

impl Model {
    fn rules(&self) -> Rules {
        self.window.window().expect("a window").rules
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Add(number) => self.add(&[*number]),
            Step::Batch(numbers) => self.add(numbers),
            Step::Burst(count) => {
                let first = self.fresh;
                self.fresh = first.saturating_add(*count);
                self.add(&(first..self.fresh).collect::<Vec<_>>());
            }
            Step::Run(by) | Step::Set(by) => self.advance(*by),
            Step::Forget => {
                let shift = self.window.forget(self.clock);
                self.obey(shift);
                assert_eq!(self.window.forget(self.clock), None);
            }
            Step::Sweep(pages) => {
                let shift = self.window.sweep(*pages);
                self.obey(shift);
            }
            Step::Store => self.window = stored(&self.window),
            Step::Copy => self.window = self.window.duplicate().expect("memory"),
            Step::Promote(by) => {
                std::mem::swap(&mut self.window, &mut self.copy);
                self.advance(*by);
            }
        }
    }

    fn advance(&mut self, by: i64) {
        self.clock += by;
        self.latest = self.latest.max(self.clock);
        self.advanced += by.max(0);
        if by < 0 {
            self.remembered.values_mut().for_each(|item| item.latest = None);
        }
    }

    fn obey(&mut self, shift: Option<Shift>) {
        if let Some(shift) = shift {
            self.copy.obey(shift).expect("its primary's shift");
        }
    }

    /// Adds a batch, and the same items one by one to a copy.
    fn add(&mut self, numbers: &[u16]) {
        let batch: Vec<Vec<u8>> = numbers.iter().map(|&number| bytes(number)).collect();
        let mut alone = self.window.duplicate().expect("memory");
        let author = Author::Client(self.clock);
        let shift = self.window.turn(self.clock);
        let (done, outcome) = added(&mut self.window, &batch, author);
        assert_eq!(alone.turn(self.clock), shift);
        let single = batch.iter().map_while(|item| {
            let done = alone.add(alone.hash(item), author, |_| u64::MAX).ok()?;
            Some((done.new, done.changed))
        });
        assert_eq!(done, single.collect::<Vec<_>>(), "a batch of {}", batch.len());
        check_equal(&alone, &self.window, "one by one");
        let changed = batch.iter().zip(&done).filter(|(_, done)| done.1);
        let changed: Vec<Vec<u8>> = changed.map(|(item, _)| item.clone()).collect();
        self.obey(shift);
        let (obeyed, obeyed_all) = added(&mut self.copy, &changed, Author::Obeyed);
        assert_eq!(obeyed_all, Ok(()));
        assert!(obeyed.iter().all(|done| done.1), "an item that changed the primary");

        let refresh = self.rules().refresh;
        for (&number, (new, changed)) in numbers.iter().zip(done) {
            assert!(changed || !new);
            assert!(refresh || changed == new);
            self.counted += u64::from(changed);
            if changed || (refresh && self.rules().span != Span::Items) {
                let (advanced, counted) = (self.advanced, self.counted);
                let item = Remembered { advanced, latest: Some(self.latest), counted };
                self.remembered.insert(number, item);
            }
        }
        if let Err(error) = outcome {
            assert_eq!(error, Error::Full);
            self.check_full();
        }
    }

    fn is_gone(&self, item: &Remembered) -> bool {
        item.latest.is_some_and(|at| !self.rules().is_alive(at, self.clock))
    }

    /// A refusal: as many distinct items as the capacity came within T (1 + 1/G).
    fn check_full(&self) {
        assert!(self.window.expansion().factor().is_none());
        assert_ne!(self.rules().span, Span::Items);
        let came = self.remembered.values().filter(|item| !self.is_gone(item)).count() as u64;
        assert_eq!(self.window.items(self.clock), self.window.capacity());
        assert!(came >= self.window.capacity(), "{came} items came");
    }

    /// Checks all items, and that the copy is equal.
    fn check(&self, exact: bool) {
        assert_eq!(Plan::of_pages(&self.window).check(), Ok(()));
        let rules = self.rules();
        let mut remembered = 0;
        for (&number, item) in &self.remembered {
            let found = self.window.contains(self.window.hash(&bytes(number)), self.clock);
            let (must, must_not) = match rules.span {
                Span::Time(length) => {
                    let slack = i64::try_from(length).expect("a length");
                    (self.advanced - item.advanced <= slack, self.is_gone(item))
                }
                Span::Items => {
                    let after = self.counted - item.counted;
                    let generation = self.window.capacity().div_ceil(rules.generations.into());
                    let most = generation * (u64::from(rules.generations) + 1);
                    (after < self.window.capacity(), after >= most)
                }
            };
            assert!(found || !must, "{number} is lost: {item:?}");
            assert!(!(exact && found && must_not), "{number} is still there: {item:?}");
            remembered += u64::from(found);
        }
        // Two distinct items are never counted as one, and none is counted twice.
        let items = self.window.items(self.clock);
        assert!(!exact || items == remembered, "{items} items and not {remembered}");
        let batch: Vec<Vec<u8>> = self.remembered.keys().copied().map(bytes).collect();
        let mut answers = Vec::new();
        let each = batch.iter().map(Vec::as_slice);
        self.window.contains_each(each, self.clock, |found| answers.extend(found.each()));
        let alone = batch.iter().map(|item| self.window.hash(item));
        let alone = alone.map(|hash| self.window.contains(hash, self.clock));
        assert_eq!(answers, alone.collect::<Vec<_>>());
        check_equal(&self.copy, &self.window, "the copy");
    }
}

fn rules() -> impl Strategy<Value = (Rules, u64)> {
    let generations =
        || prop_oneof![1 => prop::sample::select(vec![1_u8, 2, 4, 10]), 1 => 1..=32_u8];
    let in_time = (generations(), any::<bool>(), prop::sample::select(vec![0_u64, 1, 2, 4]));
    prop_oneof![
        3 => in_time.prop_map(|(generations, refresh, expansion)| {
            (time(LENGTH, generations, refresh), expansion)
        }),
        1 => (generations(), any::<bool>())
            .prop_map(|(generations, refresh)| (super::last_items(generations, refresh), 0)),
    ]
}

/// A window with long tags and the smallest pages, so that splits and joins are frequent.
fn crowded(window: Paged) -> Paged {
    let mut whole = Plan::of_pages(&window);
    let plan = &mut whole.paged.as_mut().expect("pages").pages;
    plan.tag_bits = 45;
    plan.page_slots = 256;
    plan.first_pages = 1;
    let pages = Pages::new(*plan).expect("a plan in range");
    whole.with_pages(None, pages)
}

proptest! {
    #![proptest_config(Config {
        cases: 400,
        rng_algorithm: RngAlgorithm::XorShift,
        rng_seed: RngSeed::Fixed(0x0B10_0333),
        failure_persistence: None,
        ..Config::default()
    })]

    #[test]
    fn a_window_remembers_and_forgets_as_it_promises(
        (rules, expansion) in rules(),
        (rate, exact) in prop_oneof![
            2 => Just((1e-9, true)),
            1 => Just((0.25, false)),
            1 => Just((0.01, false)),
        ],
        capacity in prop_oneof![1..=8_u64, 1..=100_u64, 1..=1_000_u64, 1..=10_000_u64],
        clock in prop_oneof![4 => Just(1_790_000_000_000_i64), 1 => 0..5_000_i64],
        seed: u64,
        steps in vec(step(), 1..60),
    ) {
        let params = params(rate, capacity, expansion, seed);
        let make = || {
            let window = paged(&params, Some(rules));
            if exact { crowded(window) } else { window }
        };
        let mut model = Model {
            window: make(),
            copy: make(),
            clock,
            latest: clock,
            advanced: 0,
            counted: 0,
            remembered: HashMap::new(),
            fresh: 2_000,
        };
        for step in &steps {
            model.step(step);
            model.check(exact);
        }
    }
}
