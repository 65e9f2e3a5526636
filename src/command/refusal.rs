//! The error texts that clients see; no other file has any. [`Refusal::text`] has them all, also
//! those with a word or a number of the call: the refusal carries what its text shows.
//!
//! The words after the error code are RedisBloom's, because clients and their tests know them. The
//! code (`ERR`) is always present, although some of RedisBloom's texts lack it: clients split it
//! off.

use std::{
    borrow::Cow,
    ffi::{CStr, CString},
};

use crate::{
    codec::{self, packed::BadByte},
    filter::{self, Unmergeable},
    sharding::Shard,
};

/// Why a command is refused. Each refusal has one error text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Wrong number of arguments; the server writes this reply.
    Arity,
    /// The key holds another type.
    WrongType,
    /// The key does not exist.
    NotFound,
    /// RESERVE: the key exists.
    Exists,
    /// RESERVE: the rate is not a number.
    BadErrorRate,
    /// RESERVE: the rate is a number outside (0, 1).
    ErrorRateRange,
    /// RESERVE: the capacity is not an integer.
    BadCapacity,
    /// RESERVE: the capacity is an integer out of range.
    CapacityRange,
    /// RESERVE: EXPANSION is the last word.
    NoExpansion,
    /// RESERVE: the expansion is not an integer.
    BadExpansion,
    /// RESERVE: the expansion is an integer out of range.
    ExpansionRange,
    /// RESERVE: NONSCALING with an expansion.
    NonscalingExpands,
    /// RESERVE: an unknown option.
    UnknownOption {
        /// Number of arguments after the unknown option, at most 255.
        behind: u8,
    },
    /// RESERVE: SEED is the last word.
    NoSeed,
    /// RESERVE: the seed is not an unsigned 64-bit number.
    BadSeed,
    /// INSERT, IMPORT: an unknown option.
    UnknownArgument,
    /// INSERT, IMPORT: the rate is not a number in (0, 1).
    InsertErrorRate,
    /// INSERT, IMPORT: the capacity is not an integer in range.
    InsertCapacity,
    /// INSERT: the expansion is not an integer in range.
    InsertExpansion,
    /// INSERT: the seed is not an unsigned 64-bit number.
    InsertSeed,
    /// INSERT: the tightening ratio is not inside (0, 1).
    Tightening,
    /// INSERT: NONSCALING with VALIDATESCALETO.
    ScalesNot,
    /// RESERVE, INSERT, BULKADD: not a shard of a possible number of shards.
    BadShard,
    /// RESERVE, INSERT, BULKADD: no window that a filter can have.
    WindowSpan,
    /// RESERVE, INSERT, BULKADD: a number of generations out of range.
    WindowGenerations,
    /// RESERVE, INSERT, BULKADD: words of a window without one.
    WindowMissing,
    /// RESERVE, INSERT, BULKADD: a window of items, and an expansion.
    WindowScales,
    /// RESERVE, INSERT, BULKADD: a window in a filter of another kind.
    WindowKind,
    /// FORGET, SHIFT; INSERT, BULKADD with the words of a window: the filter has no window.
    NoWindow,
    /// INSERT, BULKADD: the command's window is not that of the filter.
    OtherWindow,
    /// Additions by a client of a writable replica to a filter with a window.
    OnReplica,
    /// SHIFT: a client sent it.
    NotReplicated,
    /// SHIFT: not a shift with its number.
    BadShift,
    /// The item belongs to this shard, and the filter is another one.
    OtherShard(Shard),
    /// INSERT, BULKADD: the command names this shard, and the filter is another one, or none.
    NotShard(Shard),
    /// BULKADD, BULKEXISTS: the width is not an integer in range.
    BadWidth,
    /// BULKADD, BULKEXISTS: the packed items are malformed.
    BadPacked {
        /// The offset at which the first malformed item begins.
        byte: usize,
    },
    /// INFO: no such field.
    UnknownField,
    /// SCANDUMP, LOADCHUNK: the iterator is not an integer.
    BadIterator,
    /// LOADCHUNK: bytes that are damaged or belong to another filter.
    BadData,
    /// LOADCHUNK: a chunk that leaves a gap or does not cover whole words.
    BadOffset,
    /// LOADCHUNK: a chunk that reaches beyond the end, or would change a complete filter.
    ChunkTooBig,
    /// DEL, COUNT; INSERT, BULKADD with COUNTING: the filter has no counts.
    NotCounting,
    /// LOAD, IMPORT: the key exists.
    BusyKey,
    /// LOAD: a blob that is damaged or of another format.
    BadBlob,
    /// LOAD: a blob of an unknown version.
    BlobVersion,
    /// IMPORT: bytes that are damaged or of another format.
    BadGuava,
    /// IMPORT: capacity and rate give a filter of another size.
    OtherDesign,
    /// IMPORT: a bitmap longer than capacity and rate give.
    BitmapBeyond,
    /// IMPORT: a bitmap shorter than capacity and rate give.
    BitmapShort,
    /// MERGE: filters with different parameters, or a union with too many items.
    Unmergeable(Unmergeable),
    /// LOADCHUNK is still filling the key.
    Loading,
    /// This server could not make its copy of a filter.
    Placeholder,
    /// A non-scaling filter is full.
    Full,
    /// A new filter needs more memory than is available or allowed.
    NoMemory,
    /// A new layer needs more memory than is available or allowed.
    NoGrowth,
    /// A bug in the module.
    Internal,
}

