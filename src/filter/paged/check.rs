//! The invariants of every paged filter. Every decoder checks this one list.
//!
//! ```text
//!   numbers read ─▶ Plan::check ─▶ base and pages read ─▶ Paged::from_parts
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
    pages::{self, Payload},
    params::check_ranges,
    plan::{LayerPlan, Plan},
};

/// What the plan of a paged filter has besides what that of every filter has.
#[derive(Clone, Debug, PartialEq)]
pub struct PagedPlan {
    /// Items that it was reserved for.
    pub capacity: u64,
    /// The numbers of the pages.
    pub pages: pages::Plan,
    /// Void slots that splits copied.
    pub copies: u64,
    /// How the filter forgets, if it does.
    pub window: Option<Window>,
}

impl Plan {
    /// The plan of an existing filter in pages.
    pub fn of_pages(filter: &Paged) -> Self {
        let paged = PagedPlan {
            capacity: filter.capacity,
            pages: filter.pages.plan(),
            copies: filter.pages.copies(),
            window: filter.window().cloned(),
        };
        Self {
            family: Family::Native,
            seed: filter.seed,
            error_rate: filter.error_rate,
            expansion: filter.expansion(),
            shard: filter.shard(),
            layers: filter.base().map(LayerPlan::of).into_iter().collect(),
            paged: Some(paged),
        }
    }
}

impl PagedPlan {
    /// Checks what [`Plan::check`] does not, of the filter of this plan.
    pub(in crate::filter) fn check(&self, plan: &Plan) -> Result<(), Error> {
        let Self { capacity, pages, window, .. } = self;
        check_ranges(plan.error_rate, *capacity)?;
        pages.check()?;
        let factor = plan.expansion.factor();
        match plan.layers[..] {
            _ if plan.family != Family::Native => {
                return Err(Error::Impossible("pages of a filter that another product made"));
            }
            [] => {}
            // The only layer of a filter that has just become full.
            [base] if base.items == base.capacity && base.capacity == *capacity => {
                if factor.is_none() || pages.payload != Payload::Nothing {
                    return Err(Error::Impossible("a layer below pages of another kind"));
                }
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
}
