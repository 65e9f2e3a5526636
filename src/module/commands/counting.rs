//! `BF.COUNT key item`: how often an item was added and not deleted, up to 16. For a false
//! positive the count is too high. `BF.DEL key item [item ...]`: deletes items from a counting
//! filter, each once.
//!
//! BF.DEL answers whether the item was deleted. The answer is false if the item tests absent, or if
//! its count is the highest, because the number of its additions is then unknown
//! (`filter/paged/count.rs`). The command makes no filter larger, so it runs without `deny-oom`. If
//! there is no memory to join two pages, a later deletion joins them.

use super::{
    Argument, Call, Command, ITEMS, Kind,
    exists::queried,
    items::{Batch, Chunks, check_shard},
};
use crate::{
    command::refusal::Refusal,
    filter::paged::Paged,
    module::{
        api::{Access, Key},
        effects::{self, Items},
        stats::{self, Share},
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
