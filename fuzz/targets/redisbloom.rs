//! RDB and DUMP of RedisBloom, encoding versions 0 to 4: any values are refused or give a filter
//! that works.
//!
//! ```text
//!   ┌─────────┬─ ─ ─ ─ ┐
//!   │ version │ values │   shared/values.rs
//!   └─────────┴─ ─ ─ ─ ┘
//! ```

#![no_main]

#[path = "shared/sane.rs"]
mod sane;
#[path = "shared/strings.rs"]
mod strings;
#[path = "shared/values.rs"]
mod values;

use libfuzzer_sys::fuzz_target;
use redis_bloom::codec::redisbloom;
use values::Bytes;

fuzz_target!(|data: &[u8]| {
    let Some((version, values)) = data.split_first() else {
        return;
    };
    if let Ok(mut filter) = redisbloom::load(&mut Bytes(values), i32::from(*version), sane::CEILING)
    {
        sane::check(&mut filter);
    }
});
