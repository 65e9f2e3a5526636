//! `plan --nodes`, `create --shards`, `shard`, `info`, `top` and `drop` of sharded filters: on one
//! server where that is enough, and on a cluster of three primaries and three replicas.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    process::{Command, Stdio},
};

use crate::sharding::{keys::shard_keys, shard_capacity, shard_of};

use crate::{
    fake::Fake,
    harness::{
        Client, Cluster, PRIMARIES, Reply, SLOTS, Server, Stopped, int, ok, slot, wait_until,
    },
    relay::{Before, relayed},
    run::{Ran, command, command_at, run, run_at},
    schema::checked,
    sharded_faults::in_step,
};

/// The fields of a descriptor.
fn fields(client: &mut Client, name: &str) -> BTreeMap<String, String> {
    let reply = client.cmd(&["HGETALL", name]);
    let texts: Vec<_> = reply.elements().iter().map(Reply::text).collect();
    texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn key(name: &str, shards: u16, shard: usize) -> String {
    let keys = shard_keys(name.as_bytes(), shards, 1).expect("a name");
    String::from_utf8(keys[shard].clone()).expect("text")
}

/// Two lines on stderr, nothing that was made or removed in vain on stdout.
#[track_caller]
fn fails(ran: &Ran, code: i32, what: &str, hint: &str) {
    assert_eq!(ran.code, code, "{ran:?}");
    let lines: Vec<_> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{ran:?}");
    assert!(lines[0].starts_with("redis-bloom: ") && lines[0].contains(what), "{ran:?}");
    assert!(lines[1].starts_with("  ") && lines[1].contains(hint), "{ran:?}");
}

#[test]
fn a_sharded_filter_is_created_and_dropped() {
    let server = Server::start();
    let mut client = server.client();
    let create = "create urls --items 1M --error 0.1% --shards 8";
    assert_eq!(
        run_at(&server, create).done(),
        "urls created: 8 shards on 1 node, 1.00 M items at 0.1 %, 1.97 MB, 15.80 bits an item\n"
    );
    let found = fields(&mut client, "urls");
    let capacity = shard_capacity(1_000_000, 8).expect("shards").to_string();
    for (field, value) in [
        ("rule", "crc32"),
        ("state", "ready"),
        ("shards", "8"),
        ("generation", "1"),
        ("error", "0.001"),
        ("capacity", "1000000"),
        ("poll", "10"),
    ] {
        assert_eq!(found[field], value, "{field}");
    }
    assert_eq!(found.len(), 7 + 8, "nothing of the way to it is left: {found:?}");
    let mut seeds = Vec::new();
    for shard in 0..8 {
        let key = key("urls", 8, shard);
        assert_eq!(found[&shard.to_string()], key);
        let mut word = |word: &str| client.cmd(&["BF.INFO", &key, word]).elements()[0].clone();
        assert_eq!(word("SHARD").elements(), [int(shard as i64), int(8)]);
        assert_eq!(word("CAPACITY").int().to_string(), capacity);
        assert_eq!(word("EXPANSION"), int(1));
        assert_eq!(word("ERROR").text(), "0.001");
        // An empty filter differs from another one of its size by shard and seed.
        seeds.push(client.cmd(&["DEBUG", "DIGEST-VALUE", &key]));
    }
    seeds.sort_by_key(|seed| format!("{seed:?}"));
    seeds.dedup();
    assert_eq!(seeds.len(), 8, "each shard has its seed");

    // The name is taken, for every kind of filter.
    for words in [create, "create urls --items 10 --error 0.1"] {
        assert_eq!(run_at(&server, words).code, 4, "{words}");
    }
    assert_eq!(fields(&mut client, "urls"), found);

    let ran = run_at(&server, "drop urls");
    assert_eq!((ran.code, &*ran.stdout, &*ran.stderr), (0, "", "urls removed: 8 shards\n"));
    assert_eq!(client.run("DBSIZE"), int(0));
    fails(&run_at(&server, "drop urls"), 4, "ERR not found", "no filter of this name");
}

#[test]
fn options_of_create_reach_the_shards() {
    let server = Server::start();
    let mut client = server.client();
    let words = "create fix --items 1k --error 1% --shards 3 --nonscaling --poll 2 --json";
    let lines = checked("create", &run_at(&server, words).done());
    assert_eq!((&lines[0]["shards"], &lines[0]["nodes"]), (&3.into(), &1.into()));
    let size = client.cmd(&["BF.INFO", &key("fix", 3, 2), "SIZE"]).elements()[0].int();
    assert_eq!(lines[0]["shard_bytes"], size);
    assert_eq!(lines[0]["bytes"], 3 * size);
    let expansion = client.cmd(&["BF.INFO", &key("fix", 3, 0), "EXPANSION"]);
    assert!(!matches!(expansion.elements()[0], Reply::Int(_)), "{expansion:?}");
    assert_eq!(client.run("HGET fix poll").text(), "2");
    run_at(&server, "create wide --items 1k --error 1% --shards 2 --expansion 4").done();
    let expansion = client.cmd(&["BF.INFO", &key("wide", 2, 0), "EXPANSION"]);
    assert_eq!(expansion.elements()[0], int(4));

    let name = OsStr::from_bytes(b"b\xff");
    let mut create = command_at(&server, "create --items 9 --error 0.1 --shards 1 --json");
    let ran: Ran = create.arg(name).output().expect("the tool runs").into();
    assert_eq!(checked("create", &ran.done())[0]["name_hex"], "62ff");

    for wrong in [
        "create x{1} --items 10 --error 0.1 --shards 2",
        "create x --items 10 --error 0.1 --shards 0",
        "create x --items 10 --error 0.1 --shards 1025",
        "create x --items 10 --error 0.1 --shards 2 --counting",
        "create x --items 10 --error 0.1 --shards 2 --poll 0",
        "create x --items 10 --error 0.1 --poll 5",
        "create x --items 0 --error 0.1 --shards 2",
    ] {
        assert_eq!(run_at(&server, wrong).code, 2, "{wrong}");
    }
    assert_eq!(client.run("EXISTS x"), int(0));
}

/// A creation that ended at any step is undone by `drop`.
#[test]
fn a_creation_that_ended_early_is_undone() {
    let server = Server::start();
    let mut client = server.client();
    let create = "create urls --items 10k --error 1% --shards 4";
    let keys: Vec<_> = (0..4).map(|shard| key("urls", 4, shard)).collect();
    let planned = format!(
        "HSET urls state creating spare.shards 4 spare.generation 1 spare.error 0.01 \
         spare.capacity 10000 spare.0 {} spare.1 {} spare.2 {} spare.3 {}",
        keys[0], keys[1], keys[2], keys[3]
    );
    // The plan; some shards; all shards.
    for reserved in [0, 1, 4] {
        assert!(client.run(&planned).int() > 0);
        for (shard, key) in keys.iter().enumerate().take(reserved) {
            assert_eq!(client.run(&format!("BF.RESERVE {key} 0.01 9 SHARD {shard} 4")), ok());
        }
        // Nobody uses it, and nobody creates it anew.
        fails(&run_at(&server, create), 4, "another run is creating it", "`drop urls`");
        fails(&run_at(&server, "info urls"), 5, "half-written", "`drop urls`");
        let ran = run_at(&server, "drop urls");
        let plural = if reserved == 1 { "" } else { "s" };
        assert_eq!(ran.stderr, format!("urls removed: {reserved} shard{plural}\n"));
        assert_eq!(client.run("DBSIZE"), int(0));
    }
    // A hash of somebody else may have a state, too.
    client.run("HSET urls state creating other 1");
    for words in [create, "drop urls"] {
        assert_eq!(run_at(&server, words).code, 4, "{words}");
    }
    assert_eq!(client.run("HLEN urls"), int(2));
    client.run("DEL urls");
    // A key that is no shard of this filter is neither taken nor removed.
    client.run(&planned);
    client.cmd(&["SET", &keys[2], "mine"]);
    let ran = run_at(&server, "drop urls");
    assert_eq!(
        ran.stderr,
        format!("{} is not a filter, and is not removed\nurls removed: 0 shards\n", keys[2])
    );
    assert_eq!(client.cmd(&["GET", &keys[2]]).text(), "mine");
}

/// Keys of an earlier filter or tombstones in the way: the next generation takes other keys.
#[test]
fn a_generation_is_never_used_twice() {
    let server = Server::start();
    let mut client = server.client();
    let create = "create urls --items 10k --error 1% --shards 4";
    client.cmd(&["SET", &key("urls", 4, 1), "moved to 2", "EX", "1000"]);
    let lines = checked("create", &run_at(&server, &format!("{create} --json")).done());
    assert_eq!(lines[0]["generation"], 2);
    let stored = client.run("HGET urls 1").text();
    assert_eq!(stored, key("urls", 4, 1).replace("}:1", "}:2"));
    let ran = run_at(&server, "drop urls");
    assert_eq!(ran.stderr, "urls removed: 4 shards\n");
    assert_eq!(client.run("DBSIZE"), int(1), "a tombstone expires");
    client.run("FLUSHALL");
    // The shards of both generations, those of a rebuild, and those that become tombstones.
    run_at(&server, create).done();
    for field in ["next.0", "spare.7", "retired.3"] {
        client.cmd(&["BF.RESERVE", field, "0.01", "10"]);
        client.cmd(&["HSET", "urls", field, field]);
    }
    assert_eq!(run_at(&server, "drop urls").stderr, "urls removed: 7 shards\n");
    assert_eq!(client.run("DBSIZE"), int(0));
}

/// From the first step on no client uses what is being dropped, and a drop that ended early can be
/// repeated.
#[test]
fn a_drop_that_ended_early_is_repeated() {
    let server = Server::start();
    let mut client = server.client();
    let create = "create urls --items 10k --error 1% --shards 4";
    run_at(&server, create).done();
    client.run(
        "ACL SETUSER half on >secret ~urls ~{urls:* -@all +type +hgetall +watch +multi +exec +hset \
         +info",
    );
    let ran = run_at(&server, "--user half --pass secret drop urls");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("UNLINK: NOPERM"), "{ran:?}");
    assert_eq!(client.run("DBSIZE"), int(5));
    for words in ["info urls", "check urls x"] {
        fails(&run_at(&server, words), 5, "half-written", "`drop urls`");
    }
    fails(&run_at(&server, create), 4, "another run is creating it, or", "`drop urls`");
    client.cmd(&["DEL", &key("urls", 4, 0)]);
    assert_eq!(run_at(&server, "drop urls").stderr, "urls removed: 3 shards\n");
    assert_eq!(client.run("DBSIZE"), int(0));
}

