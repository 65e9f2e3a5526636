//! The setting `layout redisbloom`: new filters are RedisBloom's, byte for byte, and go back to it.
//! `REDIS_BLOOM_PEER_REDISBLOOM` is the path of its library; without it the last tests print
//! SKIPPED.

use crate::{
    as_there::{check_first, go_on},
    harness::{
        Client, Reply, Server, array, config_name, digest, dump, err, int, load, mexists, numbered,
        ok, wait_until,
    },
    products::{Answers, pieces},
    redisbloom_live::{copy_files, peer, redisbloom},
};

const REFUSED: &str = "ERR SEED, COUNTING, SHARD and WINDOW need the layout native: RedisBloom has \
                       no such filters (setting layout)";

fn probation() -> Server {
    Server::with().config(&format!("{} redisbloom", config_name("layout"))).start()
}

#[track_caller]
fn layout(client: &mut Client, key: &str) -> String {
    client.cmd(&["BF.INFO", key, "LAYOUT"]).elements()[0].text().to_owned()
}

#[track_caller]
fn set_layout(client: &mut Client, layout: &str) {
    assert_eq!(client.cmd(&["CONFIG", "SET", &config_name("layout"), layout]), ok());
}

/// The fixtures are of RedisBloom itself, made by the same commands.
#[test]
fn a_new_filter_has_every_byte_of_redisblooms() {
    let server = probation();
    let client = &mut server.client();
    for (name, make) in [
        ("redisbloom-2.8-one-layer", "0.01 100"),
        ("redisbloom-2.8-grown", "0.05 50 EXPANSION 3"),
        ("redisbloom-8.8-grown", "0.05 50 EXPANSION 3"),
        ("redisbloom-2.8-nonscaling", "0.02 200 NONSCALING"),
    ] {
        assert_eq!(client.run(&format!("BF.RESERVE {name} {make}")), ok(), "{name}");
        client.call("BF.MADD", name, &numbered("item", Answers::read(name).added));
        assert_eq!(dump(client, name), pieces(name), "{name}");
        check_first(client, name, name);
        go_on(client, name, name);
    }
}

#[test]
fn every_command_that_creates_a_filter_obeys_the_setting() {
    let server = probation();
    let client = &mut server.client();
    let makes = [
        "BF.RESERVE k 0.01 100",
        "BF.ADD k a",
        "BF.MADD k a b",
        "BF.INSERT k ERROR 0.01 ITEMS a",
        "BF.BULKADD k LINES a",
    ];
    for (set, shown) in [("redisbloom", "redisbloom"), ("native", "native")] {
        set_layout(client, set);
        for make in makes {
            assert!(!client.run(make).is_error(), "{make}");
            assert_eq!(layout(client, "k"), shown, "{make}");
            assert_eq!(client.run("DEL k"), int(1));
        }
    }
    // The setting decides of new filters alone.
    client.run("BF.ADD kept a");
    set_layout(client, "redisbloom");
    client.run("BF.ADD kept b");
    assert_eq!(layout(client, "kept"), "native");
}

#[test]
fn words_that_redisbloom_lacks_are_refused() {
    let server = probation();
    let client = &mut server.client();
    let seed = "x".repeat(32);
    for words in
        ["SEED 1", "COUNTING", "SHARD 1 2", "WINDOW EX 60", &format!("SEED {seed}")].into_iter()
    {
        let insert = format!("BF.INSERT k {words} ITEMS a");
        assert_eq!(client.run(&insert), err(REFUSED), "{words}");
        if !words.contains(&seed) {
            let reserve = format!("BF.RESERVE k 0.01 100 {words}");
            assert_eq!(client.run(&reserve), err(REFUSED), "{words}");
            set_layout(client, "native");
            assert_eq!(client.run(&reserve), ok(), "{words}");
            assert_eq!(client.run("DEL k"), int(1));
            set_layout(client, "redisbloom");
        }
        assert_eq!(client.run("EXISTS k"), int(0), "{words}");
    }
}

