//! Whether replicas have what was written: WAIT, and what a primary says about its replicas (`INFO
//! replication`).

use std::{io, time::Duration};

use redis::Value;

use crate::{
    connection::{Connection, Info},
    error::Error,
};

/// Which connection wrote last what replicas must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastWrite {
    /// This one: WAIT waits for that, and for all before it.
    Here,
    /// Another one, perhaps that of a run that ended early. Newer servers then answer WAIT at once,
    /// so the offsets of the replicas are compared.
    Elsewhere,
}

/// Waits at most so long until so many replicas have what was written. `offset` is that of the
/// server when this was asked first, and `None` before.
///
/// # Errors
/// One that passes, if the server is no primary any more.
pub(crate) fn acknowledged(
    server: &mut Connection,
    replicas: u64,
    last: LastWrite,
    offset: &mut Option<u64>,
    most: Duration,
) -> Result<bool, Error> {
    let mut reached = |server: &mut Connection| {
        let seen = Replication::of_primary(server)?;
        *offset = offset.or(seen.offset);
        Ok::<_, Error>(offset.is_some_and(|offset| seen.having(offset) >= replicas))
    };
    if last == LastWrite::Elsewhere && reached(server)? {
        return Ok(true);
    }
    // It also lets replicas say at once how far they are.
    let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
    let enough = match server.call(redis::cmd("WAIT").arg(replicas).arg(most))? {
        Value::Int(having) => u64::try_from(having).is_ok_and(|having| having >= replicas),
        reply => return Err(Error::reply("WAIT", &reply)),
    };
    Ok(enough && (last == LastWrite::Here || reached(server)?))
}

/// The replicas of a server, and how much of its replication stream they have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Replication {
    /// Replicas that have a connection.
    pub(crate) connected: u64,
    /// The end of what the server has written.
    pub(crate) offset: Option<u64>,
    /// What each replica that is in step has acknowledged.
    acknowledged: Vec<u64>,
    /// Whether the server is a replica itself. Then it has no replicas that count.
    pub(crate) is_replica: bool,
}

impl Replication {
    /// Asks a server.
    pub(crate) fn of(server: &mut Connection) -> Result<Self, Error> {
        server.info_needed(&["replication"]).map(|info| Self::parse(&info))
    }

    /// Asks a server that was a primary when it was written to.
    ///
    /// # Errors
    /// `Error::Connection` if it is a replica now: its primary may lack what was written.
    pub(crate) fn of_primary(server: &mut Connection) -> Result<Self, Error> {
        let seen = Self::of(server)?;
        if seen.is_replica {
            let text = "it became a replica; its primary may lack what was written";
            let server = server.target().to_string();
            return Err(Error::Connection { server, source: io::Error::other(text) });
        }
        Ok(seen)
    }

    fn parse(info: &Info) -> Self {
        let mut found = Self::default();
        for (name, value) in info.fields() {
            match name {
                "role" => found.is_replica = value == "slave",
                "connected_slaves" => found.connected = value.parse().unwrap_or(0),
                "master_repl_offset" => found.offset = value.parse().ok(),
                _ if name.starts_with("slave") && value.contains("state=online") => {
                    let mut fields = value.split(',');
                    let offset = fields.find_map(|field| field.strip_prefix("offset="));
                    found.acknowledged.extend(offset.and_then(|offset| offset.parse::<u64>().ok()));
                }
                _ => {}
            }
        }
        found
    }

    /// How many replicas have all up to this offset.
    pub(crate) fn having(&self, offset: u64) -> u64 {
        self.acknowledged.iter().filter(|&&at| at >= offset).count() as u64
    }
}
