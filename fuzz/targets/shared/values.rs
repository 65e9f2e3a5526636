//! Reads random bytes as the numbers and strings of another product's RDB.
//!
//! The decoder asks for a number or a string. A number is 8 bytes, little-endian; a string is its
//! length, u16, and its bytes.

use redis_bloom::codec::io::{NumberSource, Source};

pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Source for Bytes<'a> {
    type Piece = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk::<2>()?;
        let (piece, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        self.0 = rest;
        Some(piece)
    }
}

impl NumberSource for Bytes<'_> {
    fn unsigned(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn double(&mut self) -> Option<f64> {
        self.unsigned().map(f64::from_bits)
    }
}
