//! BF.MERGE of filters of 1 GiB: how long the command blocks the server.
//!
//! The filters have random bits (`persistence.rs`), so that every word of the destination changes.
//! They are sparse enough that the union holds fewer items than the filter is made for. Pages
//! cannot be random, so filters of COUNTING are smaller and filled by commands.

use crate::{
    contender::{Contender, ours},
    measure::Series,
    payload::{self, Items, MEMBERS, Op, Speech},
    persistence::load_random,
    report::Section,
    server::Server,
};

const ROUNDS: usize = 5;
const GIB: f64 = (1_u64 << 30) as f64;

pub(crate) fn run() -> Option<Section> {
    let ours = ours();
    let mut section = Section::new("Merging");
    let mut rows = Vec::new();
    for kind in ["bits", "COUNTING"] {
        let (mut server, gib) = if kind == "bits" { random(&ours)? } else { counting(&ours) };
        let [mut cpu, mut wall] = [0; 2].map(|_| Series::default());
        for _ in 0..ROUNDS {
            server.run::<()>("COPY a into REPLACE");
            let timed = server.timed("BF.MERGE into b");
            wall.push(timed.0 / gib);
            cpu.push(timed.1 / gib);
        }
        // A merge of bits reads both filters twice and writes one.
        let speed = match kind {
            "bits" => format!("{:.1}", 5.0 * GIB / 1e9 / cpu.median()),
            _ => "-".to_owned(),
        };
        rows.push(vec![
            kind.to_owned(),
            format!("{:.2}", wall.median()),
            format!("{:.2}", cpu.median()),
            speed,
        ]);
    }
    section.say(&format!(
        "One filter is merged into another. Medians of {ROUNDS}, per GiB of one filter. The \
         filters of bits have about 1 GiB each, with one bit of 16 set; the COUNTING filters have \
         5 million items each. For bits, the command reads both filters twice and writes one. The \
         last column is the bytes that it reads and writes in a second of CPU.",
    ));
    section.table(&["", "s", "s of CPU", "GB/s"], &rows);
    Some(section)
}

/// A server with two filters of random bits, `a` and `b`, and the GiB of one.
fn random(ours: &Contender) -> Option<(Server, f64)> {
    let mut server = ours.start(&["--appendonly", "no"]);
    // It takes about 1 GiB.
    server.run::<()>("BF.RESERVE empty 0.01 800000000 SEED 1");
    load_random(&mut server, "empty", "a", 1, 3)?;
    let gib = load_random(&mut server, "empty", "b", 2, 3)? / GIB;
    Some((server, gib))
}

/// A server with two filters of COUNTING, `a` and `b`, and the GiB of one.
fn counting(ours: &Contender) -> (Server, f64) {
    const HELD: u64 = 5_000_000;
    let mut server = ours.start(&["--appendonly", "no"]);
    for (key, from) in [("a", 0), ("b", HELD)] {
        server.run::<()>(&format!("BF.RESERVE {key} 0.01 {} SEED 1 COUNTING", 2 * HELD));
        for start in (from..from + HELD).step_by(500_000) {
            let items = Items::InTurn { set: MEMBERS, numbers: start..start + 500_000 };
            server.stream(&payload::commands(Speech::Commands, Op::Add, key, &items, 1000));
        }
    }
    let [bytes]: [u64; 1] = server.run("BF.INFO a SIZE");
    (server, bytes as f64 / GIB)
}
