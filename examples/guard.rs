//! The guard of docs/clients.md: a filter of all keys that exist, asked before the database.

use redis::{Connection, RedisResult, TypedCommands, bloom::BloomFilterInsertOptions};
use std::{collections::HashMap, env, error::Error};

// Braces: one slot of a cluster, for RENAME.
const FILTER: &str = "guard:{users}";
const NEW: &str = "guard:{users}:new";
const ERROR_RATE: f64 = 0.01;
const CAPACITY: usize = 120_000;
const BATCH: usize = 1000;

struct Users {
    redis: Connection,
    /// Stands for the database.
    database: HashMap<String, String>,
    queries: usize,
}

impl Users {
    fn ask_database(&mut self, key: &str) -> Option<String> {
        self.queries += 1;
        self.database.get(key).cloned()
    }

    /// Makes the filter from all keys there are. Until it is complete it has another name.
    fn build(&mut self) -> Result<(), Box<dyn Error>> {
        self.redis.del(NEW)?;
        self.redis.bf_reserve(NEW, ERROR_RATE, CAPACITY)?;
        let keys: Vec<_> = self.database.keys().collect();
        for batch in keys.chunks(BATCH) {
            // An error within the batch is an error of the call.
            self.redis.bf_madd(NEW, batch)?;
        }
        self.redis.rename(NEW, FILTER)?;
        Ok(())
    }

    /// A new row: its key goes into the filter first, and into one that is being built.
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
            // Certainly no such row.
            Ok(false) => return Ok(None),
            Ok(true) => {}
            // "ERR not found": the filter was lost, so it knows nothing.
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
    assert!(passed <= 160, "1 % of them are expected, or fewer");

    users.insert("user:new", "somebody")?;
    assert_eq!(users.lookup("user:new")?.as_deref(), Some("somebody"));

    // Evicted, expired, deleted by mistake.
    users.redis.unlink(FILTER)?;
    assert_eq!(users.lookup("user:1")?.as_deref(), Some("name 1"));
    users.insert("user:newer", "somebody else")?;
    let found = users.lookup("user:2")?;
    assert_eq!(found.as_deref(), Some("name 2"), "a key added alone must not turn the others away");
    assert!(!users.redis.exists(FILTER)? && !users.redis.exists(NEW)?);
    println!("rust: {passed} of 10000 lookups in vain reached the database");
    Ok(())
}
