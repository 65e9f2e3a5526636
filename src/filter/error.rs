//! The error type of the server-free part: why a filter refuses.
//!
//! The texts are for logs and Rust callers. Clients get the texts of `command/refusal.rs`, and the
//! texts of [`Unmergeable`] as they are.

/// Why a filter could not be created, grown or filled, or why stored numbers describe none.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum Error {
    #[error("error rate {0} is not inside (0, 1)")]
    ErrorRate(f64),
    #[error("capacity {0} is not inside [1, 2^62]")]
    Capacity(u64),
    #[error("expansion {0} is above 32768")]
    Expansion(u64),
    /// `wanted` is all that the filter would take; `u64::MAX` if it cannot be addressed.
    #[error("a filter of {} passes the ceiling of {ceiling} bytes", bytes(*.wanted))]
    Ceiling { wanted: u64, ceiling: u64 },
    #[error("no memory for {0} bytes of bits")]
    OutOfMemory(u64),
    #[error("the filter has all the layers it may have")]
    Layers,
    #[error("a window or a shift out of range")]
    Window,
    /// The filter continues as [`Filter::overflow`](super::Filter::overflow) says.
    #[error("the layer of a scaling filter is full")]
    Overflow,
    #[error("the non-scaling filter is full")]
    Full,
    /// Numbers or words that no filter has together.
    #[error("{0}")]
    Impossible(&'static str),
    #[error(transparent)]
    Unmergeable(#[from] Unmergeable),
}

/// Why filters cannot be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum Unmergeable {
    /// The items of one of them are of several generations.
    #[error("filters with a window cannot be merged")]
    Window,
    #[error("filters with several layers cannot be merged")]
    Layers,
    /// The first property in which they differ.
    #[error("filters differ in {0}")]
    Differ(&'static str),
    #[error("the union holds about {items} items, the filter {capacity}")]
    Full { items: u64, capacity: u64 },
    /// Pages with the slots of all of them would have a higher rate than the filter.
    #[error("the union passes the error rate")]
    Rate,
    /// Uniting that many slots would stop the server for too long.
    #[error("the filters are too large to be merged while clients wait")]
    Large,
}

fn bytes(number: u64) -> String {
    match number {
        u64::MAX => "more bytes than can be addressed".into(),
        number => format!("{number} bytes"),
    }
}

/// The memory that a filter asks for: bytes of bits, of all its layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Bytes that are allocated already, those that are about to be dropped included.
    pub present: u64,
    /// All bytes if the request is granted; `u64::MAX` if they cannot be addressed.
    pub wanted: u64,
}

impl Demand {
    /// Calls `ceiling`, which returns the bytes that the filter may have in total. `Error::Ceiling`
    /// if `wanted` is above them.
    pub fn check(self, ceiling: impl FnOnce(Self) -> u64) -> Result<(), Error> {
        let (wanted, ceiling) = (self.wanted, ceiling(self));
        if wanted <= ceiling { Ok(()) } else { Err(Error::Ceiling { wanted, ceiling }) }
    }
}
