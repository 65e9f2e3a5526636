//! RDB and DUMP, encoding version 100: one string with the header (`header.rs`), then the bits in
//! strings of at most 1 MiB.
//!
//! ```text
//!   ┌────────┬─────────────┬─────────────┬─ ─ ─┬───────────┐
//!   │ header │ bits, 1 MiB │ bits, 1 MiB │ ... │ last bits │
//!   └────────┴─────────────┴─────────────┴─ ─ ─┴───────────┘
//! ```
//!
//! The server compresses each string into a second buffer of its size. With strings of 1 MiB,
//! saving a filter of 4 GiB takes 2 MiB of extra memory. The RDB's own checksum covers the bits.

use super::{
    dump::Load,
    header,
    kinds::{self, Stored},
    stream,
};
use crate::{
    codec::{
        Error,
        io::{Sink, Source},
    },
    filter::{Error as FilterError, Filter, Layer, LayerPlan, Plan},
};

/// The encoding version that the server stores with the type name.
pub const ENCODING_VERSION: i32 = 100;

/// Bytes of bits in a string, at most.
const PIECE: usize = 1 << 20;

/// Writes a complete filter.
pub fn save(filter: &Filter, sink: &mut impl Sink) {
    put(filter, filter.bit_bytes(), sink);
}

/// Writes a filter that BF.LOADCHUNK is still filling.
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
        from += count;
    }
}

/// Reads the strings of [`save`] or [`save_partial`], of which the first is the header
/// ([`kinds::load`](super::kinds::load)).
///
/// Memory is allocated as the bits arrive ([`Layer::arriving`]). A partial filter gets the memory
/// for its missing bits when BF.LOADCHUNK continues.
pub(super) fn load<S: Source>(
    header: S::Piece,
    source: &mut S,
    ceiling: u64,
) -> Result<Stored, Error> {
    let (plan, present) = header::decode(header.as_ref())?;
    drop(header);
    let total = plan.bit_bytes();
    let mut pieces = Pieces { source, total, present, read: 0, piece: None, used: 0 };
    let filter = match plan.build(ceiling, |plan| pieces.layer(plan)) {
        Ok(filter) => filter,
        Err(error @ Error::Filter(FilterError::OutOfMemory(_))) => {
            pieces.skip()?;
            return Err(error);
        }
        Err(error) => return Err(error),
    };
    Ok(if present == total {
        Stored::Layers(filter)
    } else {
        Stored::Partial(kinds::Load::Layers(Load::resume(filter, present)))
    })
}

/// Reads the strings that follow a header.
struct Pieces<'a, S: Source> {
    source: &'a mut S,
    /// Bytes of the whole stream of bits.
    total: u64,
    /// Bytes of the stream that the strings contain.
    present: u64,
    /// Bytes of the strings read so far.
    read: u64,
    /// The string read last.
    piece: Option<S::Piece>,
    /// Bytes of `piece` that are in a layer already.
    used: usize,
}

impl<S: Source> Pieces<'_, S> {
    /// Reads the next layer, or the part of it that is present.
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

    /// The next unread bytes, at least one and at most `most`; empty at the end.
    fn next(&mut self, most: u64) -> Result<&[u8], Error> {
        let left = |piece: &S::Piece| piece.as_ref().len().saturating_sub(self.used);
        if self.piece.as_ref().map_or(0, left) == 0 {
            if self.read == self.present {
                return Ok(&[]);
            }
            self.read_piece()?;
        }
        let bytes = self.piece.as_ref().map_or(&[][..], AsRef::as_ref);
        let bytes = bytes.get(self.used..).unwrap_or_default();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok(bytes.get(..most).unwrap_or(bytes))
    }

    /// Reads the next string.
    fn read_piece(&mut self) -> Result<(), Error> {
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
        Ok(())
    }

    /// Reads the strings that are left, for nothing.
    fn skip(&mut self) -> Result<(), Error> {
        while self.read < self.present {
            self.read_piece()?;
        }
        Ok(())
    }
}
