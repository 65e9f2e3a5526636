//! What a filter has of a load, to notice that items are lost: a server that restarts may have lost
//! what it acknowledged.
//!
//! **Counts.** A plain filter counts at least what it counted at the start of a load, plus what was
//! new since. A filter that forgets may rightly count less:
//!
//! ```text
//!   window of time     counted are generations that started at `since` or later, while none of
//!                      them can be forgotten; after that, counts are not compared
//!   window of items    counts at least as many items as it remembers, or all that were new
//! ```
//!
//! **Processes.** So the count of a filter that forgets may prove that items are lost, but never
//! that all are there: an item that was written again counts twice, and a full window counts as
//! much as an older one. What proves it is who answers:
//!
//! ```text
//!   the same process as before     has all items
//!   the same server, restarted     has those that its AOF had: --durable
//!   a replica of that process,     has those that replicas had: --acks
//!   promoted
//! ```
//!
//! A process that was a replica for a while has the data of its primary. The IDs of the replication
//! show that: a process that is promoted gets a new one, and keeps that of its primary as the
//! second.
//!
//! Nothing else is asked: if that does not prove it, items may be lost.

use redis::Value;
use serde::{Deserialize, Serialize};

use bloom::filter::{Rules, Span};

use crate::window::{Generation, Window};

/// What a server says about itself and the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// How the filter forgets, if it does.
    pub(crate) window: Option<Window>,
    /// What the filter counts; `None` without the rights to ask, and for a COUNTING filter.
    pub(crate) count: Option<Count>,
    pub(crate) keeper: Keeper,
}

/// What must be true of a filter that has lost nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    window: Option<Window>,
    /// What it counts at least; `None` if the server did not say.
    tally: Option<Tally>,
    keeper: Keeper,
}

/// Who has the items that were confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keeper {
    /// `None` without the right to INFO.
    process: Option<Process>,
    /// The number of the connection, which tells as much until it breaks; 0 for that of an earlier
    /// load.
    #[serde(skip)]
    connection: u64,
    address: String,
    /// The append-only file of the server has them.
    durable: bool,
    /// Replicas of the server have them.
    replicated: bool,
}

/// What `INFO` says about the process that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// `run_id`: changes when the server restarts.
    pub(crate) run_id: String,
    /// `master_replid`: changes when it becomes a replica, and when it is promoted.
    pub(crate) replication: String,
    /// `master_replid2`: of the primary whose replica it was before it was promoted.
    #[serde(skip)]
    pub(crate) replication_before: String,
}

impl Process {
    /// Reads what `INFO server replication` says.
    pub(crate) fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.trim().split_once(':'));
            lines.find(|(field, _)| *field == name).map_or("", |(_, value)| value).to_owned()
        };
        Self {
            run_id: field("run_id"),
            replication: field("master_replid"),
            replication_before: field("master_replid2"),
        }
    }

    /// Whether `now` is this process, with the data that it had.
    fn goes_on_as(&self, now: &Self) -> bool {
        // A primary gets another ID, and no second one, when it gets its first replica.
        let was_promoted = now.replication_before.bytes().any(|digit| digit != b'0');
        self.run_id == now.run_id && (self.replication == now.replication || !was_promoted)
    }
}

/// What became of the items of a [`Mark`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// None is lost, as far as can be told. A plain filter counts so many items more than it must.
    Kept { more: u64 },
    /// None is lost, but the filter may have forgotten some.
    Forgotten,
    /// Some may be lost: the filter forgets, and nothing proves that this server has them.
    Unproved,
    /// Some are lost: what is wrong with the filter.
    Lost(String),
}

/// What a filter counts at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Tally {
    /// Items, of the generations that are counted.
    items: u64,
    /// Counted are generations that started then or later, in milliseconds since 1970; `None` if
    /// all items are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    /// When the newest generation started that was there at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    newest: Option<u64>,
}

