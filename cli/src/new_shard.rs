//! New shards for a sharded filter. The server chooses a random seed for each.

use crate::sharding::{Generation, shard_capacity};

use crate::{
    at_once::{Servers, on_all},
    error::Error,
    filter_info::{FilterInfo, Reader},
    interrupt,
    refusal::{Kind, Refusal},
};

/// A shard of a generation that is there; `None` if none is. A filter in the place of a shard that
/// is not that shard, as BF.ADD makes one, is no shard.
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