/// `drop` runs before each command of a run that creates the filter. Repeated, it leaves nothing.
#[test]
fn a_drop_during_a_creation_can_be_repeated() {
    let server = Server::start();
    let mut client = server.client();
    let create = "create urls --items 10k --error 1% --shards 4";
    let (mut at, mut repeated, mut dropped) = (0, 0, 0);
    loop {
        let before = Before { after: "creating\r\n", command: at };
        let run = relayed(&server, server.dir(), create, before, |_| {
            run_at(&server, "drop urls");
            true
        });
        let ran = Ran::from(run.output);
        if !run.reached {
            assert_eq!(ran.code, 0, "{ran:?}");
            break;
        }
        let left = client.run("DBSIZE") != int(0);
        if ran.code == 0 {
            // There was nothing to drop yet, or all of it.
            assert!(!left || run_at(&server, "info urls").code == 0, "command {at}: {ran:?}");
        } else if left {
            run_at(&server, "drop urls").done();
            assert_eq!(client.run("DBSIZE"), int(0), "command {at}: {ran:?}");
            repeated += 1;
            dropped += usize::from(ran.stderr.contains("it was dropped meanwhile"));
        }
        client.run("FLUSHALL");
        at += 1;
    }
    assert!(repeated > 3 && dropped > 3, "{repeated} and {dropped} of {at}");
}