/// What a server says about the items of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// A filter that does not forget.
    All(u64),
    /// A window of items: all that are there, and how many it remembers.
    Last { items: u64, remembered: u64 },
    /// A window of time, between two readings of the server's clock.
    Recent { time_before: u64, time_after: u64, rules: Rules, generations: Vec<Generation> },
}

/// How a count compares with a tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Compared {
    counted: u64,
    /// What must be counted at least.
    least: u64,
}

impl Keeper {
    /// The process that answers on this connection, at this address.
    pub(crate) fn new(process: Option<Process>, connection: u64, address: String) -> Self {
        Self { process, connection, address, ..Self::default() }
    }

    /// Whether `now` is surely the same process, with the data that it had.
    fn goes_on_as(&self, now: &Self) -> bool {
        match (&self.process, &now.process) {
            (Some(process), Some(now)) => process.goes_on_as(now),
            _ => self.connection > 0 && self.connection == now.connection,
        }
    }

    /// Whether the server that answers `now` was a replica of this process, and was promoted.
    fn is_succeeded_by(&self, now: &Self) -> bool {
        let primary = self.process.as_ref().map(|process| &process.replication);
        primary.is_some() && primary == now.process.as_ref().map(|now| &now.replication_before)
    }

    /// Whether the server that answers `now` may be this one, restarted: not if the address leads
    /// to a promoted replica now.
    fn is_restarted_as(&self, now: &Self) -> bool {
        self.address == now.address && !self.is_succeeded_by(now)
    }

    /// Whether the server that answers `now` surely has the items.
    fn outlives_in(&self, now: &Self) -> bool {
        // A server that restarts from an RDB file names its own ID as the second.
        let is_another = self.address != now.address && self.is_succeeded_by(now);
        self.goes_on_as(now)
            || (self.durable && self.is_restarted_as(now))
            || (self.replicated && is_another)
    }

    /// Who has the items from `now` on. What replicas of another process have is not known; what
    /// an append-only file has stays there.
    fn follow(&mut self, now: Self) {
        if !self.goes_on_as(&now) {
            let durable = self.durable && self.is_restarted_as(&now);
            *self = Self { durable, ..now };
        }
        self.connection = now.connection;
    }
}

impl Mark {
    /// That of a filter as it is now.
    pub(crate) fn of(seen: &Seen) -> Self {
        let tally = seen.count.as_ref().map(Tally::of);
        Self { window: seen.window, tally, keeper: seen.keeper.clone() }
    }

    /// Notes that so many items were new.
    pub(crate) fn add(&mut self, new: u64) {
        if let Some(tally) = &mut self.tally {
            tally.items = tally.items.saturating_add(new);
        }
    }

    /// Notes that the append-only file has all items, or that replicas have.
    pub(crate) fn confirm(&mut self, durable: bool, replicated: bool) {
        self.keeper.durable |= durable;
        self.keeper.replicated |= replicated;
    }

    /// Whether a server is another process than that which has the items, or may be.
    pub(crate) fn is_left_by(&self, seen: &Seen) -> bool {
        !self.keeper.goes_on_as(&seen.keeper)
    }

    /// Notes that the filter has moved to this process with all its items.
    pub(crate) fn move_to(&mut self, keeper: Keeper) {
        self.keeper = keeper;
    }

    /// Notes that this process has the filter now.
    pub(crate) fn follow(&mut self, keeper: Keeper) {
        self.keeper.follow(keeper);
    }

    /// Notes that all that is counted is confirmed.
    pub(crate) fn recount(&mut self, count: Option<&Count>) {
        self.tally = count.map(Tally::of);
    }

    /// What became of the items, by what a server says now.
    pub(crate) fn judged(&self, now: &Seen) -> Verdict {
        if self.window != now.window {
            return Verdict::Lost("has not the window that it had".to_owned());
        }
        let compared = self.tally.zip(now.count.as_ref()).map(|(tally, now)| tally.compared(now));
        match compared {
            Some(Some(Compared { counted, least })) if counted < least => {
                Verdict::Lost(format!("counts {counted} items and had {least}"))
            }
            _ if self.window.is_some() && !self.keeper.outlives_in(&now.keeper) => {
                Verdict::Unproved
            }
            Some(None) => Verdict::Forgotten,
            Some(Some(Compared { counted, least })) if self.window.is_none() => {
                Verdict::Kept { more: counted - least }
            }
            _ => Verdict::Kept { more: 0 },
        }
    }

