//! RDB and DUMP, encoding version 100: one string with the header (`header.rs`), then the bits of
//! each layer in strings of at most 1 MiB.
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

/// Words in a string: 1 MiB.
const PIECE_WORDS: usize = 1 << 17;

/// Writes a complete filter.
pub fn save(filter: &Filter, sink: &mut impl Sink) {
    put(filter, filter.bit_bytes(), sink);
}

/// Writes a filter that BF.LOADCHUNK is still filling.
pub fn save_partial(load: &Load, sink: &mut impl Sink) {
    put(load.filter(), load.received(), sink);
}

fn put(filter: &Filter, present: u64, sink: &mut impl Sink) {
    sink.put(&header::encode(&Plan::of(filter), present));
    let (mut left, mut piece) = (present, Vec::new());
    for layer in filter.layers() {
        let bytes = left.min(layer.shape().words().saturating_mul(stream::WORD));
        left = left.saturating_sub(bytes);
        let words = layer.bits().words().get(..(bytes / stream::WORD) as usize);
        for words in words.unwrap_or_default().chunks(PIECE_WORDS) {
            piece.clear();
            stream::put(words, size_of_val(words), &mut piece);
            sink.put(&piece);
        }
    }
}

/// Reads the strings behind the header, for [`kinds::load`]. Memory is allocated as the bits
/// arrive. A partial filter gets the memory for its missing bits when BF.LOADCHUNK continues.
pub(super) fn load(
    plan: &Plan,
    present: u64,
    source: &mut impl Source,
    ceiling: u64,
) -> Result<Stored, Error> {
    let mut left = present;
    let filter = plan.build(ceiling, |plan| layer(plan, source, &mut left));
    if let Err(Error::Filter(FilterError::OutOfMemory(_))) = filter {
        // What comes after the filter must still be read.
        while left > 0 {
            piece(source, left, &mut left)?;
        }
    }
    let filter = filter?;
    Ok(if present == plan.bit_bytes() {
        Stored::Layers(filter)
    } else {
        Stored::Partial(kinds::Load::Layers(Load::resume(filter, present)))
    })
}

/// Reads the next layer, or the part of it that is among the `left` bytes.
fn layer(plan: &LayerPlan, source: &mut impl Source, left: &mut u64) -> Result<Layer, Error> {
    let bytes = plan.shape.words().saturating_mul(stream::WORD);
    let mut layer = plan.arriving()?;
    let mut from = 0;
    while from < bytes && *left > 0 {
        let piece = piece(source, bytes.saturating_sub(from).min(*left), left)?;
        let to = from.saturating_add(piece.as_ref().len() as u64);
        layer.make_room(to / stream::WORD)?;
        stream::merge_into(&mut layer, from, piece.as_ref());
        from = to;
    }
    Ok(layer)
}

/// Reads the next string, of at most `most` bytes, and takes its length off `left`.
fn piece<S: Source>(source: &mut S, most: u64, left: &mut u64) -> Result<S::Piece, Error> {
    let piece = source.next().ok_or(Error::Truncated)?;
    let count = piece.as_ref().len() as u64;
    if count == 0 || !count.is_multiple_of(stream::WORD) || count > most {
        return Err(Error::Malformed("bits that are not whole words, or not of one layer"));
    }
    *left = left.saturating_sub(count);
    Ok(piece)
}
