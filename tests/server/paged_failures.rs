//! Filters of every kind on servers that fail, while pages split and slices of removal run.
//!
//! ```text
//!   round:  additions, deletions, time ──▶ kill -9, promotion, rewrite, reload, full sync, dump
//!                                      ──▶ compare with the model, and the replica bit by bit
//! ```
//!
//! The model has what clients were told: with `appendfsync always`, nothing acknowledged may be
//! missing. `CLIENT PAUSE` stops the slices as it stops commands, so that two servers can be
//! compared in the middle of a pass.
//!
//! `REDIS_BLOOM_TORTURE_SECONDS` (default 8) is the duration. `REDIS_BLOOM_TORTURE_SEED` repeats
//! the random choices of a run, but the timing of slices depends on the machine.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    harness::{
        Builder, Client, Clock, Random, Reply, Server, assert_unharmed, config_name, digest, dump,
        int, load, mexists, numbered, ok, wait_until,
    },
    torture::variable,
};

/// Milliseconds of the windows.
const SPAN: i64 = 60_000;
/// Items of the window of items.
const LAST: usize = 20_000;
/// Keys and words of BF.RESERVE: "plain" has bits, "stack" has layers as RedisBloom makes them, the
/// others have pages ("above" once it is full). At this rate, few items of a run are found by
/// accident.
const FILTERS: [(&str, &str); 10] = [
    ("plain", "0.0001 100000"),
    ("stack", "0.0001 200"),
    ("grows", "0.0001 100 SEED 7"),
    ("above", "0.0001 3000"),
    ("shard", "0.0001 100 SHARD 0 1"),
    ("counts", "0.0001 100 COUNTING SEED 7"),
    ("reserved", "0.0001 60000 COUNTING"),
    ("users", "0.0001 1000 WINDOW PX 60000"),
    ("once", "0.0001 40000 WINDOW PX 60000 GENERATIONS 8 NOREFRESH"),
    ("last", "0.0001 20000 WINDOW COUNT GENERATIONS 6"),
];
/// Numbers of the items of a key: they come again and again.
const POOL: usize = 60_000;

/// What clients were told of one key.
#[derive(Default)]
struct Told {
    /// Of each item: how often it is there at least.
    counts: BTreeMap<usize, u64>,
    /// Of each item: when it was added last; in "once", when it was new.
    times: BTreeMap<usize, i64>,
    /// The last additions.
    last: VecDeque<usize>,
}

type Model = BTreeMap<&'static str, Told>;

fn name(number: usize) -> String {
    format!("item-{number}")
}

fn names(numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|&number| name(number)).collect()
}

/// The time of a server in milliseconds.
fn time(client: &mut Client) -> i64 {
    let reply = client.run("TIME");
    let number = |at: usize| reply.elements()[at].text().parse::<i64>().expect("a number");
    number(0) * 1_000 + number(1) / 1_000
}

fn is_time(key: &str) -> bool {
    matches!(key, "users" | "once")
}

fn is_counting(key: &str) -> bool {
    matches!(key, "counts" | "reserved")
}

/// Adds a batch; notes what the client was told. A server without memory may refuse the end of it.
fn add(client: &mut Client, random: &mut Random, model: &mut Model, squeezed: bool) {
    let (key, _) = *random.pick(&FILTERS);
    let count = [1, 40, 500, 2_500][random.below(4)];
    let first = random.below(POOL - count);
    let numbers: Vec<usize> = (first..first + count).collect();
    let before = time(client);
    let mut reply = client.call("BF.MADD", key, &names(&numbers));
    match &mut reply {
        Reply::Error(_) if squeezed => return,
        Reply::Array(answers) if squeezed => {
            answers.pop_if(|last| last.is_error());
        }
        _ => assert_eq!(reply.elements().len(), count),
    }
    let told = model.entry(key).or_default();
    for (number, new) in numbers.into_iter().zip(reply.answers()) {
        *told.counts.entry(number).or_default() += 1;
        if key != "once" || new {
            told.times.insert(number, before);
        }
        if key == "last" {
            told.last.push_back(number);
            if told.last.len() > LAST {
                told.last.pop_front();
            }
        }
    }
}

