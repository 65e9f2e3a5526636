//! `dump` and `restore` of sharded filters.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use redis_bloom_harness::{Client, Cluster, Reply, Server, int, numbered, slot};

use crate::{
    relay::{Before, relayed},
    run::{Ran, command, command_at},
    schema::checked,
};

/// The keys of two shards of `urls`, and of `copy`, as docs/reference/sharding.md computes them.
const URLS: [&str; 2] = ["{urls:5968}", "{urls:1796}"];

/// Makes a sharded filter of two shards on a server.
fn create(client: &mut Client, items: &[String]) {
    for (shard, key) in URLS.iter().enumerate() {
        let reserve = format!("BF.RESERVE {key}:1 0.001 1000 EXPANSION 1 SHARD {shard} 2");
        assert_eq!(client.run(&reserve).text(), "OK");
    }
    client.run(&format!(
        "HSET urls rule crc32 poll 1 shards 2 generation 1 error 0.001 capacity 1000 0 {}:1 1 \
         {}:1 state ready",
        URLS[0], URLS[1]
    ));
    for item in items {
        // The shard is the top bit of the CRC-32; the other shard refuses the item.
        let added = URLS.iter().filter(|key| {
            let reply = client.cmd(&["BF.INSERT", &format!("{key}:1"), "NOCREATE", "ITEMS", item]);
            matches!(reply, Reply::Array(answers) if answers == [int(1)])
        });
        assert!(added.count() <= 1, "{item}");
    }
}

fn run_in(server: &Server, words: &str) -> Ran {
    command_at(server, words).current_dir(server.dir()).output().expect("the tool runs").into()
}

fn directory(server: &Server) -> PathBuf {
    server.dir().join("urls.dump")
}

/// Files and directories that are not complete.
fn parts(server: &Server) -> usize {
    let entries = fs::read_dir(server.dir()).expect("a directory");
    let names = entries.map(|entry| entry.expect("a file").file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".part")).count()
}

/// The digests of the shards that the descriptor lists.
fn digests(client: &mut Client, name: &str) -> Vec<Reply> {
    let keys: Vec<_> =
        (0..2).map(|shard| client.run(&format!("HGET {name} {shard}")).text()).collect();
    keys.iter().map(|key| client.cmd(&["DEBUG", "DIGEST-VALUE", key])).collect()
}

#[test]
fn a_sharded_filter_is_dumped_and_restored() {
    let server = Server::start();
    let mut client = server.client();
    create(&mut client, &numbered("item", 500));
    let before = digests(&mut client, "urls");
    let ran = run_in(&server, "--json dump urls -o urls.dump");
    let report = &checked("dump-shards", &ran.stdout)[0];
    assert_eq!((ran.code, &report["shards"], &report["changed"]), (0, &2.into(), &false.into()));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory(&server)), 0o700);
    for file in ["shard-000.rbloom", "shard-001.rbloom"] {
        assert_eq!(mode(&directory(&server).join(file)), 0o600, "{file}");
    }
    assert_eq!(parts(&server), 0);
    // It is not overwritten, and a file is no directory.
    assert_eq!(run_in(&server, "dump urls -o urls.dump").code, 2);
    fs::write(server.dir().join("items"), "a\n").unwrap();
    assert_eq!(run_in(&server, "dump urls -o items").code, 2);

    let ran = run_in(&server, "--json restore urls.dump copy");
    assert_eq!((ran.code, &checked("restore-shards", &ran.stdout)[0]["shards"]), (0, &2.into()));
    assert_eq!(digests(&mut client, "copy"), before);
    assert_eq!(client.run("HGET copy state").text(), "ready");
    assert_eq!(client.run("HLEN copy"), int(9), "no field of the restore is left");
    // Each file is a dump that restore takes alone.
    assert_eq!(run_in(&server, "restore urls.dump/shard-001.rbloom one").code, 0);
    assert_eq!(client.run("DEBUG DIGEST-VALUE one"), before[1]);

    // An existing name is refused.
    let ran = run_in(&server, "restore urls.dump urls");
    assert!(ran.code == 4 && ran.stderr.contains("restore: ERR item exists"), "{ran:?}");
    let ran = run_in(&server, "restore urls.dump urls --replace");
    assert!(ran.code == 2 && ran.stderr.contains("a sharded filter is not replaced"), "{ran:?}");
    assert_eq!(digests(&mut client, "urls"), before);
}

