//! The servers of a round, and all that can happen to them and to the tool.

use std::{fs, io, mem, process::Child, thread, time::Duration};

use crate::sharding::{Descriptor, State, shard_capacity, shard_of};

use super::{relay::Ports, setup::Setup};
use crate::harness::{Builder, Client, Random, Reply, Server, ok, wait_until};

/// The name of the filter.
pub(super) const NAME: &str = "urls";
/// The user of the tool.
pub(super) const USER: &str = "model";
/// The part of the items that one command of another client adds at most.
const BATCH: usize = 1_000;
/// In this time a journal is written that is written every few milliseconds.
const JOURNAL: Duration = Duration::from_millis(30);

/// What can happen. A server is named by its number.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// The server saves; what it has can be restored later.
    Snapshot(usize),
    /// The server is killed, and starts with what `From` says.
    Restart(usize, From),
    /// Another client adds items that nobody else adds.
    Others(usize),
    /// Another client adds so many items of the input, from this one on.
    Same(usize, usize),
    /// Other clients add until each filter counts as much as before the last loss, and so many
    /// more or fewer: the surplus hides what is lost from anyone who only counts.
    Refill(i64),
    /// The replica gets nothing any more.
    Detach(usize),
    /// The replica takes the place of its primary, which dies, or stays without the address.
    Failover(usize, Primary),
    /// A server that lost its address gets it back.
    Failback(usize),
    /// Another filter with so many items is renamed over the filter.
    Rename(usize, usize),
    /// The filter is deleted, and made again if `true`.
    Delete(usize, bool),
    /// A server is killed, and stays so until the tool has ended. Then its replica takes its place
    /// if the tool waited for that; otherwise it starts with its last snapshot or append-only file.
    Down(usize),
    /// A server has no memory for anything until the tool has ended.
    NoMemory(usize),
    /// All connections to a server break.
    Cut(usize),
    /// The filter is copied to database 1.
    Copy,
    /// The tool goes on in database 1.
    OtherDatabase,
    /// The tool is killed.
    Kill,
    /// The tool gets Ctrl-C.
    Interrupt,
}

/// What a server starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// The last snapshot, or its append-only file if it has one.
    Last,
    /// A snapshot: so many before the last.
    Older(usize),
    /// Nothing at all. The filter is made again if `true`.
    Nothing(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Primary {
    Dies,
    Stays,
}

/// How much happened in this round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Harm {
    Nothing,
    /// Connections broke.
    Cut,
    /// Items may be lost.
    Loss,
}

struct Node {
    primary: Server,
    replica: Option<Server>,
    /// Servers that lost the address.
    others: Vec<Server>,
    /// Dump files, the oldest first.
    snapshots: Vec<Vec<u8>>,
}

/// A filter: the whole one, or a shard.
struct Filter {
    key: Vec<u8>,
    node: usize,
    /// Its number, and the number of shards.
    shard: Option<(u16, u16)>,
    /// The words of BF.RESERVE behind the key.
    words: String,
    /// The most that it counted before something was lost.
    counted: i64,
}

pub(super) struct World {
    setup: Setup,
    builder: Builder,
    nodes: Vec<Node>,
    filters: Vec<Filter>,
    descriptor: Option<Descriptor>,
    random: Random,
    /// Items of other clients so far.
    fresh: usize,
    /// The items of the input.
    items: Vec<Vec<u8>>,
    pub(super) tool: Option<Child>,
    pub(super) database: u8,
    /// The server that is down.
    down: Option<usize>,
    pub(super) harm: Harm,
    /// Whether the tool got Ctrl-C in this run.
    pub(super) interrupted: bool,
    /// What happened, for the report.
    pub(super) story: Vec<String>,
}

