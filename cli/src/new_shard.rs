//! New shards for a sharded filter: made as those that it has, also in how they forget, but for
//! their seeds, which are random and the server's.

use crate::sharding::{Generation, shard_capacity};
use bloom::sharding::Shard;

use crate::{
    at_once::{Servers, on_all},
    connection::Connection,
    error::Error,
    filter_info::Reader,
    interrupt, name,
    refusal::{Kind, Refusal},
    replication::LastWrite,
    sharded::{Growth, shard_at},
};

/// How the shards of a generation grow and forget; `None` if none is there. A filter in the place
/// of a shard that is not that shard, as BF.ADD makes one, is no shard.
///
/// # Errors
/// `Error::RefusedPartly` if two shards differ: then nobody can say which is right.
pub(crate) fn growth_of(
    servers: &Servers,
    generation: &Generation,
) -> Result<Option<Growth>, Error> {
    let keys = &generation.keys;
    let work = |server: &mut Connection, place: usize, _| match shard_at(place, keys.len()) {
        Some(shard) => asked(server, &keys[place], shard),
        None => Ok(None),
    };
    let found = on_all(servers, keys, work)?;
    let mut found =
        found.into_iter().enumerate().filter_map(|(place, growth)| Some((place, growth?)));
    let Some((first, growth)) = found.next() else { return Ok(None) };
    match found.find(|(_, other)| *other != growth) {
        None => Ok(Some(growth)),
        Some((place, other)) => Err(Error::refused_partly(
            format!("shard {first} has {growth}; shard {place} has {other}"),
            format!(
                "Remove the wrong one by `drop '{}'` or `drop '{}'`, then repeat this.",
                name::readable(&keys[first]),
                name::readable(&keys[place])
            ),
        )),
    }
}

/// How new shards are to grow and forget: as those that are there. Without any, as `EXPANSION 1`
/// says, because that takes the least memory, and without a window.
///
/// # Errors
/// Those of [`growth_of`].
pub(crate) fn growth_for(servers: &Servers, generation: &Generation) -> Result<Growth, Error> {
    if let Some(growth) = growth_of(servers, generation)? {
        return Ok(growth);
    }
    let plain = Growth { expansion: Some(1), window: None };
    servers.remark(format!("no other shard is there to be copied: a new shard gets {plain}"));
    Ok(plain)
}

/// Asks a shard how it grows and forgets; `None` if there is no such shard at the key.
fn asked(server: &mut Connection, key: &[u8], shard: Shard) -> Result<Option<Growth>, Error> {
    let own = (shard.index().into(), shard.count().into());
    match Reader::default().read_one(server, key) {
        Ok(info) => Ok((info.shard == Some(own)).then(|| Growth::from(&info))),
        Err(error) if error.refusal().is_some_and(Refusal::is_no_filter) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reserves all shards of a generation, and waits for a replica of each. `begun`: an earlier run
/// may have made some of them.
pub(crate) fn reserve_all(
    servers: &Servers,
    generation: &Generation,
    growth: Growth,
    begun: bool,
) -> Result<(), Error> {
    let Generation { keys, error_rate, .. } = generation;
    // A generation has at least one shard.
    let capacity = shard_capacity(generation.capacity, generation.shards()).unwrap_or(1);
    on_all(servers, keys, |server, place, again| {
        interrupt::check("")?;
        let mut command = redis::cmd("BF.RESERVE");
        command.arg(&keys[place]).arg(error_rate.to_string()).arg(capacity).arg(growth.words());
        command.arg("SHARD").arg(place).arg(keys.len());
        let last = match server.call_for_key(&command) {
            Ok(_) => LastWrite::Here,
            // The reply to an earlier attempt may be lost.
            Err(error) if (again || begun) && error.is(Kind::Exists) => LastWrite::Elsewhere,
            Err(error) => return Err(error),
        };
        servers.acknowledged(server, last)
    })
    .map(|_| ())
}