/// Deletes items that are there, once each.
fn delete(client: &mut Client, random: &mut Random, model: &mut Model) {
    let key = *random.pick(&["counts", "reserved"]);
    let told = model.entry(key).or_default();
    let first = random.below(POOL);
    let there = told.counts.range(first..).filter(|(_, count)| **count > 0);
    let numbers: Vec<usize> =
        there.take(1 + random.below(3_000)).map(|(number, _)| *number).collect();
    if numbers.is_empty() {
        return;
    }
    let deleted = match client.call("BF.DEL", key, &names(&numbers)) {
        Reply::Int(one) => vec![one == 1],
        all => all.answers(),
    };
    assert!(deleted.iter().all(|deleted| *deleted), "{key}: an added item was not deleted");
    for number in numbers {
        *told.counts.entry(number).or_default() -= 1;
    }
}

/// Merges a new filter into one that is there. Whether it did; if not, nothing may change.
fn merge(client: &mut Client, random: &mut Random, model: &mut Model) -> bool {
    let (key, words) = *random.pick(&[FILTERS[2], FILTERS[5]]);
    let count = 1 + random.below(4_000);
    let first = random.below(POOL - count);
    let numbers: Vec<usize> = (first..first + count).collect();
    client.run(&format!("BF.RESERVE part {words}"));
    let added = client.call("BF.MADD", "part", &names(&numbers));
    // Transactions have no slice of removal in between.
    client.run("MULTI");
    client.cmd(&["DEBUG", "DIGEST-VALUE", key]);
    client.cmd(&["BF.MERGE", key, "part"]);
    client.cmd(&["DEBUG", "DIGEST-VALUE", key]);
    let reply = client.run("EXEC");
    let merged = match &reply {
        Reply::Array(replies) if replies[1] == ok() => true,
        Reply::Array(replies) => {
            assert_eq!(replies[0], replies[2], "{key}: {:?}", replies[1]);
            false
        }
        _ => {
            assert!(reply.is_error(), "{reply:?}");
            false
        }
    };
    if merged && let Reply::Array(added) = added {
        let told = model.entry(key).or_default();
        for (number, _) in numbers.into_iter().zip(added).filter(|(_, it)| !it.is_error()) {
            *told.counts.entry(number).or_default() += 1;
        }
    }
    client.run("DEL part");
    merged
}

/// Adds, merges and deletes while the server has next to no memory, or filters may hardly grow.
/// Returns how many additions were refused.
fn squeeze(client: &mut Client, random: &mut Random, model: &mut Model) -> usize {
    let refused = |client: &mut Client| -> usize {
        client.server_info("bf", "bf_refused_growth").parse().expect("a number")
    };
    let before = refused(client);
    let bytes = random.next() % 60_000;
    let setting = match random.below(2) {
        0 => config_name("max-filter-bytes"),
        _ => "maxmemory".to_owned(),
    };
    let used: u64 = match setting.as_str() {
        "maxmemory" => client.server_info("memory", "used_memory").parse().expect("a number"),
        _ => 100,
    };
    assert_eq!(client.cmd(&["CONFIG", "SET", &setting, &(used + bytes).to_string()]), ok());
    for _ in 0..1 + random.below(8) {
        match random.below(4) {
            0 => {
                merge(client, random, model);
            }
            1 => delete(client, random, model),
            _ => add(client, random, model, true),
        }
    }
    assert_eq!(client.cmd(&["CONFIG", "SET", &setting, "0"]), ok());
    refused(client) - before
}

