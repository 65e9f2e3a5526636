//! All filters of a server or a cluster, found by SCAN and read by BF.INFO.
//!
//! ```text
//!   primary 1 ── thread: SCAN, BF.INFO, pause ... ──┐
//!   primary 2 ── thread ────────────────────────────┼──▶ State: the filters of all nodes
//!   primary 3 ── thread ────────────────────────────┘
//! ```
//!
//! All this takes at most a tenth of each server's time: a step looks at a thousand keys, or reads
//! some filters, and then pauses for nine times the time that the step took ([`PAUSE`]). Looking
//! for filters again and again, after the first pass, takes at most a hundredth ([`LATER_PAUSE`]).
//!
//! A filter that vanishes between SCAN and BF.INFO is left out. So is one that moves to another
//! node, which finds it there.
//!
//! A node that fails ends a single pass. Otherwise what it had is kept, and another node is asked
//! which nodes are primaries now: those that are new, and those that failed, are watched from then
//! on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Weak,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use redis::Value;

use crate::{
    connection::{Connection, Target},
    error::Error,
    filter_info::{Detail, FilterInfo, Module, Reader},
    glob::Glob,
    output::Output,
    refusal::Kind,
    sharded::shard_name,
};

/// The names of the data types of Bloom filters: RedisBloom's, which is also this project's, and
/// valkey-bloom's.
pub(crate) const TYPES: [&str; 2] = ["MBbloom--", "bloomfltr"];

/// Keys that a step of SCAN looks at: a fraction of a millisecond of the server's time.
const KEYS_A_STEP: u32 = 1000;
/// Filters that a step reads. Each takes up to some 50 microseconds.
const FILTERS_A_STEP: usize = 16;
/// A step is followed by a pause of so many times its time: all steps take at most a tenth of the
/// server's time.
const PAUSE: u32 = 9;
/// As [`PAUSE`], for the steps of SCAN after the first pass: at most a hundredth.
const LATER_PAUSE: u32 = 99;
/// The longest pause: no step keeps a server busy for as long as this stands for. It waited for
/// something else.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Filters by name.
type Infos = BTreeMap<Vec<u8>, FilterInfo>;

/// A filter that could not be read, and the server's reason.
pub(crate) type Unread = (Vec<u8>, String);

/// What a node has.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// The name of the server.
    pub(crate) name: String,
    /// The filters, by name.
    pub(crate) filters: Infos,
    /// Filters that this user may not read, or that are being loaded.
    pub(crate) unread: Vec<Unread>,
    /// Keys that the pass has looked at.
    pub(crate) scanned: u64,
    /// Keys that it will look at, if the server tells.
    pub(crate) keys: Option<u64>,
    /// Whether a pass has been completed.
    pub(crate) complete: bool,
    /// Why it cannot be asked: what else is known of it may be old.
    pub(crate) failed: Option<Error>,
    /// Its watcher ends when this is gone.
    pub(crate) watched: Arc<()>,
}

/// News of a node.
enum Update {
    /// The pass has looked at some of its keys.
    Scanned { scanned: u64, keys: Option<u64> },
    /// Filters that were not known before.
    New { filters: Infos, unread: Vec<Unread> },
    /// The first pass is complete.
    Complete,
    /// All filters.
    Filters { filters: Infos, unread: Vec<Unread> },
    /// The node cannot be asked any more.
    Failed(Error),
}

/// What threads tell.
enum Message {
    /// News of the node with this name.
    Node(String, Update),
    /// The primaries of the cluster; none if no node told.
    Primaries(Vec<Target>),
}

/// How to look for filters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    /// Names must match this pattern. Of a shard, the name of its filter must.
    pub(crate) pattern: Option<Glob>,
    /// Time between two readings; `None` for one pass only.
    pub(crate) every: Option<Duration>,
}

impl Search {
    /// Whether the filter in this key is looked for.
    fn shows(&self, key: &[u8]) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        // Whether it is a shard is not known before it is read.
        pattern.matches(key) || shard_name(key).is_some_and(|(name, _)| pattern.matches(name))
    }
}

/// The filters of all nodes, as far as they are known.
pub(crate) struct State {
    pub(crate) nodes: Vec<Node>,
    search: Search,
    /// The nodes, by name.
    targets: BTreeMap<String, Target>,
    sender: Sender<Message>,
    messages: Receiver<Message>,
    /// When the nodes were last asked which of them are primaries.
    asked: Instant,
    /// Whether the answer is yet to come.
    asking: bool,
}

