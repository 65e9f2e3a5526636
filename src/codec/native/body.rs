//! What follows a header: the bits of all layers, oldest first, and then the pages.
//!
//! ```text
//!   ┌────────────────┬────────────────┬─ ─ ─┬─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─┐
//!   │ bits, layer 0  │ bits, layer 1  │ ... │ pages, by their positions  │
//!   └────────────────┴────────────────┴─ ─ ─┴─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─┘
//!                                           ┌──────────┬───────────┬─ ─ ─ ─ ─ ─ ─ ─ ─┐
//!   the page of a level at a position:      │ level u8 │ words u16 │ words, u64 each │
//!                                           └──────────┴───────────┴─ ─ ─ ─ ─ ─ ─ ─ ─┘
//! ```
//!
//! A place is the number of a byte of the bits or, after all of these, the position of a page
//! (`filter/pages/pieces.rs`). Once there are pages, the bits below them no longer change.
//!
//! No number says how many pages there are, so none can be forged: a reader has all pages when they
//! cover all positions, and it allocates as they arrive.

use super::{Load, Stored, stream};
use crate::{
    codec::{Error, reader::Reader},
    filter::{
        Error as FilterError, Family, Filter, Plan, RedisBloom,
        paged::Paged,
        pages::{END, NOT_NEXT, Page, Pieces, Reach},
    },
};

/// A filter to be written, or the part of one that BF.LOADCHUNK has sent.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "they are the kinds of filters")]
pub enum Body<'a> {
    Layers(&'a Filter),
    Pages(&'a Paged),
    Part(&'a Load),
}

impl<'a> From<&'a Filter> for Body<'a> {
    fn from(filter: &'a Filter) -> Self {
        Self::Layers(filter)
    }
}

impl<'a> From<&'a Paged> for Body<'a> {
    fn from(filter: &'a Paged) -> Self {
        Self::Pages(filter)
    }
}

impl<'a> From<&'a Load> for Body<'a> {
    fn from(load: &'a Load) -> Self {
        Self::Part(load)
    }
}

impl<'a> From<&'a Stored> for Body<'a> {
    fn from(stored: &'a Stored) -> Self {
        match stored {
            Stored::Layers(filter) => Self::Layers(filter),
            Stored::Pages(filter) => Self::Pages(filter),
            Stored::Partial(load) => Self::Part(load),
        }
    }
}