/// Asserts that all is there that clients were told of.
#[track_caller]
fn check(client: &mut Client, model: &Model, what: &str) {
    for (&key, told) in model {
        let now = time(client);
        let young = |number: &usize| told.times.get(number).is_some_and(|at| now - at < SPAN);
        let numbers: Vec<usize> = match key {
            "last" => told.last.iter().copied().collect(),
            _ if is_time(key) => told.times.keys().copied().filter(young).collect(),
            _ => told.counts.iter().filter(|(_, n)| **n > 0).map(|(number, _)| *number).collect(),
        };
        if numbers.is_empty() {
            continue;
        }
        let there = mexists(client, key, &names(&numbers));
        // What was young when the query began may be old now.
        let now = time(client);
        let lost: Vec<_> = numbers
            .iter()
            .zip(there)
            .filter(|(_, there)| !there)
            .filter(|(number, _)| !is_time(key) || now - told.times[number] < SPAN)
            .map(|(number, _)| number)
            .collect();
        assert!(lost.is_empty(), "{what}: {key} lost {} of {}", lost.len(), numbers.len());
        if is_counting(key) {
            let some: Vec<usize> =
                numbers.iter().copied().step_by(1 + numbers.len() / 400).collect();
            let asked: Vec<_> = some
                .iter()
                .map(|&number| vec!["BF.COUNT".into(), key.into(), name(number)])
                .collect();
            let counts = client.pipeline::<String>(&asked);
            for (number, count) in some.iter().zip(counts) {
                // 16 means "16 or more".
                let least = told.counts[number].min(16);
                assert!(count.int() as u64 >= least, "{what}: {key} {number}: {count:?}");
            }
        }
    }
    assert_eq!(client.server_info("bf", "bf_unapplied"), "0", "{what}");
}

/// Stops all changes, in the middle of a pass or not, and waits until the replica has them.
#[track_caller]
fn pause(primary: &mut Client, replica: &mut Client) {
    assert_eq!(primary.run("CLIENT PAUSE 100000 WRITE"), ok());
    wait_until("the replica has all", || {
        replica.server_info("replication", "master_link_status") == "up"
            && replica.server_info("replication", "slave_repl_offset")
                == primary.server_info("replication", "master_repl_offset")
    });
}

/// Looks at the two servers while nothing changes.
#[track_caller]
fn still<T>(
    primary: &mut Client,
    replica: &mut Client,
    look: impl FnOnce(&mut Client, &mut Client) -> T,
) -> T {
    pause(primary, replica);
    let seen = look(primary, replica);
    assert_eq!(primary.run("CLIENT UNPAUSE"), ok());
    seen
}

#[track_caller]
fn assert_equal(primary: &mut Client, replica: &mut Client, what: &str) {
    still(primary, replica, |primary, replica| {
        for (key, _) in FILTERS {
            assert_eq!(digest(replica, key), digest(primary, key), "{what}: {key}");
        }
        assert_eq!(replica.run("DEBUG DIGEST"), primary.run("DEBUG DIGEST"), "{what}");
        assert_eq!(replica.server_info("bf", "bf_unapplied"), "0", "{what}");
    });
}

fn builder(clock: &Clock) -> Builder {
    Server::with()
        .clock(clock)
        .config("appendonly yes")
        .config("auto-aof-rewrite-percentage 0")
        .config("propagation-error-behavior panic")
}

fn replica_of(primary: &Server, clock: &Clock) -> Server {
    let replica = builder(clock).replica_of(primary).start();
    wait_for_link(&replica);
    replica
}

fn wait_for_link(replica: &Server) {
    let client = &mut replica.client();
    wait_until("the replica is in sync", || {
        client.server_info("replication", "master_link_status") == "up"
    });
}

/// Sends a batch whose replies nobody reads, and kills the server in the midst of it.
fn kill_while_it_adds(server: &mut Server, random: &mut Random, model: &mut Model) {
    let mut client = server.client();
    for _ in 0..random.below(30) {
        let (key, _) = *random.pick(&FILTERS);
        let first = random.below(POOL - 500);
        let numbers: Vec<usize> = (first..first + 500).collect();
        let words = ["BF.MADD".to_owned(), key.to_owned()].into_iter().chain(names(&numbers));
        client.send(&words.collect::<Vec<_>>());
        if key == "last" {
            // They may be in it, and push out others: only what came after them is sure.
            model.entry(key).or_default().last.clear();
        }
    }
    sleep(Duration::from_micros(random.next() % 20_000));
    server.kill();
}

