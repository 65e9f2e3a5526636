//! Filters with counters: COUNTING, BF.DEL, BF.COUNT. `tests/filter/model.rs` proves what a
//! deletion may do to the answers; these tests check what a client sees, and that deletions are
//! stored and replicated.

use crate::harness::{
    Client, Protocol, Reply, Server, add_until_card, array, check, digest, dump, err, fresh, info,
    int, ints, load, mexists, null, numbered, ok, wait_until,
};

const NOT_COUNTING: &str = "ERR not a counting filter";

#[test]
fn del_answers_an_item_with_a_boolean_and_several_with_an_array() {
    let server = Server::start();
    let rows = |yes: Reply, no: Reply| {
        vec![
            ("BF.RESERVE k 0.000001 100 COUNTING", ok()),
            ("BF.ADD k a", yes.clone()),
            ("BF.ADD k a", no.clone()),
            ("BF.COUNT k a", int(2)),
            ("BF.COUNT k z", int(0)),
            ("BF.DEL k a", yes.clone()),
            ("BF.EXISTS k a", yes.clone()),
            ("BF.DEL k a", yes.clone()),
            ("BF.EXISTS k a", no.clone()),
            ("BF.DEL k a", no.clone()),
            ("BF.MADD k a b c a", array([yes.clone(), yes.clone(), yes.clone(), no.clone()])),
            ("BF.CARD k", int(3)),
            (
                "BF.DEL k a z b a a",
                array([yes.clone(), no.clone(), yes.clone(), yes.clone(), no.clone()]),
            ),
            ("BF.CARD k", int(1)),
            ("BF.MEXISTS k a b c", array([no.clone(), no, yes])),
            ("DEL k", int(1)),
        ]
    };
    for protocol in Protocol::BOTH {
        let (yes, no) = match protocol {
            Protocol::Resp2 => (int(1), int(0)),
            Protocol::Resp3 => (Reply::Bool(true), Reply::Bool(false)),
        };
        check(&mut server.speak(protocol), &rows(yes, no));
    }
}

#[test]
fn only_a_filter_of_counters_can_be_deleted_from() {
    let server = Server::start();
    let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
    fresh(
        &mut server.client(),
        &[
            (&["BF.ADD k a"], "BF.DEL k a", err(NOT_COUNTING)),
            (&["BF.ADD k a"], "BF.DEL k a b", err(NOT_COUNTING)),
            (&["BF.ADD k a"], "BF.COUNT k a", err(NOT_COUNTING)),
            // The options of BF.INSERT do not change an existing filter.
            (&["BF.ADD k a"], "BF.INSERT k COUNTING ITEMS b", err(NOT_COUNTING)),
            (&["SET k x"], "BF.DEL k a", err(wrong_type)),
            (&["SET k x"], "BF.COUNT k a", err(wrong_type)),
            (&[], "BF.DEL k a", int(0)),
            (&[], "BF.DEL k a b", ints([0, 0])),
            (&[], "BF.COUNT k a", int(0)),
            (&["BF.DEL k a"], "EXISTS k", int(0)),
            (&["BF.INSERT k counting ITEMS a"], "BF.DEL k a", int(1)),
            (&["BF.RESERVE k 0.01 10 EXPANSION 3 counting", "BF.ADD k a"], "BF.DEL k a", int(1)),
            (
                &["BF.RESERVE k 0.01 10 COUNTING NONSCALING SEED 1", "BF.ADD k a"],
                "BF.DEL k a",
                int(1),
            ),
            // The bare expansion of NRedisStack, and an option after it.
            (&["BF.RESERVE k 0.01 10 4 COUNTING", "BF.ADD k a"], "BF.DEL k a", int(1)),
        ],
    );
}

