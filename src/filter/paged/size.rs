//! The memory of a filter before it is made: what a plan shows, whoever makes the filter.

use super::{Paged, Rest, plan, plan_above, window};
use crate::filter::{
    Rules, Span,
    error::Error,
    params::{CellKind, Expansion, Params},
    plan::Plan,
};

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

/// The bytes that the filter of these parameters takes with `items` items; in pages, a mean.
pub fn expected_bytes(params: &Params, rules: Option<Rules>, items: u64) -> Result<u64, Error> {
    let scales = params.expansion.factor().is_some();
    let counts_items = rules.is_some_and(|rules| rules.span == Span::Items);
    if items > params.capacity && !scales && !counts_items {
        return Err(Error::Full);
    }
    if params.has_pages(rules) {
        let generations = rules.map_or(0, window::list_bytes);
        let has_rest = rules.is_some() || params.expansion != Expansion::USUAL;
        let rest = if has_rest { size_of::<Rest>() } else { 0 };
        params.check()?;
        if let Some(rules) = rules {
            rules.check(scales)?;
        }
        let bytes = plan(params, rules)?.expected_bytes(items)?;
        return Ok(bytes.saturating_add((size_of::<Paged>() + rest) as u64 + generations));
    }
    let layer = Plan::new(params)?;
    if items <= params.capacity {
        return Ok(layer.bytes());
    }
    let above = plan_above(params.error_rate)?.expected_bytes(items - params.capacity)?;
    let structs = (size_of::<Paged>() + size_of::<Rest>()) as u64;
    Ok(above.saturating_add(structs + layer.bit_bytes()))
}
