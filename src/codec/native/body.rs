//! What follows a header: the bits of all layers, oldest first, and then the pages.
//!
//! ```text
//!   ┌────────────────┬────────────────┬─ ─ ─┬─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─┐
//!   │ bits, layer 0  │ bits, layer 1  │ ... │ pages, by their positions  │
//!   └────────────────┴────────────────┴─ ─ ─┴─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─┘
//! ```
//!
//! A place is the number of a byte of the bits or, after all of these, the position of a page
//! (`filter/pages/pieces.rs`). Once there are pages, the bits below them no longer change.
//!
//! No number says how many pages there are, so none can be forged: a reader has all pages when they
//! cover all positions, and it allocates as they arrive.

use super::{
    load::{Load, Stored},
    page_records, stream,
};
use crate::filter::{
    Filter, Layer, Plan,
    paged::Paged,
    pages::{END, Page, Reach},
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
            Self::Part(load) => load.filter(),
            Self::Pages(_) => None,
        }
    }

    /// The numbers for the header.
    pub(super) fn plan(self) -> Plan {
        match self {
            Self::Layers(filter) => Plan::of(filter),
            Self::Pages(filter) => Plan::of_pages(filter),
            Self::Part(load) => load.plan(),
        }
    }

    fn base(self) -> Option<&'a Layer> {
        if let Self::Pages(filter) = self { filter.base() } else { None }
    }

    /// Bytes of the bits.
    fn bits(self) -> u64 {
        let base = self.base().map_or(0, |base| base.shape().words().saturating_mul(stream::WORD));
        self.filter().map_or(base, Filter::bit_bytes)
    }

    /// The place behind what is there.
    pub(super) fn end(self) -> u64 {
        match self {
            Self::Layers(filter) => filter.bit_bytes(),
            Self::Pages(_) => self.bits().saturating_add(END),
            Self::Part(load) => load.received(),
        }
    }

    /// The page at a position.
    fn page_at(self, position: u64) -> Option<(Reach, &'a Page)> {
        match self {
            Self::Layers(_) => None,
            Self::Pages(filter) => filter.pages().page_at(position),
            Self::Part(load) => load.pieces()?.page_at(position),
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
            let at = |position| self.page_at(position);
            return bits.saturating_add(page_records::put(at, position, most, out));
        }
        let count = bits.min(self.end()).saturating_sub(place).min(most as u64);
        if let Some(filter) = self.filter() {
            stream::read(filter, place, count as usize, out);
        } else if let Some(base) = self.base() {
            let words = base.bits().words().get((place / stream::WORD) as usize..);
            stream::put(words.unwrap_or_default(), count as usize, out);
        }
        place.saturating_add(count)
    }
}
