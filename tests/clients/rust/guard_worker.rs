//! Runs the guard of clients/rust for tests/clients/python/test_guard.py; guard_worker.py there
//! says what this program reads and prints.

use std::collections::HashSet;
use std::io::BufRead;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use redis::{Client, cmd};
use redis_bloom_client::{Error, Guard, Keys, Options};

const NEW: &str = "guard:{users}:new";

/// Keys with the time of their writing, in its order.
type Rows = Arc<Mutex<Vec<(String, SystemTime)>>>;

struct Worker {
    client: Client,
    guard: Guard,
    rows: Rows,
    rounds: usize,
}

impl Worker {
    fn new(url: &str) -> Result<Worker, Error> {
        let client = Client::open(url)?;
        let now = SystemTime::now();
        let rows: Rows =
            Arc::new(Mutex::new((0..2000).map(|i| (format!("user:{i}"), now)).collect()));
        let database = Arc::clone(&rows);
        let catch_up = move |since: SystemTime| -> Result<Keys, Error> {
            let rows = database.lock().unwrap();
            let recent: Vec<_> = rows.iter().filter(|(_, time)| *time >= since).cloned().collect();
            Ok(Box::new(recent.into_iter().map(|(key, _)| key.into_bytes())))
        };
        let mut options = Options::new(120_000).catch_up(catch_up);
        options.commit_within = Duration::from_millis(500);
        let guard = Guard::new(&client, "users", options)?;
        Ok(Worker { client, guard, rows, rounds: 0 })
    }

    fn run(&mut self, line: &str) -> Result<String, Error> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["build", ref how @ ..] => self.build(how.first().copied().unwrap_or(""))?,
            ["insert", key] => {
                self.guard.insert(key)?;
                self.rows.lock().unwrap().push((key.into(), SystemTime::now()));
            }
            _ => return Ok(self.round()),
        }
        Ok("ok".into())
    }

    fn build(&self, how: &str) -> Result<(), Error> {
        let (client, rows) = (self.client.clone(), Arc::clone(&self.rows));
        self.guard.build(|| {
            let mut redis = client.get_connection()?;
            if how == "lost" || how == "anew" {
                cmd("UNLINK").arg(NEW).exec(&mut redis)?;
            }
            if how == "anew" {
                cmd("BF.RESERVE").arg(NEW).arg(0.001).arg(120_000).exec(&mut redis)?;
            }
            let keys: Vec<_> = rows.lock().unwrap().iter().map(|(key, _)| key.clone()).collect();
            Ok(Box::new(keys.into_iter().map(String::into_bytes)))
        })
    }

    fn round(&mut self) -> String {
        let keys: Vec<_> = self.rows.lock().unwrap().iter().map(|(key, _)| key.clone()).collect();
        let known: HashSet<&String> = keys.iter().collect();
        let mut asked = 0;
        self.rounds += 1;
        let mut look_up = |key: &String| {
            self.guard.lookup(key, |key| {
                asked += usize::from(key.starts_with("absent"));
                known.contains(key).then_some(())
            })
        };
        let some = (0..4).map(|i| &keys[(self.rounds * 4 + i) % keys.len()]);
        let hidden: Vec<_> =
            keys.last().into_iter().chain(some).filter(|key| look_up(key).is_none()).collect();
        for i in 0..20 {
            assert!(look_up(&format!("absent:{}:{i}", self.rounds)).is_none());
        }
        if hidden.is_empty() {
            format!("{asked} {}", self.guard.stats().lookup_failures)
        } else {
            format!("hidden {hidden:?}")
        }
    }
}

fn main() -> Result<(), Error> {
    let mut worker = Worker::new(&std::env::args().nth(1).expect("a URL"))?;
    for line in std::io::stdin().lock().lines() {
        let answer = worker.run(&line?);
        println!("{}", answer.unwrap_or_else(|error| format!("raised {error}").replace('\n', " ")));
    }
    Ok(())
}
