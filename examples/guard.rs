//! The guard of docs/clients.md: a filter of all existing keys, checked before the database.

use redis::{Connection, RedisResult, TypedCommands, bloom::BloomFilterInsertOptions};
use std::{collections::HashMap, env, error::Error};

// Hash tag: RENAME needs both keys in one slot.
const FILTER: &str = "guard:{users}";
const NEW: &str = "guard:{users}:new";
const ERROR_RATE: f64 = 0.01;
const CAPACITY: usize = 120_000;
const BATCH: usize = 1000;

struct Users {
    redis: Connection,
    /// Replaces a real database.
    database: HashMap<String, String>,
    queries: usize,
}

impl Users {
    fn ask_database(&mut self, key: &str) -> Option<String> {
        self.queries += 1;
        self.database.get(key).cloned()
    }

    /// Builds the filter from all existing keys under a temporary name, then renames it.
    fn build(&mut self) -> Result<(), Box<dyn Error>> {
        self.redis.del(NEW)?;
        self.redis.bf_reserve(NEW, ERROR_RATE, CAPACITY)?;
        let keys: Vec<_> = self.database.keys().collect();
        for batch in keys.chunks(BATCH) {
            // The call fails if an item of the batch fails.
            self.redis.bf_madd(NEW, batch)?;
        }
        self.redis.rename(NEW, FILTER)?;
        Ok(())
    }

    /// Adds the key to the filter and to one under construction, then inserts the row.
    fn insert(&mut self, key: &str, value: &str) -> RedisResult<()> {
        for name in [NEW, FILTER] {
            let options = BloomFilterInsertOptions::default().nocreate();
            match self.redis.bf_insert_options(name, key, options) {
                Err(error) if error.detail() == Some("not found") => {}
                reply => drop(reply?),
            }
        }
        self.database.insert(key.into(), value.into());
        Ok(())
    }

    fn lookup(&mut self, key: &str) -> RedisResult<Option<String>> {
        match self.redis.bf_exists(FILTER, key) {
            // The row certainly does not exist.
            Ok(false) => return Ok(None),
            Ok(true) => {}
            // "ERR not found": no filter, so ask the database.
            Err(error) if error.code().is_some() => {}
            Err(error) => return Err(error),
        }
        Ok(self.ask_database(key))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let mut users = Users {
        redis: redis::Client::open(url)?.get_connection()?,
        database: (0..100_000).map(|i| (format!("user:{i}"), format!("name {i}"))).collect(),
        queries: 0,
    };

    users.build()?;
    for i in 0..1000 {
        assert_eq!(users.lookup(&format!("user:{i}"))?, Some(format!("name {i}")));
    }
    users.queries = 0;
    for i in 0..10_000 {
        assert_eq!(users.lookup(&format!("attacker:{i}"))?, None);
    }
    let passed = users.queries;
    assert!(passed <= 160, "more false positives than a rate of 1 % explains");

    users.insert("user:new", "somebody")?;
    assert_eq!(users.lookup("user:new")?.as_deref(), Some("somebody"));

    // As if evicted, expired or deleted by mistake.
    users.redis.unlink(FILTER)?;
    assert_eq!(users.lookup("user:1")?.as_deref(), Some("name 1"));
    users.insert("user:newer", "somebody else")?;
    let found = users.lookup("user:2")?;
    assert_eq!(found.as_deref(), Some("name 2"), "adding one key must not hide the other rows");
    assert!(!users.redis.exists(FILTER)? && !users.redis.exists(NEW)?);
    println!("rust: {passed} of 10000 lookups of missing keys reached the database");
    Ok(())
}
