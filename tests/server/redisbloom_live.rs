//! Filters move from and to RedisBloom. `REDIS_BLOOM_PEER_REDISBLOOM` is the path of its
//! library; without it these tests print SKIPPED.

use std::fs;
use std::path::Path;

use crate::{
    harness::{
        Reply, Server, array, dump, int, load, mexists, numbered, ok, skipped, version, wait_until,
    },
    redisbloom::restore,
};

/// The path of RedisBloom's library from the environment; reports a skipped test if there is none.
pub(crate) fn peer(test: &str) -> Option<String> {
    const VARIABLE: &str = "REDIS_BLOOM_PEER_REDISBLOOM";
    let path = std::env::var(VARIABLE).ok();
    if path.is_none() {
        skipped(test, &format!("{VARIABLE} names no library"));
    }
    path
}

pub(crate) fn redisbloom(path: &str) -> Server {
    Server::with().without_module().config(&format!("loadmodule \"{path}\"")).start()
}

#[test]
fn a_replica_of_redisbloom_is_promoted_without_a_change() {
    let Some(path) = peer("a_replica_of_redisbloom_is_promoted_without_a_change") else {
        return;
    };
    let theirs = redisbloom(&path);
    let old = &mut theirs.client();
    let asked = [numbered("item", 9_000), numbered("absent", 20_000)].concat();
    old.run("BF.RESERVE k 0.02 500");
    old.call("BF.MADD", "k", &asked[..3_000]);
    let ours = theirs.replica();
    let new = &mut ours.client();
    assert_eq!(mexists(new, "k", &asked), mexists(old, "k", &asked), "the first copy");
    // Additions through the replication stream: the filter grows on both sides.
    old.call("BF.MADD", "k", &asked[3_000..9_000]);
    old.run("BF.INSERT made CAPACITY 100 ITEMS a b");
    old.run("BF.RESERVE full 0.3 1000 NONSCALING");
    let reply = old.call("BF.MADD", "full", &asked[..2_000]);
    let accepted = &asked[..reply.elements().len() - 1];
    assert_eq!(old.run("WAIT 1 30000"), int(1));
    assert_eq!(mexists(new, "k", &asked), mexists(old, "k", &asked), "the stream");
    assert!(mexists(new, "full", accepted).iter().all(|&there| there));
    assert_eq!(new.run("BF.MEXISTS made a b"), array([int(1), int(1)]));
    assert_eq!(new.run("BF.DEBUG k"), old.run("BF.DEBUG k"));
    assert_eq!(new.run("REPLICAOF NO ONE"), ok());
    let more = numbered("more", 9_000);
    assert_eq!(new.call("BF.MADD", "k", &more), old.call("BF.MADD", "k", &more));
    assert_eq!(mexists(new, "k", &asked), mexists(old, "k", &asked), "after the promotion");
}

#[test]
fn chunks_go_to_redisbloom_and_back() {
    let Some(path) = peer("chunks_go_to_redisbloom_and_back") else {
        return;
    };
    let (ours, theirs) = (Server::start(), redisbloom(&path));
    let (new, old) = (&mut ours.client(), &mut theirs.client());
    let asked = [numbered("item", 3_000), numbered("absent", 20_000)].concat();
    for (key, make) in [
        ("grown", "BF.RESERVE grown 0.02 200 EXPANSION 3"),
        ("full", "BF.RESERVE full 0.02 4000 NONSCALING"),
    ] {
        assert_eq!(old.run(make), ok());
        old.call("BF.MADD", key, &asked[..1_500]);
        for piece in dump(old, key) {
            assert_eq!(load(new, key, &piece), ok());
        }
        assert_eq!(
            new.call("BF.MADD", key, &asked[1_500..3_000]),
            old.call("BF.MADD", key, &asked[1_500..3_000])
        );
        for piece in dump(new, key) {
            assert_eq!(load(old, "back", &piece), ok());
        }
        assert_eq!(mexists(old, "back", &asked), mexists(new, key, &asked), "{key}");
        assert_eq!(mexists(old, "back", &asked), mexists(old, key, &asked), "{key}");
        assert_eq!(old.run("DEL back"), int(1));
    }
}

/// Replaces the persistence files of a server by those of another one. Both are stopped.
pub(crate) fn copy_files(from: &Path, to: &Path) {
    let aof = "appendonlydir";
    let _ = fs::remove_dir_all(to.join(aof));
    fs::create_dir(to.join(aof)).expect("a directory");
    let aofs = fs::read_dir(from.join(aof)).expect("the directory of the AOF");
    let aofs = aofs.map(|file| Path::new(aof).join(file.expect("a file").file_name()));
    for file in aofs.chain(["dump.rdb".into()]) {
        fs::copy(from.join(&file), to.join(&file)).expect("a copy");
    }
}

