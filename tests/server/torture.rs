//! Repeated `kill -9` while clients add and delete and the server saves: every acknowledged change
//! must survive.
//!
//! ```text
//!   round:  clients write ──▶ BGSAVE or BGREWRITEAOF ──▶ kill -9 at a random moment
//!                         ──▶ restart ──▶ compare with the model
//! ```
//!
//! The model records the replies to the clients: each item that got an answer, and how often the
//! answer was "new". With `appendfsync always` the server writes the AOF before it replies, so
//! nothing acknowledged may be missing. Each client also has a private filter, and replaces a copy
//! of it again and again with SCANDUMP, LOADCHUNK and RENAME. A kill ends the process, not the
//! machine: the test does not cover loss of data in the disk.
//!
//! `REDIS_BLOOM_TORTURE_SECONDS` (default 8) is the duration. `REDIS_BLOOM_TORTURE_SEED` repeats
//! the random choices of a run, but their timing depends on the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::harness::{Client, Random, Reply, Server, mexists, ok, simple, wait_until};

const WRITERS: usize = 4;
/// With more items than this in the model, all keys are dropped, so that a long run stays fast.
const MOST_ITEMS: usize = 150_000;
/// Filters that every round adds to: one grows from its first item on, one has an expansion of 1,
/// one (48 MB) needs several chunks in an AOF rewrite, one has a low rate, and one deletes.
const SHAPES: [(&str, &str); 5] = [
    ("grown", "0.001 100"),
    ("narrow", "0.01 50 EXPANSION 1"),
    ("large", "0.01 38000000"),
    ("strict", "1e-9 5000"),
    (COUNTING, "0.0001 400000 COUNTING"),
];
/// The key of the filter that items are deleted from.
const COUNTING: &str = "counting";
/// Allowed error of that filter's item count after deletions: an item that is taken for another one
/// shares its slot, which stays when one of the two is deleted. At this rate, one in 10,000 at
/// most.
const DRIFT: usize = 5;

/// The replies to the clients for one key.
#[derive(Default)]
struct Acknowledged {
    items: Vec<String>,
    /// Number of answers "new".
    new: usize,
    /// Number of items that were sent and got no answer; the filter may have them or not.
    unanswered: usize,
    /// Number of deleted items of which `items` has no other addition.
    gone: usize,
    /// Number of items whose deletion got no answer; `items` does not have them any more.
    unsure: usize,
}

type Model = BTreeMap<String, Acknowledged>;

pub(crate) fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| {
        value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number"))
    })
}

/// Adds to the filters in every way until the server is killed; returns the replies as a model.
fn write(mut client: Client, name: &str, mut random: Random) -> Model {
    let own = format!("own-{name}");
    let mut model = Model::new();
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
        let entry = model.entry(key).or_default();
        let Ok(answers) = answered else {
            entry.unanswered += items.len();
            return model;
        };
        assert_eq!(answers.len(), items.len(), "one answer per item");
        entry.new += answers.iter().filter(|&&new| new).count();
        entry.items.extend(items);
        let counted = model.entry(COUNTING.to_owned()).or_default();
        if random.below(4) == 0 && delete(&mut client, &mut random, counted).is_err() {
            return model;
        }
        if random.below(10) == 0
            && model.contains_key(&own)
            && copy(&mut client, name, &mut model).is_err()
        {
            return model;
        }
    }
}

/// Replaces the copy of the client's private filter by a new copy.
fn copy(client: &mut Client, name: &str, model: &mut Model) -> std::io::Result<()> {
    let (own, half, whole) =
        (format!("own-{name}"), format!("half-{name}"), format!("copy-{name}"));
    let Acknowledged { items, new, .. } = &model[&own];
    let fresh = Acknowledged { items: items.clone(), new: *new, ..Acknowledged::default() };
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
    // Until RENAME is answered, the key may hold the old copy or the new one.
    let entry = model.entry(whole.clone()).or_default();
    entry.unanswered = fresh.new - entry.new;
    assert_eq!(client.try_cmd(&["RENAME", &half, &whole])?, ok());
    *entry = fresh;
    Ok(())
}

/// Adds the items with single commands, a batch, a script or a transaction; returns the answers.
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

