//! A filter in bounded chunks, for BF.SCANDUMP, BF.LOADCHUNK and the rewritten AOF.
//!
//! A dump is the header (`header.rs`), then bits and pages (`body.rs`) in chunks of at most 16 MiB
//! of data. Each chunk has a frame:
//!
//! ```text
//!   0        6         8          16       20
//!   ┌────────┬─────────┬──────────┬────────┬─ ─ ─ ─ ─┬─ ─ ─ ─ ─ ─ ─ ─ ─┬─────────┐
//!   │ rbchnk │ version │ place    │ length │ header  │ bits or records │ XXH3-64 │
//!   │        │ = 1     │ u64      │ u32    │ as now  │ of pages        │ of all  │
//!   └────────┴─────────┴──────────┴────────┴─ ─ ─ ─ ─┴─ ─ ─ ─ ─ ─ ─ ─ ─┴─────────┘
//! ```
//!
//! Iterators follow RedisBloom. SCANDUMP 0 returns the header and iterator 1. SCANDUMP n returns
//! the data from place n - 1 on, and as the next iterator the place where they end, plus 1.
//! LOADCHUNK gets the iterator that SCANDUMP returned with the data.
//!
//! The filter may change between the commands of a dump. The copy has each item that was in the
//! filter throughout, and each page from one moment (`filter/pages/pieces.rs`). The last chunk has
//! the item counts and all other numbers of the copy. If the filter gained a layer or a generation
//! after the dump began, or was replaced, its header differs, and LOADCHUNK refuses its chunks.
//!
//! A filter from RedisBloom is dumped in RedisBloom's format (`redisbloom.rs`): the same iterators,
//! chunks without a frame, and a header without a magic number.

use super::{Body, Load, Taken, body, header};
use crate::{
    codec::{
        Error,
        reader::{Reader, open, seal},
        redisbloom,
    },
    filter::{Demand, Plan, pages::Pieces},
};

const MAGIC: &str = "rbchnk";
/// The most bytes of bits or records in a chunk, unless one page has more.
const BYTES: usize = 16 << 20;

/// The header of a dump, and the iterator that goes with it.
pub fn header<'a>(filter: impl Into<Body<'a>>) -> (i64, Vec<u8>) {
    let body = filter.into();
    let header = match body.redisblooms() {
        Some((filter, family)) => redisbloom::header(filter, family),
        None => body.plan().encode(0),
    };
    (1, header)
}

/// The filter that a header of a dump describes.
///
/// # Errors
/// Any [`Error`] for bad bytes.
pub fn read_header(data: &[u8]) -> Result<Plan, Error> {
    if !data.starts_with(header::MAGIC.as_bytes()) {
        return redisbloom::read_header(data);
    }
    match header::decode(data)? {
        (plan, 0) => Ok(plan),
        (_, present) => Err(Error::Order { from: 0, to: present, received: 0 }),
    }
}

/// Returns the next iterator and the chunk for iterator `from`, which may be any number; `None`
/// beyond the end and below 1.
pub fn at<'a>(filter: impl Into<Body<'a>>, from: i64) -> Option<(i64, Vec<u8>)> {
    let body = filter.into();
    if let Some((filter, _)) = body.redisblooms() {
        return redisbloom::cut(filter, from, body.end());
    }
    let first = body.start(u64::try_from(from.checked_sub(1)?).ok()?)?;
    // Infallible allocations, like the server's copy of the chunk: a child that rewrites the AOF
    // must not mistake "no memory" for "no more chunks". The child ends, and the old AOF stays.
    let (header, mut out) = (body.plan().encode(0), open(MAGIC));
    out.extend(first.to_le_bytes());
    // Far below 4 GiB: a header has 44 bytes for each of `MAX_LAYERS` at most.
    out.extend((header.len() as u32).to_le_bytes());
    out.extend(header);
    let end = body.put(first, BYTES, &mut out);
    Some((i64::try_from(end).ok()?.checked_add(1)?, seal(out)))
}

