//! A guard in front of a database: a Bloom filter of all keys, queried before the database is.
//!
//! docs/internals/guard.md has the protocol, and why it is right.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{FromRedisValue, Script, ToRedisArgs, cmd};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::bulk;
use crate::link::{Error, Link, Result, Servers, lock, now};
use crate::twins::twins;

const BATCH: usize = 1000;
/// After a failed lookup, how long only the database is queried.
const PAUSE: Duration = Duration::from_secs(1);
/// After this time without a lookup, the next one first compares the identity of the server.
const VERIFY: Duration = Duration::from_secs(1);
/// Between two heartbeats.
const TICK: Duration = Duration::from_secs(1);
/// After this time without news of a process with keys for later, a catch-up adds its rows.
const STALE: Duration = Duration::from_secs(60);
/// How long the end of a guard waits for its background, whose `catch_up` may hang.
const CLOSE: Duration = Duration::from_secs(2);
/// For each reply to a build.
const JOB_TIMEOUT: Duration = Duration::from_secs(10);

/// Keys as a database yields them.
pub type Keys = Box<dyn Iterator<Item = Vec<u8>> + Send>;
type Later = Pin<Box<dyn Future<Output = Result<Keys>> + Send>>;
type RowsSince = Box<dyn Fn(SystemTime) -> Later + Send + Sync>;

/// What `insert` does if the server does not take a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Whether it is for an `AsyncGuard`, and the callback.
    catch_up: Option<(bool, RowsSince)>,
    /// `Fail`.
    pub on_unavailable: OnUnavailable,
    /// For a connection, and for each reply to a lookup: 100 ms.
    pub timeout: Duration,
    /// The same for inserts: 1 s.
    pub insert_timeout: Duration,
    /// A row commits within this time from the call of `insert`, or never: 5 s.
    pub commit_within: Duration,
    /// A row is older than the call of its insert by this time at most: 60 s. The time that
    /// `catch_up` gets is earlier by this margin.
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

    /// The keys of all rows written since a time, read from the primary database. Without it,
    /// lookups pass to the database after a restart until the next build.
    pub fn catch_up(
        mut self,
        rows_since: impl Fn(SystemTime) -> Result<Keys> + Send + Sync + 'static,
    ) -> Self {
        let ready = move |since| -> Later { Box::pin(std::future::ready(rows_since(since))) };
        self.catch_up = Some((false, Box::new(ready)));
        self
    }

    /// `catch_up` for `AsyncGuard`, whose task must not block. So the keys should be in memory.
    pub fn catch_up_async<F: Future<Output = Result<Keys>> + Send + 'static>(
        mut self,
        rows_since: impl Fn(SystemTime) -> F + Send + Sync + 'static,
    ) -> Self {
        self.catch_up = Some((true, Box::new(move |since| Box::pin(rows_since(since)))));
        self
    }
}

/// What happened so far in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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

/// What lookups, inserts and the background share.
#[derive(Default)]
struct State {
    /// Of the lookup script that a trusted server has; empty if none is known.
    token: String,
    sha: String,
    /// The token whose script the server did not have.
    lost: String,
    /// Until then only the database is queried.
    resume_at: Option<Instant>,
    /// From then on the identity of the server is compared first.
    verify_at: Option<Instant>,
    /// By kind, so that the background does not hide what lookups say.
    log_at: HashMap<&'static str, Instant>,
    /// Whether keys may wait: the server knows of this guard with `Later`.
    known: bool,
    /// The keys for later.
    waiting: HashSet<Vec<u8>>,
    stats: Stats,
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
    /// The background holds a receiver.
    closed: watch::Sender<bool>,
    /// Of a background that is a task.
    task: OnceLock<AbortHandle>,
}

