//! `BF.ADD key item` and `BF.MADD key item [item ...]`: add items to a filter; create the filter if
//! there is none. BF.INSERT and BF.BULKADD add with the functions of this file.
//!
//! All items are added before the reply begins, because the length of the reply depends on the
//! result. An error is the last element of the array: clients stop reading at the first error.

use super::{
    Argument, Call, Command, CommandSpec, Uses, give_up, pages,
    sharded::{self, OwnItems},
};
use crate::{
    command::{args::Options, refusal::Refusal},
    filter::{Additions, Answers, CellKind, Error, Filter},
    module::{
        api::{Access, Key, Str, logged},
        create,
        effects::{self, Change, Items, Shape},
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
        flags: c"write deny-oom",
        arity: 3,
        uses: Uses::Adds,
        categories: "write",
        summary: c"Adds an item to a Bloom filter, which is created if it does not exist",
        complexity:
            c"O(L), where L is the number of layers of the filter (1 unless another product made \
              it)",
        since: c"1.0.0",
        tips: None,
        arguments: &[Argument::String(c"item")],
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let ctx = call.ctx;
        let (name, [item]) = call.key_and()?;
        let bytes = item.bytes();
        let lookahead = Lookahead::new(name.bytes(), bytes);
        let mut key = Key::open(ctx, name, Access::Write);
        let filter = match Value::in_key(&mut key)? {
            Some(Value::Ready(filter)) => filter,
            Some(Value::Paged(paged)) => {
                let Some((addition, shape)) = pages::add_in_place(call, paged, bytes) else {
                    return add_one(call, name, key, item);
                };
                drop(key);
                if addition.changed {
                    effects::added_all(ctx, name, shape);
                }
                ctx.reply_bool(addition.new);
                return Ok(());
            }
            _ => return add_one(call, name, key, item),
        };
        if !sharded::owns(filter.shard(), bytes) {
            return add_one(call, name, key, item);
        }
        let newest = filter.newest_number();
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
        Ok(())
    }
}

/// Adds one item as a batch: if there is no filter yet, or if the filter refused the item, is full,
/// or must start a generation.
#[cold]
fn add_one(call: &Call, name: Str, mut key: Key, item: Str) -> Result<(), Refusal> {
    let ctx = call.ctx;
    let (answers, change) = add_or_create(call, &mut key, std::slice::from_ref(&item))?;
    drop(key);
    answers.announce(call, name, &change);
    if let Some(refusal) = answers.error {
        return Err(refusal);
    }
    ctx.reply_bool(answers.ones() == 1);
    Ok(())
}

pub(super) struct MultiAdd;

impl Command for MultiAdd {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.madd",
        flags: c"write deny-oom",
        arity: -3,
        uses: Uses::Adds,
        categories: "write",
        summary: c"Adds items to a Bloom filter, which is created if it does not exist",
        complexity:
            c"O(N * L), where N is the number of items and L the number of layers of the filter",
        since: c"1.0.0",
        tips: None,
        arguments: &[Argument::Items],
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, items) = call.key_and_rest(1)?;
        let mut key = Key::open(call.ctx, name, Access::Write);
        let (answers, change) = add_or_create(call, &mut key, items)?;
        drop(key);
        answers.announce(call, name, &change);
        answers.reply(call)
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

/// Adds `items` to the filter in `key`; creates the filter if there is none.
///
/// # Errors
/// Those of [`Value::complete_in_key`] and [`create_with`]. A refused item is in the answers
/// instead.
fn add_or_create<'a>(
    call: &Call,
    key: &mut Key,
    items: &[Str<'a>],
) -> Result<(Added, Change<'a>), Refusal> {
    let Some(value) = Value::complete_in_key(key)? else {
        return create_with(call, key, Options::default(), items);
    };
    let answers = add(call, value, items);
    let change = answers.change_or_all(items);
    Ok((answers, change))
}

/// Refuses a client's command whose words name a shard, counters or a window, if the filter in its
/// key is another shard or kind, or has another window: the key was lost, and made again without
/// these words. An obeyed command goes on.
pub(super) fn check_kind(call: &Call, value: &Value, options: &Options) -> Result<(), Refusal> {
    let Options { shard, cells, window, .. } = *options;
    if (shard, cells, window) == (None, CellKind::Bits, None) || call.ctx.is_replayed() {
        return Ok(());
    }
    sharded::check_named(call, value.shard(), shard)?;
    if cells == CellKind::Counters && !value.counts() {
        return Err(Refusal::NotCounting);
    }
    match (window, value.window()) {
        (Some(_), None) => Err(Refusal::NoWindow),
        (Some(rules), Some(window)) if window.rules != rules => Err(Refusal::OtherWindow),
        _ => Ok(()),
    }
}

/// Creates a filter in `key` and adds `items` to it.
///
/// # Errors
/// `NoMemory`; `OtherShard` for the first item, and those of [`pages::check_author`]. The key is
/// unchanged then.
#[cold]
pub(super) fn create_with<'a>(
    call: &Call,
    key: &mut Key,
    options: Options,
    items: impl Batch<'a>,
) -> Result<(Added, Change<'a>), Refusal> {
    sharded::check_first(call, options.shard, items.items())?;
    if options.window.is_some() {
        pages::check_author(call)?;
    }
    let (value, created) = create::filter(call.ctx, call.key(), options)?;
    let answers = value.put_filled(key, |value| add(call, value, items))?;
    let change = Change::Created(created, answers.changed(items), answers.shape);
    Ok((answers, change))
}

