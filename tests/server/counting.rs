//! Filters with counters: COUNTING, BF.DEL, BF.COUNT: what a client sees, and that deletions are
//! stored and replicated. `paged_model.rs` compares the answers with a model, and
//! `paged_promises.rs` measures bits and rates.

use crate::harness::{
    Client, Protocol, Reply, Server, add_until_card, add_until_refused, array, check, digest, dump,
    err, fresh, info, int, ints, load, mexists, null, numbered, ok, wait_until,
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

/// A count of 16 means "16 or more": such an item cannot be deleted any more.
#[test]
fn info_shows_saturated_counts_and_refused_deletions() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE bits 0.001 100000");
    client.run("BF.RESERVE counters 0.000001 100000 COUNTING");
    assert_eq!((info(client, "counters").capacity, info(client, "counters").items), (100_000, 0));
    // A filter of bits has no such numbers.
    for (line, expected) in [
        ("BF.INFO bits SATURATED", array([null()])),
        ("BF.INFO bits UNDELETED", array([null()])),
        ("BF.INFO counters SATURATED", ints([0])),
        ("BF.INFO counters undeleted", ints([0])),
    ] {
        assert_eq!(client.run(line), expected, "{line}");
    }
    client.call("BF.MADD", "counters", &["often"; 15]);
    assert_eq!(client.run("BF.COUNT counters often"), int(15));
    assert_eq!(client.run("BF.INFO counters SATURATED"), ints([0]));
    assert_eq!(client.run("BF.DEL counters often"), int(1));
    client.call("BF.MADD", "counters", &["often"; 6]);
    assert_eq!(client.run("BF.COUNT counters often"), int(16));
    assert_eq!(client.run("BF.INFO counters SATURATED"), ints([1]));
    assert_eq!(client.run("BF.DEL counters often often"), ints([0, 0]));
    assert_eq!(client.run("BF.COUNT counters often"), int(16));
    // A deletion of an item that is not there is not refused.
    assert_eq!(client.run("BF.DEL counters never"), int(0));
    assert_eq!(client.run("BF.INFO counters UNDELETED"), ints([2]));
    let resp3 = &mut server.resp3();
    assert_eq!(resp3.run("BF.INFO counters UNDELETED").get("Refused deletions"), Some(&int(2)));
    assert_eq!(resp3.run("BF.INFO bits SATURATED").get("Saturated counters"), Some(&null()));
    // Refused deletions are counted per server: neither stored nor copied.
    client.run("COPY counters copy");
    assert_eq!(client.run("BF.INFO copy UNDELETED"), ints([0]));
    assert_eq!(digest(client, "copy"), digest(client, "counters"));
    assert_eq!(client.run("DEBUG RELOAD"), ok());
    assert_eq!(client.run("BF.INFO counters UNDELETED"), ints([0]));
    assert_eq!(client.run("BF.INFO counters SATURATED"), ints([1]));
}

/// An item has one place, however far the filter grew since it came first.
#[test]
fn a_grown_filter_deletes_its_oldest_items() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.000001 10 COUNTING");
    let items = add_until_card(client, "k", "item", 20_000);
    assert!(info(client, "k").filters > 10);
    assert_eq!(client.call("BF.DEL", "k", &items[..5]), ints([1; 5]));
    assert_eq!(client.run("BF.ADD k item-7"), int(0));
    assert_eq!(client.run("BF.COUNT k item-7"), int(2));
    assert_eq!(client.run("BF.DEL k item-7 item-7 item-7"), ints([1, 1, 0]));
    assert_eq!(client.run("BF.EXISTS k item-7"), int(0));
    assert_eq!(client.run("BF.INFO k UNDELETED"), ints([0]));
    assert_eq!(client.run("BF.CARD k"), int(20_000 - 6));
    assert!(mexists(client, "k", &items[8..]).iter().all(|&there| there));
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

