//! Filters that forget: every subcommand with a window, on servers whose clock the test sets.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use crate::{
    create::redisbloom,
    fake::{Fake, array},
    harness::{
        Client, Clock, Cluster, PRIMARIES, Reply, Server, digest, int, mexists, null, numbered, ok,
        wait_until,
    },
    relay::relayed_each,
    run::{Ran, command, command_at, run, run_at, run_with},
    schema::checked,
};

pub(crate) const HOUR: i64 = 3_600_000;

/// At this rate no item of a test is found by accident.
const SEEN: &str = "create seen --items 100k --error 1e-9 --window 24h";

fn server() -> (Clock, Server, Client) {
    let clock = Clock::new();
    let server = Server::with().clock(&clock).start();
    let client = server.client();
    (clock, server, client)
}

pub(crate) fn file(dir: &Path, name: &str, items: &[String]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, items.join("\n")).expect("a file that can be written");
    path
}

fn journal_of(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.redis-bloom", path.display()))
}

pub(crate) fn load(server: &Server, name: &str, items: &[String]) -> Ran {
    run_with(server, &format!("load {name}"), items.join("\n").as_bytes())
}

/// How many of the items a filter remembers, as `check` says.
pub(crate) fn remembered(server: &Server, name: &str, items: &[String]) -> u64 {
    let ran = run_with(server, &format!("check {name} --json"), items.join("\n").as_bytes());
    let counts = &checked("check", &ran.stdout)[0];
    assert_eq!(ran.code, i32::from(counts["absent"] != 0), "{ran:?}");
    counts["present"].as_u64().expect("a number")
}

fn size(client: &mut Client, key: &str) -> i64 {
    client.run(&format!("BF.INFO {key} SIZE")).elements()[0].int()
}

/// The generations of a filter: items and whether each is alive.
fn generations(client: &mut Client, key: &str) -> Vec<(i64, bool)> {
    let reply = client.run(&format!("BF.INFO {key} GENERATIONS"));
    let field = |map: &Reply, name: &str| map.get(name).expect("a field").clone();
    let one = |map: &Reply| (field(map, "Items").int(), field(map, "Alive") == int(1));
    reply.elements()[0].elements().iter().map(one).collect()
}

#[test]
fn plan_shows_windows() {
    assert_eq!(
        run("plan --items 1M --error 1% --window 24h").done(),
        "   \
   FILTER                     RATE   MEMORY  BITS/ITEM  FORGOTTEN AFTER
*  growing, GENERATIONS 4     0.01  2.10 MB      16.79              30h
   NONSCALING, GENERATIONS 4  0.01  1.95 MB      15.62              30h
   growing, GENERATIONS 2     0.01  2.10 MB      16.79              36h
   growing, GENERATIONS 12    0.01  2.30 MB      18.40              26h
"
    );
    let count = run("plan --items 1M --error 1% --window COUNT --generations 10").done();
    assert!(count.contains("1.10 M items"), "{count}");
    let words = "plan --items 1M --error 1% --window 1500ms --no-refresh --nonscaling --json";
    let line = &checked("plan", &run(words).done())[0];
    assert_eq!(line["filters"][0]["forgotten_after"], 1_875);
    assert_eq!(line["filters"][0]["window"]["refresh"], false);
    // A window that is too short for more generations.
    let words = "plan --items 1M --error 1% --window 3ms --generations 3 --json";
    let line = &checked("plan", &run(words).done())[0];
    let filters = line["filters"].as_array().expect("filters");
    let counts: Vec<_> = filters.iter().map(|filter| &filter["window"]["generations"]).collect();
    assert_eq!(counts, [3, 3, 2], "{line}");
    for wrong in [
        "--window 3ms",
        "--window 4000d",
        "--window tomorrow",
        "--window 24",
        "--window 0s",
        "--generations 3",
        "--no-refresh",
        "--window 24h --generations 33",
        "--window 24h --generations 0",
        "--window 24h --counting",
        "--window 24h --initial 10",
    ] {
        let ran = run(&format!("plan --items 1M --error 1% {wrong}"));
        assert_eq!(ran.code, 2, "{wrong}: {ran:?}");
    }
}