impl State {
    /// Starts to look for filters in the whole cluster of `target`, or in the server alone.
    pub(crate) fn start(target: &Target, search: &Search, output: &Output) -> Result<Self, Error> {
        let mut first = target.connect()?;
        let targets = match first.primaries() {
            Ok(targets) => targets,
            Err(Error::Refused { refusal, .. }) => {
                output.remark(format_args!(
                    "Only {target} is scanned. Whether it is in a cluster is unknown: {refusal}"
                ));
                vec![target.clone()]
            }
            Err(error) => return Err(error),
        };
        let mut state = Self::of(Vec::new());
        state.search = search.clone();
        targets.into_iter().for_each(|target| state.watch(target));
        Ok(state)
    }

    /// Nodes that nobody watches.
    pub(crate) fn of(nodes: Vec<Node>) -> Self {
        let (sender, messages) = mpsc::channel();
        Self {
            nodes,
            search: Search::default(),
            targets: BTreeMap::new(),
            sender,
            messages,
            asked: Instant::now(),
            asking: false,
        }
    }

    /// Watches a node: one that is new, or one that failed.
    fn watch(&mut self, target: Target) {
        let name = target.to_string();
        let node = match self.nodes.iter_mut().position(|node| node.name == name) {
            Some(place) => &mut self.nodes[place],
            None => self.nodes.push_mut(Node { name: name.clone(), ..Node::default() }),
        };
        node.unread.clear();
        let watched = Arc::downgrade(&node.watched);
        let news = News { node: name.clone(), watched, sender: self.sender.clone() };
        let search = self.search.clone();
        self.targets.insert(name, target.clone());
        thread::spawn(move || {
            let watched = target.connect().and_then(|server| {
                let reader = Reader::default();
                Watcher { server, reader, search, news: &news, scan_pause: PAUSE }.run()
            });
            if let Err(error) = watched {
                news.tell(Update::Failed(error));
            }
        });
    }

    /// Asks for the primaries, if a node failed: its replica may have taken its place.
    fn ask_for_primaries(&mut self) {
        let pause = self.search.every.unwrap_or_default();
        let fails = self.nodes.iter().any(|node| node.failed.is_some());
        if self.asking || !fails || self.asked.elapsed() < pause {
            return;
        }
        (self.asking, self.asked) = (true, Instant::now());
        let alive = self.nodes.iter().filter(|node| node.failed.is_none());
        let targets: Vec<_> =
            alive.filter_map(|node| self.targets.get(&node.name)).cloned().collect();
        let sender = self.sender.clone();
        thread::spawn(move || {
            let primaries = targets
                .iter()
                .find_map(|target| target.connect().and_then(|mut node| node.primaries()).ok());
            // Nobody listens any more, if that fails.
            let _ = sender.send(Message::Primaries(primaries.unwrap_or_default()));
        });
    }

    /// Whether a filter of this name is looked for.
    pub(crate) fn shows(&self, name: &[u8]) -> bool {
        self.search.pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
    }

    /// Whether a pass over each node is complete.
    pub(crate) fn complete(&self) -> bool {
        self.nodes.iter().all(|node| node.complete)
    }

    /// Whether each node has told how many keys it has, or that it does not tell.
    pub(crate) fn started(&self) -> bool {
        self.nodes.iter().all(|node| node.scanned > 0)
    }