fn digests(client: &mut Client) -> Vec<String> {
    FILTERS.iter().map(|(key, _)| digest(client, key)).collect()
}

/// The newest file of the server's log.
fn log(server: &Server) -> Vec<u8> {
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("a log");
    let files = files.map(|file| file.expect("a file").path());
    let (_, newest) = files
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_prefix("appendonly.aof.")?;
            Some((name.strip_suffix(".incr.aof")?.parse::<u64>().ok()?, path))
        })
        .max()
        .expect("an incremental file");
    fs::read(newest).expect("readable")
}

#[test]
fn nothing_is_lost_and_copies_are_equal_whatever_fails() {
    let length = Duration::from_secs(variable("REDIS_BLOOM_TORTURE_SECONDS", 8));
    let since = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let seed = variable("REDIS_BLOOM_TORTURE_SEED", since);
    println!("REDIS_BLOOM_TORTURE_SEED={seed}");
    let random = &mut Random::new(seed);
    let clock = Clock::new();
    let mut primary = builder(&clock).start();
    let mut replica = replica_of(&primary, &clock);
    let mut model = Model::new();
    for (key, options) in FILTERS {
        let client = &mut primary.client();
        let layout = if key == "stack" { "redisbloom" } else { "native" };
        assert_eq!(client.cmd(&["CONFIG", "SET", &config_name("layout"), layout]), ok());
        assert_eq!(client.run(&format!("BF.RESERVE {key} {options}")), ok());
    }
    let mut done: BTreeMap<&str, usize> = BTreeMap::new();
    let mut slices = 0;
    let begin = Instant::now();
    while begin.elapsed() < length {
        let client = &mut primary.client();
        for _ in 0..1 + random.below(12) {
            match random.below(10) {
                0 | 9 => clock.advance((random.next() % (SPAN as u64 / 3)) as i64),
                1 => {
                    client.cmd(&["BF.FORGET", *random.pick(&["users", "once"])]);
                }
                2 | 3 => delete(client, random, &mut model),
                4 => sleep(Duration::from_millis(random.next() % 15)),
                _ => add(client, random, &mut model, false),
            }
        }
        let what = *random.pick(&[
            "compare",
            "kill",
            "kill",
            "rewrite",
            "reload",
            "promote",
            "full sync",
            "copy",
            "load",
            "merge",
            "squeeze",
        ]);
        *done.entry(what).or_default() += 1;
        let what = format!("REDIS_BLOOM_TORTURE_SEED={seed}, {what}, {:?}", begin.elapsed());
        match what.split(", ").nth(1).expect("its name") {
            "kill" if random.below(2) == 0 => {
                // The file has all that was said.
                pause(client, &mut replica.client());
                let (before, length) = (digests(client), log(&primary).len());
                primary.kill_and_restart();
                let after = digests(&mut primary.client());
                // If a window was emptied in the file, the server goes on to sweep it.
                let log = log(&primary).split_off(length);
                let log = String::from_utf8_lossy(&log);
                for ((key, _), (before, after)) in FILTERS.iter().zip(before.iter().zip(&after)) {
                    let is_swept = log.contains("SWEEP") && log.contains(&format!("\r\n{key}\r\n"));
                    assert!(before == after || is_swept, "{what}: {key}");
                }
                wait_for_link(&replica);
            }
            "kill" => {
                kill_while_it_adds(&mut primary, random, &mut model);
                primary.relaunch();
                wait_for_link(&replica);
            }
            "rewrite" => {
                let preamble = *random.pick(&["no", "yes"]);
                client.cmd(&["CONFIG", "SET", "aof-use-rdb-preamble", preamble]);
                wait_until("no child is left", || !client.has_child());
                assert!(!client.run("BGREWRITEAOF").is_error());
            }
            "reload" => {
                let read = &mut replica.client();
                still(client, read, |client, read| {
                    let before = client.run("DEBUG DIGEST");
                    assert_eq!(read.run("DEBUG RELOAD"), ok(), "{what}");
                    assert_eq!(read.run("DEBUG DIGEST"), before, "{what}");
                    wait_until("no child is left", || !client.has_child());
                    assert_eq!(client.run("DEBUG RELOAD"), ok(), "{what}");
                    assert_eq!(client.run("DEBUG DIGEST"), before, "{what}");
                });
            }
            "promote" => {
                let read = &mut replica.client();
                still(client, read, |_, read| assert_eq!(read.run("REPLICAOF NO ONE"), ok()));
                slices += shifts(read);
                replica.configure("replicaof no one");
                std::mem::swap(&mut primary, &mut replica);
                replica = replica_of(&primary, &clock);
            }
            "full sync" => {
                slices += shifts(&mut replica.client());
                replica = replica_of(&primary, &clock);
            }
            "copy" => {
                for (key, _) in FILTERS {
                    assert_eq!(client.run("MULTI"), ok());
                    client.cmd(&["COPY", key, "copy", "REPLACE"]);
                    client.cmd(&["DEBUG", "DIGEST-VALUE", key, "copy"]);
                    let reply = client.run("EXEC");
                    let [copied, digests] = reply.elements() else { panic!("{what}: {reply:?}") };
                    assert_eq!(*copied, int(1), "{what}: {key}");
                    assert_eq!(digests.elements()[0], digests.elements()[1], "{what}: {key}");
                }
                assert_eq!(client.run("DEL copy"), int(1));
            }
            "load" => {
                let (key, _) = *random.pick(&FILTERS);
                let read = &mut replica.client();
                let (pieces, payload, before) = still(client, read, |client, read| {
                    assert!(dump(read, key) == dump(client, key), "{what}: {key}");
                    (dump(client, key), client.cmd(&["DUMP", key]).payload(), digest(client, key))
                });
                for piece in &pieces {
                    assert_eq!(load(client, "chunks", piece), ok(), "{what}: {key}");
                }
                assert_eq!(digest(client, "chunks"), before, "{what}: {key}");
                let restored = client.call("RESTORE", "restored", &[&b"0"[..], &payload]);
                assert_eq!(restored, ok(), "{what}: {key}");
                assert_eq!(digest(client, "restored"), before, "{what}: {key}");
                assert_eq!(client.run("DEL chunks restored"), int(2));
            }
            "merge" => {
                *done.entry("merged").or_default() +=
                    usize::from(merge(client, random, &mut model));
            }
            "squeeze" => *done.entry("refused").or_default() += squeeze(client, random, &mut model),
            _ => {}
        }
        check(&mut primary.client(), &model, &what);
        assert_equal(&mut primary.client(), &mut replica.client(), &what);
        check(&mut replica.client(), &model, &what);
    }
    slices += shifts(&mut replica.client());
    assert_unharmed(&primary);
    assert_unharmed(&replica);
    println!("{done:?}; {slices} shifts and slices reached replicas, in {:.1?}", begin.elapsed());
    assert!(slices > 0, "nothing was swept");
}

