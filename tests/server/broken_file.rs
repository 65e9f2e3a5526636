//! A server that starts with a damaged file. A damaged dump file makes the server log the reason
//! and stop. Damage within one command of an AOF leaves a filter that refuses every command. The
//! server never crashes, and never answers from an incomplete filter.

use std::fs;
use std::path::PathBuf;

use crate::harness::{
    Header, Payload, Server, add_until_card, assert_no_crash, assert_unharmed, digest, mexists, ok,
    sealed, wait_until,
};

/// A stopped server whose dump file holds a filter of one layer under "k".
struct Saved {
    server: Server,
    path: PathBuf,
    file: Vec<u8>,
    /// Byte offset of the filter's header in `file`.
    at: usize,
    header: Header,
    /// Bytes of the filter's strings in the file, lengths included.
    value: usize,
    items: Vec<String>,
}

fn saved() -> Saved {
    let mut server = Server::with().config("rdbcompression no").start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 600"), ok());
    let items = add_until_card(client, "k", "item", 500);
    let payload = Payload::of(client, "k");
    assert_eq!(client.run("SAVE"), ok());
    server.kill();
    let path = server.dir().join("dump.rdb");
    let file = fs::read(&path).expect("a dump file");
    let stored = &payload.strings[0];
    let at = file
        .windows(stored.len())
        .position(|window| window == stored)
        .expect("the header, as in DUMP");
    Saved {
        header: Header::parse(stored),
        value: payload.body().len() - payload.head.len(),
        server,
        path,
        file,
        at,
        items,
    }
}

/// Applies `change` to the file without its checksum, then appends the correct checksum.
fn changed(file: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = file[..file.len() - 8].to_vec();
    change(&mut bytes);
    sealed(&bytes)
}