/// A run that creates the filter ends before each command of `drop`, and notes what that may miss.
#[test]
fn a_drop_that_misses_shards_says_so() {
    let server = Server::start();
    let mut client = server.client();
    let (mut at, mut missed) = (0, 0);
    loop {
        client.run("HSET urls state creating creator 1 spare.shards 1 spare.generation 1");
        client.run("HSET urls spare.error 0.01 spare.capacity 10 spare.0 {urls:0}:1");
        let before = Before { after: "", command: at };
        let run = relayed(&server, server.dir(), "drop urls", before, |_| {
            // As `create` does.
            if client.run("HDEL urls dropping") == int(1) {
                client.cmd(&["HSET", "urls", "creator", ""]);
                client.run("BF.RESERVE {urls:0}:1 0.01 10 SHARD 0 1");
            }
            true
        });
        let ran = Ran::from(run.output);
        let left = client.run("DBSIZE") != int(0);
        assert_eq!(ran.code, if left { 5 } else { 0 }, "command {at}: {ran:?}");
        if left {
            assert!(ran.stderr.contains("Run it again"), "{ran:?}");
            run_at(&server, "drop urls").done();
            assert_eq!(client.run("DBSIZE"), int(0));
            missed += 1;
        }
        if !run.reached {
            break;
        }
        at += 1;
    }
    assert!(missed > 3, "{missed} of {at}");
}

/// A shard is deleted before each command of a run that creates the filter.
#[test]
fn a_shard_that_is_lost_while_others_are_made_is_noticed() {
    let server = Server::start();
    let mut client = server.client();
    let (mut at, mut lost) = (0, 0);
    loop {
        client.run("FLUSHALL");
        let before = Before { after: "", command: at };
        let words = "create urls --items 1k --error 1% --shards 2";
        let mut deleted = false;
        let run = relayed(&server, server.dir(), words, before, |_| {
            deleted = client.cmd(&["DEL", &key("urls", 2, 1)]) == int(1);
            true
        });
        let ran = Ran::from(run.output);
        assert_eq!(ran.code, if deleted { 5 } else { 0 }, "command {at}: {ran:?}");
        lost += usize::from(deleted);
        if !run.reached {
            break;
        }
        at += 1;
    }
    assert!(lost > 3, "{lost} of {at}");
}

/// Keys that another writer notes in the descriptor before the drop makes it half-written go, too:
/// whenever that is.
#[test]
fn a_drop_leaves_no_key_of_a_descriptor_that_changes() {
    let server = Server::start();
    let mut client = server.client();
    let mut at = 0;
    loop {
        run_at(&server, "create urls --items 10k --error 1% --shards 2").done();
        let before = Before { after: "", command: at };
        let run = relayed(&server, server.dir(), "drop urls", before, |_| {
            // As rebuild does, which is refused once the filter is being removed.
            if client.run("HGET urls state") == Reply::Bulk(b"ready".to_vec()) {
                client.run("HSET urls rebuild reserving spare.0 {urls:0}:2");
                assert_eq!(client.run("BF.RESERVE {urls:0}:2 0.01 10"), ok());
            }
            true
        });
        let ran = Ran::from(run.output);
        assert_eq!(ran.code, 0, "command {at}: {ran:?}");
        assert_eq!(client.run("KEYS *").elements(), [], "command {at}: {ran:?}");
        if !run.reached {
            break;
        }
        at += 1;
    }
    assert!(at > 8, "{at} commands");
}

