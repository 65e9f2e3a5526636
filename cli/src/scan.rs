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
//! In a single pass, a node that fails ends the pass. In repeated passes, what a failed node had is
//! kept, and the other nodes say which nodes are primaries now. New primaries, and primaries that
//! failed, are watched from then on.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use glob::Pattern;
use redis::Value;

use crate::{
    connection::{Connection, Nodes, Target},
    error::Error,
    filter_info::{FilterInfo, Reader, TYPES},
    output::Output,
    refusal::Kind,
    sharded::shard_name,
};

/// Keys that a step of SCAN looks at: a fraction of a millisecond of the server's time.
const KEYS_A_STEP: u32 = 1000;
/// Filters that a step reads. Each takes up to some 50 microseconds.
const FILTERS_A_STEP: usize = 16;
/// A step is followed by a pause of this many times its time: all steps take at most a tenth of the
/// server's time.
const PAUSE: u32 = 9;
/// As [`PAUSE`], for the steps of SCAN after the first pass: at most a hundredth.
const LATER_PAUSE: u32 = 99;
/// The longest pause. A step that would need a longer one did not keep the server busy all that
/// time: it waited for something else.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The shortest time between two messages before all keys have been looked at.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// What is known of a node.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    /// The filters, by name. For a filter that this user may not read, or that is being loaded, it
    /// is the server's reason.
    pub(crate) filters: BTreeMap<Vec<u8>, Result<FilterInfo, String>>,
    /// Whether the first pass has looked at all keys.
    pub(crate) complete: bool,
    /// The primaries of the cluster; none if the user may not ask.
    pub(crate) primaries: Vec<Target>,
}

/// A node that is watched.
#[derive(Default)]
pub(crate) struct Node {
    /// The name of the server.
    pub(crate) name: String,
    pub(crate) seen: Seen,
    /// Why it does not answer. What else is known of it may be old.
    pub(crate) failed: Option<Error>,
    /// Its watcher ends when this is gone.
    watched: Arc<()>,
}

impl Node {
    pub(crate) fn new(name: String, seen: Seen) -> Self {
        Self { name, seen, ..Self::default() }
    }
}

/// How to look for filters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    /// Names must match this pattern. For a shard, the name of its filter must match.
    pub(crate) pattern: Option<Pattern>,
    /// Time between two readings; `None` for one pass only.
    pub(crate) every: Option<Duration>,
}

impl Search {
    /// Whether a filter of this name is looked for.
    fn shows(&self, name: &[u8]) -> bool {
        let matches = |pattern: &Pattern| pattern.matches(&String::from_utf8_lossy(name));
        self.pattern.as_ref().is_none_or(matches)
    }
}

/// What the watcher of the node with this name has found. An error ends it.
type News = (String, Result<Seen, Error>);

/// The filters of all nodes, as far as they are known.
pub(crate) struct State {
    pub(crate) nodes: Vec<Node>,
    search: Search,
    sender: Sender<News>,
    news: Receiver<News>,
}

impl State {
    /// Starts to look for filters in the whole cluster of `target`, or in the server alone.
    pub(crate) fn start(target: &Target, search: Search, output: &Output) -> Result<Self, Error> {
        let targets = match Nodes::of(&mut target.connect()?) {
            Ok(nodes) => nodes.primaries(),
            Err(Error::Refused { refusal, .. }) => {
                output.remark(format_args!(
                    "Only {target} is scanned. Whether it is in a cluster is unknown: {refusal}"
                ));
                vec![target.clone()]
            }
            Err(error) => return Err(error),
        };
        let mut state = Self::of(Vec::new());
        state.search = search;
        targets.into_iter().for_each(|target| state.watch(target));
        Ok(state)
    }

    /// Nodes without watchers.
    pub(crate) fn of(nodes: Vec<Node>) -> Self {
        let (sender, news) = mpsc::channel();
        Self { nodes, search: Search::default(), sender, news }
    }

    /// Watches a node, unless it is watched already.
    fn watch(&mut self, target: Target) {
        let name = target.to_string();
        let node = match self.nodes.iter().position(|node| node.name == name) {
            Some(place) => &mut self.nodes[place],
            None => self.nodes.push_mut(Node::new(name.clone(), Seen::default())),
        };
        if Arc::weak_count(&node.watched) > 0 {
            return;
        }
        let watched = Arc::downgrade(&node.watched);
        let (sender, search) = (self.sender.clone(), self.search.clone());
        thread::spawn(move || {
            let tell = |seen: &Seen| {
                let sent = || sender.send((name.clone(), Ok(seen.clone()))).is_ok();
                watched.strong_count() > 0 && sent()
            };
            let ended = target.connect().and_then(|server| {
                Watcher { server, reader: Reader::default(), search, tell: &tell }.run()
            });
            if let Err(error) = ended {
                // If that fails, the state is gone.
                let _ = sender.send((name.clone(), Err(error)));
            }
        });
    }

    /// Whether a filter of this name is looked for.
    pub(crate) fn shows(&self, name: &[u8]) -> bool {
        self.search.shows(name)
    }

    /// Whether a pass over each node is complete. A node that fails is not waited for.
    pub(crate) fn complete(&self) -> bool {
        self.nodes.iter().all(|node| node.seen.complete || node.failed.is_some())
    }

