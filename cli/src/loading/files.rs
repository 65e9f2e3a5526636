//! Files into new shards: what `rebuild` loads. No journal is kept.

use std::{io, path::PathBuf};

use super::{
    failure::{Failure, Items, Stop},
    fleet::Fleet,
    goal::Goal,
    route::{Options, Route, Totals},
};
use crate::{
    connection::{Target, Targets},
    error::Error,
    interrupt,
    items::{self, Batches, Source},
    output::Output,
    progress::{Progress, Unit},
};

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
        let (input, length) = match &source {
            Source::File(path) if path.is_file() => source.open()?,
            _ => (source.live(), None),
        };
        let mut progress = Progress::new(output, &source.name(), length);
        let size = fleet.batch_size(files.items.batch);
        let mut batches = Batches::new(input, files.items).of_size(size);
        let mut items = 0;
        loop {
            if interrupt::requested() {
                return Err(Stop::Interrupted.into());
            }
            let batch = match batches.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(Error::file(source.name())(error).into()),
            };
            items += batch.count;
            let end = batch.end;
            fleet.offer(number, batch)?;
            progress.at(end, items, Unit::Items);
        }
    }
    Ok(())
}
