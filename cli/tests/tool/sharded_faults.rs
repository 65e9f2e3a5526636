//! Sharded filters where something is missing: a replica that does not answer, a server that is
//! stopped, files that may not be opened, rights.

use std::{
    fs,
    io::{Read as _, Write as _},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::sharding::{Descriptor, Generation, State};

use crate::{
    fake::{Fake, array},
    harness::{Client, Cluster, Server, Stopped, numbered, ok, wait_until},
    relay::{Before, relayed},
    run::{Ran, command, command_at, run_at},
    sharded_load::{Call, assert_all_in, at, create, file, over, reserve, started, write},
};

/// How often a command was sent since CONFIG RESETSTAT.
fn calls(client: &mut Client, command: &str) -> u64 {
    let text = client.run("INFO commandstats").text().to_ascii_lowercase();
    let start = format!("cmdstat_{command}:calls=");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.map_or(0, |line| line.split(',').next().unwrap_or_default().parse().expect("a number"))
}

/// A server with a replica that is in step.
fn replicated() -> (Server, Server) {
    let server = Server::start();
    // Bytes of the stream that nobody wrote.
    server.client().run("CONFIG SET repl-ping-replica-period 3600");
    let replica = server.replica();
    in_step(&server);
    (server, replica)
}

/// Waits until the replica of a server has acknowledged all. WAIT would add to the stream.
pub(crate) fn in_step(server: &Server) {
    let mut client = server.client();
    wait_until("the replica is in step", || {
        let all = client.server_info("replication", "master_repl_offset");
        let replica = client.server_info("replication", "slave0");
        replica.contains("state=online") && replica.contains(&format!("offset={all},"))
    });
}

fn in_dir(server: &Server, words: &str) -> Command {
    let mut command = command_at(server, words);
    command.current_dir(server.dir()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the tool with a reply timeout of a second while the replica is stopped: it must go on
/// waiting, however often its WAIT has ended.
#[track_caller]
fn waits(server: &Server, words: &str) -> Child {
    let mut client = server.client();
    client.run("CONFIG RESETSTAT");
    let words = format!("--timeout 1 {words}");
    let mut child = in_dir(server, &words).spawn().expect("the tool runs");
    let mut ended = false;
    wait_until("the tool waits again and again", || {
        ended = child.try_wait().expect("a child").is_some();
        ended || calls(&mut client, "wait") >= 8
    });
    if ended {
        let ran: Ran = child.wait_with_output().expect("it ended").into();
        panic!("{words}: it ended without a replica: {ran:?}");
    }
    child
}

#[track_caller]
fn killed(mut child: Child) {
    child.kill().expect("it runs");
    child.wait().expect("it ended");
}

/// A short --timeout cuts no WAIT short, and what an earlier run wrote is not taken for confirmed:
/// newer servers answer WAIT at once on a connection that wrote nothing.
#[test]
fn what_no_replica_has_is_not_done() {
    let (server, replica) = replicated();
    let path = file(server.dir(), &numbered("item", 1_000));
    let create = "create urls --items 10k --error 1% --shards 2 --poll 1";
    let stop = || {
        in_step(&server);
        Stopped::stop(replica.pid())
    };
    let ends = |child: Child, stopped: Stopped| {
        drop(stopped);
        let ran = Ran::from(child.wait_with_output().expect("the tool ends"));
        assert_eq!(ran.code, 0, "{ran:?}");
        let line = "waiting up to 60 s until a replica has what was written";
        assert_eq!(ran.stderr.matches(line).count(), 1, "{ran:?}");
        in_step(&server);
        let keys = |server: &Server| server.client().run("DBSIZE");
        assert_eq!(keys(&server), keys(&replica));
    };
    Ran::from(in_dir(&server, create).output().expect("it runs")).done();
    // Twice: what the first run wrote is there already.
    let stopped = stop();
    killed(waits(&server, "rebuild urls --shards 3"));
    ends(waits(&server, "rebuild urls"), stopped);
    let ran = |words: &str| Ran::from(in_dir(&server, words).output().expect("it runs"));
    ran("load urls items").done();
    ran("rebuild urls --abort").done();
    // Items that are added again.
    let mut items = numbered("item", 1_000);
    items.extend(numbered("lost", 10));
    let path = file(path.parent().expect("a directory"), &items);
    let stopped = stop();
    let child = waits(&server, "load urls items");
    drop(stopped);
    let ran = Ran::from(child.wait_with_output().expect("the tool ends"));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("too few replicas acknowledged"), "{ran:?}");
    in_step(&server);
    assert_all_in(&server, "urls", &path);
}

/// Tombstones are on a replica before the descriptor forgets the shards that they replace.
#[test]
fn tombstones_and_removals_are_waited_for() {
    let (server, _replica) = replicated();
    let mut client = server.client();
    file(server.dir(), &numbered("item", 1_000));
    let done = |words: &str| Ran::from(in_dir(&server, words).output().expect("it runs")).done();
    done("create urls --items 10k --error 1% --shards 16 --poll 1");
    done("load urls items");
    done("rebuild urls --shards 2 --from items");
    in_step(&server);
    client.run("CONFIG RESETSTAT");
    done("rebuild urls --commit");
    // Two steps, sixteen tombstones, their notes in the descriptor, the last step.
    let waits = calls(&mut client, "wait");
    assert!(waits >= 20, "{waits}");
    // So are shards that were removed, before the descriptor is.
    done("create more --items 10k --error 1% --shards 16");
    in_step(&server);
    client.run("CONFIG RESETSTAT");
    done("drop more");
    let waits = calls(&mut client, "wait");
    assert!(waits >= 18, "{waits}");
}

/// The server of the command line is a replica that has none of the shards. A load does not begin
/// there again and again when it is stopped.
#[test]
fn a_stopped_server_of_the_command_line_stalls_no_load() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start();
    let mut client = cluster.client();
    // The shard of 1 is in the middle of all slots: on the second primary.
    let mut descriptor = create(&mut over(&mut client), "urls", 1);
    descriptor.poll = 1;
    write(&mut over(&mut client), "urls", &descriptor);
    let path = file(dir.path(), &numbered("item", 100_000));
    let words = format!(
        "--timeout 600 load urls --rate 25000 --batch 4kb --journal-every 5ms {}",
        path.display()
    );
    let mut child = started(&cluster.nodes[5], &words);
    let key = descriptor.current.keys[0].clone();
    wait_until("some items are in", || over(&mut client)(&key, &[b"BF.CARD", &key]).int() > 5_000);
    let stopped = Stopped::stop(cluster.nodes[5].pid());
    let mut ended = false;
    // A hang of ten minutes otherwise.
    wait_until("the load ends", || {
        ended = child.try_wait().expect("a child").is_some();
        ended
    });
    drop(stopped);
    let ran: Ran = child.wait_with_output().expect("it ended").into();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_all_in(&cluster.nodes[0], "urls", &path);
}

/// Each shard takes a connection. The tool raises its limit as far as it may, and says what to do
/// where that is not enough.
#[test]
fn shards_beyond_the_limit_of_open_files() {
    let server = Server::start();
    let path = file(server.dir(), &numbered("item", 2_000));
    let limited = |limit: &str, words: &str| -> Ran {
        let program = command_at(&server, words);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")]);
        command.arg(program.get_program()).args(program.get_args());
        command.current_dir(server.dir()).stdin(fs::File::open(&path).expect("a file"));
        command.output().expect("the shell runs").into()
    };
    run_at(&server, "create urls --items 10k --error 1% --shards 150").done();
    for words in ["load urls --retry-for 1s items", "check urls", "verify urls --probes 100"] {
        let ran = limited("-n 64", words);
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{words}: {ran:?}");
        assert!(ran.stderr.contains("Too many open files"), "{words}: {ran:?}");
        assert!(ran.stderr.contains("limit of open files (ulimit -n)"), "{words}: {ran:?}");
    }
    for words in ["load urls --retry-for 1s items", "check urls", "verify urls --probes 100"] {
        limited("-Sn 64", words).done();
    }
}

/// A client reads the descriptor every `poll` seconds, also if no shard refuses what it asks.
#[test]
fn check_follows_a_descriptor_that_changes() {
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    let mut descriptor = create(call, "urls", 2);
    descriptor.poll = 1;
    write(call, "urls", &descriptor);
    // More than a pipe holds, so that the tool has read the descriptor when they are written.
    let items = numbered("a-longer-name-of-an-item", 50_000).join("\n") + "\n";
    let path = server.dir().join("items");
    fs::write(&path, &items).expect("a file");
    run_at(&server, &format!("load urls {}", path.display())).done();
    let mut child = command_at(&server, "check urls --batch 1kb")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(items.as_bytes()).expect("the tool reads");
    // The new generation has the items before it answers, and others after that; the old shards are
    // there still.
    let next = reserve(call, "urls", 3, 2, "EXPANSION 1").current;
    descriptor.next = Ok(Some(next.clone()));
    write(call, "urls", &descriptor);
    run_at(&server, &format!("load urls {}", path.display())).done();
    (descriptor.current, descriptor.next) = (next, Ok(None));
    write(call, "urls", &descriptor);
    let more = numbered("more", 5_000).join("\n") + "\n";
    fs::write(&path, &more).expect("a file");
    run_at(&server, &format!("load urls {}", path.display())).done();
    thread::sleep(Duration::from_millis(1_100));
    input.write_all(more.as_bytes()).expect("the tool reads");
    drop(input);
    let ran: Ran = child.wait_with_output().expect("the tool ends").into();
    assert_eq!(ran.done(), "55,000 items: all present\n");
}

/// What is loaded into a new generation is looked for there, not in that which the descriptor says
/// answers, however long the check takes.
#[test]
fn a_rebuild_checks_the_new_generation() {
    let server = Server::start();
    file(server.dir(), &numbered("item", 100_000));
    let done = |words: &str| Ran::from(in_dir(&server, words).output().expect("it runs")).done();
    done("create urls --items 200k --error 1% --shards 2 --poll 1");
    // Small batches: it takes longer than `poll`. The old generation has none of the items.
    let text = done("rebuild urls --shards 3 --batch 16b --from items");
    assert_eq!(text, "urls: all 100,000 items are in the new generation\n");
}

/// Clients go by the `poll` that they have read: if it grows while the tool waits for them,
/// the tool waits longer, also if it gets smaller again.
#[test]
fn a_rebuild_waits_for_the_largest_poll() {
    let server = Server::start();
    let mut client = server.client();
    run_at(&server, "create urls --items 10k --error 1% --shards 2 --poll 3").done();
    let mut child = in_dir(&server, "rebuild urls").spawn().expect("the tool runs");
    let mut errors = child.stderr.take().expect("a pipe");
    for (seconds, poll) in [(6, 100_000), (200_000, 1)] {
        let wanted = format!("urls: waiting {seconds} s (two times `poll`)");
        let (mut text, mut line) = (String::new(), [0; 4096]);
        while !text.contains(&wanted) {
            let length = errors.read(&mut line).expect("the tool talks");
            assert!(length > 0, "it ended: {text}");
            text += &String::from_utf8_lossy(&line[..length]);
        }
        client.run(&format!("HSET urls poll {poll}"));
    }
    client.run("CONFIG RESETSTAT");
    wait_until("it has read that", || calls(&mut client, "hgetall") >= 4);
    assert_eq!(client.run("HGET urls rebuild").text(), "waiting");
    killed(child);
}

/// A user without a right is told which one.
#[test]
fn missing_rights_to_wait_and_info_are_named() {
    let (server, _replica) = replicated();
    let path = file(server.dir(), &numbered("item", 100));
    run_at(&server, "create urls --items 10k --error 1% --shards 2").done();
    let user = |rights: &str, words: &str| {
        let user = format!("ACL SETUSER clerk reset on >secret ~* +@all {rights}");
        assert_eq!(server.client().run(&user), ok());
        run_at(&server, &format!("--user clerk --pass secret {words}"))
    };
    let load = format!("load urls {}", path.display());
    let create = "create more --items 10k --error 1% --shards 2";
    for right in ["wait", "info"] {
        for words in [&load, create] {
            let ran = user(&format!("-{right}"), words);
            assert_eq!(ran.code, 4, "{words}: {ran:?}");
            let hint = format!("ACL SETUSER ... +{right}");
            assert!(ran.stderr.contains(&hint), "{words}: {ran:?}");
        }
        run_at(&server, "drop more").done();
    }
}

/// A load that waits for a replica says so.
#[test]
fn a_load_says_what_it_waits_for() {
    let (server, replica) = replicated();
    let path = file(server.dir(), &numbered("item", 100));
    run_at(&server, "create urls --items 10k --error 1% --shards 2").done();
    in_step(&server);
    let _stopped = Stopped::stop(replica.pid());
    let ran = run_at(&server, &format!("load urls --retry-for 4s {}", path.display()));
    assert_eq!(ran.code, 5, "{ran:?}");
    // The node, what it lacks, and the way out.
    let line = format!(
        "127.0.0.1:{}: too few replicas acknowledged (--acks 0 waits for none); trying again for \
         4 s",
        server.port()
    );
    assert_eq!(ran.stderr.matches(&line).count(), 1, "{ran:?}");
}

/// What the server of a sharded filter `one` of one shard says, which is empty and adds every item.
fn one_shard(command: &str) -> String {
    let text = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let words: Vec<_> = command.splitn(5, ' ').collect();
    match words[..] {
        ["HGETALL", ..] => array(&[
            "rule",
            "crc32",
            "poll",
            "10",
            "shards",
            "1",
            "generation",
            "1",
            "error",
            "0.01",
            "capacity",
            "1000",
            "0",
            "{one:0}:1",
            "state",
            "ready",
        ]),
        ["TYPE", ..] => "+none\r\n".to_owned(),
        ["CLUSTER", ..] => "-ERR This instance has cluster support disabled\r\n".to_owned(),
        ["INFO", "replication"] => text("role:master\r\nconnected_slaves:0\r\n"),
        ["INFO", ..] => text("run_id:1\r\n"),
        ["BF.INFO", _] => array(&[
            "Capacity",
            ":1000",
            "Size",
            ":100",
            "Number of filters",
            ":1",
            "Number of items inserted",
            ":0",
            "Expansion rate",
            ":1",
        ]),
        ["BF.INFO", _, "ERROR" | "FPR" | "FILL"] => array(&["0.01"]),
        ["BF.INFO", _, "SHARD"] => "*1\r\n*2\r\n:0\r\n:1\r\n".to_owned(),
        ["BF.INFO", _, "ITEMS"] => array(&[":0"]),
        ["BF.INFO", _, "IDENTITY"] => array(&["00000000000000ff"]),
        ["EXEC"] => "*1\r\n:1\r\n".to_owned(),
        ["BF.INFO", ..] => array(&["$-1"]),
        ["BF.BULKADD", .., items] => {
            let count = items.lines().count();
            format!("*2\r\n:{count}\r\n{}", text(&"\0".repeat(count.div_ceil(8))))
        }
        ["BF.BULKEXISTS", .., items] => {
            let count = items.lines().count();
            format!("*2\r\n:{count}\r\n{}", text(&"\0".repeat(count.div_ceil(8))))
        }
        ["WAIT", ..] => ":1\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    }
}

/// The reply to HGETALL of a descriptor.
fn hash_of(descriptor: &Descriptor) -> String {
    let words = descriptor.fields(State::Ready).into_iter().flat_map(|(name, value)| [name, value]);
    let words: Vec<_> = words.map(|word| String::from_utf8(word).expect("text")).collect();
    array(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The descriptor of `one`, which is read every second, with a next generation of so many shards;
/// with none, if that is 0.
fn one_with_next(shards: u16) -> Descriptor {
    let mut descriptor = Descriptor::new(b"one", 1, 0.01, 1_000, 1).expect("a name");
    let next = Generation::new(b"one", shards, 2, 0.01, 1_000);
    descriptor.next = Ok(next.ok());
    descriptor
}

/// The items that one of these keys got.
fn items_of(commands: &[String], keys: &[Vec<u8>]) -> Vec<String> {
    let keys: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
    let own = |command: &&String| keys.iter().any(|key| command.split(' ').nth(1) == Some(key));
    let batches = commands.iter().filter(|text| text.starts_with("BF.BULKADD")).filter(own);
    let items = batches.flat_map(|batch| batch.splitn(5, ' ').nth(4).unwrap_or("").lines());
    let items: std::collections::BTreeSet<_> = items.map(str::to_owned).collect();
    items.into_iter().collect()
}

/// A reply that comes when the descriptor is older than two times `poll` confirms nothing: the
/// filter may be rebuilt by now.
#[test]
fn what_an_old_descriptor_added_goes_to_the_next_generation_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), &numbered("item", 10));
    let next = one_with_next(1);
    let keys = next.next.clone().expect("readable").expect("a generation").keys;
    let [first, later] = [hash_of(&one_with_next(0)), hash_of(&next)];
    let looks = AtomicUsize::new(0);
    let fake = Fake::start(move |command| {
        if command.starts_with("HGETALL") {
            match looks.fetch_add(1, Ordering::SeqCst) {
                0 => return first.clone(),
                1 => thread::sleep(Duration::from_secs(3)),
                _ => {}
            }
            return later.clone();
        }
        if command.starts_with("BF.BULKADD") && command.contains("}:1 ") && command.contains("item")
        {
            thread::sleep(Duration::from_millis(2_500));
        }
        one_shard(command)
    });
    let ran = run_fake(&fake, &format!("load one {}", path.display()));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(items_of(&fake.commands(), &keys).len(), 10, "{ran:?}");
}

/// A rebuild that was given up and begun again with fewer shards has the number of the first.
#[test]
fn a_number_that_two_generations_have_is_no_reason_to_leave_items_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), &numbered("item", 10));
    let both = [2, 1].map(one_with_next);
    let [old, new] = both.clone().map(|of| of.next.expect("readable").expect("a generation").keys);
    let (replies, halves, third) = (both.map(|of| hash_of(&of)), old.clone(), new[0].clone());
    let (looks, begun) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let fake = Fake::start(move |command| {
        let key = command.split(' ').nth(1).unwrap_or_default();
        begun.fetch_max(usize::from(key.as_bytes() == third), Ordering::SeqCst);
        let half = halves.iter().position(|half| half == key.as_bytes());
        let adds = command.starts_with("BF.BULKADD") && command.contains("item");
        match half {
            _ if command.starts_with("HGETALL") => {
                replies[looks.fetch_add(1, Ordering::SeqCst).min(1)].clone()
            }
            Some(half) if command.ends_with("SHARD") => {
                format!("*1\r\n*2\r\n:{half}\r\n:2\r\n")
            }
            // The generation that answers takes nothing before the other one is given up.
            None if adds && begun.load(Ordering::SeqCst) == 0 => {
                "-BUSY Redis is busy running a script\r\n".to_owned()
            }
            _ => one_shard(command),
        }
    });
    let ran = run_fake(&fake, &format!("load one {}", path.display()));
    assert_eq!(ran.code, 0, "{ran:?}");
    let commands = fake.commands();
    assert_eq!([&old, &new].map(|keys| items_of(&commands, keys).len()), [10, 10], "{ran:?}");
}

