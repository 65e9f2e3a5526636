//! CPU cost of an item in the server, in single commands and in batches, in small, large and deep
//! filters.
//!
//! A workload is an operation and a batch size on one filter. Contenders take turns of 20,000
//! items. Each turn gives two figures: the CPU time of the server's main thread, which is the
//! resource that operators run out of, and the throughput of the client. With few processors the
//! throughput also measures the client.
//!
//! A turn begins with caches that the other contenders have filled. Shorter turns vary less but
//! mostly measure that.
//!
//! Each start of a server has another memory layout and another seed of its command table. A
//! collision in that table costs a single command 70 of its 4,500 instructions. So the servers are
//! started several times in the stages that have targets, most often in the small filter, which has
//! targets for single commands. A ratio is the median over starts, and the tables show its range.
//! For single commands, tables of one or three starts are less reliable.

use crate::{
    contender::{self, BY_HAND, Contender, FLOOR, OURS, Rival},
    counting, latency,
    measure::Starts,
    payload::{Items, MEMBERS, Op, STRANGERS},
    plot::Plot,
    report::{Bound, Section},
};

/// A filter, and how often it is measured.
struct Stage {
    title: &'static str,
    capacity: u64,
    /// Members that the filter holds when the measurement begins.
    filled: u64,
    /// How often the servers are started.
    starts: u64,
    /// Rounds of turns after each start.
    rounds: u64,
}

/// A stage continues with the filters of the stage before it if both have the same capacity.
const STAGES: [Stage; 4] = [
    Stage {
        title: "2 M items, 30 % full",
        capacity: 2_000_000,
        filled: 600_000,
        starts: 9,
        rounds: 5,
    },
    Stage {
        title: "100 M items, 30 % full",
        capacity: 100_000_000,
        filled: 30_000_000,
        starts: 3,
        rounds: 5,
    },
    // The measurement adds the last items. With one more the filter would grow.
    Stage {
        title: "100 M items, full",
        capacity: 100_000_000,
        filled: 99_000_000,
        starts: 1,
        rounds: 11,
    },
    // 2,000 * (2^11 - 1) items make the twelfth layer of a peer. This module has pages above one
    // layer.
    Stage {
        title: "Reserved for 2,000, with 4.5 M items",
        capacity: 2_000,
        filled: 4_500_000,
        starts: 1,
        rounds: 11,
    },
];

const BATCHES: [u64; 4] = [1, 10, 100, 1000];
/// Items in a turn. Eleven turns for each batch size add 0.9 million items to a filter.
const TURN: u64 = 20_000;

/// The operation, and the kind of its items.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    AddNew,
    AddKnown,
    Hit,
    Miss,
}

const WORKS: [(Work, &str); 4] = [
    (Work::AddNew, "add, new"),
    (Work::AddKnown, "add, known"),
    (Work::Hit, "exists, hit"),
    (Work::Miss, "exists, miss"),
];

/// The samples of one contender in one workload.
#[derive(Clone, Default)]
struct Samples {
    cpu: Starts,
    wall: Starts,
}

/// A measured workload: the samples of each contender, in the order of the contenders.
struct Measured {
    work: Work,
    batch: u64,
    samples: Vec<Samples>,
}

