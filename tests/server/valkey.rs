//! Filters of valkey-bloom in a server: from an AOF, an RDB file and a replication stream, and back
//! to valkey-bloom.
//!
//! `tests/codec/valkey/model.rs` is a model of valkey-bloom and gives the expected answers.
//! `valkey_files.rs` tests its files, and `valkey_live.rs` tests with valkey-bloom itself.

use crate::{
    harness::{
        Client, Reply, Server, bulk, config_name, err, info, int, madd, mexists, numbered, ok,
        sealed, simple, wait_until,
    },
    valkey_bloom::Model,
};

pub(crate) const SEED: [u8; 32] = *b"0123456789abcdefFEDCBA9876543210";
/// The seed of filters with `bloom-use-random-seed no`, from the sources of valkey-bloom.
pub(crate) const FIXED_SEED: [u8; 32] = [
    89, 15, 245, 34, 234, 120, 17, 218, 167, 20, 216, 9, 59, 62, 123, 217, 29, 137, 138, 115, 62,
    152, 136, 135, 48, 127, 151, 205, 40, 7, 51, 131,
];

/// DEBUG DIGEST, the digest of the whole data set.
#[track_caller]
fn whole(client: &mut Client) -> String {
    client.run("DEBUG DIGEST").text()
}

fn grown() -> Model {
    let mut model = Model::new(50, 0.05, 0.5, 3, &SEED);
    numbered("item", 400).iter().for_each(|item| {
        model.add(item.as_bytes());
    });
    model
}

/// Asserts that the key answers as the model does, before and after more additions.
#[track_caller]
fn same(client: &mut Client, key: &str, model: &mut Model, more: &str) {
    for prefix in ["item", "absent", more] {
        let items = numbered(prefix, 1_000);
        let expected: Vec<_> = items.iter().map(|item| model.has(item.as_bytes())).collect();
        assert_eq!(mexists(client, key, &items), expected, "{prefix}");
    }
    let items = numbered(more, 200);
    let expected: Vec<_> =
        items.iter().map(|item| model.add(item.as_bytes()).expect("room")).collect();
    assert_eq!(madd(client, key, &items), expected);
    let items: i64 = model.layers.iter().map(|layer| layer.items).sum();
    assert_eq!(info(client, key).items, items);
    assert_eq!(info(client, key).filters, model.layers.len() as i64);
}

/// Rewrites the AOF without an RDB preamble; returns the bytes of its base file.
#[track_caller]
pub(crate) fn rewritten(server: &Server, client: &mut Client) -> Vec<u8> {
    client.run("CONFIG SET aof-use-rdb-preamble no");
    client.run("CONFIG SET appendonly yes");
    wait_until("the rewrite ends", || !client.has_child());
    let folder = server.dir().join("appendonlydir");
    let files = std::fs::read_dir(&folder).expect("a folder of the AOF");
    let base = files
        .map(|file| file.expect("a file").path())
        .find(|path| path.to_string_lossy().contains(".base."));
    std::fs::read(base.expect("a base file")).expect("a base file")
}

#[test]
fn bf_load_makes_the_filter_of_the_blob() {
    let server = Server::start();
    let client = &mut server.client();
    let mut model = grown();
    assert_eq!(client.cmd(&[b"BF.LOAD", b"k" as &[u8], &model.blob()]), ok());
    assert_eq!(client.run("TYPE k"), simple("bloomfltr"));
    assert_eq!(client.run("OBJECT ENCODING k"), bulk("raw"));
    same(client, "k", &mut model, "later");
    let taken = client.cmd(&[b"BF.LOAD", b"k" as &[u8], &model.blob()]);
    assert_eq!(taken, err("BUSYKEY Target key name already exists."));
    client.run("SET s x");
    assert!(
        client.cmd(&[b"BF.LOAD", b"s" as &[u8], &model.blob()]).error().starts_with("WRONGTYPE")
    );
    for (blob, text) in [
        (vec![], "ERR bloom object decoding failed"),
        (b"nonsense".to_vec(), "ERR bloom object decoding failed. Unsupported version"),
        (model.blob()[..100].to_vec(), "ERR bloom object decoding failed"),
        (vec![1; 1_000], "ERR bloom object decoding failed"),
    ] {
        assert_eq!(client.cmd(&[b"BF.LOAD", b"new" as &[u8], &blob]), err(text));
    }
    assert_eq!(client.run("EXISTS new"), int(0));
}

