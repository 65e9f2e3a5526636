//! `repair` of a lost shard, from the files of the items. On a cluster: sharded_rebuild.rs.

use std::{fs, io::Write as _, process::Command};

use bloom::sharding::shard_of;

use crate::{
    harness::{Client, Reply, Server, bulk, int, numbered, ok, wait_until},
    relay::{Before, relayed},
    run::{Ran, check_file, command_at, press_ctrl_c},
    schema::checked,
    sharded_load::{assert_all_in, at as at_server, create, file, reserve, started, write},
};

const SHARDS: u16 = 4;
/// The lost shard.
const LOST: usize = 2;

/// A filter with 20,000 items, a file of them, and the keys.
fn filled(server: &Server, client: &mut Client) -> Vec<String> {
    let keys = create(&mut at_server(client), "urls", SHARDS).current.keys;
    file(server.dir(), &numbered("item", 20_000));
    assert_eq!(run(server, "load urls items").code, 0);
    keys.into_iter().map(|key| String::from_utf8(key).expect("text")).collect()
}

fn run(server: &Server, words: &str) -> Ran {
    command_at(server, words).current_dir(server.dir()).output().expect("the tool runs").into()
}

fn exists(client: &mut Client, key: &str) -> bool {
    client.cmd(&["EXISTS", key]) == int(1)
}

/// Ctrl-C ends a repair whose pipe nobody writes, and nothing is left.
#[test]
fn a_repair_from_an_idle_pipe_ends_in_order() {
    let server = Server::start();
    let mut client = server.client();
    let keys = filled(&server, &mut client);
    client.cmd(&["UNLINK", &keys[LOST]]);
    let pipe = server.dir().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let words = format!("repair urls --shard {LOST} --from {}", pipe.display());
    let mut child = started(&server, &words);
    let temporary = format!("{}:repair", keys[LOST]);
    wait_until("it begins", || exists(&mut client, &temporary));
    press_ctrl_c(&child);
    wait_until("it ends", || child.try_wait().expect("a child").is_some());
    let ran: Ran = child.wait_with_output().expect("the tool ends").into();
    assert_eq!(ran.code, 130, "{ran:?}");
    assert!(ran.stderr.contains("  Do it again"), "{ran:?}");
    assert!(!exists(&mut client, &temporary) && !exists(&mut client, &keys[LOST]));
}

#[test]
fn a_lost_shard_is_repaired_from_the_file_of_all_items() {
    let server = Server::start();
    let mut client = server.client();
    let keys = filled(&server, &mut client);
    let (key, temporary) = (&keys[LOST], format!("{}:repair", keys[LOST]));
    let expansion = |client: &mut Client| client.cmd(&["BF.INFO", key, "EXPANSION"]);
    let (card, growth) = (client.cmd(&["BF.CARD", key]).int(), expansion(&mut client));
    client.cmd(&["UNLINK", key]);
    assert_eq!(check_file(&server, "urls", &server.dir().join("items")).code, 5);

    // A killed run left a part, with an item that is in no file.
    let reserve = ["BF.RESERVE", &temporary, "0.01", "100", "SHARD", "2", "4"];
    assert_eq!(client.cmd(&reserve), ok());
    let foreign = (0..).map(|at| format!("none-{at}"));
    let foreign = foreign.into_iter().find(|item| shard_of(item.as_bytes(), SHARDS) == 2).unwrap();
    assert_eq!(client.cmd(&["BF.ADD", &temporary, &foreign]), int(1));
    let ran = run(&server, "--json repair urls --shard 2 --from items");
    let report = &checked("repair", &ran.stdout)[0];
    let own = |item: &&String| shard_of(item.as_bytes(), SHARDS) == 2;
    let items = numbered("item", 20_000).iter().filter(own).count();
    assert_eq!((ran.code, &report["items"]), (0, &items.into()), "{ran:?}");
    assert!(!exists(&mut client, &temporary));
    assert_eq!(client.cmd(&["BF.EXISTS", key, &foreign]), int(0));
    // Another seed has other false positives: those that hide an item are rare.
    assert!((card - client.cmd(&["BF.CARD", key]).int()).abs() < 20);
    assert_eq!(expansion(&mut client), growth);
    assert_all_in(&server, "urls", &server.dir().join("items"));
    // The shard knows which it is.
    let refused = client.cmd(&["BF.INSERT", &keys[0], "NOCREATE", "ITEMS", &foreign]);
    assert!(matches!(&refused, Reply::Error(text) if text.contains("shard 2 of 4")), "{refused:?}");
}

