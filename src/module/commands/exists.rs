//! `BF.EXISTS key item` and `BF.MEXISTS key item [item ...]`: whether items may have been added.
//!
//! For a missing key the reply is "no" for every item, as clients expect. That is unsafe for a
//! guard in front of a database, which would then hide all rows. With the setting
//! `missing-key-error` the reply is an error.

use super::{
    Argument, Call, Command, CommandSpec, ITEMS, Kind,
    batch::Batch,
    pages,
    sharded::{self, OwnItems},
};
use crate::{
    command::refusal::Refusal,
    filter::Answers,
    module::{
        api::{Access, Key},
        config,
        lookahead::Lookahead,
        stats,
        value::{Value, now},
    },
};

pub(super) struct Exists;

impl Command for Exists {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.exists",
        arity: 3,
        summary: c"Tells whether an item may have been added to a Bloom filter",
        complexity:
            c"O(L), where L is the number of layers of the filter (1 unless another product made \
              it)",
        since: c"1.0.0",
        arguments: &[Argument::new(c"item", Kind::String)],
        ..CommandSpec::READS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, [item]) = call.key_and()?;
        let bytes = item.bytes();
        let lookahead = Lookahead::new(name.bytes(), bytes);
        let mut key = Key::open(call.ctx, name, Access::Read);
        let found = match Value::in_key(&mut key)? {
            Some(Value::Ready(filter)) => {
                sharded::check(call, filter.shard(), bytes)?;
                filter.contains(lookahead.hash(filter))
            }
            Some(Value::Paged(paged)) => pages::contains(call, paged, bytes)?,
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
}

pub(super) struct MultiExists;

impl Command for MultiExists {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.mexists",
        arity: -3,
        summary: c"Tells for each item whether it may have been added to a Bloom filter",
        complexity:
            c"O(N * L), where N is the number of items and L the number of layers of the filter",
        since: c"1.0.0",
        arguments: &[ITEMS],
        ..CommandSpec::READS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, items) = call.key_and_rest(1)?;
        let mut key = Key::open(call.ctx, name, Access::Read);
        let Some(filter) = queried(&mut key)? else {
            stats::CHECKS.add(items.len() as u64);
            call.ctx.reply_array(items.len());
            items.iter().for_each(|_| call.ctx.reply_bool(false));
            return Ok(());
        };
        // Compute all answers before the reply begins: an array that stops in the middle leaves the
        // client out of step.
        let found = ask(call, filter, items)?;
        call.ctx.reply_array(found.count());
        for chunk in found.chunks() {
            chunk.each().for_each(|found| call.ctx.reply_bool(found));
        }
        Ok(())
    }
}

/// Queries a complete filter for items, and counts them.
pub(super) fn ask<'a>(
    call: &Call,
    filter: &Value,
    items: impl Batch<'a>,
) -> Result<Found, Refusal> {
    let found = match filter.shard() {
        None => found_in(filter, items.items()),
        Some(shard) => {
            let own = OwnItems::of(call, shard);
            let found = found_in(filter, own.before_foreign(items.items()));
            own.refusal().map_or(Ok(found), Err)?
        }
    };
    stats::CHECKS.add(found.count() as u64);
    stats::POSITIVES.add(found.chunks().map(Answers::ones).sum::<usize>() as u64);
    Ok(found)
}

fn found_in<'a>(filter: &Value, items: impl Iterator<Item = &'a [u8]>) -> Found {
    let mut found = Found::default();
    match filter {
        Value::Ready(filter) => filter.contains_each(items, |chunk| found.push(chunk)),
        Value::Paged(paged) => {
            paged.contains_each(items, now(paged), |chunk| found.push(chunk));
        }
        Value::Loading(_) => {}
    }
    found
}

/// Answers in chunks. The first chunk has its own field, so that a small batch allocates nothing.
#[derive(Default)]
pub(super) struct Found {
    first: Option<Answers>,
    more: Vec<Answers>,
}

impl Found {
    #[inline]
    pub(super) fn push(&mut self, chunk: Answers) {
        if self.first.is_none() {
            self.first = Some(chunk);
        } else {
            self.more.push(chunk);
        }
    }

    /// The number of items answered.
    pub(super) fn count(&self) -> usize {
        self.chunks().map(Answers::count).sum()
    }

    pub(super) fn chunks(&self) -> impl Iterator<Item = Answers> {
        self.first.into_iter().chain(self.more.iter().copied())
    }
}

/// The complete filter in the key; `None` for a missing key, unless `missing-key-error` makes that
/// an error.
#[inline]
pub(super) fn queried(key: &mut Key) -> Result<Option<&mut Value>, Refusal> {
    match Value::complete_in_key(key)? {
        None => missing(),
        value => Ok(value),
    }
}

/// Counts a query of a missing key, which is how a guard finds out that its filter is lost.
#[cold]
fn missing<'a>() -> Result<Option<&'a mut Value>, Refusal> {
    stats::MISSING.add(1);
    if config::missing_key_error() { Err(Refusal::NOT_FOUND) } else { Ok(None) }
}