/// The last look at the shards takes no longer for many of them than for one.
#[test]
fn a_load_looks_at_all_shards_at_the_same_time() {
    const SHARDS: u16 = 8;
    let descriptor = Descriptor::new(b"urls", SHARDS, 0.01, 10_000, 10).expect("a name");
    let shards: Vec<_> =
        descriptor.current.keys.iter().map(|key| String::from_utf8_lossy(key).into()).collect();
    let fields = hash_of(&descriptor);
    // Each shard is looked at when the load begins, when its thread ends, and when all have ended.
    // The last reply waits until all shards are asked.
    let (asked, all) = (Mutex::new(Vec::<String>::new()), Condvar::new());
    let alone = Arc::new(AtomicUsize::new(0));
    let waited = Arc::clone(&alone);
    let fake = Fake::start(move |command| match command.split(' ').collect::<Vec<_>>()[..] {
        ["HGETALL", "urls"] => fields.clone(),
        ["BF.INFO", key, "SHARD"] => {
            let shard = shards.iter().position(|shard: &String| shard == key).expect("a shard");
            format!("*1\r\n*2\r\n:{shard}\r\n:{SHARDS}\r\n")
        }
        ["BF.INFO", key, "IDENTITY"] => {
            let mut asked = asked.lock().expect("no panic");
            asked.push(key.to_owned());
            all.notify_all();
            if asked.iter().filter(|other| *other == key).count() == 3 {
                let some = |asked: &mut Vec<_>| asked.len() < 3 * usize::from(SHARDS);
                let result = all.wait_timeout_while(asked, Duration::from_secs(2), some);
                let late = result.expect("no panic").1.timed_out();
                waited.fetch_add(usize::from(late), Ordering::SeqCst);
            }
            array(&["$-1"])
        }
        _ => one_shard(command),
    });
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), &numbered("item", 1_000));
    let ran = run_fake(&fake, &format!("load urls {}", path.display()));
    assert_eq!(ran.code, 0, "{ran:?}");
    let looks = fake.commands().iter().filter(|command| command.ends_with("IDENTITY")).count();
    assert_eq!((looks, alone.load(Ordering::SeqCst)), (3 * usize::from(SHARDS), 0));
}

