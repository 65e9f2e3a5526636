//! A filter in bounded pieces: BF.SCANDUMP, BF.LOADCHUNK and the rewritten AOF.
//!
//! A dump is the header (`header.rs`), then the stream of bits (`stream.rs`) in chunks of at most
//! 16 MiB, each in a frame of its own:
//!
//! ```text
//!   0        6        8            16             24             32
//!   ┌────────┬────────┬────────────┬──────────────┬──────────────┬─ ─ ─ ─ ─ ─┬──────────┐
//!   │ rbchnk │version │ identity   │ first byte   │ items of the │ bits      │ XXH3-64  │
//!   │        │ = 1    │ of the     │ in the       │ newest layer │           │ of all   │
//!   │        │        │ filter     │ stream       │              │           │          │
//!   └────────┴────────┴────────────┴──────────────┴──────────────┴─ ─ ─ ─ ─ ─┴──────────┘
//! ```
//!
//! Iterators follow RedisBloom: 0 asks for the header and answers 1; n asks for the stream from
//! byte n - 1 and answers n plus the bytes given; LOADCHUNK is handed the iterator that came with
//! the data, so data ends at byte iterator - 1.
//!
//! A dump takes many commands, and the filter may change between them. Additions only set bits, so
//! what was in when the dump began is in the copy; each frame carries the newest count, so the copy
//! does not promise room that additions during the dump have used. A filter that grows or is
//! replaced has another identity: its chunks are refused. So has one that counts after every
//! change.
//!
//! A filter that came from RedisBloom is dumped in RedisBloom's format (`redisbloom/`), which has
//! the same iterators, bare chunks and a header without a magic: its first 8 bytes are a count of
//! items, and ours would be 10^14 of them.

use super::{header, stream};
use crate::{
    codec::{
        Error,
        reader::{Reader, open, seal},
        redisbloom,
    },
    filter::{Error as FilterError, Family, Filter, Layer, Plan},
};

const MAGIC: &str = "rbchnk";
const VERSION: u16 = 1;
/// The most bytes of bits in a chunk.
const BITS: u64 = 16 << 20;
/// Bytes of a frame before the bits.
const FRAME: usize = 32;

/// The identity of a filter that exists.
fn identity(filter: &Filter) -> u64 {
    header::identity(&Plan::of(filter))
}

/// The header of a dump, and the iterator that goes with it.
#[must_use]
pub fn header(filter: &Filter) -> (i64, Vec<u8>) {
    let header = match filter.family() {
        Family::RedisBloom(family) => redisbloom::header(filter, family),
        Family::Native | Family::Valkey(_) | Family::Guava => header::encode(&Plan::of(filter), 0),
    };
    (1, header)
}

/// Reads and checks the header of a dump, ours or RedisBloom's.
fn read_header(data: &[u8]) -> Result<Plan, Error> {
    if !data.starts_with(header::MAGIC.as_bytes()) {
        return redisbloom::read_header(data);
    }
    match header::decode(data)? {
        (plan, 0) => Ok(plan),
        (_, present) => Err(Error::Order { from: 0, to: present, received: 0 }),
    }
}

/// The chunk that iterator `from` (any number) asks for, and the next iterator; `None` past the
/// end, and for numbers below 1.
#[must_use]
pub fn at(filter: &Filter, from: i64) -> Option<(i64, Vec<u8>)> {
    cut(filter, from, filter.bit_bytes())
}

/// The same of the first `end` bytes of the stream.
fn cut(filter: &Filter, from: i64, end: u64) -> Option<(i64, Vec<u8>)> {
    match filter.family() {
        Family::RedisBloom(_) => redisbloom::cut(filter, from, end),
        Family::Native | Family::Valkey(_) | Family::Guava => framed(filter, from, end),
    }
}

/// The words of which all bits are in the chunk that iterator `from` asks for, if `to` is the
/// iterator that came with it.
pub fn words(filter: &Filter, from: i64, to: i64) -> impl Iterator<Item = &[u64]> {
    let start = match filter.family() {
        Family::RedisBloom(_) => redisbloom::position(filter, from),
        Family::Native | Family::Valkey(_) | Family::Guava => {
            from.checked_sub(1).and_then(|first| u64::try_from(first).ok())
        }
    };
    let count = u64::try_from(to.saturating_sub(from)).unwrap_or(0);
    let span = start.map(|start| stream::spans(filter, start, start.saturating_add(count)));
    span.into_iter().flatten()
}

