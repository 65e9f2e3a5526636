//! Records the numbers and strings of an encoder, and gives them back to a decoder. Unlike the
//! values of `values.rs`, each has a type, and strings have any length.

use redis_bloom::codec::{
    Error,
    io::{NumberSink, NumberSource, Sink, Source},
};

#[derive(Debug, PartialEq)]
pub(crate) enum Value {
    Unsigned(u64),
    /// The bits of the double.
    Double(u64),
    String(Vec<u8>),
}

/// Receives values.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Saved(pub(crate) Vec<Value>);

impl Sink for Saved {
    fn put(&mut self, bytes: &[u8]) {
        self.0.push(Value::String(bytes.to_vec()));
    }
}

impl NumberSink for Saved {
    fn unsigned(&mut self, number: u64) {
        self.0.push(Value::Unsigned(number));
    }

    fn double(&mut self, number: f64) {
        self.0.push(Value::Double(number.to_bits()));
    }
}

/// Gives recorded values back, one by one.
pub(crate) struct Reading<'a>(pub(crate) std::slice::Iter<'a, Value>);

impl<'a> Source for Reading<'a> {
    type Piece = &'a [u8];

    fn next(&mut self) -> Result<&'a [u8], Error> {
        match self.0.next() {
            Some(Value::String(bytes)) => Ok(bytes),
            _ => Err(Error::Truncated),
        }
    }
}

impl NumberSource for Reading<'_> {
    fn unsigned(&mut self) -> Result<u64, Error> {
        match self.0.next() {
            Some(Value::Unsigned(number)) => Ok(*number),
            _ => Err(Error::Truncated),
        }
    }

    fn double(&mut self) -> Result<f64, Error> {
        match self.0.next() {
            Some(Value::Double(bits)) => Ok(f64::from_bits(*bits)),
            _ => Err(Error::Truncated),
        }
    }
}