/// Only what is a descriptor is dropped as one.
#[test]
fn drop_and_info_refuse_what_is_no_descriptor() {
    let server = Server::start();
    let mut client = server.client();
    client.run("BF.RESERVE victim 0.01 10");
    client.run("HSET user name x 0 victim state of-mind");
    fails(&run_at(&server, "drop user"), 4, "WRONGTYPE", "not a Bloom filter");
    assert_eq!(client.run("EXISTS user victim"), int(2));
    for (name, fields) in [
        ("work", "state running"),
        ("mode", "state ready"),
        ("law", "rule x"),
        ("firewall", "rule crc32 0 victim"),
        ("flow", "state creating 0 victim"),
    ] {
        client.run(&format!("HSET {name} {fields}"));
        fails(&run_at(&server, &format!("drop {name}")), 4, "WRONGTYPE", "not a Bloom filter");
        assert_eq!(client.cmd(&["EXISTS", name, "victim"]), int(2), "{name}");
    }
    client.run("HSET new rule keyed state ready shards 1 0 victim");
    client.run("HSET newer rule crc32 state frozen shards 1 0 victim");
    for name in ["new", "newer"] {
        for words in ["drop", "info"] {
            let ran = run_at(&server, &format!("{words} {name}"));
            fails(&ran, 4, "is unknown", "A newer redis-bloom");
        }
        let ran = run_at(&server, &format!("create {name} --items 9 --error 0.1 --shards 2"));
        fails(&ran, 4, "ERR item exists", "another name");
    }
    assert_eq!(client.run("EXISTS victim"), int(1));
    // A damaged one can be removed, and is not used.
    client.run("HSET broken rule crc32 state ready shards 2 0 victim");
    fails(&run_at(&server, "info broken"), 5, "is missing", "docs/reference/sharding.md");
    assert_eq!(run_at(&server, "drop broken").stderr, "broken removed: 1 shard\n");
}

#[test]
fn info_sums_up_the_shards() {
    let server = Server::start();
    let mut client = server.client();
    run_at(&server, "create urls --items 4000 --error 1% --shards 4").done();
    let mut counts = [0_u64; 4];
    for number in 0..4000 {
        let item = format!("item-{number}");
        let shard = usize::from(shard_of(item.as_bytes(), 4));
        counts[shard] += 1;
        client.cmd(&["BF.INSERT", &key("urls", 4, shard), "NOCREATE", "ITEMS", &item]);
    }
    let cards: Vec<u64> = (0..4)
        .map(|shard| client.cmd(&["BF.CARD", &key("urls", 4, shard)]).int().unsigned_abs())
        .collect();
    let lines = checked("info-shards", &run_at(&server, "info urls --json").done());
    let line = &lines[0];
    assert_eq!(line["items"], cards.iter().sum::<u64>());
    assert_eq!((&line["made_for"], &line["lost"]), (&4000.into(), &0.into()));
    assert_eq!(line["capacity"], 4 * shard_capacity(4000, 4).expect("shards"));
    let rates: Vec<_> = (0..4).map(|i| line["shards"][i]["rate_now"].as_f64().unwrap()).collect();
    let mean = rates.iter().sum::<f64>() / 4.0;
    assert!((line["rate_now"].as_f64().unwrap() - mean).abs() < 1e-12, "a mean, not a sum");
    let worst = rates.iter().copied().fold(0.0, f64::max);
    assert_eq!(line["worst_rate"]["value"].as_f64(), Some(worst));
    for (shard, card) in cards.iter().enumerate() {
        assert_eq!(line["shards"][shard]["items"], *card);
        assert_eq!(line["shards"][shard]["key"], key("urls", 4, shard));
    }
    // Around a filter in one key.
    client.run("BF.RESERVE plain 0.01 10");
    let ran = run_at(&server, "info plain urls plain");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.stdout.matches("\n\n").count(), 1 + 2, "{}", ran.stdout);
}

/// A sharded filter of known seeds, with 500 items.
fn known(client: &mut Client) {
    let mut descriptor = vec!["HSET".to_owned(), "urls".to_owned()];
    for shard in 0..3 {
        let key = key("urls", 3, shard);
        let reserve = format!("BF.RESERVE {key} 0.01 200 EXPANSION 1 SEED {shard} SHARD {shard} 3");
        assert_eq!(client.run(&reserve), ok());
        descriptor.extend([shard.to_string(), key]);
    }
    let more = "rule crc32 poll 10 shards 3 generation 1 error 0.01 capacity 500 state ready";
    descriptor.extend(more.split(' ').map(str::to_owned));
    assert_eq!(client.cmd(&descriptor), int(10));
    for number in 0..500 {
        let item = format!("item-{number}");
        let key = key("urls", 3, usize::from(shard_of(item.as_bytes(), 3)));
        assert!(!client.cmd(&["BF.INSERT", &key, "NOCREATE", "ITEMS", &item]).is_error());
    }
}

#[test]
fn info_and_top_of_shards_print_this() {
    let server = Server::start();
    let mut client = server.client();
    known(&mut client);
    assert_eq!(client.run("BF.RESERVE plain 0.01 100 SEED 1"), ok());
    let port = server.port().to_string();
    // As wide as the number of a port.
    let masked = |text: &str| text.replace(&port, &"#".repeat(port.len()));
    assert_eq!(port.len(), 5, "the ports of tests have five digits");
    let info = masked(&run_at(&server, "info urls").done());
    let top = run_at(&server, "top").done();
    golden("info-shards.txt", &info);
    golden("top-shards.txt", &top);
}

/// Compares with a file, or writes it where `UPDATE_GOLDEN` is set.
#[track_caller]
fn golden(name: &str, text: &str) {
    let path = format!("{}/tests/tool/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("a file that can be written");
    }
    assert_eq!(text, std::fs::read_to_string(&path).expect("a file"));
}