/// The way back in docs/guide/migration.md for a server without an AOF: it gets one here, without
/// an RDB preamble. RedisBloom reads the AOF, and not the RDB file.
#[test]
fn a_server_without_an_aof_gets_one_that_redisbloom_reads() {
    let Some(path) = peer("a_server_without_an_aof_gets_one_that_redisbloom_reads") else {
        return;
    };
    let theirs = redisbloom(&path);
    let old = &mut theirs.client();
    let asked = [numbered("item", 3_000), numbered("absent", 20_000)].concat();
    assert_eq!(old.run("BF.RESERVE k 0.02 200"), ok());
    old.call("BF.MADD", "k", &asked[..1_500]);
    let mut ours = Server::with().config("save 3600 1").start();
    let new = &mut ours.client();
    for piece in dump(old, "k") {
        assert_eq!(load(new, "k", &piece), ok());
    }
    assert_eq!(new.run("CONFIG SET aof-use-rdb-preamble no"), ok());
    assert_eq!(new.run("CONFIG SET appendonly yes"), ok());
    wait_until("the AOF is written", || {
        let mut shows = |field, value| new.server_info("persistence", field) == value;
        shows("aof_rewrite_scheduled", "0") && shows("aof_rewrite_in_progress", "0")
    });
    assert_eq!(new.server_info("persistence", "aof_last_bgrewrite_status"), "ok");
    new.call("BF.MADD", "k", &asked[1_500..3_000]);
    let answers = mexists(new, "k", &asked);
    new.send(&["SHUTDOWN", "SAVE"]);
    ours.wait_for_exit();

    for appendonly in ["no", "yes"] {
        let mut back = redisbloom(&path);
        back.kill();
        copy_files(ours.dir(), back.dir());
        back.configure(&format!("appendonly {appendonly}"));
        if appendonly == "no" {
            let log = back.try_relaunch().expect_err("RedisBloom reads our RDB file");
            assert!(log.contains("that is not terminated by the proper module value"), "{log}");
            continue;
        }
        back.relaunch();
        assert_eq!(mexists(&mut back.client(), "k", &asked), answers);
        // From then on the server can do without the AOF.
        assert_eq!(back.client().run("CONFIG SET appendonly no"), ok());
        back.configure("appendonly no");
        back.restart();
        assert_eq!(mexists(&mut back.client(), "k", &asked), answers);
    }
}

/// The decoder computes the shape of a layer from its capacity and rate and compares it with the
/// stored one, so the computation must agree with RedisBloom's at every edge.
#[test]
fn every_shape_of_redisbloom_is_loaded_and_dumped() {
    let Some(path) = peer("every_shape_of_redisbloom_is_loaded_and_dumped") else {
        return;
    };
    let (ours, theirs) = (Server::start(), redisbloom(&path));
    let (new, old) = (&mut ours.client(), &mut theirs.client());
    // At powers of two the number of hashes depends on the last bit of a logarithm.
    let rates = [
        "0.9999999999999999",
        "0.99",
        "0.75",
        "0.5",
        "0.25",
        "0.125",
        "0.0625",
        "0.1",
        "0.01",
        "0.001",
        "1e-9",
        "1e-15",
        "1e-30",
        "1e-100",
        "1e-300",
    ];
    for rate in rates {
        for capacity in ["1", "2", "3", "7", "8", "63", "64", "65", "100", "1000", "4096", "99999"]
        {
            for growth in ["", "NONSCALING"] {
                let what = format!("BF.RESERVE k {rate} {capacity} {growth}");
                assert_eq!(old.run(&what), ok(), "{what}");
                let header = &dump(old, "k")[0];
                assert_eq!(load(new, "k", header), ok(), "{what}");
                let Reply::Bulk(payload) = old.run("DUMP k") else { panic!("{what}: no payload") };
                assert_eq!(restore(new, "whole", &payload), ok(), "{what}");
                assert_eq!(new.run("BF.DEBUG whole"), old.run("BF.DEBUG k"), "{what}");
                assert_eq!(load(old, "back", &dump(new, "whole")[0]), ok(), "{what}");
                assert_eq!(new.run("DEL k whole"), int(2));
                assert_eq!(old.run("DEL k back"), int(2));
            }
        }
    }
}

