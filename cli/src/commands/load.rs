//! `redis-bloom load NAME [FILE...|-]`: adds the items of files, or of standard input, to a filter.
//!
//! ```text
//!   items::Batches ──batch──▶ Pace ──▶ Delivery ──▶ server
//!                                        └─confirmed─▶ Journal
//! ```

mod delivery;

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{
    amount,
    connection::Options,
    error::{Error, Exit, refusal_hint},
    interrupt::Interrupt,
    items::{self, Batches, Live, Source},
    journal::{self, Identity, Journal, Position},
    name,
    output::Output,
    progress::{Progress, Unit},
};
use delivery::{Delivery, Now, Settings, Stop, Totals};

/// The longest sleep without a look for Ctrl-C.
const MOMENT: Duration = Duration::from_millis(100);

/// Adds the items of files or of standard input to a filter
///
/// Every line is an item, as it is: nothing is stripped, and an empty line is an empty item. The
/// filter must exist, unless --items and --error say how to create it. A journal beside each file,
/// FILE.redis-bloom, notes how far the load is; --resume goes on there. It is removed when all
/// files are loaded. Ctrl-C ends the load in order, a second one at once.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter
    name: String,
    /// Files with items; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,
    /// Goes on where an earlier load of the same files ended
    #[arg(long, conflicts_with = "skip")]
    resume: bool,
    /// Leaves out the first N items
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = amount::items)]
    skip: u64,
    /// Counts an item as loaded when the server's append-only file is synced (WAITAOF)
    #[arg(long)]
    durable: bool,
    /// Counts an item as loaded when so many replicas have it (WAIT)
    #[arg(long, value_name = "REPLICAS", default_value_t = 0, hide_default_value = true)]
    acks: u64,
    /// How long to try again when the server cannot be reached
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = amount::time)]
    retry_for: Duration,
    /// Items a second, at most
    #[arg(long, value_name = "N", value_parser = positive)]
    rate: Option<u64>,
    /// Creates the filter if there is none: the number of items to expect
    #[arg(long = "items", value_name = "N", value_parser = amount::items, requires = "error")]
    capacity: Option<u64>,
    /// Creates the filter if there is none: the rate of false positives
    #[arg(long, value_name = "RATE", value_parser = amount::rate, requires = "capacity")]
    error: Option<f64>,
    /// Reads the items, looks for the filter, and adds nothing
    #[arg(long)]
    dry_run: bool,
    /// How often the journal is written
    #[arg(long, hide = true, value_name = "TIME", default_value = "1s")]
    #[arg(value_parser = amount::time)]
    journal_every: Duration,
    // Last, because the heading of its options goes on for those that follow.
    #[command(flatten)]
    items: items::Options,
}

fn positive(text: &str) -> Result<u64, String> {
    amount::items(text).and_then(|items| match items {
        0 => Err("at least 1".to_owned()),
        items => Ok(items),
    })
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

/// What would be done.
#[derive(Serialize)]
struct DryRun {
    items: u64,
    would_create: bool,
}

/// How to go on after a load that ended early.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// From the journals.
    Resume,
    /// Without journals.
    Skip,
    /// Not at all: items may be lost.
    Again,
}

/// A file of the command line.
struct Input {
    /// For messages.
    name: String,
    source: Source,
    /// `None` for standard input, pipes and devices.
    regular: Option<Regular>,
}

