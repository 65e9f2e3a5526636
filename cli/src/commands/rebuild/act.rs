//! The state of a rebuild, and what its actions do. Each action checks what it relies on before it
//! changes anything: the step, in the transaction that changes it; the new shards, before a step
//! that needs them, and before a tombstone replaces an old shard.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::sharding::{Descriptor, Generation};
use clap::ValueEnum as _;

use super::{Arguments, next::Step};
use crate::{
    amount,
    at_once::{Servers, on_all},
    commands::drop::remove,
    connection::{Connection, Target},
    descriptor::{
        Change, Fields, any_of, bury, dropped, names_of, note, noted, read, reserve_all, spare,
        spare_fields, unused, update, whole,
    },
    error::Error,
    filter_info::{Cells, FilterInfo},
    interrupt,
    loading::{Files, Goal, Input, load_files},
    membership::Membership,
    name,
    output::Output,
    progress::Progress,
    refusal::Kind,
    sharded,
    stamp::{Stamp, identity},
};

/// The longest sleep without a look for Ctrl-C.
const MOMENT: Duration = Duration::from_millis(100);
/// How often the descriptor is read while clients are waited for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The field with the step.
const STEP: &[u8] = b"rebuild";
/// The field with the identity and the key of the filter that was the base.
const BASE: &[u8] = b"rebuild.base";

/// What the descriptor says.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// `None` if the tool is not rebuilding the filter.
    pub(super) step: Option<Step>,
    pub(super) descriptor: Descriptor,
    /// The generation that is made; `None` without one, or if its fields are damaged.
    pub(super) new: Option<Generation>,
    /// What its shards had when they were looked at last; `None` where that is not noted.
    pub(super) stamps: Vec<Option<Stamp>>,
    /// Identity, a blank and the key of the filter that was the base before the exchange.
    base: Option<Vec<u8>>,
}

/// A run of the subcommand.
pub(super) struct Rebuild<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) name: &'a [u8],
    pub(super) shown: String,
    pub(super) target: Target,
    pub(super) servers: Servers,
    pub(super) output: &'a Output,
}

