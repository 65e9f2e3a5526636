//! Filters of valkey-bloom, from its RDB or from BF.LOAD: any bytes are refused, or make a filter that works.
//!
//! ```text
//!   ┌─────────┬─ ─ ─
//!   │ 0 or 1  │ values of the RDB (shared/values.rs), or a blob
//!   └─────────┴─ ─ ─
//! ```

#![no_main]

#[path = "shared/sane.rs"]
mod sane;
#[path = "shared/strings.rs"]
mod strings;
#[path = "shared/values.rs"]
mod values;

use libfuzzer_sys::fuzz_target;
use redis_bloom::codec::valkey;

fuzz_target!(|data: &[u8]| {
    let Some((form, bytes)) = data.split_first() else {
        return;
    };
    let read = match form {
        0 => valkey::load(&mut values::Bytes(bytes), sane::CEILING),
        _ => valkey::read_blob(bytes, sane::CEILING),
    };
    if let Ok(mut filter) = read {
        let blob = valkey::blob(&filter).expect("a filter of valkey-bloom's");
        let again = valkey::read_blob(&blob, sane::CEILING).expect("its own blob");
        assert_eq!(valkey::blob(&again).as_ref(), Some(&blob));
        sane::check(&mut filter);
    }
});
