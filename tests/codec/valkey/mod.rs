//! Filters of valkey-bloom: they give its answers item by item, grow as it does, and are written
//! back to its format unchanged. Forged ones are refused.

mod hostile;
mod model;
mod released;

use redis_bloom::{
    codec::{
        io::{NumberSink, Sink},
        native::{Load, Taken, dump},
        valkey_bloom,
    },
    filter::{Error as FilterError, Expansion, FIXED_SEED, Family, Filter, Params, Valkey},
};

use crate::{
    allocation::peak,
    redisbloom::product::{Fields, Value},
    sane,
    support::{Strings, layers},
};
use model::{Model, Part};

const SEED: [u8; 32] = *b"0123456789abcdefFEDCBA9876543210";

/// Filters of every kind: capacity, rate, tightening ratio, expansion, number of added items.
const CASES: [(i64, f64, f64, u32, u32); 9] = [
    (100, 0.01, 0.5, 2, 0),
    (100, 0.01, 0.5, 2, 60),
    (50, 0.05, 0.5, 3, 900),
    (1, 0.5, 0.9, 1, 40),
    (7, 0.3, 0.85, 2, 2_000),
    (200, 0.02, 0.5, 0, 150),
    (200, 0.02, 0.5, 0, 400),
    (10, 1e-9, 0.1, 100, 500),
    (3, 0.999, 0.5, 70_000, 100),
];

fn model(case: (i64, f64, f64, u32, u32), seed: &[u8; 32]) -> Model {
    let (capacity, rate, tightening, expansion, items) = case;
    let mut model = Model::new(capacity, rate, tightening, expansion, seed);
    for number in 0..items {
        model.add(format!("item-{number}").as_bytes());
    }
    model
}

/// Compares the answers for present and absent items with the model, item by item.
#[track_caller]
fn check_answers(filter: &Filter, model: &Model) {
    let items: i64 = model.layers.iter().map(|layer| layer.items).sum();
    assert_eq!(filter.items(), items as u64);
    assert_eq!(filter.layers().len(), model.layers.len());
    for (prefix, count) in [("item", 2_100), ("absent", 3_000), ("later", 300)] {
        let items: Vec<_> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
        let expected: Vec<_> = items.iter().map(|item| model.has(item.as_bytes())).collect();
        let mut batch = Vec::new();
        filter.contains_each(items.iter().map(String::as_bytes), |found| {
            batch.extend(found.each());
        });
        assert_eq!(batch, expected, "{prefix} in a batch");
        let one_by_one = items.iter().map(|item| filter.contains(filter.hash(item.as_bytes())));
        assert_eq!(one_by_one.collect::<Vec<_>>(), expected, "{prefix}");
    }
}

/// Adds the later items and compares each answer with the model, growth included.
#[track_caller]
fn add_later_items(filter: &mut Filter, model: &mut Model) {
    for number in 0..300 {
        let item = format!("later-{number}");
        let answer = match filter.add(filter.hash(item.as_bytes()), |_| u64::MAX) {
            Ok(new) => Some(new),
            Err(FilterError::Full) => None,
            Err(error) => panic!("{item}: {error}"),
        };
        assert_eq!(answer, model.add(item.as_bytes()), "{item}");
    }
    check_answers(filter, model);
}

/// The values of an RDB, in the order of `tests/fixtures/README.md`.
fn fields(model: &Model) -> Fields {
    let mut fields = vec![
        Value::Unsigned(model.layers.len() as u64),
        Value::Unsigned(model.expansion.into()),
        Value::Double(model.rate),
        Value::Double(model.tightening),
        Value::Unsigned(model.random.into()),
    ];
    let (last, full) = model.layers.split_last().expect("a layer");
    let bitmap = |layer: &Part| Value::String(layer.bloom.as_slice().to_vec());
    for layer in full {
        fields.extend([Value::Unsigned(layer.capacity as u64), bitmap(layer)]);
    }
    fields.push(Value::Unsigned(last.capacity as u64));
    fields.extend([Value::Unsigned(last.items as u64), bitmap(last)]);
    Fields(fields)
}

struct Written(Vec<Value>);

impl Sink for Written {
    fn put(&mut self, bytes: &[u8]) {
        self.0.push(Value::String(bytes.to_vec()));
    }
}

impl NumberSink for Written {
    fn unsigned(&mut self, number: u64) {
        self.0.push(Value::Unsigned(number));
    }

    fn double(&mut self, number: f64) {
        self.0.push(Value::Double(number));
    }
}

#[test]
#[cfg_attr(target_endian = "big", ignore = "the crate of the model hashes otherwise there")]
fn a_file_answers_and_grows_as_in_valkey_bloom_and_is_written_back() {
    for case in CASES {
        let mut model = model(case, &SEED);
        let fields = fields(&model);
        let mut filter = valkey_bloom::load(&mut fields.read(), u64::MAX)
            .unwrap_or_else(|e| panic!("{case:?}: {e}"));
        check_answers(&filter, &model);
        let mut written = Written(Vec::new());
        valkey_bloom::save(&filter, &mut written);
        assert_eq!(Fields(written.0), fields, "{case:?}");
        add_later_items(&mut filter, &mut model);
    }
}

