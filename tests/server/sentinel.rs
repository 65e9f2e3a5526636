//! The rolling upgrade of docs/guide/operations.md with Sentinel: a primary, two replicas and three
//! Sentinels.

use std::{fs, thread, time::Duration};

use crate::{
    cluster_writers::{Stop, Writing},
    deployment::{has_replaced_file, install},
    harness::{
        Builder, Client, Reply, Server, assert_unharmed, config_name, digest, int, madd, mexists,
        numbered, ok, skipped, version, wait_until,
    },
};

const PAGE: &str = include_str!("../../docs/guide/operations.md");
/// What Sentinel calls the primary and its replicas.
const NAME: &str = "bloom";
/// An error rate that is set on every node, and is not the default.
const RATE: &str = "0.02";

/// Three Sentinels, once each knows the others and all replicas.
///
/// `down-after-milliseconds` is long, so that a slow machine is not taken for a dead primary.
fn sentinels(primary: &Server, replicas: usize) -> Vec<Server> {
    let all: Vec<_> = (0..3)
        .map(|_| {
            Server::with()
                .sentinel()
                .config(&format!("sentinel monitor {NAME} 127.0.0.1 {} 2", primary.port()))
                .config(&format!("sentinel down-after-milliseconds {NAME} 60000"))
                .config(&format!("sentinel auth-user {NAME} sentinel"))
                .config(&format!("sentinel auth-pass {NAME} password"))
                .start()
        })
        .collect();
    for sentinel in &all {
        wait_until("a Sentinel knows every server", || settled(sentinel, primary, replicas));
    }
    all
}

/// Whether a Sentinel has this primary, the replicas, and the two other Sentinels, all of them
/// without complaint.
fn settled(sentinel: &Server, primary: &Server, replicas: usize) -> bool {
    let client = &mut sentinel.client();
    let field = |client: &mut Client, name: &str| {
        client.run(&format!("SENTINEL MASTER {NAME}")).get(name).map(Reply::text)
    };
    let known = |client: &mut Client, list: &str, count: usize| {
        let all = client.run(&format!("SENTINEL {list} {NAME}"));
        all.elements().len() == count
            && all.elements().iter().all(|one| {
                let flags = one.get("flags").map(Reply::text);
                flags.is_some_and(|flags| !flags.contains("down") && !flags.contains("disconn"))
            })
    };
    field(client, "flags").as_deref() == Some("master")
        && field(client, "port") == Some(primary.port().to_string())
        && known(client, "REPLICAS", replicas)
        && known(client, "SENTINELS", 2)
}

/// The port of the primary, as a client asks a Sentinel for it.
fn primary_port(sentinel: &mut Client) -> u16 {
    let address = sentinel.run(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}"));
    address.elements()[1].text().parse().expect("a port")
}

/// INFO replication of a server. Empty if the connection ends: Sentinel closes all connections of a
/// server whose role it changes.
fn replication(server: &Server) -> String {
    let reply = server.client().try_cmd(&["INFO", "replication"]);
    reply.map_or_else(|_| String::new(), |reply| reply.text())
}

fn role(server: &Server) -> String {
    let info = replication(server);
    info.lines().find_map(|line| line.strip_prefix("role:")).unwrap_or_default().to_owned()
}

fn follows(server: &Server, primary: &Server) -> bool {
    let info = replication(server);
    let port = format!("master_port:{}", primary.port());
    let lines = ["role:slave", &port, "master_link_status:up"];
    lines.iter().all(|expected| info.lines().any(|line| line == *expected))
}

