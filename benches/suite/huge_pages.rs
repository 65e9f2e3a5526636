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
/// Items of a turn. After a shorter one a third of the time would be that of a cold cache of the
/// processor: another server had its turn before.
const TURN: u64 = 200_000;
const ROUNDS: u64 = 15;
/// Turns of half a second in which latency is measured after a snapshot, at least.
const LEAST_HALVES: u64 = 12;
/// Items added while a child saves.
const ADDED: u64 = 20_000;
/// Snapshots after which latency is measured.
const SNAPSHOTS: u64 = 4;
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
    if !has_them(&rivals[2].server) {
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
    let ours = &mut rivals[1..];
    section.say(&format!(
        "After each of {SNAPSHOTS} snapshots with {ADDED} additions: microseconds until the reply \
         of single commands, 4,000 a second, half queries and half additions, from the end of the \
         child until the huge pages are back, {LEAST_HALVES} turns of half a second at least. \
         Small pages are measured for the same time, while the other server's thread has no work."
    ));
    after_snapshots(&mut section, ours);
    section.say(&format!(
        "Fork: the time of a BGSAVE's fork. Copied: resident memory that belongs to the server \
         alone, gained by {ADDED} additions while a child has a snapshot. Resident: of the whole \
         server, with this filter, and with one of 1 GiB, 500 items in and {ADDED} queried, beside \
         it. Thread: its CPU time while nothing changes."
    ));
    let columns: Vec<[String; 6]> = ours.iter_mut().map(others).collect();
    let head: Vec<&str> =
        [""].into_iter().chain(ours.iter().map(|rival| rival.name.as_str())).collect();
    let titles = [
        "in huge pages, MiB",
        "fork, ms",
        "copied, MiB",
        "thread, ms a minute",
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
pub(crate) fn switch(server: &mut Server, value: &str) {
    let set = ["bf.huge-pages", "bf-huge-pages"]
        .map(|name| server.call::<String>("CONFIG", &["SET", name, value]).is_ok());
    assert!(set.contains(&true), "the module has no setting huge-pages");
}

/// Bytes in huge pages, as the kernel counts them: INFO shows what the module's thread saw.
fn huge(server: &Server) -> u64 {
    memory(server, "AnonHugePages:") as u64
}

/// Waits until most of the filter for `CAPACITY` items is in huge pages; false if that does not
/// happen.
pub(crate) fn has_them(server: &Server) -> bool {
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

/// Adds the table of latency while huge pages come back.
fn after_snapshots(section: &mut Section, rivals: &mut [Rival]) {
    let mut waits = vec![Vec::new(); rivals.len()];
    let mut added = 0;
    for round in 0..SNAPSHOTS {
        let mut halves = LEAST_HALVES;
        // Huge pages first: they set the time for both.
        for at in [1, 0] {
            let rival = &mut rivals[at];
            snapshot(rival, added..added + ADDED);
            let begin = Instant::now();
            for half in 0_u64.. {
                let back = at == 0 || huge(&rival.server) >= CAPACITY || begin.elapsed() > TIMEOUT;
                if half >= halves && back {
                    halves = half;
                    break;
                }
                let (op, set) =
                    if half % 2 == 0 { (Op::Exists, MEMBERS) } else { (Op::Add, STRANGERS) };
                let items = Items::scattered(set, FILLED, 2_000, round * 1_000 + half);
                latency::turn(rival, op, &items, &mut waits[at]);
            }
        }
        added += ADDED;
    }
    let late = |waits: &[f64]| percentile(waits, 0.999) / 1e6;
    let difference = late(&waits[1]) - late(&waits[0]);
    section.target("p99.9, huge pages, ms longer", Bound::AtMostMs(2.0), difference);
    let shares = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("longest", 1.0)];
    let rows: Vec<Vec<String>> = shares
        .iter()
        .map(|&(title, share)| {
            let cells =
                waits.iter().map(|waits| format!("{:.0}", percentile(waits, share) / 1000.0));
            [title.to_owned()].into_iter().chain(cells).collect()
        })
        .collect();
    let names = rivals.iter().map(|rival| rival.name.as_str());
    let head: Vec<&str> = ["latency, us"].into_iter().chain(names).collect();
    section.table(&head, &rows);
}

/// Makes a snapshot, adds items meanwhile, and waits for the end of the child. Returns the time of
/// the fork in milliseconds, and the bytes that the additions copied.
fn snapshot(rival: &mut Rival, numbers: std::ops::Range<u64>) -> (f64, f64) {
    rival.server.run::<()>("CONFIG SET rdb-key-save-delay 1000000");
    rival.server.run::<()>("BGSAVE");
    let fork = rival.server.info_number("latest_fork_usec") as f64 / 1000.0;
    let before = memory(&rival.server, "Private_Dirty:");
    rival.work(Op::Add, &Items::InTurn { set: STRANGERS, numbers }, 100);
    let copied = memory(&rival.server, "Private_Dirty:") - before;
    while rival.server.info("rdb_bgsave_in_progress") == "1" {
        sleep(Duration::from_millis(5));
    }
    (fork, copied)
}

/// The figures of the last table, in its order.
fn others(rival: &mut Rival) -> [String; 6] {
    let bytes = huge(&rival.server) as f64;
    let resident = memory(&rival.server, "Rss:");
    let before = thread_time(&rival.server);
    sleep(Duration::from_secs(10));
    let idle = (thread_time(&rival.server) - before) * 6.0;
    let (fork, copied) = snapshot(rival, FILLED..FILLED + ADDED);

    rival.server.run::<()>(SPARSE);
    rival.server.run::<()>("RENAME k full");
    rival.server.run::<()>("RENAME sparse k");
    rival.work(Op::Add, &Items::InTurn { set: MEMBERS, numbers: 0..500 }, 100);
    rival.work(Op::Exists, &Items::InTurn { set: STRANGERS, numbers: 0..ADDED }, 100);
    // Some rounds of the module's thread.
    sleep(Duration::from_secs(5));
    let sparse = memory(&rival.server, "Rss:");
    [
        format!("{:.0}", bytes / MIB),
        format!("{fork:.2}"),
        format!("{:.0}", copied / MIB),
        format!("{idle:.1}"),
        format!("{:.0}", resident / MIB),
        format!("{:.0}", sparse / MIB),
    ]
}

/// Milliseconds of CPU that the module's thread took; 0 if there is none.
fn thread_time(server: &Server) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("the threads");
    let time = |path: std::path::PathBuf| {
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let schedstat = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let run: f64 = schedstat.split(' ').next()?.parse().ok()?;
        (name.trim() == "bf-huge-pages").then_some(run / 1e6)
    };
    threads.filter_map(|thread| time(thread.ok()?.path())).sum()
}

/// A figure of the memory of a server, in bytes.
fn memory(server: &Server, field: &str) -> f64 {
    let map = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", server.pid()))
        .expect("the memory of the server");
    let line = map.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024.0
}
