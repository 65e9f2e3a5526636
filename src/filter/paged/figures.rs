//! The memory and the rate of a paged filter, before it is made and now, for plans and `BF.INFO`,
//! and how an allocator moves it.
//!
//! The rate of the pages is the sum over their slots (`pages/sample.rs`): exact in a filter of up
//! to 100,000 items, and an estimate from a sample above that.

use super::{
    Paged, Part, REST_BYTES, Rest, Rules, SHARE_ABOVE, STRUCT_BYTES, Span, plan, plan_above, window,
};
use crate::filter::{
    error::Error,
    estimate::Estimate,
    pages::Page,
    params::{CellKind, Expansion, Params},
    plan::Plan,
    sizing::{self, geometry, layer_rate},
};

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

    /// Bytes that the allocator spends on all that the filter has. `size` gives those of an
    /// allocation but a page's, which fills its class (`pages/memory.rs`).
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
    /// number of the next.
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
            unsafe { base.relocate(&mut mover) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.pages.relocate(from, mover, stop) }
    }
}

/// The largest capacity, RedisBloom's default, for which nobody has counted the items: pages from
/// the first item on take less memory there.
const UNRESERVED: u64 = 100;

impl Params {
    /// Whether a new native filter has pages from its first item on, and otherwise a layer.
    pub fn has_pages(&self, rules: Option<Rules>) -> bool {
        let grows = self.expansion.factor().is_some();
        rules.is_some()
            || self.cells == CellKind::Counters
            || (grows && self.capacity <= UNRESERVED)
    }
}

/// The bytes that the filter of these parameters takes with `items` items. Those of plain bits are
/// exact. Those of pages are a mean: which page an item belongs to depends on the seed.
///
/// # Errors
/// Those of [`Paged::new`] for any memory, and `Error::Full` if a filter that does not scale takes
/// fewer items.
pub fn expected_bytes(params: &Params, rules: Option<Rules>, items: u64) -> Result<u64, Error> {
    let scales = params.expansion.factor().is_some();
    let counts_items = rules.is_some_and(|rules| rules.span == Span::Items);
    if items > params.capacity && !scales && !counts_items {
        return Err(Error::Full);
    }
    if params.has_pages(rules) {
        let bytes = plan(params, rules)?.expected_bytes(items)?;
        let generations = rules.map_or(0, window::list_bytes);
        let has_rest = rules.is_some() || params.expansion != Expansion::USUAL;
        let rest = if has_rest { REST_BYTES } else { 0 };
        return Ok(bytes.saturating_add(STRUCT_BYTES + rest + generations));
    }
    let layer = Plan::new(params)?;
    if items <= params.capacity {
        return Ok(layer.bytes());
    }
    let above = plan_above(params.error_rate)?.expected_bytes(items - params.capacity)?;
    Ok(above.saturating_add(STRUCT_BYTES + REST_BYTES + layer.bit_bytes()))
}

/// The false positive rate that the filter of these parameters has with `items` distinct items, on
/// average over all seeds.
///
/// # Errors
/// Those of [`expected_bytes`].
pub fn expected_rate(params: &Params, rules: Option<Rules>, items: u64) -> Result<f64, Error> {
    expected_bytes(params, rules, items)?;
    if params.has_pages(rules) {
        return Ok(plan(params, rules)?.expected_rate(items));
    }
    let &Params { error_rate, capacity, expansion, .. } = params;
    let rate = layer_rate(error_rate, expansion.factor().is_some());
    let layer = geometry(capacity, rate).ok_or(Error::Capacity(capacity))?;
    let below = sizing::expected_rate(layer, items.min(capacity) as f64);
    let above = plan_above(error_rate)?.expected_rate(items.saturating_sub(capacity));
    Ok(below + above * (1.0 - below))
}