struct Regular {
    file: File,
    path: PathBuf,
    identity: Identity,
    start: Position,
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        let interrupt = Interrupt::register();
        let inputs = self.files.iter().map(|file| self.input(file, output));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let target = connection.target()?;
        let settings = Settings {
            key: self.name.clone(),
            acks: self.acks,
            durable: self.durable,
            retry_for: self.retry_for,
        };
        let early = |stop| self.explained(stop, Next::Skip, Totals::default());
        let (mut delivery, found) =
            Delivery::open(settings, target, &interrupt, output).map_err(early)?;
        if self.dry_run {
            return self.count(inputs, found, &interrupt, output);
        }
        self.find_or_create(&mut delivery, found, &inputs, output)?;
        delivery.prepare().map_err(early)?;
        for input in &inputs {
            let journal = self.journal(input, &delivery, output);
            delivery.journals.push(journal);
        }
        let started = Instant::now();
        let loaded =
            self.load(inputs, &mut delivery, &interrupt, output).and_then(|()| delivery.check());
        self.end(loaded, delivery, started.elapsed(), output)
    }

    /// Ends the journals, and prints what was done.
    fn end(
        &self,
        loaded: Result<(), Stop>,
        mut delivery: Delivery<'_>,
        time: Duration,
        output: &Output,
    ) -> Result<Exit, Error> {
        delivery.settle(true);
        let totals = delivery.totals();
        let seconds = time.as_secs_f64();
        let summary = Summary {
            items: totals.items,
            new: totals.new,
            known: totals.items - totals.new,
            resent: totals.resent,
            seconds,
            items_per_second: totals.items as f64 / seconds.max(1e-9),
            complete: loaded.is_ok() && !delivery.doubt,
        };
        // A journal of items that may be lost must not be resumed from.
        let ended = loaded.is_ok() || matches!(loaded, Err(Stop::Lost(_)));
        let journals = std::mem::take(&mut delivery.journals);
        let resumable = !journals.is_empty() && journals.iter().all(Option::is_some);
        let mut removed = Ok(());
        for mut journal in journals.into_iter().flatten() {
            if ended {
                removed = removed.and(journal.remove());
            } else {
                // The last journal on the disk is older, and right.
                if let Err(error) = journal.close() {
                    output.remark(format_args!("the journal: {error}"));
                }
            }
        }
        let next = match (delivery.doubt, resumable) {
            (true, _) => Next::Again,
            (false, true) => Next::Resume,
            (false, false) => Next::Skip,
        };
        let result = match loaded {
            Err(stop) => Err(self.explained(stop, next, totals)),
            Ok(()) if delivery.doubt => Err(Error::Incomplete {
                what: format!(
                    "load {}: the server restarted meanwhile; items sent before may be lost",
                    self.shown()
                ),
                hint: "Look with `verify`, or load again; --durable and --acks prevent this."
                    .to_owned(),
            }),
            Ok(()) => removed.map(|()| Exit::Done),
        };
        match result {
            Ok(exit) => output.data(&summary, summary.text()).map(|()| exit),
            Err(error) => {
                // Why the load ended matters more than a stdout that cannot be written.
                let _ = output.try_data(&summary, summary.text());
                Err(error)
            }
        }
    }

    /// Opens a file, and looks for its journal.
    fn input(&self, name: &Path, output: &Output) -> Result<Input, Error> {
        let source = Source::named(name);
        let name = source.name();
        let Source::File(path) = &source else {
            return self.no_journal(&name).map(|()| Input { name, source, regular: None });
        };
        let metadata = fs::metadata(path).map_err(Error::file(path))?;
        if metadata.is_dir() {
            return Err(Error::file(path)(io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            // A named pipe is opened once, when its turn comes: its writer sees that end.
            return self.no_journal(&name).map(|()| Input { name, source, regular: None });
        }
        let mut file = File::open(path).map_err(Error::file(path))?;
        let identity = Identity::of(&mut file, &self.name, self.items.form());
        let identity = identity.map_err(Error::file(path))?;
        let journal = journal::path_for(path);
        let mut start = Position::default();
        if self.resume {
            match Journal::read(&journal, path, &identity)? {
                Some(position) => start = position,
                None => output.remark(format_args!("{}: from the beginning", path.display())),
            }
        } else if journal.exists() && !self.dry_run {
            output.remark(format_args!(
                "{}: from the beginning; --resume would go on where an earlier load ended",
                path.display()
            ));
        }
        let path = path.clone();
        Ok(Input { name, source, regular: Some(Regular { file, path, identity, start }) })
    }

    fn no_journal(&self, name: &str) -> Result<(), Error> {
        if self.resume {
            return Err(Error::usage(
                format!("{name} cannot be resumed: it has no journal"),
                "Name a file, or leave out what is loaded by --skip.",
            ));
        }
        Ok(())
    }

    /// Sees that there is a filter, and that it is the one of the earlier load.
    fn find_or_create(
        &self,
        delivery: &mut Delivery<'_>,
        found: bool,
        inputs: &[Input],
        output: &Output,
    ) -> Result<(), Error> {
        let starts = || inputs.iter().flat_map(|input| &input.regular).map(|file| file.start);
        let before = starts().filter_map(|start| start.filter_items).max();
        let resumed = starts().any(|start| start.offset > 0);
        let now = if found { delivery.expected() } else { Some(0) };
        if resumed && (!found || now.zip(before).is_some_and(|(now, before)| now < before)) {
            // They must not be resumed from once other items have brought the count up again.
            for file in inputs.iter().flat_map(|input| &input.regular) {
                let journal = journal::path_for(&file.path);
                fs::remove_file(&journal).or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(Error::file(journal)(error)),
                })?;
            }
            return Err(Error::Incomplete {
                what: format!(
                    "load {}: the filter counts {} items and had {} in the earlier load: some are \
                     lost",
                    self.shown(),
                    now.unwrap_or(0),
                    before.map_or("more".to_owned(), |before| before.to_string())
                ),
                hint: "Load the files from their beginning: leave out --resume.".to_owned(),
            });
        }
        if !found {
            let (Some(items), Some(error)) = (self.capacity, self.error) else {
                return Err(self.missing());
            };
            let early = |stop| self.explained(stop, Next::Skip, Totals::default());
            delivery.create(items, error).map_err(early)?;
            output.remark(format_args!("{} created", self.shown()));
        }
        if delivery.counting() && self.resume {
            return Err(Error::usage(
                format!("{} is a COUNTING filter: what is added twice counts twice", self.shown()),
                "Leave out what is loaded by --skip in place of --resume.",
            ));
        }
        Ok(())
    }

    /// Starts the journal of a file, if it can have one.
    fn journal(&self, input: &Input, delivery: &Delivery<'_>, output: &Output) -> Option<Journal> {
        let file = input.regular.as_ref().filter(|_| !delivery.counting())?;
        let path = journal::path_for(&file.path);
        let (output_of_thread, shown) = (*output, path.display().to_string());
        let failed = move |error: &io::Error| {
            output_of_thread.remark(format_args!("{shown}: {error}; an older journal stays"));
        };
        let (identity, every) = (file.identity.clone(), self.journal_every);
        let started = Journal::start(path.clone(), identity, file.start, every, failed);
        started
            .inspect_err(|error| {
                output.remark(format_args!(
                    "{}: {error}; without a journal this load cannot be resumed",
                    path.display()
                ));
            })
            .ok()
    }

    /// Reads the files, and delivers their items.
    fn load(
        &self,
        inputs: Vec<Input>,
        delivery: &mut Delivery<'_>,
        interrupt: &Interrupt,
        output: &Output,
    ) -> Result<(), Stop> {
        let mut pace = Pace { rate: self.rate, started: Instant::now(), due: 0.0 };
        let most = delivery.most().min(pace.most());
        let mut skip = self.skip;
        for (number, input) in inputs.into_iter().enumerate() {
            let (length, begin) = input.extent();
            let mut progress = Progress::new(output, &input.name, length).from(begin);
            let name = input.name.clone();
            let kept = input.kept()?;
            let mut batches = input.batches(&self.items, interrupt)?.at_most(most);
            let mut items = 0;
            loop {
                if interrupt.requested() {
                    delivery.confirm(Now::Surely)?;
                    return Err(Stop::Interrupted);
                }
                let mut batch = match batches.next_batch() {
                    Ok(Some(batch)) => batch,
                    Ok(None) => break,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        delivery.confirm(Now::IfPossible)?;
                        continue;
                    }
                    Err(_) if interrupt.requested() => continue,
                    Err(error) => {
                        delivery.confirm(Now::Surely)?;
                        return Err(Stop::Failed(Error::file(name)(error)));
                    }
                };
                let skipped = skip.min(batch.count);
                skip -= skipped;
                batch.skip(skipped);
                if batch.count == 0 {
                    continue;
                }
                while let Some(early) = pace.early() {
                    delivery.confirm(Now::IfPossible)?;
                    if interrupt.requested() {
                        return Err(Stop::Interrupted);
                    }
                    thread::sleep(early.min(MOMENT));
                }
                pace.sent(batch.count);
                items += batch.count;
                let end = batch.end;
                delivery.offer(number, batch)?;
                progress.at(end, items, Unit::Items);
            }
            if let Some((file, identity)) = kept
                && !file.metadata().is_ok_and(|metadata| identity.is_unchanged(&metadata))
            {
                delivery.confirm(Now::Surely)?;
                return Err(Stop::Failed(Error::Incomplete {
                    what: format!("{name} changed while it was read"),
                    hint: "Load it again from the beginning when nobody writes it.".to_owned(),
                }));
            }
        }
        delivery.confirm(Now::Surely)
    }

    /// Reads the items, and says how many there are.
    fn count(
        &self,
        inputs: Vec<Input>,
        found: bool,
        interrupt: &Interrupt,
        output: &Output,
    ) -> Result<Exit, Error> {
        let creates = self.capacity.is_some();
        if !found && !creates {
            return Err(self.missing());
        }
        let mut items = 0;
        for input in inputs {
            let name = input.name.clone();
            let mut batches = input.batches(&self.items, interrupt)?;
            loop {
                if interrupt.requested() {
                    return Err(Error::Interrupted { hint: "Nothing was added.".to_owned() });
                }
                match batches.next_batch() {
                    Ok(Some(batch)) => items += batch.count,
                    Ok(None) => break,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) if interrupt.requested() => {}
                    Err(error) => return Err(Error::file(name)(error)),
                }
            }
        }
        let items = items.saturating_sub(self.skip);
        let created = if found { "" } else { ", which would be created" };
        let counted = amount::grouped(items);
        output.data(
            &DryRun { items, would_create: !found },
            format_args!("{counted} items would be added to {}{created}", self.shown()),
        )?;
        Ok(Exit::Done)
    }

    /// The name, for messages.
    fn shown(&self) -> String {
        name::readable(self.name.as_bytes())
    }

    fn missing(&self) -> Error {
        Error::Refused {
            command: format!("load {}", self.shown()),
            text: "ERR not found".to_owned(),
        }
    }

    /// The error for a load that ended early.
    fn explained(&self, stop: Stop, next: Next, totals: Totals) -> Error {
        let items = amount::grouped(totals.items);
        let are = if self.durable || self.acks > 0 { "confirmed" } else { "in" };
        let what = |text: &str| format!("load {}: {text}; {items} items are {are}", self.shown());
        let on = match next {
            Next::Resume => "Then go on by the same command with --resume.".to_owned(),
            Next::Skip => {
                format!("Then go on by the same command with --skip {}.", totals.before + self.skip)
            }
            Next::Again => {
                "The server restarted, and items may be lost. Load again from the beginning."
                    .to_owned()
            }
        };
        match stop {
            Stop::Failed(error) => error,
            Stop::Refused(text) if totals.items == 0 => {
                Error::Refused { command: format!("load {}", self.shown()), text }
            }
            // Another filter has nothing of what this one took.
            Stop::Refused(text) if text.starts_with("ERR non scaling filter is full") => {
                Error::RefusedPartly {
                    what: what(&text),
                    hint: "Create a larger filter, or one that grows, and load everything into it \
                           from the beginning, without --resume and --skip."
                        .to_owned(),
                }
            }
            Stop::Refused(text) => Error::RefusedPartly {
                what: what(&text),
                hint: format!("{} {on}", refusal_hint(&text)),
            },
            Stop::Unreachable(text) => Error::Incomplete {
                what: what(&text),
                hint: format!("See that the server runs, and its log. {on}"),
            },
            Stop::Uncertain(text, count) => Error::Incomplete {
                what: format!("{}, the {count} after them perhaps", what(&text)),
                hint: format!(
                    "A COUNTING filter counts what is added twice, so nothing was sent again. {on}"
                ),
            },
            Stop::Unproved(text) => {
                Error::Incomplete { what: what(&text), hint: on.replacen("Then go", "Go", 1) }
            }
            Stop::Lost(text) => Error::Incomplete {
                what: format!("load {}: {text}", self.shown()),
                hint: "Load again from the beginning; --durable or --acks wait for safe storage."
                    .to_owned(),
            },
            Stop::Interrupted => Error::Interrupted { hint: on.replacen("Then go", "Go", 1) },
        }
    }
}

