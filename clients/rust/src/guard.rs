//! The guard. docs/internals/guard.md has the protocol, and why it is right.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{Cmd, Script, ToRedisArgs, cmd};
use tokio::{sync::watch, time::timeout};

use crate::link::{Error, Link, Result, Servers, lock, now};
use crate::{bulk, twins::twins};

const BATCH: usize = 1000;
/// After a failed lookup, how long only the database is queried.
const PAUSE: Duration = Duration::from_secs(1);
/// After this time without a lookup, the next one first compares the identity of the server.
const VERIFY: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_secs(1); // between two heartbeats
/// After this time without news of a process with keys for later, a catch-up adds its rows.
const STALE: Duration = Duration::from_secs(60);
/// How long the end of a guard waits for its background, whose `catch_up` may hang.
const CLOSE: Duration = Duration::from_secs(2);
const JOB_TIMEOUT: Duration = Duration::from_secs(10); // for each reply to a build

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
    /// Of the lookups of absent rows, the share that still reaches the database. Default: 0.001.
    pub error: f64,
    /// Whether it is for an `AsyncGuard`, and the callback.
    catch_up: Option<(bool, RowsSince)>,
    /// Default: `Fail`.
    pub on_unavailable: OnUnavailable,
    /// For a connection, and for each reply to a lookup. Default: 100 ms.
    pub timeout: Duration,
    /// The same for inserts. Default: 1 s.
    pub insert_timeout: Duration,
    /// A row commits within this time from the call of `insert`, or never. Default: 5 s.
    pub commit_within: Duration,
    /// A row is older than the call of its insert by this time at most. The time that `catch_up`
    /// gets is earlier by this margin. Default: 60 s.
    pub margin: Duration,
    /// Catch up that often, for rows that are written past the guard. Default, zero: never.
    pub refresh: Duration,
    /// Takes a message, each kind of failure at most once a second. Default: standard error.
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

    /// As `catch_up`, for an `AsyncGuard`. Collect the keys: an iterator that waits blocks a task.
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
    sha: String,  // of the lookup script that a trusted server has; empty if none is known
    lost: String, // the same of the script that the server did not have
    resume_at: Option<Instant>, // until then only the database is queried
    verify_at: Option<Instant>, // after that the identity of the server is compared first
    /// By kind, so that the background does not hide what lookups say.
    log_at: HashMap<&'static str, Instant>,
    known: bool, // whether keys may wait: the server knows of this guard with `Later`
    waiting: HashSet<Vec<u8>>, // the keys for later
    stats: Stats,
}

