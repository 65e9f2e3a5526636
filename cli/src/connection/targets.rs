//! The servers of a cluster. Through any of them, the node of every key can be found.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{Connection, Nodes, Target};
use crate::error::Error;

/// The longest wait for a reply while a connection is made, if another server may answer instead:
/// a process that is stopped, or a host that is gone, costs no more than this.
const ATTEMPT: Duration = Duration::from_secs(5);

/// The servers of a cluster, or one server. As long as all nodes answer, the node that has the slot
/// of a key is asked first. After a failure, the server that answered last is asked first. Clones
/// share what they learn.
#[derive(Clone)]
pub(crate) struct Targets {
    all: Arc<[Target]>,
    nodes: Arc<Nodes>,
    /// The place of the server that answered last.
    last: Arc<AtomicUsize>,
    /// A node failed: `nodes` may be out of date.
    stale: Arc<AtomicBool>,
}

impl Targets {
    /// The server, then the other nodes of its cluster.
    pub(crate) fn of(target: Target) -> Result<Self, Error> {
        let nodes = Nodes::of_if_allowed(&mut target.connect()?)?;
        let others = nodes.all().into_iter().filter(|node| !node.same_server(&target));
        let all: Vec<_> = [target.clone()].into_iter().chain(others).collect();
        let (last, stale) = Default::default();
        Ok(Self { all: all.into(), nodes: Arc::new(nodes), last, stale })
    }

    /// The number of servers that have keys.
    pub(crate) fn primaries(&self) -> usize {
        self.nodes.primaries().len()
    }

    /// The places of all servers, in the order in which they are asked about `key`.
    pub(crate) fn places(&self, key: &[u8]) -> impl Iterator<Item = usize> + use<> {
        let owner = match self.stale.load(Ordering::Relaxed) {
            true => None,
            false => self.nodes.node_of(key),
        };
        let owner = owner.and_then(|owner| self.all.iter().position(|it| it.same_server(owner)));
        let (count, last) = (self.all.len(), self.last.load(Ordering::Relaxed));
        let others = (0..count).map(move |place| (last + place) % count);
        owner.into_iter().chain(others.filter(move |place| Some(*place) != owner))
    }

    /// Connects to the node of `key`, by the server at this place.
    pub(crate) fn connect_by(&self, place: usize, key: &[u8]) -> Result<Connection, Error> {
        let target = &self.all[place];
        let connection = match self.all.len() {
            1 => target.connect_for(key),
            _ => target.connect_soon(key, ATTEMPT),
        };
        match &connection {
            Ok(_) => self.last.store(place, Ordering::Relaxed),
            Err(_) => self.stale.store(true, Ordering::Relaxed),
        }
        connection
    }

    /// Connects to the node of `key`, and does `work` there. After a temporary error it tries the
    /// next server.
    pub(crate) fn on_node<T>(
        &self,
        key: &[u8],
        mut work: impl FnMut(Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut places = self.places(key);
        // There is at least one server.
        let mut place = places.next().unwrap_or(0);
        loop {
            let result = self.connect_by(place, key).and_then(&mut work);
            match (&result, places.next()) {
                (Err(error), Some(next)) if error.passes() => place = next,
                _ => return result,
            }
        }
    }

    /// Connects to the node of `key`, by the first server that answers.
    pub(crate) fn connect_for(&self, key: &[u8]) -> Result<Connection, Error> {
        self.on_node(key, Ok)
    }
}