/// Deletes some of the acknowledged items of [`COUNTING`], with a command or a script.
fn delete(
    client: &mut Client,
    random: &mut Random,
    counted: &mut Acknowledged,
) -> std::io::Result<()> {
    let count = [1, 2, 10][random.below(3)].min(counted.items.len());
    if count == 0 {
        return Ok(());
    }
    let items: Vec<String> =
        (0..count).map(|_| counted.items.swap_remove(random.below(counted.items.len()))).collect();
    let command: &[&str] = match random.below(3) {
        0 => &["EVAL", "return redis.call('BF.DEL', KEYS[1], unpack(ARGV))", "1", COUNTING],
        _ => &["BF.DEL", COUNTING],
    };
    let words = command.iter().copied().chain(items.iter().map(String::as_str));
    counted.unsure += count;
    let answer = client.try_cmd(&words.collect::<Vec<_>>())?;
    counted.unsure -= count;
    let all = match answer {
        Reply::Int(only) => only == 1,
        answer => answer.answers() == vec![true; count],
    };
    assert!(all, "some added items were not deleted: {items:?}");
    // An item that was added twice is gone only after its last deletion.
    let gone: BTreeSet<&String> =
        items.iter().filter(|item| !counted.items.contains(item)).collect();
    counted.gone += gone.len();
    Ok(())
}

/// The task of the server just before it was killed.
#[derive(Clone, Copy, PartialEq)]
enum Doing {
    Save,
    Rewrite,
    Nothing,
}

#[derive(Default)]
struct Figures {
    /// Kills, by `Doing`.
    kills: [usize; 3],
    acknowledged: usize,
    unanswered: usize,
    gone: usize,
    slowest_start: Duration,
}

/// Lets clients write, makes the server save, and kills it; returns the model of each client.
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
        // Half of the kills come during the save, and the others around its end, when the server
        // renames files.
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

/// Asserts that every acknowledged item is in its filter, and that the item counts match the model.
#[track_caller]
fn compare(client: &mut Client, model: &Model, what: &str) {
    for (key, expected) in model {
        if expected.items.is_empty() {
            continue;
        }
        let there = mexists(client, key, &expected.items);
        let lost: Vec<_> = expected
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
            expected.items.len(),
            &lost[..lost.len().min(5)]
        );
        let card = usize::try_from(client.cmd(&["BF.CARD", key]).int()).expect("a count of items");
        let drift = if expected.gone + expected.unsure > 0 { DRIFT } else { 0 };
        let least = expected.new - expected.gone - expected.unsure;
        let most = expected.new - expected.gone + expected.unanswered;
        assert!(
            (least.saturating_sub(drift)..=most + drift).contains(&card),
            "{what}: {key} counts {card} items; {} were new and {} got no answer; \
             {} were deleted, and {} perhaps",
            expected.new,
            expected.unanswered,
            expected.gone,
            expected.unsure
        );
    }
}

#[test]
fn acknowledged_changes_survive_kills_during_saves_and_rewrites() {
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
        for client_model in round(&mut server, &mut random, rounds, &mut figures) {
            for (key, replies) in client_model {
                figures.acknowledged += replies.items.len();
                figures.unanswered += replies.unanswered;
                figures.gone += replies.gone;
                let all = model.entry(key).or_default();
                all.items.extend(replies.items);
                all.new += replies.new;
                all.unanswered += replies.unanswered;
                all.gone += replies.gone;
                all.unsure += replies.unsure;
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
        if model.values().map(|replies| replies.items.len()).sum::<usize>() > MOST_ITEMS {
            model.clear();
            assert_eq!(client.run("FLUSHALL"), ok());
        }
    }
    let digest = server.client().run("DEBUG DIGEST");
    server.kill_and_restart();
    assert_eq!(server.client().run("DEBUG DIGEST"), digest, "the file reads the same twice");
    let Figures { kills: [save, rewrite, nothing], acknowledged, unanswered, gone, slowest_start } =
        figures;
    println!(
        "{rounds} kills in {:.1?}: {save} during BGSAVE, {rewrite} during BGREWRITEAOF, {nothing} \
         just after either; {acknowledged} items acknowledged, none lost; {gone} deleted; \
         {unanswered} sent without an answer; slowest start {slowest_start:.1?}",
        begin.elapsed()
    );
    assert!(rounds > 0 && acknowledged > 0 && gone > 0, "nothing was tested");
}
