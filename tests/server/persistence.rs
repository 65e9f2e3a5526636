//! A filter survives SAVE and restart, DEBUG RELOAD, and an AOF rewrite in both formats: with equal
//! numbers, items and false positives.

use crate::harness::{
    Client, Reply, Server, add_until_card, array, err, int, madd, mexists, numbered, ok, wait_until,
};

/// The key of a filter, and the items that were added.
pub(crate) struct Sample {
    pub(crate) key: &'static str,
    pub(crate) items: Vec<String>,
}

pub(crate) fn make(client: &mut Client) -> Vec<Sample> {
    let shapes = [
        ("empty", "0.01 100", 0),
        ("one_block", "0.01 100", 60),
        ("single_item", "1e-9 1 NONSCALING", 1),
        ("blocks", "0.01 20000", 20_000),
        ("grown", "0.01 100", 5_000),
        ("wide", "0.01 1 EXPANSION 32768", 10_000),
        ("narrow", "0.01 1 EXPANSION 1", 2_000),
        ("full", "0.001 1000 NONSCALING", 1_000),
        ("strict", "1e-9 5000", 7_000),
        ("tiniest", "5e-324 10", 40),
        ("loose", "0.9 1000 NONSCALING", 100),
        ("seeded", "0.01 1000 SEED 18446744073709551615", 1_500),
        ("counting", "0.01 1000 COUNTING", 900),
        ("counting_blocks", "0.001 20000 COUNTING", 20_000),
        ("counting_grown", "0.01 100 COUNTING", 3_000),
        ("counting_full", "1e-9 500 NONSCALING COUNTING", 500),
        // The only shard takes every item.
        ("shard", "0.01 100 SHARD 0 1", 3_000),
        // No test is long enough to end a generation, by time or by items.
        ("window", "0.01 100 WINDOW EX 315360000", 3_000),
        ("window_count", "0.01 20000 WINDOW COUNT", 3_000),
    ];
    let mut samples = Vec::new();
    for (key, options, card) in shapes {
        assert_eq!(client.run(&format!("BF.RESERVE {key} {options}")), ok(), "{key}");
        samples.push(Sample { key, items: add_until_card(client, key, key, card) });
    }
    client.run("BF.ADD added item");
    samples.push(Sample { key: "added", items: vec!["item".to_owned()] });
    samples
}

/// Everything that a client can read of the filters: each command with its reply.
pub(crate) fn snapshot(client: &mut Client, samples: &[Sample]) -> Vec<(String, Reply)> {
    let others = numbered("other", 3_000);
    let mut seen = Vec::new();
    for Sample { key, items } in samples {
        for command in ["TYPE", "BF.CARD", "BF.INFO", "BF.DEBUG", "DUMP", "TTL"] {
            seen.push((format!("{command} {key}"), client.cmd(&[command, key])));
        }
        assert!(
            mexists(client, key, items).iter().all(|&there| there),
            "an item of {key} is missing"
        );
        let others = mexists(client, key, &others).into_iter().map(|there| int(there.into()));
        seen.push((format!("false positives of {key}"), array(others)));
    }
    seen
}

#[track_caller]
pub(crate) fn assert_same(before: &[(String, Reply)], after: &[(String, Reply)], way: &str) {
    assert_eq!(before.len(), after.len());
    for ((what, before), (_, after)) in before.iter().zip(after) {
        assert_eq!(before, after, "{what} after {way}");
    }
}

/// Asserts that the loaded filters still work: a full one refuses items, and the others take more.
#[track_caller]
pub(crate) fn assert_usable(client: &mut Client, way: &str) {
    assert_eq!(
        client.run("BF.ADD single_item another"),
        err("ERR non scaling filter is full"),
        "{way}"
    );
    let more = numbered("more", 2_000);
    for key in ["empty", "one_block", "grown", "narrow", "seeded", "tiniest"] {
        madd(client, key, &more);
        assert!(mexists(client, key, &more).iter().all(|&there| there), "{key} after {way}");
    }
}

#[test]
fn save_and_restart_keep_every_filter() {
    let mut server = Server::start();
    let samples = make(&mut server.client());
    server.client().run("EXPIRE added 10000");
    server.client().run("PERSIST added");
    let before = snapshot(&mut server.client(), &samples);
    server.restart();
    let after = snapshot(&mut server.client(), &samples);
    assert_same(&before, &after, "SAVE and restart");
    server.restart();
    assert_same(&before, &snapshot(&mut server.client(), &samples), "a second restart");
    assert_usable(&mut server.client(), "two restarts");
}

