//! The commands of filters that count: `BF.COUNT key item`, how often an item was added and not
//! deleted, up to 16. For a false positive the count is too high. `BF.DEL key item [item ...]`:
//! deletes items, each once.
//!
//! BF.DEL answers whether the item was deleted: not if it tests absent, or if its count is the
//! highest, because the number of its additions is then unknown (`filter/paged/add.rs`).
//!
//! The commands of filters that forget: `BF.FORGET key` forgets the generations out of the window,
//! also at `maxmemory`, where additions are refused. `BF.SHIFT key OPEN ms | FORGET ms | SWEEP
//! pages` repeats, on a copy, what time did to the filter on its primary. Only so does time reach a
//! replica or an AOF (`filter/paged/window.rs`). It is refused to clients: a wrong time would make
//! the filter forget what it must remember.

use super::{
    Argument, Batch, Call, Chunks, Command, ITEMS, Kind, add::Before, check_shard, exists::queried,
};
use crate::{
    command::{args, refusal::Refusal},
    filter::{
        Author,
        paged::{Paged, Shift, Window},
    },
    module::{
        api::{Access, Key, clock},
        effects::{self, Items},
        limit,
        stats::{self, Share},
        sweeps,
        value::Stored,
    },
};

/// The counting filter in the key, whose shard has the items; `None` for a missing key.
fn counting<'k>(call: &Call, key: &'k mut Key) -> Result<Option<&'k mut Paged>, Refusal> {
    match queried(key)? {
        Some(Stored::Pages(paged)) if paged.counts() => {
            check_shard(call, paged.shard(), call.words.items())?;
            Ok(Some(paged))
        }
        Some(_) => Err(Refusal::NOT_COUNTING),
        None => Ok(None),
    }
}

pub(super) const COUNT: Command = Command {
    name: c"bf.count",
    arity: 3,
    summary: c"Returns how often an item is in a Bloom filter that was reserved with COUNTING",
    complexity: c"O(1)",
    arguments: &[Argument::new(c"item", Kind::String)],
    run: bf_count,
    ..Command::READS
};

fn bf_count(call: &Call) -> Result<(), Refusal> {
    let [item] = call.exactly()?;
    let mut key = Key::open(call.ctx, call.key, Access::Read);
    let paged = counting(call, &mut key)?;
    let count = paged.map_or(0, |paged| paged.count(paged.hash(item.bytes())));
    call.ctx.reply_integer(count);
    Ok(())
}

pub(super) const DEL: Command = Command {
    name: c"bf.del",
    summary: c"Deletes items, each once, from a Bloom filter that was reserved with COUNTING",
    complexity: c"O(N), where N is the number of items",
    arguments: &[ITEMS],
    run: bf_del,
    ..Command::DELETES
};

fn bf_del(call: &Call) -> Result<(), Refusal> {
    let items = call.words;
    let mut key = Key::open(call.ctx, call.key, Access::Write);
    let mut gone = Chunks::default();
    if let Some(paged) = counting(call, &mut key)? {
        let (before, refused) = (Share::of_pages(paged), paged.refused_deletions());
        paged.delete_each(items.items(), |chunk| gone.push(chunk));
        before.changed(Share::of_pages(paged));
        stats::UNDELETED.add(paged.refused_deletions().saturating_sub(refused));
    }
    drop(key);
    stats::DELETES.add(items.len() as u64);
    let all = gone.ones() == items.len();
    let changed = if all { Items::All } else { items.select(gone.each()) };
    effects::deleted(call.ctx, call.key, &changed);
    // A primary sends what it has deleted, and nothing else.
    if !all {
        call.report_unapplied(c"an item was not deleted");
    }
    // A missing key has none of the items.
    let each = gone.each().chain(std::iter::repeat(false)).take(items.len());
    match items {
        [_] => call.ctx.reply_bool(all),
        _ => call.reply_each(items.len(), each, None),
    }
    Ok(())
}

pub(super) const FORGET: Command = Command {
    name: c"bf.forget",
    arity: 2,
    summary: c"Frees the memory of what is out of the window of a Bloom filter",
    complexity: c"O(1); the memory is freed later, in slices of at most a millisecond",
    run: bf_forget,
    ..Command::DELETES
};

fn bf_forget(call: &Call) -> Result<(), Refusal> {
    let mut key = Key::open(call.ctx, call.key, Access::Write);
    let paged = window(Stored::complete_in_key(&mut key)?)?;
    // A replica forgets when its primary does.
    if limit::must_obey(call.ctx) {
        return Err(Refusal::ON_REPLICA);
    }
    let now = clock();
    let oldest = |paged: &Paged| paged.window().map_or(0, Window::first_alive);
    let (before, first) = (Before::of(paged, Author::Client(now)), oldest(paged));
    let shift = paged.forget(now);
    before.changed(call, paged, shift);
    let forgotten = oldest(paged).saturating_sub(first);
    drop(key);
    if let Some(shift) = shift {
        effects::shifted(call.ctx, call.key, shift);
    }
    // An unfinished pass may be left after a restart or a promotion.
    sweeps::begin(call.ctx, call.key.bytes());
    call.ctx.reply_integer(forgotten);
    Ok(())
}

/// The filter, if it has a window.
fn window(filter: Option<&mut Stored>) -> Result<&mut Paged, Refusal> {
    match filter.ok_or(Refusal::NOT_FOUND)? {
        Stored::Pages(paged) if paged.window().is_some() => Ok(paged),
        _ => Err(Refusal::NO_WINDOW),
    }
}

const MILLISECONDS: Argument = Argument::new(c"milliseconds", Kind::Integer);

pub(super) const SHIFT: Command = Command {
    name: c"bf.shift",
    flags: c"write",
    arity: 4,
    summary: c"Internal: repeats what time did to the generations of a Bloom filter",
    complexity: c"O(P), where P is the number of pages, and O(1) without one",
    arguments: &[Argument::one_of(
        c"shift",
        &[
            Argument::block(c"OPEN", &[MILLISECONDS]),
            Argument::block(c"FORGET", &[MILLISECONDS]),
            Argument::block(c"SWEEP", &[Argument::new(c"pages", Kind::Integer)]),
        ],
    )],
    run: bf_shift,
    ..Command::FILLS
};

fn bf_shift(call: &Call) -> Result<(), Refusal> {
    let [word, number] = call.exactly()?;
    let mut key = Key::open(call.ctx, call.key, Access::Write);
    let filter = Stored::complete_in_key(&mut key)?;
    if !call.ctx.is_replayed() {
        return Err(Refusal::NOT_REPLICATED);
    }
    let shift = args::shift(word.bytes(), number.bytes())?;
    let paged = window(filter)?;
    let before = Before::of(paged, Author::Obeyed);
    paged.obey(shift).map_err(|_| Refusal::BAD_SHIFT)?;
    before.changed(call, paged, Some(shift));
    drop(key);
    if let Shift::Sweep(_) = shift {
        effects::replicate_shift(call.ctx, call.key, shift);
    } else {
        effects::shifted(call.ctx, call.key, shift);
    }
    call.ctx.reply_simple(c"OK");
    Ok(())
}
