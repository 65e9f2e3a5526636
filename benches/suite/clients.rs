//! What a user sees with redis-benchmark: requests a second and latency, of 50 clients.
//!
//! redis-benchmark writes a random number of 12 digits in the place of each `__rand_int__`. Half of
//! the queried items are in the filter; added items are new.

use std::process::Command;

use crate::{
    contender::{self, OURS, Rival},
    measure::Series,
    report::Section,
};

const CAPACITY: u64 = 10_000_000;
const FILLED: u64 = 1_000_000;
const BATCH: usize = 100;
const ROUNDS: u64 = 5;
const ITEM: &str = "__rand_int__";

/// A work: its name, commands in flight of a client, items of a command, requests of a turn, and
/// whether the items of a command are packed.
struct Work(&'static str, u64, usize, u64, bool);

const WORKS: [Work; 4] = [
    Work("alone, not pipelined", 1, 1, 40_000, false),
    Work("alone, 16 in flight", 16, 1, 200_000, false),
    Work("by 100", 1, BATCH, 4_000, false),
    Work("by 100, packed", 1, BATCH, 4_000, true),
];

/// Requests a second, and milliseconds until the reply: the median and p99.
#[derive(Clone, Default)]
struct Seen([Series; 3]);

pub(crate) fn run() -> Option<Section> {
    if Command::new("redis-benchmark").arg("--version").output().is_err() {
        eprintln!("bench: clients: there is no redis-benchmark");
        return None;
    }
    let mut rivals: Vec<Rival> = contender::filters()
        .iter()
        .map(|contender| Rival::with_filter(contender, CAPACITY, &[]))
        .collect();
    for rival in &mut rivals {
        for first in (0..FILLED).step_by(1_000) {
            let items = (first..first + 1_000).map(|number| format!("{number:012}"));
            let arguments: Vec<_> = ["k".to_owned()].into_iter().chain(items).collect();
            rival.server.call::<Vec<u64>>("BF.MADD", &arguments).expect("items are added");
        }
    }
    let (mut rows, mut last) = (Vec::new(), Series::default());
    for (adds, Work(name, in_flight, items, requests, packed)) in
        [false, true].into_iter().flat_map(|adds| WORKS.iter().map(move |work| (adds, work)))
    {
        let command = command(adds, *items, *packed);
        let mut seen = vec![Seen::default(); rivals.len()];
        for _ in 0..ROUNDS {
            for (rival, seen) in rivals.iter().zip(&mut seen) {
                if !packed || rival.name == OURS {
                    let below = if adds { 1_000_000_000 } else { 2 * FILLED };
                    let figures = turn(rival.server.port(), *requests, *in_flight, below, &command);
                    seen.0.iter_mut().zip(figures).for_each(|(series, value)| series.push(value));
                }
            }
        }
        // Packed items are compared with the others' batches.
        if let Some(Seen([rate, ..])) = seen.last().filter(|_| !packed) {
            last = rate.clone();
        }
        let word = if adds { "add" } else { "exists" };
        let cells = seen.iter().map(|Seen([rate, p50, p99])| match rate.len() {
            0 => "-".to_owned(),
            _ => format!(
                "{:.0} ({:.2}); {:.2} / {:.2}",
                rate.median() * *items as f64 / 1e3,
                rate.over(&last),
                p50.median(),
                p99.median()
            ),
        });
        rows.push([format!("{word}, {name}")].into_iter().chain(cells).collect());
    }
    let mut section = Section::new("redis-benchmark");
    section.say(&format!(
        "Thousands of items a second; in brackets the median over rounds of the ratio to the last \
         column; then milliseconds until the reply, p50 / p99. 50 clients, medians of {ROUNDS} \
         rounds, in which the modules take turns. The row \"packed\" has the ratio to the last \
         column of the row above it. {FILLED} items in a filter for {CAPACITY} at 1 %; half of the \
         queried items are in it, the added ones are new."
    ));
    let head: Vec<&str> =
        ["work"].into_iter().chain(rivals.iter().map(|rival| rival.name.as_str())).collect();
    section.table(&head, &rows);
    Some(section)
}

/// The words of a command with so many items.
fn command(adds: bool, items: usize, packed: bool) -> Vec<String> {
    let name = match (adds, packed, items) {
        (true, true, _) => "BF.BULKADD",
        (false, true, _) => "BF.BULKEXISTS",
        (true, _, 1) => "BF.ADD",
        (false, _, 1) => "BF.EXISTS",
        (true, ..) => "BF.MADD",
        (false, ..) => "BF.MEXISTS",
    };
    let mut words = vec![name.to_owned(), "k".to_owned()];
    if packed {
        words.extend(["WIDTH".to_owned(), ITEM.len().to_string(), ITEM.repeat(items)]);
    } else {
        words.extend(vec![ITEM.to_owned(); items]);
    }
    words
}

/// Runs redis-benchmark; returns requests a second, and the median and p99 in milliseconds.
fn turn(port: u16, requests: u64, in_flight: u64, below: u64, command: &[String]) -> [f64; 3] {
    let numbers = [("-p", u64::from(port)), ("-n", requests), ("-P", in_flight), ("-r", below)];
    let output = Command::new("redis-benchmark")
        .args(numbers.iter().flat_map(|(flag, number)| [flag.to_string(), number.to_string()]))
        .arg("--csv")
        .args(command)
        .output()
        .expect("redis-benchmark can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().filter(|line| line.starts_with('"'));
    let (head, row) = lines.next().zip(lines.next()).unwrap_or_else(|| panic!("{text}"));
    let field = |name: &str| {
        let fields = |line: &str| line.split("\",\"").map(|field| field.replace('"', "")).collect();
        let (names, values): (Vec<String>, Vec<String>) = (fields(head), fields(row));
        // The name of the test has the items, and no quotation marks.
        let at = names.iter().rev().position(|found| found == name).expect("a field");
        values.iter().rev().nth(at).and_then(|value| value.parse().ok()).expect("a number")
    };
    ["rps", "p50_latency_ms", "p99_latency_ms"].map(field)
}
