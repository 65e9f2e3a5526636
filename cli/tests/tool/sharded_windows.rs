//! Shards that forget: each by itself, on one server and on a cluster of three primaries and three
//! replicas, whose clock the test sets.

use crate::{
    harness::{
        Client, Clock, Cluster, PRIMARIES, Reply, Server, int, mexists, numbered, ok, slot,
        wait_until,
    },
    run::{check_file, run_at},
    schema::checked,
    windows::{HOUR, file, load, remembered},
};

/// The keys of the shards that a descriptor names.
fn keys(client: &mut Client, name: &str, shards: usize) -> Vec<String> {
    (0..shards).map(|shard| client.run(&format!("HGET {name} {shard}")).text()).collect()
}

fn server() -> (Clock, Server, Client) {
    let clock = Clock::new();
    let server = Server::with().clock(&clock).start();
    let client = server.client();
    (clock, server, client)
}

#[test]
fn shards_of_a_server_forget() {
    let (clock, server, mut client) = server();
    let create = "create seen --items 20k --error 1e-9 --shards 4 --window 24h";
    let text = run_at(&server, create).done();
    assert!(
        text.starts_with("seen created: 4 shards on 1 node, 20.0 k items in 24h at "),
        "{text}"
    );
    let all = keys(&mut client, "seen", 4);
    for key in &all {
        let window = client.run(&format!("BF.INFO {key} WINDOW"));
        assert_eq!(window.elements()[0].get("Milliseconds"), Some(&int(24 * HOUR)), "{key}");
    }
    let [old, new] = ["old", "new"].map(|name| numbered(name, 2_000));
    load(&server, "seen", &old).done();
    clock.advance(20 * HOUR);
    load(&server, "seen", &new).done();
    let text = run_at(&server, "info seen").done();
    assert!(text.contains("\n  window            24h in 4 generations, since an "), "{text}");
    assert!(text.contains(", each shard by itself\n"), "{text}");
    let line = &checked("info-shards", &run_at(&server, "info seen --json").done())[0];
    assert_eq!((&line["window"]["kind"], &line["items"]), (&"time".into(), &4_000.into()));
    let line = &checked("top", &run_at(&server, "top --json").done())[0];
    assert_eq!(line["window"]["generations"], 4);

    // A dump of a shard keeps the starts.
    let one = server.dir().join("shard-1.dump");
    run_at(&server, &format!("dump {} -o {}", all[1], one.display())).done();
    clock.advance(11 * HOUR);
    assert_eq!(remembered(&server, "seen", &old), 0);
    assert_eq!(remembered(&server, "seen", &new), 2_000);
    let path = file(server.dir(), "old", &old);
    let ran = check_file(&server, "seen", &path);
    assert_eq!((ran.code, &*ran.stdout), (1, "2,000 items: all absent\n"), "{ran:?}");

    // A lost shard is restored from the dump with its starts.
    client.run(&format!("DEL {}", all[1]));
    run_at(&server, &format!("restore {} {}", one.display(), all[1])).done();
    assert_eq!(remembered(&server, "seen", &new), 2_000);
    clock.advance(30 * HOUR);
    assert_eq!(remembered(&server, "seen", &new), 0);
    run_at(&server, "drop seen").done();
    assert_eq!(client.cmd(&[&["EXISTS".to_owned()][..], &all].concat()), int(0));
}

#[test]
fn options_of_windows_reach_the_shards() {
    let server = Server::start();
    let mut client = server.client();
    let words = "--items 1000 --error 0.0001% --shards 2 --window count --generations 3 \
                 --no-refresh";
    run_at(&server, &format!("create last {words}")).done();
    for key in keys(&mut client, "last", 2) {
        let window = client.run(&format!("BF.INFO {key} WINDOW"));
        let field = |name: &str| window.elements()[0].get(name).expect("a field").clone();
        assert_eq!((field("Kind").text(), field("Generations")), ("count".to_owned(), int(3)));
        assert_eq!(field("Refresh"), int(0));
    }
    // All 2,000 items, of which each shard remembers its last.
    let items = numbered("item", 2_000);
    load(&server, "last", &items).done();
    assert_eq!(remembered(&server, "last", &items[1_000..]), 1_000);
    let ran = run_at(&server, "rebuild last --shards 3");
    assert!(ran.code == 4 && ran.stderr.contains("it has a window"), "{ran:?}");
    assert_eq!(client.run("HGET last rebuild"), Reply::Null);
}

/// A shard that was lost, and that BF.ADD made anew, is not what other shards are made as.
#[test]
fn new_shards_are_made_as_the_shards_that_are_there() {
    let server = Server::start();
    let mut client = server.client();
    let items = file(server.dir(), "items", &numbered("item", 3_000));
    let expansion = |client: &mut Client, key: &str| {
        client.run(&format!("BF.INFO {key} EXPANSION")).elements()[0].clone()
    };
    run_at(&server, "create all --items 20k --error 1% --shards 3 --poll 1 --expansion 4").done();
    let all = keys(&mut client, "all", 3);
    client.run(&format!("DEL {}", all[0]));
    assert_eq!(client.run(&format!("BF.ADD {} x", all[0])), int(1));
    assert_ne!(expansion(&mut client, &all[0]), int(4));
    let words = format!("rebuild all --shards 2 --from {} --commit", items.display());
    run_at(&server, &words).done();
    for key in keys(&mut client, "all", 2) {
        assert_eq!(expansion(&mut client, &key), int(4));
    }
    // Which of two is right, nobody can say.
    let all = keys(&mut client, "all", 2);
    client.run(&format!("DEL {}", all[0]));
    let reserve = format!("BF.RESERVE {} 0.01 7000 EXPANSION 1 SHARD 0 2", all[0]);
    assert_eq!(client.run(&reserve), ok());
    let ran = run_at(&server, &words);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("shard 0 has EXPANSION 1, no window; shard 1 has"), "{ran:?}");
    // Without any shard, nobody knows: a remark says what is made.
    client.run(&format!("DEL {} {}", all[0], all[1]));
    let ran = run_at(&server, &words);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("a new shard gets EXPANSION 1, no window"), "{ran:?}");
}