impl Rebuild<'_> {
    /// Reads the descriptor.
    pub(super) fn look(&self) -> Result<Seen, Error> {
        let none = |what: &str, hint: &str| {
            Error::refused_partly(format!("rebuild {}: {what}", self.shown), hint.to_owned())
        };
        match read(&self.servers, self.name) {
            Ok(fields) if fields.is_empty() => Err(none(
                "there is no sharded filter of this name",
                &format!("`create {} --shards N` makes one.", name::typed(self.name)),
            )),
            Ok(fields) => self.read(&fields),
            Err(error) if error.is(Kind::WrongType) => Err(none(
                "WRONGTYPE the name is a filter in one key, or a key of another type",
                "For a filter in one key: `create NEW --shards N`, load its items there, then let \
                 the clients use NEW.",
            )),
            Err(error) => Err(error),
        }
    }

    fn read(&self, fields: &Fields) -> Result<Seen, Error> {
        let descriptor =
            whole(fields).map_err(|malformed| sharded::explained(self.name, &malformed))?;
        let step = match fields.get(STEP) {
            None => None,
            Some(value) => {
                let shown = name::readable(value);
                Some(Step::from_str(&shown, false).map_err(|_| {
                    Error::refused_partly(
                        format!("{}: unknown step '{shown}' of a rebuild", self.shown),
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
        let places = 0..new.as_ref().map_or(0, |new| new.keys.len());
        let stamps = places.map(|place| noted(fields, place)).collect();
        Ok(Seen { step, descriptor, new, stamps, base: fields.get(BASE).cloned() })
    }

    /// Why the shards cannot be rebuilt from files, and what to do.
    pub(super) fn unfit(&self, seen: &Seen) -> Result<Option<(&'static str, &'static str)>, Error> {
        let shard = any_of(&self.servers, &seen.descriptor.current)?;
        Ok(shard.and_then(|shard| match shard {
            FilterInfo { window: Some(_), .. } => Some((
                "it has a window: items of files would count as added now",
                "`create` another filter, let the clients add to both for one window, then use \
                 that one, and drop this.",
            )),
            FilterInfo { cells: Cells::Counters, .. } => Some((
                "it counts items: items that are added or loaded twice would count twice",
                "Create another filter, load it while no client changes this one, let the clients \
                 use that one, and drop this.",
            )),
            _ => None,
        }))
    }

    /// Lets the new generation answer.
    pub(super) fn exchange(&self, seen: &Seen) -> Result<(), Error> {
        if seen.descriptor.exchange().is_none() {
            return Err(Error::incomplete(
                format!("rebuild {}: the fields of the next generation are damaged", self.shown),
                "Give up by --abort.",
            ));
        }
        let mut noted = None;
        if let Some(base) = &seen.descriptor.base {
            let own = identity(&mut self.servers.all.connect_for(base)?, base)?;
            noted = own.map(|own| (BASE.to_vec(), [own.as_bytes(), b" ", base].concat()));
        }
        self.step(seen, Step::Exchanged, |now, _| {
            let (mut set, delete) = now.descriptor.exchange().unwrap_or_default();
            set.extend(noted.clone());
            Change { set, delete }
        })
    }

    /// Notes that the files are to be loaded.
    pub(super) fn ready_to_fill(&self, seen: &Seen) -> Result<(), Error> {
        self.step(seen, Step::Filling, |_, _| Change::default())
    }

    /// Retires the old generation, which takes additions until the last of its shards is gone.
    pub(super) fn commit(&self, seen: &Seen) -> Result<(), Error> {
        self.step(seen, Step::Committed, |_, fields| Change {
            set: retire(fields, "next.").set,
            delete: Vec::new(),
        })
    }

    /// Gives the new generation up.
    pub(super) fn give_up(&self, seen: &Seen) -> Result<(), Error> {
        let prefix = if seen.step == Some(Step::Reserving) { "spare." } else { "next." };
        self.advance(seen, Step::Aborted, &[], |_, fields| retire(fields, prefix))
    }

    /// Goes to another step, if the new shards have what they had.
    fn step(
        &self,
        seen: &Seen,
        to: Step,
        change: impl Fn(&Seen, &Fields) -> Change,
    ) -> Result<(), Error> {
        let stamps = self.intact(seen, &seen.stamps)?;
        self.advance(seen, to, &stamps, change)
    }

    /// What the shards of the new generation have now. Checks that each still has all that it had
    /// at `earlier`.
    ///
    /// # Errors
    /// `Error::incomplete` if a shard has lost something.
    pub(super) fn intact(
        &self,
        seen: &Seen,
        earlier: &[Option<Stamp>],
    ) -> Result<Vec<Option<Stamp>>, Error> {
        let Some(new) = &seen.new else { return Ok(Vec::new()) };
        let looked = on_all(&self.servers, &new.keys, |server, place, _| {
            self.has_all(server, seen, new, earlier, place)
        })?;
        Ok(looked.into_iter().map(Some).collect())
    }

    /// What one of the new shards has now.
    fn has_all(
        &self,
        server: &mut Connection,
        seen: &Seen,
        new: &Generation,
        earlier: &[Option<Stamp>],
        place: usize,
    ) -> Result<Stamp, Error> {
        let stamp = Stamp::of_shard(server, new, place)?;
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
                // The old generation cannot answer again: clients may have forgotten it.
                true => format!(
                    "Export the items again, load them into another filter, let the clients use \
                     that one, and `drop {name}`."
                ),
                false => format!(
                    "The old generation answers, and has all items. Give up by `rebuild {name} \
                     --abort`, and begin again."
                ),
            },
        ))
    }

    /// Chooses a generation with these parameters, and notes that its shards are being reserved.
    pub(super) fn begin(&self, seen: &Seen, wanted: &Generation) -> Result<(), Error> {
        let new = unused(&self.servers, self.name, wanted)?;
        let seen = Seen { new: Some(new.clone()), ..seen.clone() };
        self.advance(&seen, Step::Reserving, &[], |_, _| Change {
            set: spare_fields(&new),
            delete: Vec::new(),
        })
    }

    /// Reserves the shards of the new generation.
    pub(super) fn reserve(&self, seen: &Seen) -> Result<(), Error> {
        let (old, Some(new)) = (&seen.descriptor.current, &seen.new) else { return Ok(()) };
        // The new shards grow as the old ones do. If no old shard is left, their expansion is 1.
        let shard = any_of(&self.servers, old)?;
        if shard.is_none() {
            self.output.remark(format_args!(
                "{}: no shard is left as a model: the new ones grow, and have no window",
                self.shown
            ));
        }
        let expansion = shard.map_or(Some(1), |shard| shard.expansion);
        // Nobody else makes keys of this generation, but an earlier run may have.
        reserve_all(&self.servers, new, expansion, true)?;
        // A drop from here on finds all of them.
        update(&self.servers, self.name, |fields| {
            let Some(change) = dropped(fields, new) else { return Ok((Change::default(), Ok(()))) };
            let error = Error::incomplete(
                format!("rebuild {}: it was dropped meanwhile", self.shown),
                format!("Remove what is left by `drop {}`.", name::typed(self.name)),
            );
            Ok((change, Err(error)))
        })??;
        let stamps = on_all(&self.servers, &new.keys, |server, place, _| {
            Stamp::of_shard(server, new, place)
        })?;
        self.intact(seen, &stamps)?;
        self.advance(seen, Step::Waiting, &stamps, |now, fields| Change {
            set: now.new.iter().flat_map(Generation::next_fields).collect(),
            delete: names_of(fields, "spare."),
        })
    }

    /// Loads the files into the new generation, and checks that their items are in. Returns how
    /// many there are.
    pub(super) fn fill(&self, seen: &Seen, files: &Files) -> Result<u64, Error> {
        let Some(new) = &seen.new else { return Ok(0) };
        self.intact(seen, &seen.stamps)?;
        let task = format!("rebuild {}", self.shown);
        let goal = Goal::Generation(new.clone());
        let totals = load_files(&task, goal, files, self.target.clone(), self.output)?;
        if totals.items == 0 {
            return Err(Error::usage(
                format!("{task}: the files have no items"),
                "Name the files of all items of the filter. If items end with a zero byte, use -0.",
            ));
        }
        // The counts now: a shard that loses items while others are checked counts fewer later.
        let stamps = self.intact(seen, &seen.stamps)?;
        let mut membership = Membership::of_generation(&self.target, self.name, new.clone())?;
        let (mut items, mut absent) = (0, 0);
        for path in files.paths {
            let input = Input::open(path, String::new())?;
            let size = membership.batch_size(files.items.batch);
            let mut batches = input.batches(files.items)?.of_size(size as usize);
            let label = format!("checking {}", input.name);
            let mut progress = Progress::new(self.output, &label, input.extent().0);
            let next = || {
                interrupt::check("Nothing was changed.")?;
                batches.next_batch().map_err(Error::file(&input.name))
            };
            membership.ask(next, |batch, answers| {
                items += answers.items;
                absent += answers.items - answers.present;
                progress.at(batch.end, items, amount::readable_items);
                Ok(())
            })?;
        }
        // A shard that is lost has no answers: this says so.
        let stamps = self.intact(seen, &stamps)?;
        if absent > 0 || items != totals.items {
            let [loaded, items, absent] = [totals.items, items, absent].map(amount::grouped);
            return Err(Error::incomplete(
                format!(
                    "{task}: {loaded} items were loaded; of the {items} in the files now, {absent} \
                     are not in the new generation"
                ),
                "Did the files change, or did a server lose data? Load them again.",
            ));
        }
        self.advance(seen, Step::Filled, &stamps, |_, _| Change::default())?;
        Ok(items)
    }

    /// Puts the tombstones, and removes the step.
    pub(super) fn end(&self, seen: &Seen) -> Result<(), Error> {
        let committed = seen.step == Some(Step::Committed);
        bury(&self.servers, self.name, |place, count| match &seen.new {
            Some(new) if committed => {
                let mut heirs = heirs(place, count, new.keys.len());
                heirs.try_for_each(|heir| {
                    let server = &mut self.servers.all.connect_for(&new.keys[heir])?;
                    self.has_all(server, seen, new, &seen.stamps, heir).map(|_| ())
                })
            }
            _ => Ok(()),
        })?;
        if committed {
            self.intact(seen, &seen.stamps)?;
            let base = seen.base.iter().filter_map(|base| {
                let blank = base.iter().position(|&byte| byte == b' ')?;
                Some((base[..blank].to_vec(), base[blank + 1..].to_vec()))
            });
            let (own, key): (Vec<_>, Vec<_>) = base.unzip();
            on_all(&self.servers, &key, |server, _, _| {
                // Another filter may have the name by now.
                remove(&self.servers, server, &key[0], |server| {
                    Ok(identity(server, &key[0])?.is_some_and(|now| now.as_bytes() == own[0]))
                })
            })?;
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

    /// Waits until every client has read the descriptor, and has finished what it began with the
    /// previous one.
    pub(super) fn wait(&self, descriptor: &Descriptor, until: &str) -> Result<(), Error> {
        let started = Instant::now();
        let mut largest = descriptor.poll;
        loop {
            let seconds = largest.saturating_mul(2);
            self.output.remark(format_args!(
                "{}: waiting {seconds} s (two times `poll`) until every client {until}",
                self.shown
            ));
            // Clients go by the value that they have read: if it grows, they take longer.
            let mut looked = Instant::now();
            loop {
                interrupt::check("Nothing was changed.")?;
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

    /// Goes from the step that was seen to another one, by one transaction, and notes what the new
    /// shards have.
    fn advance(
        &self,
        seen: &Seen,
        to: Step,
        stamps: &[Option<Stamp>],
        change: impl Fn(&Seen, &Fields) -> Change,
    ) -> Result<(), Error> {
        let (from, number) = (seen.step, seen.new.as_ref().map(|new| new.number));
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
            let step = to.to_possible_value().map_or_else(String::new, |to| to.get_name().into());
            change.set.push((STEP.to_vec(), step.into()));
            let notes = stamps.iter().enumerate();
            change
                .set
                .extend(notes.filter_map(|(place, stamp)| Some(note(place, stamp.as_ref()?))));
            Ok((change, ()))
        })
    }
}

/// The new shards that take the items of shard `place` of `old` shards: those whose ranges of the
/// CRC overlap with its range.
fn heirs(place: usize, old: usize, new: usize) -> std::ops::Range<usize> {
    place * new / old..((place + 1) * new).div_ceil(old)
}

/// Removes a generation: its keys become tombstones.
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
