//! A replica holds the filters of its master, after the full synchronization and after the stream.

use crate::harness::{Client, Server, add_until_card, config_name, int, mexists, numbered, ok};

/// Waits until the replica has acknowledged everything sent so far.
#[track_caller]
fn in_sync(master: &mut Client) {
    assert_eq!(master.run("WAIT 1 30000"), int(1), "the replica did not acknowledge");
}

#[test]
fn a_replica_holds_the_items_of_its_master() {
    let master = Server::start();
    let client = &mut master.client();
    assert_eq!(client.run("BF.RESERVE before 0.01 100"), ok());
    let before = add_until_card(client, "before", "item", 1_000);
    let replica = master.replica();
    let read = &mut replica.client();
    assert_eq!(read.run("BF.DEBUG before"), client.run("BF.DEBUG before"));
    assert_eq!(
        read.run("DUMP before"),
        client.run("DUMP before"),
        "the full synchronization copies every byte"
    );

    client.run("BF.RESERVE after 0.001 50 EXPANSION 3");
    let after = add_until_card(client, "after", "item", 500);
    let more = numbered("more", 500);
    client.call("BF.MADD", "before", &more);
    client.run("BF.ADD made_by_add a");
    client.run("BF.INSERT made_by_insert CAPACITY 10 NONSCALING ITEMS a b");
    in_sync(client);
    for (key, items) in [("before", &before), ("before", &more), ("after", &after)] {
        assert!(
            mexists(read, key, items).iter().all(|&there| there),
            "an item of {key} is not on the replica"
        );
    }
    assert_eq!(read.run("BF.EXISTS made_by_add a"), int(1));
    assert_eq!(read.run("BF.MEXISTS made_by_insert a b").answers(), [true, true]);
    let text = "a replica refuses writers";
    assert!(read.run("BF.ADD before x").error().starts_with("READONLY"), "{text}");
}

/// The replica must get every random choice of the master, above all the seed, and must not use its
/// own defaults.
#[test]
fn a_replica_with_other_defaults_has_identical_filters() {
    let master = Server::start();
    let replica = master.replica();
    let (client, read) = (&mut master.client(), &mut replica.client());
    for (name, value) in [("error-rate", "0.2"), ("initial-size", "7"), ("expansion-factor", "0")] {
        assert_eq!(read.cmd(&["CONFIG", "SET", &config_name(name), value]), ok(), "{name}");
    }
    client.run("BF.RESERVE reserved 0.01 100");
    client.run("BF.RESERVE exact 0.123456789012345678 100 NONSCALING");
    client.run("BF.RESERVE counting 0.01 100 COUNTING");
    add_until_card(client, "counting", "item", 400);
    for items in numbered("item", 400).chunks(50) {
        // BF.DEL deletes some items and refuses others; BF.MADD also gets known items.
        client.call("BF.DEL", "counting", items);
        client.call("BF.MADD", "counting", &items[..20]);
    }
    client.run(
        "BF.INSERT counting_inserted CAPACITY 3 ERROR 0.1 NONSCALING COUNTING ITEMS a b a c d e f",
    );
    client.run("BF.ADD counting_inserted a");
    client.run("BF.DEL counting_inserted a x");
    add_until_card(client, "reserved", "item", 400);
    add_until_card(client, "exact", "item", 90);
    add_until_card(client, "added", "item", 400);
    client.run("BF.ADD single item");
    client.call("BF.MADD", "many", &numbered("item", 400));
    client.run("BF.INSERT inserted CAPACITY 3 ERROR 0.1 NONSCALING ITEMS a b a c d e f");
    client.run("BF.MADD inserted a b x y z");
    client.run("BF.INSERT options EXPANSION 5 ITEMS a ITEMS b");
    client.cmd(&[&b"BF.MADD"[..], b"binary", b"", b"\0", b"\r\n", b"\xff"]);
    client.cmd(&[
        "EVAL",
        "redis.call('BF.ADD', KEYS[1], 'a'); redis.call('BF.MADD', KEYS[1], 'a', 'b')",
        "1",
        "script",
    ]);
    client.run("MULTI");
    client.run("BF.ADD transaction a");
    client.run("BF.MADD transaction a b");
    client.run("EXEC");
    in_sync(client);
    let keys = [
        "reserved",
        "exact",
        "counting",
        "counting_inserted",
        "added",
        "single",
        "many",
        "inserted",
        "options",
        "binary",
        "script",
        "transaction",
    ];
    for key in keys {
        for command in ["BF.DEBUG", "BF.INFO", "DUMP"] {
            assert_eq!(read.cmd(&[command, key]), client.cmd(&[command, key]), "{command} {key}");
        }
    }
    assert!(
        !replica.log().contains("CRITICAL"),
        "the replica refused a command:\n{}",
        replica.log()
    );
}

/// A filter that deduplicates a stream gets mostly commands that change nothing.
#[test]
fn a_command_that_changes_nothing_is_not_replicated() {
    let master = Server::start();
    let replica = master.replica();
    let (client, read) = (&mut master.client(), &mut replica.client());
    client.run("BF.RESERVE full 0.001 2 NONSCALING");
    client.run("BF.MADD full a b");
    client.run("BF.MADD k a b c");
    client.run("BF.INSERT counting COUNTING ITEMS a");
    in_sync(client);
    let received = |read: &mut Client| {
        let stats = read.run("INFO commandstats").text();
        let ours = stats.lines().filter(|line| line.starts_with("cmdstat_bf."));
        ours.map(|line| {
            line.split(['=', ','])
                .nth(1)
                .and_then(|calls| calls.parse::<u64>().ok())
                .expect("calls")
        })
        .sum::<u64>()
    };
    let before = received(read);
    assert!(before > 0, "the replica got the first commands");
    for line in [
        "BF.ADD k a",
        "BF.MADD k a b c a",
        "BF.INSERT k ITEMS a b",
        "BF.INSERT k CAPACITY 1000 NOCREATE ITEMS c",
        "BF.ADD full c",
        "BF.MADD full a c d",
        "BF.RESERVE k 0.01 100",
        "BF.EXISTS k z",
        "BF.DEL counting z",
        "BF.DEL k a",
        "BF.DEL missing a",
        "BF.COUNT counting a",
    ] {
        client.run(line);
    }
    in_sync(client);
    assert_eq!(received(read), before);
    client.run("BF.ADD k d");
    in_sync(client);
    assert_eq!(received(read), before + 1, "a change is replicated as one command");
}
