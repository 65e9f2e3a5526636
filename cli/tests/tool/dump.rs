//! `redis-bloom dump` and `redis-bloom restore`.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::AtomicBool,
    time::Duration,
};

use crate::{
    check::redisbloom,
    fake::Fake,
    harness::{
        self, Client, Cluster, Fault, PRIMARIES, Proxy, Random, Reply, SLOTS, Server, Stopped,
        config_name, int, madd, mexists, numbered, ok, slot, wait_until,
    },
    relay::{Before, relayed},
    run::{Ran, catches_ctrl_c, command_at, press_ctrl_c, run_at},
    schema::checked,
};

/// A filter of three chunks of bits: 40 MB.
const LARGE: &str = "BF.RESERVE urls 0.01 32000000 SEED 5";

/// Runs `words` with the file for `FILE`.
fn run_on(server: &Server, words: &str, file: &Path) -> Ran {
    let mut command = command_at(server, "");
    command.args(words.split_whitespace().map(|word| match word {
        "FILE" => file.as_os_str(),
        word => word.as_ref(),
    }));
    command.output().expect("the tool runs").into()
}

fn file_in(server: &Server) -> PathBuf {
    server.dir().join("urls.dump")
}

/// The names beside the file: a dump that is not complete has another one.
fn beside(file: &Path) -> Vec<String> {
    let entries = fs::read_dir(file.parent().expect("a directory")).expect("a directory");
    let names = entries.map(|entry| entry.expect("a file").file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("urls.dump") && name != "urls.dump").collect()
}

#[test]
fn every_kind_of_filter_is_restored() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    for (reserve, count) in [
        ("BF.RESERVE urls 0.01 1000", 1_000),
        ("BF.RESERVE urls 0.01 1000", 0),
        ("BF.RESERVE urls 0.001 1000 NONSCALING", 500),
        ("BF.RESERVE urls 0.01 1000 COUNTING", 1_000),
        ("BF.RESERVE urls 0.01 100 EXPANSION 1", 2_000),
        (LARGE, 100_000),
        ("BF.RESERVE urls 0.01 9000000 COUNTING", 10_000),
    ] {
        client.run(reserve);
        let items = numbered("item", count);
        harness::madd(&mut client, "urls", &items);
        let ran = run_on(&server, "dump urls -o FILE", &file);
        assert_eq!(ran.code, 0, "{reserve}: {ran:?}");
        let ran = run_on(&server, "restore FILE copy", &file);
        assert_eq!(ran.code, 0, "{reserve}: {ran:?}");
        assert_eq!(
            harness::digest(&mut client, "copy"),
            harness::digest(&mut client, "urls"),
            "{reserve}"
        );
        assert_eq!(client.run("DBSIZE"), int(2), "{reserve}: no other key is left");
        client.run("FLUSHALL");
    }
}

#[test]
fn what_they_say() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    let name = file.display();
    client.run("BF.RESERVE urls 0.01 1000 SEED 1");
    let ran = run_on(&server, "dump urls -o FILE", &file);
    let seed = format!(
        "{name} contains the filter's seed. Anyone who can read it can make items that collide."
    );
    assert_eq!((ran.code, ran.stderr), (0, format!("{seed}\n")));
    assert_eq!(ran.stdout, format!("urls: 1.47 kB in {name}\n"));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(beside(&file).is_empty());
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"rb-dump\n\x01\x00\x0b\x00redis-bloom"), "{bytes:?}");

    let ran = run_on(&server, "dump urls -o FILE --json --quiet", &file);
    let report = serde_json::json!({
        "name": "urls", "file": name.to_string(), "product": "redis-bloom",
        "chunks": 2, "bytes": 1474, "changed": false,
    });
    assert_eq!((ran.code, checked("dump", &ran.stdout)), (0, vec![report]));
    assert_eq!(ran.stderr, "");
    assert_eq!(fs::read(&file).unwrap(), bytes, "a filter that stays has one dump");

    let ran = run_on(&server, "restore FILE copy", &file);
    assert_eq!((ran.code, ran.stdout), (0, format!("copy: 1.47 kB from {name}\n")));
    let ran = run_on(&server, "restore FILE other --json", &file);
    let report = serde_json::json!({
        "name": "other", "file": name.to_string(), "product": "redis-bloom",
        "chunks": 2, "bytes": 1474,
    });
    assert_eq!((ran.code, checked("restore", &ran.stdout)), (0, vec![report]));
    assert_eq!(ran.stderr, "");
}

/// A file of items that is named by mistake stays; a dump of yesterday is replaced.
#[test]
fn a_dump_overwrites_nothing_but_a_dump() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    client.run("BF.ADD urls a");
    fs::write(&file, "https://example.com/\n").unwrap();
    let ran = run_on(&server, "dump urls -o FILE", &file);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    assert!(ran.stderr.contains("it exists, and is no dump of a filter\n"), "{ran:?}");
    assert_eq!(fs::read(&file).unwrap(), b"https://example.com/\n");
    // Nor one that takes the name meanwhile.
    fs::remove_file(&file).unwrap();
    let place = Before { after: "BF.SCANDUMP", command: 0 };
    let run = relayed(&server, server.dir(), "dump urls -o urls.dump", place, |_| {
        fs::write(&file, "precious").is_ok()
    });
    assert_eq!(run.output.status.code(), Some(2));
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    assert!(beside(&file).is_empty());
    // An empty file is no dump either.
    fs::write(&file, "").unwrap();
    assert_eq!(run_on(&server, "dump urls -o FILE", &file).code, 2);
    assert_eq!(fs::read(&file).unwrap(), b"");
    fs::remove_file(&file).unwrap();
    for _ in 0..2 {
        assert_eq!(run_on(&server, "dump urls -o FILE", &file).code, 0);
        assert!(fs::read(&file).unwrap().starts_with(b"rb-dump\n"));
    }
}

