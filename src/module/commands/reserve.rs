//! `BF.RESERVE key error_rate capacity [options]`: creates an empty filter.

use super::{Argument, Call, Command, CommandSpec, Kind, create};
use crate::{
    command::{args, refusal::Refusal},
    module::{
        api::{Access, Key},
        effects::{self, Growth, Items},
        value::Stored,
    },
};

pub(super) struct Reserve;

impl Command for Reserve {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.reserve",
        arity: -4,
        categories: "write fast",
        summary: c"Creates an empty Bloom filter for a capacity and an error rate",
        complexity: c"O(1); with COUNTING or WINDOW O(N), where N is the capacity",
        since: c"1.0.0",
        arguments: &[
            Argument::new(c"error_rate", Kind::Double),
            Argument::new(c"capacity", Kind::Integer),
            Argument::new(c"options", Kind::Options { reserve: true }),
        ],
        ..CommandSpec::FILLS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, words) = call.key_and_rest(2)?;
        let words = words.iter().map(|word| word.bytes());
        let options = args::reserve(words, call.ctx.is_replayed())?;
        let mut key = Key::open(call.ctx, name, Access::Write);
        if Stored::in_key(&mut key)?.is_some() {
            return Err(Refusal::EXISTS);
        }
        let (value, created) = create::filter(call, options)?;
        value.put(&mut key)?;
        drop(key);
        let nothing = Items::Listed(Vec::new());
        effects::announce(call.ctx, name, Some(&created), &nothing, Growth::default());
        call.ctx.reply_ok();
        Ok(())
    }
}