    /// What is said of a filter that is gone.
    pub(crate) fn gone(mark: Option<&Self>) -> String {
        let least = mark.and_then(|mark| mark.tally).map_or(0, |tally| tally.items);
        format!("counts 0 items and had {least}")
    }
}

impl Tally {
    /// That of a filter as it is now.
    fn of(count: &Count) -> Self {
        let Count::Recent { time_before, rules, generations, .. } = count else {
            return Self { items: count.items(), since: None, newest: None };
        };
        let newest = generations.last().and_then(|newest| newest.started);
        // The next item starts a generation, if there is none that takes it.
        let takes = newest.filter(|&at| !rules.is_over(time(at), time(*time_before)));
        let since = takes.unwrap_or(*time_before);
        Self { items: count.items_since(since), since: Some(since), newest }
    }

    /// Compares it with what a server says later; `None` if nobody can say what the filter should
    /// count.
    fn compared(self, count: &Count) -> Option<Compared> {
        let (counted, least) = match (count, self.since) {
            (Count::All(items), None) => (*items, self.items),
            (Count::Last { items, remembered }, None) => (*items, self.items.min(*remembered)),
            (Count::Recent { time_after, rules, generations, .. }, Some(since)) => {
                let starts: Vec<_> = generations.iter().filter_map(|one| one.started).collect();
                let latest = starts.last().map_or(*time_after, |&newest| newest.max(*time_after));
                // A clock that was set back moves all starts: then there are older ones, but not
                // that which was there.
                let moved = starts.iter().any(|&start| start < since)
                    && !self.newest.is_some_and(|newest| starts.contains(&newest));
                if moved || !rules.is_alive(time(since), time(latest)) {
                    return None;
                }
                (count.items_since(since), self.items)
            }
            // Another filter in its place, which has none of them.
            _ => (0, self.items),
        };
        Some(Compared { counted, least })
    }
}

/// A time for the rules of a window.
fn time(milliseconds: u64) -> i64 {
    i64::try_from(milliseconds).unwrap_or(i64::MAX)
}

impl Count {
    /// All items that are there.
    fn items(&self) -> u64 {
        match self {
            Self::All(items) | Self::Last { items, .. } => *items,
            Self::Recent { .. } => self.items_since(0),
        }
    }

