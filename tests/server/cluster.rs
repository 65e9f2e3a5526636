//! A Redis Cluster: commands are routed by their key specs, a slot with a large filter moves while
//! clients write, and a primary dies. No acknowledged addition is lost.

use std::time::{Duration, Instant};

use crate::{
    cluster_writers::{Added, Stop, Writing, assert_all_there, write},
    harness::{
        Client, Cluster, ClusterClient, PRIMARIES, Reply, SLOTS, add_until_card, assert_unharmed,
        commands, config_name, digest, dump, err, info, int, numbered, ok, simple, skipped, slot,
        version, wait_until,
    },
};

/// A key of the form `name-{number}` that belongs to the given primary.
pub(crate) fn key_of(primary: usize, name: &str) -> String {
    let slots = primary * SLOTS / PRIMARIES..(primary + 1) * SLOTS / PRIMARIES;
    let key = (0..).map(|number| format!("{name}-{number}")).find(|key| slots.contains(&slot(key)));
    key.expect("one in three keys is in the range")
}

#[test]
fn every_command_is_sent_to_the_node_of_its_key() {
    let cluster = Cluster::start();
    let mut client = cluster.client();
    for (primary, node) in cluster.nodes.iter().take(PRIMARIES).enumerate() {
        let key = key_of(primary, "k");
        let moved = err(&format!("MOVED {} 127.0.0.1:{}", slot(&key), node.port()));
        let other = &mut cluster.nodes[(primary + 1) % PRIMARIES].client();
        for command in commands() {
            let line = command.call_for(&key);
            assert_eq!(other.run(&line), moved, "{line}");
            let words: Vec<&str> = line.split(' ').collect();
            let reply = client.call(&key, &words);
            // BF.FORGET needs a window, and BF.SHIFT is for servers.
            let refused = line.ends_with(" data")
                || ["BF.FORGET", "BF.SHIFT"].iter().any(|name| line.starts_with(name));
            assert_eq!(reply.is_error(), refused, "{line}: {reply:?}");
        }
        // The replica answers reads after READONLY, and redirects writes.
        let read = &mut cluster.nodes[PRIMARIES + primary].client();
        wait_until("the replica acknowledges", || client.wait(&key) == 1);
        assert_eq!(read.run(&format!("BF.EXISTS {key} a")), moved);
        assert_eq!(read.run("READONLY"), ok());
        assert_eq!(read.run(&format!("BF.EXISTS {key} a")), int(1));
        assert_eq!(read.run(&format!("BF.ADD {key} z")), moved);
        assert_eq!(digest(read, &key), digest(&mut node.client(), &key));
    }
    assert_eq!(client.moved, 0, "a client that knows the slots is never redirected");
}

