//! Filters move from and to a running valkey-bloom, version 1.0 or later.
//! `REDIS_BLOOM_PEER_VALKEY_BLOOM` is the path of its module, which the server program of these
//! tests must be able to load. Without it these tests print SKIPPED.

use crate::{
    harness::{
        Builder, Client, Server, digest, info, int, madd, mexists, numbered, ok, simple, skipped,
        wait_until,
    },
    valkey::{FIXED_SEED, SEED, made, rewritten},
    valkey_bloom::Model,
};

/// A server with valkey-bloom from the environment; reports a skipped test if there is none.
fn live(test: &str) -> Option<Builder> {
    const VARIABLE: &str = "REDIS_BLOOM_PEER_VALKEY_BLOOM";
    let module = std::env::var_os(VARIABLE);
    if module.is_none() {
        skipped(test, &format!("{VARIABLE} names no module"));
    }
    let load = format!("loadmodule \"{}\"", module?.to_string_lossy());
    Some(Server::with().without_module().config(&load))
}

/// Asserts equal answers of both servers; adds `count` items to both filters.
#[track_caller]
fn in_step(here: &mut Client, there: &mut Client, key: &str, more: &str, count: usize) {
    for items in [numbered(more, count), numbered("absent", 10_000)] {
        assert_eq!(mexists(here, key, &items), mexists(there, key, &items), "{key}");
    }
    let items = numbered(more, count);
    let (ours, theirs) = (madd(here, key, &items), madd(there, key, &items));
    assert_eq!(ours, theirs, "{key}");
    let numbers = |client: &mut Client| {
        let info = info(client, key);
        (info.capacity, info.filters, info.items, info.expansion)
    };
    assert_eq!(numbers(here), numbers(there), "{key}");
    let absent = numbered("absent", 20_000);
    let positives = mexists(there, key, &absent);
    assert_eq!(mexists(here, key, &absent), positives, "{key}");
    assert!(positives.contains(&true), "{key}: no false positive to compare");
}

/// Filters that valkey-bloom makes: key, command, and number of items at first.
const MADE: [(&str, &str, usize); 5] = [
    ("default", "BF.INSERT default", 150),
    ("grown", "BF.INSERT grown CAPACITY 200 ERROR 0.01953125 EXPANSION 2", 1_500),
    ("tightening", "BF.INSERT tightening CAPACITY 40 ERROR 0.1 EXPANSION 2 TIGHTENING 0.85", 500),
    ("even", "BF.INSERT even CAPACITY 70 ERROR 0.2 EXPANSION 1 TIGHTENING 0.3", 400),
    ("nonscaling", "BF.INSERT nonscaling CAPACITY 2000 ERROR 0.05 NONSCALING", 900),
];

#[track_caller]
fn make(there: &mut Client) {
    for (seed, suffix) in [("yes", ""), ("no", "-fixed")] {
        assert_eq!(there.cmd(&["CONFIG", "SET", "bf.bloom-use-random-seed", seed]), ok());
        for (key, command, items) in MADE {
            let (key, command) =
                (format!("{key}{suffix}"), command.replacen(key, &format!("{key}{suffix}"), 1));
            assert!(!there.run(&command).is_error(), "{command}");
            madd(there, &key, &numbered("item", items));
        }
    }
}

/// The keys of the filters that [`make`] makes.
fn keys() -> impl Iterator<Item = String> {
    let names = MADE.iter().map(|(key, ..)| *key);
    names.flat_map(|key| [key.to_owned(), format!("{key}-fixed")])
}

/// The BF.LOAD blob of a key in a rewritten AOF.
#[track_caller]
fn blob_of(aof: &[u8], key: &str) -> Vec<u8> {
    let mark = format!("BF.LOAD\r\n${}\r\n{key}\r\n$", key.len());
    let at = aof.windows(mark.len()).position(|window| window == mark.as_bytes());
    let rest = &aof[at.expect("a BF.LOAD") + mark.len()..];
    let digits = rest.iter().position(|&byte| byte == b'\r').expect("a line");
    let length: usize = String::from_utf8_lossy(&rest[..digits]).parse().expect("a number");
    rest[digits + 2..][..length].to_vec()
}