/// The shard's own thread sees no other process, and only the last look at all shards does.
#[test]
fn ctrl_c_at_the_end_of_a_load_skips_no_look() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), &numbered("item", 10));
    let (tool, looks) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let pid = Arc::clone(&tool);
    let fake = Fake::start(move |command| {
        if command.starts_with("BF.BULKADD") && command.contains("item-") {
            wait_until("the tool is known", || pid.load(Ordering::SeqCst) > 0);
            let kill = format!("kill -INT {}", pid.load(Ordering::SeqCst));
            assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
        }
        match command {
            "INFO server replication" if looks.fetch_add(1, Ordering::SeqCst) == 2 => {
                "$8\r\nrun_id:2\r\n".to_owned()
            }
            _ => one_shard(command),
        }
    });
    let mut load = command();
    load.args(["-p", &fake.port.to_string(), "load", "one"]).arg(&path);
    load.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = load.spawn().expect("the tool runs");
    tool.store(child.id() as usize, Ordering::SeqCst);
    let ran: Ran = child.wait_with_output().expect("the tool ends").into();
    assert_eq!((ran.code, &*ran.stdout), (5, ""), "{ran:?}");
    assert!(ran.stderr.contains("nothing proves that it has the items"), "{ran:?}");
}

/// A replica that goes away in the middle of a command is waited for.
#[test]
fn a_replica_that_disconnects_does_not_count_as_none() {
    let (server, replica) = replicated();
    let words = "create urls --items 10k --error 1% --shards 2";
    let (back, port) = (AtomicUsize::new(0), server.port());
    // The descriptor is written and acknowledged; the first shard is not.
    let before = Before { after: "WAIT", command: 2 };
    thread::scope(|scope| {
        let run = relayed(&server, server.dir(), words, before, |_| {
            assert_eq!(replica.client().run("REPLICAOF NO ONE"), ok());
            wait_until("it is gone", || {
                server.client().server_info("replication", "connected_slaves") == "0"
            });
            scope.spawn(|| {
                thread::sleep(Duration::from_secs(2));
                back.store(1, Ordering::SeqCst);
                replica.client().run(&format!("REPLICAOF 127.0.0.1 {port}"))
            });
            true
        });
        assert_eq!(back.load(Ordering::SeqCst), 1, "it ended without the replica");
        assert!(run.reached);
        Ran::from(run.output).done();
    });
}

