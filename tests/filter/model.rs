//! Random sequences of operations, checked against an exact model: the multiset of the items added
//! and, in filters with counters, not deleted since.
//!
//! Checked after each step: there is no false negative; `add` answers "new" exactly when `contains`
//! answered no; the count is the number of these answers (in filters without deletions); a batch
//! answers like single calls; a refusal changes nothing; the ceiling holds; a filter that was
//! stored and loaded behaves as before. Only items that were added are deleted, as
//! `filter/deletion.rs` requires; then the count of each item is at least that of the model.

use std::collections::HashMap;

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngSeed},
};
use redis_bloom::{
    codec::native::dump::{self, Load, Taken},
    filter::{CellKind, CountingLayer, Error, Filter, Hash, Layer, Params, Plan},
};

use crate::{
    steps::{Number, Step, bytes, rate, step},
    support::{CELLS, Strings, filter, params},
};

/// The most bytes of bits: the expansions include 32,768.
const CEILING: u64 = 100_000;

/// The filter, and its exact content.
struct Model {
    filter: Filter,
    /// Additions minus deletions of each number.
    added: HashMap<Number, u64>,
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
        if self.added.contains_key(&number) {
            assert!(known, "a false negative: {number}");
        }
        match answer {
            Ok(new) => {
                assert_eq!(new, !known, "{number}");
                self.new += u64::from(new);
                *self.added.entry(number).or_default() += 1;
            }
            Err(error) => {
                let counts = self.filter.counts();
                assert!(full && (counts || !known), "{number} was refused: {error:?}");
                let scales = self.filter.expansion().factor().is_some();
                let expected = match error {
                    Error::Full => !scales,
                    Error::Ceiling { wanted, ceiling } => scales && wanted > ceiling,
                    _ => false,
                };
                assert!(expected, "{number} was refused: {error:?}");
            }
        }
    }

    /// Adds one item, with room for `ceiling` bytes of bits.
    fn add(&mut self, number: Number, ceiling: u64) -> Result<bool, Error> {
        let hash = self.hash(number);
        let known = self.filter.contains(hash);
        let counts = self.filter.counts();
        // A filter with counters always adds to the newest layer, whatever the others hold.
        let full =
            self.filter.newest().is_full() && !(counts && self.filter.newest().contains(hash));
        // Compares strings only where a change is most likely: comparing after each present item of
        // a large filter would take minutes.
        let compared = full || (known && self.filter.bit_bytes() < 2_000);
        let before = compared.then(|| stored(&self.filter));
        let size = self.filter.bit_bytes();
        let answer = self.filter.add(hash, |demand| {
            assert_eq!(demand.present, size);
            ceiling
        });
        self.note(number, known, full, answer);
        if let Some(before) = before
            && (answer.is_err() || !(counts || answer == Ok(true)))
        {
            assert_eq!(stored(&self.filter), before, "an answer of {answer:?} changed the filter");
        }
        let grown = self.filter.bit_bytes();
        assert!(grown == size || grown <= ceiling, "{size} bytes became {grown} under {ceiling}");
        answer
    }

    /// Adds a batch, and the same items one by one to a copy.
    fn add_each(&mut self, numbers: &[Number], ceiling: u64) {
        let mut answers = Vec::new();
        let items: Vec<Vec<u8>> = numbers.iter().map(|&number| bytes(number)).collect();
        let copy = stored(&self.filter).filter();
        let outcome = self.filter.add_each(
            items.iter().map(Vec::as_slice),
            |_| ceiling,
            |new| answers.extend(new.each().map(Ok)),
        );
        answers.extend(outcome.err().map(Err));

        let mut alone = Vec::new();
        let batch = std::mem::replace(&mut self.filter, copy);
        for &number in numbers {
            let answer = self.add(number, ceiling);
            alone.push(answer);
            if answer.is_err() {
                break;
            }
        }
        assert_eq!(answers, alone, "a batch of {}", numbers.len());
        assert_eq!(stored(&batch), stored(&self.filter), "a batch of {}", numbers.len());
        self.filter = batch;
    }

    /// Deletes a batch, and the same items one by one from a copy. Items that were not added are
    /// left out.
    fn delete_each(&mut self, numbers: &[Number]) {
        let mut left = self.added.clone();
        let numbers: Vec<Number> = numbers
            .iter()
            .copied()
            .filter(|number| {
                left.get_mut(number).is_some_and(|count| {
                    let any = *count > 0;
                    *count -= u64::from(any);
                    any
                })
            })
            .collect();
        let items: Vec<Vec<u8>> = numbers.iter().map(|&number| bytes(number)).collect();
        let mut copy = stored(&self.filter).filter();
        let mut answers = Vec::new();
        self.filter.delete_each(items.iter().map(Vec::as_slice), |gone| {
            answers.extend(gone.each());
        });
        let alone: Vec<bool> = numbers
            .iter()
            .map(|&number| {
                let before = stored(&copy);
                let holding = copy.layers().filter(|layer| layer.contains(self.hash(number)));
                let holding = holding.count();
                let gone = copy.delete(self.hash(number));
                assert!(!gone || holding == 1, "{number} of {holding} layers");
                assert_eq!(gone, stored(&copy) != before, "{number}: {gone}");
                gone
            })
            .collect();
        assert_eq!(answers, alone, "a batch of {}", numbers.len());
        assert_eq!(stored(&copy), stored(&self.filter), "a batch of {}", numbers.len());
        for (number, _) in numbers.iter().zip(&answers).filter(|(_, gone)| **gone) {
            let count = self.added.get_mut(number).expect("it was added");
            *count -= 1;
            if *count == 0 {
                self.added.remove(number);
            }
        }
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
            Step::Add(number) => {
                let _ = self.add(*number, CEILING);
            }
            Step::AddEach(numbers) => self.add_each(numbers, CEILING),
            Step::AddWithin(room, number, numbers) => {
                let ceiling = self.filter.bit_bytes() + room;
                let _ = self.add(*number, ceiling);
                self.add_each(numbers, ceiling);
            }
            Step::Contains(number) => {
                let found = self.filter.contains(self.hash(*number));
                assert!(found || !self.added.contains_key(number), "a false negative: {number}");
            }
            Step::ContainsEach(numbers) => self.contains_each(numbers),
            Step::DeleteEach(numbers) if self.filter.counts() => self.delete_each(numbers),
            Step::DeleteEach(numbers) => {
                let before = stored(&self.filter);
                for &number in numbers {
                    assert!(!self.filter.delete(self.filter.hash(&bytes(number))), "bits stay");
                }
                assert_eq!(stored(&self.filter), before);
            }
            Step::Store => {
                let strings = stored(&self.filter);
                let numbers = numbers_of(&self.filter);
                self.filter = strings.filter();
                assert_eq!((stored(&self.filter), numbers_of(&self.filter)), (strings, numbers));
            }
            Step::Dump => {
                let strings = stored(&self.filter);
                let numbers = numbers_of(&self.filter);
                self.filter = dumped(&self.filter);
                assert_eq!((stored(&self.filter), numbers_of(&self.filter)), (strings, numbers));
            }
            Step::Duplicate => {
                let numbers = numbers_of(&self.filter);
                self.filter = self.filter.duplicate().expect("memory for a small filter");
                assert_eq!(numbers_of(&self.filter), numbers);
            }
        }
    }

    /// Checks the invariants that hold after every step.
    fn check(&self) {
        if !self.filter.counts() {
            assert_eq!(self.filter.items(), self.new);
            assert!(self.new <= self.added.len() as u64);
        }
        for layer in self.filter.layers() {
            assert_eq!(layer.is_full(), layer.items() >= layer.capacity());
            if layer.counts() {
                assert_eq!(
                    layer.counting().map(CountingLayer::nonzero),
                    counters(layer, |counter| counter > 0)
                );
                assert_eq!(
                    layer.counting().map(CountingLayer::saturated),
                    counters(layer, |counter| counter == 15)
                );
            }
        }
        assert!(self.filter.items() <= self.filter.capacity());
        let plan = Plan::of(&self.filter);
        assert_eq!(plan.check(), Ok(()));
        assert_eq!(plan.bit_bytes(), self.filter.bit_bytes());
    }

    /// Checks that all added items are found, one by one and in a batch.
    fn check_all(&self) {
        for (&number, &count) in &self.added {
            let hash = self.hash(number);
            assert!(self.filter.contains(hash), "a false negative: {number}");
            let counted = self.filter.count(hash);
            assert!(
                !self.filter.counts() || counted >= count.min(15),
                "{number}: {counted} for {count}"
            );
        }
        let numbers: Vec<Number> = self.added.keys().copied().collect();
        self.contains_each(&numbers);
    }
}

