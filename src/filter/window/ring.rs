//! The numbers of a window: how long it remembers, and its generations.
//!
//! ```text
//!   time    ──────┬───────────┬───────────┬───────────┬───────────┬──────▶
//!   starts        s0          s1          s2          s3          s4     at least T/G apart
//!                 └────────── alive for T (1 + 1/G) ──────────┘
//! ```
//!
//! A generation takes additions for at least T/G: the next one starts with the first addition after
//! that. Nothing is stored when a generation dies. It is alive while less than T (1 + 1/G) has
//! passed since its start, so its last item was added T ago or earlier when it dies. Starts lie at
//! least T/G apart, so at most G + 1 generations are alive, and each has the rate p / (G + 1): the
//! rates of all of them add up to p.
//!
//! A window of items has no clock. A generation takes N/G items, and the last G + 1 generations are
//! alive. Generations are numbered, so that two states of the filter with the same number of
//! generations differ: parts of both are not the copy of a filter (`codec/native/dump.rs`).
//!
//! Times are milliseconds since 1970 by the clock of the server that wrote them. This file reads no
//! clock, and holds no bits.

use std::cmp::Ordering;

use crate::filter::{error::Error, params::MAX_CAPACITY};

/// The most generations into which a window is divided.
pub const MAX_GENERATIONS: u8 = 32;

/// The longest window: ten years, in milliseconds.
pub const MAX_MILLISECONDS: u64 = 3_650 * 24 * 60 * 60 * 1_000;

/// The latest time that a generation may start, in the year 141,000. Sums of times and windows
/// below it are exact.
pub const MAX_TIME: i64 = 1 << 52;

/// The start of a generation that waits for its first addition. It is later than every time, so
/// such a generation is alive.
pub const NEVER: i64 = i64::MAX;

/// What a window remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The items of the last so many milliseconds.
    Time(u64),
    /// The last N items, where N is the capacity of the filter.
    Items,
}

/// How a filter forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What is remembered.
    pub span: Span,
    /// Generations into which the span is divided, in [1, `MAX_GENERATIONS`]: G. One more is alive.
    pub generations: u8,
    /// Whether an item is remembered since its last addition, or else since its first.
    pub refresh: bool,
}

/// Items that were added in one part of the window, and are forgotten together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// When it started, or [`NEVER`]. In a window of items: its number, from 0 on.
    pub start: i64,
    /// Layers of the generation, at least 1.
    pub layers: u32,
}

/// A change of the generations that the clock of one server caused. Every copy of the filter makes
/// it in the same way, whatever its own clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// The time by which generations are dropped, and when the next one starts.
    pub start: i64,
    /// Items that the first layer of the next generation is sized for. 0: none is opened.
    pub capacity: u64,
}

/// The rules of a window and its generations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// How the filter forgets.
    pub rules: Rules,
    /// Items of the whole window, as reserved: N.
    pub capacity: u64,
    /// The generations, oldest first; at least one.
    pub generations: Vec<Generation>,
}

impl Rules {
    /// Checks the ranges. `scales` is whether the filter has an expansion, which a window of items
    /// cannot have.
    ///
    /// # Errors
    /// `Error::Window`.
    pub fn check(&self, scales: bool) -> Result<(), Error> {
        let generations = u64::from(self.generations);
        let span = match self.span {
            Span::Time(span) => (generations..=MAX_MILLISECONDS).contains(&span),
            Span::Items => !scales,
        };
        if span && (1..=u64::from(MAX_GENERATIONS)).contains(&generations) {
            Ok(())
        } else {
            Err(Error::Window)
        }
    }

    /// The most generations that are alive at once.
    #[must_use]
    pub fn most_generations(&self) -> usize {
        usize::from(self.generations) + 1
    }

    /// The rate of each generation, in a filter of rate `asked`.
    pub(in crate::filter) fn share(&self, asked: f64) -> f64 {
        asked / self.most_generations() as f64
    }

