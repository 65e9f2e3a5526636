//! What the rest of the world is told of a change: replicas and the AOF, watchers and caches,
//! subscribers. Effects, never intentions.
//!
//! * A creation carries every resolved parameter, the seed included. A replica with other defaults
//!   makes the same filter.
//! * An addition carries the items that changed the filter, and only those: of a filter that
//!   counts, all that were added. A deletion carries those of which a counter went down. A command
//!   that changed nothing is not replicated, does not grow the AOF and does not disturb WATCH or
//!   client-side caches.
//!
//! In that order: replicated first, then signalled, then published. A subscriber of an event may be
//! another module that writes at once; what it does must come after what it was told of, on
//! replicas too. And nothing here is called while a filter or its key is still held, for the
//! subscriber may delete it.
//!
//! The primary's answer for an item depends on its bits, so a replica must hold the same bits: an
//! item that the primary found present by accident is never sent. Sizing and hashing are therefore
//! deterministic (`filter::sizing`).

use super::{
    api::{Context, OwnedStr, Str},
    stats,
};
use crate::{
    command::number,
    filter::{CellKind, Family, Filter, Params},
};

/// What a command changed.
pub(crate) struct Change<'a> {
    /// What the filter is, where the command made it.
    pub(crate) created: Option<CreatedWith>,
    pub(crate) items: Items<'a>,
    pub(crate) shape: Shape,
}

/// Everything that decides the bits of a filter that a command made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreatedWith {
    params: Params,
    family: Family,
}

impl CreatedWith {
    pub(crate) fn of(filter: &Filter) -> Self {
        Self { params: filter.params(), family: filter.family() }
    }
}

/// The items that changed the filter.
pub(crate) enum Items<'a> {
    /// All of a command that may be repeated word for word.
    All,
    /// These, perhaps none.
    Listed(Vec<Str<'a>>),
}

/// What became of the filter's shape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shape {
    /// Layers that it was given.
    pub(crate) layers: usize,
    /// Whether it is a non-scaling filter that became full.
    pub(crate) filled: bool,
}

/// Tells of it.
pub(crate) fn announce(ctx: Context, key: Str, change: &Change) {
    match (&change.created, &change.items) {
        (Some(creation), Items::Listed(items)) => created(ctx, key, creation, items, change.shape),
        (None, Items::Listed(items)) if items.is_empty() => {}
        (None, Items::Listed(items)) => {
            ctx.replicate(c"BF.MADD", key, &[], items);
            ctx.signal_modified(key);
            added(ctx, key, change.shape);
        }
        (_, Items::All) => added_all(ctx, key, change.shape),
    }
}

/// Tells of additions by a command that may be repeated word for word: each of its items changed
/// the filter.
#[inline]
pub(crate) fn added_all(ctx: Context, key: Str, shape: Shape) {
    ctx.replicate_verbatim();
    ctx.signal_modified(key);
    added(ctx, key, shape);
}

/// Tells of a filter that was made, and of its first items.
#[cold]
fn created(ctx: Context, key: Str, creation: &CreatedWith, items: &[Str], shape: Shape) {
    let Params { error_rate, capacity, .. } = creation.params;
    let (rate, capacity) = (number::shortest(error_rate).into(), capacity.to_string().into());
    let native = creation.family == Family::Native;
    if native && items.is_empty() {
        let words = [vec![rate, capacity], options(creation)].concat();
        ctx.replicate(c"BF.RESERVE", key, &owned(&words), &[]);
    } else {
        let head = vec![b"ERROR".to_vec(), rate, b"CAPACITY".to_vec(), capacity];
        let mut words = [head, options(creation)].concat();
        if !items.is_empty() {
            words.push(b"ITEMS".to_vec());
        }
        ctx.replicate(c"BF.INSERT", key, &owned(&words), items);
    }
    ctx.signal_modified(key);
    ctx.notify(c"bloom.reserve", key);
    if !items.is_empty() {
        added(ctx, key, shape);
    }
}

/// Publishes that items were added, and what became of the filter's shape.
#[inline]
fn added(ctx: Context, key: Str, shape: Shape) {
    ctx.notify(c"bloom.add", key);
    if shape != Shape::default() {
        reshaped(ctx, key, shape);
    }
}

/// Publishes what became of it.
#[cold]
fn reshaped(ctx: Context, key: Str, shape: Shape) {
    if shape.layers > 0 {
        ctx.notify(c"bloom.scale", key);
    }
    if shape.filled {
        stats::FILLED.add(1);
        ctx.notify(c"bloom.full", key);
    }
}

/// After BF.DEL, of whose `items` those at which `deleted` says so changed the filter.
pub(crate) fn deleted(ctx: Context, key: Str, items: &[Str], deleted: &[bool]) {
    let changed: Vec<Str> =
        items.iter().zip(deleted).filter(|(_, deleted)| **deleted).map(|(item, _)| *item).collect();
    if changed.is_empty() {
        return;
    }
    if changed.len() == items.len() {
        ctx.replicate_verbatim();
    } else {
        ctx.replicate(c"BF.DEL", key, &[], &changed);
    }
    ctx.signal_modified(key);
    ctx.notify(c"bloom.del", key);
}

/// After a command brought a filter, or BF.LOADCHUNK a part of it: once it is complete there is a
/// filter.
pub(crate) fn loaded(ctx: Context, key: Str, complete: bool) {
    ctx.replicate_verbatim();
    ctx.signal_modified(key);
    if complete {
        ctx.notify(c"bloom.reserve", key);
    }
}

/// What BF.RESERVE and BF.INSERT say alike.
fn options(creation: &CreatedWith) -> Vec<Vec<u8>> {
    let mut words = match creation.params.expansion.factor() {
        Some(factor) => vec![b"EXPANSION".to_vec(), factor.to_string().into()],
        None => vec![b"NONSCALING".to_vec()],
    };
    let seed = match creation.family {
        Family::Valkey(valkey) => {
            words.extend([b"TIGHTENING".to_vec(), number::shortest(valkey.tightening).into()]);
            valkey.seed.to_vec()
        }
        Family::Native | Family::RedisBloom(_) | Family::Guava => {
            creation.params.seed.to_string().into()
        }
    };
    words.extend([b"SEED".to_vec(), seed]);
    if creation.params.cells == CellKind::Counters {
        words.push(b"COUNTING".to_vec());
    }
    words
}

fn owned(words: &[Vec<u8>]) -> Vec<OwnedStr> {
    words.iter().filter_map(|word| OwnedStr::new(word)).collect()
}
