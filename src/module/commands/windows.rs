//! Filters that forget (`filter/window/mod.rs`): additions and questions of a command.
//!
//! Only an addition by an ordinary client of a primary looks at a clock, once. What a primary, an
//! AOF or a slot migration sends is obeyed, and so is every addition on a replica: time comes there
//! as BF.SHIFT. A question is answered by the clock of this server, and changes nothing.

use std::cell::Cell;

use super::{
    Call,
    add::{Added, Batch, Changed, refused, total},
    exists::Found,
    sharded::{self, OwnItems},
};
use crate::{
    command::refusal::Refusal,
    filter::{Addition, Answers, Author, Dropped, Error, Shift, Span, Window},
    module::{api::clock, effects::Shape, limit, stats},
};

/// Adds `items` in order, and stops at the first item that cannot be added, or that belongs to
/// another shard.
///
/// Not inlined, so that the code for other filters does not depend on it.
#[inline(never)]
pub(super) fn add<'a>(call: &Call, window: &mut Window, items: impl Batch<'a>) -> Added {
    match window.filter().shard() {
        None => add_items(call, window, items.items()),
        Some(shard) => {
            if let Err(refusal) = sharded::check_first(call, Some(shard), items.items()) {
                return refused_all(refusal);
            }
            let own = OwnItems::of(call, shard);
            let added = add_items(call, window, own.before_foreign(items.items()));
            let error = added.error.or_else(|| own.refusal());
            Added { error, ..added }
        }
    }
}

/// What a command did whose first item was refused: nothing.
fn refused_all(refusal: Refusal) -> Added {
    Added {
        answers: Vec::new(),
        changed: Changed::New,
        shape: Shape::default(),
        error: Some(refusal),
    }
}

fn add_items<'a>(call: &Call, window: &mut Window, items: impl Iterator<Item = &'a [u8]>) -> Added {
    let before = stats::Share::of(window.filter());
    let Some(author) = author(call) else {
        return refused_all(Refusal::OnReplica);
    };
    let mut dropped = Dropped::default();
    let (shift, turned) = turn(call, window, author, &mut dropped);
    let (layers, old) = (window.filter().layers().len(), dropped.count);
    let wanted = Cell::new(0_usize);
    let ceiling = |demand| {
        wanted.set(wanted.get().saturating_add(1));
        limit::ceiling(call.ctx, demand)
    };
    let (mut answers, mut changed) = (Vec::new(), Vec::new());
    let outcome = turned.and_then(|()| {
        window.add_each(items, author, ceiling, &mut dropped, |chunk| {
            answers.push(chunk.new);
            changed.push(chunk.changed);
        })
    });
    // Layers that were added for the items, and those that a window of items dropped for them.
    let gone = dropped.count.saturating_sub(old);
    let layers = window.filter().layers().len().saturating_add(gone).saturating_sub(layers);
    if author == Author::Obeyed && wanted.get() > layers {
        call.report_unapplied(c"the filter could not grow, and took items uncounted");
    }
    let any = total(&changed, Answers::ones) > 0;
    let mut shape = Shape { shift, filled: any && is_filled(window), ..Shape::default() };
    // In a window of items, each layer is a generation.
    if window.ring().rules.span == Span::Items {
        shape.opened = layers > 0;
        stats::SHIFTS.add(layers as u64);
        stats::FORGOTTEN.add(gone as u64);
    } else {
        shape.layers = layers;
        stats::grew(layers);
    }
    before.changed(window.filter());
    let error = outcome.err().map(|error| refused(call, error));
    Added { answers, changed: Changed::These(changed), shape, error }
}

/// Adds an item, if the window changes in nothing else. Else returns `None`: [`add`] does it, or
/// refuses the item.
///
/// Not inlined, so that the code for other filters does not depend on it.
#[inline(never)]
pub(super) fn add_in_place(
    call: &Call,
    window: &mut Window,
    item: &[u8],
) -> Option<(Addition, Shape)> {
    if !sharded::owns(window.filter(), item) {
        return None;
    }
    let addition = window.add_in_place(window.filter().hash(item), author(call)?)?;
    stats::ADDS.add(1);
    stats::added(addition.changed.into());
    let filled = addition.changed && is_filled(window);
    Some((addition, Shape { filled, ..Shape::default() }))
}

/// Whether the newest generation refuses the next new item.
fn is_filled(window: &Window) -> bool {
    window.ring().rules.span != Span::Items
        && window.filter().expansion().factor().is_none()
        && window.filter().newest().is_full()
}

/// For whom the command adds. Reads the clock for a client of a primary alone. `None` for a client
/// of a writable replica: its items would go into a generation that may be out of the window, since
/// time comes there from the primary.
fn author(call: &Call) -> Option<Author> {
    if !limit::must_obey(call.ctx) {
        Some(Author::Client(clock()))
    } else {
        call.ctx.is_replayed().then_some(Author::Obeyed)
    }
}

/// Refuses a client's additions to a window that is not there yet, on a writable replica.
///
/// # Errors
/// `OnReplica`.
pub(super) fn check_author(call: &Call) -> Result<(), Refusal> {
    author(call).map(|_| ()).ok_or(Refusal::OnReplica)
}

/// Does what time demands before a client's addition. Returns what [`Window::turn`] returns.
fn turn(
    call: &Call,
    window: &mut Window,
    author: Author,
    dropped: &mut Dropped,
) -> (Option<Shift>, Result<(), Error>) {
    let Author::Client(now) = author else {
        return (None, Ok(()));
    };
    let dead = window.ring().dead(now);
    let (shift, outcome) = window.turn(now, |demand| limit::ceiling(call.ctx, demand), dropped);
    if let Some(shift) = shift {
        count_shift(shift, dead);
    }
    (shift, outcome)
}

/// Counts a shift, and the generations that it dropped.
pub(super) fn count_shift(shift: Shift, forgotten: usize) {
    stats::SHIFTS.add(u64::from(shift.capacity > 0));
    stats::FORGOTTEN.add(forgotten as u64);
}

/// Whether the item may have been added within the window that ends now.
pub(super) fn contains(call: &Call, window: &Window, item: &[u8]) -> Result<bool, Refusal> {
    sharded::check(call, window.filter(), item)?;
    Ok(window.contains(window.filter().hash(item), clock()))
}

/// Asks for items.
///
/// Not inlined, so that the code for other filters does not depend on it.
///
/// # Errors
/// [`Refusal::OtherShard`] if an item belongs to another shard.
#[inline(never)]
pub(super) fn ask<'a>(
    call: &Call,
    window: &Window,
    items: impl Batch<'a>,
) -> Result<Found, Refusal> {
    let (now, mut found) = (clock(), Found::default());
    match window.filter().shard() {
        None => window.contains_each(items.items(), now, |chunk| found.push(chunk)),
        Some(shard) => {
            let own = OwnItems::of(call, shard);
            let items = own.before_foreign(items.items());
            window.contains_each(items, now, |chunk| found.push(chunk));
            if let Some(refusal) = own.refusal() {
                return Err(refusal);
            }
        }
    }
    Ok(found)
}
