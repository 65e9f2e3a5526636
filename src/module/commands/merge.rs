//! `BF.MERGE destination source [source ...]`: makes the destination the union of itself and the
//! sources. All have equal parameters and seeds (`filter/merge.rs`, `filter/paged/merge.rs`). A key
//! that is named twice counts once.
//!
//! Replicas and the AOF get the command as it was called: they hold the same filters at that point,
//! and the union follows from them. Everything that can be refused is refused before anything
//! changes.

use std::{collections::BTreeSet, iter::once};

use super::{Argument, Call, Command, CommandSpec, Kind};
use crate::{
    command::refusal::Refusal,
    filter::{
        self, Demand, Filter, Union, Unmergeable,
        paged::{Member, NoUnion, Paged},
    },
    module::{
        api::{Access, Key, Str},
        effects::{self, Growth},
        limit, stats,
        value::Stored,
    },
};

pub(super) struct Merge;

impl Command for Merge {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.merge",
        summary:
            c"Merges Bloom filters with equal parameters and seeds into one, which may be missing",
        complexity: c"O(N), where N is the size of all filters",
        arguments: &[Argument::new(c"source", Kind::Key).multiple()],
        many_keys: true,
        ..CommandSpec::ADDS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let ctx = call.ctx;
        let (name, names) = call.key_and_rest(1)?;
        // There may be only one reference to a filter that can change it.
        let mut seen = BTreeSet::from([name.bytes()]);
        let own = names.iter().any(|source| source.bytes() == name.bytes());
        let mut names: Vec<Str> = names.to_vec();
        names.retain(|name| seen.insert(name.bytes()));
        Key::settle(ctx, name, names.iter().copied());
        let mut keys: Vec<Key> =
            names.iter().map(|&name| Key::open(ctx, name, Access::Write)).collect();
        let mut key = Key::open(ctx, name, Access::Write);
        let sources = keys
            .iter_mut()
            .map(|key| member(Stored::complete_in_key(key)?.ok_or(Refusal::NOT_FOUND)?))
            .collect::<Result<Vec<Member>, Refusal>>()?;
        let (created, growth) = match Stored::complete_in_key(&mut key)? {
            Some(value) => (false, merge_into(call, value, &sources)?),
            // The missing destination is named as a source.
            None if own => return Err(Refusal::NOT_FOUND),
            None => {
                let value = union_of(call, &sources)?;
                // A new key is published: a subscriber may delete a source.
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
}

/// A complete value as a part of a union.
fn member(value: &Stored) -> Result<Member<'_>, Refusal> {
    match value {
        Stored::Layers(filter) => Ok(Member::Layer(filter)),
        Stored::Pages(paged) => Ok(Member::Pages(paged)),
        Stored::Partial(_) => Err(Refusal::LOADING),
    }
}

/// The filters, if all of them are of layers.
fn layers<'a>(filters: &[Member<'a>]) -> Option<Vec<&'a Filter>> {
    let layers = filters.iter().map(|filter| match filter {
        Member::Layer(filter) => Some(*filter),
        Member::Pages(_) => None,
    });
    layers.collect()
}

/// Makes a filter the union of itself and `others`. Returns how it changed, or `None` if nothing
/// changed.
fn merge_into(
    call: &Call,
    value: &mut Stored,
    others: &[Member],
) -> Result<Option<Growth>, Refusal> {
    let was_filled = is_filled(member(value)?);
    let before = value.share();
    match (&mut *value, layers(others)) {
        (Stored::Layers(filter), Some(others)) => {
            let filters: Vec<&Filter> = once(&*filter).chain(others.iter().copied()).collect();
            let union = union(call, &filters, filter.bit_bytes())?;
            if !union.changes() {
                return Ok(None);
            }
            union.write(filter, &others).map_err(|error| refused(call, error))?;
        }
        _ => {
            let all: Vec<_> = once(member(value)?).chain(others.iter().copied()).collect();
            let Some(union) = union_of_pages(call, &all)? else {
                return Ok(None);
            };
            *value = Stored::Pages(union);
        }
    }
    let layers = before.grew(value.share());
    let filled = !was_filled && is_filled(member(value)?);
    Ok(Some(Growth { layers, filled, ..Growth::default() }))
}

/// Whether the filter is non-scaling and full.
fn is_filled(filter: Member) -> bool {
    match filter {
        Member::Layer(filter) => filter.expansion().factor().is_none() && filter.newest().is_full(),
        Member::Pages(paged) => {
            paged.expansion().factor().is_none() && paged.items(0) >= paged.capacity()
        }
    }
}

/// The union of `filters`, for a destination that is missing.
fn union_of(call: &Call, filters: &[Member]) -> Result<Stored, Refusal> {
    let Some(filters) = layers(filters) else {
        // A union that takes no more than its first filter asks for no memory.
        let bytes = filters.iter().map(|filter| filter.bytes());
        let (present, wanted) = (0, bytes.max().unwrap_or(0));
        let ceiling = limit::ceiling(call.ctx, Demand { present, wanted });
        if wanted > ceiling {
            return Err(refused(call, filter::Error::Ceiling { wanted, ceiling }));
        }
        return match (union_of_pages(call, filters)?, filters) {
            (Some(union), _) => Ok(Stored::Pages(union)),
            (None, [Member::Pages(paged), ..]) => {
                paged.duplicate().map(Stored::Pages).map_err(|error| refused(call, error))
            }
            (None, _) => Err(Refusal::INTERNAL),
        };
    };
    let [first, others @ ..] = filters.as_slice() else {
        return Err(Refusal::NOT_FOUND);
    };
    let union = union(call, &filters, 0)?;
    let mut filter = first.duplicate().map_err(|error| refused(call, error))?;
    union.write(&mut filter, others).map_err(|error| refused(call, error))?;
    Ok(Stored::Layers(filter))
}

/// The union of filters of which at least one has pages; `None` if it is the first one.
fn union_of_pages(call: &Call, filters: &[Member]) -> Result<Option<Paged>, Refusal> {
    let limited = !limit::must_obey(call.ctx);
    let union = Paged::union(filters, limited, |demand| limit::ceiling(call.ctx, demand));
    union.map_err(|why| match why {
        NoUnion::Refused(why) => unmergeable(call, why),
        NoUnion::Memory(error) => refused(call, error),
    })
}

/// The numbers of a union, which may take its memory in the place of `present` bytes of bits.
fn union(call: &Call, filters: &[&Filter], present: u64) -> Result<Union, Refusal> {
    let union =
        Union::of(filters, !limit::must_obey(call.ctx)).map_err(|why| unmergeable(call, why))?;
    union
        .check_memory(present, |demand| limit::ceiling(call.ctx, demand))
        .map_err(|error| refused(call, error))?;
    Ok(union)
}

/// The refusal of filters that cannot be merged. One for what they hold is counted and logged.
#[cold]
fn unmergeable(call: &Call, why: Unmergeable) -> Refusal {
    let refusal = Refusal::Unmergeable(why);
    if matches!(why, Unmergeable::Full { .. } | Unmergeable::Rate | Unmergeable::Large(_)) {
        stats::REFUSED.add(1);
        let text = refusal.text(std::iter::empty());
        let why = text.to_string_lossy();
        call.log(format_args!("refused: {}", why.trim_start_matches("ERR ")));
    }
    refusal
}

/// The refusal if there is no memory for the union.
#[cold]
fn refused(call: &Call, error: filter::Error) -> Refusal {
    call.refused(error, Refusal::NO_MEMORY)
}
