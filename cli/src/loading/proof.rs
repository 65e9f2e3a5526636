//! What proves that a filter has all items that were confirmed.
//!
//! A server that restarts may have lost what it acknowledged, and so may one that takes the place
//! of another. A count that did not fall is no proof: other clients add, and known items do
//! not count. The proof is the process that answers, as `INFO` describes it:
//!
//! ```text
//!   the same process: run_id and master_replid        has all items
//!   master_replid2 is that process, and               has what that process had written up to
//!     second_repl_offset is behind all items          there: a replica that was promoted (--acks),
//!                                                     or a restart from a later RDB file
//! ```
//!
//! And the filter must be the same: `BF.INFO IDENTITY`, and a count that did not fall. If anything
//! else answers, items may be lost, and the caller sends all of them again.
//!
//! A restart with an append-only file proves nothing, however well it was synced:
//! after a failover and a failback, another server answers at the same address with an older file,
//! and no field of `INFO` distinguishes it.

use serde::{Deserialize, Serialize};

use crate::connection::Info;

/// What a server says about itself and the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Which filter it is; `None` from modules that do not say.
    pub(crate) identity: Option<String>,
    /// What the filter counts, unless it forgets or deletes.
    pub(crate) items: Option<u64>,
    pub(crate) process: Process,
}

/// What `INFO` says about the process that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// `run_id`: changes when the server restarts. Empty if the server does not say.
    run_id: String,
    /// `master_replid`: changes when it becomes a replica, and when it is promoted.
    replication: String,
    /// `master_replid2`: the stream that it has a part of, if it was promoted, or loaded an RDB
    /// file.
    #[serde(skip)]
    replication_before: Option<String>,
    /// `second_repl_offset`: it has that stream up to the byte before this one.
    #[serde(skip)]
    has_before: u64,
    /// `role:slave`.
    #[serde(skip)]
    is_replica: bool,
}

/// What must be true of a filter that has all confirmed items.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    identity: Option<String>,
    /// What the filter counts at least.
    items: Option<u64>,
    process: Process,
    /// All items are before this byte of the replication stream, and replicas have it.
    replicated: Option<u64>,
}

/// Whether a filter has all confirmed items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Proved,
    /// Another process answers, and nothing proves that it has them.
    Unproved,
    /// The key does not hold them: why.
    Lost(String),
}

impl Process {
    /// The process that answers `INFO server replication` so.
    pub(crate) fn of(info: &Info) -> Self {
        let field = |name: &str| info.field(name).map(str::to_owned);
        // Without one it is forty zeros.
        let before = field("master_replid2").filter(|id| id.bytes().any(|digit| digit != b'0'));
        Self {
            run_id: field("run_id").unwrap_or_default(),
            replication: field("master_replid").unwrap_or_default(),
            replication_before: before,
            has_before: field("second_repl_offset").and_then(|it| it.parse().ok()).unwrap_or(0),
            is_replica: field("role").is_some_and(|role| role == "slave"),
        }
    }

    /// Whether it is a replica. A replica has what its primary has, and takes no items.
    pub(crate) fn is_replica(&self) -> bool {
        self.is_replica
    }

    /// Whether `now` is surely this process, with the data that it had. One that was a replica for
    /// a while has the data of its primary.
    fn continues_as(&self, now: &Self) -> bool {
        // A primary gets another ID, and no second one, with its first replica.
        let same_data = self.replication == now.replication || now.replication_before.is_none();
        let same_process = self.run_id == now.run_id && !self.run_id.is_empty();
        same_process && same_data && !now.is_replica
    }
}

impl Mark {
    /// The mark of a filter as it is now.
    pub(crate) fn of(seen: &Seen) -> Self {
        Self {
            identity: seen.identity.clone(),
            items: seen.items,
            process: seen.process.clone(),
            replicated: None,
        }
    }

    /// Notes that `new` new items are confirmed. `replicated`: replicas have all items,
    /// and the stream had them before this byte.
    pub(crate) fn confirm(&mut self, new: u64, replicated: Option<u64>) {
        self.items = self.items.map(|items| items.saturating_add(new));
        self.replicated = replicated;
    }

    /// Notes that the filter has moved to this process with all its items.
    pub(crate) fn move_to(&mut self, process: &Process) {
        self.process = process.clone();
        self.replicated = None;
    }

    /// Whether the same process answers as before.
    pub(crate) fn is_at(&self, process: &Process) -> bool {
        self.process.continues_as(process)
    }

