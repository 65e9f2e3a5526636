//! The invariants of every paged filter. Every decoder checks this one list.
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
use crate::filter::{
    error::Error,
    foreign::Family,
    identity,
    pages::{self, Payload},
    params::{CellKind, Expansion, Params},
    plan::{LayerPlan, Plan},
};

/// A paged filter without its bits and pages: what a decoder has read before it allocates anything.
#[derive(Clone, Debug, PartialEq)]
pub struct PagedPlan {
    /// What a filter of layers has, too. The only layer that there may be is below the pages.
    pub below: Plan,
    /// Items that it was reserved for.
    pub capacity: u64,
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
        let below = Plan {
            family: Family::Native,
            seed: filter.seed,
            error_rate: filter.error_rate,
            expansion: filter.expansion(),
            shard: filter.shard(),
            layers: filter.base().map(LayerPlan::of).into_iter().collect(),
        };
        Self {
            below,
            capacity: filter.capacity,
            pages: filter.pages.plan(),
            copies: filter.pages.copies(),
            window: filter.window().cloned(),
        }
    }

    /// Checks every invariant.
    ///
    /// # Errors
    /// `Error::Impossible` for the first invariant that is broken, or the error of a number that is
    /// out of its range.
    pub fn check(&self) -> Result<(), Error> {
        let Self { below, capacity, pages, window, .. } = self;
        self.params().check()?;
        let factor = below.expansion.factor();
        Expansion::new(factor.unwrap_or(0).into())?;
        pages.check()?;
        match below.layers[..] {
            _ if below.family != Family::Native => {
                return Err(Error::Impossible("pages of a filter that another product made"));
            }
            [] => {}
            // The only layer of a filter that has just become full.
            [base] if base.items == base.capacity && base.capacity == *capacity => {
                if factor.is_none() || pages.payload != Payload::Nothing {
                    return Err(Error::Impossible("a layer below pages of another kind"));
                }
                below.check()?;
            }
            _ => return Err(Error::Impossible("a layer below pages that is not full")),
        }
        let belong = match window {
            None => matches!(pages.payload, Payload::Nothing | Payload::Count { .. }),
            Some(window) => {
                if !window.is_sound(factor.is_some(), *capacity) {
                    return Err(Error::Impossible("a window that no filter has"));
                }
                let bits = super::window::number_bits(window.rules);
                pages.payload == Payload::Generation { bits }
            }
        };
        if belong { Ok(()) } else { Err(Error::Impossible("pages of another kind of filter")) }
    }

    /// The parameters of the filter.
    pub fn params(&self) -> Params {
        let cells = match self.pages.payload {
            Payload::Count { .. } => CellKind::Counters,
            Payload::Nothing | Payload::Generation { .. } => CellKind::Bits,
        };
        let Plan { error_rate, expansion, seed, .. } = self.below;
        Params { error_rate, capacity: self.capacity, expansion, seed, cells }
    }

    /// The identity: equal for a filter and its copies, however far they have grown.
    pub fn identity(&self) -> u64 {
        let rules = self.window.as_ref().map(|window| window.rules);
        identity::native(&self.params(), self.below.shard, rules)
    }
}
