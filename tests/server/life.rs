//! Generic commands on a key that holds a filter: rename, move, expire, inspect. The server does
//! the work and the module must not interfere; an expired filter is gone for every command.

use crate::harness::{
    Client, Protocol, Server, add_until_card, bulk, digest, dump, err, info, int, load, madd,
    mexists, numbered, ok, simple, wait_until,
};

#[test]
fn a_renamed_moved_or_swapped_filter_is_the_same() {
    let mut server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 100"), ok());
    let items = add_until_card(client, "k", "item", 1_000);
    assert_eq!(client.run("EXPIRE k 10000"), int(1));
    let same = client.run("DUMP k");
    client.run("BF.ADD other a");
    assert_ne!(client.run("DUMP other"), same);

    assert_eq!(client.run("RENAMENX k other"), int(0));
    assert_eq!(client.run("RENAME k r"), ok());
    assert_eq!(client.run("BF.EXISTS k item-0"), int(0), "the old name is empty");
    assert_eq!(client.run("DUMP r"), same);
    assert_eq!(client.run("RENAME r r"), ok());
    assert_eq!(client.run("RENAME r other"), ok(), "over another filter");
    assert_eq!(client.run("DUMP other"), same);
    assert_eq!(client.run("RENAME other k"), ok());

    assert_eq!(client.run("MOVE k 1"), int(1));
    assert_eq!(client.run("EXISTS k"), int(0));
    client.run("BF.ADD k another");
    assert_eq!(client.run("MOVE k 1"), int(0), "database 1 has the key already");
    client.run("SELECT 1");
    assert_eq!(client.run("DUMP k"), same);
    assert_eq!(client.run("SWAPDB 0 1"), ok());
    assert_eq!(client.run("BF.CARD k"), int(1), "the filter of the other database");
    client.run("SELECT 0");
    assert_eq!(client.run("DUMP k"), same);
    assert_eq!(client.run("COPY k k DB 2"), int(1));
    assert!(client.run("TTL k").int() > 9_000, "it still has its time to live");
    assert_eq!(client.run("PERSIST k"), int(1));
    server.restart();
    let client = &mut server.client();
    for database in ["SELECT 0", "SELECT 2"] {
        client.run(database);
        assert_eq!(client.run("DUMP k"), same, "{database}");
        assert!(mexists(client, "k", &items).iter().all(|&there| there), "{database}");
    }
}

/// Additions, growth and errors do not change the time to live.
#[test]
fn adding_keeps_the_time_to_live() {
    let mut server = Server::with().config("appendonly yes").start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 100"), ok());
    client.run("EXPIRE k 10000");
    madd(client, "k", &numbered("item", 1_000));
    client.run("BF.INSERT k CAPACITY 5 ITEMS a b");
    assert!(client.run("BF.RESERVE k 0.01 100").is_error());
    assert!(client.run("TTL k").int() > 9_000);
    server.kill_and_restart();
    assert!(server.client().run("TTL k").int() > 9_000);
}

/// Creates "k" with one item; the key has expired and is still in memory.
#[track_caller]
fn expired(client: &mut Client) {
    let now = |client: &mut Client| -> u64 {
        let reply = client.run("TIME");
        let number = |at: usize| reply.elements()[at].text().parse::<u64>().expect("a number");
        number(0) * 1_000 + number(1) / 1_000
    };
    client.run("FLUSHALL");
    assert_eq!(client.run("BF.RESERVE k 0.001 5000"), ok());
    assert_eq!(client.run("BF.ADD k old"), int(1));
    // A time in the past deletes the key at once.
    let end = now(client) + 100;
    assert_eq!(client.run(&format!("PEXPIREAT k {end}")), int(1));
    assert_eq!(client.run("DBSIZE"), int(1), "the machine is too busy for this test");
    wait_until("the key expires", || now(client) > end);
    assert_eq!(client.run("DBSIZE"), int(1), "the key is still in memory");
}

