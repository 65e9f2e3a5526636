//! `BF.ADD key item`, `BF.MADD key item [item ...]` and `BF.INSERT key [options] ITEMS item
//! [item ...]`: add items to a filter; create the filter if there is none.
//!
//! BF.ADD adds its item directly, which takes half the time of the path for batches. Without a
//! filter, or if the filter must first grow or start a generation, or refuses the item, nothing has
//! changed, and the path for batches takes over. That path adds all items before the reply begins,
//! because the length of the reply depends on the result.

use std::iter::once;

use super::{
    Argument, Batch, Call, Chunks, Command, ITEMS, Kind, PER_ITEM, PER_ITEMS, check_shard,
    misrouted, reserve,
};
use crate::{
    command::{args, options::Options, refusal::Refusal},
    filter::{
        Addition, Additions, Author, Error, Family, Filter,
        paged::{Paged, Shift},
    },
    module::{
        api::{Access, Key, clock},
        effects::{self, Growth, Items},
        limit,
        lookahead::Lookahead,
        stats::{self, BEFORE_ALL, Share},
        sweeps,
        value::Stored,
    },
};

pub(super) const ADD: Command = Command {
    name: c"bf.add",
    arity: 3,
    summary: c"Adds an item to a Bloom filter, which is created if it does not exist",
    complexity: PER_ITEM,
    since: c"1.0.0",
    arguments: &[Argument::new(c"item", Kind::String)],
    run: bf_add,
    ..Command::ADDS
};

fn bf_add(call: &Call) -> Result<(), Refusal> {
    let [item] = call.exactly()?;
    let bytes = item.bytes();
    let lookahead = Lookahead::new(call.key.bytes(), bytes);
    let mut key = Key::open(call.ctx, call.key, Access::Write);
    let Some(value) = Stored::complete_in_key(&mut key)? else { return add_one(call, key) };
    check_shard(call, value.shard(), once(bytes))?;
    let taken = match value {
        Stored::Layers(filter) => {
            let newest = filter.older().len();
            let hash = lookahead.hash(filter);
            let new = filter.add(hash, |demand| limit::ceiling(call.ctx, demand));
            new.ok().map(|new| {
                let growth = if new { count_growth(filter, newest, 1) } else { Growth::default() };
                (Addition { new, changed: new }, growth)
            })
        }
        Stored::Pages(paged) => add_in_place(call, paged, bytes),
        Stored::Partial(_) => None,
    };
    let Some((addition, growth)) = taken else { return add_one(call, key) };
    stats::ADDS.add(1);
    if addition.changed {
        drop(key);
        effects::announce(call.ctx, call.key, None, &Items::All, growth);
    }
    call.ctx.reply_bool(addition.new);
    Ok(())
}

/// BF.ADD by the path for batches, which opens the key again: for what the short path does not do.
#[cold]
fn add_one(call: &Call, key: Key) -> Result<(), Refusal> {
    drop(key);
    let added = add(call, Options::default(), call.words, true)?;
    added.error.map_or(Ok(()), Err)?;
    call.ctx.reply_bool(added.new.ones() == 1);
    Ok(())
}

pub(super) const MADD: Command = Command {
    name: c"bf.madd",
    summary: c"Adds items to a Bloom filter, which is created if it does not exist",
    complexity: PER_ITEMS,
    since: c"1.0.0",
    arguments: &[ITEMS],
    run: bf_madd,
    ..Command::ADDS
};

fn bf_madd(call: &Call) -> Result<(), Refusal> {
    add(call, Options::default(), call.words, true)?.reply(call);
    Ok(())
}

pub(super) const INSERT: Command = Command {
    name: c"bf.insert",
    arity: -4,
    summary: c"Adds items to a Bloom filter, which is created with the given options if it does \
          not exist",
    complexity: PER_ITEMS,
    since: c"1.0.0",
    arguments: &[Argument::new(c"options", Kind::Options), Argument::token(c"ITEMS"), ITEMS],
    run: bf_insert,
    ..Command::ADDS
};

