//! `BF.MERGE destination source [source ...]`: makes the destination the union of itself and the
//! sources. All have equal parameters and seeds (`filter/merge.rs`).
//!
//! Replicas and the AOF get the command as it was called: they hold the same filters at that point,
//! and the union follows from them. Everything that can be refused is refused before anything
//! changes.

use std::{collections::BTreeMap, iter::repeat_n};

use super::{Argument, Call, Command, CommandSpec, Uses};
use crate::{
    command::refusal::Refusal,
    filter::{self, Filter, Union, Unmergeable},
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
        flags: c"write deny-oom",
        arity: -3,
        uses: Uses::Adds,
        categories: "write",
        summary:
            c"Merges Bloom filters with equal parameters and seeds into one, which may be missing",
        complexity: c"O(N), where N is the size of all filters",
        since: c"0.1.0",
        tips: None,
        arguments: &[Argument::Keys(c"source")],
    };

    const REDISBLOOMS: bool = false;

    fn run(call: &Call) -> Result<(), Refusal> {
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
    let shape = match Value::filter_in_key(&mut key)? {
        Some(filter) => {
            let own = filter::repeats(filter, own);
            merge_into(call, filter, own, &sources.filters()?)?
        }
        // The missing destination is named as a source.
        None if own > 0 => return Err(Refusal::NotFound),
        None => {
            let filter = union_of(call, &sources.filters()?)?;
            // A new key is published: a subscriber may delete a source.
            sources.keys.clear();
            let filled = is_filled(&filter);
            Value::Ready(filter).put(&mut key)?;
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

/// Deletes the destination if a primary, an AOF or a slot migration sent the merge: without the
/// items of the sources it would answer "absent" of them. `Call::refuse` puts a placeholder there.
#[cold]
fn give_up(call: &Call) {
    let Some(&name) = call.words.get(1).filter(|_| call.ctx.is_replayed()) else {
        return;
    };
    let mut key = Key::open(call.ctx, name, Access::Write);
    if matches!(Value::filter_in_key(&mut key), Ok(Some(_))) {
        key.delete();
        drop(key);
        effects::dropped(call.ctx, name);
    }
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
    fn filters(&mut self) -> Result<Vec<&Filter>, Refusal> {
        let mut filters = Vec::with_capacity(self.keys.len());
        for (key, times) in &mut self.keys {
            let filter = &*Value::filter_in_key(key)?.ok_or(Refusal::NotFound)?;
            let more = filter::repeats(filter, times.saturating_sub(1));
            filters.extend(repeat_n(filter, more.saturating_add(1)));
        }
        Ok(filters)
    }
}

/// Makes `filter` the union of itself, `own` times more of itself, and `others`. Returns how its
/// layers changed, or `None` if nothing changed.
fn merge_into(
    call: &Call,
    filter: &mut Filter,
    own: usize,
    others: &[&Filter],
) -> Result<Option<Shape>, Refusal> {
    let filters: Vec<&Filter> =
        repeat_n(&*filter, own.saturating_add(1)).chain(others.iter().copied()).collect();
    let union = union(call, &filters, filter.bit_bytes())?;
    if !union.changes() {
        return Ok(None);
    }
    let (items, newest) = (stats::items_of(filter), filter.newest_number());
    let was_filled = is_filled(filter);
    union.write(filter, own, others).map_err(|error| refused(call, error))?;
    let layers = filter.newest_number().saturating_sub(newest);
    stats::changed(items, stats::items_of(filter));
    if layers > 0 {
        stats::scaled(filter, layers);
    }
    let filled = is_filled(filter) && !was_filled;
    Ok(Some(Shape { layers, filled, ..Shape::default() }))
}

/// Whether the filter is non-scaling and full.
fn is_filled(filter: &Filter) -> bool {
    filter.expansion().factor().is_none() && filter.newest().is_full()
}

/// The union of `filters`, for a destination that is missing.
fn union_of(call: &Call, filters: &[&Filter]) -> Result<Filter, Refusal> {
    let union = union(call, filters, 0)?;
    let [first, others @ ..] = filters else {
        return Err(Refusal::Arity);
    };
    let mut filter = first.duplicate().map_err(|error| refused(call, error))?;
    union.write(&mut filter, 0, others).map_err(|error| refused(call, error))?;
    Ok(filter)
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

/// The refusal of filters that cannot be merged. One for too many items is counted and logged.
#[cold]
fn unmergeable(call: &Call, why: Unmergeable) -> Refusal {
    let refusal = Refusal::Unmergeable(why);
    if matches!(why, Unmergeable::Full { .. }) {
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
    super::refused(call, "BF.MERGE", error.into(), Refusal::NoMemory)
}