/// Adds items until the test is over, to whatever Sentinel calls the primary. Returns the items
/// that were acknowledged.
fn write(sentinel: &Server, writing: &Writing) -> Vec<String> {
    let mut added = Vec::new();
    let mut connection: Option<Client> = None;
    for number in 0.. {
        if writing.is_over() {
            break;
        }
        let item = format!("item-{number}");
        let reply = connection
            .get_or_insert_with(|| connected(sentinel))
            .try_cmd(&["BF.ADD", "urls", &item]);
        match reply {
            Ok(Reply::Int(0 | 1)) => {
                added.push(item);
                writing.acknowledge();
            }
            Ok(Reply::Error(text)) if !text.starts_with("READONLY") => panic!("BF.ADD: {text}"),
            // The connection has ended, or the server is a replica now.
            _ => {
                connection = None;
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
    added
}

/// A connection to the primary.
fn connected(sentinel: &Server) -> Client {
    loop {
        if let Some(client) = Client::try_connect(primary_port(&mut sentinel.client())) {
            return client;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A server with the users of the page for replicas and Sentinel, which connects as the first.
fn node() -> Builder {
    let users = PAGE.lines().filter(|line| line.starts_with("user "));
    assert_eq!(users.clone().count(), 2, "replication and sentinel");
    let login = ["masteruser replication", "masterauth password"];
    users.chain(login).fold(Server::with(), Builder::config)
}

/// The commands of the page, each with the server that it is sent to.
fn documented() -> Vec<(&'static str, &'static str)> {
    let (_, section) = PAGE.split_once("\n### A failover with Sentinel\n").expect("the heading");
    let block = section.split("```").nth(1).expect("a block").trim_start_matches("sh\n");
    let condition = "# repeat until offset= of every replica is master_repl_offset";
    assert!(block.contains(condition), "the test waits so");
    let commands = block.lines().map(|line| {
        let command = line.split('#').next().unwrap_or_default().trim();
        let rest = command.strip_prefix("redis-cli ").expect("a command");
        let (option, rest) = rest.split_once(' ').expect("an option");
        let (server, command) = rest.split_once(' ').expect("a command");
        assert!(matches!(option, "-h" | "-p"), "{line}");
        (server, command)
    });
    commands.collect()
}

/// Sends the commands of the page. Returns the number of the new primary.
fn fail_over_as_documented(nodes: &[Server], old: usize, sentinel: &Server) -> usize {
    let mut new = None;
    for (server, command) in documented() {
        let old_client = &mut nodes[old].client();
        match (server, command) {
            // Sentinel chooses the replica, so each must have everything.
            ("OLD", "INFO replication") => wait_until("every replica has everything", || {
                let offset = old_client.server_info("replication", "master_repl_offset");
                let all = old_client.run(command).text();
                let mut replicas = all.lines().filter(|line| line.contains(",offset="));
                replicas.all(|line| line.contains(&format!(",offset={offset},")))
            }),
            ("NEW", "INFO replication") => wait_until("a replica is promoted", || {
                new = (0..nodes.len()).find(|&at| at != old && role(&nodes[at]) == "master");
                new.is_some()
            }),
            ("26379", _) => wait_until("Sentinel begins", || {
                sentinel.client().run(&command.replace("NAME", NAME)) == ok()
            }),
            ("OLD", _) => {
                let port = new.map(|at: usize| nodes[at].port().to_string());
                let command = match port {
                    Some(port) => command.replace("NEW 6379", &format!("127.0.0.1 {port}")),
                    None => command.to_owned(),
                };
                assert_eq!(old_client.run(&command), ok(), "{command}");
            }
            other => panic!("a step that this test does not know: {other:?}"),
        }
    }
    new.expect("the steps end with a new primary")
}

/// Sends the one command of Valkey 9. Returns the number of the new primary.
fn fail_over_coordinated(nodes: &[Server], old: usize, sentinel: &Server) -> usize {
    let command = "SENTINEL FAILOVER NAME COORDINATED";
    assert!(PAGE.contains(&format!("`{command}`")));
    wait_until("Sentinel begins", || sentinel.client().run(&command.replace("NAME", NAME)) == ok());
    let mut new = None;
    wait_until("a replica is promoted", || {
        new = (0..nodes.len()).find(|&at| at != old && role(&nodes[at]) == "master");
        new.is_some() && role(&nodes[old]) == "slave"
    });
    new.expect("a replica was promoted")
}

/// An upgrade of every node, as docs/guide/operations.md tells it, while a client writes.
fn upgrade(fail_over: impl Fn(&[Server], usize, &Server) -> usize) {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let module = dir.path().join("libredis_bloom.so");
    install(&module);
    let describe = || {
        let setting = format!("{} {RATE}", config_name("error-rate"));
        node().module_at(&module).config(&setting)
    };
    let primary = describe().start();
    let replica = || describe().replica_of(&primary).start();
    let (first, second) = (replica(), replica());
    let mut nodes = [primary, first, second];
    nodes[1..].iter().for_each(|node| wait_until("a replica", || follows(node, &nodes[0])));
    let sentinels = sentinels(&nodes[0], 2);
    let reserved = nodes[0].client().run("BF.RESERVE urls 0.001 1000000");
    assert_eq!(reserved, ok());

    let writing = Writing::default();
    let (added, new) = thread::scope(|scope| {
        let end = Stop(&writing);
        let writer = scope.spawn(|| write(&sentinels[0], &writing));
        writing.wait_for_more(50);
        install(&module);
        // The replicas first.
        for at in [1, 2] {
            nodes[at].keep_config();
            nodes[at].restart();
            wait_until("the replica follows", || follows(&nodes[at], &nodes[0]));
        }
        assert!(has_replaced_file(&nodes[0]), "the primary has the old file until its restart");
        writing.wait_for_more(50);
        let new = fail_over(&nodes, 0, &sentinels[0]);
        writing.wait_for_more(50);
        // Then what was the primary. Its file says by now whose replica it is.
        nodes[0].keep_config();
        nodes[0].restart();
        wait_until("the old primary follows", || follows(&nodes[0], &nodes[new]));
        writing.wait_for_more(50);
        drop(end);
        (writer.join().expect("the writer failed"), new)
    });
    println!("{} additions acknowledged", added.len());

    for sentinel in &sentinels {
        wait_until("the Sentinels agree", || settled(sentinel, &nodes[new], 2));
    }
    let primary = &mut nodes[new].client();
    assert_eq!(primary.run("BF.ADD made-now item"), int(1));
    let rate = primary.run("BF.INFO made-now ERROR");
    assert_eq!(rate.elements()[0].text(), RATE, "the settings are on every node");
    for (at, node) in nodes.iter().enumerate() {
        if at != new {
            wait_until("a replica follows", || follows(node, &nodes[new]));
        }
        let client = &mut node.client();
        for key in ["urls", "made-now"] {
            let expected = digest(primary, key);
            wait_until("all nodes are equal", || digest(client, key) == expected);
        }
        let lost = mexists(client, "urls", &added).iter().filter(|&&there| !there).count();
        assert_eq!(lost, 0, "of {} acknowledged items, on node {at}", added.len());
        assert!(!has_replaced_file(node), "node {at} has the new file");
        let clients = client.run("CLIENT LIST").text();
        let has = |user: &str| clients.contains(&format!(" user={user} "));
        assert!(has("sentinel") && (at != new || has("replication")), "node {at}: {clients}");
        assert_eq!(client.run("ACL LOG"), Reply::Array(Vec::new()), "node {at} refused nothing");
        let text = fs::read_to_string(node.dir().join("redis.conf")).expect("the file");
        let lines = text.lines().filter(|line| line.starts_with("loadmodule ")).count();
        assert_eq!(lines, 1, "node {at} has rewritten its file:\n{text}");
        assert_unharmed(node);
    }
}

#[test]
fn a_rolling_upgrade_with_sentinel_loses_no_item() {
    upgrade(fail_over_as_documented);
}

#[test]
fn a_coordinated_failover_of_valkey_loses_no_item() {
    if version().at_least((u32::MAX, 0), (9, 0)) {
        upgrade(fail_over_coordinated);
    } else {
        let test = "a_coordinated_failover_of_valkey_loses_no_item";
        skipped(test, "the Sentinel of this server fails over without waiting");
    }
}

/// Sentinel knows nothing of modules: by priority alone it leaves this replica out.
#[test]
fn a_replica_without_the_module_is_not_promoted() {
    let primary = node().start();
    let lacking = node().without_module().config("replica-priority 0");
    let lacking = lacking.replica_of(&primary).start();
    let has_it = node().replica_of(&primary).start();
    let sentinels = sentinels(&primary, 2);
    let items = numbered("item", 100);
    madd(&mut primary.client(), "urls", &items);
    assert_eq!(primary.client().run("WAIT 2 20000"), int(2));
    let nodes = [primary, lacking, has_it];
    assert_eq!(nodes[1].client().run("DBSIZE"), int(0), "a promotion would lose the filter");
    assert!(PAGE.contains("`replica-priority 0`"));
    assert_eq!(fail_over_as_documented(&nodes, 0, &sentinels[0]), 2);
    wait_until("the other one stays a replica", || role(&nodes[1]) == "slave");
    assert!(mexists(&mut nodes[2].client(), "urls", &items).iter().all(|&there| there));
}