#[test]
fn a_slot_moves_with_a_large_filter_while_clients_write() {
    let cluster = Cluster::start();
    // MIGRATE blocks both nodes. On a busy machine that is long enough for a replica to take over.
    for node in &cluster.nodes {
        assert_eq!(node.client().run("CONFIG SET cluster-node-timeout 60000"), ok());
    }
    let mut client = cluster.client();
    let tag = key_of(0, "tag");
    let key = |name: &str| format!("{{{tag}}}{name}");
    let (large, small, half, fresh) = (key("large"), key("small"), key("half"), key("fresh"));
    // A generation lasts some 20 seconds: the slot may move in the middle of one, or between two.
    let window = key("window");
    let words = ["0.01", "1000", "WINDOW", "EX", "600", "GENERATIONS", "32"];
    let reserve = [&["BF.RESERVE", &window][..], &words].concat();
    assert_eq!(client.call(&window, &reserve), ok());
    assert_eq!(client.call(&large, &["BF.RESERVE", &large, "0.01", "60000000"]), ok());
    assert_eq!(client.call(&small, &["BF.RESERVE", &small, "0.01", "50"]), ok());
    let (source, target) = (&mut cluster.nodes[0].client(), &mut cluster.nodes[1].client());
    let size = info(source, &large).size;
    assert!(size > 64 << 20, "{size} bytes");
    let mut added: Added = vec![
        (large.clone(), add_until_card(source, &large, "before", 50_000)),
        (small.clone(), add_until_card(source, &small, "before", 500)),
    ];
    let pieces = dump(source, &small);
    let chunk = |piece: &(i64, Vec<u8>)| {
        [
            b"BF.LOADCHUNK".to_vec(),
            half.clone().into_bytes(),
            piece.0.to_string().into_bytes(),
            piece.1.clone(),
        ]
    };
    assert_eq!(client.call(&half, &chunk(&pieces[0])), ok());

    let writing = Writing::default();
    let number = slot(&tag);
    let writers: Vec<(Added, ClusterClient)> = std::thread::scope(|scope| {
        let end = Stop(&writing);
        let keys = [large.clone(), small.clone(), fresh.clone(), window.clone()];
        let running: Vec<_> = (0..2)
            .map(|writer| {
                let (client, keys, writing) = (cluster.client(), keys.clone(), &writing);
                scope.spawn(move || {
                    write(client, &format!("writer-{writer}"), &keys, false, writing)
                })
            })
            .collect();
        writing.wait_for_more(50);
        let (from, to) = (&cluster.ids[0], &cluster.ids[1]);
        assert_eq!(target.run(&format!("CLUSTER SETSLOT {number} IMPORTING {from}")), ok());
        assert_eq!(source.run(&format!("CLUSTER SETSLOT {number} MIGRATING {to}")), ok());
        let begin = Instant::now();
        let mut slowest = Duration::ZERO;
        loop {
            let keys = source.run(&format!("CLUSTER GETKEYSINSLOT {number} 1"));
            let Some(key) = keys.elements().first() else {
                break;
            };
            let port = cluster.nodes[1].port().to_string();
            let sent = Instant::now();
            let reply =
                source.cmd(&["MIGRATE", "127.0.0.1", &port, "", "0", "30000", "KEYS", &key.text()]);
            assert_eq!(reply, ok(), "MIGRATE {key:?}");
            slowest = slowest.max(sent.elapsed());
            writing.wait_for_more(2);
        }
        for node in [1, 0, 2] {
            let line = format!("CLUSTER SETSLOT {number} NODE {to}");
            let node = &mut cluster.nodes[node].client();
            // Valkey waits for its replica, and answers NOREPLICAS while the replica is busy.
            wait_until("a node knows the new owner", || node.run(&line) == ok());
        }
        println!(
            "the slot moved in {:.1?}, MIGRATE of {size} bytes took {slowest:.1?}",
            begin.elapsed()
        );
        writing.wait_for_more(50);
        drop(end);
        running.into_iter().map(|writer| writer.join().expect("a client failed")).collect()
    });
    let (mut acknowledged, mut asked, mut moved) = (0, 0, 0);
    for (items, client) in writers {
        acknowledged += items.iter().map(|(_, items)| items.len()).sum::<usize>();
        asked += client.asked;
        moved += client.moved;
        added.extend(items);
    }
    println!(
        "{acknowledged} additions acknowledged meanwhile; {asked} ASK and {moved} MOVED \
         redirections"
    );
    assert!(asked > 0 && moved > 0, "{asked} ASK and {moved} MOVED redirections");
    assert_eq!(client.call(&half, &chunk(&pieces[1])), ok(), "the load continues on the new node");
    assert_all_there(&mut client, &added);
    assert_eq!(client.owner(&half), cluster.nodes[1].port());
    assert_eq!(source.run("DBSIZE"), int(0), "the source has no keys left");
    wait_until("the replica acknowledges", || client.wait(&half) == 1);
    for key in [&large, &small, &half, &fresh, &window] {
        assert_eq!(
            digest(&mut cluster.nodes[4].client(), key),
            digest(target, key),
            "{key} on the replica"
        );
    }
    for node in &cluster.nodes {
        assert_unharmed(node);
    }
}

