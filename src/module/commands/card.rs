//! `BF.CARD key`: the number of added items. A filter counts only the items that changed it.

use super::{Call, Command, CommandSpec};
use crate::{
    command::refusal::Refusal,
    module::{
        api::{Access, Key},
        value::Stored,
    },
};

pub(super) struct Card;

impl Command for Card {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.card",
        categories: "read fast",
        summary: c"Returns the number of distinct items added to a Bloom filter (approximate)",
        complexity: c"O(L), where L is the number of layers of the filter",
        since: c"2.4.4",
        ..CommandSpec::READS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, []) = call.key_and()?;
        let mut key = Key::open(call.ctx, name, Access::Read);
        let items = Stored::complete_in_key(&mut key)?.map_or(0, |filter| filter.items());
        call.ctx.reply_integer(items);
        Ok(())
    }
}
