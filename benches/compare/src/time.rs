//! CPU nanoseconds an item.
//!
//! The commit that runs second in a turn finds the items in nearer caches. So a round has two
//! turns, one in each order. (If the order alternated from round to round, the median would fall
//! among the rounds of one order.) The first round of an operation is not counted: its code and its
//! branch predictions are cold.

use std::{hint::black_box, time::Duration};

use crate::{
    both,
    case::{Case, Item, Op, Source, TURN, WORKS, Work},
    check_answers,
    measure::Series,
    print_head, print_row,
    side::Side,
};

/// The most rounds of additions: with more the filters would be full.
const ADDITIONS: usize = 11;

pub(crate) fn run(case: &Case, rounds: usize) {
    let mut filters = both(case);
    let mut source = Source::new(case);
    print_head(case, "CPU ns");
    for work in &WORKS {
        let rounds = match work.op {
            Op::Add => rounds.min(ADDITIONS),
            Op::Hit | Op::Miss => rounds,
        };
        let (mut before, mut after) = (Series::default(), Series::default());
        for round in 0..=rounds {
            let (mut time_before, mut time_after) = (0.0, 0.0);
            for before_first in [true, false] {
                let items = source.turn(work.op);
                let (before, after);
                if before_first {
                    before = turn(&mut filters.0, work, &items, &mut time_before);
                    after = turn(&mut filters.1, work, &items, &mut time_after);
                } else {
                    after = turn(&mut filters.1, work, &items, &mut time_after);
                    before = turn(&mut filters.0, work, &items, &mut time_before);
                }
                check_answers(case, work, before, after);
            }
            if round > 0 {
                before.push(time_before);
                after.push(time_after);
            }
        }
        print_row(work, before.median(), after.median(), after.over(&before));
    }
}

/// Runs one turn of one side; returns how many answers were yes. Adds the nanoseconds an item to
/// `time`, as a share of the mean over the two turns of a round.
fn turn(filter: &mut impl Side, work: &Work, items: &[Item], time: &mut f64) -> usize {
    let start = processor_time();
    let yes = black_box(filter.turn(work, items));
    *time += (processor_time() - start).as_nanos() as f64 / (2 * TURN) as f64;
    yes
}

/// CPU time of this thread. Wall time would include the time slices of other processes, which are
/// about as long as a turn.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that lives longer than the call.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(code, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
