//! BF.IMPORT of Guava filters: any bytes are refused or give a filter that works.

#![no_main]

#[path = "shared/sane.rs"]
mod sane;
#[path = "shared/strings.rs"]
mod strings;

use libfuzzer_sys::fuzz_target;
use redis_bloom::codec::guava;

fuzz_target!(|data: &[u8]| {
    if let Ok(mut filter) = guava::read(data, sane::CEILING) {
        sane::check(&mut filter);
    }
});
