//! `make bench`: side-by-side tables and plots, measured in one run on one machine, written to
//! `docs/benchmarks.md`.
//!
//! ```text
//!   main ─▶ part ─▶ contender ─▶ server ─▶ payload         a part measures, and answers a Section
//!             └───▶ report ─▶ plot                         the report keeps Sections, and writes the page from them
//! ```
//!
//! The parts, in the order of the page; arguments choose some, none means all:
//!
//! | part           | what it measures                                                            |
//! |----------------|-----------------------------------------------------------------------------|
//! | `commands`     | server CPU and throughput per item, then latency, in filters of several sizes; of one that counts |
//! | `duplicates`   | adding what is known already, with the AOF on                               |
//! | `persistence`  | saving, loading, rewriting; memory of the child, pages copied               |
//! | `memory`       | bits per item                                                               |
//! | `instructions` | instructions per operation in process, under valgrind                       |
//! | `in-process`   | nothing itself: tabulates what `cargo bench --bench filter` left            |
//!
//! The environment says what is measured: `REDIS_BLOOM_SO` and `FLOOR_SO` (the built module and
//! `examples/floor.rs`), `REDIS_SERVER`, and `PEERS="name=path.so[,argument...] ..."` for other
//! modules, none by default.
//!
//! Nothing here asserts a time. A wrong answer does end the run: a fast filter that lies is not
//! measured.

mod commands;
mod contender;
mod copies;
mod counting;
mod duplicates;
mod in_process;
mod instructions;
mod latency;
mod measure;
mod memory;
mod payload;
mod persistence;
mod plot;
mod report;
mod server;

use report::{Report, Section};

/// A part: its name, and what runs it. `None` when it has nothing to say here, for a reason that it
/// printed.
type Part = (&'static str, fn() -> Option<Section>);

const PARTS: [Part; 6] = [
    ("commands", commands::run),
    ("duplicates", duplicates::run),
    ("persistence", persistence::run),
    ("memory", memory::run),
    ("instructions", instructions::run),
    ("in-process", in_process::run),
];

fn main() {
    // Cargo adds `--bench` to what it was given.
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if arguments.first().is_some_and(|word| word == instructions::WORKER) {
        return instructions::work(&arguments[1..]);
    }
    let known = |name: &str| PARTS.iter().any(|(part, _)| *part == name);
    if let Some(unknown) = arguments.iter().find(|name| !known(name)) {
        let names = PARTS.map(|(name, _)| name).join(", ");
        eprintln!("bench: there is no part {unknown}; there are {names}");
        std::process::exit(2);
    }
    let report = Report::open();
    for (index, (name, run)) in PARTS.iter().enumerate() {
        if arguments.is_empty() || arguments.iter().any(|word| word == name) {
            eprintln!("bench: {name}");
            if let Some(section) = run() {
                println!("{section}");
                report.keep(index, name, &section);
            }
        }
    }
    report.write(&PARTS.map(|(name, _)| name));
}
