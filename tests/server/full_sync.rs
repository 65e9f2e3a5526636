//! Full synchronization of a filter of 256 MiB in every mode of a server, and what clients of the
//! replica read meanwhile.

use std::time::Instant;

use crate::harness::{
    Server, add_until_card, assert_unharmed, digest, info, int, madd, numbered, ok, wait_until,
};

#[test]
fn a_filter_of_256_mib_is_copied_in_every_way() {
    let primary = Server::start();
    let client = &mut primary.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 205000000"), ok());
    let size = info(client, "k").size;
    assert!(size > 256 << 20, "{size} bytes");
    madd(client, "k", &numbered("item", 50_000));
    let expected = digest(client, "k");
    for (diskless, socket) in [("yes", "swapdb"), ("yes", "disabled"), ("no", "disabled")] {
        assert_eq!(client.cmd(&["CONFIG", "SET", "repl-diskless-sync", diskless]), ok());
        let begin = Instant::now();
        let replica = Server::with()
            .config(&format!("repl-diskless-load {socket}"))
            .replica_of(&primary)
            .start();
        let read = &mut replica.client();
        wait_until("the replica is in sync", || {
            read.server_info("replication", "master_link_status") == "up"
        });
        let took = begin.elapsed();
        assert_eq!(digest(read, "k"), expected);
        let cow = client.server_info("persistence", "rdb_last_cow_size");
        println!(
            "repl-diskless-sync {diskless}, repl-diskless-load {socket}: {size} bytes in \
             {took:.1?}, {cow} bytes copied by the child"
        );
        assert_unharmed(&replica);
    }
}

/// With `repl-diskless-load swapdb`, a replica that needs a full copy again answers from its old
/// data meanwhile, and no answer is wrong.
#[test]
fn a_replica_answers_from_its_old_data_while_a_new_copy_comes() {
    let primary =
        Server::with().config("repl-diskless-sync yes").config("repl-backlog-size 16kb").start();
    let client = &mut primary.client();
    for key in 0..400 {
        client.run(&format!("BF.ADD filler{key} a"));
    }
    assert_eq!(client.run("BF.RESERVE k 0.001 1000"), ok());
    let old = add_until_card(client, "k", "old", 3_000);
    let replica = Server::with()
        .config("repl-diskless-load swapdb")
        .config("loading-process-events-interval-bytes 1024")
        .replica_of(&primary)
        .start();
    let read = &mut replica.client();
    wait_until("the replica is in sync", || {
        read.server_info("replication", "master_link_status") == "up"
    });
    // While the replica sleeps, its link is cut and more than the backlog is written, so it needs a
    // full copy. It then takes 2 ms to load a key.
    assert_eq!(read.run("CONFIG SET key-load-delay 2000"), ok());
    let (watcher, sleeper) = (&mut replica.client(), &mut replica.client());
    sleeper.send(&["DEBUG", "SLEEP", "0.3"]);
    assert_eq!(client.run("CLIENT KILL TYPE replica"), int(1));
    let new = add_until_card(client, "k", "new", 6_000);
    for _ in 0..20 {
        client.cmd(&["SET", "filler", &"x".repeat(10_000)]);
    }
    assert_eq!(sleeper.read(), ok());
    wait_until("the replica begins to load", || {
        watcher.server_info("persistence", "async_loading") == "1"
    });
    let mut answers = 0;
    while watcher.server_info("persistence", "async_loading") == "1" {
        for item in [&old[answers % old.len()], &old[0]] {
            let reply = read.cmd(&["BF.EXISTS", "k", item]);
            assert_eq!(reply, int(1), "{item} while loading");
        }
        answers += 1;
    }
    println!("{answers} rounds of queries of the old data while the new data was loaded");
    assert!(answers > 10, "only {answers} rounds of queries: the load was too short");
    wait_until("the replica is in sync again", || {
        watcher.server_info("replication", "master_link_status") == "up"
    });
    assert_eq!(digest(read, "k"), digest(client, "k"));
    assert_eq!(read.cmd(&["BF.EXISTS", "k", &new[0]]), int(1));
    assert_unharmed(&replica);
}