/// RedisBloom 8 does the same. So both versions make the same filter of the replicated command.
#[test]
fn a_rate_above_a_quarter_becomes_a_quarter() {
    let server = probation();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.3 100"), ok());
    assert_eq!(client.run("BF.RESERVE quarter 0.25 100"), ok());
    assert_eq!(client.run("BF.DEBUG k"), client.run("BF.DEBUG quarter"));
}

/// Replicas and restarts make equal filters, whatever their own setting is.
#[test]
fn the_layout_is_the_primarys() {
    for (set, there) in [("redisbloom", "native"), ("native", "redisbloom")] {
        let mut primary = Server::with().config("appendonly yes").start();
        let client = &mut primary.client();
        set_layout(client, set);
        let replica = primary.replica();
        let read = &mut replica.client();
        set_layout(read, there);
        client.run("BF.RESERVE reserved 0.02 50 EXPANSION 4");
        client.run("BF.INSERT full CAPACITY 20 NONSCALING ITEMS a");
        // RedisBloom takes a key of this name for the option.
        client.run("BF.RESERVE NONSCALING 0.02 50");
        client.call("BF.MADD", "reserved", &numbered("item", 300));
        client.call("BF.MADD", "NONSCALING", &numbered("item", 300));
        client.run("BF.ADD added a");
        client.call("BF.MADD", "many", &numbered("item", 500));
        assert_eq!(client.run("WAIT 1 30000"), int(1));
        let keys = ["reserved", "full", "NONSCALING", "added", "many"];
        let digests = keys.map(|key| digest(client, key));
        assert_eq!(keys.map(|key| layout(client, key)), [set; 5]);
        assert_eq!(keys.map(|key| digest(read, key)), digests, "{set}");
        primary.configure(&format!("{} {there}", config_name("layout")));
        primary.kill_and_restart();
        assert_eq!(keys.map(|key| digest(&mut primary.client(), key)), digests, "{set}");
    }
}

/// Rewrites the AOF, without RDB preamble, and stops the server.
#[track_caller]
fn rewrite_and_stop(server: &mut Server) {
    let client = &mut server.client();
    rewrite(client);
    client.send(&["SHUTDOWN", "SAVE"]);
    server.wait_for_exit();
}

/// Rewrites the AOF to its end.
#[track_caller]
pub(crate) fn rewrite(client: &mut Client) {
    assert!(!client.run("BGREWRITEAOF").is_error());
    wait_until("the AOF is rewritten", || {
        let mut shows = |field, value| client.server_info("persistence", field) == value;
        shows("aof_rewrite_scheduled", "0") && shows("aof_rewrite_in_progress", "0")
    });
    assert_eq!(client.server_info("persistence", "aof_last_bgrewrite_status"), "ok");
}

pub(crate) const AOF: [&str; 2] = ["appendonly yes", "aof-use-rdb-preamble no"];

