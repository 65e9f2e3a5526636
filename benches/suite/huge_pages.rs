//! Huge pages in a large filter: server CPU per item, latency, the fork and the pages that it
//! copies, and resident memory, without and with them.
//!
//! Both contenders are this module; one has the setting `huge-pages no`. The floor gives the ratios
//! that have targets.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    contender::{self, FLOOR, OURS, Rival},
    latency,
    measure::{Series, percentile},
    payload::{Items, MEMBERS, Op, STRANGERS},
    report::{Bound, Section},
    server::Server,
};

const CAPACITY: u64 = 100_000_000;
const FILLED: u64 = 30_000_000;
const TURN: u64 = 20_000;
const ROUNDS: u64 = 15;
/// A filter of about 1 GiB that holds few items.
const SPARSE: &str = "BF.RESERVE sparse 0.01 800000000";
const MIB: f64 = (1_u64 << 20) as f64;
/// The thread of the module looks at all filters once a second; this is for machines that are busy.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn run() -> Option<Section> {
    let contenders = contender::all();
    let start = |name: &str, title: &str, setting: &str| {
        let contender = contenders.iter().find(|one| one.name == name).expect("always there");
        let mut rival = Rival::with_filter(contender, CAPACITY, &[]);
        rival.name = title.into();
        if name == OURS {
            switch(&mut rival.server, setting);
        }
        rival
    };
    let mut rivals = vec![
        start(FLOOR, FLOOR, ""),
        start(OURS, "small pages", "no"),
        start(OURS, "huge pages", "yes"),
    ];
    contender::fill(&mut rivals[1..], 0, FILLED);
    if !has_huge_pages(&mut rivals[2].server) {
        eprintln!("bench: there are no huge pages here: see docs/operations.md");
        return None;
    }
    let mut section = Section::new("Huge pages");
    section.say(&format!(
        "A filter for {CAPACITY} items at 1 %, {FILLED} in, with the setting `huge-pages` no and \
         yes. Server CPU in nanoseconds per item, medians of {ROUNDS} rounds of {TURN} items; in \
         brackets the ratio to the floor, the median over rounds."
    ));
    commands(&mut section, &mut rivals);
    section.say(&format!(
        "Fork: the time of a BGSAVE's fork. Copied: resident memory that belongs to the server \
         alone, gained by {TURN} additions while a child has a snapshot. Latency: p50 / p99 / \
         p99.9 of single queries, 4,000 a second, in the seconds after that child has ended, while \
         the huge pages come back. Resident: of the whole server, with this filter, and with one \
         of 1 GiB, 500 items in and {TURN} queried, beside it."
    ));
    let columns: Vec<[String; 6]> = rivals[1..].iter_mut().map(others).collect();
    let head: Vec<&str> =
        [""].into_iter().chain(rivals[1..].iter().map(|rival| rival.name.as_str())).collect();
    let titles = [
        "in huge pages, MiB",
        "fork, ms",
        "copied, MiB",
        "latency after it, us",
        "resident, MiB",
        "resident with a sparse filter, MiB",
    ];
    let rows: Vec<Vec<String>> = (titles.iter().enumerate())
        .map(|(at, title)| {
            let cells = columns.iter().map(|column| column[at].clone());
            [(*title).to_owned()].into_iter().chain(cells).collect()
        })
        .collect();
    section.table(&head, &rows);
    Some(section)
}

/// Sets `huge-pages`, whose prefix depends on the server.
fn switch(server: &mut Server, value: &str) {
    let set = ["bf.huge-pages", "bf-huge-pages"]
        .map(|name| server.call::<String>("CONFIG", &["SET", name, value]).is_ok());
    assert!(set.contains(&true), "the module has no setting huge-pages");
}

fn huge(server: &mut Server) -> u64 {
    server.info_number("bf_huge_page_bytes")
}

/// Waits until most of the filter is in huge pages; false if that does not happen.
fn has_huge_pages(server: &mut Server) -> bool {
    let begin = Instant::now();
    while huge(server) < CAPACITY && begin.elapsed() < TIMEOUT {
        sleep(Duration::from_millis(20));
    }
    huge(server) >= CAPACITY
}

