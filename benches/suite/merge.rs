//! BF.MERGE of filters of 1 GiB: how long the command blocks the server.
//!
//! The filters have random bits (`persistence.rs`), so that every word of the destination changes.
//! They are sparse enough that the union holds fewer items than the filter is made for.

use crate::{
    contender::{self, OURS},
    measure::Series,
    persistence::load_random,
    report::Section,
};

const ROUNDS: usize = 5;
const GIB: f64 = (1_u64 << 30) as f64;

pub(crate) fn run() -> Option<Section> {
    let ours = contender::filters().into_iter().find(|contender| contender.name == OURS)?;
    let mut section = Section::new("Merging");
    let mut rows = Vec::new();
    // Items of a filter that takes about 1 GiB at 1 %.
    for (kind, options, capacity) in
        [("bits", "", 800_000_000), ("COUNTING", " COUNTING", 200_000_000)]
    {
        let mut server = ours.start(&["--appendonly", "no"]);
        server.run::<()>(&format!("BF.RESERVE empty 0.01 {capacity} SEED 1{options}"));
        load_random(&mut server, "empty", "a", 1, 3)?;
        let gib = load_random(&mut server, "empty", "b", 2, 3)? / GIB;
        let [mut cpu, mut wall] = [0; 2].map(|_| Series::default());
        for _ in 0..ROUNDS {
            server.run::<()>("COPY a into REPLACE");
            let timed = server.timed("BF.MERGE into b");
            wall.push(timed.0 / gib);
            cpu.push(timed.1 / gib);
        }
        // A merge reads both filters twice and writes one.
        let speed = 5.0 * GIB / 1e9 / cpu.median();
        rows.push(vec![
            kind.to_owned(),
            format!("{:.2}", wall.median()),
            format!("{:.2}", cpu.median()),
            format!("{speed:.1}"),
        ]);
    }
    section.say(&format!(
        "One filter merged into another, of about 1 GiB each, one bit of 16 set in each; \
         medians of {ROUNDS}, per GiB of one filter. The command reads both filters twice and \
         writes one: the last column is the bytes read and written by the second of CPU.",
    ));
    section.table(&["", "s", "s of CPU", "GB/s"], &rows);
    Some(section)
}