#[test]
fn filters_of_a_live_valkey_bloom_are_loaded_and_sent_back() {
    let Some(builder) = live("filters_of_a_live_valkey_bloom_are_loaded_and_sent_back") else {
        return;
    };
    let (peer, server) = (builder.start(), Server::start());
    let (there, here) = (&mut peer.client(), &mut server.client());
    make(there);
    let theirs = rewritten(&peer, there);
    for key in keys() {
        // By DUMP and RESTORE.
        let dump = there.cmd(&["DUMP", &key]).payload();
        assert_eq!(here.call("RESTORE", &key, &[&b"0"[..], &dump]), ok(), "{key}");
        assert_eq!(here.cmd(&["TYPE", &key]), simple("bloomfltr"));
        // By BF.LOAD.
        let (loaded, blob) = (format!("{key}-loaded"), blob_of(&theirs, &key));
        assert_eq!(here.call("BF.LOAD", &loaded, &[&blob]), ok(), "{key}");
        assert_eq!(digest(here, &loaded), digest(here, &key), "{key}");
        in_step(here, there, &key, "later", 100);
    }
    let ours = rewritten(&server, here);
    for key in keys() {
        // Back, after additions on both sides: equal to the filter of the peer.
        let dump = here.cmd(&["DUMP", &key]).payload();
        assert_eq!(there.call("RESTORE", "back", &[&b"0"[..], &dump]), ok(), "{key}");
        assert_eq!(digest(there, "back"), digest(there, &key), "{key}");
        assert_eq!(there.call("BF.LOAD", "loaded", &[blob_of(&ours, &key)]), ok(), "{key}");
        assert_eq!(digest(there, "loaded"), digest(there, &key), "{key}");
        assert_eq!(there.run("DEL back loaded"), int(2));
    }
}

/// Waits for the full synchronization of the replica.
#[track_caller]
fn synced(replica: &mut Client) {
    wait_until("the replica is synchronized", || {
        replica.server_info("replication", "master_link_status") == "up"
    });
}

#[test]
fn a_replica_of_a_live_valkey_bloom_is_promoted_without_a_change() {
    let Some(builder) = live("a_replica_of_a_live_valkey_bloom_is_promoted_without_a_change")
    else {
        return;
    };
    let peer = builder.start();
    let there = &mut peer.client();
    make(there);
    let replica = Server::with().replica_of(&peer).start();
    let here = &mut replica.client();
    synced(here);
    // Later creations and additions arrive as BF.INSERT and BF.MADD.
    madd(there, "new", &numbered("item", 250));
    assert_eq!(there.run("BF.RESERVE reserved 0.0625 30 EXPANSION 3"), ok());
    let keys: Vec<_> = keys().chain(["new", "reserved"].map(str::to_owned)).collect();
    for key in &keys {
        madd(there, key, &numbered("streamed", 200));
    }
    assert_eq!(there.run("WAIT 1 30000"), int(1));
    assert_eq!(here.run("REPLICAOF NO ONE"), ok());
    for key in &keys {
        assert_eq!(here.cmd(&["TYPE", key]), simple("bloomfltr"));
        in_step(here, there, key, "later", 300);
    }
}

#[test]
fn a_live_valkey_bloom_can_be_the_replica_while_all_filters_are_its_own() {
    let Some(builder) =
        live("a_live_valkey_bloom_can_be_the_replica_while_all_filters_are_its_own")
    else {
        return;
    };
    let server = Server::start();
    let here = &mut server.client();
    let model = Model::new(50, 0.0625, 0.85, 2, &SEED);
    here.cmd(&made("k", &model, &numbered("item", 70)));
    here.cmd(&made("fixed", &Model::new(300, 0.05, 0.5, 0, &FIXED_SEED), &[]));
    let peer = builder.replica_of(&server).start();
    let there = &mut peer.client();
    synced(there);
    here.cmd(&made("streamed", &model, &numbered("item", 30)));
    for key in ["k", "fixed", "streamed"] {
        madd(here, key, &numbered("item", 250));
    }
    assert_eq!(here.run("WAIT 1 30000"), int(1));
    assert_eq!(there.run("REPLICAOF NO ONE"), ok());
    for key in ["k", "fixed", "streamed"] {
        in_step(here, there, key, "later", 30);
    }
}
