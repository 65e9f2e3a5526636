//! The crate of clients/rust against the server of `REDIS_URL`. What its guard does while servers
//! fail is tested by tests/clients/python/test_guard.py.

use std::process::Command;
use std::time::Duration;

use redis::{Client, Connection, cmd};
use redis_bloom_client::{Guard, Options, bulk};

fn connect() -> (Client, Connection) {
    let url = std::env::var("REDIS_URL").expect("REDIS_URL is the address of a server");
    let client = Client::open(url).unwrap();
    let connection = client.get_connection().unwrap();
    (client, connection)
}

#[test]
fn the_scripts_are_those_of_the_library_for_python() {
    let file = "../../../clients/python/src/redis_bloom/_guard_scripts.py";
    let program = "import runpy, sys; s = runpy.run_path(sys.argv[1]); \
                   print(s['lookup']('t'), s['TRUST'], s['INSERT'], s['RESERVE'], s['TICK'], \
                   sep='\\0', end='')";
    let output = Command::new("python3").args(["-c", program, file]).output().unwrap();
    let theirs = String::from_utf8(output.stdout).unwrap();
    assert_eq!(theirs.split('\0').collect::<Vec<_>>(), redis_bloom_client::scripts());
}

#[test]
fn packed_batches_are_answered_in_their_order() {
    let (_, mut redis) = connect();
    cmd("UNLINK").arg("rust:bulk").exec(&mut redis).unwrap();
    let items: Vec<String> = (0..25_003).map(|i| format!("user:{i}")).collect();
    let options = ["CAPACITY", "30000", "ERROR", "0.0001"];
    let new = bulk::add(&mut redis, "rust:bulk", &items, &options).unwrap();
    // 25,003 items at a rate of 0.0001: 2.5 are known by chance at most; 20 are 1e-11.
    assert!(new.count == items.len() && new.ones() > items.len() as u64 - 20);
    let long = "x".repeat(300);
    let asked = items.iter().step_by(3).map(String::as_str).chain(["nobody", "", &long]);
    let known: Vec<bool> = bulk::exists(&mut redis, "rust:bulk", asked).unwrap().iter().collect();
    assert_eq!(known.len(), 8335 + 3);
    assert!(known[..8335].iter().all(|&known| known));
    bulk::add(&mut redis, "rust:bulk", [&long], &[]).unwrap();
    assert_eq!(bulk::exists(&mut redis, "rust:bulk", [&long]).unwrap().ones(), 1);
    cmd("BF.RESERVE")
        .arg("rust:full")
        .arg(0.000001)
        .arg(2)
        .arg("NONSCALING")
        .exec(&mut redis)
        .unwrap();
    let error = bulk::add(&mut redis, "rust:full", ["a", "b", "c"], &[]).unwrap_err();
    cmd("UNLINK").arg("rust:full").exec(&mut redis).unwrap();
    assert!(error.to_string().contains("full"), "{error}");
}

#[test]
fn a_guard_stops_absent_rows_and_hides_none() {
    let (client, _) = connect();
    let mut options = Options::new(1000);
    options.commit_within = Duration::from_millis(100);
    let guard = Guard::new(&client, "rust", options).unwrap();
    let keys = (0..100).map(|i| format!("user:{i}").into_bytes());
    assert_eq!(guard.lookup("absent", |_| Some(1)), Some(1), "there is no filter yet");
    guard.build(|| Ok(Box::new(keys))).unwrap();
    guard.insert("new").unwrap();
    let possible = guard.possible(["user:1", "absent", "new"]);
    assert!(possible.contains(&"user:1") && possible.contains(&"new"));
    for i in 0..100 {
        assert_eq!(guard.lookup(format!("user:{i}"), |_| Some(())), Some(()));
    }
    for i in 0..100 {
        guard.lookup(format!("absent:{i}"), |_| None::<()>);
    }
    // 101 absent keys at a rate of 0.001: more than 5 pass once in 10^9.
    assert!(guard.stats().saved >= 95, "{:?}", guard.stats());
}
