//! Invalid numbers under a correct checksum: each is refused with its own error before memory of
//! its size is allocated. `filter/plan.rs` lists the invariants.

mod numbers;
mod records;
mod sizes;

use redis_bloom::{
    codec::{
        Error,
        native::{Load, dump, rdb},
    },
    filter::{Error as FilterError, Filter},
};

use crate::{
    allocation::peak,
    forge::{
        self,
        header::{FIRST, LAYERS, PRESENT, SEED},
    },
    sample,
    support::{Reading, Strings},
};

/// Memory a decoder may use in addition to the bits, for a header of some hundred bytes.
const OVERHEAD: usize = 8_192;

/// No layers, or more than the filter may have.
const LAYERS_OUT: Error = Error::Filter(FilterError::Impossible("a wrong number of layers"));

/// Reads a header as dump and as RDB. Both must refuse it with the same error and allocate at most
/// `OVERHEAD` bytes.
#[track_caller]
fn refused(header: &[u8], ceiling: u64, case: &str) -> Error {
    let (outcome, most) = peak(|| Load::begin(header, ceiling).map(|_| ()));
    let error = outcome.expect_err(case);
    assert!(most < OVERHEAD, "{case}: {most} bytes");
    let strings = Strings(vec![header.to_vec(), vec![0; 1 << 16]]);
    let (outcome, most) = peak(|| rdb::load(&mut Reading(strings.0.iter()), ceiling).map(|_| ()));
    let other = outcome.expect_err(case);
    assert!(most < OVERHEAD, "{case}: {most} bytes");
    // Compared as text, because NaN is not equal to itself.
    assert_eq!(format!("{error:?}"), format!("{other:?}"), "{case}");
    error
}

/// Checks that each row is refused. A row has a name, an offset, the bytes there, and the error.
#[track_caller]
fn check(base: &Filter, rows: &[(&str, usize, &[u8], Error)]) {
    let (_, header) = dump::header(base);
    for (case, at, bytes, expected) in rows {
        let error = refused(&forge::patched(&header, *at, bytes), 1 << 20, case);
        assert_eq!(format!("{error:?}"), format!("{expected:?}"), "{case}");
    }
}

#[test]
fn a_header_of_no_layers_is_refused() {
    let (_, header) = dump::header(&sample::small());
    let mut none = header[..FIRST].to_vec();
    none[LAYERS..PRESENT].copy_from_slice(&[0; 4]);
    none.extend([0; forge::SEAL]);
    forge::seal(&mut none);
    assert_eq!(refused(&none, 1 << 20, "no layers"), LAYERS_OUT);
}

/// Native filters have one layer, also those that grow.
#[test]
fn a_header_of_two_native_layers_is_refused() {
    let (_, header) = dump::header(&sample::small());
    let mut two = forge::patched(&header, LAYERS, &2_u32.to_le_bytes());
    two.truncate(two.len() - forge::SEAL);
    two.extend_from_within(FIRST..);
    two.extend([0; forge::SEAL]);
    forge::seal(&mut two);
    assert_eq!(refused(&two, 1 << 20, "two layers"), LAYERS_OUT);
}

#[test]
fn any_seed_is_accepted() {
    // Every seed is valid; the filter only does not find its items.
    let (_, header) = dump::header(&sample::small());
    let load =
        Load::begin(&forge::patched(&header, SEED, &[255; 8]), 1 << 20).expect("any seed is good");
    assert_eq!(load.layered().expect("layers").seed(), u64::MAX);
}

#[test]
fn inputs_without_a_header_are_refused() {
    for bytes in [&b""[..], b"r", b"rbloom", b"rbloom\x01\0", &[0; 48], &[255; 48]] {
        assert!(Load::begin(bytes, 1 << 20).is_err(), "{bytes:?}");
        let strings = Strings(vec![bytes.to_vec()]);
        assert!(rdb::load(&mut Reading(strings.0.iter()), 1 << 20).is_err(), "{bytes:?}");
    }
    assert!(matches!(rdb::load(&mut Reading([].iter()), 1 << 20), Err(Error::Truncated)));
}