fn bf_insert(call: &Call) -> Result<(), Refusal> {
    let mut words = call.words.iter();
    let obeyed = || call.ctx.is_replayed();
    let (options, has_items) = args::insert(&mut words.by_ref().map(|word| word.bytes()), obeyed)?;
    let items = words.as_slice();
    if has_items && items.is_empty() {
        return Err(Refusal::ARITY);
    }
    add(call, options, items, false)?.reply(call);
    Ok(())
}

/// What a command did to its items.
#[derive(Default)]
pub(super) struct Added {
    /// Whether each item that was added was new.
    pub(super) new: Chunks,
    /// Whether it changed the filter.
    changed: Chunks,
    growth: Growth,
    /// Why the item after these was refused.
    pub(super) error: Option<Refusal>,
}

impl Added {
    fn push(&mut self, Additions { new, changed }: Additions) {
        self.new.push(new);
        self.changed.push(changed);
    }

    fn reply(&self, call: &Call) {
        call.reply_each(self.new.count(), self.new.each(), self.error);
    }

    /// Those of `items` that changed the filter. [`Items::All`] if every item did, and the command
    /// may be replicated `verbatim`.
    fn items<'a>(&self, items: impl Batch<'a>, verbatim: bool) -> Items<'a> {
        match self.changed.ones() {
            0 => Items::NONE,
            all if verbatim && all == self.new.count() && self.error.is_none() => Items::All,
            _ => items.select(self.changed.each()),
        }
    }
}

/// Adds `items` to the filter in the key, which is created with `options` if there is none, and
/// announces what changed. `verbatim` is whether the command may be replicated word for word.
///
/// If this returns an error, nothing has changed. A refused item is no such error: the refusal is
/// in the answers.
pub(super) fn add<'a>(
    call: &Call,
    options: Options,
    items: impl Batch<'a>,
    verbatim: bool,
) -> Result<Added, Refusal> {
    let mut key = Key::open(call.ctx, call.key, Access::Write);
    let (added, created) = match Stored::complete_in_key(&mut key)? {
        Some(value) => {
            check_kind(call, value, options)?;
            check_shard(call, value.shard(), items.items())?;
            (add_to(call, value, items.items()), None)
        }
        None => {
            if options.no_create {
                return Err(Refusal::NOT_FOUND);
            }
            check_shard(call, options.shard, items.items())?;
            if options.window.is_some() {
                author(call, true, false)?;
            }
            let (value, created) = reserve::filter(call, options)?;
            let fill = |value: &mut Stored| add_to(call, value, items.items());
            (value.put_filled(&mut key, fill)?, Some(created))
        }
    };
    drop(key);
    stats::ADDS.add((added.new.count() + usize::from(added.error.is_some())) as u64);
    let changed = added.items(items, verbatim && created.is_none());
    effects::announce(call.ctx, call.key, created.as_ref(), &changed, added.growth);
    Ok(added)
}