    /// Items of the generations that started then or later.
    fn items_since(&self, since: u64) -> u64 {
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
            Span::Time(_) => {
                let (time_before, time_after) = times;
                Self::Recent { time_before, time_after, rules, generations }
            }
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

    /// A tally of what is counted, and so many new items.
    fn tally(count: &Count, new: u64) -> Tally {
        let mut tally = Tally::of(count);
        tally.items += new;
        tally
    }

    fn compared(tally: Tally, count: &Count) -> Option<(u64, u64)> {
        tally.compared(count).map(|Compared { counted, least }| (counted, least))
    }

    #[test]
    fn a_plain_filter_counts_all() {
        let tally = tally(&Count::All(7), 3);
        assert_eq!(compared(tally, &Count::All(9)), Some((9, 10)));
        assert_eq!(compared(tally, &recent(1, &[(1, 70)])), Some((0, 10)), "another filter");
    }

    #[test]
    fn a_window_of_items_counts_no_more_than_it_remembers() {
        let count = |items| Count::Last { items, remembered: 100 };
        assert_eq!(compared(tally(&count(40), 50), &count(80)), Some((80, 90)));
        assert_eq!(compared(tally(&count(40), 1_050), &count(101)), Some((101, 100)));
        assert_eq!(compared(tally(&count(40), 1_050), &count(99)), Some((99, 100)));
    }

    #[test]
    fn a_window_of_time_is_compared_until_it_may_forget() {
        // The newest generation has 5 items, and the load adds 20 to it and to the next ones.
        let tally = tally(&recent(10_100, &[(9_000, 70), (10_000, 5)]), 20);
        assert_eq!(tally.items, 25);
        let after = |now| recent(now, &[(10_000, 15), (10_300, 10), (10_600, 2)]);
        assert_eq!(compared(tally, &after(11_249)), Some((27, 25)));
        // T (1 + 1/G) after the start it may be forgotten.
        assert_eq!(compared(tally, &after(11_250)), None);
        assert_eq!(compared(tally, &recent(11_300, &[(11_300, 1)])), None);
        // An older state.
        assert_eq!(compared(tally, &recent(10_700, &[(9_000, 70), (10_000, 2)])), Some((2, 25)));
        // A filter that was made anew.
        assert_eq!(compared(tally, &recent(10_700, &[(10_600, 3)])), Some((3, 25)));
        // Another server's clock is behind: what it has got says how late it is.
        assert_eq!(compared(tally, &recent(10_900, &[(11_400, 3)])), None);
    }

    /// The next item goes into a generation of its own.
    #[test]
    fn a_generation_that_is_over_is_not_counted() {
        for idle in [250, 5_000] {
            let now = 10_000 + idle;
            let tally = tally(&recent(now, &[(9_900, 3), (10_000, 5)]), 20);
            assert_eq!(tally.items, 20);
            let after = |items| recent(now + 1_249, &[(10_000, 5), (now, items), (now + 300, 2)]);
            assert_eq!(compared(tally, &after(18)), Some((20, 20)));
            assert_eq!(compared(tally, &after(17)), Some((19, 20)));
            let without = recent(now + 1_249, &[(now + 10, 20)]);
            assert_eq!(compared(tally, &without), Some((20, 20)), "those before may be given back");
        }
    }

    /// A clock that is set back moves all starts by as much: here by 700, and by 2,000.
    #[test]
    fn nothing_is_compared_after_a_clock_was_set_back() {
        let tally = tally(&recent(10_100, &[(9_800, 70), (10_000, 5)]), 20);
        let back = [(9_100, 70), (9_300, 15), (9_600, 5), (10_100, 5)];
        assert_eq!(compared(tally, &recent(10_150, &back)), None);
        assert_eq!(compared(tally, &recent(8_150, &[(7_800, 70), (8_000, 25)])), None);
        // By less than a part of the window: no start moves.
        let less = [(9_800, 70), (10_000, 25)];
        assert_eq!(compared(tally, &recent(9_900, &less)), Some((25, 25)));
    }

    #[test]
    fn an_empty_window_of_time_is_counted_from_now_on() {
        let tally = tally(&recent(5_000, &[(0, 0)]), 2);
        assert_eq!(compared(tally, &recent(5_100, &[(5_000, 2)])), Some((2, 2)));
        assert_eq!(compared(tally, &recent(5_100, &[(0, 0)])), Some((0, 2)));
        assert_eq!(compared(tally, &recent(4_000, &[(3_900, 2)])), None, "the clock was set back");
    }

    /// A process whose stream has the ID of the process, after that of `before`.
    fn promoted(run_id: &str, address: &str, before: &str) -> Keeper {
        let text = format!(
            "# Server\r\nrun_id:{run_id}\r\n# Replication\r\nrole:master\r\n\
             master_replid:of-{run_id}\r\nmaster_replid2:{before}\r\n"
        );
        Keeper::new(Some(Process::parse(&text)), 1, address.to_owned())
    }

    fn keeper(run_id: &str, address: &str) -> Keeper {
        promoted(run_id, address, "0000")
    }

    fn window() -> Option<Window> {
        Some(Rules { span: Span::Items, generations: 4, refresh: true }.into())
    }

    fn seen(window: Option<Window>, items: u64, keeper: &Keeper) -> Seen {
        let count = match window {
            Some(_) => Count::Last { items, remembered: 100 },
            None => Count::All(items),
        };
        Seen { window, count: Some(count), keeper: keeper.clone() }
    }

    #[test]
    fn a_window_has_what_its_process_the_file_or_replicas_have() {
        let [first, again] = [keeper("1", "a"), keeper("2", "a")];
        let other = promoted("3", "b", "of-1");
        let same = keeper("1", "another name");
        for (durable, replicated, kept) in [
            (false, false, [true, true, false, false]),
            (true, false, [true, true, true, false]),
            (false, true, [true, true, false, true]),
            (true, true, [true, true, true, true]),
        ] {
            let mut mark = Mark::of(&seen(window(), 70, &first));
            mark.add(20);
            mark.confirm(durable, replicated);
            for (now, kept) in [&first, &same, &again, &other].into_iter().zip(kept) {
                let expected = if kept { Verdict::Kept { more: 0 } } else { Verdict::Unproved };
                assert_eq!(mark.judged(&seen(window(), 99, now)), expected, "{mark:?} {now:?}");
                let lost = Verdict::Lost("counts 89 items and had 90".to_owned());
                assert_eq!(mark.judged(&seen(window(), 89, now)), lost);
            }
            // The file stays where it is. What replicas of the new process have is not known.
            mark.follow(again.clone());
            let third = keeper("4", "a");
            let expected = if durable { Verdict::Kept { more: 0 } } else { Verdict::Unproved };
            assert_eq!(mark.judged(&seen(window(), 90, &third)), expected);
            assert_eq!(mark.judged(&seen(window(), 90, &other)), Verdict::Unproved);
        }
        // Neither are proved: a promoted replica at the address of its primary, a server that was
        // no replica of it, and the process itself, after it was a replica for a while.
        let mut mark = Mark::of(&seen(window(), 70, &first));
        mark.confirm(true, true);
        let back = promoted("1", "a", "of-3");
        let back = Keeper {
            process: back.process.map(|it| Process { replication: "of-1-again".to_owned(), ..it }),
            ..back
        };
        for now in [promoted("3", "a", "of-1"), promoted("4", "b", "of-2"), keeper("4", "b")] {
            assert_eq!(mark.judged(&seen(window(), 99, &now)), Verdict::Unproved, "{now:?}");
        }
        let mark = Mark::of(&seen(window(), 70, &first));
        assert_eq!(mark.judged(&seen(window(), 99, &back)), Verdict::Unproved);
        // Its first replica gives a process another ID, and no second one.
        let mut watched = keeper("1", "a");
        watched.process = Some(Process::parse("run_id:1\nmaster_replid:x\nmaster_replid2:000"));
        assert_eq!(mark.judged(&seen(window(), 99, &watched)), Verdict::Kept { more: 0 });
        // Without the right to INFO nobody knows who answers on another connection.
        let unknown = |connection| Keeper::new(None, connection, "a".to_owned());
        let mark = Mark::of(&seen(window(), 70, &unknown(1)));
        for (connection, expected) in [(1, Verdict::Kept { more: 0 }), (2, Verdict::Unproved)] {
            assert_eq!(mark.judged(&seen(window(), 70, &unknown(connection))), expected);
        }
    }

    #[test]
    fn a_plain_filter_is_only_counted() {
        let mark = Mark::of(&seen(None, 70, &keeper("1", "a")));
        let other = keeper("3", "b");
        assert_eq!(mark.judged(&seen(None, 73, &other)), Verdict::Kept { more: 3 });
        let lost = Verdict::Lost("counts 69 items and had 70".to_owned());
        assert_eq!(mark.judged(&seen(None, 69, &other)), lost);
    }

    #[test]
    fn a_filter_with_another_window_is_another_one() {
        let first = keeper("1", "a");
        for (before, now) in [(window(), None), (None, window())] {
            let mark = Mark::of(&seen(before, 70, &first));
            assert!(matches!(mark.judged(&seen(now, 70, &first)), Verdict::Lost(_)));
        }
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
