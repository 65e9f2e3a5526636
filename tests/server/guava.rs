//! BF.IMPORT of filters that Guava wrote, and of bitmaps filled by Guava's formulas. Guava made the
//! fixtures; each has the recorded answers beside it (`tests/codec/guava.rs`).

use std::{fs, path::Path};

use crate::harness::{
    Client, Reply, Server, config_name, err, info, int, mexists, numbered, ok, simple, wait_until,
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

/// Fills a bitmap with SETBIT, as clients do, with the bits of a fixture.
fn bitmap(client: &mut Client, key: &str, name: &str) {
    let bytes = file(&format!("{name}.bin"));
    let mut commands = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        for bit in (0..8).filter(|bit| byte & 0x80 >> bit != 0) {
            commands.push(vec![
                "SETBIT".to_owned(),
                key.to_owned(),
                (at * 8 + bit).to_string(),
                "1".to_owned(),
            ]);
        }
    }
    client.pipeline(&commands);
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
    let given = file("mitz32.bin");
    let words: [&[u8]; 8] =
        [b"BF.IMPORT", b"given", b"guava", &given, b"capacity", b"1000", b"ERROR", b"0.03"];
    assert_eq!(client.cmd(&words), ok());
    assert_eq!(info(client, "given").capacity, 1_000);
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
fn a_bitmap_filled_by_guavas_formulas_is_imported() {
    let server = Server::start();
    let replica = server.replica();
    let (client, read) = (&mut server.client(), &mut replica.client());
    bitmap(client, "bits", "bitmap32");
    bitmap(client, "small", "bitmap32-small");
    assert_eq!(client.run("BF.IMPORT k BITMAP bits CAPACITY 1000 ERROR 0.03"), ok());
    assert_eq!(client.run("BF.IMPORT l bitmap small guava32 ERROR 0.001 CAPACITY 50"), ok());
    same(client, "k", "bitmap32");
    same(client, "l", "bitmap32-small");
    assert_eq!(client.run("TYPE bits"), simple("string"), "the bitmap stays");
    assert_eq!(
        client.run("BITCOUNT bits").int() as usize,
        file("bitmap32.bin").iter().map(|b| b.count_ones() as usize).sum()
    );
    // A later change of the bitmap does not change the filter, on the primary or on the replica.
    client.run("SETBIT bits 1 1");
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    assert_eq!(whole(read), whole(client));
    // An expiry of the bitmap does not affect the import.
    client.run("PEXPIRE small 60000");
    assert_eq!(client.run("BF.IMPORT m BITMAP small CAPACITY 50 ERROR 0.001"), ok());
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    assert_eq!(read.run("DEBUG DIGEST-VALUE m"), client.run("DEBUG DIGEST-VALUE l"));
}

#[test]
fn a_refused_import_changes_nothing() {
    let server = Server::start();
    let client = &mut server.client();
    bitmap(client, "bits", "bitmap32");
    client.run("BF.ADD filter a");
    client.run("SET number 12345");
    client.run("LPUSH list a");
    let before = whole(client);
    let wrong_type = err("WRONGTYPE Operation against a key holding the wrong kind of value");
    let beyond = err("ERR the bitmap has bits beyond the size that CAPACITY and ERROR give");
    let short = err("ERR the bitmap ends far below the size that CAPACITY and ERROR give");
    let unknown = err("ERR Unknown argument received");
    let not_guava = err("ERR not a Bloom filter written by Guava");
    let other = err("ERR CAPACITY and ERROR do not give a filter of that size");
    for (line, reply) in [
        ("k BITMAP missing CAPACITY 1000 ERROR 0.03", &err("ERR not found")),
        ("k BITMAP list CAPACITY 1000 ERROR 0.03", &wrong_type),
        ("k BITMAP filter CAPACITY 1000 ERROR 0.03", &wrong_type),
        ("bits BITMAP bits CAPACITY 1000 ERROR 0.03", &wrong_type),
        ("list BITMAP bits CAPACITY 1000 ERROR 0.03", &wrong_type),
        (
            "filter BITMAP bits CAPACITY 1000 ERROR 0.03",
            &err("BUSYKEY Target key name already exists."),
        ),
        ("k BITMAP bits CAPACITY 900 ERROR 0.03", &beyond),
        ("k BITMAP bits CAPACITY 2000 ERROR 0.03", &short),
        ("k BITMAP bits GUAVA64 CAPACITY 2000 ERROR 0.03", &short),
        ("k BITMAP bits CAPACITY 0 ERROR 0.03", &err("ERR Bad capacity")),
        ("k BITMAP bits CAPACITY -1 ERROR 0.03", &err("ERR Bad capacity")),
        ("k BITMAP bits CAPACITY 1000 ERROR 1", &err("ERR Bad error rate")),
        ("k BITMAP bits CAPACITY 1000 ERROR nan", &err("ERR Bad error rate")),
        ("k BITMAP bits CAPACITY 4611686018427387904 ERROR 0.5 GUAVA64", &other),
        ("k BITMAP bits CAPACITY 1000 ERROR 0.03 GUAVA128", &unknown),
        ("k BYTES bits", &unknown),
        ("k GUAVA bits GUAVA64", &unknown),
        ("k GUAVA x", &not_guava),
        ("k GUAVA nonsense", &not_guava),
    ] {
        assert_eq!(&client.run(&format!("BF.IMPORT {line}")), reply, "{line}");
    }
    let bytes = file("mitz32.bin");
    let words: [&[u8]; 8] =
        [b"BF.IMPORT", b"k", b"GUAVA", &bytes, b"CAPACITY", b"1", b"ERROR", b"0.03"];
    assert_eq!(client.cmd(&words), other);
    assert_eq!(whole(client), before);
    // The server stores a short string as a number: the bitmap is accepted or refused, and
    // unchanged.
    let reply = client.run("BF.IMPORT k BITMAP number CAPACITY 5 ERROR 0.03");
    assert!(reply == ok() || reply.is_error(), "{reply:?}");
    assert_eq!(client.run("GET number"), Reply::Bulk(b"12345".to_vec()));
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