#[expect(clippy::arithmetic_side_effects, reason = "the size of a frame, bounded by `BITS`")]
fn framed(filter: &Filter, from: i64, end: u64) -> Option<(i64, Vec<u8>)> {
    let first = u64::try_from(from.checked_sub(1)?).ok()?;
    let count = end.checked_sub(first).filter(|&left| left > 0)?.min(BITS);
    let next = from.checked_add_unsigned(count)?;
    // Not a fallible allocation: the server copies the chunk next, with one that is not. A child
    // that rewrites the AOF must not take "no memory" for "no more chunks"; it ends, and the old
    // AOF stays.
    let mut out = Vec::with_capacity(FRAME + count as usize + 8);
    out.extend(open(MAGIC, VERSION));
    out.extend(identity(filter).to_le_bytes());
    out.extend(first.to_le_bytes());
    out.extend(filter.newest().counted().to_le_bytes());
    stream::read(filter, first, count as usize, &mut out);
    Some((next, seal(out)))
}

/// A filter that BF.LOADCHUNK is filling: it has a plan and a part of its bits, and can answer
/// nothing yet.
#[derive(Debug)]
pub struct Load {
    filter: Filter,
    /// Bytes of the stream that are in; always less than all.
    received: u64,
    /// Whether all that is to come has room.
    whole: bool,
    /// The filter's identity, which no chunk changes: to compute it takes time by the number of
    /// layers, and a client may send any number of small chunks.
    identity: u64,
}

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was in already; nothing changed.
    Repeated,
    /// It is in, others are to come.
    Next,
    /// It is in, and the filter is complete.
    Last,
}

/// A chunk whose frame was checked.
struct Chunk<'a> {
    identity: u64,
    first: u64,
    items: u64,
    bits: &'a [u8],
}

/// A chunk that belongs to a filter, framed or bare.
struct Part<'a> {
    /// Its first byte in the stream.
    first: u64,
    /// The byte after its last.
    to: u64,
    /// Items of the newest layer when it was cut, as far as it says.
    items: u64,
    bits: &'a [u8],
}

impl<'a> Part<'a> {
    /// Reads a chunk of a filter whose identity is known, if it is needed.
    fn read(
        filter: &Filter,
        identity: impl FnOnce() -> u64,
        iterator: i64,
        data: &'a [u8],
    ) -> Result<Self, Error> {
        match filter.family() {
            Family::Native | Family::Valkey(_) | Family::Guava => {
                let chunk = Chunk::read(iterator, data)?;
                Ok(Self {
                    first: chunk.first,
                    to: chunk.fits(filter, identity)?,
                    items: chunk.items,
                    bits: chunk.bits,
                })
            }
            Family::RedisBloom(_) => {
                let (first, to) = redisbloom::place(filter, iterator, data)?;
                Ok(Self { first, to, items: filter.newest().counted(), bits: data })
            }
        }
    }
}

impl<'a> Chunk<'a> {
    fn read(iterator: i64, data: &'a [u8]) -> Result<Self, Error> {
        let (_, mut reader) = Reader::sealed(data, MAGIC, VERSION..=VERSION)?;
        let (identity, first, items) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let chunk = Self { identity, first, items, bits: reader.rest() };
        // The iterator says again what the frame says.
        if iterator.checked_sub(1).and_then(|last| u64::try_from(last).ok()) != chunk.end() {
            return Err(Error::Order {
                from: first,
                to: chunk.end().unwrap_or(u64::MAX),
                received: 0,
            });
        }
        Ok(chunk)
    }

    fn end(&self) -> Option<u64> {
        self.first.checked_add(self.bits.len() as u64)
    }

    /// Whether it was cut from a filter like this, at a place that exists; the byte after its last.
    fn fits(&self, filter: &Filter, identity: impl FnOnce() -> u64) -> Result<u64, Error> {
        let (total, to) = (filter.bit_bytes(), self.end().unwrap_or(u64::MAX));
        if to > total {
            return Err(Error::TooBig { from: self.first, to, total });
        }
        // The count of a layer of counters may be above its capacity, and then the header says so.
        let most = filter.newest().capacity().max(filter.newest().counted());
        if self.identity != identity() || self.items > most {
            return Err(Error::OtherFilter);
        }
        if self.bits.is_empty()
            || !self.first.is_multiple_of(stream::WORD)
            || !to.is_multiple_of(stream::WORD)
        {
            return Err(Error::Unaligned { from: self.first, to });
        }
        Ok(to)
    }
}