#[test]
fn missing_key_error_applies_to_deletions_and_counts() {
    let server = Server::start();
    let client = &mut server.client();
    let setting = crate::harness::config_name("missing-key-error");
    assert_eq!(client.cmd(&["CONFIG", "SET", &setting, "yes"]), ok());
    check(client, &[("BF.DEL k a", err("ERR not found")), ("BF.COUNT k a", err("ERR not found"))]);
}

#[test]
fn info_shows_four_times_the_memory_and_refused_deletions() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE bits 0.001 100000");
    client.run("BF.RESERVE counters 0.001 100000 COUNTING");
    let (bits, counters) = (info(client, "bits"), info(client, "counters"));
    assert_eq!((counters.capacity, counters.items), (100_000, 0));
    let ratio = counters.size as f64 / bits.size as f64;
    assert!((3.99..4.01).contains(&ratio), "{} against {} bytes", counters.size, bits.size);
    // A filter of bits has no such numbers.
    for (line, expected) in [
        ("BF.INFO bits SATURATED", array([null()])),
        ("BF.INFO bits UNDELETED", array([null()])),
        ("BF.INFO counters SATURATED", ints([0])),
        ("BF.INFO counters undeleted", ints([0])),
    ] {
        assert_eq!(client.run(line), expected, "{line}");
    }
    // So small that the sample covers every counter.
    client.run("DEL counters");
    client.run("BF.RESERVE counters 0.001 1000 COUNTING");
    let often = vec!["often"; 20];
    client.call("BF.MADD", "counters", &often);
    assert_eq!(client.run("BF.COUNT counters often"), int(15));
    let saturated = client.run("BF.INFO counters SATURATED").elements()[0].int();
    assert!((1..=20).contains(&saturated), "{saturated} of about ten probes");
    assert_eq!(client.run("BF.DEL counters often often"), ints([0, 0]));
    assert_eq!(client.run("BF.INFO counters UNDELETED"), ints([2]));
    let resp3 = &mut server.resp3();
    assert_eq!(resp3.run("BF.INFO counters UNDELETED").get("Refused deletions"), Some(&int(2)));
    assert_eq!(resp3.run("BF.INFO bits SATURATED").get("Saturated counters"), Some(&null()));
    // Refused deletions are counted per server: neither stored nor copied.
    client.run("COPY counters copy");
    assert_eq!(client.run("BF.INFO copy UNDELETED"), ints([0]));
    assert_eq!(client.run("DEBUG RELOAD"), ok());
    assert_eq!(client.run("BF.INFO counters UNDELETED"), ints([0]));
    assert_eq!(client.run("BF.INFO counters SATURATED"), ints([saturated]));
}

#[test]
fn a_grown_filter_refuses_to_delete_an_item_of_two_layers() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.000001 10 COUNTING");
    let items = add_until_card(client, "k", "item", 500);
    assert!(info(client, "k").filters > 4);
    assert_eq!(client.call("BF.DEL", "k", &items[..5]), ints([1; 5]), "items of the oldest layer");
    assert_eq!(
        client.run("BF.ADD k item-7"),
        int(0),
        "the item tests present, and is in two layers now"
    );
    assert_eq!(client.run("BF.COUNT k item-7"), int(2));
    assert_eq!(client.run("BF.DEL k item-7"), int(0));
    assert_eq!(client.run("BF.EXISTS k item-7"), int(1));
    assert_eq!(client.run("BF.INFO k UNDELETED"), ints([1]));
    assert_eq!(client.run("BF.CARD k"), int(496));
    assert!(mexists(client, "k", &items[5..]).iter().all(|&there| there));
    assert!(!mexists(client, "k", &items[..5]).contains(&true));
}

