//! Changes of a descriptor, the hash at the name of a sharded filter: each is one transaction,
//! which does nothing if the descriptor has changed since it was read.
//!
//! Beside the fields of docs/reference/sharding.md, which clients read, the CLI keeps its own
//! there, so that a subcommand that was killed can be finished or undone. Clients ignore them:
//!
//! ```text
//!   rebuild                    the step of a rebuild (commands/rebuild.rs)
//!   rebuild.0 ...              what the shards of its new generation had (stamp.rs)
//!   rebuild.base               identity and key of the filter that was the base
//!   spare.shards, spare.0 ...  the generation whose shards are being reserved
//!   creator                    the run of `create` that has begun the filter
//!   dropping                   the filter is being removed
//!   retired.0 ...              keys of shards that become tombstones
//! ```

use std::collections::BTreeMap;

use crate::sharding::{Descriptor, Field, Generation, Malformed, NameError, State, shard_capacity};
use redis::{Cmd, Value};

use crate::{
    at_once::{Servers, on_all},
    error::Error,
    filter_info::{FilterInfo, Reader},
    interrupt, name,
    refusal::{Kind, Refusal},
    retry::{RETRY_FOR, retry},
    sharded,
    stamp::{Stamp, identity},
    watched::watched,
};

/// Seconds for which a tombstone stays.
const TOMBSTONE: u64 = 7 * 24 * 3600;

/// The field of a filter that is being removed.
pub(crate) const DROPPING: &[u8] = b"dropping";

/// The field that says whose lock it is: of two runs of `create` at the same time, one is refused.
/// Empty where a run noted what `drop` may have missed.
pub(crate) const CREATOR: &[u8] = b"creator";

/// The fields of the hash.
pub(crate) type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a transaction changes.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) set: Vec<Field>,
    /// Deleted before the others are set.
    pub(crate) delete: Vec<Vec<u8>>,
}

/// Reads the hash, and changes it as `change` says, in one step. `change` is called again if the
/// hash has changed or the connection broke, so it must recognize what is done already.
///
/// # Errors
/// The errors of `change`, and `Error::incomplete` if no replica has the new fields.
pub(crate) fn update<T>(
    servers: &Servers,
    name: &[u8],
    mut change: impl FnMut(&Fields) -> Result<(Change, T), Error>,
) -> Result<T, Error> {
    let mut sent = false;
    retry(RETRY_FOR, |_| {
        let mut server = servers.all.connect_for(name)?;
        let (_, result) = watched(&mut server, &[name], true, |server| {
            interrupt::check("")?;
            let fields = sharded::all_fields(server, name)?.into_iter().collect();
            let (change, result) = change(&fields)?;
            let commands = change.commands(name);
            sent |= !commands.is_empty();
            Ok((commands, result))
        })?;
        if sent {
            // Also if an earlier attempt wrote the change, and its reply was lost.
            servers.acknowledged(&mut server)?;
        }
        Ok(result)
    })
}

impl Change {
    fn commands(self, name: &[u8]) -> Vec<Cmd> {
        let command = |command: &str, words: Vec<Vec<u8>>| {
            (!words.is_empty()).then(|| redis::cmd(command).arg(name).arg(words).take())
        };
        let set = self.set.into_iter().flat_map(|(field, value)| [field, value]).collect();
        [command("HDEL", self.delete), command("HSET", set)].into_iter().flatten().collect()
    }
}

/// Reads the hash as the primary has it.
pub(crate) fn read(servers: &Servers, name: &[u8]) -> Result<Fields, Error> {
    update(servers, name, |fields| Ok((Change::default(), fields.clone())))
}

/// The descriptor in these fields.
pub(crate) fn whole(fields: &Fields) -> Result<Descriptor, Malformed> {
    Descriptor::parse(fields.iter().map(|(field, value)| (&field[..], &value[..])))
}

/// The fields of a generation with `spare.` before their names.
pub(crate) fn spare_fields(generation: &Generation) -> Vec<Field> {
    let fields = generation.next_fields().into_iter();
    fields.map(|(field, value)| ([b"spare.", &field[5..]].concat(), value)).collect()
}

/// The generation in the fields that begin with `spare.`.
pub(crate) fn spare(fields: &Fields) -> Option<Generation> {
    let stripped = fields
        .iter()
        .filter_map(|(field, value)| Some((field.strip_prefix(b"spare.")?, &value[..])));
    let more = [(&b"rule"[..], &b"crc32"[..]), (b"state", b"ready")];
    Descriptor::parse(stripped.chain(more)).ok().map(|descriptor| descriptor.current)
}

/// The fields of a filter that `creator` makes.
pub(crate) fn locked(generation: &Generation, creator: &[u8]) -> Vec<Field> {
    let mut set = spare_fields(generation);
    set.push((CREATOR.to_vec(), creator.to_vec()));
    set.push((b"state".to_vec(), State::Creating.name().into()));
    set
}

/// The change that notes the shards of `generation` again, if `drop` removed the filter while they
/// were being reserved. A second `drop` finds in these fields the shards that the first one missed.
pub(crate) fn dropped(fields: &Fields, generation: &Generation) -> Option<Change> {
    let dropping = fields.contains_key(DROPPING) && spare(fields).as_ref() == Some(generation);
    let set = || locked(generation, b"");
    (dropping || fields.is_empty()).then(|| Change { set: set(), delete: vec![DROPPING.to_vec()] })
}

/// The names of the fields that begin with `prefix`.
pub(crate) fn names_of(fields: &Fields, prefix: &str) -> Vec<Vec<u8>> {
    fields.keys().filter(|field| field.starts_with(prefix.as_bytes())).cloned().collect()
}