impl Load {
    /// Begins with the header of a dump. All memory is allocated (lazily zeroed) here, at most
    /// `ceiling` bytes of bits.
    ///
    /// # Errors
    /// Any of [`Error`] for bad bytes.
    pub fn begin(data: &[u8], ceiling: u64) -> Result<Self, Error> {
        let plan = read_header(data)?;
        Ok(Self::resume(plan.allocate(ceiling)?, 0))
    }

    /// Whether `data` is the header of a dump of a filter like this: a client sends it again when
    /// it got no answer.
    #[must_use]
    pub fn began_with(&self, data: &[u8]) -> bool {
        let same = |plan: &Plan| header::identity(plan) == self.identity;
        read_header(data).is_ok_and(|plan| same(&plan))
    }

    /// Goes on with a filter of which the first `received` bytes are in, and no others need have
    /// room.
    pub(in crate::codec) fn resume(filter: Filter, received: u64) -> Self {
        let whole = filter.layers().all(Layer::is_whole);
        Self { received, whole, identity: identity(&filter), filter }
    }

    /// Makes room for all that is to come, where a load that was stored has none yet; `ceiling` is
    /// told the bytes that are in, and answers how many bytes of bits the filter may take.
    /// [`Self::take`] does it without one.
    ///
    /// # Errors
    /// `Error::Ceiling`, `Error::OutOfMemory`; no bit has changed then.
    pub fn make_whole(&mut self, ceiling: impl FnOnce(u64) -> u64) -> Result<(), FilterError> {
        if self.whole {
            return Ok(());
        }
        let (wanted, ceiling) = (self.filter.bit_bytes(), ceiling(self.received));
        if wanted > ceiling {
            return Err(FilterError::Ceiling { wanted, ceiling });
        }
        self.filter.make_whole()?;
        self.whole = true;
        Ok(())
    }

    /// The filter as far as it is there; to measure, save and copy, not to query.
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The filter as far as it is there, for moving its memory.
    pub fn filter_mut(&mut self) -> &mut Filter {
        &mut self.filter
    }

    /// Bytes of the stream that are in.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The chunk that iterator `from` asks for of what is in, as [`at`].
    #[must_use]
    pub fn at(&self, from: i64) -> Option<(i64, Vec<u8>)> {
        cut(&self.filter, from, self.received)
    }

    /// Takes the next chunk, or one that is in already (a client repeats what it got no answer
    /// for).
    ///
    /// # Errors
    /// `Error::Order` for a gap, and any other of [`Error`] for bad bytes; nothing has changed
    /// then.
    pub fn take(&mut self, iterator: i64, data: &[u8]) -> Result<Taken, Error> {
        self.take_and_tell(iterator, data, |_, _| {})
    }

    /// [`Self::take`]; `changed` is told the items of each layer that the chunk reaches, before and
    /// after.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn take_and_tell(
        &mut self,
        iterator: i64,
        data: &[u8],
        mut changed: impl FnMut(u64, u64),
    ) -> Result<Taken, Error> {
        self.make_whole(|_| u64::MAX)?;
        let chunk = Part::read(&self.filter, || self.identity, iterator, data)?;
        let to = chunk.to;
        // Counts only rise: a lower one is of a filter that took this one's place, with the same
        // seed, during the dump.
        if chunk.items < self.filter.newest().counted() {
            return Err(Error::OtherFilter);
        }
        if chunk.first > self.received {
            return Err(Error::Order { from: chunk.first, to, received: self.received });
        }
        if to <= self.received && stream::holds(&self.filter, chunk.first, chunk.bits) {
            return Ok(Taken::Repeated);
        }
        stream::merge(&mut self.filter, chunk.first, chunk.bits, &mut changed);
        let newest = self.filter.newest_mut();
        let before = newest.items();
        newest.set_counted(newest.counted().max(chunk.items));
        changed(before, newest.items());
        self.received = self.received.max(to);
        Ok(if self.received == self.filter.bit_bytes() { Taken::Last } else { Taken::Next })
    }

    /// A copy.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn duplicate(&self) -> Result<Self, FilterError> {
        Ok(Self { filter: self.filter.duplicate()?, ..*self })
    }

    /// The filter, once [`Self::take`] answered [`Taken::Last`].
    #[must_use]
    pub fn into_filter(self) -> Filter {
        self.filter
    }
}

