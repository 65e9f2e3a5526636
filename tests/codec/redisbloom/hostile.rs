//! Inputs that crashed, hung or fooled RedisBloom, and similar ones: each is refused before it
//! takes memory or time.

use redis_bloom::{
    codec::{Error, native::Load, redisbloom},
    filter::Error as FilterError,
};

use super::product::{self, Fields, Value};
use crate::{allocation::peak, sane};

/// Indexes of the values in a file of version 4: of the filter, then of its first layer.
const SIZE: usize = 0;
const LAYERS: usize = 1;
const OPTIONS: usize = 2;
const GROWTH: usize = 3;
const CAPACITY: usize = 4;
const RATE: usize = 5;
const HASHES: usize = 6;
const BPE: usize = 7;
const BITS: usize = 8;
const N2: usize = 9;
const STRING: usize = 10;
const ITEMS: usize = 11;

/// A filter of one layer: capacity 100, rate 0.01, 60 items, 144 bytes.
const ONE: &str = "redisbloom-2.8-one-layer";
/// A filter of two layers whose bits are rounded to a power of two.
const ROUNDED: &str = "redisbloom-2.8-rounded-64";

/// The most memory a refusal may take; the largest input below is 3 kB.
const MOST: usize = 64 << 10;

const FORGED: Error = Error::Malformed("a layer that RedisBloom does not compute from its numbers");
const SUM: Error = Error::Malformed("a count that is not the sum of the layers' counts");
const UNKNOWN: Error = Error::Malformed("options that RedisBloom does not write");
const ITEMS_OUT: Error =
    Error::Filter(FilterError::Impossible("a layer with too many items or too few"));

fn rate(rate: f64) -> Error {
    FilterError::ErrorRate(rate).into()
}

#[test]
fn forged_values_are_refused() {
    use Value::{Double, String, Unsigned};
    let many = Error::Filter(FilterError::Layers);
    let cases: &[(&str, usize, Value, Error)] = &[
        // Counts: RedisBloom allocated by them.
        (ONE, LAYERS, Unsigned(0), many),
        (ONE, LAYERS, Unsigned(2), Error::Truncated),
        (ONE, LAYERS, Unsigned(1 << 18), Error::Truncated),
        (ONE, LAYERS, Unsigned(i32::MAX as u64), many),
        (ONE, LAYERS, Unsigned(1 << 60), many),
        (ONE, LAYERS, Unsigned(u64::MAX), many),
        // A string whose length does not follow from capacity and rate.
        (ONE, STRING, String(vec![]), FORGED),
        (ONE, STRING, String(vec![0]), FORGED),
        (ONE, STRING, String(vec![0; 143]), FORGED),
        (ONE, STRING, String(vec![0; 145]), FORGED),
        (ONE, STRING, String(vec![0; 288]), FORGED),
        (ROUNDED, STRING, String(vec![0; 127]), FORGED),
        (ROUNDED, STRING, String(vec![0; 64]), FORGED),
        // More bits than the string has: RedisBloom accessed memory out of bounds.
        (ONE, BITS, Unsigned(0), FORGED),
        (ONE, BITS, Unsigned(1_153), FORGED),
        (ONE, BITS, Unsigned(1_152 + 64), FORGED),
        (ONE, BITS, Unsigned(1 << 63), FORGED),
        (ONE, BITS, Unsigned(u64::MAX), FORGED),
        (ROUNDED, BITS, Unsigned(2_048), FORGED),
        // A shift by 64 or more, or a power of two that the string does not have.
        (ONE, N2, Unsigned(1), FORGED),
        (ONE, N2, Unsigned(63), FORGED),
        (ONE, N2, Unsigned(64), FORGED),
        (ONE, N2, Unsigned(65), FORGED),
        (ONE, N2, Unsigned(127), FORGED),
        (ONE, N2, Unsigned(255), FORGED),
        (ONE, N2, Unsigned(1 << 32), FORGED),
        (ROUNDED, N2, Unsigned(9), FORGED),
        (ROUNDED, N2, Unsigned(11), FORGED),
        // Too many or too few probes.
        (ONE, HASHES, Unsigned(0), FORGED),
        (ONE, HASHES, Unsigned(7), FORGED),
        (ONE, HASHES, Unsigned(i32::MAX as u64), FORGED),
        (ONE, HASHES, Unsigned(1 << 31), FORGED),
        (ONE, HASHES, Unsigned((1 << 32) + 8), FORGED),
        (ONE, BPE, Double(1e18), FORGED),
        (ONE, BPE, Double(f64::NAN), FORGED),
        (ONE, BPE, Double(f64::INFINITY), FORGED),
        (ONE, BPE, Double(-11.03), FORGED),
        (ONE, BPE, Double(0.0), FORGED),
        // Rates.
        (ONE, RATE, Double(0.0), rate(0.0)),
        (ONE, RATE, Double(1.0), rate(1.0)),
        (ONE, RATE, Double(-0.01), rate(-0.01)),
        (ONE, RATE, Double(f64::INFINITY), rate(f64::INFINITY)),
        (ONE, RATE, Double(5e-324), FORGED),
        (ONE, RATE, Double(0.999), FORGED),
        // Capacities and counts.
        (ONE, CAPACITY, Unsigned(0), FORGED),
        (ONE, CAPACITY, Unsigned(50), FORGED),
        (ONE, CAPACITY, Unsigned(1 << 60), FORGED),
        (ONE, CAPACITY, Unsigned(u64::MAX), FORGED),
        (ONE, SIZE, Unsigned(61), SUM),
        (ONE, SIZE, Unsigned(1 << 63), SUM),
        (ONE, SIZE, Unsigned(u64::MAX), SUM),
        (ONE, ITEMS, Unsigned(61), SUM),
        (ONE, ITEMS, Unsigned(u64::MAX), SUM),
        // Options that no version writes, and a growth factor above 32 bits.
        (ONE, OPTIONS, Unsigned(2), UNKNOWN),
        (ONE, OPTIONS, Unsigned(7), UNKNOWN),
        (ONE, OPTIONS, Unsigned(16), UNKNOWN),
        (ONE, OPTIONS, Unsigned(u64::MAX), UNKNOWN),
        (ONE, GROWTH, Unsigned(1 << 32), FilterError::Expansion(1 << 32).into()),
        // Values of another type.
        (ONE, STRING, Unsigned(0), Error::Truncated),
        (ONE, RATE, Unsigned(0), Error::Truncated),
        (ONE, CAPACITY, Double(100.0), Error::Truncated),
    ];
    for (name, at, value, expected) in cases {
        let mut fields = product::fields(name);
        fields.0[*at] = value.clone();
        let (read, bytes) = peak(|| redisbloom::load(&mut fields.read(), 4, u64::MAX).map(drop));
        assert_eq!(read, Err(*expected), "{name}: value {at} is {value:?}");
        assert!(bytes < MOST, "{name}: value {at} is {value:?}: {bytes} bytes");
    }
    // NaN is not equal to itself.
    let mut fields = product::fields(ONE);
    fields.0[RATE] = Double(f64::NAN);
    let read = redisbloom::load(&mut fields.read(), 4, u64::MAX);
    assert!(matches!(read, Err(Error::Filter(FilterError::ErrorRate(rate))) if rate.is_nan()));
    // Counts that are equal but above the capacity.
    let mut fields = product::fields(ONE);
    (fields.0[SIZE], fields.0[ITEMS]) = (Unsigned(101), Unsigned(101));
    let read = redisbloom::load(&mut fields.read(), 4, u64::MAX);
    assert_eq!(read.map(drop), Err(ITEMS_OUT));
}