    /// Waits for news for at most that long, and takes all that have come. Returns whether there
    /// were any.
    ///
    /// # Errors
    /// That of the last node, if no node can be asked any more; of any node, if this is one pass.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        self.ask_for_primaries();
        let Ok(mut next) = self.messages.recv_timeout(timeout) else { return Ok(false) };
        loop {
            match next {
                Message::Node(name, update) => self.take(&name, update)?,
                Message::Primaries(primaries) => self.follow(primaries),
            }
            let Ok(message) = self.messages.try_recv() else { return Ok(true) };
            next = message;
        }
    }

    fn take(&mut self, name: &str, update: Update) -> Result<(), Error> {
        let fails_elsewhere =
            self.nodes.iter().all(|node| node.name == name || node.failed.is_some());
        // News of a node that is no primary any more.
        let Some(node) = self.nodes.iter_mut().find(|node| node.name == name) else {
            return Ok(());
        };
        if let Update::Failed(error) = update {
            if fails_elsewhere || self.search.every.is_none() {
                return Err(error);
            }
            node.failed = Some(error);
            return Ok(());
        }
        node.failed = None;
        match update {
            Update::Scanned { scanned, keys } => (node.scanned, node.keys) = (scanned, keys),
            Update::New { filters, unread } => {
                node.filters.extend(filters);
                node.unread.extend(unread);
            }
            Update::Complete => node.complete = true,
            Update::Filters { filters, unread } => (node.filters, node.unread) = (filters, unread),
            Update::Failed(_) => {}
        }
        Ok(())
    }

    /// Watches these primaries, and no other nodes.
    fn follow(&mut self, primaries: Vec<Target>) {
        self.asking = false;
        if primaries.is_empty() {
            return;
        }
        let names: BTreeSet<_> = primaries.iter().map(ToString::to_string).collect();
        self.nodes.retain(|node| names.contains(&node.name));
        for target in primaries {
            let name = target.to_string();
            let works = |node: &Node| node.name == name && node.failed.is_none();
            if !self.nodes.iter().any(works) {
                self.watch(target);
            }
        }
    }

    /// Keys that the passes have looked at, and all keys if the servers tell.
    pub(crate) fn progress(&self) -> (u64, Option<u64>) {
        let scanned = self.nodes.iter().map(|node| node.scanned).sum();
        (scanned, self.nodes.iter().map(|node| node.keys).sum())
    }
}

/// Sends the news of a node. Nobody reads them after the program has decided to end.
struct News {
    node: String,
    watched: Weak<()>,
    sender: Sender<Message>,
}

impl News {
    /// Returns whether somebody still reads the news.
    fn tell(&self, update: Update) -> bool {
        let message = Message::Node(self.node.clone(), update);
        self.watched.strong_count() > 0 && self.sender.send(message).is_ok()
    }
}

/// Looks for the filters of a node, again and again.
struct Watcher<'n> {
    server: Connection,
    reader: Reader,
    search: Search,
    news: &'n News,
    /// A step of SCAN is followed by a pause of so many times its time.
    scan_pause: u32,
}

