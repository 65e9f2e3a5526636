//! How a window forgets (`window.rs`): its rules, and the range of its times.
//!
//! A generation takes additions for at least T/G, and the next one starts with the first addition
//! after that. It is alive for less than T (1 + 1/G) after its start, so at most G + 1 are alive.
//!
//! A window of items has no clock. A generation takes N/G items, and the last G + 1 generations are
//! alive.
//!
//! Times are milliseconds since 1970 by the clock of the server that wrote them.

use std::cmp::Ordering;

use crate::filter::error::Error;

/// The most generations into which a window is divided.
pub const MAX_GENERATIONS: u8 = 32;

/// The longest window: ten years, in milliseconds.
pub const MAX_MILLISECONDS: u64 = 3_650 * 24 * 60 * 60 * 1_000;

/// The latest start of a generation, in the year 144,683.
pub const MAX_TIME: i64 = 1 << 52;

/// The start of a generation that waits for its first addition, which is later than every time.
pub const NEVER: i64 = i64::MAX;

/// What a window remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The items of this many milliseconds, up to now.
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
    /// Whether the time of an item counts from its last addition; otherwise from its first.
    pub refresh: bool,
}

impl Rules {
    /// Checks the ranges. `scales` is whether there is an expansion: a window of items has none.
    ///
    /// # Errors
    /// `Error::Window`.
    pub fn check(&self, scales: bool) -> Result<(), Error> {
        let generations = u64::from(self.generations);
        let span = match self.span {
            Span::Time(span) => (generations..=MAX_MILLISECONDS).contains(&span),
            Span::Items => !scales,
        };
        let sound = span && (1..=MAX_GENERATIONS).contains(&self.generations);
        if sound { Ok(()) } else { Err(Error::Window) }
    }

    /// The most generations that are alive at once.
    pub fn most_generations(&self) -> usize {
        usize::from(self.generations) + 1
    }

    /// Additions that a generation of a window of `capacity` items takes.
    pub(super) fn generation_items(&self, capacity: u64) -> u64 {
        capacity.div_ceil(u64::from(self.generations).max(1))
    }

    /// The most items that are in a filter before it is larger than it was made for.
    pub fn most_items(&self, capacity: u64) -> u64 {
        match self.span {
            Span::Time(_) => capacity,
            // The oldest generation goes when the newest of G + 1 is full.
            Span::Items => {
                self.generation_items(capacity).saturating_mul(u64::from(self.generations) + 1)
            }
        }
    }

    /// Compares the time between `from` and `to` with `parts` times T/G. A window of items: `Less`.
    pub(super) fn passed(&self, from: i64, to: i64, parts: u64) -> Ordering {
        let Span::Time(span) = self.span else {
            return Ordering::Less;
        };
        let passed = (i128::from(to) - i128::from(from)) * i128::from(self.generations);
        passed.cmp(&(i128::from(span) * i128::from(parts)))
    }

    /// Whether at least T/G passed from `before` to `start`, so that a generation may start.
    pub fn is_over(&self, before: i64, start: i64) -> bool {
        self.passed(before, start, 1).is_ge()
    }

    /// Whether a generation that started at `start` may hold items of the window at `now`.
    pub fn is_alive(&self, start: i64, now: i64) -> bool {
        // Generations start at `MAX_TIME` at the latest. By a later clock a new one could be dead.
        let now = now.min(MAX_TIME);
        self.passed(start, now, u64::from(self.generations) + 1).is_lt()
    }
}
