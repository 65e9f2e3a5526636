//! Runs a guard of clients/rust for tests/clients/python/test_guard_library.py, whose `Remote` says
//! what this program reads and prints: `model_worker blocking|tokio|cluster URL ROWS`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis_bloom_client::{AsyncGuard, Error, Guard, Keys, Options, Servers};
use tokio::runtime::Runtime;

enum Either {
    Blocking(Guard),
    Tokio(Runtime, AsyncGuard),
}

fn rows(path: &str, since: SystemTime) -> Result<Keys, Error> {
    let since = since.duration_since(UNIX_EPOCH)?.as_secs_f64();
    let mut keys = Vec::new();
    for line in std::fs::read_to_string(path)?.lines() {
        let (time, key) = line.split_once(' ').ok_or("a row is a time and a key")?;
        if time.parse::<f64>()? >= since {
            keys.push(key.to_string().into_bytes());
        }
    }
    Ok(Box::new(keys.into_iter()))
}

fn answer(guard: &Either, path: &str, line: &str) -> Result<String, Error> {
    let (command, key) = line.split_once(' ').unwrap_or((line, ""));
    let stats = match guard {
        Either::Blocking(guard) => guard.stats(),
        Either::Tokio(_, guard) => guard.stats(),
    };
    match (command, guard) {
        ("insert", Either::Blocking(guard)) => guard.insert(key)?,
        ("insert", Either::Tokio(runtime, guard)) => runtime.block_on(guard.insert(key))?,
        ("build", Either::Blocking(guard)) => guard.build(|| rows(path, UNIX_EPOCH))?,
        ("build", Either::Tokio(runtime, guard)) => {
            runtime.block_on(guard.build(async || rows(path, UNIX_EPOCH)))?;
        }
        ("lookup", guard) => {
            let found = match guard {
                Either::Blocking(guard) => guard.lookup(key, |_| Some(())),
                Either::Tokio(runtime, guard) => {
                    runtime.block_on(guard.lookup(key, async |_| Some(())))
                }
            };
            return Ok(if found.is_some() { "possible" } else { "absent" }.into());
        }
        _ => return Ok(format!("{} {}", stats.saved, stats.catch_ups)),
    }
    Ok("ok".into())
}

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().collect();
    let servers = match words[1].as_str() {
        "cluster" => Servers::cluster([words[2].as_str()])?,
        _ => Servers::from(&redis::Client::open(words[2].as_str())?),
    };
    let path = words[3].clone();
    let database = path.clone();
    let mut options = Options::new(10_000);
    options.commit_within = Duration::from_millis(200);
    options.margin = Duration::from_millis(1500);
    (options.timeout, options.insert_timeout) =
        (Duration::from_millis(500), Duration::from_millis(500));
    options.log = |_| ();
    let guard = if words[1] == "tokio" {
        let options =
            options.catch_up_async(move |since| std::future::ready(rows(&database, since)));
        let runtime = Runtime::new()?;
        let guard = runtime.block_on(async { AsyncGuard::new(servers, "users", options) })?;
        Either::Tokio(runtime, guard)
    } else {
        let options = options.catch_up(move |since| rows(&database, since));
        Either::Blocking(Guard::new(servers, "users", options)?)
    };
    for line in std::io::stdin().lines() {
        let answer = answer(&guard, &path, &line?);
        println!("{}", answer.unwrap_or_else(|error| format!("raised {error}").replace('\n', " ")));
    }
    Ok(())
}
