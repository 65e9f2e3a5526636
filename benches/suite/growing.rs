//! Filters that were not reserved, filled in batches: server CPU, bits and errors, by the number of
//! items.
//!
//! A filter of COUNTING is beside them, since it grows in the same way.

use std::{thread::sleep, time::Duration};

use crate::{
    contender::{self, Contender, Rival},
    measure::Series,
    payload::{Items, MEMBERS, Op, STRANGERS},
    plot::Plot,
    report::{Bound, Section},
};

const ROUNDS: u64 = 5;
const BATCH: u64 = 100;
/// Queries of a turn.
const TURN: u64 = 20_000;
/// Items that are sent in one stream.
const STREAM: u64 = 500_000;

/// A filter that grows, and its figures by size.
struct Entrant {
    rival: Rival,
    /// The command that makes it.
    reserve: String,
    figures: Vec<Figures>,
}

/// The figures of one size.
#[derive(Clone, Default)]
struct Figures {
    /// CPU nanoseconds of an item, by operation.
    cpu: [Series; 3],
    bits: f64,
    /// The share of absent items that were found.
    wrong: f64,
}

const WORKS: [&str; 3] = ["add, new", "exists, hit", "exists, miss"];

pub(crate) fn run() -> Option<Section> {
    const SIZES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
    let mut section = Section::new("Growing filters");
    section.say(&format!(
        "The filters are created as by an add to a missing key (`BF.RESERVE key rate 100`), and \
         filled by `BF.MADD` in batches of {BATCH}. A row of additions covers the items from the \
         size above to its own size. CPU nanoseconds of the server's main thread per item, the \
         lowest of {ROUNDS} filters. In brackets: the ratio to the first column, a median over \
         filters. Bits are `BF.INFO` `SIZE` divided by the items added. A filter of layers \
         takes the most memory per item just after it has opened a layer. A classic filter of the \
         right size needs 9.6 bits at 1 % and 14.4 at 0.1 %, and cannot grow."
    ));
    let mut entrants = Vec::new();
    for contender in &contender::filters() {
        for (rate, title) in [("0.01", "1 %"), ("0.001", "0.1 %")] {
            entrants.push(entrant(contender, rate, title, "", SIZES.len()));
        }
    }
    entrants.push(entrant(&contender::ours(), "0.01", "COUNTING, 1 %", "COUNTING", SIZES.len()));
    for round in 0..ROUNDS {
        for entrant in &mut entrants {
            grow(entrant, &SIZES, round);
        }
    }
    tabulate(&mut section, &SIZES, &entrants);
    section.plot(Plot {
        file: "memory",
        title: "Memory of a filter that was not reserved, while it grows".into(),
        x_label: "items",
        y_label: "bits per item",
        lines: entrants
            .iter()
            .map(|entrant| {
                let points = SIZES.iter().zip(&entrant.figures);
                let points = points.map(|(&size, figures)| (size as f64, figures.bits));
                (entrant.rival.name.clone(), points.collect())
            })
            .collect(),
    });
    for (entrant, most) in entrants.iter().zip([18.8, 22.8]) {
        let bits = entrant.figures.last().map_or(f64::NAN, |figures| figures.bits);
        let title = format!("bits per item of 1 million, grown, {}", entrant.rival.name);
        section.target(&title, Bound::AtMostBits(most), bits);
    }
    Some(section)
}

