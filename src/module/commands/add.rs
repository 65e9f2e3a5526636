//! `BF.ADD key item` and `BF.MADD key item [item ...]`: add items to a filter; create the filter if
//! there is none. BF.INSERT and BF.BULKADD add with the functions of this file.
//!
//! All items are added before the reply begins, because the length of the reply depends on the
//! result. An error is the last element of the array: clients stop reading at the first error.

use super::{
    Argument, Call, Command, CommandSpec, Uses,
    sharded::{self, OwnItems},
    windows,
};
use crate::{
    command::{args::Options, refusal::Refusal},
    filter::{Answers, CellKind, Error, Filter, Layer},
    module::{
        api::{Access, Key, Str, logged},
        create,
        effects::{self, Change, CreatedWith, Items, Shape},
        limit,
        lookahead::Lookahead,
        stats,
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
        complexity: c"O(L), where L is the number of layers of the filter (1 unless it grew)",
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
            Some(Value::Window(window)) => {
                let Some((addition, shape)) = windows::add_in_place(call, window, bytes) else {
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
        if !sharded::owns(filter, bytes) {
            return add_one(call, name, key, item);
        }
        let before = Before::of(filter);
        let hash = lookahead.hash(filter);
        let Ok(new) = filter.add(hash, |demand| limit::ceiling(ctx, demand)) else {
            return add_one(call, name, key, item);
        };
        stats::ADDS.add(1);
        if new || before.counts() {
            let shape = before.reshaped(filter, usize::from(new));
            drop(key);
            effects::added_all(ctx, name, shape);
        }
        ctx.reply_bool(new);
        Ok(())
    }
}

/// Adds one item as a batch: if there is no filter yet, if the filter refused the item, or if a
/// filter that forgets needs more than a change in place.
#[cold]
fn add_one(call: &Call, name: Str, mut key: Key, item: Str) -> Result<(), Refusal> {
    let ctx = call.ctx;
    let (answers, change) = add_or_create(call, &mut key, std::slice::from_ref(&item))?;
    drop(key);
    effects::announce(ctx, name, &change);
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
        effects::announce(call.ctx, name, &change);
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
    sharded::check_named(call, value.filter(), shard)?;
    if cells == CellKind::Counters && !value.filter().counts() {
        return Err(Refusal::NotCounting);
    }
    match (window, value.window()) {
        (Some(_), None) => Err(Refusal::NoWindow),
        (Some(rules), Some(window)) if window.ring().rules != rules => Err(Refusal::OtherWindow),
        _ => Ok(()),
    }
}

/// Creates a filter in `key` and adds `items` to it.
///
/// # Errors
/// `NoMemory`; `OtherShard` for the first item, and those of [`windows::check_author`]. The key is
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
        windows::check_author(call)?;
    }
    let filter = create::filter(call.ctx, call.key(), options)?;
    let created = CreatedWith::of(&filter);
    let answers = Value::of(filter).put_filled(key, |value| add(call, value, items))?;
    let change = Change::Created(created, answers.changed(items), answers.shape);
    Ok((answers, change))
}

/// Adds `items` to a complete filter in order, and stops at the first item that cannot be added, or
/// that belongs to another shard (`sharded.rs`).
pub(super) fn add<'a>(call: &Call, value: &mut Value, items: impl Batch<'a>) -> Added {
    let added = match value {
        Value::Window(window) => windows::add(call, window, items),
        value => {
            let filter = value.filter_mut();
            match filter.shard() {
                None => add_items(call, filter, items.items()),
                Some(shard) => add_to_shard(call, filter, shard, items),
            }
        }
    };
    stats::ADDS.add(added.tried() as u64);
    added
}

/// Not inlined, for the reason given in `exists.rs`.
#[inline(never)]
fn add_to_shard<'a>(
    call: &Call,
    filter: &mut Filter,
    shard: Shard,
    items: impl Batch<'a>,
) -> Added {
    let own = OwnItems::of(call, shard);
    let added = add_items(call, filter, own.before_foreign(items.items()));
    let error = added.error.or_else(|| own.refusal());
    Added { error, ..added }
}

