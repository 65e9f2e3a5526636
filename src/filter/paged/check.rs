//! The invariants of a paged filter, whoever made it. Every decoder checks this one list.
//!
//! ```text
//!   numbers read ─▶ PagedPlan::check ─▶ base and pages read ─▶ Paged::from_parts
//! ```
//!
//! Stored bytes are untrusted until they have passed. A forged number costs only the refusal: the
//! plan allocates nothing. Each page is checked as it is read (`Page::from_words`), and their sum
//! by `Pages::from_pages`.
//!
//! What is not checked: that [`Generation::items`](super::Generation::items) fit the slots, and
//! that no slot has a number that no generation has. A forged filter that lies there refuses too
//! many items or too few, or remembers items that nobody added, as a filter with all bits set does.

use super::{Paged, Window};
use crate::{
    filter::{
        check::{Broken, Plan},
        foreign::Family,
        layer::Layer,
        pages::{self, MAX_PAGES, Pages, Payload},
        params::{Expansion, check_ranges},
        plan::LayerPlan,
    },
    sharding::Shard,
};

/// A paged filter without its bits and pages: what a decoder has read before it allocates anything.
#[derive(Clone, Debug, PartialEq)]
pub struct PagedPlan {
    /// Key of the hash.
    pub seed: u64,
    /// Rate of the whole filter.
    pub error_rate: f64,
    /// Items that it was reserved for.
    pub capacity: u64,
    /// Whether it refuses new items at its capacity, and the factor for [`Paged::stack`].
    pub expansion: Expansion,
    /// The shard that the filter is, if it is one.
    pub shard: Option<Shard>,
    /// The layer below the pages.
    pub base: Option<LayerPlan>,
    /// The numbers of the pages.
    pub pages: pages::Plan,
    /// Pages; 0 for the small form.
    pub page_count: u64,
    /// Slots in all pages.
    pub slots: u64,
    /// Void slots that splits copied.
    pub copies: u64,
    /// How the filter forgets, if it does.
    pub window: Option<Window>,
}

/// Bits or pages that do not follow the plan of their filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bits or pages that do not follow the plan of their filter")]
pub struct Mismatch;

impl PagedPlan {
    /// The plan of an existing filter.
    #[must_use]
    pub fn of(filter: &Paged) -> Self {
        Self {
            seed: filter.seed,
            error_rate: filter.error_rate,
            capacity: filter.capacity,
            expansion: filter.expansion(),
            shard: filter.shard(),
            base: filter.base().map(LayerPlan::of),
            pages: filter.pages.plan(),
            page_count: filter.pages.pages().len() as u64,
            slots: filter.pages.slot_count(),
            copies: filter.pages.copies(),
            window: filter.window().cloned(),
        }
    }

    /// Checks every invariant.
    ///
    /// # Errors
    /// The first invariant that is broken.
    pub fn check(&self) -> Result<(), Broken> {
        let &Self { error_rate, capacity, expansion, .. } = self;
        check_ranges(error_rate, capacity)?;
        if let Some(factor) = expansion.factor() {
            Expansion::new(factor.into())?;
        }
        self.pages.check()?;
        if let Some(base) = &self.base {
            self.check_base(base)?;
        }
        let payload = match &self.window {
            None => matches!(self.pages.payload, Payload::Nothing | Payload::Count { .. }),
            Some(window) => {
                window.check(expansion.factor().is_some(), capacity)?;
                let bits = super::window::number_bits(window.rules);
                self.pages.payload == Payload::Generation { bits }
            }
        };
        let below = self.base.is_none() || self.pages.payload == Payload::Nothing;
        if !payload || !below {
            return Err(Broken::Pages);
        }
        let counted = self.window.is_none();
        let most = self.pages.most_slots(self.page_count.max(1));
        let copies = if counted { self.copies <= self.slots } else { self.copies == 0 };
        let count = match self.page_count {
            0 => self.copies == 0,
            count => count <= MAX_PAGES,
        };
        if copies && count && (!counted || self.slots - self.copies <= most) {
            Ok(())
        } else {
            Err(Broken::Pages)
        }
    }

    /// Checks the layer below the pages as the only layer of a filter that has just become full.
    fn check_base(&self, base: &LayerPlan) -> Result<(), Broken> {
        if base.items != base.capacity || base.capacity != self.capacity {
            let &LayerPlan { capacity, items, .. } = base;
            return Err(Broken::Items { index: 0, items, capacity });
        }
        let stack = Plan {
            family: Family::Native,
            seed: self.seed,
            error_rate: self.error_rate,
            expansion: self.expansion,
            shard: self.shard,
            layers: vec![*base],
        };
        match self.expansion.factor() {
            Some(_) => stack.check(),
            None => Err(Broken::Layers(2)),
        }
    }

    /// Compares the layer and the pages that were read with the plan.
    pub(super) fn compare(&self, base: Option<&Layer>, pages: &Pages) -> Result<(), Mismatch> {
        let equal = base.map(LayerPlan::of) == self.base
            && pages.plan() == self.pages
            && pages.pages().len() as u64 == self.page_count
            && (pages.slot_count(), pages.copies()) == (self.slots, self.copies);
        if equal { Ok(()) } else { Err(Mismatch) }
    }
}
