//! Random sequences of operations, checked against an exact model: the set of the items added.
//!
//! Checked after each step: there is no false negative; `add` answers "new" exactly when `contains`
//! answered no; the count is the number of these answers; a batch answers like single calls; a
//! refusal changes nothing; a filter that was stored and loaded behaves as before.

use std::collections::HashSet;

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngAlgorithm, RngSeed},
};
use redis_bloom::{
    codec::native::{Load, Taken, dump},
    filter::{Error, Filter, Hash, Plan},
};

use crate::{
    steps::{Number, Step, bytes, rate, step},
    support::{Strings, filter, layers, params},
};

/// The filter, and its exact content.
struct Model {
    filter: Filter,
    added: HashSet<Number>,
    /// Answers `Ok(true)` so far.
    new: u64,
}

/// The stored strings of the filter; equal for equal filters.
fn stored(filter: &Filter) -> Strings {
    Strings::of(filter)
}

impl Model {
    fn hash(&self, number: Number) -> Hash {
        self.filter.hash(&bytes(number))
    }

    /// Checks the answer of an addition against that of `contains` before it, and updates the
    /// model.
    fn note(&mut self, number: Number, known: bool, full: bool, answer: Result<bool, Error>) {
        if self.added.contains(&number) {
            assert!(known, "a false negative: {number}");
        }
        match answer {
            Ok(new) => {
                assert_eq!(new, !known, "{number}");
                self.new += u64::from(new);
                self.added.insert(number);
            }
            Err(error) => {
                assert!(full && !known, "{number} was refused: {error:?}");
                let expected = match self.filter.expansion().factor() {
                    Some(_) => Error::Overflow,
                    None => Error::Full,
                };
                assert_eq!(error, expected, "{number} was refused");
            }
        }
    }

    /// Adds one item.
    fn add(&mut self, number: Number) -> Result<bool, Error> {
        let hash = self.hash(number);
        let (known, full) = (self.filter.contains(hash), self.filter.newest().is_full());
        // Compares strings only where a change is most likely: comparing after each present item of
        // a large filter would take minutes.
        let compared = full || (known && self.filter.bit_bytes() < 2_000);
        let before = compared.then(|| stored(&self.filter));
        let answer = self.filter.add(hash, |_| panic!("a native filter does not grow"));
        self.note(number, known, full, answer);
        if let Some(before) = before
            && answer != Ok(true)
        {
            assert_eq!(stored(&self.filter), before, "an answer of {answer:?} changed the filter");
        }
        answer
    }

    /// Adds a batch, and the same items one by one to a copy.
    fn add_each(&mut self, numbers: &[Number]) {
        let mut answers = Vec::new();
        let items: Vec<Vec<u8>> = numbers.iter().map(|&number| bytes(number)).collect();
        let copy = stored(&self.filter).filter();
        let outcome = self.filter.add_each(
            items.iter().map(Vec::as_slice),
            |_| panic!("a native filter does not grow"),
            |new| answers.extend(new.each().map(Ok)),
        );
        answers.extend(outcome.err().map(Err));

        let mut alone = Vec::new();
        let batch = std::mem::replace(&mut self.filter, copy);
        for &number in numbers {
            let answer = self.add(number);
            alone.push(answer);
            if answer.is_err() {
                break;
            }
        }
        assert_eq!(answers, alone, "a batch of {}", numbers.len());
        assert_eq!(stored(&batch), stored(&self.filter), "a batch of {}", numbers.len());
        self.filter = batch;
    }

    fn contains_each(&self, numbers: &[Number]) {
        let items: Vec<Vec<u8>> = numbers.iter().map(|&number| bytes(number)).collect();
        let mut answers = Vec::new();
        self.filter.contains_each(items.iter().map(Vec::as_slice), |found| {
            answers.extend(found.each());
        });
        let alone: Vec<bool> =
            numbers.iter().map(|&number| self.filter.contains(self.hash(number))).collect();
        assert_eq!(answers, alone);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Add(number) => _ = self.add(*number),
            Step::AddEach(numbers) => self.add_each(numbers),
            Step::Contains(number) => {
                let found = self.filter.contains(self.hash(*number));
                assert!(found || !self.added.contains(number), "a false negative: {number}");
            }
            Step::ContainsEach(numbers) => self.contains_each(numbers),
            Step::Store => {
                let strings = stored(&self.filter);
                self.filter = strings.filter();
                assert_eq!(stored(&self.filter), strings);
            }
            Step::Dump => {
                let strings = stored(&self.filter);
                self.filter = dumped(&self.filter);
                assert_eq!(stored(&self.filter), strings);
            }
            Step::Duplicate => {
                let strings = stored(&self.filter);
                self.filter = self.filter.duplicate().expect("memory for a small filter");
                assert_eq!(stored(&self.filter), strings);
            }
        }
    }

    /// Checks the invariants that hold after every step.
    fn check(&self) {
        assert_eq!(self.filter.items(), self.new);
        assert!(self.new <= self.added.len() as u64);
        assert_eq!(self.filter.newest().is_full(), self.new >= self.filter.capacity());
        assert!(self.filter.items() <= self.filter.capacity());
        let plan = Plan::of(&self.filter);
        assert_eq!(plan.check(), Ok(()));
        assert_eq!(plan.bit_bytes(), self.filter.bit_bytes());
    }

    /// Checks that all added items are found, one by one and in a batch.
    fn check_all(&self) {
        for &number in &self.added {
            assert!(self.filter.contains(self.hash(number)), "a false negative: {number}");
        }
        let numbers: Vec<Number> = self.added.iter().copied().collect();
        self.contains_each(&numbers);
    }
}

/// The filter, dumped and loaded again.
fn dumped(filter: &Filter) -> Filter {
    let (mut iterator, header) = dump::header(filter);
    let mut load = Load::begin(&header, u64::MAX).expect("its own header");
    loop {
        let (next, data) = dump::at(filter, iterator).expect("a chunk before the end");
        if load.take(next, &data, |_| u64::MAX).expect("its own chunk") == Taken::Last {
            assert_eq!(dump::at(filter, next), None, "a chunk behind the end");
            return layers(load);
        }
        iterator = next;
    }
}

proptest! {
    #![proptest_config(Config {
        cases: 2_000,
        rng_algorithm: RngAlgorithm::XorShift,
        rng_seed: RngSeed::Fixed(0xB100_F117),
        failure_persistence: None,
        ..Config::default()
    })]

    #[test]
    fn no_sequence_of_operations_makes_a_filter_forget(
        rate in rate(),
        capacity in prop_oneof![1..=8_u64, 1..=80_u64, 1..=400_u64],
        expansion in 0..3_u64,
        seed: u64,
        steps in vec(step(), 1..40),
    ) {
        let mut model = Model {
            filter: filter(&params(rate, capacity, expansion, seed)),
            added: HashSet::new(),
            new: 0,
        };
        for step in &steps {
            model.step(step);
            model.check();
        }
        model.check_all();
    }
}