/// Adds `items` to a filter in order, and stops at the first item that cannot be added.
///
/// Replicated and AOF additions are accepted even when the filter has no room for them; they are
/// not counted. A non-scaling filter may be full some items sooner than its original: another
/// product wrote the original, or its commands create a filter with another hash here. For a filter
/// that has no memory to grow the addition is reported, since its bits then differ from the
/// original's.
fn add_items<'a>(
    call: &Call,
    filter: &mut Filter,
    items: impl Iterator<Item = &'a [u8]> + Clone,
) -> Added {
    let ctx = call.ctx;
    let before = Before::of(filter);
    let mut answers = Vec::new();
    let ceiling = |demand| limit::ceiling(ctx, demand);
    let outcome = filter.add_each(items.clone(), ceiling, |chunk| answers.push(chunk));
    let mut error = outcome.err();
    let count = total(&answers, Answers::count);
    let mut counted = total(&answers, Answers::ones);
    if let Some(why) = error
        && if why == Error::Full { limit::must_obey(ctx) } else { ctx.is_replayed() }
    {
        ctx.warn_rate_limited(|| {
            format!(
                "key '{}': a full filter took items uncounted, from a primary or an AOF",
                logged(call.key())
            )
        });
        if why != Error::Full {
            refused(call, why);
            call.report_unapplied(c"the filter could not grow, and took items uncounted");
        }
        let before = stats::items_of(filter);
        filter.add_each_uncounted(items.skip(count), |chunk| answers.push(chunk));
        // Other items are counted, if there was memory after all.
        let more = stats::items_of(filter).wrapping_sub(before);
        counted = counted.saturating_add(more as usize);
        error = None;
    }
    let changed = if before.counts() { Changed::All } else { Changed::New };
    Added {
        answers,
        changed,
        shape: before.reshaped(filter, counted),
        error: error.map(|error| refused(call, error)),
    }
}

/// The sum of `number` over all chunks of answers.
pub(super) fn total(answers: &[Answers], number: impl Fn(Answers) -> usize) -> usize {
    answers.iter().copied().map(number).sum()
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

/// The state of a filter before additions, to find what they changed.
struct Before {
    /// The number of the newest layer.
    newest: usize,
    /// Items of the newest layer, in a filter with counters; `None` in others. With counters, an
    /// item may be new to a layer but not to the filter.
    items: Option<u64>,
}

impl Before {
    #[inline]
    fn of(filter: &Filter) -> Self {
        Self {
            newest: filter.newest_number(),
            items: filter.counts().then(|| filter.newest().items()),
        }
    }

    /// Whether every addition changes the filter.
    #[inline]
    fn counts(&self) -> bool {
        self.items.is_some()
    }

    /// Counts additions, of which `new` items tested absent. Returns how they changed the shape of
    /// the filter.
    #[inline(always)]
    fn reshaped(&self, filter: &Filter, new: usize) -> Shape {
        let layers = filter.newest_number().saturating_sub(self.newest);
        stats::added(match self.items {
            Some(items) => items_since(items, filter, layers),
            None => new as u64,
        });
        if layers > 0 {
            stats::scaled(filter, layers);
        }
        let filled = new > 0 && filter.expansion().factor().is_none() && filter.newest().is_full();
        Shape { layers, filled, ..Shape::default() }
    }
}

/// The items that a filter with counters gained since its newest layer had `items`; it grew by
/// `layers` layers since. Older layers gain no items.
#[inline(never)]
fn items_since(items: u64, filter: &Filter, layers: usize) -> u64 {
    let changed = filter.layers().rev().take(layers + 1).map(Layer::items);
    changed.fold(0, u64::wrapping_add).wrapping_sub(items)
}

/// The answer for each item, and the error that stopped the additions.
pub(super) struct Added {
    /// Whether each item was new, chunk by chunk.
    pub(super) answers: Vec<Answers>,
    pub(super) changed: Changed,
    pub(super) shape: Shape,
    pub(super) error: Option<Refusal>,
}

/// The items that changed the filter, of those that were added.
pub(super) enum Changed {
    /// Those that were new.
    New,
    /// All: the filter has counters.
    All,
    /// Those whose element is true, chunk by chunk: the filter forgets.
    These(Vec<Answers>),
}

impl Added {
    /// The number of items that were new.
    fn ones(&self) -> usize {
        total(&self.answers, Answers::ones)
    }

    /// The number of items that were added, new or not.
    pub(super) fn count(&self) -> usize {
        total(&self.answers, Answers::count)
    }

    /// The number of items that changed the filter.
    fn changes(&self) -> usize {
        match &self.changed {
            Changed::New => self.ones(),
            Changed::All => self.count(),
            Changed::These(changed) => total(changed, Answers::ones),
        }
    }

    /// The number of items tried, including one that caused an error.
    fn tried(&self) -> usize {
        self.count() + usize::from(self.error.is_some())
    }

    fn each(&self) -> impl Iterator<Item = bool> {
        self.answers.iter().flat_map(|chunk| chunk.each())
    }

    /// The items that changed the filter; `items` were added.
    fn changed<'a>(&self, items: impl Batch<'a>) -> Items<'a> {
        if self.changes() == 0 {
            return Items::Listed(Vec::new());
        }
        match &self.changed {
            Changed::New => items.select(self.each()),
            Changed::All => items.select(self.each().map(|_| true)),
            Changed::These(changed) => items.select(changed.iter().flat_map(|chunk| chunk.each())),
        }
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

    /// The answers, chunk by chunk.
    pub(super) fn chunks(&self) -> impl Iterator<Item = Answers> {
        self.answers.iter().copied()
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
