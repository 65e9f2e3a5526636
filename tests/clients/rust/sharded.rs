//! A guard and a crawler on a sharded filter, which docs/sharding.md specifies.

use redis::cluster::{ClusterClient, ClusterConnection};
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Cmd, FromRedisValue, RedisResult, Value, cmd, from_redis_value};
use std::collections::HashMap;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Begins the items that are added last: without its one, a shard's "no" is not believed.
const COMPLETE: &str = "filter: complete";
/// How long a shard, or the descriptor, is not asked for after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// What `Database::insert` can take: its timeout, connecting and commit included.
const LONGEST_TRANSACTION: Duration = Duration::from_secs(2);
/// How many replicas must have a key before its row is written.
const REPLICAS: usize = 1;
/// Seconds that a crawler has for a page.
const LEASE: u32 = 600;
/// An error of this program.
const TOO_OLD: &str = "the descriptor is too old";

pub fn shard_of(item: &str, shards: usize) -> usize {
    ((u64::from(crc32fast::hash(item.as_bytes())) * shards as u64) >> 32) as usize
}

/// For each shard the item that marks it as complete: `filter: complete K` with the smallest K of
/// that shard.
pub fn markers(shards: usize) -> Vec<String> {
    let mut found = vec![String::new(); shards];
    let (mut missing, mut number) = (shards, 0);
    while missing > 0 {
        let item = format!("{COMPLETE} {number}");
        let shard = shard_of(&item, shards);
        if found[shard].is_empty() {
            found[shard] = item;
            missing -= 1;
        }
        number += 1;
    }
    found
}

/// A connection to a cluster. It is made when it is needed, and anew after a failure and after a
/// slot has moved: redis-rs does not ask the other nodes who has taken over from one that is gone.
struct Link {
    client: ClusterClient,
    kept: Option<ClusterConnection>,
}

impl Link {
    /// Waits at most `timeout` to connect and for each reply. Without `retries(0)` redis-rs sends
    /// a command again after a timeout, on the same connection, and takes the late reply for the
    /// next one.
    fn new(nodes: &[String], timeout: Duration) -> RedisResult<Self> {
        let client = ClusterClient::builder(nodes.iter().map(String::as_str))
            .connection_timeout(timeout)
            .response_timeout(timeout)
            .retries(0)
            .build()?;
        Ok(Link { client, kept: None })
    }

    /// The reply of the node that has the key.
    fn send<T: FromRedisValue>(&mut self, key: &str, command: &Cmd) -> RedisResult<T> {
        let mut reply = self.send_once(key, command);
        if matches!(&reply, Err(error) if error.code() == Some("MOVED")) {
            self.kept = None;
            reply = self.send_once(key, command);
        }
        Ok(from_redis_value(reply?)?)
    }

    fn send_once(&mut self, key: &str, command: &Cmd) -> RedisResult<Value> {
        let mut connection = match self.kept.take() {
            Some(kept) => kept,
            None => self.client.get_connection()?,
        };
        let primary = SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master));
        let mut reply = connection.route_command(command, RoutingInfo::SingleNode(primary));
        if let Err(error) = &reply
            && error.code() == Some("ASK")
            && let Some((host, port)) =
                error.redirect_node().and_then(|(node, _)| node.rsplit_once(':'))
            && let Ok(port) = port.parse()
        {
            let node = SingleNodeRoutingInfo::ByAddress { host: host.to_string(), port };
            let node = RoutingInfo::SingleNode(node);
            connection.route_command(&cmd("ASKING"), node.clone())?;
            reply = connection.route_command(command, node);
        }
        // An error without a code is not from a server: a late reply must not be read as the next.
        if !matches!(&reply, Err(error) if error.code().is_none()) {
            self.kept = Some(connection);
        }
        reply
    }
}

/// The shards of one generation: of each its key and the item that marks it as complete.
struct Shards {
    generation: u64,
    shards: Vec<(String, String)>,
}

impl Shards {
    fn new(fields: &HashMap<String, String>, prefix: &str) -> Result<Self, String> {
        let field = |name: &str| {
            let name = format!("{prefix}{name}");
            fields.get(&name).cloned().ok_or(format!("field {name} is missing"))
        };
        let number = |name: &str, most: u64| {
            let text = field(name)?;
            let number = text.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or(format!("{prefix}{name} is {text}"))
        };
        let count = number("shards", 1024)?;
        let generation = number("generation", u64::MAX)?;
        // These two have no use here, but a hash without them is damaged.
        number("capacity", u64::MAX)?;
        let rate = field("error")?;
        if !rate.parse().is_ok_and(|rate: f64| rate > 0.0 && rate < 1.0) {
            return Err(format!("{prefix}error is {rate}"));
        }
        let marks = markers(count as usize).into_iter().enumerate();
        let shards = marks.map(|(i, mark)| Ok((field(&i.to_string())?, mark)));
        Ok(Shards { generation, shards: shards.collect::<Result<_, String>>()? })
    }