#[test]
fn several_layers_in_a_filter_that_does_not_scale_are_refused() {
    let mut fields = product::fields("redisbloom-2.8-grown");
    fields.0[OPTIONS] = Value::Unsigned(13);
    let read = redisbloom::load(&mut fields.read(), 4, u64::MAX).map(drop);
    assert_eq!(read, Err(FilterError::Impossible("a wrong number of layers").into()));
}

#[test]
fn a_file_that_ends_early_is_refused_wherever_it_ends() {
    for name in product::REDISBLOOM {
        let Fields(fields) = product::fields(name);
        for end in 0..fields.len() {
            let short = Fields(fields[..end].to_vec());
            let read = redisbloom::load(&mut short.read(), 4, u64::MAX).map(drop);
            assert!(
                matches!(read, Err(Error::Truncated)) || (end == 2 && read.is_err()),
                "{name} cut after {end} values: {read:?}"
            );
        }
    }
}

/// Each byte of each header is changed in three ways; the result is refused or a valid filter.
#[test]
fn damaged_headers_are_refused_or_harmless() {
    for name in product::REDISBLOOM {
        let header = &product::pieces(name)[0].1;
        for at in 0..header.len() {
            for change in [1, 0x80, 0xff] {
                let mut damaged = header.clone();
                damaged[at] ^= change;
                let (begun, bytes) = peak(|| Load::begin(&damaged, 1 << 20));
                assert!(bytes < MOST, "{name}: byte {at} ^ {change}: {bytes} bytes");
                if let Ok(load) = begun {
                    sane::check_load(&load, 1 << 20);
                }
            }
        }
        // A header that is cut to the length of an older header is read as one.
        let layers = (header.len() - 20) / 53;
        for length in (0..header.len()).filter(|&length| length != 20 + 49 * layers) {
            assert!(Load::begin(&header[..length], 1 << 20).is_err(), "{name}: {length} bytes");
        }
    }
}

/// Forged headers from a client: counts without layers, and layers above any memory.
#[test]
fn forged_headers_cost_nothing() {
    let header = &product::pieces(ONE)[0].1;
    for (what, at, new) in [
        ("2^32 - 1 layers", 8, &u32::MAX.to_le_bytes()[..]),
        ("no layers", 8, &[0; 4]),
        ("2^63 bytes", 20, &(1_u64 << 63).to_le_bytes()),
        ("2^40 bytes", 20, &(1_u64 << 40).to_le_bytes()),
        ("2^43 bits", 28, &(1_u64 << 43).to_le_bytes()),
        ("2^31 probes", 60, &(1_u32 << 31).to_le_bytes()),
        ("2^60 items", 64, &(1_u64 << 60).to_le_bytes()),
        ("n2 of 64", 72, &[64]),
    ] {
        let mut forged = header.clone();
        forged[at..at + new.len()].copy_from_slice(new);
        let (begun, bytes) = peak(|| Load::begin(&forged, u64::MAX));
        assert!(begun.is_err(), "{what}");
        assert!(bytes < MOST, "{what}: {bytes} bytes");
    }
}
