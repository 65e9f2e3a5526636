//! Packed batches: BF.BULKADD and BF.BULKEXISTS against the floor of BF.MADD and BF.MEXISTS, and
//! how many items a second one client loads.
//!
//! First part: server CPU per item. Every way of sending the items has a server and a filter of its
//! own, and the ways take turns. The floor is the module without a filter, which gets its items as
//! arguments: no command with an argument for each item can take less time.
//!
//! Second part: wall time of a client that makes its items and packs them as it goes, in one
//! connection, while another thread of it reads the answers. This program is the client in Rust,
//! `load.py` in Python.

use std::process::Command;

use crate::{
    contender::{self, BY_HAND, FLOOR, OURS, Rival},
    measure::Starts,
    payload::{Format, Items, MEMBERS, Op, STRANGERS, packed},
    report::{Bound, Section, target_dir},
    server::{Cost, Server},
};

/// A filter of the first part.
struct Stage {
    title: &'static str,
    capacity: u64,
    filled: u64,
    /// How often the servers are started.
    starts: u64,
    /// The largest ratio to the floor that is aimed at: for 17-byte items, for `WIDTH 8`.
    goals: [Option<f64>; 2],
}

const STAGES: [Stage; 2] = [
    Stage {
        title: "2 M items, 30 % full",
        capacity: 2_000_000,
        filled: 600_000,
        starts: 5,
        goals: [Some(0.33), Some(0.3)],
    },
    Stage {
        title: "100 M items, 30 % full",
        capacity: 100_000_000,
        filled: 30_000_000,
        starts: 2,
        goals: [None, None],
    },
];

/// Items in a batch.
const BATCH: u64 = 1_000;
/// Items in a turn.
const TURN: u64 = 20_000;
/// Rounds of turns after each start; one more warms up.
const ROUNDS: u64 = 5;
/// A peer's time, of ours.
const FASTER: f64 = 9.0;

const WORKS: [&str; 4] = ["add, new", "add, one known", "exists, hit", "exists, miss"];
/// The work without a target: of each batch all items but the last are new, so that BF.BULKADD is
/// not replicated as it was called.
const ONE_KNOWN: &str = WORKS[1];
const FORMATS: [Format; 3] = [Format::Lines, Format::Lengths, Format::Width];

/// A filter, and how its items are sent: packed, or as arguments.
struct Way {
    name: String,
    rival: Rival,
    format: Option<Format>,
}

pub(crate) fn run() -> Option<Section> {
    let mut section = Section::new("Packed batches");
    section.say(&format!(
        "CPU nanoseconds of the server's main thread per item, in batches of {BATCH}, and in \
         brackets the ratio to the floor. The floor, the peers and the column MADD/MEXISTS get one \
         argument per item. An item has 17 bytes, and with WIDTH 8 it is a 64-bit integer. \"One \
         known\": one item of each batch was added before, so the new ones are packed again for \
         replication. A figure is the lowest of {ROUNDS} turns of {TURN} items after each start of \
         the servers, then the median over starts. A ratio is the median over rounds and starts."
    ));
    for stage in &STAGES {
        eprintln!("bench: packed, {}", stage.title);
        let (names, samples) = measure(stage);
        section.heading(stage.title);
        tabulate(&mut section, stage, &names, &samples);
    }
    load(&mut section);
    Some(section)
}

/// Starts the servers and fills the filters.
fn ways(stage: &Stage) -> Vec<Way> {
    let mut ways = Vec::new();
    for contender in contender::all().iter().filter(|contender| contender.name != BY_HAND) {
        let start = || Rival::with_filter(contender, stage.capacity, &[]);
        if contender.name == OURS {
            ways.push(Way { name: "MADD/MEXISTS".into(), rival: start(), format: None });
            ways.extend(FORMATS.map(|format| Way {
                name: format.name().into(),
                rival: start(),
                format: Some(format),
            }));
        } else {
            ways.push(Way { name: contender.name.clone(), rival: start(), format: None });
        }
    }
    for way in ways.iter_mut().filter(|way| way.rival.name != FLOOR) {
        // Filled by our fastest command, if the contender has it.
        match way.format {
            None => contender::fill(std::slice::from_mut(&mut way.rival), 0, stage.filled),
            Some(format) => {
                for start in (0..stage.filled).step_by(100_000) {
                    let numbers = start..stage.filled.min(start + 100_000);
                    let items = Items::InTurn { set: MEMBERS, numbers };
                    send(&mut way.rival.server, format, Op::Add, &items, BATCH);
                }
            }
        }
    }
    ways
}