/// From one server to another through a pipe, as of a shell.
#[test]
fn a_filter_goes_through_a_pipe() {
    let (from, to) = (Server::start(), Server::start());
    let mut client = to.client();
    from.client().run(LARGE);
    harness::madd(&mut from.client(), "urls", &numbered("item", 10_000));
    let dumped = || {
        let mut dump = command_at(&from, "dump urls -o -");
        dump.current_dir(from.dir()).output().expect("the tool runs")
    };
    let whole = dumped();
    assert_eq!((whole.status.code(), &*whole.stderr), (Some(0), &b"urls: 42.7 MB\n"[..]));
    assert!(!from.dir().join("-").exists());
    let restored = |words: &str, bytes: &[u8]| {
        let mut restore = command_at(&to, words);
        let child = restore.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().expect("the tool runs");
        // The tool may end before it has read all.
        let _ = std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), bytes);
        Ran::from(child.wait_with_output().expect("the tool ends"))
    };
    assert_eq!(restored("restore - copy", &whole.stdout).done(), "copy: 42.7 MB from -\n");
    assert_eq!(harness::digest(&mut client, "copy"), harness::digest(&mut from.client(), "urls"));
    assert_eq!(restored("restore - copy", &whole.stdout).code, 4, "it is there");
    assert_eq!(restored("restore - copy --replace", &whole.stdout).code, 0);
    // A pipe that was cut, also behind the last chunk, and one that has more: nothing is restored.
    let length = whole.stdout.len();
    let mut longer = whole.stdout.clone();
    longer.push(0);
    let mut wrong = whole.stdout.clone();
    wrong[length / 2] ^= 1;
    for bytes in [&whole.stdout[..length / 2], &whole.stdout[..length - 1], b"", &longer, &wrong] {
        let ran = restored("restore - other", bytes);
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{} bytes: {ran:?}", bytes.len());
        assert!(ran.stderr.contains("standard input: damaged at byte"), "{ran:?}");
        assert_eq!(client.run("DBSIZE"), int(1), "{} bytes", bytes.len());
    }
    // Nobody reads the pipe, or its end.
    let mut dump = command_at(&from, "dump urls -o -").stdout(Stdio::piped()).spawn().unwrap();
    drop(dump.stdout.take());
    assert_eq!(dump.wait().unwrap().code(), Some(141));
    assert_eq!(Ran::from(command_at(&from, "dump none -o -").output().unwrap()).code, 4);
    // What is in the pipe cannot be taken back if the filter changes.
    let place = Before { after: "BF.SCANDUMP", command: 2 };
    let run = relayed(&from, from.dir(), "dump urls -o -", place, |_| {
        from.client().run("DEL urls");
        from.client().run("BF.RESERVE urls 0.01 32000000 SEED 6");
        true
    });
    assert_eq!(
        run.output.status.code(),
        Some(5),
        "{:?}",
        String::from_utf8_lossy(&run.output.stderr)
    );
    assert_eq!(restored("restore - other", &run.output.stdout).code, 2);
    assert_eq!(client.run("DBSIZE"), int(1));
}

/// A pipe whose writer has stopped: the first Ctrl-C ends the restore, and nothing is left.
#[test]
fn a_restore_from_an_idle_pipe_ends_in_order() {
    use std::io::Write as _;
    let server = Server::start();
    let mut client = server.client();
    client.run("BF.RESERVE urls 0.01 100000");
    let whole = command_at(&server, "dump urls -o -").output().expect("the tool runs").stdout;
    for length in [0, whole.len() / 2] {
        let mut restore = command_at(&server, "restore - copy");
        restore.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = restore.spawn().expect("the tool runs");
        let mut pipe = child.stdin.take().expect("a pipe");
        pipe.write_all(&whole[..length]).expect("the tool reads");
        wait_until("the tool reads the pipe", || {
            let begun = client.run("DBSIZE") == int(2);
            (begun || length == 0) && catches_ctrl_c(&child)
        });
        press_ctrl_c(&child);
        wait_until("it ends", || child.try_wait().expect("a child").is_some());
        let ran: Ran = child.wait_with_output().expect("the tool ends").into();
        assert_eq!((ran.code, &*ran.stdout), (130, ""), "{length} bytes: {ran:?}");
        assert!(ran.stderr.contains("Nothing was restored"), "{length} bytes: {ran:?}");
        assert_eq!(client.run("DBSIZE"), int(1), "{length} bytes");
        drop(pipe);
    }
}

#[test]
fn names_are_any_bytes() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    let (name, copy) = (&b"a\xff {\n}"[..], &b"\xfe\x01"[..]);
    client.cmd(&[&b"BF.ADD"[..], name, b"x"]);
    let run = |before: &str, name: &[u8], after: &str| {
        let mut command = command_at(&server, before);
        if before.contains("restore") {
            command.arg(&file);
        }
        command.arg(OsStr::from_bytes(name)).args(after.split_whitespace());
        if before.contains("dump") {
            command.arg("-o").arg(&file);
        }
        Ran::from(command.output().expect("the tool runs"))
    };
    let ran = run("--json dump", name, "");
    assert_eq!(checked("dump", &ran.stdout)[0]["name_hex"], "61ff207b0a7d");
    let ran = run("restore", copy, "");
    assert!(ran.code == 0 && ran.stdout.starts_with("\\xfe\\u{1}: "), "{ran:?}");
    assert_eq!(run("check", copy, "x").done(), "1 item: present\n");
    let ran = run("--json verify --probes 100 --error 50%", copy, "");
    assert_eq!(checked("verify", &ran.stdout)[0]["name_hex"], "fe01");
    let ran = run("restore", copy, "");
    assert!(ran.stderr.starts_with("redis-bloom: restore \\xfe\\u{1}: BUSYKEY"), "{ran:?}");
}