    /// Notes that this process answers, and has all items.
    pub(crate) fn follow(&mut self, process: Process) {
        if !self.process.continues_as(&process) {
            self.replicated = None;
        }
        self.process = process;
    }

    /// Whether a filter as it is seen now has all items.
    pub(crate) fn judged(&self, now: &Seen) -> Verdict {
        let other = self.identity.as_ref().zip(now.identity.as_ref());
        if other.is_some_and(|(before, now)| before != now) {
            return Verdict::Lost("the key holds another filter than before".to_owned());
        }
        let (before, process) = (&self.process, &now.process);
        let fewer = self.items.zip(now.items).filter(|(least, counted)| counted < least);
        if before.continues_as(process) {
            return match fewer {
                Some((least, counted)) => {
                    Verdict::Lost(format!("the filter counts {counted} items and had {least}"))
                }
                None => Verdict::Proved,
            };
        }
        let is_next = process.replication_before.as_ref() == Some(&before.replication);
        let has_all = is_next && self.replicated.is_some_and(|end| end < process.has_before);
        if has_all && fewer.is_none() && !process.is_replica {
            Verdict::Proved
        } else {
            Verdict::Unproved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(info: &str) -> Process {
        Process::of(&Info(info.to_owned()))
    }

    fn seen(info: &str) -> Seen {
        Seen { identity: Some("f".to_owned()), items: Some(10), process: process(info) }
    }

    const FIRST: &str = "run_id:1\r\nrole:master\r\nmaster_replid:a\r\nmaster_replid2:000\r\n";

    /// A row for each thing that may answer: is it proved without more, and with replicas that had
    /// the stream up to byte 100?
    #[test]
    fn another_process_has_the_items_only_if_something_proves_it() {
        let rows = [
            (FIRST, [true, true]),
            // Its first replica gives a process another ID, and no second one.
            ("run_id:1\nmaster_replid:b\nmaster_replid2:000", [true, true]),
            // It was a replica for a while, or is one.
            ("run_id:1\nmaster_replid:c\nmaster_replid2:b\nsecond_repl_offset:900", [false; 2]),
            ("run_id:1\nrole:slave\nmaster_replid:b\nmaster_replid2:000", [false; 2]),
            // Restarted: with an append-only file, perhaps an older one; without one; from RDB
            // files of two ages.
            ("run_id:2\nmaster_replid:b\nmaster_replid2:0\naof_enabled:1", [false; 2]),
            ("run_id:2\nmaster_replid:b\nmaster_replid2:0\naof_enabled:0", [false; 2]),
            (
                "run_id:2\nmaster_replid:b\nmaster_replid2:a\nsecond_repl_offset:101\n\
                 aof_enabled:1",
                [false, true],
            ),
            ("run_id:2\nmaster_replid:b\nmaster_replid2:a\nsecond_repl_offset:100", [false; 2]),
            // A replica of it, and a replica of another one, or of that replica.
            ("run_id:3\nrole:slave\nmaster_replid:a\nmaster_replid2:0\naof_enabled:1", [false; 2]),
            ("run_id:3\nmaster_replid:b\nmaster_replid2:c\nsecond_repl_offset:900", [false; 2]),
            // It does not say.
            ("", [false; 2]),
        ];
        for (info, expected) in rows {
            for (kind, expected) in expected.into_iter().enumerate() {
                let mut mark = Mark::of(&seen(FIRST));
                mark.confirm(0, (kind == 1).then_some(100));
                let now = seen(info);
                let verdict = if expected { Verdict::Proved } else { Verdict::Unproved };
                assert_eq!(mark.judged(&now), verdict, "{info} {kind}");
                // What is proved once is followed.
                mark.follow(now.process.clone());
                let stays = !info.is_empty() && !info.contains("role:slave");
                assert_eq!(mark.judged(&now) == Verdict::Proved, stays, "{info} {kind}");
            }
        }
    }

    #[test]
    fn another_filter_and_one_that_counts_less_are_lost() {
        let mut mark = Mark::of(&seen(FIRST));
        mark.confirm(3, None);
        let mut now = seen(FIRST);
        assert!(matches!(mark.judged(&now), Verdict::Lost(why) if why.contains("counts 10")));
        now.items = Some(13);
        assert_eq!(mark.judged(&now), Verdict::Proved);
        now.identity = Some("g".to_owned());
        assert!(matches!(mark.judged(&now), Verdict::Lost(why) if why.contains("another filter")));
    }
}
