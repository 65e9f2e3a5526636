//! CPU cost of an item in a filter with COUNTING and in a plain one: the same items, in turns.
//!
//! A round deletes the items that it added, in the same order. The cost of a deletion is compared
//! with the cost of that addition in the plain filter.
//!
//! Then the same in the cuckoo filter of a peer that has one, at an equal measured error rate.

use crate::{
    contender::{self, Contender, Rival, ours},
    measure::Starts,
    payload::{Items, MEMBERS, Op, STRANGERS, Speech},
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

/// Members of the filters that are compared with a cuckoo filter. It has its memory from the start.
const CUCKOO_FILLED: u64 = 1_600_000;

/// The names of our two filters.
const PLAIN: &str = "plain";
const COUNTING: &str = "COUNTING";

/// By batch size, by operation, by filter.
type Measured = [[[Starts; 2]; 4]; 2];

const BATCHES: [u64; 2] = [1, 100];

/// In the order of a round.
const WORKS: [&str; 4] = ["add, new", "exists, hit", "exists, miss", "delete"];

pub(crate) fn measure(section: &mut Section) {
    let ours = ours();
    let mut measured = Measured::default();
    for start in 0..STARTS {
        let mut rivals =
            [reserved(&ours, PLAIN, 0.01, ""), reserved(&ours, COUNTING, 0.01, COUNTING)];
        contender::fill(&mut rivals, 0, FILLED);
        for (batch, samples) in BATCHES.into_iter().zip(&mut measured) {
            turns(&mut rivals, FILLED, batch, start, samples);
        }
    }
    section.heading("COUNTING, 2 M items, 30 % full");
    section.say(&format!(
        "CPU nanoseconds per item, and in brackets the ratio to the plain filter. A deletion \
         is compared with an addition to the plain filter. Medians of {STARTS} starts of the \
         servers, with {ROUNDS} turns after each."
    ));
    let mut rows = Vec::new();
    for (batch, samples) in BATCHES.into_iter().zip(&measured) {
        for (work, [plain, counting]) in WORKS.iter().zip(samples) {
            let plain = if *work == "delete" { &samples[0][0] } else { plain };
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
    for peer in contender::filters().iter().filter(|peer| contender::is_peer(&peer.name)) {
        against_cuckoo(section, peer);
    }
}

/// The same against the cuckoo filter of a peer, if it has one.
fn against_cuckoo(section: &mut Section, peer: &Contender) {
    let Some(mut theirs) = cuckoo(peer) else {
        eprintln!("bench: {} has no cuckoo filter", peer.name);
        return;
    };
    fill(&mut theirs);
    let wanted = errors(&mut theirs);
    // A tag is a whole number of bits, so the measured rate differs from the requested one.
    let (rate, mut mine) = [5.0, 4.5, 4.0, 3.5, 3.0, 2.5, 2.0, 1.5, 1.0, 0.7, 0.5]
        .into_iter()
        .find_map(|part| {
            let mut mine = reserved(&ours(), COUNTING, wanted * part, COUNTING);
            fill(&mut mine);
            (errors(&mut mine) <= wanted * 1.02).then_some((wanted * part, mine))
        })
        .expect("a lower rate gives fewer errors");
    let bits = |rival: &mut Rival| rival.info("Size") * 8.0 / CUCKOO_FILLED as f64;
    let both = |title: &str, theirs: String, mine: String| {
        vec![title.to_owned(), "-".to_owned(), theirs, mine]
    };
    let percent = |share: f64| format!("{:.2}", share * 100.0);
    let mut rows = vec![
        both("errors, %", percent(wanted), percent(errors(&mut mine))),
        both(
            "bits per item",
            format!("{:.1}", bits(&mut theirs)),
            format!("{:.1}", bits(&mut mine)),
        ),
    ];
    drop((theirs, mine));
    let mut measured = Measured::default();
    for start in 0..STARTS {
        let theirs = cuckoo(peer).expect("it had one before");
        let mut rivals = [theirs, reserved(&ours(), COUNTING, rate, COUNTING)];
        rivals.iter_mut().for_each(fill);
        for (batch, samples) in BATCHES.into_iter().zip(&mut measured) {
            turns(&mut rivals, CUCKOO_FILLED, batch, start, samples);
        }
    }
    for (batch, samples) in BATCHES.into_iter().zip(&measured) {
        for (work, [theirs, mine]) in WORKS.iter().zip(samples) {
            rows.push(vec![
                (*work).to_owned(),
                batch.to_string(),
                format!("{:.0}", theirs.least()),
                format!("{:.0} ({:.2})", mine.least(), mine.over(theirs)),
            ]);
        }
    }
    section
        .heading(&format!("COUNTING and the cuckoo filter of {}, 2 M items, 80 % full", peer.name));
    section.say(&format!(
        "Measured as in the table above; in brackets the ratio to the cuckoo filter \
         (`CF.RESERVE key {CAPACITY}`, `CF.ADD` and `CF.INSERT`, `CF.EXISTS` and \
         `CF.MEXISTS`). `CF.DEL` takes one item, so the cuckoo filter deletes one by one in both \
         rows. COUNTING is reserved at {:.2} %, because the rate of a filter that may grow starts \
         far below its configured rate. At 80 % full it then has at most 1.02 times the measured \
         error rate of the cuckoo filter.",
        rate * 100.0
    ));
    section.table(&["work", "batch", "cuckoo filter", "COUNTING"], &rows);
}

/// An empty cuckoo filter; `None` if the peer has none.
fn cuckoo(peer: &Contender) -> Option<Rival> {
    let mut server = peer.start(&[]);
    server.call::<()>("CF.RESERVE", &["k", &CAPACITY.to_string()]).ok()?;
    Some(Rival { name: peer.name.clone(), speech: Speech::Cuckoo, server })
}

/// Adds `CUCKOO_FILLED` members.
fn fill(rival: &mut Rival) {
    let numbers = 0..CUCKOO_FILLED;
    rival.work(Op::Add, &Items::InTurn { set: MEMBERS, numbers }, 1000);
}

/// The share of absent items that are found.
fn errors(rival: &mut Rival) -> f64 {
    const ASKED: u64 = 1_000_000;
    let strangers = Items::InTurn { set: STRANGERS, numbers: 0..ASKED };
    rival.work(Op::Exists, &strangers, 1000).ones as f64 / ASKED as f64
}

fn reserved(contender: &Contender, name: &str, rate: f64, option: &str) -> Rival {
    let mut rival = Rival::with_filter(contender, 1, &[]);
    rival.name = name.into();
    rival.server.run::<()>("DEL k");
    rival.server.run::<()>(&format!("BF.RESERVE k {rate} {CAPACITY} {option}"));
    rival
}

/// Adds the CPU time per item after one more start of the servers, for each operation and both
/// filters.
fn turns(
    rivals: &mut [Rival; 2],
    filled: u64,
    batch: u64,
    start: u64,
    samples: &mut [[Starts; 2]; 4],
) {
    samples.as_flattened_mut().iter_mut().for_each(Starts::begin);
    // The first round warms up.
    for round in 0..=ROUNDS {
        let seed = start * (ROUNDS + 1) + round;
        for (name, samples) in WORKS.iter().zip(&mut *samples) {
            let (op, items, ones) = match *name {
                "add, new" => (Op::Add, later(filled, batch, round), TURN * 9 / 10..=TURN),
                "exists, hit" => {
                    (Op::Exists, Items::scattered(MEMBERS, filled, TURN, seed), TURN..=TURN)
                }
                "delete" => (Op::Delete, later(filled, batch, round), TURN..=TURN),
                _ => (
                    Op::Exists,
                    Items::scattered(STRANGERS, 1_000_000_000, TURN, seed),
                    0..=TURN / 10,
                ),
            };
            for (kind, rival) in rivals.iter_mut().enumerate() {
                if op == Op::Delete && rival.name == PLAIN {
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
fn later(filled: u64, batch: u64, round: u64) -> Items {
    let start = filled + batch * (ROUNDS + 1) * TURN + round * TURN;
    Items::InTurn { set: MEMBERS, numbers: start..start + TURN }
}
