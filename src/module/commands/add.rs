//! `BF.ADD key item`, `BF.MADD key item [item ...]` and `BF.INSERT key [options] ITEMS item
//! [item ...]`: add items to a filter; create the filter if there is none.
//!
//! BF.ADD sets the bits of its item itself, which takes half the time of the path for batches
//! (`addition.rs`). What that path alone can do, it leaves to it: the filter has not changed then.
//!
//! A primary with valkey-bloom also replicates a new filter with BF.INSERT, with a tightening ratio
//! and a seed of 32 bytes (`args.rs`). Those two options are only for servers and not in the
//! documentation that clients show.

use std::iter::once;

use super::{
    Argument, Call, Command, CommandSpec, ITEMS, Kind,
    addition::{self, count_growth},
    pages, sharded,
};
use crate::{
    command::{args, refusal::Refusal},
    filter::Addition,
    module::{
        api::{Access, Key, Str},
        effects::{self, Growth},
        limit,
        lookahead::Lookahead,
        stats,
        value::Stored,
    },
};

pub(super) struct Add;

impl Command for Add {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.add",
        arity: 3,
        summary: c"Adds an item to a Bloom filter, which is created if it does not exist",
        complexity:
            c"O(L), where L is the number of layers of the filter (1 unless another product made \
              it)",
        since: c"1.0.0",
        arguments: &[Argument::new(c"item", Kind::String)],
        ..CommandSpec::ADDS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, [item]) = call.key_and()?;
        let bytes = item.bytes();
        let lookahead = Lookahead::new(name.bytes(), bytes);
        let mut key = Key::open(call.ctx, name, Access::Write);
        match Stored::in_key(&mut key)? {
            Some(Stored::Layers(filter)) => {
                sharded::check(call, filter.shard(), once(bytes))?;
                let newest = filter.older().len();
                let hash = lookahead.hash(filter);
                if let Ok(new) = filter.add(hash, |demand| limit::ceiling(call.ctx, demand)) {
                    let growth =
                        if new { count_growth(filter, newest, 1) } else { Growth::default() };
                    added(call, name, key, Addition { new, changed: new }, growth);
                    return Ok(());
                }
            }
            Some(Stored::Pages(paged)) => {
                sharded::check(call, paged.shard(), once(bytes))?;
                if let Some((addition, growth)) = pages::add_in_place(call, paged, bytes) {
                    added(call, name, key, addition, growth);
                    return Ok(());
                }
            }
            _ => {}
        }
        add_one(call, key, item)
    }
}

#[inline(always)]
fn added(call: &Call, name: Str, key: Key, addition: Addition, growth: Growth) {
    stats::ADDS.add(1);
    if addition.changed {
        drop(key);
        effects::added_all(call.ctx, name, growth);
    }
    call.ctx.reply_bool(addition.new);
}

/// Creates a filter for the item, or a layer or a generation, or says why it is refused.
#[cold]
fn add_one(call: &Call, key: Key, item: Str) -> Result<(), Refusal> {
    let added = addition::add(call, key, None, std::slice::from_ref(&item), true)?;
    added.error.map_or(Ok(()), Err)?;
    call.ctx.reply_bool(added.new.ones() == 1);
    Ok(())
}

pub(super) struct MultiAdd;

impl Command for MultiAdd {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.madd",
        summary: c"Adds items to a Bloom filter, which is created if it does not exist",
        complexity:
            c"O(N * L), where N is the number of items and L the number of layers of the filter",
        since: c"1.0.0",
        arguments: &[ITEMS],
        ..CommandSpec::ADDS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (_, items) = call.key_and_rest(1)?;
        addition::add(call, call.open(Access::Write)?, None, items, true)?.reply(call);
        Ok(())
    }
}

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
            Argument::token(c"ITEMS"),
            ITEMS,
        ],
        ..CommandSpec::ADDS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (_, words) = call.key_and_rest(2)?;
        let mut words = words.iter();
        let obeyed = || call.ctx.is_replayed();
        let (options, has_items) =
            args::insert(&mut words.by_ref().map(|word| word.bytes()), obeyed)?;
        let items = words.as_slice();
        if has_items && items.is_empty() {
            return Err(Refusal::ARITY);
        }
        let key = call.open(Access::Write)?;
        addition::add(call, key, Some(&options), items, false)?.reply(call);
        Ok(())
    }
}
