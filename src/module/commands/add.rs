//! `BF.ADD key item` and `BF.MADD key item [item ...]`: add items to a filter; create the filter if
//! there is none. BF.MADD, BF.INSERT and BF.BULKADD are [`add_to_key`], and a reply.
//!
//! All items are added before the reply begins, because the length of the reply depends on the
//! result. An error is the last element of the array: clients stop reading at the first error.

use super::{
    Argument, Call, Command, CommandSpec, ITEMS, Kind,
    batch::{Added, Batch, refused},
    give_up, pages,
    sharded::{self, OwnItems},
};
use crate::{
    command::{
        options::{Creation, Options},
        refusal::Refusal,
    },
    filter::{Addition, CellKind, Error, Filter},
    module::{
        api::{Access, Key, Str, logged},
        create,
        effects::{self, Shape},
        limit,
        lookahead::Lookahead,
        stats::{self, Share},
        value::Value,
    },
};

pub(super) struct Add;

impl Command for Add {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.add",
        arity: 3,
        summary: c"Adds an item to a Bloom filter, which is created if it does not exist",
        complexity:
            c"O(L), where L is the number of layers of the filter (1 unless another product made \
              it)",
        since: c"1.0.0",
        arguments: &[Argument::new(c"item", Kind::String)],
        ..CommandSpec::ADDS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let ctx = call.ctx;
        let (name, [item]) = call.key_and()?;
        let bytes = item.bytes();
        let lookahead = Lookahead::new(name.bytes(), bytes);
        let mut key = Key::open(ctx, name, Access::Write);
        match Value::in_key(&mut key)? {
            Some(Value::Ready(filter)) if sharded::owns(filter.shard(), bytes) => {
                let newest = filter.older().len();
                let hash = lookahead.hash(filter);
                if let Ok(new) = filter.add(hash, |demand| limit::ceiling(ctx, demand)) {
                    let shape = if new { reshaped(filter, newest, 1) } else { Shape::default() };
                    added_in_place(call, name, key, Addition { new, changed: new }, shape);
                    return Ok(());
                }
            }
            Some(Value::Paged(paged)) => {
                if let Some((addition, shape)) = pages::add_in_place(call, paged, bytes) {
                    added_in_place(call, name, key, addition, shape);
                    return Ok(());
                }
            }
            _ => {}
        }
        drop(key);
        add_one(call, item)
    }
}

#[inline(always)]
fn added_in_place(call: &Call, name: Str, key: Key, addition: Addition, shape: Shape) {
    stats::ADDS.add(1);
    if addition.changed {
        drop(key);
        effects::added_all(call.ctx, name, shape);
    }
    call.ctx.reply_bool(addition.new);
}

/// Adds one item on the path of a batch: if there is no filter yet, or if the filter refused the
/// item, which changed nothing, or is another shard, or must start a generation.
#[cold]
fn add_one(call: &Call, item: Str) -> Result<(), Refusal> {
    let added = add_to_key(call, None, std::slice::from_ref(&item), true)?;
    added.error.map_or(Ok(()), Err)?;
    call.ctx.reply_bool(added.ones() == 1);
    Ok(())
}

pub(super) struct MultiAdd;

impl Command for MultiAdd {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.madd",
        summary: c"Adds items to a Bloom filter, which is created if it does not exist",
        complexity:
            c"O(N * L), where N is the number of items and L the number of layers of the filter",
        since: c"1.0.0",
        arguments: &[ITEMS],
        ..CommandSpec::ADDS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (_, items) = call.key_and_rest(1)?;
        add_to_key(call, None, items, true)?.reply(call)
    }
}

/// Adds `items` to the filter in the key, which is created with `options` if there is none, and
/// announces what changed. `verbatim` is whether the command may be replicated word for word.
///
/// For an error nothing has changed. An item that was refused is in the answers instead.
pub(super) fn add_to_key<'a>(
    call: &Call,
    options: Option<&Options>,
    items: impl Batch<'a>,
    verbatim: bool,
) -> Result<Added, Refusal> {
    let (name, _) = call.key_and_rest(0)?;
    let mut key = Key::open(call.ctx, name, Access::Write);
    let mut created = None;
    let added = match (Value::complete_in_key(&mut key)?, options) {
        (Some(value), options) => {
            if let Some(options) = options {
                check_kind(call, value, options)?;
            }
            add(call, value, items)
        }
        (None, Some(options)) if options.no_create => return Err(Refusal::NOT_FOUND),
        (None, options) => {
            create(call, &mut key, options.copied().unwrap_or_default(), items, &mut created)?
        }
    };
    drop(key);
    let changed = added.changed(items, verbatim && created.is_none());
    effects::announce(call.ctx, name, created.as_ref(), &changed, added.shape);
    // A copy that could not take an item is given up.
    if added.error.is_some() {
        give_up(call);
    }
    Ok(added)
}

