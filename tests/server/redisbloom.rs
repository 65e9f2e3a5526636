//! Filters from files of RedisBloom: they answer every command as in RedisBloom, and RedisBloom can
//! load them again.
//!
//! `tests/fixtures/products.rs` describes the files and the answers. `redisbloom_live.rs` tests
//! with RedisBloom itself.

use std::{collections::BTreeSet, fs};

use crate::{
    as_there::{check_first, go_on, go_on_beside_a_copy, go_on_with_a_replica},
    harness::{
        Client, Reply, Server, assert_sane, assert_unharmed, digest, dump, err, info, int, load,
        mexists, numbered, ok, sealed, wait_until,
    },
    products::{REDISBLOOM, file, pieces},
};

/// The filters whose DUMP every tested server reads.
fn names() -> impl Iterator<Item = &'static str> {
    REDISBLOOM.into_iter().filter(|name| name.starts_with("redisbloom-2.8"))
}

#[track_caller]
pub(crate) fn restore(client: &mut Client, key: &str, payload: &[u8]) -> Reply {
    client.call("RESTORE", key, &[&b"0"[..], payload])
}

#[test]
fn a_payload_of_redisbloom_answers_and_grows_as_in_redisbloom() {
    let server = Server::start();
    let client = &mut server.client();
    for name in names() {
        assert_eq!(restore(client, name, &file(&format!("{name}.dump"))), ok(), "{name}");
        check_first(client, name, name);
        // Every command works on the copy.
        assert_eq!(client.cmd(&["COPY", name, "copy"]), int(1));
        assert_sane(client, "copy", name);
        go_on_beside_a_copy(client, name);
    }
    assert_unharmed(&server);
}

#[test]
fn chunks_of_redisbloom_are_loaded_and_dumped_again() {
    let server = Server::start();
    let client = &mut server.client();
    for name in REDISBLOOM {
        let pieces = pieces(name);
        for piece in &pieces {
            assert_eq!(load(client, name, piece), ok(), "{name}");
        }
        assert_eq!(dump(client, name)[1..], pieces[1..], "{name}");
        check_first(client, name, name);
        // The dumped chunks can be loaded as well.
        for piece in dump(client, name) {
            assert_eq!(load(client, "again", &piece), ok(), "{name}");
        }
        assert_eq!(digest(client, "again"), digest(client, name));
        assert_eq!(client.cmd(&["DEL", "again"]), int(1));
        go_on(client, name, name);
    }
}

#[test]
fn info_has_the_numbers_of_redisbloom() {
    let server = Server::start();
    let client = &mut server.client();
    let name = "redisbloom-2.8-grown";
    restore(client, name, &file("redisbloom-2.8-grown.dump"));
    let info = info(client, name);
    let expected = (2_000, 4, 676, Some(3));
    assert_eq!((info.capacity, info.filters, info.items, info.expansion), expected);
    let number = |reply: Reply| -> f64 { reply.elements()[0].text().parse().expect("a rate") };
    assert_eq!(number(client.cmd(&["BF.INFO", name, "ERROR"])), 0.05);
    let rate = number(client.cmd(&["BF.INFO", name, "FPR"]));
    let measured = mexists(client, name, &numbered("other", 20_000));
    let measured = measured.iter().filter(|&&found| found).count() as f64 / 20_000.0;
    // Four standard deviations of a count of about 800 are 14 %.
    assert!((rate / measured - 1.0).abs() < 0.2, "{rate} estimated, {measured} measured");
}

/// Checks the keys of `redisbloom-2.8.rdb` and `.aof`; the AOF has added `later` more items.
#[track_caller]
fn check_keys(client: &mut Client, later: usize) {
    for (key, name) in [("full", "redisbloom-2.8-nonscaling"), ("grown", "redisbloom-2.8-grown")] {
        if key == "full" || later == 0 {
            check_first(client, key, name);
        }
    }
    let later = mexists(client, "grown", &numbered("later", later));
    assert!(later.iter().all(|&there| there));
    assert_eq!(client.run("BF.EXISTS default item-0"), int(1));
}

#[test]
fn an_rdb_file_of_redisbloom_is_loaded_and_saved() {
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
        let preamble = format!("aof-use-rdb-preamble {preamble}");
        let lines = ["appendonly yes", "appendfsync always", &preamble];
        let mut server = Server::on_file("appendonly.aof", &file("redisbloom-2.8.aof"), &lines);
        let client = &mut server.client();
        check_keys(client, 100);
        let before = digest(client, "grown");
        client.run("BGREWRITEAOF");
        wait_until("the AOF is rewritten", || !client.has_child());
        assert_eq!(client.server_info("persistence", "aof_last_bgrewrite_status"), "ok");
        client.run("BF.ADD full one-more");
        server.kill_and_restart();
        let client = &mut server.client();
        check_keys_after(client, &before);
    }
}