pub(crate) fn run() -> Option<Section> {
    let mut section = Section::new("In the server");
    section.say(&format!(
        "CPU nanoseconds of the server's main thread per item: the lowest of several turns of \
         {TURN} items of 17 bytes, at an error rate of 1 %. In brackets: the ratio to an empty \
         module (the floor), a median over rounds. The speed of the machine changes from turn to \
         turn by a factor of up to two, more than the contenders differ. So compare contenders \
         only by the ratios, here and in the targets: all are medians over rounds. Nanoseconds and \
         throughput (million items a second of one pipelining client) are from the fastest moments \
         of the machine."
    ));
    let contenders = contender::all();
    let mut rivals: Vec<Rival> = Vec::new();
    let (mut capacity, mut members) = (0, 0);
    for stage in &STAGES {
        eprintln!("bench: {}", stage.title);
        let entrants = entrants(&contenders, stage);
        let mut measured = workloads(entrants.len());
        for start in 0..stage.starts {
            if stage.capacity != capacity || start > 0 {
                rivals.clear();
                let started = entrants
                    .iter()
                    .map(|contender| Rival::with_filter(contender, stage.capacity, &[]));
                rivals.extend(started);
                (capacity, members) = (stage.capacity, 0);
            }
            contender::fill(&mut rivals, members, stage.filled);
            members = stage.filled;
            measure(&mut rivals, stage, start, &mut members, &mut measured);
        }
        section.heading(stage.title);
        section.say(&match stage.starts {
            1 => format!("{} turns.", stage.rounds),
            starts => format!(
                "{} turns after each of {starts} starts of the servers. Figures are medians over \
                 the starts. A ratio is followed by the smallest and the largest ratio of a start.",
                stage.rounds
            ),
        });
        tabulate(&mut section, stage, &rivals, &measured);
        if stage.filled < 100_000_000 / 2 && stage.capacity > 2_000 {
            section.say(&format!("Latency, {}:", stage.title));
            latency::measure(&mut section, &mut rivals, stage.filled);
        }
        targets(&mut section, stage, &rivals, &measured);
    }
    drop(rivals);
    eprintln!("bench: COUNTING");
    counting::measure(&mut section);
    Some(section)
}

/// The contenders that support the stage: a filter in a string does not grow.
fn entrants<'a>(contenders: &'a [Contender], stage: &Stage) -> Vec<&'a Contender> {
    let grows = stage.filled > stage.capacity;
    let mut entrants: Vec<_> = contenders.iter().collect();
    entrants.retain(|contender| !(grows && contender.name == BY_HAND));
    entrants
}

/// Every workload, without samples.
fn workloads(rivals: usize) -> Vec<Measured> {
    let of = |batch| {
        WORKS.map(|(work, _)| Measured { work, batch, samples: vec![Samples::default(); rivals] })
    };
    BATCHES.into_iter().flat_map(of).collect()
}

/// Measures all workloads after one more start; the contenders take turns. `members` grows by the
/// number of items added.
fn measure(
    rivals: &mut [Rival],
    stage: &Stage,
    start: u64,
    members: &mut u64,
    all: &mut [Measured],
) {
    for &mut Measured { work, batch, ref mut samples } in all {
        for Samples { cpu, wall } in samples.iter_mut() {
            cpu.begin();
            wall.begin();
        }
        // The first round warms up.
        for round in 0..=stage.rounds {
            let seed = start * (stage.rounds + 1) + round;
            let (op, items) = match work {
                Work::AddNew if round > 0 => {
                    *members += TURN;
                    (Op::Add, Items::InTurn { set: MEMBERS, numbers: *members - TURN..*members })
                }
                Work::AddNew | Work::AddKnown => {
                    (Op::Add, Items::scattered(MEMBERS, stage.filled, TURN, seed))
                }
                Work::Hit => (Op::Exists, Items::scattered(MEMBERS, stage.filled, TURN, seed)),
                Work::Miss => (Op::Exists, Items::scattered(STRANGERS, 1_000_000_000, TURN, seed)),
            };
            for turn in 0..rivals.len() {
                let at = (turn + seed as usize) % rivals.len();
                let cost = rivals[at].work(op, &items, batch);
                check(&rivals[at].name, work, round, cost.ones);
                if round > 0 {
                    samples[at].cpu.push(cost.cpu / TURN as f64);
                    samples[at].wall.push(cost.wall / TURN as f64);
                }
            }
        }
    }
}

/// Ends the run if a filter gives wrong answers. Ten times the error rate is more than chance.
fn check(name: &str, work: Work, round: u64, ones: u64) {
    if name == FLOOR || name == BY_HAND {
        return;
    }
    let right = match work {
        Work::AddNew if round == 0 => true,
        Work::AddNew => ones >= TURN * 9 / 10,
        Work::AddKnown => ones == 0,
        Work::Hit => ones == TURN,
        Work::Miss => ones <= TURN / 10,
    };
    assert!(right, "{name} gives wrong answers: {ones} of {TURN} are 1");
}

