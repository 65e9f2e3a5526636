//! `redis-bloom rebuild NAME`: another number of shards, capacity or error rate for a sharded
//! filter, from the source of its items, while clients use it (docs/reference/sharding.md,
//! Rebuild).
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
//!   exchanged   new      old                   wait 2 x poll: then most clients query new
//!   committed   new      old    retired.*      tombstones in the place of old, then no next
//!   aborted     old             retired.*      tombstones in the place of new
//! ```
//!
//! From `waiting` on the fields `rebuild.0`, `rebuild.1` ... note what each shard of the new
//! generation had (`stamp.rs`). Before every later step, and before a tombstone replaces an old
//! shard, a run checks that the new shards which take its items still have that.
//!
//! Shards with a window are not rebuilt: an item of a file would count as added now. Nor are those
//! that count: an item that a client and a file add would count twice.

mod act;
mod next;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use crate::sharding::{Generation, MAX_SHARDS};
use serde::Serialize;

use crate::{
    amount,
    at_once::Servers,
    connection::Options,
    error::{Error, Exit},
    interrupt, items,
    loading::{self, Files},
    name::{self, Named},
    output::Output,
};
use act::{Rebuild, Seen};
use next::{Action, Asked, Refusal, Step, next};

/// Changes the shards, capacity or error rate of a sharded filter, while clients use it
///
/// Without --from, it creates a new generation that takes all additions from then on. Export the
/// items after that, and name the files by --from. With --from, it loads the files into the new
/// generation, then queries every item. With --commit, the new generation answers. The run that
/// begins a rebuild and the run with --commit wait until all clients have read the descriptor.
/// Repeat the command to continue an interrupted run.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the sharded filter
    name: OsString,
    /// Files with all items. They are read twice
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from: Vec<PathBuf>,
    /// Items that the filter is made for; without it, as before
    #[arg(long = "items", value_name = "N", value_parser = amount::positive_items)]
    capacity: Option<u64>,
    /// Highest rate of false positives; without it, as before
    #[arg(long, value_name = "RATE", value_parser = amount::rate)]
    error: Option<f64>,
    /// Number of shards; without it, as before
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_SHARDS)))]
    shards: Option<u16>,
    /// Replaces the old generation by the new one, which must have the items
    #[arg(long)]
    commit: bool,
    /// Gives up the rebuild
    #[arg(long, conflicts_with_all = ["from", "capacity", "error", "shards", "commit"])]
    abort: bool,
    #[command(flatten)]
    loading: loading::Options,
    // Last: clap puts all later options under the same heading.
    #[command(flatten)]
    input: items::Options,
}

/// What a run left behind.
#[derive(Debug, Serialize)]
struct Report<'n> {
    #[serde(flatten)]
    name: Named<'n>,
    /// The step that is reached.
    step: Option<Step>,
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

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        for path in &self.from {
            is_regular(path)?;
        }
        let name = name::bytes(&self.name);
        let target = connection.target()?;
        interrupt::register();
        let rebuild = Rebuild {
            name,
            shown: name::readable(name),
            servers: Servers::of(target.clone(), output)?,
            target,
            output,
            arguments: self,
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
        format!("{}: not a regular file, and the items are read twice", name::readable_path(path)),
        "Write them to a file first.",
    ))
}

impl Rebuild<'_> {
    fn run(&self) -> Result<Exit, Error> {
        let seen = self.look()?;
        let action = self.next(&seen, None);
        self.check(&seen, action)?;
        if seen.step.is_some() {
            // The run that went to this step may not have waited until a replica had it.
            self.servers.confirm(&[self.name.to_vec()])?;
        }
        let go_on = match self.arguments.abort {
            false => "Repeat the command to continue, or give up by --abort.",
            true => "Repeat the command to continue.",
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

    /// Refuses what this run cannot continue.
    fn check(&self, seen: &Seen, action: Action) -> Result<(), Error> {
        let arguments = self.arguments;
        let refused = |what: &str, hint: &str| {
            Err(Error::refused_partly(format!("rebuild {}: {what}", self.shown), hint.to_owned()))
        };
        let begins = format!("`rebuild {}` begins a rebuild.", name::typed(self.name));
        let refusal = match action {
            Action::Refuse(Refusal::NoRebuild) => Some(("it is not being rebuilt", &*begins)),
            Action::Refuse(Refusal::Exchanged) => {
                Some(("the new generation answers already", "Finish it by --commit."))
            }
            Action::Refuse(Refusal::Foreign) => Some((
                "it has a next generation that this tool did not make",
                "Let its maker finish, or remove it by --abort.",
            )),
            Action::Refuse(Refusal::Unfilled) => Some((
                "there is no new generation that has the items",
                "Name the files of the items by --from.",
            )),
            Action::Begin | Action::Bury { last: false } => self.unfit(seen)?,
            _ => None,
        };
        if let Some((what, hint)) = refusal {
            return refused(what, hint);
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
        // What is left of a rebuild that has ended does not matter.
        if differs && (seen.step != Some(Step::Committed) || arguments.commit) {
            return refused(
                &format!("it is being rebuilt with {}", self.parameters(new)),
                "Leave out other parameters to continue with these, or give up by --abort.",
            );
        }
        Ok(())
    }

    /// The new generation, as far as its parameters go.
    fn wanted(&self, seen: &Seen) -> Generation {
        let old = &seen.descriptor.current;
        let (arguments, mut wanted) = (self.arguments, seen.new.as_ref().unwrap_or(old).clone());
        wanted.number = old.number + 1;
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
            interrupt::check("Nothing was changed.")?;
            *changed = true;
            match action {
                Action::Begin => self.begin(&seen, &self.wanted(&seen))?,
                Action::Reserve => self.reserve(&seen)?,
                Action::AwaitAdders => {
                    self.wait(&seen.descriptor, "adds to the new generation, too")?;
                    self.ready_to_fill(&seen)?;
                    if !self.arguments.from.is_empty() {
                        self.output.remark(
                            "Items that were added before now must be in the files. If any were \
                             added after the export, interrupt this, and export again",
                        );
                    }
                }
                Action::Fill => {
                    let Arguments { from, input, loading, .. } = self.arguments;
                    let files = Files { paths: from, items: input, confirmed: loading };
                    loaded = Some(self.fill(&seen, &files)?);
                }
                Action::FillAgain => self.ready_to_fill(&seen)?,
                Action::Exchange => self.exchange(&seen)?,
                Action::AwaitReaders => {
                    self.wait(&seen.descriptor, "queries the new generation")?;
                    self.commit(&seen)?;
                }
                Action::Retire => self.give_up(&seen)?,
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

    /// The result of a run that ends before the rebuild has ended.
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

    fn report(&self, seen: &Seen, items: Option<u64>, text: String) -> Result<Exit, Error> {
        let now = self.look()?;
        let of = now.new.unwrap_or_else(|| now.descriptor.current.clone());
        let report = Report {
            name: Named::of(self.name),
            step: seen.step,
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
