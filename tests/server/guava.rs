//! BF.IMPORT of filters that Guava wrote. Guava made the fixtures; each has the recorded answers
//! beside it (`tests/codec/guava.rs`).

use std::{fs, path::Path};

use crate::harness::{
    Client, Server, config_name, err, info, int, mexists, numbered, ok, simple, wait_until,
};

fn file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(format!("guava-31-{name}"));
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The digest of the data set.
#[track_caller]
fn whole(client: &mut Client) -> String {
    client.run("DEBUG DIGEST").text()
}

/// Guava's answers for absent-0 to absent-3999.
fn expected(name: &str) -> Vec<bool> {
    let text = String::from_utf8(file(&format!("{name}.answers"))).expect("text");
    let digits = text.lines().find_map(|line| line.strip_prefix("present ")).expect("answers");
    digits.chars().map(|digit| digit == '1').collect()
}

#[track_caller]
fn import(client: &mut Client, key: &str, name: &str) {
    let bytes = file(&format!("{name}.bin"));
    assert_eq!(client.cmd(&[b"BF.IMPORT", key.as_bytes(), b"GUAVA", &bytes]), ok());
}

#[track_caller]
fn same(client: &mut Client, key: &str, name: &str) {
    let absent = numbered("absent", 4_000);
    assert_eq!(mexists(client, key, &absent), expected(name), "{name}");
    let added = numbered("item", 50);
    assert!(mexists(client, key, &added).iter().all(|&there| there), "{name}");
}

#[test]
fn a_filter_of_guava_gives_the_same_answers_and_is_stored_and_replicated() {
    let mut server = Server::start();
    let replica = server.replica();
    let (client, read) = (&mut server.client(), &mut replica.client());
    for name in ["mitz32", "mitz64", "mitz64-low", "mitz32-full"] {
        import(client, name, name);
        same(client, name, name);
        assert_eq!(info(client, name).expansion, None);
        assert_eq!(client.cmd(&["TYPE", name]), simple("MBbloom--"));
    }
    import(client, "given", "mitz32");
    assert_eq!(info(client, "given").capacity, 1_020);
    // An imported filter accepts items up to its capacity.
    assert_eq!(client.run("BF.ADD given new"), int(1));
    assert_eq!(client.run("BF.ADD mitz32-full new"), err("ERR non scaling filter is full"));
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    let before = whole(client);
    assert_eq!(whole(read), before);
    assert_eq!(client.run("DEBUG RELOAD"), ok());
    assert_eq!(whole(client), before, "RDB");
    client.run("CONFIG SET aof-use-rdb-preamble no");
    client.run("CONFIG SET appendonly yes");
    wait_until("the rewrite ends", || !client.has_child());
    import(client, "later", "mitz64");
    let before = whole(client);
    assert_eq!(client.run("DEBUG LOADAOF"), ok());
    assert_eq!(whole(client), before, "AOF, and a command after its rewrite");
    let dump = client.run("DUMP given").payload();
    assert_eq!(client.cmd(&[b"RESTORE", b"restored" as &[u8], b"0", &dump]), ok());
    assert_eq!(client.run("DEBUG DIGEST-VALUE restored"), client.run("DEBUG DIGEST-VALUE given"));
    server.kill();
}

#[test]
fn a_refused_import_changes_nothing() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.ADD filter a");
    client.run("LPUSH list a");
    let before = whole(client);
    let wrong_type = err("WRONGTYPE Operation against a key holding the wrong kind of value");
    let unknown = err("ERR Unknown argument received");
    let not_guava = err("ERR not a Bloom filter written by Guava");
    for (line, reply) in [
        ("list GUAVA x", &wrong_type),
        ("filter GUAVA x", &err("BUSYKEY Target key name already exists.")),
        ("k BYTES bits", &unknown),
        ("k GUAVA x", &not_guava),
        ("k GUAVA nonsense", &not_guava),
    ] {
        assert_eq!(&client.run(&format!("BF.IMPORT {line}")), reply, "{line}");
    }
    assert_eq!(whole(client), before);
}

#[test]
fn a_filter_above_the_limit_is_refused() {
    let server = Server::start();
    let client = &mut server.client();
    let name = config_name("max-filter-bytes");
    assert_eq!(client.cmd(&["CONFIG", "SET", &name, "500"]), ok());
    let bytes = file("mitz32.bin");
    let reply = client.cmd(&[b"BF.IMPORT", b"k" as &[u8], b"GUAVA", &bytes]);
    assert_eq!(reply, err("ERR Insufficient memory to create filter"));
    assert_eq!(client.run("EXISTS k"), int(0));
}
