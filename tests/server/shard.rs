//! Filters that are a shard of a sharded filter: `SHARD i n` at creation, and then an item of
//! another shard ends a command.

use crate::harness::{
    Client, Header, Payload, Protocol, Reply, Server, array, assert_unharmed, bulk, digest, dump,
    err, int, ints, load, madd, mexists, null, numbered, ok, sealed_with_xxh3, wait_until,
};
use crate::obeyed::aof;

/// Of 8 shards, `a` belongs to number 7, `b` to 3 and `123456789` to 6 (`tests/sharding/main.rs`).
const OTHER: &str = "ERR item belongs to shard 6 of 8";
const BAD: &str = "ERR SHARD must be i n with 0 <= i < n <= 1024";

/// The first `count` of the numbered items that belong to the shard. The server says which do.
fn own_items(client: &mut Client, shard: &str, count: usize) -> Vec<String> {
    let key = "own_items";
    assert_eq!(client.run(&format!("BF.RESERVE {key} 0.01 100 SHARD {shard}")), ok());
    let own = numbered("item", 100_000).into_iter();
    let own = own.filter(|item| !client.call("BF.EXISTS", key, &[item]).is_error());
    let own = own.take(count).collect();
    client.run(&format!("DEL {key}"));
    own
}

#[test]
fn an_item_of_another_shard_ends_every_command() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        client.run("FLUSHALL");
        for options in ["SHARD 7 8", "COUNTING SHARD 7 8"] {
            let counting = options.len() > 9;
            assert_eq!(client.run(&format!("BF.RESERVE k 0.01 100 {options}")), ok());
            let bool = |yes: bool| match protocol {
                Protocol::Resp2 => int(yes.into()),
                Protocol::Resp3 => Reply::Bool(yes),
            };
            let yes = bool(true);
            let other = || err(OTHER);
            let rows = [
                ("BF.ADD k a", yes.clone()),
                ("BF.ADD k 123456789", other()),
                ("BF.MADD k 123456789", other()),
                ("BF.MADD k 123456789 a", other()),
                ("BF.INSERT k ITEMS 123456789 a", other()),
                ("BF.MADD k a 123456789 a", other()),
                ("BF.INSERT k NOCREATE ITEMS a a 123456789", other()),
                ("BF.BULKADD k WIDTH 1 aba", err("ERR item belongs to shard 3 of 8")),
                ("BF.BULKADD k WIDTH 9 123456789", other()),
                ("BF.BULKADD k WIDTH 1 ba", err("ERR item belongs to shard 3 of 8")),
                ("BF.EXISTS k a", yes.clone()),
                ("BF.EXISTS k 123456789", other()),
                ("BF.MEXISTS k a 123456789 a", other()),
                ("BF.MEXISTS k 123456789", other()),
                ("BF.MEXISTS k a a", array([yes.clone(), yes.clone()])),
                ("BF.BULKEXISTS k WIDTH 1 ab", err("ERR item belongs to shard 3 of 8")),
            ];
            for (line, reply) in rows {
                assert_eq!(client.run(line), reply, "{line} {options}");
            }
            let lines = client.cmd(&["BF.BULKEXISTS", "k", "LINES", "a\na\n123456789\na\n"]);
            assert_eq!(lines, other());
            assert_eq!(client.run("BF.CARD k"), int(1));
            if counting {
                for (line, reply) in [
                    ("BF.COUNT k a", int(1)),
                    ("BF.COUNT k 123456789", other()),
                    ("BF.DEL k 123456789", other()),
                    ("BF.DEL k 123456789 a", other()),
                    ("BF.DEL k a 123456789 a", other()),
                    ("BF.COUNT k a", int(1)),
                ] {
                    assert_eq!(client.run(line), reply, "{line}");
                }
            }
            assert_eq!(client.run("DEL k"), int(1));
        }
        // A missing key has no shard.
        assert!(!client.run("BF.MEXISTS missing 123456789").elements()[0].is_error());
    }
}

