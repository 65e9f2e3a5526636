//! A client of sharded filters, as docs/reference/sharding.md specifies them;
//! `redis-bloom create --shards` makes them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::cmd;
use redis_bloom_sharding::{BASE_MARK, Descriptor, marks, shard_of};

use crate::link::{Error, Link, Result, Servers, lock};
use crate::twins::twins;

/// After a failure, how long a shard, or the descriptor, is not queried.
const PAUSE: Duration = Duration::from_secs(1);
/// For each reply to a query, and to an addition.
const TIMEOUT: Duration = Duration::from_millis(100);
const ADD_TIMEOUT: Duration = Duration::from_secs(1);
const TOO_OLD: &str = "the descriptor is too old";

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
    marks: Vec<String>, // of the shards of the current generation
    poll: Duration,
    read_at: Instant,
}

impl Known {
    /// Fails when the descriptor is older than two times `poll`: a rebuild relies on every addition
    /// being done by then.
    fn check_age(&self) -> Result<()> {
        let limit = self.poll.saturating_mul(2);
        if self.read_at.elapsed() > limit { Err(TOO_OLD.into()) } else { Ok(()) }
    }
}

/// Whether a filter is gone: lost, or an old shard after a rebuild.
fn is_gone(error: &Error) -> bool {
    let text = error.to_string();
    ["WRONGTYPE", "wrong kind", "not found"].iter().any(|words| text.contains(words))
}

/// Whether an error may come from a descriptor that is out of date.
fn is_stale(error: &Error) -> bool {
    let text = error.to_string();
    is_gone(error) || text.contains("belongs to shard") || text == TOO_OLD
}

struct Core {
    name: String,
    reader: Link,
    writer: Link,
    known: Mutex<Option<Arc<Known>>>,
    resume_at: Mutex<HashMap<Vec<u8>, Instant>>, // by key: when it may be queried again
    failures: Mutex<u64>,
}

impl Core {
    fn new(servers: &Servers, name: &str, is_async: bool) -> Result<Self> {
        Ok(Core {
            name: name.to_string(),
            reader: Link::new(servers, TIMEOUT, is_async)?,
            writer: Link::new(servers, ADD_TIMEOUT, is_async)?,
            known: Mutex::default(),
            resume_at: Mutex::default(),
            failures: Mutex::default(),
        })
    }

    /// The descriptor, read again if it is older than its `poll`, or if `again`.
    async fn read(&self, link: &Link, again: bool) -> Result<Arc<Known>> {
        let now = Instant::now();
        let known = lock(&self.known).clone();
        if let Some(known) = known.filter(|known| !again && now - known.read_at < known.poll) {
            return Ok(known);
        }
        let fields: Vec<(Vec<u8>, Vec<u8>)> = link.send(cmd("HGETALL").arg(&self.name)).await?;
        let read = Descriptor::parse(fields.iter().map(|(field, value)| (&field[..], &value[..])));
        let read = read.map(|descriptor| {
            let marks = marks(descriptor.current.shards());
            let poll = Duration::from_secs(descriptor.poll);
            Arc::new(Known { descriptor, marks, poll, read_at: now })
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
        let mut answers = HashMap::new();
        let mut rest: Vec<&[u8]> = items.iter().map(AsRef::as_ref).collect();
        for again in [false, true] {
            if rest.is_empty() {
                break;
            }
            let name = self.name.as_bytes();
            if self.may_query(name) && self.read(&self.reader, again).await.is_err() {
                self.fail(name);
            }
            // If it could not be read, the last one: its shards answer for themselves.
            let Some(known) = lock(&self.known).clone() else { break };
            let Descriptor { current, base, .. } = &known.descriptor;
            let mut stale = Vec::new();
            for (shard, items) in group(current.shards(), &rest) {
                let (key, mark) = (&current.keys[shard], &known.marks[shard]);
                match self.query(key, mark, &items).await {
                    Ok(found) => answers.extend(items.into_iter().zip(found)),
                    Err(_) if again => self.fail(key),
                    Err(_) => stale.extend(items),
                }
            }
            if let Some(key) = base {
                // The base may have the items that their shards do not have.
                rest.retain(|item| answers.get(item) == Some(&Some(false)));
                answers.extend(rest.iter().map(|item| (*item, None))); // until the base answers
                match self.query(key, BASE_MARK, &rest).await {
                    Ok(found) => answers.extend(rest.into_iter().zip(found)),
                    Err(_) if again => self.fail(key),
                    Err(_) => stale.extend(rest),
                }
            }
            rest = stale;
        }
        items.iter().map(|item| answers.get(item.as_ref()).copied().flatten()).collect()
    }

    /// For each item, then the mark, the answer if it can be trusted; nothing if there is no reply.
    /// Fails if the descriptor may be out of date.
    async fn query(&self, key: &[u8], mark: &str, items: &[&[u8]]) -> Result<Vec<Option<bool>>> {
        if items.is_empty() || !self.may_query(key) {
            return Ok(Vec::new());
        }
        let found = self.reader.send(cmd("BF.MEXISTS").arg((key, items, mark))).await;
        let found: Vec<bool> = match found {
            Err(error) if is_stale(&error) => return Err(error),
            found => found.unwrap_or_default(),
        };
        let is_complete = found.get(items.len()) == Some(&true);
        if !is_complete {
            self.fail(key);
        }
        Ok(found.into_iter().map(|found| (found || is_complete).then_some(found)).collect())
    }

    fn may_query(&self, key: &[u8]) -> bool {
        lock(&self.resume_at).get(key).is_none_or(|&at| at <= Instant::now())
    }

    fn fail(&self, key: &[u8]) {
        *lock(&self.failures) += 1;
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
        let filled = filled.map_err(|why| format!("the next generation cannot be read: {why}"))?;
        for generation in filled {
            // After a rebuild, until its shards are gone.
            let is_old = generation.number < known.descriptor.current.number;
            for (shard, items) in group(generation.shards(), items) {
                known.check_age()?;
                let words = (&generation.keys[shard], "NOCREATE", "ITEMS", items);
                match self.writer.send::<Vec<bool>>(cmd("BF.INSERT").arg(words)).await {
                    // The current shards have the items.
                    Err(error) if is_old && is_gone(&error) => {}
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
    failures(core) -> u64 = *lock(&core.failures);

    /// Of each item true, false (certainly not added) or None (no answer that can be trusted).
    fn has(&self, items: &[impl AsRef<[u8]>]) -> Vec<Option<bool>>;
    /// Adds items to their shards, and while the filter is rebuilt to those of both generations. If
    /// it fails, some may be missing: add them again.
    fn add(&self, items: &[impl AsRef<[u8]>]) -> Result<()>;
    /// Marks the shards as complete, after all items were added.
    fn mark(&self) -> Result<()>;
}
