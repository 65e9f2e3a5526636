//! RDB and DUMP of a filter in pages: one string with the header (`header.rs`), then the bits
//! of the layer below the pages and records of pages (`record.rs`), in strings of 1 MiB. No string
//! has both, and a record lies in one string.
//!
//! ```text
//!   ┌────────┬─────────────┬─ ─ ─┬──────────────┬──────────────┬─ ─ ─┬────────────┐
//!   │ header │ bits, 1 MiB │ ... │ pages, 1 MiB │ pages, 1 MiB │ ... │ last pages │
//!   └────────┴─────────────┴─ ─ ─┴──────────────┴──────────────┴─ ─ ─┴────────────┘
//! ```
//!
//! The RDB's own checksum covers bits and pages. The invariants of pages are checked all the same.

use super::{Body, bits, dump::Load, end, record};
use crate::{
    codec::{
        Error,
        io::{Sink, Source},
        native::{
            header,
            kinds::{self, Stored},
        },
    },
    filter::{
        Demand, Error as FilterError,
        paged::{Paged, PagedPlan},
    },
};

/// Bytes of bits or records in a string, unless one page has more.
const PIECE: usize = 1 << 20;

/// Writes a complete filter.
pub fn save(filter: &Paged, sink: &mut impl Sink) {
    put(&Body::of(filter), sink);
}

/// Writes a filter that BF.LOADCHUNK is still filling.
pub fn save_partial(load: &Load, sink: &mut impl Sink) {
    put(&load.body(), sink);
}

fn put(body: &Body, sink: &mut impl Sink) {
    sink.put(&header::encode_paged(&body.plan, body.end));
    let (mut from, mut piece) = (0, Vec::new());
    while from < body.end {
        piece.clear();
        from = body.put(from, PIECE, &mut piece);
        sink.put(&piece);
    }
}

/// Reads the strings behind the header.
pub(in crate::codec::native) fn load(
    plan: PagedPlan,
    present: u64,
    source: &mut impl Source,
    ceiling: u64,
) -> Result<Stored, Error> {
    let (bits, total) = (bits(&plan), end(&plan));
    let check = |wanted| Demand { present: 0, wanted }.check(|_| ceiling);
    check(bits)?;
    let copies = plan.copies;
    let mut load = Load::new(plan);
    let mut place = 0;
    while place < present {
        let string = source.next().ok_or(Error::Truncated)?;
        let bytes = string.as_ref();
        let from = place;
        place = match place.checked_sub(bits) {
            None => place.saturating_add(bytes.len() as u64),
            Some(position) => bits.saturating_add(record::end(bytes, position)?),
        };
        // Each string has something, so the strings end.
        if place > present || place == from || (from < bits && place > bits) {
            return Err(Error::TooBig { from, to: place, total });
        }
        let Ok(held) = &mut load else {
            continue;
        };
        match held.take_part(from, bytes, copies) {
            Ok(_) => {}
            Err(Error::Filter(error @ FilterError::OutOfMemory(_))) => {
                load = Err(error);
                continue;
            }
            Err(error) => return Err(error),
        }
        check(held.bytes())?;
    }
    let mut load = load?;
    Ok(if present < total {
        Stored::Partial(kinds::Load::Pages(load))
    } else {
        Stored::Pages(load.finish()?)
    })
}
