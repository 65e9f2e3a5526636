//! Why bytes were refused.

use crate::filter;

/// What is wrong with the bytes, for the log; a client is told only that they are bad.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The source ended, or failed, before everything was read.
    #[error("the input ends early")]
    Truncated,
    /// Bytes are left over.
    #[error("{0} bytes too many")]
    Excess(usize),
    /// Not this layout at all.
    #[error("no {0} magic")]
    Magic(&'static str),
    /// The iterator says that the chunk begins before the filter does.
    #[error("iterator {iterator} cannot end a chunk of {bytes} bytes")]
    Iterator {
        /// As it came.
        iterator: i64,
        /// Bytes of the chunk.
        bytes: usize,
    },
    /// A later version of this layout.
    #[error("layout version {0} is not known")]
    Version(u16),
    /// A kind of layer that this version does not have.
    #[error("layer kind {0} is not known")]
    Kind(u8),
    /// A family of filters that this version does not have.
    #[error("family {0} is not known")]
    Family(u8),
    /// A rule of positions that this version does not have.
    #[error("rule of positions {0} is not known")]
    Rule(u8),
    /// Options of a RedisBloom filter that no version of it writes.
    #[error("RedisBloom options {0:#x} are not known")]
    Options(u64),
    /// A number of a RedisBloom filter is not what RedisBloom computes from the others.
    #[error("RedisBloom layer {index}: {field} does not follow from its capacity and rate")]
    Forged {
        /// Position of the layer, oldest first.
        index: usize,
        /// RedisBloom's name of the number.
        field: &'static str,
    },
    /// The counts of the layers of a RedisBloom filter do not add up to its count.
    #[error("RedisBloom filter of {size} items whose layers hold {sum}")]
    Sum {
        /// Items as the filter counts them.
        size: u64,
        /// Items as its layers do.
        sum: u64,
    },
    /// A number of a valkey-bloom filter is not what valkey-bloom writes there.
    #[error("valkey-bloom layer {index}: {field}")]
    Valkey {
        /// Position of the layer, oldest first.
        index: usize,
        /// What is wrong with it.
        field: &'static str,
    },
    /// A strategy that Guava does not have.
    #[error("Guava strategy {0} is not known")]
    Strategy(u8),
    /// The length that a filter of Guava's says is not the length it has, or it has no bits or no
    /// probes.
    #[error("a filter of Guava's of {longs} longs and {probes} probes, in {bytes} bytes")]
    Guava {
        /// As it says.
        longs: u32,
        /// As it says.
        probes: u8,
        /// As they came, after the numbers.
        bytes: usize,
    },
    /// Another filter than capacity and rate give.
    #[error("that capacity and rate give {wanted} bits and {probes} probes")]
    Design {
        /// Bits by Guava's formula.
        wanted: u64,
        /// Probes by Guava's formula.
        probes: u64,
    },
    /// A bitmap has a bit where no position is.
    #[error("bit {highest} is set, of {bits} bits")]
    Beyond {
        /// The last bit that is set.
        highest: u64,
        /// Bits that capacity and rate give.
        bits: u64,
    },
    /// A bitmap ends so early that it is another filter's.
    #[error("none of the {set} bits that are set is above {highest}, of {bits} bits")]
    Short {
        /// Bits that are set.
        set: u64,
        /// The last of them.
        highest: u64,
        /// Bits that capacity and rate give.
        bits: u64,
    },
    /// The bytes are damaged.
    #[error("checksum {found:#018x}, expected {expected:#018x}")]
    Checksum {
        /// As computed.
        found: u64,
        /// As stored.
        expected: u64,
    },
    /// The chunk was cut from another filter, or from this one before it grew.
    #[error("the chunk belongs to another filter, or the filter grew while it was dumped")]
    OtherFilter,
    /// The chunk is not the next one, and not one that is already in.
    #[error("a chunk of bytes {from}..{to} does not follow {received} received bytes")]
    Order {
        /// First byte of the chunk in the stream.
        from: u64,
        /// Byte after its last.
        to: u64,
        /// Bytes there are.
        received: u64,
    },
    /// The chunk is empty, or its ends are not multiples of 8: it was cut at an iterator of the
    /// client's own making.
    #[error("a chunk of bytes {from}..{to} is not whole words")]
    Unaligned {
        /// First byte of the chunk in the stream.
        from: u64,
        /// Byte after its last.
        to: u64,
    },
    /// The chunk reaches past the end of the filter.
    #[error("a chunk of bytes {from}..{to} of a filter of {total} bytes")]
    TooBig {
        /// First byte of the chunk in the stream.
        from: u64,
        /// Byte after its last.
        to: u64,
        /// Bytes of the filter.
        total: u64,
    },
    /// A dump would begin in a key that holds a filter.
    #[error("the key holds a filter already: delete it, or load under another name and rename")]
    Exists,
    /// The chunk would change a filter that is complete.
    #[error("the chunk would change a complete filter")]
    Complete,
    /// The numbers do not describe a filter.
    #[error(transparent)]
    Broken(#[from] filter::Broken),
    /// The filter cannot be made.
    #[error(transparent)]
    Filter(#[from] filter::Error),
}
