//! The nodes of a cluster.

use redis::Value;

use super::{Connection, Target};
use crate::error::Error;

impl Connection {
    /// The servers that have keys: the primaries of the cluster, or this server alone if it is in
    /// no cluster. Asks `CLUSTER SLOTS`, which all servers with clusters have.
    ///
    /// # Errors
    /// `Error::Refused` if the user may not ask.
    pub(crate) fn primaries(&mut self) -> Result<Vec<Target>, Error> {
        self.nodes_of_each(1)
    }

    /// All servers of the cluster, replicas included.
    ///
    /// # Errors
    /// `Error::Refused` if the user may not ask.
    pub(crate) fn nodes(&mut self) -> Result<Vec<Target>, Error> {
        self.nodes_of_each(usize::MAX)
    }

    /// The first `most` nodes of each range of slots.
    fn nodes_of_each(&mut self, most: usize) -> Result<Vec<Target>, Error> {
        let reply = match self.call(redis::cmd("CLUSTER").arg("SLOTS")) {
            Ok(reply) => reply,
            Err(Error::Refused { text, .. }) if text.contains("cluster support disabled") => {
                return Ok(vec![self.target.clone()]);
            }
            Err(error) => return Err(error),
        };
        let wrong =
            || Error::Reply { command: "CLUSTER SLOTS".to_owned(), reply: format!("{reply:?}") };
        let Value::Array(ranges) = &reply else { return Err(wrong()) };
        let mut nodes: Vec<Target> = Vec::new();
        for range in ranges {
            // First slot, last slot, primary, replicas.
            let Value::Array(parts) = range else { return Err(wrong()) };
            let Some(servers @ [_, ..]) = parts.get(2..) else { return Err(wrong()) };
            for server in servers.iter().take(most) {
                let (host, port) = address_of(server).ok_or_else(wrong)?;
                let node = self.target.at(&host, port);
                if nodes.iter().all(|known| known.address != node.address) {
                    nodes.push(node);
                }
            }
        }
        // A cluster without slots has no keys, but this server can say so itself.
        if nodes.is_empty() {
            nodes.push(self.target.clone());
        }
        Ok(nodes)
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
