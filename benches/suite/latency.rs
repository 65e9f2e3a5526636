//! Latency of a client that sends one item at a time and does not pipeline.
//!
//! Commands are sent at a fixed rate, far below the limit of the server. A wait is measured from
//! the moment when the command was due. So a stall of the server delays all commands that were due
//! during it, as users see it.

use std::time::{Duration, Instant};

use crate::{
    contender::Rival,
    measure::percentile,
    payload::{self, Items, MEMBERS, Op, STRANGERS, Speech},
    report::Section,
};

const PER_SECOND: u64 = 4_000;
/// Commands in a turn.
const TURN: u64 = 2_000;
const ROUNDS: u64 = 4;

/// Adds a table for filters with `filled` members.
pub(crate) fn measure(section: &mut Section, rivals: &mut [Rival], filled: u64) {
    let mut rows = Vec::new();
    for (op, set, below, title) in [
        (Op::Exists, MEMBERS, filled, "exists, hit"),
        (Op::Exists, STRANGERS, 1_000_000_000, "exists, miss"),
        (Op::Add, MEMBERS, filled, "add, known"),
    ] {
        let mut waits = vec![Vec::new(); rivals.len()];
        for round in 0..ROUNDS {
            let items = Items::scattered(set, below, TURN, 100 + round);
            for (rival, waits) in rivals.iter_mut().zip(&mut waits) {
                turn(rival, op, &items, waits);
            }
        }
        let cells = waits.iter().map(|waits| {
            let [p50, p99, p999] =
                [0.5, 0.99, 0.999].map(|share| percentile(waits, share) / 1000.0);
            format!("{p50:.0} / {p99:.0} / {p999:.0}")
        });
        rows.push([title.to_owned()].into_iter().chain(cells).collect());
    }
    section.say(&format!(
        "Microseconds until the reply, p50 / p99 / p99.9: one item a command, {PER_SECOND} \
         commands a second, no pipelining."
    ));
    let head: Vec<&str> =
        ["work"].into_iter().chain(rivals.iter().map(|rival| rival.name.as_str())).collect();
    section.table(&head, &rows);
}

/// Sends the items one by one, at a fixed rate; adds the wait for each reply to `waits`, in
/// nanoseconds.
pub(crate) fn turn(rival: &mut Rival, op: Op, items: &Items, waits: &mut Vec<f64>) {
    let replies = match rival.speech {
        Speech::Commands | Speech::Insert(_) | Speech::Cuckoo => 1,
        Speech::Bits { probes, .. } => probes as usize,
    };
    let commands: Vec<Vec<u8>> =
        items.each_alone().map(|item| payload::commands(rival.speech, op, "k", &item, 1)).collect();
    let begin = Instant::now();
    for (i, command) in (0..).zip(&commands) {
        let due = begin + Duration::from_nanos(i * 1_000_000_000 / PER_SECOND);
        // Spins: a sleep takes longer than a command.
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        rival.server.round_trip(command, replies);
        waits.push(due.elapsed().as_nanos() as f64);
    }
}