impl Core {
    fn new(servers: &Servers, name: &str, is_async: bool, options: Options) -> Result<Arc<Self>> {
        if options.catch_up.as_ref().is_some_and(|&(awaits, _)| awaits != is_async) {
            return Err("a Guard needs catch_up, and an AsyncGuard catch_up_async".into());
        }
        let needs_catch_up =
            options.on_unavailable == OnUnavailable::Later || !options.refresh.is_zero();
        if name.is_empty() || (needs_catch_up && options.catch_up.is_none()) {
            return Err("a guard needs a name; Later and refresh need catch_up".into());
        }
        let core = Arc::new(Core {
            keys: ["", ":state", ":new", ":lock"].map(|end| format!("guard:{{{name}}}{end}")),
            id: unique(),
            reader: Link::new(servers, options.timeout, is_async)?,
            writer: Link::new(servers, options.insert_timeout, is_async)?,
            job: Link::new(servers, JOB_TIMEOUT.max(options.insert_timeout), is_async)?,
            options,
            state: Mutex::default(),
            closed: watch::Sender::new(false),
            task: OnceLock::new(),
        });
        if core.options.catch_up.is_some() {
            let (worker, working) = (Arc::clone(&core), core.closed.subscribe());
            let work = async move {
                worker.work().await;
                drop(working);
            };
            if is_async {
                drop(core.task.set(tokio::spawn(work).abort_handle()));
            } else {
                std::thread::spawn(|| now(work));
            }
        }
        Ok(core)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The keys whose rows may exist. Never fails.
    async fn possible<K: AsRef<[u8]>>(&self, mut keys: Vec<K>) -> Vec<K> {
        let words: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        // Before the query: afterwards the background may have added a key that the query missed.
        let (late, is_paused): (Vec<bool>, _) = {
            let state = self.state();
            let late = words.iter().map(|word| state.waiting.contains(*word));
            (late.collect(), state.resume_at.is_some_and(|at| Instant::now() < at))
        };
        let is_needed = !is_paused && !words.is_empty();
        let found = if is_needed { self.query(&words).await } else { Ok(String::new()) };
        let asked = keys.len();
        match found {
            Ok(found) => {
                let mut absent =
                    found.bytes().zip(late).map(|(digit, late)| digit == b'0' && !late);
                keys.retain(|_| absent.next() != Some(true));
            }
            Err(error) => self.fail(&error),
        }
        let mut state = self.state();
        state.stats.passed += keys.len() as u64;
        state.stats.saved += (asked - keys.len()) as u64;
        keys
    }

    /// Of each key a digit: 1 if the filter has it.
    async fn query(&self, keys: &[&[u8]]) -> Result<String> {
        let now = Instant::now();
        let (mut sha, is_verified) = {
            let state = self.state();
            let in_time = state.verify_at.is_some_and(|at| now <= at);
            (state.sha.clone(), !state.token.is_empty() && in_time)
        };
        if !is_verified {
            sha = self.verify().await?;
        }
        let mut answers = String::new();
        for batch in keys.chunks(BATCH) {
            let mut evalsha = cmd("EVALSHA");
            evalsha.arg(&sha).arg(2).arg(&self.keys[..2]).arg(batch);
            let found: Option<String> = self.reader.send(&evalsha).await?;
            answers += &found.ok_or(NOT_TRUSTED)?;
        }
        self.state().verify_at = Some(now + VERIFY);
        Ok(answers)
    }

    /// A failed lookup: whatever it is, the database is queried.
    fn fail(&self, error: &Error) {
        let mut state = self.state();
        let lost = std::mem::take(&mut state.token);
        let is_lost = error.downcast_ref::<redis::RedisError>().and_then(redis::RedisError::code);
        // Empty: another lookup has found it before.
        if is_lost == Some("NOSCRIPT") && !lost.is_empty() {
            state.lost = lost;
        }
        state.resume_at = Some(Instant::now() + PAUSE);
        state.stats.lookup_failures += 1;
        drop(state);
        self.warn("the filter gave no answer", error);
    }

    /// Learns the token, or makes a new one if the server has forgotten the script of the last one.
    async fn verify(&self) -> Result<String> {
        let [_, mut token] = self.identity(&self.reader, "").await?;
        let is_lost = !token.is_empty() && token == self.state().lost;
        if is_lost {
            token = self.trust(&self.reader, "", "", "").await?;
        }
        if token.is_empty() {
            return Err(NOT_TRUSTED.into());
        }
        let sha = Script::new(&lookup_script(&token)).get_hash().to_string();
        let mut state = self.state();
        (state.token, state.sha) = (token, sha.clone());
        Ok(sha)
    }

    async fn insert(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        let begin = Instant::now();
        let done = self.add(&[key]).await.and_then(|_| {
            let in_time = begin.elapsed() <= self.options.commit_within / 2;
            in_time.then_some(()).ok_or(TOO_LATE.into())
        });
        done.or_else(|error| {
            let mut state = self.state();
            state.stats.insert_failures += 1;
            if !state.known {
                return Err(error);
            }
            state.waiting.insert(key.to_vec());
            drop(state);
            self.warn("the filter takes keys later", &error);
            Ok(())
        })
    }

    /// Adds keys to the filters that exist; returns the identities of the servers that took them.
    async fn add(&self, keys: &[impl ToRedisArgs + Sync]) -> Result<HashSet<String>> {
        let mut servers = HashSet::new();
        for batch in keys.chunks(BATCH) {
            servers.insert(self.eval(&self.writer, &script("insert"), 3, batch).await?);
        }
        Ok(servers)
    }

    async fn build(&self, keys: impl Future<Output = Result<Keys>>) -> Result<()> {
        let Options { capacity, error, commit_within, .. } = self.options;
        let words = (error, capacity, milliseconds(SystemTime::now()));
        let [server, own, begin] =
            self.eval::<[String; 3]>(&self.job, &script("reserve"), 3, words).await?;
        self.sleep(commit_within).await?; // now each row is in `keys`, or its key in the new filter
        for batch in bulk::add(&self.keys[2], keys.await?, &["NOCREATE"]) {
            self.job.query(&batch).await?;
        }
        self.trust(&self.job, &server, &begin, &own).await?;
        let mut state = self.state();
        state.stats.builds += 1;
        state.resume_at = None;
        Ok(())
    }

    /// Late keys, the heartbeat, and a catch-up if one is due.
    async fn tick(&self) -> Result<()> {
        // Read before the waiting keys, which are covered up to this time.
        let clock = milliseconds(SystemTime::now());
        let waiting: Vec<Vec<u8>> = self.state().waiting.iter().cloned().collect();
        let servers = self.add(&waiting).await?;
        let is_later = self.options.on_unavailable == OnUnavailable::Later;
        let covers = match (servers.len(), waiting.is_empty() && is_later) {
            (1, _) => servers.into_iter().next().unwrap_or_default(),
            (_, true) => "all".into(),
            _ => String::new(),
        };
        let [stale, refresh] = [STALE, self.options.refresh].map(|span| span.as_millis() as u64);
        // A guard that ends makes no catch-up: the others would wait for it.
        let lease = if *self.closed.borrow() { 0 } else { self.lease() };
        let words = (clock, &self.id, covers, stale, refresh, lease);
        let reply: Vec<String> = self.eval(&self.writer, &script("tick"), 4, words).await?;
        if reply[0] == "no primary" {
            self.state().token.clear();
            self.writer.leave();
        }
        if reply[1] == "1" {
            let mut state = self.state();
            state.known = true;
            state.stats.late += waiting.len() as u64;
            for key in waiting {
                state.waiting.remove(&key);
            }
        }
        if let [_, _, server, since, begin] = &reply[..] {
            // A panic of the callback is an error: without its background a guard never catches up.
            let mut catch_up = pin!(self.catch_up(server, since, begin));
            let done = poll_fn(|context| {
                catch_unwind(AssertUnwindSafe(|| catch_up.as_mut().poll(context)))
                    .unwrap_or_else(|_| Poll::Ready(Err("catch_up panicked".into())))
            });
            let done = done.await;
            self.state().stats.catch_up_failures += u64::from(done.is_err());
            return done;
        }
        Ok(())
    }

    /// Adds the keys of the rows that the filter may lack, and trusts it.
    async fn catch_up(&self, server: &str, since: &str, begin: &str) -> Result<()> {
        let Some((_, rows_since)) = &self.options.catch_up else { return Ok(()) };
        let Options { margin, commit_within, log, .. } = self.options;
        // An insert in flight takes `commit_within` at most.
        let since = Duration::from_millis(since.parse()?).saturating_sub(margin);
        let since = since.saturating_sub(commit_within);
        log(&format!("the filter may lack keys since {} s: catching up", since.as_secs()));
        self.sleep(2 * commit_within).await?;
        let mut rows = rows_since(UNIX_EPOCH + since).await?.peekable();
        while rows.peek().is_some() {
            let batch: Vec<Vec<u8>> = rows.by_ref().take(BATCH).collect();
            self.add(&batch).await?;
            let mut keep = cmd("SET");
            keep.arg(&self.keys[3]).arg(&self.id).arg("XX").arg("PX").arg(self.lease());
            self.writer.query(&keep).await?;
        }
        self.trust(&self.writer, server, begin, "").await?;
        let mut state = self.state();
        state.stats.catch_ups += 1;
        state.resume_at = None;
        Ok(())
    }

    /// Milliseconds for which the others leave a catch-up to this guard; 0: it makes none.
    fn lease(&self) -> u64 {
        let lease = (2 * self.options.commit_within + Duration::from_secs(30)).as_millis() as u64;
        if self.options.catch_up.is_some() { lease } else { 0 }
    }

    /// Marks the filter as trusted, by a script that this server process alone has: a new one if
    /// `server` is empty.
    async fn trust(&self, link: &Link, server: &str, begin: &str, own: &str) -> Result<String> {
        let [mut process, mut token] = self.identity(link, "").await?;
        if server.is_empty() || token.is_empty() {
            token = unique();
            [process, _] = self.identity(link, &token).await?;
        }
        let words = [server, begin, &self.id, own, &token, &process];
        self.eval(link, &script("trust"), 4, &words).await
    }

    /// The identity of the server, and the token in use. From then on the server has the script of
    /// `token`.
    async fn identity(&self, link: &Link, token: &str) -> Result<[String; 2]> {
        self.eval(link, &lookup_script(token), 2, None::<&str>).await
    }

    async fn eval<T: FromRedisValue>(
        &self,
        link: &Link,
        script: &str,
        keys: usize,
        words: impl ToRedisArgs + Send,
    ) -> Result<T> {
        link.send(cmd("EVAL").arg(script).arg(keys).arg(&self.keys[..keys]).arg(words)).await
    }

    async fn work(&self) {
        loop {
            if let Err(error) = self.tick().await {
                self.warn("the background of the guard failed", &error);
            }
            if self.sleep(TICK).await.is_err() {
                return;
            }
        }
    }

    /// Fails if the guard was closed.
    async fn sleep(&self, duration: Duration) -> Result<()> {
        let mut closed = self.closed.subscribe();
        let closed = async { timeout(duration, closed.wait_for(|is_closed| *is_closed)).await };
        self.job.run(closed).await.map_or(Ok(()), |_| Err("the guard was closed".into()))
    }

    /// Ends the background, and adds late keys if the server is there.
    async fn close(&self) {
        self.closed.send_replace(true);
        drop(self.job.run(async { timeout(CLOSE, self.closed.closed()).await }).await);
        let known = self.state().known;
        if known && self.tick().await.is_ok() && self.state().waiting.is_empty() {
            let mut leave = cmd("HDEL");
            leave.arg(&self.keys[1]).arg(format!("late:{}", self.id));
            drop(self.writer.query(&leave).await);
        }
    }

    fn stats(&self) -> Stats {
        self.state().stats
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

twins! {
    /// A filter of all keys in front of a database. Lookups never hide a row, and never fail
    /// because of the filter. Threads may share it, and so may tasks an [`AsyncGuard`].
    ///
    /// - `insert` the key first, then write the row, which commits within `commit_within` of the
    ///   call of `insert` or never. If `insert` fails, do not write the row.
    /// - `lookup` queries the database unless there certainly is no row.
    /// - README.md of the library for Python has what else the caller must do.
    ///
    /// Dropping a `Guard` ends its background thread, and adds late keys if the server is there. It
    /// waits 2 seconds at most for a `catch_up` that runs, and `insert_timeout` at most for each
    /// reply. At the end of an `AsyncGuard` call [`close`](AsyncGuard::close), which does the same.
    Guard, AsyncGuard, new(options: Options),
    /// What happened so far in this process.
    stats -> Stats;

    /// Adds a key before its row is written. If it fails, do not write the row: try again.
    fn insert(&self, key: impl AsRef<[u8]>) -> Result<()>;
}

impl Guard {
    /// Returns `fetch(key)`. If the row certainly does not exist, returns None without calling
    /// `fetch`.
    pub fn lookup<K: AsRef<[u8]>, Row>(
        &self,
        key: K,
        fetch: impl FnOnce(K) -> Option<Row>,
    ) -> Option<Row> {
        now(self.0.possible(vec![key])).pop().and_then(fetch)
    }

    /// `fetch` of those keys whose rows may exist, in one call, with an empty vector if there is
    /// none.
    pub fn lookup_many<K: AsRef<[u8]>, Rows>(
        &self,
        keys: impl IntoIterator<Item = K>,
        fetch: impl FnOnce(Vec<K>) -> Rows,
    ) -> Rows {
        fetch(now(self.0.possible(keys.into_iter().collect())))
    }

    /// Fills a new filter with all keys and puts it in the place of the old one. If it fails, the
    /// old one stays. `keys` must read the database when it is called, not before. Run it again
    /// before the filter holds more than `capacity`, or if many rows were deleted.
    pub fn build(&self, keys: impl FnOnce() -> Result<Keys>) -> Result<()> {
        now(self.0.build(async { keys() }))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        now(self.0.close());
    }
}

impl AsyncGuard {
    /// As [`Guard::lookup`].
    pub async fn lookup<K: AsRef<[u8]>, Row, F: Future<Output = Option<Row>>>(
        &self,
        key: K,
        fetch: impl FnOnce(K) -> F,
    ) -> Option<Row> {
        fetch(self.0.possible(vec![key]).await.pop()?).await
    }

    /// As [`Guard::lookup_many`].
    pub async fn lookup_many<K: AsRef<[u8]>, F: Future>(
        &self,
        keys: Vec<K>,
        fetch: impl FnOnce(Vec<K>) -> F,
    ) -> F::Output {
        fetch(self.0.possible(keys).await).await
    }

    /// As [`Guard::build`]; `keys` must read the database when it is awaited.
    pub async fn build(&self, keys: impl Future<Output = Result<Keys>>) -> Result<()> {
        self.0.build(keys).await
    }

    /// Ends the background, and adds late keys if the server is there.
    pub async fn close(self) {
        self.0.close().await;
    }
}

impl Drop for AsyncGuard {
    fn drop(&mut self) {
        if let Some(task) = self.0.task.get() {
            task.abort();
        }
    }
}

const NOT_TRUSTED: &str = "the filter is not trusted, or there is none";
const TOO_LATE: &str = "the filter took so long that a catch-up may miss the row";

/// The scripts: guard.lua says what they do. The libraries in all languages have the same ones.
fn section(name: &str) -> &'static str {
    let mut sections =
        include_str!("guard.lua").split("\n--- ").filter_map(|part| part.split_once('\n'));
    sections.find(|(found, _)| *found == name).map_or("", |(_, text)| text)
}

fn script(name: &str) -> String {
    [section("common"), section(name)].concat()
}

fn lookup_script(token: &str) -> String {
    section("lookup").replace("TOKEN", token)
}

/// 32 hexadecimal digits that no other call returns, in any process, because `RandomState` has
/// random keys.
fn unique() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
