//! A client of sharded filters, as docs/sharding.md specifies them; `redis-bloom create --shards`
//! makes them.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::cmd;

use crate::link::{Error, Link, Servers, lock};
use crate::twins::twins;

/// After a failure, how long a shard, or the descriptor, is not queried.
const PAUSE: Duration = Duration::from_secs(1);
/// For each reply to a query, and to an addition.
const TIMEOUT: Duration = Duration::from_millis(100);
const ADD_TIMEOUT: Duration = Duration::from_secs(1);
const BASE_MARK: &str = "filter: complete";
const TOO_OLD: &str = "the descriptor is too old";

/// The number of the shard of an item.
pub fn shard_of(item: &[u8], shards: usize) -> usize {
    ((u64::from(crc32fast::hash(item)) * shards as u64) >> 32) as usize
}

/// For each shard the item that marks it as complete: `filter: complete K` with the smallest K of
/// that shard.
pub fn marks(shards: usize) -> Vec<String> {
    let mut found = vec![String::new(); shards];
    let mut items = (0u64..).map(|number| format!("{BASE_MARK} {number}"));
    for _ in 0..shards {
        let is_new = |item: &String| found[shard_of(item.as_bytes(), shards)].is_empty();
        if let Some(item) = items.find(is_new) {
            let shard = shard_of(item.as_bytes(), shards);
            found[shard] = item;
        }
    }
    found
}

/// Items of a command, by their numbers.
struct Group<'a> {
    key: &'a str,
    mark: &'a str,
    numbers: Vec<usize>,
}

/// The shards of one generation: key and mark of each.
struct Generation {
    number: u64,
    shards: Vec<(String, String)>,
}

impl Generation {
    fn new(fields: &HashMap<String, String>, prefix: &str) -> Result<Self, String> {
        let field = |name: &str| {
            let name = format!("{prefix}{name}");
            fields.get(&name).cloned().ok_or(format!("the descriptor is damaged: no {name}"))
        };
        let damaged =
            |name: &str, text: &str| format!("the descriptor is damaged: {prefix}{name} is {text}");
        let number = |name, most: u64| {
            let text = field(name)?;
            let number = text.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or(damaged(name, &text))
        };
        let count = number("shards", 1024)? as usize;
        // These two have no use here, but a hash without them is damaged.
        number("capacity", u64::MAX)?;
        let rate = field("error")?;
        if !rate.parse().is_ok_and(|rate: f64| rate > 0.0 && rate < 1.0) {
            return Err(damaged("error", &rate));
        }
        let shards = marks(count).into_iter().enumerate();
        let shards = shards.map(|(i, mark)| Ok((field(&i.to_string())?, mark)));
        let shards = shards.collect::<Result<_, String>>()?;
        Ok(Generation { number: number("generation", u64::MAX)?, shards })
    }

    /// The items of each shard that has some.
    fn group(&self, items: &[&[u8]], numbers: impl IntoIterator<Item = usize>) -> Vec<Group<'_>> {
        let mut groups = HashMap::<usize, Vec<usize>>::new();
        for number in numbers {
            groups.entry(shard_of(items[number], self.shards.len())).or_default().push(number);
        }
        let group = |(shard, numbers): (usize, _)| {
            let (key, mark) = &self.shards[shard];
            Group { key, mark, numbers }
        };
        groups.into_iter().map(group).collect()
    }
}

struct Descriptor {
    current: Generation,
    /// The next generation; after a rebuild the one before, until its shards are gone: old clients
    /// query those. If it cannot be read nothing may be added: a rebuild might lose it.
    next: Result<Option<Generation>, String>,
    base: Option<String>,
    poll: Duration,
    read_at: Instant,
}