/// The error is the whole reply, so nothing may be created, replicated or saved.
#[test]
fn a_command_whose_first_item_is_foreign_creates_nothing() {
    let server = Server::start();
    let client = &mut server.client();
    let before = client.server_info("persistence", "rdb_changes_since_last_save");
    for line in [
        "BF.INSERT k SHARD 7 8 ITEMS 123456789",
        "BF.INSERT k SHARD 7 8 COUNTING ITEMS 123456789 a",
        "BF.INSERT k SHARD 7 8 WINDOW EX 60 ITEMS 123456789",
        "BF.BULKADD k SHARD 7 8 WIDTH 9 123456789",
    ] {
        let text = client.run(line).error().to_owned();
        assert!(text.starts_with("ERR item belongs to shard "), "{line}: {text}");
        assert_eq!(client.run("EXISTS k"), int(0), "{line}");
    }
    assert_eq!(client.server_info("persistence", "rdb_changes_since_last_save"), before);
}

/// The item may be anywhere in a batch of several chunks: nothing is added, and nothing answered.
#[test]
fn an_item_of_another_shard_anywhere_changes_nothing() {
    let server = Server::start();
    let client = &mut server.client();
    let own = own_items(client, "7 8", 200);
    client.run("BF.RESERVE k 0.0001 1000 SHARD 7 8");
    for before in [0, 1, 63, 64, 65, 128, 199] {
        let mut items = own.clone();
        items.insert(before, "123456789".into());
        assert_eq!(client.call("BF.MADD", "k", &items), err(OTHER), "{before}");
        let checks = client.server_info("bf", "bf_checks");
        assert_eq!(client.call("BF.MEXISTS", "k", &items), err(OTHER), "{before}");
        let reply = client.cmd(&["BF.BULKEXISTS", "k", "LINES", &items.join("\n")]);
        assert_eq!(reply, err(OTHER), "{before}");
        assert_eq!(client.server_info("bf", "bf_checks"), checks, "what was not answered");
    }
    assert_eq!(client.run("BF.CARD k"), int(0));
    assert_eq!(client.call("BF.MADD", "k", &own), array(vec![int(1); 200]));
}

/// A full filter, too.
#[test]
fn a_foreign_item_comes_before_a_full_filter() {
    let server = Server::start();
    let client = &mut server.client();
    let own = own_items(client, "7 8", 3);
    client.run("BF.RESERVE k 0.000001 2 NONSCALING SHARD 7 8");
    let items = [own, vec!["123456789".into()]].concat();
    assert_eq!(client.call("BF.MADD", "k", &items), err(OTHER));
}

#[test]
fn every_command_that_creates_a_filter_makes_a_shard() {
    let server = Server::start();
    let client = &mut server.client();
    for (line, shard) in [
        ("BF.RESERVE k 0.01 100 SHARD 7 8", [7, 8]),
        ("BF.RESERVE k 0.01 100 shard 1023 1024 EXPANSION 4 SEED 3", [1023, 1024]),
        ("BF.RESERVE k 0.01 100 4 COUNTING NONSCALING SHARD 0 1", [0, 1]),
        ("BF.RESERVE k 0.01 100 SHARD 1 2 SHARD 2 3", [2, 3]),
        ("BF.INSERT k SHARD 7 8 CAPACITY 10 ITEMS a", [7, 8]),
        ("BF.BULKADD k COUNTING SHARD 7 8 LINES a", [7, 8]),
        ("BF.BULKADD k SHARD 7 8 WIDTH 1 a", [7, 8]),
    ] {
        client.run(line);
        assert_eq!(client.run("BF.INFO k SHARD"), array([ints(shard)]), "{line}");
        let resp3 = server.resp3().run("BF.INFO k SHARD");
        assert_eq!(resp3.get("Shard"), Some(&ints(shard)), "{line}");
        client.run("DEL k");
    }
    for line in ["BF.RESERVE plain 0.01 100", "BF.ADD added a", "BF.RESERVE c 0.01 9 COUNTING"] {
        client.run(line);
        let key = line.split(' ').nth(1).expect("a key");
        assert_eq!(client.run(&format!("BF.INFO {key} SHARD")), array([null()]), "{line}");
    }
}

