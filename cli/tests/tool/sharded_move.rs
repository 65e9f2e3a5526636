//! A sharded filter is copied shard by shard, by `dump` and `restore` of each key, and its
//! descriptor last, as docs/reference/cli.md says.

use std::process::{Command, Output};

use redis_bloom_harness::{Client, Reply, Server, int, numbered, ok};

use crate::run::{command, run_at, run_with};

/// Runs the commands of the page.
fn copy(old: &Server, new: &Server) -> Output {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/cli.md");
    let page = std::fs::read_to_string(page).expect("docs/reference/cli.md");
    let (_, section) = page.split_once("\n## dump and restore\n").expect("the section");
    let (_, block) = section.split_once("```sh\n").expect("a block");
    let (script, _) = block.split_once("```").expect("the end of the block");
    // The page names neither port nor path.
    let script = script
        .replace("-h old", &format!("-p {}", old.port()))
        .replace("-h new", &format!("-p {}", new.port()))
        .replace("redis-bloom ", "\"$TOOL\" ");
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).env("TOOL", command().get_program());
    bash.output().expect("bash runs")
}

/// The digests of the keys that the descriptor lists.
fn digests(client: &mut Client) -> Vec<Reply> {
    let keys = ["0", "1", "2", "base"].map(|field| client.run(&format!("HGET urls {field}")));
    keys.iter().map(|key| client.cmd(&["DEBUG", "DIGEST-VALUE", &key.text()])).collect()
}

#[test]
fn a_sharded_filter_is_copied_shard_by_shard() {
    let (old, new) = (Server::start(), Server::start());
    run_at(&old, "create urls --items 10k --error 1e-9 --shards 3").done();
    assert_eq!(old.client().run("BF.RESERVE {urls}:old 0.01 100"), ok());
    assert_eq!(old.client().run("HSET urls base {urls}:old"), int(1));
    let items = numbered("item", 500).join("\n");
    run_with(&old, "load urls", items.as_bytes()).done();
    let ran = run_at(&old, "dump urls -o -");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("Dump each shard of a sharded filter by its key"), "{ran:?}");

    let copied = copy(&old, &new);
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(digests(&mut new.client()), digests(&mut old.client()));
    assert_eq!(new.client().run("DBSIZE"), int(5), "no other key is left");
    assert_eq!(run_with(&new, "check urls", items.as_bytes()).code, 0);

    let again = copy(&old, &new);
    assert!(!again.status.success(), "{again:?}");
    let lost = old.client().run("HGET urls 1").text();
    assert_eq!(old.client().run(&format!("DEL {lost}")), int(1));
    new.client().run("FLUSHALL");
    let lacks = copy(&old, &new);
    assert!(!lacks.status.success(), "{lacks:?}");
    assert_eq!(new.client().run("EXISTS urls"), int(0), "there is no descriptor");
}
