//! The error type of the server-free part: why a filter refuses.
//!
//! The texts are for logs and Rust callers. `command/refusal.rs` turns these variants into replies
//! for Redis clients; no other file does.

/// Why a filter could not be made, grown or filled, or why stored numbers are not those of one.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The error rate is not inside (0, 1); NaN counts as outside.
    #[error("error rate {0} is not inside (0, 1)")]
    ErrorRate(f64),
    /// The capacity is not inside [1, 2^62] items.
    #[error("capacity {0} is not inside [1, 2^62]")]
    Capacity(u64),
    /// The expansion is above 32768.
    #[error("expansion {0} is above 32768")]
    Expansion(u64),
    /// The bit arrays would exceed the ceiling that the caller set, or the largest addressable
    /// array.
    #[error("a filter of {} passes the ceiling of {ceiling} bytes", bytes(*.wanted))]
    Ceiling {
        /// Bytes of bit arrays that the filter would take in total; `u64::MAX` if they cannot be
        /// addressed.
        wanted: u64,
        /// Bytes allowed.
        ceiling: u64,
    },
    /// The allocator refused this many bytes for a bit array.
    #[error("no memory for {0} bytes of bits")]
    OutOfMemory(u64),
    /// The filter has the maximum number of layers (2^18).
    #[error("the filter has all the layers it may have")]
    Layers,
    /// A window that cannot be, or a shift that no copy of the window made.
    #[error("a window or a shift out of range")]
    Window,
    /// A filter of one layer that scales holds as many items as it was reserved for. It goes on as
    /// [`Filter::overflow`](super::Filter::overflow) says.
    #[error("the layer of a scaling filter is full")]
    Overflow,
    /// A non-scaling filter holds as many items as it was reserved for.
    #[error("the non-scaling filter is full")]
    Full,
    /// Numbers that no filter has together: which of them (`plan.rs`).
    #[error("{0}")]
    Impossible(&'static str),
}

fn bytes(number: u64) -> String {
    match number {
        u64::MAX => "more bytes than can be addressed".into(),
        number => format!("{number} bytes"),
    }
}