#[test]
fn a_shard_that_cannot_be_is_refused() {
    let server = Server::start();
    let client = &mut server.client();
    for shard in [
        "8 8",
        "0 0",
        "0 1025",
        "1 1",
        "-1 8",
        "1 -8",
        "x 8",
        "1 x",
        "1.0 8",
        "65536 65537",
        "0 18446744073709551616",
        "8",
        "",
    ] {
        let words = shard.split_whitespace().count();
        assert_eq!(
            client.run(&format!("BF.RESERVE k 0.01 100 SHARD {shard}")),
            err(BAD),
            "{shard}"
        );
        if words == 2 {
            for line in ["BF.INSERT k SHARD # ITEMS a", "BF.BULKADD k SHARD # LINES a"] {
                assert_eq!(client.run(&line.replace('#', shard)), err(BAD), "{shard}");
            }
        }
        assert_eq!(client.run("EXISTS k"), int(0));
    }
    // A filter of valkey-bloom's kind is no shard.
    let seed = "0123456789abcdef0123456789abcdef";
    let line = format!("BF.INSERT k SHARD 0 2 TIGHTENING 0.5 SEED {seed} ITEMS a");
    assert_eq!(client.run(&line), err("ERR bad seed"));
}

/// A client that names a shard means that one: an existing filter of another shard, or of none, is
/// refused. Without the word, the filter is what it is.
#[test]
fn a_command_for_another_shard_is_refused() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE shard 0.01 100 SHARD 7 8");
    client.run("BF.RESERVE plain 0.01 100");
    let not = |shard: &str| err(&format!("ERR filter is not shard {shard}"));
    let packed = |bits: &[u8]| array([int(1), bulk(bits)]);
    for (line, reply) in [
        ("BF.INSERT shard SHARD 0 8 ITEMS a", not("0 of 8")),
        ("BF.INSERT shard SHARD 7 16 NOCREATE ITEMS a", not("7 of 16")),
        ("BF.BULKADD shard SHARD 0 8 WIDTH 1 a", not("0 of 8")),
        ("BF.BULKADD shard SHARD 0 1 LINES a", not("0 of 1")),
        ("BF.INSERT plain SHARD 7 8 ITEMS a", not("7 of 8")),
        ("BF.BULKADD plain SHARD 0 1 WIDTH 1 a", not("0 of 1")),
        ("BF.CARD shard", int(0)),
        ("BF.CARD plain", int(0)),
        ("BF.INSERT shard SHARD 7 8 ITEMS a", array([int(1)])),
        ("BF.BULKADD shard SHARD 7 8 WIDTH 1 a", packed(b"\0")),
        ("BF.INSERT shard ITEMS a", array([int(0)])),
        ("BF.BULKADD shard NOCREATE WIDTH 1 a", packed(b"\0")),
        ("BF.RESERVE shard 0.01 100 SHARD 0 8", err("ERR item exists")),
    ] {
        assert_eq!(client.run(line), reply, "{line}");
    }
}

/// INFO counts each command that met another shard once, and the log names key and shards.
#[test]
fn misrouted_commands_are_counted_and_logged() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 100 COUNTING SHARD 7 8");
    client.run("BF.RESERVE plain 0.01 100");
    // The log has a line of the first ten alone.
    let lines = [
        "BF.INSERT k SHARD 0 8 ITEMS a",
        "BF.BULKADD plain SHARD 0 8 WIDTH 1 a",
        "BF.ADD k 123456789",
        "BF.MADD k a 123456789 {}",
        "BF.INSERT k ITEMS 123456789",
        "BF.BULKADD k WIDTH 1 aba",
        "BF.EXISTS k 123456789",
        "BF.MEXISTS k a 123456789 {}",
        "BF.BULKEXISTS k WIDTH 1 aba",
        "BF.DEL k 123456789",
        "BF.COUNT k 123456789",
    ];
    for (before, line) in lines.iter().enumerate() {
        assert_eq!(client.server_info("bf", "bf_misrouted"), before.to_string(), "{line}");
        client.run(line);
    }
    for fine in ["BF.MADD k a a", "BF.MEXISTS k a a", "BF.INSERT k SHARD 7 8 ITEMS a"] {
        client.run(fine);
    }
    assert_eq!(client.server_info("bf", "bf_misrouted"), lines.len().to_string());
    assert_eq!(client.server_info("bf", "bf_refused"), "0");
    let log = server.log();
    for text in [
        "key 'k': BF.ADD refused: ERR item belongs to shard 6 of 8 (the filter is shard 7 of 8)",
        "key 'k': BF.INSERT refused: ERR filter is not shard 0 of 8 (the filter is shard 7 of 8)",
        "key 'plain': BF.BULKADD refused: ERR filter is not shard 0 of 8 (the filter is no shard)",
    ] {
        assert!(log.lines().any(|line| line.ends_with(text)), "{text}: {log}");
    }
}