impl Refusal {
    /// The error reply to a command with the arguments `words`.
    pub fn text<'a>(self, words: impl DoubleEndedIterator<Item = &'a [u8]>) -> Cow<'static, CStr> {
        let fixed = match self {
            Self::UnknownOption { behind } => {
                let word = words.rev().nth(behind.into()).unwrap_or_default();
                let start = word.get(..REPEATED).unwrap_or(word);
                // The word may have any bytes, so it is escaped: a line break would end the reply.
                return owned(format!("ERR unknown argument '{}'", start.escape_ascii()));
            }
            Self::OtherShard(shard) => {
                return owned(format!("ERR item belongs to shard {shard}"));
            }
            Self::NotShard(shard) => return owned(format!("ERR filter is not shard {shard}")),
            Self::BadPacked { byte } => return owned(format!("ERR bad blob at byte {byte}")),
            Self::Unmergeable(Unmergeable::Window) => {
                return Cow::Borrowed(c"ERR filters with a window cannot be merged");
            }
            Self::Unmergeable(Unmergeable::Differ(difference)) => {
                return owned(format!("ERR filters differ in {difference}"));
            }
            Self::Unmergeable(Unmergeable::Full { index, layers, items, capacity }) => {
                return owned(match (layers, index.saturating_add(1)) {
                    (1, _) => {
                        format!("ERR the union holds about {items} items, the filter {capacity}")
                    }
                    (_, number) => format!(
                        "ERR layer {number} of the union holds about {items} items, that of the \
                         filter {capacity}"
                    ),
                });
            }
            Self::Unmergeable(Unmergeable::Rate) => c"ERR the union passes the error rate",
            Self::Unmergeable(Unmergeable::Large(_)) => {
                c"ERR the filters are too large to be merged while clients wait"
            }
            // The server sends its own text, because it knows the command's name.
            Self::Arity => c"ERR wrong number of arguments",
            Self::WrongType => c"WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::NotFound => c"ERR not found",
            Self::Exists => c"ERR item exists",
            Self::BadErrorRate => c"ERR bad error rate",
            Self::ErrorRateRange => c"ERR error rate must be in the range (0.000000, 1.000000)",
            Self::BadCapacity => c"ERR bad capacity",
            Self::CapacityRange => c"ERR capacity must be in the range [1, 4611686018427387904]",
            Self::NoExpansion => c"ERR no expansion",
            Self::BadExpansion => c"ERR bad expansion",
            Self::ExpansionRange => c"ERR expansion must be in the range [0, 32768]",
            Self::NonscalingExpands => c"ERR Nonscaling filters cannot expand",
            Self::NoSeed => c"ERR no seed",
            Self::BadSeed => c"ERR bad seed",
            Self::UnknownArgument => c"ERR Unknown argument received",
            Self::InsertErrorRate => c"ERR Bad error rate",
            Self::InsertCapacity => c"ERR Bad capacity",
            Self::InsertExpansion => c"ERR Bad expansion",
            Self::InsertSeed => c"ERR Bad seed",
            Self::Tightening => c"ERR (0 < tightening ratio range < 1)",
            Self::ScalesNot => c"ERR cannot use NONSCALING and VALIDATESCALETO options together",
            Self::BadShard => c"ERR SHARD must be i n with 0 <= i < n <= 1024",
            Self::WindowSpan => {
                c"ERR bad window: WINDOW must be EX s, PX ms or COUNT; \
                  a time is at most 3650 days, and at least 1 ms for each generation"
            }
            Self::WindowGenerations => c"ERR bad window: GENERATIONS must be in the range [1, 32]",
            Self::WindowMissing => c"ERR bad window: GENERATIONS and NOREFRESH need WINDOW",
            Self::WindowScales => c"ERR bad window: WINDOW COUNT cannot have an EXPANSION above 0",
            Self::WindowKind => c"ERR bad window: not with COUNTING or the seed of valkey-bloom",
            Self::NoWindow => c"ERR not a filter with a window",
            Self::OtherWindow => c"ERR the filter has another window",
            Self::OnReplica => c"ERR a filter with a window changes on its primary alone",
            Self::NotReplicated => {
                c"ERR BF.SHIFT is for servers: it is sent by a primary or an AOF"
            }
            Self::BadShift => c"ERR bad shift",
            Self::BadWidth => c"ERR width must be in the range [1, 4096]",
            Self::UnknownField => c"ERR Invalid information value",
            Self::BadIterator => c"ERR Second argument must be numeric",
            Self::BadData => c"ERR received bad data",
            Self::BadOffset => c"ERR invalid offset - no link found",
            Self::ChunkTooBig => c"ERR invalid chunk - Too big for current filter",
            Self::NotCounting => c"ERR not a counting filter",
            Self::BusyKey => c"BUSYKEY Target key name already exists.",
            Self::BadBlob => c"ERR bloom object decoding failed",
            Self::BlobVersion => c"ERR bloom object decoding failed. Unsupported version",
            Self::BadGuava => c"ERR not a Bloom filter written by Guava",
            Self::OtherDesign => c"ERR CAPACITY and ERROR do not give a filter of that size",
            Self::BitmapBeyond => {
                c"ERR the bitmap has bits beyond the size that CAPACITY and ERROR give"
            }
            Self::BitmapShort => {
                c"ERR the bitmap ends far below the size that CAPACITY and ERROR give"
            }
            Self::Loading => c"ERR filter is being loaded by BF.LOADCHUNK",
            Self::Placeholder => {
                c"ERR this server could not make its copy of the filter, see its log; \
                  do not delete the key on the primary"
            }
            Self::Full => c"ERR non scaling filter is full",
            Self::NoMemory => c"ERR Insufficient memory to create filter",
            Self::NoGrowth => c"ERR problem inserting into filter",
            Self::Internal => c"ERR internal error, see the server log",
        };
        Cow::Borrowed(fixed)
    }

    /// The refusal if an item cannot be added.
    pub fn of_addition(error: filter::Error) -> Self {
        match error {
            filter::Error::Full => Self::Full,
            _ => Self::NoGrowth,
        }
    }

    /// The refusal if a chunk cannot be loaded.
    pub fn of_chunk(error: codec::Error) -> Self {
        use filter::Error as Filter;
        match error {
            codec::Error::Filter(Filter::Ceiling { .. } | Filter::OutOfMemory(_)) => Self::NoMemory,
            codec::Error::TooBig { .. } | codec::Error::Complete => Self::ChunkTooBig,
            codec::Error::Order { .. } | codec::Error::Unaligned { .. } => Self::BadOffset,
            _ => Self::BadData,
        }
    }

    /// The refusal if a blob of valkey-bloom cannot be read.
    pub fn of_blob(error: codec::Error) -> Self {
        match error {
            codec::Error::Version(_) => Self::BlobVersion,
            error => Self::of_bytes(error, Self::BadBlob),
        }
    }

    /// The refusal if BF.IMPORT cannot read its source.
    pub fn of_import(error: codec::Error) -> Self {
        match error {
            codec::Error::Design { .. } => Self::OtherDesign,
            codec::Error::Beyond { .. } => Self::BitmapBeyond,
            codec::Error::Short { .. } => Self::BitmapShort,
            error => Self::of_bytes(error, Self::BadGuava),
        }
    }

    /// `NoMemory` if memory is missing, `bad` otherwise.
    fn of_bytes(error: codec::Error, bad: Self) -> Self {
        use filter::Error as Filter;
        match error {
            codec::Error::Filter(Filter::Ceiling { .. } | Filter::OutOfMemory(_)) => Self::NoMemory,
            _ => bad,
        }
    }
}

impl From<BadByte> for Refusal {
    fn from(BadByte(byte): BadByte) -> Self {
        Self::BadPacked { byte }
    }
}

/// The most bytes of an argument that an error text repeats.
const REPEATED: usize = 32;

/// A text that was made for one call, without zero bytes.
fn owned(text: String) -> Cow<'static, CStr> {
    Cow::Owned(CString::new(text).unwrap_or_default())
}