#[test]
fn an_existing_filter_is_replaced_only_on_demand() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    client.run("BF.ADD urls old");
    assert_eq!(run_on(&server, "dump urls -o FILE", &file).code, 0);
    client.run("BF.ADD urls new");
    client.run("SET text value");
    let before = harness::digest(&mut client, "urls");
    let ran = run_on(&server, "restore FILE urls", &file);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""));
    let error = "redis-bloom: restore urls: BUSYKEY the filter exists\n  \
                 Replace it by --replace, or use another name.\n";
    assert_eq!(ran.stderr, error);
    assert_eq!(harness::digest(&mut client, "urls"), before);
    assert_eq!(run_on(&server, "restore FILE urls --replace", &file).code, 0);
    assert_eq!(client.run("BF.EXISTS urls new"), int(0));
    assert_eq!(client.run("BF.EXISTS urls old"), int(1));
    for words in ["restore FILE text", "restore FILE text --replace"] {
        let ran = run_on(&server, words, &file);
        assert_eq!(ran.code, 4);
        assert!(ran.stderr.starts_with("redis-bloom: text: WRONGTYPE"), "{ran:?}");
    }
    assert_eq!(client.run("GET text").text(), "value");
    assert_eq!(client.run("DBSIZE"), int(2));
}

#[test]
fn damaged_files_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    client.run("BF.RESERVE urls 0.01 10 SEED 1");
    client.run("BF.ADD urls a");
    assert_eq!(run_on(&server, "dump urls -o FILE", &file).code, 0);
    let good = fs::read(&file).unwrap();
    let before = harness::digest(&mut client, "urls");
    let bad = (0..good.len()).flat_map(|at| {
        let mut flipped = good.clone();
        flipped[at] ^= 1 << (at % 8);
        [(at, flipped), (at, good[..at].to_vec())]
    });
    for (at, bytes) in bad {
        fs::write(&file, &bytes).unwrap();
        let ran = run_on(&server, "restore FILE urls --replace", &file);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{at}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 2, "{at}: {ran:?}");
    }
    assert_eq!(harness::digest(&mut client, "urls"), before);
    assert_eq!(client.run("DBSIZE"), int(1));
    fs::write(&file, b"some lines of items\n").unwrap();
    let ran = run_on(&server, "restore FILE copy", &file);
    assert!(ran.stderr.contains("not a file of redis-bloom dump"), "{ran:?}");
    // Whole, but of no module.
    fs::write(&file, &good).unwrap();
    assert_eq!(run_on(&server, "restore FILE urls --replace", &file).code, 0);
}

#[test]
fn additions_during_a_dump_are_harmless() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    client.run(LARGE);
    let before = numbered("before", 10_000);
    harness::madd(&mut client, "urls", &before);
    // The header was read, and a chunk of three.
    let place = Before { after: "BF.SCANDUMP", command: 1 };
    let run = relayed(&server, server.dir(), "--json dump urls -o urls.dump", place, |_| {
        harness::madd(&mut client, "urls", &numbered("during", 10_000));
        true
    });
    let ran = Ran::from(run.output);
    assert_eq!((ran.code, run.reached), (0, true), "{ran:?}");
    assert_eq!(checked("dump", &ran.stdout)[0]["changed"], true);
    assert_eq!(run_on(&server, "restore FILE copy", &file).code, 0);
    assert!(mexists(&mut client, "copy", &before).iter().all(|&present| present));
    assert_eq!(client.run("BF.CARD copy"), client.run("BF.CARD urls"));
}

/// Another filter takes the place of the one that was loaded, before each command.
#[test]
fn a_restore_gives_no_other_filter_the_name() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    client.run("BF.RESERVE urls 0.01 1000");
    client.run("BF.ADD urls a");
    let digest = harness::digest(&mut client, "urls");
    run_on(&server, "dump urls -o FILE", &file).done();
    for options in ["", " --replace"] {
        let (mut at, mut replaced) = (0, 0);
        loop {
            for key in client.run("KEYS copy*").elements() {
                client.cmd(&["DEL", &key.text()]);
            }
            let words = format!("restore {} copy{options}", file.display());
            let before = Before { after: "", command: at };
            let run = relayed(&server, server.dir(), &words, before, |_| {
                for key in client.run("KEYS copy:restoring:*").elements() {
                    client.cmd(&["DEL", &key.text()]);
                    client.cmd(&["BF.RESERVE", &key.text(), "0.01", "1000"]);
                    replaced += 1;
                }
                true
            });
            let ran = Ran::from(run.output);
            let named = client.run("EXISTS copy") == int(1);
            assert_eq!(named, ran.code == 0, "command {at}: {ran:?}");
            if named {
                assert_eq!(harness::digest(&mut client, "copy"), digest, "command {at}: {ran:?}");
            }
            if !run.reached {
                break;
            }
            at += 1;
        }
        assert!(replaced > 3, "{replaced} of {at}");
    }
}

