//! The guard of docs/recipes/guard.md: time that passes by a clock of the test.
//!
//! `make test-clients` starts the server and puts its address into `REDIS_URL`. What the guard does
//! while servers fail is tested by tests/clients/python/test_guard.py.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use guard::{Database, Guard, build};
use redis::Client;

mod guard;

impl Database for BTreeMap<String, String> {
    fn get(&mut self, key: &str) -> Option<String> {
        (*self).get(key).cloned()
    }

    fn insert(&mut self, key: &str, value: &str) {
        self.insert(key.into(), value.into());
    }

    fn keys(&mut self) -> Vec<String> {
        (*self).keys().cloned().collect()
    }
}

thread_local! {
    /// How much time passes between two readings of the clock.
    static STEP: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
}

fn clock() -> Instant {
    let now = NOW.get().map_or_else(Instant::now, |before| before + STEP.get());
    NOW.set(Some(now));
    now
}

/// Whatever an insert waited for, too little time may be left for the row.
#[test]
fn the_time_of_an_insert_counts_from_its_beginning() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL")
        .expect("REDIS_URL names the server: run these tests with `make test-clients`");
    let client = Client::open(url)?;
    build(&client, &mut BTreeMap::new(), Duration::ZERO)?;
    for (seconds, written) in [(2.9, true), (3.1, false)] {
        STEP.set(Duration::from_secs_f64(seconds));
        let mut guard = Guard::new(client.clone(), BTreeMap::new());
        guard.clock = clock;
        let done = guard.insert("row", "value");
        assert_eq!(done.is_ok(), written, "after {seconds} seconds: {done:?}");
        if let Err(error) = done {
            assert!(error.to_string().contains("took so long"), "{error}");
        }
        assert_eq!(guard.database.contains_key("row"), written, "after {seconds} seconds");
        assert_eq!(guard.lookup("row").is_some(), written, "after {} failures", guard.failures);
    }
    Ok(())
}
