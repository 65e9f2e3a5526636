//! Why a decoder refuses bytes.

use crate::filter::{self, pages::PageFault};

/// What is wrong with the bytes. The server's log shows this text; clients get a shorter one
/// (`command/refusal.rs`).
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The input ended or failed before everything was read.
    #[error("the input ends early")]
    Truncated,
    /// Bytes follow the end of the value.
    #[error("{0} bytes too many")]
    Excess(usize),
    /// The bytes do not start with the magic of this layout.
    #[error("no {0} magic")]
    Magic(&'static str),
    /// By its iterator, the chunk begins before the first byte of the filter.
    #[error("iterator {iterator} cannot end a chunk of {bytes} bytes")]
    Iterator {
        /// The iterator of the client.
        iterator: i64,
        /// Length of the chunk, in bytes.
        bytes: usize,
    },
    /// This version of the layout is not known; a later release may write it.
    #[error("layout version {0} is not known")]
    Version(u16),
    /// This kind of layer is not known.
    #[error("layer kind {0} is not known")]
    Kind(u8),
    /// This family of filters is not known.
    #[error("filter family {0} is not known")]
    Family(u8),
    /// This kind of payload is not known, or has bits that it cannot have.
    #[error("payload kind {0} is not known")]
    Payload(u8),
    /// The words are not those of a page.
    #[error(transparent)]
    Page(PageFault),
    /// A record of this kind is not known, or does not follow a record of a lower kind.
    #[error("record of kind {0} is not known, or is out of order")]
    Record(u16),
    /// The record of a window has numbers that no release writes.
    #[error("a window of an unknown kind")]
    Window,
    /// A sharded filter has no such shard.
    #[error("there is no shard {index} of {count}")]
    Shard {
        /// The number of the shard.
        index: u16,
        /// The number of shards.
        count: u16,
    },
    /// This rule for the positions in a classic layer is not known.
    #[error("position rule {0} is not known")]
    Rule(u8),
    /// No version of RedisBloom writes these options.
    #[error("RedisBloom options {0:#x} are not known")]
    Options(u64),
    /// A number of a RedisBloom layer differs from the one that RedisBloom computes.
    #[error("RedisBloom layer {index}: {field} does not follow from its capacity and rate")]
    Forged {
        /// Position of the layer, oldest first.
        index: usize,
        /// RedisBloom's name for the number.
        field: &'static str,
    },
    /// The item count of a RedisBloom filter is not the sum of the counts of its layers.
    #[error("RedisBloom filter with {size} items, but its layers have {sum}")]
    Sum {
        /// Items of the filter.
        size: u64,
        /// Items of all its layers.
        sum: u64,
    },
    /// A number of a valkey-bloom layer differs from the one that valkey-bloom writes.
    #[error("valkey-bloom layer {index}: {field}")]
    Valkey {
        /// Position of the layer, oldest first.
        index: usize,
        /// What is wrong with the layer.
        field: &'static str,
    },
    /// Guava has no strategy with this number.
    #[error("Guava strategy {0} is not known")]
    Strategy(u8),
    /// A Guava filter has no bits, no probes, or not the length that its header announces.
    #[error("Guava filter with {longs} longs and {probes} probes in its header, {bytes} bytes")]
    Guava {
        /// Longs, by the header.
        longs: u32,
        /// Probes, by the header.
        probes: u8,
        /// Bytes that follow the header.
        bytes: usize,
    },
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
    #[error("none of {set} set bits is above {highest}, but capacity and rate give {bits} bits")]
    Short {
        /// Number of bits that are set.
        set: u64,
        /// The highest bit that is set.
        highest: u64,
        /// Bits that capacity and rate give.
        bits: u64,
    },
    /// The checksum is wrong: the bytes are damaged.
    #[error("checksum {found:#018x}, expected {expected:#018x}")]
    Checksum {
        /// The checksum of the bytes.
        found: u64,
        /// The checksum that is stored with them.
        expected: u64,
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
    /// The numbers do not describe a filter.
    #[error(transparent)]
    Broken(#[from] filter::Broken),
    /// The filter cannot be created.
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