/// Runs the tool at a fake server.
fn run_fake(fake: &Fake, words: &str) -> Ran {
    let mut tool = command();
    tool.args(["-p", &fake.port.to_string()]).args(words.split_whitespace());
    tool.output().expect("the tool runs").into()
}

/// Each shard is looked at when a load begins, when its thread ends, and when all have ended.
#[test]
fn a_refusal_at_the_last_look_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), &numbered("item", 10));
    let asked = AtomicUsize::new(0);
    let fake = Fake::start(move |command| match command {
        "INFO server replication" if asked.fetch_add(1, Ordering::SeqCst) == 2 => {
            "-NOPERM this user has no permissions to run the 'info' command\r\n".to_owned()
        }
        _ => one_shard(command),
    });
    let ran = run_fake(&fake, &format!("load one {}", path.display()));
    assert!(ran.code == 4 && ran.stderr.contains("NOPERM"), "{ran:?}");
}

/// Items of a load that begins at a primary that was demoted count when a replica has them.
#[test]
fn a_load_at_a_demoted_primary_waits_for_a_replica() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), &numbered("item", 10));
    // All items are known, so that the offsets of replicas say whether they are confirmed.
    for (role, questions) in [("slave", 2), ("master", 1)] {
        let asked = AtomicUsize::new(0);
        let fake = Fake::start(move |command| match command {
            "INFO replication" => {
                let role = if asked.fetch_add(1, Ordering::SeqCst) == 0 { role } else { "master" };
                let replica = "slave0:state=online,offset=7\r\nmaster_repl_offset:7\r\n";
                let text = format!("role:{role}\r\nconnected_slaves:0\r\n{replica}");
                format!("${}\r\n{text}\r\n", text.len())
            }
            _ => one_shard(command),
        });
        let ran = run_fake(&fake, &format!("load one {}", path.display()));
        assert_eq!(ran.code, 0, "{ran:?}");
        let asked = fake.commands().iter().filter(|text| *text == "INFO replication").count();
        assert_eq!(asked, questions, "{role}: {ran:?}");
    }
}

/// Every error that passes is waited for, by each subcommand. `check` asks once to see whether the
/// server has the command, and again at once for the items.
#[test]
fn a_server_that_is_busy_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), &numbered("item", 10));
    let from = path.display();
    for (words, code, first) in [
        ("check one item-1".to_owned(), 1, "BF.BULKEXISTS"),
        (format!("load one {from}"), 0, "BF.BULKADD"),
        ("rebuild one --abort".to_owned(), 4, "WATCH"),
    ] {
        for text in ["BUSY Redis is busy running a script.", "NOREPLICAS Not enough good replicas"]
        {
            let asked = AtomicUsize::new(0);
            let fake = Fake::start(move |command| {
                let own = command.starts_with(first);
                match own && asked.fetch_add(1, Ordering::SeqCst) < 3 {
                    true => format!("-{text}\r\n"),
                    false => one_shard(command),
                }
            });
            let ran = run_fake(&fake, &words);
            assert_eq!(ran.code, code, "{words}: {text}: {ran:?}");
        }
    }
}