    /// The items by shard, as their numbers.
    fn group(&self, items: &[&str], numbers: &[usize]) -> Vec<(String, String, Vec<usize>)> {
        let mut groups = HashMap::<usize, Vec<usize>>::new();
        for &number in numbers {
            groups.entry(shard_of(items[number], self.shards.len())).or_default().push(number);
        }
        let with_key = |(shard, numbers): (usize, _)| {
            let (key, mark) = self.shards[shard].clone();
            (key, mark, numbers)
        };
        groups.into_iter().map(with_key).collect()
    }
}

struct Descriptor {
    current: Shards,
    /// After a rebuild the generation before, until its shards are gone: old clients ask those.
    next: Option<Shards>,
    /// Why nothing may be added.
    damage: Option<String>,
    base: Option<String>,
    poll: Duration,
    read_at: Instant,
}

impl Descriptor {
    fn new(fields: &HashMap<String, String>, read_at: Instant) -> Result<Self, String> {
        let field = |name: &str| fields.get(name).map(String::as_str);
        let (rule, state) = (field("rule"), field("state"));
        if (rule, state) != (Some("crc32"), Some("ready")) {
            let what = format!("rule {rule:?}, state {state:?}");
            return Err(format!("no filter that this client can use: {what}"));
        }
        let next = match field("next.rule") {
            _ if !fields.keys().any(|name| name.starts_with("next.")) => Ok(None),
            None | Some("crc32") => Shards::new(fields, "next.").map(Some),
            Some(rule) => Err(format!("next.rule is {rule}")),
        };
        // If it cannot be read, a rebuild might lose what is added now.
        let why = |error| format!("the next generation cannot be read: {error}");
        let damage = next.as_ref().err().map(why);
        let poll = field("poll").and_then(|poll| poll.parse().ok()).filter(|poll| *poll > 0);
        Ok(Descriptor {
            current: Shards::new(fields, "")?,
            next: next.ok().flatten(),
            damage,
            base: field("base").map(str::to_string),
            poll: Duration::from_secs(poll.unwrap_or(10)),
            read_at,
        })
    }

    /// Whoever rebuilds the filter counts on every addition to be done by then.
    fn check_age(&self) -> Result<(), Box<dyn Error>> {
        if self.read_at.elapsed() > 2 * self.poll { Err(TOO_OLD.into()) } else { Ok(()) }
    }
}

/// Whether a filter is gone: lost, or an old shard after a rebuild.
fn is_gone(error: &(impl Error + ?Sized)) -> bool {
    let text = error.to_string();
    text.contains("WRONGTYPE") || text.contains("not found")
}

/// Whether an error may come from a descriptor that is out of date.
fn is_stale(error: &(impl Error + ?Sized)) -> bool {
    let text = error.to_string();
    is_gone(error) || text.contains("belongs to shard") || text == TOO_OLD
}

/// A sharded filter. One for each thread.
pub struct Sharded {
    /// How often the filter gave no answer: a metric to watch.
    pub failures: usize,
    name: String,
    reader: Link,
    writer: Link,
    descriptor: Option<Rc<Descriptor>>,
    /// By key: when it may be asked again.
    resume_at: HashMap<String, Instant>,
}

impl Sharded {
    /// A filter by its name, in the cluster of these nodes.
    ///
    /// # Panics
    /// If `shard_of` does not follow the rule.
    pub fn new(name: &str, nodes: &[String]) -> RedisResult<Self> {
        for (item, shards, shard) in [("a", 8, 7), ("user:1", 1000, 482), ("münchen", 128, 34)] {
            assert_eq!(shard_of(item, shards), shard, "shard_of({item:?}, {shards})");
        }
        Ok(Sharded {
            failures: 0,
            name: name.to_string(),
            reader: Link::new(nodes, Duration::from_millis(100))?,
            writer: Link::new(nodes, Duration::from_secs(1))?,
            descriptor: None,
            resume_at: HashMap::new(),
        })
    }