/// Refuses a client's command whose shard, COUNTING or window does not fit the filter in the key:
/// the key was lost, and recreated without these options.
fn check_kind(call: &Call, value: &Stored, options: Options) -> Result<(), Refusal> {
    let Options { shard, counts, window, .. } = options;
    if (shard, counts, window) == (None, false, None) || call.ctx.is_replayed() {
        return Ok(());
    }
    if let Some(named) = shard
        && value.shard() != shard
    {
        return Err(misrouted(call, value.shard(), Refusal::NotShard(named)));
    }
    let paged = if let Stored::Pages(paged) = value { Some(paged) } else { None };
    if counts && !paged.is_some_and(Paged::counts) {
        return Err(Refusal::NOT_COUNTING);
    }
    match (window, paged.and_then(Paged::window)) {
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
    let outcome = match (value, why) {
        (Stored::Layers(filter), Some(why)) => add_uncounted(call, filter, why, rest, &mut added),
        (Stored::Pages(paged), None) => add_to_pages(call, paged, rest, &mut added),
        (_, why) => Err(why.map_or(Refusal::LOADING, |why| refused(call, why))),
    };
    Added { error: outcome.err(), ..added }
}

/// Adds items to a filter of layers that refuses them, and does not count them. A client's command
/// is refused instead. If the filter could not grow for lack of memory, the addition is reported:
/// the bits now differ from the original's.
#[cold]
#[inline(never)]
fn add_uncounted<'a>(
    call: &Call,
    filter: &mut Filter,
    why: Error,
    items: impl Iterator<Item = &'a [u8]>,
    added: &mut Added,
) -> Result<(), Refusal> {
    let is_full = why == Error::Full;
    // The AOF and the stream of another product also contain additions that it refused: RedisBloom
    // writes all of them, valkey-bloom the rest of a batch. Its filter was full at the same item.
    let refused_there =
        is_full && matches!(filter.family(), Family::RedisBloom(_) | Family::Valkey(_));
    if refused_there || !(call.ctx.is_replayed() || (is_full && limit::must_obey(call.ctx))) {
        return Err(refused(call, why));
    }
    call.log("of a primary or an AOF added items uncounted: the filter is full");
    if !is_full {
        refused(call, why);
        call.report_unapplied(c"the filter could not grow, and added items uncounted");
    }
    let before = Share::of_layers(filter);
    filter.add_each_uncounted(items, |chunk| added.push(chunk.into()));
    // If there was memory after all, the filter has grown, and has counted the other items.
    before.changed(Share::of_layers(filter));
    Ok(())
}

/// Counts additions to a filter of layers, of which `new` items tested absent. `newest` was the
/// number of its newest layer before. Returns how the filter grew.
#[inline(always)]
fn count_growth(filter: &Filter, newest: usize, new: usize) -> Growth {
    let layers = filter.older().len().saturating_sub(newest);
    stats::added(new as u64);
    if layers > 0 {
        stats::scaled(filter, layers);
    }
    let filled = new > 0 && filter.expansion().factor().is_none() && filter.newest().is_full();
    Growth { layers: layers as u64, filled, ..Growth::default() }
}

/// Counts a refused addition, and logs which limit caused it.
#[cold]
fn refused(call: &Call, error: Error) -> Refusal {
    if error == Error::Full {
        stats::REFUSED.add(1);
        stats::REFUSED_FULL.add(1);
        return Refusal::FULL;
    }
    stats::REFUSED_GROWTH.add(1);
    call.refused(error, Refusal::NO_GROWTH)
}

#[inline(never)] // So that the code for other filters does not depend on it.
fn add_to_pages<'a>(
    call: &Call,
    paged: &mut Paged,
    items: impl Iterator<Item = &'a [u8]> + Clone,
    added: &mut Added,
) -> Result<(), Refusal> {
    let author = author_of(call, paged)?;
    let shift = due(paged, author).and_then(|now| {
        let before = Before::of(paged, author);
        let shift = paged.turn(now);
        before.changed(call, paged, shift).shift
    });
    let before = Before::of(paged, author);
    let ceiling = |demand| limit::ceiling(call.ctx, demand);
    let outcome = paged.add_each(items, author, ceiling, |chunk| added.push(chunk));
    added.growth = Growth { shift, ..before.changed(call, paged, None) };
    outcome.map_err(|error| refused(call, error))
}

/// Adds an item; `None` if a generation must start first, or the item is refused.
#[inline(never)] // So that the code for other filters does not depend on it.
fn add_in_place(call: &Call, paged: &mut Paged, item: &[u8]) -> Option<(Addition, Growth)> {
    let author = author_of(call, paged).ok()?;
    if due(paged, author).is_some() {
        return None;
    }
    let before = Before::of(paged, author);
    let hash = paged.hash(item);
    let addition = paged.add(hash, author, |demand| limit::ceiling(call.ctx, demand)).ok()?;
    let changed = addition.changed;
    let growth = if changed { before.changed(call, paged, None) } else { Growth::default() };
    Some((addition, growth))
}

#[inline(always)] // Saves 30 of 1,400 instructions, as below.
fn author_of(call: &Call, paged: &Paged) -> Result<Author, Refusal> {
    author(call, paged.window().is_some(), paged.expansion().factor().is_some())
}