/// A server fails at the renaming, and the next one has neither done it nor the loaded key.
#[test]
fn a_lost_key_is_not_taken_for_a_lost_reply() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    for layout in ["native", "redisbloom"] {
        client.run("DEL urls");
        client.cmd(&["CONFIG", "SET", &config_name("layout"), layout]);
        client.run("BF.RESERVE urls 0.01 1000");
        client.run("BF.ADD urls older");
        let older = harness::digest(&mut client, "urls");
        run_on(&server, "dump urls -o FILE", &file).done();
        let words = format!("restore {} urls --replace", file.display());
        let before = Before { after: "WATCH", command: 1 };
        let run = relayed(&server, server.dir(), &words, before, |_| {
            let key = client.run("KEYS urls:restoring:*").elements()[0].text();
            client.cmd(&["DEL", &key]);
            client.run("CLIENT KILL TYPE normal SKIPME yes");
            true
        });
        let ran = Ran::from(run.output);
        assert!(run.reached && ran.code == 5, "{layout}: {ran:?}");
        assert!(ran.stderr.contains("Restore it again"), "{layout}: {ran:?}");
        assert_eq!(harness::digest(&mut client, "urls"), older, "{layout}");
    }
}

/// RedisBloom does not tell whether a filter is whole: after a failover chunks may be missing.
#[test]
fn a_restore_into_redisbloom_is_not_continued_at_another_server() {
    let name = "dump::a_restore_into_redisbloom_is_not_continued_at_another_server";
    let Some(server) = redisbloom(name) else { return };
    let mut client = server.client();
    let file = file_in(&server);
    client.run("BF.RESERVE urls 0.01 1000");
    run_on(&server, "dump urls -o FILE", &file).done();
    let words = format!("restore {} copy", file.display());
    let before = Before { after: "WATCH", command: 0 };
    let run = relayed(&server, server.dir(), &words, before, |_| {
        client.run("CLIENT KILL TYPE normal SKIPME yes");
        true
    });
    let ran = Ran::from(run.output);
    assert!(run.reached && ran.code == 5, "{ran:?}");
    assert!(ran.stderr.contains("Restore it again"), "{ran:?}");
    assert_eq!(client.run("DBSIZE"), int(1), "what was loaded is gone");
}

/// The connection breaks at the renaming, before or after the server has done it.
#[test]
fn a_lost_reply_to_the_renaming_is_no_failure() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    client.run("BF.RESERVE urls 0.01 1000");
    run_on(&server, "dump urls -o FILE", &file).done();
    let digest = harness::digest(&mut client, "urls");
    for (options, rename, command) in [("", "RENAMENX", 1), (" --replace", "RENAME", 2)] {
        for done in [false, true] {
            client.run("DEL copy");
            let words = format!("restore {} copy{options}", file.display());
            let before = Before { after: "WATCH", command };
            let run = relayed(&server, server.dir(), &words, before, |_| {
                if done {
                    let key = client.run("KEYS copy:restoring:*").elements()[0].text();
                    client.cmd(&[rename, &key, "copy"]);
                }
                client.run("CLIENT KILL TYPE normal SKIPME yes");
                true
            });
            let ran = Ran::from(run.output);
            assert!(run.reached && ran.code == 0, "{rename}, {done}: {ran:?}");
            assert_eq!(harness::digest(&mut client, "copy"), digest, "{rename}, {done}");
            assert_eq!(client.run("DBSIZE"), int(2), "{rename}, {done}");
        }
    }
}

/// A filter that changes between two chunks, in a way that would give the copy parts of two states.
#[test]
fn another_filter_is_dumped_from_the_start() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    for (reserve, change) in [
        ("BF.RESERVE urls 0.01 14000000 EXPANSION 1 SEED 1", "grow"),
        ("BF.RESERVE urls 0.01 14000000 SEED 1", "BF.RESERVE urls 0.01 14000000 SEED 2"),
        ("BF.RESERVE urls 1e-20 2000000 NONSCALING WINDOW COUNT GENERATIONS 1", "shift"),
        ("BF.RESERVE urls 0.01 14000000 SEED 1", "older"),
    ] {
        client.run("DEL urls copy");
        client.run(reserve);
        client.run("BF.ADD urls a");
        let mut random = Random::new(1);
        // Items of 8 bytes.
        let mut add = |client: &mut Client, thousands: usize| {
            for _ in 0..thousands / 100 {
                let blob: Vec<_> = (0..100_000).flat_map(|_| random.next().to_le_bytes()).collect();
                client.cmd(&[&b"BF.BULKADD"[..], b"urls", b"WIDTH", b"8", &blob]);
            }
        };
        let Reply::Bulk(older) = client.run("DUMP urls") else { panic!("no DUMP") };
        match change {
            "shift" => add(&mut client, 4_000),
            "older" => add(&mut client, 100),
            _ => {}
        }
        let mut changed = || {
            if change.starts_with("BF.RESERVE") {
                client.run("DEL urls");
            }
            if change == "grow" {
                // More than the first layer is made for.
                add(&mut client, 14_500);
                assert_eq!(client.run("BF.INFO urls FILTERS").elements()[0], int(2));
            } else if change == "shift" {
                // All generations give way to new ones, as many and as large.
                add(&mut client, 4_000);
                // The server removes what is forgotten when it has time.
                wait_until("only what is remembered is left", || {
                    let lines = client.run("BF.DEBUG urls");
                    let text = lines.elements()[1].text();
                    let number = |name: &str| {
                        let words = text.split(' ').find_map(|word| word.strip_prefix(name));
                        words.expect("a word").to_owned()
                    };
                    number("slots:") == number("size:")
                });
            } else if change == "older" {
                // A copy from before the dump: with fewer items.
                let restore = [&b"RESTORE"[..], b"urls", b"0", &older, b"REPLACE"];
                assert_eq!(client.cmd(&restore), ok());
            } else {
                client.run(change);
            }
            true
        };
        // The header was read, and a chunk.
        let place = Before { after: "BF.SCANDUMP", command: 1 };
        let words = "--json dump urls -o urls.dump";
        let run = relayed(&server, server.dir(), words, place, |_| changed());
        let ran = Ran::from(run.output);
        assert_eq!((ran.code, run.reached), (0, true), "{change}: {ran:?}");
        // The filter changed during the first attempt, and not during the second one.
        assert_eq!(checked("dump", &ran.stdout)[0]["changed"], false, "{change}");
        assert_eq!(run_on(&server, "restore FILE copy", &file).code, 0);
        let [copy, urls] = ["copy", "urls"].map(|key| harness::digest(&mut client, key));
        assert_eq!(copy, urls, "{change}");
    }
}

