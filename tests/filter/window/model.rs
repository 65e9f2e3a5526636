//! Random sequences of operations, checked against an exact model: when each item was added.
//!
//! The clock of the server runs, is set forward and is set back. The model counts for each item how
//! much the clock advanced since, whether it ran or was set forward. To set it back counts nothing.
//! Up to an age of T, an item must be found. After T (1 + 1/G) by the clock, it must not be found,
//! unless the clock was set back since: a third of the filters have a rate of 1e-9, at which no
//! item is found by accident.
//!
//! A window of items is checked by counts in the same way: an item must be found while fewer than N
//! items were counted after it, and be gone after (G + 1) generations.
//!
//! A copy gets only effects: shifts, and the items that changed the filter. It asks with a clock of
//! its own, which is wrong, and has the same bytes after each step.

use std::collections::HashMap;

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngSeed},
};
use redis_bloom::{
    codec::native::dump::{self, Load, Taken},
    filter::{Author, Dropped, Error, MAX_TIME, Rules, Shift, Span, Window},
};

use super::{add_each, add_in_place, added, check, has, stored, window_of};
use crate::{
    steps::bytes,
    support::{last_items, params, time, window},
};

/// The length of a window of time, in milliseconds. No number of generations but 1, 2, 4 and 10
/// divides it.
const LENGTH: u64 = 1_000;

#[derive(Clone, Debug)]
enum Step {
    Add(u16),
    Batch(Vec<u16>),
    /// The clock runs.
    Run(i64),
    /// The clock is set: forward, or back.
    Set(i64),
    Forget,
    Store,
    Dump,
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
        6 => prop_oneof![0..length / 4, 0..3 * length, Just(length), Just(length / 4)]
            .prop_map(Step::Run),
        1 => (-2 * length..2 * length).prop_map(Step::Set),
        1 => Just(Step::Forget),
        1 => Just(Step::Store),
        1 => Just(Step::Dump),
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
    window: Window,
    /// Fed by effects alone.
    copy: Window,
    clock: i64,
    /// The latest time that it has shown.
    latest: i64,
    /// How far the clock advanced, by running or by being set forward.
    advanced: i64,
    /// Items that changed the filter.
    counted: u64,
    remembered: HashMap<u16, Remembered>,
}

