//! Instructions per operation in process, counted by valgrind's callgrind. The load of the machine
//! does not change them.
//!
//! The program runs itself under valgrind as a worker, which makes a filter and all items and then
//! does n operations. Two runs with different n differ only by the operations. So the count is the
//! difference of their totals over the difference of n. It includes the loops and calls of the
//! bench, about 5 instructions an item.

#[path = "../filter/rivals.rs"]
mod rivals;

use std::{hint::black_box, process::Command};

use redis_bloom::filter::{Additions, Author, Filter, Params, paged::Paged};

use crate::report::Section;
use rivals::{BATCH, Batched, Rival, STRANGERS, items};

/// First argument of a worker.
pub(crate) const WORKER: &str = "count-instructions";

/// Operations of the two runs.
const FEW: u64 = 10_000;
const MANY: u64 = 60_000;

/// Title, first capacity, members added before, error rate, bytes of an item.
type Case = (&'static str, u64, u64, f64, usize);

const CASES: [Case; 6] = [
    ("1 %, 16 bytes", 400_000, 200_000, 0.01, 16),
    ("0.1 %, 16 bytes", 400_000, 200_000, 0.001, 16),
    ("1 %, 8 bytes", 400_000, 200_000, 0.01, 8),
    ("1 %, 100 bytes", 400_000, 200_000, 0.01, 100),
    ("1 %, 1000 bytes", 400_000, 200_000, 0.01, 1000),
    ("1 %, 16 bytes, grown 130 times", 1_000, 130_000, 0.01, 16),
];

const OPS: [&str; 4] = ["add", "hit", "miss", DELETE];
/// Only filters with COUNTING support it.
const DELETE: &str = "delete";

/// A worker of a rival: case, operation, number of operations.
type Worker = fn(&Case, &str, u64);
const RIVALS: [(&str, Worker); 6] = [
    (Filter::NAME, work_with::<Filter>),
    (Batched::NAME, work_with::<Batched>),
    (Grown::NAME, work_with::<Grown>),
    (Counting::NAME, work_counting),
    (<fastbloom::BloomFilter as Rival>::NAME, work_with::<fastbloom::BloomFilter>),
    (<bloomfilter::Bloom<[u8]> as Rival>::NAME, work_with::<bloomfilter::Bloom<[u8]>>),
];

pub(crate) fn run() -> Option<Section> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("bench: valgrind is not installed: no instructions are counted");
        return None;
    }
    let mut section = Section::new("Instructions in process");
    section.say(
        "Instructions per operation in one process, hash included, without a server \
         (`valgrind --tool=callgrind`). Two runs differ in their number of operations. The figure \
         is the difference of their instructions, divided by the difference of these numbers. \
         Valgrind has no AVX-512, so this is the scalar code.",
    );
    let mut rows = Vec::new();
    for (case, (title, first, members, ..)) in CASES.iter().enumerate() {
        for op in OPS {
            let cells = RIVALS.iter().enumerate().map(|(rival, (name, _))| {
                // Plain filters of one layer do not grow.
                let grows = [Grown::NAME, Counting::NAME].contains(name);
                if (members > first && !grows) || (op == DELETE && *name != Counting::NAME) {
                    return "-".to_owned();
                }
                format!("{:.0}", per_operation(case, op, rival))
            });
            rows.push([(*title).to_owned(), op.to_owned()].into_iter().chain(cells).collect());
        }
    }
    let head: Vec<&str> =
        ["filter", "operation"].into_iter().chain(RIVALS.map(|(name, _)| name)).collect();
    section.table(&head, &rows);
    Some(section)
}

fn per_operation(case: usize, op: &str, rival: usize) -> f64 {
    let [few, many] = [FEW, MANY].map(|count| total(case, op, rival, count));
    (many - few) / (MANY - FEW) as f64
}

/// All instructions of one worker.
fn total(case: usize, op: &str, rival: usize, count: u64) -> f64 {
    let program = std::env::current_exe().expect("a running program has a path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([WORKER, &case.to_string(), op, &rival.to_string(), &count.to_string()])
        .output()
        .expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split("Collected :").nth(1));
    let total = collected.and_then(|total| total.trim().parse().ok());
    total.unwrap_or_else(|| panic!("valgrind counted nothing:\n{text}"))
}

/// The worker. Arguments: case, operation, rival, number of operations.
pub(crate) fn work(arguments: &[String]) {
    let number = |i: usize| arguments[i].parse::<usize>().expect("a number");
    let (_, worker) = RIVALS[number(2)];
    worker(&CASES[number(0)], &arguments[1], number(3) as u64);
}

fn work_with<R: Rival>(&(_, first, members, rate, len): &Case, op: &str, count: u64) {
    let mut filter = R::new(first, rate);
    let mut buffer = Vec::new();
    items(0..members, len, &mut buffer);
    filter.add_all(&buffer, len);
    let start = match op {
        "hit" => 0,
        "add" => members,
        _ => STRANGERS,
    };
    // Both runs make all items, so that they differ only by the operations.
    items(start..start + MANY, len, &mut buffer);
    let chosen = &buffer[..count as usize * len];
    black_box(match op {
        "add" => filter.add_all(chosen, len),
        _ => filter.count(chosen, len),
    });
}

/// A filter of pages, in batches of 100 items: one that grew from nothing, or one with COUNTING.
struct Pages<const COUNTS: bool>(Paged);

type Grown = Pages<false>;
type Counting = Pages<true>;

impl<const COUNTS: bool> Rival for Pages<COUNTS> {
    const NAME: &'static str =
        if COUNTS { "redis-bloom COUNTING, batches" } else { "redis-bloom grown, batches" };

    fn new(capacity: u64, rate: f64) -> Self {
        let plain = <Filter as Rival>::new(capacity, rate).params();
        let params = if COUNTS { Params { counts: true, ..plain } } else { plain };
        Self(Paged::new(&params, None, u64::MAX).expect("memory for the filter"))
    }

    fn add(&mut self, item: &[u8]) -> bool {
        let hash = self.0.hash(item);
        let added = self.0.add(hash, Author::Client(0), |_| u64::MAX);
        added.expect("memory for another page").new
    }

    fn has(&self, item: &[u8]) -> bool {
        self.0.contains(self.0.hash(item), 0)
    }

    fn add_all(&mut self, items: &[u8], len: usize) -> usize {
        let mut new = 0;
        for batch in items.chunks(BATCH * len) {
            let count = |done: Additions| new += done.new.ones();
            let each = batch.chunks_exact(len);
            let outcome = self.0.add_each(each, Author::Client(0), |_| u64::MAX, count);
            outcome.expect("memory for another page");
        }
        new
    }

    fn count(&self, items: &[u8], len: usize) -> usize {
        let mut found = 0;
        for batch in items.chunks(BATCH * len) {
            self.0.contains_each(batch.chunks_exact(len), 0, |there| found += there.ones());
        }
        found
    }
}

fn work_counting(case: &Case, op: &str, count: u64) {
    if op != DELETE {
        return work_with::<Counting>(case, op, count);
    }
    let &(_, first, members, rate, len) = case;
    let mut filter = Counting::new(first, rate);
    let mut buffer = Vec::new();
    items(0..members, len, &mut buffer);
    filter.add_all(&buffer, len);
    let mut deleted = 0;
    for batch in buffer[..count as usize * len].chunks(BATCH * len) {
        filter.0.delete_each(batch.chunks_exact(len), |gone| deleted += gone.ones());
    }
    black_box(deleted);
}
