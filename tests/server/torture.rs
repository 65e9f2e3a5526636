//! Kill -9, again and again, while clients add and delete and the server saves: what was
//! acknowledged is there afterwards.
//!
//! ```text
//!   round:  clients write ──▶ BGSAVE or BGREWRITEAOF ──▶ (random moment) kill -9 ──▶ restart ──▶ compare with the model
//! ```
//!
//! The model is what the clients were told: each item that got an answer, and how often the answer
//! was "new". With `appendfsync always` a reply leaves the server after the write to the file, so
//! nothing of it may be missing. Each client also has a filter of its own, and keeps replacing a
//! copy of it: SCANDUMP, LOADCHUNK, RENAME. A kill takes the process and not the machine; what the
//! disk does with the bytes is not tested here.
//!
//! `REDIS_BLOOM_TORTURE_SECONDS` (default 8) says how long, `REDIS_BLOOM_TORTURE_SEED` repeats the
//! choices of a run (the moments themselves depend on the machine).

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::harness::{Client, Random, Reply, Server, mexists, ok, simple, wait_until};

const WRITERS: usize = 4;
/// With more items than this in the model all keys are dropped, so that a long run does not slow
/// down.
const MOST_ITEMS: usize = 150_000;
/// Filters that every round adds to. One grows at each doubling, one has a layer for every 50
/// items, one is never rewritten in a single chunk (48 MB), one is strict, one counts, and is large
/// enough to stay one layer.
const SHAPES: [(&str, &str); 5] = [
    ("grown", "0.001 100"),
    ("layers", "0.01 50 EXPANSION 1"),
    ("large", "0.01 38000000"),
    ("strict", "1e-9 5000"),
    (COUNTING, "0.01 400000 COUNTING"),
];
/// The filter that items are deleted from.
const COUNTING: &str = "counting";
/// By how much its count may be off once items were deleted: 150,000 items with a rate of 1e-4 at
/// most, and as little is weighed in by the counters.
const DRIFT: usize = 5;

/// What clients were told of one key.
#[derive(Default)]
struct Told {
    items: Vec<String>,
    /// Answers "new".
    new: usize,
    /// Items that were sent and got no answer: they may be there or not.
    unanswered: usize,
    /// Items that were deleted, and are not among `items` another time.
    gone: usize,
    /// Items whose deletion got no answer. They are not among `items` any more.
    unsure: usize,
}

type Model = BTreeMap<String, Told>;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| {
        value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number"))
    })
}

/// Adds to the filters in every way there is, until the server is gone; returns what it was told.
fn write(mut client: Client, name: &str, mut random: Random) -> Model {
    let own = format!("own-{name}");
    let mut told = Model::new();
    let mut number = 0;
    loop {
        let key = match random.below(4) {
            0 => own.clone(),
            _ => random.pick(&SHAPES).0.to_owned(),
        };
        let count = [1, 2, 10, 60][random.below(4)];
        let mut items: Vec<String> =
            (number..number + count).map(|n| format!("{name}-{n}")).collect();
        number += count;
        if random.below(3) == 0 {
            items.push(format!("{name}-{}", random.below(number)));
        }
        let answered = add(&mut client, &mut random, &key, &items);
        let entry = told.entry(key).or_default();
        let Ok(answers) = answered else {
            entry.unanswered += items.len();
            return told;
        };
        assert_eq!(answers.len(), items.len(), "an answer per item");
        entry.new += answers.iter().filter(|&&new| new).count();
        entry.items.extend(items);
        let counted = told.entry(COUNTING.to_owned()).or_default();
        if random.below(4) == 0 && delete(&mut client, &mut random, counted).is_err() {
            return told;
        }
        if random.below(10) == 0
            && told.contains_key(&own)
            && copy(&mut client, name, &mut told).is_err()
        {
            return told;
        }
    }
}

/// Replaces the copy of the client's own filter by one of the filter as it is now.
fn copy(client: &mut Client, name: &str, told: &mut Model) -> std::io::Result<()> {
    let (own, half, whole) =
        (format!("own-{name}"), format!("half-{name}"), format!("copy-{name}"));
    let Told { items, new, .. } = &told[&own];
    let fresh = Told { items: items.clone(), new: *new, ..Told::default() };
    let mut iterator = 0;
    loop {
        let reply = client.try_cmd(&["BF.SCANDUMP", &own, &iterator.to_string()])?;
        let [Reply::Int(next), Reply::Bulk(data)] = reply.elements() else {
            panic!("BF.SCANDUMP {own} {iterator} answered {reply:?}");
        };
        if *next == 0 {
            break;
        }
        iterator = *next;
        let number = iterator.to_string();
        let words = [b"BF.LOADCHUNK", half.as_bytes(), number.as_bytes(), data];
        assert_eq!(client.try_cmd(&words)?, ok());
    }
    // Until the answer comes it may be the old one or the new one.
    let entry = told.entry(whole.clone()).or_default();
    entry.unanswered = fresh.new - entry.new;
    assert_eq!(client.try_cmd(&["RENAME", &half, &whole])?, ok());
    *entry = fresh;
    Ok(())
}