/// Redis 8.4 and Valkey 9 send a snapshot of the slot, then a stream of its writes.
#[test]
fn atomic_slot_migration_keeps_filters() {
    let newer = version().at_least((8, 4), (9, 0));
    if !newer {
        skipped("atomic_slot_migration_keeps_filters", "this server has no atomic slot migration");
        return;
    }
    let cluster = Cluster::start();
    let mut client = cluster.client();
    let tag = key_of(0, "tag");
    let key = |name: &str| format!("{{{tag}}}{name}");
    let (large, small, half) = (key("large"), key("small"), key("half"));
    let (copy, made, window) = (key("copy"), key("made"), key("window"));
    let (source, target) = (&mut cluster.nodes[0].client(), &mut cluster.nodes[1].client());
    // The target accepts writes from another node as from a primary: its limit does not apply.
    let bound = config_name("max-filter-bytes");
    assert_eq!(target.cmd(&["CONFIG", "SET", &bound, "1mb"]), ok());
    assert_eq!(source.cmd(&["BF.RESERVE", &large, "0.01", "60000000"]), ok());
    assert_eq!(source.cmd(&["BF.RESERVE", &small, "0.01", "50"]), ok());
    // Its first generation begins with the first item, before or while the slot moves.
    assert_eq!(source.cmd(&["BF.RESERVE", &window, "0.01", "1000", "WINDOW", "EX", "600"]), ok());
    let mut added: Added = vec![
        (large.clone(), add_until_card(source, &large, "before", 50_000)),
        (small.clone(), add_until_card(source, &small, "before", 500)),
    ];
    let header = dump(source, &small).swap_remove(0);
    assert_eq!(source.call("BF.LOADCHUNK", &half, &[b"1", &header.1[..]]), ok());
    let digests = |client: &mut Client| {
        [&large, &small, &half, &copy, &made, &window].map(|key| digest(client, key))
    };
    let number = slot(&tag);
    let writing = Writing::default();
    let writers: Vec<Added> = std::thread::scope(|scope| {
        let end = Stop(&writing);
        let keys = [large.clone(), small.clone(), window.clone()];
        let running: Vec<_> = (0..2)
            .map(|writer| {
                let (client, keys, writing) = (cluster.client(), keys.clone(), &writing);
                scope.spawn(move || {
                    write(client, &format!("writer-{writer}"), &keys, false, writing).0
                })
            })
            .collect();
        let begin = Instant::now();
        let mut move_slot = || {
            if version().valkey {
                let to = &cluster.ids[1];
                source.run(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {number} {number} NODE {to}"))
            } else {
                target.run(&format!("CLUSTER MIGRATION IMPORT {number} {number}"))
            }
        };
        let reply = move_slot();
        assert!(!reply.is_error(), "{reply:?}");
        // These writes reach the target after the snapshot, and its limit must not apply to them.
        // (If the slot has moved already, the target itself refuses the second one.)
        for line in [format!("COPY {large} {copy}"), format!("BF.RESERVE {made} 0.01 10000000")] {
            let words: Vec<&str> = line.split(' ').collect();
            println!("{line}: {:?}", client.call(&large, &words));
        }
        // A migration fails if a busy machine does not answer in time. A new request is refused
        // while a migration runs.
        let watcher = &mut cluster.nodes[1].client();
        wait_until("the slot has moved", || {
            owns_slot(watcher, number) || {
                move_slot();
                false
            }
        });
        println!("the slot moved in {:.1?}", begin.elapsed());
        writing.wait_for_more(50);
        drop(end);
        running.into_iter().map(|writer| writer.join().expect("a client failed")).collect()
    });
    added.extend(writers.into_iter().flatten());
    assert_all_there(&mut client, &added);
    assert_eq!(client.owner(&small), cluster.nodes[1].port());
    let replica = &mut cluster.nodes[4].client();
    wait_until("the replica is identical", || digests(replica) == digests(target));
    let Reply::Error(text) = target.cmd(&["BF.CARD", &half]) else {
        panic!("a half-loaded filter answers BF.CARD")
    };
    assert!(text.contains("LOADCHUNK"), "{text}");
    for node in &cluster.nodes {
        assert_unharmed(node);
        assert!(!node.log().contains("CRITICAL"), "{}", node.log());
    }
}

/// Whether the node owns the slot, by its own CLUSTER NODES.
fn owns_slot(node: &mut Client, slot: usize) -> bool {
    let reply = node.run("CLUSTER NODES").text();
    let own = reply.lines().find(|line| line.contains("myself")).unwrap_or_default();
    own.split_whitespace().skip(8).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&slot),
            _ => false,
        }
    })
}