    /// The descriptor, read again if this one is older than `age`, or than its `poll`. Fails if it
    /// cannot be had or used.
    fn read(
        &mut self,
        write: bool,
        age: Option<Duration>,
    ) -> Result<Rc<Descriptor>, Box<dyn Error>> {
        let now = Instant::now();
        if let Some(descriptor) = &self.descriptor
            && now - descriptor.read_at < age.unwrap_or(descriptor.poll)
        {
            return Ok(Rc::clone(descriptor));
        }
        let link = if write { &mut self.writer } else { &mut self.reader };
        let fields = link.send(&self.name, cmd("HGETALL").arg(&self.name))?;
        self.descriptor = None; // if the new one cannot be used, the old one must not be
        let descriptor = Rc::new(Descriptor::new(&fields, now)?);
        self.descriptor = Some(Rc::clone(&descriptor));
        Ok(descriptor)
    }

    /// For each item whether it is in the filter; `None` if there is no answer.
    pub fn ask(&mut self, items: &[&str]) -> Vec<Option<bool>> {
        let (mut answers, mut stale) = (vec![None; items.len()], Vec::new());
        let all: Vec<_> = (0..items.len()).collect();
        self.ask_once(items, &all, &mut answers, None, Some(&mut stale));
        if !stale.is_empty() {
            self.ask_once(items, &stale, &mut answers, Some(Duration::ZERO), None);
        }
        answers
    }

    /// Puts answers into `answers`, and into `stale` the numbers of the items to ask again, with a
    /// descriptor that is read again.
    fn ask_once(
        &mut self,
        items: &[&str],
        numbers: &[usize],
        answers: &mut [Option<bool>],
        age: Option<Duration>,
        mut stale: Option<&mut Vec<usize>>,
    ) {
        if self.may_ask(&self.name)
            && let Err(error) = self.read(false, age)
        {
            self.fail(&self.name.clone(), &error.to_string());
        }
        // If it could not be had, the one that was read last: its shards answer for themselves.
        let Some(descriptor) = self.descriptor.clone() else { return };
        for (key, mark, group) in descriptor.current.group(items, numbers) {
            self.ask_filter(&key, &mark, items, &group, answers, stale.as_deref_mut());
        }
        let absent = |number: &usize| answers[*number] == Some(false);
        let absent: Vec<_> = numbers.iter().copied().filter(absent).collect();
        if let Some(base) = descriptor.base.as_ref().filter(|_| !absent.is_empty()) {
            self.ask_filter(base, COMPLETE, items, &absent, answers, stale);
        }
    }

    fn ask_filter(
        &mut self,
        key: &str,
        mark: &str,
        items: &[&str],
        numbers: &[usize],
        answers: &mut [Option<bool>],
        stale: Option<&mut Vec<usize>>,
    ) {
        for &number in numbers {
            answers[number] = None;
        }
        if !self.may_ask(key) {
            return;
        }
        let mut question = cmd("BF.MEXISTS");
        question.arg(key).arg(numbers.iter().map(|&number| items[number]).collect::<Vec<_>>());
        match self.reader.send::<Vec<bool>>(key, question.arg(mark)) {
            Ok(found) => {
                let complete = found[numbers.len()];
                for (&number, found) in numbers.iter().zip(found) {
                    answers[number] = if found || complete { Some(found) } else { None };
                }
                if !complete {
                    self.fail(key, "it is lost, or not complete");
                }
            }
            Err(error) => match stale.filter(|_| is_stale(&error)) {
                Some(stale) => stale.extend(numbers),
                None => self.fail(key, &error.to_string()),
            },
        }
    }

    fn may_ask(&self, key: &str) -> bool {
        self.resume_at.get(key).is_none_or(|at| *at <= Instant::now())
    }

    /// Notes that a key gave no answer, and leaves it alone for a while.
    fn fail(&mut self, key: &str, problem: &str) {
        self.failures += 1;
        self.resume_at.insert(key.to_string(), Instant::now() + PAUSE);
        eprintln!("{key} gave no answer: {problem}");
    }

    /// Adds items; returns the `poll` of the descriptor that says where. If it fails, some may be
    /// missing: try again.
    pub fn add(&mut self, items: &[&str], replicas: usize) -> Result<Duration, Box<dyn Error>> {
        match self.add_once(items, replicas, None) {
            Err(error) if is_stale(&*error) => self.add_once(items, replicas, Some(Duration::ZERO)),
            result => result,
        }
    }

    fn add_once(
        &mut self,
        items: &[&str],
        replicas: usize,
        age: Option<Duration>,
    ) -> Result<Duration, Box<dyn Error>> {
        let descriptor = self.read(true, age)?;
        if let Some(damage) = &descriptor.damage {
            return Err(damage.as_str().into());
        }
        let all: Vec<_> = (0..items.len()).collect();
        let current = &descriptor.current;
        for (key, _, group) in current.group(items, &all) {
            descriptor.check_age()?;
            self.insert(&key, items, &group, replicas)?;
        }
        if let Some(next) = &descriptor.next {
            for (key, _, group) in next.group(items, &all) {
                descriptor.check_age()?;
                match self.insert(&key, items, &group, replicas) {
                    // An old shard is gone, and the current ones have the items.
                    Err(error) if next.generation < current.generation && is_gone(&*error) => {}
                    result => result?,
                }
            }
        }
        descriptor.check_age()?;
        Ok(descriptor.poll)
    }