/// Refuses a client's command whose words name a shard, counters or a window, if the filter in its
/// key is another shard or kind, or has another window: the key was lost, and made again without
/// these words. An obeyed command goes on.
fn check_kind(call: &Call, value: &Value, options: &Options) -> Result<(), Refusal> {
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

/// Creates a filter in `key` and adds `items` to it. The key is unchanged if that is refused.
#[cold]
fn create<'a>(
    call: &Call,
    key: &mut Key,
    options: Options,
    items: impl Batch<'a>,
    created: &mut Option<Creation>,
) -> Result<Added, Refusal> {
    sharded::check_first(call, options.shard, items.items())?;
    if options.window.is_some() && pages::author(call, true).is_none() {
        return Err(Refusal::ON_REPLICA);
    }
    let (value, creation) = create::filter(call.ctx, call.key(), options)?;
    *created = Some(creation);
    value.put_filled(key, |value| add(call, value, items))
}

/// Adds `items` to a complete filter in order, and stops at the first item that cannot be added, or
/// that belongs to another shard (`sharded.rs`).
fn add<'a>(call: &Call, value: &mut Value, items: impl Batch<'a>) -> Added {
    let added = match value.shard() {
        None => add_items(call, value, items.items()),
        Some(shard) => {
            let own = OwnItems::of(call, shard);
            let added = add_items(call, value, own.before_foreign(items.items()));
            Added { error: added.error.or_else(|| own.refusal()), ..added }
        }
    };
    stats::ADDS.add(added.tried() as u64);
    added
}

/// Adds `items` to a filter in order, and stops at the first item that cannot be added.
fn add_items<'a>(
    call: &Call,
    value: &mut Value,
    items: impl Iterator<Item = &'a [u8]> + Clone,
) -> Added {
    let filter = match value {
        Value::Ready(filter) => filter,
        Value::Paged(paged) => return pages::add_items(call, paged, items),
        Value::Loading(_) => return Added { error: Some(Refusal::LOADING), ..Added::default() },
    };
    let (newest, mut added) = (filter.older().len(), Added::default());
    let ceiling = |demand| limit::ceiling(call.ctx, demand);
    let outcome = filter.add_each(items.clone(), ceiling, |chunk| added.answers.push(chunk.into()));
    added.shape = reshaped(filter, newest, added.ones());
    match outcome {
        Ok(()) => added,
        Err(why) => add_rest(call, value, why, added, items),
    }
}

/// Goes on with the items that a filter of layers refused, `why`; `done` is what the items before
/// did. A filter whose only layer is full goes on in pages above it.
///
/// Replicated and AOF additions are accepted even when the filter has no room for them; they are
/// not counted. A non-scaling filter may be full some items sooner than its original, if another
/// product made that and has other false positives. For a filter that has no memory to grow the
/// addition is reported, since its bits then differ from the original's.
#[cold]
#[inline(never)]
fn add_rest<'a>(
    call: &Call,
    value: &mut Value,
    mut why: Error,
    mut done: Added,
    items: impl Iterator<Item = &'a [u8]> + Clone,
) -> Added {
    let items = items.skip(done.count());
    if why == Error::Overflow {
        why = value.overflow().err().unwrap_or(why);
    }
    let obeys =
        if why == Error::Full { limit::must_obey(call.ctx) } else { call.ctx.is_replayed() };
    match value {
        Value::Paged(paged) => {
            let more = pages::add_items(call, paged, items);
            done.answers.extend(more.answers);
            Added { answers: done.answers, ..more }
        }
        Value::Ready(filter) if obeys => {
            call.ctx.warn_rate_limited(|| {
                format!(
                    "key '{}': a full filter took items uncounted, from a primary or an AOF",
                    logged(call.key())
                )
            });
            if why != Error::Full {
                refused(call, why);
                call.report_unapplied(c"the filter could not grow, and took items uncounted");
            }
            let before = Share::of_layers(filter);
            filter.add_each_uncounted(items, |chunk| done.answers.push(chunk.into()));
            // Other items are counted, if there was memory after all.
            before.changed(Share::of_layers(filter));
            done
        }
        Value::Ready(_) | Value::Loading(_) => Added { error: Some(refused(call, why)), ..done },
    }
}

/// Counts additions to a filter of layers, of which `new` items tested absent. `newest` was the
/// number of its newest layer before. Returns how they changed the shape of the filter.
#[inline(always)]
fn reshaped(filter: &Filter, newest: usize, new: usize) -> Shape {
    let layers = filter.older().len().saturating_sub(newest);
    stats::added(new as u64);
    if layers > 0 {
        stats::scaled(filter, layers);
    }
    let filled = new > 0 && filter.expansion().factor().is_none() && filter.newest().is_full();
    Shape { layers: layers as u64, filled, ..Shape::default() }
}