impl World {
    /// Starts the servers, and creates the filter.
    pub(super) fn start(setup: &Setup, items: Vec<Vec<u8>>, random: Random) -> Self {
        let mut builder = Server::with()
            .config(&format!("user {USER} on nopass ~* &* +@all {}", setup.rights.words()));
        if setup.aof {
            builder = builder.config("appendonly yes");
        }
        let node = |_| {
            let primary = builder.clone().start();
            let replica = setup.replicas.then(|| attached(&builder, &primary));
            Node { primary, replica, others: Vec::new(), snapshots: Vec::new() }
        };
        let mut world = Self {
            nodes: (0..setup.servers).map(node).collect(),
            setup: setup.clone(),
            builder,
            filters: Vec::new(),
            descriptor: None,
            random,
            fresh: 0,
            items,
            tool: None,
            database: 0,
            down: None,
            harm: Harm::Nothing,
            interrupted: false,
            story: Vec::new(),
        };
        world.create();
        for node in 0..world.nodes.len() {
            world.play(&Act::Snapshot(node));
        }
        world
    }

    fn create(&mut self) {
        let most = self.setup.capacity(self.items.len());
        let words = self.setup.kind.words();
        let filter = |key: Vec<u8>, shard: Option<(u16, u16)>| {
            let (capacity, belongs) = match shard {
                None => (most, String::new()),
                Some((shard, shards)) => (
                    shard_capacity(most, shards).expect("shards"),
                    format!(" SHARD {shard} {shards}"),
                ),
            };
            let node = Ports::node_of(&key, self.setup.servers);
            let words = format!("{} {capacity} {words}{belongs}", self.setup.error());
            Filter { key, node, shard, words, counted: 0 }
        };
        self.filters = match self.setup.shards {
            0 => vec![filter(NAME.into(), None)],
            shards => {
                let descriptor = Descriptor::new(NAME.as_bytes(), shards, 1e-6, most, 1);
                let descriptor = descriptor.expect("a name");
                let keys = descriptor.current.keys.clone();
                self.descriptor = Some(descriptor);
                keys.into_iter().zip(0..).map(|(key, at)| filter(key, Some((at, shards)))).collect()
            }
        };
        self.describe();
        (0..self.filters.len()).for_each(|at| self.reserve(at));
    }

    /// Writes the descriptor, if the filter has shards.
    fn describe(&mut self) {
        let Some(descriptor) = &self.descriptor else { return };
        let fields = descriptor.fields(State::Ready);
        let mut command: Vec<&[u8]> = vec![b"HSET", NAME.as_bytes()];
        command.extend(fields.iter().flat_map(|(field, value)| [&field[..], &value[..]]));
        let node = Ports::node_of(NAME.as_bytes(), self.nodes.len());
        self.give_memory(node);
        let reply = self.client(node).cmd(&command);
        assert!(matches!(reply, Reply::Int(_)), "HSET: {reply:?}");
    }

    fn reserve(&self, at: usize) {
        let Filter { key, node, words, .. } = &self.filters[at];
        self.give_memory(*node);
        let words: Vec<_> = words.split_whitespace().collect();
        let reply = self.client(*node).call("BF.RESERVE", text(key), &words);
        assert_eq!(reply, ok(), "BF.RESERVE {words:?}");
    }

    pub(super) fn port_of(&self, node: usize) -> u16 {
        // At the end there are no servers, and nobody listens here.
        self.nodes.get(node).map_or(1, |node| node.primary.port())
    }

    /// Stops all servers.
    pub(super) fn end(&mut self) {
        self.nodes.clear();
    }

    /// Notes something for the report.
    pub(super) fn note(&mut self, what: String) {
        self.story.push(what);
    }

    fn client(&self, node: usize) -> Client {
        self.connected(&self.nodes[node].primary)
    }

    fn connected(&self, server: &Server) -> Client {
        let mut client = server.client();
        if self.database != 0 {
            assert_eq!(client.run(&format!("SELECT {}", self.database)), ok());
        }
        client
    }

    /// What a filter counts; 0 if there is none.
    fn card(&self, at: usize) -> i64 {
        let Filter { key, node, .. } = &self.filters[at];
        match self.client(*node).call("BF.CARD", text(key), &[] as &[&str]) {
            Reply::Int(items) => items,
            _ => 0,
        }
    }

