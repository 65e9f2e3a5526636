//! What docs/guide/operations.md tells operators to do, and what happens where they do not: a node
//! without the module, an upgrade of one node after another, a backup put back.

use std::{fs, path::Path, process::Command};

use crate::{
    cluster::key_of,
    cluster_writers::{Added, Stop, Writing, assert_all_there, write},
    harness::{
        Client, Cluster, PRIMARIES, Reply, Server, add_until_card, assert_unharmed, bulk,
        config_name, digest, int, madd, mexists, module_path, numbered, ok, wait_until,
    },
};

/// The log lines that docs/guide/incidents.md shows under this heading, without their `...`.
fn documented(heading: &str) -> Vec<Vec<&'static str>> {
    let page = include_str!("../../docs/guide/incidents.md");
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```text\n").skip(1);
    let block =
        blocks.filter_map(|rest| rest.split("```").next()).find(|text| text.contains("..."));
    let lines = block.expect("a block with log lines").lines();
    lines.map(|line| line.split("...").map(str::trim).collect()).collect()
}

/// Whether one line of the log has all parts of a documented line, in order. Servers name the
/// roles "master" or "primary".
fn logs(server: &Server, parts: &[&str]) -> bool {
    server.log().replace("its primary", "its master").lines().any(|line| {
        let mut rest = line;
        parts.iter().all(|part| match rest.split_once(*part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    })
}

fn link_is_up(node: &mut Client) -> bool {
    node.server_info("replication", "master_link_status") == "up"
}

#[track_caller]
fn wait_for_link(node: &Server) {
    let client = &mut node.client();
    wait_until("the replica is in sync", || link_is_up(client));
}

#[test]
fn a_replica_without_the_module_lacks_filters_and_exits_at_a_full_sync() {
    let lacking = PRIMARIES;
    let mut cluster = Cluster::start_with(|number, node| match number {
        number if number == lacking => node.without_module(),
        _ => node,
    });
    let lines = documented("A node without the module");
    let [refused, cannot_load] = &lines[..] else { panic!("two lines of the log: {lines:?}") };
    let key = key_of(0, "urls");
    let primary = &mut cluster.nodes[0].client();
    assert!(link_is_up(&mut cluster.nodes[lacking].client()), "no filter, no complaint");

    // It is sent a filter, goes on, and does not have it.
    madd(primary, &key, &numbered("item", 100));
    assert_eq!(primary.run("WAIT 1 20000"), int(1), "it acknowledges what it cannot apply");
    wait_until("it complains", || logs(&cluster.nodes[lacking], refused));
    let read = &mut cluster.nodes[lacking].client();
    assert!(link_is_up(read));
    assert_eq!(read.run("DBSIZE"), int(0));

    // It takes a full copy, and exits.
    cluster.nodes[lacking].kill();
    remove_rdb(&cluster.nodes[lacking]);
    if cluster.nodes[lacking].try_relaunch().is_ok() {
        cluster.nodes[lacking].wait_for_exit();
    }
    assert!(logs(&cluster.nodes[lacking], cannot_load), "{}", cluster.nodes[lacking].log());

    // With the module it starts, and has the filter.
    cluster.nodes[lacking].configure_module(&module_path());
    cluster.nodes[lacking].relaunch();
    wait_for_link(&cluster.nodes[lacking]);
    let read = &mut cluster.nodes[lacking].client();
    assert_eq!(read.run("READONLY"), ok());
    assert_eq!(digest(read, &key), digest(primary, &key));
    assert!(mexists(read, &key, &numbered("item", 100)).iter().all(|&there| there));
}

/// Removes the RDB file, with which a replica would ask for the newest changes only.
fn remove_rdb(server: &Server) {
    fs::remove_file(server.dir().join("dump.rdb")).expect("a replica has an RDB file");
}

/// The trap: the RDB file that the replica writes when it stops says that it has every change.
#[test]
fn a_replica_that_gets_the_module_later_needs_a_full_copy() {
    let primary = Server::start();
    let mut replica = Server::with().without_module().replica_of(&primary).start();
    wait_for_link(&replica);
    let client = &mut primary.client();
    madd(client, "urls", &numbered("item", 100));
    assert_eq!(client.run("WAIT 1 20000"), int(1));
    replica.configure_module(&module_path());
    replica.restart();
    wait_for_link(&replica);
    assert_eq!(replica.client().run("DBSIZE"), int(0), "the filter is not sent again");

    // With the module it is the same: a restart hides that a change was not applied.
    let copy = &mut replica.client();
    assert_eq!(copy.run("CONFIG SET replica-read-only no"), ok());
    copy.run("SET words text");
    madd(client, "words", &numbered("item", 100));
    assert_eq!(client.run("WAIT 1 20000"), int(1));
    wait_until("it is counted", || copy.server_info("bf", "bf_unapplied") == "1");
    replica.restart();
    wait_for_link(&replica);
    let copy = &mut replica.client();
    assert_eq!(copy.server_info("bf", "bf_unapplied"), "0");
    assert_eq!(copy.run("GET words"), bulk("text"), "the loss stays");

    replica.kill();
    remove_rdb(&replica);
    replica.relaunch();
    wait_for_link(&replica);
    for key in ["urls", "words"] {
        assert_eq!(digest(&mut replica.client(), key), digest(client, key));
    }
}

/// Puts a new file in the place of the module, as `install` and `dpkg` do.
pub(crate) fn install(path: &Path) {
    let new = path.with_extension("new");
    fs::copy(module_path(), &new).expect("the module can be copied");
    fs::rename(&new, path).expect("the file can be replaced");
}

/// Whether the server still runs the file that was replaced.
pub(crate) fn has_replaced_file(server: &Server) -> bool {
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid())).expect("the maps");
    maps.lines().any(|line| line.contains("libredis_bloom.so") && line.ends_with("(deleted)"))
}

