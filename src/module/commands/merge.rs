//! `BF.MERGE destination source [source ...]`: makes the destination the union of itself and the
//! sources (`filter/merge.rs`). A key that is named twice counts once.
//!
//! Replicas and the AOF get the command as it was called: they hold the same filters at that point.
//! Everything that can be refused is refused before anything changes.

use std::{collections::BTreeSet, iter::once};

use super::{Argument, Call, Command, Kind};
use crate::{
    command::refusal::Refusal,
    filter::{Demand, Error, Member, Union, Unmergeable},
    module::{
        api::{Access, Context, Key, Str},
        effects::{self, Growth},
        limit, stats,
        value::Stored,
    },
};

pub(super) const MERGE: Command = Command {
    name: c"bf.merge",
    summary: c"Merges Bloom filters with equal parameters and seeds into one, which may be missing",
    complexity: c"O(N), where N is the size of all filters",
    arguments: &[Argument { multiple: true, ..Argument::new(c"source", Kind::Key) }],
    run: bf_merge,
    ..Command::ADDS
};

fn bf_merge(call: &Call) -> Result<(), Refusal> {
    let (ctx, name, names) = (call.ctx, call.key, call.words);
    // There may be only one reference to a filter that can change it.
    let mut seen = BTreeSet::from([name.bytes()]);
    let own = names.iter().any(|source| source.bytes() == name.bytes());
    let mut names: Vec<Str> = names.to_vec();
    names.retain(|name| seen.insert(name.bytes()));
    settle(ctx, name, &names);
    let mut keys: Vec<Key> =
        names.iter().map(|&name| Key::open(ctx, name, Access::Write)).collect();
    let mut key = Key::open(ctx, name, Access::Write);
    let sources = keys
        .iter_mut()
        .map(|key| member(Stored::complete_in_key(key)?.ok_or(Refusal::NOT_FOUND)?))
        .collect::<Result<Vec<Member>, Refusal>>()?;
    let (created, growth) = match Stored::complete_in_key(&mut key)? {
        Some(value) => {
            let (was_filled, before) = (is_filled(member(value)?), value.share());
            let all: Vec<_> = once(member(value)?).chain(sources.iter().copied()).collect();
            let union = union(call, &all, |demand| demand)?;
            let changed = union.is_some();
            become_union(value, union, &sources);
            let layers = before.grew(value.share());
            let filled = !was_filled && is_filled(member(value)?);
            (false, changed.then_some(Growth { layers, filled, ..Growth::default() }))
        }
        // The missing destination is named as a source.
        None if own => return Err(Refusal::NOT_FOUND),
        None => {
            // Nothing is copied before the union is known to be possible.
            let union = union(call, &sources, |demand| Demand { present: 0, ..demand })?;
            let value = match union {
                Some(Union::Pages(paged)) => Stored::Pages(paged),
                union => {
                    let mut value = copy(call, &sources)?;
                    become_union(&mut value, union, sources.get(1..).unwrap_or_default());
                    value
                }
            };
            // Closed first: `put` publishes the new key, and a subscriber may delete a source.
            keys.clear();
            let filled = member(&value).is_ok_and(is_filled);
            value.put(&mut key)?;
            (true, Some(Growth { filled, ..Growth::default() }))
        }
    };
    drop(keys);
    drop(key);
    if let Some(growth) = growth {
        effects::merged(ctx, name, created, growth);
    }
    ctx.reply_simple(c"OK");
    Ok(())
}

/// Makes the server publish what it has to say about keys before any of them is held open: a
/// subscriber in another module may delete a key, and with it the value of an open one.
///
/// Opening for writing deletes an expired key and publishes `expired`; opening for reading
/// publishes `keymiss`. After that, opening for writing publishes nothing.
fn settle(ctx: Context, destination: Str, sources: &[Str]) {
    drop(Key::open(ctx, destination, Access::Write));
    for &name in sources {
        drop(Key::open(ctx, name, Access::Write));
        drop(Key::open(ctx, name, Access::Read));
    }
}

/// A complete value as a part of a union.
fn member(value: &Stored) -> Result<Member<'_>, Refusal> {
    match value {
        Stored::Layers(filter) => Ok(Member::Layers(filter)),
        Stored::Pages(paged) => Ok(Member::Pages(paged)),
        Stored::Partial(_) => Err(Refusal::LOADING),
    }
}

/// The union of filters; `None` if the first filter is the union already. `demand` adjusts the
/// memory that the union asks for.
fn union(
    call: &Call,
    filters: &[Member],
    demand: fn(Demand) -> Demand,
) -> Result<Option<Union>, Refusal> {
    let ceiling = |wanted| limit::ceiling(call.ctx, demand(wanted));
    Union::of(filters, !limit::must_obey(call.ctx), ceiling).map_err(|error| refused(call, error))
}

/// Makes a filter its union with `others`. Only a filter of layers has a union of layers.
fn become_union(value: &mut Stored, union: Option<Union>, others: &[Member]) {
    match (union, value) {
        (Some(Union::Pages(paged)), value) => *value = Stored::Pages(paged),
        (Some(Union::Layer(items)), Stored::Layers(filter)) => filter.unite(others, items),
        (union, _) => debug_assert!(union.is_none()),
    }
}

/// Whether the filter is non-scaling and full.
fn is_filled(filter: Member) -> bool {
    match filter {
        Member::Layers(filter) => {
            filter.expansion().factor().is_none() && filter.newest().is_full()
        }
        Member::Pages(paged) => paged.left(0) == 0,
    }
}

/// A copy of the first filter, which becomes the union in a destination that is missing.
fn copy(call: &Call, filters: &[Member]) -> Result<Stored, Refusal> {
    // `Union::of` asks for no memory if the union takes no more than its first filter. So the copy
    // asks here.
    let wanted = filters.iter().map(|filter| filter.bytes()).max().unwrap_or(0);
    let copy = || match filters.first() {
        Some(Member::Layers(filter)) => filter.duplicate().map(Stored::Layers),
        Some(Member::Pages(paged)) => paged.duplicate().map(Stored::Pages),
        None => Err(Error::Layers),
    };
    Demand { present: 0, wanted }
        .check(|demand| limit::ceiling(call.ctx, demand))
        .and_then(|()| copy())
        .map_err(|error| refused(call, error))
}

/// Counts and logs a refusal for memory, or for what the filters hold.
#[cold]
fn refused(call: &Call, error: Error) -> Refusal {
    let Error::Unmergeable(why) = error else {
        return call.refused(error, Refusal::NO_MEMORY);
    };
    if matches!(why, Unmergeable::Full { .. } | Unmergeable::Rate | Unmergeable::Large) {
        stats::REFUSED.add(1);
        call.log(format_args!("refused: {why}"));
    }
    Refusal::Unmergeable(why)
}
