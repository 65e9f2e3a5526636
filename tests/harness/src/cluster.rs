//! A Redis Cluster on this machine, three primaries with one replica each, and a client that
//! follows redirections.
//!
//! ```text
//!   node 0, 1, 2   primaries, a third of the 16,384 slots each
//!   node 3, 4, 5   their replicas, in order
//! ```

use std::collections::{HashMap, hash_map::Entry};
use std::time::{Duration, Instant};

use super::builder::Builder;
use super::client::Client;
use super::port::free_port;
use super::reply::{Reply, ok};
use super::server::Server;
use super::wait::wait_until;

pub const SLOTS: usize = 16_384;
/// Number of primaries; also the number of replicas.
pub const PRIMARIES: usize = 3;
/// A primary counts as failed after this time without an answer.
const NODE_TIMEOUT_MS: u64 = 1_500;
/// How long a client retries one command; a failover takes a few node timeouts.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);

pub struct Cluster {
    pub nodes: Vec<Server>,
    pub ids: Vec<String>,
}

impl Cluster {
    /// Starts the servers and joins them.
    #[track_caller]
    pub fn start() -> Cluster {
        Cluster::start_with(|_, node| node)
    }

    /// Starts the servers, each as `described` changes its description, and joins them.
    #[track_caller]
    pub fn start_with(described: impl Fn(usize, Builder) -> Builder) -> Cluster {
        let mut buses = Vec::new();
        let nodes: Vec<Server> = (0..2 * PRIMARIES)
            .map(|number| {
                buses.push(free_port());
                let node = Server::with()
                    .config("cluster-enabled yes")
                    .config(&format!("cluster-port {}", buses[buses.len() - 1]))
                    .config(&format!("cluster-node-timeout {NODE_TIMEOUT_MS}"))
                    .config("cluster-replica-validity-factor 0");
                described(number, node).start()
            })
            .collect();
        let mut clients: Vec<Client> = nodes.iter().map(Server::client).collect();
        let ids: Vec<String> =
            clients.iter_mut().map(|client| client.run("CLUSTER MYID").text()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1)), ok());
            if number < PRIMARIES {
                let first = number * SLOTS / PRIMARIES;
                let last = (number + 1) * SLOTS / PRIMARIES - 1;
                assert_eq!(client.run(&format!("CLUSTER ADDSLOTSRANGE {first} {last}")), ok());
            }
        }
        for (node, bus) in nodes.iter().zip(&buses).skip(1) {
            let meet = format!("CLUSTER MEET 127.0.0.1 {} {bus}", node.port());
            assert_eq!(clients[0].run(&meet), ok());
        }
        for (number, client) in clients.iter_mut().enumerate() {
            wait_until("every node knows every node", || {
                let nodes = client.run("CLUSTER NODES").text();
                ids.iter().all(|id| nodes.contains(id.as_str())) && !nodes.contains("handshake")
            });
            if let Some(primary) = number.checked_sub(PRIMARIES) {
                assert_eq!(client.cmd(&["CLUSTER", "REPLICATE", &ids[primary]]), ok());
            }
        }
        let cluster = Cluster { nodes, ids };
        for (number, client) in clients.iter_mut().enumerate() {
            wait_until("the cluster is up", || {
                let linked = number < PRIMARIES
                    || client.server_info("replication", "master_link_status") == "up";
                // A node refuses to start if in its nodes.conf a replica is not in the shard
                // of its primary.
                linked
                    && client.run("CLUSTER SHARDS").elements().len() == PRIMARIES
                    && client.run("CLUSTER INFO").text().contains("cluster_state:ok")
            });
        }
        cluster
    }

    /// A client with the slot map of the first node that answers.
    pub fn client(&self) -> ClusterClient {
        let mut client = ClusterClient {
            ports: self.nodes.iter().map(Server::port).collect(),
            owners: vec![0; SLOTS],
            connections: HashMap::new(),
            moved: 0,
            asked: 0,
        };
        client.learn();
        client
    }
}

/// The slot of a key: CRC-16 (XMODEM) of its hash tag, or of the whole key if it has none.
pub fn slot(key: &str) -> usize {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty());
    let crc = tag.unwrap_or(key).bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    usize::from(crc) % SLOTS
}

