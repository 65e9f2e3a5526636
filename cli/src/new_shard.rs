//! New shards for a sharded filter: made as those that it has, also in how they forget, but for
//! their seeds, which are random and the server's.

use bloom::sharding::{Generation, Shard, shard_capacity};
use redis::{Cmd, Value};

use crate::{
    at_once::{Servers, on_all},
    connection::Connection,
    error::Error,
    replication::LastWrite,
    window::{self, Window},
};

/// How a shard grows when it is full, and how it forgets: the words of `BF.RESERVE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Growth(Vec<String>);

impl Growth {
    /// That of the first shard that is there. Without any: `EXPANSION 1`, because growth then takes
    /// the least memory.
    pub(crate) fn of(servers: &Servers, generation: &Generation) -> Result<Self, Error> {
        let found = on_all(
            servers,
            &generation.keys,
            |server, place, _| {
                let key = &generation.keys[place];
                let reply = server.call_for_key(redis::cmd("BF.INFO").arg(key).arg("EXPANSION"));
                match reply {
                    Ok(Value::Array(values)) => {
                        let Some(Self(mut words)) = Self::read(&values) else { return Ok(None) };
                        let window = Window::of(server, key)?;
                        words.extend(window.into_iter().flat_map(|w| window::words(w.rules())));
                        Ok(Some(Self(words)))
                    }
                    Ok(_) => Ok(None),
                    Err(Error::Refused { text, .. }) if is_no_filter(&text) => Ok(None),
                    Err(error) => Err(error),
                }
            },
            || {},
        )?;
        let first = found.into_iter().flatten().next();
        Ok(first.unwrap_or_else(|| Self(vec!["EXPANSION".to_owned(), "1".to_owned()])))
    }

    fn read(values: &[Value]) -> Option<Self> {
        match values {
            [Value::Nil] => Some(Self(vec!["NONSCALING".to_owned()])),
            [Value::Int(factor)] => Some(Self(vec!["EXPANSION".to_owned(), factor.to_string()])),
            _ => None,
        }
    }
}

/// How the shards of a generation forget, if they do: the first that is there says it.
pub(crate) fn window_of(
    servers: &Servers,
    generation: &Generation,
) -> Result<Option<Window>, Error> {
    let keys = &generation.keys;
    let found = on_all(servers, keys, |server, at, _| Window::of(server, &keys[at]), || {})?;
    Ok(found.into_iter().flatten().next())
}

/// Whether an error says that a key is missing, or no filter that can be asked.
fn is_no_filter(text: &str) -> bool {
    ["ERR not found", "WRONGTYPE"].iter().any(|start| text.starts_with(start))
        || text.contains("BF.LOADCHUNK")
}

/// Reserves shard `shard` of a generation under `key`, and waits for a replica. `again`: the reply
/// to an earlier attempt may be lost, so the shard may be there.
pub(crate) fn reserve(
    servers: &Servers,
    server: &mut Connection,
    key: &[u8],
    shard: Shard,
    generation: &Generation,
    growth: &Growth,
    again: bool,
) -> Result<(), Error> {
    // A generation has at least one shard.
    let capacity = shard_capacity(generation.capacity, shard.count()).unwrap_or(1);
    let mut command: Cmd = redis::cmd("BF.RESERVE");
    command.arg(key).arg(generation.error_rate.to_string()).arg(capacity).arg(&growth.0);
    command.arg("SHARD").arg(shard.index()).arg(shard.count());
    let last = match server.call_for_key(&command) {
        Ok(_) => LastWrite::Here,
        Err(Error::Refused { text, .. }) if again && text.starts_with("ERR item exists") => {
            LastWrite::Elsewhere
        }
        Err(error) => return Err(error),
    };
    servers.acknowledged(server, last)
}
