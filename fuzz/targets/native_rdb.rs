//! RDB and DUMP, encoding version 100: any strings are refused or give a filter that works.

#![no_main]

#[path = "shared/sane.rs"]
mod sane;
#[path = "shared/strings.rs"]
mod strings;

use libfuzzer_sys::fuzz_target;
use redis_bloom::codec::native::rdb;

fuzz_target!(|data: &[u8]| {
    let strings = strings::split(data);
    if let Ok(stored) = rdb::load(&mut strings::Reading(strings.iter()), sane::CEILING) {
        sane::check_stored(stored);
    }
});