impl Descriptor {
    fn new(fields: &HashMap<String, String>, read_at: Instant) -> Result<Self, String> {
        let field = |name| fields.get(name).map(String::as_str);
        let (rule, state) = (field("rule"), field("state"));
        if (rule, state) != (Some("crc32"), Some("ready")) {
            let what = format!("rule {rule:?}, state {state:?}");
            return Err(format!("no filter that this client can use: {what}"));
        }
        let current = Generation::new(fields, "")?;
        let next = match field("next.rule") {
            _ if !fields.keys().any(|name| name.starts_with("next.")) => Ok(None),
            None | Some("crc32") => Generation::new(fields, "next.").map(Some),
            Some(rule) => Err(format!("next.rule is {rule}")),
        };
        let next = match next {
            Ok(Some(next)) if next.number == current.number => Err("its number".to_string()),
            next => next,
        };
        let next = next.map_err(|error| format!("the next generation cannot be read: {error}"));
        let poll = field("poll").and_then(|poll| poll.parse().ok()).filter(|poll| *poll > 0);
        let poll = Duration::from_secs(poll.unwrap_or(10));
        Ok(Descriptor { current, next, base: field("base").map(str::to_string), poll, read_at })
    }

    /// Whoever rebuilds the filter counts on every addition to be done by then.
    fn check_age(&self) -> Result<(), Error> {
        if self.read_at.elapsed() > 2 * self.poll { Err(TOO_OLD.into()) } else { Ok(()) }
    }
}

/// Whether a filter is gone: lost, or an old shard after a rebuild.
fn is_gone(error: &dyn Display) -> bool {
    let text = error.to_string();
    ["WRONGTYPE", "wrong kind", "not found"].iter().any(|words| text.contains(words))
}

/// Whether an error may come from a descriptor that is out of date.
fn is_stale(error: &dyn Display) -> bool {
    let text = error.to_string();
    is_gone(error) || text.contains("belongs to shard") || text == TOO_OLD
}

struct Core<L> {
    name: String,
    reader: L,
    writer: L,
    known: Mutex<Option<Arc<Descriptor>>>,
    /// By key: when it may be queried again.
    resume_at: Mutex<HashMap<String, Instant>>,
    failures: AtomicU64,
}

impl<L: Link> Core<L> {
    fn new(servers: &Servers, name: &str) -> Self {
        Core {
            name: name.to_string(),
            reader: L::new(servers, TIMEOUT),
            writer: L::new(servers, ADD_TIMEOUT),
            known: Mutex::new(None),
            resume_at: Mutex::new(HashMap::new()),
            failures: AtomicU64::new(0),
        }
    }

    /// The descriptor, read again if it is older than its `poll`, or if `again`.
    async fn read(&self, link: &L, again: bool) -> Result<Arc<Descriptor>, Error> {
        let now = Instant::now();
        let known = lock(&self.known).clone();
        if let Some(known) = known
            && !again
            && now - known.read_at < known.poll
        {
            return Ok(known);
        }
        let fields = link.send(cmd("HGETALL").arg(&self.name)).await?;
        let read = Descriptor::new(&fields, now).map(Arc::new);
        let mut known = lock(&self.known);
        // A newer one may have been read in the meantime. If this one cannot be used, an older one
        // must not be.
        if known.as_ref().is_none_or(|known| known.read_at <= now) {
            *known = read.as_ref().ok().cloned();
        }
        Ok(read?)
    }

    async fn has<T: AsRef<[u8]>>(&self, items: &[T]) -> Vec<Option<bool>> {
        let items: Vec<&[u8]> = items.iter().map(AsRef::as_ref).collect();
        let mut answers = vec![None; items.len()];
        let stale = self.query(&items, (0..items.len()).collect(), &mut answers, false).await;
        if !stale.is_empty() {
            self.query(&items, stale, &mut answers, true).await;
        }
        answers
    }

    /// Puts answers into `answers`; returns the items to query again, by a descriptor that is read
    /// again.
    async fn query(
        &self,
        items: &[&[u8]],
        numbers: Vec<usize>,
        answers: &mut [Option<bool>],
        again: bool,
    ) -> Vec<usize> {
        if self.may_query(&self.name) && self.read(&self.reader, again).await.is_err() {
            self.fail(&self.name);
        }
        // If it could not be read, the last one: its shards answer for themselves.
        let Some(known) = lock(&self.known).clone() else { return Vec::new() };
        let mut stale = Vec::new();
        for group in known.current.group(items, numbers.iter().copied()) {
            stale.extend(self.ask(group, items, answers).await);
        }
        let absent = numbers.into_iter().filter(|&number| answers[number] == Some(false));
        let absent: Vec<usize> = absent.collect();
        if let Some(key) = known.base.as_ref().filter(|_| !absent.is_empty()) {
            let group = Group { key, mark: BASE_MARK, numbers: absent };
            stale.extend(self.ask(group, items, answers).await);
        }
        stale
    }

