//! The parts of an RDB value, as traits: strings, and numbers for the layouts of other products.
//!
//! The server's RDB stream implements the traits (`module/api/mod.rs`), and so do the server's
//! digest and the tests. A read fails with `Error::Truncated` when the input has ended or failed.

use super::Error;

/// Receives the strings of an encoder.
pub trait Sink {
    /// Takes the next string.
    fn put(&mut self, bytes: &[u8]);
}

/// Receives strings and numbers.
pub trait NumberSink: Sink {
    /// Takes the next unsigned integer.
    fn unsigned(&mut self, number: u64);
    /// Takes the next double.
    fn double(&mut self, number: f64);
}

/// Gives a decoder its strings.
pub trait Source {
    /// One string; its memory is freed when the piece is dropped.
    type Piece: AsRef<[u8]>;

    /// The next string.
    fn next(&mut self) -> Result<Self::Piece, Error>;
}

/// Gives a decoder strings and numbers.
pub trait NumberSource: Source {
    /// The next unsigned integer.
    fn unsigned(&mut self) -> Result<u64, Error>;
    /// The next double.
    fn double(&mut self) -> Result<f64, Error>;
}
