//! RDB and DUMP, encoding version 100: one string with the header (`header.rs`), then the bits of
//! all layers and the records of pages (`body.rs`) in strings of 1 MiB. No string has both,
//! and a record lies in one string.
//!
//! ```text
//!   ┌────────┬─────────────┬─ ─ ─┬───────────┬──────────────┬─ ─ ─┬────────────┐
//!   │ header │ bits, 1 MiB │ ... │ last bits │ pages, 1 MiB │ ... │ last pages │
//!   └────────┴─────────────┴─ ─ ─┴───────────┴──────────────┴─ ─ ─┴────────────┘
//! ```
//!
//! The server compresses each string into a second buffer of its size, so a filter of any size
//! takes 2 MiB more while it is saved. The RDB's own checksum covers bits and pages. The invariants
//! of pages are checked all the same.

use super::{Body, Load, Stored, body, header};
use crate::{
    codec::{
        Error,
        io::{Sink, Source},
    },
    filter::Error as FilterError,
};

/// The encoding version that the server stores with the type name.
pub const ENCODING_VERSION: i32 = 100;

/// Bytes of bits or records in a string, unless one page has more.
const PIECE: usize = 1 << 20;

/// Writes a filter, or what BF.LOADCHUNK has sent of one.
pub fn save<'a>(filter: impl Into<Body<'a>>, sink: &mut impl Sink) {
    let body = filter.into();
    let end = body.end();
    sink.put(&body.plan().encode(end));
    let (mut from, mut piece) = (0, Vec::new());
    while from < end {
        piece.clear();
        from = body.put(from, PIECE, &mut piece);
        sink.put(&piece);
    }
}

/// Reads the strings that [`save`] wrote, into a filter of at most `ceiling` bytes of bits or
/// pages.
///
/// A filter that the allocator refuses is read to its end all the same, so that what comes after it
/// can be read.
///
/// # Errors
/// Any [`Error`]; nothing stays allocated.
pub fn load(source: &mut impl Source, ceiling: u64) -> Result<Stored, Error> {
    let header = source.next()?;
    let (plan, present) = header::decode(header.as_ref())?;
    drop(header);
    let (bits, total, copies) = (plan.bit_bytes(), plan.end(), plan.copies());
    let mut load = match Load::new(plan, ceiling) {
        Err(error @ FilterError::Ceiling { .. }) => return Err(error.into()),
        load => load,
    };
    let mut place = 0;
    while place < present {
        let string = source.next()?;
        let bytes = string.as_ref();
        let from = place;
        // `behind` refuses an empty string, so the loop ends.
        place = body::behind(bits, from, bytes)?;
        if place > present {
            return Err(Error::TooBig { from, to: place, total });
        }
        let Ok(held) = &mut load else {
            continue;
        };
        match held.take_part((from, place), bytes, copies, |_| ceiling) {
            Err(Error::Filter(error @ FilterError::OutOfMemory(_))) => load = Err(error),
            taken => drop(taken?),
        }
    }
    let mut load = load?;
    if present < total { Ok(Stored::Partial(Box::new(load))) } else { load.finish() }
}
