//! What a client reads when it is refused: the only file with error texts.
//!
//! The words after the code are RedisBloom's, because clients and their tests know them; the code
//! (`ERR`, which some of its texts lack) is always there, because clients split it off.

use std::{
    borrow::Cow,
    ffi::{CStr, CString},
};

use crate::{codec, filter};

/// A refusal. Each has one text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Wrong number of arguments; the server words it.
    Arity,
    /// The key holds another type.
    WrongType,
    /// The key is missing where it must not be.
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
    /// RESERVE: a word that is no option.
    UnknownOption {
        /// Words of the command behind it.
        behind: u8,
    },
    /// RESERVE: SEED is the last word.
    NoSeed,
    /// RESERVE: the seed is not an unsigned 64-bit number.
    BadSeed,
    /// INSERT: a word that is no option.
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
    /// INFO: no such field.
    UnknownField,
    /// SCANDUMP, LOADCHUNK: the iterator is not an integer.
    BadIterator,
    /// LOADCHUNK: damaged, foreign or out of order.
    BadData,
    /// LOADCHUNK: a chunk that lies outside the filter.
    BadOffset,
    /// LOADCHUNK: a chunk that reaches past the end, or would change a complete filter.
    ChunkTooBig,
    /// DEL, COUNT: the filter has bits, not counters.
    NotCounting,
    /// LOAD, IMPORT: the key exists.
    BusyKey,
    /// LOAD: damaged or foreign.
    BadBlob,
    /// LOAD: of a later version.
    BlobVersion,
    /// IMPORT: damaged or foreign.
    BadGuava,
    /// IMPORT: another filter than what capacity and rate give.
    OtherDesign,
    /// IMPORT: a bitmap longer than what capacity and rate give.
    BitmapBeyond,
    /// IMPORT: a bitmap shorter than what capacity and rate give.
    BitmapShort,
    /// The key is still being filled by LOADCHUNK.
    Loading,
    /// A non-scaling filter takes no new item.
    Full,
    /// No memory, or not that much allowed, for a new filter.
    NoMemory,
    /// No memory, or not that much allowed, for a new layer.
    NoGrowth,
    /// A bug.
    Internal,
}

impl Refusal {
    /// The text on the wire, for a command of these words.
    pub fn text<'a>(self, words: impl DoubleEndedIterator<Item = &'a [u8]>) -> Cow<'static, CStr> {
        match self {
            Self::UnknownOption { behind } => {
                let word = words.rev().nth(behind.into());
                Cow::Owned(unknown_option(word.unwrap_or_default()))
            }
            fixed => Cow::Borrowed(fixed.fixed_text()),
        }
    }

    /// The text of a refusal that names no word of the command.
    fn fixed_text(self) -> &'static CStr {
        match self {
            // Sent by the server itself, which knows the command's name.
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
            Self::UnknownOption { .. } => c"ERR unknown argument",
            Self::NoSeed => c"ERR no seed",
            Self::BadSeed => c"ERR bad seed",
            Self::UnknownArgument => c"ERR Unknown argument received",
            Self::InsertErrorRate => c"ERR Bad error rate",
            Self::InsertCapacity => c"ERR Bad capacity",
            Self::InsertExpansion => c"ERR Bad expansion",
            Self::InsertSeed => c"ERR Bad seed",
            Self::Tightening => c"ERR (0 < tightening ratio range < 1)",
            Self::ScalesNot => c"ERR cannot use NONSCALING and VALIDATESCALETO options together",
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
            Self::Full => c"ERR non scaling filter is full",
            Self::NoMemory => c"ERR Insufficient memory to create filter",
            Self::NoGrowth => c"ERR problem inserting into filter",
            Self::Internal => c"ERR internal error, see the server log",
        }
    }

    /// For a filter that could not be made. The arguments' ranges were checked where they were
    /// read.
    pub fn of_creation(_: filter::Error) -> Self {
        Self::NoMemory
    }

    /// For an item that could not be added.
    pub fn of_addition(error: filter::Error) -> Self {
        match error {
            filter::Error::Full => Self::Full,
            _ => Self::NoGrowth,
        }
    }

    /// For a chunk that could not be loaded.
    pub fn of_chunk(error: codec::Error) -> Self {
        use filter::Error as Filter;
        match error {
            codec::Error::Filter(Filter::Ceiling { .. } | Filter::OutOfMemory(_)) => Self::NoMemory,
            codec::Error::TooBig { .. } | codec::Error::Complete => Self::ChunkTooBig,
            codec::Error::Order { .. } | codec::Error::Unaligned { .. } => Self::BadOffset,
            _ => Self::BadData,
        }
    }

    /// For a blob of valkey-bloom's that could not be read.
    pub fn of_blob(error: codec::Error) -> Self {
        match error {
            codec::Error::Version(_) => Self::BlobVersion,
            error => Self::of_bytes(error, Self::BadBlob),
        }
    }

    /// For what BF.IMPORT could not take.
    pub fn of_import(error: codec::Error) -> Self {
        match error {
            codec::Error::Design { .. } => Self::OtherDesign,
            codec::Error::Beyond { .. } => Self::BitmapBeyond,
            codec::Error::Short { .. } => Self::BitmapShort,
            error => Self::of_bytes(error, Self::BadGuava),
        }
    }

    /// No memory, or bad bytes.
    fn of_bytes(error: codec::Error, bad: Self) -> Self {
        use filter::Error as Filter;
        match error {
            codec::Error::Filter(Filter::Ceiling { .. } | Filter::OutOfMemory(_)) => Self::NoMemory,
            _ => bad,
        }
    }
}

/// Bytes of a client's word that an error text repeats.
const REPEATED: usize = 32;

/// The text that names a word of the client, which may hold any bytes: a line break would end the
/// reply.
fn unknown_option(word: &[u8]) -> CString {
    let start = word.get(..REPEATED).unwrap_or(word);
    CString::new(format!("ERR unknown argument '{}'", start.escape_ascii())).unwrap_or_default()
}
