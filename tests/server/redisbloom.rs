//! Filters that RedisBloom made, from its files and its live stream: every answer is RedisBloom's, and they can go back.
//!
//! The files and what RedisBloom answered are described in `tests/fixtures/products.rs`. The tests at the end talk to
//! RedisBloom itself, where `REDIS_BLOOM_PEER_REDISBLOOM` names its library; without it they say SKIPPED.

use crate::harness::{
    Client, Reply, Server, array, assert_sane, assert_unharmed, digest, dump, err, info, int, load, mexists,
    numbered, ok, sealed, skipped, wait_until,
};
use crate::products::{Answers, REDISBLOOM, file, pieces};

/// Those whose DUMP every server of these tests reads.
fn names() -> impl Iterator<Item = &'static str> {
    REDISBLOOM
        .into_iter()
        .filter(|name| name.starts_with("redisbloom-2.8"))
}

/// Asks for everything that RedisBloom was asked for before the later items.
#[track_caller]
fn check_first(client: &mut Client, key: &str, name: &str) {
    let answers = Answers::read(name);
    assert!(
        mexists(client, key, &answers.items(0)) == answers.exists,
        "{name}"
    );
    assert_eq!(debug(client, key), answers.debug, "{name}");
}

/// Adds the later items and asks once more.
#[track_caller]
fn go_on(client: &mut Client, key: &str, name: &str) {
    let answers = Answers::read(name);
    let later = numbered("later", answers.later.len());
    for (item, &answer) in later.iter().zip(&answers.later) {
        let expected = match answer {
            2 => err("ERR non scaling filter is full"),
            answer => int(i64::from(answer)),
        };
        assert_eq!(client.cmd(&["BF.ADD", key, item]), expected, "{name} {item}");
    }
    let items = answers.items(later.len());
    assert!(mexists(client, key, &items) == answers.exists_later, "{name}");
    assert_eq!(debug(client, key), answers.debug_later, "{name}");
}

fn debug(client: &mut Client, key: &str) -> Vec<String> {
    let reply = client.cmd(&["BF.DEBUG", key]);
    reply.elements().iter().map(Reply::text).collect()
}

#[track_caller]
fn restore(client: &mut Client, key: &str, payload: &[u8]) -> Reply {
    client.call("RESTORE", key, &[&b"0"[..], payload])
}

#[test]
fn a_payload_of_redisbloom_answers_and_grows_as_there() {
    let server = Server::start();
    let client = &mut server.client();
    for name in names() {
        assert_eq!(
            restore(client, name, &file(&format!("{name}.dump"))),
            ok(),
            "{name}"
        );
        check_first(client, name, name);
        // Every command works on it, and its own payload is the same filter.
        assert_eq!(client.cmd(&["COPY", name, "copy"]), int(1));
        assert_sane(client, "copy", name);
        assert_eq!(client.cmd(&["COPY", name, "copy"]), int(1));
        assert_eq!(digest(client, "copy"), digest(client, name));
        go_on(client, name, name);
        // The copy is another filter, and grows the same way.
        check_first(client, "copy", name);
        go_on(client, "copy", name);
        assert_eq!(digest(client, "copy"), digest(client, name));
        assert_eq!(client.cmd(&["DEL", "copy"]), int(1));
    }
    assert_unharmed(&server);
}

#[test]
fn chunks_of_redisbloom_are_loaded_and_given_back() {
    let server = Server::start();
    let client = &mut server.client();
    for name in REDISBLOOM {
        let pieces = pieces(name);
        for piece in &pieces {
            assert_eq!(load(client, name, piece), ok(), "{name}");
        }
        assert_eq!(dump(client, name)[1..], pieces[1..], "{name}");
        check_first(client, name, name);
        // What is given back is loaded as well.
        for piece in dump(client, name) {
            assert_eq!(load(client, "again", &piece), ok(), "{name}");
        }
        assert_eq!(digest(client, "again"), digest(client, name));
        assert_eq!(client.cmd(&["DEL", "again"]), int(1));
        go_on(client, name, name);
    }
}

#[test]
fn info_tells_of_it_what_redisbloom_tells() {
    let server = Server::start();
    let client = &mut server.client();
    let name = "redisbloom-2.8-grown";
    restore(client, name, &file("redisbloom-2.8-grown.dump"));
    let told = info(client, name);
    let expected = (2_000, 4, 676, Some(3));
    assert_eq!(
        (told.capacity, told.filters, told.items, told.expansion),
        expected
    );
    let number = |reply: Reply| -> f64 { reply.elements()[0].text().parse().expect("a rate") };
    assert_eq!(number(client.cmd(&["BF.INFO", name, "ERROR"])), 0.05);
    let rate = number(client.cmd(&["BF.INFO", name, "FPR"]));
    let measured = mexists(client, name, &numbered("other", 20_000));
    let measured = measured.iter().filter(|&&found| found).count() as f64 / 20_000.0;
    // Four deviations of a count of some 800 are 14 %.
    assert!(
        (rate / measured - 1.0).abs() < 0.2,
        "{rate} estimated, {measured} measured"
    );
}

