//! RDB and DUMP, encoding version 100: one string with the header (`header.rs`), then the bits that it announces, as
//! strings of at most 1 MiB.
//!
//! ```text
//!   ┌────────┬───────────────┬───────────────┬─ ─ ─ ─┬───────────┐
//!   │ header │ bits, 1 MiB   │ bits, 1 MiB   │       │ the rest  │
//!   └────────┴───────────────┴───────────────┴─ ─ ─ ─┴───────────┘
//! ```
//!
//! In pieces, because the server compresses each string into a second buffer of its size: a filter of 4 GiB is saved
//! with 2 MiB of extra memory. The RDB's own checksum covers the bits.

use super::{
    Error,
    chunk::Load,
    header, stream,
    values::{Sink, Source},
};
use crate::filter::{Filter, Plan};

/// The encoding version that the server stores beside the type name.
pub const ENCODING_VERSION: i32 = 100;

/// Bytes of bits in a piece.
const PIECE: usize = 1 << 20;

/// A filter as it is stored: complete, or still being loaded by BF.LOADCHUNK.
#[derive(Debug)]
pub enum Stored {
    /// Every bit is there.
    Complete(Filter),
    /// The rest of the bits is to come.
    Partial(Load),
}

/// The most bytes of bits that a filter may have. A complete one brings its bits along; one that does not is a few bytes
/// that ask for any amount.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling {
    /// Of a filter whose bits all follow.
    pub complete: u64,
    /// Of any other.
    pub partial: u64,
}

impl From<u64> for Ceiling {
    /// The same for both.
    fn from(bytes: u64) -> Self {
        Self {
            complete: bytes,
            partial: bytes,
        }
    }
}

/// Writes a complete filter.
pub fn save(filter: &Filter, sink: &mut impl Sink) {
    put(filter, filter.bit_bytes(), sink);
}

/// Writes what has been loaded of a filter.
pub fn save_partial(load: &Load, sink: &mut impl Sink) {
    put(load.filter(), load.received(), sink);
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "positions inside a filter that exists"
)]
fn put(filter: &Filter, present: u64, sink: &mut impl Sink) {
    sink.put(&header::encode(&Plan::of(filter), present));
    let mut piece = Vec::new();
    let mut from = 0;
    while from < present {
        piece.clear();
        let count = (present - from).min(PIECE as u64);
        stream::read(filter, from, count as usize, &mut piece);
        sink.put(&piece);
        stream::spans(filter, from, from + count).for_each(|words| sink.done_with(words));
        from += count;
    }
}

/// Reads what [`save`] or [`save_partial`] wrote, into a filter of at most `ceiling.complete` bytes of bits, or
/// `ceiling.partial` where some of them are still to come.
///
/// # Errors
/// Any of [`Error`]; nothing stays allocated.
pub fn load(source: &mut impl Source, ceiling: impl Into<Ceiling>) -> Result<Stored, Error> {
    let ceiling = ceiling.into();
    let (plan, present) = header::decode(source.next().ok_or(Error::Truncated)?.as_ref())?;
    let total = plan.bit_bytes();
    let mut filter = plan.allocate(if present == total {
        ceiling.complete
    } else {
        ceiling.partial
    })?;
    let mut from = 0;
    while from < present {
        let piece = source.next().ok_or(Error::Truncated)?;
        let bytes = piece.as_ref();
        let to = from.saturating_add(bytes.len() as u64);
        if bytes.is_empty() || !(bytes.len() as u64).is_multiple_of(stream::WORD) || to > present {
            return Err(Error::TooBig { from, to, total });
        }
        stream::merge(&mut filter, from, bytes);
        from = to;
    }
    Ok(if present == total {
        Stored::Complete(filter)
    } else {
        Stored::Partial(Load::resume(filter, present))
    })
}