#[test]
fn a_lost_shard_is_seen() {
    let server = Server::start();
    let mut client = server.client();
    run_at(&server, "create urls --items 4000 --error 1% --shards 4").done();
    let lost = key("urls", 4, 2);
    let healthy = run_at(&server, "info urls").done();
    assert!(!healthy.contains("LOST"), "{healthy}");
    for (words, reason) in [
        // Deleted, or evicted.
        (vec!["DEL", &lost], "does not exist"),
        (vec!["SET", &lost, "text"], "holds another type"),
        (vec!["SET", &lost, "moved to 2"], "holds another type"),
        // Made anew by BF.ADD.
        (vec!["BF.RESERVE", &lost, "0.01", "100"], "is a filter that is no shard"),
        (vec!["BF.RESERVE", &lost, "0.01", "100", "SHARD", "1", "4"], "is shard 1 of 4"),
        (vec!["BF.RESERVE", &lost, "0.01", "100", "SHARD", "2", "8"], "is shard 2 of 8"),
    ] {
        client.cmd(&["DEL", &lost]);
        client.cmd(&words);
        let ran = run_at(&server, "info urls");
        let what = format!("urls: shard 2 of 4 is LOST: {lost} {reason}");
        let hint = "`rebuild urls`, export the items, then `rebuild urls --from FILE --commit`.";
        fails(&ran, 5, &what, hint);
        assert!(ran.stdout.contains("4 on 1 node, generation 1, 1 LOST\n"), "{}", ran.stdout);
        assert!(ran.stdout.contains("\n      2   LOST"), "{}", ran.stdout);
        let ran = run_at(&server, "info urls --json");
        let lines = checked("info-shards", &ran.stdout);
        assert_eq!((ran.code, &lines[0]["lost"]), (5, &1.into()));
        assert_eq!(lines[0]["shards"][2]["problem"], reason);
        assert!(lines[0]["shards"][2]["items"].is_null());
    }
    client.cmd(&["DEL", &lost, &key("urls", 4, 0)]);
    fails(&run_at(&server, "info urls"), 5, "shard 0 of 4 is LOST: ", "`rebuild ");
    assert!(run_at(&server, "info urls").stderr.contains(", and 1 more\n"));
    let top = run_at(&server, "top").done();
    assert!(top.contains("\nurls  2 of 4 "), "{top}");
    // All are lost: nothing can be summed up.
    client.cmd(&["DEL", &key("urls", 4, 1), &key("urls", 4, 3)]);
    fails(&run_at(&server, "info urls"), 5, "LOST", "rebuild");
    let ran = run_at(&server, "info urls --json");
    assert_eq!(checked("info-shards", &ran.stdout)[0]["lost"], 4);
    assert_eq!(run_at(&server, "drop urls").stderr, "urls removed: 0 shards\n");
    assert_eq!(client.run("DBSIZE"), int(0));
}

#[test]
fn the_next_generation_and_a_base_are_shown() {
    let server = Server::start();
    let mut client = server.client();
    run_at(&server, "create urls --items 4000 --error 1% --shards 2").done();
    run_at(&server, "create other --items 9000 --error 1% --shards 3").done();
    let mut next = vec!["HSET".to_owned(), "urls".to_owned()];
    for (field, value) in fields(&mut client, "other") {
        let value = if field == "generation" { "2".to_owned() } else { value };
        next.extend([format!("next.{field}"), value]);
    }
    next.extend(["base".to_owned(), "old".to_owned()]);
    client.cmd(&next);
    let text = run_at(&server, "info urls").done();
    assert!(text.contains("\n  next generation   2: 3 shards, 0 of 9.00 k items\n"), "{text}");
    assert!(text.contains("\n  base              old\n"), "{text}");
    let lines = checked("info-shards", &run_at(&server, "info urls --json").done());
    assert_eq!(
        (&lines[0]["next"]["generation"], &lines[0]["next"]["lost"]),
        (&2.into(), &0.into())
    );
    client.cmd(&["DEL", &key("other", 3, 0)]);
    fails(&run_at(&server, "info urls"), 5, "shard 0 of 3 is LOST", "rebuild");
    // After the exchange no rebuild mends the shards that answer.
    client.run("HSET urls generation 3");
    client.cmd(&["DEL", &key("urls", 2, 1)]);
    fails(&run_at(&server, "info urls"), 5, "shard 1 of 2 is LOST", "into another filter");
}

