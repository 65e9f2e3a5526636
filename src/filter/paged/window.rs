//! Windows: the generations in which items came, and the removal of what is forgotten
//! (docs/guide/windows.md).
//!
//! ```text
//!   pages    ░░░░░░░░░░░░░│▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
//!            swept        page     a pass: removes the slots of dead generations, page by page
//! ```
//!
//! A slot has the number of the generation in which its item came last, modulo 2^c. The item is
//! forgotten when its generation dies; the slot does not change. Without refresh, an item keeps the
//! number of its first addition until it is forgotten.
//!
//! # Numbers that are used again
//! G + 1 generations are alive, and c bits have at least three numbers more. Slots of dead
//! generations leave before their number is used again: a *pass* visits all pages in turn, one page
//! after each [`SWEEP_EVERY`] additions that changed the filter, and more by [`Shift::Sweep`]. A
//! pass frees all generations that were dead when it began. Splits put new pages behind the others,
//! and joins remove dead slots, so neither disturbs a pass.
//!
//! If a generation must start, and no pass has freed its number, [`MOST_SWEPT`] pages are swept. If
//! that does not end the pass, the newest generation takes the new start, and its items are
//! remembered for one generation more. That needs three generations without sweeps. A window of
//! items finishes the pass instead. That is due only if its generations have a few items, and such
//! a window has one page.
//!
//! # Clocks and copies
//! Time reaches copies of the filter only as a [`Shift`], which a copy obeys without reading a
//! clock. The state lists the generations that were alive at the last shift. By the clock, some may
//! have died since.

use super::{MAX_TIME, NEVER, Paged, Part, Rest, Rules, Span};
use crate::filter::{
    error::Error,
    pages::{MAX_PAGES, Page, Pages},
};

/// A page is swept after this many additions that change a window: some 10 µs without a join.
pub const SWEEP_EVERY: u8 = 32;

/// The most pages of one [`Shift::Sweep`]: a millisecond.
pub const MOST_SWEPT: u64 = 16;

/// Items that came last in one part of the window, and are forgotten together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// When it started, or [`NEVER`]; 0 in a window of items.
    pub start: i64,
    /// Items that were last added in it. The sum over all generations is at most the number of
    /// distinct items that came since the oldest one started.
    pub items: u64,
}

/// A change that one server decided. Every copy makes it in the same way. A window of items opens
/// its generations without one: every copy counts its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// Forgets what is out of the window at this time, and opens a generation that starts then.
    Open(i64),
    /// Forgets what is out of the window at this time.
    Forget(i64),
    /// Removes the forgotten slots of the next pages, at most [`MOST_SWEPT`].
    Sweep(u64),
}

/// How far the removal of forgotten slots is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// No slot is of an older generation than this one.
    pub oldest: u64,
    /// What `oldest` will be when the pass is over; equal to `oldest` if there is no pass.
    pub floor: u64,
    /// The next page of the pass.
    pub page: u64,
    /// Additions that changed the filter since a page was swept, below [`SWEEP_EVERY`].
    pub changes: u8,
}

/// The rules of a window and its generations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// How the filter forgets.
    pub rules: Rules,
    /// The generations that were alive at the last shift, oldest first; at least one.
    pub generations: Vec<Generation>,
    /// The number of the newest generation. It never falls.
    pub number: u64,
    /// How far the removal of forgotten slots is.
    pub sweep: Sweep,
}

/// Bits of the number of a generation: G + 1 are alive, and three more may be swept.
pub(in crate::filter) fn number_bits(rules: Rules) -> u8 {
    (u32::from(rules.generations) + 4).next_power_of_two().ilog2() as u8
}

/// Bytes of the list of generations.
pub(in crate::filter) fn list_bytes(rules: Rules) -> u64 {
    (rules.most_generations() * size_of::<Generation>()) as u64
}

impl Window {
    pub(super) fn new(rules: Rules) -> Result<Self, Error> {
        let mut generations = Vec::new();
        generations
            .try_reserve_exact(rules.most_generations())
            .map_err(|_| Error::OutOfMemory(list_bytes(rules)))?;
        let start = if rules.span == Span::Items { 0 } else { NEVER };
        generations.push(Generation { start, items: 0 });
        Ok(Self { rules, generations, number: 0, sweep: Sweep::default() })
    }