/// The keys of `redisbloom-2.8.rdb` and `.aof`.
#[track_caller]
fn check_keys(client: &mut Client, later: usize) {
    for (key, name) in [
        ("full", "redisbloom-2.8-nonscaling"),
        ("grown", "redisbloom-2.8-grown"),
    ] {
        if key == "full" || later == 0 {
            check_first(client, key, name);
        }
    }
    let later = mexists(client, "grown", &numbered("later", later));
    assert!(later.iter().all(|&there| there));
    assert_eq!(client.run("BF.EXISTS default item-0"), int(1));
}

#[test]
fn an_rdb_file_of_redisbloom_is_loaded_and_saved_as_ours() {
    let file = file("redisbloom-2.8.rdb");
    let mut server = Server::on_file("dump.rdb", &file, &["dbfilename dump.rdb"]);
    check_keys(&mut server.client(), 0);
    let before = digest(&mut server.client(), "grown");
    for _ in 0..2 {
        server.restart();
        check_keys(&mut server.client(), 0);
        assert_eq!(digest(&mut server.client(), "grown"), before);
    }
    go_on(&mut server.client(), "grown", "redisbloom-2.8-grown");
}

#[test]
fn an_aof_of_redisbloom_is_replayed_and_rewritten() {
    for preamble in ["no", "yes"] {
        let lines = ["appendonly yes", &format!("aof-use-rdb-preamble {preamble}")];
        let mut server = Server::on_file("appendonly.aof", &file("redisbloom-2.8.aof"), &lines);
        let client = &mut server.client();
        check_keys(client, 100);
        let before = digest(client, "grown");
        client.run("BGREWRITEAOF");
        wait_until("the AOF is rewritten", || !client.has_child());
        assert_eq!(
            client.server_info("persistence", "aof_last_bgrewrite_status"),
            "ok"
        );
        client.run("BF.ADD full one-more");
        // What follows the rewrite is written once a second.
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        server.kill_and_restart();
        let client = &mut server.client();
        check_keys_after(client, &before);
    }
}

#[track_caller]
fn check_keys_after(client: &mut Client, grown: &str) {
    assert_eq!(digest(client, "grown"), grown);
    assert_eq!(client.run("BF.EXISTS full one-more"), int(1));
    assert_eq!(client.run("BF.EXISTS default item-0"), int(1));
}

#[test]
fn a_replica_of_ours_holds_the_same_filter() {
    let server = Server::start();
    let client = &mut server.client();
    for name in names() {
        restore(client, name, &file(&format!("{name}.dump")));
    }
    let replica = server.replica();
    for name in names() {
        go_on(client, name, name);
    }
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    for name in names() {
        assert_eq!(
            digest(&mut replica.client(), name),
            digest(client, name),
            "{name}"
        );
    }
}

