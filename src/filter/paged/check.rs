//! The invariants of a paged filter, whoever made it. Every decoder checks this one list.
//!
//! ```text
//!   numbers read ─▶ PagedPlan::check ─▶ base and pages read ─▶ Paged::from_parts
//! ```
//!
//! A forged number costs only the refusal: the plan allocates nothing. Each page is checked as it
//! is read (`Page::from_words`), and the number of slots by `Pages::from_pages`.
//!
//! What is not checked: that [`Generation::items`](super::Generation::items) fit the slots, and
//! that no slot has a number that no generation has. Such a filter answers as one with other items
//! does.

use super::{Paged, Window};
use crate::{
    filter::{
        error::Error,
        foreign::Family,
        identity,
        pages::{self, Payload},
        params::{CellKind, Expansion, Params},
        plan::{LayerPlan, Plan},
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
    /// Void slots that splits copied.
    pub copies: u64,
    /// How the filter forgets, if it does.
    pub window: Option<Window>,
}

impl PagedPlan {
    /// The plan of an existing filter.
    pub fn of(filter: &Paged) -> Self {
        Self {
            seed: filter.seed,
            error_rate: filter.error_rate,
            capacity: filter.capacity,
            expansion: filter.expansion(),
            shard: filter.shard(),
            base: filter.base().map(LayerPlan::of),
            pages: filter.pages.plan(),
            copies: filter.pages.copies(),
            window: filter.window().cloned(),
        }
    }

    /// Checks every invariant. Errors: The first invariant that is broken.
    pub fn check(&self) -> Result<(), Error> {
        let &Self { capacity, expansion, .. } = self;
        self.params().check()?;
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
                if !window.is_sound(expansion.factor().is_some(), capacity) {
                    return Err(Error::Impossible("a window that no filter has"));
                }
                let bits = super::window::number_bits(window.rules);
                self.pages.payload == Payload::Generation { bits }
            }
        };
        let below = self.base.is_none() || self.pages.payload == Payload::Nothing;
        if !payload || !below {
            return Err(Error::Impossible("pages that do not belong to the filter"));
        }
        Ok(())
    }

    /// Checks the layer below the pages as the only layer of a filter that has just become full.
    fn check_base(&self, base: &LayerPlan) -> Result<(), Error> {
        if base.items != base.capacity || base.capacity != self.capacity {
            return Err(Error::Impossible("a layer below pages that is not full"));
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
            None => Err(Error::Impossible("pages above a layer that does not scale")),
        }
    }

    /// The parameters of the filter.
    pub fn params(&self) -> Params {
        let &Self { error_rate, capacity, expansion, seed, .. } = self;
        let cells = match self.pages.payload {
            Payload::Count { .. } => CellKind::Counters,
            Payload::Nothing | Payload::Generation { .. } => CellKind::Bits,
        };
        Params { error_rate, capacity, expansion, seed, cells }
    }

    /// The identity: equal for a filter and its copies, however far they have grown.
    pub fn identity(&self) -> u64 {
        let rules = self.window.as_ref().map(|window| window.rules);
        identity::native(&self.params(), self.shard, rules)
    }
}
