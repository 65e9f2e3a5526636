//! `redis-bloom drop NAME`: removes a filter, and nothing else.
//!
//! It does not ask on a terminal: it removes one filter, which the user has named, and only keys
//! that are filters.
//!
//! The descriptor of a sharded filter is first marked as incomplete, so that a client finds no
//! filter instead of a part of one. It is removed last: a run that was killed can be repeated.

use std::{
    ffi::OsString,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::sharding::{Malformed, State};

use crate::{
    amount,
    at_once::{Servers, on_all},
    connection::{Connection, Options},
    descriptor::{CREATOR, Change, DROPPING, Fields, update, whole},
    error::{Error, Exit},
    filter_info::is_filter,
    name,
    output::Output,
    refusal::Kind,
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
        let removed = unlink_if(&mut server, key, |server| is_filter(server, key));
        if removed.as_ref().is_err_and(|error| error.is(Kind::WrongType)) {
            let fields = sharded::fields(&mut server, key)?.unwrap_or_default();
            let fields: Fields = fields.into_iter().collect();
            if is_descriptor(&fields) {
                let servers = Servers::of(target, output)?;
                return self.drop_shards(&servers, output);
            }
        }
        let removed = removed.map_err(|error| match error {
            Error::Refused { refusal, .. } => Error::refused(format!("drop {name}"), refusal),
            error => error,
        })?;
        if !removed {
            return Err(Error::refused_partly(
                format!("drop {name}: ERR not found"),
                "There is no filter of this name; `top --once` shows all.",
            ));
        }
        output.remark(format_args!("{name} removed"));
        Ok(Exit::Done)
    }
}

/// Removes the key if it is `found`; returns whether it was. Another client may put something else
/// there in the meantime.
fn unlink_if(
    server: &mut Connection,
    key: &[u8],
    mut found: impl FnMut(&mut Connection) -> Result<bool, Error>,
) -> Result<bool, Error> {
    // UNLINK: the memory of a large filter is freed outside of the server's main thread.
    let unlink = redis::cmd("UNLINK").arg(key).take();
    let look = |server: &mut Connection| {
        let found = found(server)?;
        Ok((found.then(|| unlink.clone()).into_iter().collect(), found))
    };
    watched(server, &[key], false, look).map(|(_, found)| found)
}

/// Like `unlink_if`, and waits for a replica: otherwise a failover brings the filter back.
pub(super) fn remove(
    servers: &Servers,
    server: &mut Connection,
    key: &[u8],
    found: impl FnMut(&mut Connection) -> Result<bool, Error>,
) -> Result<bool, Error> {
    let found = unlink_if(server, key, found)?;
    if found {
        servers.acknowledged(server)?;
    }
    Ok(found)
}

impl Arguments {
    fn drop_shards(&self, servers: &Servers, output: &Output) -> Result<Exit, Error> {
        let key = name::bytes(&self.name);
        let name = name::readable(key);
        // A writer stops when it finds that a descriptor is being removed. So the descriptor names
        // no other keys later.
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
            match remove(servers, server, &keys[place], |server| is_filter(server, &keys[place])) {
                // Such as a tombstone, which expires.
                Err(error) if error.is(Kind::WrongType) => {
                    let shown = name::readable(&keys[place]);
                    output.remark(format_args!("{shown} is not a filter, and is not removed"));
                }
                found => drop(removed.fetch_add(usize::from(found?), Ordering::Relaxed)),
            }
            Ok(())
        };
        let done = on_all(servers, &keys, work);
        let removed = removed.into_inner();
        done.map_err(|error| match removed {
            0 => error,
            _ => Error::incomplete(
                format!("drop {name}: {removed} of {} shards removed: {error}", keys.len()),
                "Run it again: it continues from there.",
            ),
        })?;
        update(servers, key, |fields| {
            // Another run of drop has removed it, and the name may have another filter by now.
            let ours = fields.contains_key(DROPPING);
            let delete = if ours { fields.keys().cloned().collect() } else { Vec::new() };
            if !ours && fields.get(CREATOR).is_some_and(Vec::is_empty) {
                return Err(Error::incomplete(
                    format!("drop {name}: another run made more shards meanwhile"),
                    "Run it again: it removes them.",
                ));
            }
            Ok((Change { set: Vec::new(), delete }, ()))
        })?;
        output.remark(format_args!("{name} removed: {}", amount::counted(removed as u64, "shard")));
        Ok(Exit::Done)
    }

    /// The keys to remove.
    fn keys(&self, fields: &Fields) -> Result<Vec<Vec<u8>>, Error> {
        let key = name::bytes(&self.name);
        if !is_descriptor(fields) {
            return Err(Error::refused_partly(
                format!("drop {}: it is gone, or no filter any more", name::readable(key)),
                "Check what is there now.",
            ));
        }
        match whole(fields) {
            Err(malformed @ Malformed::Unknown(_)) => Err(sharded::explained(key, &malformed)),
            _ => Ok(sharded::named_keys(fields)),
        }
    }
}

/// Whether a hash is a descriptor, complete or not. A single field is not enough, because other
/// hashes may have a field `rule` or `state`, too. A descriptor that was only begun has the state
/// alone, or the state and notes of this tool.
fn is_descriptor(fields: &Fields) -> bool {
    let has = |name: &[u8]| fields.contains_key(name);
    let begun =
        fields.get(&b"state"[..]).is_some_and(|state| state == State::Creating.name().as_bytes());
    let notes = [&b"spare.shards"[..], DROPPING];
    (has(b"rule") && has(b"state") && has(b"shards"))
        || (begun && (fields.len() == 1 || notes.into_iter().any(has)))
}
