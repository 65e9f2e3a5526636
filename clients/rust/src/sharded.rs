//! A client of sharded filters, as docs/reference/sharding.md specifies them;
//! `redis-bloom create --shards` makes them.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::cmd;
use redis_bloom_sharding::{BASE_MARK, Descriptor, marks, shard_of};

use crate::link::{Link, Result, Servers, lock};
use crate::twins::twins;

/// After a failure, how long a shard, or the descriptor, is not queried.
const PAUSE: Duration = Duration::from_secs(1);
/// For each reply to a query, and to an addition.
const TIMEOUT: Duration = Duration::from_millis(100);
const ADD_TIMEOUT: Duration = Duration::from_secs(1);
const TOO_OLD: &str = "the descriptor is too old";

/// The items that have an answer that can be trusted.
type Answers<'a> = HashMap<&'a [u8], bool>;

/// The items of each shard that has some.
fn group<'a>(shards: u16, items: &[&'a [u8]]) -> HashMap<usize, Vec<&'a [u8]>> {
    let mut groups = HashMap::<_, Vec<_>>::new();
    for item in items {
        groups.entry(shard_of(item, shards).into()).or_default().push(*item);
    }
    groups
}

struct Known {
    descriptor: Descriptor,
    /// Of the shards of the current generation.
    marks: Vec<String>,
    read_at: Instant,
}

impl Known {
    fn poll(&self) -> Duration {
        Duration::from_secs(self.descriptor.poll)
    }

