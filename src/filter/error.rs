//! The one error type of the pure half: what a filter can refuse, and why.
//!
//! The words here are for logs and Rust callers. What a Redis client reads is written in
//! `command/refusal.rs`, the only place that turns these variants into reply texts.

/// Why a filter could not be made, grown, filled or read back.
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
    /// The bit array would pass the ceiling that the caller set, or the largest array this code can
    /// address.
    #[error("a filter of {} passes the ceiling of {ceiling} bytes", bytes(*.wanted))]
    Ceiling {
        /// Bytes of bit arrays that the filter would take in all; `u64::MAX` when they cannot be
        /// addressed.
        wanted: u64,
        /// Bytes allowed.
        ceiling: u64,
    },
    /// The allocator has no room for the bit array.
    #[error("no memory for {0} bytes of bits")]
    OutOfMemory(u64),
    /// The filter has as many layers as a filter may have (2^18).
    #[error("the filter has all the layers it may have")]
    Layers,
    /// A non-scaling filter holds as many items as it was reserved for.
    #[error("the non-scaling filter is full")]
    Full,
}

fn bytes(number: u64) -> String {
    match number {
        u64::MAX => "more bytes than can be addressed".into(),
        number => format!("{number} bytes"),
    }
}
