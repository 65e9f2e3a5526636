//! A randomised model of `load`: what the tool says about the filter is true, whatever happens to
//! the servers, the connections, the filter and the tool itself.
//!
//! ```text
//!   seed ─▶ setup: filter, servers, files, options, events
//!   round ─▶ tool ──▶ relay ──▶ server       world: restart, failover, rename, other clients ...
//!              │        └─ events after so many commands ──▶ world
//!              └─ exit, message ──▶ claims: are these items in the filter?
//! ```
//!
//! - Exit 0: every item of the input is found; and the summary counts them all.
//! - Another exit: the first items of the input are found, as many as the message says, or as
//!   `--skip` would leave out.
//! - A round in which nothing hinders the load must end with exit 0; so must the last run of every
//!   round: a tool that always says "unknown" fails.
//!
//! Left out is what nobody can see: a copy of the filter itself that is put back in the same
//! process (`COPY`, then `RENAME` back). Events are counted by commands that add or wait, so none
//! comes between the last look of the tool and its exit.
//!
//! A seed makes the choices; processes and threads make the rest, so a seed that failed may have to
//! be run several times.

mod claims;
mod input;
mod relay;
mod round;
mod setup;
mod stage;
mod world;

use std::{
    fmt::Write as _,
    panic,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use self::round::{Bench, Tally, play};
/// Rounds of `make test`, from seed 1 on: 3 minutes on two processors.
const ROUNDS: u64 = 500;
/// Rounds at a time: they wait more than they compute.
const AT_ONCE: u64 = 3;

/// A number in an environment variable.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

#[test]
fn what_load_says_is_true_whatever_happens() {
    let bench = Bench::new();
    let first = setting("LOAD_MODEL_SEED").unwrap_or(1);
    let seconds = setting("LOAD_MODEL_SECONDS");
    // A time alone sets no number of rounds.
    let rounds = setting("LOAD_MODEL_ROUNDS").or(seconds.is_none().then_some(ROUNDS));
    let keeps_on = setting("LOAD_MODEL_KEEP_ON").is_some();
    let (started, next) = (Instant::now(), AtomicU64::new(first));
    let (totals, faults) = (Mutex::new(Tally::default()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let late = seconds.is_some_and(|most| started.elapsed() > Duration::from_secs(most));
            let enough = rounds.is_some_and(|rounds| seed >= first + rounds);
            let failed = !keeps_on && !faults.lock().expect("no panic").is_empty();
            if late || enough || failed {
                return;
            }
            let result = panic::catch_unwind(|| play(seed, &bench))
                .unwrap_or_else(|_| Err("the model panicked, see above".to_owned()));
            match result {
                Ok(round) => totals.lock().expect("no panic").add(round),
                Err(fault) => {
                    eprintln!("load_model: seed {seed}: {}", fault.lines().next().unwrap_or(""));
                    faults.lock().expect("no panic").push((seed, fault));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let totals = totals.into_inner().expect("no panic");
    println!("load_model: from seed {first} on in {:?}: {totals:?}", started.elapsed());
    let mut report = String::new();
    for (seed, fault) in faults.into_inner().expect("no panic") {
        let _ = write!(
            report,
            "\n==== seed {seed}: {fault}\nAgain: make soak-load SEED={seed} ROUNDS=1\n"
        );
    }
    assert!(report.is_empty(), "{report}");
}
