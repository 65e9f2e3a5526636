//! A sharded filter that is made: by `create`, whose shards are empty, or by `restore`.
//!
//! ```text
//!   lock      one transaction: `state creating`, the new generation in `spare.*`, and `creator`
//!   fill      the caller makes every shard
//!   ready     one transaction: the generation is the current one, `state ready`; WAIT
//!   look      the shards are there: a server may have lost one meanwhile
//! ```
//!
//! After the lock, a run that ends early is undone by `drop`: no client has used the filter.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use crate::{
    at_once::{Servers, on_all},
    connection::Connection,
    descriptor::{Change, DROPPING, names_of, read, spare, spare_fields, update, whole},
    error::Error,
    name,
    refusal::Kind,
    sharding::{Descriptor, Generation, Malformed, State},
};

/// The field that tells whose lock it is: of two that make a filter at once, one is refused.
const CREATOR: &[u8] = b"creator";

/// A sharded filter that is to be made.
pub(crate) struct NewSharded<'a> {
    /// The subcommand.
    pub(crate) task: &'static str,
    pub(crate) name: &'a [u8],
    pub(crate) servers: &'a Servers,
}

impl NewSharded<'_> {
    /// Checks that nothing is at the name.
    pub(crate) fn is_free(&self) -> Result<(), Error> {
        let exists = || Error::refused(self.task, "ERR item exists");
        let fields = read(self.servers, self.name).map_err(|error| match error {
            error if error.is(Kind::WrongType) => exists(),
            error => error,
        })?;
        match whole(&fields) {
            Err(Malformed::Missing) => Ok(()),
            Err(Malformed::HalfWritten) => Err(self.busy()),
            _ => Err(exists()),
        }
    }

    /// Makes the filter. `fill` makes its shards, `look` fails for one that is not there any more.
    ///
    /// # Errors
    /// Those of both, and `Error::RefusedPartly` if somebody else makes a filter of this name.
    pub(crate) fn make(
        &self,
        filter: &Descriptor,
        fill: impl FnOnce() -> Result<(), Error>,
        look: impl Fn(&mut Connection, usize) -> Result<bool, Error> + Sync,
    ) -> Result<(), Error> {
        let generation = &filter.current;
        // The standard library seeds each of its hashers from the system's random numbers.
        let creator = RandomState::new().build_hasher().finish().to_string().into_bytes();
        self.lock(generation, &creator)?;
        let made = fill().and_then(|()| self.publish(filter, &creator)).and_then(|()| {
            on_all(self.servers, &generation.keys, |server, place, _| match look(server, place)? {
                true => Ok(()),
                false => Err(Error::incomplete(
                    format!("shard {place} of {} is lost", generation.shards()),
                    self.go_on(),
                )),
            })
        });
        made.map(|_| ()).map_err(|error| self.half_written(error))
    }

    /// Takes the name.
    fn lock(&self, generation: &Generation, creator: &[u8]) -> Result<(), Error> {
        update(self.servers, self.name, |fields| {
            if fields.get(CREATOR).is_some_and(|found| found == creator) {
                // An earlier attempt, whose reply was lost.
                return Ok((Change::default(), ()));
            }
            if !fields.is_empty() {
                return Err(self.busy());
            }
            let mut set = spare_fields(generation);
            set.push((CREATOR.to_vec(), creator.to_vec()));
            set.push((b"state".to_vec(), State::Creating.name().into()));
            Ok((Change { set, delete: Vec::new() }, ()))
        })
    }

    /// Lets clients use the filter.
    fn publish(&self, filter: &Descriptor, creator: &[u8]) -> Result<(), Error> {
        update(self.servers, self.name, |fields| {
            let ours = fields.get(CREATOR).is_some_and(|found| found == creator)
                && spare(fields).as_ref() == Some(&filter.current)
                && !fields.contains_key(DROPPING);
            if !ours {
                // An earlier attempt, whose reply was lost; or somebody removed the filter.
                return match whole(fields) {
                    Ok(found) if found == *filter => Ok((Change::default(), ())),
                    _ => Err(self.busy()),
                };
            }
            let mut delete = names_of(fields, "spare.");
            delete.push(CREATOR.to_vec());
            Ok((Change { set: filter.fields(State::Ready), delete }, ()))
        })
    }

    /// How to go on after the lock was taken.
    fn go_on(&self) -> String {
        format!("Remove it by `drop {}`, and {} it again.", name::typed(self.name), self.task)
    }

    fn busy(&self) -> Error {
        Error::refused_partly(
            format!("{}: somebody is creating it, or a run ended early", name::readable(self.name)),
            self.go_on(),
        )
    }

    /// The error of a run that took the lock.
    fn half_written(&self, error: Error) -> Error {
        let what = format!("{} is half-written: {error}", name::readable(self.name));
        match error {
            Error::Incomplete { .. } => Error::incomplete(what, self.go_on()),
            error => error.partly(self.go_on()).named(what),
        }
    }
}
