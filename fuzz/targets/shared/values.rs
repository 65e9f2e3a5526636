//! Reads random bytes as the numbers and strings of another product's RDB.
//!
//! The decoder asks for a number or a string. A number is 8 bytes, little-endian; a string is its
//! length, u16, and its bytes.

use redis_bloom::codec::{
    Error,
    io::{NumberSource, Source},
};

pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Source for Bytes<'a> {
    type Piece = &'a [u8];

    fn next(&mut self) -> Result<&'a [u8], Error> {
        let (length, rest) = self.0.split_first_chunk::<2>().ok_or(Error::Truncated)?;
        let length = usize::from(u16::from_le_bytes(*length));
        let (piece, rest) = rest.split_at_checked(length).ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(piece)
    }
}

impl NumberSource for Bytes<'_> {
    fn unsigned(&mut self) -> Result<u64, Error> {
        let (number, rest) = self.0.split_first_chunk().ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    fn double(&mut self) -> Result<f64, Error> {
        self.unsigned().map(f64::from_bits)
    }
}