/// Calls of BF.SHIFT that a replica had.
fn shifts(client: &mut Client) -> usize {
    let stats = client.run("INFO commandstats").text();
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_bf.shift:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Pages of a filter, by BF.DEBUG.
fn pages(client: &mut Client, key: &str) -> i64 {
    let lines = client.cmd(&["BF.DEBUG", key]);
    let line = lines.elements().iter().map(Reply::text).find(|line| line.contains("pages:"));
    let line = line.expect("a line of pages");
    let number = line.split("pages:").nth(1).and_then(|rest| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).expect("a number")
}

/// A window of 200,000 items, of which all but 2,000 are forgotten. The pass that removes them has
/// begun, and stands still.
fn half_swept(primary: &Server, replica: &Server, clock: &Clock) -> i64 {
    let client = &mut primary.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 1000 WINDOW PX 60000"), ok());
    for batch in numbered("old", 200_000).chunks(5_000) {
        client.call("BF.MADD", "k", batch);
    }
    clock.advance(50_000);
    client.call("BF.MADD", "k", &numbered("young", 2_000));
    let full = pages(client, "k");
    clock.advance(30_000);
    // A generation starts.
    client.send(&["BF.ADD", "k", "first"]);
    client.send(&["CLIENT", "PAUSE", "100000", "WRITE"]);
    assert_eq!(client.read(), int(1));
    assert_eq!(client.read(), ok());
    let read = &mut replica.client();
    wait_until("the replica has all", || {
        read.server_info("replication", "slave_repl_offset")
            == client.server_info("replication", "master_repl_offset")
    });
    assert!(pages(client, "k") > full / 2, "the pass was over already");
    assert_eq!(digest(read, "k"), digest(client, "k"));
    full
}

/// Waits until a pass has freed what is forgotten, and checks that the rest is there.
#[track_caller]
fn wait_for_the_pass(client: &mut Client, full: i64) {
    wait_until("the pass is over", || pages(client, "k") < full / 20);
    let there = mexists(client, "k", &numbered("young", 2_000));
    assert!(there.into_iter().all(|there| there));
}

/// A replica removes nothing itself. It goes on where the primary stopped once it is promoted, as
/// soon as a client adds, or sends BF.FORGET.
#[test]
fn a_promoted_replica_goes_on_with_the_pass() {
    for command in ["BF.FORGET", "BF.ADD"] {
        let clock = Clock::new();
        let primary = builder(&clock).start();
        let replica = replica_of(&primary, &clock);
        let full = half_swept(&primary, &replica, &clock);
        let client = &mut replica.client();
        let before = digest(client, "k");
        sleep(Duration::from_millis(50));
        assert_eq!(digest(client, "k"), before, "a replica swept");
        assert_eq!(client.run("REPLICAOF NO ONE"), ok());
        match command {
            "BF.FORGET" => assert_eq!(client.run("BF.FORGET k"), int(0)),
            // Each 32nd addition sweeps a page.
            _ => numbered("new", 40).iter().for_each(|item| {
                assert!(!client.cmd(&["BF.ADD", "k", item]).is_error());
            }),
        }
        let second = replica_of(&replica, &clock);
        wait_for_the_pass(client, full);
        still(client, &mut second.client(), |client, read| {
            assert_eq!(digest(read, "k"), digest(client, "k"), "{command}");
        });
        assert_unharmed(&replica);
    }
}

/// So does a server that was killed in the middle of a pass.
#[test]
fn a_server_that_starts_again_goes_on_with_the_pass() {
    let clock = Clock::new();
    let mut server = builder(&clock).start();
    let replica = replica_of(&server, &clock);
    let full = half_swept(&server, &replica, &clock);
    let before = digest(&mut server.client(), "k");
    server.kill_and_restart();
    let client = &mut server.client();
    assert_eq!(digest(client, "k"), before);
    assert!(!client.run("BF.FORGET k").is_error());
    wait_for_the_pass(client, full);
    wait_for_link(&replica);
    still(client, &mut replica.client(), |client, read| {
        assert_eq!(digest(read, "k"), digest(client, "k"));
    });
}

/// A reserved filter that becomes full gets pages in the stream, in the file, and in the replica
/// that joins in the meantime; in one command, and in many.
#[test]
fn a_reserved_filter_overflows_alike_everywhere() {
    let mut primary = Server::with().config("appendonly yes").start();
    let first = primary.replica();
    let client = &mut primary.client();
    for (key, options) in
        [("one", ""), ("many", ""), ("bulk", " EXPANSION 1"), ("shard", " SHARD 0 1")]
    {
        assert_eq!(client.run(&format!("BF.RESERVE {key} 0.01 5000{options}")), ok());
    }
    let items = numbered("item", 12_000);
    let mut second = None;
    for (round, batch) in items.chunks(700).enumerate() {
        client.call("BF.MADD", "many", batch);
        client.call("BF.MADD", "shard", batch);
        client.cmd(&["BF.BULKADD", "bulk", "LINES", &batch.join("\n")]);
        for item in batch.iter().take(200) {
            client.cmd(&["BF.ADD", "one", item]);
        }
        if round == 7 {
            // Just before and just after the overflow of the filters.
            second = Some(primary.replica());
            client.run("BGREWRITEAOF");
        }
    }
    client.call("BF.MADD", "one", &items);
    assert_eq!(client.run("BF.RESERVE at_once 0.01 5000"), ok());
    client.call("BF.MADD", "at_once", &items);
    let second = second.expect("a second replica");
    assert_eq!(client.run("WAIT 2 60000"), int(2));
    let keys = ["one", "many", "bulk", "shard", "at_once"];
    for replica in [&first, &second] {
        let read = &mut replica.client();
        for key in keys {
            assert_eq!(digest(read, key), digest(client, key), "{key}");
            assert!(pages(read, key) > 0, "{key}");
        }
        assert_eq!(read.server_info("bf", "bf_unapplied"), "0");
    }
    wait_until("the file is written", || !client.has_child());
    let before = client.run("DEBUG DIGEST");
    primary.kill_and_restart();
    let client = &mut primary.client();
    assert_eq!(client.run("DEBUG DIGEST"), before);
    for key in keys {
        assert!(mexists(client, key, &items).into_iter().all(|there| there), "{key}");
    }
}

/// A dump in two chunks of a filter that grows between them: the copy has each item that was there
/// when the dump began.
#[test]
fn a_copy_in_chunks_of_a_growing_filter_has_what_was_there() {
    const WIDTH: usize = 8;
    let server = Server::start();
    let client = &mut server.client();
    let packed = |client: &mut Client, key: &str, numbers: std::ops::Range<u64>| {
        let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        assert_eq!(bytes.len() % WIDTH, 0);
        let reply = client.call(key, "k", &[&b"WIDTH"[..], b"8", &bytes]);
        assert!(!reply.is_error(), "{reply:?}");
        reply
    };
    assert_eq!(client.run("BF.RESERVE k 0.01 100"), ok());
    for million in 0..10 {
        packed(client, "BF.BULKADD", million * 1_000_000..(million + 1) * 1_000_000);
    }
    let mut iterator = 0;
    let mut chunks = 0;
    loop {
        let reply = client.cmd(&["BF.SCANDUMP", "k", &iterator.to_string()]);
        let [Reply::Int(next), Reply::Bulk(data)] = reply.elements() else { panic!("{reply:?}") };
        if *next == 0 {
            break;
        }
        (iterator, chunks) = (*next, chunks + 1);
        assert_eq!(load(client, "copy", &(iterator, data.clone())), ok(), "chunk {chunks}");
        let from = 10_000_000 + chunks * 300_000;
        packed(client, "BF.BULKADD", from..from + 300_000);
    }
    assert!(chunks > 2, "{chunks} pieces");
    assert!(client.run("BF.CARD copy").int() > 9_900_000);
    assert_eq!(client.run("RENAME copy k"), ok());
    let mut found = 0_u32;
    for million in 0..10 {
        let reply = packed(client, "BF.BULKEXISTS", million * 1_000_000..(million + 1) * 1_000_000);
        found +=
            reply.elements()[1].clone().payload().iter().map(|byte| byte.count_ones()).sum::<u32>();
    }
    assert_eq!(found, 10_000_000, "items are missing");
    assert_unharmed(&server);
}
