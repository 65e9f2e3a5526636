//! Filters that grow, count or forget (`filter/paged/mod.rs`): additions, and what time does.
//!
//! Time matters to windows alone. Only an addition by an ordinary client of a primary looks at a
//! clock, once. What a primary, an AOF or a slot migration sends is obeyed, and so is every
//! addition on a replica: time comes there as BF.SHIFT. A query is answered by the clock of this
//! server, and changes nothing.

use super::{
    Call,
    addition::{Added, refused},
};
use crate::{
    command::refusal::Refusal,
    filter::{
        Addition, Author, Span,
        paged::{Paged, Shift, Window},
    },
    module::{
        api::clock,
        effects::Growth,
        limit,
        stats::{self, BEFORE_ALL, Share},
        sweeps,
    },
};

/// Adds `items` in order, and stops at the first item that cannot be added.
///
/// Not inlined, so that the code for other filters does not depend on it.
#[inline(never)]
pub(super) fn add_items<'a>(
    call: &Call,
    paged: &mut Paged,
    items: impl Iterator<Item = &'a [u8]> + Clone,
    added: &mut Added,
) {
    let author = match author(call, paged.window().is_some()) {
        Ok(author) => author,
        Err(refusal) => {
            added.error = Some(refusal);
            return;
        }
    };
    let shift = turn(call, paged, author);
    let before = Before::of(paged, author);
    let ceiling = |demand| limit::ceiling(call.ctx, demand);
    let outcome = paged.add_each(items, author, ceiling, |chunk| added.push(chunk));
    added.growth = Growth { shift, ..before.changed(call, paged) };
    added.error = outcome.err().map(|error| refused(call, error));
}

/// Adds an item, if no generation must start for it. Otherwise returns `None`, also if the item is
/// refused: [`add_items`] does it, or refuses the item.
///
/// Not inlined, so that the code for other filters does not depend on it.
#[inline(never)]
pub(super) fn add_in_place(
    call: &Call,
    paged: &mut Paged,
    item: &[u8],
) -> Option<(Addition, Growth)> {
    let author = author(call, paged.window().is_some()).ok()?;
    if is_due(paged, author) {
        return None;
    }
    let before = Before::of(paged, author);
    let hash = paged.hash(item);
    let addition = paged.add(hash, author, |demand| limit::ceiling(call.ctx, demand)).ok()?;
    let growth = if addition.changed { before.changed(call, paged) } else { Growth::default() };
    Some((addition, growth))
}

/// For whom the command adds. Reads the clock for a client of a primary and a window alone.
///
/// # Errors
/// `ON_REPLICA` for a window and a client of a writable replica: its items would go into a
/// generation that may be out of the window, since time comes there from the primary.
#[inline]
pub(super) fn author(call: &Call, is_window: bool) -> Result<Author, Refusal> {
    match (is_window, limit::must_obey(call.ctx)) {
        (true, true) if !call.ctx.is_replayed() => Err(Refusal::ON_REPLICA),
        (_, true) => Ok(Author::Obeyed),
        (false, false) => Ok(Author::Client(0)),
        (true, false) => Ok(Author::Client(clock())),
    }
}

/// Whether a generation must start before an addition.
#[inline]
fn is_due(paged: &Paged, author: Author) -> bool {
    matches!((paged.window(), author), (Some(window), Author::Client(now)) if window.is_due(now))
}

/// Does what time demands before a client's addition. Returns the change, for copies to obey.
fn turn(call: &Call, paged: &mut Paged, author: Author) -> Option<Shift> {
    let Author::Client(now) = author else {
        return None;
    };
    if !is_due(paged, author) {
        return None;
    }
    let before = Before::of(paged, author);
    let shift = paged.turn(now);
    before.shifted(call, paged, shift);
    shift
}

/// The numbers of a filter before a change.
pub(super) struct Before {
    share: Share,
    /// Whether it refuses new items.
    full: bool,
    author: Author,
    /// The number of the newest generation, and how many there are.
    generations: Option<(u64, usize)>,
}

impl Before {
    pub(super) fn of(paged: &Paged, author: Author) -> Self {
        Self {
            share: Share::of_pages(paged),
            full: is_full(paged, author),
            author,
            generations: paged.window().map(|window| (window.number, window.generations.len())),
        }
    }

    /// Counts what additions, deletions or a union changed.
    pub(super) fn changed(self, call: &Call, paged: &Paged) -> Growth {
        let (opened, _) = self.generations(paged);
        let layers = self.share.grew(Share::of_pages(paged));
        let filled = !self.full && is_full(paged, self.author);
        stats::SHIFTS.add(opened);
        // A pass may be left of a server that stopped, or was the primary of this one: additions
        // that sweep a page look.
        let looks = |window: &Window| opened > 0 || window.sweep.changes == 0;
        if paged.window().is_some_and(looks) {
            sweep_later(call, paged, self.author);
        }
        Growth { shift: None, opened: opened > 0, layers, filled }
    }

    /// Counts what a shift changed. Returns how many generations were forgotten.
    pub(super) fn shifted(self, call: &Call, paged: &mut Paged, shift: Option<Shift>) -> u64 {
        let (_, forgotten) = self.generations(paged);
        self.share.changed(Share::of_pages(paged));
        stats::SHIFTS.add(matches!(shift, Some(Shift::Open { .. })).into());
        // A copy has to free its pages, if it was emptied.
        if paged.release(0) {
            sweeps::begin(call.ctx, call.key());
        } else if shift.is_some() {
            sweep_later(call, paged, self.author);
        }
        forgotten
    }

    /// How many generations were opened, and how many were forgotten, which it counts.
    fn generations(&self, paged: &Paged) -> (u64, u64) {
        let (Some((number, count)), Some(window)) = (self.generations, paged.window()) else {
            return (0, 0);
        };
        let opened = window.number.saturating_sub(number);
        let forgotten =
            (count as u64).saturating_add(opened).saturating_sub(window.generations.len() as u64);
        stats::FORGOTTEN.add(forgotten);
        (opened, forgotten)
    }
}

/// On a primary, the slots of forgotten items are removed between commands, if there are any.
fn sweep_later(call: &Call, paged: &Paged, author: Author) {
    let is_unswept = paged.window().is_some_and(Window::is_unswept);
    if is_unswept && matches!(author, Author::Client(_)) {
        sweeps::begin(call.ctx, call.key());
    }
}

/// Whether it refuses new items.
#[inline]
fn is_full(paged: &Paged, author: Author) -> bool {
    let now = match author {
        Author::Client(now) => now,
        Author::Obeyed => BEFORE_ALL,
    };
    let drops = paged.window().is_some_and(|window| window.rules.span == Span::Items);
    paged.expansion().factor().is_none() && !drops && paged.items(now) >= paged.capacity()
}
