//! A filter in bounded chunks, for BF.SCANDUMP, BF.LOADCHUNK and the rewritten AOF.
//!
//! A dump is the header (`header.rs`), then the stream of bits (`stream.rs`) in chunks of at most
//! 16 MiB. Each chunk has a frame:
//!
//! ```text
//!   0        6         8          16           24             32
//!   ┌────────┬─────────┬──────────┬────────────┬──────────────┬─ ─ ─ ┬─────────┐
//!   │ rbchnk │ version │ identity │ first byte │ items of the │ bits │ XXH3-64 │
//!   │        │ = 1     │ of the   │ in the     │ newest layer │      │ of all  │
//!   │        │         │ filter   │ stream     │              │      │         │
//!   └────────┴─────────┴──────────┴────────────┴──────────────┴─ ─ ─ ┴─────────┘
//! ```
//!
//! Iterators follow RedisBloom. SCANDUMP 0 returns the header and iterator 1. SCANDUMP n returns
//! the stream from byte n - 1 on, and n plus the number of bytes. LOADCHUNK gets the iterator that
//! SCANDUMP returned with the data, so the data ends at byte iterator - 1.
//!
//! A dump takes many commands, and the filter may change between them. Additions only set bits, so
//! the copy has all items that were in the filter when the dump began. Each frame carries the
//! newest item count, so the copy counts the items that were added during the dump. A filter that
//! grows or is replaced gets another identity, and its chunks are refused.
//!
//! A filter from RedisBloom is dumped in RedisBloom's format (`redisbloom/`): the same iterators,
//! chunks without a frame, and a header without a magic. The first 8 bytes of that header are an
//! item count. The magic and version of a native header, read as a count, are 4 * 10^14 items.

use super::{header, stream};
use crate::{
    codec::{
        Error,
        reader::{Reader, open, seal},
        redisbloom,
    },
    filter::{Demand, Error as FilterError, Family, Filter, Plan},
};

const MAGIC: &str = "rbchnk";
const VERSION: u16 = 1;
/// The most bytes of bits in a chunk.
const BITS: u64 = 16 << 20;
/// Bytes of a frame before the bits.
const FRAME: usize = 32;

fn identity(filter: &Filter) -> u64 {
    header::identity(Plan::of(filter))
}

/// The header of a dump, and the iterator that goes with it.
pub fn header(filter: &Filter) -> (i64, Vec<u8>) {
    let header = match filter.family() {
        Family::RedisBloom(family) => redisbloom::header(filter, family),
        Family::Native | Family::Valkey(_) | Family::Guava => header::encode(&Plan::of(filter), 0),
    };
    (1, header)
}

fn read_header(data: &[u8]) -> Result<Plan, Error> {
    if !data.starts_with(header::MAGIC.as_bytes()) {
        return redisbloom::read_header(data);
    }
    match header::decode(data)? {
        (described, 0) => described.layers(),
        (_, present) => Err(Error::Order { from: 0, to: present, received: 0 }),
    }
}

/// Returns the next iterator and the chunk for iterator `from`, which may be any number; `None`
/// beyond the end and below 1.
pub fn at(filter: &Filter, from: i64) -> Option<(i64, Vec<u8>)> {
    cut(filter, from, filter.bit_bytes())
}

/// [`at`], from the first `end` bytes of the stream.
fn cut(filter: &Filter, from: i64, end: u64) -> Option<(i64, Vec<u8>)> {
    match filter.family() {
        Family::RedisBloom(_) => redisbloom::cut(filter, from, end),
        Family::Native | Family::Valkey(_) | Family::Guava => framed(filter, from, end),
    }
}

