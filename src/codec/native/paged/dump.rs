//! A filter in pages in bounded chunks, for BF.SCANDUMP, BF.LOADCHUNK and the rewritten AOF.
//!
//! A dump is the header (`header.rs`), then the bits of the layer below the pages and records of
//! pages (`record.rs`), in chunks of about 16 MiB. Each chunk has a frame:
//!
//! ```text
//!   0        6         8          16       20
//!   ┌────────┬─────────┬──────────┬────────┬─ ─ ─ ─ ─┬─ ─ ─ ─ ─ ─ ─ ─ ─┬─────────┐
//!   │ rbchnk │ version │ place    │ length │ header  │ bits or records │ XXH3-64 │
//!   │        │ = 2     │ u64      │ u32    │ as now  │                 │ of all  │
//!   └────────┴─────────┴──────────┴────────┴─ ─ ─ ─ ─┴─ ─ ─ ─ ─ ─ ─ ─ ─┴─────────┘
//! ```
//!
//! SCANDUMP 0 returns the header and iterator 1. SCANDUMP n returns what is at place n - 1
//! (`mod.rs`) and behind it, and the place where it ends plus 1. LOADCHUNK gets the iterator that
//! SCANDUMP returned with the data.
//!
//! The filter may change between the commands of a dump. The copy has each item that was in the
//! filter throughout, and each page as of one moment (`filter/pages/pieces.rs`). The numbers are
//! those of the last chunk. When a generation starts, or the filter is replaced, its identity
//! changes, and later chunks are refused.

use super::{Body, bits, end, record};
use crate::{
    codec::{
        Error,
        native::{dump::Taken, header, stream},
        reader::{Reader, open, seal},
    },
    filter::{
        Demand, Error as FilterError, Layer, LayerPlan,
        paged::{Paged, PagedPlan, Sweep},
        pages::Pieces,
    },
};

const MAGIC: &str = "rbchnk";
const VERSION: u16 = 2;
/// Bytes of bits or records in a chunk, unless one page has more.
const BYTES: usize = 16 << 20;

/// The header of a dump, and the iterator that goes with it.
pub fn header(filter: &Paged) -> (i64, Vec<u8>) {
    (1, header::encode_paged(&PagedPlan::of(filter), 0))
}

/// Returns the next iterator and the chunk for iterator `from`, which may be any number; `None`
/// beyond the end and below 1.
pub fn at(filter: &Paged, from: i64) -> Option<(i64, Vec<u8>)> {
    chunk(&Body::of(filter), from)
}

fn chunk(body: &Body, from: i64) -> Option<(i64, Vec<u8>)> {
    let first = body.start(u64::try_from(from.checked_sub(1)?).ok()?)?;
    let header = header::encode_paged(&body.plan, 0);
    let mut out = open(MAGIC, VERSION);
    out.extend(first.to_le_bytes());
    // Far below 4 GiB: a header has a layer and 33 generations at most.
    out.extend((header.len() as u32).to_le_bytes());
    out.extend(header);
    let end = body.put(first, BYTES, &mut out);
    Some((i64::try_from(end).ok()?.checked_add(1)?, seal(out)))
}

fn read_header(data: &[u8]) -> Result<PagedPlan, Error> {
    match header::decode(data)? {
        (described, 0) => described.pages(),
        (_, present) => Err(Error::Order { from: 0, to: present, received: 0 }),
    }
}

/// A chunk of a filter with the right identity.
struct Chunk<'a> {
    plan: PagedPlan,
    first: u64,
    /// The place behind it.
    to: u64,
    /// Bits or records.
    bytes: &'a [u8],
}