/// A second file with the module, in place of a second release.
fn another_file(dir: &tempfile::TempDir) -> std::path::PathBuf {
    let path = dir.path().join("libredis_bloom.so");
    fs::copy(module_path(), &path).expect("the module can be copied");
    path
}

/// The path of the module in MODULE LIST. Valkey 9 lists a module of its own, too.
fn loaded_from(client: &mut Client) -> String {
    let modules = client.run("MODULE LIST");
    let fields = modules.elements().iter().map(Reply::elements);
    let ours = fields.into_iter().find(|fields| fields.contains(&bulk("bf"))).expect("the module");
    let at = ours.iter().position(|field| *field == bulk("path")).expect("a path");
    ours[at + 1].text()
}

#[test]
fn a_rolling_upgrade_of_a_cluster_loses_no_item() {
    let mut cluster = Cluster::start();
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let newer = another_file(&dir);
    let keys = [key_of(0, "plain"), key_of(0, "grown")];
    let mut client = cluster.client();
    assert_eq!(client.call(&keys[0], &["BF.RESERVE", &keys[0], "0.001", "100000"]), ok());
    assert_eq!(client.call(&keys[1], &["BF.RESERVE", &keys[1], "0.001", "50"]), ok());
    let (old, new) = (0, PRIMARIES);
    let writing = Writing::default();
    let added: Vec<Added> = std::thread::scope(|scope| {
        let end = Stop(&writing);
        let running: Vec<_> = (0..2)
            .map(|writer| {
                let (client, keys, writing) = (cluster.client(), &keys, &writing);
                scope.spawn(move || {
                    write(client, &format!("writer-{writer}"), keys, false, writing).0
                })
            })
            .collect();
        writing.wait_for_more(50);
        // The replica first.
        cluster.nodes[new].kill();
        cluster.nodes[new].configure_module(&newer);
        cluster.nodes[new].relaunch();
        wait_for_link(&cluster.nodes[new]);
        writing.wait_for_more(50);
        // It takes over by agreement: the primary stops its clients until it has everything.
        let promoted = &mut cluster.nodes[new].client();
        wait_until("the replica takes over", || {
            // A failover that is not done in time is given up.
            promoted.run("CLUSTER FAILOVER");
            promoted.server_info("replication", "role") == "master"
        });
        let demoted = &mut cluster.nodes[old].client();
        wait_until("the old primary follows", || {
            demoted.server_info("replication", "role") == "slave" && link_is_up(demoted)
        });
        // Then what was the primary.
        cluster.nodes[old].kill();
        cluster.nodes[old].configure_module(&newer);
        cluster.nodes[old].relaunch();
        wait_for_link(&cluster.nodes[old]);
        writing.wait_for_more(50);
        drop(end);
        running.into_iter().map(|writer| writer.join().expect("a client failed")).collect()
    });
    let added: Added = added.into_iter().flatten().collect();
    println!(
        "{} additions acknowledged",
        added.iter().map(|(_, items)| items.len()).sum::<usize>()
    );
    assert_all_there(&mut client, &added);
    assert_eq!(client.owner(&keys[0]), cluster.nodes[new].port());
    for node in [old, new] {
        let client = &mut cluster.nodes[node].client();
        assert_eq!(loaded_from(client), newer.display().to_string());
        assert_unharmed(&cluster.nodes[node]);
    }
    let (now, then) = (&mut cluster.nodes[new].client(), &mut cluster.nodes[old].client());
    wait_until("both are identical", || {
        keys.iter().all(|key| digest(now, key) == digest(then, key))
    });
}

