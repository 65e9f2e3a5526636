//! A child that saves gives back the pages that it has written (`src/module/child.rs`): what is
//! added afterwards copies none, and no file and no replica misses a bit.
//!
//! The child is stopped in the delay that it makes behind its last key. Then the server adds, and
//! the child may end.

use std::{fs, path::Path};

use crate::{
    harness::{
        Client, Server, Stopped, child, digest, info, madd, mexists, numbered, ok, state,
        wait_until,
    },
    valkey_bloom::Model,
};

/// A filter of each type, about 24 MB each. The items that are in lie on nearly every page.
const KEYS: [&str; 3] = ["bits", "counters", "valkey"];
const THERE: usize = 40_000;
/// Items that are added to each while the child is there.
const NEW: usize = 2_000;
/// The most that may be copied: buffers, the dictionary of keys. It is 1 or 2 MB, and 36 MB where
/// no page is given back.
const FEW: u64 = 6 << 20;

/// A server with the filters, whose child stays half a second behind each.
fn server(lines: &[&str]) -> Server {
    let builder = Server::with().config("rdb-key-save-delay 500000").config("rdbcompression no");
    let server = lines.iter().fold(builder, |builder, line| builder.config(line)).start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE bits 0.01 20000000"), ok());
    assert_eq!(client.run("BF.RESERVE counters 0.01 5000000 COUNTING"), ok());
    let valkey = Model::new(20_000_000, 0.01, 0.5, 2, &[7; 32]);
    assert_eq!(client.cmd(&[b"BF.LOAD", b"valkey" as &[u8], &valkey.blob()]), ok());
    for key in KEYS {
        madd(client, key, &numbered("item", THERE));
    }
    server
}

fn digests(client: &mut Client) -> [String; 3] {
    KEYS.map(|key| digest(client, key))
}

/// Bytes of the largest file in a directory that is not finished.
fn unfinished(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().starts_with("temp-"));
    files.filter_map(|file| Some(file.metadata().ok()?.len())).max().unwrap_or(0)
}

/// Stops the child when everything is in a file of `dir`, adds, lets it end, and answers how many
/// bytes were copied.
fn copied(server: &Server, dir: &Path, kind: &str) -> u64 {
    let client = &mut server.client();
    let bits: i64 = KEYS.iter().map(|key| info(client, key).size).sum();
    wait_until("the child has written all", || {
        // The rest is in buffers.
        unfinished(dir) + (1 << 20) > bits.unsigned_abs()
    });
    let pid = child(server);
    wait_until("the child sleeps", || state(pid) == Some('S'));
    let stopped = Stopped::stop(pid);
    let before = digests(client);
    for key in KEYS {
        madd(client, key, &numbered("new", NEW));
    }
    let after = digests(client);
    assert!(before.iter().zip(&after).all(|(before, after)| before != after));
    assert!(stopped.stands(), "the child is gone: nothing was measured");
    drop(stopped);
    wait_until("the child ends", || !client.has_child());
    assert_eq!(digests(client), after);
    for (key, prefix, count) in
        KEYS.iter().flat_map(|key| [(key, "item", THERE), (key, "new", NEW)])
    {
        assert!(mexists(client, key, &numbered(prefix, count)).iter().all(|&there| there), "{key}");
    }
    let copied = client.server_info("persistence", &format!("{kind}_last_cow_size"));
    let copied = copied.parse().expect("a number of bytes");
    println!("{copied} bytes of {bits} copied");
    copied
}

#[test]
fn a_saved_page_is_not_copied() {
    let server = server(&[]);
    let client = &mut server.client();
    let saved = digests(client);
    assert!(!client.run("BGSAVE").is_error());
    let copied = copied(&server, server.dir(), "rdb");
    let file = fs::read(server.dir().join("dump.rdb")).expect("the file");
    let other = Server::on_file("dump.rdb", &file, &[]);
    assert_eq!(digests(&mut other.client()), saved, "what was saved is as at the fork");
    assert!(copied < FEW, "{copied} bytes");
}

#[test]
fn a_rewritten_page_is_not_copied() {
    let mut server = server(&["appendonly yes", "aof-use-rdb-preamble no"]);
    let client = &mut server.client();
    wait_until("the first AOF is there", || !client.has_child());
    assert!(!client.run("BGREWRITEAOF").is_error());
    let copied = copied(&server, server.dir(), "aof");
    let expected = digests(client);
    server.kill_and_restart();
    assert_eq!(
        digests(&mut server.client()),
        expected,
        "what was rewritten, and the additions behind it"
    );
    assert!(copied < FEW, "{copied} bytes");
}

#[test]
fn a_page_that_was_sent_to_a_replica_is_not_copied() {
    let server = server(&["repl-diskless-sync yes"]);
    let replica = Server::with().config("repl-diskless-load disabled").replica_of(&server).start();
    let copied = copied(&server, replica.dir(), "rdb");
    let (client, read) = (&mut server.client(), &mut replica.client());
    wait_until("the replica has everything", || {
        read.server_info("replication", "master_link_status") == "up"
            && digests(read) == digests(client)
    });
    assert!(copied < FEW, "{copied} bytes");
}