#[test]
fn what_a_replica_acknowledged_survives_the_death_of_a_primary() {
    let mut cluster = Cluster::start();
    let keys: Vec<String> = (0..PRIMARIES)
        .flat_map(|primary| [key_of(primary, "grown"), key_of(primary, "layers")])
        .collect();
    let mut client = cluster.client();
    for key in &keys {
        let expansion = if key.starts_with("grown") { "2" } else { "1" };
        assert_eq!(
            client.call(key, &["BF.RESERVE", key, "0.001", "50", "EXPANSION", expansion]),
            ok()
        );
    }
    let writing = Writing::default();
    let new_primary = cluster.nodes[PRIMARIES].port();
    let added: Vec<Added> = std::thread::scope(|scope| {
        let end = Stop(&writing);
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (client, keys, writing) = (cluster.client(), &keys, &writing);
                scope.spawn(move || {
                    write(client, &format!("writer-{writer}"), keys, true, writing).0
                })
            })
            .collect();
        writing.wait_for_more(200);
        let begin = Instant::now();
        cluster.nodes[0].kill();
        // The writers find the new primary by themselves; `watcher` polls it.
        let watcher = &mut cluster.nodes[PRIMARIES].client();
        wait_until("the replica takes over", || {
            watcher.server_info("replication", "role") == "master"
                && watcher.run("CLUSTER INFO").text().contains("cluster_state:ok")
        });
        println!("the replica took over after {:.1?}", begin.elapsed());
        let before = watcher.server_info("replication", "master_repl_offset");
        wait_until("the clients write to it", || {
            watcher.server_info("replication", "master_repl_offset") != before
        });
        writing.wait_for_more(30);
        drop(end);
        writers.into_iter().map(|writer| writer.join().expect("a client failed")).collect()
    });
    let mut acknowledged = 0;
    for added in &added {
        acknowledged += added.iter().map(|(_, items)| items.len()).sum::<usize>();
        assert_all_there(&mut client, added);
    }
    println!("{acknowledged} additions acknowledged under WAIT 1, none lost");
    assert_eq!(client.owner(&keys[0]), new_primary);
    // The dead primary comes back as a replica of the new one.
    cluster.nodes[0].relaunch();
    let back = &mut cluster.nodes[0].client();
    wait_until("it is in sync with the new primary", || {
        back.server_info("replication", "role") == "slave"
            && back.server_info("replication", "master_link_status") == "up"
    });
    client.call(&keys[0], &["BF.ADD", &keys[0], "last"]);
    wait_until("the replica acknowledges", || client.wait(&keys[0]) == 1);
    for key in &keys[..2] {
        assert_eq!(digest(back, key), digest(&mut cluster.nodes[PRIMARIES].client(), key), "{key}");
        let more = numbered("more", 300);
        let words = ["BF.MADD", key].into_iter().chain(more.iter().map(String::as_str));
        assert!(!client.call(key, &words.collect::<Vec<_>>()).is_error());
    }
    assert_eq!(back.run("PING"), simple("PONG"));
    for node in &cluster.nodes {
        assert_unharmed(node);
    }
}