/// Sends prepared packed batches of `batch` items.
fn send(server: &mut Server, format: Format, op: Op, items: &Items, batch: u64) -> Cost {
    let commands: Vec<u8> = packed(format, op, "k", items, batch).flatten().collect();
    server.exchange([commands].into_iter(), items.len(), batch)
}

/// The names of the ways, and for each work the samples of each way.
fn measure(stage: &Stage) -> (Vec<String>, [Vec<Starts>; WORKS.len()]) {
    let mut samples: [Vec<Starts>; WORKS.len()] = Default::default();
    let mut names = Vec::new();
    for start in 0..stage.starts {
        let mut ways = ways(stage);
        names = ways.iter().map(|way| way.name.clone()).collect();
        for samples in &mut samples {
            samples.resize_with(ways.len(), Starts::default);
            samples.iter_mut().for_each(Starts::begin);
        }
        let mut members = stage.filled;
        for round in 0..=ROUNDS {
            let seed = start * (ROUNDS + 1) + round;
            for (work, samples) in WORKS.iter().zip(&mut samples) {
                let (op, items, right) = match *work {
                    "add, new" => {
                        members += TURN;
                        let numbers = members - TURN..members;
                        (Op::Add, Items::InTurn { set: MEMBERS, numbers }, TURN * 9 / 10..=TURN)
                    }
                    ONE_KNOWN => {
                        members += TURN;
                        let numbers = members - TURN..members;
                        let items = Items::LastKnown { set: MEMBERS, numbers, batch: BATCH };
                        (Op::Add, items, TURN * 9 / 10..=TURN - TURN / BATCH)
                    }
                    "exists, hit" => {
                        let items = Items::scattered(MEMBERS, stage.filled, TURN, seed);
                        (Op::Exists, items, TURN..=TURN)
                    }
                    _ => {
                        let items = Items::scattered(STRANGERS, 1_000_000_000, TURN, seed);
                        (Op::Exists, items, 0..=TURN / 10)
                    }
                };
                for turn in 0..ways.len() {
                    let at = (turn + seed as usize) % ways.len();
                    let Way { name, rival, format } = &mut ways[at];
                    let cost = match format {
                        None => rival.work(op, &items, BATCH),
                        Some(format) => send(&mut rival.server, *format, op, &items, BATCH),
                    };
                    assert!(
                        rival.name == FLOOR || right.contains(&cost.ones),
                        "{name}, {work}: {} of {TURN} are 1",
                        cost.ones
                    );
                    if round > 0 {
                        samples[at].push(cost.cpu / TURN as f64);
                    }
                }
            }
        }
    }
    (names, samples)
}