/// The copy has the items that were in all the time, with their counts.
#[test]
fn counts_may_change_during_a_dump() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    // 29 MB, two chunks.
    client.run("BF.RESERVE urls 1e-6 200000000 COUNTING");
    let before = numbered("item", 1_000);
    for _ in 0..3 {
        harness::madd(&mut client, "urls", &before);
    }
    let mut child = command_at(&server, "dump urls -o")
        .arg(&file)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    let mut number = 0;
    while child.try_wait().expect("a child").is_none() {
        client.cmd(&["BF.ADD", "urls", &number.to_string()]);
        client.cmd(&["BF.DEL", "urls", &number.to_string()]);
        number += 1;
    }
    let ran: Ran = child.wait_with_output().expect("the tool ends").into();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(run_on(&server, "restore FILE copy", &file).code, 0);
    for item in &before {
        assert_eq!(client.cmd(&["BF.COUNT", "copy", item]), int(3));
    }
    // Each of the two chunks may have been read while another item was in.
    assert!((1_000..=1_002).contains(&client.run("BF.CARD copy").int()));
}

/// A killed dump leaves no file of its name, a killed restore no filter.
#[test]
fn killed_dumps_and_restores_leave_nothing_that_passes_for_whole() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    client.run(LARGE);
    harness::madd(&mut client, "urls", &numbered("item", 100_000));
    assert_eq!(run_on(&server, "dump urls -o FILE", &file).code, 0);
    let whole = fs::read(&file).unwrap();
    let digest = harness::digest(&mut client, "urls");
    let mut random = Random::new(17);
    for _ in 0..10 {
        let _ = fs::remove_file(&file);
        kill_during(&server, "dump urls -o FILE", &file, random.below(40));
        assert!(!file.exists() || fs::read(&file).unwrap() == whole, "no part has the name");
        assert_eq!(run_on(&server, "dump urls -o FILE", &file).code, 0);
        assert!(fs::read(&file).unwrap() == whole);

        client.run("DEL copy");
        kill_during(&server, "restore FILE copy", &file, random.below(60));
        // What the killed tool had sent may be applied only now.
        wait_until("the connection of the killed tool is closed", || {
            !client.run("CLIENT LIST").text().contains("name=redis-bloom")
        });
        if client.run("EXISTS copy") == int(0) {
            if client.run("DBSIZE") == int(2) {
                let ran = run_on(&server, "restore FILE copy", &file);
                let says = "another restore is running, or was interrupted";
                assert!(ran.code == 4 && ran.stderr.contains(says), "{ran:?}");
                let key = client.run("KEYS copy:restoring:*").elements()[0].text();
                run_at(&server, &format!("drop {key}")).done();
            }
            let ran = run_on(&server, "restore FILE copy", &file);
            assert_eq!(ran.code, 0, "{ran:?}");
        }
        assert_eq!(harness::digest(&mut client, "copy"), digest);
        assert_eq!(client.run("DBSIZE"), int(2));
    }
}

/// Runs the tool, and kills it after some milliseconds.
fn kill_during(server: &Server, words: &str, file: &Path, milliseconds: usize) {
    let mut command = command_at(server, "--quiet");
    command.args(words.split_whitespace().map(|word| match word {
        "FILE" => file.as_os_str(),
        word => word.as_ref(),
    }));
    let mut child = command.spawn().expect("the tool runs");
    std::thread::sleep(Duration::from_millis(milliseconds as u64));
    let _ = child.kill();
    child.wait().expect("a child");
}

/// The command for a run through a proxy.
fn through(proxy: &Proxy, words: &str, file: &Path) -> Ran {
    let mut command = crate::run::command();
    command.args(["-p", &proxy.port().to_string()]);
    command.args(words.split_whitespace().map(|word| match word {
        "FILE" => file.as_os_str(),
        word => word.as_ref(),
    }));
    command.output().expect("the tool runs").into()
}

