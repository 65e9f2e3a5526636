//! What a filter counts, to notice lost items: a server that restarts may have lost what it
//! acknowledged.
//!
//! A plain filter counts at least what it counted at the start of a load, plus what was new since.
//! A filter that forgets may rightly count less:
//!
//! ```text
//!   window of time     counted are generations that started at `since` or later, while none of
//!                      them can be forgotten; after that, nothing can be said
//!   window of items    counts at least as many items as it remembers, or all that were new
//! ```

use redis::Value;
use serde::{Deserialize, Serialize};

use bloom::filter::{Rules, Span};

use crate::window::Generation;

/// What a filter counts at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) items: u64,
    /// Counted are generations that started then or later, in milliseconds since 1970; `None` if
    /// all items are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
}

/// What a server says about the items of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// A filter that does not forget.
    All(u64),
    /// A window of items: all that are there, and how many it remembers.
    Last { items: u64, remembered: u64 },
    /// A window of time, between two readings of the server's clock.
    Recent { before: u64, now: u64, rules: Rules, generations: Vec<Generation> },
}

/// How a count compares with a tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) now: u64,
    /// What it must be at least.
    pub(crate) least: u64,
}

impl Tally {
    /// That of a filter as it is now.
    pub(crate) fn of(count: &Count) -> Self {
        let Count::Recent { before, generations, .. } = count else {
            return Self { items: count.items(), since: None };
        };
        let newest = generations.last().and_then(|newest| newest.started);
        // The next item starts a generation, if none has a start.
        let since = newest.unwrap_or(*before);
        Self { items: count.since(since), since: Some(since) }
    }

    /// Notes that so many items were new.
    pub(crate) fn added(self, new: u64) -> Self {
        Self { items: self.items.saturating_add(new), ..self }
    }

    /// Compares it with what a server says later; `None` if nobody can say what the filter should
    /// count.
    pub(crate) fn compared(self, count: &Count) -> Option<Compared> {
        let (now, least) = match (count, self.since) {
            (Count::All(items), None) => (*items, self.items),
            (Count::Last { items, remembered }, None) => (*items, self.items.min(*remembered)),
            (Count::Recent { now, rules, generations, .. }, Some(since)) => {
                let time = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
                let newest = generations.last().and_then(|newest| newest.started).unwrap_or(0);
                let latest = (*now).max(newest);
                // A clock that was set back may have moved the starts.
                if *now < since || !rules.is_alive(time(since), time(latest)) {
                    return None;
                }
                (count.since(since), self.items)
            }
            // Another filter in its place, which has none of them.
            _ => (0, self.items),
        };
        Some(Compared { now, least })
    }
}

impl Count {
    /// All items that are there.
    fn items(&self) -> u64 {
        match self {
            Self::All(items) | Self::Last { items, .. } => *items,
            Self::Recent { .. } => self.since(0),
        }
    }

    /// Items of the generations that started then or later.
    fn since(&self, since: u64) -> u64 {
        let Self::Recent { generations, .. } = self else { return self.items() };
        let counted = generations.iter().filter(|one| one.started.is_none_or(|at| at >= since));
        counted.map(|one| one.items).fold(0, u64::saturating_add)
    }

    /// What a filter of a window counts, by the generations that it has. `times` are those of the
    /// server before and after.
    pub(crate) fn of_window(rules: Rules, generations: Vec<Generation>, times: (u64, u64)) -> Self {
        match rules.span {
            Span::Items => {
                let items = generations.iter().map(|one| one.items);
                // It drops the oldest one when it has one more, all of them full.
                let each = generations.last().map_or(0, |newest| newest.capacity);
                let remembered = each.saturating_mul(rules.generations.into());
                Self::Last { items: items.fold(0, u64::saturating_add), remembered }
            }
            Span::Time(_) => Self::Recent { before: times.0, now: times.1, rules, generations },
        }
    }
}

/// The reply of `TIME` in milliseconds; `None` for anything else.
pub(crate) fn milliseconds(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else { return None };
    let number = |part: &Value| match part {
        Value::BulkString(digits) => str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let [seconds, microseconds] = &parts[..] else { return None };
    Some(number(seconds)?.saturating_mul(1_000) + number(microseconds)? / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(started: u64, items: u64) -> Generation {
        let started = (started > 0).then_some(started);
        Generation { started, items, capacity: 100, layers: 1, bytes: 64, alive: true }
    }

    fn recent(now: u64, generations: &[(u64, u64)]) -> Count {
        let rules = Rules { span: Span::Time(1_000), generations: 4, refresh: true };
        let all = generations.iter().map(|&(started, items)| generation(started, items)).collect();
        Count::of_window(rules, all, (now, now))
    }

    fn compared(tally: Tally, count: &Count) -> Option<(u64, u64)> {
        tally.compared(count).map(|Compared { now, least }| (now, least))
    }

    #[test]
    fn a_plain_filter_counts_all() {
        let tally = Tally::of(&Count::All(7)).added(3);
        assert_eq!(compared(tally, &Count::All(9)), Some((9, 10)));
        assert_eq!(compared(tally, &recent(1, &[(1, 70)])), Some((0, 10)), "another filter");
    }

    #[test]
    fn a_window_of_items_counts_no_more_than_it_remembers() {
        let count = |items| Count::Last { items, remembered: 100 };
        let tally = Tally::of(&count(40)).added(50);
        assert_eq!(compared(tally, &count(80)), Some((80, 90)));
        assert_eq!(compared(tally.added(1_000), &count(101)), Some((101, 100)));
        assert_eq!(compared(tally.added(1_000), &count(99)), Some((99, 100)));
    }

    #[test]
    fn a_window_of_time_is_compared_until_it_may_forget() {
        // The newest generation has 5 items, and the load adds 20 to it and to the next ones.
        let tally = Tally::of(&recent(10_100, &[(9_000, 70), (10_000, 5)])).added(20);
        assert_eq!(tally.items, 25);
        let after = |now| recent(now, &[(10_000, 15), (10_300, 10), (10_600, 2)]);
        assert_eq!(compared(tally, &after(11_249)), Some((27, 25)));
        // T (1 + 1/G) after the start it may be forgotten.
        assert_eq!(compared(tally, &after(11_250)), None);
        assert_eq!(compared(tally, &recent(11_300, &[(11_300, 1)])), None);
        // An older state, and a clock that was set back.
        assert_eq!(compared(tally, &recent(10_700, &[(9_000, 70), (10_000, 2)])), Some((2, 25)));
        assert_eq!(compared(tally, &recent(9_999, &[(9_000, 3)])), None);
        // Another server's clock is behind: what it has got says how late it is.
        assert_eq!(compared(tally, &recent(10_900, &[(11_400, 3)])), None);
    }

    #[test]
    fn an_empty_window_of_time_is_counted_from_now_on() {
        let tally = Tally::of(&recent(5_000, &[(0, 0)])).added(2);
        assert_eq!(compared(tally, &recent(5_100, &[(5_000, 2)])), Some((2, 2)));
        assert_eq!(compared(tally, &recent(5_100, &[(0, 0)])), Some((0, 2)));
    }

    #[test]
    fn the_time_of_a_server_is_read() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let reply = Value::Array(vec![bulk("1795393799"), bulk("999999")]);
        assert_eq!(milliseconds(&reply), Some(1_795_393_799_999));
        for reply in [Value::Nil, Value::Array(vec![bulk("1")])] {
            assert_eq!(milliseconds(&reply), None);
        }
    }
}
