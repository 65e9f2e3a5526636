//! `BF.IMPORT key GUAVA bytes`, `BF.IMPORT key BITMAP source`: filters that programs made without a
//! module.
//!
//! The key must be free, and is made whole or not at all. What is taken is decided by the words of
//! the command and, for a bitmap, the other key, so replicas and the AOF are told the command as it
//! came: they hold the same bitmap at that point.

use super::{Argument, Call, Command, CommandSpec, Uses};
use crate::{
    codec::guava,
    command::{args, refusal::Refusal},
    filter::Filter,
    module::{
        api::{Access, Key, Str},
        effects, limit, stats,
        value::Value,
    },
};

pub(super) struct Import;

impl Command for Import {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.import",
        flags: c"write deny-oom",
        arity: -4,
        uses: Uses::Fills,
        categories: "write",
        summary:
            c"Makes a Bloom filter of one that Guava wrote, or of a bitmap that was filled by its \
              recipe",
        complexity: c"O(N), where N is the size of the filter",
        since: c"0.1.0",
        tips: None,
        arguments: &[
            Argument::Option(c"guava", c"GUAVA", &Argument::String(c"bytes")),
            Argument::Option(c"bitmap", c"BITMAP", &Argument::Key(c"source")),
            Argument::OneOf(c"strategy", &[(c"guava32", c"GUAVA32"), (c"guava64", c"GUAVA64")]),
            Argument::Option(c"capacity", c"CAPACITY", &Argument::Integer(c"capacity")),
            Argument::Option(c"error", c"ERROR", &Argument::Double(c"error")),
        ],
    };
    const REDISBLOOMS: bool = false;

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, words) = call.key_and_rest(2)?;
        let [form, data, rest @ ..] = words else {
            return Err(Refusal::Arity);
        };
        let import = args::import(form.bytes(), rest.iter().map(|word| word.bytes()))?;
        if let args::Import::Bitmap(..) = import {
            Key::settle(call.ctx, name, std::iter::once(*data));
        }
        put(call, name, || {
            let filter = match import {
                args::Import::Guava(purpose) => {
                    limit::within(call.ctx, |ceiling| guava::read(data.bytes(), purpose, ceiling))
                }
                args::Import::Bitmap(strategy, purpose) => {
                    let source = Key::open(call.ctx, *data, Access::Write);
                    if source.is_empty() {
                        return Err(Refusal::NotFound);
                    }
                    let bitmap = source.string().ok_or(Refusal::WrongType)?;
                    limit::within(call.ctx, |ceiling| {
                        guava::read_bitmap(bitmap, strategy, purpose, ceiling)
                    })
                }
            };
            filter.map_err(|error| {
                super::refused(call, "BF.IMPORT", error, Refusal::of_import(error))
            })
        })
    }
}

/// Puts what `read` makes into a key that must be free.
pub(super) fn put(
    call: &Call,
    name: Str,
    read: impl FnOnce() -> Result<Filter, Refusal>,
) -> Result<(), Refusal> {
    let mut key = Key::open(call.ctx, name, Access::Write);
    if Value::in_key(&mut key)?.is_some() {
        return Err(Refusal::BusyKey);
    }
    let filter = read()?;
    Value::Ready(filter).put(&mut key)?;
    drop(key);
    stats::LOADS.add(1);
    effects::loaded(call.ctx, name, true);
    call.ctx.reply_ok();
    Ok(())
}
