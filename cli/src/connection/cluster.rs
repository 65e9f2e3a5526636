//! The nodes of a cluster, and which of them has a key.

use std::ops::RangeInclusive;

use crate::sharding::key_slot;
use redis::Value;

use super::{Connection, Target};
use crate::{error::Error, refusal::Kind};

/// Some slots of a cluster and the servers that have them: the primary first, then its replicas.
#[derive(Clone)]
struct Range {
    slots: RangeInclusive<u16>,
    servers: Vec<Target>,
}

/// Which node of a cluster has which slot; or a server that is in no cluster.
#[derive(Clone)]
pub(crate) struct Nodes {
    /// The server that was asked.
    asked: Target,
    /// `None` if there is no cluster.
    ranges: Option<Vec<Range>>,
}

impl Nodes {
    /// Asks a server: `CLUSTER SLOTS`, which all servers with clusters have.
    ///
    /// # Errors
    /// `Error::Refused` if the user may not ask.
    pub(crate) fn of(server: &mut Connection) -> Result<Self, Error> {
        let asked = server.target.clone();
        let reply = match server.call(redis::cmd("CLUSTER").arg("SLOTS")) {
            Ok(reply) => reply,
            Err(error) if error.is(Kind::NoCluster) => return Ok(Self { asked, ranges: None }),
            Err(error) => return Err(error),
        };
        let wrong = || Error::reply("CLUSTER SLOTS", &reply);
        let Value::Array(ranges) = &reply else { return Err(wrong()) };
        let ranges: Option<Vec<Range>> =
            ranges.iter().map(|range| Range::read(range, &asked)).collect();
        Ok(Self { ranges: Some(ranges.ok_or_else(wrong)?), asked })
    }

    /// Like [`Nodes::of`]. If the user may not ask, or the reply is not understood, it returns this
    /// server alone. Redirections then lead to the others.
    pub(crate) fn of_if_allowed(server: &mut Connection) -> Result<Self, Error> {
        match Self::of(server) {
            Err(Error::Refused { .. } | Error::Reply { .. }) => {
                Ok(Self { asked: server.target.clone(), ranges: None })
            }
            nodes => nodes,
        }
    }

    /// The primary that has the slot of `key`; `None` if no node has it.
    pub(crate) fn node_of(&self, key: &[u8]) -> Option<&Target> {
        let Some(ranges) = &self.ranges else { return Some(&self.asked) };
        let slot = key_slot(key);
        ranges.iter().find(|range| range.slots.contains(&slot))?.servers.first()
    }

    /// The servers that have keys: the primaries of the cluster, or this server alone.
    pub(crate) fn primaries(&self) -> Vec<Target> {
        self.first_of_each(1)
    }

    /// All servers, replicas included.
    pub(crate) fn all(&self) -> Vec<Target> {
        self.first_of_each(usize::MAX)
    }

    /// The first `most` servers of each range of slots. If there is no range, the server that was
    /// asked.
    fn first_of_each(&self, most: usize) -> Vec<Target> {
        let mut nodes: Vec<Target> = Vec::new();
        for range in self.ranges.iter().flatten() {
            for server in range.servers.iter().take(most) {
                if !nodes.iter().any(|known| known.same_server(server)) {
                    nodes.push(server.clone());
                }
            }
        }
        if nodes.is_empty() {
            nodes.push(self.asked.clone());
        }
        nodes
    }
}

impl Range {
    /// A range of the reply: first slot, last slot, primary, replicas.
    fn read(range: &Value, asked: &Target) -> Option<Self> {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), servers @ ..] = &parts[..] else { return None };
        let servers: Option<Vec<_>> = servers
            .iter()
            .map(|server| address_of(server).map(|(host, port)| asked.at(&host, port)))
            .collect();
        let servers = servers.filter(|servers| !servers.is_empty())?;
        Some(Self { slots: u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?, servers })
    }
}

/// Host and port of a node. The host is null or empty where clients shall use the one that they
/// know.
fn address_of(node: &Value) -> Option<(String, u16)> {
    let Value::Array(node) = node else { return None };
    let host = match node.first()? {
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        Value::SimpleString(host) => host.clone(),
        Value::Nil => String::new(),
        _ => return None,
    };
    let Value::Int(port) = node.get(1)? else { return None };
    Some((host, u16::try_from(*port).ok()?))
}
