//! `redis-bloom rebuild NAME`: another number of shards, capacity or error rate for a sharded
//! filter, from the source of its items, while clients use it (docs/sharding.md, Rebuild).
//!
//! The step is a field of the descriptor, `rebuild`. Each change of it is one transaction that also
//! changes the generations, so a run that was killed at any time is continued by the next one.
//! `next.rs` decides what follows a step:
//!
//! ```text
//!   step        current  next   other fields   what is done then
//!   reserving   old             spare.* = new  reserve the shards of new
//!   waiting     old      new                   wait 2 x poll: then all adders fill both
//!   filling     old      new                   load FILE into new, and check that it is in
//!   filled      old      new                   --commit exchanges the two
//!   exchanged   new      old                   wait 2 x poll: then most clients ask new
//!   committed   new      old    retired.*      tombstones in the place of old, then no next
//!   aborted     old             retired.*      tombstones in the place of new
//! ```
//!
//! From `waiting` on the fields `rebuild.0`, `rebuild.1` ... note what each shard of the new
//! generation had (`stamp.rs`). Every later step, and every tombstone in the place of an old shard,
//! comes after a look that the new shards which take its items still have that.
//!
//! Shards with a window are not rebuilt: an item of a file would count as added now.

mod next;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::sharding::{Descriptor, Generation, MAX_SHARDS};
use serde::Serialize;

use crate::{
    amount,
    at_once::{Servers, on_all},
    connection::{Options, Target},
    descriptor::{
        Change, Fields, bury, names_of, note, noted, parsed, spare, spare_fields, unused, update,
    },
    error::{Error, Exit},
    interrupt,
    items::{self, Batches, Source},
    loading::{self, Files, Goal, load_files},
    membership::Membership,
    name::{self, Named},
    new_shard::{growth_for, growth_of, reserve},
    output::Output,
    progress::{Progress, Unit},
    refusal::Kind,
    sharded::shard_at,
    stamp::Stamp,
};
use next::{Action, Asked, Refusal, Step, next};

/// The longest sleep without a look for Ctrl-C.
const MOMENT: Duration = Duration::from_millis(100);
/// How often the descriptor is read while clients are waited for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The field with the step.
const STEP: &[u8] = b"rebuild";
/// Gives a sharded filter other shards, while clients use it
///
/// Without --from, a new generation is made that takes all additions from then on: export the items
/// after that, and name them by --from. With --from, they are loaded into the new generation, and
/// it is checked that they are in. With --commit the new generation answers. Each run waits until
/// all clients have read the descriptor. A run that ended early is continued by the same command.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the sharded filter
    name: OsString,
    /// Files with all items. They are read twice
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from: Vec<PathBuf>,
    /// Number of items to expect; without it, as before
    #[arg(long = "items", value_name = "N", value_parser = amount::positive_items)]
    capacity: Option<u64>,
    /// Rate of false positives; without it, as before
    #[arg(long, value_name = "RATE", value_parser = amount::rate)]
    error: Option<f64>,
    /// Number of shards; without it, as before
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_SHARDS)))]
    shards: Option<u16>,
    /// Puts the new generation in the place of the old one, when it has the items
    #[arg(long)]
    commit: bool,
    /// Gives the rebuild up
    #[arg(long, conflicts_with_all = ["from", "capacity", "error", "shards", "commit"])]
    abort: bool,
    /// Says what would be done, and changes nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    loading: loading::Options,
    // Last, because the heading of its options goes on for those that follow.
    #[command(flatten)]
    input: items::Options,
}

/// What the descriptor says.
#[derive(Clone, Debug)]
struct Seen {
    /// `None` if the tool is not rebuilding the filter.
    step: Option<Step>,
    descriptor: Descriptor,
    /// The generation that is made; `None` without one, or if its fields are damaged.
    new: Option<Generation>,
    /// What its shards had when they were looked at last; `None` where that is not noted.
    stamps: Vec<Option<Stamp>>,
}