/// What a primary has, its replica takes, though the filter there is another shard: a client of the
/// replica, which takes writes, replaced it.
#[test]
fn a_replica_takes_items_of_other_shards_from_its_primary() {
    let master = Server::start();
    let client = &mut master.client();
    let kinds = [("bits", ""), ("counters", "COUNTING")];
    for (key, kind) in kinds {
        client.run(&format!("BF.RESERVE {key} 0.0001 1000 SHARD 7 8 {kind}"));
    }
    let own = own_items(client, "7 8", 300);
    let replica = master.replica();
    let read = &mut replica.client();
    read.run("CONFIG SET replica-read-only no");
    for (key, kind) in kinds {
        read.run(&format!("DEL {key}"));
        assert_eq!(read.run(&format!("BF.RESERVE {key} 0.0001 1000 SHARD 3 8 {kind}")), ok());
        client.cmd(&["BF.ADD", key, &own[0]]);
        client.call("BF.MADD", key, &own[1..100]);
        let insert =
            ["NOCREATE", "ITEMS"].iter().map(ToString::to_string).chain(own[100..200].to_vec());
        client.call("BF.INSERT", key, &insert.collect::<Vec<_>>());
        client.cmd(&["BF.BULKADD", key, "LINES", &own[200..].join("\n")]);
    }
    client.call("BF.DEL", "counters", &own[..50]);
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    let of_both =
        |client: &mut Client| ["bits", "counters"].map(|key| client.run(&format!("BF.CARD {key}")));
    assert_eq!(of_both(read), [int(300), int(250)]);
    assert_eq!(of_both(read), of_both(client));
    assert_eq!(read.server_info("bf", "bf_misrouted"), "0");
    assert_eq!(read.server_info("bf", "bf_unapplied"), "0");
    let log = replica.log();
    let text = "key 'bits': BF.ADD of a primary or an AOF took an item of shard 7 of 8, though the \
                filter is shard 3 of 8";
    assert!(log.lines().any(|line| line.ends_with(text)), "{log}");
    assert!(!log.contains("CRITICAL"), "{log}");
    // Its own clients are refused.
    assert_eq!(read.call("BF.ADD", "bits", &own[..1]), err("ERR item belongs to shard 7 of 8"));
}

#[test]
fn an_aof_with_items_of_other_shards_is_applied() {
    let lines = [
        "BF.RESERVE k 0.01 100 COUNTING SHARD 7 8 SEED 1",
        "BF.ADD k 123456789",
        "BF.MADD k a {} b",
        // The shard of a filter that exists.
        "BF.INSERT k SHARD 0 3 ITEMS c d",
        "BF.BULKADD k SHARD 0 3 WIDTH 1 ef",
        "BF.DEL k 123456789",
    ];
    let commands = lines.map(|line| line.split(' ').collect::<Vec<_>>());
    let server = Server::on_file("appendonly.aof", &aof(commands), &["appendonly yes"]);
    let client = &mut server.client();
    assert_eq!(client.run("BF.CARD k"), int(7));
    assert_eq!(client.run("BF.INFO k SHARD"), array([ints([7, 8])]));
    for counter in ["bf_misrouted", "bf_unapplied"] {
        assert_eq!(client.server_info("bf", counter), "0", "{counter}");
    }
    assert!(!server.log().contains("CRITICAL"), "{}", server.log());
}