#[test]
fn what_is_no_repair_is_refused_and_changes_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let keys = filled(&server, &mut client);
    let key = &keys[LOST];
    let digest = client.cmd(&["DEBUG", "DIGEST-VALUE", key]);
    fs::write(server.dir().join("foreign"), foreign(LOST)).unwrap();
    fs::write(server.dir().join("empty"), "").unwrap();
    client.run("BF.RESERVE plain 0.01 100");
    let refused = |words: &str, code: i32, text: &str| {
        let ran = run(&server, words);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{words}: {ran:?}");
        assert!(ran.stderr.contains(text), "{words}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 2, "{words}: {ran:?}");
    };
    refused("repair urls --shard 2 --from items", 4, "BUSYKEY there is a key of the type");
    refused("repair urls --shard 4 --from items", 2, "urls has shards 0 to 3");
    refused("repair plain --shard 0 --from items", 4, "there is no sharded filter");
    refused("repair none --shard 0 --from items", 4, "there is no sharded filter");
    refused("repair urls --shard 2 --from missing", 2, "missing");
    refused("repair urls --shard 2 --from .", 2, "a directory");
    assert_eq!(client.cmd(&["DEBUG", "DIGEST-VALUE", key]), digest);
    client.cmd(&["UNLINK", key]);
    for files in ["foreign", "empty"] {
        let text = "no item of the files belongs to it";
        refused(&format!("repair urls --shard 2 --from {files} --quiet"), 2, text);
    }
    assert!(!exists(&mut client, key) && !exists(&mut client, &format!("{key}:repair")));
    // The key that is filled is somebody else's.
    let temporary = format!("{key}:repair");
    client.cmd(&["SET", &temporary, "mine"]);
    let text = ":repair is a key of the type string";
    refused("repair urls --shard 2 --from items", 4, text);
    assert_eq!(client.cmd(&["GETDEL", &temporary]), bulk("mine"));
    // What is in its place is removed by hand; a string even the server's own way.
    client.cmd(&["SET", key, "other"]);
    refused("repair urls --shard 2 --from items", 4, "a key of the type string");
    client.cmd(&["DEL", key]);
    let ran = run(&server, "repair urls --shard 2 --from empty items");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_all_in(&server, "urls", &server.dir().join("items"));
    assert_ne!(client.cmd(&["DEBUG", "DIGEST-VALUE", key]), digest, "another seed");
    // Somebody makes the shard while it is repaired.
    client.cmd(&["UNLINK", key]);
    let fifo = server.dir().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let child = started(&server, &format!("repair urls --shard 2 --from {}", fifo.display()));
    let items = fs::read(server.dir().join("items")).unwrap();
    let mut pipe = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    assert_eq!(client.cmd(&["BF.RESERVE", key, "0.01", "100", "SHARD", "2", "4"]), ok());
    pipe.write_all(&items).expect("the tool reads");
    drop(pipe);
    let ran: Ran = child.wait_with_output().expect("the tool ends").into();
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("somebody has made a key in its place"), "{ran:?}");
    assert!(!exists(&mut client, &format!("{key}:repair")));
}

