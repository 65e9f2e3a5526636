//! The parts of an RDB value, as traits: strings, and numbers for the layouts of other products.
//!
//! The server's RDB stream implements the traits (`module/value/rdb.rs`), and so do the server's
//! digest and the tests.

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

    /// The next string, or `None` when the input has ended or failed.
    fn next(&mut self) -> Option<Self::Piece>;
}

/// Gives a decoder strings and numbers.
pub trait NumberSource: Source {
    /// The next unsigned integer, or `None` when the input has ended or failed.
    fn unsigned(&mut self) -> Option<u64>;
    /// The next double, or `None` when the input has ended or failed.
    fn double(&mut self) -> Option<f64>;
}