impl<'a> Chunk<'a> {
    fn read(of: &PagedPlan, iterator: i64, data: &'a [u8]) -> Result<Self, Error> {
        let (_, mut reader) = Reader::sealed(data, MAGIC, VERSION..=VERSION)?;
        let (first, length) = (reader.u64()?, reader.u32()?);
        let plan = read_header(reader.bytes(length as usize)?)?;
        if header::identity_paged(&plan) != header::identity_paged(of) {
            return Err(Error::OtherFilter);
        }
        let (bytes, bits) = (reader.rest(), bits(&plan));
        let to = match first.checked_sub(bits) {
            None => first.saturating_add(bytes.len() as u64),
            Some(position) => bits.saturating_add(record::end(bytes, position)?),
        };
        // The iterator and the bytes must give the same end.
        let end = iterator.checked_sub(1).and_then(|end| u64::try_from(end).ok());
        if to == first || end != Some(to) || (first < bits && to > bits) {
            return Err(Error::Order { from: first, to, received: 0 });
        }
        Ok(Self { plan, first, to, bytes })
    }
}

/// A filter that BF.LOADCHUNK is filling: a part of its bits and pages. It answers no query yet.
#[derive(Debug)]
pub struct Load {
    /// By the newest chunk.
    plan: PagedPlan,
    base: Option<Layer>,
    /// Bytes of the bits of the base that were received.
    bits: u64,
    pieces: Pieces,
}

impl Load {
    /// Begins with the header of a dump, of a filter of at most `ceiling` bytes of bits. Memory is
    /// allocated as bits and pages arrive ([`Self::take`]).
    ///
    /// # Errors
    /// `Error::Filter` with `Ceiling` or `OutOfMemory`, and any other [`Error`] for bad bytes.
    pub fn begin(data: &[u8], ceiling: u64) -> Result<Self, Error> {
        let plan = read_header(data)?;
        Demand { present: 0, wanted: bits(&plan) }.check(|_| ceiling)?;
        Ok(Self::new(plan)?)
    }

    pub(super) fn new(plan: PagedPlan) -> Result<Self, FilterError> {
        let base = plan.below.layers.first().map(LayerPlan::arriving).transpose()?;
        let pieces = Pieces::new(plan.pages, 0);
        Ok(Self { base, bits: 0, pieces, plan })
    }

    /// Whether `data` is the header of this filter, which a client repeats if it got no reply.
    pub fn began_with(&self, data: &[u8]) -> bool {
        let identity = header::identity_paged(&self.plan);
        read_header(data).is_ok_and(|plan| header::identity_paged(&plan) == identity)
    }

    pub(in crate::codec::native) fn plan(&self) -> &PagedPlan {
        &self.plan
    }

