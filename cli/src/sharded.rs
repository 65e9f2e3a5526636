//! What a name stands for: a filter in one key, or a sharded filter, whose descriptor lists its
//! keys (docs/reference/sharding.md).

mod summary;

use std::time::Instant;

use crate::sharding::{Descriptor, Field, Generation, Malformed};
use bloom::sharding::Shard;
use redis::Value;

pub(crate) use summary::{Summary, Worst};

use crate::{
    connection::{Connection, Targets},
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
/// `Error::incomplete` for a descriptor that is half-written or damaged, `Error::refused_partly`
/// for one that only a newer release understands.
pub(crate) fn find(server: &mut Connection, name: &[u8]) -> Result<Filter, Error> {
    let Some(fields) = fields(server, name)? else { return Ok(Filter::Key) };
    match Descriptor::parse(fields.iter().map(|(field, value)| (&field[..], &value[..]))) {
        Ok(descriptor) => Ok(Filter::Sharded(descriptor)),
        Err(Malformed::Missing) => Ok(Filter::Key),
        Err(malformed) => Err(explained(name, &malformed)),
    }
}

/// Like [`find`], but asks the servers in turn until one can answer. Also returns the time just
/// before that one was asked.
pub(crate) fn find_by(targets: &Targets, name: &[u8]) -> Result<(Instant, Filter), Error> {
    targets.on_node(name, |mut server| Ok((Instant::now(), find(&mut server, name)?)))
}

/// The fields of the hash at `name`; `None` if there is no hash, or if the user may not read it. A
/// user who has only filters in one key may lack that right.
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
/// `Error::incomplete` if the next one cannot be read: what is not added to it may be lost.
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

/// What to do about a lost shard. The items are exported after additions begin to go to both
/// generations, so no item that is added during the export is lost. `typed` is the name as a
/// shell reads it.
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

/// The keys of all shards that a descriptor names: of the current and the next generation, of one
/// that is being reserved, and of one that becomes tombstones (descriptor.rs).
pub(crate) fn named_keys<'f>(
    fields: impl IntoIterator<Item = (&'f Vec<u8>, &'f Vec<u8>)>,
) -> Vec<Vec<u8>> {
    let is_key = |field: &[u8]| {
        let number = ["next.", "spare.", "retired."]
            .iter()
            .find_map(|prefix| field.strip_prefix(prefix.as_bytes()))
            .unwrap_or(field);
        !number.is_empty() && number.iter().all(u8::is_ascii_digit)
    };
    let keys = fields.into_iter().filter(|(field, _)| is_key(field));
    let mut keys: Vec<_> = keys.map(|(_, key)| key.clone()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The name and the generation in the key of a shard, `{<name>:<k>}:<generation>`; `None` for other
/// keys.
pub(crate) fn shard_name(key: &[u8]) -> Option<(&[u8], u64)> {
    let number = |digits: &[u8]| -> Option<u64> { str::from_utf8(digits).ok()?.parse().ok() };
    let close = key.iter().rposition(|&byte| byte == b'}')?;
    let tag = key.get(..close)?.strip_prefix(b"{")?;
    let generation = number(key.get(close..)?.strip_prefix(b"}:")?)?;
    let colon = tag.iter().rposition(|&byte| byte == b':')?;
    number(tag.get(colon + 1..)?)?;
    tag.get(..colon).zip(Some(generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_shards_are_recognized() {
        for key in Generation::new(b"a:b", 3, 7, 0.1, 1).unwrap().keys {
            assert_eq!(shard_name(&key), Some((&b"a:b"[..], 7)), "{}", key.escape_ascii());
        }
        for key in Generation::new(b"", 1, 1, 0.1, 1).unwrap().keys {
            assert_eq!(shard_name(&key), Some((&b""[..], 1)), "{}", key.escape_ascii());
        }
        for key in ["", "a", "{a}:1", "{a:1}", "{a:1}:", "{a:x}:1", "{a:1}:x", "a:1}:1", "{:}:1"] {
            assert_eq!(shard_name(key.as_bytes()), None, "{key}");
        }
    }
}
