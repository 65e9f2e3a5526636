//! Filters of valkey-bloom, from its RDB or from BF.LOAD: any bytes are refused, or make a filter
//! that works, and that goes back into either form and comes out of it the same.
//!
//! ```text
//!   ┌─────────┬─ ─ ─
//!   │ 0 or 1  │ values of the RDB (shared/values.rs), or a blob
//!   └─────────┴─ ─ ─
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
        goes_around(&filter);
        sane::check(&mut filter);
        goes_around(&filter);
    }
});

/// A blob has all of a filter, its bits too.
fn goes_around(filter: &Filter) {
    let blob = valkey_bloom::blob(filter).expect("a filter of valkey-bloom's");
    let again = valkey_bloom::read_blob(&blob, sane::CEILING).expect("its own blob");
    assert!(
        valkey_bloom::blob(&again).as_ref() == Some(&blob),
        "another blob"
    );

    let saved = save(filter);
    let mut values = Reading(saved.0.iter());
    let again = valkey_bloom::load(&mut values, sane::CEILING).expect("its own values");
    assert_eq!(values.0.len(), 0, "values that are not read");
    assert!(
        valkey_bloom::blob(&again).as_ref() == Some(&blob),
        "another filter"
    );
    assert!(save(&again) == saved, "other values");
}

fn save(filter: &Filter) -> Saved {
    let mut saved = Saved::default();
    valkey_bloom::save(filter, &mut saved);
    saved
}
