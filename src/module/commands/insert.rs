//! `BF.INSERT key [options] ITEMS item [item ...]`: BF.MADD with options for a filter that it
//! creates.
//!
//! A primary with valkey-bloom also replicates a new filter with this command, with a tightening
//! ratio and a seed of 32 bytes (`args.rs`). Those two options are only for servers and not in the
//! documentation that clients show.

use super::{Argument, Call, Command, CommandSpec, ITEMS, Kind, add::add_to_key};
use crate::command::{args, refusal::Refusal, replayed};

pub(super) struct Insert;

impl Command for Insert {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.insert",
        arity: -4,
        summary:
            c"Adds items to a Bloom filter, which is created with the given options if it does \
              not exist",
        complexity:
            c"O(N * L), where N is the number of items and L the number of layers of the filter",
        since: c"1.0.0",
        arguments: &[
            Argument::new(c"options", Kind::Options { reserve: false }),
            Argument::token(c"items", c"ITEMS"),
            ITEMS,
        ],
        ..CommandSpec::ADDS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (_, words) = call.key_and_rest(2)?;
        let (mut remaining, all) = (words.iter(), words.iter());
        let read = match args::insert(&mut remaining.by_ref().map(|word| word.bytes())) {
            Err(refusal) if call.ctx.is_replayed() => {
                remaining = all;
                replayed::insert(&mut remaining.by_ref().map(|word| word.bytes()))
                    .map(|options| (options, true))
                    .ok_or(refusal)
            }
            read => read,
        };
        let (options, has_items) = read?;
        let items = remaining.as_slice();
        if has_items && items.is_empty() {
            return Err(Refusal::ARITY);
        }
        add_to_key(call, Some(&options), items, false)?.reply(call)
    }
}
