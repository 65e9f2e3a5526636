//! `BF.RESERVE key error_rate capacity [COUNTING] [EXPANSION n] [NONSCALING] [SEED s]
//! [SHARD i n] [WINDOW EX s | PX ms | COUNT] [GENERATIONS g] [NOREFRESH]`: creates an empty filter.

use super::{Argument, Call, Command, CommandSpec, GENERATIONS, NO_REFRESH, SHARD, Uses, WINDOW};
use crate::{
    command::{args, refusal::Refusal, replayed},
    module::{
        api::{Access, Key},
        create,
        effects::{self, Change, Items, Shape},
        value::Value,
    },
};

pub(super) struct Reserve;

/// The largest number of arguments after the key.
const MOST_WORDS: usize = 17;

impl Command for Reserve {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.reserve",
        flags: c"write deny-oom",
        arity: -4,
        uses: Uses::Fills,
        categories: "write fast",
        summary: c"Creates an empty Bloom filter for a capacity and an error rate",
        complexity: c"O(1); with COUNTING or WINDOW O(N), where N is the capacity",
        since: c"1.0.0",
        tips: None,
        arguments: &[
            Argument::Double(c"error_rate"),
            Argument::Integer(c"capacity"),
            Argument::Own(&Argument::Flag(c"counting", c"COUNTING")),
            Argument::Option(c"expansion", c"EXPANSION", &Argument::Integer(c"expansion")),
            Argument::Flag(c"nonscaling", c"NONSCALING"),
            Argument::Own(&Argument::Option(c"seed", c"SEED", &Argument::Integer(c"seed"))),
            Argument::Own(&SHARD),
            Argument::Own(&WINDOW),
            Argument::Own(&GENERATIONS),
            Argument::Own(&NO_REFRESH),
        ],
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, words) = call.key_and_rest(2)?;
        if words.len() > MOST_WORDS {
            return Err(Refusal::Arity);
        }
        let words = words.iter().map(|word| word.bytes());
        let options = if call.ctx.is_replayed() {
            replayed::reserve(name.bytes(), words)?
        } else {
            args::reserve(words)?
        };
        let mut key = Key::open(call.ctx, name, Access::Write);
        if Value::in_key(&mut key)?.is_some() {
            return Err(Refusal::Exists);
        }
        let (value, created) = create::filter(call.ctx, name.bytes(), options)?;
        value.put(&mut key)?;
        drop(key);
        let change = Change::Created(created, Items::Listed(Vec::new()), Shape::default());
        effects::announce(call.ctx, name, &change);
        call.ctx.reply_ok();
        Ok(())
    }
}