/// A connection that breaks: the file is begun again. A chunk that was changed on its way is seen.
#[test]
fn after_a_broken_connection_a_dump_and_a_restore_begin_again() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    client.run(LARGE);
    harness::madd(&mut client, "urls", &numbered("item", 10_000));
    assert_eq!(run_on(&server, "dump urls -o FILE", &file).code, 0);
    let whole = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    // In the second of three chunks of 16 MiB: cut, then changed.
    let cutting = [Fault::Cut(25_000_000)];
    let ran = through(&Proxy::before(server.port(), &cutting), "dump urls -o FILE", &file);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(fs::read(&file).unwrap() == whole);
    let changing = [Fault::Change(25_000_000)];
    let ran = through(&Proxy::before(server.port(), &changing), "dump urls -o FILE", &file);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("damaged on its way"), "{ran:?}");
    assert!(fs::read(&file).unwrap() == whole && beside(&file).is_empty());
    // The header was sent, and a chunk.
    let place = Before { after: "BF.LOADCHUNK", command: 1 };
    let run = relayed(&server, server.dir(), "restore urls.dump copy", place, |_| {
        client.run("CLIENT KILL TYPE normal SKIPME yes");
        true
    });
    let ran = Ran::from(run.output);
    assert!(run.reached && ran.code == 0, "{ran:?}");
    assert_eq!(harness::digest(&mut client, "copy"), harness::digest(&mut client, "urls"));
    assert_eq!(client.run("DBSIZE"), int(2));
}

#[test]
fn ctrl_c_leaves_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    client.run("BF.RESERVE urls 0.01 160000000 SEED 2");
    assert_eq!(run_on(&server, "dump urls -o FILE", &file).code, 0);
    for words in ["restore FILE copy", "dump urls -o FILE"] {
        if words.starts_with("dump") {
            fs::remove_file(&file).unwrap();
        }
        let child = command_at(&server, "--quiet")
            .args(words.split_whitespace().map(|word| match word {
                "FILE" => file.as_os_str(),
                word => word.as_ref(),
            }))
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tool runs");
        wait_until("a part is done", || {
            !beside(&file).is_empty() || client.run("DBSIZE") == int(2)
        });
        // While the server is stopped, no chunk comes, and the signal is seen before the next.
        let stopped = Stopped::stop(server.pid());
        press_ctrl_c(&child);
        std::thread::sleep(Duration::from_millis(50));
        std::mem::drop(stopped);
        let ran: Ran = child.wait_with_output().expect("the tool ends").into();
        assert_eq!((ran.code, ran.stdout.as_str()), (130, ""), "{words}: {ran:?}");
        assert!(ran.stderr.starts_with("redis-bloom: interrupted\n  Nothing was "), "{ran:?}");
        assert_eq!(client.run("DBSIZE"), int(1), "{words}");
        assert!(beside(&file).is_empty(), "{words}");
    }
    assert!(!file.exists());
}

/// Starts a restore of a large filter, and stops it before it has loaded everything.
fn stopped_restore(server: &Server, words: &str, file: &Path) -> (Child, Stopped) {
    let mut client = server.client();
    client.run("BF.RESERVE urls 0.01 160000000 SEED 2");
    assert_eq!(run_on(server, "dump urls -o FILE", file).code, 0);
    let child = command_at(server, words)
        .arg(file)
        .arg("copy")
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    wait_until("a part is loaded", || client.run("DBSIZE") == int(2));
    let stopped = Stopped::stop(child.id());
    assert_eq!(client.run("EXISTS copy"), int(0), "it is not complete");
    (child, stopped)
}

/// Another client makes the key while the tool loads.
#[test]
fn a_key_of_another_type_that_appears_is_not_replaced() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    let (child, stopped) = stopped_restore(&server, "--quiet restore --replace", &file);
    client.run("SET copy value");
    std::mem::drop(stopped);
    let ran: Ran = child.wait_with_output().expect("the tool ends").into();
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""), "{ran:?}");
    assert!(ran.stderr.contains("WRONGTYPE the key holds a string"), "{ran:?}");
    assert_eq!(client.run("GET copy").text(), "value");
    assert_eq!(client.run("DBSIZE"), int(2), "what was loaded is gone");
}

#[test]
fn a_file_that_changes_during_a_restore_is_noticed() {
    let server = Server::start();
    let file = file_in(&server);
    let (child, stopped) = stopped_restore(&server, "--quiet restore", &file);
    fs::write(&file, "").unwrap();
    std::mem::drop(stopped);
    let ran: Ran = child.wait_with_output().expect("the tool ends").into();
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    assert_eq!(server.client().run("DBSIZE"), int(1), "what was loaded is gone");
}

/// A pipe cannot be read twice, and one without a writer would be waited for.
#[test]
fn a_pipe_is_not_restored() {
    let server = Server::start();
    let file = file_in(&server);
    let made = Command::new("mkfifo").arg(&file).status().expect("mkfifo runs");
    assert!(made.success());
    let mut restore = command_at(&server, "restore");
    let child = restore.arg(&file).arg("copy").stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the tool runs");
    wait_until("the tool ends", || child.try_wait().unwrap().is_some());
    let ran: Ran = child.wait_with_output().expect("the tool ends").into();
    assert_eq!(ran.code, 2, "{ran:?}");
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(ran.stderr.contains(&format!("{name}: not a regular file")), "{ran:?}");
}

