//! Runs the guard for tests/clients/python/test_guard.py; guard_worker.py there says what this
//! program reads and prints.

use redis::Client;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::stdin;
use std::rc::Rc;
use std::time::Duration;

mod guard;

use guard::{Database, Guard, LONGEST_INSERT, build};

#[derive(Default)]
struct Table {
    rows: BTreeMap<String, String>,
    /// How often an absent row was asked for.
    asked: usize,
    newest: String,
}

/// A table that the guard and this program share.
#[derive(Clone)]
struct Shared(Rc<RefCell<Table>>);

impl Database for Shared {
    fn get(&mut self, key: &str) -> Option<String> {
        let mut table = self.0.borrow_mut();
        table.asked += usize::from(key.starts_with("absent"));
        table.rows.get(key).cloned()
    }

    fn insert(&mut self, key: &str, value: &str) {
        let mut table = self.0.borrow_mut();
        table.newest = key.into();
        table.rows.insert(key.into(), value.into());
    }

    fn keys(&mut self) -> Vec<String> {
        self.0.borrow().rows.keys().cloned().collect()
    }
}

/// Five lookups of rows that exist and twenty of rows that do not.
fn round(guard: &mut Guard<Shared>, table: &Rc<RefCell<Table>>, number: usize) -> String {
    let (keys, before) = (guard.database.keys(), table.borrow().asked);
    let newest = table.borrow().newest.clone();
    let present = (0..4).map(|i| keys[(number * 4 + i) % keys.len()].clone()).chain([newest]);
    let hidden: Vec<_> = present.filter(|key| guard.lookup(key).is_none()).collect();
    for i in 0..20 {
        assert_eq!(guard.lookup(&format!("absent:{number}:{i}")), None);
    }
    if !hidden.is_empty() {
        return format!("hidden {hidden:?}");
    }
    format!("{} {}", table.borrow().asked - before, guard.failures)
}

fn main() -> Result<(), Box<dyn Error>> {
    assert_eq!(LONGEST_INSERT, Duration::from_secs(5));
    let client = Client::open(std::env::args().nth(1).ok_or("no address")?)?;
    let table = Rc::new(RefCell::new(Table::default()));
    let mut database = Shared(Rc::clone(&table));
    for i in 0..2000 {
        database.insert(&format!("user:{i}"), &format!("name {i}"));
    }
    let mut guard = Guard::new(client.clone(), database.clone());
    for (number, line) in stdin().lines().enumerate() {
        let line = line?;
        let done = match line.split_once(' ') {
            Some((_, key)) => guard.insert(key, "inserted").map_err(Into::into),
            None if line == "build" => build(&client, &mut database, Duration::ZERO),
            None => {
                println!("{}", round(&mut guard, &table, number));
                continue;
            }
        };
        match done {
            Ok(()) => println!("ok"),
            Err(error) => println!("raised {error}"),
        }
    }
    Ok(())
}
