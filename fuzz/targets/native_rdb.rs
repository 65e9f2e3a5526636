//! RDB and DUMP, encoding version 100: any strings are refused or give a filter that works.

#![no_main]

#[path = "shared/sane.rs"]
mod sane;
#[path = "shared/strings.rs"]
mod strings;

use libfuzzer_sys::fuzz_target;
use redis_bloom::codec::native::rdb::{self, Stored};

fuzz_target!(|data: &[u8]| {
    let strings = strings::split(data);
    match rdb::load(&mut strings::Reading(strings.iter()), sane::CEILING) {
        Ok(Stored::Complete(mut filter)) => sane::check(&mut filter),
        Ok(Stored::Partial(load)) => {
            let mut stored = strings::Strings::default();
            rdb::save_partial(&load, &mut stored);
            let again = rdb::load(&mut strings::Reading(stored.0.iter()), sane::CEILING);
            assert!(
                matches!(again, Ok(Stored::Partial(again)) if again.received() == load.received())
            );
        }
        Err(_) => {}
    }
});