#[test]
fn a_damaged_dump_file_is_refused_with_a_line_in_the_log() {
    let mut saved = saved();
    let (file, at) = (saved.file.clone(), saved.at);
    let header_len = saved.header.bytes().len();
    let refused = "a stored filter was refused";
    let mut rows: Vec<(String, Vec<u8>, &str)> = Vec::new();
    // One changed byte in each field of the header.
    for (what, offset) in [
        ("magic", 0),
        ("version", 6),
        ("seed", 8),
        ("error rate", 16),
        ("expansion", 24),
        ("layer count", 28),
        ("bytes of bits", 32),
        ("layer", 40),
        ("checksum", header_len - 1),
    ] {
        rows.push((what.into(), changed(&file, |bytes| bytes[at + offset] ^= 0x40), refused));
    }
    // Forged headers with a correct checksum.
    type Edit = (&'static str, fn(&mut Header));
    let edits: [Edit; 5] = [
        ("an error rate that is no number", |header| {
            header.error_rate = f64::NAN;
        }),
        ("no probes", |header| header.layers[0].probes = 0),
        ("2^31 layers", |header| header.count = 1 << 31),
        ("more bits announced than follow", |header| header.present += 8),
        ("more bits than the filter has", |header| {
            header.layers[0].blocks -= 1;
        }),
    ];
    for (what, edit) in edits {
        let mut header = saved.header.clone();
        edit(&mut header);
        let forged = changed(&file, |bytes| {
            bytes[at..at + header_len].copy_from_slice(&header.bytes());
        });
        rows.push((what.into(), forged, refused));
    }
    // The byte before the header is the last byte of its length.
    rows.push((
        "a header of another length".into(),
        changed(&file, |bytes| bytes[at - 1] ^= 8),
        refused,
    ));
    // No cut is at the end of a string: there the server's own check of the refused file never
    // ends, for any module (redis/redis#15034, fixed in 2026).
    for cut in [1, header_len / 2, header_len + 1, header_len + 40, saved.value - 20] {
        rows.push((
            format!("an end after {cut} bytes of the filter"),
            file[..at + cut].to_vec(),
            "the input ends early",
        ));
    }
    for (what, bytes, line) in &rows {
        fs::write(&saved.path, bytes).expect("the dump file can be written");
        let before = saved.server.log().len();
        let log = saved.server.try_relaunch().expect_err(what);
        let log = &log[before..];
        assert!(log.contains(line), "{what}: no line in the log says {line:?}:\n{log}");
        assert_no_crash(log);
    }
    println!("{} damaged dump files, each refused with a line in the log", rows.len());
    fs::write(&saved.path, &file).expect("the dump file can be written");
    saved.server.relaunch();
    let client = &mut saved.server.client();
    assert!(
        mexists(client, "k", &saved.items).iter().all(|&there| there),
        "the undamaged file loads"
    );
}

/// The module refuses every other encoding version. Versions 0 to 4 belong to RedisBloom, whose
/// values begin with numbers and not with a string.
#[test]
fn another_encoding_version_is_refused() {
    let mut saved = saved();
    // The module id is big-endian: 54 bits of name, 10 bits of encoding version. The opcode and the
    // length of the header's string follow.
    let length = if saved.header.bytes().len() < 64 { 1 } else { 2 };
    let version = saved.at - length - 1 - 1;
    assert_eq!(saved.file[version], 100, "encoding version 100");
    let refused = "a stored filter was refused".to_owned();
    let rows = [0, 1, 4].map(|version| (version, refused.clone()));
    let unknown = [5, 99, 101, 255].map(|version| (version, format!("encoding version {version}")));
    for (other, expected) in rows.into_iter().chain(unknown) {
        let bytes = changed(&saved.file, |bytes| bytes[version] = other);
        fs::write(&saved.path, bytes).expect("the dump file can be written");
        let before = saved.server.log().len();
        let log = saved.server.try_relaunch().expect_err("an unknown encoding");
        let log = &log[before..];
        assert!(log.contains(&expected), "{other}:\n{log}");
        assert_no_crash(log);
    }
}

/// The server continues after a command of the AOF that fails. The key must not pass for a complete
/// filter.
#[test]
fn a_damaged_chunk_in_the_aof_leaves_a_filter_that_refuses_every_command() {
    let mut server =
        Server::with().config("appendonly yes").config("aof-use-rdb-preamble no").start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 100"), ok());
    assert_eq!(client.run("BF.RESERVE other 0.01 100"), ok());
    let items = add_until_card(client, "k", "item", 500);
    let before = digest(client, "k");
    let other = digest(client, "other");
    assert!(!client.run("BGREWRITEAOF").is_error());
    wait_until("the rewrite ends", || !client.has_child());
    server.kill();
    let path = fs::read_dir(server.dir().join("appendonlydir"))
        .expect("the directory of the append-only files")
        .map(|entry| entry.expect("a file").path())
        .find(|path| path.to_string_lossy().ends_with("base.aof"))
        .expect("the rewritten file");
    let file = fs::read(&path).expect("the rewritten file");
    // The keys are in any order: the largest chunk is that of "k".
    let chunks: Vec<usize> =
        (0..file.len()).filter(|&at| file[at..].starts_with(b"rbchnk")).collect();
    let length = |at: &usize| file[*at..].windows(2).position(|end| end == b"\r\n").unwrap_or(0);
    let chunk = chunks.into_iter().max_by_key(length).expect("a chunk");
    let mut damaged = file.clone();
    damaged[chunk + 100] ^= 1;
    fs::write(&path, damaged).expect("the file can be written");
    server.relaunch();
    let client = &mut server.client();
    for line in [
        "BF.EXISTS k item-0",
        "BF.MEXISTS k item-0",
        "BF.ADD k item-0",
        "BF.CARD k",
        "BF.SCANDUMP k 0",
    ] {
        assert!(client.run(line).is_error(), "{line}");
    }
    assert_eq!(digest(client, "other"), other, "the other filter is intact");
    assert!(server.log().contains("CRITICAL"), "the log does not report the failed command");
    assert_unharmed(&server);
    server.kill();
    fs::write(&path, file).expect("the file can be written");
    server.relaunch();
    let client = &mut server.client();
    assert_eq!(digest(client, "k"), before);
    assert!(mexists(client, "k", &items).iter().all(|&there| there));
}