/// For whom the command adds. Asks the server and the clock only where it matters: a filter that
/// scales and has no window takes the same items from every author.
///
/// # Errors
/// `ON_REPLICA` for a window and a client of a writable replica: its items would go into a
/// generation that may be out of the window, because a replica gets the time from its primary.
#[inline(always)]
fn author(call: &Call, is_window: bool, scales: bool) -> Result<Author, Refusal> {
    if scales && !is_window {
        return Ok(Author::Client(0));
    }
    match (is_window, limit::must_obey(call.ctx)) {
        (true, true) if !call.ctx.is_replayed() => Err(Refusal::ON_REPLICA),
        (_, true) => Ok(Author::Obeyed),
        (false, false) => Ok(Author::Client(0)),
        (true, false) => Ok(Author::Client(clock())),
    }
}

/// The time, if a generation must start now before an addition.
#[inline]
fn due(paged: &Paged, author: Author) -> Option<i64> {
    match (paged.window(), author) {
        (Some(window), Author::Client(now)) if window.is_due(now) => Some(now),
        _ => None,
    }
}

/// The numbers of a filter of pages before additions or a shift. Most additions change nothing, so
/// the [`Share`] is computed from these numbers only after a change.
pub(super) struct Before {
    bytes: u64,
    items: u64,
    pages: usize,
    full: bool,
    author: Author,
    /// The numbers of the oldest and the newest generation.
    generations: (u64, u64),
}

impl Before {
    pub(super) fn of(paged: &Paged, author: Author) -> Self {
        let window = paged.window();
        Self {
            bytes: paged.bytes(),
            items: paged.items(BEFORE_ALL),
            pages: paged.pages().pages().len(),
            full: is_full(paged, author),
            author,
            generations: window.map_or((0, 0), |window| (window.first_alive(), window.number)),
        }
    }

    /// Counts what changed. `shift` is what time did to the generations, if anything. The slots of
    /// forgotten items are then removed between commands.
    pub(super) fn changed(self, call: &Call, paged: &mut Paged, shift: Option<Shift>) -> Growth {
        let before = Share::of_pages_with(paged, self.bytes, self.items);
        let layers = before.grew(Share::of_pages(paged));
        let filled = !self.full && is_full(paged, self.author);
        let Some(window) = paged.window() else {
            return Growth { layers, filled, ..Growth::default() };
        };
        let (oldest, newest) = self.generations;
        let opened = window.number.saturating_sub(newest);
        stats::FORGOTTEN.add(window.first_alive().saturating_sub(oldest));
        stats::SHIFTS.add(match shift {
            None => opened,
            // An empty generation that starts anew keeps its number.
            Some(Shift::Open(_)) => 1,
            // A window that forgets all has an empty generation that has not started.
            Some(Shift::Forget(_) | Shift::Sweep(_)) => 0,
        });
        // An unfinished pass may be left: the server was restarted or promoted, or the key was
        // renamed. Each addition that sweeps a page checks for that.
        let looks = opened > 0 || shift.is_some() || window.sweep.changes == 0;
        let sweeps = window.is_unswept() && matches!(self.author, Author::Client(_));
        // Frees the pages of an emptied window at least as fast as new pages are made, because no
        // timer runs while the server loads. A copy frees them, too.
        let made = paged.pages().pages().len().saturating_sub(self.pages);
        let leaves = paged.release(made + FREED);
        if looks && (sweeps || leaves) {
            sweeps::begin(call.ctx, call.key.bytes());
        }
        Growth { shift, opened: opened > 0, layers, filled }
    }
}

/// Pages of an emptied window that each change frees in addition. That takes some microseconds.
const FREED: usize = 32;

/// Whether it refuses new items.
#[inline]
fn is_full(paged: &Paged, author: Author) -> bool {
    let now = match author {
        Author::Client(now) => now,
        Author::Obeyed => BEFORE_ALL,
    };
    paged.left(now) == 0
}