/// A chunk: its place, the place behind it, its bits or records, and the plan of the filter as it
/// was then; `None` without a frame.
type Chunk<'a> = (u64, u64, &'a [u8], Option<Plan>);

/// Reads a chunk of this filter.
fn read<'a>(filter: Body, iterator: i64, data: &'a [u8]) -> Result<Chunk<'a>, Error> {
    if let Some((filter, _)) = filter.redisblooms() {
        let (first, to) = redisbloom::place(filter, iterator, data)?;
        return Ok((first, to, data, None));
    }
    let mut reader = Reader::sealed(data, MAGIC)?;
    let (first, length) = (reader.u64()?, reader.u32()?);
    let plan = read_header(reader.bytes(length as usize)?)?;
    if plan.clone().dump_identity() != filter.plan().dump_identity() {
        return Err(Error::OtherFilter);
    }
    let (bytes, total) = (reader.0, plan.end());
    let to = first.saturating_add(bytes.len() as u64);
    if plan.paged.is_none() && to > total {
        return Err(Error::TooBig { from: first, to, total });
    }
    let to = body::behind(plan.bit_bytes(), first, bytes)?;
    // Iterator and frame must agree on the end.
    if iterator.checked_sub(1).and_then(|last| u64::try_from(last).ok()) != Some(to) {
        return Err(Error::Order { from: first, to, received: 0 });
    }
    Ok((first, to, bytes, Some(plan)))
}

impl Load {
    /// Begins with the header of a dump, of a filter of at most `ceiling` bytes of bits.
    ///
    /// # Errors
    /// `Error::Filter` with `Ceiling` or `OutOfMemory`, and any other [`Error`] for bad bytes.
    pub fn begin(data: &[u8], ceiling: u64) -> Result<Self, Error> {
        Ok(Self::new(read_header(data)?, ceiling)?)
    }

    /// Whether `data` is the header of this filter, which a client repeats if it got no reply.
    pub fn began_with(&self, data: &[u8]) -> bool {
        read_header(data)
            .is_ok_and(|plan| plan.dump_identity() == self.plan.clone().dump_identity())
    }

    /// Takes the next chunk, or one that was taken already: a client repeats it if it got no reply.
    /// If the chunk needs memory, `ceiling` returns how many bytes there may be.
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
        let (first, to, bytes, plan) = read(Body::Part(self), iterator, data)?;
        // Counts only rise: this one is of another filter with the same seed.
        if let (Some(filter), Some(plan)) = (self.layered(), &plan)
            && plan.layers.last().is_some_and(|layer| layer.items < filter.newest().counted)
        {
            return Err(Error::OtherFilter);
        }
        let copies = plan.as_ref().map_or(0, Plan::copies);
        let changed = self.take_part((first, to), bytes, copies, ceiling)?;
        if let Some(plan) = plan.filter(|_| changed) {
            self.renew(plan);
        }
        let taken = if changed { Taken::Next } else { Taken::Repeated };
        Ok(if self.is_complete() { Taken::Last } else { taken })
    }
}

/// Accepts a repeated chunk for a complete filter that has every bit and item of it already.
///
/// # Errors
/// `Error::Exists` for a header, `Error::Complete` for a chunk that would change the filter, and
/// any other [`Error`] for bad bytes.
pub fn repeat<'a>(filter: impl Into<Body<'a>>, iterator: i64, data: &[u8]) -> Result<(), Error> {
    if iterator == 1 && read_header(data).is_ok() {
        return Err(Error::Exists);
    }
    let body = filter.into();
    let (first, _, bytes, _) = read(body, iterator, data)?;
    let holds = if let Body::Pages(filter) = body
        && let Some(position) = first.checked_sub(body.bits())
    {
        let mut pieces = Pieces::new(filter.pages().plan(), position);
        body::read_pages(bytes, &mut pieces)?;
        filter.pages().holds(&pieces)
    } else {
        body.holds(first, bytes)
    };
    if holds { Ok(()) } else { Err(Error::Complete) }
}