    /// Items that a generation is sized for, of a window of `capacity` items. The items of a part
    /// of the time vary: if they come independently of each other, their number is Poisson, and two
    /// standard deviations are added to the mean.
    #[must_use]
    pub fn generation_capacity(&self, capacity: u64) -> u64 {
        let mean = capacity.div_ceil(u64::from(self.generations).max(1));
        match self.span {
            Span::Items => mean,
            Span::Time(_) => (mean + mean.saturating_mul(4).isqrt()).min(MAX_CAPACITY),
        }
    }

    /// Compares the time that passed between `from` and `to` with `parts` times T/G. Always less in
    /// a window of items.
    fn passed(&self, from: i64, to: i64, parts: u64) -> Ordering {
        let Span::Time(span) = self.span else {
            return Ordering::Less;
        };
        let passed = (i128::from(to) - i128::from(from)) * i128::from(self.generations);
        passed.cmp(&(i128::from(span) * i128::from(parts)))
    }

    /// Whether a generation may start at `start` if the one before it started at `before`: at least
    /// T/G later.
    #[must_use]
    pub fn is_over(&self, before: i64, start: i64) -> bool {
        self.passed(before, start, 1).is_ge()
    }

    /// Whether more than T/G passed between two times.
    pub(in crate::filter) fn is_more_than_a_generation(&self, from: i64, to: i64) -> bool {
        self.passed(from, to, 1).is_gt()
    }

    /// Whether a generation that started at `start` may hold items of the window at `now`.
    #[must_use]
    pub fn is_alive(&self, start: i64, now: i64) -> bool {
        // No generation starts later, so that it would be dead at once.
        let now = now.min(MAX_TIME);
        self.passed(start, now, u64::from(self.generations) + 1).is_lt()
    }
}

impl Ring {
    /// The ring of a new window: one generation, of one layer.
    pub(super) fn new(rules: Rules, capacity: u64) -> Self {
        let mut generations = Vec::with_capacity(rules.most_generations() + 1);
        let start = if rules.span == Span::Items { 0 } else { NEVER };
        generations.push(Generation { start, layers: 1 });
        Self { rules, capacity, generations }
    }

    /// The newest generation, which takes additions.
    #[must_use]
    pub fn newest(&self) -> Generation {
        // There is always one (`check`).
        self.generations.last().copied().unwrap_or(Generation { start: NEVER, layers: 1 })
    }

    /// The number of the next generation of a window of items. No filter gets to the last number.
    pub(super) fn next_number(&self) -> i64 {
        self.newest().start.saturating_add(1).min(MAX_TIME)
    }

    /// Adds a layer to the newest generation.
    pub(in crate::filter) fn grow(&mut self) {
        if let Some(newest) = self.generations.last_mut() {
            newest.layers = newest.layers.saturating_add(1);
        }
    }

    /// Sets the start of the newest generation.
    pub(super) fn stamp(&mut self, start: i64) {
        if let Some(newest) = self.generations.last_mut() {
            newest.start = start;
        }
    }

    /// The number of the oldest generations that are out of the window at `now`.
    #[must_use]
    pub fn dead(&self, now: i64) -> usize {
        let dead = |generation: &&Generation| !self.rules.is_alive(generation.start, now);
        self.generations.iter().take_while(dead).count()
    }

    /// The number of layers of the `count` oldest generations.
    #[must_use]
    pub fn layers_of(&self, count: usize) -> usize {
        self.generations.iter().take(count).map(|generation| generation.layers as usize).sum()
    }

    /// The numbers of layers at which the generations end, oldest first.
    pub(in crate::filter) fn ends(&self) -> impl Iterator<Item = usize> {
        self.generations.iter().scan(0_usize, |end, generation| {
            *end = end.saturating_add(generation.layers as usize);
            Some(*end)
        })
    }