/// What a run left behind.
#[derive(Debug, Serialize)]
struct Report<'n> {
    #[serde(flatten)]
    name: Named<'n>,
    /// The step that is reached.
    step: Option<Step>,
    /// Whether anything was changed, or may be: false for a dry run.
    changed: bool,
    /// The generation that answers.
    generation: u64,
    /// The generation that takes the same additions, or will.
    next_generation: Option<u64>,
    shards: u16,
    capacity: u64,
    error_rate: f64,
    /// Items of the files that are in the new generation; `None` if this run loaded none.
    items: Option<u64>,
}

/// A run of the subcommand.
struct Rebuild<'a> {
    arguments: &'a Arguments,
    name: &'a [u8],
    shown: String,
    target: Target,
    servers: Servers,
    output: &'a Output,
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        for path in &self.from {
            is_regular(path)?;
        }
        let name = name::bytes(&self.name);
        let target = connection.target()?;
        interrupt::register();
        let rebuild = Rebuild {
            arguments: self,
            name,
            shown: name::readable(name),
            servers: Servers::of(target.clone(), output)?,
            target,
            output,
        };
        rebuild.run()
    }
}

/// The files are read twice, so a pipe will not do.
fn is_regular(path: &Path) -> Result<(), Error> {
    let regular = path != Path::new("-")
        && path.metadata().map_err(Error::file(path)).map(|metadata| metadata.is_file())?;
    if regular {
        return Ok(());
    }
    Err(Error::usage(
        format!("{}: no file: the items are read twice", name::readable_path(path)),
        "Write them to a file first.",
    ))
}

