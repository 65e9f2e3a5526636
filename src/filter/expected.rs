//! The memory and the rate of a native filter before it is made, for plans.

use super::{
    error::Error,
    paged::{REST_BYTES, Rules, STRUCT_BYTES, Span, list_bytes, plan, plan_above},
    params::{Expansion, Params},
    plan::Plan,
    sizing::{self, geometry, layer_rate},
};

/// The bytes that a filter of these parameters takes when it holds `items` items. The number is
/// exact for plain bits. For pages it is an average over seeds.
///
/// # Errors
/// The errors of [`Paged::new`](super::Paged::new) but `Error::OutOfMemory`; and `Error::Full` if a
/// filter that does not scale takes fewer items.
pub fn expected_bytes(params: &Params, rules: Option<Rules>, items: u64) -> Result<u64, Error> {
    let scales = params.expansion.factor().is_some();
    let counts_items = rules.is_some_and(|rules| rules.span == Span::Items);
    if items > params.capacity && !scales && !counts_items {
        return Err(Error::Full);
    }
    if params.has_pages(rules) {
        let bytes = plan(params, rules)?.expected_bytes(items)?;
        let has_rest = rules.is_some() || params.expansion != Expansion::USUAL;
        let rest = rules.map_or(0, list_bytes) + if has_rest { REST_BYTES } else { 0 };
        return Ok(bytes.saturating_add(STRUCT_BYTES + rest));
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
/// The errors of [`expected_bytes`].
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
