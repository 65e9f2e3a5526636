//! `redis-bloom load NAME [FILE...|-]`: adds the items of files, or of standard input, to a filter.
//!
//! ```text
//!   items::Batches ──batch──▶ Pace ──▶ Delivery or Fleet ──▶ server, or all shards at once
//!                                        └─confirmed─▶ Journal
//! ```

use std::{
    collections::HashSet,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bloom::filter::Rules;
use serde::Serialize;

use crate::{
    amount,
    at_once::Servers,
    connection::{Connection, Options, Target, Targets},
    error::{Error, Exit},
    interrupt,
    items::{self, Batches, Live, Source},
    loading::{
        Delivery, Failure, Fleet, Goal, Items, Ledger, Route, Seen, Settings, Sink, Stop, Totals,
        Verdict,
        journal::{self, Identity, Journal, Position},
    },
    name,
    new_shard::growth_of,
    output::Output,
    progress::{Progress, Unit},
    sharded::{self, Filter},
    window::{self, Forgets},
};

/// The longest sleep without a look for Ctrl-C.
const MOMENT: Duration = Duration::from_millis(100);
/// How many times a load begins again because a server restarted.
const AGAIN: u32 = 5;

/// Adds the items of files or of standard input to a filter
///
/// Every line is an item, as it is: nothing is stripped, and an empty line is an empty item. The
/// filter must exist, unless --items and --error say how to create it. A journal beside each file,
/// FILE.redis-bloom, notes how far the load is; --resume goes on there. It is removed when all
/// files are loaded. If a server restarted and may have lost items, all are sent again. Ctrl-C ends
/// the load in order, a second one at once.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter
    name: OsString,
    /// Files with items; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,
    /// Goes on where an earlier load of the same files ended
    #[arg(long, conflicts_with = "skip")]
    resume: bool,
    /// Begins at the start, also where a file has the journal of another load
    #[arg(long, conflicts_with = "resume")]
    restart: bool,
    /// Leaves out the first N items
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = amount::items)]
    skip: u64,
    /// Counts an item as loaded when the server's append-only file is synced (WAITAOF)
    #[arg(long)]
    durable: bool,
    /// Counts an item as loaded when so many replicas have it (WAIT). Without it: 1 for the shards
    /// of a sharded filter whose servers have replicas, else 0
    #[arg(long, value_name = "REPLICAS")]
    acks: Option<u64>,
    /// How long to try again when the server cannot be reached
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = amount::time)]
    retry_for: Duration,
    /// Items a second, at most
    #[arg(long, value_name = "N", value_parser = amount::positive_items)]
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
    #[command(flatten)]
    window: window::Options,
    // Last, because the heading of its options goes on for those that follow.
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
        interrupt::register();
        let rules = self.window.rules(None)?;
        if rules.is_some() && self.capacity.is_none() {
            return Err(Error::usage(
                "--window is for a filter that is created",
                "Say how by --items and --error, or leave it out.",
            ));
        }
        let target = connection.target()?;
        let inputs = self.files.iter().map(|file| self.input(file, target.database(), output));
        let mut inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        are_different(&inputs)?;
        let started = Instant::now();
        let (mut again, mut resent) = (0, 0);
        loop {
            let opened = self.open(&target, &mut inputs, rules, output)?;
            let Some((mut sink, ledger)) = opened else { return Ok(Exit::Done) };
            let loaded = self.load(&inputs, &mut sink, &ledger, output);
            let loaded = sink.concluded(loaded);
            let mut totals = sink.totals();
            totals.resent += resent;
            let restarted = matches!(&loaded, Err(Failure { stop: Stop::Restarted, .. }));
            let files = inputs.iter().all(|input| input.regular.is_some());
            let may = files && !sink.counting() && again < AGAIN && !interrupt::requested();
            if !restarted || !may {
                return self.end(loaded, totals, &ledger, started.elapsed(), output);
            }
            again += 1;
            resent = totals.resent + totals.items;
            output.remark(format_args!(
                "the server restarted, or another one took its place, and may have lost items: \
                 sending all of them again"
            ));
            for mut journal in ledger.journals().into_iter().flatten() {
                journal.close()?;
            }
            begin_again(&mut inputs);
        }
    }

    /// Finds the filter, or creates it, and begins its journals; `None` if that was all to do.
    fn open(
        &self,
        target: &Target,
        inputs: &mut [Input],
        rules: Option<Rules>,
        output: &Output,
    ) -> Result<Option<(Sink, Arc<Ledger>)>, Error> {
        let early = |stop: Failure| self.explained(stop, Next::Skip, Totals::default());
        let mut server = target.connect_for(self.key())?;
        // A server that loads its data is waited for.
        let find = |server: &mut Connection, _| sharded::find(server, self.key());
        let filter = server.follow(self.key(), self.retry_for, find)?;
        if let (Some(rules), Filter::Sharded(descriptor)) = (rules, &filter) {
            let servers = Servers::of(target.clone(), output)?;
            // Without any shard, the load says which is lost.
            if let Some(growth) = growth_of(&servers, &descriptor.current, None)? {
                Forgets::from(growth.window).must_be(rules, &self.shown())?;
            }
        }
        let targets = Targets::of(target.clone(), &mut server)?;
        let loaded = resumed(inputs).next().is_some();
        let route = Route { place: Some(0), loaded, ..Route::new(self.key(), targets, output) };
        let ledger = Arc::clone(&route.ledger);
        let mut settings =
            Settings { acks: self.acks, durable: self.durable, retry_for: self.retry_for };
        let sink = match filter {
            Filter::Sharded(_) if self.dry_run => {
                return self.count(inputs, true, output).map(|()| None);
            }
            Filter::Sharded(descriptor) => {
                let fleet = Fleet::start(Goal::Filter(descriptor), settings, route);
                let fleet = fleet.map_err(early)?;
                let now = fleet.generations();
                self.resume_at(inputs, &ledger, now.first(), fleet.found(), output);
                self.remark_found(output);
                Sink::Shards(Box::new(fleet))
            }
            Filter::Key => {
                settings.acks = Some(self.acks.unwrap_or(0));
                let opened = Delivery::open(settings, route, server);
                let (mut delivery, found) = opened.map_err(|stop| early(stop.into()))?;
                if found {
                    self.check_window(&mut delivery, rules)?;
                }
                if self.dry_run {
                    return self.count(inputs, found, output).map(|()| None);
                }
                self.find_or_create(&mut delivery, found, rules, output)?;
                delivery.prepare().map_err(|stop| early(stop.into()))?;
                ledger.begin(Vec::new(), vec![delivery.mark().cloned()]);
                self.resume_at(inputs, &ledger, None, &[delivery.found().cloned()], output);
                Sink::Key(Box::new(delivery))
            }
        };
        let mut journals = Vec::new();
        for input in &*inputs {
            journals.push(self.journal(input, &sink, &ledger, output)?);
        }
        ledger.keep(journals);
        Ok(Some((sink, ledger)))
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
        let next = if resumable { Next::Resume } else { Next::Skip };
        let result = match loaded {
            Err(stop) => Err(self.explained(stop, next, totals)),
            Ok(()) => removed.map(|()| Exit::Done),
        };
        match result {
            Ok(exit) => output.data(&summary, summary.text()).map(|()| exit),
            // Nothing was read, so there is nothing to say about it.
            Err(error) if error.exit() == Exit::Usage && summary.items == 0 => Err(error),
            Err(error) => {
                // Why the load ended matters more than a stdout that cannot be written.
                let _ = output.try_data(&summary, summary.text());
                Err(error)
            }
        }
    }

    /// Opens a file, and looks for its journal.
    fn input(&self, name: &Path, database: i64, output: &Output) -> Result<Input, Error> {
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
        let identity = Identity::of(&mut file, (self.key(), database), self.items.form());
        let identity = identity.map_err(Error::file(path))?;
        let journal = journal::path_for(path);
        let mut start = Position::default();
        if !self.dry_run {
            let found = Journal::read(&journal, path, &identity, self.restart)?;
            match found {
                Some(position) if self.resume => start = position,
                None if self.resume => {
                    output.remark(format_args!("{name}: no journal, so from the beginning"));
                }
                Some(position) if position.offset > 0 => output.remark(format_args!(
                    "{name}: from the beginning, with a new journal; that of an earlier load was \
                     behind {} items",
                    amount::grouped(position.items)
                )),
                _ => {}
            }
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

    /// Sees that there is a filter.
    fn find_or_create(
        &self,
        delivery: &mut Delivery,
        found: bool,
        rules: Option<Rules>,
        output: &Output,
    ) -> Result<(), Error> {
        if !found {
            let (Some(items), Some(error)) = (self.capacity, self.error) else {
                return Err(self.missing());
            };
            let early = |stop: Stop| self.explained(stop.into(), Next::Skip, Totals::default());
            delivery.create(items, error, rules).map_err(early)?;
            // Somebody else may have been faster: BF.ADD makes a filter without a window.
            self.check_window(delivery, rules)?;
            output.remark(format_args!("{} created", self.shown()));
        } else {
            self.remark_found(output);
        }
        if delivery.counting() && self.resume {
            return Err(Error::usage(
                format!("{} is a COUNTING filter: what is added twice counts twice", self.shown()),
                "Leave out what is loaded by --skip in place of --resume.",
            ));
        }
        Ok(())
    }

    /// Refuses a filter that does not forget as --window says.
    fn check_window(&self, delivery: &mut Delivery, rules: Option<Rules>) -> Result<(), Error> {
        let Some(rules) = rules else { return Ok(()) };
        let early = |stop: Stop| self.explained(stop.into(), Next::Skip, Totals::default());
        delivery.forgets().map_err(early)?.must_be(rules, &self.shown())
    }

    /// Says that a filter is there which was to be created.
    fn remark_found(&self, output: &Output) {
        if self.capacity.is_some() {
            let name = self.shown();
            let options = match self.window.given() {
                true => "--items, --error and --window",
                false => "--items and --error",
            };
            output.remark(format_args!("{name} exists: {options} change nothing"));
        }
    }

    /// Sees that the filter has what an earlier load put there: `found` of it, or of the shards of
    /// the generation that answers. If nothing proves that, the load begins again.
    fn resume_at(
        &self,
        inputs: &mut [Input],
        ledger: &Ledger,
        generation: Option<&u64>,
        found: &[Option<Seen>],
        output: &Output,
    ) {
        let has_all = |file: &Regular| {
            let Position { generations, marks, .. } = &file.start;
            let mut pairs = marks.iter().zip(found);
            generations.first() == generation
                && marks.len() == found.len()
                && pairs.all(|(mark, seen)| match (mark, seen) {
                    (Some(mark), Some(seen)) => mark.judged(seen) == Verdict::Proved,
                    _ => false,
                })
        };
        if resumed(inputs).all(has_all) {
            for file in resumed(inputs) {
                // The next generation may lack what is loaded.
                ledger.follow(&file.start.generations);
                output.remark(format_args!(
                    "{}: goes on at byte {}, behind {} items",
                    name::readable_path(&file.path),
                    file.start.offset,
                    amount::grouped(file.start.items)
                ));
            }
        } else {
            output.remark(format_args!(
                "nothing proves that {} has all items of the earlier load: from the beginning",
                self.shown()
            ));
            begin_again(inputs);
        }
    }

    /// Starts the journal of a file, if it can have one.
    fn journal(
        &self,
        input: &Input,
        sink: &Sink,
        ledger: &Ledger,
        output: &Output,
    ) -> Result<Option<Journal>, Error> {
        let Some(file) = input.regular.as_ref().filter(|_| !sink.counting()) else {
            return Ok(None);
        };
        let path = journal::path_for(&file.path);
        let (output_of_thread, shown) = (*output, path.display().to_string());
        let failed = move |error: &io::Error| {
            output_of_thread.remark(format_args!("{shown}: {error}; an older journal stays"));
        };
        let loaded = file.file.try_clone().map_err(Error::file(&file.path))?;
        let (loaded, every) = ((loaded, file.identity.clone()), self.journal_every);
        let start = ledger.described(file.start.clone());
        match Journal::start(path.clone(), loaded, start, every, failed) {
            Ok(journal) => Ok(Some(journal)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Error::usage(
                format!("{} is being loaded already", name::readable_path(&file.path)),
                "Wait for that load; or read the file from standard input, without a journal.",
            )),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Error::usage(
                format!("{}.new: {error}", path.display()),
                "Give it another name: a load writes its journal there.",
            )),
            Err(error) => {
                output.remark(format_args!(
                    "{}: {error}; without a journal this load cannot be resumed",
                    path.display()
                ));
                Ok(None)
            }
        }
    }

    /// Reads the files, and delivers their items.
    fn load(
        &self,
        inputs: &[Input],
        sink: &mut Sink,
        ledger: &Ledger,
        output: &Output,
    ) -> Result<(), Failure> {
        let mut pace = Pace { rate: self.rate, started: Instant::now(), due: 0.0 };
        let most = sink.most().min(pace.most());
        let size = sink.batch_size(self.items.batch);
        let mut skip = self.skip;
        for (number, input) in inputs.iter().enumerate() {
            let (length, begin) = input.extent();
            let mut progress = Progress::new(output, &input.name, length).from(begin);
            let name = input.name.clone();
            let kept = input.kept()?;
            let batches = input.batches(&self.items)?;
            let mut batches = batches.at_most(most).of_size(size);
            let mut items = 0;
            loop {
                if interrupt::requested() {
                    sink.finish()?;
                    return Err(Stop::Interrupted.into());
                }
                let mut batch = match batches.next_batch() {
                    Ok(Some(batch)) => batch,
                    Ok(None) => break,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        sink.idle()?;
                        continue;
                    }
                    Err(error) => {
                        sink.finish()?;
                        return Err(Error::file(name)(error).into());
                    }
                };
                let skipped = skip.min(batch.count);
                skip -= skipped;
                batch.skip(skipped);
                if batch.count == 0 {
                    continue;
                }
                while let Some(early) = pace.early() {
                    sink.idle()?;
                    if interrupt::requested() {
                        return Err(Stop::Interrupted.into());
                    }
                    thread::sleep(early.min(MOMENT));
                }
                pace.sent(batch.count);
                items += batch.count;
                let end = batch.end;
                sink.offer(ledger, number, batch)?;
                progress.note(sink.note());
                progress.at(end, items, Unit::Items);
            }
            if let Some((file, identity)) = kept
                && !file.metadata().is_ok_and(|metadata| identity.is_unchanged(&metadata))
            {
                sink.finish()?;
                return Err(Failure::from(Error::incomplete(
                    format!("{name} changed while it was read"),
                    "Load it again from the beginning when nobody writes it.",
                )));
            }
        }
        if skip > 0 {
            output.remark(format_args!(
                "--skip {} leaves out all items: there are only {}",
                self.skip,
                amount::grouped(self.skip - skip)
            ));
        }
        sink.finish()
    }

    /// Reads the items, and says how many there are.
    fn count(&self, inputs: &[Input], found: bool, output: &Output) -> Result<(), Error> {
        let creates = self.capacity.is_some();
        if !found && !creates {
            return Err(self.missing());
        }
        let mut items = 0;
        for input in inputs {
            let name = input.name.clone();
            let mut batches = input.batches(&self.items)?;
            loop {
                interrupt::check("Nothing was added.")?;
                match batches.next_batch() {
                    Ok(Some(batch)) => items += batch.count,
                    Ok(None) => break,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
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
        )
    }

    /// The name, for messages.
    fn shown(&self) -> String {
        name::readable(self.key())
    }

    fn missing(&self) -> Error {
        Error::refused(format!("load {}", self.shown()), "ERR not found")
    }

    /// The error for a load that ended early.
    fn explained(&self, failure: Failure, next: Next, totals: Totals) -> Error {
        let confirmed = self.durable || self.acks.map_or(failure.shard.is_some(), |acks| acks > 0);
        let items = Items { count: totals.items, confirmed, unknown: totals.unknown };
        let on = match next {
            Next::Resume => "Then go on by the same command with --resume.".to_owned(),
            Next::Skip if totals.unknown => {
                "Then load again from the beginning; a COUNTING filter, which counts items twice, \
                 create again first."
                    .to_owned()
            }
            Next::Skip => {
                format!("Then go on by the same command with --skip {}.", totals.before + self.skip)
            }
        };
        failure.explained(&format!("load {}", self.shown()), &items, &on)
    }
}

/// The files that an earlier load began.
fn resumed(inputs: &[Input]) -> impl Iterator<Item = &Regular> {
    let files = inputs.iter().flat_map(|input| &input.regular);
    files.filter(|file| file.start.offset > 0)
}

/// Refuses a file that is named twice: it has one journal.
fn are_different(inputs: &[Input]) -> Result<(), Error> {
    let mut seen = HashSet::new();
    for file in inputs.iter().flat_map(|input| &input.regular) {
        let metadata = file.file.metadata().map_err(Error::file(&file.path))?;
        if !seen.insert((metadata.dev(), metadata.ino())) {
            let what = format!("{} is named twice", name::readable_path(&file.path));
            return Err(Error::usage(what, "Name each file once."));
        }
    }
    Ok(())
}

/// Begins at the start of all files.
fn begin_again(inputs: &mut [Input]) {
    for file in inputs.iter_mut().flat_map(|input| &mut input.regular) {
        file.start = Position::default();
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

    fn batches(&self, options: &items::Options) -> Result<Batches<Box<dyn Read>>, Error> {
        let Some(regular) = &self.regular else {
            let input: Box<dyn Read> = match &self.source {
                Source::Stdin => Box::new(Live::new(io::stdin())),
                Source::File(path) => {
                    let path = path.clone();
                    Box::new(Live::opened(|| File::open(path)))
                }
            };
            return Ok(Batches::new(input, options));
        };
        let file = regular.file.try_clone().map_err(Error::file(&regular.path))?;
        Batches::resumed(file, options, regular.start.offset).map_err(Error::file(&regular.path))
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
