//! `make compare REV=...`: the filter of another commit and that of this tree, in one process, by
//! turns.
//!
//! Two programs, or two runs of one, differ by more than most changes to the filter do: the
//! machine's speed drifts, its neighbours come and go, memory lies elsewhere. So both commits are
//! linked into this program, and do the same work with the same items in turns of a fraction of a
//! millisecond to some milliseconds, now the one first and now the other:
//!
//! ```text
//!   round:  items ─▶ before, after     other items ─▶ after, before
//!   ...
//!   a ratio is the median over rounds of the ratio in one round (`benches/suite/measure.rs`)
//! ```
//!
//! With COUNT=1 it counts instructions in place of time: one turn of each, in valgrind's callgrind.
//! These counts are the same on every run, and are what the essays of `src/filter` cite; what a
//! change does to waits for memory they do not tell. In both, the loop over the items is included,
//! and the hash; what makes the items is not.
//!
//! Items are the same, the seed is, so the filters must give equal answers. A turn in which they do
//! not ends the run: then the commits differ in more than speed.
//!
//! What it uses of the crate must be there in both commits: `Filter` with `new`, `contains`, `hash`
//! and `layers`, `add_each` and `contains_each` that answer chunk by chunk; `Answers::ones`;
//! `Params` with its five fields, `CellKind` and `Expansion`. Crates that both depend on are those
//! of this tree's `Cargo.lock` for both.
//!
//! ```text
//!   compare time ROUNDS [CASE ...]        all cases if none is named
//!   compare count [CASE ...]
//! ```

mod case;
mod count;
#[expect(dead_code, reason = "the bench asks more of it")]
#[path = "../../suite/measure.rs"]
mod measure;
mod side;
mod time;

use case::{CASES, Case, Work};
use side::Side;

/// The filter of the commit that is compared with.
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
        _ => usage("what to do?"),
    }
}

/// The cases of these names, or all.
fn chosen(names: &[&str]) -> Vec<&'static Case> {
    let known = CASES.map(|case| case.name);
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        usage(&format!(
            "there is no case {unknown}; there are {}",
            known.join(", ")
        ));
    }
    CASES
        .iter()
        .filter(|case| names.is_empty() || names.contains(&case.name))
        .collect()
}

fn usage(what: &str) -> ! {
    eprintln!("compare: {what}");
    std::process::exit(2);
}

/// The filters of a case, filled.
fn both(case: &Case) -> (Before, After) {
    let filters = (Before::filled(case), After::filled(case));
    check_layers(case, &filters);
    filters
}

/// That a case is what its name says, and still is after the work.
fn check_layers(case: &Case, (before, after): &(Before, After)) {
    let found = (Side::layers(before), Side::layers(after));
    assert_eq!(
        found,
        (case.layers, case.layers),
        "layers before and after, {}",
        case.name
    );
}

/// That both gave the same number of items the answer yes.
fn check_answers(case: &Case, work: &Work, before: usize, after: usize) {
    if before != after {
        eprintln!(
            "compare: {}, {work}: the commits answer differently, {before} and {after} times yes: not the same filter",
            case.name
        );
        std::process::exit(1);
    }
}

fn print_head(case: &Case, unit: &str) {
    println!("{case}");
    println!(
        "  {:<12} {:>10} {:>10} {:>8}",
        unit, "before", "after", "ratio"
    );
}

fn print_row(work: &Work, before: f64, after: f64, ratio: f64) {
    println!(
        "  {:<12} {before:>10.1} {after:>10.1} {ratio:>8.3}",
        work.to_string()
    );
}