/// The field that notes what shard `place` of the new generation had.
pub(crate) fn note(place: usize, stamp: &Stamp) -> Field {
    (format!("rebuild.{place}").into(), stamp.text().into())
}

/// What is noted of shard `place`.
pub(crate) fn noted(fields: &Fields, place: usize) -> Option<Stamp> {
    Stamp::parse(fields.get(format!("rebuild.{place}").as_bytes())?)
}

/// Puts tombstones in the places of retired shards, if there are any, also of those that a killed
/// rebuild left. A client with an old descriptor gets WRONGTYPE there, and reads the new one.
/// `may_go` is called before each, with the number of the shard and how many there are.
///
/// # Errors
/// The errors of `may_go`. `Error::incomplete` if the filter was dropped, even if a new filter has
/// the same keys. The remaining shards stay.
pub(crate) fn bury(
    servers: &Servers,
    name: &[u8],
    may_go: impl Fn(usize, usize) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let fields = read(servers, name)?;
    let retired = names_of(&fields, "retired.");
    let keys: Vec<_> = retired.iter().map(|field| fields[field].clone()).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let number = fields.get(&b"generation"[..]).map_or(&b""[..], Vec::as_slice);
    let text = [b"moved to ", number].concat();
    on_all(servers, &keys, |server, at, _| {
        let (field, key) = (&retired[at], &keys[at]);
        let place = str::from_utf8(&field["retired.".len()..]).ok().and_then(|it| it.parse().ok());
        let replaced = || {
            Error::incomplete(
                format!("{}: it was dropped or replaced in the meantime", name::readable(name)),
                "Check what is there now.",
            )
        };
        // The slow checks come before WATCH: while clients add, a watched key soon changes.
        let before = identity(server, key)?;
        if read(servers, name)?.get(field) != Some(key) {
            return Err(replaced());
        }
        may_go(place.unwrap_or_default(), keys.len())?;
        // A large filter is freed outside of the server's main thread.
        let unlink = redis::cmd("UNLINK").arg(key).take();
        let set = redis::cmd("SET").arg(key).arg(&text).arg("EX").arg(TOMBSTONE).take();
        watched(server, &[key], false, |server| match identity(server, key)? == before {
            true => Ok((vec![unlink.clone(), set.clone()], ())),
            // The key may be one of another filter by now.
            false => Err(replaced()),
        })?;
        servers.acknowledged(server)
    })?;
    update(servers, name, |now| {
        // Another run may have ended this rebuild, and a later one may have retired other keys.
        let same = |field: &&Vec<u8>| now.get(*field) == fields.get(*field);
        let delete = retired.iter().filter(same).cloned().collect();
        Ok((Change { set: Vec::new(), delete }, ()))
    })
}

/// A generation like `wanted`, with its number or the next higher one of which no key exists.
pub(crate) fn unused(
    servers: &Servers,
    name: &[u8],
    wanted: &Generation,
) -> Result<Generation, Error> {
    let Generation { mut number, error_rate, capacity, .. } = *wanted;
    loop {
        let generation = Generation::new(name, wanted.shards(), number, error_rate, capacity)
            .map_err(|error| bad_name(name, error))?;
        let keys = &generation.keys;
        let exists = on_all(servers, keys, |server, place, _| {
            server.call_for_key(redis::cmd("EXISTS").arg(&keys[place]))
        })?;
        if exists.iter().all(|count| *count == Value::Int(0)) {
            return Ok(generation);
        }
        number += 1;
    }
}

pub(crate) fn bad_name(name: &[u8], error: NameError) -> Error {
    Error::usage(format!("{}: {error}", name::readable(name)), "Use a name without { and }.")
}

/// Any shard of a generation that exists; `None` if none exists. If BF.ADD made another filter at
/// the key of a shard, that filter does not count.
pub(crate) fn any_of(
    servers: &Servers,
    generation: &Generation,
) -> Result<Option<FilterInfo>, Error> {
    let keys = &generation.keys;
    let found = on_all(servers, keys, |server, place, _| {
        let own = (place as u64, keys.len() as u64);
        match Reader::default().read_one(server, &keys[place]) {
            Ok(info) => Ok(Some(info).filter(|info| info.shard == Some(own))),
            Err(error) if error.refusal().is_some_and(Refusal::is_no_filter) => Ok(None),
            Err(error) => Err(error),
        }
    })?;
    Ok(found.into_iter().flatten().next())
}

/// Reserves all shards of a generation, which grow by `expansion`, if at all, and waits for a
/// replica of each. `begun`: an earlier run may have made some of them.
pub(crate) fn reserve_all(
    servers: &Servers,
    generation: &Generation,
    expansion: Option<u64>,
    begun: bool,
) -> Result<(), Error> {
    let Generation { keys, error_rate, .. } = generation;
    // A generation has at least one shard.
    let capacity = shard_capacity(generation.capacity, generation.shards()).unwrap_or(1);
    on_all(servers, keys, |server, place, again| {
        interrupt::check("")?;
        let mut command = redis::cmd("BF.RESERVE");
        command.arg(&keys[place]).arg(error_rate.to_string()).arg(capacity);
        match expansion {
            Some(factor) => command.arg("EXPANSION").arg(factor),
            None => command.arg("NONSCALING"),
        };
        command.arg("SHARD").arg(place).arg(keys.len());
        match server.call_for_key(&command) {
            // The reply to an earlier attempt may be lost.
            Err(error) if !(again || begun) || !error.is(Kind::Exists) => Err(error),
            _ => servers.acknowledged(server),
        }
    })
    .map(|_| ())
}
