//! The memory and the rate of a paged filter, for `BF.INFO`, and how an allocator moves it.
//!
//! The rate of the pages is the sum over their slots (`pages/sample.rs`): exact in a filter of
//! fewer than 128 pages, and an estimate from a sample of 128 pages from there on.

use super::{Paged, Part, Rest, Rules, SHARE_ABOVE};
use crate::filter::{estimate::Estimate, pages::Page, params::Params};

impl Paged {
    /// The share of the pages' slots that are taken, and the rate of base and pages together.
    pub fn estimate(&self) -> Estimate {
        let pages = self.estimate_pages();
        let base = self.base().map_or(0.0, |base| base.estimate().error_rate);
        Estimate { error_rate: base + pages.error_rate * (1.0 - base), ..pages }
    }

    /// [`Self::estimate`] of the pages alone.
    pub fn estimate_pages(&self) -> Estimate {
        let fill = (self.pages.slot_count() as f64 / self.pages.most_slots() as f64).min(1.0);
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

    /// Bytes that the allocator spends on all that the filter has. `size` returns the bytes of
    /// one allocation. It is not called for pages, which fill their classes (`pages/memory.rs`).
    pub fn memory(&self, size: impl Fn(*const u8) -> usize) -> usize {
        let Some(rest) = self.rest.as_deref() else {
            return self.pages.bytes() as usize;
        };
        let part = match &rest.part {
            Part::Nothing => 0,
            Part::Base(base) => size(base.bits().words().as_ptr().cast()),
            Part::Window(window) => size(window.generations.as_ptr().cast()),
        };
        let rest = size(std::ptr::from_ref(rest).cast());
        part + rest + (self.pages.bytes() + self.leaving_bytes()) as usize
    }

    /// Bytes of pages that were forgotten and are not freed yet.
    pub fn leaving_bytes(&self) -> u64 {
        self.rest.as_deref().map_or(0, |rest| rest.leaving.iter().map(Page::bytes).sum())
    }

    /// Lets an allocator move allocations, from number `from` on, until `stop` says so. Returns the
    /// number of the next allocation, or `None` at the end.
    ///
    /// # Safety
    /// As for [`Bits::relocate`](crate::filter::Bits::relocate).
    pub unsafe fn relocate(
        &mut self,
        from: u64,
        mut mover: impl FnMut(*mut u8, usize) -> *mut u8,
        stop: impl FnMut() -> bool,
    ) -> Option<u64> {
        if from == 0
            && let Some(Rest { part: Part::Base(base), .. }) = self.rest.as_deref_mut()
        {
            // SAFETY: the caller's promise.
            unsafe { base.bits_mut().relocate(&mut mover) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.pages.relocate(from, mover, stop) }
    }
}

/// Up to this capacity, RedisBloom's default, a filter is treated as not reserved: nobody has
/// estimated the number of its items. Pages from the first item on then take less memory.
const UNRESERVED: u64 = 100;

impl Params {
    /// Whether a new native filter has pages from its first item on, and otherwise a layer.
    pub fn has_pages(&self, rules: Option<Rules>) -> bool {
        let grows = self.expansion.factor().is_some();
        rules.is_some() || self.counts || (grows && self.capacity <= UNRESERVED)
    }
}