/// The numbers of a shard survive everything that a filter survives, and so do its refusals.
#[test]
fn a_shard_stays_a_shard() {
    let mut server = Server::with().config("appendonly yes").start();
    let client = &mut server.client();
    let own = own_items(client, "7 8", 300);
    for (key, options) in
        [("bits", ""), ("counters", "COUNTING"), ("full", "NONSCALING"), ("layers", "EXPANSION 1")]
    {
        assert_eq!(client.run(&format!("BF.RESERVE {key} 0.01 40 SHARD 7 8 {options}")), ok());
        client.call("BF.MADD", key, &own);
        assert_eq!(client.cmd(&["COPY", key, &format!("{key}_copy")]), int(1));
        let Reply::Bulk(payload) = client.cmd(&["DUMP", key]) else { panic!("no payload") };
        let restored = format!("{key}_restored");
        assert_eq!(client.call("RESTORE", &restored, &[b"0", &payload[..]]), ok());
        let loaded = format!("{key}_loaded");
        for piece in dump(client, key) {
            assert_eq!(load(client, &loaded, &piece), ok());
        }
        let merged = format!("{key}_merged");
        assert_eq!(client.cmd(&["BF.MERGE", &merged, key]), ok());
        for copy in [format!("{key}_copy"), restored, loaded, merged] {
            assert_eq!(digest(client, &copy), digest(client, key), "{copy}");
        }
    }
    // Created by their first items: the creation carries the shard.
    client.call("BF.INSERT", "inserted", &["SHARD", "7", "8", "ITEMS", "a"]);
    client.run("BF.BULKADD bulk SHARD 7 8 WIDTH 1 a");
    client.run("MULTI");
    client.run("BF.RESERVE transaction 0.01 100 SHARD 7 8");
    client.run("BF.MADD transaction a a");
    client.run("EXEC");
    let keys: Vec<String> = client.run("KEYS *").elements().iter().map(Reply::text).collect();
    assert_eq!(keys.len(), 4 * 5 + 3);
    let check = |client: &mut Client, way: &str| {
        for key in &keys {
            assert_eq!(
                client.cmd(&["BF.INFO", key, "SHARD"]),
                array([ints([7, 8])]),
                "{key} {way}"
            );
            assert_eq!(client.call("BF.EXISTS", key, &["123456789"]), err(OTHER), "{key} {way}");
        }
    };
    check(client, "at first");
    let before = client.run("DEBUG DIGEST");
    let replica = server.replica();
    let read = &mut replica.client();
    check(read, "on a replica after a full synchronization");
    assert_eq!(read.run("DEBUG DIGEST"), before);
    // The stream.
    client.call("BF.MADD", "bits", &own[..50]);
    client.run("BF.DEL counters 123456789");
    client.call("BF.DEL", "counters", &own[..20]);
    client.run("BF.RESERVE late 0.01 100 SHARD 7 8 COUNTING");
    client.run("BF.INSERT later SHARD 7 8 ITEMS a");
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    for key in ["late", "later"] {
        assert_eq!(read.cmd(&["BF.INFO", key, "SHARD"]), array([ints([7, 8])]), "{key}");
    }
    let before = client.run("DEBUG DIGEST");
    assert_eq!(read.run("DEBUG DIGEST"), before);
    assert!(!replica.log().contains("CRITICAL"), "{}", replica.log());
    // The AOF as commands, then as a file that was rewritten without an RDB in it, then the RDB.
    server.kill_and_restart();
    assert_eq!(server.client().run("DEBUG DIGEST"), before);
    check(&mut server.client(), "after the AOF");
    let client = &mut server.client();
    client.run("CONFIG SET aof-use-rdb-preamble no");
    client.run("BGREWRITEAOF");
    wait_until("the AOF is rewritten", || {
        let info = client.run("INFO persistence").text();
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
    });
    server.kill_and_restart();
    assert_eq!(server.client().run("DEBUG DIGEST"), before);
    server.client().run("DEBUG RELOAD");
    assert_eq!(server.client().run("DEBUG DIGEST"), before);
    check(&mut server.client(), "after the RDB");
}

#[test]
fn only_the_same_shards_are_merged() {
    let server = Server::start();
    let client = &mut server.client();
    for (key, shard) in
        [("five", "SHARD 5 8"), ("more", "SHARD 5 8"), ("six", "SHARD 6 8"), ("plain", "")]
    {
        client.run(&format!("BF.RESERVE {key} 0.01 1000 SEED 1 {shard}"));
    }
    for [to, from] in [["five", "six"], ["five", "plain"], ["plain", "five"], ["six", "five"]] {
        let refused = err("ERR filters differ in shard");
        assert_eq!(client.cmd(&["BF.MERGE", to, from]), refused, "{to} {from}");
    }
    let own = own_items(client, "5 8", 100);
    madd(client, "five", &own[..60]);
    madd(client, "more", &own[40..]);
    assert_eq!(client.run("BF.MERGE five more"), ok());
    assert_eq!(client.run("BF.MERGE new five more"), ok());
    for key in ["five", "new"] {
        assert!(mexists(client, key, &own).iter().all(|&there| there), "{key}");
        assert_eq!(client.cmd(&["BF.INFO", key, "SHARD"]), array([ints([5, 8])]));
    }
}