    /// Waits for news for at most that long, and takes all that have come. Returns whether there
    /// were any.
    ///
    /// # Errors
    /// In a single pass, the error of any node. Otherwise the last error, once no node answers.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        let Ok(mut next) = self.news.recv_timeout(timeout) else { return Ok(false) };
        loop {
            self.take(next)?;
            let Ok(news) = self.news.try_recv() else { return Ok(true) };
            next = news;
        }
    }

    fn take(&mut self, (name, news): News) -> Result<(), Error> {
        let fails = |node: &Node| node.failed.is_some();
        let fail_elsewhere = self.nodes.iter().all(|node| node.name == name || fails(node));
        // News of a node that is no primary any more.
        let Some(node) = self.nodes.iter_mut().find(|node| node.name == name) else {
            return Ok(());
        };
        match news {
            Ok(seen) => (node.seen, node.failed) = (seen, None),
            Err(error) if fail_elsewhere || self.search.every.is_none() => return Err(error),
            Err(error) => node.failed = Some(error),
        }
        let primaries = node.seen.primaries.clone();
        // A replica may have taken the place of one that failed.
        if !fails(node) && !primaries.is_empty() && self.nodes.iter().any(fails) {
            let names: BTreeSet<_> = primaries.iter().map(ToString::to_string).collect();
            self.nodes.retain(|node| names.contains(&node.name));
            primaries.into_iter().for_each(|target| self.watch(target));
        }
        Ok(())
    }
}

/// Looks for the filters of a node, again and again.
struct Watcher<'t> {
    server: Connection,
    reader: Reader,
    search: Search,
    /// Sends what is known to the state. Returns whether it still wants that.
    tell: &'t dyn Fn(&Seen) -> bool,
}

impl Watcher<'_> {
    /// Looks at some keys after the others and reads new filters immediately; after each period it
    /// reads all known filters again.
    fn run(&mut self) -> Result<(), Error> {
        let (mut seen, mut told) = (Seen::default(), Instant::now());
        loop {
            for kind in TYPES {
                let mut cursor = b"0".to_vec();
                loop {
                    let pause = if seen.complete { LATER_PAUSE } else { PAUSE };
                    let names;
                    (cursor, names) = self.paced(pause, |watcher| watcher.scan(&cursor, kind))?;
                    let new = names.into_iter().filter(|name| !seen.filters.contains_key(name));
                    let new: Vec<_> = new.collect();
                    self.read(&new, &mut seen)?;
                    let every = self.search.every.filter(|_| seen.complete);
                    if told.elapsed() >= every.unwrap_or(TOLD_EVERY) {
                        told = Instant::now();
                        if every.is_some() {
                            let names: Vec<_> = mem::take(&mut seen.filters).into_keys().collect();
                            self.read(&names, &mut seen)?;
                            seen.primaries = Nodes::of(&mut self.server)
                                .map_or(Vec::new(), |nodes| nodes.primaries());
                        }
                        if !(self.tell)(&seen) {
                            return Ok(());
                        }
                    }
                    if cursor == b"0" {
                        break;
                    }
                }
            }
            if !seen.complete {
                seen.complete = true;
                (self.tell)(&seen);
            }
            let Some(every) = self.search.every else { return Ok(()) };
            thread::sleep(every.saturating_sub(told.elapsed()));
        }
    }

    /// A step of SCAN: the next cursor, and names.
    fn scan(&mut self, cursor: &[u8], kind: &str) -> Result<(Vec<u8>, Vec<Vec<u8>>), Error> {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("COUNT").arg(KEYS_A_STEP).arg("TYPE").arg(kind);
        let reply = match self.server.call(&command) {
            // A server may refuse the name of a type that it does not have.
            Err(error) if error.is(Kind::Other) => return Ok((b"0".to_vec(), Vec::new())),
            reply => reply?,
        };
        let Value::Array(parts) = &reply else { return Err(Error::reply("SCAN", &reply)) };
        let [Value::BulkString(cursor), Value::Array(names)] = &parts[..] else {
            return Err(Error::reply("SCAN", &reply));
        };
        let names = names.iter().filter_map(|name| match name {
            Value::BulkString(name) => Some(name),
            _ => None,
        });
        // Whether a key is that of a shard is not known before it is read.
        let shows = |name: &&Vec<u8>| {
            self.search.shows(name)
                || shard_name(name).is_some_and(|(name, _)| self.search.shows(name))
        };
        Ok((cursor.clone(), names.filter(shows).cloned().collect()))
    }

    /// Reads filters, in groups with pauses.
    fn read(&mut self, names: &[Vec<u8>], seen: &mut Seen) -> Result<(), Error> {
        for group in names.chunks(FILTERS_A_STEP) {
            let infos =
                self.paced(PAUSE, |watcher| watcher.reader.read(&mut watcher.server, group))?;
            for (name, info) in group.iter().cloned().zip(infos) {
                match info {
                    Err(Error::Refused { refusal, .. }) if vanished(refusal.kind) => {}
                    Err(Error::Refused { refusal, .. }) => {
                        seen.filters.insert(name, Err(refusal.text));
                    }
                    info => drop(seen.filters.insert(name, Ok(info?))),
                }
            }
        }
        Ok(())
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

/// Whether an error reply means that the filter is not there any more.
fn vanished(kind: Kind) -> bool {
    matches!(kind, Kind::NotFound | Kind::WrongType | Kind::Moved | Kind::Asked)
}
