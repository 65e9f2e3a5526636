//! How `create` makes a sharded filter.
//!
//! ```text
//!   lock      one transaction: `state creating`, the new generation in `spare.*`, and `creator`
//!   fill      every shard is reserved
//!   ready     one transaction: the generation is the current one, `state ready`; WAIT
//!   look      the shards are there: a server may have lost one in the meantime
//! ```
//!
//! After the lock, a run that ends early is undone by `drop`: no client has used the filter.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use redis::Value;

use crate::{
    at_once::{Servers, on_all},
    descriptor::{CREATOR, Change, dropped, locked, names_of, read, spare, update, whole},
    error::Error,
    name,
    new_shard::reserve_all,
    refusal::Kind,
    sharding::{Descriptor, Generation, Malformed, State},
};

/// Why a name is refused.
const BUSY: &str = "another run is creating it, or was interrupted";

/// A sharded filter that is to be made.
pub(crate) struct NewSharded<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) servers: &'a Servers,
}

impl NewSharded<'_> {
    /// Checks that nothing is at the name.
    pub(crate) fn is_free(&self) -> Result<(), Error> {
        let exists = || Error::refused("create", "ERR item exists");
        let fields = read(self.servers, self.name).map_err(|error| match error {
            error if error.is(Kind::WrongType) => exists(),
            error => error,
        })?;
        match whole(&fields) {
            Err(Malformed::Missing) => Ok(()),
            Err(Malformed::HalfWritten) => Err(self.refused(BUSY)),
            _ => Err(exists()),
        }
    }

    /// Makes the filter.
    ///
    /// # Errors
    /// `Error::RefusedPartly` if another run makes a filter of this name.
    pub(crate) fn make(&self, filter: &Descriptor, expansion: Option<u64>) -> Result<(), Error> {
        let generation = &filter.current;
        // The standard library seeds each of its hashers from the system's random numbers.
        let creator = RandomState::new().build_hasher().finish().to_string().into_bytes();
        self.lock(generation, &creator)?;
        reserve_all(self.servers, generation, expansion, false)
            .and_then(|()| self.publish(filter, &creator))
            .and_then(|()| self.look(generation))
            .map_err(|error| self.half_written(error))
    }

    /// Sees that all shards are there.
    fn look(&self, generation: &Generation) -> Result<(), Error> {
        on_all(self.servers, &generation.keys, |server, place, _| {
            let key = &generation.keys[place];
            match server.call_for_key(redis::cmd("EXISTS").arg(key))? {
                Value::Int(0) => Err(Error::incomplete(
                    format!("shard {place} of {} is lost", generation.shards()),
                    self.go_on(),
                )),
                _ => Ok(()),
            }
        })
        .map(|_| ())
    }

    /// Takes the name.
    fn lock(&self, generation: &Generation, creator: &[u8]) -> Result<(), Error> {
        update(self.servers, self.name, |fields| {
            if fields.get(CREATOR).is_some_and(|found| found == creator) {
                // An earlier attempt, whose reply was lost.
                return Ok((Change::default(), ()));
            }
            if !fields.is_empty() {
                return Err(self.refused(BUSY));
            }
            Ok((Change { set: locked(generation, creator), delete: Vec::new() }, ()))
        })
    }

    /// Lets clients use the filter.
    fn publish(&self, filter: &Descriptor, creator: &[u8]) -> Result<(), Error> {
        update(self.servers, self.name, |fields| {
            if let Some(change) = dropped(fields, &filter.current) {
                return Ok((change, Err(self.refused("it was dropped meanwhile"))));
            }
            let ours = fields.get(CREATOR).is_some_and(|found| found == creator)
                && spare(fields).as_ref() == Some(&filter.current);
            if !ours {
                // An earlier attempt, whose reply was lost; or the filter was removed.
                return match whole(fields) {
                    Ok(found) if found == *filter => Ok((Change::default(), Ok(()))),
                    _ => Err(self.refused(BUSY)),
                };
            }
            let mut delete = names_of(fields, "spare.");
            delete.push(CREATOR.to_vec());
            Ok((Change { set: filter.fields(State::Ready), delete }, Ok(())))
        })?
    }

    /// How to continue after the lock was taken.
    fn go_on(&self) -> String {
        format!("Remove it by `drop {}`, and create it again.", name::typed(self.name))
    }

    fn refused(&self, why: &str) -> Error {
        Error::refused_partly(format!("{}: {why}", name::readable(self.name)), self.go_on())
    }

    /// The error of a run that took the lock.
    fn half_written(&self, error: Error) -> Error {
        let text = format!("{} is half-written: {error}", name::readable(self.name));
        match error.partly(self.go_on()) {
            Error::Usage { hint, .. } => Error::Usage { what: text, hint },
            Error::RefusedPartly { hint, .. } => Error::RefusedPartly { what: text, hint },
            Error::Incomplete { .. } => Error::incomplete(text, self.go_on()),
            other => other,
        }
    }
}