/// What a command says in COMMAND DOCS: two integers after the word.
#[test]
fn command_docs_show_the_option() {
    let server = Server::start();
    let client = &mut server.resp3();
    for command in ["bf.reserve", "bf.insert", "bf.bulkadd"] {
        let reply = client.cmd(&["COMMAND", "DOCS", command]);
        let docs = reply.get(command).and_then(|docs| docs.get("arguments")).expect("arguments");
        let named =
            |argument: &&Reply| argument.get("name").map(Reply::text) == Some("shard".into());
        let shard = docs.elements().iter().find(named).expect("an argument named shard");
        assert_eq!(shard.get("token").map(Reply::text).as_deref(), Some("SHARD"), "{command}");
        let values = shard.get("arguments").expect("two numbers").elements();
        let kinds: Vec<_> = values
            .iter()
            .map(|value| ["name", "type"].map(|field| value.get(field).map(Reply::text)))
            .collect();
        let expected =
            ["index", "shards"].map(|name| [name, "integer"].map(|text| Some(text.into())));
        assert_eq!(kinds, expected, "{command}");
    }
}

/// Offsets in a header with one record, as `src/codec/native/header.rs` draws it.
const RECORDS: usize = 41;
const KIND: usize = RECORDS + 2;
const INDEX: usize = KIND + 6;
const COUNT: usize = INDEX + 2;

/// The payload with other bytes in its header, and correct checksums.
fn forged(payload: &Payload, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut forged = payload.clone();
    let header = &payload.strings[0];
    let mut body = header[..header.len() - 8].to_vec();
    body[at..at + bytes.len()].copy_from_slice(bytes);
    forged.strings[0] = sealed_with_xxh3(body);
    forged.bytes()
}

/// Each byte of the header replaced by 51 others, under correct checksums: RESTORE refuses it,
/// or makes a filter that answers.
#[test]
fn forged_headers_of_shards_are_refused_or_harmless() {
    let server = Server::with().config("rdbcompression no").start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 10 SEED 5 SHARD 7 8 NONSCALING");
    client.run("BF.ADD k a");
    let payload = Payload::of(client, "k");
    let refused = |reply: Reply| reply.error().starts_with("ERR Bad data format");
    for (what, at, bytes) in [
        ("no shards", COUNT, &[0, 0][..]),
        ("i = n", INDEX, &[8, 0]),
        ("i > n", INDEX, &[9, 0]),
        ("1,025 shards", COUNT, &[1, 4]),
        ("an unknown record", KIND, &[2, 0]),
        ("no record", RECORDS, &[0, 0]),
        ("two records", RECORDS, &[2, 0]),
        ("version 2", 6, &[2, 0]),
        ("another product", RECORDS - 1, &[3]),
    ] {
        let bytes = forged(&payload, at, bytes);
        assert!(refused(client.call("RESTORE", "forged", &[b"0", &bytes[..]])), "{what}");
    }
    let (mut taken, header) = (0, payload.strings[0].clone());
    for (at, &before) in header[..header.len() - 8].iter().enumerate() {
        for byte in (0..=255).filter(|&byte| byte != before).step_by(5) {
            let bytes = forged(&payload, at, &[byte]);
            let reply = client.call("RESTORE", "forged", &[b"0", &bytes[..], b"REPLACE"]);
            if reply.is_error() {
                assert!(refused(reply), "byte {at} = {byte}");
                continue;
            }
            taken += 1;
            client.run("BF.MADD forged a b 123456789");
            client.run("BF.MEXISTS forged a b 123456789");
            // A larger filter has not all its bits: it is one that BF.LOADCHUNK is filling.
            let loading = err("ERR filter is being loaded by BF.LOADCHUNK");
            let shown = client.run("BF.INFO forged SHARD");
            assert!(!shown.is_error() || shown == loading, "byte {at} = {byte}: {shown:?}");
            assert!(matches!(client.run("DUMP forged"), Reply::Bulk(_)), "byte {at} = {byte}");
        }
    }
    assert!(taken > 100, "{taken}");
    assert_unharmed(&server);
}

/// A filter that is no shard has the header that it had before there were shards.
#[test]
fn other_filters_keep_their_header() {
    let server = Server::with().config("rdbcompression no").start();
    let client = &mut server.client();
    for reserve in ["BF.RESERVE k 0.01 1000", "BF.RESERVE k 0.01 10 NONSCALING"] {
        client.run("DEL k");
        client.run(reserve);
        client.run("BF.ADD k a");
        let payload = Payload::of(client, "k");
        assert_eq!(Header::parse(&payload.strings[0]).version, 1, "{reserve}");
    }
}
