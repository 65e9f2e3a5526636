//! Commands with one item remember the last large filter by the name of its key
//! (`src/module/lookahead.rs`). The key may hold another value when the next command runs. Answers
//! must equal those of commands with many items, which remember nothing.

use crate::harness::{Client, Random, Reply, Server, add_until_card, int, mexists, numbered, ok};

/// A capacity at which a filter is large enough to be remembered.
const LARGE: &str = "300000";

/// Adds items one by one; queries them one by one, then all in one command.
#[track_caller]
fn add_and_ask(client: &mut Client, key: &str, prefix: &str) {
    let items = numbered(prefix, 30);
    for item in &items {
        assert_eq!(client.cmd(&["BF.EXISTS", key, item]), int(0), "{key} {item}");
        assert_eq!(client.cmd(&["BF.ADD", key, item]), int(1), "{key} {item}");
        assert_eq!(client.cmd(&["BF.EXISTS", key, item]), int(1), "{key} {item}");
    }
    assert!(mexists(client, key, &items).iter().all(|&found| found), "{key}");
}

#[track_caller]
fn reserve(client: &mut Client, key: &str, capacity: &str, seed: &str) {
    let made = client.cmd(&["BF.RESERVE", key, "1e-9", capacity, "SEED", seed]);
    assert_eq!(made, ok(), "{key}");
}

#[test]
fn a_key_holds_different_filters_in_turn() {
    let server = Server::start();
    let client = &mut server.client();
    for (seed, capacity) in [LARGE, LARGE, "100", LARGE, "600000", LARGE].iter().enumerate() {
        reserve(client, "k", capacity, &seed.to_string());
        add_and_ask(client, "k", "item");
        assert_eq!(client.run("DEL k"), int(1));
        assert_eq!(client.run("BF.EXISTS k item:000000000001"), int(0));
    }
    assert_eq!(client.run("SET k text"), ok());
    assert!(client.run("BF.ADD k item").error().starts_with("WRONGTYPE"));
    assert!(client.run("BF.EXISTS k item").error().starts_with("WRONGTYPE"));
    assert_eq!(client.run("BF.RESERVE other 1e-9 300000 SEED 77"), ok());
    assert_eq!(client.run("RENAME other k"), ok());
    add_and_ask(client, "k", "item");
}

#[test]
fn filters_with_equal_seeds_are_not_confused() {
    let server = Server::start();
    let client = &mut server.client();
    for key in ["a", "b"] {
        reserve(client, key, LARGE, "5");
        add_and_ask(client, key, key);
    }
    assert_eq!(client.run("RENAME a c"), ok());
    assert_eq!(client.run("RENAME b a"), ok());
    add_and_ask(client, "a", "more");
    assert!(mexists(client, "c", &numbered("more", 30)).iter().all(|&found| !found));
}

#[test]
fn many_keys_are_queried_in_any_order() {
    let server = Server::start();
    let client = &mut server.client();
    let long = "n".repeat(80);
    let given = ["", "k", "kk", "k2", &long[..7], &long[..8], &long[..9], &long, "small", "k\0"];
    let more = numbered("name", 20);
    let names: Vec<&str> = given.into_iter().chain(more.iter().map(String::as_str)).collect();
    for (seed, name) in names.iter().enumerate() {
        let capacity = if *name == "small" { "100" } else { LARGE };
        reserve(client, name, capacity, &seed.to_string());
    }
    let random = &mut Random::new(1);
    let mut added = vec![Vec::new(); names.len()];
    for number in 0..6_000 {
        // Mostly runs of one key, so that its filter is remembered.
        let at = if random.below(10) < 7 { number / 200 } else { random.below(names.len()) };
        if names[at] == "small" && added[at].len() == 100 {
            continue;
        }
        let item = format!("item:{number}");
        assert_eq!(client.cmd(&["BF.ADD", names[at], &item]), int(1));
        assert_eq!(client.cmd(&["BF.EXISTS", names[at], &item]), int(1));
        added[at].push(item);
    }
    for (at, name) in names.iter().enumerate() {
        assert!(added[at].len() > 20, "{name}");
        assert!(mexists(client, name, &added[at]).iter().all(|&found| found), "{name}");
        assert_eq!(client.cmd(&["BF.CARD", name]), int(added[at].len() as i64), "{name}");
    }
}

#[test]
fn a_remembered_filter_may_grow() {
    let server = Server::start();
    let client = &mut server.client();
    reserve(client, "k", "40000", "3");
    add_and_ask(client, "k", "first");
    add_until_card(client, "k", "fill", 41_000);
    add_and_ask(client, "k", "second");
    assert!(mexists(client, "k", &numbered("first", 30)).iter().all(|&found| found));
    assert_eq!(client.run("BF.INFO k FILTERS"), Reply::Array(vec![int(2)]));
}

#[test]
fn answers_are_correct_across_databases_and_in_scripts() {
    let server = Server::start();
    let client = &mut server.client();
    reserve(client, "k", LARGE, "1");
    assert_eq!(client.run("SELECT 1"), ok());
    reserve(client, "k", LARGE, "2");
    for number in 0..40 {
        for database in ["0", "1"] {
            assert_eq!(client.cmd(&["SELECT", database]), ok());
            let item = format!("{database}:{number}");
            assert_eq!(client.cmd(&["BF.ADD", "k", &item]), int(1));
        }
    }
    for (database, other) in [("0", "1"), ("1", "0")] {
        assert_eq!(client.cmd(&["SELECT", database]), ok());
        let of = |database: &str| (0..40).map(|n| format!("{database}:{n}")).collect::<Vec<_>>();
        assert!(mexists(client, "k", &of(database)).iter().all(|&found| found));
        assert!(mexists(client, "k", &of(other)).iter().all(|&found| !found));
    }
    let script = "redis.call('BF.ADD', KEYS[1], ARGV[1]); redis.call('DEL', KEYS[1]); \
                  redis.call('BF.RESERVE', KEYS[1], '1e-9', '300000', 'SEED', '9'); \
                  return redis.call('BF.EXISTS', KEYS[1], ARGV[1])";
    assert_eq!(client.cmd(&["EVAL", script, "1", "k", "item"]), int(0));
    add_and_ask(client, "k", "item");
}
