//! Reads files, and adds their items to filters.

use std::{
    io,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use super::{
    failure::{Failure, Items, Stop},
    fleet::Fleet,
    goal::Goal,
    input::Input,
    route::{Options, Route, Totals},
};
use crate::{
    amount,
    connection::{Target, Targets},
    error::Error,
    interrupt, items,
    output::Output,
    progress::Progress,
};

/// The longest sleep without a look for Ctrl-C.
const MOMENT: Duration = Duration::from_millis(100);

/// Files with items, how to read them, and when their items count as loaded.
pub(crate) struct Files<'f> {
    pub(crate) paths: &'f [PathBuf],
    pub(crate) items: &'f items::Options,
    pub(crate) confirmed: &'f Options,
}

/// Adds the items of files to the shards of a generation. No journal is kept: if it ends early, it
/// is done again from the beginning, because to add an item twice is harmless.
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
    target: Target,
    output: &Output,
) -> Result<Totals, Error> {
    let settings = *files.confirmed;
    let confirmed = settings.acks != Some(0);
    let explained = |failure: Failure, totals: Totals| {
        let items = Items { count: totals.items, confirmed, unknown: totals.unknown };
        failure.explained(
            task,
            &items,
            "Then do it again: to add an item twice is harmless.",
            "Give up by --abort, and begin again.",
        )
    };
    let route = Route::new(&[], Targets::of(target)?, output);
    let inputs = files.paths.iter().map(|path| Input::open(path, String::new()));
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    let started = Fleet::start(goal, settings, route);
    let mut fleet = started.map_err(|failure| explained(failure, Totals::default()))?;
    let read = read_all(&mut fleet, &inputs, files.items, None, output);
    let ended = concluded(&mut fleet, read);
    let totals = fleet.totals();
    ended.map(|()| totals).map_err(|failure| explained(failure, totals))
}

/// Reads files, at most `rate` items a second, and delivers their items.
pub(crate) fn read_all(
    fleet: &mut Fleet,
    inputs: &[Input],
    options: &items::Options,
    rate: Option<u64>,
    output: &Output,
) -> Result<(), Failure> {
    let mut pace = Pace { rate, started: Instant::now(), due: 0.0 };
    let size = fleet.batch_size(options.batch);
    for (number, input) in inputs.iter().enumerate() {
        let (length, begin) = input.extent();
        let mut progress = Progress::new(output, &input.name, length).from(begin);
        let batches = input.batches(options)?;
        let mut batches = batches.at_most(pace.most()).of_size(size);
        let mut items = 0;
        loop {
            if interrupt::requested() {
                fleet.finish()?;
                return Err(Stop::Interrupted.into());
            }
            let batch = match batches.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    fleet.follow()?;
                    continue;
                }
                Err(error) => {
                    fleet.finish()?;
                    return Err(Error::file(&input.name)(error).into());
                }
            };
            while let Some(early) = pace.early() {
                fleet.follow()?;
                if interrupt::requested() {
                    return Err(Stop::Interrupted.into());
                }
                thread::sleep(early.min(MOMENT));
            }
            pace.sent(batch.count);
            items += batch.count;
            let end = batch.end;
            fleet.offer(number, batch)?;
            progress.at(end, items, amount::readable_items);
        }
        if !input.is_unchanged() {
            fleet.finish()?;
            return Err(Failure::from(Error::incomplete(
                format!("{} changed while it was read", input.name),
                "Load it again from the beginning when no program writes it.",
            )));
        }
    }
    fleet.finish()
}

/// Ends a load, however its files were read, and sees whether the filter has what was confirmed.
pub(crate) fn concluded(fleet: &mut Fleet, read: Result<(), Failure>) -> Result<(), Failure> {
    // The other threads confirm what they have; one that lost items matters most.
    let ended = match (read, fleet.finish()) {
        (Err(_), Err(ended)) if ended.is_loss() => Err(ended),
        (read, ended) => read.and(ended),
    };
    ended.map_err(|failure| fleet.concluded(failure))
}

/// Keeps to a number of items a second.
struct Pace {
    rate: Option<u64>,
    started: Instant,
    /// When the next batch is due, in seconds.
    due: f64,
}

impl Pace {
    /// Notes that items are sent.
    fn sent(&mut self, items: u64) {
        self.due += self.rate.map_or(0.0, |rate| items as f64 / rate as f64);
    }

    /// The largest number of items in a batch: a twentieth of a second.
    fn most(&self) -> usize {
        self.rate.map_or(usize::MAX, |rate| usize::try_from(rate / 20).unwrap_or(usize::MAX).max(1))
    }

    /// How long to wait before the next batch; `None` if it is due. A pause of the input or of the
    /// server saves up a twentieth of a second at most.
    fn early(&mut self) -> Option<Duration> {
        self.rate?;
        let elapsed = self.started.elapsed().as_secs_f64();
        self.due = self.due.max(elapsed - 0.05);
        let early = self.due - elapsed;
        (early > 0.0).then(|| Duration::from_secs_f64(early.min(1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_saves_up_a_twentieth_of_a_second() {
        // An hour without items, then a second's worth of them: most of it must be waited for.
        let Some(started) = Instant::now().checked_sub(Duration::from_secs(3600)) else { return };
        let mut pace = Pace { rate: Some(1_000_000), started, due: 0.0 };
        assert_eq!(pace.early(), None);
        pace.sent(3_600_000_000);
        assert!(pace.early().is_some());
    }
}
