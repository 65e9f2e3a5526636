//! What an RDB is made of, for those who write and read it: strings, and numbers where another
//! product's layout has them. The server's stream is one such place (`module/value/rdb.rs`), a
//! digest another; tests have their own.

/// Where an encoder puts its strings.
pub trait Sink {
    /// Takes the next string.
    fn put(&mut self, bytes: &[u8]);

    /// Is told of words of a filter that all have been put: this encoder will not read them again.
    /// They come in order.
    fn done_with(&mut self, _words: &[u64]) {}
}

/// A sink of numbers too.
pub trait NumberSink: Sink {
    /// Takes the next unsigned integer.
    fn unsigned(&mut self, number: u64);
    /// Takes the next double.
    fn double(&mut self, number: f64);
}

/// Where a decoder gets its strings.
pub trait Source {
    /// A string, alive until dropped.
    type Piece: AsRef<[u8]>;

    /// The next string, or `None` when the input has ended or failed.
    fn next(&mut self) -> Option<Self::Piece>;
}

/// A source of numbers too.
pub trait NumberSource: Source {
    /// The next unsigned integer, or `None` when the input has ended or failed.
    fn unsigned(&mut self) -> Option<u64>;
    /// The next double, or `None` when the input has ended or failed.
    fn double(&mut self) -> Option<f64>;
}