#[test]
fn an_expired_filter_is_gone_for_every_command() {
    let server = Server::start();
    let replica = server.replica();
    let (client, read) = (&mut server.client(), &mut replica.client());
    client.run("BF.ADD source a");
    let header = dump(client, "source").swap_remove(0);
    assert_eq!(client.run("DEBUG SET-ACTIVE-EXPIRE 0"), ok());
    let not_found = || err("ERR not found");
    for (line, reply) in [
        ("BF.EXISTS k old", int(0)),
        ("BF.CARD k", int(0)),
        ("BF.DEL k old", int(0)),
        ("BF.COUNT k old", int(0)),
        ("BF.INFO k", not_found()),
        ("BF.DEBUG k", not_found()),
        ("BF.SCANDUMP k 0", not_found()),
        ("BF.SCANDUMP k 1", not_found()),
        ("BF.LOADCHUNK k 5 x", not_found()),
        ("BF.INSERT k NOCREATE ITEMS old", not_found()),
    ] {
        expired(client);
        assert_eq!(client.run(line), reply, "{line}");
        assert_eq!(client.run("EXISTS k"), int(0), "{line} creates nothing");
    }
    expired(client);
    assert_eq!(client.run("BF.MEXISTS k old new").answers(), [false, false]);
    for (line, capacity) in [
        ("BF.ADD k new", 100),
        ("BF.MADD k new", 100),
        ("BF.INSERT k CAPACITY 77 ITEMS new", 77),
        ("BF.RESERVE k 0.01 55", 55),
        ("BF.LOADCHUNK k 1", 0),
    ] {
        expired(client);
        // The replica keeps the key until its primary deletes it, and answers "no" meanwhile.
        assert_eq!(client.run("WAIT 1 30000"), int(1));
        assert_eq!(read.run("BF.EXISTS k old"), int(0), "on the replica");
        if capacity == 0 {
            assert_eq!(load(client, "k", &header), ok());
        } else {
            let reply = client.run(line);
            assert!(!reply.is_error(), "{line}: {reply:?}");
            assert_eq!(client.run("BF.EXISTS k old"), int(0), "{line} made a new filter");
            assert_eq!(info(client, "k").capacity, capacity, "{line}");
        }
        assert_eq!(client.run("TTL k"), int(-1), "{line}");
        assert_eq!(client.run("WAIT 1 30000"), int(1));
        assert_eq!(digest(read, "k"), digest(client, "k"), "{line}, on the replica");
    }
    assert!(!replica.log().contains("CRITICAL"), "{}", replica.log());
}

#[test]
fn the_server_expires_filters_by_itself() {
    let server = Server::start();
    let client = &mut server.client();
    for key in 0..50 {
        client.run(&format!("BF.ADD k{key} a"));
        client.run(&format!("PEXPIRE k{key} {}", 1 + key));
    }
    wait_until("all are gone", || client.run("DBSIZE") == int(0));
}

#[test]
fn the_servers_own_commands_work_on_filters() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        client.run("FLUSHALL");
        assert_eq!(client.run("CONFIG SET maxmemory-policy noeviction"), ok());
        client.run("SET string a");
        client.run("SADD set a");
        for key in 0..300 {
            client.run(&format!("BF.ADD k{key} a"));
        }
        assert_eq!(client.run("TYPE k0"), simple("MBbloom--"));
        assert_eq!(client.run("OBJECT ENCODING k0"), bulk("raw"));
        assert_eq!(client.run("OBJECT REFCOUNT k0"), int(1));
        assert!(client.run("OBJECT IDLETIME k0").int() < 60);
        assert!(client.run("OBJECT FREQ k0").is_error(), "only under LFU");
        assert_eq!(client.run("CONFIG SET maxmemory-policy allkeys-lfu"), ok());
        client.run("BF.ADD used a");
        let counter = |client: &mut Client| client.run("OBJECT FREQ used").int();
        // The LFU counter of a new key is 5, and each use may raise it.
        let before = counter(client);
        for _ in 0..2_000 {
            client.run("BF.EXISTS used a");
        }
        assert!(counter(client) > before, "reads count as use: {before}, then {}", counter(client));
        assert_eq!(client.run("TOUCH k0 k1 missing"), int(2));
        let mut found = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let reply = client.cmd(&["SCAN", &cursor, "TYPE", "MBbloom--", "COUNT", "50"]);
            let [next, keys] = reply.elements() else { panic!("SCAN answered {reply:?}") };
            found.extend(keys.elements().iter().map(crate::harness::Reply::text));
            cursor = next.text();
            if cursor == "0" {
                break;
            }
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 301, "SCAN TYPE finds every filter and nothing else");
        assert!(found.iter().all(|key| key.starts_with('k') || key == "used"));
    }
}