/// The transaction fails because the key changes: its type is asked again.
#[test]
fn a_key_that_changes_between_check_and_rename_is_checked_again() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let server = Server::start();
    let file = file_in(&server);
    server.client().run("BF.ADD urls a");
    assert_eq!(run_on(&server, "dump urls -o FILE", &file).code, 0);
    for (kind, allowed, code) in
        [("string", true, 4), ("MBbloom--", true, 0), ("string", false, 4), ("none", false, 0)]
    {
        let commits = AtomicUsize::new(0);
        let loaded = AtomicBool::new(false);
        let fake = Fake::start(move |command| match command.split(' ').next() {
            Some("TYPE") if !command.ends_with(":0") && loaded.load(Ordering::SeqCst) => {
                let changed = !allowed || commits.load(Ordering::SeqCst) > 0;
                format!("+{}\r\n", if changed { kind } else { "none" })
            }
            Some("TYPE") => "+none\r\n".to_owned(),
            Some("BF.LOADCHUNK") => {
                loaded.store(true, Ordering::SeqCst);
                "+OK\r\n".to_owned()
            }
            Some("WATCH") if !allowed => "-NOPERM no permissions\r\n".to_owned(),
            Some("RENAME") if allowed => "+QUEUED\r\n".to_owned(),
            Some("EXEC") if commits.fetch_add(1, Ordering::SeqCst) == 0 => "*-1\r\n".to_owned(),
            Some("EXEC") => "*1\r\n+OK\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        });
        let mut command = crate::run::command();
        command.args(["-p", &fake.port.to_string(), "restore"]).arg(&file);
        let ran: Ran = command.args(["{copy}", "--replace"]).output().expect("it runs").into();
        assert_eq!(ran.code, code, "{kind}, {allowed}: {ran:?}");
        let renames = fake.commands().iter().filter(|words| words.starts_with("RENAME")).count();
        let expected = usize::from(allowed) + usize::from(code == 0);
        assert_eq!(renames, expected, "{kind}, {allowed}: {:?}", fake.commands());
    }
}

/// A limit of the file's size, in place of a full disk.
#[test]
fn a_full_disk_leaves_no_file() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    client.run(LARGE);
    let mut command = Command::new("bash");
    command.args(["-c", "trap '' XFSZ; ulimit -f 25000; exec \"$@\"", "bash"]);
    let tool = command_at(&server, "dump urls -o");
    command.arg(tool.get_program()).args(tool.get_args()).arg(&file);
    let ran: Ran = command.output().expect("bash runs").into();
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    assert!(!file.exists() && beside(&file).is_empty());
}

/// A name of a file that a terminal would obey.
#[test]
fn names_of_files_are_escaped() {
    let server = Server::start();
    server.client().run("BF.ADD urls a");
    let file = server.dir().join("a\x1b[2J");
    for words in ["dump urls -o FILE", "restore FILE copy"] {
        let ran = run_on(&server, words, &file);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(text.contains("a\\u{1b}[2J") && !text.contains('\x1b'), "{ran:?}");
    }
    fs::write(&file, "x").unwrap();
    let ran = run_on(&server, "restore FILE copy", &file);
    assert!(ran.stderr.contains("a\\u{1b}[2J") && !ran.stderr.contains('\x1b'), "{ran:?}");
    fs::remove_file(&file).unwrap();
    let ran = run_on(&server, "restore FILE copy", &file);
    assert!(ran.stderr.contains("a\\u{1b}[2J") && !ran.stderr.contains('\x1b'), "{ran:?}");
}

#[test]
fn a_cluster_renames_the_temporary_key() {
    let server = Server::with().config("cluster-enabled yes").start();
    let mut client = server.client();
    client.run("CLUSTER ADDSLOTSRANGE 0 16383");
    wait_until("the cluster is up", || {
        client.run("CLUSTER INFO").text().contains("cluster_state:ok")
    });
    let file = file_in(&server);
    client.run("BF.ADD urls a");
    assert_eq!(run_on(&server, "dump urls -o FILE", &file).code, 0);
    for name in ["copy", "{urls:7}:1", "a}b", "{}x", "a{b"] {
        let ran = run_on(&server, &format!("restore FILE {name}"), &file);
        assert_eq!(ran.code, 0, "{name}: {ran:?}");
        assert_eq!(client.cmd(&["BF.EXISTS", name, "a"]), int(1), "{name}");
    }
    assert_eq!(client.run("DBSIZE"), int(6));
}

