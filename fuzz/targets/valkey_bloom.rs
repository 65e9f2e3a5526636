//! valkey-bloom filters from RDB or BF.LOAD: any bytes are refused or give a filter that works. A
//! filter that is written in either format and read back is equal.
//!
//! ```text
//!   ┌────────┬─ ─ ─ ─ ─ ─ ─ ─ ┐
//!   │ 0 or 1 │ values or blob │   0: values of the RDB (shared/values.rs), 1: a blob
//!   └────────┴─ ─ ─ ─ ─ ─ ─ ─ ┘
//! ```

#![no_main]

#[path = "shared/sane.rs"]
mod sane;
#[path = "shared/saved.rs"]
mod saved;
#[path = "shared/strings.rs"]
mod strings;
#[path = "shared/values.rs"]
mod values;

use libfuzzer_sys::fuzz_target;
use redis_bloom::{codec::valkey_bloom, filter::Filter};
use saved::{Reading, Saved};

fuzz_target!(|data: &[u8]| {
    let Some((form, bytes)) = data.split_first() else {
        return;
    };
    let read = match form {
        0 => valkey_bloom::load(&mut values::Bytes(bytes), sane::CEILING),
        _ => valkey_bloom::read_blob(bytes, sane::CEILING),
    };
    if let Ok(mut filter) = read {
        check_round_trips(&filter);
        sane::check(&mut filter);
        check_round_trips(&filter);
    }
});

/// Checks that the filter is equal after a round trip as blob and as RDB values. Filters with equal
/// blobs are equal: a blob contains all numbers and bits.
fn check_round_trips(filter: &Filter) {
    let blob = valkey_bloom::blob(filter).expect("a valkey-bloom filter");
    let again = valkey_bloom::read_blob(&blob, sane::CEILING).expect("the filter's own blob");
    assert!(valkey_bloom::blob(&again).as_ref() == Some(&blob), "the blob changed");

    let saved = save(filter);
    let mut values = Reading(saved.0.iter());
    let again = valkey_bloom::load(&mut values, sane::CEILING).expect("the filter's own values");
    assert_eq!(values.0.len(), 0, "values were left unread");
    assert!(valkey_bloom::blob(&again).as_ref() == Some(&blob), "the filter changed");
    assert!(save(&again) == saved, "the values changed");
}

fn save(filter: &Filter) -> Saved {
    let mut saved = Saved::default();
    valkey_bloom::save(filter, &mut saved);
    saved
}