/// docs/guide/migration.md from one end to the other: RedisBloom, this module, RedisBloom, this
/// module. Filters are created and grown on each, and merged here; no answer differs.
#[test]
fn twenty_filters_go_there_and_back_and_there_again() {
    let Some(path) = peer("twenty_filters_go_there_and_back_and_there_again") else {
        return;
    };
    let asked = [numbered("item", 4_000), numbered("absent", 6_000)].concat();
    let mut keys = Vec::new();
    // Creates filters named after the stage, and adds to all: they grow.
    let mut work = |client: &mut Client, stage: &str, from: usize| {
        for number in 0..5 {
            let key = format!("{stage}-{number}");
            match number {
                0 => client.run(&format!("BF.RESERVE {key} 0.01 100")),
                1 => client.run(&format!("BF.RESERVE {key} 0.02 50 EXPANSION 3")),
                2 => client.run(&format!("BF.RESERVE {key} 0.001 4000 NONSCALING")),
                3 => client.run(&format!("BF.ADD {key} item-0")),
                _ => client.run(&format!("BF.INSERT {key} CAPACITY 300 ERROR 0.2 ITEMS item-0")),
            };
            keys.push(key);
        }
        for key in &keys {
            client.call("BF.MADD", key, &asked[from..from + 1_000]);
        }
        keys.clone()
    };
    let answers = |client: &mut Client, keys: &[String]| -> Vec<_> {
        keys.iter()
            .map(|key| (mexists(client, key, &asked), client.cmd(&["BF.DEBUG", key])))
            .collect()
    };
    let mut old = redisbloom(&path);
    AOF.iter().for_each(|line| old.configure(line));
    old.kill();
    old.relaunch();
    let made = work(&mut old.client(), "old", 0);
    let expected = answers(&mut old.client(), &made);
    rewrite_and_stop(&mut old);

    let mut new = probation();
    new.kill();
    copy_files(old.dir(), new.dir());
    AOF.iter().for_each(|line| new.configure(line));
    new.relaunch();
    let client = &mut new.client();
    assert!(answers(client, &made) == expected, "there");
    let mut made = work(client, "new", 1_000);
    client.run("BF.RESERVE part-1 0.01 3000");
    client.run("BF.RESERVE part-2 0.01 3000");
    client.call("BF.MADD", "part-1", &asked[..1_000]);
    client.call("BF.MADD", "part-2", &asked[1_000..2_000]);
    assert_eq!(client.run("BF.MERGE union part-1 part-2"), ok());
    made.extend(["part-1", "part-2", "union"].map(str::to_owned));
    assert!(made.iter().all(|key| layout(client, key) == "redisbloom"));
    let expected = answers(client, &made);
    // By chunks, to a server that knows none of them.
    let fresh = redisbloom(&path);
    let loaded = &mut fresh.client();
    for key in &made {
        for piece in dump(client, key) {
            assert_eq!(load(loaded, key, &piece), ok(), "{key}");
        }
    }
    assert!(answers(loaded, &made) == expected, "by chunks");
    rewrite_and_stop(&mut new);

    old.kill();
    copy_files(new.dir(), old.dir());
    old.relaunch();
    assert!(answers(&mut old.client(), &made) == expected, "back");
    let mut made = work(&mut old.client(), "again", 2_000);
    made.push("union".to_owned());
    let expected = answers(&mut old.client(), &made);
    rewrite_and_stop(&mut old);
    copy_files(old.dir(), new.dir());
    new.relaunch();
    assert!(answers(&mut new.client(), &made) == expected, "there again");
}

/// Commands since the last rewrite are in an AOF as clients wrote them, or nearly: RedisBloom makes
/// the same filters of them.
#[test]
fn redisbloom_reads_the_commands_that_create_filters() {
    let Some(path) = peer("redisbloom_reads_the_commands_that_create_filters") else {
        return;
    };
    let mut new = probation();
    AOF.iter().for_each(|line| new.configure(line));
    new.configure("save 3600 1");
    new.kill();
    new.relaunch();
    let client = &mut new.client();
    let asked = [numbered("item", 1_000), numbered("absent", 4_000)].concat();
    client.run("BF.RESERVE reserved 0.02 50 EXPANSION 4");
    client.run("BF.RESERVE full 1e-3 2000 NONSCALING");
    client.run("BF.RESERVE wide 0.6 100");
    client.run("BF.ADD added item-0");
    client.run("BF.INSERT inserted CAPACITY 300 ERROR 0.2 EXPANSION 1 ITEMS item-0 item-1");
    client.call("BF.MADD", "many", &asked[..500]);
    let keys = ["reserved", "full", "wide", "added", "inserted", "many"];
    for key in keys {
        client.call("BF.MADD", key, &asked[..1_000]);
    }
    let state = |client: &mut Client| {
        keys.map(|key| (mexists(client, key, &asked), client.cmd(&["BF.DEBUG", key])))
    };
    let expected = state(client);
    client.send(&["SHUTDOWN", "SAVE"]);
    new.wait_for_exit();
    let mut old = redisbloom(&path);
    old.kill();
    copy_files(new.dir(), old.dir());
    AOF.iter().for_each(|line| old.configure(line));
    old.relaunch();
    assert!(state(&mut old.client()) == expected);
}