/// Additions and deletions by every command, some of them refused.
#[track_caller]
fn live(client: &mut Client) {
    client.run("BF.RESERVE grown 0.01 50 COUNTING");
    add_until_card(client, "grown", "item", 300);
    client.call("BF.MADD", "grown", &numbered("item", 40));
    client.call("BF.DEL", "grown", &numbered("item", 120));
    client.run("BF.DEL grown item-200");
    client.run("BF.INSERT full ERROR 0.000001 CAPACITY 3 NONSCALING COUNTING ITEMS a b a c d");
    client.run("BF.MADD full a d b");
    client.run("BF.DEL full a x b");
    client.run("BF.ADD full d");
    client.run("MULTI");
    client.run("BF.ADD full a");
    client.run("BF.DEL full a");
    client.run("EXEC");
}

#[test]
fn the_aof_holds_additions_and_deletions() {
    let mut server = Server::with().config("appendonly yes").start();
    live(&mut server.client());
    let before = ["grown", "full"].map(|key| digest(&mut server.client(), key));
    server.kill_and_restart();
    let client = &mut server.client();
    assert_eq!(["grown", "full"].map(|key| digest(client, key)), before);
    // The AOF is rewritten as commands and loaded.
    assert_eq!(client.run("CONFIG SET aof-use-rdb-preamble no"), ok());
    client.run("BGREWRITEAOF");
    wait_until("the AOF is rewritten", || !client.has_child());
    server.restart();
    let client = &mut server.client();
    assert_eq!(["grown", "full"].map(|key| digest(client, key)), before);
    assert_eq!(client.run("BF.DEL full d"), int(1), "the filter still counts");
}

/// Items come and go in the order of their age. At this rate none tests present in a layer that it
/// is not in, so at most five layers hold 350 items.
#[test]
fn emptied_layers_leave_the_filter_and_its_replica() {
    let mut server = Server::with().config("appendonly yes").start();
    let replica = server.replica();
    let (client, read) = (&mut server.client(), &mut replica.client());
    client.run("BF.RESERVE k 0.000000001 100 COUNTING EXPANSION 1");
    let items = numbered("item", 10_000);
    for (number, new) in items.chunks(50).enumerate() {
        assert_eq!(client.call("BF.MADD", "k", new).answers(), [true; 50]);
        if let Some(first) = (number * 50).checked_sub(300) {
            let old = &items[first..first + 50];
            if number % 3 == 0 {
                assert!(old.iter().all(|item| client.cmd(&["BF.DEL", "k", item]) == int(1)));
            } else {
                assert_eq!(client.call("BF.DEL", "k", old).answers(), [true; 50]);
            }
        }
        let layers = info(client, "k").filters;
        assert!(layers <= 5, "{layers} layers");
        assert_eq!(client.server_info("bf", "bf_layers"), layers.to_string());
    }
    assert!(mexists(client, "k", &items[9_700..]).iter().all(|&there| there));
    let shown =
        ["bytes", "items", "capacity"].map(|name| client.server_info("bf", &format!("bf_{name}")));
    let own = ["SIZE", "ITEMS", "CAPACITY"];
    let own =
        own.map(|word| client.run(&format!("BF.INFO k {word}")).elements()[0].int().to_string());
    assert_eq!(shown, own);
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    assert_eq!(digest(read, "k"), digest(client, "k"));
    assert_eq!(read.run("BF.DEBUG k"), client.run("BF.DEBUG k"));
    let before = digest(client, "k");
    server.kill_and_restart();
    assert_eq!(digest(&mut server.client(), "k"), before, "the commands of the AOF");
    assert_eq!(server.client().run("DEBUG RELOAD"), ok());
    assert_eq!(digest(&mut server.client(), "k"), before);
}

/// A layer of 4 MiB and more is freed by a thread.
#[test]
fn a_large_emptied_layer_gives_its_memory_back() {
    let server = Server::start();
    let client = &mut server.client();
    let before = client.memory("used_memory");
    client.run("BF.RESERVE k 0.000000001 1000000 COUNTING EXPANSION 1");
    let items = numbered("item", 1_010_000);
    items.chunks(10_000).for_each(|chunk| drop(client.call("BF.MADD", "k", chunk)));
    assert_eq!(client.run("BF.INFO k FILTERS"), ints([2]));
    let both = client.memory("used_memory") - before;
    items.chunks(10_000).for_each(|chunk| drop(client.call("BF.DEL", "k", chunk)));
    assert_eq!(client.run("BF.INFO k FILTERS"), ints([1]));
    wait_until("the layer is freed", || client.memory("used_memory") - before < both * 2 / 3);
}

