//! Converts filters to bytes and back. Pure: no server. No input is trusted.
//!
//! ```text
//!   io             strings and numbers of an RDB, as traits: the server's stream or a test's
//!   reader         a checked cursor over bytes
//!   native         this module's own encodings (RDB, DUMP, SCANDUMP)
//!   redisbloom     RedisBloom's RDB, encoding versions 0 to 4, and its SCANDUMP chunks
//!   valkey_bloom   valkey-bloom's RDB, encoding version 1, and the blob of its BF.LOAD
//!   guava          the bytes of Guava's BloomFilter.writeTo; read only
//!   packed         many items in one string, and their answers in another (BF.BULKADD)
//! ```
//!
//! A decoder checks each count before it uses it, and gets its memory limit from the caller. It
//! allocates no bits before `filter::Plan::check` passes, except for the RDB of another product and
//! a blob: there it allocates a layer when its bits have arrived and have the computed length.

#![deny(clippy::arithmetic_side_effects, reason = "every input is hostile")]

pub mod guava;
pub mod io;
pub mod native;
pub mod packed;
mod reader;
pub mod redisbloom;
pub mod valkey_bloom;

use crate::filter;

/// Why a decoder refuses bytes. The server's log shows this text; clients get a shorter one
/// (`command/refusal.rs`). An error has its own variant if it has its own reply, or is handled.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it; ranges are bytes of the stream")]
pub enum Error {
    #[error("the input ends early")]
    Truncated,
    #[error("{0}")]
    Malformed(&'static str),
    #[error("layout version {0} is not known")]
    Version(u16),
    #[error("the chunk belongs to another filter, or the filter grew while it was dumped")]
    OtherFilter,
    #[error("a chunk of bytes {from}..{to} does not follow {received} received bytes")]
    Order { from: u64, to: u64, received: u64 },
    #[error("a chunk of bytes {from}..{to} is not whole words")]
    Unaligned { from: u64, to: u64 },
    #[error("a chunk of bytes {from}..{to} for a filter of {total} bytes")]
    TooBig { from: u64, to: u64, total: u64 },
    #[error("the key holds a filter already: delete it, or load under another name and rename")]
    Exists,
    #[error("the chunk would change a complete filter")]
    Complete,
    #[error(transparent)]
    Filter(#[from] filter::Error),
}
