//! `make bench`: tables and plots of several modules side by side, measured in one run on one
//! machine and written to `docs/internals/benchmarks/PART.md`, with a list in
//! `docs/internals/benchmarks.md`.
//!
//! ```text
//!   main ─▶ part ─▶ contender ─▶ server ─▶ payload     a part measures, and returns a Section
//!             └───▶ report ─▶ plot                     the report stores Sections, writes the page
//! ```
//!
//! The parts, in the order of the page. Arguments choose parts; no argument means all but
//! `billion`.
//!
//! | part           | what it measures                                                      |
//! |----------------|-----------------------------------------------------------------------|
//! | `commands`     | server CPU and throughput per item, then latency, by size; COUNTING   |
//! | `clients`      | what a user of redis-benchmark sees: items a second, latency          |
//! | `packed`       | server CPU and wall time per item of packed batches                   |
//! | `shards`       | server CPU per item of batches over many shards                       |
//! | `windows`      | filters that forget: CPU per item, a shift, bits per item, the AOF     |
//! | `duplicates`   | adding items that are present already, with the AOF on                |
//! | `persistence`  | saving, loading, rewriting; memory of the child, pages copied         |
//! | `merge`        | how long BF.MERGE takes                                               |
//! | `tool`         | how fast `redis-bloom load` is, and what it costs                     |
//! | `growing`      | filters that were not reserved: CPU, bits and errors, by size           |
//! | `instructions` | instructions per operation in process, under valgrind                 |
//! | `in-process`   | nothing itself: tabulates the results of benches/filter               |
//! | `billion`      | a filter that grows to a billion items; needs 5 GB of memory          |
//!
//! The environment names what is measured: `REDIS_BLOOM_SO` and `FLOOR_SO` (the built module and
//! `examples/floor.rs`), `REDIS_BLOOM_TOOL`, `REDIS_SERVER`, and
//! `PEERS="name=path.so[,argument...] ..."` for other modules (none by default).
//!
//! No time is asserted. A wrong answer ends the run.

mod clients;
mod commands;
mod contender;
mod counting;
mod duplicates;
mod growing;
mod in_process;
mod instructions;
mod latency;
mod measure;
mod merge;
mod packed;
mod payload;
mod persistence;
mod plot;
mod report;
mod server;
mod shards;
mod tool;
mod windows;

use report::{Report, Section};

/// A part: its name, and the function that runs it. The function returns `None` if it cannot run
/// here; it prints the reason.
type Part = (&'static str, fn() -> Option<Section>);

/// The part that runs only if it is named.
const BILLION: &str = "billion";

const PARTS: [Part; 13] = [
    ("commands", commands::run),
    ("clients", clients::run),
    ("packed", packed::run),
    ("shards", shards::run),
    ("windows", windows::run),
    ("duplicates", duplicates::run),
    ("persistence", persistence::run),
    ("merge", merge::run),
    ("tool", tool::run),
    ("growing", growing::run),
    ("instructions", instructions::run),
    ("in-process", in_process::run),
    (BILLION, growing::billion),
];

fn main() {
    // Cargo adds `--bench` to the arguments.
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
    // Cargo starts a bench in the directory of its package. PEERS may name files of the repository.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    std::env::set_current_dir(root).expect("the repository is there");
    let report = Report::open();
    for (name, run) in &PARTS {
        let all = arguments.is_empty() && *name != BILLION;
        if all || arguments.iter().any(|word| word == name) {
            eprintln!("bench: {name}");
            if let Some(section) = run() {
                println!("{section}");
                report.keep(name, &section);
            }
        }
    }
    report.write(&PARTS.map(|(name, _)| name));
}