/// After many changes the item count depends only on the counters. A replica, a reload and a loaded
/// dump compute it again.
#[test]
fn a_filter_after_many_changes_has_the_same_numbers_everywhere() {
    const CAPACITY: i64 = 1_000;
    let master = Server::start();
    let replica = master.replica();
    let (client, read) = (&mut master.client(), &mut replica.client());
    client.run(&format!("BF.RESERVE k 0.05 {CAPACITY} COUNTING NONSCALING SEED 7"));
    let items = numbered("item", 40_000);
    client.call("BF.MADD", "k", &items[..900]);
    for (old, new) in items.chunks(100).zip(items[900..].chunks(100)) {
        let deleted = client.call("BF.DEL", "k", old).answers();
        assert_eq!(deleted, vec![true; old.len()]);
        client.call("BF.MADD", "k", new);
    }
    client.call("BF.MADD", "k", &vec!["often"; 20]);
    let numbers = |client: &mut Client, key: &str| {
        let words = ["ITEMS", "SATURATED", "FILL"];
        words.map(|word| client.run(&format!("BF.INFO {key} {word}")))
    };
    let before = numbers(client, "k");
    // There are 901 items. At the capacity 5 % of new items are not counted, and the counters are
    // off by 10 (`tests/filter/fullness.rs`).
    let shown = before[0].elements()[0].int();
    assert!((850..950).contains(&shown), "{shown} items of 901");
    assert!((1..=4).contains(&before[1].elements()[0].int()), "{before:?}");
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    assert_eq!(numbers(read, "k"), before);
    assert_eq!(digest(read, "k"), digest(client, "k"));
    for piece in dump(client, "k") {
        assert_eq!(load(client, "loaded", &piece), ok());
    }
    client.run("COPY k copy");
    assert_eq!(client.run("DEBUG RELOAD"), ok());
    for key in ["k", "loaded", "copy"] {
        assert_eq!(numbers(client, key), before, "{key}");
    }
    // The filter is full at the same item everywhere.
    let more = numbered("more", 300);
    let answers = client.call("BF.MADD", "k", &more);
    assert!(answers.elements().last().expect("answers").is_error());
    assert!((50..150).contains(&answers.elements().len()), "{}", answers.elements().len());
    assert_eq!(client.run("BF.CARD k"), int(CAPACITY));
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    assert_eq!(digest(read, "k"), digest(client, "k"));
    assert_eq!(client.call("BF.MADD", "loaded", &more), answers);
}

/// A full filter may count more items than its capacity after its oldest items are replaced by new
/// ones. BF.CARD does not show that; every way to store or to copy the filter keeps the count.
#[test]
fn a_count_above_the_capacity_is_stored_and_copied_but_not_shown() {
    let master = Server::start();
    let replica = master.replica();
    let (client, read) = (&mut master.client(), &mut replica.client());
    client.run("BF.RESERVE k 0.05 100 COUNTING NONSCALING SEED 7");
    // A header ends with the last layer (16 bytes of shape and capacity, 8 of items, 24 more) and
    // the checksum (`codec/native/header.rs`).
    let counted = |client: &mut Client| {
        let (_, header) = &dump(client, "k")[0];
        let items = header[header.len() - 40..].first_chunk();
        u64::from_le_bytes(*items.expect("8 bytes"))
    };
    let mut items = (0..20_000).map(|number| format!("item-{number}"));
    let mut oldest = items.clone();
    while counted(client) < 103 {
        while client.run("BF.CARD k") != int(100) {
            let item = items.next().expect("the count never exceeds the capacity");
            client.run(&format!("BF.ADD k {item}"));
        }
        let item = oldest.next().expect("an item");
        assert_eq!(client.run(&format!("BF.DEL k {item}")), int(1));
    }
    assert!(client.run("BF.CARD k").int() <= 100);
    let before = digest(client, "k");
    let dumped = client.cmd(&["DUMP", "k"]).payload();
    assert_eq!(client.call("RESTORE", "restored", &[b"0", &dumped[..]]), ok());
    client.run("COPY k copy");
    for piece in dump(client, "k") {
        assert_eq!(load(client, "loaded", &piece), ok());
    }
    assert_eq!(client.run("DEBUG RELOAD"), ok());
    for key in ["k", "restored", "copy", "loaded"] {
        assert_eq!(digest(client, key), before, "{key}");
    }
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    for key in ["k", "restored", "copy", "loaded"] {
        assert_eq!(digest(read, key), before, "{key}");
    }
}

