//! A guard in front of a database: a Bloom filter of all keys, asked before the database is.
//! A lookup never fails because of the filter, and never hides a row that exists.

use redis::bloom::BloomFilterInsertOptions;
use redis::{Client, Connection, RedisResult, TypedCommands};
use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// `{users}`: RENAME needs both names in one slot.
const FILTER: &str = "guard:{users}";
const NEW: &str = "guard:{users}:new";
/// The item that a build adds last: without it a filter is not believed.
const COMPLETE: &str = "guard: complete";
const ERROR_RATE: f64 = 0.001;
/// The rows to expect until the next build.
const CAPACITY: usize = 120_000;
const BATCH: usize = 1000;
/// How long only the database is asked after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest that `insert` can take: `build` waits that long.
pub const LONGEST_INSERT: Duration = Duration::from_secs(5);
/// Of these, what `Database::insert` can take: its timeout, connecting and commit included.
const LONGEST_TRANSACTION: Duration = Duration::from_secs(2);
/// Completes a filter and puts it in the place of the old one, at once. Only one that has the items
/// of this build is completed: another build may have begun a new filter under the same name.
const FINISH: &str = "
local own = redis.call('BF.MEXISTS', KEYS[1], unpack(ARGV, 2))
for _, found in ipairs(own) do
  if found == 0 then
    return redis.error_reply('ERR the new filter is lost, or another build has begun')
  end
end
redis.call('BF.ADD', KEYS[1], ARGV[1])
return redis.call('RENAME', KEYS[1], KEYS[2])
";

/// What the guard stands in front of.
pub trait Database {
    fn get(&mut self, key: &str) -> Option<String>;
    fn insert(&mut self, key: &str, value: &str);
    fn keys(&mut self) -> Vec<String>;
}

/// A connection that waits at most for `timeout`, once to connect and once for each reply.
fn connect(client: &Client, timeout: Duration) -> RedisResult<Connection> {
    let connection = client.get_connection_with_timeout(timeout)?;
    connection.set_read_timeout(Some(timeout))?;
    connection.set_write_timeout(Some(timeout))?;
    Ok(connection)
}

/// The connection that is kept, or a new one.
fn connected<'a>(
    kept: &'a mut Option<Connection>,
    client: &Client,
    timeout: Duration,
) -> RedisResult<&'a mut Connection> {
    match kept {
        Some(connection) => Ok(connection),
        none => Ok(none.insert(connect(client, timeout)?)),
    }
}

/// Adds items to a filter that exists: NOCREATE, since one with these items only would hide all
/// others. Fails if an item of the array fails.
fn add(redis: &mut Connection, name: &str, items: &[String]) -> RedisResult<()> {
    let options = BloomFilterInsertOptions::default().nocreate();
    redis.bf_insert_options(name, items, options).map(drop)
}

/// One for each thread.
pub struct Guard<D> {
    pub database: D,
    /// How often the filter gave no answer: a metric to watch.
    pub failures: usize,
    /// `Instant::now`, but for tests.
    pub clock: fn() -> Instant,
    client: Client,
    /// For lookups. None after a failure: a late reply must not be taken for the next one.
    reader: Option<Connection>,
    /// For inserts, which wait longer. None after a failure, too.
    writer: Option<Connection>,
    resume_at: Instant,
}

impl<D: Database> Guard<D> {
    pub fn new(client: Client, database: D) -> Self {
        let clock = Instant::now;
        let resume_at = clock();
        Guard { database, failures: 0, clock, client, reader: None, writer: None, resume_at }
    }

    /// The row of the key. Asks the database unless the filter says that there is no such row.
    pub fn lookup(&mut self, key: &str) -> Option<String> {
        if self.is_absent(key) { None } else { self.database.get(key) }
    }

    /// Whether the row certainly does not exist; false also if the filter cannot tell.
    fn is_absent(&mut self, key: &str) -> bool {
        if (self.clock)() < self.resume_at {
            return false;
        }
        let problem = match self.ask(key) {
            Ok([found, true]) => return !found,
            Ok([_, false]) => "there is no complete filter".to_string(),
            Err(error) => error.to_string(),
        };
        self.reader = None;
        self.failures += 1;
        self.resume_at = (self.clock)() + PAUSE;
        eprintln!("the filter gave no answer: {problem}");
        false
    }

    /// Whether the key is in the filter, and whether the filter is complete.
    fn ask(&mut self, key: &str) -> RedisResult<[bool; 2]> {
        let redis = connected(&mut self.reader, &self.client, Duration::from_millis(100))?;
        redis::cmd("BF.MEXISTS").arg(FILTER).arg(key).arg(COMPLETE).query(redis)
    }

    /// Adds the key to the filters, then the row to the database. If it fails, the row may be
    /// missing: try again.
    pub fn insert(&mut self, key: &str, value: &str) -> Result<(), Box<dyn Error>> {
        // Before the first filter is asked, because `build` waits from there on.
        let begin = (self.clock)();
        if let Err(error) = self.announce(key) {
            self.writer = None;
            return Err(error.into());
        }
        if (self.clock)() - begin > LONGEST_INSERT - LONGEST_TRANSACTION {
            return Err("the filters took so long that a build may miss the row".into());
        }
        self.database.insert(key, value);
        Ok(())
    }

    /// Adds the key to the filters.
    fn announce(&mut self, key: &str) -> RedisResult<()> {
        let redis = connected(&mut self.writer, &self.client, Duration::from_secs(1))?;
        // In this order, because `build` renames the first to the second.
        for name in [NEW, FILTER] {
            match add(redis, name, &[key.to_string()]) {
                // A filter that does not exist needs no key.
                Err(error) if error.detail() == Some("not found") => {}
                result => result?,
            }
        }
        Ok(())
    }
}

/// Fills a new filter with all keys and puts it in the place of the old one. If it fails, the old
/// one stays. `wait` is LONGEST_INSERT.
pub fn build(
    client: &Client,
    database: &mut impl Database,
    wait: Duration,
) -> Result<(), Box<dyn Error>> {
    // All on one connection: if the server restarts meanwhile, perhaps from an older snapshot, it
    // breaks.
    let mut redis = connect(client, Duration::from_secs(10))?;
    redis.unlink(NEW)?;
    redis.bf_reserve(NEW, ERROR_RATE, CAPACITY)?;
    // Process and time: no other build has the same. Three: none is found by accident.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    let this_build = [1, 2, 3].map(|n| format!("guard: build {} {now} {n}", std::process::id()));
    add(&mut redis, NEW, &this_build)?;
    // From here on, each row is in `keys` or its `insert` has found NEW.
    sleep(wait);
    for batch in database.keys().chunks(BATCH) {
        add(&mut redis, NEW, batch)?;
    }
    let mut finish = redis::cmd("EVAL");
    finish.arg(FINISH).arg(2).arg(NEW).arg(FILTER).arg(COMPLETE).arg(&this_build[..]);
    Ok(finish.query(&mut redis)?)
}
