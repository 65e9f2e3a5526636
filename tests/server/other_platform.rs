//! Filters go to a server of another processor architecture and back: in files and by replication.
//! All that a client can read of them stays equal, bit by bit.
//!
//! `REDIS_BLOOM_OTHER_SERVER` and `REDIS_BLOOM_OTHER_SO` name that server, of the version of
//! `REDIS_SERVER`, and the module for it; without them these tests print SKIPPED. `make test-arm64`
//! sets both.

use std::{fs, path::Path};

use crate::{
    as_there::check_first,
    harness::{Builder, Client, Reply, Server, int, numbered, ok, skipped, wait_until},
    persistence::{Sample, assert_same, assert_usable, make, snapshot},
    products::{REDISBLOOM, VALKEY_BLOOM, file},
    redisbloom::restore,
};

/// Both servers with the given lines in their configuration, stopped or not. `None` if there is no
/// other platform, which is reported as a skipped test.
fn both(test: &str, lines: &[&str]) -> Option<[Server; 2]> {
    let variable = |name: &str| {
        let value = std::env::var(name).ok();
        if value.is_none() {
            skipped(test, &format!("{name} is not set"));
        }
        value
    };
    let program = variable("REDIS_BLOOM_OTHER_SERVER")?;
    let module = variable("REDIS_BLOOM_OTHER_SO")?;
    // The length of compressed strings may differ between builds of the compression.
    let lines = [&["rdbcompression no"], lines].concat();
    let start =
        |builder: Builder| lines.iter().fold(builder, |builder, line| builder.config(line)).start();
    let other = Server::with().on(&program).module_at(Path::new(&module));
    Some([start(Server::with()), start(other)])
}

/// Names of fixtures of other products.
fn products() -> impl Iterator<Item = &'static str> {
    let redisbloom = REDISBLOOM.into_iter().filter(|name| name.starts_with("redisbloom-2.8"));
    redisbloom.chain(VALKEY_BLOOM)
}

/// Makes filters of every kind, those of other products included.
fn make_all(client: &mut Client) -> Vec<Sample> {
    for name in products() {
        assert_eq!(restore(client, name, &file(&format!("{name}.dump"))), ok(), "{name}");
    }
    make(client)
}

/// Everything that a client can read of the filters, after a check of those of other products.
fn read_all(client: &mut Client, samples: &[Sample]) -> Vec<(String, Reply)> {
    for name in products() {
        check_first(client, name, name);
    }
    let mut seen = snapshot(client, samples);
    let keys = samples.iter().map(|sample| sample.key).chain(products());
    seen.extend(
        keys.map(|key| {
            (format!("the digest of {key}"), client.cmd(&["DEBUG", "DIGEST-VALUE", key]))
        }),
    );
    seen
}

/// Adds items to filters that have room, and deletes some.
fn change(client: &mut Client, prefix: &str) {
    let items = numbered(prefix, 1_000);
    let keys = "grown blocks narrow seeded counting counting_grown shard window window_count";
    for key in keys.split(' ') {
        client.call("BF.MADD", key, &items);
    }
    // Items that were added just now: nothing else is deleted with them.
    client.call("BF.DEL", "counting", &items[..300]);
    client.call("BF.DEL", "counting_grown", &items[..300]);
    client.call("BF.MADD", &format!("new-{prefix}"), &items);
}

/// Moves what `from` has on disk, in the file or folder `name`, to `to`, and starts `to` with it.
fn carry(from: &mut Server, to: &mut Server, name: &str) {
    from.kill();
    to.kill();
    let (source, target) = (from.dir().join(name), to.dir().join(name));
    if target.is_dir() {
        fs::remove_dir_all(&target).expect("the old folder can be removed");
    }
    if source.is_dir() {
        fs::create_dir(&target).expect("a new folder");
        for entry in fs::read_dir(&source).expect("a folder that can be read") {
            let entry = entry.expect("an entry of that folder");
            fs::copy(entry.path(), target.join(entry.file_name())).expect("a copy");
        }
    } else {
        fs::copy(source, target).expect("a copy");
    }
    to.relaunch();
}

#[test]
fn an_rdb_file_goes_to_another_platform_and_back() {
    let Some([mut here, mut there]) = both("an_rdb_file_goes_to_another_platform_and_back", &[])
    else {
        return;
    };
    let samples = make_all(&mut here.client());
    assert_eq!(here.client().run("SAVE"), ok());
    let before = read_all(&mut here.client(), &samples);
    carry(&mut here, &mut there, "dump.rdb");
    assert_same(&before, &read_all(&mut there.client(), &samples), "the way there");

    change(&mut there.client(), "there");
    assert_eq!(there.client().run("SAVE"), ok());
    let before = read_all(&mut there.client(), &samples);
    carry(&mut there, &mut here, "dump.rdb");
    assert_same(&before, &read_all(&mut here.client(), &samples), "the way back");
    assert_usable(&mut here.client(), "the way back");
}

#[test]
fn an_aof_goes_to_another_platform_and_back() {
    let lines = ["appendonly yes", "aof-use-rdb-preamble no"];
    let Some([mut here, mut there]) = both("an_aof_goes_to_another_platform_and_back", &lines)
    else {
        return;
    };
    // The commands as they were replicated.
    let samples = make_all(&mut here.client());
    let before = read_all(&mut here.client(), &samples);
    carry(&mut here, &mut there, "appendonlydir");
    assert_same(&before, &read_all(&mut there.client(), &samples), "the way there");

    // BF.LOADCHUNK and RESTORE of a rewrite, then commands.
    let client = &mut there.client();
    assert!(!client.run("BGREWRITEAOF").is_error());
    wait_until("the AOF is written", || !client.has_child());
    assert_eq!(client.server_info("persistence", "aof_last_bgrewrite_status"), "ok");
    change(client, "there");
    let before = read_all(client, &samples);
    carry(&mut there, &mut here, "appendonlydir");
    assert_same(&before, &read_all(&mut here.client(), &samples), "the way back");
    assert_usable(&mut here.client(), "the way back");
}

#[test]
fn a_replication_stream_goes_to_another_platform_and_back() {
    let Some([here, there]) = both("a_replication_stream_goes_to_another_platform_and_back", &[])
    else {
        return;
    };
    for (primary, replica) in [(&here, &there), (&there, &here)] {
        let (writer, reader) = (&mut primary.client(), &mut replica.client());
        writer.run("REPLICAOF NO ONE");
        writer.run("FLUSHALL");
        let samples = make_all(writer);
        reader.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        wait_until("the replica has the full copy", || {
            reader.server_info("replication", "master_link_status") == "up"
        });
        assert_eq!(writer.run("WAIT 1 30000"), int(1));
        let way = format!("a full synchronization from port {}", primary.port());
        assert_same(&read_all(writer, &samples), &read_all(reader, &samples), &way);

        change(writer, "live");
        writer.run("BF.MERGE merged seeded");
        assert_eq!(writer.run("WAIT 1 30000"), int(1));
        let way = format!("the stream from port {}", primary.port());
        assert_same(&read_all(writer, &samples), &read_all(reader, &samples), &way);
        for key in ["new-live", "merged"] {
            assert_eq!(writer.cmd(&["DUMP", key]), reader.cmd(&["DUMP", key]), "{key} by {way}");
        }
    }
}