#[test]
fn every_command_works_on_a_filter_of_valkey_bloom() {
    let server = Server::start();
    let client = &mut server.client();
    client.cmd(&[b"BF.LOAD", b"k" as &[u8], &grown().blob()]);
    let before = (whole(client), client.run("BF.INFO k"), client.run("BF.DEBUG k"));
    assert_eq!(client.run("COPY k copy"), int(1));
    assert_eq!(client.run("TYPE copy"), simple("bloomfltr"));
    assert_eq!(client.run("DEBUG DIGEST-VALUE copy"), client.run("DEBUG DIGEST-VALUE k"));
    assert_eq!(client.run("BF.INFO copy"), before.1);
    assert!(client.run("MEMORY USAGE k").int() >= info(client, "k").size);
    assert_eq!(client.run("BF.RESERVE k 0.01 100"), err("ERR item exists"));
    assert_eq!(client.run("BF.CARD k").int(), info(client, "k").items);
    assert_eq!(client.run("DEL copy"), int(1));
    // BF.SCANDUMP and BF.LOADCHUNK keep everything except the name of the type.
    let (mut iterator, mut pieces) = (0, Vec::new());
    loop {
        let reply = client.cmd(&["BF.SCANDUMP", "k", &iterator.to_string()]);
        iterator = reply.elements()[0].int();
        if iterator == 0 {
            break;
        }
        pieces.push((iterator, reply.elements()[1].clone().payload()));
    }
    for (iterator, data) in pieces {
        let iterator = iterator.to_string();
        assert_eq!(
            client.cmd(&[b"BF.LOADCHUNK", b"chunks" as &[u8], iterator.as_bytes(), &data]),
            ok()
        );
    }
    assert_eq!(client.run("BF.DEBUG chunks"), before.2);
    assert_eq!(client.run("DEBUG DIGEST-VALUE chunks"), client.run("DEBUG DIGEST-VALUE k"));
    same(client, "chunks", &mut grown(), "later");
    client.run("DEL chunks");
    assert_eq!(whole(client), before.0);
    assert_eq!(client.run("UNLINK k"), int(1));
    assert_eq!(client.server_info("bf", "bf_filters"), "0");
}

#[test]
fn a_filter_of_valkey_bloom_survives_rdb_dump_and_aof() {
    let mut server = Server::with().config("rdbcompression no").start();
    let client = &mut server.client();
    let mut model = grown();
    client.cmd(&[b"BF.LOAD", b"k" as &[u8], &model.blob()]);
    let before = whole(client);
    assert_eq!(client.run("DEBUG RELOAD"), ok());
    assert_eq!(whole(client), before, "RDB");
    let dump = client.run("DUMP k").payload();
    assert_eq!(client.cmd(&[b"RESTORE", b"copy" as &[u8], b"0", &dump]), ok());
    assert_eq!(client.run("TYPE copy"), simple("bloomfltr"));
    assert_eq!(client.run("DUMP copy").payload(), dump);
    client.run("DEL copy");
    let file = rewritten(&server, client);
    let blob = model.blob();
    assert!(file.windows(7).any(|window| window == b"BF.LOAD"), "the rewritten AOF has a BF.LOAD");
    assert!(file.windows(blob.len()).any(|window| window == blob), "with the loaded blob");
    assert_eq!(client.run("DEBUG LOADAOF"), ok());
    assert_eq!(whole(client), before, "AOF");
    drop(std::mem::replace(client, server.client()));
    server.configure("appendonly yes");
    server.kill_and_restart();
    let client = &mut server.client();
    assert_eq!(whole(client), before, "after kill -9");
    same(client, "k", &mut model, "later");
}

/// The command that a primary with valkey-bloom replicates when a client makes a filter.
pub(crate) fn made(key: &str, model: &Model, items: &[String]) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = vec![
        b"BF.INSERT".to_vec(),
        key.into(),
        b"CAPACITY".to_vec(),
        model.layers[0].capacity.to_string().into(),
        b"ERROR".to_vec(),
        model.rate.to_string().into(),
        b"TIGHTENING".to_vec(),
        model.tightening.to_string().into(),
        b"SEED".to_vec(),
        model.layers[0].bloom.seed().to_vec(),
    ];
    match model.expansion {
        0 => words.push(b"NONSCALING".to_vec()),
        factor => words.extend([b"EXPANSION".to_vec(), factor.to_string().into()]),
    }
    if !items.is_empty() {
        words.push(b"ITEMS".to_vec());
        words.extend(items.iter().map(|item| item.clone().into_bytes()));
    }
    words
}