/// A full window takes the bytes that `plan` shows.
#[test]
fn plan_and_server_agree() {
    let server = Server::start();
    let mut client = server.client();
    for (number, options) in [
        "--items 100k --error 1% --window count",
        "--items 100k --error 0.001 --window count --generations 2 --no-refresh",
        "--items 100k --error 0.01 --window 8h",
        "--items 100k --error 1e-6 --window 8h --generations 32 --nonscaling",
        "--items 100k --error 0.2 --window 8h --generations 1",
    ]
    .into_iter()
    .enumerate()
    {
        let line = checked("plan", &run(&format!("plan {options} --json")).done());
        let plan = &line[0]["filters"][0];
        let key = format!("k{number}");
        let made = run_at(&server, &format!("create {key} {options} --json")).done();
        let made = &checked("create", &made)[0];
        assert_eq!(made["bytes"], size(&mut client, &key), "{options}");
        assert_eq!(made["full_bytes"], plan["bytes"], "{options}");
        assert_eq!(made["window"], plan["window"], "{options}");
        let items = numbered("item", 100_000);
        load(&server, &key, &items).done();
        if plan["window"]["kind"] == "count" {
            load(&server, &key, &numbered("more", 200_000)).done();
        }
        // Some 50 pages in classes of the allocator.
        let ratio = size(&mut client, &key) as f64 / plan["bytes"].as_f64().expect("a number");
        assert!((ratio - 1.0).abs() < 0.05, "{options}: {ratio}");
    }
}

