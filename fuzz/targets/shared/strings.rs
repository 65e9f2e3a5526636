//! Splits the fuzzer's input into strings, and joins strings again.
//!
//! ```text
//!   ┌────────┬───────┬─ ─ ─ ┐   bits 0 to 14 of length: bytes of the string
//!   │ length │ bytes │ next │   bit 15: the last 8 bytes are replaced by the XXH3-64 of the
//!   │ u16    │       │      │   others, because a fuzzer cannot guess a checksum
//!   └────────┴───────┴─ ─ ─ ┘
//! ```

#![allow(clippy::allow_attributes, dead_code, reason = "not every target uses every item")]

use redis_bloom::codec::{
    Error,
    io::{Sink, Source},
};

/// Splits `data` into strings; the last string may be shorter than its length.
pub(crate) fn split(mut data: &[u8]) -> Vec<Vec<u8>> {
    let mut strings = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk::<2>() {
        let length = u16::from_le_bytes(*length);
        let (bytes, rest) = rest.split_at(usize::from(length & 0x7FFF).min(rest.len()));
        data = rest;
        let mut bytes = bytes.to_vec();
        if length >> 15 == 1 {
            seal(&mut bytes);
        }
        strings.push(bytes);
    }
    strings
}

/// Replaces the last eight bytes by the XXH3-64 of the others.
pub(crate) fn seal(bytes: &mut [u8]) {
    if let Some((body, seal)) = bytes.split_last_chunk_mut::<8>() {
        *seal = xxhash_rust::xxh3::xxh3_64(body).to_le_bytes();
    }
}

/// Receives strings.
#[derive(Default)]
pub(crate) struct Strings(pub(crate) Vec<Vec<u8>>);

impl Sink for Strings {
    fn put(&mut self, bytes: &[u8]) {
        self.0.push(bytes.to_vec());
    }
}

/// Gives strings back, one by one.
pub(crate) struct Reading<'a>(pub(crate) std::slice::Iter<'a, Vec<u8>>);

impl<'a> Source for Reading<'a> {
    type Piece = &'a Vec<u8>;

    fn next(&mut self) -> Result<Self::Piece, Error> {
        self.0.next().ok_or(Error::Truncated)
    }
}
