//! Announces changes. Replicates them (to replicas and the AOF), signals the key (for WATCH and
//! client-side caches) and publishes keyspace events, in this order. A subscriber may be another
//! module that writes or deletes the key immediately. Its writes must follow the change, also on
//! replicas. So no filter and no key may be in use when a function of this file is called.
//!
//! What changed is replicated: the command itself only if all of it changed something
//! ("Replication" in `docs/internals/design.md`).

use super::{
    api::{Context, OwnedStr, Str},
    stats,
};
use crate::{
    command::{args, number, options::Creation},
    filter::{Family, paged::Shift},
};

/// The items that changed the filter.
pub(crate) enum Items<'a> {
    /// Every item of the command, which is replicated unchanged.
    All,
    /// Some items of a command, possibly none.
    Listed(Vec<Str<'a>>),
    /// Some items of a packed batch, possibly none, packed as LENGTHS (`codec/packed.rs`).
    Packed(Vec<u8>),
}

impl Items<'_> {
    pub(crate) const NONE: Self = Self::Listed(Vec::new());

    fn is_empty(&self) -> bool {
        match self {
            Self::All => false,
            Self::Listed(items) => items.is_empty(),
            Self::Packed(blob) => blob.is_empty(),
        }
    }
}

/// What happened to the filter besides its items.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Growth {
    /// The change of the generations that preceded the additions.
    pub(crate) shift: Option<Shift>,
    /// Whether a window of items opened a generation.
    pub(crate) opened: bool,
    /// How many more layers `BF.INFO` reports than before.
    pub(crate) layers: u64,
    /// Whether the filter is non-scaling and became full.
    pub(crate) filled: bool,
}

/// Announces additions, or a shift, after the creation of the filter if there was one. Does nothing
/// if no filter was created or changed.
#[inline(always)] // Little of it remains in BF.ADD.
pub(crate) fn announce(
    ctx: Context,
    key: Str,
    created: Option<&Creation>,
    items: &Items,
    growth: Growth,
) {
    match created {
        Some(created) => replicate_creation(ctx, key, created, items, growth),
        None if items.is_empty() && growth.shift.is_none() => return,
        None => replicate_additions(ctx, key, items, growth),
    }
    ctx.signal_modified(key);
    if created.is_some() {
        ctx.notify(c"bloom.reserve", key);
    }
    if !items.is_empty() {
        ctx.notify(c"bloom.add", key);
    }
    if growth != Growth::default() {
        publish_growth(ctx, key, growth);
    }
}

/// Replicates a shift, if there was one, and the items that changed the filter after it.
#[inline(always)]
fn replicate_additions(ctx: Context, key: Str, items: &Items, growth: Growth) {
    if let Some(shift) = growth.shift {
        replicate_shift(ctx, key, shift);
    }
    match items {
        Items::All => ctx.replicate_verbatim(),
        items if items.is_empty() => {}
        Items::Listed(items) => ctx.replicate(c"BF.MADD", key, &[], items),
        Items::Packed(blob) => {
            let words = [b"NOCREATE", b"LENGTHS".as_slice(), blob];
            ctx.replicate(c"BF.BULKADD", key, &owned(words), &[]);
        }
    }
}

/// Replicates what time did to the generations of a filter. That is all there is to announce of a
/// sweep, which changes no answer.
#[cold]
pub(crate) fn replicate_shift(ctx: Context, key: Str, shift: Shift) {
    let (word, number) = args::shift_words(shift);
    ctx.replicate(c"BF.SHIFT", key, &owned([word.as_bytes(), number.as_bytes()]), &[]);
}

/// Announces a shift without additions, made here or by a primary or an AOF.
pub(crate) fn shifted(ctx: Context, key: Str, shift: Shift) {
    let growth = Growth { shift: Some(shift), ..Growth::default() };
    announce(ctx, key, None, &Items::NONE, growth);
}

/// Replicates a new filter and its first items. The command is never replicated unchanged, because
/// the seed is not in it.
#[cold]
fn replicate_creation(ctx: Context, key: Str, created: &Creation, items: &Items, growth: Growth) {
    let rate = number::shortest(created.params.error_rate);
    let capacity = created.params.capacity.to_string();
    let (rate, capacity, options) = (rate.as_bytes(), capacity.as_bytes(), created.words());
    let options = options.iter().map(Vec::as_slice);
    let valkeys = matches!(created.family, Family::Valkey(_));
    if (items.is_empty() || created.window.is_some()) && !valkeys {
        let words = [rate, capacity].into_iter().chain(options);
        ctx.replicate(c"BF.RESERVE", key, &owned(words), &[]);
        // A window gets the time of its first generation by a shift, before its first items.
        return replicate_additions(ctx, key, items, growth);
    }
    let head = [b"ERROR", rate, b"CAPACITY", capacity].into_iter().chain(options);
    match items {
        Items::Listed(items) if !items.is_empty() => {
            ctx.replicate(c"BF.INSERT", key, &owned(head.chain([&b"ITEMS"[..]])), items);
        }
        Items::Packed(blob) if !blob.is_empty() => {
            ctx.replicate(c"BF.BULKADD", key, &owned(head.chain([b"LENGTHS", &blob[..]])), &[]);
        }
        _ => ctx.replicate(c"BF.INSERT", key, &owned(head), &[]),
    }
}

/// Publishes how the filter changed, and counts filters that became full.
#[cold]
fn publish_growth(ctx: Context, key: Str, growth: Growth) {
    if growth.shift.is_some() || growth.opened {
        ctx.notify(c"bloom.shift", key);
    }
    if growth.layers > 0 {
        ctx.notify(c"bloom.scale", key);
    }
    if growth.filled {
        stats::FILLED.add(1);
        ctx.notify(c"bloom.full", key);
    }
}

/// Announces the items that BF.DEL deleted, if there are any.
pub(crate) fn deleted(ctx: Context, key: Str, items: &Items) {
    match items {
        Items::All => ctx.replicate_verbatim(),
        Items::Listed(items) if !items.is_empty() => ctx.replicate(c"BF.DEL", key, &[], items),
        Items::Listed(_) | Items::Packed(_) => return,
    }
    ctx.signal_modified(key);
    ctx.notify(c"bloom.del", key);
}

/// Announces a filter that BF.MERGE changed or `created`.
pub(crate) fn merged(ctx: Context, key: Str, created: bool, growth: Growth) {
    ctx.replicate_verbatim();
    ctx.signal_modified(key);
    if created {
        ctx.notify(c"bloom.reserve", key);
    }
    ctx.notify(c"bloom.merge", key);
    publish_growth(ctx, key, growth);
}

/// Announces a filter that was loaded, or a chunk of one that is not yet `complete`.
pub(crate) fn loaded(ctx: Context, key: Str, complete: bool) {
    ctx.replicate_verbatim();
    ctx.signal_modified(key);
    if complete {
        ctx.notify(c"bloom.reserve", key);
    }
}

/// Announces a load that this server began itself, with this iterator and header. `deleted` is
/// whether it deleted a filter before.
pub(crate) fn placeholder(ctx: Context, key: Str, deleted: bool, iterator: i64, header: &[u8]) {
    if deleted {
        ctx.replicate(c"DEL", key, &[], &[]);
    }
    let iterator = iterator.to_string();
    ctx.replicate(c"BF.LOADCHUNK", key, &owned([iterator.as_bytes(), header]), &[]);
    ctx.signal_modified(key);
}

fn owned<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Vec<OwnedStr> {
    words.into_iter().map(OwnedStr::new).collect()
}