/// A rebuild that ends before any command of a repair leaves a tombstone, which stays.
#[test]
fn a_repair_puts_no_shard_over_a_tombstone() {
    let server = Server::start();
    let mut client = server.client();
    file(server.dir(), &numbered("item", 100));
    let (mut at, mut refused) = (0, 0);
    loop {
        client.run("FLUSHALL");
        let old = create(&mut at_server(&mut client), "urls", SHARDS);
        let key = String::from_utf8(old.current.keys[LOST].clone()).expect("text");
        let before = Before { after: "", command: at };
        let words = "repair urls --shard 2 --from items";
        client.cmd(&["DEL", &key]);
        let run = relayed(&server, server.dir(), words, before, |_| {
            let new = reserve(&mut at_server(&mut client), "urls", 3, 2, "EXPANSION 1");
            write(&mut at_server(&mut client), "urls", &new);
            assert_eq!(client.cmd(&["SET", &key, "moved to 2"]), ok());
            true
        });
        let ran = Ran::from(run.output);
        if !run.reached {
            assert_eq!(ran.code, 0, "{ran:?}");
            break;
        }
        assert_eq!(client.cmd(&["GET", &key]).text(), "moved to 2", "command {at}: {ran:?}");
        refused += usize::from(ran.code == 5);
        at += 1;
    }
    assert!(refused > 5, "{refused} of {at}");
}

/// Another shard of this number takes the place of the one that is filled, before each command.
#[test]
fn a_repair_puts_no_other_shard_in_the_place() {
    let server = Server::start();
    let mut client = server.client();
    let path = file(server.dir(), &numbered("item", 100));
    let (mut at, mut replaced) = (0, 0);
    loop {
        client.run("FLUSHALL");
        let filter = create(&mut at_server(&mut client), "urls", SHARDS);
        let key = String::from_utf8(filter.current.keys[LOST].clone()).expect("text");
        let before = Before { after: "", command: at };
        let words = "repair urls --shard 2 --from items";
        client.run(&format!("DEL {key}"));
        let run = relayed(&server, server.dir(), words, before, |_| {
            if client.run(&format!("DEL {key}:repair")) == int(1) {
                client.run(&format!("BF.RESERVE {key}:repair 0.01 1000 SHARD 2 {SHARDS}"));
                replaced += 1;
            }
            true
        });
        let ran = Ran::from(run.output);
        if ran.code == 0 {
            let items = fs::read_to_string(&path).expect("the file");
            for item in items.lines() {
                if usize::from(shard_of(item.as_bytes(), SHARDS)) == LOST {
                    let found = client.cmd(&["BF.EXISTS", &key, item]);
                    assert_eq!(found, int(1), "command {at}: {item}: {ran:?}");
                }
            }
        }
        if !run.reached {
            assert_eq!(ran.code, 0, "{ran:?}");
            break;
        }
        at += 1;
    }
    assert!(replaced > 5, "{replaced} of {at}");
}

/// Lines of items of other shards.
fn foreign(shard: usize) -> String {
    let items = numbered("item", 100);
    let other = |item: &&String| usize::from(shard_of(item.as_bytes(), SHARDS)) != shard;
    items.iter().filter(other).map(|item| format!("{item}\n")).collect()
}

/// The rights that docs/reference/cli.md lists are enough.
#[test]
fn a_repair_needs_few_rights() {
    let server = Server::start();
    let mut client = server.client();
    let keys = filled(&server, &mut client);
    client.cmd(&["UNLINK", &keys[LOST]]);
    let rights = "ACL SETUSER least on >x ~urls ~{urls:* +hgetall +type +bf.info +bf.reserve \
                  +bf.bulkadd +info +wait +cluster|slots +unlink +renamenx";
    assert_eq!(client.run(rights), ok());
    let ran = run(&server, "--user least -a x repair urls --shard 2 --from items");
    assert_eq!(ran.code, 0, "{ran:?}");
    client.run("ACL SETUSER least +watch +multi +exec");
    client.cmd(&["UNLINK", &keys[LOST]]);
    assert_eq!(run(&server, "--user least -a x repair urls --shard 2 --from items").code, 0);
}
