//! Instructions an item, counted by valgrind's callgrind.
//!
//! The program runs itself under valgrind as a worker, which fills both filters and gives each one
//! turn of every operation. Callgrind counts inside one function only, and writes a file whenever
//! that function returns. So one run measures a case, and neither filling nor making items is
//! counted. With millions of items a run takes minutes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    both,
    case::{Case, Source, TURN, WORKS},
    check_answers, print_head, print_row,
    side::Side,
};

/// First argument of a worker.
pub(crate) const WORKER: &str = "count-worker";

/// The function in which callgrind counts.
const COUNTED: &str = "counted_turn";

pub(crate) fn run(case: &Case) {
    let program = std::env::current_exe().expect("a running program has a path");
    let files = program.with_extension("callgrind");
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--dump-after={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", files.display()))
        .arg(program)
        .args([WORKER, case.name])
        .output()
        .unwrap_or_else(|error| crate::usage(&format!("valgrind does not run: {error}")));
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        std::process::exit(1);
    }
    print_head(case, "instructions");
    for (index, work) in WORKS.iter().enumerate() {
        // The files are numbered from 1, in the order of the turns.
        let [before, after] = [1, 2].map(|turn| total(&files, 2 * index + turn) / TURN as f64);
        print_row(work, before, after, after / before);
    }
    fs::remove_file(files).expect("what callgrind wrote at the end");
}

/// The instructions of a turn. Removes the file of the turn.
fn total(files: &Path, turn: usize) -> f64 {
    let file = PathBuf::from(format!("{}.{turn}", files.display()));
    let text =
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    fs::remove_file(&file).expect("a file that was just read");
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total.and_then(|total| total.trim().parse().ok());
    total
        .filter(|total| *total > 0.0)
        .unwrap_or_else(|| panic!("callgrind counted nothing:\n{text}"))
}

/// The worker: one turn of each operation for both filters.
pub(crate) fn work(case: &Case) {
    let mut filters = both(case);
    let mut source = Source::new(case);
    for work in &WORKS {
        let items = source.turn(work.op);
        let before = counted_turn(&mut || filters.0.turn(work, &items));
        let after = counted_turn(&mut || filters.1.turn(work, &items));
        check_answers(case, work, before, after);
    }
}

/// One function for both sides, not generic: the compiler may merge two equal instances under one
/// name. Its name is not mangled, because callgrind needs it.
#[inline(never)]
// SAFETY: no other linked symbol has this name.
#[unsafe(no_mangle)]
fn counted_turn(turn: &mut dyn FnMut() -> usize) -> usize {
    turn()
}
