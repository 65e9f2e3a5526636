//! `BF.DEL key item [item ...]`: deletes items from a counting filter, each item once.
//!
//! The answer says whether the item was deleted. It is false if the item tests absent, and if its
//! count is the highest: then nobody knows how often the item is there (`filter/paged/count.rs`).
//! The command makes no filter larger, so it runs without `deny-oom`. Pages that could be joined,
//! and find no memory for that, are joined by a later deletion.

use super::{
    Call, Command, CommandSpec, ITEMS, Uses, batch::Batch, exists::queried, sharded::OwnItems,
};
use crate::{
    command::refusal::Refusal,
    filter::Answers,
    module::{
        api::{Access, Key},
        effects::{self, Items},
        stats::{self, Share},
        value::Value,
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
        let mut error = None;
        let mut deleted = Vec::with_capacity(items.len());
        match queried(&mut key)? {
            Some(Value::Paged(paged)) if paged.counts() => {
                let (before, refused) = (Share::of_pages(paged), paged.refused_deletions());
                let answer = |gone: Answers| deleted.extend(gone.each());
                match paged.shard() {
                    None => paged.delete_each(items.items(), answer),
                    Some(shard) => {
                        let own = OwnItems::of(call, shard);
                        paged.delete_each(own.before_foreign(items.items()), answer);
                        error = own.refusal();
                    }
                }
                before.changed(Share::of_pages(paged));
                stats::UNDELETED.add(paged.refused_deletions().saturating_sub(refused));
            }
            Some(_) => return Err(Refusal::NOT_COUNTING),
            None => deleted.resize(items.len(), false),
        }
        drop(key);
        stats::DELETES.add(deleted.len() as u64);
        let all = deleted.len() == items.len() && !deleted.contains(&false);
        let changed = if all { Items::All } else { items.select(deleted.iter().copied()) };
        effects::deleted(call.ctx, name, &changed);
        // A primary sends what it has deleted, and nothing else.
        if deleted.contains(&false) {
            call.report_unapplied(c"an item was not deleted");
        }
        match (&deleted[..], error) {
            ([], Some(error)) => return Err(error),
            ([only], None) => call.ctx.reply_bool(*only),
            _ => {
                call.ctx.reply_array(deleted.len().saturating_add(error.is_some().into()));
                deleted.iter().for_each(|&gone| call.ctx.reply_bool(gone));
                if let Some(error) = error {
                    call.refuse(error, Uses::Deletes);
                }
            }
        }
        Ok(())
    }
}
