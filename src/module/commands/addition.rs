//! Adding the items of a command to the filter in its key: the path of BF.MADD, BF.INSERT,
//! BF.BULKADD, and of a BF.ADD that must do more than set bits.
//!
//! ```text
//!   add ─▶ key ─┬─ a filter ──▶ of the kind and shard that the command names? ─┐
//!               └─ missing ───▶ create.rs ─────────────────────────────────────┤
//!   reply ◀── effects::announce ◀── add_to: layers, then pages (pages.rs) ◀────┘
//! ```
//!
//! All items are added before the reply begins, because its length depends on the result.

use super::{
    Call,
    batch::{Batch, Chunks},
    create, pages, sharded,
};
use crate::{
    command::{options::Options, refusal::Refusal},
    filter::{Additions, CellKind, Error, Family, Filter},
    module::{
        api::Key,
        effects::{self, Growth, Items},
        limit,
        stats::{self, Share},
        value::Stored,
    },
};

/// What a command did to its items.
#[derive(Default)]
pub(super) struct Added {
    /// Whether each item that was added was new.
    pub(super) new: Chunks,
    /// Whether it changed the filter.
    changed: Chunks,
    pub(super) growth: Growth,
    /// Why the item after these was refused.
    pub(super) error: Option<Refusal>,
}

impl Added {
    pub(super) fn push(&mut self, Additions { new, changed }: Additions) {
        self.new.push(new);
        self.changed.push(changed);
    }

    /// Replies with an array of booleans.
    pub(super) fn reply(&self, call: &Call) {
        call.reply_each(self.new.count(), self.new.each(), self.error);
    }

    /// Those of `items` that changed the filter. [`Items::All`] if every item did, and the command
    /// may be replicated `verbatim`.
    fn items<'a>(&self, items: impl Batch<'a>, verbatim: bool) -> Items<'a> {
        match self.changed.ones() {
            0 => Items::Listed(Vec::new()),
            all if verbatim && all == self.new.count() && self.error.is_none() => Items::All,
            _ => items.select(self.changed.each()),
        }
    }
}

/// Adds `items` to the filter in the key, which is created with `options` if there is none, and
/// announces what changed. `verbatim` is whether the command may be replicated word for word.
///
/// For an error nothing has changed. An item that was refused is in the answers instead.
pub(super) fn add<'a>(
    call: &Call,
    mut key: Key,
    options: Option<&Options>,
    items: impl Batch<'a>,
    verbatim: bool,
) -> Result<Added, Refusal> {
    let (name, _) = call.key_and_rest(0)?;
    let (added, created) = match Stored::complete_in_key(&mut key)? {
        Some(value) => {
            if let Some(options) = options {
                check_kind(call, value, options)?;
            }
            sharded::check(call, value.shard(), items.items())?;
            (add_to(call, value, items.items()), None)
        }
        None => {
            let options = options.copied().unwrap_or_default();
            if options.no_create {
                return Err(Refusal::NOT_FOUND);
            }
            sharded::check(call, options.shard, items.items())?;
            if options.window.is_some() {
                pages::author(call, true)?;
            }
            let (value, created) = create::filter(call, options)?;
            let fill = |value: &mut Stored| add_to(call, value, items.items());
            (value.put_filled(&mut key, fill)?, Some(created))
        }
    };
    drop(key);
    stats::ADDS.add((added.new.count() + usize::from(added.error.is_some())) as u64);
    let changed = added.items(items, verbatim && created.is_none());
    effects::announce(call.ctx, name, created.as_ref(), &changed, added.growth);
    Ok(added)
}

