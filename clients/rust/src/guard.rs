//! A guard in front of a database: a Bloom filter of all keys, queried before the database is.
//!
//! README.md of the library for Python has the protocol, and why it is right.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{Client, Cmd, Connection, FromRedisValue, Script, cmd};

use crate::{bulk, scripts};

const BATCH: usize = 1000;
/// After a failed lookup, how long only the database is queried.
const PAUSE: Duration = Duration::from_secs(1);
/// Without a lookup, after which time the next one first compares the identity of the server.
const VERIFY: Duration = Duration::from_secs(1);
/// Between two heartbeats.
const TICK: Duration = Duration::from_secs(1);
/// Without news of a process with keys for later, after which time a catch-up adds its rows.
const STALE: Duration = Duration::from_secs(60);
/// For each reply to a build.
const JOB_TIMEOUT: Duration = Duration::from_secs(10);

/// What can go wrong: the server, or the database behind `catch_up` and `build`.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// Keys as a database yields them.
pub type Keys = Box<dyn Iterator<Item = Vec<u8>>>;
type CatchUp = Box<dyn Fn(SystemTime) -> Result<Keys, Error> + Send + Sync>;

/// What `insert` does if the server does not take a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnavailable {
    /// It fails: do not write the row.
    Fail,
    /// It succeeds, and the background adds the key when the server is back. Until then lookups of
    /// this guard pass the key on, and other processes hide its row. Needs `catch_up`.
    Later,
}

/// How a guard works. `Options::new(capacity)` has the defaults.
pub struct Options {
    /// Rows to expect until the next build.
    pub capacity: u64,
    /// Of the lookups of absent rows, the share that still reaches the database: 0.001.
    pub error: f64,
    /// The keys of all rows written since then, read from the primary database. Without it, lookups
    /// pass to the database after a restart until the next build.
    pub catch_up: Option<CatchUp>,
    /// `Fail`.
    pub on_unavailable: OnUnavailable,
    /// For a connection, and for each reply to a lookup: 100 ms.
    pub timeout: Duration,
    /// The same for inserts: 1 s.
    pub insert_timeout: Duration,
    /// From the call of `insert`, in which time the row commits, or never will: 5 s.
    pub commit_within: Duration,
    /// By how much `catch_up` is called for older rows, for clocks that differ: 60 s.
    pub margin: Duration,
    /// Catch up that often, for rows that are written past the guard; zero: never.
    pub refresh: Duration,
    /// Takes a message, each kind of failure at most once a second: prints it to standard error.
    pub log: fn(&str),
}

impl Options {
    /// The defaults.
    pub fn new(capacity: u64) -> Self {
        Options {
            capacity,
            error: 0.001,
            catch_up: None,
            on_unavailable: OnUnavailable::Fail,
            timeout: Duration::from_millis(100),
            insert_timeout: Duration::from_secs(1),
            commit_within: Duration::from_secs(5),
            margin: Duration::from_secs(60),
            refresh: Duration::ZERO,
            log: |message| eprintln!("{message}"),
        }
    }
}

/// What happened so far in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lookups of absent rows that did not reach the database.
    pub saved: u64,
    /// Keys for which the database was queried.
    pub passed: u64,
    /// How often the filter gave no answer that could be trusted.
    pub lookup_failures: u64,
    /// Inserts that the filter did not take, whether they failed or wait for later.
    pub insert_failures: u64,
    /// Keys that were added later.
    pub late: u64,
    /// Catch-ups that this guard has made.
    pub catch_ups: u64,
    /// Catch-ups that failed.
    pub catch_up_failures: u64,
    /// Builds that this guard has made.
    pub builds: u64,
}

/// Connections to a server: one at a time, which is replaced after an error. A late reply must not
/// be taken for the next one.
struct Link {
    client: Client,
    timeout: Duration,
    kept: Mutex<Option<Connection>>,
}

impl Link {
    fn new(client: &Client, timeout: Duration) -> Self {
        Link { client: client.clone(), timeout, kept: Mutex::new(None) }
    }

    fn send<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let mut kept = lock(&self.kept);
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => {
                let made = self.client.get_connection_with_timeout(self.timeout)?;
                made.set_read_timeout(Some(self.timeout))?;
                made.set_write_timeout(Some(self.timeout))?;
                made
            }
        };
        let reply = command.query(&mut connection)?;
        *kept = Some(connection);
        Ok(reply)
    }
}

/// What lookups, inserts and the background share.
struct State {
    /// Of the lookup script that a trusted server has; empty if none is known.
    token: String,
    sha: String,
    /// The token whose script the server did not have.
    lost: String,
    resume_at: Instant,
    verify_at: Instant,
    /// By kind, so that the background does not hide what lookups say.
    log_at: HashMap<&'static str, Instant>,
    /// Whether keys may wait: the server knows of this guard with `Later`.
    known: bool,
    /// The keys for later.
    waiting: HashSet<Vec<u8>>,
    stats: Stats,
    closed: bool,
}

