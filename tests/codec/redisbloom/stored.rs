//! Headers of filters of other families: golden files, and forged headers.
//!
//! The offsets are copied from the layout in `src/codec/native/header.rs`, not imported.

use std::{fs, path::PathBuf};

use redis_bloom::{
    codec::{
        Error,
        native::{Load, rdb},
    },
    filter::Error as FilterError,
};

use super::{filter, product};
use crate::{
    forge::{header, patched},
    sane,
    support::{Reading, Strings},
};

const FAMILY: usize = 40;
const OPTIONS: usize = 41;
/// The first layer.
const KIND: usize = 44;
const RULE: usize = 45;
const PROBES: usize = 46;
const BITS: usize = 48;
const BYTES: usize = 56;
const CAPACITY: usize = 64;
const ITEMS: usize = 72;
const RATE: usize = 80;
const END: usize = 88;

fn path(name: &str) -> PathBuf {
    let name = format!("v100-rdb-{name}.bin");
    [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", &name].iter().collect()
}

/// The strings one after the other, each with its length before it, as in `fixtures.rs`.
fn framed(strings: &Strings) -> Vec<u8> {
    let mut out = Vec::new();
    for string in &strings.0 {
        out.extend((string.len() as u32).to_le_bytes());
        out.extend(string);
    }
    out
}

/// `REDIS_BLOOM_WRITE_FIXTURES=1` writes missing files; existing files never change.
#[test]
fn a_shipped_header_is_written_and_read_for_ever() {
    for name in ["redisbloom-2.8-grown", "redisbloom-2.8-rounded-32", "redisbloom-2.8-encver-0"] {
        let strings = Strings::of(&filter(name));
        let path = path(name);
        if std::env::var_os("REDIS_BLOOM_WRITE_FIXTURES").is_some() && !path.exists() {
            fs::write(&path, framed(&strings)).expect("a file that can be written");
        }
        let file = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(file == framed(&strings), "{name}");
        assert_eq!(Strings::of(&strings.filter()), strings, "{name}");
    }
}

/// The filter of one layer with `new` at offset `at` of its header, and a correct checksum.
fn with(at: usize, new: &[u8]) -> Strings {
    let mut strings = Strings::of(&filter("redisbloom-2.8-one-layer"));
    assert_eq!(strings.0[0].len(), END + 8);
    strings.0[0] = patched(&strings.0[0], at, new);
    strings
}

#[test]
fn forged_numbers_are_refused() {
    let shape = |error: &Error| {
        *error == FilterError::Impossible("a layer that no filter of its family has").into()
    };
    const UNKNOWN: Error = Error::Malformed("a kind, option or rule that is not known");
    type Expected = fn(&Error) -> bool;
    let cases: &[(&str, usize, &[u8], Expected)] = &[
        // A native filter has no options, so the options byte is read as the number of records.
        ("family 0", FAMILY, &[0], |e| *e == Error::Truncated),
        ("family 200", FAMILY, &[200], |e| *e == UNKNOWN),
        ("option 2", OPTIONS, &[7], |e| *e == UNKNOWN),
        ("option 8", OPTIONS, &[13], |e| *e == UNKNOWN),
        ("kind 200", KIND, &[200], |e| *e == UNKNOWN),
        ("rule 200", RULE, &[200], |e| *e == UNKNOWN),
        ("items", ITEMS, &101_u64.to_le_bytes(), |e| {
            *e == FilterError::Impossible("a layer with too many items or too few").into()
        }),
        ("no layers", header::LAYERS, &[0; 4], |e| *e == Error::Malformed("bytes behind the end")),
        ("two layers", header::LAYERS, &[2, 0, 0, 0], |e| *e == Error::Truncated),
    ];
    for (what, at, new, expected) in cases {
        let strings = with(*at, new);
        let read = rdb::load(&mut Reading(strings.0.iter()), u64::MAX).map(drop);
        assert!(read.as_ref().is_err_and(expected), "{what}: {read:?}");
    }
    for (what, at, new) in [
        ("low bits of no power of two", RULE, &[1][..]),
        ("no probes", PROBES, &[0; 2]),
        ("65535 probes", PROBES, &[255; 2]),
        ("9 probes", PROBES, &[9, 0]),
        ("no bits", BITS, &[0; 8]),
        ("a bit more", BITS, &1153_u64.to_le_bytes()),
        ("2^63 bits", BITS, &(1_u64 << 63).to_le_bytes()),
        ("a byte less", BYTES, &143_u64.to_le_bytes()),
        ("2^64 - 1 bytes", BYTES, &[255; 8]),
        ("twice the capacity", CAPACITY, &200_u64.to_le_bytes()),
        ("twice the rate", RATE, &0.01_f64.to_le_bytes()),
    ] {
        let strings = with(at, new);
        let read = rdb::load(&mut Reading(strings.0.iter()), u64::MAX).map(drop);
        assert!(read.as_ref().is_err_and(shape), "{what}: {read:?}");
    }
}

/// Each byte of a header is changed in three ways, with a correct checksum; the result is refused
/// or a valid filter.
#[test]
fn damaged_headers_are_refused_or_harmless() {
    for name in product::REDISBLOOM {
        let strings = Strings::of(&filter(name));
        let length = strings.0[0].len() - 8;
        for at in 0..length {
            for change in [1, 0x80, 0xff] {
                let mut damaged = strings.clone();
                let byte = strings.0[0][at] ^ change;
                damaged.0[0] = patched(&strings.0[0], at, &[byte]);
                if let Ok(stored) = rdb::load(&mut Reading(damaged.0.iter()), 1 << 16) {
                    sane::check_stored(stored, 1 << 16);
                }
                if let Ok(load) = Load::begin(&damaged.0[0], 1 << 16) {
                    sane::check_load(&load, 1 << 16);
                }
            }
        }
    }
}
