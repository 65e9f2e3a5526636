//! Replicas in every position: of a replica, attached while a filter is loaded in chunks, with
//! other settings and limits, promoted. DEBUG DIGEST-VALUE, DUMP, BF.SCANDUMP and BF.INFO show that
//! all hold equal filters.

use crate::{
    every_way::{LIBRARY, write_in_every_way},
    harness::{
        Builder, Client, Reply, Server, add_until_card, assert_unharmed, config_name, digest, dump,
        err, int, load, madd, numbered, ok, simple, wait_until,
    },
};

fn setting(name: &str, value: &str) -> String {
    format!("{} {value}", config_name(name))
}

/// A server whose own defaults would make other filters.
fn other_defaults(error_rate: &str) -> Builder {
    Server::with()
        .config(&setting("error-rate", error_rate))
        .config(&setting("initial-size", "7"))
        .config(&setting("expansion-factor", "0"))
}

#[track_caller]
fn wait_for_link(replica: &Server) {
    let client = &mut replica.client();
    wait_until("the replica is in sync", || {
        client.server_info("replication", "master_link_status") == "up"
    });
}

/// Waits until all replicas, direct and chained, have the last write of the primary.
#[track_caller]
fn wait_for_writes(primary: &mut Client, replicas: &[&Server]) {
    let mark = primary.run("INCR mark").int().to_string();
    for replica in replicas {
        let client = &mut replica.client();
        wait_until(
            "the replica has every write",
            || matches!(client.run("GET mark"), Reply::Bulk(value) if value == mark.as_bytes()),
        );
    }
}

#[track_caller]
fn assert_identical(primary: &mut Client, replica: &Server, keys: &[&str]) {
    let read = &mut replica.client();
    for key in keys {
        assert_eq!(digest(read, key), digest(primary, key), "DEBUG DIGEST-VALUE {key}");
        for command in ["DUMP", "BF.INFO", "BF.DEBUG"] {
            assert_eq!(read.cmd(&[command, key]), primary.cmd(&[command, key]), "{command} {key}");
        }
        assert!(dump(read, key) == dump(primary, key), "BF.SCANDUMP {key}");
    }
    assert_eq!(read.run("DEBUG DIGEST"), primary.run("DEBUG DIGEST"), "the whole data set");
    assert!(!replica.log().contains("CRITICAL"), "a command was refused:\n{}", replica.log());
    assert_unharmed(replica);
}

#[test]
fn a_chain_of_replicas_with_other_defaults_is_identical() {
    let primary = Server::start();
    let first = other_defaults("0.2").replica_of(&primary).start();
    wait_for_link(&first);
    let second = other_defaults("0.4").replica_of(&first).start();
    wait_for_link(&second);
    let client = &mut primary.client();
    let keys = write_in_every_way(client);
    wait_for_writes(client, &[&first, &second]);
    assert_identical(client, &first, &keys);
    assert_identical(client, &second, &keys);
    // The third gets every filter in a full synchronization from a replica.
    let third = other_defaults("0.1").replica_of(&second).start();
    wait_for_link(&third);
    let keys = write_again(client, keys);
    wait_for_writes(client, &[&first, &second, &third]);
    for replica in [&first, &second, &third] {
        assert_identical(client, replica, &keys);
    }
    println!("{} filters identical on four servers in a row", keys.len());
}

