//! Filters that forget, when memory or the server fails.

use crate::harness::{
    Client, Clock, Random, Server, assert_unharmed, digest, err, int, madd, mexists, numbered, ok,
    wait_until,
};

const HOUR: i64 = 3_600_000;

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
    let sizes = ["time", "count"].map(|key| client.cmd(&["MEMORY", "USAGE", key]).int());
    let before = client.memory("used_memory");
    (20..1_020).for_each(|number| shift(client, number));
    for (key, size) in ["time", "count"].iter().zip(sizes) {
        assert_eq!(client.cmd(&["MEMORY", "USAGE", key]).int(), size, "{key}");
    }
    // Buffers and statistics of the server. 1,000 layers of the filter `time` are 1.6 MB.
    let after = client.memory("used_memory");
    assert!(after - before < 200_000, "{before} {after}");
    assert_eq!(client.server_info("bf", "bf_layers"), "10");
    assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
}

#[test]
fn large_generations_are_given_back() {
    let clock = Clock::new();
    let server = Server::with().clock(&clock).start();
    let client = &mut server.client();
    let before = client.memory("used_memory");
    // 20 million items of a quarter each: layers of 8 MiB.
    client.run("BF.RESERVE k 0.01 20000000 WINDOW EX 86400");
    for number in 0..20 {
        client.cmd(&["BF.ADD", "k", &format!("item-{number}")]);
        clock.advance(7 * HOUR);
    }
    wait_until("the layers are freed", || client.memory("used_memory") - before < 60 << 20);
    assert_eq!(client.server_info("bf", "bf_forgotten"), "15");
    clock.advance(100 * HOUR);
    assert_eq!(client.run("BF.FORGET k"), int(5));
    wait_until("the layers are freed", || client.memory("used_memory") - before < 1 << 20);
    assert_unharmed(&server);
}

#[test]
fn a_full_server_gives_back_memory_by_forget() {
    let clock = Clock::new();
    let server = Server::with().clock(&clock).start();
    let replica = Server::with().clock(&clock).replica_of(&server).start();
    let client = &mut server.client();
    wait_until("the replica is in sync", || {
        client.server_info("replication", "connected_slaves") == "1"
            && replica.client().server_info("replication", "master_link_status") == "up"
    });
    client.run("BF.RESERVE k 0.01 4000000 WINDOW EX 86400 GENERATIONS 2");
    for number in 0..2 {
        client.cmd(&["BF.ADD", "k", &format!("item-{number}")]);
        clock.advance(13 * HOUR);
    }
    assert_eq!(client.run("CONFIG SET maxmemory-policy noeviction"), ok());
    // Room for less than a generation of 3 MB. Both are alive for 36 hours.
    let used = client.memory("used_memory") + 1_000_000;
    assert_eq!(client.cmd(&["CONFIG", "SET", "maxmemory", &used.to_string()]), ok());
    // The time for a shift, and no memory for it: the addition fails as growth does.
    assert_eq!(client.run("BF.ADD k new"), err("ERR problem inserting into filter"));
    assert_eq!(client.run("BF.EXISTS k new"), int(0));
    client.run("INCR mark");
    assert_eq!(client.run("WAIT 1 60000"), int(1));
    assert_eq!(digest(&mut replica.client(), "k"), digest(client, "k"));
    clock.advance(100 * HOUR);
    // Above maxmemory: the server refuses every addition, before the module sees it.
    assert_eq!(client.run("CONFIG SET maxmemory 100000"), ok());
    assert!(client.run("BF.ADD k new").error().starts_with("OOM"));
    let used = client.memory("used_memory");
    assert!(client.run("BF.FORGET k").int() >= 2);
    let less = used - 4_000_000;
    assert_eq!(client.run("CONFIG SET maxmemory 0"), ok());
    wait_until("the memory is there", || client.memory("used_memory") < less);
    let limit = (used + 1_000_000).to_string();
    assert_eq!(client.cmd(&["CONFIG", "SET", "maxmemory", &limit]), ok());
    assert_eq!(client.run("BF.ADD k new"), int(1));
    assert_eq!(client.run("WAIT 1 60000"), int(1));
    assert_eq!(digest(&mut replica.client(), "k"), digest(client, "k"));
    assert_eq!(replica.client().server_info("bf", "bf_unapplied"), "0");
}

/// A generation comes for one that goes, so the filter becomes no larger.
#[test]
fn a_full_server_takes_a_generation_in_the_place_of_another() {
    let clock = Clock::new();
    let server = Server::with().clock(&clock).start();
    let client = &mut server.client();
    client.run("CONFIG SET maxmemory-policy noeviction");
    client.run("BF.RESERVE time 0.01 4000000 WINDOW EX 3600 GENERATIONS 1");
    for number in 0..2 {
        client.cmd(&["BF.ADD", "time", &format!("item-{number}")]);
        clock.advance(HOUR + 1_000);
    }
    client.run("BF.RESERVE count 0.01 200000 WINDOW COUNT GENERATIONS 1");
    let (items, rest) = (numbered("a-", 390_000), numbered("b-", 20_000));
    madd(client, "count", &items);
    assert!(client.run("BF.CARD count").int() > 380_000);
    let layers = client.server_info("bf", "bf_layers");
    // Room for the command and its items, not for a generation of 5 MB or of 250 kB.
    let limit = (client.memory("used_memory") + 200_000).to_string();
    assert_eq!(client.cmd(&["CONFIG", "SET", "maxmemory", &limit]), ok());
    assert_eq!(client.run("BF.ADD time new"), int(1));
    wait_until("the layer is freed", || client.memory("used_memory") < limit.parse().unwrap());
    madd(client, "count", &rest);
    assert!(client.run("BF.CARD count").int() < 300_000);
    assert_eq!(mexists(client, "count", &rest), [true; 20_000]);
    assert_eq!(client.server_info("bf", "bf_layers"), layers);
    assert_eq!(client.server_info("bf", "bf_refused_growth"), "0");
}

#[test]
fn a_refused_shift_is_replicated_as_far_as_it_went() {
    let clock = Clock::new();
    let server = Server::with().clock(&clock).start();
    let replica = server.replica();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 400000 WINDOW EX 86400");
    for number in 0..5 {
        client.cmd(&["BF.ADD", "k", &format!("item-{number}")]);
        clock.advance(6 * HOUR + 60_000);
    }
    // No room for any generation: two thirds of what is there, as the first one is dropped.
    let name = crate::harness::config_name("max-filter-bytes");
    assert_eq!(client.cmd(&["CONFIG", "SET", &name, "100000"]), ok());
    assert_eq!(client.run("BF.ADD k new"), err("ERR problem inserting into filter"));
    assert_eq!(client.run("BF.MADD k new more").elements().len(), 1);
    assert_eq!(client.server_info("bf", "bf_forgotten"), "1");
    assert_eq!(client.server_info("bf", "bf_refused_growth"), "2");
    client.run("INCR mark");
    assert_eq!(client.run("WAIT 1 60000"), int(1));
    assert_eq!(digest(&mut replica.client(), "k"), digest(client, "k"));
    assert_eq!(client.cmd(&["CONFIG", "SET", &name, "0"]), ok());
    assert_eq!(client.run("BF.ADD k new"), int(1));
    assert_eq!(client.run("WAIT 1 60000"), int(1));
    assert_eq!(digest(&mut replica.client(), "k"), digest(client, "k"));
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
