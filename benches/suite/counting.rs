//! CPU cost of an item in a filter with COUNTING and in a plain one: the same items, in turns.
//!
//! A round deletes the items that it added, in the same order. The cost of a deletion is compared
//! with the cost of that addition in the plain filter.

use crate::{
    contender::{self, Contender, OURS, Rival},
    measure::Starts,
    payload::{Items, MEMBERS, Op, STRANGERS},
    report::{Bound, Section},
};

const CAPACITY: u64 = 2_000_000;
/// Members that the filters hold before the first turn.
const FILLED: u64 = 600_000;
/// How often the servers are started.
const STARTS: u64 = 5;
/// Rounds after each start.
const ROUNDS: u64 = 5;
const TURN: u64 = 20_000;

/// Indices of the two filters.
const PLAIN: usize = 0;
const COUNTING: usize = 1;

const BATCHES: [u64; 2] = [1, 100];

/// In the order of a round.
const WORKS: [&str; 4] = ["add, new", "exists, hit", "exists, miss", "delete"];

pub(crate) fn measure(section: &mut Section) {
    let ours = contender::filters()
        .into_iter()
        .find(|contender| contender.name == OURS)
        .expect("it is always measured");
    let mut measured: [[[Starts; 2]; 4]; 2] = Default::default();
    for start in 0..STARTS {
        let mut rivals = [reserved(&ours, "plain", ""), reserved(&ours, "COUNTING", "COUNTING")];
        contender::fill(&mut rivals, 0, FILLED);
        for (batch, samples) in BATCHES.into_iter().zip(&mut measured) {
            turns(&mut rivals, batch, start, samples);
        }
    }
    section.heading("COUNTING, 2 M items, 30 % in");
    section.say(&format!(
        "CPU nanoseconds per item, and in brackets the ratio to the plain filter. The ratio of a \
         deletion is that to an addition to the plain filter. Medians of {STARTS} starts of the \
         servers, with {ROUNDS} turns after each."
    ));
    let mut rows = Vec::new();
    for (batch, samples) in BATCHES.into_iter().zip(&measured) {
        for (work, [plain, counting]) in WORKS.iter().zip(samples) {
            let plain = if *work == "delete" { &samples[0][PLAIN] } else { plain };
            let ratio = counting.over(plain);
            rows.push(vec![
                (*work).to_owned(),
                batch.to_string(),
                match *work {
                    "delete" => "-".to_owned(),
                    _ => format!("{:.0}", plain.least()),
                },
                format!("{:.0} ({ratio:.2})", counting.least()),
            ]);
            if batch > 1 && (*work == "delete" || *work == "add, new") {
                let title =
                    format!("{work}, batch of {batch}, COUNTING: against additions to bits");
                section.target(&title, Bound::AtMost(1.5), ratio);
            }
        }
    }
    section.table(&["work", "batch", "plain", "COUNTING"], &rows);
}

fn reserved(contender: &Contender, name: &str, option: &str) -> Rival {
    let mut rival = Rival::with_filter(contender, 1, &[]);
    rival.name = name.into();
    rival.server.run::<()>("DEL k");
    rival.server.run::<()>(&format!("BF.RESERVE k 0.01 {CAPACITY} {option}"));
    rival
}

/// Adds the CPU time per item after one more start of the servers, for each operation and both
/// filters.
fn turns(rivals: &mut [Rival; 2], batch: u64, start: u64, samples: &mut [[Starts; 2]; 4]) {
    samples.as_flattened_mut().iter_mut().for_each(Starts::begin);
    // The first round warms up.
    for round in 0..=ROUNDS {
        let seed = start * (ROUNDS + 1) + round;
        for (name, samples) in WORKS.iter().zip(&mut *samples) {
            let (op, items, ones) = match *name {
                "add, new" => (Op::Add, later(batch, round), TURN * 9 / 10..=TURN),
                "exists, hit" => {
                    (Op::Exists, Items::scattered(MEMBERS, FILLED, TURN, seed), TURN..=TURN)
                }
                "delete" => (Op::Delete, later(batch, round), TURN..=TURN),
                _ => (
                    Op::Exists,
                    Items::scattered(STRANGERS, 1_000_000_000, TURN, seed),
                    0..=TURN / 10,
                ),
            };
            for (kind, rival) in rivals.iter_mut().enumerate() {
                if op == Op::Delete && kind != COUNTING {
                    continue;
                }
                let cost = rival.work(op, &items, batch);
                assert!(
                    ones.contains(&cost.ones),
                    "{}, {name}: {} of {TURN} are 1",
                    rival.name,
                    cost.ones
                );
                if round > 0 {
                    samples[kind].push(cost.cpu / TURN as f64);
                }
            }
        }
    }
}

/// Members that are not in the filter yet, different ones for each batch.
fn later(batch: u64, round: u64) -> Items {
    let start = FILLED + batch * (ROUNDS + 1) * TURN + round * TURN;
    Items::InTurn { set: MEMBERS, numbers: start..start + TURN }
}