#[expect(clippy::arithmetic_side_effects, reason = "the size of a frame, bounded by `BITS`")]
fn framed(filter: &Filter, from: i64, end: u64) -> Option<(i64, Vec<u8>)> {
    let first = u64::try_from(from.checked_sub(1)?).ok()?;
    let count = end.checked_sub(first).filter(|&left| left > 0)?.min(BITS);
    let next = from.checked_add_unsigned(count)?;
    // An infallible allocation, like the server's copy of the chunk: a child that rewrites the AOF
    // must not mistake "no memory" for "no more chunks". The child ends, and the old AOF stays.
    let mut out = Vec::with_capacity(FRAME + count as usize + 8);
    out.extend(open(MAGIC, VERSION));
    out.extend(identity(filter).to_le_bytes());
    out.extend(first.to_le_bytes());
    out.extend(filter.newest().counted().to_le_bytes());
    stream::read(filter, first, count as usize, &mut out);
    Some((next, seal(out)))
}

/// A filter that BF.LOADCHUNK is filling: a plan and a part of its bits. It answers no query yet.
#[derive(Debug)]
pub struct Load {
    filter: Filter,
    /// Bytes of the stream that were received; below the total until the last chunk.
    received: u64,
    /// Bytes of bits that are allocated.
    room: u64,
    /// Stored, because it takes time for each layer, and a client may send many small chunks.
    identity: u64,
}

/// The result of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The filter had these bits already; nothing changed.
    Repeated,
    /// The bits are set; more chunks must follow.
    Next,
    /// The bits are set, and the filter is complete.
    Last,
}

/// A chunk that belongs to a filter, with or without a frame.
struct Part<'a> {
    /// First byte in the stream.
    first: u64,
    /// End in the stream, exclusive.
    to: u64,
    /// Items of the newest layer: by the frame, or those of the filter if there is no frame.
    items: u64,
    bits: &'a [u8],
}

impl<'a> Part<'a> {
    /// Reads a chunk of `filter`. Calls `identity` only if the chunk has a frame.
    fn read(
        filter: &Filter,
        identity: impl FnOnce() -> u64,
        iterator: i64,
        data: &'a [u8],
    ) -> Result<Self, Error> {
        if let Family::RedisBloom(_) = filter.family() {
            let (first, to) = redisbloom::place(filter, iterator, data)?;
            return Ok(Self { first, to, items: filter.newest().counted(), bits: data });
        }
        let (_, mut reader) = Reader::sealed(data, MAGIC, VERSION..=VERSION)?;
        let (of, first, items) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (bits, total) = (reader.rest(), filter.bit_bytes());
        let end = first.checked_add(bits.len() as u64);
        let to = end.unwrap_or(u64::MAX);
        // The iterator and the frame must give the same end.
        if iterator.checked_sub(1).and_then(|last| u64::try_from(last).ok()) != end {
            return Err(Error::Order { from: first, to, received: 0 });
        }
        if to > total {
            return Err(Error::TooBig { from: first, to, total });
        }
        if of != identity() || items > filter.newest().capacity() {
            return Err(Error::OtherFilter);
        }
        if bits.is_empty()
            || !first.is_multiple_of(stream::WORD)
            || !to.is_multiple_of(stream::WORD)
        {
            return Err(Error::Unaligned { from: first, to });
        }
        Ok(Self { first, to, items, bits })
    }
}

impl Load {
    /// Begins with the header of a dump, of a filter of at most `ceiling` bytes of bits. Their
    /// memory is allocated as they arrive ([`Self::take`]).
    ///
    /// # Errors
    /// `Error::Filter` with `Ceiling` or `OutOfMemory`, and any other [`Error`] for bad bytes.
    pub fn begin(data: &[u8], ceiling: u64) -> Result<Self, Error> {
        let plan = read_header(data)?;
        Ok(Self::resume(plan.begin(ceiling)?, 0))
    }

    /// Whether `data` is the header of this filter, which a client repeats if it got no reply.
    pub fn began_with(&self, data: &[u8]) -> bool {
        read_header(data).is_ok_and(|plan| header::identity(plan) == self.identity)
    }

    /// Continues with a filter that has its first `received` bytes.
    pub(in crate::codec) fn resume(filter: Filter, received: u64) -> Self {
        Self { received, room: filter.room(), identity: identity(&filter), filter }
    }

