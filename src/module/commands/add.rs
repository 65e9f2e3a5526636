//! `BF.ADD key item` and `BF.MADD key item [item ...]`: add items to a filter; create the filter if
//! there is none. BF.MADD, BF.INSERT and BF.BULKADD are [`add_to_key`], and a reply.
//!
//! All items are added before the reply begins, because the length of the reply depends on the
//! result. An error is the last element of the array: clients stop reading at the first error.

use super::{
    Argument, Call, Command, CommandSpec, ITEMS, Kind, Uses, give_up, pages,
    sharded::{self, OwnItems},
};
use crate::{
    command::{
        options::{Creation, Options},
        refusal::Refusal,
    },
    filter::{Additions, Answers, CellKind, Error, Filter},
    module::{
        api::{Access, Key, Str, logged},
        create,
        effects::{self, Items, Shape},
        limit,
        lookahead::Lookahead,
        stats::{self, Share},
        value::Value,
    },
    sharding::Shard,
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
        let (added, shape) = match Value::in_key(&mut key)? {
            Some(Value::Ready(filter)) if sharded::owns(filter.shard(), bytes) => {
                let newest = filter.older().len();
                let hash = lookahead.hash(filter);
                let Ok(new) = filter.add(hash, |demand| limit::ceiling(ctx, demand)) else {
                    return add_one(call, name, key, item);
                };
                stats::ADDS.add(1);
                if new {
                    let shape = reshaped(filter, newest, 1);
                    drop(key);
                    effects::added_all(ctx, name, shape);
                }
                ctx.reply_bool(new);
                return Ok(());
            }
            Some(Value::Paged(paged)) => match pages::add_in_place(call, paged, bytes) {
                Some(added) => added,
                None => return add_one(call, name, key, item),
            },
            _ => return add_one(call, name, key, item),
        };
        drop(key);
        if added.changed {
            effects::added_all(ctx, name, shape);
        }
        ctx.reply_bool(added.new);
        Ok(())
    }
}

/// Adds one item on the path of a batch: if there is no filter yet, or if the filter refused the
/// item, is full, or must start a generation. An addition that failed has changed nothing.
#[cold]
fn add_one(call: &Call, name: Str, key: Key, item: Str) -> Result<(), Refusal> {
    drop(key);
    let added = add_to_key(call, name, None, std::slice::from_ref(&item), true)?;
    if let Some(refusal) = added.error {
        return Err(refusal);
    }
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
        let (name, items) = call.key_and_rest(1)?;
        add_to_key(call, name, None, items, true)?.reply(call)
    }
}

/// The items of a command.
pub(super) trait Batch<'a>: Copy {
    /// The items, in order.
    fn items(self) -> impl Iterator<Item = &'a [u8]> + Clone;

    /// The items whose element of `changed` is true, in the form in which they are replicated.
    fn select(self, changed: impl Iterator<Item = bool>) -> Items<'a>;
}

/// Items that are one argument each.
impl<'a> Batch<'a> for &[Str<'a>] {
    fn items(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.iter().map(|item| item.bytes())
    }

    fn select(self, changed: impl Iterator<Item = bool>) -> Items<'a> {
        let changed = self.iter().zip(changed).filter(|(_, changed)| *changed);
        Items::Listed(changed.map(|(item, _)| *item).collect())
    }
}

/// Adds `items` to the filter in a key, which is created with `options` if there is none, and
/// announces what changed. `verbatim` is whether the command may be replicated word for word.
///
/// # Errors
/// Those of [`Value::complete_in_key`], [`check_kind`] and [`create`]; `NOT_FOUND`. Nothing has
/// changed then. A refused item is in the answers instead.
pub(super) fn add_to_key<'a>(
    call: &Call,
    name: Str,
    options: Option<&Options>,
    items: impl Batch<'a>,
    verbatim: bool,
) -> Result<Added, Refusal> {
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

/// Creates a filter in `key` and adds `items` to it.
///
/// # Errors
/// `NO_MEMORY`; `OtherShard` for the first item, and those of [`pages::check_author`]. The key is
/// unchanged then.
#[cold]
fn create<'a>(
    call: &Call,
    key: &mut Key,
    options: Options,
    items: impl Batch<'a>,
    created: &mut Option<Creation>,
) -> Result<Added, Refusal> {
    sharded::check_first(call, options.shard, items.items())?;
    if options.window.is_some() {
        pages::check_author(call)?;
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
        Some(shard) => add_to_shard(call, value, shard, items),
    };
    stats::ADDS.add(added.tried() as u64);
    added
}

/// Not inlined, for the reason given in `exists.rs`.
#[inline(never)]
fn add_to_shard<'a>(call: &Call, value: &mut Value, shard: Shard, items: impl Batch<'a>) -> Added {
    let own = OwnItems::of(call, shard);
    let added = add_items(call, value, own.before_foreign(items.items()));
    let error = added.error.or_else(|| own.refusal());
    Added { error, ..added }
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
        Value::Loading(_) => return Added::none(Some(Refusal::LOADING)),
    };
    let (newest, mut answers) = (filter.older().len(), Vec::new());
    let ceiling = |demand| limit::ceiling(call.ctx, demand);
    let outcome = filter.add_each(items.clone(), ceiling, |chunk| answers.push(chunk.into()));
    let shape = reshaped(filter, newest, total(&answers, |chunk| chunk.new.ones()));
    let added = Added { answers, shape, error: None };
    match outcome {
        Ok(()) => added,
        Err(why) => add_rest(call, value, why, added, items),
    }
}