    /// The newest generation, which takes additions.
    pub fn newest(&self) -> Generation {
        // There is always one ([`Self::is_sound`]).
        self.generations.last().copied().unwrap_or(Generation { start: NEVER, items: 0 })
    }

    /// How many of the oldest generations are out of the window at `now`.
    fn dead(&self, now: i64) -> usize {
        let dead = |generation: &&Generation| !self.rules.is_alive(generation.start, now);
        self.generations.iter().take_while(dead).count()
    }

    /// How many generations are alive at `now`, counted back from the newest.
    #[inline]
    pub fn alive(&self, now: i64) -> u64 {
        (self.generations.len() - self.dead(now)) as u64
    }

    /// The items that are remembered at `now`.
    pub fn items(&self, now: i64) -> u64 {
        let alive = self.generations.iter().skip(self.dead(now));
        alive.fold(0, |sum, generation| sum.saturating_add(generation.items))
    }

    /// How many additions may change the filter before a window of items opens a generation.
    #[inline]
    pub(super) fn left(&self, capacity: u64) -> u64 {
        match self.rules.span {
            Span::Time(_) => u64::MAX,
            Span::Items => {
                self.rules.generation_items(capacity).saturating_sub(self.newest().items)
            }
        }
    }

    /// How many additions may change the filter up to the one after which a page is swept.
    #[inline]
    pub(super) fn until_sweep(&self) -> u64 {
        u64::from(SWEEP_EVERY.saturating_sub(self.sweep.changes).max(1))
    }

    /// The number of the oldest generation that is alive.
    pub fn first_alive(&self) -> u64 {
        self.number + 1 - self.generations.len() as u64
    }

    /// Whether slots may still have the number of the next generation.
    fn next_is_in_use(&self) -> bool {
        self.number + 1 - self.sweep.oldest >= 1 << number_bits(self.rules)
    }

    /// Whether slots of dead generations may be left.
    pub fn is_unswept(&self) -> bool {
        self.sweep.oldest < self.first_alive()
    }

    /// Counts one item less in the generation of this age, if the generation is alive.
    #[inline]
    pub(super) fn leaves(&mut self, age: u64) {
        if let Some(older) = (self.generations.len() - 1).checked_sub(age as usize) {
            let items = &mut self.generations[older].items;
            *items = items.saturating_sub(1);
        }
    }

    /// The start of the [`Shift::Open`] that must precede an addition at `now`, if one must.
    #[inline]
    fn due(&self, now: i64) -> Option<i64> {
        let (rules, newest, start) = (self.rules, self.newest().start, now.clamp(0, MAX_TIME));
        let due = newest == NEVER
            || rules.is_over(newest, start)
            // The clock went back by more than T/G.
            || rules.passed(start, newest, 1).is_gt();
        (due && rules.span != Span::Items).then_some(start)
    }

    /// Whether a [`Shift::Open`] must precede an addition at `now`.
    pub fn is_due(&self, now: i64) -> bool {
        self.due(now).is_some()
    }

    /// Moves the newest generation back to `start`, and older ones as far as T/G must lie between
    /// two. If the clock was ahead before, items are remembered for longer. If it is behind now,
    /// they are forgotten early once it is right again. The two cases cannot be told apart.
    fn move_back(&mut self, start: i64) {
        let Span::Time(span) = self.rules.span else { return };
        let part = span.div_ceil(self.rules.generations.into()) as i64;
        let by = self.newest().start.saturating_sub(start);
        let mut latest = start;
        for generation in self.generations.iter_mut().rev() {
            let old = generation.start;
            generation.start = old.saturating_sub(by).max(old.min(latest));
            latest = latest.saturating_sub(part);
        }
    }

    fn stamp(&mut self, start: i64) {
        if let Some(newest) = self.generations.last_mut() {
            newest.start = start;
        }
    }

    pub(super) fn tell(&self, pages: &mut Pages) {
        let newest = self.number & ((1 << number_bits(self.rules)) - 1);
        pages.turn(newest as u8, self.generations.len() as u8);
    }

