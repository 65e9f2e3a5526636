//! `redis-bloom load NAME [FILE...|-]`: adds the items of files, or of standard input, to a filter.
//!
//! ```text
//!   Input ──batch──▶ Pace ──▶ Fleet ──▶ server, or all shards
//!                               └─confirmed─▶ Journal
//! ```

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{
    amount,
    connection::{Options, Target, Targets},
    error::{Error, Exit},
    interrupt, items,
    loading::{
        self, Failure, Fleet, Goal, Input, Items, Ledger, Regular, Route, Seen, Stop, Totals,
        Verdict, begin_again, concluded,
        journal::{Journal, Position},
        read_all, resumed,
    },
    name,
    output::Output,
    retry::retry,
    sharded::{self, Filter},
};

/// How many times a load begins again because a server restarted.
const AGAIN: u32 = 5;

/// Adds the items of files or of standard input to a filter
///
/// Every line is an item, as it is: nothing is stripped, and an empty line is an empty item. The
/// filter must exist. A journal beside each file, FILE.redis-bloom, records how far the load is;
/// --resume continues there. The journal is removed when all files are loaded. If a server
/// restarted and may have lost items, all are sent again. The first Ctrl-C ends the load cleanly,
/// the second one immediately.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter
    name: OsString,
    /// Files with items; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,
    /// Continues where an earlier load of the same files ended
    #[arg(long)]
    resume: bool,
    /// Items a second, at most
    #[arg(long, value_name = "N", value_parser = amount::positive_items)]
    rate: Option<u64>,
    /// How often the journal is written
    #[arg(long, hide = true, value_name = "TIME", default_value = "1s")]
    #[arg(value_parser = amount::time)]
    journal_every: Duration,
    #[command(flatten)]
    confirmed: loading::Options,
    // Last: clap puts all later options under the same heading.
    #[command(flatten)]
    items: items::Options,
}

