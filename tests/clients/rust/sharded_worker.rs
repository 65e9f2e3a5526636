//! Runs the guard and the crawler for tests/clients/python/test_sharded.py; sharded_worker.py there
//! says what this program reads and prints.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::io::stdin;

mod sharded;

use sharded::{Crawler, Database, Guard, Sharded, markers, shard_of};

#[derive(Default)]
struct Table {
    rows: HashMap<String, String>,
    /// In order of insertion.
    keys: Vec<String>,
    asked: usize,
}

impl Database for Table {
    fn get(&mut self, key: &str) -> Option<String> {
        self.asked += 1;
        self.rows.get(key).cloned()
    }

    fn insert(&mut self, key: &str, value: &str) {
        if self.rows.insert(key.into(), value.into()).is_none() {
            self.keys.push(key.into());
        }
    }
}

struct Worker {
    guard: Guard<Table>,
    crawler: Crawler,
    rounds: usize,
    /// Whether a round does nothing.
    idle: bool,
}

impl Worker {
    fn new(name: &str, idle: bool, nodes: &[String]) -> Result<Self, Box<dyn Error>> {
        let mut database = Table::default();
        for i in 0..2000 {
            database.insert(&format!("user:{i}"), &format!("name {i}"));
        }
        let guard = Guard { filter: Sharded::new(name, nodes)?, database };
        let crawler = Crawler::new(Sharded::new(name, nodes)?, nodes)?;
        Ok(Worker { guard, crawler, rounds: 0, idle })
    }

    fn run(&mut self, command: &str, words: &[&str]) -> Result<String, Box<dyn Error>> {
        match command {
            "lookup" => {
                let found: Vec<_> = words.iter().map(|key| self.lookup(key)).collect();
                return Ok(found.join(" "));
            }
            "insert" => self.guard.insert(words[0], "inserted")?,
            "claim" => {
                let urls: BTreeSet<_> = words.iter().copied().collect();
                let (fetch, later) = self.crawler.claim(&urls.into_iter().collect::<Vec<_>>());
                return Ok(format!("new {} later {}", fetch.join(","), later.join(",")));
            }
            "fetched" => self.crawler.fetched(words[0])?,
            "keys" => return Ok(self.guard.database.keys.join(" ")),
            "round" if self.idle => return Ok("0 0".into()),
            "round" => return Ok(self.round()),
            other => return Err(other.into()),
        }
        Ok("ok".into())
    }

    fn lookup(&mut self, key: &str) -> String {
        let asked = self.guard.database.asked;
        let row = if self.guard.lookup(key).is_some() { "row" } else { "none" };
        row.to_string() + &"?".repeat(self.guard.database.asked - asked)
    }

    fn round(&mut self) -> String {
        self.rounds += 1;
        if let Err(error) = self.guard.insert(&format!("rust:{}", self.rounds), "inserted") {
            eprintln!("not inserted: {error}");
        }
        let keys = &self.guard.database.keys;
        let mut present: Vec<_> =
            (0..4).map(|i| keys[(self.rounds * 4 + i) % keys.len()].clone()).collect();
        present.extend(keys.last().cloned());
        let hidden: Vec<_> =
            present.iter().filter(|key| self.guard.lookup(key).is_none()).collect();
        if !hidden.is_empty() {
            return format!("hidden {hidden:?}");
        }
        let asked = self.guard.database.asked;
        for i in 0..5 {
            assert_eq!(self.guard.lookup(&format!("absent:{}:{i}", self.rounds)), None);
        }
        format!("{} {}", self.guard.database.asked - asked, self.guard.filter.failures)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let nodes = [std::env::args().nth(1).ok_or("no address")?];
    let mut worker = None;
    for line in stdin().lines() {
        let line = line?;
        let words: Vec<_> = line.split(' ').collect();
        let done = match (words[0], &mut worker) {
            ("use", _) => Worker::new(words[1], words.len() > 2, &nodes).map(|new| {
                worker = Some(new);
                "ok".to_string()
            }),
            ("shard", _) => {
                let shards = words[1].parse()?;
                let all = words[2..].iter().map(|item| shard_of(item, shards).to_string());
                Ok(all.collect::<Vec<_>>().join(" "))
            }
            ("markers", _) => Ok(markers(words[1].parse()?).join(",")),
            ("round", None) => Ok("0 0".into()),
            (command, Some(worker)) => worker.run(command, &words[1..]),
            _ => Err("no filter".into()),
        };
        match done {
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("raised {error}"),
        }
    }
    Ok(())
}
