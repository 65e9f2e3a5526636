//! The records of pages, in the order of their positions.
//!
//! ```text
//!   ┌──────────┬───────────┬─ ─ ─ ─ ─ ─ ─ ─ ─┐
//!   │ level u8 │ words u16 │ words, u64 each │   the page of this level at the next position
//!   └──────────┴───────────┴─ ─ ─ ─ ─ ─ ─ ─ ─┘
//! ```
//!
//! The number of a page follows from its level and position.

use crate::{
    codec::{Error, native::stream, reader::Reader},
    filter::{
        Error as FilterError,
        pages::{NOT_NEXT, Page, Pieces, Reach},
    },
};

/// Appends the records from position `from` on: as many as fit into `most` bytes, and at least one.
/// Returns the position behind them.
pub(super) fn put<'a>(
    at: impl Fn(u64) -> Option<(Reach, &'a Page)>,
    from: u64,
    most: usize,
    out: &mut Vec<u8>,
) -> u64 {
    let (mut end, full) = (from, out.len().saturating_add(most));
    while let Some((reach, page)) = at(end) {
        let (start, words) = (out.len(), page.words());
        out.push(reach.level as u8);
        // A page has at most 65,535 words.
        out.extend((words.len() as u16).to_le_bytes());
        stream::put(words, size_of_val(words), out);
        if out.len() > full && end > from {
            out.truncate(start);
            break;
        }
        end = reach.end();
    }
    end
}

/// The place behind `bytes`, which start at the place `from`, and are either bits or records.
/// `bits` is the number of bytes of bits in the body. No page is read.
pub(super) fn behind(bits: u64, from: u64, bytes: &[u8]) -> Result<u64, Error> {
    let to = match from.checked_sub(bits) {
        None => from.saturating_add(bytes.len() as u64),
        Some(position) => bits.saturating_add(end(bytes, position)?),
    };
    if to == from || (from < bits && to > bits) {
        return Err(Error::Order { from, to, received: 0 });
    }
    let words = from.min(bits)..to.min(bits);
    if !(words.start.is_multiple_of(stream::WORD) && words.end.is_multiple_of(stream::WORD)) {
        return Err(Error::Unaligned { from: words.start, to: words.end });
    }
    Ok(to)
}

/// The position behind the records of `bytes`, which start at `position`.
fn end(bytes: &[u8], mut position: u64) -> Result<u64, Error> {
    let mut reader = Reader::plain(bytes);
    while reader.left() > 0 {
        let (level, _) = next(&mut reader)?;
        position = Reach::new(position, level.into()).ok_or(NOT_NEXT)?.end();
    }
    Ok(position)
}

pub(super) fn read(bytes: &[u8], pieces: &mut Pieces) -> Result<(), Error> {
    let mut reader = Reader::plain(bytes);
    while reader.left() > 0 {
        let (level, body) = next(&mut reader)?;
        pieces.push(level.into(), &words(body)?)?;
    }
    Ok(())
}

/// The level and the words of the next record.
fn next<'a>(reader: &mut Reader<'a>) -> Result<(u8, &'a [u8]), Error> {
    let (level, count) = (reader.u8()?, usize::from(reader.u16()?));
    Ok((level, reader.bytes(count.saturating_mul(size_of::<u64>()))?))
}

fn words(body: &[u8]) -> Result<Vec<u64>, Error> {
    let (bytes, _) = body.as_chunks();
    let mut words = Vec::new();
    words
        .try_reserve_exact(bytes.len())
        .map_err(|_| FilterError::OutOfMemory(body.len() as u64))?;
    words.extend(bytes.iter().map(|bytes| u64::from_le_bytes(*bytes)));
    Ok(words)
}
