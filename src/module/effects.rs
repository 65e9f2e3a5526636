//! What the rest of the world is told of a change: replicas and the AOF, watchers and caches, subscribers. Effects, never
//! intentions.
//!
//! * A creation carries every resolved parameter, the seed included. A replica with other defaults makes the same filter.
//! * An addition carries the items that changed the filter, and only those. A command that changed nothing is not
//!   replicated, does not grow the AOF and does not disturb WATCH or client-side caches.
//!
//! The primary's answer for an item depends on its bits, so a replica must hold the same bits: an item that the primary
//! found present by accident is never sent. Sizing and hashing are therefore deterministic (`filter::sizing`).

use super::{
    api::{Context, OwnedStr, Str},
    stats,
};
use crate::filter::{Filter, Params};

/// After BF.RESERVE made a filter.
pub(crate) fn reserved(ctx: Context, key: Str, params: &Params) {
    let mut words = vec![exact(params.error_rate), params.capacity.to_string()];
    words.extend(growth_and_seed(params));
    ctx.replicate(c"BF.RESERVE", key, &owned(&words), &[]);
    ctx.signal_modified(key);
    ctx.notify(c"bloom.reserve", key);
}

/// After a command made a filter and added `items` to it, all of them new.
pub(crate) fn created(ctx: Context, key: Str, params: &Params, items: &[Str]) {
    let mut words = vec![
        "ERROR".into(),
        exact(params.error_rate),
        "CAPACITY".into(),
        params.capacity.to_string(),
    ];
    words.extend(growth_and_seed(params));
    words.push("ITEMS".into());
    ctx.replicate(c"BF.INSERT", key, &owned(&words), items);
    ctx.signal_modified(key);
    ctx.notify(c"bloom.reserve", key);
    ctx.notify(c"bloom.add", key);
}

/// After a command added `items`, all of them new; nothing where there are none.
pub(crate) fn added(ctx: Context, key: Str, items: &[Str]) {
    if !items.is_empty() {
        ctx.replicate(c"BF.MADD", key, &[], items);
        ctx.signal_modified(key);
        ctx.notify(c"bloom.add", key);
    }
}

/// After a BF.ADD or BF.MADD of which every item was new.
#[inline]
pub(crate) fn added_every_item(ctx: Context, key: Str) {
    ctx.replicate_verbatim();
    ctx.signal_modified(key);
    ctx.notify(c"bloom.add", key);
}

/// After additions that gave a filter new layers, or filled one that gets none.
pub(crate) fn reshaped(ctx: Context, key: Str, filter: &Filter, layers: usize) {
    if layers > 0 {
        stats::scaled(filter, layers);
        ctx.notify(c"bloom.scale", key);
    } else {
        stats::FILLED.add(1);
        ctx.notify(c"bloom.full", key);
    }
}

/// After BF.LOADCHUNK took a chunk.
pub(crate) fn loaded(ctx: Context, key: Str) {
    ctx.replicate_verbatim();
    ctx.signal_modified(key);
}

fn growth_and_seed(params: &Params) -> Vec<String> {
    let mut words = match params.expansion.factor() {
        Some(factor) => vec!["EXPANSION".into(), factor.to_string()],
        None => vec!["NONSCALING".into()],
    };
    words.extend(["SEED".into(), params.seed.to_string()]);
    words
}

/// The shortest text that reads back as the same double.
fn exact(rate: f64) -> String {
    format!("{rate:e}")
}

fn owned(words: &[String]) -> Vec<OwnedStr> {
    words
        .iter()
        .filter_map(|word| OwnedStr::new(word.as_bytes()))
        .collect()
}