impl Watcher<'_> {
    fn run(&mut self) -> Result<(), Error> {
        let mut known = self.pass(None)?;
        let mut heard = self.news.tell(Update::Complete);
        let Some(every) = self.search.every else { return Ok(()) };
        self.scan_pause = LATER_PAUSE;
        let mut started = Instant::now();
        while heard {
            thread::sleep(every.saturating_sub(started.elapsed()));
            started = Instant::now();
            known = self.pass(Some((known, every)))?;
            heard = self.read_all(&known)?;
        }
        Ok(())
    }

    /// Looks at all keys, and returns the names of filters. Reads new ones as soon as they are
    /// found. Those that are `known` from the pass before are read again after each period.
    fn pass(
        &mut self,
        known: Option<(BTreeSet<Vec<u8>>, Duration)>,
    ) -> Result<BTreeSet<Vec<u8>>, Error> {
        // A user without the right to DBSIZE sees no share in the progress.
        let keys = match self.server.call(&redis::cmd("DBSIZE")) {
            Ok(Value::Int(keys)) => u64::try_from(keys).ok(),
            Ok(_) | Err(Error::Refused { .. }) => None,
            Err(error) => return Err(error),
        };
        let mut all = None;
        let mut found = BTreeSet::new();
        let mut scanned = 0;
        let mut read = Instant::now();
        for kind in TYPES {
            // The filters of the first type tell the module, and so whether there are others.
            let types = types_of(self.reader.module());
            if !types.contains(&kind) {
                continue;
            }
            let keys = keys.map(|keys| keys * types.len() as u64);
            all = keys;
            let mut cursor = b"0".to_vec();
            loop {
                let step = self.paced(self.scan_pause, |watcher| watcher.scan(&cursor, kind))?;
                // A server may refuse the name of a type that it does not have.
                let Some((next, names)) = step else { break };
                let is_known =
                    |name: &Vec<u8>| known.as_ref().is_some_and(|(known, _)| known.contains(name));
                let new: Vec<_> = names
                    .into_iter()
                    .filter(|name| found.insert(name.clone()) && !is_known(name))
                    .collect();
                scanned += u64::from(KEYS_A_STEP);
                let scanned = keys.map_or(scanned, |keys| scanned.min(keys));
                if !self.news.tell(Update::Scanned { scanned, keys }) {
                    return Ok(found);
                }
                for group in new.chunks(FILTERS_A_STEP) {
                    let (filters, unread) = self.read(group)?;
                    if !self.news.tell(Update::New { filters, unread }) {
                        return Ok(found);
                    }
                }
                if let Some((known, every)) = &known
                    && read.elapsed() >= *every
                {
                    let both = known.union(&found).cloned().collect();
                    self.read_all(&both)?;
                    read = Instant::now();
                }
                cursor = next;
                if cursor == b"0" {
                    break;
                }
            }
        }
        if let Some(keys) = all {
            self.news.tell(Update::Scanned { scanned: keys, keys: Some(keys) });
        }
        Ok(found)
    }

    /// A step of SCAN: the next cursor, and names. `None` if the server does not know the type.
    #[expect(clippy::type_complexity, reason = "a cursor and names")]
    fn scan(
        &mut self,
        cursor: &[u8],
        kind: &str,
    ) -> Result<Option<(Vec<u8>, Vec<Vec<u8>>)>, Error> {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("COUNT").arg(KEYS_A_STEP).arg("TYPE").arg(kind);
        let reply = match self.server.call(&command) {
            Ok(reply) => reply,
            Err(Error::Refused { refusal, .. }) if refusal.text.contains("unknown type") => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if let Value::Array(parts) = &reply
            && let [Value::BulkString(cursor), Value::Array(names)] = &parts[..]
        {
            let names = names.iter().filter_map(|name| match name {
                Value::BulkString(name) if self.search.shows(name) => Some(name.clone()),
                _ => None,
            });
            return Ok(Some((cursor.clone(), names.collect())));
        }
        Err(Error::reply("SCAN", &reply))
    }

    /// Reads all filters, and tells about them. Returns whether somebody still listens.
    fn read_all(&mut self, names: &BTreeSet<Vec<u8>>) -> Result<bool, Error> {
        let names: Vec<_> = names.iter().cloned().collect();
        let (mut filters, mut unread) = (BTreeMap::new(), Vec::new());
        for group in names.chunks(FILTERS_A_STEP) {
            let (some, some_unread) = self.read(group)?;
            filters.extend(some);
            unread.extend(some_unread);
        }
        Ok(self.news.tell(Update::Filters { filters, unread }))
    }

    /// Reads a group of filters, and pauses.
    fn read(&mut self, group: &[Vec<u8>]) -> Result<(Infos, Vec<Unread>), Error> {
        let infos = self.paced(PAUSE, |watcher| {
            watcher.reader.read(&mut watcher.server, group, Detail::Filter)
        })?;
        let (mut filters, mut unread) = (BTreeMap::new(), Vec::new());
        for (name, info) in group.iter().zip(infos) {
            match info {
                Ok(info) => {
                    filters.insert(name.clone(), info);
                }
                Err(Error::Refused { refusal, .. }) if vanished(refusal.kind) => {}
                Err(Error::Refused { refusal, .. }) => unread.push((name.clone(), refusal.text)),
                Err(error) => return Err(error),
            }
        }
        Ok((filters, unread))
    }

    /// Makes a step, and pauses, so that all steps together take a bounded share of the time. After
    /// an error there is no next step.
    fn paced<T>(
        &mut self,
        pause: u32,
        step: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        let result = step(self)?;
        thread::sleep(started.elapsed().saturating_mul(pause).min(LONGEST_PAUSE));
        Ok(result)
    }
}

/// The types that filters on a server with this module may have. A server of this project may hold
/// filters that came from valkey-bloom.
fn types_of(module: Option<Module>) -> &'static [&'static str] {
    match module {
        None | Some(Module::RedisBloom) => &TYPES,
        Some(Module::Redis) => &TYPES[..1],
        Some(Module::Valkey) => &TYPES[1..],
    }
}

/// Whether an error reply means that the filter is not there any more.
fn vanished(kind: Kind) -> bool {
    matches!(kind, Kind::NotFound | Kind::WrongType | Kind::Moved | Kind::Asked)
}
