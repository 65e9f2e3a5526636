//! RDB and DUMP of a filter in pages: one string with the header (`header.rs`), then records of
//! pages (`record.rs`) in strings of 1 MiB. A record lies in one string.
//!
//! ```text
//!   ┌────────┬──────────────┬──────────────┬─ ─ ─┬────────────┐
//!   │ header │ pages, 1 MiB │ pages, 1 MiB │ ... │ last pages │
//!   └────────┴──────────────┴──────────────┴─ ─ ─┴────────────┘
//! ```
//!
//! The RDB's own checksum covers the pages. Their invariants are checked all the same.

use super::{Settings, dump::Load, header::Head, record};
use crate::{
    codec::{
        Error,
        io::{Sink, Source},
        reader::Reader,
    },
    filter::{
        Error as FilterError,
        pages::{END, Pages, Piece, Pieces, Reach},
    },
};

/// Bytes of records in a string, unless one page has more.
const PIECE: usize = 1 << 20;

/// A stored filter: complete, or still being loaded by BF.LOADCHUNK.
#[derive(Debug)]
pub enum Stored {
    /// The filter has all its pages.
    Complete(Settings, Pages),
    /// BF.LOADCHUNK has not sent all pages yet.
    Partial(Load),
}

/// Writes a complete filter.
pub fn save(settings: &Settings, pages: &Pages, sink: &mut impl Sink) {
    put(&Head::of(settings, pages), END, |position| pages.piece_at(position), sink);
}

/// Writes a filter that BF.LOADCHUNK is still filling.
pub fn save_partial(load: &Load, sink: &mut impl Sink) {
    let pieces = load.pieces();
    put(load.head(), pieces.end(), |position| pieces.piece_at(position), sink);
}

fn put<'a>(
    head: &Head,
    present: u64,
    at: impl Fn(u64) -> Option<(Reach, Piece<'a>)>,
    sink: &mut impl Sink,
) {
    sink.put(&head.encode(present));
    let (mut from, mut piece) = (0, Vec::new());
    while from < present {
        piece.clear();
        from = record::put(&at, from, PIECE, &mut piece);
        sink.put(&piece);
    }
}

/// Reads the strings of [`save`] or [`save_partial`] into a filter whose pages take at most
/// `ceiling` bytes.
///
/// Memory is allocated as the pages arrive. A filter that the allocator refuses is read to its end
/// all the same, so that what comes after it can be read.
///
/// # Errors
/// Any [`Error`]; nothing stays allocated.
pub fn load(source: &mut impl Source, ceiling: u64) -> Result<Stored, Error> {
    let (head, present) = Head::decode(source.next().ok_or(Error::Truncated)?.as_ref())?;
    let mut pieces = Pieces::new(head.plan, 0);
    let (mut end, mut refused) = (0, None);
    while end < present {
        let string = source.next().ok_or(Error::Truncated)?;
        let mut reader = Reader::plain(string.as_ref());
        // Each string has a record, so the strings end.
        loop {
            let record = record::Record::read(&mut reader)?;
            end = record.end(end)?;
            if end > present {
                return Err(Error::TooBig { from: 0, to: end, total: present });
            }
            if refused.is_none() {
                match record.push(&mut pieces) {
                    Ok(()) => {}
                    Err(error @ Error::Filter(FilterError::OutOfMemory(_))) => {
                        refused = Some(error);
                        pieces = Pieces::new(head.plan, 0);
                    }
                    Err(error) => return Err(error),
                }
            }
            let wanted = pieces.bytes();
            if wanted > ceiling {
                return Err(FilterError::Ceiling { wanted, ceiling }.into());
            }
            if reader.left() == 0 {
                break;
            }
        }
    }
    if let Some(error) = refused {
        return Err(error);
    }
    // The list of the load is checked as a whole when its last page comes.
    let mut load = Load::new(head);
    load.append(pieces)?;
    if present < END {
        return Ok(Stored::Partial(load));
    }
    let (settings, pages) = load.finish()?;
    Ok(Stored::Complete(settings, pages))
}