    /// Fails when the descriptor is older than two times `poll`: a rebuild relies on every addition
    /// being done by then.
    fn check_age(&self) -> Result<()> {
        let limit = self.poll().saturating_mul(2);
        if self.read_at.elapsed() > limit { Err(TOO_OLD.into()) } else { Ok(()) }
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

struct Core {
    name: String,
    reader: Link,
    writer: Link,
    known: Mutex<Option<Arc<Known>>>,
    /// By key: when it may be queried again.
    resume_at: Mutex<HashMap<Vec<u8>, Instant>>,
    failures: AtomicU64,
}

impl Core {
    fn new(servers: &Servers, name: &str, is_async: bool) -> Result<Self> {
        Ok(Core {
            name: name.to_string(),
            reader: Link::new(servers, TIMEOUT, is_async)?,
            writer: Link::new(servers, ADD_TIMEOUT, is_async)?,
            known: Mutex::new(None),
            resume_at: Mutex::new(HashMap::new()),
            failures: AtomicU64::new(0),
        })
    }

    /// The descriptor, read again if it is older than its `poll`, or if `again`.
    async fn read(&self, link: &Link, again: bool) -> Result<Arc<Known>> {
        let now = Instant::now();
        let known = lock(&self.known).clone();
        if let Some(known) = known
            && !again
            && now - known.read_at < known.poll()
        {
            return Ok(known);
        }
        let fields: Vec<(Vec<u8>, Vec<u8>)> = link.send(cmd("HGETALL").arg(&self.name)).await?;
        let read = Descriptor::parse(fields.iter().map(|(field, value)| (&field[..], &value[..])));
        let read = read.map(|descriptor| {
            let marks = marks(descriptor.current.shards());
            Arc::new(Known { descriptor, marks, read_at: now })
        });
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
        let mut answers = HashMap::new();
        let stale = self.query(&items, &mut answers, false).await;
        if !stale.is_empty() {
            self.query(&stale, &mut answers, true).await;
        }
        items.iter().map(|item| answers.get(item).copied()).collect()
    }

    /// Puts answers into `answers`; returns the items to query again, by a descriptor that is read
    /// again.
    async fn query<'a>(
        &self,
        items: &[&'a [u8]],
        answers: &mut Answers<'a>,
        again: bool,
    ) -> Vec<&'a [u8]> {
        let name = self.name.as_bytes();
        if self.may_query(name) && self.read(&self.reader, again).await.is_err() {
            self.fail(name);
        }
        // If it could not be read, the last one: its shards answer for themselves.
        let Some(known) = lock(&self.known).clone() else { return Vec::new() };
        let Descriptor { current, base, .. } = &known.descriptor;
        let mut stale = Vec::new();
        for (shard, items) in group(current.shards(), items) {
            let (key, mark) = (&current.keys[shard], &known.marks[shard]);
            stale.extend(self.ask(key, mark, items, answers, again).await);
        }
        let absent = items.iter().copied().filter(|item| answers.get(item) == Some(&false));
        let absent: Vec<_> = absent.collect();
        if let Some(key) = base.as_ref().filter(|_| !absent.is_empty()) {
            stale.extend(self.ask(key, BASE_MARK, absent, answers, again).await);
        }
        stale
    }

    async fn ask<'a>(
        &self,
        key: &[u8],
        mark: &str,
        items: Vec<&'a [u8]>,
        answers: &mut Answers<'a>,
        again: bool,
    ) -> Vec<&'a [u8]> {
        for item in &items {
            answers.remove(item);
        }
        if !self.may_query(key) {
            return Vec::new();
        }
        let query = cmd("BF.MEXISTS").arg(key).arg(&items).arg(mark).to_owned();
        match self.reader.send::<Vec<bool>>(&query).await {
            Ok(found) => {
                let is_complete = found.get(items.len()) == Some(&true);
                let found = items.into_iter().zip(found);
                answers.extend(found.filter(|&(_, found)| found || is_complete));
                if !is_complete {
                    self.fail(key);
                }
            }
            Err(error) if is_stale(&error) && !again => return items,
            Err(_) => self.fail(key),
        }
        Vec::new()
    }

    fn may_query(&self, key: &[u8]) -> bool {
        lock(&self.resume_at).get(key).is_none_or(|&at| at <= Instant::now())
    }

    fn fail(&self, key: &[u8]) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        lock(&self.resume_at).insert(key.to_vec(), Instant::now() + PAUSE);
    }

    async fn add<T: AsRef<[u8]>>(&self, items: &[T]) -> Result<()> {
        let items: Vec<&[u8]> = items.iter().map(AsRef::as_ref).collect();
        match self.add_once(&items, false).await {
            Err(error) if is_stale(&error) => self.add_once(&items, true).await,
            result => result,
        }
    }

    async fn add_once(&self, items: &[&[u8]], again: bool) -> Result<()> {
        let known = self.read(&self.writer, again).await?;
        let filled = known.descriptor.filled();
        let filled =
            filled.map_err(|error| format!("the next generation cannot be read: {error}"))?;
        for generation in filled {
            for (shard, items) in group(generation.shards(), items) {
                known.check_age()?;
                let mut insert = cmd("BF.INSERT");
                insert.arg(&generation.keys[shard]).arg("NOCREATE").arg("ITEMS").arg(items);
                match self.writer.send::<Vec<bool>>(&insert).await {
                    // An old shard is gone, and the current ones have the items.
                    Err(error)
                        if generation.number < known.descriptor.current.number
                            && is_gone(&error) => {}
                    result => drop(result?),
                }
            }
        }
        known.check_age()
    }

    async fn mark(&self) -> Result<()> {
        let known = self.read(&self.writer, true).await?;
        self.add(&known.marks).await
    }
}

twins! {
    /// A sharded filter. Rebuilds are followed. A "no" is trusted only from a shard that has its
    /// mark, which `mark` adds after the first load. So a shard that is lost and recreated empty
    /// hides nothing. If adds refill it, it contains the mark by chance, with the probability of
    /// the error rate.
    ShardedFilter, AsyncShardedFilter, new(),
    /// How often the descriptor or a shard gave no answer: a metric to watch.
    failures(core) -> u64 = core.failures.load(Ordering::Relaxed);

    /// Of each item true, false (certainly not added) or None (no answer that can be trusted).
    fn has(&self, items: &[impl AsRef<[u8]>]) -> Vec<Option<bool>>;
    /// Adds items to their shards, and while the filter is rebuilt to those of both generations. If
    /// it fails, some may be missing: add them again.
    fn add(&self, items: &[impl AsRef<[u8]>]) -> Result<()>;
    /// Marks the shards as complete, after all items were added.
    fn mark(&self) -> Result<()>;
}
