//! `rebuild`: under traffic on a cluster, killed and given up at each step; and its forms and
//! refusals on one server.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::sharding::{Descriptor, keys::shard_keys};

use crate::{
    harness::{Client, Cluster, ClusterClient, Random, Reply, Server, int, numbered, ok},
    relay::{Before, relayed},
    run::{Ran, check_file, command, command_at},
    schema::checked,
    sharded_load::{assert_all_in, at, create, file, over, write},
};

/// The steps in their order.
const STEPS: [&str; 6] = ["reserving", "waiting", "filling", "filled", "exchanged", "committed"];

/// The fields of a hash.
fn fields(reply: Reply) -> BTreeMap<String, String> {
    let text = |reply: &Reply| reply.clone().text();
    reply.elements().chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

fn descriptor(fields: &BTreeMap<String, String>) -> Descriptor {
    let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    Descriptor::parse(fields).expect("every client can use the descriptor at any time")
}

/// A client that does what docs/reference/sharding.md says, and reads the descriptor as late as it
/// may.
struct Follower {
    client: ClusterClient,
    descriptor: Descriptor,
    read: Instant,
    /// How old a descriptor it uses.
    oldest: Duration,
}

/// What the waits of a rebuild give clients: two times `poll`, which is 1 second here.
const ALLOWED: Duration = Duration::from_secs(2);

impl Follower {
    fn new(cluster: &Cluster, oldest: Duration) -> Self {
        let mut client = cluster.client();
        let read = Instant::now();
        let descriptor = descriptor(&fields(client.call("urls", &["HGETALL", "urls"])));
        Self { client, descriptor, read, oldest }
    }

    fn read_descriptor(&mut self) {
        self.read = Instant::now();
        self.descriptor = descriptor(&fields(self.client.call("urls", &["HGETALL", "urls"])));
    }

    /// Sends a command for the item to the shards of the generations; `None` if one of them refuses
    /// it.
    fn try_all(&mut self, words: [&str; 3], item: &str, next: bool) -> Option<Reply> {
        let mut first = None;
        let descriptor = self.descriptor.clone();
        let next = descriptor.next.as_ref().expect("it is readable").as_ref().filter(|_| next);
        for generation in [Some(&descriptor.current), next].into_iter().flatten() {
            let key = str::from_utf8(generation.key_of(item.as_bytes())).expect("text");
            let [command, nocreate, items] = words;
            let words = [command, key, nocreate, items, item];
            let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
            match self.client.call(key, &words) {
                Reply::Array(replies) if replies.len() == 1 && !replies[0].is_error() => {
                    first.get_or_insert(replies[0].clone());
                }
                reply => {
                    let text = format!("{reply:?}");
                    let stale = ["WRONGTYPE", "ERR not found", "ERR item belongs to shard"];
                    assert!(stale.iter().any(|start| text.contains(start)), "{words:?}: {text}");
                    // The old shard is gone: what the current generation has is enough.
                    if first.is_some() && generation.number < descriptor.current.number {
                        continue;
                    }
                    return None;
                }
            }
        }
        first
    }

    /// The answer of the current generation, and whether the client was as quick as it must be.
    fn send(&mut self, words: [&str; 3], item: &str, next: bool) -> (Reply, bool) {
        if self.read.elapsed() >= self.oldest {
            self.read_descriptor();
        }
        let mut answer = self.try_all(words, item, next);
        if answer.is_none() {
            self.read_descriptor();
            answer = self.try_all(words, item, next);
        }
        let answer = answer.expect("no error after the descriptor was read again");
        (answer, self.read.elapsed() < ALLOWED)
    }

    fn add(&mut self, item: &str) -> bool {
        self.send(["BF.INSERT", "NOCREATE", "ITEMS"], item, true).1
    }

    /// Whether the filter denies an item that it has.
    fn misses(&mut self, item: &str) -> bool {
        let (answer, quick) = self.send(["BF.MEXISTS", "", ""], item, false);
        quick && answer == int(0)
    }
}

/// What the threads of the traffic share.
struct Traffic {
    stop: AtomicBool,
    acknowledged: Mutex<Vec<String>>,
    asked: AtomicU64,
    missed: Mutex<Vec<String>>,
}

impl Traffic {
    fn items(&self) -> Vec<String> {
        self.acknowledged.lock().expect("no thread panicked").clone()
    }

    fn add(&self, follower: &mut Follower, word: &str) {
        let mut number = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let item = format!("{word}-{number}");
            if follower.add(&item) {
                self.acknowledged.lock().expect("no thread panicked").push(item);
            }
            number += 1;
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn ask(&self, follower: &mut Follower, seed: u64) {
        let mut random = Random::new(seed);
        while !self.stop.load(Ordering::Relaxed) {
            let items = {
                let all = self.acknowledged.lock().expect("no thread panicked");
                [all[all.len() - 1].clone(), all[random.below(all.len())].clone()]
            };
            for item in items {
                if follower.misses(&item) {
                    let step = follower.client.call("urls", &["HGET", "urls", "rebuild"]);
                    self.missed
                        .lock()
                        .expect("no thread panicked")
                        .push(format!("{item}: {step:?}"));
                }
                self.asked.fetch_add(1, Ordering::Relaxed);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A cluster with `urls`, and a directory for files.
struct Stage {
    cluster: Cluster,
    client: ClusterClient,
    dir: tempfile::TempDir,
}

impl Stage {
    fn command(&self, words: &str) -> Command {
        let mut command = command();
        command.args(["-p", &self.cluster.nodes[1].port().to_string()]);
        command.args(words.split_whitespace()).current_dir(self.dir.path());
        command
    }

    #[track_caller]
    fn done(&self, words: &str) -> String {
        let ran: Ran = self.command(words).output().expect("the tool runs").into();
        ran.done()
    }

    fn fields(&mut self) -> BTreeMap<String, String> {
        fields(self.client.call("urls", &["HGETALL", "urls"]))
    }

    fn step(&mut self) -> Option<usize> {
        match self.client.call("urls", &["HGET", "urls", "rebuild"]) {
            Reply::Bulk(step) => STEPS.iter().position(|name| name.as_bytes() == step),
            _ => None,
        }
    }

    /// Starts the tool, and kills it when the descriptor shows that step or one behind it.
    fn killed_at(&mut self, words: &str, step: &str) {
        let wanted = STEPS.iter().position(|name| *name == step);
        let mut command = self.command(words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the tool runs");
        while self.step() < wanted && child.try_wait().expect("a child").is_none() {}
        child.kill().expect("it runs, or has ended");
        child.wait().expect("it ended");
    }

    fn export(&self, traffic: &Traffic, name: &str) {
        fs::write(self.dir.path().join(name), traffic.items().join("\n")).expect("a file");
    }
}

#[test]
fn a_rebuild_under_traffic_has_no_false_negative_however_often_it_is_killed_or_given_up() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let mut stage = Stage { cluster, client, dir: tempfile::tempdir().unwrap() };
    let old = create(&mut over(&mut stage.client), "urls", 8).current.keys;
    let items = numbered("old", 2_000);
    file(stage.dir.path(), &items);
    stage.done("load urls items");
    let traffic = Traffic {
        stop: AtomicBool::new(false),
        acknowledged: Mutex::new(items),
        asked: AtomicU64::new(0),
        missed: Mutex::new(Vec::new()),
    };
    let follower = |oldest| Follower::new(&stage.cluster, Duration::from_millis(oldest));
    // Some use the descriptor longer than `poll`, as if their commands were that slow.
    // Different ages, so that some know of an exchange before others.
    let (mut adders, mut askers) =
        ([follower(700), follower(1_600)], [follower(1_100), follower(1_500)]);
    thread::scope(|scope| {
        for (number, adder) in adders.iter_mut().enumerate() {
            let traffic = &traffic;
            scope.spawn(move || traffic.add(adder, &format!("new-{number}")));
        }
        for (number, asker) in askers.iter_mut().enumerate() {
            let traffic = &traffic;
            scope.spawn(move || traffic.ask(asker, number as u64));
        }
        let rebuilt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            rebuild_once(&mut stage, &traffic);
            give_up(&mut stage, &traffic);
        }));
        thread::sleep(ALLOWED);
        traffic.stop.store(true, Ordering::Relaxed);
        // What went wrong may be why items were missed.
        let missed = traffic.missed.lock().expect("no thread panicked").clone();
        let shown = &missed[..missed.len().min(3)];
        assert!(missed.is_empty(), "{} false negatives: {shown:?}", missed.len());
        if let Err(panic) = rebuilt {
            std::panic::resume_unwind(panic);
        }
    });
    let missed = traffic.missed.into_inner().expect("no thread panicked");
    assert_eq!(missed, [""; 0]);
    assert!(traffic.asked.into_inner() > 2_000, "the machine is too slow for this test");
    for key in &old {
        let key = str::from_utf8(key).expect("text");
        assert_eq!(stage.client.call(key, &["GET", key]).text(), "moved to 2");
        assert!(stage.client.call(key, &["TTL", key]).int() > 600_000);
    }
    // A shard that is lost.
    let key = stage.fields()["1"].clone();
    assert_eq!(stage.client.call(&key, &["UNLINK", &key]), int(1));
    let items = traffic.acknowledged.into_inner().expect("no thread panicked");
    file(stage.dir.path(), &items);
    stage.done("rebuild urls --from items --commit");
    let ran = check_file(&stage.cluster.nodes[0], "urls", &stage.dir.path().join("items"));
    assert!(ran.done().contains("all present"));
}

/// From 8 shards to 3, killed at each step.
fn rebuild_once(stage: &mut Stage, traffic: &Traffic) {
    let words = "rebuild urls --shards 3 --items 500k --error 0.01";
    for step in &STEPS[..2] {
        stage.killed_at(words, step);
    }
    stage.done(words);
    assert_eq!(stage.step(), Some(2));
    let next = descriptor(&stage.fields()).next.ok().flatten().expect("a next generation");
    assert_eq!((next.number, next.shards(), next.capacity), (2, 3, 500_000));
    stage.export(traffic, "export");
    let words = "rebuild urls --from export --commit";
    for step in &STEPS[2..] {
        stage.killed_at(words, step);
        if stage.step() == Some(4) {
            let abort = stage.command("rebuild urls --abort").output().expect("the tool runs");
            assert_eq!(Ran::from(abort).code, 4, "the exchange is not undone");
        }
    }
    // The last kill may have come when nothing was left to do.
    if stage.fields().contains_key("rebuild") {
        stage.done(words);
    }
    let fields = stage.fields();
    let now = descriptor(&fields);
    assert_eq!((now.current, now.next), (next, Ok(None)));
    // rule, poll, shards, generation, error, capacity, three keys, state.
    assert_eq!(fields.len(), 10, "{fields:?}");
}

/// A rebuild that is killed at each step and given up then.
fn give_up(stage: &mut Stage, traffic: &Traffic) {
    let before = stage.fields();
    for step in &STEPS[..4] {
        let wanted = STEPS.iter().position(|name| name == step).expect("a step");
        if wanted < 2 {
            stage.killed_at("rebuild urls --shards 5", step);
        } else {
            stage.done("rebuild urls --shards 5");
        }
        let number = |fields: BTreeMap<String, String>| {
            let number = fields.get("spare.generation").or(fields.get("next.generation"));
            number.expect("a next generation").clone()
        };
        let number = number(stage.fields());
        if wanted > 2 {
            stage.export(traffic, "export");
            let words = "rebuild urls --from export --commit";
            stage.killed_at(words, step);
        }
        stage.done("rebuild urls --abort");
        assert_eq!(stage.fields(), before, "{step}");
        let number = number.parse().expect("a generation");
        for key in shard_keys(b"urls", 5, number).expect("a name") {
            let key = str::from_utf8(&key).expect("text");
            assert_eq!(stage.client.call(key, &["GET", key]).text(), "moved to 2", "{step}");
        }
    }
}

/// A server with `urls` of three shards, `plain` in one key, and the file `items`.
fn server() -> (Server, Client) {
    let server = Server::start();
    let mut client = server.client();
    create(&mut at(&mut client), "urls", 3);
    file(server.dir(), &numbered("item", 5_000));
    fs::write(server.dir().join("empty"), "").unwrap();
    assert_eq!(run(&server, "load urls items").code, 0);
    client.run("BF.RESERVE plain 0.01 100");
    (server, client)
}

fn run(server: &Server, words: &str) -> Ran {
    command_at(server, words).current_dir(server.dir()).output().expect("the tool runs").into()
}

/// Runs what must be refused, and changes nothing.
#[track_caller]
fn refused(server: &Server, words: &str, code: i32, text: &str) {
    let mut client = server.client();
    let before = client.run("HGETALL urls");
    let ran = run(server, &format!("{words} --quiet"));
    assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{words}: {ran:?}");
    assert!(ran.stderr.contains(text), "{words}: {ran:?}");
    assert_eq!(ran.stderr.lines().count(), 2, "{words}: {ran:?}");
    assert_eq!(client.run("HGETALL urls"), before, "{words}");
}

#[track_caller]
fn report(server: &Server, words: &str) -> serde_json::Value {
    let ran = run(server, &format!("{words} --json"));
    assert_eq!(ran.code, 0, "{words}: {ran:?}");
    checked("rebuild", &ran.stdout).swap_remove(0)
}

#[test]
fn a_rebuild_in_its_forms() {
    let (server, mut client) = server();
    for (words, code, text) in [
        ("rebuild plain", 4, "the name is a filter in one key"),
        ("rebuild none", 4, "there is no sharded filter of this name"),
        ("rebuild urls --commit", 4, "there is no new generation that has the items"),
        ("rebuild urls --abort", 4, "it is not being rebuilt"),
        ("rebuild urls --from missing", 2, "missing"),
        ("rebuild urls --from -", 2, "the items are read twice"),
        ("rebuild urls --from items /dev/null", 2, "the items are read twice"),
    ] {
        refused(&server, words, code, text);
    }
    for words in
        ["--abort --commit", "--abort --from items", "--shards 0", "--items 0", "--error 1"]
    {
        assert_eq!(run(&server, &format!("rebuild urls {words}")).code, 2, "{words}");
    }

    // A filter that does not grow, with a base, and all in one run.
    client.run("BF.ADD plain older");
    client.run("HSET urls base plain");
    for shard in 0..3 {
        let key = client.run(&format!("HGET urls {shard}")).text();
        client.cmd(&["UNLINK", &key]);
        let reserve = format!("BF.RESERVE {key} 0.001 10000 NONSCALING SHARD {shard} 3");
        assert_eq!(client.run(&reserve), ok());
    }
    let words = "rebuild urls --shards 2 --items 20k --error 0.01 --from items --commit";
    let seen = report(&server, words);
    assert_eq!((&seen["step"], &seen["items"]), (&"committed".into(), &5_000.into()));
    assert_eq!((&seen["generation"], &seen["shards"]), (&2.into(), &2.into()));
    let now = fields(client.run("HGETALL urls"));
    let current = descriptor(&now).current;
    assert_eq!((current.error_rate, current.capacity), (0.01, 20_000));
    assert_eq!(now.len(), 9, "{now:?}");
    assert_eq!(client.run("EXISTS plain"), int(0), "the base is gone");
    assert_all_in(&server, "urls", &server.dir().join("items"));
    for (shard, key) in current.keys.iter().enumerate() {
        let key = str::from_utf8(key).expect("text");
        let asked = |word| ["BF.INFO", key, word];
        assert_eq!(client.cmd(&asked("EXPANSION")).elements(), [Reply::Null]);
        // 20,000 items in two shards: 10,000 + 6 * 100.
        assert_eq!(client.cmd(&asked("CAPACITY")).elements(), [int(10_600)]);
        let own = client.cmd(&asked("SHARD")).elements()[0].clone();
        assert_eq!(own.elements(), [int(shard as i64), int(2)]);
    }
    refused(&server, "rebuild urls --commit", 4, "there is no new generation that has the items");
}

/// A file that is cut between the two readings: exit 0 only if all that was loaded was checked.
#[test]
fn a_file_that_is_cut_before_it_is_checked_is_noticed() {
    let (server, _) = server();
    run(&server, "rebuild urls --shards 2").done();
    let (mut at, mut seen) = (0, 0);
    loop {
        fs::write(server.dir().join("cut"), numbered("item", 1_000).join("\n")).unwrap();
        let place = Before { after: "item-999", command: at };
        let run = relayed(&server, server.dir(), "rebuild urls --from cut", place, |_| {
            fs::write(server.dir().join("cut"), "item-1\n").unwrap();
            true
        });
        let ran = Ran::from(run.output);
        match ran.code {
            0 => assert!(ran.stdout.contains("all 1,000 items"), "command {at}: {ran:?}"),
            5 => seen += 1,
            _ => panic!("command {at}: {ran:?}"),
        }
        if !run.reached {
            break;
        }
        at += 1;
    }
    assert!(seen > 0, "{at} commands");
}

/// The name is dropped, and created again with the keys of the retired shards, before each command
/// of a run that puts tombstones there: none takes the place of a shard of the new filter.
#[test]
fn a_tombstone_takes_no_place_of_another_filter() {
    let (server, mut client) = server();
    let (mut at, mut seen) = (0, 0);
    loop {
        client.run("FLUSHALL");
        // A rebuild that was given up, but for its end; the number of what answers is above.
        let [old, new] = [1, 2].map(|number| shard_keys(b"urls", 2, number).unwrap());
        let mut fields = Vec::new();
        for (shard, (old, new)) in old.iter().zip(&new).enumerate() {
            for key in [old, new] {
                let key = key.escape_ascii();
                let reserve = format!("BF.RESERVE {key} 0.01 1000 SHARD {shard} 2");
                assert_eq!(client.run(&reserve), ok());
            }
            let (old, new) = (old.escape_ascii(), new.escape_ascii());
            fields.push(format!("{shard} {new} retired.{shard} {old}"));
        }
        client.run(&format!(
            "HSET urls rule crc32 state ready poll 1 shards 2 generation 2 error 0.01 \
             capacity 1000 rebuild aborted {}",
            fields.join(" ")
        ));
        let place = Before { after: "", command: at };
        let mut created = false;
        let run = relayed(&server, server.dir(), "rebuild urls --abort", place, |_| {
            created = run(&server, "drop urls").code == 0
                && run(&server, "create urls --items 1k --error 1% --shards 2").code == 0;
            true
        });
        let ran = Ran::from(run.output);
        if !run.reached {
            assert_eq!(ran.code, 0, "{ran:?}");
            break;
        }
        assert!(created, "command {at}: {ran:?}");
        let live = client.run("HGET urls 0").text() == old[0].escape_ascii().to_string();
        assert!([0, 4, 5].contains(&ran.code), "command {at}: {ran:?}");
        let info = crate::run::run_at(&server, "info urls");
        assert_eq!(info.code, 0, "command {at}: {ran:?}, {info:?}");
        seen += usize::from(live && ran.code == 5);
        at += 1;
    }
    assert!(seen > 3, "{seen} of {at}");
}

#[test]
fn a_rebuild_that_cannot_go_on_is_mended_or_given_up() {
    let (server, mut client) = server();
    // Rights for all of it, and no other ones.
    let rights = "ACL SETUSER least on >x ~urls ~{urls:* +hgetall +watch +multi +exec +hset +hdel \
                  +type +exists +bf.info +bf.reserve +bf.bulkadd +bf.bulkexists +info +wait \
                  +cluster|slots +unlink +set";
    assert_eq!(client.run(rights), ok());
    let least = |words: &str| format!("--user least -a x rebuild urls {words}");
    assert_eq!(report(&server, &least("--shards 2"))["step"], "filling");
    assert_eq!(report(&server, "rebuild urls")["step"], "filling", "nothing is begun anew");
    refused(&server, "rebuild urls --shards 4", 4, "it is being rebuilt with 2 shards");
    refused(&server, "rebuild urls --commit", 4, "there is no new generation that has the items");
    refused(&server, "rebuild urls --from empty", 2, "the files have no items");
    let next =
        |client: &mut Client, shard: usize| client.run(&format!("HGET urls next.{shard}")).text();
    // A shard of the new generation is lost before the load, and during it.
    let key = next(&mut client, 1);
    let dump = client.cmd(&["DUMP", &key]);
    client.cmd(&["UNLINK", &key]);
    refused(&server, "rebuild urls --from items", 5, "shard 1 of 2");
    let Reply::Bulk(dump) = dump else { panic!("{dump:?}") };
    assert_eq!(client.cmd(&[b"RESTORE", key.as_bytes(), b"0", &dump]), ok());
    let seen = report(&server, &least("--from items"));
    assert_eq!((&seen["step"], &seen["items"]), (&"filled".into(), &5_000.into()));
    assert_eq!((&seen["generation"], &seen["next_generation"]), (&1.into(), &2.into()));
    // The step of a newer release, and fields that somebody has removed.
    client.run("HSET urls rebuild resting");
    refused(&server, "rebuild urls --commit", 4, "unknown step 'resting'");
    client.run("HSET urls rebuild filled");
    client.run("HDEL urls next.1");
    refused(&server, "rebuild urls --commit", 4, "the fields of its new generation are damaged");
    client.run(&format!("HSET urls next.1 {key}"));
    assert_eq!(report(&server, &least("--commit"))["step"], "committed");
    assert_all_in(&server, "urls", &server.dir().join("items"));
    // A next generation that another program made.
    let now = descriptor(&fields(client.run("HGETALL urls")));
    let mut other = now.clone();
    let next = crate::sharding::Generation::new(b"urls", 1, 3, 0.1, 10).expect("a name");
    other.next = Ok(Some(next));
    write(&mut at(&mut client), "urls", &other);
    refused(&server, "rebuild urls", 4, "a next generation that this tool did not make");
    let seen = report(&server, &least("--abort"));
    assert_eq!(
        (&seen["step"], &seen["next_generation"]),
        (&"aborted".into(), &serde_json::Value::Null)
    );
    assert_eq!(descriptor(&fields(client.run("HGETALL urls"))), now);
}

/// New shards do not take their options from a lost shard that BF.ADD recreated.
#[test]
fn new_shards_grow_as_the_shards_that_are_there() {
    let server = Server::start();
    let mut client = server.client();
    file(server.dir(), &numbered("item", 3_000));
    let create = "create all --items 20k --error 1% --shards 3 --poll 1 --expansion 4";
    assert_eq!(run(&server, create).code, 0);
    let key = |client: &mut Client, shard| client.run(&format!("HGET all {shard}")).text();
    let expansion = |client: &mut Client, key: &str| {
        client.run(&format!("BF.INFO {key} EXPANSION")).elements()[0].clone()
    };
    let first = key(&mut client, 0);
    client.run(&format!("DEL {first}"));
    assert_eq!(client.run(&format!("BF.ADD {first} x")), int(1));
    assert_ne!(expansion(&mut client, &first), int(4));
    let words = "rebuild all --shards 2 --from items --commit";
    // Without any shard, the least memory.
    for expected in [4, 1] {
        let ran = run(&server, words);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(ran.stderr.contains("no shard is left as a model"), expected == 1, "{ran:?}");
        for shard in 0..2 {
            let key = key(&mut client, shard);
            assert_eq!(expansion(&mut client, &key), int(expected));
            client.run(&format!("DEL {key}"));
        }
    }
}

/// `drop` runs before each command by which new shards are reserved. Repeated, it leaves nothing.
#[test]
fn a_drop_during_a_rebuild_can_be_repeated() {
    let server = Server::start();
    let mut client = server.client();
    let (mut at, mut repeated) = (0, 0);
    loop {
        let create = "create urls --items 1k --error 1% --shards 2 --poll 1";
        assert_eq!(run(&server, create).code, 0);
        let before = Before { after: "reserving\r\n", command: at };
        let mut reserved = false;
        let ran = relayed(&server, server.dir(), "rebuild urls", before, |_| {
            reserved = client.run("HEXISTS urls next.0") == int(1);
            assert!(reserved || run(&server, "drop urls").code == 0);
            true
        });
        if reserved {
            break;
        }
        let ran = Ran::from(ran.output);
        assert_ne!(ran.code, 0, "command {at}: {ran:?}");
        if client.run("DBSIZE") != int(0) {
            assert!(ran.stderr.contains("Remove what is left by `drop urls`"), "{ran:?}");
            assert_eq!(run(&server, "drop urls").code, 0, "command {at}: {ran:?}");
            assert_eq!(client.run("DBSIZE"), int(0));
            repeated += 1;
        }
        at += 1;
    }
    assert!(repeated > 1, "{repeated} of {at}");
}

/// An item of a file would count as added now, or twice.
#[test]
fn shards_with_a_window_or_with_counters_are_not_rebuilt() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(run(&server, "create seen --items 20k --error 1% --shards 1").code, 0);
    let key = client.run("HGET seen 0").text();
    for (words, text) in [("WINDOW EX 60", "it has a window"), ("COUNTING", "it counts items")] {
        client.run(&format!("DEL {key}"));
        let reserve = format!("BF.RESERVE {key} 0.01 20000 {words} SHARD 0 1");
        assert_eq!(client.run(&reserve), ok());
        refused(&server, "rebuild seen --shards 3", 4, text);
    }
}

/// Every new item changes an old shard while its tombstone is about to take its place.
#[test]
fn a_rebuild_ends_while_clients_add() {
    let (server, mut client) = server();
    run(&server, "rebuild urls --shards 2 --from items").done();
    let now = fields(client.run("HGETALL urls"));
    let old = descriptor(&now).current;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for word in ["a", "b"] {
            let (mut client, old, stop) = (server.client(), &old, &stop);
            scope.spawn(move || {
                for round in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let item = |number| format!("{word}-{round}-{number}").into_bytes();
                    let add =
                        |item: Vec<u8>| vec![b"BF.ADD".to_vec(), old.key_of(&item).to_vec(), item];
                    client.pipeline(&(0..20).map(item).map(add).collect::<Vec<_>>());
                    thread::sleep(Duration::from_micros(300));
                }
            });
        }
        let ran = run(&server, "rebuild urls --commit");
        stop.store(true, Ordering::Relaxed);
        assert_eq!(ran.code, 0, "{ran:?}");
    });
    for key in &old.keys {
        assert_eq!(client.cmd(&[b"GET", &key[..]]).text(), "moved to 2");
    }
}
