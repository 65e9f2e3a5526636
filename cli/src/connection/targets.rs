//! The servers of a cluster, each of which leads to the node of every key.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{Connection, Target};
use crate::error::Error;

/// The longest wait for a reply while a connection is made, if another server may answer instead:
/// a process that is stopped, or a host that is gone, costs no more than this.
const ATTEMPT: Duration = Duration::from_secs(5);

/// The servers of a cluster, or one server. That which answered last is asked first.
#[derive(Clone)]
pub(crate) struct Targets {
    all: Arc<[Target]>,
    /// The place of the server that answered last. Clones share it.
    last: Arc<AtomicUsize>,
}

impl Targets {
    /// The server, then the other nodes of its cluster.
    pub(crate) fn of(target: Target, connection: &mut Connection) -> Result<Self, Error> {
        let nodes = match connection.nodes() {
            // The user may not ask, or the reply is not understood: there is one server then.
            Err(Error::Refused { .. } | Error::Reply { .. }) => Vec::new(),
            nodes => nodes?,
        };
        let mut all = vec![target];
        for node in nodes {
            if node.to_string() != all[0].to_string() {
                all.push(node);
            }
        }
        Ok(Self { all: all.into(), last: Arc::default() })
    }

    /// The places of all servers, first that of the server which answered last.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let (count, last) = (self.all.len(), self.last.load(Ordering::Relaxed));
        (0..count).map(move |place| (last + place) % count)
    }

    /// Connects to the node of `key`, by the server at this place.
    pub(crate) fn connect_by(&self, place: usize, key: &[u8]) -> Result<Connection, Error> {
        let target = &self.all[place];
        let connection = match self.all.len() {
            1 => target.connect_for(key)?,
            _ => target.connect_soon(key, ATTEMPT)?,
        };
        self.last.store(place, Ordering::Relaxed);
        Ok(connection)
    }

    /// Connects to the node of `key`, by the first server that answers. Goes on with the next one
    /// after an error that `passes`.
    pub(crate) fn connect_for(
        &self,
        key: &[u8],
        passes: impl Fn(&Error) -> bool,
    ) -> Result<Connection, Error> {
        let mut places = self.places();
        // There is at least one server.
        let mut result = self.connect_by(places.next().unwrap_or(0), key);
        for place in places {
            match &result {
                Err(error) if passes(error) => result = self.connect_by(place, key),
                _ => break,
            }
        }
        result
    }
}
