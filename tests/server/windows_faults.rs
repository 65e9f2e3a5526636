//! Filters that forget, when memory or the server fails.

use std::time::{Duration, Instant};

use crate::harness::{
    Client, Clock, Random, Server, add_until_refused, assert_unharmed, digest, err, info, int,
    madd, mexists, numbered, ok, wait_until,
};

const HOUR: i64 = 3_600_000;

/// Waits until nothing more is swept: a replica is equal then.
#[track_caller]
fn wait_for(client: &mut Client, replica: &Server) {
    wait_until("the replica is equal", || {
        digest(&mut replica.client(), "k") == digest(client, "k")
    });
    assert_eq!(replica.client().server_info("bf", "bf_unapplied"), "0");
}

#[test]
fn a_thousand_shifts_use_no_more_memory() {
    let clock = Clock::new();
    let server = Server::with().clock(&clock).start();
    let client = &mut server.client();
    client.run("BF.RESERVE time 0.01 4000 WINDOW EX 86400");
    client.run("BF.RESERVE count 0.01 1000 WINDOW COUNT");
    let shift = |client: &mut Client, number: usize| {
        clock.advance(6 * HOUR + 1_000);
        let items = numbered(&format!("{number}-"), 250);
        madd(client, "time", &items);
        madd(client, "count", &items);
    };
    (0..20).for_each(|number| shift(client, number));
    let size = |client: &mut Client, key: &str| client.cmd(&["MEMORY", "USAGE", key]).int();
    let sizes = ["time", "count"].map(|key| size(client, key));
    let before = client.memory("used_memory");
    for number in 20..1_020 {
        shift(client, number);
        for (key, usual) in ["time", "count"].iter().zip(sizes) {
            // The slots of at most three generations wait for a pass.
            let now = size(client, key);
            assert!(now < 2 * usual, "{key} takes {now} bytes after shift {number}, not {usual}");
        }
    }
    // Buffers and statistics of the server. What 1,000 generations took is 500 kB for each filter.
    let after = client.memory("used_memory");
    assert!(after - before < 200_000, "{before} {after}");
    assert_eq!(client.server_info("bf", "bf_layers"), "2");
    assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
}

/// What a burst took is free when it is forgotten, by BF.FORGET or by the additions that follow.
#[test]
fn a_forgotten_burst_frees_its_memory() {
    for forgets in [true, false] {
        let clock = Clock::new();
        let server = Server::with().clock(&clock).config("repl-backlog-size 16kb").start();
        let replica = Server::with().clock(&clock).replica_of(&server).start();
        let client = &mut server.client();
        wait_until("the replica is in sync", || {
            replica.client().server_info("replication", "master_link_status") == "up"
        });
        client.run("BF.RESERVE k 0.01 1000 WINDOW EX 86400");
        let few = info(client, "k").size;
        let before = client.memory("used_memory");
        madd(client, "k", &numbered("burst", 500_000));
        assert!(client.memory("used_memory") - before > 1_000_000);
        clock.advance(20 * HOUR);
        madd(client, "k", &numbered("later", 100));
        clock.advance(11 * HOUR);
        if forgets {
            assert_eq!(client.run("BF.FORGET k"), int(1));
        } else {
            assert_eq!(client.run("BF.ADD k one"), int(1));
        }
        // Without any further addition, the pages are swept and join.
        wait_until("the memory is free", || info(client, "k").size < few + 20_000);
        wait_until("the server has it", || client.memory("used_memory") - before < 500_000);
        assert_eq!(mexists(client, "k", &numbered("later", 100)), [true; 100]);
        wait_for(client, &replica);
        assert!(info(&mut replica.client(), "k").size < few + 20_000);
        // All of it, at once.
        clock.advance(100 * HOUR);
        client.run("BF.FORGET k");
        assert!(info(client, "k").size <= few);
        assert_eq!(client.run("BF.CARD k"), int(0));
        assert_unharmed(&server);
    }
}

