//! `make compare REV=...`: the filter of another commit and the filter of this tree, in one
//! process, by turns.
//!
//! Two runs of one program differ by more than most changes to the filter: the speed of the machine
//! drifts, its neighbours change, memory has another layout. So both commits are linked into this
//! program, and process the same items in turns of a fraction of a millisecond to some
//! milliseconds. The order of the two commits alternates:
//!
//! ```text
//!   round:  items ─▶ before, after     other items ─▶ after, before
//!   ...
//!   a ratio is the median over rounds of the ratio in one round (`benches/suite/measure.rs`)
//! ```
//!
//! With COUNT=1 it counts instructions in place of time: one turn of each commit in valgrind's
//! callgrind. The counts are the same in every run; they do not show waits for memory. Both
//! measurements include the loop over the items and the hash, and exclude the making of items.
//!
//! Items and seeds are equal, so the filters must give equal answers. The run ends at the first
//! turn in which they do not.
//!
//! Both commits must have the parts of the crate that this program uses: `Filter` with `new`,
//! `contains` and `hash`; `add_each` and `contains_each`, which answer chunk by chunk;
//! `Answers::ones`; `Params`, `Expansion` and `Plan`. Both are built with the dependencies in this
//! tree's `Cargo.lock`.
//!
//! ```text
//!   compare time ROUNDS [CASE ...]        all cases if none is named
//!   compare count [CASE ...]
//! ```

mod case;
mod count;
#[expect(dead_code, reason = "only the bench suite uses the rest")]
#[path = "../../suite/measure.rs"]
mod measure;
mod side;
mod time;

use case::{CASES, Case, Work};
use side::Side;

/// The filter of the commit REV.
type Before = redis_bloom_before::filter::Filter;
/// The filter of this tree.
type After = redis_bloom::filter::Filter;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["time", rounds, names @ ..] => {
            let rounds = rounds.parse().ok().filter(|rounds| *rounds > 0);
            let rounds = rounds.unwrap_or_else(|| usage("ROUNDS is a number above 0"));
            for case in chosen(names) {
                time::run(case, rounds);
            }
        }
        ["count", names @ ..] => chosen(names).into_iter().for_each(count::run),
        [count::WORKER, name] => chosen(&[name]).into_iter().for_each(count::work),
        _ => usage("expected: time ROUNDS [CASE ...], or count [CASE ...]"),
    }
}

/// The cases with these names; all cases if there is no name.
fn chosen(names: &[&str]) -> Vec<&'static Case> {
    let known = CASES.map(|case| case.name);
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        usage(&format!("there is no case {unknown}; there are {}", known.join(", ")));
    }
    CASES.iter().filter(|case| names.is_empty() || names.contains(&case.name)).collect()
}

fn usage(what: &str) -> ! {
    eprintln!("compare: {what}");
    std::process::exit(2);
}

/// Both filters of a case, filled.
fn both(case: &Case) -> (Before, After) {
    (Before::filled(case), After::filled(case))
}

/// Ends the run if the two filters did not answer yes equally often.
fn check_answers(case: &Case, work: &Work, before: usize, after: usize) {
    if before != after {
        eprintln!(
            "compare: {}, {work}: the commits differ: {before} and {after} answers are yes",
            case.name
        );
        std::process::exit(1);
    }
}

fn print_head(case: &Case, unit: &str) {
    println!("{case}");
    println!("  {:<12} {:>10} {:>10} {:>8}", unit, "before", "after", "ratio");
}

fn print_row(work: &Work, before: f64, after: f64, ratio: f64) {
    println!("  {:<12} {before:>10.1} {after:>10.1} {ratio:>8.3}", work.to_string());
}