    pub(super) fn body(&self) -> Body<'_> {
        let at = Box::new(|position| self.pieces.piece_at(position));
        Body { plan: self.plan.clone(), base: self.base.as_ref(), end: self.received(), at }
    }

    /// The place up to which bits and pages were received.
    pub fn received(&self) -> u64 {
        self.bits.saturating_add(self.pieces.end())
    }

    /// The bytes that the received bits and pages take.
    pub fn bytes(&self) -> u64 {
        let words = self.base.as_ref().map_or(0, |base| base.bits().words().len() as u64);
        self.pieces.bytes().saturating_add(words.saturating_mul(stream::WORD))
    }

    /// The header of a dump of what was received.
    pub fn header(&self) -> (i64, Vec<u8>) {
        (1, header::encode_paged(&self.plan, 0))
    }

    /// Returns the next iterator and the chunk for iterator `from`, from what was received.
    pub fn at(&self, from: i64) -> Option<(i64, Vec<u8>)> {
        chunk(&self.body(), from)
    }

    /// Takes the next chunk, or one that was taken already: a client repeats it if it got no reply.
    /// If the chunk has something new, `ceiling` gets the bytes that the filter takes, and returns
    /// how many there may be.
    ///
    /// # Errors
    /// `Error::Order` for a gap, `Error::OtherFilter`, `Error::Filter` with `Ceiling` or
    /// `OutOfMemory`, and any other [`Error`] for bad bytes; nothing changes then.
    pub fn take(
        &mut self,
        iterator: i64,
        data: &[u8],
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<Taken, Error> {
        let chunk = Chunk::read(&self.plan, iterator, data)?;
        if chunk.to > self.received() {
            let present = self.bytes();
            // The bits are one allocation in the end, whose size is known.
            let wanted = present.saturating_add(chunk.bytes.len() as u64).max(bits(&self.plan));
            Demand { present, wanted }.check(ceiling)?;
        }
        let more = self.take_part(chunk.first, chunk.bytes, chunk.plan.copies)?;
        if more {
            self.renew(chunk.plan);
        }
        Ok(match more {
            _ if self.received() == end(&self.plan) => Taken::Last,
            true => Taken::Next,
            false => Taken::Repeated,
        })
    }

    /// Takes bits or records from the place `from` on; returns whether they reach further than what
    /// was received.
    pub(super) fn take_part(
        &mut self,
        from: u64,
        bytes: &[u8],
        copies: u64,
    ) -> Result<bool, Error> {
        let (total, received) = (bits(&self.plan), self.received());
        let Some(position) = from.checked_sub(total) else {
            let to = from.saturating_add(bytes.len() as u64);
            if from > received {
                return Err(Error::Order { from, to, received });
            }
            if !from.is_multiple_of(stream::WORD) || !to.is_multiple_of(stream::WORD) || to > total
            {
                return Err(Error::Unaligned { from, to });
            }
            if to <= self.bits {
                return Ok(false);
            }
            if let Some(base) = &mut self.base {
                base.make_room(to / stream::WORD)?;
                stream::merge_into(base, from, bytes);
            }
            self.bits = to;
            return Ok(true);
        };
        if from > received || self.bits < total {
            return Err(Error::Order { from, to: end(&self.plan), received });
        }
        let mut pieces = Pieces::new(self.plan.pages, position);
        record::read(bytes, &mut pieces)?;
        Ok(self.pieces.append(pieces, copies)?)
    }

    /// Takes the numbers of a newer chunk. Passes over the pages begin again, because they may have
    /// missed pages of the copy, and chunks may be of different servers.
    fn renew(&mut self, mut plan: PagedPlan) {
        if let (Some(old), Some(new)) = (&self.plan.window, &mut plan.window)
            && old.sweep != new.sweep
        {
            let oldest = old.sweep.oldest.min(new.sweep.oldest);
            new.sweep = Sweep { oldest, page: 0, ..new.sweep };
        }
        self.plan = plan;
    }

    /// The filter, after [`Self::take`] has returned [`Taken::Last`].
    ///
    /// # Errors
    /// `Error::Filter` with `OutOfMemory`: another try may succeed. Others if the pages are not
    /// those of the header.
    pub fn finish(&mut self) -> Result<Paged, Error> {
        // First, while all pages are still there: the numbers are those of the last chunk.
        self.plan.check()?;
        let pages = self.pieces.finish(self.plan.copies)?;
        Ok(Paged::from_parts(&self.plan, self.base.take(), pages))
    }

    /// Copies the incomplete filter.
    ///
    /// # Errors
    /// `FilterError::OutOfMemory`.
    pub fn duplicate(&self) -> Result<Self, FilterError> {
        let base = self.base.as_ref().map(Layer::duplicate).transpose()?;
        let (plan, pieces) = (self.plan.clone(), self.pieces.duplicate()?);
        Ok(Self { plan, base, pieces, bits: self.bits })
    }
}

/// Accepts a repeated chunk for a complete filter that has every bit and item of it already.
///
/// # Errors
/// `Error::Exists` for a header, `Error::Complete` for a chunk that would change the filter, and
/// any other [`Error`] for bad bytes.
pub fn repeat(filter: &Paged, iterator: i64, data: &[u8]) -> Result<(), Error> {
    if iterator == 1 && read_header(data).is_ok() {
        return Err(Error::Exists);
    }
    let plan = PagedPlan::of(filter);
    let chunk = Chunk::read(&plan, iterator, data)?;
    let holds = match chunk.first.checked_sub(bits(&plan)) {
        None => {
            let (mut stored, body) = (Vec::new(), Body::of(filter));
            body.start(chunk.first) == Some(chunk.first) && {
                body.put(chunk.first, chunk.bytes.len(), &mut stored);
                stored == chunk.bytes
            }
        }
        Some(position) => {
            let mut pieces = Pieces::new(plan.pages, position);
            record::read(chunk.bytes, &mut pieces)?;
            filter.pages().holds(&pieces)
        }
    };
    if holds { Ok(()) } else { Err(Error::Complete) }
}