/// Refuses a client's command whose words name a shard, counters or a window, if the filter in its
/// key is another shard or kind, or has another window: the key was lost, and made again without
/// these words. An obeyed command goes on.
fn check_kind(call: &Call, value: &Stored, options: &Options) -> Result<(), Refusal> {
    let Options { shard, cells, window, .. } = *options;
    if (shard, cells, window) == (None, CellKind::Bits, None) || call.ctx.is_replayed() {
        return Ok(());
    }
    sharded::check_named(call, value.shard(), shard)?;
    if cells == CellKind::Counters && !value.counts() {
        return Err(Refusal::NOT_COUNTING);
    }
    match (window, value.window()) {
        (Some(_), None) => Err(Refusal::NO_WINDOW),
        (Some(rules), Some(window)) if window.rules != rules => Err(Refusal::OTHER_WINDOW),
        _ => Ok(()),
    }
}

/// Adds `items` to a complete filter in order, and stops at the first item that cannot be added. A
/// filter whose only layer is full continues in pages above it.
fn add_to<'a>(
    call: &Call,
    value: &mut Stored,
    items: impl Iterator<Item = &'a [u8]> + Clone,
) -> Added {
    let (mut added, mut why) = (Added::default(), None);
    if let Stored::Layers(filter) = value {
        let newest = filter.older().len();
        let ceiling = |demand| limit::ceiling(call.ctx, demand);
        let outcome = filter.add_each(items.clone(), ceiling, |chunk| added.push(chunk.into()));
        added.growth = count_growth(filter, newest, added.new.ones());
        why = match outcome {
            Ok(()) => return added,
            Err(Error::Overflow) => value.overflow().err(),
            Err(error) => Some(error),
        };
    }
    let rest = items.skip(added.new.count());
    match (value, why) {
        (Stored::Layers(filter), Some(why)) => add_uncounted(call, filter, why, rest, &mut added),
        (Stored::Pages(paged), None) => pages::add_items(call, paged, rest, &mut added),
        (_, why) => added.error = Some(why.map_or(Refusal::LOADING, |why| refused(call, why))),
    }
    added
}

/// Adds items to a filter of layers that refuses them, if a primary or an AOF sent them; they are
/// not counted. If a filter has no memory to grow, the addition is reported, since its bits then
/// differ from the original's.
#[cold]
#[inline(never)]
fn add_uncounted<'a>(
    call: &Call,
    filter: &mut Filter,
    why: Error,
    items: impl Iterator<Item = &'a [u8]>,
    added: &mut Added,
) {
    let is_full = why == Error::Full;
    // The AOF and the stream of another product also contain additions that it refused: RedisBloom
    // writes all of them, valkey-bloom the rest of a batch. Its filter was full at the same item.
    let refused_there =
        is_full && matches!(filter.family(), Family::RedisBloom(_) | Family::Valkey(_));
    if refused_there || !(call.ctx.is_replayed() || (is_full && limit::must_obey(call.ctx))) {
        added.error = Some(refused(call, why));
        return;
    }
    call.log("of a primary or an AOF added items uncounted: the filter is full");
    if !is_full {
        refused(call, why);
        call.report_unapplied(c"the filter could not grow, and added items uncounted");
    }
    let before = Share::of_layers(filter);
    filter.add_each_uncounted(items, |chunk| added.push(chunk.into()));
    // Other items are counted, if there was memory after all.
    before.changed(Share::of_layers(filter));
}

/// Counts additions to a filter of layers, of which `new` items tested absent. `newest` was the
/// number of its newest layer before. Returns how the filter grew.
#[inline(always)]
pub(super) fn count_growth(filter: &Filter, newest: usize, new: usize) -> Growth {
    let layers = filter.older().len().saturating_sub(newest);
    stats::added(new as u64);
    if layers > 0 {
        stats::scaled(filter, layers);
    }
    let filled = new > 0 && filter.expansion().factor().is_none() && filter.newest().is_full();
    Growth { layers: layers as u64, filled, ..Growth::default() }
}

/// Counts a refused addition, and logs which limit caused it: the client's error text does not say.
#[cold]
pub(super) fn refused(call: &Call, error: Error) -> Refusal {
    if error == Error::Full {
        stats::REFUSED.add(1);
        stats::REFUSED_FULL.add(1);
        return Refusal::FULL;
    }
    stats::REFUSED_GROWTH.add(1);
    call.refused(error, Refusal::NO_GROWTH)
}
