//! Filters from files of a build of valkey-bloom 1.0: they answer and grow as in valkey-bloom, and
//! are written back byte for byte.
//!
//! `tests/fixtures/products.rs` describes the files and the answers. The README in that directory
//! names the origin of the build.

use crate::{
    as_there::{check_first, go_on, go_on_beside_a_copy, go_on_with_a_replica},
    harness::{
        Client, Reply, Server, assert_unharmed, digest, err, info, int, mexists, numbered, ok,
        sealed, simple, wait_until,
    },
    products::{Answers, VALKEY_BLOOM, file},
};

/// An RDB version that every tested server reads. The format of a module's value is unchanged since
/// this version.
const RDB_VERSION: u16 = 9;

/// The DUMP payload of the file, without version and checksum.
fn body(name: &str) -> Vec<u8> {
    let mut payload = file(&format!("{name}.dump"));
    payload.truncate(payload.len() - 10);
    payload
}

#[track_caller]
fn restore(client: &mut Client, key: &str, name: &str) {
    let payload = sealed(&[body(name), RDB_VERSION.to_le_bytes().to_vec()].concat());
    assert_eq!(client.call("RESTORE", key, &[&b"0"[..], &payload]), ok(), "{name}");
    assert_eq!(client.cmd(&["TYPE", key]), simple("bloomfltr"));
}

#[test]
fn a_payload_answers_and_grows_as_in_valkey_bloom_and_is_dumped_unchanged() {
    let server = Server::with().config("rdbcompression no").start();
    let client = &mut server.client();
    for name in VALKEY_BLOOM {
        restore(client, name, name);
        check_first(client, name, name);
        let dump = client.cmd(&["DUMP", name]).payload();
        assert_eq!(dump[..dump.len() - 10], body(name), "{name}");
        go_on_beside_a_copy(client, name);
    }
    assert_unharmed(&server);
}

#[test]
fn a_replica_holds_an_equal_filter() {
    let server = Server::start();
    let client = &mut server.client();
    for name in VALKEY_BLOOM {
        restore(client, name, name);
    }
    go_on_with_a_replica(&server, &VALKEY_BLOOM);
}

/// Checks the keys of `valkey-bloom-1.0.rdb` that the AOF has not changed.
#[track_caller]
fn check_keys(client: &mut Client) {
    check_first(client, "full", "valkey-bloom-1.0-nonscaling");
    assert_eq!(client.run("BF.EXISTS default item-0"), int(1));
    assert_eq!(client.run("BF.EXISTS default item-1"), int(0));
    for key in ["full", "default", "grown"] {
        assert_eq!(client.cmd(&["TYPE", key]), simple("bloomfltr"));
    }
}

/// The RDB file with [`RDB_VERSION`] in place of its own version.
fn rdb() -> Vec<u8> {
    let mut file = file("valkey-bloom-1.0.rdb");
    file.truncate(file.len() - 8);
    file.splice(5..9, format!("{RDB_VERSION:04}").into_bytes());
    sealed(&file)
}

#[test]
fn an_rdb_file_is_loaded_and_saved() {
    let mut server = Server::on_file("dump.rdb", &rdb(), &["dbfilename dump.rdb"]);
    let client = &mut server.client();
    check_keys(client);
    check_first(client, "grown", "valkey-bloom-1.0-grown");
    let before = digest(client, "grown");
    server.restart();
    let client = &mut server.client();
    check_keys(client);
    assert_eq!(digest(client, "grown"), before);
    go_on(client, "grown", "valkey-bloom-1.0-grown");
}

#[test]
fn an_aof_is_replayed_and_rewritten() {
    for preamble in ["no", "yes"] {
        let lines = ["appendonly yes", &format!("aof-use-rdb-preamble {preamble}")];
        let mut server = Server::on_file("appendonly.aof", &file("valkey-bloom-1.0.aof"), &lines);
        let client = &mut server.client();
        check_keys(client);
        // After its rewrite, the AOF adds 100 later items and makes two filters.
        let items = Answers::read("valkey-bloom-1.0-grown").items(0);
        let added = [&items[..430], &numbered("later", 100)].concat();
        assert!(mexists(client, "grown", &added).iter().all(|&there| there));
        assert_eq!(info(client, "grown").items, 403 + 95);
        assert_eq!(client.run("BF.EXISTS new item-0"), int(1));
        let made = info(client, "reserved");
        assert_eq!((made.capacity, made.items, made.expansion), (50, 0, Some(4)));
        for key in ["new", "reserved"] {
            assert_eq!(client.cmd(&["TYPE", key]), simple("bloomfltr"));
        }
        let keys = ["grown", "full", "default", "new", "reserved"];
        let digests = |client: &mut Client| keys.map(|key| digest(client, key));
        let before = digests(client);
        client.run("BGREWRITEAOF");
        wait_until("the AOF is rewritten", || !client.has_child());
        let status = client.server_info("persistence", "aof_last_bgrewrite_status");
        assert_eq!(status, "ok");
        server.kill_and_restart();
        assert_eq!(digests(&mut server.client()), before, "preamble {preamble}");
    }
}

/// Development builds wrote another layout under the same encoding version: the bitmap first, then
/// the capacity.
#[test]
fn a_payload_of_a_development_build_is_refused() {
    let server = Server::start();
    let client = &mut server.client();
    let body = body("valkey-bloom-1.0-one-layer");
    // The payload: type, 0x81 and 8 bytes of id, 1 layer, expansion, rate, tightening, seed; then
    // capacity 100, 90 items, bitmap; end.
    let at = 10 + 2 + 2 + 9 + 9 + 2;
    let (head, rest) = body.split_at(at);
    assert_eq!(rest[..6], [2, 0x40, 100, 2, 0x40, 90]);
    let (numbers, rest) = rest.split_at(6);
    let (bitmap, end) = rest.split_at(rest.len() - 1);
    let early =
        [head, bitmap, &numbers[..3], &numbers[3..], end, &RDB_VERSION.to_le_bytes()].concat();
    let reply: Reply = client.call("RESTORE", "k", &[&b"0"[..], &sealed(&early)]);
    assert_eq!(reply, err("ERR Bad data format"));
    assert_eq!(client.run("EXISTS k"), int(0));
    assert_unharmed(&server);
}