/// Nothing is written to the server, whatever is wrong with the directory.
#[test]
fn a_damaged_missing_or_foreign_file_is_refused_before_anything_is_written() {
    let server = Server::start();
    let mut client = server.client();
    create(&mut client, &numbered("item", 100));
    run_in(&server, "dump urls -o urls.dump").done();
    let files = ["descriptor.json", "shard-000.rbloom", "shard-001.rbloom"];
    let path = |file: &str| directory(&server).join(file);
    let good = files.map(|file| fs::read(path(file)).unwrap());
    // A dump of another filter of the same form.
    client.run(&format!("DEL urls {}:1 {}:1", URLS[0], URLS[1]));
    create(&mut client, &numbered("item", 100));
    run_in(&server, "dump urls -o other.dump").done();
    let foreign = fs::read(server.dir().join("other.dump/shard-000.rbloom")).unwrap();
    let before = digests(&mut client, "urls");
    client.run("CONFIG RESETSTAT");
    let refused = |what: &str| {
        let ran = run_in(&server, "restore urls.dump copy");
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{what}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 2, "{what}: {ran:?}");
    };
    for (file, good) in files.iter().zip(&good) {
        for at in (0..good.len()).step_by(if file.ends_with("json") { 1 } else { 97 }) {
            // White space and the case of digits do not matter in JSON.
            if good[at].is_ascii_whitespace() {
                continue;
            }
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(path(file), bad).unwrap();
            refused(&format!("{file}, byte {at}"));
        }
        fs::write(path(file), &good[..good.len() / 2]).unwrap();
        refused(&format!("{file}, cut"));
        fs::remove_file(path(file)).unwrap();
        refused(&format!("{file}, missing"));
        fs::write(path(file), good).unwrap();
    }
    fs::write(path(files[1]), foreign).unwrap();
    refused("a shard of another dump");
    fs::write(path(files[1]), &good[2]).unwrap();
    refused("another shard");
    fs::write(path(files[1]), &good[1]).unwrap();
    let calls = client.run("INFO commandstats").text().to_ascii_lowercase();
    assert!(!calls.contains("bf.loadchunk") && !calls.contains("_hset:"), "{calls}");
    assert_eq!(digests(&mut client, "urls"), before);
    assert_eq!(run_in(&server, "restore urls.dump copy").code, 0);
}

/// A restore that the server refuses at its second shard is undone by `drop`.
#[test]
fn a_restore_that_ended_early_is_undone() {
    let server = Server::start();
    let mut client = server.client();
    create(&mut client, &numbered("item", 500));
    let before = digests(&mut client, "urls");
    run_in(&server, "dump urls -o urls.dump").done();
    let first = (0..).map(|k| format!("{{copy:{k}}}:1")).find(|key| slot(key) == 4096).unwrap();
    let user = format!("ACL SETUSER half on nopass +@all %R~* ~copy ~{first}");
    assert_eq!(client.run(&user).text(), "OK");
    let ran = run_in(&server, "--user half -a x restore urls.dump copy");
    let says = "Remove it by `drop copy`, and restore it again.";
    assert!(ran.code == 4 && ran.stderr.contains(says), "{ran:?}");
    assert_eq!(client.run("HGET copy state").text(), "creating");
    let ran = run_in(&server, "check copy a");
    assert!(ran.code == 5 && ran.stderr.contains("half-written"), "{ran:?}");
    let ran = run_in(&server, "restore urls.dump copy");
    assert!(ran.code == 4 && ran.stderr.contains("a run ended early"), "{ran:?}");
    assert_eq!(run_in(&server, "drop copy").code, 0);
    assert_eq!(client.run("DBSIZE"), int(3));
    assert_eq!(run_in(&server, "restore urls.dump copy").code, 0);
    assert_eq!(digests(&mut client, "copy"), before);
}