/// The server frees the pages of an emptied window between commands, and knows it by its key. One
/// that was renamed is found by the additions that follow.
#[test]
fn an_emptied_window_that_was_renamed_frees_its_memory() {
    let clock = Clock::new();
    let server = Server::with().clock(&clock).start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 1000 WINDOW EX 86400");
    madd(client, "k", &numbered("burst", 500_000));
    clock.advance(100 * HOUR);
    for command in ["MULTI", "BF.FORGET k", "BF.ADD k first", "RENAME k renamed", "EXEC"] {
        assert!(!client.run(command).is_error(), "{command}");
    }
    let size = |client: &mut Client| client.run("MEMORY USAGE renamed").int();
    assert!(size(client) > 500_000);
    for item in numbered("later", 40) {
        client.run(&format!("BF.ADD renamed {item}"));
    }
    wait_until("the memory is free", || size(client) < 20_000);
    assert_eq!(mexists(client, "renamed", &numbered("later", 40)), [true; 40]);
}

/// Above maxmemory the server refuses every addition before the module sees it, and BF.FORGET runs.
#[test]
fn a_full_server_gives_back_memory_by_forget() {
    let clock = Clock::new();
    let server = Server::with().clock(&clock).config("repl-backlog-size 16kb").start();
    let replica = Server::with().clock(&clock).replica_of(&server).start();
    let client = &mut server.client();
    wait_until("the replica is in sync", || {
        client.server_info("replication", "connected_slaves") == "1"
            && replica.client().server_info("replication", "master_link_status") == "up"
    });
    assert_eq!(client.run("CONFIG SET maxmemory-policy noeviction"), ok());
    client.run("BF.RESERVE k 0.01 1000 WINDOW EX 86400 GENERATIONS 2");
    let limit = client.memory("used_memory") + 1_500_000;
    let mut number = 0;
    let refused = |client: &mut Client, number: &mut usize| {
        let items = numbered(&format!("{number}-"), 1_000);
        *number += 1;
        let reply = client.call("BF.MADD", "k", &items);
        let last = if reply.is_error() { Some(&reply) } else { reply.elements().last() };
        last.filter(|last| last.is_error()).map_or(String::new(), |last| last.error().to_owned())
    };
    assert_eq!(client.cmd(&["CONFIG", "SET", "maxmemory", &limit.to_string()]), ok());
    let error = loop {
        let error = refused(client, &mut number);
        if !error.is_empty() {
            break error;
        }
    };
    assert!(error.starts_with("OOM") || error == "ERR problem inserting into filter", "{error}");
    assert!(number > 100, "{number} batches");
    wait_for(client, &replica);
    clock.advance(100 * HOUR);
    assert_eq!(client.run("CONFIG SET maxmemory 100000"), ok());
    assert!(client.run("BF.ADD k new").error().starts_with("OOM"));
    let size = info(client, "k").size;
    assert_eq!(client.run("BF.FORGET k"), int(1));
    assert!(info(client, "k").size < size / 10);
    wait_until("the memory is there", || client.memory("used_memory") < limit - 500_000);
    assert_eq!(client.cmd(&["CONFIG", "SET", "maxmemory", &limit.to_string()]), ok());
    assert_eq!(client.run("BF.ADD k new"), int(1));
    wait_for(client, &replica);
}

/// The slots of forgotten items take those that come.
#[test]
fn a_window_that_may_not_grow_takes_items_for_those_that_go() {
    let clock = Clock::new();
    let server = Server::with().clock(&clock).start();
    let replica = Server::with().clock(&clock).replica_of(&server).start();
    let client = &mut server.client();
    let name = crate::harness::config_name("max-filter-bytes");
    assert_eq!(client.cmd(&["CONFIG", "SET", &name, "100000"]), ok());
    client.run("BF.RESERVE k 0.000000001 1000 WINDOW EX 86400 GENERATIONS 1");
    let (first, error) = add_until_refused(client, "k", "first");
    assert_eq!(error, "ERR problem inserting into filter");
    let size = info(client, "k").size;
    assert!((80_000..=100_000).contains(&size), "{size} bytes");
    assert_eq!(mexists(client, "k", &first), vec![true; first.len()]);
    wait_for(client, &replica);
    // The items that are known live on, in the next generation.
    clock.advance(25 * HOUR);
    let (stay, go) = first.split_at(first.len() / 2);
    assert!(!madd(client, "k", stay).contains(&true));
    assert_eq!(client.run("BF.ADD k another"), err(&error));
    clock.advance(24 * HOUR);
    assert_eq!(mexists(client, "k", stay), vec![true; stay.len()]);
    assert!(!mexists(client, "k", go).contains(&true));
    // Half of the slots are free once they are swept.
    assert_eq!(client.run("BF.FORGET k"), int(1));
    wait_for(client, &replica);
    wait_until("an item is taken", || client.run("BF.ADD k another") == int(1));
    let (second, _) = add_until_refused(client, "k", "second");
    let least = go.len() * 9 / 10;
    assert!(second.len() > least, "{} after {} were forgotten", second.len(), go.len());
    assert!(info(client, "k").size <= 100_000);
    assert_eq!(mexists(client, "k", &second), vec![true; second.len()]);
    assert_eq!(mexists(client, "k", stay), vec![true; stay.len()]);
    wait_for(client, &replica);
    assert_unharmed(&server);
}