/// The inputs that crash, hang or fool RedisBloom: an error, at once, and the server goes on.
#[test]
fn payloads_that_crash_redisbloom_are_refused() {
    let server = Server::start();
    let client = &mut server.client();
    let payload = file("redisbloom-2.8-one-layer.dump");
    let body = &payload[..payload.len() - 8];
    // type, 0x81 and 8 bytes of id, then a tag and a length for each number: size 60, 1 layer, options 5, growth 2,
    // capacity 100, rate, 8 hashes, bits per item, 1152 bits, n2 0, 144 bytes.
    const COUNT: usize = 12;
    assert_eq!(body[10..20], [2, 60, 2, 1, 2, 5, 2, 2, 2, 0x40]);
    let huge = |count: u64| [&[0x81][..], &count.to_be_bytes()].concat();
    let with = |at: usize, old: usize, new: &[u8]| [&body[..at], new, &body[at + old..]].concat();
    let hashes = 10 + 2 + 2 + 2 + 2 + 3 + 9 + 1;
    assert_eq!(body[hashes], 8);
    let bpe = hashes + 2;
    let bits = bpe + 8 + 1;
    assert_eq!(body[bits..bits + 2], [0x44, 0x80]);
    let n2 = bits + 3;
    let rate = hashes - 9;
    let cases = [
        ("2^60 layers", with(COUNT + 1, 1, &huge(1 << 60))),
        ("2^31 - 1 layers", with(COUNT + 1, 1, &huge((1 << 31) - 1))),
        ("no layers", with(COUNT + 1, 1, &[0])),
        ("2 layers where 1 is", with(COUNT + 1, 1, &[2])),
        ("no hashes", with(hashes, 1, &[0])),
        ("2^31 hashes", with(hashes, 1, &huge(1 << 31))),
        ("2^63 bits", with(bits, 2, &huge(1 << 63))),
        ("1151 bits", with(bits, 2, &[0x44, 0x7f])),
        ("n2 of 63", with(n2, 1, &[63])),
        ("n2 of 64", with(n2, 1, &[0x40, 64])),
        ("n2 of 255", with(n2, 1, &[0x40, 255])),
        ("1e18 bits per item", with(bpe, 8, &1e18_f64.to_le_bytes())),
        ("a rate of NaN", with(rate, 8, &f64::NAN.to_le_bytes())),
        ("a rate of 0", with(rate, 8, &[0; 8])),
        ("no entries", with(19, 2, &[0])),
        ("a size of 2^63", with(11, 1, &huge(1 << 63))),
        ("options 255", with(15, 1, &[0x40, 255])),
    ];
    let before = client.memory("used_memory");
    for (what, body) in cases {
        let reply = restore(client, "forged", &sealed(&body));
        assert!(reply.is_error(), "{what}: {reply:?}");
        assert_eq!(client.run("EXISTS forged"), int(0), "{what}");
    }
    // Unless one of the offsets above is wrong:
    assert_eq!(restore(client, "good", &sealed(body)), ok());
    let after = client.memory("used_memory");
    assert!(after - before < 1 << 20, "{before} bytes before, {after} after");
    assert_unharmed(&server);
}

#[test]
fn headers_that_crash_redisbloom_are_refused() {
    let server = Server::start();
    let client = &mut server.client();
    let (_, header) = &pieces("redisbloom-2.8-one-layer")[0];
    for (what, at, new) in [
        ("no layers", 8, &[0; 4][..]),
        ("2^32 - 1 layers", 8, &[255; 4]),
        ("2^63 bytes", 20, &(1_u64 << 63).to_le_bytes()),
        ("2^45 bytes", 20, &(1_u64 << 45).to_le_bytes()),
        ("2^63 bits", 28, &(1_u64 << 63).to_le_bytes()),
        ("2^63 items", 36, &(1_u64 << 63).to_le_bytes()),
        ("a rate of NaN", 44, &f64::NAN.to_le_bytes()),
        ("2^31 hashes", 60, &(1_u32 << 31).to_le_bytes()),
        ("no entries", 64, &[0; 8]),
        ("n2 of 64", 72, &[64]),
    ] {
        let mut forged = header.clone();
        forged[at..at + new.len()].copy_from_slice(new);
        let reply = load(client, "forged", &(1, forged));
        assert_eq!(reply, err("ERR received bad data"), "{what}");
        assert_eq!(client.run("EXISTS forged"), int(0), "{what}");
    }
    assert_unharmed(&server);
}

#[test]
fn a_half_loaded_filter_of_redisbloom_says_so() {
    let server = Server::start();
    let client = &mut server.client();
    let pieces = pieces("redisbloom-2.8-grown");
    for piece in &pieces[..2] {
        assert_eq!(load(client, "k", piece), ok());
        assert_eq!(
            client.run("BF.EXISTS k item-0"),
            err("ERR filter is being loaded by BF.LOADCHUNK")
        );
    }
    assert_eq!(client.run("COPY k half"), int(1));
    assert_sane(client, "half", "half of a filter");
    let wrong = (pieces[3].0, pieces[3].1.clone());
    assert_eq!(
        load(client, "k", &wrong),
        err("ERR invalid offset - no link found")
    );
    for piece in &pieces[2..] {
        assert_eq!(load(client, "k", piece), ok());
    }
    check_first(client, "k", "redisbloom-2.8-grown");
}

/// RedisBloom's library, where the environment names it.
fn peer(test: &str) -> Option<String> {
    const VARIABLE: &str = "REDIS_BLOOM_PEER_REDISBLOOM";
    let path = std::env::var(VARIABLE).ok();
    if path.is_none() {
        skipped(test, &format!("{VARIABLE} names no library"));
    }
    path
}

/// A server that runs RedisBloom.
fn redisbloom(path: &str) -> Server {
    Server::with()
        .without_module()
        .config(&format!("loadmodule \"{path}\""))
        .start()
}

