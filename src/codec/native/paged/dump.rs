//! A filter in pages in bounded chunks, for BF.SCANDUMP, BF.LOADCHUNK and the rewritten AOF.
//!
//! A dump is the header (`header.rs`), then records of pages (`record.rs`) in chunks of about
//! 16 MiB. Each chunk has a frame:
//!
//! ```text
//!   0        6         8          16       20
//!   ┌────────┬─────────┬──────────┬────────┬─ ─ ─ ─ ─┬─ ─ ─ ─ ─┬─────────┐
//!   │ rbchnk │ version │ position │ length │ header  │ records │ XXH3-64 │
//!   │        │ = 2     │ u64      │ u32    │ as now  │         │ of all  │
//!   └────────┴─────────┴──────────┴────────┴─ ─ ─ ─ ─┴─ ─ ─ ─ ─┴─────────┘
//! ```
//!
//! SCANDUMP 0 returns the header and iterator 1. SCANDUMP n returns the pages from the one at
//! position n - 1 on, and the position behind them plus 1. LOADCHUNK gets the iterator that
//! SCANDUMP returned with the data.
//!
//! The filter may change between the commands of a dump: `filter/pages/pieces.rs` says why the copy
//! has each item that was there all the time, and each page of one moment. The numbers of the
//! filter are those of the last chunk. When a generation starts, or the filter is replaced, its
//! identity changes, and later chunks are refused.

use super::{Settings, header::Head, record};
use crate::{
    codec::{
        Error,
        native::dump::Taken,
        reader::{Reader, open, seal},
    },
    filter::{
        Demand, Error as FilterError,
        pages::{END, Pages, Piece, Pieces, Reach},
    },
};

const MAGIC: &str = "rbchnk";
const VERSION: u16 = 2;
/// Bytes of records in a chunk, unless one page has more.
const RECORDS: usize = 16 << 20;

/// The header of a dump, and the iterator that goes with it.
#[must_use]
pub fn header(settings: &Settings, pages: &Pages) -> (i64, Vec<u8>) {
    (1, Head::of(settings, pages).encode(0))
}

/// Returns the next iterator and the chunk for iterator `from`, which may be any number; `None`
/// beyond the end and for numbers below 1.
#[must_use]
pub fn at(settings: &Settings, pages: &Pages, from: i64) -> Option<(i64, Vec<u8>)> {
    chunk(&Head::of(settings, pages), |position| pages.piece_at(position), from)
}

fn chunk<'a>(
    head: &Head,
    at: impl Fn(u64) -> Option<(Reach, Piece<'a>)>,
    from: i64,
) -> Option<(i64, Vec<u8>)> {
    let position = u64::try_from(from.checked_sub(1)?).ok()?;
    let (first, _) = at(position)?;
    let header = head.encode(0);
    let mut out = open(MAGIC, VERSION);
    out.extend(first.start().to_le_bytes());
    // A header has no 4 GiB.
    out.extend((header.len() as u32).to_le_bytes());
    out.extend(header);
    let end = record::put(at, first.start(), RECORDS, &mut out);
    Some((i64::try_from(end).ok()?.checked_add(1)?, seal(out)))
}

/// Reads the header of a dump.
fn read_header(data: &[u8]) -> Result<Head, Error> {
    match Head::decode(data)? {
        (head, 0) => Ok(head),
        (_, present) => Err(Error::Order { from: 0, to: present, received: 0 }),
    }
}

/// Reads a chunk of a filter with this identity.
fn read(identity: u64, iterator: i64, data: &[u8]) -> Result<(Head, Pieces), Error> {
    let (_, mut reader) = Reader::sealed(data, MAGIC, VERSION..=VERSION)?;
    let (first, length) = (reader.u64()?, reader.u32()?);
    let head = read_header(reader.bytes(length as usize)?)?;
    if head.identity() != identity {
        return Err(Error::OtherFilter);
    }
    let mut pieces = Pieces::new(head.plan, first);
    while reader.left() > 0 {
        record::Record::read(&mut reader)?.push(&mut pieces)?;
    }
    // The iterator and the records must give the same end.
    let to = pieces.end();
    if to == first || iterator.checked_sub(1).and_then(|end| u64::try_from(end).ok()) != Some(to) {
        return Err(Error::Order { from: first, to, received: 0 });
    }
    Ok((head, pieces))
}

