//! Runs the guard for tests/clients/python/test_guard.py; guard_worker.py there says what this
//! program reads and prints.

use redis::{Client, RedisResult};
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
    /// Is run when a build reads the keys.
    meanwhile: Option<Box<dyn Fn() -> RedisResult<()>>>,
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
        let table = self.0.borrow();
        if let Some(meanwhile) = &table.meanwhile {
            meanwhile().expect("the build was not broken");
        }
        table.rows.keys().cloned().collect()
    }
}

/// Deletes the filter under construction; with `anew` another build begins. `cut` closes all other
/// connections instead.
fn break_build(client: &Client, how: &str) -> RedisResult<()> {
    const NEW: &str = "guard:{users}:new";
    let mut redis = client.get_connection()?;
    if how == "cut" {
        return redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut redis);
    }
    redis::cmd("UNLINK").arg(NEW).exec(&mut redis)?;
    if how == "anew" {
        redis::cmd("BF.RESERVE").arg(NEW).arg(0.001).arg(120_000).exec(&mut redis)?;
    }
    Ok(())
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
            Some(("build", how)) => {
                let (other, how) = (client.clone(), how.to_string());
                let meanwhile = Box::new(move || break_build(&other, &how));
                table.borrow_mut().meanwhile = Some(meanwhile);
                let done = build(&client, &mut database, Duration::ZERO);
                table.borrow_mut().meanwhile = None;
                done
            }
            Some((_, key)) => guard.insert(key, "inserted"),
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