    /// Whether an untrusted window is one that this module makes.
    pub(in crate::filter) fn is_sound(&self, scales: bool, capacity: u64) -> bool {
        let count = self.generations.len();
        let counted = (1..=self.rules.most_generations()).contains(&count);
        if self.rules.check(scales).is_err() || !counted {
            return false;
        }
        let newest = self.newest();
        let starts = match self.rules.span {
            Span::Items => {
                self.generations.iter().all(|generation| generation.start == 0)
                    && newest.items < self.rules.generation_items(capacity)
            }
            Span::Time(_) if newest.start == NEVER => count == 1,
            Span::Time(_) => {
                let alive = |old: &Generation| self.rules.is_alive(old.start, newest.start);
                (0..=MAX_TIME).contains(&newest.start)
                    && self.generations.iter().all(alive)
                    && self.generations.is_sorted_by(|a, b| self.rules.is_over(a.start, b.start))
            }
        };
        let &Self { number, sweep: Sweep { oldest, floor, page, changes }, .. } = self;
        // The oldest slots and the newest have different numbers.
        let numbers = (count as u64 - 1..=u64::MAX / 2).contains(&number)
            && oldest <= floor
            && floor <= self.first_alive()
            && number - oldest < 1 << number_bits(self.rules);
        let pass = if floor == oldest { page == 0 } else { page < MAX_PAGES };
        starts && numbers && pass && changes < SWEEP_EVERY
    }

    /// Sweeps up to `most` pages, until the next number is free; returns whether it is.
    fn free_number(&mut self, pages: &mut Pages, most: u64) -> bool {
        for _ in 0..most {
            if !self.next_is_in_use() {
                break;
            }
            self.sweep(pages, 1);
        }
        !self.next_is_in_use()
    }

    /// Opens a generation. If its number is in use, finishes the pass first.
    fn open(&mut self, pages: &mut Pages, start: i64) {
        if self.generations.len() >= self.rules.most_generations() {
            self.generations.remove(0);
            self.tell(pages);
        }
        self.free_number(pages, u64::MAX);
        self.number += 1;
        self.generations.push(Generation { start, items: 0 });
        self.tell(pages);
    }

    /// Drops the generations that are out of the window at `now`; returns whether there were any.
    /// If all are, a new one waits for the first addition.
    fn drop_dead(&mut self, pages: &mut Pages, leaving: &mut Vec<Page>, now: i64) -> bool {
        let dead = self.dead(now);
        if dead == 0 {
            return false;
        }
        self.generations.drain(..dead);
        self.tell(pages);
        if self.generations.is_empty() {
            let next = self.number + 1;
            self.sweep = Sweep { oldest: next, floor: next, page: 0, changes: 0 };
            let mut gone = pages.clear();
            // One page is freed immediately.
            if gone.len() == 1 {
                gone.clear();
            }
            // The longer list takes the other. Without memory for both, one is freed here.
            if leaving.len() < gone.len() {
                std::mem::swap(leaving, &mut gone);
            }
            if leaving.try_reserve(gone.len()).is_ok() {
                leaving.append(&mut gone);
            }
            self.open(pages, NEVER);
        }
        true
    }

    /// Sweeps the next `count` pages and joins pages. Returns whether there was anything to do.
    fn sweep(&mut self, pages: &mut Pages, count: u64) -> bool {
        let first_alive = self.first_alive();
        let sweep = &mut self.sweep;
        for done in 0..count {
            if sweep.floor == sweep.oldest {
                (sweep.floor, sweep.page) = (first_alive, 0);
            }
            let is_clean = sweep.floor == sweep.oldest;
            if !is_clean {
                pages.sweep(sweep.page as usize);
                sweep.page += 1;
            }
            let joined = pages.join_if_due();
            if sweep.page >= pages.pages().len() as u64 {
                (sweep.oldest, sweep.page) = (sweep.floor, 0);
            }
            if is_clean && !joined {
                return done > 0;
            }
        }
        count > 0
    }
}

impl Paged {
    /// Makes the change that must precede an addition by a client at `now`, if there is one.
    /// Returns it for copies to obey.
    pub fn turn(&mut self, now: i64) -> Option<Shift> {
        let start = self.window()?.due(now)?;
        self.make(Shift::Open(start))
    }

