//! RDB and DUMP of RedisBloom, encoding versions 0 to 4: any values are refused, or make a filter that works.
//!
//! ```text
//!   ┌─────────┬─ ─ ─     a number is 8 bytes, little-endian; a string is its length, u16, and its bytes:
//!   │ version │ values   the decoder says which it wants next
//!   └─────────┴─ ─ ─
//! ```

#![no_main]

#[path = "shared/sane.rs"]
mod sane;
#[path = "shared/strings.rs"]
mod strings;

use libfuzzer_sys::fuzz_target;
use redis_bloom::codec::{redisbloom, v100::Source};

struct Bytes<'a>(&'a [u8]);

impl<'a> Source for Bytes<'a> {
    type Piece = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk::<2>()?;
        let (piece, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        self.0 = rest;
        Some(piece)
    }
}

impl redisbloom::Values for Bytes<'_> {
    fn unsigned(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn double(&mut self) -> Option<f64> {
        self.unsigned().map(f64::from_bits)
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((version, values)) = data.split_first() else {
        return;
    };
    if let Ok(mut filter) = redisbloom::load(&mut Bytes(values), i32::from(*version), sane::CEILING) {
        sane::check(&mut filter);
    }
});
