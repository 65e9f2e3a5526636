//! Why a decoder refuses bytes.

use crate::filter;

/// What is wrong with the bytes. The server's log shows this text; clients get a shorter one
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