/// Adds `items` to a complete filter in order, and stops at the first item that cannot be added, or
/// that belongs to another shard (`sharded.rs`).
pub(super) fn add<'a>(call: &Call, value: &mut Value, items: impl Batch<'a>) -> Added {
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
        Value::Loading(_) => return Added::none(Some(Refusal::Loading)),
    };
    match add_to_layers(call, filter, items.clone()) {
        Ok(added) => added,
        Err(done) => add_above(call, value, done, items),
    }
}

/// Goes on in pages above the only layer of a filter, which is full now. `done` is what the items
/// before did. Not inlined: it happens once to a filter.
#[cold]
#[inline(never)]
fn add_above<'a>(
    call: &Call,
    value: &mut Value,
    mut done: Added,
    items: impl Iterator<Item = &'a [u8]> + Clone,
) -> Added {
    let items = items.skip(done.count());
    let why = value.overflow().err().unwrap_or(Error::Overflow);
    let more = match value {
        Value::Paged(paged) => pages::add_items(call, paged, items),
        Value::Ready(filter) if call.ctx.is_replayed() => add_uncounted(call, filter, why, items),
        _ => Added::none(Some(refused(call, why))),
    };
    done.answers.extend(more.answers);
    Added { answers: done.answers, ..more }
}

/// Adds `items` to a filter of layers in order, and stops at the first item that cannot be added.
///
/// Replicated and AOF additions are accepted even when the filter has no room for them; they are
/// not counted. A non-scaling filter may be full some items sooner than its original: another
/// product wrote the original, or its commands create a filter with another hash here. For a filter
/// that has no memory to grow the addition is reported, since its bits then differ from the
/// original's.
///
/// # Errors
/// What was added before the filter must go on in pages.
fn add_to_layers<'a>(
    call: &Call,
    filter: &mut Filter,
    items: impl Iterator<Item = &'a [u8]> + Clone,
) -> Result<Added, Added> {
    let ctx = call.ctx;
    let newest = filter.newest_number();
    let mut answers = Vec::new();
    let ceiling = |demand| limit::ceiling(ctx, demand);
    let outcome = filter.add_each(items.clone(), ceiling, |chunk| answers.push(chunk.into()));
    let shape = reshaped(filter, newest, total(&answers, |chunk| chunk.new.ones()));
    let done = Added { answers, shape, error: None };
    match outcome {
        Ok(()) => Ok(done),
        Err(Error::Overflow) => Err(done),
        Err(why) if if why == Error::Full { limit::must_obey(ctx) } else { ctx.is_replayed() } => {
            let mut all = done;
            let more = add_uncounted(call, filter, why, items.skip(all.count()));
            all.answers.extend(more.answers);
            Ok(all)
        }
        Err(why) => Ok(Added { error: Some(refused(call, why)), ..done }),
    }
}

/// Adds items that a filter refused, `why`, and must take.
#[cold]
fn add_uncounted<'a>(
    call: &Call,
    filter: &mut Filter,
    why: Error,
    items: impl Iterator<Item = &'a [u8]>,
) -> Added {
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
    let mut answers = Vec::new();
    let before = Share::of_layers(filter);
    filter.add_each_uncounted(items, |chunk| answers.push(chunk.into()));
    // Other items are counted, if there was memory after all.
    before.changed(Share::of_layers(filter));
    Added { answers, shape: Shape::default(), error: None }
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
    let layers = filter.newest_number().saturating_sub(newest);
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

    /// Announces the change by the additions. A copy that could not take an item is given up.
    pub(super) fn announce(&self, call: &Call, name: Str, change: &Change) {
        effects::announce(call.ctx, name, change);
        if self.error.is_some() {
            give_up(call);
        }
    }

    /// The number of items that were new.
    fn ones(&self) -> usize {
        total(&self.answers, |chunk| chunk.new.ones())
    }

    /// The number of items that were added, new or not.
    pub(super) fn count(&self) -> usize {
        total(&self.answers, |chunk| chunk.new.count())
    }

    /// The number of items that changed the filter.
    fn changes(&self) -> usize {
        total(&self.answers, |chunk| chunk.changed.ones())
    }

    /// The number of items tried, including one that caused an error.
    fn tried(&self) -> usize {
        self.count() + usize::from(self.error.is_some())
    }

    fn each(&self) -> impl Iterator<Item = bool> {
        self.chunks().flat_map(Answers::each)
    }

    /// The items that changed the filter; `items` were added.
    fn changed<'a>(&self, items: impl Batch<'a>) -> Items<'a> {
        if self.changes() == 0 {
            return Items::Listed(Vec::new());
        }
        items.select(self.answers.iter().flat_map(|chunk| chunk.changed.each()))
    }

    /// The change by the addition of `items`; it lists the items that changed the filter.
    pub(super) fn change<'a>(&self, items: impl Batch<'a>) -> Change<'a> {
        Change::Added(self.changed(items), self.shape)
    }

    /// The change by the addition of `items`. [`Change::AllAdded`] if every item changed the
    /// filter.
    pub(super) fn change_or_all<'a>(&self, items: impl Batch<'a>) -> Change<'a> {
        let count = self.count();
        if self.changes() == count && count > 0 && self.error.is_none() {
            Change::AllAdded(self.shape)
        } else {
            self.change(items)
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
        self.each().for_each(|new| call.ctx.reply_bool(new));
        if let Some(error) = error {
            call.refuse(error, Uses::Adds);
        }
        Ok(())
    }
}