/// Items come and go in the order of their age. What BF.INFO reports as layers and capacity, and
/// the memory, follow the items that are there.
#[test]
fn a_filter_of_items_that_come_and_go_stays_small_as_does_its_replica() {
    let mut server = Server::with().config("appendonly yes").start();
    let replica = server.replica();
    let (client, read) = (&mut server.client(), &mut replica.client());
    client.run("BF.RESERVE k 0.000000001 100 COUNTING EXPANSION 1");
    let items = numbered("item", 10_000);
    let mut most = 0;
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
        let shown = info(client, "k");
        assert_eq!(shown.items, 300.min(50 * (number as i64 + 1)));
        assert_eq!(
            (shown.filters, shown.capacity),
            ((shown.items + 99) / 100, 100 * shown.filters)
        );
        assert_eq!(client.server_info("bf", "bf_layers"), shown.filters.to_string());
        most = most.max(if number < 20 { shown.size } else { 0 });
        assert!(number < 20 || shown.size <= most + most / 8, "{} bytes after {most}", shown.size);
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

/// Pages join again when items are deleted.
#[test]
fn deleted_items_give_their_memory_back() {
    let server = Server::start();
    let client = &mut server.client();
    let before = client.memory("used_memory");
    client.run("BF.RESERVE k 0.000000001 100 COUNTING");
    let items = numbered("item", 200_000);
    items.chunks(10_000).for_each(|chunk| drop(client.call("BF.MADD", "k", chunk)));
    let (full, size) = (client.memory("used_memory") - before, info(client, "k").size);
    for (left, chunk) in items.chunks(10_000).rev().enumerate().map(|(n, chunk)| (19 - n, chunk)) {
        assert_eq!(client.call("BF.DEL", "k", chunk).answers(), vec![true; chunk.len()]);
        // At most twice the share of the items that are left, and a tenth.
        let most = size / 10 + size * left as i64 / 10;
        assert!(info(client, "k").size <= most, "{} bytes", info(client, "k").size);
    }
    assert_eq!((info(client, "k").items, info(client, "k").filters), (0, 1));
    // Buffers of the connection stay.
    wait_until("the memory is free", || client.memory("used_memory") - before < full / 5);
}

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
    // There are 901 items. At most 5 % tested present when they came; 45 are expected, and five
    // standard deviations are 34. An item that takes the place of "often" has its count, too.
    let shown = before[0].elements()[0].int();
    assert!((901 - 79..=901).contains(&shown), "{shown} items of 901");
    assert_eq!(before[1], ints([1]));
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
    let new = answers.elements().iter().filter(|answer| **answer == int(1)).count() as i64;
    assert_eq!(shown + new, CAPACITY);
    assert_eq!(client.run("BF.CARD k"), int(CAPACITY));
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    assert_eq!(digest(read, "k"), digest(client, "k"));
    assert_eq!(client.call("BF.MADD", "loaded", &more), answers);
}

/// The copy has what was there all the time, and each page of one moment.
#[test]
fn a_filter_that_changes_can_be_dumped() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.000000001 100 COUNTING");
    let (stay, go, come) =
        (numbered("stay", 5_000), numbered("go", 5_000), numbered("come", 9_000));
    client.call("BF.MADD", "k", &stay);
    client.call("BF.MADD", "k", &stay[..100]);
    client.call("BF.MADD", "k", &go);
    let header = client.run("BF.SCANDUMP k 0");
    let [Reply::Int(next), Reply::Bulk(header)] = header.elements() else { panic!("{header:?}") };
    assert_eq!(load(client, "copy", &(*next, header.clone())), ok());
    assert_eq!(client.run("BF.DEL copy a"), err("ERR filter is being loaded by BF.LOADCHUNK"));
    client.call("BF.DEL", "k", &go);
    client.call("BF.MADD", "k", &come);
    // All is in one chunk, so the copy is what the filter is now.
    let chunk = client.cmd(&["BF.SCANDUMP", "k", &next.to_string()]);
    let [Reply::Int(next), Reply::Bulk(chunk)] = chunk.elements() else { panic!("no chunk") };
    assert_eq!(load(client, "copy", &(*next, chunk.clone())), ok());
    assert_eq!(client.cmd(&["BF.SCANDUMP", "k", &next.to_string()]).elements()[0], int(0));
    assert_eq!(digest(client, "copy"), digest(client, "k"));
    assert_eq!(client.run("BF.CARD copy"), int(14_000));
    assert!(mexists(client, "copy", &stay).iter().all(|&there| there));
    assert!(!mexists(client, "copy", &go).contains(&true));
    assert_eq!(client.run("BF.COUNT copy stay-99"), int(2));
    assert_eq!(client.run("BF.COUNT copy stay-100"), int(1));
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

/// What a filter will take when it is full counts when it is reserved, and each page when it grows.
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
            // 67 kB as bits, and 113 kB or more with counts.
            ("BF.RESERVE bits 0.01 50000", ok()),
            ("BF.RESERVE counters 0.01 50000 COUNTING", refused.clone()),
            ("BF.INSERT counters ERROR 0.01 CAPACITY 50000 COUNTING ITEMS a", refused),
            ("BF.RESERVE counters 0.01 40000 COUNTING NONSCALING", ok()),
        ],
    );
    client.run("BF.RESERVE grows 0.000001 10000 COUNTING");
    let (items, error) = add_until_refused(client, "grows", "item");
    assert_eq!(error, "ERR problem inserting into filter");
    let size = info(client, "grows").size;
    assert!((90_000..=100_000).contains(&size), "{size} bytes");
    assert!(mexists(client, "grows", &items).iter().all(|&there| there));
    assert_eq!(client.run("BF.ADD grows another"), err(&error));
    // A known item is counted.
    assert_eq!(client.run("BF.ADD grows item-5"), int(0));
    assert_eq!(client.run("BF.COUNT grows item-5"), int(2));
    // Deletions make room for an item that was refused.
    assert_eq!(client.call("BF.DEL", "grows", &items[10..20]).answers(), [true; 10]);
    assert_eq!(client.run("BF.ADD grows another"), int(1));
}
