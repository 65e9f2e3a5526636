//! Shared by the tests of the filter and of the codec: items, filters, and strings to store filters
//! in.

use redis_bloom::{
    codec::{
        Error,
        io::{Sink, Source},
        native::{Load, Stored, rdb},
    },
    filter::{Expansion, Family, Filter, Params, Rules, Span, Valkey},
};

/// Item number `number` of the set `set`: distinct for distinct arguments, 16 bytes.
pub(crate) fn item(set: u64, number: u64) -> [u8; 16] {
    (u128::from(set) << 64 | u128::from(number)).to_le_bytes()
}

/// Parameters of a filter of bits; an expansion of 0 makes it non-scaling.
pub(crate) fn params(error_rate: f64, capacity: u64, expansion: u64, seed: u64) -> Params {
    let expansion = Expansion::new(expansion).expect("an expansion in range");
    Params { error_rate, capacity, expansion, seed, counts: false, shard: None }
}

/// An empty filter without a ceiling.
#[track_caller]
pub(crate) fn filter(params: &Params) -> Filter {
    Filter::new(params, u64::MAX).unwrap_or_else(|error| panic!("{params:?}: {error}"))
}

/// An empty filter of valkey-bloom, which grows by layers.
#[track_caller]
pub(crate) fn stack(params: &Params) -> Filter {
    let valkey = Valkey { seed: [7; 32], tightening: 0.5 };
    Filter::of_family(Family::Valkey(valkey), params, u64::MAX)
        .unwrap_or_else(|error| panic!("{params:?}: {error}"))
}

/// A window of time, divided into `generations`.
pub(crate) fn time(milliseconds: u64, generations: u8, refresh: bool) -> Rules {
    Rules { span: Span::Time(milliseconds), generations, refresh }
}

/// Adds one item without a ceiling; returns whether it was new.
#[track_caller]
pub(crate) fn add(filter: &mut Filter, item: &[u8]) -> bool {
    let hash = filter.hash(item);
    filter.add(hash, |_| u64::MAX).expect("room for the item")
}

/// Whether the filter holds the item.
pub(crate) fn has(filter: &Filter, item: &[u8]) -> bool {
    filter.contains(filter.hash(item))
}

/// Adds the items of `set` in order until `count` items are counted; returns how many were added.
#[track_caller]
pub(crate) fn fill(filter: &mut Filter, set: u64, count: u64) -> u64 {
    let mut number = 0;
    while filter.items() < count {
        add(filter, &item(set, number));
        number += 1;
        // A filter with too few bits saturates and counts no more items.
        assert!(number < 100 * count + 1_000_000, "{number} items make no {count}");
    }
    number
}

/// The filter of layers that a load has become.
#[track_caller]
pub(crate) fn layers(mut load: Load) -> Filter {
    match load.finish() {
        Ok(Stored::Layers(filter)) => filter,
        other => panic!("not a complete filter: {other:?}"),
    }
}

/// Stored strings that can be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Strings(pub(crate) Vec<Vec<u8>>);

impl Sink for Strings {
    fn put(&mut self, bytes: &[u8]) {
        self.0.push(bytes.to_vec());
    }
}

/// Reads the strings one by one.
pub(crate) struct Reading<'a>(pub(crate) std::slice::Iter<'a, Vec<u8>>);

impl<'a> Source for Reading<'a> {
    type Piece = &'a Vec<u8>;

    fn next(&mut self) -> Result<Self::Piece, Error> {
        self.0.next().ok_or(Error::Truncated)
    }
}

impl Strings {
    /// The RDB strings of a complete filter.
    pub(crate) fn of(filter: &Filter) -> Self {
        let mut strings = Self::default();
        rdb::save(filter, &mut strings);
        strings
    }

    /// The complete filter that the strings hold.
    #[track_caller]
    pub(crate) fn filter(&self) -> Filter {
        match rdb::load(&mut Reading(self.0.iter()), u64::MAX) {
            Ok(Stored::Layers(filter)) => filter,
            other => panic!("not a complete filter: {other:?}"),
        }
    }
}