/// Accepts a chunk for a filter that is complete if it holds every bit of it already.
///
/// # Errors
/// `Error::Exists` for a header, `Error::Complete` for a chunk that would change the filter, and
/// any other of [`Error`] for bad bytes.
pub fn repeat(filter: &Filter, iterator: i64, data: &[u8]) -> Result<(), Error> {
    if iterator == 1 && read_header(data).is_ok() {
        return Err(Error::Exists);
    }
    let chunk = Part::read(filter, || identity(filter), iterator, data)?;
    if stream::holds(filter, chunk.first, chunk.bits) { Ok(()) } else { Err(Error::Complete) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::filter::{
        Classic, Expansion, LayerPlan, RedisBloom, Rule,
        foreign::redisbloom::{bits_per_item, probes},
        steps,
    };

    /// An empty filter of RedisBloom's of so many layers, of one word each: what a client may
    /// forge.
    pub(crate) fn of_layers(count: usize) -> Result<Filter, Error> {
        let rate = 0.25;
        let shape = Classic {
            bits: 64,
            bytes: 8,
            probes: probes(bits_per_item(rate)) as u16,
            rule: Rule::Remainder,
        };
        let layer = LayerPlan { capacity: 1, items: 1, error_rate: rate, shape: shape.into() };
        let plan = Plan {
            family: Family::RedisBloom(RedisBloom { hash64: true, rounds: false }),
            seed: 0,
            error_rate: rate,
            expansion: Expansion::new(1)?,
            layers: vec![layer; count],
        };
        plan.check()?;
        Ok(plan.allocate(u64::MAX)?)
    }

    /// The most layers that handling `chunks` chunks of one layer each may look at in a filter of
    /// `count` layers: for each chunk its layer is found at most four times by halving, and a few
    /// more are looked at.
    pub(crate) fn most_steps(chunks: usize, count: usize) -> u64 {
        let a_chunk = u64::from(count.ilog2()).saturating_mul(4).saturating_add(16);
        a_chunk.saturating_mul(chunks as u64)
    }

    /// All chunks of a filter, as BF.SCANDUMP gives them and a rewritten AOF has them; how many.
    fn walk(filter: &Filter) -> usize {
        let (mut from, mut chunks) = (1, 0_usize);
        while let Some((to, _)) = at(filter, from) {
            assert_eq!(words(filter, from, to).map(<[u64]>::len).sum::<usize>(), 1);
            (from, chunks) = (to, chunks.saturating_add(1));
        }
        chunks
    }

    /// One chunk for each layer: a dump must not look at all layers for each of them. Twice the
    /// layers may take little more than twice the steps, where walking to the layer of each chunk
    /// takes four times as many.
    #[test]
    fn the_steps_of_a_dump_are_those_of_its_layers() -> Result<(), Error> {
        for count in [1, 2, 3, 1_000, 20_000] {
            let filter = of_layers(count)?;
            let (chunks, steps) = steps::counted(|| walk(&filter));
            assert_eq!(chunks, count);
            assert!(steps <= most_steps(count, count), "{count} layers: {steps} steps");
            let (_, header) = header(&filter);
            let load = Load::begin(&header, u64::MAX)?;
            let (chunk, steps) = steps::counted(|| load.at(1));
            assert!(chunk.is_none() && steps <= most_steps(1, count), "{steps} steps");
        }
        Ok(())
    }

    /// A complete filter takes every chunk again, as a client repeats it.
    #[test]
    fn the_steps_of_repeated_chunks_are_those_of_the_layers() -> Result<(), Error> {
        let count = 20_000;
        let filter = of_layers(count)?;
        let (taken, steps) = steps::counted(|| {
            (1..=count as i64).try_for_each(|chunk| {
                repeat(&filter, chunk.saturating_mul(8).saturating_add(1), &[0; 8])
            })
        });
        taken?;
        assert!(steps <= most_steps(count, count), "{steps} steps");
        Ok(())
    }
}