#[test]
fn a_replica_of_redisbloom_is_promoted_without_a_change() {
    let Some(path) = peer("a_replica_of_redisbloom_is_promoted_without_a_change") else {
        return;
    };
    let theirs = redisbloom(&path);
    let old = &mut theirs.client();
    let asked = [numbered("item", 9_000), numbered("absent", 20_000)].concat();
    old.run("BF.RESERVE k 0.02 500");
    old.call("BF.MADD", "k", &asked[..3_000]);
    let ours = theirs.replica();
    let new = &mut ours.client();
    assert_eq!(
        mexists(new, "k", &asked),
        mexists(old, "k", &asked),
        "the first copy"
    );
    // The stream: it grows on both sides.
    old.call("BF.MADD", "k", &asked[3_000..9_000]);
    old.run("BF.INSERT made CAPACITY 100 ITEMS a b");
    assert_eq!(old.run("WAIT 1 30000"), int(1));
    assert_eq!(mexists(new, "k", &asked), mexists(old, "k", &asked), "the stream");
    assert_eq!(new.run("BF.MEXISTS made a b"), array([int(1), int(1)]));
    assert_eq!(new.run("BF.DEBUG k"), old.run("BF.DEBUG k"));
    assert_eq!(new.run("REPLICAOF NO ONE"), ok());
    let more = numbered("more", 9_000);
    assert_eq!(new.call("BF.MADD", "k", &more), old.call("BF.MADD", "k", &more));
    assert_eq!(
        mexists(new, "k", &asked),
        mexists(old, "k", &asked),
        "after the promotion"
    );
}

#[test]
fn chunks_go_to_redisbloom_and_back() {
    let Some(path) = peer("chunks_go_to_redisbloom_and_back") else {
        return;
    };
    let (ours, theirs) = (Server::start(), redisbloom(&path));
    let (new, old) = (&mut ours.client(), &mut theirs.client());
    let asked = [numbered("item", 3_000), numbered("absent", 20_000)].concat();
    for (key, make) in [
        ("grown", "BF.RESERVE grown 0.02 200 EXPANSION 3"),
        ("full", "BF.RESERVE full 0.02 4000 NONSCALING"),
    ] {
        assert_eq!(old.run(make), ok());
        old.call("BF.MADD", key, &asked[..1_500]);
        for piece in dump(old, key) {
            assert_eq!(load(new, key, &piece), ok());
        }
        assert_eq!(
            new.call("BF.MADD", key, &asked[1_500..3_000]),
            old.call("BF.MADD", key, &asked[1_500..3_000])
        );
        for piece in dump(new, key) {
            assert_eq!(load(old, "back", &piece), ok());
        }
        assert_eq!(mexists(old, "back", &asked), mexists(new, key, &asked), "{key}");
        assert_eq!(mexists(old, "back", &asked), mexists(old, key, &asked), "{key}");
        assert_eq!(old.run("DEL back"), int(1));
    }
}

/// Shapes are computed from capacity and rate, and not believed: so ours must be theirs, at every edge.
#[test]
fn every_filter_that_redisbloom_makes_is_taken_and_given_back() {
    let Some(path) = peer("every_filter_that_redisbloom_makes_is_taken_and_given_back") else {
        return;
    };
    let (ours, theirs) = (Server::start(), redisbloom(&path));
    let (new, old) = (&mut ours.client(), &mut theirs.client());
    // At powers of two the number of hashes hangs on the last bit of a logarithm.
    let rates = [
        "0.9999999999999999",
        "0.99",
        "0.75",
        "0.5",
        "0.25",
        "0.125",
        "0.0625",
        "0.1",
        "0.01",
        "0.001",
        "1e-9",
        "1e-15",
        "1e-30",
        "1e-100",
        "1e-300",
    ];
    for rate in rates {
        for capacity in [
            "1", "2", "3", "7", "8", "63", "64", "65", "100", "1000", "4096", "99999",
        ] {
            for growth in ["", "NONSCALING"] {
                let what = format!("BF.RESERVE k {rate} {capacity} {growth}");
                assert_eq!(old.run(&what), ok(), "{what}");
                let header = &dump(old, "k")[0];
                assert_eq!(load(new, "k", header), ok(), "{what}");
                let Reply::Bulk(payload) = old.run("DUMP k") else {
                    panic!("{what}: no payload")
                };
                assert_eq!(restore(new, "whole", &payload), ok(), "{what}");
                assert_eq!(load(old, "back", &dump(new, "whole")[0]), ok(), "{what}");
                assert_eq!(new.run("DEL k whole"), int(2));
                assert_eq!(old.run("DEL k back"), int(2));
            }
        }
    }
}