fn tabulate(
    section: &mut Section,
    stage: &Stage,
    names: &[String],
    samples: &[Vec<Starts>; WORKS.len()],
) {
    let at = |name: &str| names.iter().position(|known| known == name).expect("always measured");
    let floor = at(FLOOR);
    let rows: Vec<Vec<String>> = WORKS
        .iter()
        .zip(samples)
        .map(|(work, samples)| {
            let cells = samples
                .iter()
                .map(|cpu| format!("{:.0} ({:.2})", cpu.least(), cpu.over(&samples[floor])));
            [(*work).to_owned()].into_iter().chain(cells).collect()
        })
        .collect();
    let head: Vec<&str> = ["work"].into_iter().chain(names.iter().map(String::as_str)).collect();
    section.table(&head, &rows);
    for (work, samples) in WORKS.iter().zip(samples).filter(|(work, _)| **work != ONE_KNOWN) {
        for (format, goal) in [(Format::Lines, stage.goals[0]), (Format::Width, stage.goals[1])] {
            let Some(goal) = goal else { continue };
            let ours = &samples[at(format.name())];
            let work = format!("{work}, {} by {BATCH}, {}", format.name(), stage.title);
            let ratio = ours.over(&samples[floor]);
            section.target(&format!("{work}: against the floor"), Bound::AtMost(goal), ratio);
            for (peer, name) in names.iter().enumerate() {
                let own = ["MADD/MEXISTS", FLOOR].contains(&name.as_str())
                    || FORMATS.iter().any(|format| format.name() == name);
                if !own {
                    let ratio = samples[peer].over(ours);
                    section.target(
                        &format!("{work}: faster than {name}"),
                        Bound::AtLeast(FASTER),
                        ratio,
                    );
                }
            }
        }
    }
}

/// Items that the second part loads, and the capacity of its filter.
const LOADED: u64 = 20_000_000;
/// Items in a command of the second part: 180 KB of lines.
const LOAD_BATCH: u64 = 10_000;

/// Measures the wall time of clients.
fn load(section: &mut Section) {
    section.heading("Loading, wall time");
    section.say(&format!(
        "Million items a second of one client on one connection, and the server's CPU nanoseconds \
         per item. The client packs batches of {LOAD_BATCH} while it sends. It adds {LOADED} items \
         to an empty filter reserved for that many at 1 %, then queries the same items. The Rust \
         client also generates each item. In Python (redis-py, two batches ahead of the answers) \
         the items are a list of bytes, or a numpy array for WIDTH 8."
    ));
    let ours = contender::filters().into_iter().find(|contender| contender.name == OURS);
    let ours = ours.expect("it is always measured");
    let mut rows = Vec::new();
    let mut row = |client: &str, format: &str, [add, ask]: [[f64; 2]; 2]| {
        let cell = |[wall, cpu]: [f64; 2]| format!("{:.1} M/s, {cpu:.0} ns", 1000.0 / wall);
        rows.push(vec![client.into(), format.into(), cell(add), cell(ask)]);
    };
    for format in FORMATS {
        eprintln!("bench: loading by {}", format.name());
        let mut rival = Rival::with_filter(&ours, LOADED, &[]);
        let costs = [Op::Add, Op::Exists].map(|op| {
            let items = Items::InTurn { set: MEMBERS, numbers: 0..LOADED };
            let commands = packed(format, op, "k", &items, LOAD_BATCH);
            let cost = rival.server.exchange(commands, LOADED, LOAD_BATCH);
            [cost.wall / LOADED as f64, cost.cpu / LOADED as f64]
        });
        row("Rust", format.name(), costs);
    }
    let python = target_dir().join("clients/python/bin/python");
    for (format, argument) in [(Format::Lines, "lines"), (Format::Width, "numpy")] {
        if !python.exists() {
            eprintln!("bench: no redis-py and numpy: run `make test-clients` first");
            break;
        }
        eprintln!("bench: loading from Python by {}", format.name());
        let rival = Rival::with_filter(&ours, LOADED, &[]);
        let costs = ["BF.BULKADD", "BF.BULKEXISTS"].map(|command| {
            let before = rival.server.cpu();
            let output = Command::new(&python)
                .arg("benches/suite/load.py")
                .args([rival.server.port().to_string(), command.into(), argument.into()])
                .args([LOADED, LOAD_BATCH].map(|number| number.to_string()))
                .output()
                .expect("Python can be run");
            let text = String::from_utf8_lossy(&output.stdout);
            let seconds: f64 = text.trim().parse().unwrap_or_else(|_| {
                panic!("load.py: {text}{}", String::from_utf8_lossy(&output.stderr))
            });
            [seconds * 1e9, rival.server.cpu() - before].map(|time| time / LOADED as f64)
        });
        row("Python", format.name(), costs);
    }
    section.table(&["client", "format", "add, new", "exists, hit"], &rows);
}
