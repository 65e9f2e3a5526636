//! Files and blobs that would harm a reader that believes them.

use redis_bloom::{
    codec::{Error, valkey_bloom},
    filter::Error as FilterError,
};

use super::{CASES, SEED, fields, model};
use crate::{allocation::peak, redisbloom::product::Value, sane};

/// Offsets in a blob of one layer.
const VERSION: usize = 0;
const EXPANSION: usize = 1;
const RATE: usize = 5;
const TIGHTENING: usize = 13;
const RANDOM: usize = 21;
const LAYERS: usize = 22;
const LENGTH: usize = 30;
const BITMAP: usize = 38;
const BYTES: usize = BITMAP + 1;
const PROBES: usize = BITMAP + 9;
/// After a bitmap of 45 bytes of header and 120 bytes of bits.
const ITEMS: usize = BITMAP + 45 + 120;
const CAPACITY: usize = ITEMS + 8;

/// The most memory a refusal may take; the largest input below is under 1 kB.
const MOST: usize = 64 << 10;

/// The blob of a filter of one layer: capacity 100, rate 0.01, 60 items.
fn one() -> Vec<u8> {
    model(CASES[1], &SEED).blob()
}

#[test]
fn forged_numbers_are_refused_in_bounded_memory() {
    let blob = one();
    assert_eq!(blob.len(), CAPACITY + 8);
    let numbers = |number: u64| number.to_le_bytes().to_vec();
    let doubles = |number: f64| number.to_le_bytes().to_vec();
    let mut cases: Vec<(usize, Vec<u8>)> = vec![
        (VERSION, vec![0]),
        (VERSION, vec![2]),
        (RANDOM, vec![0]),
        (RANDOM, vec![2]),
        (BITMAP, vec![0]),
        (BITMAP, vec![2]),
        (EXPANSION, vec![0, 0, 0, 0]),
    ];
    // Expansion 0 gives a valid non-scaling filter.
    let nonscaling = cases.pop().expect("a case");
    for number in [0, 2, 3, 1 << 18, (1 << 18) + 1, 1 << 31, 1 << 60, u64::MAX] {
        cases.push((LAYERS, numbers(number)));
    }
    for number in [0, 1, 44, 45, 164, 166, 330, 1 << 31, 1 << 63, u64::MAX] {
        cases.push((LENGTH, numbers(number)));
    }
    for number in [0, 1, 119, 121, 240, 1 << 61, u64::MAX] {
        cases.push((BYTES, numbers(number)));
    }
    for number in [0_u32, 1, 6, 8, 255, 1_101, 65_543, u32::MAX] {
        cases.push((PROBES, number.to_le_bytes().to_vec()));
    }
    for rate in [0.0, -0.0, -0.1, 1.0, 1.1, 0.02, 0.009, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]
    {
        cases.push((RATE, doubles(rate)));
    }
    for ratio in [0.0, 1.0, -1.0, 2.0, f64::NAN, f64::INFINITY] {
        cases.push((TIGHTENING, doubles(ratio)));
    }
    for number in [101, 1 << 62, 1 << 63, u64::MAX] {
        cases.push((ITEMS, numbers(number)));
    }
    for number in [0, 1, 59, 99, 101, 1 << 62, 1 << 63, u64::MAX] {
        cases.push((CAPACITY, numbers(number)));
    }
    let patched = |(at, new): &(usize, Vec<u8>)| {
        let mut blob = blob.clone();
        blob[*at..*at + new.len()].copy_from_slice(new);
        blob
    };
    for case in &cases {
        let blob = patched(case);
        let (refused, memory) =
            peak(|| valkey_bloom::read_blob(&blob, u64::MAX).map(|filter| filter.items()));
        assert!(refused.is_err(), "{case:?}: {refused:?}");
        assert!(memory < MOST, "{case:?}: {memory} bytes");
    }
    assert!(valkey_bloom::read_blob(&patched(&nonscaling), u64::MAX).is_ok());
    assert!(valkey_bloom::read_blob(&blob, u64::MAX).is_ok());
}

#[test]
fn truncated_blobs_and_trailing_bytes_are_refused() {
    for case in [CASES[1], CASES[2]] {
        let blob = model(case, &SEED).blob();
        for length in 0..blob.len() {
            let refused =
                valkey_bloom::read_blob(&blob[..length], u64::MAX).map(|filter| filter.items());
            assert!(refused.is_err(), "{length} of {} bytes: {refused:?}", blob.len());
        }
        let more = [blob.as_slice(), &[0]].concat();
        assert_eq!(
            valkey_bloom::read_blob(&more, u64::MAX).map(|f| f.items()),
            Err(Error::Malformed("bytes behind the end"))
        );
        let fields = fields(&model(case, &SEED));
        for length in 0..fields.0.len() {
            let fields = crate::redisbloom::product::Fields(fields.0[..length].to_vec());
            let refused =
                valkey_bloom::load(&mut fields.read(), u64::MAX).map(|filter| filter.items());
            assert_eq!(refused, Err(Error::Truncated), "{length} values");
        }
    }
}

#[test]
fn every_changed_byte_is_refused_or_makes_a_sound_filter() {
    let blob = model((20, 0.05, 0.5, 2, 50), &SEED).blob();
    for at in 0..blob.len() {
        for change in [1, 0x80, 0xff] {
            let mut blob = blob.clone();
            blob[at] ^= change;
            if let Ok(mut filter) = valkey_bloom::read_blob(&blob, 1 << 20) {
                sane::check_filter(&mut filter, 1 << 20);
            }
        }
    }
}

#[test]
fn layers_with_different_seeds_are_refused() {
    let mut fields = fields(&model(CASES[2], &SEED));
    let Value::String(bitmap) = &mut fields.0[8] else {
        panic!("the second bitmap");
    };
    bitmap[13] ^= 1;
    let refused = valkey_bloom::load(&mut fields.read(), u64::MAX).map(|filter| filter.items());
    assert_eq!(refused, Err(Error::Malformed("a layer with another seed than its filter")));
}

/// Development builds of valkey-bloom stored the bitmap before the capacity, and the items last.
#[test]
fn the_order_of_development_builds_is_refused() {
    for case in [CASES[1], CASES[2]] {
        let model = model(case, &SEED);
        let mut fields = fields(&model);
        let items = fields.0.remove(fields.0.len() - 2);
        for layer in fields.0[5..].chunks_exact_mut(2) {
            layer.swap(0, 1);
        }
        fields.0.push(items);
        let refused = valkey_bloom::load(&mut fields.read(), u64::MAX).map(|filter| filter.items());
        assert_eq!(refused, Err(Error::Truncated));
    }
}

#[test]
fn a_ceiling_is_respected_and_reported() {
    let blob = model(CASES[2], &SEED).blob();
    let bytes = valkey_bloom::read_blob(&blob, u64::MAX).expect("a filter").bit_bytes();
    assert!(valkey_bloom::read_blob(&blob, bytes).is_ok());
    let refused = valkey_bloom::read_blob(&blob, bytes - 1).map(|filter| filter.items());
    let (wanted, ceiling) = (bytes, bytes - 1);
    assert_eq!(refused, Err(Error::Filter(FilterError::Ceiling { wanted, ceiling })));
}