/// One command, script or transaction; the answers for its items.
fn add(
    client: &mut Client,
    random: &mut Random,
    key: &str,
    items: &[String],
) -> std::io::Result<Vec<bool>> {
    let words = |before: &[&str]| -> Vec<String> {
        let before = before.iter().map(|&word| word.to_owned());
        before.chain(items.iter().cloned()).collect()
    };
    let reply = match random.below(6) {
        0 => {
            let mut replies = Vec::new();
            for item in items {
                replies.push(client.try_cmd(&["BF.ADD", key, item])?);
            }
            Reply::Array(replies)
        }
        1 => client.try_cmd(&words(&[
            "BF.INSERT",
            key,
            "CAPACITY",
            "70",
            "EXPANSION",
            "1",
            "ITEMS",
        ]))?,
        2 => client.try_cmd(&words(&[
            "EVAL",
            "return redis.call('BF.MADD', KEYS[1], unpack(ARGV))",
            "1",
            key,
        ]))?,
        3 => {
            let first = client.try_cmd(&["MULTI"])?;
            assert_eq!(first, ok());
            for item in items {
                assert_eq!(client.try_cmd(&["BF.ADD", key, item])?, simple("QUEUED"));
            }
            client.try_cmd(&["EXEC"])?
        }
        _ => client.try_cmd(&words(&["BF.MADD", key]))?,
    };
    Ok(reply.answers())
}

/// Deletes some of what was added to the filter that counts, in a command or a script.
fn delete(client: &mut Client, random: &mut Random, told: &mut Told) -> std::io::Result<()> {
    let count = [1, 2, 10][random.below(3)].min(told.items.len());
    if count == 0 {
        return Ok(());
    }
    let items: Vec<String> =
        (0..count).map(|_| told.items.swap_remove(random.below(told.items.len()))).collect();
    let command: &[&str] = match random.below(3) {
        0 => &["EVAL", "return redis.call('BF.DEL', KEYS[1], unpack(ARGV))", "1", COUNTING],
        _ => &["BF.DEL", COUNTING],
    };
    let words = command.iter().copied().chain(items.iter().map(String::as_str));
    told.unsure += count;
    let answer = client.try_cmd(&words.collect::<Vec<_>>())?;
    told.unsure -= count;
    let all = match answer {
        Reply::Int(only) => only == 1,
        answer => answer.answers() == vec![true; count],
    };
    assert!(all, "what was added is deleted: {items:?}");
    // Each name once, and only those of which no other addition is left.
    let gone: BTreeSet<&String> = items.iter().filter(|item| !told.items.contains(item)).collect();
    told.gone += gone.len();
    Ok(())
}

/// What the server was doing just before it was killed.
#[derive(Clone, Copy, PartialEq)]
enum Doing {
    Save,
    Rewrite,
    Nothing,
}

/// What is printed at the end.
#[derive(Default)]
struct Figures {
    /// Kills, by `Doing`.
    kills: [usize; 3],
    told: usize,
    unanswered: usize,
    gone: usize,
    slowest_start: Duration,
}

/// Lets clients write, makes the server save, and kills it; what the clients were told.
fn round(
    server: &mut Server,
    random: &mut Random,
    number: usize,
    figures: &mut Figures,
) -> Vec<Model> {
    let mut control = server.client();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (client, random) = (server.client(), Random::new(random.next()));
                scope.spawn(move || write(client, &format!("{number}.{writer}"), random))
            })
            .collect();
        sleep(Duration::from_micros(random.next() % 40_000));
        let save = *random.pick(&["BGSAVE", "BGREWRITEAOF", "BGREWRITEAOF"]);
        let preamble = *random.pick(&["no", "yes"]);
        assert_eq!(control.cmd(&["CONFIG", "SET", "aof-use-rdb-preamble", preamble]), ok());
        let reply = control.run(save);
        assert!(!reply.is_error(), "{save} answered {reply:?}");
        // Half of the kills come at any moment of the save, the others around its end, when files
        // change their names.
        let mut state = what_it_does(&mut control);
        if random.below(2) == 0 {
            sleep(Duration::from_micros(random.next() % 100_000));
            state = what_it_does(&mut control);
        } else {
            wait_until("the save ends", || {
                state = what_it_does(&mut control);
                state == Doing::Nothing
            });
            sleep(Duration::from_micros(random.next() % 3_000));
        }
        figures.kills[state as usize] += 1;
        server.kill();
        writers.into_iter().map(|writer| writer.join().expect("a client failed")).collect()
    })
}