#[test]
fn create_makes_a_window_and_says_what() {
    let server = Server::start();
    let mut client = server.client();
    let text = "1.00 M items in 24h at 1 %, 12.6 kB, 2.10 MB when full, 16.79 bits an item\n";
    let words = "create seen --items 1M --error 1% --window 24h";
    assert_eq!(run_at(&server, words).done(), format!("seen created: {text}"));
    assert_eq!(client.run("BF.INFO seen EXPANSION").elements()[0], int(2));
    let words = "create last --items 1000 --error 1% --window count --generations 2 --no-refresh";
    let made = run_at(&server, words).done();
    assert!(made.starts_with("last created: the last 1.00 k items at 1 %, "), "{made}");
    assert_eq!(client.run("BF.INFO last EXPANSION").elements()[0], null());
    let window = client.run("BF.INFO last WINDOW");
    let field = |name: &str| window.elements()[0].get(name).expect("a field").clone();
    assert_eq!(field("Kind").text(), "count");
    assert_eq!((field("Generations"), field("Refresh")), (int(2), int(0)));
    for wrong in ["--window 24h --counting", "--window count --expansion 2", "--generations 2"] {
        let ran = run_at(&server, &format!("create new --items 10 --error 0.1 {wrong}"));
        assert_eq!(ran.code, 2, "{wrong}: {ran:?}");
    }
    // A module that ignores words that it does not know would make a plain filter.
    let other = Fake::start(|command| match command.split(' ').next() {
        Some("BF.FORGET") => "-ERR unknown command 'BF.FORGET'\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    });
    let mut create = command();
    create.args(["-p", &other.port.to_string()]).args("create".split(' '));
    create.args("new --items 10 --error 0.1 --window 1h".split(' '));
    let ran: Ran = create.output().expect("the tool runs").into();
    assert!(ran.code == 4 && ran.stderr.contains("has no sliding-window filters"), "{ran:?}");
    assert!(!other.commands().iter().any(|command| command.starts_with("BF.RESERVE")));
}

#[test]
fn other_modules_are_refused() {
    let Some(server) = redisbloom("other_modules_are_refused") else { return };
    let ran = run_at(&server, "create new --items 10 --error 0.1 --window 1h");
    assert!(ran.code == 4 && ran.stderr.contains("has no sliding-window filters"), "{ran:?}");
    assert_eq!(server.client().run("EXISTS new"), int(0));
}

#[test]
fn check_info_and_top_answer_by_the_clock_of_the_server() {
    let (clock, server, mut client) = server();
    run_at(&server, SEEN).done();
    let [old, new] = ["old", "new"].map(|name| numbered(name, 1_000));
    load(&server, "seen", &old).done();
    clock.advance(20 * HOUR);
    load(&server, "seen", &new).done();
    clock.advance(4 * HOUR - 60_000);
    assert_eq!(remembered(&server, "seen", &old), 1_000, "younger than the window");
    clock.advance(6 * HOUR + 120_000);
    assert_eq!(remembered(&server, "seen", &old), 0, "older than 30 hours");
    assert_eq!(remembered(&server, "seen", &new), 1_000);

    assert_eq!(generations(&mut client, "seen"), [(1_000, false), (1_000, true)]);
    let text = run_at(&server, "info seen").done();
    for part in [
        "\n  items             1.00 k of ",
        "\n  window            24h in 4 generations, since an item was added last\n",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let line = &checked("info", &run_at(&server, "info seen --json").done())[0];
    assert_eq!(line["window"]["milliseconds"], 24 * HOUR);

    run_at(&server, "create last --items 10 --error 1% --window count").done();
    run_at(&server, "create plain --items 10 --error 1%").done();
    load(&server, "last", &old).done();
    for line in checked("top", &run_at(&server, "top --json").done()) {
        assert_eq!(line["name"] == "plain", line["window"].is_null(), "{line}");
    }
    let text = run_at(&server, "info last").done();
    assert!(text.contains("the last items in 4 generations"), "{text}");
}

#[test]
fn forgotten_items_are_absent_and_no_false_positives() {
    let (clock, server, _client) = server();
    run_at(&server, SEEN).done();
    load(&server, "seen", &numbered("item", 1)).done();
    clock.advance(30 * HOUR);
    load(&server, "seen", &numbered("item", 2)[1..]).done();
    let ran = run_at(&server, "check seen item-0 item-1 --answers");
    assert_eq!((ran.code, &*ran.stdout), (1, "0\n1\n"), "{ran:?}");
    // Random probes are asked of the generations that are alive.
    let ran = run_at(&server, "verify seen --probes 10k");
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn what_is_forgotten_is_new_again() {
    let (clock, server, mut client) = server();
    run_at(&server, SEEN).done();
    run_with(&server, "load seen", b"a\nb\nc").done();
    clock.advance(31 * HOUR);
    let ran = run_with(&server, "load seen", b"a\nb\nc");
    assert!(ran.stdout.starts_with("3 items: 3 new, 0 known"), "{ran:?}");
    // BF.INSERT, for a user without the right to BF.BULKADD.
    client.run("ACL SETUSER adder on >secret ~* -@all +bf.insert +bf.info +info +type +time");
    let ran = run_with(&server, "--user adder --pass secret load seen", b"d\na");
    assert!(ran.stdout.starts_with("2 items: 1 new, 1 known"), "{ran:?}");
}

/// Starts a load of 100,000 items a second, and returns when some are in and the journal says so.
fn under_way(server: &Server, dir: &Path, count: usize, options: &str) -> (Child, PathBuf) {
    let path = file(dir, "items", &numbered("item", count));
    let words = format!("load seen --rate 100000 --journal-every 5ms {options}");
    let mut command: Command = command_at(server, &words);
    command.arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the tool runs");
    wait_until("some items are in, and the journal says so", || {
        let journal = fs::read_to_string(journal_of(&path)).unwrap_or_default();
        !journal.is_empty() && !journal.contains("\"offset\":0,")
    });
    (child, path)
}

fn ended(child: Child) -> Ran {
    child.wait_with_output().expect("the tool ends").into()
}

fn killed(mut child: Child) {
    child.kill().expect("it runs");
    child.wait().expect("it ended");
}

/// Generations come and go during a load: nothing is taken for lost.
#[test]
fn a_load_while_generations_come_and_go_is_complete() {
    for (window, steps) in [("24h", 3), ("24h --no-refresh", 12), ("count", 0)] {
        let (clock, server, mut client) = server();
        let dir = tempfile::tempdir().unwrap();
        run_at(&server, &format!("create seen --items 20k --error 1e-9 --window {window}")).done();
        let (mut child, path) = under_way(&server, dir.path(), 100_000, "");
        let card = |client: &mut Client| client.run("BF.CARD seen").int();
        for step in 0..steps {
            clock.advance(6 * HOUR + 1_000);
            let before = card(&mut client);
            // On a busy machine it may end before all steps.
            let mut has_ended = || child.try_wait().expect("a child").is_some();
            wait_until("more items are in", || card(&mut client) != before || has_ended());
            assert!(generations(&mut client, "seen").len() > 1 || step == 0 || has_ended());
        }
        let ran = ended(child);
        assert_eq!(ran.code, 0, "{window}: {ran:?}");
        assert!(ran.stdout.starts_with("100,000 items: 100,000 new"), "{window}: {ran:?}");
        assert!(!journal_of(&path).exists());
        if window == "count" {
            let last = &numbered("item", 100_000)[80_000..];
            assert!(mexists(&mut client, "seen", last).iter().all(|&found| found));
            assert!(card(&mut client) <= 25_000);
        }
    }
}

/// A server whose clock the test sets, with the filter `seen` of a million items.
fn with_seen(window: &str, aof: bool) -> (Clock, Server) {
    let clock = Clock::new();
    let builder = Server::with().clock(&clock);
    let builder = if aof { builder.config("appendonly yes") } else { builder };
    let server = builder.start();
    run_at(&server, &format!("create seen --items 1M --error 1e-9 --window {window}")).done();
    (clock, server)
}

const AGAIN: &str = "sending all of them again";
const FROM_THE_BEGINNING: &str = "nothing proves that seen has all items of the earlier load";

/// Whatever the filter counts, the restart alone is reason to send all items again.
#[test]
fn a_restart_of_the_server_is_noticed_in_a_window_too() {
    for (window, aof) in [("24h", true), ("24h", false), ("count", true), ("count", false)] {
        let (_clock, mut server) = with_seen(window, aof);
        load(&server, "seen", &numbered("before", 1_000)).done();
        assert_eq!(server.client().run("SAVE"), ok());
        let dir = tempfile::tempdir().unwrap();
        let (child, path) = under_way(&server, dir.path(), 100_000, "");
        server.kill_and_restart();
        let ran = ended(child);
        assert!(ran.code == 0 && ran.stderr.contains(AGAIN), "{window}: {ran:?}");
        assert!(!journal_of(&path).exists());
        assert_eq!(remembered(&server, "seen", &numbered("item", 100_000)), 100_000);
    }
    // After the generations that took the first items are forgotten.
    let (clock, mut server) = with_seen("24h", true);
    let dir = tempfile::tempdir().unwrap();
    let (child, _) = under_way(&server, dir.path(), 100_000, "");
    clock.advance(31 * HOUR);
    server.kill_and_restart();
    let ran = ended(child);
    assert!(ran.code == 0 && ran.stderr.contains(AGAIN), "{ran:?}");
}

/// Their older generations have them yet, so the replies and the counts are those of a filter that
/// lost none.
#[test]
fn known_items_that_were_written_again_and_lost_are_noticed() {
    let (clock, mut server) = with_seen("24h", false);
    load(&server, "seen", &numbered("item", 100_000)).done();
    clock.advance(6 * HOUR + 1_000);
    assert_eq!(server.client().run("SAVE"), ok());
    let dir = tempfile::tempdir().unwrap();
    let (child, path) = under_way(&server, dir.path(), 100_000, "");
    server.kill_and_restart();
    let ran = ended(child);
    assert!(ran.code == 0 && ran.stderr.contains(AGAIN), "{ran:?}");
    assert!(!journal_of(&path).exists());
    clock.advance(20 * HOUR);
    assert_eq!(remembered(&server, "seen", &numbered("item", 100_000)), 100_000);
}

/// The newest generation of a filter that nobody fed is over, or dead: no new item goes into it.
#[test]
fn items_lost_from_a_window_that_was_idle_are_noticed() {
    for idle in [31, 7] {
        let (clock, mut server) = with_seen("24h", false);
        load(&server, "seen", &numbered("old", 10)).done();
        assert_eq!(server.client().run("SAVE"), ok());
        clock.advance(idle * HOUR);
        let dir = tempfile::tempdir().unwrap();
        let (child, path) = under_way(&server, dir.path(), 1_000_000, "");
        killed(child);
        let journal = fs::read(journal_of(&path)).expect("a journal");
        let resume = format!("load seen --resume {}", path.display());
        let ran = run_at(&server, &resume);
        assert!(ran.code == 0 && !ran.stderr.contains(FROM_THE_BEGINNING), "{idle}: {ran:?}");
        fs::write(journal_of(&path), &journal).expect("a file");
        server.kill_and_restart();
        let ran = run_at(&server, &resume);
        assert!(ran.code == 0 && ran.stderr.contains(FROM_THE_BEGINNING), "{idle}: {ran:?}");
        assert_eq!(remembered(&server, "seen", &numbered("item", 1_000_000)), 1_000_000);
    }
}

/// A full window counts as much as an older one.
#[test]
fn items_lost_from_a_full_window_of_items_are_noticed() {
    let server = Server::start();
    run_at(&server, "create seen --items 20k --error 1e-9 --window count").done();
    load(&server, "seen", &numbered("old", 60_000)).done();
    assert_eq!(server.client().run("SAVE"), ok());
    let dir = tempfile::tempdir().unwrap();
    let (child, path) = under_way(&server, dir.path(), 1_000_000, "");
    let mut client = server.client();
    let late = "item-39999".to_owned();
    wait_until("the first items are out of the window", || {
        mexists(&mut client, "seen", std::slice::from_ref(&late)) == [true]
    });
    killed(child);
    let mut server = server;
    server.kill_and_restart();
    let ran = run_at(&server, &format!("load seen --resume {}", path.display()));
    assert!(ran.code == 0 && ran.stderr.contains(FROM_THE_BEGINNING), "{ran:?}");
}

/// As a key that expired is made again by a client, with its window or by BF.ADD.
#[test]
fn a_filter_that_was_made_anew_during_a_load_is_noticed() {
    for add in [
        "BF.ADD seen x",
        "BF.INSERT seen WINDOW EX 3600 ITEMS x",
        "BF.INSERT seen CAPACITY 1000000 WINDOW EX 86400 ITEMS x",
    ] {
        let (_clock, server) = with_seen("24h", false);
        let mut client = server.client();
        let dir = tempfile::tempdir().unwrap();
        let (child, path) = under_way(&server, dir.path(), 100_000, "");
        for command in ["MULTI", "DEL seen", add, "EXEC"] {
            client.run(command);
        }
        let ran = ended(child);
        let why = "the key holds another filter than before";
        assert!(ran.code == 5 && ran.stderr.contains(why), "{add}: {ran:?}");
        assert!(!journal_of(&path).exists());
    }
}

/// A server that restarts with its append-only file cannot be distinguished from another one that
/// takes its address with an older file.
#[test]
fn a_load_is_sent_again_after_a_restart() {
    for resumed in [false, true] {
        let (clock, mut server) = with_seen("24h", true);
        load(&server, "seen", &numbered("item", 50_000)).done();
        clock.advance(7 * HOUR);
        let dir = tempfile::tempdir().unwrap();
        let (child, path) = under_way(&server, dir.path(), 200_000, "");
        let (ran, again) = if resumed {
            killed(child);
            server.kill_and_restart();
            let words = format!("load seen --resume {}", path.display());
            (run_at(&server, &words), FROM_THE_BEGINNING)
        } else {
            server.kill_and_restart();
            (ended(child), AGAIN)
        };
        assert!(ran.code == 0 && ran.stderr.contains(again), "{ran:?}");
        clock.advance(20 * HOUR);
        assert_eq!(remembered(&server, "seen", &numbered("item", 200_000)), 200_000);
    }
}

/// Another primary has what replicas acknowledged. What they did not is sent again.
#[test]
fn a_failover_is_no_loss_where_replicas_have_the_items() {
    let cluster = Cluster::start();
    let mut client = cluster.client();
    let mut old = (0..PRIMARIES)
        .find(|&node| cluster.nodes[node].port() == client.owner("seen"))
        .expect("the owner");
    for (options, again) in [("", true), ("--acks 1", false)] {
        let new = (old + PRIMARIES) % (2 * PRIMARIES);
        client.call("seen", &["DEL", "seen"]);
        let create = ["BF.RESERVE", "seen", "1e-9", "1000000", "WINDOW", "EX", "86400"];
        assert_eq!(client.call("seen", &create), ok());
        let dir = tempfile::tempdir().unwrap();
        let (child, path) = under_way(&cluster.nodes[old], dir.path(), 200_000, options);
        assert_eq!(cluster.nodes[new].client().run("CLUSTER FAILOVER TAKEOVER"), ok());
        let ran = ended(child);
        assert_eq!((ran.code, ran.stderr.contains(AGAIN)), (0, again), "{options}: {ran:?}");
        assert!(!journal_of(&path).exists());
        wait_until("the old primary is a replica", || {
            let text = cluster.nodes[old].client().run("INFO replication").text();
            text.contains("master_link_status:up")
        });
        let items = numbered("item", 200_000);
        assert_eq!(remembered(&cluster.nodes[new], "seen", &items), 200_000);
        old = new;
    }
}

/// What a process answers that has a window of a day; "other" was a replica of "first", and had its
/// stream up to byte 9. All items of a command are new.
fn process(run_id: &str, command: &str) -> String {
    let text = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    match command.splitn(5, ' ').collect::<Vec<_>>()[..] {
        ["TYPE", ..] => "+MBbloom--\r\n".to_owned(),
        ["HGETALL", ..] => "-WRONGTYPE Operation against a key\r\n".to_owned(),
        ["CLUSTER", ..] => "-ERR This instance has cluster support disabled\r\n".to_owned(),
        ["INFO", "server", ..] => {
            let before = if run_id == "other" { "stream-of-first" } else { "0000" };
            let ids = format!("master_replid:stream-of-{run_id}\r\nmaster_replid2:{before}");
            let rest = "second_repl_offset:10\r\naof_enabled:1\r\n";
            text(&format!("run_id:{run_id}\r\n{ids}\r\n{rest}"))
        }
        ["INFO", ..] => {
            text("role:master\r\nslave0:state=online,offset=9\r\nmaster_repl_offset:9\r\n")
        }
        ["BF.INFO", _, "WINDOW"] => {
            let words = ["Kind", "time", "Milliseconds", ":86400000", "Generations", ":4"];
            format!("*1\r\n{}", array(&[&words[..], &["Refresh", ":1"]].concat()))
        }
        ["BF.INFO", ..] => "*1\r\n$-1\r\n".to_owned(),
        ["WAIT", ..] => ":1\r\n".to_owned(),
        ["WAITAOF", ..] => "*2\r\n:1\r\n:0\r\n".to_owned(),
        ["BF.BULKADD", .., added] => {
            let count = added.lines().count();
            format!("*2\r\n:{count}\r\n{}", text(&"\x7f".repeat(count / 8)))
        }
        _ => "+OK\r\n".to_owned(),
    }
}

/// What happens to the process of a load after two batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// It goes on, with other connections.
    Same,
    /// The server restarts.
    Restart,
    /// A replica takes its place, and it sends the load there.
    Failover,
    /// A replica takes its place, and its address.
    Takeover,
    /// Its slot moves to another server.
    Move,
}

/// Only `--acks` proves that another process has the items.
#[test]
fn what_proves_that_the_items_of_a_window_are_there() {
    /// The batch of 16 items after which another process may answer.
    const LAST: usize = 26;
    let dir = tempfile::tempdir().unwrap();
    let items: Vec<_> = (0..480).map(|number| format!("item-{number:010}")).collect();
    let path = file(dir.path(), "items", &items);
    let expected = [
        (After::Same, "", false),
        (After::Restart, "", true),
        (After::Restart, "--acks 1", true),
        (After::Failover, "", true),
        (After::Failover, "--acks 1", false),
        (After::Takeover, "", true),
        (After::Takeover, "--acks 1", false),
        (After::Move, "", false),
    ];
    let again = expected.map(|(after, options, _)| {
        let other = Fake::start(move |command| process("other", command));
        let (port, batches) = (other.port, AtomicUsize::new(0));
        let fake = Fake::start(move |command| {
            let add = command.starts_with("BF.BULKADD ") && command.contains("item-");
            if add && batches.fetch_add(1, Ordering::SeqCst) == LAST {
                return match after {
                    After::Failover | After::Move => format!("-MOVED 1 127.0.0.1:{port}\r\n"),
                    _ => "-UNBLOCKED\r\n".to_owned(),
                };
            }
            let over = batches.load(Ordering::SeqCst) > LAST;
            match command {
                "INFO replication" if over && after == After::Failover => {
                    "$12\r\nrole:slave\r\n\r\n".to_owned()
                }
                _ if over && after == After::Restart => process("again", command),
                _ if over && after == After::Takeover => process("other", command),
                _ => process("first", command),
            }
        });
        let mut load = command();
        load.args(["-p", &fake.port.to_string(), "load", "seen", "--batch", "256b"]);
        // Replicas are asked once a second, before the last batches come.
        load.args(["--rate", "320"]).args(options.split_whitespace()).arg(&path);
        let ran: Ran = load.output().expect("the tool runs").into();
        assert_eq!(ran.code, 0, "{after:?} {options}: {ran:?}");
        (after, options, ran.stderr.contains(AGAIN))
    });
    assert_eq!(again, expected);
}

/// A load that was killed goes on: what was forgotten meanwhile is not lost.
#[test]
fn a_load_that_was_killed_goes_on_in_a_window() {
    let (clock, server, mut client) = server();
    let dir = tempfile::tempdir().unwrap();
    run_at(&server, &SEEN.replace("100k", "1M")).done();
    let (child, path) = under_way(&server, dir.path(), 1_000_000, "");
    killed(child);
    let resume = format!("load seen --resume {}", path.display());
    let journal = fs::read(journal_of(&path)).expect("a journal");
    // Within the window all is there, also if other generations have come.
    clock.advance(20 * HOUR);
    load(&server, "seen", &numbered("other", 10)).done();
    let ran = run_at(&server, &resume);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!ran.stderr.contains(FROM_THE_BEGINNING), "{ran:?}");
    assert_eq!(remembered(&server, "seen", &numbered("item", 1_000_000)), 1_000_000);
    // Another filter of this name, in the window: it has nothing of the earlier load.
    fs::write(journal_of(&path), &journal).expect("a file");
    client.run("DEL seen");
    run_at(&server, &SEEN.replace("100k", "1M")).done();
    let ran = run_at(&server, &resume);
    assert!(ran.code == 0 && ran.stderr.contains(FROM_THE_BEGINNING), "{ran:?}");
    assert_eq!(remembered(&server, "seen", &numbered("item", 1_000_000)), 1_000_000);
    // A plain filter in its place is another one.
    fs::write(journal_of(&path), &journal).expect("a file");
    client.run("DEL seen");
    run_at(&server, "create seen --items 2M --error 1%").done();
    let ran = run_at(&server, &resume);
    assert!(ran.code == 0 && ran.stderr.contains(FROM_THE_BEGINNING), "{ran:?}");
}

/// INFO tells whether another process answers.
#[test]
fn a_load_needs_the_rights_to_info_and_bf_info() {
    let (_clock, server, mut client) = server();
    run_at(&server, SEEN).done();
    for (right, code) in [("", 0), ("-info", 4), ("-bf.info", 4)] {
        let rights = "+bf.bulkadd +bf.info +info +type";
        client.run(&format!("ACL SETUSER adder reset on >secret ~* -@all {rights} {right}"));
        let ran = run_with(&server, "--user adder --pass secret load seen", b"a\nb");
        assert_eq!(ran.code, code, "{right}: {ran:?}");
        assert!(code == 0 || ran.stderr.contains("ACL SETUSER"), "{ran:?}");
    }
    assert_eq!(client.run("BF.CARD seen"), int(2));
}

#[test]
fn a_dump_keeps_the_starts() {
    let (clock, server, mut client) = server();
    let path = server.dir().join("seen.dump");
    run_at(&server, SEEN).done();
    let [old, new] = ["old", "new"].map(|name| numbered(name, 1_000));
    load(&server, "seen", &old).done();
    clock.advance(20 * HOUR);
    load(&server, "seen", &new).done();
    run_at(&server, &format!("dump seen -o {}", path.display())).done();
    run_at(&server, &format!("restore {} copy", path.display())).done();
    for word in ["WINDOW", "GENERATIONS"] {
        let [one, other] = ["seen", "copy"].map(|key| client.run(&format!("BF.INFO {key} {word}")));
        assert_eq!(one, other);
    }
    assert_eq!(digest(&mut client, "seen"), digest(&mut client, "copy"));
    clock.advance(11 * HOUR);
    for key in ["seen", "copy"] {
        assert_eq!(remembered(&server, key, &old), 0, "{key}");
        assert_eq!(remembered(&server, key, &new), 1_000, "{key}");
    }
    run_at(&server, "drop copy").done();
    assert_eq!(client.run("EXISTS copy"), int(0));
}

/// A generation that comes gives the chunks another identity.
#[test]
fn a_dump_while_generations_come_and_go_is_none() {
    let server = Server::start();
    let mut client = server.client();
    let path = server.dir().join("seen.dump");
    run_at(&server, "create seen --items 1000 --error 1% --window 4ms").done();
    let mut number = 0;
    // An addition that comes a millisecond after a start opens a generation.
    let output = relayed_each(&server, server.dir(), "dump seen -o seen.dump", || {
        thread::sleep(Duration::from_millis(2));
        client.cmd(&["BF.ADD", "seen", &number.to_string()]);
        number += 1;
    });
    let ran = Ran::from(output);
    assert_eq!((ran.code, &*ran.stdout), (5, ""), "{ran:?}");
    let error = "redis-bloom: seen changed during the dump, 3 times\n  \
                 Its generations come and go: COPY the filter, and dump the copy.\n";
    assert!(ran.stderr.ends_with(error), "{ran:?}");
    assert!(!path.exists());
    client.run("COPY seen copy");
    run_at(&server, &format!("dump copy -o {}", path.display())).done();
    run_at(&server, &format!("restore {} again", path.display())).done();
    assert_eq!(digest(&mut client, "copy"), digest(&mut client, "again"));
}

/// A server without WINDOW answers an error to that word.
#[test]
fn a_load_asks_nothing_of_a_filter_without_a_window() {
    let server = Fake::start(|command| {
        let words: Vec<_> = command.splitn(5, ' ').collect();
        match words[..] {
            ["HGETALL", ..] => "-WRONGTYPE Operation against a key\r\n".to_owned(),
            ["INFO", ..] => "$8\r\nrun_id:1\r\n".to_owned(),
            ["BF.INFO", _, "ITEMS"] => array(&[":0"]),
            ["BF.INFO", _, "SATURATED"] => array(&["$-1"]),
            ["BF.INFO", ..] => "-ERR invalid information value\r\n".to_owned(),
            ["BF.BULKADD", .., ""] => "*2\r\n:0\r\n$0\r\n\r\n".to_owned(),
            _ => "-ERR no\r\n".to_owned(),
        }
    });
    let mut load = command();
    load.args(["-p", &server.port.to_string(), "load", "seen"]);
    let ran: Ran = load.output().expect("the tool runs").into();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!server.commands().iter().any(|command| command.starts_with("TIME")));
}