    /// Allocates the memory for the bits up to byte `to` of the stream (`Layer::make_room`).
    fn make_room(
        &mut self,
        to: u64,
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<(), FilterError> {
        let (wanted, mut ceiling) = (self.filter.bit_bytes(), Some(ceiling));
        let (index, start) = self.filter.layer_at(self.received, |start| start.memory);
        let mut start = start.memory;
        for layer in self.filter.layers_from_mut(index) {
            let end = start.saturating_add(layer.shape().words().saturating_mul(stream::WORD));
            let words = to.min(end).saturating_sub(start) / stream::WORD;
            let there = layer.bits().words().len() as u64;
            if words > there {
                if let Some(ceiling) = ceiling.take() {
                    Demand { present: self.room, wanted }.check(ceiling)?;
                }
                layer.make_room(words)?;
                let more = (layer.bits().words().len() as u64).saturating_sub(there);
                self.room = self.room.saturating_add(more.saturating_mul(stream::WORD));
            }
            if to <= end {
                break;
            }
            start = end;
        }
        Ok(())
    }

    /// The incomplete filter; to measure, save and copy, not to query.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The incomplete filter, for defragmentation.
    pub fn filter_mut(&mut self) -> &mut Filter {
        &mut self.filter
    }

    /// Bytes of the stream that were received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes of bits that are allocated: at most eight times what each layer has.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Returns the next iterator and the chunk for iterator `from`, from the received bytes.
    pub fn at(&self, from: i64) -> Option<(i64, Vec<u8>)> {
        cut(&self.filter, from, self.received)
    }

    /// Takes the next chunk, or one that was taken already: a client repeats it if it got no reply.
    /// If the chunk needs more memory, `ceiling` gets the allocated bytes ([`Self::room`]) and
    /// those of the whole filter, and returns how many bytes of bits the filter may take.
    ///
    /// # Errors
    /// `Error::Order` for a gap, `Error::OtherFilter`, `Error::Filter` with `Ceiling` or
    /// `OutOfMemory`, and any other [`Error`] for bad bytes; no bit changes then.
    pub fn take(
        &mut self,
        iterator: i64,
        data: &[u8],
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<Taken, Error> {
        let chunk = Part::read(&self.filter, || self.identity, iterator, data)?;
        let to = chunk.to;
        // Counts only rise: another filter with the same seed replaced this one during the dump.
        if chunk.items < self.filter.newest().counted() {
            return Err(Error::OtherFilter);
        }
        if chunk.first > self.received {
            return Err(Error::Order { from: chunk.first, to, received: self.received });
        }
        if to <= self.received && stream::holds(&self.filter, chunk.first, chunk.bits) {
            return Ok(Taken::Repeated);
        }
        self.make_room(to, ceiling)?;
        stream::merge(&mut self.filter, chunk.first, chunk.bits);
        self.filter.newest_mut().set_counted(chunk.items);
        self.received = self.received.max(to);
        Ok(if self.received == self.filter.bit_bytes() { Taken::Last } else { Taken::Next })
    }

    /// Copies the incomplete filter.
    ///
    /// # Errors
    /// `FilterError::OutOfMemory`.
    pub fn duplicate(&self) -> Result<Self, FilterError> {
        Ok(Self { filter: self.filter.duplicate()?, ..*self })
    }

    /// The filter; it is complete once [`Self::take`] has returned [`Taken::Last`].
    pub fn into_filter(self) -> Filter {
        self.filter
    }
}

/// Accepts a repeated chunk for a complete `filter` that has every bit of it already.
///
/// # Errors
/// `Error::Exists` for a header, `Error::Complete` for a chunk that would change the filter, and
/// any other [`Error`] for bad bytes.
pub fn repeat(filter: &Filter, iterator: i64, data: &[u8]) -> Result<(), Error> {
    if iterator == 1 && read_header(data).is_ok() {
        return Err(Error::Exists);
    }
    let chunk = Part::read(filter, || identity(filter), iterator, data)?;
    if stream::holds(filter, chunk.first, chunk.bits) { Ok(()) } else { Err(Error::Complete) }
}
