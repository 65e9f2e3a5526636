//! The records of pages, in the order of their positions.
//!
//! ```text
//!   ┌──────────┬───────────┬─ ─ ─ ─ ─ ─ ─ ─ ─┐
//!   │ level u8 │ words u16 │ words, u64 each │   the page of this level at the next position
//!   ├──────────┼───────────┼─ ─ ─ ─ ─ ─ ─ ─ ─┤
//!   │ 255      │ lanes u16 │ lanes, u32 each │   the small form, alone
//!   └──────────┴───────────┴─ ─ ─ ─ ─ ─ ─ ─ ─┘
//! ```
//!
//! The number of a page follows from its level and position.

use crate::{
    codec::{Error, native::stream, reader::Reader},
    filter::{
        Error as FilterError,
        pages::{NOT_NEXT, Piece, Pieces, Reach},
    },
};

/// The level of the small form.
const SMALL: u8 = u8::MAX;

/// Appends the records from position `from` on: as many as fit into `most` bytes, and at least one.
/// Returns the position behind them.
pub(super) fn put<'a>(
    at: impl Fn(u64) -> Option<(Reach, Piece<'a>)>,
    from: u64,
    most: usize,
    out: &mut Vec<u8>,
) -> u64 {
    let (mut end, full) = (from, out.len().saturating_add(most));
    while let Some((reach, piece)) = at(end) {
        let start = out.len();
        // Neither the words of a page nor the lanes of the small form are more than 65,535.
        match piece {
            Piece::Small(lanes) => {
                out.push(SMALL);
                out.extend((lanes.len() as u16).to_le_bytes());
                out.extend(lanes.iter().flat_map(|lane| lane.to_le_bytes()));
            }
            Piece::Page(page) => {
                out.push(reach.level() as u8);
                out.extend((page.words().len() as u16).to_le_bytes());
                stream::put(page.words(), size_of_val(page.words()), out);
            }
        }
        if out.len() > full && end > from {
            out.truncate(start);
            break;
        }
        end = reach.end();
    }
    end
}

/// The place behind `bytes`, which start at the place `from` of a body with so many bytes of bits,
/// and are either bits or records; no page is read.
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
        let level = if level == SMALL { 0 } else { level };
        position = Reach::new(position, level.into()).ok_or(NOT_NEXT)?.end();
    }
    Ok(position)
}

pub(super) fn read(bytes: &[u8], pieces: &mut Pieces) -> Result<(), Error> {
    let mut reader = Reader::plain(bytes);
    while reader.left() > 0 {
        match next(&mut reader)? {
            (SMALL, body) => pieces.push_small(&numbers(body, u32::from_le_bytes)?)?,
            (level, body) => pieces.push(level.into(), &numbers(body, u64::from_le_bytes)?)?,
        }
    }
    Ok(())
}

/// The level and the body of the next record.
fn next<'a>(reader: &mut Reader<'a>) -> Result<(u8, &'a [u8]), Error> {
    let (level, count) = (reader.u8()?, usize::from(reader.u16()?));
    let each = if level == SMALL { size_of::<u32>() } else { size_of::<u64>() };
    Ok((level, reader.bytes(count.saturating_mul(each))?))
}

fn numbers<T, const N: usize>(body: &[u8], number: fn([u8; N]) -> T) -> Result<Vec<T>, Error> {
    let (bytes, _) = body.as_chunks::<N>();
    let mut numbers = Vec::new();
    numbers
        .try_reserve_exact(bytes.len())
        .map_err(|_| FilterError::OutOfMemory(body.len() as u64))?;
    numbers.extend(bytes.iter().map(|bytes| number(*bytes)));
    Ok(numbers)
}