#[test]
fn a_restart_without_compression_and_checksum_keeps_every_filter() {
    let mut server = Server::with().config("rdbcompression no").config("rdbchecksum no").start();
    let samples = make(&mut server.client());
    let before = snapshot(&mut server.client(), &samples);
    server.restart();
    assert_same(&before, &snapshot(&mut server.client(), &samples), "a plain RDB file");
}

#[test]
fn debug_reload_keeps_every_filter() {
    let server = Server::start();
    let client = &mut server.client();
    let samples = make(client);
    let before = snapshot(client, &samples);
    assert_eq!(client.run("DEBUG RELOAD"), ok());
    assert_same(&before, &snapshot(client, &samples), "DEBUG RELOAD");
    assert_usable(client, "DEBUG RELOAD");
}

#[test]
fn dump_and_restore_make_the_same_filter() {
    let server = Server::start();
    let client = &mut server.client();
    let samples = make(client);
    let before = snapshot(client, &samples);
    for sample in &samples {
        let Reply::Bulk(payload) = client.cmd(&["DUMP", sample.key]) else {
            panic!("DUMP {}", sample.key)
        };
        client.cmd(&["DEL", sample.key]);
        assert_eq!(
            client.call("RESTORE", sample.key, &[&b"0"[..], &payload]),
            ok(),
            "{}",
            sample.key
        );
    }
    assert_same(&before, &snapshot(client, &samples), "DUMP and RESTORE");
    assert_usable(client, "DUMP and RESTORE");
}

fn rewrite(client: &mut Client) {
    let reply = client.run("BGREWRITEAOF");
    assert!(!reply.is_error(), "BGREWRITEAOF answered {reply:?}");
    wait_until("the rewrite ends", || !client.has_child());
    assert_eq!(client.server_info("persistence", "aof_last_bgrewrite_status"), "ok");
}

fn an_aof_rewrite_keeps_every_filter(preamble: &str) {
    let mut server = Server::with()
        .config("appendonly yes")
        .config(&format!("aof-use-rdb-preamble {preamble}"))
        .start();
    let samples = make(&mut server.client());
    let before = snapshot(&mut server.client(), &samples);
    rewrite(&mut server.client());
    let way = format!("an AOF rewrite with aof-use-rdb-preamble {preamble}");
    assert_same(&before, &snapshot(&mut server.client(), &samples), &way);
    server.kill_and_restart();
    assert_same(&before, &snapshot(&mut server.client(), &samples), &format!("{way} and a kill"));
    assert_usable(&mut server.client(), &way);
    // The additions after the rewrite are in the incremental part of the AOF.
    server.kill_and_restart();
    let client = &mut server.client();
    for key in ["empty", "one_block", "grown", "narrow", "seeded", "tiniest"] {
        let more = mexists(client, key, &numbered("more", 2_000));
        assert!(more.iter().all(|&there| there), "{key}: added after {way}, lost by a kill");
    }
    rewrite(client);
    server.kill_and_restart();
    let client = &mut server.client();
    for Sample { key, items } in &samples {
        assert!(
            mexists(client, key, items).iter().all(|&there| there),
            "{key} after a second rewrite"
        );
    }
}

#[test]
fn an_aof_rewrite_with_an_rdb_preamble_keeps_every_filter() {
    an_aof_rewrite_keeps_every_filter("yes");
}

#[test]
fn an_aof_rewrite_without_an_rdb_preamble_keeps_every_filter() {
    an_aof_rewrite_keeps_every_filter("no");
}

/// Without a rewrite, the AOF has the commands themselves.
#[test]
fn an_acknowledged_addition_survives_a_kill() {
    let mut server = Server::with().config("appendonly yes").start();
    let samples = make(&mut server.client());
    server.kill_and_restart();
    let client = &mut server.client();
    for Sample { key, items } in &samples {
        assert!(mexists(client, key, items).iter().all(|&there| there), "an item of {key} is lost");
    }
    assert_eq!(client.run("BF.ADD single_item another"), err("ERR non scaling filter is full"));
}

#[test]
fn a_filter_of_half_a_megabyte_survives_a_restart() {
    let mut server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.0001 200000"), ok());
    let items = numbered("item", 200_000);
    madd(client, "k", &items);
    let before = client.run("BF.DEBUG k");
    server.restart();
    let client = &mut server.client();
    assert_eq!(client.run("BF.DEBUG k"), before);
    assert!(mexists(client, "k", &items).iter().all(|&there| there));
}