/// The name and the key of each command of an AOF without an RDB preamble.
#[track_caller]
fn commands(server: &Server) -> Vec<(String, String)> {
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("the folder of the AOF");
    let mut aofs: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    // In this order the base precedes the increments: `....1.base.aof`, `....1.incr.aof`.
    aofs.sort();
    let mut commands = Vec::new();
    for aof in aofs.iter().filter(|path| path.extension().is_some_and(|end| end == "aof")) {
        let bytes = fs::read(aof).expect("an AOF");
        let mut rest = bytes.as_slice();
        let line = |rest: &mut &[u8]| -> usize {
            let end = rest.windows(2).position(|two| two == b"\r\n").expect("a line");
            let (number, tail) = rest.split_at(end);
            *rest = &tail[2..];
            let number = std::str::from_utf8(&number[1..]).expect("text");
            number.parse().expect("a number")
        };
        while !rest.is_empty() {
            let words: Vec<_> = (0..line(&mut rest))
                .map(|_| {
                    let length = line(&mut rest);
                    let (word, tail) = rest.split_at(length);
                    rest = &tail[2..];
                    String::from_utf8_lossy(word).into_owned()
                })
                .collect();
            let key = words.get(1).cloned().unwrap_or_default();
            commands.push((words[0].to_uppercase(), key));
        }
    }
    commands.retain(|(name, _)| name != "SELECT");
    commands
}

/// The way back by AOF in docs/guide/migration.md: RedisBloom cannot COPY its filters and cannot
/// read our payloads, so it refuses an AOF with such commands until the next rewrite removes them.
#[test]
fn a_rewrite_turns_copies_into_commands_that_redisbloom_reads() {
    let server = Server::with()
        .config("appendonly yes")
        .config("appendfsync always")
        .config("aof-use-rdb-preamble no")
        .start();
    let client = &mut server.client();
    for piece in pieces("redisbloom-2.8-grown") {
        assert_eq!(load(client, "k", &piece), ok());
    }
    let rewrite = |client: &mut Client| {
        client.run("BGREWRITEAOF");
        wait_until("the AOF is rewritten", || !client.has_child());
    };
    let names =
        |server: &Server| commands(server).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    rewrite(client);
    assert!(names(&server).iter().all(|name| name == "BF.LOADCHUNK"));
    assert_eq!(client.run("COPY k copy"), int(1));
    let Reply::Bulk(payload) = client.run("DUMP k") else { panic!("no payload") };
    assert_eq!(restore(client, "restored", &payload), ok());
    assert_eq!(client.run("BF.ADD k one-more"), int(1));
    let after = names(&server);
    let after: Vec<_> = after.iter().filter(|name| *name != "BF.LOADCHUNK").collect();
    assert_eq!(after, ["COPY", "RESTORE", "BF.ADD"]);
    rewrite(client);
    let keys: BTreeSet<_> = commands(&server)
        .into_iter()
        .map(|(name, key)| {
            assert_eq!(name, "BF.LOADCHUNK");
            key
        })
        .collect();
    assert_eq!(keys.iter().collect::<Vec<_>>(), ["copy", "k", "restored"]);
}

#[track_caller]
fn check_keys_after(client: &mut Client, grown: &str) {
    assert_eq!(digest(client, "grown"), grown);
    assert_eq!(client.run("BF.EXISTS full one-more"), int(1));
    assert_eq!(client.run("BF.EXISTS default item-0"), int(1));
}

#[test]
fn a_replica_holds_an_equal_filter() {
    let server = Server::start();
    let client = &mut server.client();
    for name in names() {
        restore(client, name, &file(&format!("{name}.dump")));
    }
    go_on_with_a_replica(&server, &names().collect::<Vec<_>>());
}

/// Payloads that crash, hang or mislead RedisBloom get an error at once, and the server survives.
#[test]
fn payloads_that_crash_redisbloom_are_refused() {
    let server = Server::start();
    let client = &mut server.client();
    let payload = file("redisbloom-2.8-one-layer.dump");
    let body = &payload[..payload.len() - 8];
    // The payload: type, 0x81 and 8 bytes of id, then each number with a tag: size 60, 1 layer,
    // options 5, growth 2, capacity 100, rate, 8 hashes, bits per item, 1152 bits, n2 0, 144 bytes.
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
    // The unchanged payload is accepted, so the errors above come from the changes.
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
fn a_half_loaded_filter_of_redisbloom_answers_that_it_is_being_loaded() {
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
    assert_eq!(load(client, "k", &wrong), err("ERR invalid offset - no link found"));
    for piece in &pieces[2..] {
        assert_eq!(load(client, "k", piece), ok());
    }
    check_first(client, "k", "redisbloom-2.8-grown");
}