fn commands(section: &mut Section, rivals: &mut [Rival]) {
    let mut rows = Vec::new();
    let mut members = FILLED;
    for batch in [1, 100] {
        for title in ["add, new", "exists, hit", "exists, miss"] {
            let mut cpu = vec![Series::default(); rivals.len()];
            for round in 0..ROUNDS {
                let (op, items) = match title {
                    "add, new" => {
                        members += TURN;
                        let numbers = members - TURN..members;
                        (Op::Add, Items::InTurn { set: MEMBERS, numbers })
                    }
                    "exists, hit" => (Op::Exists, Items::scattered(MEMBERS, FILLED, TURN, round)),
                    _ => (Op::Exists, Items::scattered(STRANGERS, 1_000_000_000, TURN, round)),
                };
                for turn in 0..rivals.len() {
                    let at = (turn + round as usize) % rivals.len();
                    cpu[at].push(rivals[at].work(op, &items, batch).cpu / TURN as f64);
                }
            }
            let cell = |one: &Series| format!("{:.0} ({:.2})", one.median(), one.over(&cpu[0]));
            rows.push(
                [title.to_owned(), batch.to_string()]
                    .into_iter()
                    .chain(cpu.iter().map(cell))
                    .collect(),
            );
            if batch == 100 {
                let work = format!("{title}, batch of 100, 100 M items, huge pages: the floor");
                section.target(&work, Bound::AtMost(1.2), cpu[2].over(&cpu[0]));
            }
        }
    }
    let names = rivals.iter().map(|rival| rival.name.as_str());
    let head: Vec<&str> = ["work", "batch"].into_iter().chain(names).collect();
    section.table(&head, &rows);
}

/// The figures of the second table, in its order.
fn others(rival: &mut Rival) -> [String; 6] {
    let memory = |server: &Server, field| memory(server, field) / MIB;
    let bytes = huge(&mut rival.server);
    let resident = memory(&rival.server, "Rss:");
    rival.server.run::<()>("CONFIG SET rdb-key-save-delay 1000000");
    rival.server.run::<()>("BGSAVE");
    let fork = rival.server.info_number("latest_fork_usec") as f64 / 1000.0;
    let before = memory(&rival.server, "Private_Dirty:");
    rival.work(Op::Add, &Items::InTurn { set: STRANGERS, numbers: 0..TURN }, 100);
    let copied = memory(&rival.server, "Private_Dirty:") - before;
    while rival.server.info("rdb_bgsave_in_progress") == "1" {
        sleep(Duration::from_millis(5));
    }
    let mut waits = Vec::new();
    for round in 0..6 {
        let items = Items::scattered(MEMBERS, FILLED, 2_000, round);
        latency::turn(rival, Op::Exists, &items, &mut waits);
    }
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| percentile(&waits, share) / 1000.0);

    rival.server.run::<()>(SPARSE);
    rival.server.run::<()>("RENAME k full");
    rival.server.run::<()>("RENAME sparse k");
    rival.work(Op::Add, &Items::InTurn { set: MEMBERS, numbers: 0..500 }, 100);
    rival.work(Op::Exists, &Items::InTurn { set: STRANGERS, numbers: 0..TURN }, 100);
    // Two rounds of the module's thread.
    sleep(Duration::from_secs(3));
    let sparse = memory(&rival.server, "Rss:");
    [
        format!("{:.0}", bytes as f64 / MIB),
        format!("{fork:.2}"),
        format!("{copied:.0}"),
        format!("{p50:.0} / {p99:.0} / {p999:.0}"),
        format!("{resident:.0}"),
        format!("{sparse:.0}"),
    ]
}

/// A figure of the memory of a server, in bytes.
fn memory(server: &Server, field: &str) -> f64 {
    let map = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", server.pid()))
        .expect("the memory of the server");
    let line = map.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024.0
}
