//! `BF.DEL key item [item ...]`: deletes items from a counting filter, each item once.
//!
//! The answer says whether the item was deleted. It is false if the item tests absent, and if its
//! count is the highest: then nobody knows how often the item is there (`filter/paged/count.rs`).
//! The command makes no filter larger, so it runs without `deny-oom`. Pages that could be joined,
//! and find no memory for that, are joined by a later deletion.

use super::{
    Call, Command, CommandSpec, ITEMS,
    batch::{Batch, Chunks},
    exists::queried,
    sharded,
};
use crate::{
    command::refusal::Refusal,
    module::{
        api::{Access, Key},
        effects::{self, Items},
        stats::{self, Share},
        value::Stored,
    },
};

pub(super) struct Del;

impl Command for Del {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.del",
        summary: c"Deletes items, each once, from a Bloom filter that was reserved with COUNTING",
        complexity: c"O(N), where N is the number of items",
        arguments: &[ITEMS],
        ..CommandSpec::DELETES
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, items) = call.key_and_rest(1)?;
        let mut key = Key::open(call.ctx, name, Access::Write);
        let mut gone = Chunks::default();
        match queried(&mut key)? {
            Some(Stored::Pages(paged)) if paged.counts() => {
                sharded::check(call, paged.shard(), items.items())?;
                let (before, refused) = (Share::of_pages(paged), paged.refused_deletions());
                paged.delete_each(items.items(), |chunk| gone.push(chunk));
                before.changed(Share::of_pages(paged));
                stats::UNDELETED.add(paged.refused_deletions().saturating_sub(refused));
            }
            Some(_) => return Err(Refusal::NOT_COUNTING),
            None => {}
        }
        drop(key);
        stats::DELETES.add(items.len() as u64);
        let all = gone.ones() == items.len();
        let changed = if all { Items::All } else { items.select(gone.each()) };
        effects::deleted(call.ctx, name, &changed);
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
}