#[test]
fn top_folds_shards_into_a_line() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("BF.RESERVE plain 0.01 100"), ok());
    // A key like that of a shard, which is none.
    assert_eq!(client.run("BF.RESERVE {urls:7}:1 0.01 100"), ok());
    run_at(&server, "create urls --items 4000 --error 1% --shards 4").done();
    run_at(&server, "create users --items 100 --error 1% --shards 2").done();
    for number in 0..100 {
        let item = format!("item-{number}");
        let shard = usize::from(shard_of(item.as_bytes(), 4));
        client.cmd(&["BF.INSERT", &key("urls", 4, shard), "NOCREATE", "ITEMS", &item]);
    }
    let text = run_at(&server, "top").done();
    let names: Vec<_> = text.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(names, ["NAME", "urls", "users", "plain", "{urls:7}:1"], "{text}");
    let header: Vec<_> = text.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header[1], "SHARDS", "{text}");
    let lines = checked("top", &run_at(&server, "top --json").done());
    let urls = &lines[0];
    assert_eq!((&urls["name"], &urls["shards"]), (&"urls".into(), &4.into()));
    assert_eq!((&urls["shards_found"], &urls["server"]), (&4.into(), &serde_json::Value::Null));
    let cards = (0..4).map(|shard| client.cmd(&["BF.CARD", &key("urls", 4, shard)]).int());
    assert_eq!(urls["items"], cards.sum::<i64>());
    assert!(lines[2]["server"].is_string());
    // A pattern is one of names: no shard is taken for lost.
    for (pattern, expected) in [
        ("urls", vec!["urls"]),
        ("u*", vec!["urls", "users"]),
        ("{*", vec!["{urls:7}:1"]),
        ("*s", vec!["urls", "users"]),
        ("[op]*", vec!["plain"]),
    ] {
        let lines =
            checked("top", &run_at(&server, &format!("top --json --match {pattern}")).done());
        let names: Vec<_> = lines.iter().map(|line| line["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{pattern}");
    }
    // Without shards the columns are not there.
    let text = run_at(&server, "top --match plain").done();
    assert!(!text.contains("SHARD"), "{text}");
    // Two generations are two lines.
    let reserve =
        format!("BF.RESERVE {} 0.01 100 SHARD 0 2", key("urls", 2, 0).replace("}:1", "}:2"));
    assert_eq!(client.run(&reserve), ok());
    let text = run_at(&server, "top --match urls").done();
    assert!(text.contains("\nurls (generation 1)       4 "), "{text}");
    assert!(text.contains("\nurls (generation 2)  1 of 2 "), "{text}");
}

#[test]
fn nothing_is_begun_where_it_cannot_be_finished() {
    let create = "create urls --items 100M --error 1% --shards 4";
    // No module.
    let server = Server::with().without_module().start();
    let ran = run_at(&server, create);
    fails(&ran, 4, "its module has no shards", "every node, replicas first");
    assert_eq!(server.client().run("DBSIZE"), int(0));
    // No room: four shards are some 130 MB.
    let server = Server::with().config("maxmemory 100mb").start();
    fails(&run_at(&server, create), 4, "are free below maxmemory", "Raise maxmemory");
    assert_eq!(server.client().run("DBSIZE"), int(0));
    // A cluster in which nobody has the slots.
    let server = Server::with().config("cluster-enabled yes").start();
    let ran = run_at(&server, create);
    assert_eq!((ran.code, ran.stdout), (4, String::new()), "{}", ran.stderr);
    assert_eq!(server.client().run("DBSIZE"), int(0));
    assert_eq!(run(&format!("-p 1 {create}")).code, 3);
}