/// Goes on with the items that a filter of layers refused, `why`; `done` is what the items before
/// did. A filter whose only layer is full goes on in pages above it.
///
/// Replicated and AOF additions are accepted even when the filter has no room for them; they are
/// not counted. A non-scaling filter may be full some items sooner than its original: another
/// product wrote the original, or its commands create a filter with another hash here. For a filter
/// that has no memory to grow the addition is reported, since its bits then differ from the
/// original's.
#[cold]
#[inline(never)]
fn add_rest<'a>(
    call: &Call,
    value: &mut Value,
    why: Error,
    mut done: Added,
    items: impl Iterator<Item = &'a [u8]> + Clone,
) -> Added {
    let items = items.skip(done.count());
    let why = if why == Error::Overflow { value.overflow().err().unwrap_or(why) } else { why };
    match value {
        Value::Paged(paged) => {
            let more = pages::add_items(call, paged, items);
            done.answers.extend(more.answers);
            Added { answers: done.answers, ..more }
        }
        Value::Ready(filter)
            if if why == Error::Full {
                limit::must_obey(call.ctx)
            } else {
                call.ctx.is_replayed()
            } =>
        {
            add_uncounted(call, filter, why, items, &mut done.answers);
            done
        }
        _ => Added { error: Some(refused(call, why)), ..done },
    }
}

/// Adds items that a filter refused, `why`, and must take.
#[cold]
fn add_uncounted<'a>(
    call: &Call,
    filter: &mut Filter,
    why: Error,
    items: impl Iterator<Item = &'a [u8]>,
    answers: &mut Vec<Additions>,
) {
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
    filter.add_each_uncounted(items, |chunk| answers.push(chunk.into()));
    // Other items are counted, if there was memory after all.
    before.changed(Share::of_layers(filter));
}

/// The sum of `number` over all chunks of answers.
fn total(answers: &[Additions], number: impl Fn(&Additions) -> usize) -> usize {
    answers.iter().map(number).sum()
}

/// Counts a refusal, and logs which limit caused it. The client's error text does not say which.
#[cold]
pub(super) fn refused(call: &Call, error: Error) -> Refusal {
    stats::REFUSED.add(1);
    if error == Error::Full {
        stats::REFUSED_FULL.add(1);
    } else {
        stats::REFUSED_GROWTH.add(1);
        call.ctx.warn_rate_limited(|| {
            format!(
                "key '{}': a full filter could not grow: {}",
                logged(call.key()),
                limit::explained(call.ctx, error)
            )
        });
    }
    Refusal::of_addition(error)
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

/// The answer for each item, and the error that stopped the additions.
pub(super) struct Added {
    /// Chunk by chunk.
    pub(super) answers: Vec<Additions>,
    pub(super) shape: Shape,
    pub(super) error: Option<Refusal>,
}

impl Added {
    /// What a command did whose first item was refused, if there was one: nothing.
    pub(super) fn none(error: Option<Refusal>) -> Self {
        let (answers, shape) = (Vec::new(), Shape::default());
        Self { answers, shape, error }
    }

    /// The number of items that were new.
    fn ones(&self) -> usize {
        total(&self.answers, |chunk| chunk.new.ones())
    }

    /// The number of items that were added, new or not.
    pub(super) fn count(&self) -> usize {
        total(&self.answers, |chunk| chunk.new.count())
    }

    /// The number of items tried, including one that caused an error.
    fn tried(&self) -> usize {
        self.count() + usize::from(self.error.is_some())
    }

    /// The items that changed the filter; `items` were added. [`Items::All`] if every item did, and
    /// the command may be replicated `verbatim`.
    fn changed<'a>(&self, items: impl Batch<'a>, verbatim: bool) -> Items<'a> {
        let changes = total(&self.answers, |chunk| chunk.changed.ones());
        if changes == 0 {
            Items::Listed(Vec::new())
        } else if verbatim && changes == self.count() && self.error.is_none() {
            Items::All
        } else {
            items.select(self.answers.iter().flat_map(|chunk| chunk.changed.each()))
        }
    }

    /// Whether each item was new, chunk by chunk.
    pub(super) fn chunks(&self) -> impl Iterator<Item = Answers> {
        self.answers.iter().map(|chunk| chunk.new)
    }

    /// The refusal that stopped the additions, if any.
    ///
    /// # Errors
    /// The refusal itself if the first item belongs to another shard: it is the whole reply.
    pub(super) fn error(&self) -> Result<Option<Refusal>, Refusal> {
        match self.error {
            Some(refusal @ Refusal::OtherShard(_)) if self.count() == 0 => Err(refusal),
            error => Ok(error),
        }
    }

    /// Replies with an array of booleans; an error is the last element.
    ///
    /// # Errors
    /// Those of [`Self::error`]; nothing was replied.
    pub(super) fn reply(&self, call: &Call) -> Result<(), Refusal> {
        let error = self.error()?;
        call.ctx.reply_array(self.tried());
        self.chunks().flat_map(Answers::each).for_each(|new| call.ctx.reply_bool(new));
        if let Some(error) = error {
            call.refuse(error, Uses::Adds);
        }
        Ok(())
    }
}
