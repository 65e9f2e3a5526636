//! BF.INFO IDENTITY tells a filter from any other, and no way of keeping or copying it changes it.

use std::collections::HashSet;

use crate::{
    every_way::write_in_every_way,
    harness::{Client, Reply, Server, array, dump, int, load, map, numbered, ok, wait_until},
};

fn identity(client: &mut Client, key: &str) -> String {
    let reply = client.cmd(&["BF.INFO", key, "IDENTITY"]);
    let Reply::Bulk(digits) = &reply.elements()[0] else { panic!("{key}: {reply:?}") };
    String::from_utf8(digits.clone()).expect("digits")
}

const KINDS: [&str; 7] = [
    "EXPANSION 2",
    "NONSCALING",
    "COUNTING",
    "SHARD 0 2",
    "WINDOW PX 40 GENERATIONS 2",
    "WINDOW COUNT",
    "WINDOW COUNT NOREFRESH SHARD 0 1",
];

#[test]
fn a_filter_keeps_its_identity_and_another_one_has_another() {
    let server = Server::start();
    let client = &mut server.client();
    let mut all = HashSet::new();
    for options in KINDS {
        client.run("FLUSHALL");
        assert_eq!(client.run(&format!("BF.RESERVE k 0.01 100 {options}")), ok());
        let first = identity(client, "k");
        assert_eq!(first.len(), 16, "{first}");
        assert!(first.bytes().all(|digit| digit.is_ascii_hexdigit()), "{first}");
        for round in 0..6 {
            for item in numbered(&format!("{round}"), 100) {
                // Of another shard, or full.
                client.cmd(&["BF.ADD", "k", &item]);
            }
            if options == "COUNTING" {
                client.call("BF.DEL", "k", &numbered(&format!("{round}"), 100));
            }
        }
        assert_eq!(identity(client, "k"), first, "{options}: grown");
        assert_eq!(client.run("COPY k copy"), int(1));
        for piece in dump(client, "k") {
            assert_eq!(load(client, "chunks", &piece), ok());
        }
        let Reply::Bulk(payload) = client.run("DUMP k") else { panic!("no payload") };
        assert_eq!(client.call("RESTORE", "restored", &[b"0", &payload[..]]), ok());
        assert_eq!(client.run("RENAME k renamed"), ok());
        for key in ["copy", "chunks", "restored", "renamed"] {
            assert_eq!(identity(client, key), first, "{options}: {key}");
        }
        assert_eq!(client.run(&format!("BF.RESERVE k 0.01 100 {options}")), ok());
        assert!(all.insert(first) && all.insert(identity(client, "k")), "{options}: made again");
    }
    // With one seed, the parameters make the difference.
    for options in KINDS {
        for size in ["0.01 100", "0.02 100", "0.01 200"] {
            client.run("DEL k");
            assert_eq!(client.run(&format!("BF.RESERVE k {size} {options} SEED 7")), ok());
            assert!(all.insert(identity(client, "k")), "{size} {options}");
        }
    }
    let digits = identity(client, "k");
    let bulk = Reply::Bulk(digits.into_bytes());
    assert_eq!(client.run("BF.INFO k identity"), array([bulk.clone()]));
    assert_eq!(server.resp3().run("BF.INFO k IDENTITY"), map([("Identity", bulk)]));
}

#[test]
fn the_identity_survives_replication_and_restarts() {
    for line in ["appendonly no", "appendonly yes", "appendonly yes\naof-use-rdb-preamble no"] {
        let mut server = Server::with().config(line).start();
        let replica = Server::with().replica_of(&server).start();
        wait_until("the replica is linked", || {
            replica.client().server_info("replication", "master_link_status") == "up"
        });
        let client = &mut server.client();
        let keys = write_in_every_way(client);
        wait_until("the replica has all", || client.run("WAIT 1 1000") == int(1));
        let of = |client: &mut Client| -> Vec<_> {
            keys.iter().map(|key| identity(client, key)).collect()
        };
        let before = of(client);
        assert_eq!(of(&mut replica.client()), before, "{line:?}: replica");
        if line != "appendonly no" {
            assert!(!client.run("BGREWRITEAOF").is_error());
            wait_until("the file is written", || !client.has_child());
        }
        server.restart();
        assert_eq!(of(&mut server.client()), before, "{line:?}: restart");
    }
}
