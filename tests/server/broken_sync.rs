//! A replica whose full synchronization is cut or damaged tries again, and ends with identical
//! filters.

use crate::harness::{
    Client, Fault, Proxy, Random, Server, add_until_card, assert_no_crash, assert_unharmed, digest,
    load, ok, settled_memory, skipped, version, wait_until,
};

const KEYS: [&str; 4] = ["small", "narrow", "large", "half"];

/// A primary with filters of 11 MB in total, one of them half loaded.
fn primary(setting: &str) -> Server {
    let server = Server::with()
        .config(setting)
        .config("repl-diskless-sync yes")
        .config("rdbcompression no")
        .start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE small 0.01 100"), ok());
    assert_eq!(client.run("BF.RESERVE narrow 0.01 1 EXPANSION 1"), ok());
    assert_eq!(client.run("BF.RESERVE large 0.01 8000000"), ok());
    for (key, card) in [("small", 500), ("narrow", 300), ("large", 20_000)] {
        add_until_card(client, key, "item", card);
    }
    let header = crate::harness::dump(client, "narrow").swap_remove(0);
    assert_eq!(load(client, "half", &header), ok());
    server
}

#[track_caller]
fn wait_for_link(replica: &mut Client) {
    wait_until("the replica is in sync", || {
        replica.server_info("replication", "master_link_status") == "up"
    });
}

#[track_caller]
fn assert_same(primary: &Server, replica: &Server) {
    let (client, read) = (&mut primary.client(), &mut replica.client());
    for key in KEYS {
        assert_eq!(digest(read, key), digest(client, key), "{key}");
    }
    assert_unharmed(replica);
}

/// Random cuts: three in the first 10 MB, one among the first small filters.
fn cuts(seed: u64) -> Vec<Fault> {
    let mut random = Random::new(seed);
    let mut cuts: Vec<Fault> =
        (0..3).map(|_| Fault::Cut(500 + random.next() % 10_000_000)).collect();
    cuts.push(Fault::Cut(400 + random.next() % 1_500));
    cuts
}

/// The connection over which a replica receives the full synchronization.
#[derive(Clone, Copy, PartialEq)]
enum Channel {
    /// The connection that also carries the commands.
    Same,
    /// A second connection (Redis 8, Valkey 8).
    Own,
}

/// The configuration line that selects `channel`; `None` on a server without this setting.
fn channel_setting(channel: Channel) -> Option<String> {
    let value = if channel == Channel::Own { "yes" } else { "no" };
    let version = version();
    version.at_least((8, 0), (8, 0)).then(|| match version.valkey {
        true => format!("dual-channel-replication-enabled {value}"),
        false => format!("repl-rdb-channel {value}"),
    })
}

fn a_replica_survives_cuts(load: &str, channel: Channel, seed: u64) {
    let setting = channel_setting(channel).unwrap_or_default();
    let primary = primary(&setting);
    // Of two connections the one with the commands is too short for a cut.
    let proxy = Proxy::before(primary.port(), &cuts(seed));
    let builder = || Server::with().config(&format!("repl-diskless-load {load}")).config(&setting);
    let replica = builder().config(&format!("replicaof 127.0.0.1 {}", proxy.port())).start();
    wait_until("every cut happened", || proxy.left() == 0);
    wait_for_link(&mut replica.client());
    assert_same(&primary, &replica);
    let log = replica.log();
    let attempts = log.matches("receiving streamed RDB").count();
    println!("{load}: {attempts} attempts at a full synchronization");
    assert!(attempts >= 3, "only {attempts} attempts:\n{log}");
    // The memory of incomplete copies is freed.
    let used = settled_memory(&replica);
    let fresh = builder().replica_of(&primary).start();
    wait_for_link(&mut fresh.client());
    let left = used - settled_memory(&fresh);
    assert!(left < 500_000, "{left} bytes of the failed copies are left");
    // Replication continues.
    let client = &mut primary.client();
    add_until_card(client, "small", "more", 900);
    assert_eq!(client.run("WAIT 2 30000").int(), 2);
    assert_same(&primary, &replica);
}

#[test]
fn a_replica_that_loads_from_the_socket_survives_cuts() {
    a_replica_survives_cuts("swapdb", Channel::Same, 1);
}

#[test]
fn a_replica_that_loads_from_disk_survives_cuts() {
    a_replica_survives_cuts("disabled", Channel::Same, 2);
}

#[test]
fn a_replica_that_loads_from_a_second_connection_survives_cuts() {
    if channel_setting(Channel::Own).is_none() {
        skipped(
            "a_replica_that_loads_from_a_second_connection_survives_cuts",
            "this server has no second connection for copies",
        );
        return;
    }
    a_replica_survives_cuts("swapdb", Channel::Own, 3);
    a_replica_survives_cuts("disabled", Channel::Own, 4);
}

/// Damage within the data, not a cut. By design the server stops then, for any type ("Terminating
/// server after rdb file reading failure"), or tries again. It does not crash, and the next attempt
/// succeeds.
#[test]
fn a_replica_whose_first_copy_is_damaged_stops_or_tries_again() {
    let setting = channel_setting(Channel::Same).unwrap_or_default();
    let primary = primary(&setting);
    let file = {
        let client = &mut primary.client();
        assert_eq!(client.run("SAVE"), ok());
        std::fs::read(primary.dir().join("dump.rdb")).expect("the dump file")
    };
    let header = file.windows(6).position(|window| window == b"rbloom").expect("a header") as u64;
    let mut stopped = 0;
    for (what, at) in [
        ("a header", header + 12),
        ("the end of a header", header + 130),
        ("the bits", file.len() as u64 / 2),
    ] {
        // About 150 bytes of handshake precede the file.
        let proxy = Proxy::before(primary.port(), &[Fault::Change(at + 150)]);
        let mut replica =
            Server::with().config("repl-diskless-load swapdb").config(&setting).start();
        let mut read = replica.client();
        assert_eq!(read.run(&format!("REPLICAOF 127.0.0.1 {}", proxy.port())), ok());
        wait_until("the damage arrived", || proxy.left() == 0);
        let mut up = false;
        wait_until("the replica stops or is in sync", || {
            match read.try_cmd(&["INFO", "replication"]) {
                Ok(reply) => {
                    up = reply.text().contains("master_link_status:up");
                    up
                }
                Err(_) => true,
            }
        });
        assert_no_crash(&replica.log());
        if !up {
            stopped += 1;
            replica.kill();
            replica.configure(&format!("replicaof 127.0.0.1 {}", proxy.port()));
            replica.relaunch();
            wait_for_link(&mut replica.client());
        }
        assert_same(&primary, &replica);
        println!(
            "damage in {what}: the replica {}",
            if up { "tried again" } else { "stopped, as the server does for any type" }
        );
    }
    println!("{stopped} of 3 stopped");
}
