//! `BF.INSERT key [options] ITEMS item [item ...]`: BF.MADD with options for a filter that it
//! creates.
//!
//! A primary with valkey-bloom also replicates a new filter with this command, with a tightening
//! ratio and a seed of 32 bytes (`args.rs`). Those two options are only for servers and not in the
//! documentation that clients show.

use super::{
    Argument, Call, Command, CommandSpec, GENERATIONS, NO_REFRESH, SHARD, Uses, WINDOW,
    add::{add, check_kind, create_with},
};
use crate::{
    command::{args, refusal::Refusal, replayed},
    module::{
        api::{Access, Key},
        value::Value,
    },
};

pub(super) struct Insert;

impl Command for Insert {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.insert",
        flags: c"write deny-oom",
        arity: -4,
        uses: Uses::Adds,
        categories: "write",
        summary:
            c"Adds items to a Bloom filter, which is created with the given options if it does \
              not exist",
        complexity:
            c"O(N * L), where N is the number of items and L the number of layers of the filter",
        since: c"1.0.0",
        tips: None,
        arguments: &[
            Argument::Option(c"capacity", c"CAPACITY", &Argument::Integer(c"capacity")),
            Argument::Own(&Argument::Flag(c"counting", c"COUNTING")),
            Argument::Option(c"error", c"ERROR", &Argument::Double(c"error")),
            Argument::Option(c"expansion", c"EXPANSION", &Argument::Integer(c"expansion")),
            Argument::Flag(c"nocreate", c"NOCREATE"),
            Argument::Flag(c"nonscaling", c"NONSCALING"),
            Argument::Own(&Argument::Option(c"seed", c"SEED", &Argument::Integer(c"seed"))),
            Argument::Own(&SHARD),
            Argument::Own(&WINDOW),
            Argument::Own(&GENERATIONS),
            Argument::Own(&NO_REFRESH),
            Argument::Token(c"items", c"ITEMS"),
            Argument::Items,
        ],
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, words) = call.key_and_rest(2)?;
        let (mut remaining, all) = (words.iter(), words.iter());
        let read = match args::insert(&mut remaining.by_ref().map(|word| word.bytes())) {
            Err(refusal) if call.ctx.is_replayed() => {
                remaining = all;
                replayed::insert(&mut remaining.by_ref().map(|word| word.bytes())).ok_or(refusal)
            }
            read => read,
        };
        let args::Insert { options, no_create, has_items } = read?;
        let items = remaining.as_slice();
        if has_items && items.is_empty() {
            return Err(Refusal::Arity);
        }
        let mut key = Key::open(call.ctx, name, Access::Write);
        let (answers, change) = match Value::complete_in_key(&mut key)? {
            Some(value) => {
                check_kind(call, value, &options)?;
                let answers = add(call, value, items);
                let change = answers.change(items);
                (answers, change)
            }
            None if no_create => return Err(Refusal::NotFound),
            None => create_with(call, &mut key, options, items)?,
        };
        drop(key);
        answers.announce(call, name, &change);
        answers.reply(call)
    }
}
