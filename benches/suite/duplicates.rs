//! Adding items that are present already, with the AOF on: the work of a filter that de-duplicates
//! a stream.

use crate::{
    contender::{self, OURS, Rival},
    measure::Series,
    payload::{Items, MEMBERS, Op},
    report::{Bound, Section},
};

const CAPACITY: u64 = 2_000_000;
const FILLED: u64 = 1_000_000;
const ROUNDS: u64 = 15;
const TURN: u64 = 20_000;

pub(crate) fn run() -> Option<Section> {
    let mut section = Section::new("Duplicates with the AOF on");
    let mut rivals: Vec<Rival> = contender::filters()
        .iter()
        .map(|contender| {
            Rival::with_filter(contender, CAPACITY, &["--appendonly", "yes", "--appendfsync", "no"])
        })
        .collect();
    contender::fill(&mut rivals, 0, FILLED);
    let mut rows = Vec::new();
    for batch in [1, 100] {
        let mut cpu = vec![Series::default(); rivals.len()];
        let before: Vec<u64> = rivals.iter_mut().map(aof_bytes).collect();
        for round in 0..ROUNDS {
            let items = Items::scattered(MEMBERS, FILLED, TURN, round);
            for (rival, cpu) in rivals.iter_mut().zip(&mut cpu) {
                let cost = rival.work(Op::Add, &items, batch);
                assert_eq!(cost.ones, 0, "{} calls a duplicate new", rival.name);
                cpu.push(cost.cpu / TURN as f64);
            }
        }
        let bytes: Vec<u64> = rivals
            .iter_mut()
            .zip(&before)
            .map(|(rival, before)| aof_bytes(rival) - before)
            .collect();
        for (at, rival) in rivals.iter().enumerate() {
            rows.push(vec![
                batch.to_string(),
                rival.name.clone(),
                format!("{:.0}", cpu[at].median()),
                format!("{:.1}", bytes[at] as f64 / (ROUNDS * TURN) as f64),
            ]);
            let work = format!("known items added with the AOF on, batch of {batch}");
            if rival.name == OURS {
                section.target(&format!("{work}: AOF bytes"), Bound::None, bytes[at] as f64);
            } else {
                let ratio = cpu[at].over(&cpu[0]);
                section.target(
                    &format!("{work}: faster than {}", rival.name),
                    Bound::AtLeast(1.3),
                    ratio,
                );
            }
        }
    }
    section.say(&format!(
        "{FILLED} items in a filter for {CAPACITY}. Every addition is of an item that is present. \
         With `appendfsync no` the disk is not measured."
    ));
    section.table(&["batch", "", "CPU ns per item", "AOF bytes per item"], &rows);
    Some(section)
}

fn aof_bytes(rival: &mut Rival) -> u64 {
    rival.server.info_number("aof_current_size")
}