struct Core {
    /// Filter, state, new filter, lock: in one slot, because of the braces.
    keys: [String; 4],
    id: String,
    options: Options,
    reader: Link,
    writer: Link,
    job: Link,
    state: Mutex<State>,
    closing: Condvar,
}

impl Core {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Of each key whether its row may exist. Never fails.
    fn possible(&self, keys: &[&[u8]]) -> Vec<bool> {
        // Before the query: afterwards the background may have added a key that the query missed.
        let state = self.state();
        let late: Vec<bool> = keys.iter().map(|key| state.waiting.contains(*key)).collect();
        let paused = Instant::now() < state.resume_at;
        drop(state);
        let found =
            if paused { None } else { self.query(keys).map_err(|error| self.fail(&error)).ok() };
        let possible: Vec<bool> = match found {
            Some(found) => {
                found.bytes().zip(late).map(|(digit, late)| digit != b'0' || late).collect()
            }
            None => vec![true; keys.len()],
        };
        let passed = possible.iter().filter(|&&possible| possible).count() as u64;
        let mut state = self.state();
        state.stats.passed += passed;
        state.stats.saved += keys.len() as u64 - passed;
        possible
    }

    /// Of each key a digit: 1 if the filter has it.
    fn query(&self, keys: &[&[u8]]) -> Result<String, Error> {
        let now = Instant::now();
        let state = self.state();
        let (mut sha, is_verified) =
            (state.sha.clone(), !state.token.is_empty() && now <= state.verify_at);
        drop(state);
        if !is_verified {
            sha = self.verify()?;
        }
        let mut answers = String::new();
        for batch in keys.chunks(BATCH) {
            let mut evalsha = cmd("EVALSHA");
            evalsha.arg(&sha).arg(2).arg(&self.keys[..2]).arg(batch);
            let found: Option<String> = self.reader.send(&evalsha)?;
            answers += &found.ok_or(NOT_TRUSTED)?;
        }
        self.state().verify_at = now + VERIFY;
        Ok(answers)
    }

    /// A failed lookup: whatever it is, the database is queried.
    fn fail(&self, error: &Error) {
        let mut state = self.state();
        let lost = std::mem::take(&mut state.token);
        let is_lost = error.downcast_ref::<redis::RedisError>().and_then(redis::RedisError::code);
        if is_lost == Some("NOSCRIPT") {
            state.lost = lost;
        }
        state.resume_at = Instant::now() + PAUSE;
        state.stats.lookup_failures += 1;
        drop(state);
        self.warn("the filter gave no answer", error);
    }

    /// Learns the token, or makes a new one if the server has forgotten the script of the last one.
    fn verify(&self) -> Result<String, Error> {
        let [_, mut token] =
            self.eval::<[String; 2]>(&self.reader, &scripts::lookup(""), 2, |_| {})?;
        if !token.is_empty() && token == self.state().lost {
            token = self.trust(&self.reader, "", "", "")?;
        }
        if token.is_empty() {
            return Err(NOT_TRUSTED.into());
        }
        let sha = Script::new(&scripts::lookup(&token)).get_hash().to_string();
        let mut state = self.state();
        (state.token, state.sha) = (token, sha.clone());
        Ok(sha)
    }

    fn insert(&self, keys: &[&[u8]]) -> Result<(), Error> {
        let begin = Instant::now();
        let done = self.add(keys).and_then(|_| {
            let in_time = begin.elapsed() <= self.options.commit_within / 2;
            in_time
                .then_some(())
                .ok_or("the filter took so long that a catch-up may miss the row".into())
        });
        done.or_else(|error| {
            let mut state = self.state();
            state.stats.insert_failures += 1;
            if !state.known {
                return Err(error);
            }
            state.waiting.extend(keys.iter().map(|key| key.to_vec()));
            drop(state);
            self.warn("the filter takes keys later", &error);
            Ok(())
        })
    }

    /// Adds keys to the filters that exist; returns the identities of the servers that took them.
    fn add(&self, keys: &[&[u8]]) -> Result<HashSet<String>, Error> {
        let batches = keys.chunks(BATCH);
        let add = |batch| self.eval(&self.writer, scripts::INSERT, 3, |eval| _ = eval.arg(batch));
        batches.map(add).collect()
    }

