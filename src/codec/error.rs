//! Why a decoder refuses bytes.

use crate::filter::{self, pages::PageFault};

/// What is wrong with the bytes. The server's log shows this text; clients get a shorter one
/// (`command/refusal.rs`). What has a variant of its own has a reply of its own, or is handled.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The input ended or failed before everything was read.
    #[error("the input ends early")]
    Truncated,
    /// The bytes do not have this layout: what shows it.
    #[error("{0}")]
    Malformed(&'static str),
    /// This version of the layout is not known; a later release may write it.
    #[error("layout version {0} is not known")]
    Version(u16),
    /// The words are not those of a page.
    #[error(transparent)]
    Page(PageFault),
    /// Capacity and rate give a filter of another size.
    #[error("capacity and rate give {wanted} bits and {probes} probes")]
    Design {
        /// Bits by Guava's formula.
        wanted: u64,
        /// Probes by Guava's formula.
        probes: u64,
    },
    /// A bitmap has a bit above the last position of the filter.
    #[error("bit {highest} is set, but capacity and rate give {bits} bits")]
    Beyond {
        /// The highest bit that is set.
        highest: u64,
        /// Bits that capacity and rate give.
        bits: u64,
    },
    /// The highest bit of a bitmap is so low that the bitmap belongs to a smaller filter.
    #[error("no bit above {highest} is set, but capacity and rate give {bits} bits")]
    Short {
        /// The highest bit that is set.
        highest: u64,
        /// Bits that capacity and rate give.
        bits: u64,
    },
    /// The chunk comes from another filter, or from this one before it grew.
    #[error("the chunk belongs to another filter, or the filter grew while it was dumped")]
    OtherFilter,
    /// The chunk is neither the next one nor a received one, or its iterator is wrong.
    #[error("a chunk of bytes {from}..{to} does not follow {received} received bytes")]
    Order {
        /// First byte of the chunk in the stream.
        from: u64,
        /// End of the chunk, exclusive.
        to: u64,
        /// Bytes that were received.
        received: u64,
    },
    /// The chunk is empty or does not cover whole words of 8 bytes: the client made up an iterator.
    #[error("a chunk of bytes {from}..{to} is not whole words")]
    Unaligned {
        /// First byte of the chunk in the stream.
        from: u64,
        /// End of the chunk, exclusive.
        to: u64,
    },
    /// The chunk reaches beyond the end of the filter.
    #[error("a chunk of bytes {from}..{to} for a filter of {total} bytes")]
    TooBig {
        /// First byte of the chunk in the stream.
        from: u64,
        /// End of the chunk, exclusive.
        to: u64,
        /// Size of the filter, in bytes.
        total: u64,
    },
    /// The header of a dump arrived for a key that holds a filter.
    #[error("the key holds a filter already: delete it, or load under another name and rename")]
    Exists,
    /// The chunk would change a filter that is complete.
    #[error("the chunk would change a complete filter")]
    Complete,
    /// The filter cannot be created, or its numbers describe none.
    #[error(transparent)]
    Filter(#[from] filter::Error),
}

impl From<PageFault> for Error {
    fn from(fault: PageFault) -> Self {
        match fault {
            PageFault::OutOfMemory(bytes) => filter::Error::OutOfMemory(bytes).into(),
            PageFault::Levels => Self::OtherFilter,
            fault => Self::Page(fault),
        }
    }
}