/// While a slot moves, the node that gets it answers only directly after ASKING.
#[test]
fn a_slot_that_moves_is_followed() {
    let cluster = Cluster::start();
    let slot = slot("urls");
    let from = slot * PRIMARIES / SLOTS;
    let to = (from + 1) % PRIMARIES;
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    let (mut old, mut new) = (source.client(), target.client());
    assert_eq!(old.run("BF.RESERVE urls 0.0001 1000 SEED 1"), ok());
    madd(&mut old, "urls", &numbered("item", 100));
    assert_eq!(new.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", cluster.ids[from])), ok());
    assert_eq!(old.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", cluster.ids[to])), ok());
    assert_eq!(old.run(&format!("MIGRATE 127.0.0.1 {} urls 0 10000", target.port())), ok());
    let file = file_in(source);
    let ran = run_on(source, "dump urls -o FILE", &file);
    assert_eq!(ran.code, 0, "{ran:?}");
    for words in ["check urls item-1 item-2", "verify urls --probes 100"] {
        let ran = run_on(source, words, &file);
        assert_eq!(ran.code, 0, "{words}: {ran:?}");
    }
    // It is loaded into the new node, and gets its name when the slot is there.
    let copy = "{urls}:copy";
    let mut command = command_at(source, "restore");
    command.arg(&file).arg(copy).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the tool runs");
    let keys = format!("CLUSTER COUNTKEYSINSLOT {slot}");
    wait_until("the copy is loaded", || new.run(&keys) == int(2));
    for client in [&mut new, &mut old] {
        assert_eq!(client.run(&format!("CLUSTER SETSLOT {slot} NODE {}", cluster.ids[to])), ok());
    }
    let ran = Ran::from(child.wait_with_output().expect("the tool ends"));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(new.cmd(&["BF.EXISTS", copy, "item-1"]), int(1));
    assert_eq!(new.run(&keys), int(2));
}

/// The rights that docs/reference/cli.md lists are enough.
#[test]
fn least_rights() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    client.run("BF.ADD urls a");
    client.run("ACL SETUSER dumper on >secret resetkeys %R~urls -@all +bf.info +bf.scandump");
    client.run(
        "ACL SETUSER restorer on >secret resetkeys ~copy* -@all +type +bf.info +bf.loadchunk \
         +rename +renamenx +unlink",
    );
    let transactions = "ACL SETUSER renamer on >secret resetkeys ~copy* -@all +type +bf.info \
         +bf.loadchunk +rename +watch +multi +exec";
    client.run(transactions);
    let ran = run_on(&server, "--user dumper --pass secret dump urls -o FILE", &file);
    assert_eq!(ran.code, 0, "{ran:?}");
    let words = "--user restorer --pass secret restore FILE copy";
    assert_eq!(run_on(&server, words, &file).code, 0);
    assert_eq!(run_on(&server, &format!("{words} --replace"), &file).code, 0);
    let words = "--user renamer --pass secret restore FILE copy --replace";
    assert_eq!(run_on(&server, words, &file).code, 0);
    let ran = run_on(&server, "--user dumper --pass secret restore FILE copy", &file);
    assert_eq!(ran.code, 4);
    assert!(ran.stderr.contains("NOPERM"), "{ran:?}");
    let ran = run_on(&server, "--user dumper --pass wrong dump urls -o FILE", &file);
    assert_eq!(ran.code, 3);
}

#[test]
fn errors_have_their_exit_codes() {
    let server = Server::start();
    let mut client = server.client();
    let file = file_in(&server);
    client.run("SET text value");
    client.run("BF.ADD urls a");
    let ran = run_on(&server, "dump missing -o FILE", &file);
    assert_eq!(ran.code, 4);
    assert!(ran.stderr.starts_with("redis-bloom: BF.INFO: ERR not found\n"), "{ran:?}");
    let ran = run_on(&server, "dump text -o FILE", &file);
    assert_eq!(ran.code, 4);
    assert!(ran.stderr.starts_with("redis-bloom: dump text: WRONGTYPE"), "{ran:?}");
    assert!(!file.exists() && beside(&file).is_empty());
    for output in ["/dev/null", "/nonexistent/file", "/tmp"] {
        let ran = run_at(&server, &format!("dump urls -o {output}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    }
    assert_eq!(run_on(&server, "restore FILE copy", &file).code, 2, "no such file");
    assert_eq!(run_at(&server, "restore /dev/null copy").code, 2);
    assert_eq!(run_at(&server, "dump urls").code, 2, "no file named");
    let without = Server::with().without_module().start();
    let ran = run_on(&without, "dump urls -o FILE", &file);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("unknown command"), "{ran:?}");
}

#[test]
fn redisbloom_and_back() {
    let Some(theirs) = redisbloom("dump::redisbloom_and_back") else { return };
    let ours = Server::start();
    let (mut from, mut to) = (theirs.client(), ours.client());
    let file = file_in(&ours);
    let items = numbered("item", 20_000);
    for reserve in [
        "BF.RESERVE urls 0.01 1000",
        "BF.RESERVE urls 0.01 20000 NONSCALING",
        // 43 MB in two layers.
        "BF.RESERVE urls 0.001 19000",
        "BF.RESERVE urls 0.001 20000000",
    ] {
        from.run("FLUSHALL");
        to.run("FLUSHALL");
        from.run(reserve);
        harness::madd(&mut from, "urls", &items);
        let ran = run_on(&theirs, "dump urls -o FILE", &file);
        assert_eq!(ran.code, 0, "{reserve}: {ran:?}");
        assert!(!ran.stderr.contains("seed"), "{ran:?}");
        assert_eq!(run_on(&ours, "restore FILE urls", &file).code, 0, "{reserve}");
        let same = |left: &mut Client, right: &mut Client| {
            let probes = numbered("probe", 20_000);
            assert_eq!(mexists(left, "urls", &probes), mexists(right, "urls", &probes));
            assert!(mexists(right, "urls", &items).iter().all(|&present| present));
            assert_eq!(left.run("BF.CARD urls"), right.run("BF.CARD urls"));
        };
        same(&mut from, &mut to);
        // And back, over a filter that is there.
        let ran = run_on(&ours, "dump urls -o FILE", &file);
        assert_eq!(ran.code, 0, "{ran:?}");
        from.run("BF.ADD other x");
        from.run("RENAME other urls");
        assert_eq!(run_on(&theirs, "restore FILE urls", &file).code, 4);
        let ran = run_on(&theirs, "restore FILE urls --replace", &file);
        assert_eq!(ran.code, 0, "{reserve}: {ran:?}");
        same(&mut to, &mut from);
        assert_eq!(from.run("DBSIZE"), int(1));
    }
    // A native filter is no filter of RedisBloom.
    to.run("BF.ADD native a");
    assert_eq!(run_on(&ours, "dump native -o FILE", &file).code, 0);
    let ran = run_on(&theirs, "restore FILE native", &file);
    assert_eq!(ran.code, 4);
    assert!(ran.stderr.contains("ERR received bad data"), "{ran:?}");
    assert_eq!(from.run("DBSIZE"), int(1));
}
