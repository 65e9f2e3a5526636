//! Failures of the machine: a full disk, no memory in the child that saves, a connection cut within
//! a copy of half a gigabyte, a kill while loading. Afterwards every acknowledged item is present,
//! or an error was reported.
//!
//! `torture.rs` kills at random moments, `broken_sync.rs` cuts small copies, `broken_file.rs`
//! damages files.

use std::fs;
use std::process::Command;

use crate::harness::{
    Client, Fault, Proxy, Reply, Server, add_until_card, assert_unharmed, digest, info, int,
    mexists, ok, wait_until,
};

/// Limits `fsize` or `as` of a running server, in bytes; `unlimited` removes the limit.
#[track_caller]
fn limit(server: &Server, resource: &str, bytes: &str) {
    // Only the soft limit, which can be raised again.
    let status = Command::new("prlimit")
        .args([format!("--pid={}", server.pid()), format!("--{resource}={bytes}:")])
        .status();
    assert!(status.is_ok_and(|status| status.success()), "prlimit {resource} {bytes}");
}

fn persistence(client: &mut Client, field: &str) -> String {
    client.server_info("persistence", field)
}

#[track_caller]
fn wait_for_child(client: &mut Client) {
    wait_until("the child ends", || !client.has_child());
}

#[track_caller]
fn assert_all_there(client: &mut Client, key: &str, items: &[String]) {
    let lost = mexists(client, key, items).iter().filter(|&&there| !there).count();
    assert_eq!(lost, 0, "items lost, of {} acknowledged in {key}", items.len());
}

/// A filter of 19 MB, larger than `FULL`.
const LARGE: &str = "BF.RESERVE k 0.01 15000000";
/// The file size limit of a "full" disk, in bytes.
const FULL: &str = "4194304";

#[test]
fn a_full_disk_during_bgsave_is_an_error_and_the_old_file_stays() {
    let mut server = Server::with()
        .survives_full_files()
        .config("rdbcompression no")
        // With a save point, the server refuses writes after a failed save, as it does by default.
        .config("save 3600 1000000")
        .start();
    let client = &mut server.client();
    assert_eq!(client.run(LARGE), ok());
    let old = add_until_card(client, "k", "old", 2_000);
    assert_eq!(client.run("SAVE"), ok());
    let new = add_until_card(client, "k", "new", 4_000);
    limit(&server, "fsize", FULL);
    assert!(!client.run("BGSAVE").is_error());
    wait_for_child(client);
    assert_eq!(persistence(client, "rdb_last_bgsave_status"), "err");
    let refused = client.run("BF.ADD k more");
    assert!(matches!(&refused, Reply::Error(text) if text.starts_with("MISCONF")), "{refused:?}");
    assert_eq!(client.run("BF.EXISTS k more"), int(0), "a refused item is not added");
    assert_all_there(client, "k", &old);
    assert_all_there(client, "k", &new);
    // The disk has room again.
    limit(&server, "fsize", "unlimited");
    assert!(!client.run("BGSAVE").is_error());
    wait_for_child(client);
    assert_eq!(persistence(client, "rdb_last_bgsave_status"), "ok");
    assert_eq!(client.run("BF.ADD k more"), int(1));
    let saved = digest(client, "k");
    assert_unharmed(&server);
    assert_eq!(client.run("SAVE"), ok());
    server.kill_and_restart();
    let client = &mut server.client();
    assert_eq!(digest(client, "k"), saved);
    assert_all_there(client, "k", &new);
}

#[test]
fn a_full_disk_during_an_aof_rewrite_leaves_the_old_file() {
    for preamble in ["yes", "no"] {
        let mut server = Server::with()
            .survives_full_files()
            .config("appendonly yes")
            .config("auto-aof-rewrite-percentage 0")
            .config("rdbcompression no")
            .config(&format!("aof-use-rdb-preamble {preamble}"))
            .start();
        let client = &mut server.client();
        assert_eq!(client.run(LARGE), ok());
        let mut items = add_until_card(client, "k", "old", 2_000);
        limit(&server, "fsize", FULL);
        assert!(!client.run("BGREWRITEAOF").is_error());
        items.extend(add_until_card(client, "k", "during", 3_000));
        wait_for_child(client);
        assert_eq!(persistence(client, "aof_last_bgrewrite_status"), "err", "preamble {preamble}");
        items.extend(add_until_card(client, "k", "after", 4_000));
        let before = digest(client, "k");
        server.kill_and_restart();
        let client = &mut server.client();
        assert_eq!(digest(client, "k"), before, "preamble {preamble}");
        assert_all_there(client, "k", &items);
        assert_unharmed(&server);
    }
}

