//! The encodings of a filter in pages.
//!
//! ```text
//!   record   the pages in the order of their positions (filter/pages/pieces.rs)
//!   rdb      RDB, DUMP, full sync: a header, then records in strings of 1 MiB
//!   dump     BF.SCANDUMP, BF.LOADCHUNK, the rewritten AOF: a header, then chunks of 16 MiB
//! ```
//!
//! The bits of the layer below the pages come before the pages. They do not change any more, so a
//! place in either encoding is a byte of these bits or, behind them, a position of a page.
//!
//! No number says how many pages there are, so none can be forged: a reader has all pages when they
//! cover all positions, and it allocates as they arrive.

pub mod dump;
pub mod rdb;
mod record;

use crate::{
    codec::native::stream,
    filter::{
        Layer,
        paged::{Paged, PagedPlan},
        pages::{END, Piece, Reach},
    },
};

/// Bytes of the bits below the pages.
fn bits(plan: &PagedPlan) -> u64 {
    plan.below.bit_bytes()
}

/// The place behind the last page.
pub(super) fn end(plan: &PagedPlan) -> u64 {
    bits(plan).saturating_add(END)
}

/// What is written: of a filter, or of the part of one that BF.LOADCHUNK has sent.
struct Body<'a> {
    plan: PagedPlan,
    base: Option<&'a Layer>,
    /// The place behind what is there.
    end: u64,
    /// The page at a position.
    at: Box<dyn Fn(u64) -> Option<(Reach, Piece<'a>)> + 'a>,
}

impl<'a> Body<'a> {
    fn of(filter: &'a Paged) -> Self {
        let plan = PagedPlan::of(filter);
        let at = Box::new(|position| filter.pages().piece_at(position));
        Self { base: filter.base(), end: end(&plan), at, plan }
    }

    /// The place at which the word or page at `place` starts; `None` if there is none.
    fn start(&self, place: u64) -> Option<u64> {
        let bits = bits(&self.plan);
        if place >= self.end {
            None
        } else if let Some(position) = place.checked_sub(bits) {
            Some(bits.saturating_add((self.at)(position)?.0.start()))
        } else {
            Some(place.saturating_sub(place % stream::WORD))
        }
    }

    /// Appends what starts at `place`, of some `most` bytes. Returns the place behind it.
    fn put(&self, place: u64, most: usize, out: &mut Vec<u8>) -> u64 {
        let bits = bits(&self.plan);
        if let Some(position) = place.checked_sub(bits) {
            return bits.saturating_add(record::put(&self.at, position, most, out));
        }
        let count = bits.min(self.end).saturating_sub(place).min(most as u64);
        let words = self.base.map_or(&[][..], |base| base.bits().words());
        let words = words.get((place / stream::WORD) as usize..).unwrap_or_default();
        stream::put(words, count as usize, out);
        place.saturating_add(count)
    }
}