/// A key that is not the shard that belongs there makes no dump: restore would refuse it.
#[test]
fn lost_foreign_swapped_and_doubled_shards_are_not_dumped() {
    let server = Server::start();
    let mut client = server.client();
    create(&mut client, &numbered("item", 100));
    let [first, second] = URLS.map(|key| format!("{key}:1"));
    let dump = client.cmd(&["DUMP", &second]);
    let Reply::Bulk(dump) = dump else { panic!("{dump:?}") };
    let other = format!("BF.RESERVE {second} 0.001 1000 SHARD 0 2");
    for (what, lines) in [
        ("lost", vec![format!("DEL {second}")]),
        ("recreated", vec![format!("DEL {second}"), format!("BF.ADD {second} x")]),
        ("another shard", vec![format!("DEL {second}"), other]),
        ("another type", vec![format!("SET {second} x")]),
        ("swapped", vec![format!("HSET urls 0 {second} 1 {first}")]),
        ("doubled", vec![format!("HSET urls 1 {first}")]),
    ] {
        for line in lines {
            assert!(!client.run(&line).is_error(), "{line}");
        }
        let ran = run_in(&server, "dump urls -o urls.dump");
        assert_eq!((ran.code, ran.stdout.as_str()), (5, ""), "{what}: {ran:?}");
        assert!(!directory(&server).exists(), "{what}");
        assert_eq!(parts(&server), 0, "{what}");
        client.run(&format!("HSET urls 0 {first} 1 {second}"));
        client.run(&format!("DEL {second}"));
        client.cmd(&[b"RESTORE", second.as_bytes(), b"0", &dump]);
    }
    run_in(&server, "dump urls -o urls.dump").done();
}

/// A shard that is replaced while others are dumped.
#[test]
fn a_shard_that_is_replaced_during_the_dump_is_seen() {
    let server = Server::start();
    let mut client = server.client();
    let second = format!("{}:1", URLS[1]);
    let (mut at, mut seen) = (0, 0);
    loop {
        client.run("FLUSHALL");
        create(&mut client, &numbered("item", 100));
        let before = Before { after: "", command: at };
        let run = relayed(&server, server.dir(), "dump urls -o urls.dump", before, |_| {
            client.run(&format!("DEL {second}"));
            assert_eq!(client.run(&format!("BF.ADD {second} x")), int(1));
            true
        });
        let ran = Ran::from(run.output);
        if ran.code == 0 {
            // The whole shard was read before.
            let restored = run_in(&server, "restore urls.dump copy");
            assert_eq!(restored.code, 0, "{at}: {restored:?}");
            fs::remove_dir_all(directory(&server)).unwrap();
        } else {
            assert_eq!(ran.code, 5, "{at}: {ran:?}");
            assert!(!directory(&server).exists(), "{at}");
            seen += 1;
        }
        if !run.reached {
            break;
        }
        at += 1;
    }
    assert!(seen > 10, "{seen} of {at}");
}

/// The filter is dropped before each command of a restore, and perhaps created anew: exit 0 only if
/// the dump answers at the end.
#[test]
fn a_restore_sees_that_its_filter_was_dropped() {
    let server = Server::start();
    let mut client = server.client();
    create(&mut client, &numbered("item", 100));
    let before = digests(&mut client, "urls");
    run_in(&server, "dump urls -o urls.dump").done();
    let (mut at, mut seen) = (0, 0);
    loop {
        let recreate = at % 2 == 0;
        let place = Before { after: "", command: at };
        let mut published = false;
        let run = relayed(&server, server.dir(), "restore urls.dump copy", place, |_| {
            published = client.run("HGET copy state") == Reply::Bulk(b"ready".to_vec());
            run_in(&server, "drop copy");
            if recreate {
                run_in(&server, "create copy --items 1k --error 1% --shards 2");
            }
            true
        });
        let ran = Ran::from(run.output);
        if !run.reached {
            assert_eq!(ran.code, 0, "{ran:?}");
            break;
        }
        if ran.code == 0 {
            // Dropped after all was done, or before anything was.
            let same = published || digests(&mut client, "copy") == before;
            assert!(same, "command {at}: {ran:?}");
        } else {
            assert!([4, 5].contains(&ran.code), "command {at}: {ran:?}");
            seen += 1;
        }
        run_in(&server, "drop copy");
        for key in client.run("KEYS {copy:*").elements() {
            client.cmd(&["DEL", &key.text()]);
        }
        at += 1;
    }
    assert!(at > 10 && seen > 5, "{seen} of {at}");
}

/// `drop` has begun before each command of a restore, and goes on when that has ended: clients
/// never get the filter, and all of it is removed.
#[test]
fn a_filter_that_is_being_dropped_is_not_published() {
    let server = Server::start();
    let mut client = server.client();
    create(&mut client, &numbered("item", 100));
    run_in(&server, "dump urls -o urls.dump").done();
    let (mut at, mut seen) = (0, 0);
    loop {
        let place = Before { after: "", command: at };
        let mut dropping = false;
        let run = relayed(&server, server.dir(), "restore urls.dump copy", place, |_| {
            dropping = client.run("HGET copy state") == Reply::Bulk(b"creating".to_vec());
            if dropping {
                client.run("HSET copy dropping 1");
            }
            true
        });
        let ran = Ran::from(run.output);
        if dropping {
            assert!([4, 5].contains(&ran.code), "command {at}: {ran:?}");
            let state = client.run("HGET copy state");
            assert_eq!(state, Reply::Bulk(b"creating".to_vec()), "command {at}: {ran:?}");
            seen += 1;
        } else {
            assert_eq!(ran.code, 0, "command {at}: {ran:?}");
        }
        run_in(&server, "drop copy").done();
        assert_eq!(client.run("KEYS *copy*").elements().len(), 0, "command {at}");
        if !run.reached {
            break;
        }
        at += 1;
    }
    assert!(seen > 10, "{seen} of {at}");
}