#[test]
fn a_filter_that_changes_can_be_dumped_only_from_a_copy() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.INSERT k ERROR 0.000001 CAPACITY 100 COUNTING ITEMS a b b c");
    let pieces = dump(client, "k");
    assert_eq!(load(client, "torn", &pieces[0]), ok());
    client.run("BF.DEL k a");
    client.run("BF.ADD k a");
    let later = dump(client, "k");
    assert_eq!(load(client, "torn", &later[1]), err("ERR received bad data"));
    client.run("COPY k still");
    client.run("BF.ADD k d");
    for piece in dump(client, "still") {
        assert_eq!(load(client, "whole", &piece), ok());
    }
    assert_eq!(digest(client, "whole"), digest(client, "still"));
    assert_eq!(client.run("BF.COUNT whole b"), int(2));
    assert_eq!(client.run("BF.DEL torn a"), err("ERR filter is being loaded by BF.LOADCHUNK"));
}

/// Deletions need no memory.
#[test]
fn a_server_above_maxmemory_deletes() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.INSERT k COUNTING ITEMS a b");
    assert_eq!(client.run("CONFIG SET maxmemory 1"), ok());
    assert!(client.run("BF.ADD k c").error().starts_with("OOM"));
    assert_eq!(client.run("BF.DEL k a"), int(1));
    assert_eq!(client.run("BF.COUNT k b"), int(1));
}

/// The limit is in bytes, and counters take four times as many as bits.
#[test]
fn max_filter_bytes_limits_counters_too() {
    let server = Server::start();
    let client = &mut server.client();
    let setting = crate::harness::config_name("max-filter-bytes");
    assert_eq!(client.cmd(&["CONFIG", "SET", &setting, "100000"]), ok());
    let refused = err("ERR Insufficient memory to create filter");
    check(
        client,
        &[
            ("BF.RESERVE bits 0.01 50000", ok()),
            ("BF.RESERVE counters 0.01 50000 COUNTING", refused.clone()),
            ("BF.INSERT counters ERROR 0.01 CAPACITY 50000 COUNTING ITEMS a", refused),
            ("BF.RESERVE counters 0.01 10000 COUNTING NONSCALING", ok()),
        ],
    );
    // With this seed "another" is no false positive; with one seed in 130 it is.
    client.run("BF.RESERVE grows 0.01 10000 COUNTING SEED 1");
    let items = numbered("item", 12_000);
    let answers = client.call("BF.MADD", "grows", &items);
    let (last, before) = answers.elements().split_last().expect("answers");
    assert_eq!(*last, err("ERR problem inserting into filter"));
    assert!(mexists(client, "grows", &items[..before.len()]).iter().all(|&there| there));
    // Deletions make room for an item that was refused.
    assert_eq!(client.call("BF.DEL", "grows", &items[..10]).elements().len(), 10);
    assert_eq!(client.cmd(&["BF.ADD", "grows", "another"]), int(1));
}