/// The items that a replica, or a primary, finds in the shards that it has.
fn found_on(node: &Server, all: &[String], items: &[String], primary: usize) -> Vec<String> {
    let mut client = node.client();
    assert_eq!(client.run("READONLY"), ok());
    let (first, last) = (primary * 16_384 / PRIMARIES, (primary + 1) * 16_384 / PRIMARIES);
    let mut found = Vec::new();
    for (shard, key) in all.iter().enumerate() {
        if !(first..last).contains(&slot(key)) {
            continue;
        }
        let shards = u16::try_from(all.len()).expect("some shards");
        let own: Vec<_> = items
            .iter()
            .filter(|item| usize::from(bloom::sharding::shard_of(item.as_bytes(), shards)) == shard)
            .collect();
        let answers = mexists(&mut client, key, &own);
        found.extend(
            own.into_iter().zip(answers).filter(|(_, yes)| *yes).map(|(own, _)| own.clone()),
        );
    }
    found
}

/// Each shard shifts by itself, on its primary. Replicas forget by their own clocks, and a replica
/// that is promoted goes on.
#[test]
fn shards_of_a_cluster_forget_also_after_a_failover() {
    let clock = Clock::new();
    // A clock that jumps must not make nodes take each other for dead.
    let described = |_, node: crate::harness::Builder| {
        node.clock(&clock).config("cluster-node-timeout 1000000000")
    };
    let cluster = Cluster::start_with(described);
    let create = "create seen --items 20k --error 1e-9 --shards 6 --window 24h";
    let text = run_at(&cluster.nodes[4], create).done();
    assert!(text.starts_with("seen created: 6 shards on 3 nodes, "), "{text}");
    let mut client = cluster.client();
    let all: Vec<_> = (0..6)
        .map(|shard| client.call("seen", &["HGET", "seen", &shard.to_string()]).text())
        .collect();
    let [a, b, c] = ["a", "b", "c"].map(|name| numbered(name, 1_000));
    load(&cluster.nodes[1], "seen", &a).done();
    clock.advance(12 * HOUR);
    load(&cluster.nodes[2], "seen", &b).done();
    // On all nodes: how many items of each kind are found.
    let counts = |cluster: &Cluster| {
        let nodes = (0..2 * PRIMARIES).map(|node| (&cluster.nodes[node], node % PRIMARIES));
        let counts = nodes.map(|(node, primary)| {
            [&a, &b, &c].map(|items| found_on(node, &all, items, primary).len())
        });
        let sums = |half: Vec<[usize; 3]>| {
            half.iter().fold([0; 3], |sum, one| [0, 1, 2].map(|at| sum[at] + one[at]))
        };
        let counts: Vec<_> = counts.collect();
        (sums(counts[..PRIMARIES].to_vec()), sums(counts[PRIMARIES..].to_vec()))
    };
    // WAIT came before the end of the load: replicas have all of it.
    clock.advance(12 * HOUR - 60_000);
    assert_eq!(counts(&cluster), ([1_000, 1_000, 0], [1_000, 1_000, 0]));
    assert_eq!(remembered(&cluster.nodes[3], "seen", &a), 1_000);
    clock.advance(6 * HOUR + 120_000);
    assert_eq!(counts(&cluster), ([0, 1_000, 0], [0, 1_000, 0]), "nothing was written");
    assert_eq!(remembered(&cluster.nodes[3], "seen", &a), 0);

    // The replica of the first primary takes its place.
    assert_eq!(cluster.nodes[PRIMARIES].client().run("CLUSTER FAILOVER TAKEOVER"), ok());
    let key = all.iter().find(|key| slot(key) < 16_384 / PRIMARIES).expect("a shard of node 0");
    wait_until("all nodes know the new primary", || {
        let mut others = [1, 2, 4, 5].iter().map(|&node| cluster.nodes[node].client());
        let slots = |client: &mut Client| client.run("CLUSTER NODES").text();
        let id = &cluster.ids[PRIMARIES];
        let mastered = |text: &str| {
            let line = text.lines().find(|line| line.starts_with(id.as_str()));
            line.is_some_and(|line| line.contains("master") && line.contains(" 0-"))
        };
        // A primary, which the old one is at first, has no field master_link_status.
        let old = cluster.nodes[0].client().run("INFO replication").text();
        others.all(|mut client| mastered(&slots(&mut client)))
            && old.contains("master_link_status:up")
    });
    assert_eq!(counts(&cluster), ([0, 1_000, 0], [0, 1_000, 0]));
    let ran = load(&cluster.nodes[0], "seen", &c);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(counts(&cluster), ([0, 1_000, 1_000], [0, 1_000, 1_000]));
    // The shift came with the load: what is forgotten is given back, on the old primary, too.
    for node in [0, PRIMARIES] {
        let mut client = cluster.nodes[node].client();
        client.run("READONLY");
        let generations = client.run(&format!("BF.INFO {key} GENERATIONS"));
        assert_eq!(generations.elements()[0].elements().len(), 2, "{generations:?}");
    }
    clock.advance(13 * HOUR);
    assert_eq!(counts(&cluster), ([0, 0, 1_000], [0, 0, 1_000]));

    clock.advance(18 * HOUR);
    assert_eq!(remembered(&cluster.nodes[5], "seen", &c), 0);
}