    /// The time at which an addition at `now` must start a generation first, or stamp an empty one,
    /// or to which it must move the newest one back; `None` if it must do nothing.
    #[inline]
    pub(super) fn due(&self, now: i64) -> Option<i64> {
        let (rules, newest, start) = (self.rules, self.newest().start, now.clamp(0, MAX_TIME));
        let due = newest == NEVER
            || rules.is_over(newest, start)
            // The clock went back by more than T/G.
            || rules.is_more_than_a_generation(start, newest);
        (due && rules.span != Span::Items).then_some(start)
    }

    /// Items for which a generation is made.
    pub(super) fn planned_capacity(&self) -> u64 {
        self.rules.generation_capacity(self.capacity)
    }

    /// Items for which the next generation is made, after one that counted `counted`. If that was
    /// more than planned, the next one is likely to get as many, and is made for an eighth more.
    pub(super) fn next_capacity(&self, counted: u64) -> u64 {
        let planned = self.planned_capacity();
        if counted > planned {
            planned.max(counted.saturating_add(counted / 8)).min(MAX_CAPACITY)
        } else {
            planned
        }
    }

    /// Moves all starts back, so that the newest generation starts at `start`. If the clock was
    /// ahead before, items are remembered for longer. If it is behind now, they are for less once
    /// it is right again. The two cannot be told apart.
    pub(super) fn move_back(&mut self, start: i64) {
        let by = self.newest().start.saturating_sub(start);
        for generation in &mut self.generations {
            generation.start = generation.start.saturating_sub(by);
        }
    }

    /// Checks the generations of a stored filter.
    ///
    /// # Errors
    /// What is wrong.
    pub(in crate::filter) fn check(&self, scales: bool, layers: usize) -> Result<(), Fault> {
        self.rules.check(scales).map_err(|_| Fault::Rules)?;
        if !(1..=MAX_CAPACITY).contains(&self.capacity) {
            return Err(Fault::Rules);
        }
        let count = self.generations.len();
        if !(1..=self.rules.most_generations()).contains(&count) {
            return Err(Fault::Generations(count));
        }
        let empty = self.generations.iter().any(|generation| generation.layers == 0);
        if empty || self.ends().last() != Some(layers) {
            return Err(Fault::Layers);
        }
        let newest = self.newest().start;
        let sound = match self.rules.span {
            Span::Items => {
                let in_range = |number: &Generation| (0..=MAX_TIME).contains(&number.start);
                self.generations.iter().all(in_range)
                    && self.generations.is_sorted_by_key(|generation| generation.start)
            }
            Span::Time(_) if newest == NEVER => count == 1,
            Span::Time(_) => {
                let alive = |old: &Generation| self.rules.is_alive(old.start, newest);
                let apart = |pair: &[Generation]| match pair {
                    [older, newer] => self.rules.is_over(older.start, newer.start),
                    _ => true,
                };
                (0..=MAX_TIME).contains(&newest)
                    && self.generations.iter().all(alive)
                    && self.generations.windows(2).all(apart)
            }
        };
        if sound { Ok(()) } else { Err(Fault::Starts) }
    }

    /// Bytes of the ring in memory. Equal filters give equal numbers.
    pub(in crate::filter) fn bytes(&self) -> u64 {
        (size_of::<Self>() + size_of_val(self.generations.as_slice())) as u64
    }
}

/// What is wrong with a stored ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The rules or the capacity are out of range.
    #[error("a window that cannot be reserved")]
    Rules,
    /// None, or more than can be alive.
    #[error("{0} generations")]
    Generations(usize),
    /// A generation without a layer, or other layers than those of the generations.
    #[error("generations without their layers")]
    Layers,
    /// Starts that are out of order, too close, out of range, or out of the window.
    #[error("generations that do not follow each other")]
    Starts,
    /// Numbers of generations that do not follow each other, or a pass over pages that none began.
    #[error("generations with wrong numbers")]
    Numbers,
    /// A filter of counters, or of another product.
    #[error("a window of a filter that cannot have one")]
    Kind,
}