    fn insert(
        &mut self,
        key: &str,
        items: &[&str],
        numbers: &[usize],
        replicas: usize,
    ) -> Result<(), Box<dyn Error>> {
        let mut insert = cmd("BF.INSERT");
        insert.arg(key).arg("NOCREATE").arg("ITEMS");
        insert.arg(numbers.iter().map(|&number| items[number]).collect::<Vec<_>>());
        self.writer.send::<Vec<bool>>(key, &insert)?;
        if replicas == 0 {
            return Ok(());
        }
        // WAIT waits for what its connection has written, and BF.INSERT writes nothing if the
        // filter has the items.
        let (slot, _) = key.split_once('}').unwrap_or((key, ""));
        let write = cmd("SET").arg(format!("{slot}}}:wait")).arg(1).arg("EX").arg(60).to_owned();
        self.writer.send::<()>(key, &write)?;
        let wait = cmd("WAIT").arg(replicas).arg(500).to_owned();
        if self.writer.send::<usize>(key, &wait)? < replicas {
            return Err("too few replicas have the items".into());
        }
        Ok(())
    }
}

/// What the guard stands in front of.
pub trait Database {
    fn get(&mut self, key: &str) -> Option<String>;
    fn insert(&mut self, key: &str, value: &str);
}

/// Asks the database only for keys that the filter has, or gives no answer for.
pub struct Guard<D> {
    pub filter: Sharded,
    pub database: D,
}

impl<D: Database> Guard<D> {
    /// The row of the key.
    pub fn lookup(&mut self, key: &str) -> Option<String> {
        if self.filter.ask(&[key]) == [Some(false)] { None } else { self.database.get(key) }
    }

    /// Adds the key to the filter, then the row to the database. If it fails, the row may be
    /// missing: try again.
    pub fn insert(&mut self, key: &str, value: &str) -> Result<(), Box<dyn Error>> {
        let begin = Instant::now();
        let poll = self.filter.add(&[key], REPLICAS)?;
        if begin.elapsed() + LONGEST_TRANSACTION > poll {
            return Err("the filter took so long that a rebuild may miss the row".into());
        }
        self.database.insert(key, value);
        Ok(())
    }
}

/// Claims pages that nobody has fetched, as docs/recipes/crawler.md does on a filter in one key.
pub struct Crawler {
    pub filter: Sharded,
    claims: Link,
}

impl Crawler {
    pub fn new(filter: Sharded, nodes: &[String]) -> RedisResult<Self> {
        Ok(Crawler { filter, claims: Link::new(nodes, Duration::from_secs(1))? })
    }

    /// Which of the URLs, all different, are the caller's to fetch, for LEASE seconds, and which to
    /// offer again later.
    pub fn claim(&mut self, urls: &[&str]) -> (Vec<String>, Vec<String>) {
        let (mut mine, mut fetch, mut later) = (vec![], vec![], vec![]);
        for &url in urls {
            let (key, mut claim) = (format!("claim:{url}"), cmd("SET"));
            claim.arg(&key).arg("mine").arg("NX").arg("EX").arg(LEASE);
            match self.claims.send::<Option<String>>(&key, &claim) {
                Ok(Some(_)) => mine.push(url),
                Ok(None) => {}
                Err(_) => later.push(url.to_string()),
            }
        }
        // After the claim: whoever ends one has marked the page before.
        for (url, answer) in mine.iter().zip(self.filter.ask(&mine)) {
            match answer {
                Some(false) => {
                    fetch.push(url.to_string());
                    continue;
                }
                Some(true) => {}
                None => later.push(url.to_string()),
            }
            self.release(url);
        }
        (fetch, later)
    }

    /// Marks a page after it was fetched and its results are stored. If it fails, try again within
    /// LEASE.
    pub fn fetched(&mut self, url: &str) -> Result<(), Box<dyn Error>> {
        self.filter.add(&[url], 0)?;
        self.release(url);
        Ok(())
    }

    fn release(&mut self, url: &str) {
        let key = format!("claim:{url}");
        // If it fails, the claim ends by itself after LEASE.
        let _: RedisResult<i64> = self.claims.send(&key, cmd("UNLINK").arg(&key));
    }
}