/// A client as the cluster specification describes it: it keeps a map of slots, follows MOVED and
/// ASK, and reloads the map when a node fails.
pub struct ClusterClient {
    ports: Vec<u16>,
    /// Port of the primary of each slot.
    owners: Vec<u16>,
    connections: HashMap<u16, Client>,
    pub moved: usize,
    pub asked: usize,
}

impl ClusterClient {
    /// Sends a command for the key, and repeats it until the node that owns the key answers.
    #[track_caller]
    pub fn call<A: AsRef<[u8]>>(&mut self, key: &str, words: &[A]) -> Reply {
        let deadline = Instant::now() + CALL_TIMEOUT;
        let mut port = self.owners[slot(key)];
        let mut asking = false;
        loop {
            let reply = self.try_call(port, asking, words);
            asking = false;
            match reply {
                Some(Reply::Error(text)) if text.starts_with("MOVED ") => {
                    self.moved += 1;
                    port = target(&text);
                    self.owners[slot(key)] = port;
                }
                Some(Reply::Error(text)) if text.starts_with("ASK ") => {
                    self.asked += 1;
                    port = target(&text);
                    asking = true;
                }
                Some(Reply::Error(text))
                    if ["CLUSTERDOWN", "TRYAGAIN", "LOADING", "READONLY", "MASTERDOWN"]
                        .iter()
                        .any(|code| text.starts_with(code)) =>
                {
                    self.refresh(key, &mut port);
                }
                Some(reply) => return reply,
                None => self.refresh(key, &mut port),
            }
            assert!(Instant::now() < deadline, "no node answered for {key} in time");
        }
    }

    /// Sends WAIT on the connection to the key's primary; returns how many replicas acknowledged.
    #[track_caller]
    pub fn wait(&mut self, key: &str) -> i64 {
        let port = self.owners[slot(key)];
        match self.try_call(port, false, &["WAIT", "1", "300"]) {
            Some(Reply::Int(replicas)) => replicas,
            _ => 0,
        }
    }

    /// The port of the primary of the key's slot.
    pub fn owner(&self, key: &str) -> u16 {
        self.owners[slot(key)]
    }

    fn try_call<A: AsRef<[u8]>>(&mut self, port: u16, asking: bool, words: &[A]) -> Option<Reply> {
        let client = match self.connections.entry(port) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(none) => none.insert(Client::try_connect(port)?),
        };
        let reply = if asking {
            client.try_cmd(&["ASKING"]).and_then(|_| client.try_cmd(words))
        } else {
            client.try_cmd(words)
        };
        if reply.is_err() {
            self.connections.remove(&port);
        }
        reply.ok()
    }

    /// Reloads the slot map after a pause, and sets `port` to the key's primary.
    fn refresh(&mut self, key: &str, port: &mut u16) {
        std::thread::sleep(Duration::from_millis(20));
        self.learn();
        *port = self.owners[slot(key)];
    }

    /// Loads the slot map from the first node that answers.
    fn learn(&mut self) {
        for port in self.ports.clone() {
            let Some(Reply::Array(ranges)) = self.try_call(port, false, &["CLUSTER", "SLOTS"])
            else {
                continue;
            };
            for range in &ranges {
                let [first, last, primary, ..] = range.elements() else {
                    panic!("CLUSTER SLOTS: {range:?}")
                };
                let number = |reply: &Reply| usize::try_from(reply.int()).expect("a slot");
                let owner = u16::try_from(primary.elements()[1].int()).expect("a port");
                self.owners[number(first)..=number(last)].fill(owner);
            }
            return;
        }
    }
}

/// The port in a redirection such as `MOVED 3999 127.0.0.1:6381`.
#[track_caller]
fn target(text: &str) -> u16 {
    let port = text.rsplit(':').next().and_then(|port| port.parse().ok());
    port.unwrap_or_else(|| panic!("no port in {text:?}"))
}

#[test]
fn keys_are_in_the_slots_of_the_specification() {
    // The first is the check value of CRC-16/XMODEM. The others are from the cluster specification
    // and redis-cli.
    assert_eq!(slot("123456789"), 0x31c3);
    assert_eq!(slot("foo"), 12_182);
    assert_eq!(slot("{foo}.bar"), slot("foo"));
    assert_ne!(slot("{}foo"), slot("foo"));
}