/// COMMAND DOCS agree with RedisBloom 8 for each of its commands, except for arguments that only
/// this module has. RedisBloom 2 has no documentation.
#[test]
fn command_docs_are_those_of_redisbloom() {
    let Some(path) = peer("command_docs_are_those_of_redisbloom") else {
        return;
    };
    let (ours, theirs) = (Server::start(), redisbloom(&path));
    let (new, old) = (&mut ours.resp3(), &mut theirs.resp3());
    let fields = |docs: &Reply| ["since", "group"].map(|field| docs.get(field).map(Reply::text));
    for name in [
        "bf.reserve",
        "bf.add",
        "bf.madd",
        "bf.insert",
        "bf.exists",
        "bf.mexists",
        "bf.card",
        "bf.scandump",
        "bf.loadchunk",
    ] {
        let [here, there] =
            [&mut *new, &mut *old].map(|client| client.cmd(&["COMMAND", "DOCS", name]));
        let (here, there) = (here.get(name).expect("docs"), there.get(name).expect("docs"));
        let Some(arguments) = there.get("arguments") else {
            return skipped(
                "command_docs_are_those_of_redisbloom",
                "RedisBloom 2 has no documentation",
            );
        };
        assert_eq!(fields(here), fields(there), "{name}");
        let common = here.get("arguments").expect("arguments").elements().iter();
        let common: Vec<_> = common.filter(|argument| argument.get("since").is_none()).collect();
        assert_eq!(common, arguments.elements().iter().collect::<Vec<_>>(), "{name}");
    }
}

/// The key permissions in docs/reference/differences.md: which commands a user may send with each.
#[test]
fn key_permissions_of_redisbloom_are_those_of_the_page() {
    let Some(path) = peer("key_permissions_of_redisbloom_are_those_of_the_page") else {
        return;
    };
    let theirs = redisbloom(&path);
    let admin = &mut theirs.client();
    admin.run("BF.ADD k a");
    let version_8 = version().at_least((8, 0), (u32::MAX, 0));
    for (permission, expected) in [("%R~*", version_8), ("%W~*", version_8), ("%RW~*", true)] {
        let rules = format!("ACL SETUSER user on nopass resetkeys +@all {permission}");
        assert_eq!(admin.run(&rules), ok());
        let client = &mut theirs.client();
        assert_eq!(client.run("AUTH user any"), ok());
        for command in [
            "BF.EXISTS k a",
            "BF.MEXISTS k a",
            "BF.INFO k",
            "BF.CARD k",
            "BF.SCANDUMP k 0",
            "BF.ADD k b",
            "BF.MADD k c",
            "BF.INSERT k ITEMS d",
            "BF.RESERVE new 0.1 10",
        ] {
            let reply = client.run(command);
            let refused = matches!(&reply, Reply::Error(text) if text.starts_with("NOPERM"));
            assert_eq!(refused, !expected, "{permission}: {command} answered {reply:?}");
        }
        let debug = client.run("BF.DEBUG k");
        assert_eq!(debug.is_error(), permission != "%RW~*", "{permission}: {debug:?}");
    }
}

/// ACL rules in a file keep a server from starting if they name commands of the other product, as
/// docs/guide/migration.md says for both ways. Without these rules it starts.
#[test]
fn acl_rules_with_commands_of_the_other_product_keep_a_server_from_starting() {
    let Some(path) =
        peer("acl_rules_with_commands_of_the_other_product_keep_a_server_from_starting")
    else {
        return;
    };
    let user = |rule: &str| format!("user some on nopass +@all {rule}");
    let mut here = vec!["-cf.add", "-cms.query", "-topk.add", "-tdigest.add"];
    if version().at_least((8, 0), (u32::MAX, 0)) {
        // RedisBloom 2.8 has no categories.
        here.extend(["-@cuckoo", "-@cms", "-@topk", "-@tdigest"]);
    }
    let page = include_str!("../../docs/guide/migration.md");
    for rule in here {
        let named = rule.trim_start_matches('-');
        let named =
            named.split_once('.').map_or(named.to_owned(), |(family, _)| format!("{family}."));
        assert!(page.contains(&format!("`{named}`")), "{named}");
        let mut theirs = Server::with()
            .without_module()
            .config(&format!("loadmodule \"{path}\""))
            .config(&user(rule))
            .start();
        assert_eq!(theirs.client().run("CONFIG REWRITE"), ok());
        theirs.kill();
        let mut ours = Server::start();
        ours.kill();
        ours.configure(&user(rule));
        let log = ours.try_relaunch().expect_err(rule);
        assert!(log.contains(&format!("Error loading ACL rule '{rule}'")), "{log}");
    }
    for rule in ["-bf.add", "-bf.del"] {
        let mut back = redisbloom(&path);
        back.kill();
        back.configure(&user(rule));
        match (rule, back.try_relaunch()) {
            ("-bf.add", started) => started.expect("RedisBloom has this command"),
            (_, started) => {
                let log = started.expect_err("RedisBloom lacks this command");
                assert!(log.contains(&format!("Error loading ACL rule '{rule}'")), "{log}");
            }
        }
    }
}