#[test]
fn a_failover_of_two_servers_loses_no_item() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let module = dir.path().join("libredis_bloom.so");
    install(&module);
    let mut primary = Server::with().module_at(&module).start();
    let mut replica = Server::with().module_at(&module).replica_of(&primary).start();
    wait_for_link(&replica);
    let mut added = add_until_card(&mut primary.client(), "urls", "before", 1_000);
    install(&module);
    // The replica first.
    replica.keep_config();
    replica.restart();
    wait_for_link(&replica);
    assert!(has_replaced_file(&primary), "the primary has the old file until its restart");
    let client = &mut primary.client();
    added.extend(add_until_card(client, "urls", "between", 2_000));
    assert_eq!(client.run(&format!("FAILOVER TO 127.0.0.1 {}", replica.port())), ok());
    wait_until("the roles are exchanged", || {
        client.server_info("replication", "role") == "slave" && link_is_up(client)
    });
    added.extend(add_until_card(&mut replica.client(), "urls", "after", 3_000));
    // Then what was the primary. Both have to write their roles into their files.
    for server in [&primary, &replica] {
        assert_eq!(server.client().run("CONFIG REWRITE"), ok());
    }
    primary.keep_config();
    for server in [&mut primary, &mut replica] {
        server.restart();
    }
    assert_eq!(replica.client().server_info("replication", "role"), "master");
    wait_for_link(&primary);
    for server in [&primary, &replica] {
        let client = &mut server.client();
        assert!(!has_replaced_file(server));
        assert!(mexists(client, "urls", &added).iter().all(|&there| there));
    }
}

#[test]
fn a_copied_rdb_file_restores_what_was_in_when_it_was_saved() {
    for appendonly in ["no", "yes"] {
        let mut server = Server::with().config(&format!("appendonly {appendonly}")).start();
        let client = &mut server.client();
        let before = add_until_card(client, "urls", "before", 5_000);
        let saved = digest(client, "urls");
        assert!(!client.run("BGSAVE").is_error());
        wait_until("the file is written", || {
            client.server_info("persistence", "rdb_bgsave_in_progress") == "0"
        });
        assert_eq!(client.server_info("persistence", "rdb_last_bgsave_status"), "ok");
        let backup = server.dir().join("backup.rdb");
        fs::copy(server.dir().join("dump.rdb"), &backup).expect("a copy");
        add_until_card(client, "urls", "after", 9_000);

        // Stop, put the copy in place, keep the AOF out of the way, start with `appendonly no`.
        server.kill();
        fs::copy(&backup, server.dir().join("dump.rdb")).expect("a copy");
        if appendonly == "yes" {
            let aof = server.dir().join("appendonlydir");
            fs::rename(&aof, server.dir().join("aside")).expect("the AOF can be moved");
        }
        server.configure("appendonly no");
        server.relaunch();
        let client = &mut server.client();
        assert_eq!(digest(client, "urls"), saved, "appendonly {appendonly}");

        // Then the AOF again: the server writes it from what it has.
        assert_eq!(client.run("CONFIG SET appendonly yes"), ok());
        wait_until("the AOF is written", || {
            !client.has_child()
                && client.server_info("persistence", "aof_last_bgrewrite_status") == "ok"
        });
        server.configure("appendonly yes");
        server.kill_and_restart();
        let client = &mut server.client();
        assert_eq!(digest(client, "urls"), saved, "appendonly {appendonly}, after a restart");
        assert!(mexists(client, "urls", &before).iter().all(|&there| there));
    }
}

/// Removes the lines of redis.conf that begin with one of these words.
fn remove_lines(server: &mut Server, words: &[&str]) {
    server.keep_config();
    let path = server.dir().join("redis.conf");
    let text = fs::read_to_string(&path).expect("the file");
    let kept = text.lines().filter(|line| !words.iter().any(|word| line.starts_with(word)));
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    fs::write(&path, kept).expect("redis.conf can be written");
}

/// Saves what the server has, by the lines of docs/guide/operations.md for a removal of the module.
fn save(server: &Server, appendonly: &str) {
    let page = include_str!("../../docs/guide/operations.md");
    let (_, block) = page.split_once("```sh\nredis-cli SAVE\n").expect("the lines");
    let (rewrite, _) = block.split_once("```").expect("their end");
    let wait = rewrite.lines().find(|line| line.starts_with("until ")).expect("a loop");
    assert!(include_str!("../../docs/guide/migration.md").contains(wait), "{wait}");
    let lines = if appendonly == "no" { "redis-cli SAVE" } else { rewrite };
    let script = format!("redis-cli() {{ command redis-cli -p {} \"$@\"; }}\n", server.port());
    let status = Command::new("bash").arg("-ec").arg(script + lines).status().expect("bash runs");
    assert!(status.success(), "{lines}");
    assert!(!server.client().has_child());
}