#[test]
fn no_item_is_lost_when_the_server_is_killed_around_shifts() {
    let clock = Clock::new();
    let mut server =
        Server::with().clock(&clock).config("appendonly yes").config("appendfsync always").start();
    server.client().run("BF.RESERVE k 0.0001 400 WINDOW EX 86400 GENERATIONS 8");
    let mut random = Random::new(0x51_1d_e5);
    // Items with the hour of their addition.
    let (mut hour, mut added) = (0, Vec::<(i64, String)>::new());
    for round in 0..12 {
        let client = &mut server.client();
        for step in 0..random.below(20) {
            let more = 1 + random.below(5) as i64;
            hour += more;
            clock.advance(more * HOUR);
            let items = numbered(&format!("{round}-{step}-"), 30);
            let sent = items.len();
            assert_eq!(madd(client, "k", &items).len(), sent);
            added.extend(items.into_iter().map(|item| (hour, item)));
            if random.below(4) == 0 {
                client.run("BF.FORGET k");
            }
        }
        // One more batch is on its way when the server is killed. A shift begins it.
        hour += 4;
        clock.advance(4 * HOUR);
        let last = numbered(&format!("{round}-last-"), 500);
        let mut words = vec!["BF.MADD".to_owned(), "k".into()];
        words.extend(last);
        client.send(&words);
        server.kill_and_restart();
        let client = &mut server.client();
        let live: Vec<_> =
            added.iter().filter(|(at, _)| *at > hour - 24).map(|(_, item)| item).collect();
        assert_eq!(mexists(client, "k", &live), vec![true; live.len()], "round {round}");
        assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
    }
    assert_unharmed(&server);
}

/// A window of which nothing is forgotten yet waits for no sweep.
#[test]
fn new_windows_leave_no_names_behind() {
    let server = Server::start();
    let client = &mut server.client();
    let before = client.memory("used_memory");
    let commands: Vec<_> = (0..3_000)
        .map(|number| {
            let key = format!("{number:01000}");
            ["BF.INSERT", &key, "WINDOW", "EX", "60", "ITEMS", "item"].map(String::from).to_vec()
        })
        .collect();
    client.pipeline(&commands);
    assert_eq!(client.run("FLUSHALL SYNC"), ok());
    // The names alone are 3 MB.
    let more = client.memory("used_memory") - before;
    assert!(more < 1_500_000, "{more} bytes for windows that are gone");
}

/// Each turn of the timer serves many windows that have little to sweep.
#[test]
fn small_windows_do_not_keep_a_large_one_waiting() {
    let clock = Clock::new();
    let server = Server::with().clock(&clock).start();
    let client = &mut server.client();
    let small: Vec<_> = (0..4_000).map(|number| format!("small-{number}")).collect();
    client.run("BF.RESERVE k 0.01 1000 WINDOW EX 86400");
    let few = info(client, "k").size;
    madd(client, "k", &numbered("burst", 200_000));
    let each = |client: &mut Client, words: &[&str], last: &[&str]| {
        let mut commands = Vec::new();
        small.iter().for_each(|key| commands.push([words, &[key.as_str()], last].concat()));
        client.pipeline(&commands);
    };
    let window = ["WINDOW", "EX", "86400", "ITEMS", "old"];
    each(client, &["BF.INSERT"], &window);
    clock.advance(20 * HOUR);
    client.run("BF.ADD k new");
    each(client, &["BF.ADD"], &["new"]);
    clock.advance(11 * HOUR);
    assert_eq!(client.run("BF.FORGET k"), int(1));
    each(client, &["BF.FORGET"], &[]);
    // It takes some 100 ms. With one key a turn, it would take 40 s.
    let start = Instant::now();
    wait_until("the large window is swept", || info(client, "k").size < few + 20_000);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}