    /// The filters on a server.
    fn on(&self, node: usize) -> Vec<usize> {
        (0..self.filters.len()).filter(|&at| self.filters[at].node == node).collect()
    }

    /// Does something that may lose items of the filters on a server, and notes what they count.
    fn risk(&mut self, node: usize, harm: Harm, work: impl FnOnce(&mut Self)) {
        self.harm = self.harm.max(harm);
        let before: Vec<_> = self.on(node).into_iter().map(|at| (at, self.card(at))).collect();
        work(self);
        let mut counts = Vec::new();
        for (at, before) in before {
            let filter = &mut self.filters[at];
            filter.counted = filter.counted.max(before);
            counts.push(format!("{before} -> {}", self.card(at)));
        }
        self.note(format!("    counts {}", counts.join(", ")));
    }

    /// Plays an act. Returns whether the connection of the tool ends with it.
    pub(super) fn play(&mut self, act: &Act) -> bool {
        self.note(format!("  {act:?}"));
        match *act {
            Act::Snapshot(node) => {
                let node = &mut self.nodes[node];
                node.snapshots.push(saved(&node.primary));
            }
            Act::Restart(node, from) => {
                self.risk(node, Harm::Loss, |world| world.restart(node, from));
            }
            Act::Others(count) => {
                for at in 0..self.filters.len() {
                    let items = self.fresh_items(at, count / self.filters.len() + 1);
                    self.add(at, &items);
                }
            }
            Act::Same(from, count) => {
                let items: Vec<_> = self.items.iter().skip(from).take(count).cloned().collect();
                for at in 0..self.filters.len() {
                    let own: Vec<_> =
                        items.iter().filter(|item| self.takes(at, item)).cloned().collect();
                    self.add(at, &own);
                }
            }
            Act::Refill(more) => {
                for at in 0..self.filters.len() {
                    let missing = self.filters[at].counted + more - self.card(at);
                    if let Ok(count @ 1..) = usize::try_from(missing) {
                        let items = self.fresh_items(at, count);
                        self.add(at, &items);
                    }
                }
            }
            Act::Detach(node) => {
                self.harm = Harm::Loss;
                if let Some(replica) = &self.nodes[node].replica {
                    assert_eq!(replica.client().run("REPLICAOF NO ONE"), ok());
                }
            }
            Act::Failover(node, primary) => {
                if self.nodes[node].replica.is_some() {
                    self.risk(node, Harm::Loss, |world| world.fail_over(node, primary));
                }
            }
            Act::Failback(node) => {
                if !self.nodes[node].others.is_empty() {
                    self.risk(node, Harm::Loss, |world| world.nodes[node].fail_back());
                }
            }
            Act::Rename(at, count) => {
                let at = at % self.filters.len();
                let node = self.filters[at].node;
                self.risk(node, Harm::Loss, |world| world.rename(at, count));
            }
            Act::Delete(at, again) => {
                let at = at % self.filters.len();
                let node = self.filters[at].node;
                self.risk(node, Harm::Loss, |world| {
                    let key = &world.filters[at].key;
                    world.client(node).call("DEL", text(key), &[] as &[&str]);
                    if again {
                        world.reserve(at);
                    }
                });
            }
            Act::Down(node) => {
                self.risk(node, Harm::Loss, |_| ());
                self.nodes[node].primary.kill();
                self.down = Some(node);
            }
            Act::NoMemory(node) => {
                self.harm = Harm::Loss;
                assert_eq!(self.client(node).run("CONFIG SET maxmemory 1"), ok());
            }
            Act::Cut(node) => {
                self.harm = self.harm.max(Harm::Cut);
                cut(&self.nodes[node].primary);
            }
            Act::Copy => {
                if self.setup.shards == 0 && self.database == 0 {
                    self.client(0).run(&format!("COPY {NAME} {NAME} DB 1 REPLACE"));
                }
            }
            Act::OtherDatabase => {
                if self.setup.shards == 0 && self.database == 0 {
                    self.risk(0, Harm::Loss, |world| world.database = 1);
                    self.create_missing();
                }
            }
            Act::Kill => {
                thread::sleep(JOURNAL);
                if let Some(tool) = &mut self.tool {
                    // It may have ended.
                    let _ = tool.kill();
                }
                return true;
            }
            Act::Interrupt => {
                if let Some(tool) = &mut self.tool
                    && tool.try_wait().is_ok_and(|ended| ended.is_none())
                {
                    self.interrupted = true;
                    let pid = rustix::process::Pid::from_child(tool);
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
                }
            }
        }
        false
    }