    /// Forgets what is out of the window at `now`. Returns the change for copies to obey.
    pub fn forget(&mut self, now: i64) -> Option<Shift> {
        self.make(Shift::Forget(now.clamp(0, MAX_TIME)))
    }

    /// Removes the forgotten slots of up to `pages` pages, at most [`MOST_SWEPT`], and joins up to
    /// as many: some 60 µs a page for both. Returns the change for copies to obey, if there was
    /// anything to do.
    pub fn sweep(&mut self, pages: u64) -> Option<Shift> {
        self.make(Shift::Sweep(pages.min(MOST_SWEPT)))
    }

    fn make(&mut self, shift: Shift) -> Option<Shift> {
        (self.obey(shift) == Ok(true)).then_some(shift)
    }

    /// Makes a change, decided here or by another copy. Returns whether something changed.
    ///
    /// # Errors
    /// `Error::Window` for a change that no copy can have made; nothing changes then.
    pub fn obey(&mut self, shift: Shift) -> Result<bool, Error> {
        let (window, pages, leaving) = self.window_mut().ok_or(Error::Window)?;
        let start = match shift {
            Shift::Sweep(count) if count <= MOST_SWEPT => {
                return Ok(window.sweep(pages, count));
            }
            Shift::Sweep(_) => return Err(Error::Window),
            Shift::Open(start) | Shift::Forget(start) => start,
        };
        if window.rules.span == Span::Items || !(0..=MAX_TIME).contains(&start) {
            return Err(Error::Window);
        }
        if let Shift::Forget(_) = shift {
            return Ok(window.drop_dead(pages, leaving, start));
        }
        let Generation { start: newest, items } = window.newest();
        if newest == NEVER {
            // Only a copy that missed a shift has items here. They live longer than they should.
            window.stamp(start);
        } else if start < newest {
            window.move_back(start);
        } else if items > 0 && !window.rules.is_over(newest, start) {
            return Err(Error::Window);
        } else {
            window.drop_dead(pages, leaving, start);
            if window.newest().items == 0 || !window.free_number(pages, MOST_SWEPT) {
                window.stamp(start);
            } else {
                window.open(pages, start);
            }
        }
        Ok(true)
    }

    /// Counts additions that changed a slot: one, or as many as [`room`](Self::room) allowed. Then
    /// sweeps a page and opens a generation if it is time.
    #[inline]
    pub(super) fn moved_to_newest(&mut self, changed: u8) {
        let capacity = self.capacity;
        let Some((window, pages, _)) = self.window_mut() else { return };
        let room = window.until_sweep().min(window.left(capacity));
        debug_assert!(changed == 1 || u64::from(changed) <= room, "{changed} of {room}");
        if let Some(newest) = window.generations.last_mut() {
            newest.items = newest.items.saturating_add(changed.into());
        }
        let is_over = window.left(capacity) == 0;
        window.sweep.changes += changed;
        if window.sweep.changes >= SWEEP_EVERY {
            window.sweep.changes = 0;
            window.sweep(pages, 1);
        }
        if is_over {
            window.open(pages, 0);
        }
    }

    /// Frees up to `pages` pages of a window that was emptied. Returns whether there are more.
    pub fn release(&mut self, pages: usize) -> bool {
        // Most windows have none: a write would copy a page of memory while a child saves.
        let leaving = self.window_mut().map(|(_, _, leaving)| leaving);
        let Some(leaving) = leaving.filter(|leaving| !leaving.is_empty()) else { return false };
        leaving.truncate(leaving.len().saturating_sub(pages));
        if leaving.is_empty() {
            *leaving = Vec::new();
        }
        !leaving.is_empty()
    }

    /// The window, its pages, and those to be freed.
    #[inline]
    pub(super) fn window_mut(&mut self) -> Option<(&mut Window, &mut Pages, &mut Vec<Page>)> {
        match self.rest.as_deref_mut()? {
            Rest { part: Part::Window(window), leaving, .. } => {
                Some((window, &mut self.pages, leaving))
            }
            _ => None,
        }
    }
}
