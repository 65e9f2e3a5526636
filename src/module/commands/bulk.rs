//! `BF.BULKADD key [options] format blob` and `BF.BULKEXISTS key format blob`: BF.INSERT and
//! BF.MEXISTS with all items in one argument and all answers in one string (`codec/packed.rs`).
//!
//! The whole blob is checked before the key is opened, so a malformed blob changes nothing.

use super::{
    Argument, Call, Command, CommandSpec, GENERATIONS, NO_REFRESH, SHARD, Uses, WINDOW,
    add::{Batch, add, check_kind, create_with},
    exists::{ask, queried},
};
use crate::{
    codec::packed::{self, Packed},
    command::{args, refusal::Refusal},
    module::{
        api::{Access, Key, Str},
        effects::Items,
        stats,
        value::Value,
    },
};

/// The arguments that both commands end with.
const FORMAT: Argument = Argument::Choice(
    c"format",
    &[
        Argument::Token(c"lines", c"LINES"),
        Argument::Token(c"lengths", c"LENGTHS"),
        Argument::Option(c"width", c"WIDTH", &Argument::Integer(c"width")),
    ],
);
const BLOB: Argument = Argument::String(c"blob");

pub(super) struct BulkAdd;

impl Command for BulkAdd {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.bulkadd",
        flags: c"write deny-oom",
        arity: -4,
        uses: Uses::Adds,
        categories: "write",
        summary:
            c"Adds the items of one packed string to a Bloom filter, which is created with the \
              given options if it does not exist",
        complexity:
            c"O(N * L), where N is the number of items and L the number of layers of the filter",
        since: c"0.1.0",
        tips: None,
        arguments: &[
            Argument::Option(c"capacity", c"CAPACITY", &Argument::Integer(c"capacity")),
            Argument::Flag(c"counting", c"COUNTING"),
            Argument::Option(c"error", c"ERROR", &Argument::Double(c"error")),
            Argument::Option(c"expansion", c"EXPANSION", &Argument::Integer(c"expansion")),
            Argument::Flag(c"nocreate", c"NOCREATE"),
            Argument::Flag(c"nonscaling", c"NONSCALING"),
            Argument::Option(c"seed", c"SEED", &Argument::Integer(c"seed")),
            SHARD,
            WINDOW,
            GENERATIONS,
            NO_REFRESH,
            FORMAT,
            BLOB,
        ],
    };

    const REDISBLOOMS: bool = false;

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, words) = call.key_and_rest(2)?;
        let mut words = words.iter();
        let args::BulkAdd { options, no_create, format } =
            args::bulk_add(&mut words.by_ref().map(|word| word.bytes()))?;
        let items = Packed::new(format, blob(words.as_slice())?)?;
        let mut key = Key::open(call.ctx, name, Access::Write);
        let (added, change) = match Value::complete_in_key(&mut key)? {
            Some(value) => {
                check_kind(call, value, &options)?;
                let added = add(call, value, items);
                let change = added.change_or_all(items);
                (added, change)
            }
            None if no_create => return Err(Refusal::NotFound),
            None => create_with(call, &mut key, options, items)?,
        };
        drop(key);
        added.announce(call, name, &change);
        let error = added.error()?;
        reply(call, added.count(), &packed::pack_answers(added.chunks()), error);
        Ok(())
    }
}

pub(super) struct BulkExists;

impl Command for BulkExists {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.bulkexists",
        flags: c"readonly",
        arity: -4,
        uses: Uses::Reads,
        categories: "read",
        summary:
            c"Tells for each item of one packed string whether it may have been added to a Bloom \
              filter",
        complexity:
            c"O(N * L), where N is the number of items and L the number of layers of the filter",
        since: c"0.1.0",
        tips: None,
        arguments: &[FORMAT, BLOB],
    };

    const REDISBLOOMS: bool = false;

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, words) = call.key_and_rest(2)?;
        let mut words = words.iter();
        let format = args::bulk_exists(&mut words.by_ref().map(|word| word.bytes()))?;
        let items = Packed::new(format, blob(words.as_slice())?)?;
        let mut key = Key::open(call.ctx, name, Access::Read);
        let (count, bits) = match queried(&mut key)? {
            Some(filter) => {
                let found = ask(call, filter, items)?;
                (found.count(), packed::pack_answers(found.chunks()))
            }
            None => {
                let count = items.items().count();
                stats::CHECKS.add(count as u64);
                (count, vec![0; count.div_ceil(8)])
            }
        };
        reply(call, count, &bits, None);
        Ok(())
    }
}

/// The bytes of the blob, which is the only argument behind the format.
fn blob<'a>(words: &[Str<'a>]) -> Result<&'a [u8], Refusal> {
    let [blob] = words else {
        return Err(Refusal::Arity);
    };
    Ok(blob.bytes())
}

/// Replies with the number of answers, the answers as bits, and the error that stopped additions,
/// if any.
fn reply(call: &Call, count: usize, bits: &[u8], error: Option<Refusal>) {
    call.ctx.reply_array(2 + usize::from(error.is_some()));
    call.ctx.reply_integer(count as u64);
    call.ctx.reply_bulk(bits);
    if let Some(error) = error {
        call.refuse(error, Uses::Adds);
    }
}

impl<'a> Batch<'a> for Packed<'a> {
    fn items(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        Packed::items(self)
    }

    fn select(self, changed: impl Iterator<Item = bool>) -> Items<'a> {
        Items::Packed(Packed::select(self, changed))
    }
}