    /// Whether a server is down: nothing else can happen then.
    pub(super) fn is_down(&self) -> bool {
        self.down.is_some()
    }

    /// The tool has ended: what was to last as long as it ends, too.
    pub(super) fn settle(&mut self) {
        if let Some(node) = self.down.take() {
            if self.setup.acks != Some(0) && self.nodes[node].replica.is_some() {
                self.fail_over(node, Primary::Dies);
            } else {
                self.restart(node, From::Last);
            }
            let counts: Vec<_> = self.on(node).into_iter().map(|at| self.card(at)).collect();
            self.note(format!("server {node} is back; counts {counts:?}"));
        }
        // Also to those that may get their address back.
        for server in self.nodes.iter().flat_map(|node| node.others.iter().chain([&node.primary])) {
            assert_eq!(server.client().run("CONFIG SET maxmemory 0"), ok());
        }
    }

    fn give_memory(&self, node: usize) {
        assert_eq!(self.client(node).run("CONFIG SET maxmemory 0"), ok());
    }

    fn restart(&mut self, node: usize, from: From) {
        let Node { primary, snapshots, .. } = &mut self.nodes[node];
        primary.kill();
        let dump = primary.dir().join("dump.rdb");
        // A server with an append-only file starts from that.
        if !self.setup.aof {
            match from {
                From::Last => fs::write(&dump, &snapshots[snapshots.len() - 1]),
                From::Older(older) => {
                    let at = (snapshots.len() - 1).saturating_sub(older);
                    // What came after it is gone, too.
                    snapshots.truncate(at + 1);
                    fs::write(&dump, &snapshots[at])
                }
                From::Nothing(_) => match fs::remove_file(&dump) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                },
            }
            .expect("a dump file");
        }
        primary.relaunch();
        if from == From::Nothing(true) {
            self.create_missing();
        }
    }

    fn fail_over(&mut self, node: usize, primary: Primary) {
        let builder = &self.builder;
        let node = &mut self.nodes[node];
        let Some(replica) = node.replica.take() else { return };
        assert_eq!(replica.client().run("REPLICAOF NO ONE"), ok());
        let mut old = mem::replace(&mut node.primary, replica);
        node.snapshots = vec![saved(&node.primary)];
        match primary {
            Primary::Dies => old.kill(),
            Primary::Stays => {
                cut(&old);
                node.others.push(old);
            }
        }
        if self.random.below(2) == 0 {
            node.replica = Some(attached(builder, &node.primary));
        }
    }

    /// Renames a filter of this kind, with other items, over a filter.
    fn rename(&mut self, at: usize, count: usize) {
        let items = self.fresh_items(at, count);
        let Filter { key, node, words, .. } = &self.filters[at];
        self.give_memory(*node);
        // In the same slot.
        let other = match self.filters[at].shard {
            None => format!("{{{NAME}}}:other"),
            Some(_) => format!("{}:other", text(key)),
        };
        let mut client = self.client(*node);
        let words: Vec<_> = words.split_whitespace().collect();
        assert_eq!(client.call("BF.RESERVE", &other, &words), ok());
        for batch in items.chunks(BATCH) {
            client.call("BF.MADD", &other, batch);
        }
        assert_eq!(client.cmd(&["RENAME", &other, text(key)]), ok());
    }

    /// Makes what is not there: an empty filter, the descriptor, a replica where some are waited
    /// for. So a load can succeed again.
    pub(super) fn create_missing(&mut self) {
        self.describe();
        for at in 0..self.filters.len() {
            let Filter { key, node, .. } = &self.filters[at];
            if self.client(*node).cmd(&[b"EXISTS", &key[..]]) == Reply::Int(0) {
                self.reserve(at);
            }
        }
    }

    /// Attaches a replica to each server that has none.
    pub(super) fn attach_missing(&mut self) {
        for node in &mut self.nodes {
            let role =
                node.replica.as_ref().map(|it| it.client().server_info("replication", "role"));
            if role.as_deref() != Some("slave") {
                node.replica = Some(attached(&self.builder, &node.primary));
            }
        }
    }

    fn takes(&self, at: usize, item: &[u8]) -> bool {
        self.filters[at].shard.is_none_or(|(shard, shards)| shard_of(item, shards) == shard)
    }

    /// Items for a filter that nobody else adds.
    fn fresh_items(&mut self, at: usize, count: usize) -> Vec<Vec<u8>> {
        let mut items = Vec::with_capacity(count);
        while items.len() < count {
            let item = format!("other-{}", self.fresh).into_bytes();
            self.fresh += 1;
            if self.takes(at, &item) {
                items.push(item);
            }
        }
        items
    }

    /// Adds items for another client; to a filter that is there.
    fn add(&self, at: usize, items: &[Vec<u8>]) {
        let Filter { key, node, .. } = &self.filters[at];
        let mut client = self.client(*node);
        for batch in items.chunks(BATCH) {
            let mut words: Vec<&[u8]> = vec![b"BF.INSERT", key, b"NOCREATE", b"ITEMS"];
            words.extend(batch.iter().map(|item| &item[..]));
            client.cmd(&words);
        }
    }

    /// The places of the items that the filter has not.
    pub(super) fn missing(&self, items: &[Vec<u8>]) -> Vec<usize> {
        let mut missing = Vec::new();
        for (at, filter) in self.filters.iter().enumerate() {
            let own: Vec<_> =
                (0..items.len()).filter(|&place| self.takes(at, &items[place])).collect();
            let mut client = self.client(filter.node);
            for places in own.chunks(BATCH) {
                let words: Vec<_> = places.iter().map(|&place| &items[place]).collect();
                let reply = client.call("BF.MEXISTS", text(&filter.key), &words);
                let answers = match &reply {
                    Reply::Error(_) => vec![false; places.len()],
                    reply => reply.answers(),
                };
                let lost = places.iter().zip(answers).filter(|(_, present)| !present);
                missing.extend(lost.map(|(&place, _)| place));
            }
        }
        missing.sort_unstable();
        missing
    }
}

impl Node {
    /// The server that lost the address last gets it back, with what it had then.
    fn fail_back(&mut self) {
        let Some(old) = self.others.pop() else { return };
        cut(&self.primary);
        self.replica = None;
        self.others.push(mem::replace(&mut self.primary, old));
    }
}

/// A replica of a server that has all of it.
fn attached(builder: &Builder, primary: &Server) -> Server {
    let replica = builder.clone().start();
    let mut client = replica.client();
    assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port())), ok());
    wait_until("the replica is synchronized", || {
        client.server_info("replication", "master_link_status") == "up"
    });
    replica
}

/// What a server has, as a dump file.
fn saved(server: &Server) -> Vec<u8> {
    let mut client = server.client();
    // It refuses while it saves for a replica.
    wait_until("the server saves", || client.run("SAVE") == ok());
    fs::read(server.dir().join("dump.rdb")).expect("a dump")
}

/// Breaks all connections of clients.
fn cut(server: &Server) {
    server.client().run("CLIENT KILL TYPE normal");
}

fn text(key: &[u8]) -> &str {
    str::from_utf8(key).expect("keys of this model are text")
}
