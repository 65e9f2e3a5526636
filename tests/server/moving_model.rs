//! A seeded model of a migration. The files of one server move from RedisBloom to this module and
//! back, several times, and clients work in between. A RedisBloom that never moves gets the same
//! commands. Every reply must be equal to its reply.
//!
//! ```text
//!   commands ─┬─▶ RedisBloom, which stays ───────────────────── replies, answers
//!             └─▶ RedisBloom ─files─▶ this module ─files─▶ ...    are the same
//!                     └─stream─▶ a replica, this module
//! ```
//!
//! `REDIS_BLOOM_PEER_REDISBLOOM` is the path of its library; without it the test prints SKIPPED.

use std::mem;

use crate::{
    harness::{
        Client, Random, Reply, Server, config_name, dump, int, load, mexists, numbered, ok,
        wait_until,
    },
    layout::{AOF, rewrite},
    redisbloom_live::{copy_files, peer, redisbloom},
};

const ROUNDS: u64 = 6;
/// Moves in a round.
const MOVES: usize = 5;
/// Commands between two moves.
const COMMANDS: usize = 40;
const KEYS: usize = 6;
const ITEMS: usize = 3_000;

#[test]
fn every_answer_is_redisblooms_however_often_the_files_move() {
    let Some(path) = peer("every_answer_is_redisblooms_however_often_the_files_move") else {
        return;
    };
    let first = std::env::var("MOVING_MODEL_SEED").map_or(1, |seed| seed.parse().expect("a seed"));
    for seed in first..first + ROUNDS {
        println!("MOVING_MODEL_SEED={seed}");
        round(seed, &path);
    }
}

fn round(seed: u64, path: &str) {
    let random = &mut Random::new(seed);
    let stays = redisbloom(path);
    let reference = &mut stays.client();
    let settings = format!("{} redisbloom", config_name("layout"));
    let mut here = with_aof(redisbloom(path));
    let mut there = with_aof(Server::with().config(&settings).start());
    there.kill();
    let items = numbered("item", ITEMS);
    let asked = [&items[..], &numbered("absent", ITEMS)].concat();
    let mut is_theirs = true;
    for _ in 0..MOVES {
        let client = &mut here.client();
        let replica = (is_theirs && random.below(2) == 0).then(|| here.replica());
        for _ in 0..COMMANDS {
            let command = command(random, &items);
            let shown = command.iter().take(8).cloned().collect::<Vec<_>>().join(" ");
            if command[0] == "chunks" {
                let (from, to) = (&command[1], &command[2]);
                assert_eq!(copied(client, from, to), copied(reference, from, to), "{shown}");
            } else {
                assert_eq!(client.cmd(&command), reference.cmd(&command), "{shown}");
            }
        }
        let expected = answers(reference, &asked);
        check(client, &asked, &expected, "before the move");
        if let Some(replica) = replica {
            assert_eq!(client.run("WAIT 1 30000"), int(1));
            check(&mut replica.client(), &asked, &expected, "the replica");
        }
        // A dump file is copied, too, and the server may be saving one for the replica.
        wait_until("the server saves", || client.run("SAVE") == ok());
        if random.below(2) == 0 {
            rewrite(client);
        }
        here.kill();
        copy_files(here.dir(), there.dir());
        mem::swap(&mut here, &mut there);
        here.relaunch();
        is_theirs = !is_theirs;
        check(&mut here.client(), &asked, &expected, "after the move");
    }
}

fn with_aof(mut server: Server) -> Server {
    AOF.iter().for_each(|line| server.configure(line));
    server.kill();
    server.relaunch();
    server
}

/// A command that means the same to both products: above a quarter, RedisBloom 2.8 and 8 differ.
fn command(random: &mut Random, items: &[String]) -> Vec<String> {
    let key = format!("k{}", random.below(KEYS));
    let other = format!("k{}", random.below(KEYS));
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let first = random.below(items.len());
    let count = *random.pick(&[1, 2, 7, 100, 1_000]);
    let some = &items[first..(first + count).min(items.len())];
    let capacity = *random.pick(&[10, 100, 900]);
    let rate = *random.pick(&["0.25", "0.1", "0.01", "0.001", "1e-6"]);
    let growth = *random.pick(&["", " NONSCALING", " EXPANSION 1", " EXPANSION 2", " EXPANSION 5"]);
    match random.below(16) {
        0..3 => words(&format!("BF.RESERVE {key} {rate} {capacity}{growth}")),
        3..5 => [words(&format!("BF.ADD {key}")), some[..1].to_vec()].concat(),
        5..8 => [words(&format!("BF.MADD {key}")), some.to_vec()].concat(),
        8 => {
            let head = format!("BF.INSERT {key} CAPACITY {capacity} ERROR {rate}{growth} ITEMS");
            [words(&head), some.to_vec()].concat()
        }
        9 => [words(&format!("BF.INSERT {key} NOCREATE ITEMS")), some.to_vec()].concat(),
        10 => words(&format!("chunks {key} {other}")),
        11 => words(&format!("DEL {key}")),
        12 => words(&format!("RENAME {key} {other}")),
        13 => {
            let script = "return redis.call(unpack(ARGV))".to_owned();
            let head = [words("EVAL"), vec![script], words(&format!("1 {key} BF.ADD {key}"))];
            [head.concat(), some[..1].to_vec()].concat()
        }
        14 => words(&format!("EXPIRE {key} 100000")),
        _ => words(&format!("BF.CARD {key}")),
    }
}

/// Copies a filter by SCANDUMP and LOADCHUNK to a key that is free; whether it did.
fn copied(client: &mut Client, from: &str, to: &str) -> bool {
    if client.run(&format!("EXISTS {from}")) == int(0)
        || client.run(&format!("EXISTS {to}")) == int(1)
    {
        return false;
    }
    let pieces = dump(client, from);
    pieces.iter().all(|piece| load(client, to, piece) == ok())
}

type Answers = Vec<(Vec<bool>, Reply)>;

fn answers(client: &mut Client, asked: &[String]) -> Answers {
    let keys = (0..KEYS).map(|key| format!("k{key}"));
    keys.map(|key| match client.run(&format!("EXISTS {key}")) {
        Reply::Int(1) => (mexists(client, &key, asked), client.cmd(&["BF.DEBUG", &key])),
        none => (Vec::new(), none),
    })
    .collect()
}

#[track_caller]
fn check(client: &mut Client, asked: &[String], expected: &Answers, when: &str) {
    let found = answers(client, asked);
    for (key, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.1, expected.1, "k{key} {when}");
        assert!(found.0 == expected.0, "answers of k{key} differ {when}");
    }
}