fn position(rivals: &[Rival], name: &str) -> usize {
    rivals.iter().position(|rival| rival.name == name).expect("it is always measured")
}

fn tabulate(section: &mut Section, stage: &Stage, rivals: &[Rival], measured: &[Measured]) {
    let floor = position(rivals, FLOOR);
    let head: Vec<String> = ["work", "batch"]
        .into_iter()
        .chain(rivals.iter().map(|rival| rival.name.as_str()))
        .map(String::from)
        .collect();
    let mut rows = |cell: &dyn Fn(&Measured, usize) -> String| {
        let mut rows = Vec::new();
        for (work, name) in WORKS {
            for one in measured.iter().filter(|one| one.work == work) {
                let cells = (0..rivals.len()).map(|at| cell(one, at));
                rows.push(
                    [name.to_owned(), one.batch.to_string()].into_iter().chain(cells).collect(),
                );
            }
        }
        section.table(&head, &rows);
    };
    rows(&|one, at| {
        let cpu = &one.samples[at].cpu;
        let base = &one.samples[floor].cpu;
        let (least, ratio) = (cpu.least(), cpu.over(base));
        match cpu.spread(base) {
            Some((from, to)) if at != floor => {
                format!("{least:.0} ({ratio:.2}, {from:.2} to {to:.2})")
            }
            _ => format!("{least:.0} ({ratio:.2})"),
        }
    });
    rows(&|one, at| format!("{:.2} M/s", 1000.0 / one.samples[at].wall.least()));
    if stage.capacity == 100_000_000 && stage.filled < stage.capacity / 2 {
        let line = |at: usize| {
            let misses = measured.iter().filter(|one| one.work == Work::Miss);
            misses.map(|one| (one.batch as f64, one.samples[at].cpu.least())).collect()
        };
        section.plot(Plot {
            file: "batches",
            title: format!("Larger batches cost less for each absent item: {}", stage.title),
            x_label: "items in a command",
            y_label: "server CPU, ns per item",
            lines: rivals
                .iter()
                .enumerate()
                .filter(|(_, rival)| rival.name != BY_HAND)
                .map(|(at, rival)| (rival.name.clone(), line(at)))
                .collect(),
        });
    }
}

/// Adds the targets that this stage decides: against the floor, and against each peer.
fn targets(section: &mut Section, stage: &Stage, rivals: &[Rival], measured: &[Measured]) {
    // Index of the stage, batch size, operations, the largest ratio to the floor, the least ratio
    // of a peer to this module.
    type Goal = (usize, u64, &'static [Work], Option<f64>, f64);
    const MOST: &[Work] = &[Work::AddNew, Work::Hit, Work::Miss];
    const GOALS: [Goal; 4] = [
        (0, 1, MOST, Some(1.12), 1.3),
        (0, 100, MOST, Some(1.35), 1.5),
        (1, 100, MOST, Some(1.6), 2.5),
        (3, 100, &[Work::Miss], None, 3.0),
    ];
    let (floor, ours) = (position(rivals, FLOOR), position(rivals, OURS));
    for (at, batch, works, floors, faster) in GOALS {
        for one in measured.iter().filter(|one| one.batch == batch && works.contains(&one.work)) {
            if STAGES[at].title != stage.title {
                continue;
            }
            let name =
                WORKS.iter().find(|(work, _)| *work == one.work).map_or("", |(_, name)| name);
            let work = format!("{name}, batch of {batch}, {}", stage.title);
            if let Some(floors) = floors {
                let ratio = one.samples[ours].cpu.over(&one.samples[floor].cpu);
                section.target(&format!("{work}: against the floor"), Bound::AtMost(floors), ratio);
            }
            for (peer, rival) in rivals.iter().enumerate() {
                if ![FLOOR, OURS, BY_HAND].contains(&rival.name.as_str()) {
                    let ratio = one.samples[peer].cpu.over(&one.samples[ours].cpu);
                    let by_floor = one.samples[peer].cpu.over(&one.samples[floor].cpu);
                    section.target(
                        &format!("{work}: faster than {} (the floor: {by_floor:.2}x)", rival.name),
                        Bound::AtLeast(faster),
                        ratio,
                    );
                }
            }
        }
    }
}
