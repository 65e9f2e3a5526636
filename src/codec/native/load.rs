//! A filter that arrives piece by piece: from BF.LOADCHUNK, or from an RDB.
//!
//! Memory is allocated as bits and pages arrive, so a forged size costs nothing.

use super::{Body, body, stream};
use crate::{
    codec::Error,
    filter::{
        Demand, Error as FilterError, Filter, LayerPlan, Plan,
        paged::{Paged, Sweep, Window},
        pages::{END, Pieces},
    },
};

/// The value of a key: a complete filter, or one that BF.LOADCHUNK has begun.
#[derive(Debug)]
pub enum Stored {
    /// A filter of layers: one that was reserved, or another product's.
    Layers(Filter),
    /// A filter of pages: one that grows, counts or forgets.
    Pages(Paged),
    /// BF.LOADCHUNK has not sent everything yet, so it answers no query.
    Partial(Box<Load>),
}

/// The result of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The filter had everything already; nothing changed.
    Repeated,
    /// More chunks must follow.
    Next,
    /// The filter is complete.
    Last,
}

/// A part of a filter: the first of its bits and pages. It answers no query yet.
#[derive(Debug)]
pub struct Load {
    /// The plan in the newest chunk.
    pub(super) plan: Plan,
    /// The layers, or the one below the pages: to measure and to move, not to query.
    pub(crate) filter: Option<Filter>,
    /// The pages of a filter that has any.
    pub(super) pieces: Option<Pieces>,
    /// Bytes of bits that were received.
    bits: u64,
    /// Bytes of bits that are allocated.
    room: u64,
}

impl Load {
    /// Begins with the header of a filter of at most `ceiling` bytes of bits.
    pub(crate) fn new(plan: Plan, ceiling: u64) -> Result<Self, FilterError> {
        let filter = (!plan.layers.is_empty()).then(|| plan.begin(ceiling)).transpose()?;
        let room = filter.as_ref().map_or(0, Filter::room);
        let pieces = plan.paged.as_ref().map(|paged| Pieces::new(paged.pages, 0));
        Ok(Self { plan, filter, pieces, bits: 0, room })
    }

    /// The filter, if it has no pages.
    pub fn layered(&self) -> Option<&Filter> {
        self.filter.as_ref().filter(|_| self.pieces.is_none())
    }

    /// The numbers of its layers, or of the layer below the pages.
    pub fn layer_plans(&self) -> &[LayerPlan] {
        &self.plan.layers
    }

    /// The place up to which bits and pages were received.
    pub fn received(&self) -> u64 {
        self.bits.saturating_add(self.pieces.as_ref().map_or(0, Pieces::end))
    }

    /// Bytes of bits and pages that are allocated. For bits, each layer has room for at most eight
    /// times what was received.
    pub fn bytes(&self) -> u64 {
        self.room.saturating_add(self.page_bytes())
    }

    /// Bytes of pages.
    pub fn page_bytes(&self) -> u64 {
        self.pieces.as_ref().map_or(0, Pieces::bytes)
    }

    fn total(&self) -> u64 {
        self.filter.as_ref().map_or(0, Filter::bit_bytes)
    }

    /// Whether nothing more follows.
    pub(super) fn is_complete(&self) -> bool {
        self.bits == self.total() && self.pieces.as_ref().is_none_or(|pieces| pieces.end() == END)
    }

    /// Takes bits or records of pages between two places; returns whether that changed anything.
    /// If it needs memory, `ceiling` gets what is allocated and wanted.
    pub(super) fn take_part(
        &mut self,
        (from, to): (u64, u64),
        bytes: &[u8],
        copies: u64,
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<bool, Error> {
        let (total, received) = (self.total(), self.received());
        if from > received {
            return Err(Error::Order { from, to, received });
        }
        let Some(position) = from.checked_sub(total) else {
            return self.take_bits((from, to), bytes, ceiling);
        };
        let present = self.bytes();
        let pieces = self.pieces.as_mut().ok_or(Error::Order { from, to, received })?;
        if to > received {
            let wanted = present.saturating_add(bytes.len() as u64);
            Demand { present, wanted }.check(ceiling)?;
        }
        let mut later = pieces.from(position);
        body::read_pages(bytes, &mut later)?;
        Ok(pieces.append(later, copies)?)
    }

    fn take_bits(
        &mut self,
        (from, to): (u64, u64),
        bytes: &[u8],
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<bool, Error> {
        let Some(filter) = &mut self.filter else {
            return Ok(false);
        };
        if to <= self.bits && Body::Layers(filter).holds(from, bytes) {
            return Ok(false);
        }
        let (wanted, mut ceiling) = (filter.bit_bytes(), Some(ceiling));
        let (index, start) = filter.layer_at(self.bits, |start| start.memory);
        let mut start = start.memory;
        for layer in filter.layers_from_mut(index) {
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
        stream::merge(filter, from, bytes);
        self.bits = self.bits.max(to);
        Ok(true)
    }

    /// Takes the numbers of a newer chunk. If the state of a window's pass over the pages differs,
    /// the pass begins again: it may have missed pages of the copy.
    pub(super) fn renew(&mut self, mut plan: Plan) {
        if let (Some(filter), Some(newest)) = (&mut self.filter, plan.layers.last()) {
            filter.newest_mut().counted = newest.items;
        }
        if let (Some(old), Some(new)) = (window(&mut self.plan), window(&mut plan))
            && old.sweep != new.sweep
        {
            let oldest = old.sweep.oldest.min(new.sweep.oldest);
            new.sweep = Sweep { oldest, page: 0, ..new.sweep };
        }
        self.plan = plan;
    }

    /// The filter, after everything was taken. What is left here is empty.
    ///
    /// # Errors
    /// `Error::Filter` with `OutOfMemory`: another try may succeed. Others if the pages are not
    /// those of the header.
    pub fn finish(&mut self) -> Result<Stored, Error> {
        let Some(pieces) = &mut self.pieces else {
            return self.filter.take().map(Stored::Layers).ok_or(Error::Truncated);
        };
        // Checked before `pieces` gives up its pages, so that a refusal leaves them here.
        self.plan.check()?;
        let pages = pieces.finish(self.plan.copies())?;
        let base = self.filter.take().map(Filter::into_newest);
        Ok(Stored::Pages(self.plan.with_pages(base, pages)))
    }

    /// Copies the incomplete filter, if there is memory.
    pub fn duplicate(&self) -> Result<Self, FilterError> {
        let filter = self.filter.as_ref().map(Filter::duplicate).transpose()?;
        let pieces = self.pieces.as_ref().map(Pieces::duplicate).transpose()?;
        Ok(Self { plan: self.plan.clone(), filter, pieces, ..*self })
    }
}

fn window(plan: &mut Plan) -> Option<&mut Window> {
    plan.paged.as_mut()?.window.as_mut()
}