#[test]
#[cfg_attr(target_endian = "big", ignore = "the crate of the model hashes otherwise there")]
fn a_blob_answers_and_grows_as_in_valkey_bloom_and_is_written_back() {
    for case in CASES {
        let mut model = model(case, &FIXED_SEED);
        model.random = false;
        let mut filter = valkey_bloom::read_blob(&model.blob(), u64::MAX)
            .unwrap_or_else(|e| panic!("{case:?}: {e}"));
        check_answers(&filter, &model);
        assert_eq!(valkey_bloom::blob(&filter).expect("a blob"), model.blob(), "{case:?}");
        add_later_items(&mut filter, &mut model);
        assert_eq!(valkey_bloom::blob(&filter).expect("a blob"), model.blob(), "{case:?}");
        let copy = filter.duplicate().expect("memory");
        assert_eq!(valkey_bloom::blob(&copy), valkey_bloom::blob(&filter), "{case:?}");
        sane::check_filter(&mut filter, u64::MAX);
    }
}

/// A sink that records only the length of the longest string.
struct Longest(usize);

impl Sink for Longest {
    fn put(&mut self, bytes: &[u8]) {
        self.0 = self.0.max(bytes.len());
    }
}

impl NumberSink for Longest {
    fn unsigned(&mut self, _: u64) {}

    fn double(&mut self, _: f64) {}
}

/// A saving child allocates one copy of each string that it writes: of a layer for an RDB, of the
/// whole filter for a blob.
#[test]
fn saving_allocates_one_copy_of_each_string() {
    // Layers of 60 kB to 2 MB, with a number of bytes that is not a multiple of 8.
    let params = Params {
        counts: false,
        shard: None,
        error_rate: 0.01,
        capacity: 50_001,
        expansion: Expansion::stored(2),
        seed: 0,
    };
    let mut filter =
        Filter::of_family(Family::Valkey(Valkey::default()), &params, u64::MAX).expect("a filter");
    for _ in 0..4 {
        filter.grow(|_| u64::MAX).expect("a layer");
    }
    // In addition to the copy: nothing that grows with the filter.
    let most = |bytes: usize| bytes + 100;
    let (blob, bytes) = peak(|| valkey_bloom::blob(&filter));
    let blob = blob.expect("a blob");
    assert_eq!(blob.capacity(), blob.len());
    assert!(bytes <= most(blob.len()), "{bytes} bytes for a blob of {}", blob.len());
    let (longest, bytes) = peak(|| {
        let mut longest = Longest(0);
        valkey_bloom::save(&filter, &mut longest);
        longest.0
    });
    assert!(longest > 1 << 20, "{longest}");
    assert!(bytes <= most(longest), "{bytes} bytes for a bitmap of {longest}");
}

#[test]
#[cfg_attr(target_endian = "big", ignore = "the crate of the model hashes otherwise there")]
fn a_new_filter_equals_that_of_valkey_bloom() {
    for (capacity, error_rate, tightening, expansion, _) in CASES {
        let mut model = Model::new(capacity, error_rate, tightening, expansion, &SEED);
        let params = Params {
            counts: false,
            shard: None,
            error_rate,
            capacity: capacity as u64,
            expansion: Expansion::stored(expansion),
            seed: 0,
        };
        let family = Valkey { seed: SEED, tightening };
        let mut filter =
            Filter::of_family(Family::Valkey(family), &params, u64::MAX).expect("a filter");
        assert_eq!((filter.family(), filter.params()), (Family::Valkey(family), params));
        assert_eq!(valkey_bloom::blob(&filter).expect("a blob"), model.blob());
        add_later_items(&mut filter, &mut model);
    }
}

#[test]
fn layer_sizes_are_those_of_the_crate_bloomfilter() {
    let mut rate = 0.97_f64;
    let mut cases = 0;
    while rate > 1e-12 {
        for capacity in (1..60).chain((60..40_000).step_by(997)) {
            let bloom =
                bloomfilter::Bloom::<[u8]>::new_for_fp_rate_with_seed(capacity, rate, &SEED);
            let bloom = bloom.expect("a filter");
            let params = Params {
                counts: false,
                shard: None,
                error_rate: rate,
                capacity: capacity as u64,
                expansion: Expansion::NONSCALING,
                seed: 0,
            };
            let filter = Filter::of_family(Family::Valkey(Valkey::default()), &params, u64::MAX)
                .expect("a filter");
            let shape = filter.newest().shape();
            let found = (filter.newest().bits().words().len() as u64, u32::from(shape.probes()));
            let expected = (bloom.len().div_ceil(64), bloom.number_of_hash_functions());
            assert_eq!(found, expected, "{capacity} at {rate}");
            cases += 1;
        }
        rate *= 0.731;
    }
    assert!(cases > 7_000, "{cases}");
}

#[test]
#[cfg_attr(target_endian = "big", ignore = "the crate of the model hashes otherwise there")]
fn native_encodings_keep_every_field() {
    for case in CASES {
        let mut model = model(case, &SEED);
        let filter = valkey_bloom::read_blob(&model.blob(), u64::MAX).expect("a filter");
        // The RDB of the type `MBbloom--`, for servers where another module has `bloomfltr`.
        let mut stored = Strings::of(&filter).filter();
        assert_eq!(valkey_bloom::blob(&stored).expect("a blob"), model.blob(), "{case:?}");
        // BF.SCANDUMP and BF.LOADCHUNK.
        let (mut iterator, header) = dump::header(&filter);
        let mut load = Load::begin(&header, u64::MAX).expect("a header");
        let mut taken = Taken::Next;
        while let Some((next, data)) = dump::at(&filter, iterator) {
            taken = load
                .take(next, &data, |_| u64::MAX)
                .unwrap_or_else(|error| panic!("{case:?}: {error}"));
            iterator = next;
        }
        assert_eq!(taken, Taken::Last, "{case:?}");
        assert_eq!(valkey_bloom::blob(&layers(load)).expect("a blob"), model.blob(), "{case:?}");
        add_later_items(&mut stored, &mut model);
    }
}