/// The child of an AOF rewrite without RDB preamble allocates chunks of 16 MiB; here it gets none.
#[test]
fn a_child_without_memory_does_not_harm_the_server() {
    let mut server = Server::with()
        .config("appendonly yes")
        .config("auto-aof-rewrite-percentage 0")
        .config("aof-use-rdb-preamble no")
        .start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 60000000"), ok());
    let mut items = add_until_card(client, "k", "old", 2_000);
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid()))
        .expect("the status of the server");
    let kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:")?.split_whitespace().next()?.parse().ok())
        .expect("VmSize");
    // The child inherits a limit that leaves no room for a chunk. The server's own limit is lifted
    // right after the fork.
    limit(&server, "as", &((kib << 10) + (12 << 20)).to_string());
    assert!(!client.run("BGREWRITEAOF").is_error());
    limit(&server, "as", "unlimited");
    wait_for_child(client);
    assert_eq!(persistence(client, "aof_last_bgrewrite_status"), "err");
    assert_all_there(client, "k", &items);
    items.extend(add_until_card(client, "k", "new", 4_000));
    assert!(!client.run("BGREWRITEAOF").is_error());
    wait_for_child(client);
    assert_eq!(persistence(client, "aof_last_bgrewrite_status"), "ok");
    let before = digest(client, "k");
    server.kill_and_restart();
    let client = &mut server.client();
    assert_eq!(digest(client, "k"), before);
    assert_all_there(client, "k", &items);
}

#[test]
fn a_replica_whose_copy_of_half_a_gigabyte_is_cut_ends_with_the_same_filter() {
    let primary =
        Server::with().config("repl-diskless-sync yes").config("rdbcompression no").start();
    let client = &mut primary.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 405000000"), ok());
    assert!(info(client, "k").size > 512 << 20);
    let mut items = add_until_card(client, "k", "item", 20_000);
    let cuts = [Fault::Cut(300 << 20), Fault::Cut(1 << 20)];
    let proxy = Proxy::before(primary.port(), &cuts);
    let replica = Server::with()
        .config("repl-diskless-load swapdb")
        .config(&format!("replicaof 127.0.0.1 {}", proxy.port()))
        .start();
    wait_until("every cut happened", || proxy.left() == 0);
    // Items added meanwhile reach the replica too.
    items.extend(add_until_card(client, "k", "meanwhile", 21_000));
    let read = &mut replica.client();
    wait_until("the replica is in sync", || {
        read.server_info("replication", "master_link_status") == "up"
    });
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    assert_eq!(digest(read, "k"), digest(client, "k"));
    assert_all_there(read, "k", &items);
    assert_unharmed(&replica);
    assert_unharmed(&primary);
}

/// `key-load-delay` slows the load to some seconds, so that the kill happens during the load.
#[test]
fn a_server_killed_while_it_loads_loads_again() {
    let mut server = Server::with()
        .config("key-load-delay 20000")
        .config("loading-process-events-interval-bytes 1024")
        .start();
    let client = &mut server.client();
    let keys: Vec<_> = (0..100).map(|key| format!("k{key}")).collect();
    // Each filter has another random seed, and so other false positives and other items.
    let items: Vec<_> = keys.iter().map(|key| add_until_card(client, key, "item", 300)).collect();
    let before = client.run("DEBUG DIGEST");
    let mut other = server.client();
    client.send(&["DEBUG", "RELOAD"]);
    wait_until("the server loads", || {
        let reply = other.try_cmd(&["GET", "x"]);
        matches!(reply, Ok(Reply::Error(text)) if text.starts_with("LOADING"))
    });
    server.kill();
    server.configure("key-load-delay 0");
    server.relaunch();
    let client = &mut server.client();
    assert_eq!(client.run("DEBUG DIGEST"), before);
    for (key, items) in keys.iter().zip(&items) {
        assert_all_there(client, key, items);
    }
    assert_unharmed(&server);
}

/// Checked on the primary, on a replica, and after a reload.
#[test]
fn an_expired_filter_that_is_still_in_memory_is_gone() {
    let server = Server::start();
    let replica = server.replica();
    let client = &mut server.client();
    assert_eq!(client.run("DEBUG SET-ACTIVE-EXPIRE 0"), ok());
    let old = add_until_card(client, "k", "old", 500);
    let kept = add_until_card(client, "kept", "old", 500);
    assert_eq!(client.run("PEXPIRE k 1"), int(1));
    wait_until("the key expires", || client.run("PTTL k") == int(-2));
    assert!(mexists(client, "k", &old).iter().all(|&there| !there));
    // A new, empty filter replaces the expired one.
    assert_eq!(client.run("BF.ADD k new"), int(1));
    assert_eq!(info(client, "k").items, 1);
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    let read = &mut replica.client();
    for key in ["k", "kept"] {
        assert_eq!(digest(read, key), digest(client, key), "{key}");
    }
    let before = client.run("DEBUG DIGEST");
    assert_eq!(client.run("DEBUG RELOAD"), ok());
    assert_eq!(client.run("DEBUG DIGEST"), before);
    assert_all_there(client, "kept", &kept);
    assert_eq!(client.run("DEBUG SET-ACTIVE-EXPIRE 1"), ok());
    assert_unharmed(&server);
}