fn what_it_does(control: &mut Client) -> Doing {
    let info = control.run("INFO persistence").text();
    if info.contains("rdb_bgsave_in_progress:1") {
        Doing::Save
    } else if info.contains("aof_rewrite_in_progress:1") {
        Doing::Rewrite
    } else {
        Doing::Nothing
    }
}

/// Everything that was acknowledged is there, and nothing that was never sent is counted.
#[track_caller]
fn compare(client: &mut Client, model: &Model, what: &str) {
    for (key, told) in model {
        if told.items.is_empty() {
            continue;
        }
        let there = mexists(client, key, &told.items);
        let lost: Vec<_> = told
            .items
            .iter()
            .zip(there)
            .filter(|(_, there)| !there)
            .map(|(item, _)| item)
            .collect();
        assert!(
            lost.is_empty(),
            "{what}: {} of {} acknowledged items of {key} are lost: {:?}",
            lost.len(),
            told.items.len(),
            &lost[..lost.len().min(5)]
        );
        let card = usize::try_from(client.cmd(&["BF.CARD", key]).int()).expect("a count of items");
        let drift = if told.gone + told.unsure > 0 { DRIFT } else { 0 };
        let least = told.new - told.gone - told.unsure;
        let most = told.new - told.gone + told.unanswered;
        assert!(
            (least.saturating_sub(drift)..=most + drift).contains(&card),
            "{what}: {key} counts {card} items; {} were new and {} got no answer; {} are gone, and {} perhaps",
            told.new,
            told.unanswered,
            told.gone,
            told.unsure
        );
    }
}

#[test]
fn what_was_acknowledged_survives_kills_during_saves_and_rewrites() {
    let length = Duration::from_secs(variable("REDIS_BLOOM_TORTURE_SECONDS", 8));
    let clock = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let seed = variable("REDIS_BLOOM_TORTURE_SEED", clock);
    println!("REDIS_BLOOM_TORTURE_SEED={seed}");
    let mut random = Random::new(seed);
    let mut server = Server::with()
        .config("appendonly yes")
        .config("auto-aof-rewrite-percentage 0")
        .config("rdb-key-save-delay 2000")
        .start();
    let mut model = Model::new();
    let mut figures = Figures::default();
    let begin = Instant::now();
    let mut rounds = 0;
    while begin.elapsed() < length {
        if model.is_empty() {
            for (key, options) in SHAPES {
                assert_eq!(server.client().run(&format!("BF.RESERVE {key} {options}")), ok());
            }
        }
        for told in round(&mut server, &mut random, rounds, &mut figures) {
            for (key, told) in told {
                figures.told += told.items.len();
                figures.unanswered += told.unanswered;
                figures.gone += told.gone;
                let all = model.entry(key).or_default();
                all.items.extend(told.items);
                all.new += told.new;
                all.unanswered += told.unanswered;
                all.gone += told.gone;
                all.unsure += told.unsure;
            }
        }
        let start = Instant::now();
        server.relaunch();
        figures.slowest_start = figures.slowest_start.max(start.elapsed());
        let client = &mut server.client();
        compare(client, &model, &format!("REDIS_BLOOM_TORTURE_SEED={seed}, round {rounds}"));
        rounds += 1;
        // The clients of the next round have other names.
        for key in client.run("KEYS *-*").elements() {
            client.cmd(&["UNLINK", &key.text()]);
        }
        model.retain(|key, _| !key.contains('-'));
        if model.values().map(|told| told.items.len()).sum::<usize>() > MOST_ITEMS {
            model.clear();
            assert_eq!(client.run("FLUSHALL"), ok());
        }
    }
    let digest = server.client().run("DEBUG DIGEST");
    server.kill_and_restart();
    assert_eq!(server.client().run("DEBUG DIGEST"), digest, "the file reads the same twice");
    let Figures { kills: [save, rewrite, nothing], told, unanswered, gone, slowest_start } =
        figures;
    println!(
        "{rounds} kills in {:.1?}: {save} during BGSAVE, {rewrite} during BGREWRITEAOF, {nothing} just after either; \
         {told} items acknowledged, none lost; {gone} deleted; {unanswered} sent without an answer; slowest start {slowest_start:.1?}",
        begin.elapsed()
    );
    assert!(rounds > 0 && told > 0 && gone > 0, "nothing was tested");
}