impl Rebuild<'_> {
    fn run(&self) -> Result<Exit, Error> {
        let seen = self.look()?;
        let action = self.next(&seen, None);
        self.check(&seen, action)?;
        if self.arguments.dry_run {
            return self.report(&seen, None, self.plan(&seen));
        }
        if seen.step.is_some() {
            // The run that went to this step may not have waited until a replica had it.
            self.servers.confirm(&[self.name.to_vec()])?;
        }
        let go_on = match self.arguments.abort {
            false => "Repeat the command to go on, or give up by --abort.",
            true => "Repeat the command to go on.",
        };
        let mut changed = false;
        match self.go(&mut changed) {
            Err(error) if changed => Err(error.partly(go_on)),
            result => result,
        }
    }

    /// What this run does at the step. `loaded`: how many items it has loaded, if it has.
    fn next(&self, seen: &Seen, loaded: Option<u64>) -> Action {
        let Arguments { from, commit, abort, .. } = self.arguments;
        let asked = Asked { files: !from.is_empty(), commit: *commit, abort: *abort };
        next(seen.step, seen.descriptor.next != Ok(None), loaded.is_some(), asked)
    }

    /// Reads the descriptor.
    fn look(&self) -> Result<Seen, Error> {
        let none = |what: &str, hint: &str| {
            Error::refused_partly(format!("rebuild {}: {what}", self.shown), hint.to_owned())
        };
        let seen = update(&self.servers, self.name, |fields| {
            if fields.is_empty() {
                return Err(none(
                    "there is no sharded filter of this name",
                    &format!("`create {} --shards N` makes one.", name::typed(self.name)),
                ));
            }
            Ok((Change::default(), self.read(fields)?))
        });
        seen.map_err(|error| match error {
            error if error.is(Kind::WrongType) => none(
                "WRONGTYPE the name is a filter in one key, or another key",
                "For a filter in one key: `create NEW --shards N`, load its items there, then let \
                 the clients use NEW.",
            ),
            error => error,
        })
    }

    fn read(&self, fields: &Fields) -> Result<Seen, Error> {
        let descriptor = parsed(self.name, fields)?;
        let step = match fields.get(STEP) {
            None => None,
            Some(value) => {
                let known = Step::ALL.into_iter().find(|step| step.name().as_bytes() == value);
                Some(known.ok_or_else(|| {
                    Error::refused_partly(
                        format!(
                            "{}: a rebuild in the step '{}', which is unknown",
                            self.shown,
                            name::readable(value)
                        ),
                        "A newer redis-bloom has begun it: use that one.",
                    )
                })?)
            }
        };
        let new = match step {
            Some(Step::Reserving) => spare(fields),
            Some(Step::Exchanged | Step::Committed) => Some(descriptor.current.clone()),
            Some(Step::Aborted) => None,
            _ => descriptor.next.clone().unwrap_or_default(),
        };
        if fields.contains_key(&b"restoring"[..]) {
            return Err(Error::refused_partly(
                format!("{}: a dump is being restored there", self.shown),
                "Finish that first, by `restore --resume`.",
            ));
        }
        let places = 0..new.as_ref().map_or(0, |new| new.keys.len());
        let stamps = places.map(|place| noted(fields, place)).collect();
        Ok(Seen { step, descriptor, new, stamps })
    }

    /// Refuses what this run cannot go on with.
    fn check(&self, seen: &Seen, action: Action) -> Result<(), Error> {
        let arguments = self.arguments;
        let refused = |what: &str, hint: &str| {
            Err(Error::refused_partly(format!("rebuild {}: {what}", self.shown), hint.to_owned()))
        };
        match action {
            Action::Refuse(Refusal::NoRebuild) => {
                let hint = format!("`rebuild {}` begins a rebuild.", name::typed(self.name));
                return refused("it is not being rebuilt", &hint);
            }
            Action::Refuse(Refusal::Exchanged) => {
                return refused("the new generation answers already", "Finish it by --commit.");
            }
            Action::Refuse(Refusal::Foreign) => {
                return refused(
                    "it has a next generation that this tool did not make",
                    "Let its maker finish, or remove it by --abort.",
                );
            }
            Action::Refuse(Refusal::Unfilled) => {
                return refused(
                    "there is no new generation that has the items",
                    "Name the files of the items by --from.",
                );
            }
            Action::Begin | Action::Bury { last: false } if self.has_window(seen)? => {
                return refused(
                    "it has a window: items of files would count as added now",
                    "`create` another filter, let the clients add to both for one window, then \
                     use that one, and drop this.",
                );
            }
            _ => {}
        }
        if arguments.abort {
            return Ok(());
        }
        let Some(new) = seen.new.as_ref().filter(|_| seen.step.is_some()) else {
            return match seen.step {
                None | Some(Step::Aborted) => Ok(()),
                _ => refused("the fields of its new generation are damaged", "Give up by --abort."),
            };
        };
        let differs = arguments.capacity.is_some_and(|items| items != new.capacity)
            || arguments.error.is_some_and(|rate| rate != new.error_rate)
            || arguments.shards.is_some_and(|shards| shards != new.shards());
        // What is left of a rebuild that has ended is in nobody's way.
        if differs && (seen.step != Some(Step::Committed) || arguments.commit) {
            return refused(
                &format!("it is being rebuilt with {}", self.parameters(new)),
                "Leave out other parameters to go on with these, or give up by --abort.",
            );
        }
        Ok(())
    }

    /// Whether the shards have a window.
    fn has_window(&self, seen: &Seen) -> Result<bool, Error> {
        let growth = growth_of(&self.servers, &seen.descriptor.current, None)?;
        Ok(growth.is_some_and(|growth| growth.window.is_some()))
    }

    /// What a run would do, for --dry-run.
    fn plan(&self, seen: &Seen) -> String {
        let (shown, arguments) = (&self.shown, self.arguments);
        if arguments.abort {
            return format!("{shown}: the rebuild would be given up");
        }
        let ends = match (arguments.commit, arguments.from.is_empty()) {
            (true, _) => "would be rebuilt, and the new generation would answer",
            (false, false) => "would be rebuilt up to --commit",
            (false, true) => "would get a new generation that takes all additions",
        };
        format!("{shown} {ends}: {}", self.parameters(&self.wanted(seen)))
    }

    /// The new generation, as far as its parameters go.
    fn wanted(&self, seen: &Seen) -> Generation {
        let old = &seen.descriptor.current;
        let (arguments, mut wanted) = (self.arguments, seen.new.as_ref().unwrap_or(old).clone());
        wanted.capacity = arguments.capacity.unwrap_or(wanted.capacity);
        wanted.error_rate = arguments.error.unwrap_or(wanted.error_rate);
        wanted.keys.resize(arguments.shards.map_or(wanted.keys.len(), usize::from), Vec::new());
        wanted
    }

    fn parameters(&self, generation: &Generation) -> String {
        format!(
            "{} shards, {} items at {}",
            generation.shards(),
            amount::readable_items(generation.capacity),
            amount::readable_rate(generation.error_rate)
        )
    }

    /// Goes on as far as the options say.
    fn go(&self, changed: &mut bool) -> Result<Exit, Error> {
        let mut loaded = None;
        loop {
            let seen = self.look()?;
            let action = self.next(&seen, loaded);
            self.check(&seen, action)?;
            self.stop_if_asked()?;
            *changed = true;
            match action {
                Action::Begin => self.begin(&seen)?,
                Action::Reserve => self.reserve(&seen)?,
                Action::AwaitAdders => {
                    self.wait(&seen.descriptor, "adds to the new generation, too")?;
                    let stamps = self.intact(&seen, &seen.stamps)?;
                    self.advance(&seen, Step::Filling, |_, _| with(stamps.clone()))?;
                    if !self.arguments.from.is_empty() {
                        self.output.remark(
                            "Items that were added before now must be in the files: if they were \
                             added after the export, end this, and export again",
                        );
                    }
                }
                Action::Fill => {
                    let (items, stamps) = self.fill(&seen)?;
                    loaded = Some(items);
                    self.advance(&seen, Step::Filled, |_, _| with(stamps.clone()))?;
                }
                Action::FillAgain => {
                    let stamps = self.intact(&seen, &seen.stamps)?;
                    self.advance(&seen, Step::Filling, |_, _| with(stamps.clone()))?;
                }
                Action::Exchange => self.exchange(&seen)?,
                Action::AwaitReaders => {
                    self.wait(&seen.descriptor, "asks the new generation")?;
                    let stamps = self.intact(&seen, &seen.stamps)?;
                    self.advance(&seen, Step::Committed, |_, fields| {
                        // Additions go to the old shards, too, until the last of them is gone.
                        let mut set = retire(fields, "next.").set;
                        set.extend(with(stamps.clone()).set);
                        Change { set, delete: Vec::new() }
                    })?;
                }
                Action::Retire => {
                    let reserving = seen.step == Some(Step::Reserving);
                    let prefix = if reserving { "spare." } else { "next." };
                    self.advance(&seen, Step::Aborted, |_, fields| retire(fields, prefix))?;
                }
                Action::Bury { last } => {
                    self.end(&seen)?;
                    if last {
                        return self.report(&seen, loaded, self.ended(&seen));
                    }
                }
                Action::Stop => {
                    self.report(&seen, loaded, self.stopped(&seen, loaded))?;
                    let name = name::typed(self.name);
                    self.output.remark(match seen.step {
                        Some(Step::Filling) => format!(
                            "Export the items now, then load them by `rebuild {name} --from FILE`."
                        ),
                        _ => format!(
                            "`rebuild {name} --commit` makes it the one that answers, --abort \
                             gives it up."
                        ),
                    });
                    return Ok(Exit::Done);
                }
                // `check` returns the error.
                Action::Refuse(_) => {}
            }
        }
    }

    /// How a rebuild ended.
    fn ended(&self, seen: &Seen) -> String {
        let parameters = self.parameters(&seen.descriptor.current);
        match seen.step {
            Some(Step::Aborted) => {
                format!("{}: the rebuild was given up: {parameters}", self.shown)
            }
            _ => format!("{} was rebuilt: {parameters}", self.shown),
        }
    }

    /// How far a run came that ends before the rebuild does.
    fn stopped(&self, seen: &Seen, loaded: Option<u64>) -> String {
        let shown = &self.shown;
        match (seen.step, loaded) {
            (Some(Step::Filling), _) => {
                format!("{shown}: the next generation takes all additions from now on")
            }
            (_, Some(items)) => {
                let items = amount::grouped(items);
                format!("{shown}: all {items} items are in the new generation")
            }
            (_, None) => format!("{shown}: the new generation has the items"),
        }
    }

    /// Lets the new generation answer.
    fn exchange(&self, seen: &Seen) -> Result<(), Error> {
        if seen.descriptor.exchange().is_none() {
            return Err(Error::incomplete(
                format!("rebuild {}: the fields of the next generation are damaged", self.shown),
                "Give it up by --abort.",
            ));
        }
        let stamps = self.intact(seen, &seen.stamps)?;
        self.advance(seen, Step::Exchanged, |seen, _| {
            let (mut set, delete) = seen.descriptor.exchange().unwrap_or_default();
            set.extend(with(stamps.clone()).set);
            Change { set, delete }
        })
    }

    /// What the shards of the new generation have now: all that they had at `earlier`.
    ///
    /// # Errors
    /// `Error::Incomplete` if one of them has not.
    fn intact(&self, seen: &Seen, earlier: &[Option<Stamp>]) -> Result<Vec<Option<Stamp>>, Error> {
        let Some(new) = &seen.new else { return Ok(Vec::new()) };
        let looked = on_all(&self.servers, &new.keys, |_, place, _| {
            self.has_all(seen, new, earlier, place)
        })?;
        Ok(looked.into_iter().map(Some).collect())
    }

    /// What one of the new shards has now.
    fn has_all(
        &self,
        seen: &Seen,
        new: &Generation,
        earlier: &[Option<Stamp>],
        place: usize,
    ) -> Result<Stamp, Error> {
        let stamp = Stamp::of_shard(&self.servers, new, place)?;
        let earlier = earlier.get(place).and_then(Option::as_ref);
        let what = match (stamp, earlier) {
            (Some(stamp), Some(earlier)) if stamp.has_all_of(earlier) => return Ok(stamp),
            (None, _) => "is lost",
            (Some(_), None) => "is unknown: its note in the descriptor is missing",
            (Some(_), Some(_)) => "was replaced, or lost items",
        };
        let name = name::typed(self.name);
        let answers = matches!(seen.step, Some(Step::Exchanged | Step::Committed));
        Err(Error::incomplete(
            format!(
                "rebuild {}: shard {place} of {} of the new generation {what}",
                self.shown,
                new.shards()
            ),
            match answers {
                true => format!(
                    "Export the items again, `repair {name} --shard {place} --replace --from \
                     FILE`, then `rebuild {name} --commit`."
                ),
                false => format!(
                    "The old generation answers, and has all items. Give up by `rebuild {name} \
                     --abort`, and begin again."
                ),
            },
        ))
    }

    /// Chooses a generation, and notes that its shards are being reserved.
    fn begin(&self, seen: &Seen) -> Result<(), Error> {
        let (old, wanted) = (&seen.descriptor.current, self.wanted(seen));
        // Shards that an earlier restore has replaced.
        bury(&self.servers, self.name, |_, _| Ok(()))?;
        let new = unused(
            &self.servers,
            self.name,
            wanted.shards(),
            old.number + 1,
            wanted.error_rate,
            wanted.capacity,
        )?;
        self.change(seen.step, Some(new.number), Step::Reserving, |_, _| Change {
            set: spare_fields(&new),
            delete: Vec::new(),
        })
    }

    /// Reserves the shards of the new generation.
    fn reserve(&self, seen: &Seen) -> Result<(), Error> {
        let (old, Some(new)) = (&seen.descriptor.current, &seen.new) else { return Ok(()) };
        let growth = growth_for(&self.servers, old, None)?;
        on_all(&self.servers, &new.keys, |server, place, _| {
            self.stop_if_asked()?;
            let Some(shard) = shard_at(place, new.keys.len()) else { return Ok(()) };
            // Nobody else makes keys of this generation, but an earlier run may have.
            reserve(&self.servers, server, &new.keys[place], shard, new, growth, true)
        })?;
        let stamp = |_: &mut _, place, _| Stamp::of_shard(&self.servers, new, place);
        let stamps = on_all(&self.servers, &new.keys, stamp)?;
        self.intact(seen, &stamps)?;
        self.advance(seen, Step::Waiting, |seen, fields| {
            let mut set: Vec<_> = seen.new.iter().flat_map(Generation::next_fields).collect();
            set.extend(with(stamps.clone()).set);
            Change { set, delete: names_of(fields, "spare.") }
        })
    }

    /// Loads the files into the new generation, and checks that their items are in. Returns how
    /// many there are, and what the shards have then.
    fn fill(&self, seen: &Seen) -> Result<(u64, Vec<Option<Stamp>>), Error> {
        let Some(new) = &seen.new else { return Ok((0, Vec::new())) };
        self.intact(seen, &seen.stamps)?;
        let (arguments, task) = (self.arguments, format!("rebuild {}", self.shown));
        let totals = load_files(
            &task,
            Goal::Generation(new.clone()),
            &Files {
                paths: &arguments.from,
                items: &arguments.input,
                confirmed: &arguments.loading,
            },
            self.target.clone(),
            self.output,
        )?;
        if totals.items == 0 {
            return Err(Error::usage(
                format!("{task}: the files have no items"),
                "Name the files of all items of the filter, and their form by -0.",
            ));
        }
        // A shard that loses items while others are checked counts fewer than now.
        let stamps = self.intact(seen, &seen.stamps)?;
        let mut membership = Membership::of_generation(&self.target, self.name, new.clone())?;
        let (mut items, mut absent, mut unknown) = (0, 0, 0);
        for path in &arguments.from {
            let source = Source::named(path);
            let (input, length) = source.open()?;
            let size = membership.batch_size(arguments.input.batch);
            let mut batches = Batches::new(input, &arguments.input).of_size(size as usize);
            let label = format!("checking {}", source.name());
            let mut progress = Progress::new(self.output, &label, length);
            let next = || {
                self.stop_if_asked()?;
                batches.next_batch().map_err(Error::file(source.name()))
            };
            membership.ask(next, |batch, answers| {
                items += answers.items;
                unknown += answers.unknown;
                absent += answers.items - answers.present - answers.unknown;
                progress.at(batch.end, items, Unit::Items);
                Ok(())
            })?;
        }
        if unknown > 0 {
            return Err(membership.unknown(&task, unknown));
        }
        if absent > 0 {
            return Err(Error::incomplete(
                format!(
                    "{task}: {} of {} items are not in the new generation",
                    amount::grouped(absent),
                    amount::grouped(items)
                ),
                "Did the files change, or did a server lose data? Load them again.",
            ));
        }
        if items != totals.items {
            return Err(Error::incomplete(
                format!(
                    "{task}: the files changed: {} items were loaded, {} were there to check",
                    amount::grouped(totals.items),
                    amount::grouped(items)
                ),
                "Load them again when nobody writes to them.",
            ));
        }
        Ok((items, self.intact(seen, &stamps)?))
    }

    /// Puts the tombstones, and removes the step.
    fn end(&self, seen: &Seen) -> Result<(), Error> {
        let committed = seen.step == Some(Step::Committed);
        bury(&self.servers, self.name, |place, count| match &seen.new {
            Some(new) if committed => {
                let mut heirs = heirs(place, count, new.keys.len());
                heirs.try_for_each(|heir| self.has_all(seen, new, &seen.stamps, heir).map(|_| ()))
            }
            _ => Ok(()),
        })?;
        if committed {
            self.intact(seen, &seen.stamps)?;
        }
        update(&self.servers, self.name, |fields| {
            let step = self.read(fields)?.step;
            let mut delete = Vec::new();
            if step == seen.step && step.is_some() {
                delete.push(STEP.to_vec());
                delete.extend(names_of(fields, "rebuild."));
                if step == Some(Step::Committed) {
                    delete.extend(names_of(fields, "next."));
                }
            }
            Ok((Change { set: Vec::new(), delete }, ()))
        })
    }

    /// Waits until every client has read the descriptor, and has ended what it did by the one
    /// before.
    fn wait(&self, descriptor: &Descriptor, until: &str) -> Result<(), Error> {
        let started = Instant::now();
        let mut largest = descriptor.poll;
        loop {
            let seconds = largest.saturating_mul(2);
            self.output.remark(format_args!(
                "{}: {seconds} s (two times `poll`), until every client {until}",
                self.shown
            ));
            // Clients go by the value that they have read: if it grows, they take longer.
            let mut looked = Instant::now();
            loop {
                self.stop_if_asked()?;
                thread::sleep(MOMENT);
                let over = started.elapsed() >= Duration::from_secs(seconds);
                if over || looked.elapsed() >= LOOK_EVERY {
                    looked = Instant::now();
                    let poll = self.look()?.descriptor.poll;
                    if poll > largest {
                        largest = poll;
                        break;
                    }
                }
                if over {
                    return Ok(());
                }
            }
        }
    }

    /// Goes from the step that was seen to another one, by one transaction.
    fn advance(
        &self,
        seen: &Seen,
        to: Step,
        change: impl Fn(&Seen, &Fields) -> Change,
    ) -> Result<(), Error> {
        self.change(seen.step, seen.new.as_ref().map(|new| new.number), to, change)
    }

    /// Goes from one step of the rebuild to this generation to another one.
    fn change(
        &self,
        from: Option<Step>,
        number: Option<u64>,
        to: Step,
        change: impl Fn(&Seen, &Fields) -> Change,
    ) -> Result<(), Error> {
        update(&self.servers, self.name, |fields| {
            let now = self.read(fields)?;
            let same = now.new.as_ref().is_none_or(|new| Some(new.number) == number);
            if now.step == Some(to) && same {
                // An earlier attempt, whose reply was lost.
                return Ok((Change::default(), ()));
            }
            if now.step != from || !same {
                return Err(Error::incomplete(
                    format!("{}: another run is rebuilding it, too", self.shown),
                    "Wait until that one ends, then look again.",
                ));
            }
            let mut change = change(&now, fields);
            change.set.push((STEP.to_vec(), to.name().into()));
            Ok((change, ()))
        })
    }

    fn stop_if_asked(&self) -> Result<(), Error> {
        interrupt::check("Nothing was changed.")?;
        Ok(())
    }

    fn report(&self, seen: &Seen, items: Option<u64>, text: String) -> Result<Exit, Error> {
        let now = if self.arguments.dry_run { seen.clone() } else { self.look()? };
        let of = match self.arguments.dry_run {
            true => self.wanted(&now),
            false => now.new.unwrap_or_else(|| now.descriptor.current.clone()),
        };
        let report = Report {
            name: Named::of(self.name),
            step: seen.step,
            changed: !self.arguments.dry_run,
            generation: now.descriptor.current.number,
            next_generation: now.descriptor.next.ok().flatten().map(|next| next.number),
            shards: of.shards(),
            capacity: of.capacity,
            error_rate: of.error_rate,
            items,
        };
        self.output.data(&report, text)?;
        Ok(Exit::Done)
    }
}