    fn build(&self, keys: impl FnOnce() -> Result<Keys, Error>) -> Result<(), Error> {
        let Options { capacity, error, commit_within, .. } = self.options;
        let [server, own, begin] =
            self.eval::<[String; 3]>(&self.job, scripts::RESERVE, 3, |eval| {
                eval.arg(error).arg(capacity).arg(milliseconds(SystemTime::now()));
            })?;
        self.sleep(commit_within)?; // now each row is in `keys`, or its key in the new filter
        let mut keys = keys()?.peekable();
        while keys.peek().is_some() {
            let mut command = cmd("BF.BULKADD");
            command
                .arg(&self.keys[2])
                .arg("NOCREATE")
                .arg("LENGTHS")
                .arg(bulk::pack(keys.by_ref().take(BATCH)));
            self.job.send::<redis::Value>(&command)?;
        }
        self.trust(&self.job, &server, &begin, &own)?;
        let mut state = self.state();
        state.stats.builds += 1;
        state.resume_at = Instant::now();
        Ok(())
    }

    /// Late keys, the heartbeat, and a catch-up if one is due.
    fn tick(&self) -> Result<(), Error> {
        // Read before the waiting keys, which are covered up to this time.
        let clock = milliseconds(SystemTime::now());
        let waiting = self.state().waiting.clone();
        let servers = self.add(&waiting.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        let is_later = self.options.on_unavailable == OnUnavailable::Later;
        let covers = match (servers.len(), waiting.is_empty() && is_later) {
            (1, _) => servers.into_iter().next().unwrap_or_default(),
            (_, true) => "all".into(),
            _ => String::new(),
        };
        let refresh = self.options.refresh.as_millis() as u64;
        let reply: Vec<String> = self.eval(&self.writer, scripts::TICK, 4, |eval| {
            eval.arg(clock).arg(&self.id).arg(covers);
            eval.arg(STALE.as_millis() as u64).arg(refresh).arg(self.lease());
        })?;
        let mut state = self.state();
        if reply[0] == "no primary" {
            state.token.clear();
            *lock(&self.writer.kept) = None; // the next connection may reach the new one
        }
        if reply[1] == "1" {
            state.known = true;
            state.stats.late += waiting.len() as u64;
            state.waiting.retain(|key| !waiting.contains(key));
        }
        drop(state);
        if let [_, _, server, since, begin] = &reply[..] {
            let done = self.catch_up(server, since, begin);
            let mut state = self.state();
            match done {
                Ok(()) => {
                    (state.stats.catch_ups, state.resume_at) =
                        (state.stats.catch_ups + 1, Instant::now())
                }
                Err(error) => {
                    state.stats.catch_up_failures += 1;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Adds the keys of the rows that the filter may lack, and trusts it.
    fn catch_up(&self, server: &str, since: &str, begin: &str) -> Result<(), Error> {
        let Some(rows_since) = &self.options.catch_up else { return Ok(()) };
        let since = Duration::from_millis(since.parse()?).saturating_sub(self.options.margin);
        (self.options.log)(&format!(
            "the filter may lack keys since {} s: catching up",
            since.as_secs()
        ));
        self.sleep(2 * self.options.commit_within)?;
        let mut rows = rows_since(UNIX_EPOCH + since)?.peekable();
        while rows.peek().is_some() {
            let batch: Vec<Vec<u8>> = rows.by_ref().take(BATCH).collect();
            self.add(&batch.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
            let mut keep = cmd("SET");
            keep.arg(&self.keys[3]).arg(&self.id).arg("XX").arg("PX").arg(self.lease());
            self.writer.send::<redis::Value>(&keep)?;
        }
        self.trust(&self.writer, server, begin, "").map(drop)
    }

    /// Milliseconds for which the others leave a catch-up to this guard.
    fn lease(&self) -> u64 {
        let lease = (2 * self.options.commit_within + Duration::from_secs(30)).as_millis() as u64;
        if self.options.catch_up.is_some() { lease } else { 0 }
    }

    /// Marks the filter as trusted, by a script that this server process alone has from now on.
    fn trust(&self, link: &Link, server: &str, begin: &str, own: &str) -> Result<String, Error> {
        let token = unique();
        let [process, _] = self.eval::<[String; 2]>(link, &scripts::lookup(&token), 2, |_| {})?;
        let words = [server, begin, &self.id, own, &token, &process];
        self.eval(link, scripts::TRUST, 4, |eval| _ = eval.arg(&words))
    }

    fn eval<T: FromRedisValue>(
        &self,
        link: &Link,
        script: &str,
        keys: usize,
        words: impl FnOnce(&mut Cmd),
    ) -> Result<T, Error> {
        let mut eval = cmd("EVAL");
        eval.arg(script).arg(keys).arg(&self.keys[..keys]);
        words(&mut eval);
        link.send(&eval)
    }

    fn work(&self) {
        loop {
            if let Err(error) = self.tick() {
                self.warn("the background of the guard failed", &error);
            }
            if self.sleep(TICK).is_err() {
                return;
            }
        }
    }

    /// Fails as soon as the guard is closed.
    fn sleep(&self, duration: Duration) -> Result<(), Error> {
        let waited = self.closing.wait_timeout_while(self.state(), duration, |state| !state.closed);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.closed { Err("the guard was closed".into()) } else { Ok(()) }
    }

    /// Logs each kind at most once a second.
    fn warn(&self, what: &'static str, error: &dyn Display) {
        let mut state = self.state();
        let now = Instant::now();
        if state.log_at.get(what).is_none_or(|&log_at| now >= log_at) {
            state.log_at.insert(what, now + Duration::from_secs(1));
            drop(state);
            (self.options.log)(&format!("{what}: {error}"));
        }
    }
}

/// A filter of all keys in front of a database. Lookups never hide a row, and never fail because of
/// the filter. Threads may share it; it has one connection for lookups.
///
/// - `insert` the key first, then write the row, which commits within `commit_within` of the call
///   of `insert` or never. If `insert` fails, do not write the row.
/// - `lookup` queries the database unless there certainly is no row.
/// - README.md of the library for Python has what else the caller must do.
pub struct Guard {
    core: Arc<Core>,
    background: Option<JoinHandle<()>>,
}

impl Guard {
    /// Takes the address and the credentials of `client`, with connections and timeouts of its own.
    pub fn new(client: &Client, name: &str, options: Options) -> Result<Guard, Error> {
        let needs_catch_up =
            options.on_unavailable == OnUnavailable::Later || !options.refresh.is_zero();
        if name.is_empty() || (needs_catch_up && options.catch_up.is_none()) {
            return Err("a guard needs a name; Later and refresh need catch_up".into());
        }
        let now = Instant::now();
        let state = State {
            token: String::new(),
            sha: String::new(),
            lost: String::new(),
            resume_at: now,
            verify_at: now,
            log_at: HashMap::new(),
            known: false,
            waiting: HashSet::new(),
            stats: Stats::default(),
            closed: false,
        };
        let core = Arc::new(Core {
            keys: ["", ":state", ":new", ":lock"].map(|end| format!("guard:{{{name}}}{end}")),
            id: unique(),
            reader: Link::new(client, options.timeout),
            writer: Link::new(client, options.insert_timeout),
            job: Link::new(client, JOB_TIMEOUT.max(options.insert_timeout)),
            options,
            state: Mutex::new(state),
            closing: Condvar::new(),
        });
        let has_background = core.options.catch_up.is_some();
        let worker = Arc::clone(&core);
        let background = has_background.then(|| std::thread::spawn(move || worker.work()));
        Ok(Guard { core, background })
    }

    /// `fetch(key)`, or None without a call of it if the row certainly does not exist.
    pub fn lookup<K: AsRef<[u8]>, Row>(
        &self,
        key: K,
        fetch: impl FnOnce(K) -> Option<Row>,
    ) -> Option<Row> {
        if self.core.possible(&[key.as_ref()])[0] { fetch(key) } else { None }
    }

    /// Those of the keys whose rows may exist.
    pub fn possible<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<K> {
        let keys: Vec<K> = keys.into_iter().collect();
        let possible = self.core.possible(&keys.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        keys.into_iter()
            .zip(possible)
            .filter_map(|(key, possible)| possible.then_some(key))
            .collect()
    }

    /// Adds a key before its row is written. If it fails, do not write the row: try again.
    pub fn insert(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        self.core.insert(&[key.as_ref()])
    }

    /// Fills a new filter with all keys and puts it in the place of the old one. If it fails, the
    /// old one stays. `keys` must read the database when it is called, not before. Run it again
    /// before the filter holds more than `capacity`, or if many rows were deleted.
    pub fn build(&self, keys: impl FnOnce() -> Result<Keys, Error>) -> Result<(), Error> {
        self.core.build(keys)
    }

    /// What happened so far in this process.
    pub fn stats(&self) -> Stats {
        self.core.state().stats
    }
}

/// Ends the background; adds late keys if the server is there.
impl Drop for Guard {
    fn drop(&mut self) {
        self.core.state().closed = true;
        self.core.closing.notify_all();
        if let Some(background) = self.background.take() {
            drop(background.join());
        }
        if self.core.state().known
            && self.core.tick().is_ok()
            && self.core.state().waiting.is_empty()
        {
            let mut leave = cmd("HDEL");
            leave.arg(&self.core.keys[1]).arg(format!("late:{}", self.core.id));
            drop(self.core.writer.send::<redis::Value>(&leave));
        }
    }
}

const NOT_TRUSTED: &str = "the filter is not trusted, or there is none";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 32 hexadecimal digits that no other call returns, in any process, because `RandomState` has random
/// keys.
fn unique() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
