//! Random operations for `model.rs`.

use proptest::{collection::vec, prelude::*};

/// Items are numbers of 16 bits, so few that many are added twice.
pub(crate) type Number = u16;

/// An operation.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Add(Number),
    AddEach(Vec<Number>),
    Contains(Number),
    ContainsEach(Vec<Number>),
    /// Saves and loads the strings of an RDB.
    Store,
    /// Saves and loads the chunks of a dump.
    Dump,
    Duplicate,
}

/// The bytes of an item, of all lengths up to 302, for every path of the hash.
pub(crate) fn bytes(number: Number) -> Vec<u8> {
    let mut bytes = vec![(number >> 8) as u8; usize::from(number % 301)];
    bytes.extend(number.to_le_bytes());
    // Number 0 is the empty item.
    if number == 0 { Vec::new() } else { bytes }
}

/// A batch.
fn numbers() -> impl Strategy<Value = Vec<Number>> {
    // Sizes around the chunk of 64, and around two chunks.
    let size = prop_oneof![0..8_usize, 60..70_usize, 120..140_usize, 0..300_usize];
    size.prop_flat_map(|size| vec(number(), size))
}

/// A third of the numbers are small, so that they repeat.
fn number() -> impl Strategy<Value = Number> {
    prop_oneof![1 => 0..64_u16, 2 => any::<Number>()]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => number().prop_map(Step::Add),
        4 => numbers().prop_map(Step::AddEach),
        2 => number().prop_map(Step::Contains),
        2 => numbers().prop_map(Step::ContainsEach),
        1 => Just(Step::Store),
        1 => Just(Step::Dump),
        1 => Just(Step::Duplicate),
    ]
}

/// Rates of all magnitudes, common ones most often.
pub(crate) fn rate() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => prop::sample::select(vec![0.5, 0.25, 0.1, 0.05, 0.01, 0.001, 0.000_1, 1e-6]),
        1 => prop::sample::select(vec![0.999_999, 0.99, 0.9, 1e-9, 1e-15, 1e-30, 1e-300, 5e-324]),
        2 => (0.01..30.0_f64).prop_map(|exponent| 10f64.powf(-exponent)),
    ]
}
