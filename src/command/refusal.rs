//! The error texts that clients see. Only the texts of BF.MERGE are in another file,
//! `filter/error.rs`.
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

/// Why a command is refused: a fixed error text, or the values for a text that is made for one
/// call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The text.
    Fixed(&'static CStr),
    /// RESERVE: an unknown option, and the number of arguments after it.
    UnknownOption(usize),
    /// The item belongs to this shard, and the filter is another one.
    OtherShard(Shard),
    /// INSERT, BULKADD: the command names this shard, and the filter is another one, or none.
    NotShard(Shard),
    /// BULKADD, BULKEXISTS: the packed items are malformed.
    BadPacked(BadByte),
    /// MERGE: filters with different parameters, or a union with too many items.
    Unmergeable(Unmergeable),
}

#[expect(missing_docs, reason = "the texts say it")]
impl Refusal {
    // The server sends its own text, because it knows the command's name.
    pub const ARITY: Self = Self::Fixed(c"ERR wrong number of arguments");
    pub const WRONG_TYPE: Self =
        Self::Fixed(c"WRONGTYPE Operation against a key holding the wrong kind of value");
    pub const NOT_FOUND: Self = Self::Fixed(c"ERR not found");
    pub const EXISTS: Self = Self::Fixed(c"ERR item exists");
    // BF.RESERVE.
    pub const BAD_ERROR_RATE: Self = Self::Fixed(c"ERR bad error rate");
    pub const ERROR_RATE_RANGE: Self =
        Self::Fixed(c"ERR error rate must be in the range (0.000000, 1.000000)");
    pub const BAD_CAPACITY: Self = Self::Fixed(c"ERR bad capacity");
    pub const CAPACITY_RANGE: Self =
        Self::Fixed(c"ERR capacity must be in the range [1, 4611686018427387904]");
    pub const NO_EXPANSION: Self = Self::Fixed(c"ERR no expansion");
    pub const BAD_EXPANSION: Self = Self::Fixed(c"ERR bad expansion");
    pub const EXPANSION_RANGE: Self = Self::Fixed(c"ERR expansion must be in the range [0, 32768]");
    pub const NONSCALING_EXPANDS: Self = Self::Fixed(c"ERR Nonscaling filters cannot expand");
    // BF.INSERT, BF.BULKADD, BF.IMPORT.
    pub const UNKNOWN_ARGUMENT: Self = Self::Fixed(c"ERR Unknown argument received");
    pub const INSERT_ERROR_RATE: Self = Self::Fixed(c"ERR Bad error rate");
    pub const INSERT_CAPACITY: Self = Self::Fixed(c"ERR Bad capacity");
    pub const INSERT_EXPANSION: Self = Self::Fixed(c"ERR Bad expansion");
    pub const TIGHTENING: Self = Self::Fixed(c"ERR (0 < tightening ratio range < 1)");
    // Every command that creates a filter.
    pub const BAD_SEED: Self = Self::Fixed(c"ERR bad seed");
    pub const BAD_SHARD: Self = Self::Fixed(c"ERR SHARD must be i n with 0 <= i < n <= 1024");
    pub const WINDOW_SPAN: Self = Self::Fixed(
        c"ERR bad window: WINDOW must be EX s, PX ms or COUNT; \
              a time is at most 3650 days, and at least 1 ms for each generation",
    );
    pub const WINDOW_GENERATIONS: Self =
        Self::Fixed(c"ERR bad window: GENERATIONS must be in the range [1, 32]");
    pub const WINDOW_MISSING: Self =
        Self::Fixed(c"ERR bad window: GENERATIONS and NOREFRESH need WINDOW");
    pub const WINDOW_SCALES: Self =
        Self::Fixed(c"ERR bad window: WINDOW COUNT cannot have an EXPANSION above 0");
    pub const WINDOW_KIND: Self =
        Self::Fixed(c"ERR bad window: not with COUNTING or the seed of valkey-bloom");
    pub const LAYOUT: Self = Self::Fixed(
        c"ERR SEED, COUNTING, SHARD and WINDOW need the layout native: \
              RedisBloom has no such filters (setting layout)",
    );
    // What is in the key, or is not.
    pub const NO_WINDOW: Self = Self::Fixed(c"ERR not a filter with a window");
    pub const OTHER_WINDOW: Self = Self::Fixed(c"ERR the filter has another window");
    pub const ON_REPLICA: Self =
        Self::Fixed(c"ERR a filter with a window changes on its primary alone");
    pub const NOT_REPLICATED: Self =
        Self::Fixed(c"ERR BF.SHIFT is for servers: it is sent by a primary or an AOF");
    pub const BAD_SHIFT: Self = Self::Fixed(c"ERR bad shift");
    // Other arguments.
    pub const BAD_WIDTH: Self = Self::Fixed(c"ERR width must be in the range [1, 4096]");
    pub const UNKNOWN_FIELD: Self = Self::Fixed(c"ERR Invalid information value");
    pub const BAD_ITERATOR: Self = Self::Fixed(c"ERR Second argument must be numeric");
    // Stored filters, and those of other products.
    pub const BAD_DATA: Self = Self::Fixed(c"ERR received bad data");
    const BAD_OFFSET: Self = Self::Fixed(c"ERR invalid offset - no link found");
    const CHUNK_TOO_BIG: Self = Self::Fixed(c"ERR invalid chunk - Too big for current filter");
    pub const NOT_COUNTING: Self = Self::Fixed(c"ERR not a counting filter");
    pub const BUSY_KEY: Self = Self::Fixed(c"BUSYKEY Target key name already exists.");
    pub const BAD_BLOB: Self = Self::Fixed(c"ERR bloom object decoding failed");
    const BLOB_VERSION: Self =
        Self::Fixed(c"ERR bloom object decoding failed. Unsupported version");
    pub const BAD_GUAVA: Self = Self::Fixed(c"ERR not a Bloom filter written by Guava");
    // Incomplete filters.
    pub const LOADING: Self = Self::Fixed(c"ERR filter is being loaded by BF.LOADCHUNK");
    pub const PLACEHOLDER: Self = Self::Fixed(
        c"ERR this server could not make its copy of the filter, see its log; \
              do not delete the key on the primary",
    );
    // Limits.
    pub const FULL: Self = Self::Fixed(c"ERR non scaling filter is full");
    pub const NO_MEMORY: Self = Self::Fixed(c"ERR Insufficient memory to create filter");
    pub const NO_GROWTH: Self = Self::Fixed(c"ERR problem inserting into filter");
    pub const INTERNAL: Self = Self::Fixed(c"ERR internal error, see the server log");
}