/// RedisBloom ignores words that it does not know.
#[test]
fn a_module_without_shard_is_seen_before_anything_is_written() {
    let fake = Fake::start(|command| match command {
        "BF.FORGET urls" => "-ERR unknown command 'BF.FORGET'\r\n".to_owned(),
        "HGETALL urls" => "*0\r\n".to_owned(),
        "CLUSTER SLOTS" => "-ERR This instance has cluster support disabled\r\n".to_owned(),
        command if command.starts_with("EXISTS") => ":0\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    });
    let words = format!("-p {} create urls --items 9 --error 0.1 --shards 2", fake.port);
    fails(&run(&words), 4, "has no shards", "every node, replicas first");
    let wrote = |command: &String| ["HSET", "BF.RESERVE"].iter().any(|w| command.starts_with(w));
    assert!(!fake.commands().iter().any(wrote), "{:?}", fake.commands());
}

/// Killed at some point, and stopped by Ctrl-C: `drop` removes all of it.
#[test]
fn a_creation_that_was_killed_is_undone() {
    let server = Server::start();
    let mut client = server.client();
    let create = "create urls --items 1M --error 1% --shards 300";
    for signal in ["KILL", "INT", "KILL"] {
        // The signal may come after the last step; then there is another try.
        let mut early = false;
        for _ in 0..20 {
            let mut tool = command_at(&server, create)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the tool runs");
            wait_until("the creation begins", || client.run("DBSIZE").int() > 1);
            let kill = format!("kill -{signal} {}", tool.id());
            assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
            if signal == "INT" {
                let ran: Ran = tool.wait_with_output().expect("the tool ends").into();
                if ran.code == 130 {
                    fails(&ran, 130, "interrupted", "`drop urls`");
                } else {
                    assert_eq!(ran.code, 0, "{ran:?}");
                }
            } else {
                tool.wait().expect("the tool ends");
            }
            early = client.run("HGET urls state").text() == "creating";
            run_at(&server, "drop urls").done();
            assert_eq!(client.run("DBSIZE"), int(0));
            if early {
                break;
            }
        }
        assert!(early, "{signal} came after the last step, twenty times");
    }
}

/// Each step waits until a replica has it: the lock, each shard, and the descriptor.
#[test]
fn create_waits_for_a_replica() {
    let server = Server::start();
    let mut client = server.client();
    client.run("CONFIG SET repl-ping-replica-period 3600");
    let replica = server.replica();
    let create = "create urls --items 10k --error 1% --shards 3";
    in_step(&server);
    let stopped = Stopped::stop(replica.pid());
    let tool = command_at(&server, create)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    // What is there when the tool waits for the first time: the lock alone.
    wait_until("the tool waits", || client.server_info("clients", "blocked_clients") == "1");
    assert_eq!(client.run("HGET urls state").text(), "creating");
    assert_eq!(client.run("DBSIZE"), int(1));
    drop(stopped);
    Ran::from(tool.wait_with_output().expect("the tool ends")).done();
    assert_eq!(replica.client().run("DBSIZE"), int(4));
    assert_eq!(replica.client().run("HGET urls state").text(), "ready");
}

/// Two that create a filter at once: one makes it, the other one is refused.
#[test]
fn of_two_creations_one_is_refused() {
    let server = Server::start();
    let mut client = server.client();
    let start = || {
        command_at(&server, "create urls --items 1M --error 1% --shards 100")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the tool runs")
    };
    for _ in 0..5 {
        let tools: Vec<_> = (0..3).map(|_| start()).collect();
        let mut codes: Vec<_> = tools
            .into_iter()
            .map(|tool| Ran::from(tool.wait_with_output().expect("the tool ends")).code)
            .collect();
        codes.sort_unstable();
        assert_eq!(codes, [0, 4, 4]);
        assert_eq!(client.run("DBSIZE"), int(101));
        run_at(&server, "info urls").done();
        run_at(&server, "drop urls").done();
    }
}

/// The rights that docs/reference/cli.md lists are enough, and each is needed or answered by a
/// remark.
#[test]
fn users_need_few_rights() {
    let server = Server::start();
    let mut client = server.client();
    let keys = "~urls ~{urls:*";
    let rights = |client: &mut Client, rights: &str| {
        let user = format!("ACL SETUSER admin reset on >secret {keys} -@all {rights}");
        assert_eq!(client.run(&user), ok());
    };
    let user = |words: &str| run_at(&server, &format!("--user admin --pass secret {words}"));
    let create = "+watch +multi +exec +hgetall +hset +hdel +exists +bf.reserve +info \
                  +cluster|slots";
    for right in create.split_whitespace() {
        let less = create.replace(right, "");
        rights(&mut client, &less);
        let ran = user("create urls --items 100 --error 1% --shards 2");
        assert_eq!(ran.code, if right == "+cluster|slots" { 0 } else { 4 }, "{right}: {ran:?}");
        run_at(&server, "drop urls");
        assert_eq!(client.run("DBSIZE"), int(0), "{right}");
    }
    rights(&mut client, create);
    let ran = user("create urls --items 100 --error 1% --shards 2");
    assert_eq!((ran.code, &*ran.stderr), (0, ""));
    for (words, needed) in [
        ("info urls", "+bf.info +hgetall +cluster|slots"),
        ("top --match urls", "+scan +bf.info +cluster|slots"),
        (
            "drop urls",
            "+type +hgetall +watch +multi +exec +hset +hdel +unlink +info +cluster|slots",
        ),
    ] {
        rights(&mut client, needed);
        assert_eq!(user(words).code, 0, "{words}");
    }
    assert_eq!(client.run("DBSIZE"), int(0));
}

/// The way to the server is that of every subcommand.
#[test]
fn shards_are_reached_by_socket_and_tls() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("socket");
    let line = format!("unixsocket \"{}\"", socket.display());
    let test = "shards_are_reached_by_socket_and_tls";
    let lines = ["tls-auth-clients no", &line];
    let Some((_server, port)) = crate::connect::tls_server(test, dir.path(), "localhost", &lines)
    else {
        return;
    };
    let ca = dir.path().join("ca.pem").display().to_string();
    let socket = socket.display().to_string();
    let tls = ["--tls", "-h", "localhost", "-p", &port, "--cacert", &ca];
    for (way, name) in [(&["-s", &socket][..], "one"), (&tls[..], "two")] {
        for words in [
            format!("create {name} --items 100 --error 1% --shards 3"),
            format!("info {name}"),
            "top --once".to_owned(),
            format!("drop {name}"),
        ] {
            let mut tool = command();
            let ran = tool.args(way).args(words.split(' ')).output().expect("the tool runs");
            Ran::from(ran).done();
        }
    }
}

/// The number of keys on each primary.
fn spread(keys: impl IntoIterator<Item = String>) -> [usize; PRIMARIES] {
    let mut counts = [0; PRIMARIES];
    for key in keys {
        counts[slot(&key) * PRIMARIES / SLOTS] += 1;
    }
    counts
}

#[test]
fn a_cluster_has_the_shards_of_one_filter() {
    const SHARDS: u16 = 16;
    let mut cluster = Cluster::start();
    let mut client = cluster.client();
    // Any node will do, replicas included.
    let replica = &cluster.nodes[PRIMARIES];
    let create = format!("create urls --items 1M --error 0.1% --shards {SHARDS} --json");
    let lines = checked("create", &run_at(replica, &create).done());
    assert_eq!((&lines[0]["nodes"], &lines[0]["generation"]), (&3.into(), &1.into()));
    // A replica has each shard and the descriptor when the tool says that they are made.
    let on = |nodes: &[Server]| -> i64 {
        nodes.iter().map(|node| node.client().run("DBSIZE").int()).sum()
    };
    assert_eq!(on(&cluster.nodes[PRIMARIES..]), i64::from(SHARDS) + 1);

    let keys: Vec<_> = (0..SHARDS).map(|shard| key("urls", SHARDS, shard.into())).collect();
    let info = checked("info-shards", &run_at(&cluster.nodes[1], "info urls --json").done());
    for (shard, key) in keys.iter().enumerate() {
        let answered = client.call(key, &["CLUSTER", "KEYSLOT", key]).int();
        assert_eq!(answered, slot(key) as i64);
        let node = format!("127.0.0.1:{}", client.owner(key));
        assert_eq!(info[0]["shards"][shard]["node"], node);
    }
    // Evenly spread, which naive tags are not.
    let is_even = |counts: [usize; PRIMARIES]| {
        counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1
    };
    let naive = (0..SHARDS).map(|tag| format!("urls:{{{tag}}}"));
    assert!(is_even(spread(keys.clone())), "{:?}", spread(keys.clone()));
    assert!(!is_even(spread(naive.clone())), "{:?}", spread(naive));

    let text = run_at(&cluster.nodes[0], "info urls").done();
    assert!(text.contains("\n  shards            16 on 3 nodes, generation 1\n"), "{text}");
    let lines = checked("top", &run_at(&cluster.nodes[0], "top --json").done());
    assert_eq!((lines.len(), &lines[0]["shards_found"]), (1, &SHARDS.into()));

    // While a slot moves, its shard is asked for behind ASK.
    let moved = &keys[3];
    let (slot, from) = (slot(moved).to_string(), client.owner(moved));
    let from = cluster.nodes.iter().position(|node| node.port() == from).expect("a node");
    let to = (from + 1) % PRIMARIES;
    let at = |node: usize, words: &[&str]| cluster.nodes[node].client().cmd(words);
    let (from_id, to_id) = (cluster.ids[from].clone(), cluster.ids[to].clone());
    assert_eq!(at(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]), ok());
    assert_eq!(at(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]), ok());
    let port = cluster.nodes[to].port().to_string();
    assert_eq!(at(from, &["MIGRATE", "127.0.0.1", &port, moved, "0", "9000"]), ok());
    let info = run_at(&cluster.nodes[0], "info urls --json").done();
    let info = checked("info-shards", &info);
    assert_eq!(info[0]["lost"], 0);
    assert_eq!(info[0]["shards"][3]["fill"], 0.0, "every word was asked at the right node");
    for node in [to, from] {
        assert_eq!(at(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]), ok());
    }

    // A primary dies: what was acknowledged is on its replica.
    let dead = (to + 1) % PRIMARIES;
    cluster.nodes[dead].kill();
    let alive = (dead + 1) % PRIMARIES;
    wait_until("a replica takes over", || {
        let ran = run_at(&cluster.nodes[alive], "info urls --json");
        ran.code == 0
    });
    // Above it may say that it waits for a replica.
    let dropped = run_at(&cluster.nodes[alive], "drop urls").stderr;
    assert!(dropped.ends_with("urls removed: 16 shards\n"), "{dropped}");
    let alive: Vec<_> = (0..2 * PRIMARIES).filter(|&node| node != dead).collect();
    wait_until("the replicas follow", || {
        alive.iter().all(|&node| cluster.nodes[node].client().run("DBSIZE") == int(0))
    });
}