struct Core {
    /// Filter, state, new filter, lock: in one slot, because of the braces.
    keys: [String; 4],
    id: String,
    options: Options,
    lease: u64, // milliseconds for which the others leave a catch-up to this guard
    reader: Link,
    writer: Link,
    job: Link,
    state: Mutex<State>,
    closed: watch::Sender<bool>,
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
            lease: (2 * options.commit_within + Duration::from_secs(30)).as_millis() as u64,
            reader: Link::new(servers, options.timeout, is_async)?,
            writer: Link::new(servers, options.insert_timeout, is_async)?,
            job: Link::new(servers, JOB_TIMEOUT.max(options.insert_timeout), is_async)?,
            options,
            state: Mutex::default(),
            closed: watch::Sender::new(false),
        });
        if core.options.catch_up.is_some() {
            let work = Arc::clone(&core).work(core.closed.subscribe());
            if is_async {
                drop(tokio::runtime::Handle::try_current()?.spawn(work));
            } else {
                std::thread::spawn(|| now(work));
            }
        }
        Ok(core)
    }

    async fn lookup<K: AsRef<[u8]>, Row, F: Future<Output = Option<Row>>>(
        &self,
        key: K,
        fetch: impl FnOnce(K) -> F,
    ) -> Option<Row> {
        fetch(self.possible(vec![key]).await.pop()?).await
    }

    async fn lookup_many<K: AsRef<[u8]>, F: Future>(
        &self,
        keys: impl IntoIterator<Item = K>,
        fetch: impl FnOnce(Vec<K>) -> F,
    ) -> F::Output {
        fetch(self.possible(keys.into_iter().collect()).await).await
    }

    /// The keys whose rows may exist. Never fails.
    async fn possible<K: AsRef<[u8]>>(&self, mut keys: Vec<K>) -> Vec<K> {
        let words: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let absent = self.absent(&words).await.inspect_err(|error| self.fail(error));
        let mut absent = absent.unwrap_or_default().into_iter();
        let asked = keys.len();
        keys.retain(|_| absent.next() != Some(true));
        let stats = &mut lock(&self.state).stats;
        stats.passed += keys.len() as u64;
        stats.saved += (asked - keys.len()) as u64;
        keys
    }

    /// Of each key whether its row certainly does not exist. Empty if the filter is not queried.
    async fn absent(&self, keys: &[&[u8]]) -> Result<Vec<bool>> {
        let now = Instant::now();
        let (mut sha, is_verified, late): (_, _, Vec<bool>) = {
            let state = lock(&self.state);
            if keys.is_empty() || state.resume_at > Some(now) {
                return Ok(Vec::new());
            }
            // Not after the query: the background may have added a key that the query missed.
            let late = keys.iter().map(|key| state.waiting.contains(*key)).collect();
            (state.sha.clone(), state.verify_at >= Some(now), late)
        };
        if sha.is_empty() || !is_verified {
            sha = self.verify().await?;
        }
        let mut found = String::new();
        for batch in keys.chunks(BATCH) {
            let words = (&sha, 2, &self.keys[..2], batch);
            let digits: Option<String> = self.reader.send(cmd("EVALSHA").arg(words)).await?;
            found += &digits.ok_or(NOT_TRUSTED)?;
        }
        lock(&self.state).verify_at = Some(now + VERIFY);
        Ok(found.bytes().zip(late).map(|(digit, late)| digit == b'0' && !late).collect())
    }

    /// A failed lookup: whatever it is, the database is queried.
    fn fail(&self, error: &Error) {
        let mut state = lock(&self.state);
        let sha = std::mem::take(&mut state.sha);
        let code = error.downcast_ref().and_then(redis::RedisError::code);
        // Empty: another lookup has found it before.
        if code == Some("NOSCRIPT") && !sha.is_empty() {
            state.lost = sha;
        }
        state.resume_at = Some(Instant::now() + PAUSE);
        state.stats.lookup_failures += 1;
        drop(state);
        self.warn("the filter gave no answer", error);
    }

    /// Learns the token, or makes a new one if the server has forgotten the script of the last one.
    async fn verify(&self) -> Result<String> {
        let hash = |token: &str| Script::new(&lookup_script(token)).get_hash().to_string();
        let [_, mut token] = self.identity(&self.reader, "").await?;
        if hash(&token) == lock(&self.state).lost {
            token = self.trust(&self.reader, "", "", "").await?;
        }
        if token.is_empty() {
            return Err(NOT_TRUSTED.into());
        }
        lock(&self.state).sha = hash(&token);
        Ok(hash(&token))
    }

    async fn insert(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let begin = Instant::now();
        let error = match self.add(&[key.as_ref()]).await {
            Ok(_) if begin.elapsed() <= self.options.commit_within / 2 => return Ok(()),
            Ok(_) => "the filter took so long that a catch-up may miss the row".into(),
            Err(error) => error,
        };
        let mut state = lock(&self.state);
        state.stats.insert_failures += 1;
        if !state.known {
            return Err(error);
        }
        state.waiting.insert(key.as_ref().to_vec());
        drop(state);
        self.warn("the filter takes keys later", &error);
        Ok(())
    }

    /// Adds keys to the filters that exist. Returns the identity of the server that took all of
    /// them; nothing if there is no key, or not one such server.
    async fn add(&self, keys: &[impl ToRedisArgs]) -> Result<String> {
        let mut servers = Vec::new();
        for batch in keys.chunks(BATCH) {
            servers.push(self.writer.send(&self.eval(&script("insert"), 3, batch)).await?);
        }
        servers.dedup();
        Ok(if servers.len() == 1 { servers.remove(0) } else { String::new() })
    }

    async fn build<F: Future<Output = Result<Keys>>>(
        &self,
        keys: impl FnOnce() -> F,
    ) -> Result<()> {
        let Options { capacity, error, commit_within, .. } = self.options;
        let words = (error, capacity, milliseconds(SystemTime::now()));
        let reserve = self.eval(&script("reserve"), 3, words);
        let [server, own, begin]: [String; 3] = self.job.send(&reserve).await?;
        self.sleep(commit_within).await?; // now each row is in `keys`, or its key in the new filter
        for batch in bulk::add(&self.keys[2], keys().await?, &["NOCREATE"]) {
            self.job.query(&batch).await?;
        }
        self.trust(&self.job, &server, &begin, &own).await?;
        lock(&self.state).stats.builds += 1;
        lock(&self.state).resume_at = None;
        Ok(())
    }

    /// Late keys, the heartbeat, and a catch-up if one is due.
    async fn tick(&self) -> Result<()> {
        // Read before the waiting keys, which are covered up to this time.
        let clock = milliseconds(SystemTime::now());
        let waiting: Vec<Vec<u8>> = lock(&self.state).waiting.iter().cloned().collect();
        let mut covers = self.add(&waiting).await?;
        if waiting.is_empty() && self.options.on_unavailable == OnUnavailable::Later {
            covers = "all".into();
        }
        let [stale, refresh] = [STALE, self.options.refresh].map(|span| span.as_millis() as u64);
        // A guard that ends makes no catch-up: the others would wait for it.
        let lease = if *self.closed.borrow() { 0 } else { self.lease };
        let words = (clock, &self.id, covers, stale, refresh, lease);
        let reply: Vec<String> = self.writer.send(&self.eval(&script("tick"), 4, words)).await?;
        if reply[0] == "no primary" {
            lock(&self.state).sha.clear();
            self.writer.leave();
        }
        if reply[1] == "1" {
            let mut state = lock(&self.state);
            state.known = true;
            state.stats.late += waiting.len() as u64;
            for key in waiting {
                state.waiting.remove(&key);
            }
        }
        let [_, _, server, since, begin] = &reply[..] else { return Ok(()) };
        let mut catch_up = pin!(self.catch_up(server, since, begin));
        let mut closed = pin!(self.closed());
        let done = poll_fn(|context| {
            if closed.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(CLOSED.into()));
            }
            // A panic of the callback is an error: without its background a guard never catches up.
            catch_unwind(AssertUnwindSafe(|| catch_up.as_mut().poll(context)))
                .unwrap_or_else(|_| Poll::Ready(Err("catch_up panicked".into())))
        });
        let done = done.await;
        lock(&self.state).stats.catch_up_failures += u64::from(done.is_err());
        done
    }

    /// Adds the keys of the rows that the filter may lack, and trusts it.
    async fn catch_up(&self, server: &str, since: &str, begin: &str) -> Result<()> {
        let Some((_, rows_since)) = &self.options.catch_up else { return Ok(()) };
        let Options { margin, commit_within, log, .. } = self.options;
        // An insert in flight takes `commit_within` at most.
        let since = Duration::from_millis(since.parse()?).saturating_sub(margin);
        let since = UNIX_EPOCH + since.saturating_sub(commit_within);
        let age = since.elapsed().unwrap_or_default().as_secs();
        log(&format!("the filter may lack keys of the last {age} s: catching up"));
        self.sleep(2 * commit_within).await?;
        let mut rows = rows_since(since).await?.peekable();
        while rows.peek().is_some() {
            let batch: Vec<Vec<u8>> = rows.by_ref().take(BATCH).collect();
            self.add(&batch).await?;
            let words = (&self.keys[3], &self.id, "XX", "PX", self.lease);
            self.writer.query(cmd("SET").arg(words)).await?;
        }
        self.trust(&self.writer, server, begin, "").await?;
        lock(&self.state).stats.catch_ups += 1;
        lock(&self.state).resume_at = None;
        Ok(())
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
        link.send(&self.eval(&script("trust"), 4, &words)).await
    }

    /// The identity of the server, and the token in use. The server then has the script of `token`.
    async fn identity(&self, link: &Link, token: &str) -> Result<[String; 2]> {
        link.send(&self.eval(&lookup_script(token), 2, None::<&str>)).await
    }

    fn eval(&self, script: &str, keys: usize, words: impl ToRedisArgs) -> Cmd {
        cmd("EVAL").arg((script, keys, &self.keys[..keys], words)).to_owned()
    }

    /// The background. `close` waits until it has dropped its receiver.
    async fn work(self: Arc<Self>, _working: watch::Receiver<bool>) {
        while !*self.closed.borrow() {
            if let Err(error) = self.tick().await
                && !*self.closed.borrow()
            {
                self.warn("the background of the guard failed", &error);
            }
            drop(self.sleep(TICK).await);
        }
    }

    /// Waits for the end of the guard.
    async fn closed(&self) {
        drop(self.closed.subscribe().wait_for(|is_closed| *is_closed).await);
    }

    /// Fails if the guard was closed.
    async fn sleep(&self, duration: Duration) -> Result<()> {
        let closed = self.job.run(async { timeout(duration, self.closed()).await });
        closed.await.map_or(Ok(()), |()| Err(CLOSED.into()))
    }

    /// Ends the background, and adds late keys if the server is there.
    async fn close(&self) {
        self.closed.send_replace(true);
        drop(self.job.run(async { timeout(CLOSE, self.closed.closed()).await }).await);
        let known = lock(&self.state).known;
        if known && self.tick().await.is_ok() && lock(&self.state).waiting.is_empty() {
            let words = (&self.keys[1], format!("late:{}", self.id));
            drop(self.writer.query(cmd("HDEL").arg(words)).await);
        }
    }

    /// Logs each kind at most once a second.
    fn warn(&self, what: &'static str, error: &Error) {
        let mut state = lock(&self.state);
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
    /// because of the filter. Threads may share a `Guard`, and tasks an [`AsyncGuard`].
    ///
    /// Call `insert` first, then write the row, which commits within `commit_within` of the call of
    /// `insert` or never. README.md of the library for Python has the other rules.
    ///
    /// Dropping a `Guard` ends its background thread, and adds late keys if the server is there. It
    /// waits 2 seconds at most for a `catch_up` that runs, and `insert_timeout` at most for each
    /// reply. At the end of an `AsyncGuard` call [`close`](AsyncGuard::close).
    Guard, AsyncGuard, new(options: Options),
    /// What happened so far in this process.
    stats(core) -> Stats = lock(&core.state).stats;

    /// Returns `fetch(key)`, or None without calling `fetch` if the row certainly does not exist.
    fn lookup<K: AsRef<[u8]>, Row>(&self, key: K; fetch(key: K) -> Option<Row>) -> Option<Row>;
    /// Returns `fetch(keys)` with those keys whose rows may exist: one call, even if there is none.
    fn lookup_many<K: AsRef<[u8]>, Rows>(&self, keys: impl IntoIterator<Item = K>;
        fetch(keys: Vec<K>) -> Rows) -> Rows;
    /// Adds a key before its row is written. If it fails, do not write the row: try again.
    fn insert(&self, key: impl AsRef<[u8]>) -> Result<()>;
    /// Fills a new filter with all keys and puts it in the place of the old one. If it fails, the
    /// old one stays. `keys` must read the database when it is called, not before. Run it again
    /// before the filter holds more than `capacity`, or if many rows were deleted.
    fn build(&self; keys() -> Result<Keys>) -> Result<()>;
}

impl Drop for Guard {
    fn drop(&mut self) {
        now(self.0.close());
    }
}

impl AsyncGuard {
    /// Ends the guard as dropping a [`Guard`] does, but cancels a `catch_up` that runs. Dropping an
    /// `AsyncGuard` ends its background, and adds no late keys.
    pub async fn close(&self) {
        self.0.close().await;
    }
}

impl Drop for AsyncGuard {
    fn drop(&mut self) {
        self.0.closed.send_replace(true);
    }
}

const CLOSED: &str = "the guard was closed";
const NOT_TRUSTED: &str = "the filter is not trusted, or there is none";

/// The scripts: guard.lua says what they do. The libraries in all languages have the same ones.
fn section(name: &str) -> &'static str {
    let mut sections = include_str!("guard.lua").split("\n--- ");
    sections.find_map(|text| text.strip_prefix(name)?.strip_prefix('\n')).unwrap_or_default()
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