/// The same up to a billion items, then a fork and the removal.
pub(crate) fn billion() -> Option<Section> {
    const SIZES: [u64; 4] = [1_000_000, 10_000_000, 100_000_000, 1_000_000_000];
    let mut section = Section::new("A billion items");
    section.say(
        "One filter, filled once, measured as in [Growing filters](growing.md). This part takes \
         much longer than any other. It runs only with `make bench BENCH=billion`.",
    );
    let mut entrants = [entrant(&contender::ours(), "0.01", "1 %", "", SIZES.len())];
    grow(&mut entrants[0], &SIZES, 0);
    tabulate(&mut section, &SIZES, &entrants);
    let server = &mut entrants[0].rival.server;
    server.run::<()>("BGSAVE");
    while server.info("rdb_bgsave_in_progress") == "1" {
        sleep(Duration::from_millis(100));
    }
    let save = server.info("rdb_last_bgsave_time_sec");
    let fork = server.info_number("latest_fork_usec") as f64 / 1e3;
    let (_, unlink) = server.timed("UNLINK k");
    section.say(&format!(
        "BGSAVE takes {save} s, its fork {fork:.1} ms, and `UNLINK` {:.1} ms of the main thread's \
         CPU.",
        unlink * 1e3
    ));
    Some(section)
}

fn entrant(contender: &Contender, rate: &str, title: &str, option: &str, sizes: usize) -> Entrant {
    let mut rival = Rival::with_filter(contender, 1, &[]);
    rival.name = format!("{}, {title}", contender.name);
    let reserve = format!("BF.RESERVE k {rate} 100 {option}");
    Entrant { rival, reserve, figures: vec![Figures::default(); sizes] }
}

/// Fills a new filter up to each size, and asks there.
fn grow(entrant: &mut Entrant, sizes: &[u64], round: u64) {
    let Entrant { rival, reserve, figures } = entrant;
    rival.server.run::<()>("DEL k");
    rival.server.run::<()>(reserve);
    let mut from = 0;
    for (&size, figures) in sizes.iter().zip(figures) {
        let mut adding = 0.0;
        for start in (from..size).step_by(STREAM as usize) {
            let numbers = start..size.min(start + STREAM);
            adding += rival.work(Op::Add, &Items::InTurn { set: MEMBERS, numbers }, BATCH).cpu;
        }
        let members = Items::scattered(MEMBERS, size, TURN, round);
        let hits = rival.work(Op::Exists, &members, BATCH);
        let strangers = Items::scattered(STRANGERS, 1_000_000_000, TURN, round);
        let misses = rival.work(Op::Exists, &strangers, BATCH);
        let right = hits.ones == TURN && misses.ones <= TURN / 10;
        assert!(right, "{}: {} found, {} wrong of {TURN}", rival.name, hits.ones, misses.ones);
        let turn = TURN as f64;
        let costs = [adding / (size - from) as f64, hits.cpu / turn, misses.cpu / turn];
        for (series, cost) in figures.cpu.iter_mut().zip(costs) {
            series.push(cost);
        }
        figures.bits = rival.info("Size") * 8.0 / size as f64;
        figures.wrong += misses.ones as f64 / turn;
        from = size;
    }
}

fn tabulate(section: &mut Section, sizes: &[u64], entrants: &[Entrant]) {
    let mut rows = Vec::new();
    let mut row = |title: &str, at: usize, cell: &dyn Fn(&Figures, &Figures) -> String| {
        let cells =
            entrants.iter().map(|one| cell(&one.figures[at], &entrants[0].figures[at])).collect();
        rows.push([vec![title.to_owned(), sizes[at].to_string()], cells].concat());
    };
    for (work, title) in WORKS.iter().enumerate() {
        for at in 0..sizes.len() {
            row(title, at, &|one, first| {
                let (cpu, first) = (&one.cpu[work], &first.cpu[work]);
                match entrants.len() {
                    1 => format!("{:.0}", cpu.least()),
                    _ => format!("{:.0} ({:.2})", cpu.least(), cpu.over(first)),
                }
            });
        }
    }
    for at in 0..sizes.len() {
        row("bits", at, &|one, _| format!("{:.1}", one.bits));
    }
    for at in 0..sizes.len() {
        row("errors, %", at, &|one, _| {
            format!("{:.2}", one.wrong * 100.0 / one.cpu[0].len() as f64)
        });
    }
    let names = entrants.iter().map(|entrant| entrant.rival.name.clone());
    let head: Vec<String> = ["", "items"].map(String::from).into_iter().chain(names).collect();
    section.table(&head, &rows);
}
