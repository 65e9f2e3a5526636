//! `BF.EXISTS key item` and `BF.MEXISTS key item [item ...]`: whether items may have been added.
//!
//! For a missing key the reply is "no" for every item, as clients expect. That is unsafe for a
//! guard in front of a database, which would then hide all rows. With the setting
//! `missing-key-error` the reply is an error.

use std::iter::once;

use super::{
    Argument, Batch, Call, Chunks, Command, ITEMS, Kind, PER_ITEM, PER_ITEMS, check_shard,
};
use crate::{
    command::refusal::Refusal,
    filter::paged::Paged,
    module::{
        api::{Access, Key},
        config,
        lookahead::Lookahead,
        stats,
        value::{Stored, now},
    },
};

pub(super) const EXISTS: Command = Command {
    name: c"bf.exists",
    arity: 3,
    summary: c"Checks whether an item may be in a Bloom filter",
    complexity: PER_ITEM,
    since: c"1.0.0",
    arguments: &[Argument::new(c"item", Kind::String)],
    run: bf_exists,
    ..Command::READS
};

fn bf_exists(call: &Call) -> Result<(), Refusal> {
    let [item] = call.exactly()?;
    let bytes = item.bytes();
    let lookahead = Lookahead::new(call.key.bytes(), bytes);
    let mut key = Key::open(call.ctx, call.key, Access::Read);
    let found = match Stored::in_key(&mut key)? {
        Some(Stored::Layers(filter)) => {
            check_shard(call, filter.shard(), once(bytes))?;
            filter.contains(lookahead.hash(filter))
        }
        Some(Stored::Pages(paged)) => {
            check_shard(call, paged.shard(), once(bytes))?;
            contains(paged, bytes)
        }
        _ => {
            queried(&mut key)?;
            false
        }
    };
    stats::CHECKS.add(1);
    stats::POSITIVES.add(u64::from(found));
    call.ctx.reply_bool(found);
    Ok(())
}

/// Whether the item may have been added; in a window, whether it is remembered now.
#[inline(never)] // So that the code for other filters does not depend on it.
fn contains(paged: &Paged, item: &[u8]) -> bool {
    paged.contains(paged.hash(item), now(paged))
}

pub(super) const MEXISTS: Command = Command {
    name: c"bf.mexists",
    arity: -3,
    summary: c"Checks for each item whether it may be in a Bloom filter",
    complexity: PER_ITEMS,
    since: c"1.0.0",
    arguments: &[ITEMS],
    run: bf_mexists,
    ..Command::READS
};

fn bf_mexists(call: &Call) -> Result<(), Refusal> {
    match ask(call, call.words)? {
        Some(found) => call.reply_each(found.count(), found.each(), None),
        None => call.reply_each(call.words.len(), call.words.iter().map(|_| false), None),
    }
    Ok(())
}

/// Queries the filter in a key for items, and counts them; `None` for a missing key, which has none
/// of them. All answers are there before the reply begins: an array that stops in the middle leaves
/// the client out of step.
pub(super) fn ask<'a>(call: &Call, items: impl Batch<'a>) -> Result<Option<Chunks>, Refusal> {
    let mut key = Key::open(call.ctx, call.key, Access::Read);
    let (mut found, items) = (Chunks::default(), items.items());
    let Some(filter) = queried(&mut key)? else {
        stats::CHECKS.add(items.count() as u64);
        return Ok(None);
    };
    check_shard(call, filter.shard(), items.clone())?;
    match filter {
        Stored::Layers(filter) => filter.contains_each(items, |chunk| found.push(chunk)),
        Stored::Pages(paged) => paged.contains_each(items, now(paged), |chunk| found.push(chunk)),
        Stored::Partial(_) => {}
    }
    stats::CHECKS.add(found.count() as u64);
    stats::POSITIVES.add(found.ones() as u64);
    Ok(Some(found))
}

/// The complete filter in the key; `None` for a missing key, unless `missing-key-error` makes that
/// an error.
#[inline]
pub(super) fn queried(key: &mut Key) -> Result<Option<&mut Stored>, Refusal> {
    let value = Stored::complete_in_key(key)?;
    if value.is_none() {
        missing()?;
    }
    Ok(value)
}

/// Counts a query of a missing key, which is how a guard finds out that its filter is lost.
#[cold]
fn missing() -> Result<(), Refusal> {
    stats::MISSING.add(1);
    if config::MISSING_KEY_ERROR.bits() != 0 { Err(Refusal::NOT_FOUND) } else { Ok(()) }
}
