//! Brings the items of files into filters: into one key, or into all shards of a sharded filter at
//! once.
//!
//! ```text
//!   items::Batches ──batch──▶ Delivery ──────────────────▶ server        one key
//!                  ──batch──▶ Fleet ──piece──▶ Delivery ─▶ server        a shard, a thread
//!                                   ──piece──▶ Delivery ─▶ server        ...
//!                             Ledger ◀──confirmed── all of them
//!                                └──▶ Journal of each file
//! ```

mod delivery;
mod fleet;
pub(crate) mod journal;
mod ledger;
mod proof;
mod sink;
mod wire;

use std::{fmt, path::PathBuf, time::Duration};

pub(crate) use delivery::{Delivery, Now, Route, Settings, Stop, Totals};
pub(crate) use fleet::{Fleet, Goal, batch_bytes};
pub(crate) use ledger::{Ledger, Piece};
pub(crate) use proof::{Mark, Seen, Verdict};
pub(crate) use sink::Sink;
pub(crate) use wire::not_shard;

use crate::{
    amount,
    connection::{Target, Targets},
    error::Error,
    interrupt,
    items::{self, Batches, Source},
    output::Output,
    progress::{Progress, Unit},
    refusal::Kind,
};

/// What is said where nothing proves that the items are in.
const RESTARTED: &str = "the server restarted, or another one took its place, and nothing proves \
                         that it has the items sent before";

/// Why a load ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) stop: Stop,
    /// The number of the shard, and the number of shards.
    pub(crate) shard: Option<(usize, usize)>,
}

impl<S: Into<Stop>> From<S> for Failure {
    fn from(stop: S) -> Self {
        Self { stop: stop.into(), shard: None }
    }
}

impl Failure {
    /// Whether items may be lost that were confirmed.
    pub(crate) fn is_loss(&self) -> bool {
        matches!(self.stop, Stop::Lost(_) | Stop::Restarted)
    }

    /// A shard that is not there, or a filter in its place, is a lost shard. Only the descriptor
    /// tells it from one that a rebuild replaced.
    fn lost(self) -> Self {
        let stop = match self.stop {
            Stop::Refused(refusal) if refusal.kind == Kind::NotFound => {
                Stop::Lost(delivery::GONE.to_owned())
            }
            Stop::Refused(refusal) if refusal.text.starts_with("ERR filter is not shard") => {
                Stop::Lost(format!(
                    "{refusal}: somebody made the key anew, without the items of the shard"
                ))
            }
            other => other,
        };
        Self { stop, ..self }
    }

    /// The error for the user. `task` is the subcommand with the filter, `items` says how many
    /// items are in, `on` what to do when the cause is removed.
    pub(crate) fn explained(self, task: &str, items: &Items, on: &str) -> Error {
        let name = task.split_once(' ').map_or("NAME", |(_, name)| name);
        let (this, task) = match self.shard {
            Some((shard, shards)) => (self.lost(), format!("{task}: shard {shard} of {shards}")),
            None => (self, task.to_owned()),
        };
        let what = |text: &str| format!("{task}: {text}; {items}");
        let go_on = || on.replacen("Then go", "Go", 1);
        match (this.stop, this.shard) {
            (Stop::Failed(error), _) => error,
            (Stop::Lost(text), Some((shard, _))) => Error::incomplete(
                format!("{task}: {text}"),
                format!(
                    "Load its items from their source by `repair {name} --shard {shard} --from \
                     FILE`, then this from the beginning."
                ),
            ),
            (Stop::Refused(refusal), _) if items.count == 0 => Error::refused(task, refusal),
            (Stop::Refused(refusal), None) if refusal.kind == Kind::WrongType => Error::incomplete(
                format!("{task}: somebody put another key in the place of the filter: {refusal}"),
                "None of the items is in that key. Restore or create the filter, then load \
                 everything from the beginning.",
            ),
            // Another filter has nothing of what this one took.
            (Stop::Refused(refusal), _) if refusal.kind == Kind::Full => Error::refused_partly(
                what(&refusal.text),
                "Create a larger filter, or one that grows, and load everything into it \
                 from the beginning, without --resume and --skip.",
            ),
            (Stop::Refused(refusal), _) => {
                Error::refused_partly(what(&refusal.text), format!("{} {on}", refusal.hint()))
            }
            // Whether the server has what it acknowledged is seen when it answers again.
            (Stop::Unreachable(text), _) => Error::incomplete(
                what(&text),
                format!("See that the server runs, and its log. {on}"),
            ),
            (Stop::Restarted, _) => Error::incomplete(
                what(RESTARTED),
                format!("{} --acks proves that a replica that takes over has the items.", go_on()),
            ),
            (Stop::Uncertain(text, count), _) => Error::incomplete(
                format!("{}, the {count} after them perhaps", what(&text)),
                format!(
                    "A COUNTING filter counts what is added twice, so nothing was sent again. {on}"
                ),
            ),
            (Stop::Unproved(text), _) => Error::incomplete(what(&text), go_on()),
            (Stop::Lost(text), None) => Error::incomplete(
                format!("{task}: {text}"),
                "Load again from the beginning; --durable or --acks wait for safe storage.",
            ),
            (Stop::Interrupted, _) => Error::Interrupted { hint: go_on() },
        }
    }
}