    async fn ask(
        &self,
        group: Group<'_>,
        items: &[&[u8]],
        answers: &mut [Option<bool>],
    ) -> Vec<usize> {
        let Group { key, mark, numbers } = group;
        for &number in &numbers {
            answers[number] = None;
        }
        if !self.may_query(key) {
            return Vec::new();
        }
        let mut query = cmd("BF.MEXISTS");
        query.arg(key);
        for &number in &numbers {
            query.arg(items[number]);
        }
        match self.reader.send::<Vec<bool>>(query.arg(mark)).await {
            Ok(found) => {
                let is_complete = found.get(numbers.len()) == Some(&true);
                for (number, found) in numbers.into_iter().zip(found) {
                    answers[number] = (found || is_complete).then_some(found);
                }
                if !is_complete {
                    self.fail(key);
                }
            }
            Err(error) if is_stale(&error) => return numbers,
            Err(_) => self.fail(key),
        }
        Vec::new()
    }

    fn may_query(&self, key: &str) -> bool {
        lock(&self.resume_at).get(key).is_none_or(|&at| at <= Instant::now())
    }

    fn fail(&self, key: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        lock(&self.resume_at).insert(key.to_string(), Instant::now() + PAUSE);
    }

    async fn add<T: AsRef<[u8]>>(&self, items: &[T]) -> Result<(), Error> {
        let items: Vec<&[u8]> = items.iter().map(AsRef::as_ref).collect();
        match self.add_once(&items, false).await {
            Err(error) if is_stale(&error) => self.add_once(&items, true).await,
            result => result,
        }
    }

    async fn add_once(&self, items: &[&[u8]], again: bool) -> Result<(), Error> {
        let descriptor = self.read(&self.writer, again).await?;
        let (current, next) =
            (&descriptor.current, descriptor.next.as_ref().map_err(Clone::clone)?);
        for generation in [current].into_iter().chain(next) {
            for Group { key, numbers, .. } in generation.group(items, 0..items.len()) {
                descriptor.check_age()?;
                let mut insert = cmd("BF.INSERT");
                insert.arg(key).arg("NOCREATE").arg("ITEMS");
                for number in numbers {
                    insert.arg(items[number]);
                }
                match self.writer.send::<Vec<bool>>(&insert).await {
                    // An old shard is gone, and the current ones have the items.
                    Err(error) if generation.number < current.number && is_gone(&error) => {}
                    result => drop(result?),
                }
            }
        }
        descriptor.check_age()
    }

    async fn mark(&self) -> Result<(), Error> {
        let descriptor = self.read(&self.writer, true).await?;
        self.add(&marks(descriptor.current.shards.len())).await
    }

    async fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

twins! {
    /// A sharded filter. Rebuilds are followed. A "no" is believed only of a shard that has its
    /// mark, which `mark` adds after the first load: a shard that is lost and made again empty
    /// hides nothing.
    ShardedFilter, AsyncShardedFilter, new();

    /// Of each item true, false (certainly not added) or None (no answer that can be trusted).
    fn has(&self, items: &[impl AsRef<[u8]>]) -> Vec<Option<bool>>;
    /// Adds items to their shards, and while the filter is rebuilt to those of both generations. If
    /// it fails, some may be missing: add them again.
    fn add(&self, items: &[impl AsRef<[u8]>]) -> Result<(), Error>;
    /// Marks the shards as complete, after all items were added.
    fn mark(&self) -> Result<(), Error>;
    /// How often the descriptor or a shard gave no answer: a metric to watch.
    fn failures(&self) -> u64;
}