/// Notes what the shards have.
fn with(stamps: Vec<Option<Stamp>>) -> Change {
    let stamps = stamps.iter().enumerate();
    let set = stamps.filter_map(|(place, stamp)| Some(note(place, stamp.as_ref()?))).collect();
    Change { set, delete: Vec::new() }
}

/// The new shards that take the items of old shard `place` of `old`: ranges of the CRC that meet.
fn heirs(place: usize, old: usize, new: usize) -> std::ops::Range<usize> {
    place * new / old..((place + 1) * new).div_ceil(old)
}

/// A generation is none any more: its keys become tombstones.
fn retire(fields: &Fields, prefix: &str) -> Change {
    let delete = names_of(fields, prefix);
    let key = |name: &Vec<u8>| {
        let place =
            name.get(prefix.len()..).filter(|place| place.iter().all(u8::is_ascii_digit))?;
        Some(([b"retired.", place].concat(), fields.get(name)?.clone()))
    };
    let set = delete.iter().filter_map(key).collect();
    Change { set, delete }
}

#[cfg(test)]
mod tests {
    use bloom::sharding::shard_of;

    use super::*;

    #[test]
    fn the_heirs_of_a_shard_take_all_its_items() {
        for (old, new) in [(1, 1), (8, 3), (3, 8), (4, 8), (7, 1_024), (1_024, 1_000)] {
            let mut some = vec![false; new];
            for number in 0..20_000_u32 {
                let shard = |of: usize| {
                    usize::from(shard_of(&number.to_le_bytes(), of.try_into().expect("small")))
                };
                assert!(heirs(shard(old), old, new).contains(&shard(new)), "{old} to {new}");
            }
            (0..old).flat_map(|place| heirs(place, old, new)).for_each(|heir| some[heir] = true);
            assert!(some.into_iter().all(|some| some), "{old} to {new}");
        }
    }
}