/// A filter that BF.LOADCHUNK is filling: it has a part of its pages, and answers no query yet.
#[derive(Debug)]
pub struct Load {
    /// By the newest chunk.
    head: Head,
    identity: u64,
    pieces: Pieces,
}

impl Load {
    /// Begins with the header of a dump. Memory is allocated as pages arrive ([`Self::take`]).
    ///
    /// # Errors
    /// Any [`Error`] for bad bytes.
    pub fn begin(data: &[u8]) -> Result<Self, Error> {
        read_header(data).map(Self::new)
    }

    pub(super) fn new(head: Head) -> Self {
        Self { identity: head.identity(), pieces: Pieces::new(head.plan, 0), head }
    }

    /// Whether `data` is the header of a filter with this identity. A client repeats the header if
    /// it got no reply.
    #[must_use]
    pub fn began_with(&self, data: &[u8]) -> bool {
        read_header(data).is_ok_and(|head| head.identity() == self.identity)
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    pub(super) fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// The position up to which pages were received.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.pieces.end()
    }

    /// The bytes that the received pages take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pieces.bytes()
    }

    /// The header of a dump of the received pages.
    #[must_use]
    pub fn header(&self) -> (i64, Vec<u8>) {
        (1, self.head.encode(0))
    }

    /// Returns the next iterator and the chunk for iterator `from`, from the received pages.
    #[must_use]
    pub fn at(&self, from: i64) -> Option<(i64, Vec<u8>)> {
        chunk(&self.head, |position| self.pieces.piece_at(position), from)
    }

    /// Takes the next chunk, or one that was taken already: a client repeats it if it got no reply.
    /// If the chunk has new pages, `ceiling` gets the bytes that they take, and returns how many
    /// there may be.
    ///
    /// # Errors
    /// `Error::Order` for a gap, `Error::OtherFilter`, `Error::Ceiling`, `Error::OutOfMemory`, and
    /// any other [`Error`] for bad bytes; nothing changes then.
    pub fn take(
        &mut self,
        iterator: i64,
        data: &[u8],
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<Taken, Error> {
        let (head, pieces) = read(self.identity, iterator, data)?;
        if pieces.end() > self.received() {
            let present = self.bytes();
            let wanted = present.saturating_add(pieces.bytes());
            let ceiling = ceiling(Demand { present, wanted });
            if wanted > ceiling {
                return Err(FilterError::Ceiling { wanted, ceiling }.into());
            }
        }
        let more = self.append(pieces)?;
        if more {
            self.head = head;
        }
        Ok(match more {
            _ if self.received() == END => Taken::Last,
            true => Taken::Next,
            false => Taken::Repeated,
        })
    }

    /// Adds pages to those that were received; returns whether there are more positions now.
    pub(super) fn append(&mut self, pieces: Pieces) -> Result<bool, Error> {
        let (from, to, received) = (pieces.start(), pieces.end(), self.received());
        if from > received {
            return Err(Error::Order { from, to, received });
        }
        Ok(self.pieces.append(pieces)?)
    }

    /// The filter, after [`Self::take`] has returned [`Taken::Last`].
    ///
    /// # Errors
    /// `Error::OutOfMemory`; another try may succeed.
    pub fn finish(&mut self) -> Result<(Settings, Pages), FilterError> {
        Ok(self.head.filter(self.pieces.finish(self.head.copies)?))
    }

    /// Copies the incomplete filter.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn duplicate(&self) -> Result<Self, FilterError> {
        Ok(Self { pieces: self.pieces.duplicate()?, ..*self })
    }
}

/// Accepts a repeated chunk for a complete filter that has every item of it already.
///
/// # Errors
/// `Error::Exists` for a header, `Error::Complete` for a chunk that would change the filter, and
/// any other [`Error`] for bad bytes.
pub fn repeat(settings: &Settings, pages: &Pages, iterator: i64, data: &[u8]) -> Result<(), Error> {
    if iterator == 1 && read_header(data).is_ok() {
        return Err(Error::Exists);
    }
    let (_, pieces) = read(Head::of(settings, pages).identity(), iterator, data)?;
    if pages.holds(&pieces) { Ok(()) } else { Err(Error::Complete) }
}
