//! `BF.COUNT key item`: an upper bound on how often an item is in a counting filter.

use std::iter::once;

use super::{Argument, Call, Command, CommandSpec, Kind, exists::queried, sharded};
use crate::{
    command::refusal::Refusal,
    module::{
        api::{Access, Key},
        value::Stored,
    },
};

pub(super) struct Count;

impl Command for Count {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.count",
        arity: 3,
        summary: c"Returns how often an item is in a Bloom filter that was reserved with COUNTING",
        complexity: c"O(1)",
        arguments: &[Argument::new(c"item", Kind::String)],
        ..CommandSpec::READS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, [item]) = call.key_and()?;
        let mut key = Key::open(call.ctx, name, Access::Read);
        let count = match queried(&mut key)? {
            Some(Stored::Pages(paged)) if paged.counts() => {
                sharded::check(call, paged.shard(), once(item.bytes()))?;
                paged.count(paged.hash(item.bytes()))
            }
            Some(_) => return Err(Refusal::NOT_COUNTING),
            None => 0,
        };
        call.ctx.reply_integer(count);
        Ok(())
    }
}
