//! A sharded filter is copied shard by shard, by `dump` and `restore` of each key, and its
//! descriptor last, as docs/reference/cli.md says.

use std::process::Command;

use redis_bloom_harness::{Client, Reply, Server, int, numbered};

use crate::run::{command, run_at, run_with};

/// The commands of the page.
const RECIPE: &str = r#"
for key in $($TOOL -p $OLD info urls --json | python3 -c '
import json, sys
print(*(shard["key"] for shard in json.load(sys.stdin)["shards"]), sep="\n")'); do
  $TOOL -p $OLD dump "$key" -o - | $TOOL -p $NEW restore - "$key"
done
redis-cli -p $OLD HGETALL urls | xargs -d '\n' redis-cli -p $NEW HSET urls
"#;

/// The digests of the shards that the descriptor lists.
fn digests(client: &mut Client) -> Vec<Reply> {
    let keys = (0..3).map(|shard| client.run(&format!("HGET urls {shard}")).text());
    let keys: Vec<_> = keys.collect();
    keys.iter().map(|key| client.cmd(&["DEBUG", "DIGEST-VALUE", key])).collect()
}

#[test]
fn a_sharded_filter_is_copied_shard_by_shard() {
    let (old, new) = (Server::start(), Server::start());
    run_at(&old, "create urls --items 10k --error 1e-9 --shards 3").done();
    let items = numbered("item", 500).join("\n");
    run_with(&old, "load urls", items.as_bytes()).done();
    let ran = run_at(&old, "dump urls -o -");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("dumped by the keys of its shards"), "{ran:?}");

    let copied = Command::new("bash")
        .args(["-euo", "pipefail", "-c", RECIPE])
        .env("TOOL", command().get_program())
        .env("OLD", old.port().to_string())
        .env("NEW", new.port().to_string())
        .output()
        .expect("bash runs");
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(digests(&mut new.client()), digests(&mut old.client()));
    assert_eq!(new.client().run("DBSIZE"), int(4), "no other key is left");
    assert_eq!(run_with(&new, "check urls", items.as_bytes()).code, 0);
}