#[test]
fn plan_divides_a_filter_over_nodes() {
    let text = run("plan --items 10G --error 0.001 --nodes 6").done();
    assert_eq!(
        text,
        "   \
   SHARDS      EACH      ALL  FULLEST NODE
       32  606.8 MB  19.4 GB       3.64 GB
       64  303.5 MB  19.4 GB       3.34 GB
*     128  151.8 MB  19.4 GB       3.34 GB
Capacity of a shard 78,178,034 (mean + 6 sd).
"
    );
    let text = run("plan --items 10G --error 0.001 --nodes 6 --max-shard 512mb").done();
    assert!(text.contains("\n*      64  303.5 MB"), "{text}");
    let json = run("plan --items 10G --error 0.001 --nodes 6 --shards 100 --json").done();
    let lines = checked("plan-shards", &json);
    let choices = lines[0]["choices"].as_array().unwrap();
    let chosen: Vec<_> = choices.iter().filter(|choice| choice["chosen"] == true).collect();
    assert_eq!((chosen.len(), &chosen[0]["shards"]), (1, &100.into()));
    assert_eq!(chosen[0]["node_shards"], 17);
    // Each node has a shard, however small the filter is.
    let json = run("plan --items 1000 --error 1% --nodes 5 --json").done();
    let lines = checked("plan-shards", &json);
    let choices = lines[0]["choices"].as_array().unwrap();
    assert_eq!(choices.last().unwrap()["shards"], 8);
    // Exactly what create makes.
    let server = Server::start();
    let made = run_at(&server, "create x --items 1000 --error 1% --shards 8 --json").done();
    let made = &checked("create", &made)[0];
    for field in ["shard_bytes", "shard_capacity", "bytes"] {
        assert_eq!(choices.last().unwrap()[field], made[field], "{field}");
    }
    for wrong in [
        "--items 1M --error 1% --nodes 0",
        "--items 1M --error 1% --nodes 3 --nonscaling",
        "--items 1M --error 1% --shards 3",
        "--items 1M --error 1% --max-shard 1mb",
        "--items 1T --error 1% --nodes 3 --max-shard 1mb",
        "--items 0 --error 1% --nodes 3",
    ] {
        let ran = run(&format!("plan {wrong}"));
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{wrong}");
    }
}