/// How many items are in.
pub(crate) struct Items {
    pub(crate) count: u64,
    /// Whether replicas have them, or the append-only file.
    pub(crate) confirmed: bool,
    /// Nothing proves it.
    pub(crate) unknown: bool,
}

impl fmt::Display for Items {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unknown {
            return formatter.write_str("how many items are in is unknown");
        }
        let are = if self.confirmed { "confirmed" } else { "in" };
        write!(formatter, "{} items are {are}", amount::grouped(self.count))
    }
}

/// Options of subcommands that load files into new shards.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub(crate) struct Options {
    /// Counts an item as loaded when the server's append-only file is synced (WAITAOF)
    #[arg(long)]
    durable: bool,
    /// Counts an item as loaded when so many replicas have it (WAIT); without it, 1 where there are
    /// replicas
    #[arg(long, value_name = "REPLICAS")]
    acks: Option<u64>,
    /// How long to try again when a server cannot be reached
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = amount::time)]
    retry_for: Duration,
}

impl Options {
    pub(crate) fn settings(&self) -> Settings {
        Settings { acks: self.acks, durable: self.durable, retry_for: self.retry_for }
    }
}

/// Files with items, and how to read them.
pub(crate) struct Files<'f> {
    pub(crate) paths: &'f [PathBuf],
    pub(crate) items: &'f items::Options,
}

/// Adds the items of files to the shards of a generation, or to one shard under another key: for
/// `rebuild` and `repair`. No journal is kept: if it ends early, it is done again from the
/// beginning, because to add an item twice is harmless.
///
/// `task` is the subcommand with the filter, for messages: `rebuild urls`. `target` is any node of
/// the cluster. Every key must exist. With `acks: None` an item counts when a replica has it,
/// wherever there is one.
///
/// # Errors
/// They name the shard, and say how many items are in.
pub(crate) fn load_files(
    task: &str,
    goal: Goal,
    files: &Files<'_>,
    settings: Settings,
    target: Target,
    output: &Output,
) -> Result<Totals, Error> {
    let confirmed = settings.durable || settings.acks != Some(0);
    let explained = |failure: Failure, totals: Totals| {
        let items = Items { count: totals.items, confirmed, unknown: totals.unknown };
        failure.explained(task, &items, "Then do it again: to add an item twice is harmless.")
    };
    let mut server = target.connect()?;
    let route = Route::new(&[], Targets::of(target, &mut server)?, output);
    let started = Fleet::start(goal, settings, route);
    let mut fleet = started.map_err(|failure| explained(failure, Totals::default()))?;
    let read = read_all(&mut fleet, files, output);
    let ended = fleet.finish();
    // A thread that ended early is why the reader stopped.
    let ended = ended.and(read).map_err(|failure| fleet.concluded(failure));
    let totals = fleet.totals();
    ended.map(|()| totals).map_err(|failure| explained(failure, totals))
}

fn read_all(fleet: &mut Fleet, files: &Files<'_>, output: &Output) -> Result<(), Failure> {
    for (number, path) in files.paths.iter().enumerate() {
        let source = Source::named(path);
        let (input, length) = source.open()?;
        let mut progress = Progress::new(output, &source.name(), length);
        let size = fleet.batch_size(files.items.batch);
        let mut batches = Batches::new(input, files.items).of_size(size);
        let mut items = 0;
        while let Some(batch) = batches.next_batch().map_err(Error::file(source.name()))? {
            if interrupt::requested() {
                return Err(Stop::Interrupted.into());
            }
            items += batch.count;
            let end = batch.end;
            fleet.offer(number, batch)?;
            progress.note(fleet.note());
            progress.at(end, items, Unit::Items);
        }
    }
    Ok(())
}