impl Refusal {
    /// Whether the options of BF.INSERT cannot be read, which says nothing about the filter.
    pub fn is_of_the_options(self) -> bool {
        [
            Self::ARITY,
            Self::UNKNOWN_ARGUMENT,
            Self::INSERT_ERROR_RATE,
            Self::INSERT_CAPACITY,
            Self::INSERT_EXPANSION,
            Self::TIGHTENING,
            Self::BAD_SEED,
            Self::BAD_SHARD,
            Self::WINDOW_SPAN,
            Self::WINDOW_GENERATIONS,
            Self::WINDOW_MISSING,
            Self::WINDOW_SCALES,
            Self::WINDOW_KIND,
        ]
        .contains(&self)
    }

    /// The error reply to a command with the arguments `words`.
    pub fn text<'a>(self, words: impl DoubleEndedIterator<Item = &'a [u8]>) -> Cow<'static, CStr> {
        let text = match self {
            Self::Fixed(text) => return Cow::Borrowed(text),
            Self::UnknownOption(behind) => {
                let word = words.rev().nth(behind).unwrap_or_default();
                let start = word.get(..32).unwrap_or(word);
                // The word may have any bytes, so it is escaped: a line break would end the reply.
                format!("ERR unknown argument '{}'", start.escape_ascii())
            }
            Self::OtherShard(shard) => format!("ERR item belongs to shard {shard}"),
            Self::NotShard(shard) => format!("ERR filter is not shard {shard}"),
            Self::BadPacked(BadByte(byte)) => format!("ERR bad blob at byte {byte}"),
            Self::Unmergeable(why) => format!("ERR {why}"),
        };
        Cow::Owned(CString::new(text).unwrap_or_default())
    }

    /// The refusal of bytes that cannot be read; `bad` if no other text says more.
    pub fn of_bytes(error: codec::Error, bad: Self) -> Self {
        use codec::Error::{Complete, Filter, Order, TooBig, Unaligned, Version};
        match error {
            Filter(filter::Error::Ceiling { .. } | filter::Error::OutOfMemory(_)) => {
                Self::NO_MEMORY
            }
            TooBig { .. } | Complete => Self::CHUNK_TOO_BIG,
            Order { .. } | Unaligned { .. } => Self::BAD_OFFSET,
            Version(_) if bad == Self::BAD_BLOB => Self::BLOB_VERSION,
            _ => bad,
        }
    }
}