/// Figures of each layer that are not stored but follow from the stored data: items, counters above
/// 0, counters at 15.
fn numbers_of(filter: &Filter) -> Vec<(u64, Option<u64>, Option<u64>)> {
    let numbers = |layer: &Layer| {
        let counting = layer.counting();
        let nonzero = counting.map(CountingLayer::nonzero);
        (layer.items(), nonzero, counting.map(CountingLayer::saturated))
    };
    filter.layers().map(numbers).collect()
}

/// The number of counters of a layer that satisfy `such`.
fn counters(layer: &Layer, such: fn(u64) -> bool) -> Option<u64> {
    let words = layer.bits().words().iter();
    let counters = words.flat_map(|word| (0..16).map(move |i| word >> (4 * i) & 15));
    Some(counters.filter(|&counter| such(counter)).count() as u64)
}

/// The filter, dumped and loaded again.
fn dumped(filter: &Filter) -> Filter {
    let (mut iterator, header) = dump::header(filter);
    let mut load = Load::begin(&header, u64::MAX).expect("its own header");
    loop {
        let (next, data) = dump::at(filter, iterator).expect("a chunk before the end");
        if load.take(next, &data).expect("its own chunk") == Taken::Last {
            assert_eq!(dump::at(filter, next), None, "a chunk behind the end");
            return load.into_filter();
        }
        iterator = next;
    }
}

proptest! {
    #![proptest_config(Config {
        cases: 2_000,
        rng_seed: RngSeed::Fixed(0xB100_F117),
        failure_persistence: None,
        ..Config::default()
    })]

    #[test]
    fn no_sequence_of_operations_makes_a_filter_forget(
        rate in rate(),
        capacity in prop_oneof![1..=8_u64, 1..=80_u64, 1..=400_u64],
        expansion in prop_oneof![
            2 => Just(0_u64),
            2 => Just(1),
            3 => Just(2),
            1 => 3..=10_u64,
            1 => Just(32_768),
        ],
        cells in prop::sample::select(CELLS.to_vec()),
        seed: u64,
        steps in vec(step(), 1..40),
    ) {
        let mut model = Model {
            filter: filter(&Params { cells, ..params(rate, capacity, expansion, seed) }),
            added: HashMap::new(),
            new: 0,
        };
        for step in &steps {
            model.step(step);
            model.check();
            if cells == CellKind::Counters {
                model.check_all();
            }
        }
        model.check_all();
    }
}