impl Model {
    fn rules(&self) -> Rules {
        self.window.ring().rules
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Add(number) => self.add(&[*number]),
            Step::Batch(numbers) => self.add(numbers),
            Step::Run(by) | Step::Set(by) => self.advance(*by),
            Step::Forget => {
                let mut dropped = Dropped::default();
                let before = self.window.filter().bytes();
                let forgot = self.window.forget(self.clock, &mut dropped);
                assert_eq!(forgot > 0, (dropped.count > 0));
                assert!(self.window.filter().bytes() <= before.max(2_000));
                if forgot > 0 {
                    self.obey(Shift { start: self.clock.clamp(0, MAX_TIME), capacity: 0 });
                }
                assert_eq!(self.window.forget(self.clock, &mut dropped), 0);
            }
            Step::Store => self.window = window_of(stored(&self.window).filter()),
            Step::Dump => self.window = window_of(dumped(&self.window)),
            Step::Copy => {
                self.window = window_of(self.window.filter().duplicate().expect("memory"));
            }
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

    fn obey(&mut self, shift: Shift) {
        self.copy.obey(shift, |_| u64::MAX, &mut Dropped::default()).expect("its primary's shift");
    }

    /// Adds a batch, and the same items one by one to a copy: in place, if that is possible.
    fn add(&mut self, numbers: &[u16]) {
        let batch: Vec<Vec<u8>> = numbers.iter().map(|&number| bytes(number)).collect();
        let mut alone = window_of(stored(&self.window).filter());
        let (shift, done, outcome) = add_each(&mut self.window, &batch, self.clock);
        let single: Vec<_> = batch
            .iter()
            .map_while(|item| {
                add_in_place(&mut alone, item, Author::Client(self.clock)).or_else(|| {
                    add_each(&mut alone, std::slice::from_ref(item), self.clock).1.pop()
                })
            })
            .collect();
        if batch.is_empty() {
            add_each(&mut alone, &[], self.clock).2.expect("nothing to refuse");
        }
        assert_eq!(done, single, "a batch of {}", batch.len());
        assert_eq!(stored(&alone), stored(&self.window), "a batch of {}", batch.len());
        if let Err(error) = outcome {
            assert_eq!(error, Error::Full);
            assert!(self.window.filter().expansion().factor().is_none());
            assert_ne!(self.rules().span, Span::Items);
        }

        let changed: Vec<_> = batch.iter().zip(&done).filter(|(_, done)| done.1).collect();
        let changed: Vec<Vec<u8>> = changed.into_iter().map(|(item, _)| item.clone()).collect();
        shift.into_iter().for_each(|shift| self.obey(shift));
        let obeyed = match changed.as_slice() {
            [only] => add_in_place(&mut self.copy, only, Author::Obeyed).map(|done| vec![done]),
            _ => None,
        };
        let obeyed = obeyed.unwrap_or_else(|| {
            let (done, outcome) =
                added(&mut self.copy, &changed, Author::Obeyed, &mut Dropped::default());
            assert_eq!(outcome, Ok(()));
            done
        });
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
    }

    /// Checks all items, and that the copy is equal.
    fn check(&self, exact: bool) {
        check(&self.window, self.clock);
        let rules = self.rules();
        for (&number, item) in &self.remembered {
            let found = has(&self.window, &bytes(number), self.clock);
            let (must, must_not) = match rules.span {
                Span::Time(length) => {
                    let slack = i64::try_from(length).expect("a length");
                    let gone = |at| !rules.is_alive(at, self.clock);
                    (self.advanced - item.advanced <= slack, item.latest.is_some_and(gone))
                }
                Span::Items => {
                    let after = self.counted - item.counted;
                    let generation = rules.generation_capacity(self.window.ring().capacity);
                    let most = generation * (u64::from(rules.generations) + 1);
                    (after < self.window.ring().capacity, after >= most)
                }
            };
            assert!(found || !must, "{number} is lost: {item:?}");
            assert!(!(exact && found && must_not), "{number} is still there: {item:?}");
        }
        let numbers: Vec<_> = self.remembered.keys().copied().collect();
        let batch: Vec<Vec<u8>> = numbers.iter().map(|&number| bytes(number)).collect();
        let mut answers = Vec::new();
        let each = batch.iter().map(Vec::as_slice);
        self.window.contains_each(each, self.clock, |found| answers.extend(found.each()));
        let alone: Vec<_> = batch.iter().map(|item| has(&self.window, item, self.clock)).collect();
        assert_eq!(answers, alone);
        // The questions do not change the copy, whatever its clock shows.
        for (item, skew) in batch.iter().zip([-5_000, -999, 999, 5_000].into_iter().cycle()) {
            has(&self.copy, item, self.clock + skew);
        }
        assert_eq!(stored(&self.copy), stored(&self.window), "the copy differs");
    }
}

/// The window, dumped and loaded again.
fn dumped(window: &Window) -> redis_bloom::filter::Filter {
    let (mut iterator, header) = dump::header(window.filter());
    let mut load = Load::begin(&header, u64::MAX).expect("its own header");
    loop {
        let (next, data) = dump::at(window.filter(), iterator).expect("a chunk before the end");
        if load.take(next, &data).expect("its own chunk") == Taken::Last {
            return load.into_filter();
        }
        iterator = next;
    }
}

fn rules() -> impl Strategy<Value = (Rules, u64)> {
    let generations = || prop::sample::select(vec![1_u8, 2, 3, 4, 7, 10, 32]);
    let in_time = (generations(), any::<bool>(), prop::sample::select(vec![0_u64, 1, 2, 4]));
    prop_oneof![
        3 => in_time.prop_map(|(generations, refresh, expansion)| {
            (time(LENGTH, generations, refresh), expansion)
        }),
        1 => (generations(), any::<bool>())
            .prop_map(|(generations, refresh)| (last_items(generations, refresh), 0)),
    ]
}

proptest! {
    #![proptest_config(Config {
        cases: 1_500,
        rng_seed: RngSeed::Fixed(0x0B10_0333),
        failure_persistence: None,
        ..Config::default()
    })]

    #[test]
    fn a_window_remembers_and_forgets_as_it_promises(
        (rules, expansion) in rules(),
        (rate, exact) in prop_oneof![
            Just((1e-9, true)),
            Just((0.25, false)),
            Just((0.01, false)),
        ],
        capacity in prop_oneof![1..=8_u64, 1..=100_u64, 1..=1_000_u64],
        clock in prop_oneof![4 => Just(1_790_000_000_000_i64), 1 => 0..5_000_i64],
        seed: u64,
        steps in vec(step(), 1..60),
    ) {
        let params = params(rate, capacity, expansion, seed);
        let mut model = Model {
            window: window(&params, rules),
            copy: window(&params, rules),
            clock,
            latest: clock,
            advanced: 0,
            counted: 0,
            remembered: HashMap::new(),
        };
        for step in &steps {
            model.step(step);
            model.check(exact);
        }
    }
}