impl Input {
    /// The length of a regular file, and where to begin in it.
    fn extent(&self) -> (Option<u64>, u64) {
        match &self.regular {
            Some(regular) => (Some(regular.identity.size()), regular.start.offset),
            None => (None, 0),
        }
    }

    /// The open file, and what it was when it was opened.
    fn kept(&self) -> Result<Option<(File, Identity)>, Error> {
        let Some(regular) = &self.regular else { return Ok(None) };
        let file = regular.file.try_clone().map_err(Error::file(&regular.path))?;
        Ok(Some((file, regular.identity.clone())))
    }

    fn batches(
        self,
        options: &items::Options,
        interrupt: &Interrupt,
    ) -> Result<Batches<Box<dyn Read>>, Error> {
        let Some(regular) = self.regular else {
            // A reader of CSV cannot go on after an idle time.
            let may_block = options.csv.is_none();
            let input: Box<dyn Read> = match self.source {
                Source::Stdin => Box::new(Live::new(io::stdin(), interrupt, may_block)),
                Source::File(path) => {
                    Box::new(Live::opened(|| File::open(path), interrupt, may_block))
                }
            };
            return Ok(Batches::new(input, options));
        };
        Batches::resumed(regular.file, options, regular.start.offset)
            .map_err(Error::file(regular.path))
    }
}

impl Summary {
    fn text(&self) -> String {
        let [items, new, known] = [self.items, self.new, self.known].map(amount::grouped);
        let rate = amount::readable_items(self.items_per_second as u64);
        format!("{items} items: {new} new, {known} known; {:.2} s, {rate}/s", self.seconds)
    }
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

    /// How long to wait with the next batch; `None` if it is due. A pause of the input or of the
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
