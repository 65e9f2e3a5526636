//! Whether replicas have what was written: WAIT, and what a primary says about its replicas (`INFO
//! replication`).

use std::{io, time::Duration};

use crate::{
    connection::{Connection, Info},
    error::Error,
};

/// Waits at most `most` until `replicas` replicas have everything that was written up to the first
/// call, on any connection. The first call gets `None` in `offset`, and stores the server's
/// replication offset there.
///
/// # Errors
/// An error that is worth another try, if the server is no primary any more.
pub(crate) fn acknowledged(
    server: &mut Connection,
    replicas: u64,
    offset: &mut Option<u64>,
    most: Duration,
) -> Result<bool, Error> {
    let mut reached = |server: &mut Connection| {
        let seen = Replication::of_primary(server)?;
        *offset = offset.or(seen.offset);
        Ok::<_, Error>(offset.is_some_and(|offset| seen.having(offset) >= replicas))
    };
    if reached(server)? {
        return Ok(true);
    }
    // It lets replicas say immediately how far they are. Newer servers do not wait if this
    // connection has written nothing, so the offsets of the replicas decide.
    let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
    server.call(redis::cmd("WAIT").arg(replicas).arg(most))?;
    reached(server)
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