/// docs/guide/migration.md: RedisBloom does not start on an AOF with a command that it lacks, and
/// does so after the next rewrite.
#[test]
fn a_rewrite_replaces_commands_that_redisbloom_lacks() {
    let Some(path) = peer("a_rewrite_replaces_commands_that_redisbloom_lacks") else {
        return;
    };
    let mut new = probation();
    AOF.iter().for_each(|line| new.configure(line));
    new.kill();
    new.relaunch();
    let client = &mut new.client();
    let asked = numbered("item", 1_000);
    for key in ["part", "union"] {
        client.run(&format!("BF.RESERVE {key} 0.01 3000"));
        client.call("BF.MADD", key, &asked[..500]);
    }
    let mut old = redisbloom(&path);
    old.kill();
    AOF.iter().for_each(|line| old.configure(line));
    for (command, name) in
        [("BF.BULKADD part WIDTH 3 onetwo", "BF.BULKADD"), ("BF.MERGE union part", "BF.MERGE")]
    {
        assert!(!new.client().run(command).is_error());
        new.client().send(&["SHUTDOWN", "SAVE"]);
        new.wait_for_exit();
        copy_files(new.dir(), old.dir());
        let log = old.try_relaunch().expect_err(name);
        assert!(log.contains(&format!("Unknown command '{name}' reading")), "{log}");
        new.relaunch();
        let expected = mexists(&mut new.client(), "union", &asked);
        rewrite_and_stop(&mut new);
        copy_files(new.dir(), old.dir());
        old.relaunch();
        assert!(mexists(&mut old.client(), "union", &asked) == expected, "{name}");
        assert_eq!(old.client().run("BF.MEXISTS part one two"), array([int(1), int(1)]));
        old.kill();
        new.relaunch();
    }
}

/// A replica of RedisBloom makes RedisBloom's filters of its commands, with any setting: every
/// answer is the primary's.
#[test]
fn a_replica_of_redisbloom_creates_the_same_filters() {
    let Some(path) = peer("a_replica_of_redisbloom_creates_the_same_filters") else {
        return;
    };
    let theirs = redisbloom(&path);
    let (old, replica) = (&mut theirs.client(), theirs.replica());
    let new = &mut replica.client();
    let items = numbered("item", 2_000);
    let asked = [&items[..], &numbered("absent", 5_000)].concat();
    old.run("BF.RESERVE reserved 0.02 500");
    old.run("BF.RESERVE full 0.2 1000 NONSCALING");
    let keys = ["reserved", "full", "added"];
    // RedisBloom replicates what the full one refuses, too.
    for key in keys {
        old.call("BF.MADD", key, &items);
    }
    assert_eq!(old.run("WAIT 1 30000"), int(1));
    for key in keys {
        assert!(mexists(new, key, &asked) == mexists(old, key, &asked), "{key}");
        assert_eq!(new.cmd(&["BF.DEBUG", key]), old.cmd(&["BF.DEBUG", key]), "{key}");
        assert_eq!(layout(new, key), "redisbloom");
    }
    assert_eq!(new.run("REPLICAOF NO ONE"), ok());
    assert_eq!(new.run("BF.MEXISTS reserved item-0 item-1"), array([int(1), int(1)]));
    assert!(matches!(new.run("BF.ADD later a"), Reply::Int(1)));
    assert_eq!(layout(new, "later"), "native");
}
