//! What `BF.INFO` shows of a paged filter: how full it is, its rate now, and which filter it is.
//!
//! The rate of the pages is the sum over their slots (`pages/sample.rs`), and not an estimate in a
//! filter of up to 100,000 items.

use super::{Paged, PagedPlan, SHARE_ABOVE};
use crate::filter::estimate::Estimate;

impl Paged {
    /// The share of the pages' slots that are taken, and the rate of base and pages together.
    pub fn estimate(&self) -> Estimate {
        let pages = self.estimate_pages();
        let base = self.base().map_or(0.0, |base| base.estimate().error_rate);
        Estimate { error_rate: base + pages.error_rate * (1.0 - base), ..pages }
    }

    /// [`Self::estimate`] of the pages alone.
    pub fn estimate_pages(&self) -> Estimate {
        let room = self.pages.plan().most_slots(self.pages.pages().len().max(1) as u64);
        let fill = (self.pages.slot_count() as f64 / room as f64).min(1.0);
        Estimate { fill, error_rate: self.pages.sample().error_rate }
    }

    /// The rate for which the pages were made.
    pub fn error_rate_of_pages(&self) -> f64 {
        self.error_rate * if self.base().is_some() { SHARE_ABOVE } else { 1.0 }
    }

    /// Items whose count is the highest and stays; `None` in a filter that does not count.
    pub fn saturated(&self) -> Option<u64> {
        self.counts().then(|| self.pages.sample().saturated)
    }

    /// [`PagedPlan::identity`].
    pub fn identity(&self) -> u64 {
        PagedPlan::of(self).identity()
    }
}