fn write_again(client: &mut Client, keys: Vec<&'static str>) -> Vec<&'static str> {
    for key in &keys {
        client.call("BF.MADD", key, &numbered("again", 300));
    }
    keys
}

#[test]
fn a_replica_attached_during_a_load_in_chunks_completes_the_load() {
    for (diskless, socket) in [("yes", "swapdb"), ("no", "disabled")] {
        let primary = Server::with().config(&format!("repl-diskless-sync {diskless}")).start();
        let client = &mut primary.client();
        // A filter of 41 MB has a header and three chunks.
        assert_eq!(client.run("BF.RESERVE whole 0.01 33000000"), ok());
        madd(client, "whole", &numbered("item", 20_000));
        let pieces = dump(client, "whole");
        assert_eq!(pieces.len(), 4);
        let replicas: Vec<Server> = pieces
            .iter()
            .map(|piece| {
                assert_eq!(load(client, "half", piece), ok());
                let replica = Server::with()
                    .config(&format!("repl-diskless-load {socket}"))
                    .replica_of(&primary)
                    .start();
                wait_for_link(&replica);
                let read = &mut replica.client();
                assert_eq!(
                    read.run("BF.EXISTS half item-0").is_error(),
                    piece != &pieces[3],
                    "only the last chunk completes the filter"
                );
                replica
            })
            .collect();
        // A client that got no reply sends a chunk again.
        assert_eq!(load(client, "half", &pieces[2]), ok());
        client.run("BF.ADD half more");
        wait_for_writes(client, &replicas.iter().collect::<Vec<_>>());
        for replica in &replicas {
            assert_eq!(digest(&mut replica.client(), "half"), digest(client, "half"));
            assert_eq!(replica.client().run("BF.EXISTS half item-19999"), int(1));
            assert_unharmed(replica);
        }
    }
}

/// Replication offset, size of the AOF, and number of changes since the last save.
fn traces(client: &mut Client) -> [String; 3] {
    [
        client.server_info("replication", "master_repl_offset"),
        client.server_info("persistence", "aof_current_size"),
        client.server_info("persistence", "rdb_changes_since_last_save"),
    ]
}

#[test]
fn a_command_that_changes_nothing_is_not_propagated() {
    let primary =
        Server::with().config("appendonly yes").config("repl-ping-replica-period 3600").start();
    let replica = primary.replica();
    let (client, watcher) = (&mut primary.client(), &mut primary.client());
    assert_eq!(client.cmd(&["FUNCTION", "LOAD", LIBRARY]).text(), "bloom");
    assert_eq!(client.run("BF.RESERVE full 0.001 2 NONSCALING"), ok());
    client.run("BF.MADD full a b");
    client.run("BF.MADD k a b c");
    let script = "return redis.call('BF.MADD', KEYS[1], unpack(ARGV))";
    let rows: Vec<Vec<Vec<&str>>> = vec![
        vec![vec!["BF.ADD", "k", "a"]],
        vec![vec!["BF.MADD", "k", "a", "b", "c", "a"]],
        vec![vec!["BF.INSERT", "k", "ITEMS", "a", "b"]],
        vec![vec!["BF.INSERT", "k", "CAPACITY", "1000", "ERROR", "0.5", "NOCREATE", "ITEMS", "c"]],
        vec![vec!["BF.ADD", "full", "c"]],
        vec![vec!["BF.MADD", "full", "a", "c", "d"]],
        vec![vec!["BF.RESERVE", "k", "0.01", "100"]],
        vec![vec!["BF.EXISTS", "k", "z"], vec!["BF.INFO", "k"], vec!["BF.SCANDUMP", "k", "0"]],
        vec![vec!["EVAL", script, "1", "k", "a", "b"]],
        vec![vec!["FCALL", "add", "1", "k", "a", "c"]],
        vec![vec!["MULTI"], vec!["BF.ADD", "k", "a"], vec!["BF.MADD", "k", "b", "c"], vec!["EXEC"]],
        vec![
            vec!["MULTI"],
            vec!["EVAL", script, "1", "k", "a"],
            vec!["BF.CARD", "k"],
            vec!["EXEC"],
        ],
    ];
    let before = traces(client);
    for row in &rows {
        assert_eq!(watcher.run("WATCH k full"), ok());
        for command in row {
            client.cmd(command);
        }
        assert_eq!(traces(client), before, "{row:?}");
        watcher.run("MULTI");
        watcher.run("PING");
        assert_eq!(watcher.run("EXEC").elements(), [simple("PONG")], "{row:?} aborted a WATCH");
    }
    // Every way to change a filter changes all three traces.
    for (item, row) in [
        ("x1", vec![vec!["BF.ADD", "k", "x1"]]),
        ("x2", vec![vec!["EVAL", script, "1", "k", "a", "x2"]]),
        ("x3", vec![vec!["FCALL", "add", "1", "k", "x3", "b"]]),
        (
            "x4",
            vec![vec!["MULTI"], vec!["BF.ADD", "k", "a"], vec!["BF.ADD", "k", "x4"], vec!["EXEC"]],
        ),
    ] {
        let before = traces(client);
        watcher.run("WATCH k");
        for command in &row {
            client.cmd(command);
        }
        let after = traces(client);
        assert!(
            (0..3).all(|trace| before[trace] != after[trace]),
            "{row:?}: {before:?}, then {after:?}"
        );
        watcher.run("MULTI");
        watcher.run("PING");
        let aborted = matches!(watcher.run("EXEC"), Reply::Null | Reply::NullArray);
        assert!(aborted, "{row:?} did not abort a WATCH");
        wait_for_writes(client, &[&replica]);
        assert_eq!(replica.client().run(&format!("BF.EXISTS k {item}")), int(1));
    }
    assert_identical(client, &replica, &["k", "full"]);
}

/// With `propagation-error-behavior panic` a replica that refuses a command of its primary exits.
#[test]
fn a_replica_applies_commands_of_its_primary_beyond_its_own_limits() {
    let limited = || {
        Server::with()
            .config(&setting("max-filter-bytes", "1kb"))
            .config("maxmemory 1mb")
            .config("maxmemory-policy noeviction")
            .config("propagation-error-behavior panic")
            .config("replica-ignore-disk-write-errors yes")
    };
    let primary = Server::start();
    let client = &mut primary.client();
    assert_eq!(client.run("BF.RESERVE before 0.01 1000000"), ok());
    add_until_card(client, "before", "item", 1_000);
    let disk = limited().config("repl-diskless-load disabled").replica_of(&primary).start();
    let socket = limited().config("repl-diskless-load swapdb").replica_of(&primary).start();
    let chained = limited().replica_of(&socket).start();
    let replicas = [&disk, &socket, &chained];
    for replica in replicas {
        wait_for_link(replica);
    }
    assert_eq!(client.run("BF.RESERVE grown 0.001 100 EXPANSION 8"), ok());
    add_until_card(client, "grown", "item", 20_000);
    let mut keys = write_in_every_way(client);
    for piece in dump(client, "before") {
        assert_eq!(load(client, "moved", &piece), ok());
    }
    let Reply::Bulk(payload) = client.run("DUMP grown") else { panic!("no payload") };
    assert_eq!(client.call("RESTORE", "grown2", &[b"0", &payload[..]]), ok());
    assert_eq!(client.run("COPY before before2"), int(1));
    keys.extend(["before", "grown", "moved", "grown2", "before2"]);
    wait_for_writes(client, &replicas);
    for replica in replicas {
        assert_identical(client, replica, &keys);
    }
    // After its promotion the server enforces its own limits, and keeps its filters.
    let read = &mut disk.client();
    assert_eq!(read.run("REPLICAOF NO ONE"), ok());
    assert_eq!(read.run("CONFIG SET maxmemory 0"), ok());
    assert_eq!(read.run("BF.EXISTS grown item-0"), int(1));
    assert_eq!(
        read.run("BF.RESERVE new 0.01 1000000"),
        err("ERR Insufficient memory to create filter")
    );
}

/// Limits do not apply to filters in files: they were allowed when they were made.
#[test]
fn a_restart_loads_filters_beyond_every_limit() {
    for line in ["appendonly yes", "appendonly no"] {
        let mut server = Server::with().config(line).start();
        let client = &mut server.client();
        assert_eq!(client.run("BF.RESERVE large 0.01 3000000"), ok());
        let keys = write_in_every_way(client);
        for piece in dump(client, "large") {
            assert_eq!(load(client, "moved", &piece), ok());
        }
        let before = client.run("DEBUG DIGEST");
        server.configure(&setting("max-filter-bytes", "1kb"));
        server.configure("maxmemory 1mb");
        if line == "appendonly yes" {
            server.kill_and_restart();
        } else {
            server.restart();
        }
        let client = &mut server.client();
        assert_eq!(client.run("DEBUG DIGEST"), before, "{line:?}: {} filters", keys.len() + 2);
        assert!(!server.log().contains("CRITICAL"), "{}", server.log());
    }
}

/// After a promotion, equal additions to both servers make equal pages.
#[test]
fn both_sides_of_a_promotion_grow_in_the_same_way() {
    let primary = Server::start();
    let replica = other_defaults("0.3").replica_of(&primary).start();
    wait_for_link(&replica);
    let client = &mut primary.client();
    let keys = write_in_every_way(client);
    wait_for_writes(client, &[&replica]);
    let other = &mut replica.client();
    assert_eq!(other.run("REPLICAOF NO ONE"), ok());
    for round in 0..4 {
        for key in &keys {
            let items = numbered(&format!("round-{round}"), 400);
            assert_eq!(
                client.call("BF.MADD", key, &items),
                other.call("BF.MADD", key, &items),
                "the answers of {key}"
            );
        }
        assert_identical(client, &replica, &keys);
    }
}