/// What was done.
#[derive(Serialize)]
struct Summary {
    items: u64,
    new: u64,
    known: u64,
    seconds: f64,
    items_per_second: f64,
    /// Items that were sent again, because a connection broke.
    resent: u64,
    /// Whether every item of the input is in the filter.
    complete: bool,
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        interrupt::register();
        let target = connection.target()?;
        let inputs = self.files.iter().map(|file| self.input(file, target.database, output));
        let mut inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let started = Instant::now();
        let (mut again, mut resent, mut targets) = (0, 0, None);
        loop {
            let (mut fleet, ledger) = self.open(&target, &mut targets, &mut inputs, output)?;
            let read = read_all(&mut fleet, &inputs, &self.items, self.rate, output);
            let loaded = concluded(&mut fleet, read);
            let mut totals = fleet.totals();
            totals.resent += resent;
            let restarted = matches!(&loaded, Err(Failure { stop: Stop::Restarted, .. }));
            let files = inputs.iter().all(|input| input.regular.is_some());
            let may = files && again < AGAIN && !interrupt::requested();
            if !restarted || !may {
                if fleet.counting && (self.resume || totals.resent > 0) {
                    output
                        .remark("It is a COUNTING filter: items that were sent again count twice");
                }
                return self.end(loaded, totals, &ledger, started.elapsed(), output);
            }
            again += 1;
            resent = totals.resent + totals.items;
            output.remark(format_args!(
                "the server restarted, or another one took its place, and may have lost items: \
                 sending all of them again"
            ));
            for journal in ledger.journals().into_iter().flatten() {
                journal.close()?;
            }
            begin_again(&mut inputs);
        }
    }

    /// Finds the filter, and begins the journals. The servers found in `target`'s cluster are kept
    /// in `targets`: they are asked when the load begins again.
    fn open(
        &self,
        target: &Target,
        targets: &mut Option<Targets>,
        inputs: &mut [Input],
        output: &Output,
    ) -> Result<(Fleet, Arc<Ledger>), Error> {
        let targets = match targets {
            Some(targets) => targets.clone(),
            None => targets.insert(Targets::of(target.clone())?).clone(),
        };
        // A server that loads its data is waited for.
        let (read, filter) =
            retry(self.confirmed.retry_for, |_| sharded::find_by(&targets, self.key()))?;
        let loaded = resumed(inputs).next().is_some();
        let route = Route { loaded, ..Route::new(self.key(), targets, output) };
        let ledger = Arc::clone(&route.ledger);
        let mut settings = self.confirmed;
        let goal = match filter {
            Filter::Sharded(descriptor) => Goal::Filter(descriptor, read),
            Filter::Key => {
                settings.acks = settings.acks.or(Some(0));
                Goal::Key
            }
        };
        let fleet = Fleet::start(goal, settings, route).map_err(|failure| self.early(failure))?;
        let generation = fleet.generations().first().map(|of| of.0);
        self.resume(inputs, (generation, &fleet.found), output);
        let mut journals = Vec::new();
        for input in &*inputs {
            journals.push(input.journal(&ledger, self.journal_every, output)?);
        }
        ledger.keep(journals);
        Ok((fleet, ledger))
    }

    fn key(&self) -> &[u8] {
        name::bytes(&self.name)
    }

    /// Ends the journals, and prints what was done.
    fn end(
        &self,
        loaded: Result<(), Failure>,
        totals: Totals,
        ledger: &Ledger,
        time: Duration,
        output: &Output,
    ) -> Result<Exit, Error> {
        let seconds = time.as_secs_f64();
        let summary = Summary {
            items: totals.items,
            // Shards may be ahead of the first item that is not confirmed.
            new: totals.new.min(totals.items),
            known: totals.items.saturating_sub(totals.new),
            resent: totals.resent,
            seconds,
            items_per_second: totals.items as f64 / seconds.max(1e-9),
            complete: loaded.is_ok(),
        };
        // A journal of items that may be lost must not be resumed from.
        let lost = |failure: &Failure| matches!(failure.stop, Stop::Lost(_));
        let ended = loaded.as_ref().err().is_none_or(lost);
        let journals = ledger.journals();
        let resumable = !journals.is_empty() && journals.iter().all(Option::is_some);
        let mut removed = Ok(());
        for journal in journals.into_iter().flatten() {
            if ended {
                removed = removed.and(journal.remove());
            } else if let Err(error) = journal.close() {
                // The last journal on the disk is older, and right.
                output.remark(format_args!("the journal: {error}"));
            }
        }
        let is_loss = loaded.as_ref().is_err_and(Failure::is_loss);
        let result = match loaded {
            Err(stop) => Err(self.explained(stop, resumable, totals)),
            Ok(()) => removed.map(|()| Exit::Done),
        };
        match result {
            Ok(exit) => output.data(&summary, summary.text()).map(|()| exit),
            // There is nothing to say about what was not read, or may be lost.
            Err(error) if error.exit() == Exit::Usage && summary.items == 0 => Err(error),
            Err(error) if is_loss || totals.unknown => Err(error),
            Err(error) => {
                // Why the load ended matters more than a stdout that cannot be written.
                let _ = output.try_data(&summary, summary.text());
                Err(error)
            }
        }
    }

    /// Opens a file, and looks for its journal.
    fn input(&self, path: &Path, database: i64, output: &Output) -> Result<Input, Error> {
        let load = format!("{} in database {database}, {}", self.shown(), self.items.form());
        let mut input = Input::open(path, load)?;
        let name = &input.name;
        let Some(regular) = &mut input.regular else {
            if !self.resume {
                return Ok(input);
            }
            return Err(Error::usage(
                format!("{name} cannot be resumed: it has no journal"),
                "Load it from the beginning, or name a file.",
            ));
        };
        match Journal::read(&regular.path, &regular.identity, self.resume)? {
            Some(position) => regular.start = position,
            None if !self.resume => {}
            None => output.remark(format_args!("{name}: no journal, so from the beginning")),
        }
        Ok(input)
    }

    /// Checks that the filter has what an earlier load put there. It compares the journals with the
    /// generation that answers, and with what was found in its shards or in the one key. If nothing
    /// proves it, the load begins at the start of the files.
    fn resume(
        &self,
        inputs: &mut [Input],
        (generation, found): (Option<u64>, &[Option<Seen>]),
        output: &Output,
    ) {
        let has_all = |file: &Regular| {
            let Position { generation: of, marks, .. } = &file.start;
            let mut pairs = marks.iter().zip(found);
            *of == generation
                && marks.len() == found.len()
                && pairs.all(|(mark, seen)| match (mark, seen) {
                    (Some(mark), Some(seen)) => mark.judged(seen) == Verdict::Proved,
                    _ => false,
                })
        };
        if !resumed(inputs).all(has_all) {
            output.remark(format_args!(
                "nothing proves that {} has all items of the earlier load: from the beginning",
                self.shown()
            ));
            return begin_again(inputs);
        }
        for file in resumed(inputs) {
            output.remark(format_args!(
                "{}: continues at byte {}, after {} items",
                name::readable_path(&file.path),
                file.start.offset,
                amount::grouped(file.start.items)
            ));
        }
    }

    /// The name, for messages.
    fn shown(&self) -> String {
        name::readable(self.key())
    }

    /// The error for a load that ended before it began.
    fn early(&self, failure: impl Into<Failure>) -> Error {
        self.explained(failure.into(), false, Totals::default())
    }

    /// The error for a load that ended early. `resumable`: there are journals.
    fn explained(&self, failure: Failure, resumable: bool, totals: Totals) -> Error {
        let acks = self.confirmed.acks;
        let confirmed = acks.map_or(failure.shard.is_some(), |acks| acks > 0);
        let items = Items { count: totals.items, confirmed, unknown: totals.unknown };
        let on = match resumable {
            true => "Then repeat the command with --resume.",
            false => {
                "Then load again from the beginning. If it is a COUNTING filter, create it again \
                 first: it counts an item that is sent twice as two."
            }
        };
        let recreate = sharded::recreate(&name::typed(self.key()));
        let lost = format!("{recreate} Then load this from the beginning.");
        failure.explained(&format!("load {}", self.shown()), &items, on, &lost)
    }
}

impl Summary {
    fn text(&self) -> String {
        let [new, known] = [self.new, self.known].map(amount::grouped);
        let items = amount::counted(self.items, "item");
        let rate = amount::readable_items(self.items_per_second as u64);
        format!("{items}: {new} new, {known} known; {:.2} s, {rate}/s", self.seconds)
    }
}
