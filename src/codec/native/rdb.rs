//! RDB and DUMP, encoding version 100: one string with the header (`header.rs`), then the bits that
//! it announces, as strings of at most 1 MiB.
//!
//! ```text
//!   ┌────────┬───────────────┬───────────────┬─ ─ ─ ─┬───────────┐
//!   │ header │ bits, 1 MiB   │ bits, 1 MiB   │       │ the rest  │
//!   └────────┴───────────────┴───────────────┴─ ─ ─ ─┴───────────┘
//! ```
//!
//! In pieces, because the server compresses each string into a second buffer of its size: a filter
//! of 4 GiB is saved with 2 MiB of extra memory. The RDB's own checksum covers the bits.

use super::{dump::Load, header, stream};
use crate::{
    codec::{
        Error,
        io::{Sink, Source},
    },
    filter::{Filter, Layer, LayerPlan, Plan},
};

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

/// Writes a complete filter.
pub fn save(filter: &Filter, sink: &mut impl Sink) {
    put(filter, filter.bit_bytes(), sink);
}

/// Writes what has been loaded of a filter.
pub fn save_partial(load: &Load, sink: &mut impl Sink) {
    put(load.filter(), load.received(), sink);
}

#[expect(clippy::arithmetic_side_effects, reason = "positions inside a filter that exists")]
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

/// Reads what [`save`] or [`save_partial`] wrote, into a filter of at most `ceiling` bytes of bits.
///
/// What a header announces is allocated as it arrives ([`Layer::arriving`]): a forged size costs
/// nothing, and what is still to come of a partial filter gets its memory when BF.LOADCHUNK goes on
/// with it.
///
/// # Errors
/// Any of [`Error`]; nothing stays allocated.
pub fn load(source: &mut impl Source, ceiling: u64) -> Result<Stored, Error> {
    let (plan, present) = header::decode(source.next().ok_or(Error::Truncated)?.as_ref())?;
    let total = plan.bit_bytes();
    let mut pieces = Pieces { source, total, present, read: 0, piece: None, used: 0 };
    let filter = plan.build(ceiling, |plan| pieces.layer(plan))?;
    Ok(if present == total {
        Stored::Complete(filter)
    } else {
        Stored::Partial(Load::resume(filter, present))
    })
}

/// The strings behind a header.
struct Pieces<'a, S: Source> {
    source: &'a mut S,
    /// Bytes of the whole stream of bits.
    total: u64,
    /// Bytes of it that these strings have.
    present: u64,
    /// Bytes of the strings that were read.
    read: u64,
    /// The last string that was read.
    piece: Option<S::Piece>,
    /// Bytes of it that are in a layer.
    used: usize,
}

impl<S: Source> Pieces<'_, S> {
    /// The next layer, with as much of it as is present.
    fn layer(&mut self, plan: &LayerPlan) -> Result<Layer, Error> {
        let bytes = plan.shape.words().saturating_mul(stream::WORD);
        let words = self.next(bytes)?.len() as u64 / stream::WORD;
        let mut layer = Layer::arriving(plan.shape, plan.capacity, plan.error_rate, words)?;
        let mut from = 0;
        while from < bytes {
            let part = self.next(bytes.saturating_sub(from))?;
            if part.is_empty() {
                break;
            }
            let count = part.len();
            let to = from.saturating_add(count as u64);
            layer.make_room(to / stream::WORD)?;
            stream::merge_into(&mut layer, from, part);
            from = to;
            self.used = self.used.saturating_add(count);
        }
        Ok(layer)
    }

    /// The bytes that come next, at least one and at most `most`; none at the end.
    fn next(&mut self, most: u64) -> Result<&[u8], Error> {
        let left = |piece: &S::Piece| piece.as_ref().len().saturating_sub(self.used);
        if self.piece.as_ref().map_or(0, left) == 0 {
            if self.read == self.present {
                return Ok(&[]);
            }
            // Freed before the next one is allocated.
            self.piece = None;
            let piece = self.source.next().ok_or(Error::Truncated)?;
            let (from, count) = (self.read, piece.as_ref().len() as u64);
            let to = from.saturating_add(count);
            if count == 0 || !count.is_multiple_of(stream::WORD) || to > self.present {
                let total = self.total;
                return Err(Error::TooBig { from, to, total });
            }
            (self.read, self.used) = (to, 0);
            self.piece = Some(piece);
        }
        let bytes = self.piece.as_ref().map_or(&[][..], AsRef::as_ref);
        let bytes = bytes.get(self.used..).unwrap_or_default();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok(bytes.get(..most).unwrap_or(bytes))
    }
}