/// The filter is dropped and created again, with the same keys, before each command of a dump: exit
/// 0 only if the dump has all items of the old filter, or of the new one.
#[test]
fn a_dump_sees_that_its_filter_was_created_again() {
    let server = Server::start();
    let mut client = server.client();
    let (mut at, mut seen) = (0, 0);
    loop {
        client.run("FLUSHALL");
        create(&mut client, &numbered("item", 100));
        let before = digests(&mut client, "urls");
        let place = Before { after: "", command: at };
        let run = relayed(&server, server.dir(), "dump urls -o urls.dump", place, |_| {
            client.run("FLUSHALL");
            create(&mut client, &[]);
            true
        });
        let ran = Ran::from(run.output);
        if ran.code == 0 {
            let after = digests(&mut client, "urls");
            run_in(&server, "restore urls.dump copy").done();
            let copy = digests(&mut client, "copy");
            assert!(copy == before || copy == after, "command {at}: {ran:?}");
            fs::remove_dir_all(directory(&server)).unwrap();
        } else {
            assert_eq!(ran.code, 5, "command {at}: {ran:?}");
            seen += 1;
        }
        if !run.reached {
            break;
        }
        at += 1;
    }
    assert!(seen > 3, "{seen} of {at}");
}

/// A new shard is lost before each command of a restore: exit 0 only if it was lost at the end.
#[test]
fn a_restore_sees_that_a_shard_was_lost() {
    let server = Server::start();
    let mut client = server.client();
    create(&mut client, &numbered("item", 100));
    let before = digests(&mut client, "urls");
    run_in(&server, "dump urls -o urls.dump").done();
    let (mut at, mut seen) = (0, 0);
    loop {
        let (mut lost, mut published) = (false, false);
        let place = Before { after: "", command: at };
        let run = relayed(&server, server.dir(), "restore urls.dump copy", place, |_| {
            for key in client.run("KEYS {copy:*").elements() {
                lost |= client.cmd(&["DEL", &key.text()]) == int(1);
            }
            published = client.run("HGET copy state") == Reply::Bulk(b"ready".to_vec());
            true
        });
        let ran = Ran::from(run.output);
        if !run.reached {
            assert_eq!(ran.code, 0, "{ran:?}");
            break;
        }
        match ran.code {
            0 => assert!(published || digests(&mut client, "copy") == before, "{at}: {ran:?}"),
            code => {
                assert!(lost && [4, 5].contains(&code), "command {at}: {ran:?}");
                seen += 1;
            }
        }
        run_in(&server, "drop copy");
        at += 1;
    }
    assert!(seen > 10, "{seen} of {at}");
}

/// A dump of one server, restored into a cluster and from there into one server again, keeps its
/// answers.
#[test]
fn a_cluster_of_another_size_gets_the_same_filter() {
    let server = Server::start();
    let mut client = server.client();
    create(&mut client, &numbered("item", 500));
    let before = digests(&mut client, "urls");
    run_in(&server, "dump urls -o urls.dump").done();
    let cluster = Cluster::start();
    let port = cluster.nodes[2].port().to_string();
    let run = |words: &str| -> Ran {
        let mut command = command();
        command.args(["-p", &port]).args(words.split_whitespace()).current_dir(server.dir());
        command.output().expect("the tool runs").into()
    };
    let ran = run("restore urls.dump urls");
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut nodes = cluster.client();
    for (shard, key) in URLS.iter().enumerate() {
        let key = format!("{key}:1");
        assert_eq!(nodes.call(&key, &["DEBUG", "DIGEST-VALUE", &key]), before[shard]);
    }
    assert_ne!(nodes.owner(URLS[0]), nodes.owner(URLS[1]));
    assert_eq!(run("dump urls -o again.dump").code, 0);
    assert_eq!(run_in(&server, "restore again.dump back").code, 0);
    assert_eq!(digests(&mut client, "back"), before);
}
