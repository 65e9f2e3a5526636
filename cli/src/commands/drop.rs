//! `redis-bloom drop NAME`: removes a filter, and nothing else.
//!
//! It asks no question on a terminal: it removes one filter, which the user has named, and keys
//! that are filters alone.
//!
//! Of a sharded filter the descriptor becomes half-written first, so that a client finds no filter,
//! not a part of one. It goes last: a run that was killed can be repeated.

use std::{
    ffi::OsString,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::sharding::{Malformed, State};
use redis::Value;

use crate::{
    amount,
    at_once::{Servers, on_all},
    connection::{Connection, Options},
    descriptor::{Change, DROPPING, Fields, update, whole},
    error::{Error, Exit},
    name,
    output::Output,
    refusal::Kind,
    scan::TYPES,
    sharded,
    watched::watched,
};

/// Removes a filter
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter
    name: OsString,
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        let target = connection.target()?;
        let mut server = target.connect()?;
        let key = name::bytes(&self.name);
        let name = name::readable(key);
        let filter = unlink_filter(&mut server, key);
        if filter.as_ref().is_err_and(|error| error.is(Kind::WrongType)) {
            let fields = sharded::fields(&mut server, key)?.unwrap_or_default();
            let fields: Fields = fields.into_iter().collect();
            if is_descriptor(&fields) {
                let servers = Servers::of(target, output)?;
                return self.drop_shards(&servers, output);
            }
        }
        filter.map_err(|error| match error {
            error if error.is(Kind::NotFound) => Error::refused_partly(
                format!("drop {name}: ERR not found"),
                "There is no filter of this name; `top --once` shows all.",
            ),
            Error::Refused { refusal, .. } => Error::refused(format!("drop {name}"), refusal),
            error => error,
        })?;
        output.remark(format_args!("{name} removed"));
        Ok(Exit::Done)
    }
}

/// Removes the key if it is a filter. Another client may put something else there meanwhile.
fn unlink_filter(server: &mut Connection, key: &[u8]) -> Result<(), Error> {
    // UNLINK: the memory of a large filter is freed outside of the server's main thread.
    let unlink = [redis::cmd("UNLINK").arg(key).take()];
    watched(server, &[key], &unlink, |server| is_filter(server, key).map(|()| true)).map(|_| ())
}

/// What was at the key of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Shard,
    Nothing,
    /// Something else, which stays: as a tombstone, which expires.
    Other,
}

impl Arguments {
    fn drop_shards(&self, servers: &Servers, output: &Output) -> Result<Exit, Error> {
        let key = name::bytes(&self.name);
        let name = name::readable(key);
        // All writers of descriptors stop at one that is being removed, so it names no other keys
        // later.
        let keys = update(servers, key, |fields| {
            let keys = self.keys(fields)?;
            let mut set = Vec::new();
            if !fields.contains_key(DROPPING) {
                set.push((DROPPING.to_vec(), b"1".to_vec()));
                set.push((b"state".to_vec(), State::Creating.name().into()));
            }
            Ok((Change { set, delete: Vec::new() }, keys))
        })?;
        let removed = AtomicUsize::new(0);
        let work = |server: &mut Connection, place: usize, _| {
            let found = drop_key(server, &keys[place])?;
            removed.fetch_add(usize::from(found == Found::Shard), Ordering::Relaxed);
            Ok(found)
        };
        let found = on_all(servers, &keys, work).map_err(|error| {
            match removed.load(Ordering::Relaxed) {
                0 => error,
                removed => Error::incomplete(
                    format!("drop {name}: {removed} of {} shards removed: {error}", keys.len()),
                    "Run it again: it continues from there.",
                ),
            }
        })?;
        let shards = found.iter().filter(|&&found| found == Found::Shard).count() as u64;
        for (key, _) in keys.iter().zip(&found).filter(|(_, found)| **found == Found::Other) {
            output.remark(format_args!("{} is no filter: it stays", name::readable(key)));
        }
        update(servers, key, |fields| {
            // Another run of drop has removed it, and the name may have another filter by now.
            let ours = fields.contains_key(DROPPING);
            let delete = if ours { fields.keys().cloned().collect() } else { Vec::new() };
            Ok((Change { set: Vec::new(), delete }, ()))
        })?;
        output.remark(format_args!("{name} removed: {}", amount::counted(shards, "shard")));
        Ok(Exit::Done)
    }

    /// The keys to remove.
    fn keys(&self, fields: &Fields) -> Result<Vec<Vec<u8>>, Error> {
        let key = name::bytes(&self.name);
        if !is_descriptor(fields) {
            return Err(Error::refused_partly(
                format!("drop {}: it is gone, or no filter any more", name::readable(key)),
                "Look what is there now.",
            ));
        }
        match whole(fields) {
            Err(malformed @ Malformed::Unknown(_)) => Err(sharded::explained(key, &malformed)),
            _ => Ok(sharded::named_keys(fields)),
        }
    }
}

/// Removes a key of a sharded filter, if it is a filter.
fn drop_key(server: &mut Connection, key: &[u8]) -> Result<Found, Error> {
    match unlink_filter(server, key) {
        Ok(()) => Ok(Found::Shard),
        Err(error) if error.is(Kind::NotFound) => Ok(Found::Nothing),
        Err(error) if error.is(Kind::WrongType) => Ok(Found::Other),
        Err(error) => Err(error),
    }
}

/// Whether a hash is a descriptor, whole or not: other hashes may have a field `rule` or `state`,
/// too. One that was only begun has no field but the state, or what the tool notes beside it.
fn is_descriptor(fields: &Fields) -> bool {
    let has = |name: &[u8]| fields.contains_key(name);
    let begun =
        fields.get(&b"state"[..]).is_some_and(|state| state == State::Creating.name().as_bytes());
    let notes = [&b"spare.shards"[..], DROPPING];
    (has(b"rule") && has(b"state") && has(b"shards"))
        || (begun && (fields.len() == 1 || notes.into_iter().any(has)))
}

/// Checks that the key is a filter, complete or not. Leads the connection to the node that has it.
fn is_filter(server: &mut Connection, key: &[u8]) -> Result<(), Error> {
    let refused = |text: String| Err(Error::refused(String::new(), text));
    match server.call_for_key(redis::cmd("TYPE").arg(key)) {
        Ok(Value::SimpleString(kind)) if TYPES.contains(&kind.as_str()) => Ok(()),
        Ok(Value::SimpleString(kind)) if kind == "none" => refused("ERR not found".to_owned()),
        Ok(Value::SimpleString(kind)) => refused(format!("WRONGTYPE the key holds a {kind}")),
        Ok(other) => Err(Error::reply("TYPE", &other)),
        Err(error) => Err(error),
    }
}