/// The lines of docs/guide/operations.md for one more replica.
#[test]
fn a_replica_is_added_by_the_documented_lines() {
    let (primary, replica) = (Server::start(), Server::start());
    madd(&mut primary.client(), "urls", &numbered("item", 100));
    let page = include_str!("../../docs/guide/operations.md");
    let (_, block) = page.split_once("```sh\nredis-cli REPLICAOF").expect("the lines");
    let (lines, _) = block.split_once("```").expect("their end");
    let address = format!("127.0.0.1 {}", primary.port());
    let lines = format!("redis-cli REPLICAOF{}", lines.replace("primary-host 6379", &address));
    let functions = format!("redis-cli() {{ command redis-cli -p {} \"$@\"; }}\n", replica.port());
    let output = Command::new("bash").arg("-ec").arg(functions + &lines).output().expect("bash");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.contains("OK\nOK\nmaster_link_status:"), "{output}");
    wait_until("it has all items", || replica.client().run("BF.CARD urls") == int(100));
}

/// Each step of the removal is needed: without it the server does not start.
#[test]
fn the_module_can_be_removed_once_no_filter_is_left() {
    for appendonly in ["no", "yes"] {
        let steps =
            ["nothing", "the filters of a database", "the save", "the settings", "the rules"];
        for left_out in steps {
            let mut server = Server::with()
                .config(&format!("appendonly {appendonly}"))
                .config("user backup on nopass resetkeys %R~urls* -@all +bgsave +bf.scandump")
                .config(&format!("{} 0.02", config_name("error-rate")))
                .start();
            let client = &mut server.client();
            for database in ["0", "3"] {
                assert_eq!(client.run(&format!("SELECT {database}")), ok());
                madd(client, "urls", &numbered("item", 100));
                client.run("SET other value");
            }
            save(&server, appendonly);
            for database in ["0", "3"] {
                if database == "3" && left_out == "the filters of a database" {
                    continue;
                }
                assert_eq!(client.run(&format!("SELECT {database}")), ok());
                let found = client.run("SCAN 0 COUNT 1000 TYPE MBbloom--");
                assert_eq!(found.elements()[1], Reply::Array(vec![bulk("urls")]));
                assert_eq!(client.run("DEL urls"), int(1));
            }
            if left_out != "the save" {
                save(&server, appendonly);
            }
            server.kill();
            let words: &[&str] = match left_out {
                "the settings" => &["loadmodule", "user"],
                "the rules" => &["loadmodule", "bf"],
                _ => &["loadmodule", "bf", "user"],
            };
            remove_lines(&mut server, words);
            let started = server.try_relaunch();
            assert_eq!(started.is_ok(), left_out == "nothing", "{appendonly}, without {left_out}");
            if left_out == "the rules" {
                let log = server.log();
                let line = "Error loading ACL rule '+bf.scandump' for the user named 'backup'";
                assert!(log.contains(line), "{log}");
                let page = include_str!("../../docs/guide/troubleshooting.md");
                assert!(page.contains("`Error loading ACL rule '+bf...'`"));
            }
            if started.is_ok() {
                assert_eq!(server.client().run("DBSIZE"), int(1));
            }
        }
    }
}

/// With `appendonly yes` a server reads its AOF, not the RDB file: the step that is easily missed.
#[test]
fn an_rdb_file_beside_an_aof_is_not_read() {
    let mut server = Server::with().config("appendonly yes").start();
    let client = &mut server.client();
    client.run("BF.ADD urls first");
    assert_eq!(client.run("SAVE"), ok());
    client.run("BF.ADD other second");
    server.kill_and_restart();
    assert_eq!(server.client().run("DBSIZE"), int(2));
}

/// The capacity plan of docs/guide/operations.md: a scratch key shows the size, and touches no
/// memory.
#[test]
fn a_scratch_key_shows_what_a_filter_will_take() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE scratch 0.001 10000000"), ok());
    let size = client.run("BF.INFO scratch SIZE");
    let Reply::Array(size) = size else { panic!("{size:?}") };
    let (size, usage) = (size[0].int(), client.run("MEMORY USAGE scratch").int());
    assert!((size..=size + size / 4).contains(&usage), "{usage} for {size} bytes");
    let page = include_str!("../../docs/guide/operations.md");
    assert!(page.contains(&format!("\n1) (integer) {size}\n")), "the size is {size}");
    assert_eq!(client.run("UNLINK scratch"), int(1));
}
