//! What a name stands for: a filter in one key, or a sharded filter, whose descriptor lists its
//! keys (docs/reference/sharding.md).

mod parts;
mod summary;

use crate::sharding::{Descriptor, Field, Generation, Malformed};
use bloom::sharding::Shard;
use redis::Value;

pub(crate) use parts::{named_keys, shard_name};
pub(crate) use summary::{Summary, Worst};

use crate::{
    connection::Connection,
    error::Error,
    name,
    refusal::{Kind, Refusal},
};

/// What a name stands for.
#[derive(Debug)]
pub(crate) enum Filter {
    /// A filter in one key; or nothing, or a key of another type: the next command says so.
    Key,
    Sharded(Descriptor),
}

/// Finds out what `name` stands for.
///
/// # Errors
/// `Error::Incomplete` for a descriptor that is half-written or damaged, `Error::RefusedPartly` for
/// one that only a newer release understands.
pub(crate) fn find(server: &mut Connection, name: &[u8]) -> Result<Filter, Error> {
    let Some(fields) = fields(server, name)? else { return Ok(Filter::Key) };
    match Descriptor::parse(fields.iter().map(|(field, value)| (&field[..], &value[..]))) {
        Ok(descriptor) => Ok(Filter::Sharded(descriptor)),
        Err(Malformed::Missing) => Ok(Filter::Key),
        Err(malformed) => Err(explained(name, &malformed)),
    }
}

/// The fields of the hash at `name`; `None` if there is no hash, or if the user may not read it,
/// as a user of filters in one key alone.
pub(crate) fn fields(server: &mut Connection, name: &[u8]) -> Result<Option<Vec<Field>>, Error> {
    match all_fields(server, name) {
        Ok(fields) => Ok(Some(fields).filter(|fields| !fields.is_empty())),
        Err(error)
            if error.is(Kind::WrongType) || error.refusal().is_some_and(Refusal::is_forbidden) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The fields of the hash at `name`; none if there is no key.
pub(crate) fn all_fields(server: &mut Connection, name: &[u8]) -> Result<Vec<Field>, Error> {
    let reply = server.call_for_key(redis::cmd("HGETALL").arg(name))?;
    let wrong = || Error::reply("HGETALL", &reply);
    let Value::Array(values) = &reply else { return Err(wrong()) };
    let pair = |pair: &[Value]| match pair {
        [Value::BulkString(field), Value::BulkString(value)] => Ok((field.clone(), value.clone())),
        _ => Err(wrong()),
    };
    values.chunks(2).map(pair).collect()
}

/// The shard at this place of all `shards`.
pub(crate) fn shard_at(place: usize, shards: usize) -> Option<Shard> {
    Shard::new(place.try_into().ok()?, shards.try_into().ok()?)
}

/// The generations that additions go to.
///
/// # Errors
/// `Error::Incomplete` if the next one cannot be read: what is not added to it may be lost.
pub(crate) fn filled<'a>(
    name: &[u8],
    descriptor: &'a Descriptor,
) -> Result<Vec<&'a Generation>, Error> {
    match descriptor.filled() {
        Ok(generations) => Ok(generations.collect()),
        Err(malformed) => Err(Error::incomplete(
            format!("{}: additions are impossible: {malformed}", name::readable(name)),
            "Set all its fields next.* as docs/reference/sharding.md says, or delete all of them.",
        )),
    }
}

/// What to do about a lost shard. The export comes when additions go to both generations already:
/// what is added while it runs is not lost. `typed` is the name as a shell reads it.
pub(crate) fn recreate(typed: &str) -> String {
    format!(
        "Recreate all shards: `rebuild {typed}`, export the items, then `rebuild {typed} --from \
         FILE --commit`."
    )
}

/// The error for a descriptor that cannot be used.
pub(crate) fn explained(name: &[u8], malformed: &Malformed) -> Error {
    let what = format!("{}: {malformed}", name::readable(name));
    match malformed {
        Malformed::Unknown(_) => {
            Error::refused_partly(what, "A newer redis-bloom created this filter: use that one.")
        }
        Malformed::HalfWritten => Error::incomplete(
            what,
            format!("Wait for it, or remove it by `drop {0}`.", name::typed(name)),
        ),
        _ => Error::incomplete(
            what,
            "Is this hash a sharded filter? docs/reference/sharding.md says what it must have.",
        ),
    }
}
