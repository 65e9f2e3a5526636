//! What an item costs in a filter that counts, beside one of bits: the same items, turn by turn.
//!
//! What is deleted is what was added before, in the same order; a deletion is compared with an addition to bits.

use crate::{
    contender::{self, Contender, OURS, Rival},
    measure::Series,
    payload::{Items, MEMBERS, Op, STRANGERS},
    report::{Bound, Section},
};

const CAPACITY: u64 = 2_000_000;
/// Members that are in before.
const FILLED: u64 = 600_000;
const ROUNDS: u64 = 11;
const TURN: u64 = 20_000;

/// The positions of the two.
const PLAIN: usize = 0;
const COUNTING: usize = 1;

const WORKS: [&str; 4] = ["add, new", "exists, hit", "exists, miss", "delete"];

pub(crate) fn measure(section: &mut Section) {
    let ours = contender::filters()
        .into_iter()
        .find(|contender| contender.name == OURS)
        .expect("it is always measured");
    let mut rivals = [
        reserved(&ours, "plain", ""),
        reserved(&ours, "COUNTING", "COUNTING"),
    ];
    contender::fill(&mut rivals, 0, FILLED);
    section.heading("COUNTING, 2 M items, 30 % in");
    section.say("CPU nanoseconds per item as above, and in brackets the ratio to the plain filter: of a deletion, to its additions.");
    let mut rows = Vec::new();
    for batch in [1, 100] {
        let samples = turns(&mut rivals, batch);
        for (work, [plain, counting]) in WORKS.iter().zip(&samples) {
            let plain = if *work == "delete" {
                &samples[0][PLAIN]
            } else {
                plain
            };
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
                let title = format!("{work}, batch of {batch}, COUNTING: against additions to bits");
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
    rival
        .server
        .run::<()>(&format!("BF.RESERVE k 0.01 {CAPACITY} {option}"));
    rival
}

/// CPU time per item: of each work, the plain filter and the one that counts.
fn turns(rivals: &mut [Rival; 2], batch: u64) -> [[Series; 2]; 4] {
    let mut samples: [[Series; 2]; 4] = Default::default();
    // The first round warms up.
    for (at, name) in WORKS.iter().enumerate() {
        for round in 0..=ROUNDS {
            let (op, items, ones) = match *name {
                "add, new" => (Op::Add, later(batch, round), TURN * 9 / 10..=TURN),
                "exists, hit" => (
                    Op::Exists,
                    Items::scattered(MEMBERS, FILLED, TURN, round),
                    TURN..=TURN,
                ),
                "delete" => (Op::Delete, later(batch, round), TURN..=TURN),
                _ => (
                    Op::Exists,
                    Items::scattered(STRANGERS, 1_000_000_000, TURN, round),
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
                    samples[at][kind].push(cost.cpu / TURN as f64);
                }
            }
        }
    }
    samples
}

/// Members that are not in yet, others for each batch.
fn later(batch: u64, round: u64) -> Items {
    let start = FILLED + batch * (ROUNDS + 1) * TURN + round * TURN;
    Items::InTurn {
        set: MEMBERS,
        numbers: start..start + TURN,
    }
}
