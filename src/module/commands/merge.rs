//! `BF.MERGE destination source [source ...]`: makes the destination the union of itself and the
//! sources. All have equal parameters and seeds (`filter/merge.rs`,
//! `filter/paged/merge.rs`).
//!
//! Replicas and the AOF get the command as it was called: they hold the same filters at that point,
//! and the union follows from them. Everything that can be refused is refused before anything
//! changes.

use std::{
    collections::BTreeMap,
    iter::{once, repeat_n},
};

use super::{Argument, Call, Command, CommandSpec, Kind, give_up};
use crate::{
    command::refusal::Refusal,
    filter::{
        self, Demand, Filter, Union, Unmergeable,
        paged::{Member, NoUnion, Paged},
    },
    module::{
        api::{Access, Context, Key, Str, logged},
        effects::{self, Shape},
        limit, stats,
        value::Value,
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
        ..CommandSpec::ADDS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        // Without the items of the sources, the destination would answer "absent" of them.
        merge(call).inspect_err(|_| give_up(call))
    }
}

fn merge(call: &Call) -> Result<(), Refusal> {
    let ctx = call.ctx;
    let (name, names) = call.key_and_rest(1)?;
    let mut sources = Sources::open(ctx, name, names);
    let mut key = Key::open(ctx, name, Access::Write);
    let own = sources.own;
    let mut created = false;
    let shape = match Value::complete_in_key(&mut key)? {
        Some(value) => merge_into(call, value, own, &sources.filters()?)?,
        // The missing destination is named as a source.
        None if own > 0 => return Err(Refusal::NOT_FOUND),
        None => {
            let value = union_of(call, &sources.filters()?)?;
            // A new key is published: a subscriber may delete a source.
            sources.keys.clear();
            let filled = member(&value).is_ok_and(is_filled);
            value.put(&mut key)?;
            created = true;
            Some(Shape { filled, ..Shape::default() })
        }
    };
    drop(sources);
    drop(key);
    if let Some(shape) = shape {
        effects::merged(ctx, name, created, shape);
    }
    ctx.reply_ok();
    Ok(())
}

/// The sources of a merge. Each key is opened once, however often it is named: there may be only
/// one reference to a filter that can change it.
struct Sources {
    /// How often the destination is named.
    own: usize,
    /// The other keys in the order in which they are first named, and how often each is.
    keys: Vec<(Key, usize)>,
}

impl Sources {
    fn open(ctx: Context, destination: Str, names: &[Str]) -> Self {
        let (mut own, mut times) = (0_usize, BTreeMap::new());
        for (place, &name) in names.iter().enumerate() {
            if name.bytes() == destination.bytes() {
                own = own.saturating_add(1);
            } else {
                let (_, _, times) = times.entry(name.bytes()).or_insert((place, name, 0_usize));
                *times = times.saturating_add(1);
            }
        }
        let mut named: Vec<_> = times.into_values().collect();
        named.sort_by_key(|&(place, ..)| place);
        Key::settle(ctx, destination, named.iter().map(|&(_, name, _)| name));
        let open = |(_, name, times)| (Key::open(ctx, name, Access::Write), times);
        Self { own, keys: named.into_iter().map(open).collect() }
    }

    /// The filters, each as often as its name has an effect.
    fn filters(&mut self) -> Result<Vec<Member<'_>>, Refusal> {
        let mut filters = Vec::with_capacity(self.keys.len());
        for (key, times) in &mut self.keys {
            let filter = member(Value::complete_in_key(key)?.ok_or(Refusal::NOT_FOUND)?)?;
            let more = filter.repeats(times.saturating_sub(1));
            filters.extend(repeat_n(filter, more.saturating_add(1)));
        }
        Ok(filters)
    }
}

/// A complete value as a part of a union.
fn member(value: &Value) -> Result<Member<'_>, Refusal> {
    match value {
        Value::Ready(filter) => Ok(Member::Layer(filter)),
        Value::Paged(paged) => Ok(Member::Pages(paged)),
        Value::Loading(_) => Err(Refusal::LOADING),
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

/// Makes a filter the union of itself, `own` times more of itself, and `others`. Returns how it
/// changed, or `None` if nothing changed.
fn merge_into(
    call: &Call,
    value: &mut Value,
    own: usize,
    others: &[Member],
) -> Result<Option<Shape>, Refusal> {
    let first = member(value)?;
    let own = first.repeats(own);
    let was_filled = is_filled(first);
    let before = value.share();
    match (&mut *value, layers(others)) {
        (Value::Ready(filter), Some(others)) => {
            let filters: Vec<&Filter> = once(&*filter).chain(others.iter().copied()).collect();
            let union = union(call, &filters, filter.bit_bytes())?;
            if !union.changes() {
                return Ok(None);
            }
            union.write(filter, &others).map_err(|error| refused(call, error))?;
        }
        _ => {
            let all = repeat_n(member(value)?, own.saturating_add(1)).chain(others.iter().copied());
            let Some(union) = union_of_pages(call, &all.collect::<Vec<_>>())? else {
                return Ok(None);
            };
            *value = Value::Paged(union);
        }
    }
    let layers = before.grew(value.share());
    let filled = !was_filled && is_filled(member(value)?);
    Ok(Some(Shape { layers, filled, ..Shape::default() }))
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
fn union_of(call: &Call, filters: &[Member]) -> Result<Value, Refusal> {
    let Some(filters) = layers(filters) else {
        // A union that takes no more than its first filter asks for no memory.
        let bytes = filters.iter().map(|filter| filter.bytes());
        let (present, wanted) = (0, bytes.max().unwrap_or(0));
        let ceiling = limit::ceiling(call.ctx, Demand { present, wanted });
        if wanted > ceiling {
            return Err(refused(call, filter::Error::Ceiling { wanted, ceiling }));
        }
        return match (union_of_pages(call, filters)?, filters) {
            (Some(union), _) => Ok(Value::Paged(union)),
            (None, [Member::Pages(paged), ..]) => {
                paged.duplicate().map(Value::Paged).map_err(|error| refused(call, error))
            }
            (None, _) => Err(Refusal::INTERNAL),
        };
    };
    let union = union(call, &filters, 0)?;
    let [first, others @ ..] = filters.as_slice() else {
        return Err(Refusal::ARITY);
    };
    let mut filter = first.duplicate().map_err(|error| refused(call, error))?;
    union.write(&mut filter, others).map_err(|error| refused(call, error))?;
    Ok(Value::Ready(filter))
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
        call.ctx.warn_rate_limited(|| {
            let text = refusal.text(std::iter::empty());
            let (key, why) = (logged(call.key()), text.to_string_lossy());
            format!("key '{key}': BF.MERGE refused: {}", why.trim_start_matches("ERR "))
        });
    }
    refusal
}

/// The refusal if there is no memory for the union.
#[cold]
fn refused(call: &Call, error: filter::Error) -> Refusal {
    super::refused(call, "BF.MERGE", error.into(), Refusal::NO_MEMORY)
}