#[test]
fn a_replicated_creation_of_valkey_bloom_makes_its_filter_here_and_on_a_replica() {
    let server = Server::start();
    let replica = server.replica();
    let (client, read) = (&mut server.client(), &mut replica.client());
    for (name, value) in [("error-rate", "0.2"), ("initial-size", "7")] {
        assert_eq!(read.cmd(&["CONFIG", "SET", &config_name(name), value]), ok());
    }
    let mut empty = Model::new(10, 1e-7, 0.85, 40_000, &SEED);
    let mut filled = Model::new(20, 0.05, 0.5, 2, &SEED);
    let mut fixed = Model::new(500, 0.02, 0.5, 0, &FIXED_SEED);
    let items = numbered("item", 300);
    assert_eq!(client.cmd(&made("empty", &empty, &[])), Reply::Array(vec![]));
    let answers = client.cmd(&made("filled", &filled, &items)).answers();
    let expected: Vec<_> =
        items.iter().map(|item| filled.add(item.as_bytes()).expect("room")).collect();
    assert_eq!(answers, expected);
    client.cmd(&made("fixed", &fixed, &[]));
    // For a filter that exists, the command only adds items.
    assert_eq!(client.cmd(&made("empty", &empty, &[])), Reply::Array(vec![]));
    same(client, "empty", &mut empty, "later");
    same(client, "filled", &mut filled, "later");
    same(client, "fixed", &mut fixed, "later");
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    assert_eq!(whole(read), whole(client));
    for key in ["empty", "filled", "fixed"] {
        assert_eq!(read.cmd(&["TYPE", key]), simple("bloomfltr"));
    }
    // After its promotion the replica continues in the same way.
    assert_eq!(read.run("REPLICAOF NO ONE"), ok());
    same(read, "filled", &mut filled, "even-later");
}

#[test]
fn a_client_that_sends_tightening_gets_a_native_filter() {
    let server = Server::start();
    let client = &mut server.client();
    for (line, reply) in [
        ("BF.INSERT a TIGHTENING 0.5 VALIDATESCALETO 1000 ITEMS x", Reply::Array(vec![int(1)])),
        ("BF.INSERT a TIGHTENING 0 ITEMS x", err("ERR (0 < tightening ratio range < 1)")),
        ("BF.INSERT a TIGHTENING nan ITEMS x", err("ERR (0 < tightening ratio range < 1)")),
        ("BF.INSERT a VALIDATESCALETO 0 ITEMS x", err("ERR Bad capacity")),
        (
            "BF.INSERT a TIGHTENING 0.5 SEED 0123456789abcdef0123456789abcde ITEMS x",
            err("ERR bad seed"),
        ),
        ("BF.INSERT a EXPANSION 40000 ITEMS x", err("ERR Bad expansion")),
    ] {
        assert_eq!(client.run(line), reply, "{line}");
    }
    let seed = "0123456789abcdef0123456789abcdef";
    for (line, reply) in [
        ("CAPACITY 4611686018427387904 ERROR 0.5", "ERR Insufficient memory to create filter"),
        ("CAPACITY 4611686018427387904 ERROR 1e-300", "ERR Insufficient memory to create filter"),
        ("EXPANSION 4294967296", "ERR Bad expansion"),
        ("NOCREATE", "ERR not found"),
    ] {
        assert_eq!(client.run(&format!("BF.INSERT b {line} SEED {seed}")), err(reply), "{line}");
    }
    assert_eq!(client.run("EXISTS b"), int(0));
    assert_eq!(client.run("TYPE a"), simple("MBbloom--"));
    for line in ["BF.INSERT a TIGHTENING 0.5", "BF.INSERT a VALIDATESCALETO 5"] {
        assert!(client.run(line).error().contains("wrong number of arguments"), "{line}");
    }
}

/// A DUMP with any byte changed or cut at any length is refused, or it is a filter that works.
#[test]
fn a_damaged_dump_does_no_harm() {
    let server = Server::with().config("rdbcompression no").start();
    let client = &mut server.client();
    let mut model = Model::new(20, 0.05, 0.5, 2, &SEED);
    numbered("item", 50).iter().for_each(|item| {
        model.add(item.as_bytes());
    });
    client.cmd(&[b"BF.LOAD", b"k" as &[u8], &model.blob()]);
    let dump = client.run("DUMP k").payload();
    let body = &dump[..dump.len() - 8];
    let mut refused = 0;
    for at in 10..body.len() {
        let flipped = [1, 0x80].map(|change| {
            let mut bytes = body.to_vec();
            bytes[at] ^= change;
            bytes
        });
        // The cut payload keeps the RDB version at its end. If the cut makes the decoder read that
        // version as a count of items, the payload may be valid.
        let short = [&body[..at.min(body.len() - 2)], &body[body.len() - 2..]].concat();
        for bytes in flipped.iter().chain([&short]) {
            let reply = client.cmd(&[b"RESTORE", b"new" as &[u8], b"0", &sealed(bytes)]);
            refused += usize::from(reply.is_error());
            if !reply.is_error() {
                assert!(!client.run("BF.INFO new").is_error(), "byte {at}");
                assert!(!client.run("BF.MADD new a b c").is_error(), "byte {at}");
                client.run("DEL new");
            }
        }
    }
    assert!(refused > body.len(), "{refused} were refused");
    client.assert_in_step();
    assert_eq!(client.run("EXISTS new"), int(0));
}