impl<'a> Body<'a> {
    /// The layers; `None` for a complete filter of pages, and for a part of one without a layer.
    pub(super) fn filter(self) -> Option<&'a Filter> {
        match self {
            Self::Layers(filter) => Some(filter),
            Self::Part(load) => load.filter.as_ref(),
            Self::Pages(_) => None,
        }
    }

    /// The layers, if they are RedisBloom's.
    pub(super) fn redisblooms(self) -> Option<(&'a Filter, RedisBloom)> {
        let filter = self.filter()?;
        if let Family::RedisBloom(family) = filter.family() { Some((filter, family)) } else { None }
    }

    /// The numbers for the header.
    pub(super) fn plan(self) -> Plan {
        match self {
            Self::Layers(filter) => Plan::of(filter),
            Self::Pages(filter) => Plan::of_pages(filter),
            Self::Part(load) => load.plan.clone(),
        }
    }

    /// Bytes of the bits.
    pub(super) fn bits(self) -> u64 {
        match self {
            Self::Pages(filter) => size_of_val(base_words(filter)) as u64,
            Self::Layers(_) | Self::Part(_) => self.filter().map_or(0, Filter::bit_bytes),
        }
    }

    /// The place behind what is there.
    pub(super) fn end(self) -> u64 {
        match self {
            Self::Layers(_) => self.bits(),
            Self::Pages(_) => self.bits().saturating_add(END),
            Self::Part(load) => load.received(),
        }
    }

    /// The page at a position.
    fn page_at(self, position: u64) -> Option<(Reach, &'a Page)> {
        match self {
            Self::Layers(_) => None,
            Self::Pages(filter) => filter.pages().page_at(position),
            Self::Part(load) => load.pieces.as_ref()?.page_at(position),
        }
    }

    /// The place at which the word or page at `place` starts; `None` if there is none.
    pub(super) fn start(self, place: u64) -> Option<u64> {
        let bits = self.bits();
        if place >= self.end() {
            None
        } else if let Some(position) = place.checked_sub(bits) {
            Some(bits.saturating_add(self.page_at(position)?.0.start))
        } else {
            Some(place.saturating_sub(place % stream::WORD))
        }
    }

    /// Whether every bit of `bytes` at `place` is set already.
    pub(super) fn holds(self, place: u64, bytes: &[u8]) -> bool {
        let mut stored = Vec::new();
        self.put(place, bytes.len(), &mut stored);
        stream::words(bytes).zip(stream::words(&stored)).all(|(bits, word)| bits & !word == 0)
    }

    /// Appends about `most` bytes from `place` on: either bits or records of pages, never both.
    /// Returns the place behind them.
    pub(super) fn put(self, place: u64, most: usize, out: &mut Vec<u8>) -> u64 {
        let bits = self.bits();
        if let Some(position) = place.checked_sub(bits) {
            return bits.saturating_add(self.put_pages(position, most, out));
        }
        let count = bits.min(self.end()).saturating_sub(place).min(most as u64);
        if let Some(filter) = self.filter() {
            stream::read(filter, place, count as usize, out);
        } else if let Self::Pages(filter) = self {
            let words = base_words(filter).get((place / stream::WORD) as usize..);
            stream::put(words.unwrap_or_default(), count as usize, out);
        }
        place.saturating_add(count)
    }

    /// Appends the records from position `from` on that fit into `most` bytes, and at least one.
    /// Returns the position behind them.
    fn put_pages(self, from: u64, most: usize, out: &mut Vec<u8>) -> u64 {
        let (mut end, full) = (from, out.len().saturating_add(most));
        while let Some((reach, page)) = self.page_at(end) {
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
}

/// The bits of the layer below the pages, if there is one.
fn base_words(filter: &Paged) -> &[u64] {
    filter.base().map_or(&[], |base| base.bits().words())
}

/// The place behind `bytes`, which start at the place `from`, and are either bits or records.
/// `bits` is the number of bytes of bits in the body. No page is read.
pub(super) fn behind(bits: u64, from: u64, bytes: &[u8]) -> Result<u64, Error> {
    let mut to = from.saturating_add(bytes.len() as u64);
    if let Some(mut position) = from.checked_sub(bits) {
        let mut reader = Reader(bytes);
        while !reader.0.is_empty() {
            let (level, _) = next_record(&mut reader)?;
            position = Reach::new(position, level).ok_or(NOT_NEXT)?.end();
        }
        to = bits.saturating_add(position);
    }
    if to == from || (from < bits && to > bits) {
        return Err(Error::Order { from, to, received: 0 });
    }
    let words = from.min(bits)..to.min(bits);
    if !(words.start.is_multiple_of(stream::WORD) && words.end.is_multiple_of(stream::WORD)) {
        return Err(Error::Unaligned { from: words.start, to: words.end });
    }
    Ok(to)
}

/// Adds the pages of `bytes` to those before them.
pub(super) fn read_pages(bytes: &[u8], pieces: &mut Pieces) -> Result<(), Error> {
    let mut reader = Reader(bytes);
    while !reader.0.is_empty() {
        let (level, body) = next_record(&mut reader)?;
        let mut words = Vec::new();
        let reserved = words.try_reserve_exact(body.len().div_ceil(size_of::<u64>()));
        reserved.map_err(|_| FilterError::OutOfMemory(body.len() as u64))?;
        words.extend(stream::words(body));
        pieces.push(level, &words)?;
    }
    Ok(())
}

/// The level and the words of the next record.
fn next_record<'a>(reader: &mut Reader<'a>) -> Result<(u32, &'a [u8]), Error> {
    let (level, count) = (reader.u8()?, usize::from(reader.u16()?));
    Ok((level.into(), reader.bytes(count.saturating_mul(size_of::<u64>()))?))
}
