//! `load`, `check` and `verify` over the shards of a sharded filter: on one server where that is
//! enough, and on a cluster of three primaries and three replicas.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::sharding::{Descriptor, State, key_slot, shard_capacity, shard_of};

use crate::{
    harness::{
        Client, Cluster, ClusterClient, PRIMARIES, Random, Reply, Server, Stopped, int, numbered,
        ok, version, wait_until,
    },
    run::{Ran, check_file, command_at, run_at, run_with},
    schema::checked,
};

/// Sends a command to the server that has the key.
pub(crate) type Call<'c> = &'c mut dyn FnMut(&[u8], &[&[u8]]) -> Reply;

pub(crate) fn at(client: &mut Client) -> impl FnMut(&[u8], &[&[u8]]) -> Reply {
    |_, words| client.cmd(words)
}

pub(crate) fn over(client: &mut ClusterClient) -> impl FnMut(&[u8], &[&[u8]]) -> Reply {
    |key, words| client.call(str::from_utf8(key).expect("a key of these tests"), words)
}

/// Reserves the shards of a generation of `name`; `words` follow the capacity.
pub(crate) fn reserve(
    call: Call<'_>,
    name: &str,
    shards: u16,
    generation: u64,
    words: &str,
) -> Descriptor {
    reserve_for(call, name, shards, generation, 1_000_000, words)
}

fn reserve_for(
    call: Call<'_>,
    name: &str,
    shards: u16,
    generation: u64,
    items: u64,
    words: &str,
) -> Descriptor {
    let keys =
        crate::sharding::keys::shard_keys(name.as_bytes(), shards, generation).expect("a name");
    let capacity = shard_capacity(items, shards).expect("shards").to_string();
    for (shard, key) in keys.iter().enumerate() {
        let text = format!("0.001 {capacity} {words} SHARD {shard} {shards}");
        let mut command: Vec<&[u8]> = vec![b"BF.RESERVE", key];
        command.extend(text.split_whitespace().map(str::as_bytes));
        assert_eq!(call(key, &command), ok());
    }
    let mut descriptor = Descriptor::new(name.as_bytes(), shards, 0.001, items, 1).expect("a name");
    (descriptor.current.number, descriptor.current.keys) = (generation, keys);
    descriptor
}

/// Writes the descriptor whole.
pub(crate) fn write(call: Call<'_>, name: &str, descriptor: &Descriptor) {
    let fields = descriptor.fields(State::Ready);
    let mut command: Vec<&[u8]> = vec![b"HSET", name.as_bytes()];
    command.extend(fields.iter().flat_map(|(field, value)| [&field[..], &value[..]]));
    call(name.as_bytes(), &[b"DEL", name.as_bytes()]);
    assert!(!call(name.as_bytes(), &command).is_error());
}

/// Creates a sharded filter for a million items at 0.1 %.
pub(crate) fn create(call: Call<'_>, name: &str, shards: u16) -> Descriptor {
    let descriptor = reserve(call, name, shards, 1, "EXPANSION 1");
    write(call, name, &descriptor);
    descriptor
}

/// Items that each shard counts.
fn cards(call: Call<'_>, keys: &[Vec<u8>]) -> Vec<i64> {
    keys.iter().map(|key| call(key, &[b"BF.CARD", key]).int()).collect()
}

pub(crate) fn file(dir: &Path, items: &[String]) -> PathBuf {
    let path = dir.join("items");
    fs::write(&path, items.join("\n")).expect("a file that can be written");
    path
}

fn journal_of(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.redis-bloom", path.display()))
}

fn number(json: &str, field: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(json).expect("a line of JSON");
    value[field].as_u64().unwrap_or_else(|| panic!("no number {field} in {json}"))
}

pub(crate) fn started(server: &Server, words: &str) -> Child {
    command_at(server, words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool runs")
}

fn ended(child: Child) -> Ran {
    child.wait_with_output().expect("the tool ends").into()
}

/// Checks by the tool that every item of the file is in.
#[track_caller]
pub(crate) fn assert_all_in(server: &Server, name: &str, path: &Path) {
    let ran = check_file(server, name, path);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("all present"), "{ran:?}");
}

/// The node that is the primary of a key's slot, by the port that a client knows.
fn node_of(cluster: &Cluster, client: &ClusterClient, key: &[u8]) -> usize {
    let owner = client.owner(str::from_utf8(key).expect("text"));
    cluster.nodes.iter().position(|node| node.port() == owner).expect("a node")
}

#[test]
fn a_sharded_filter_of_one_server_is_loaded_checked_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    for shards in [1, 3, 8] {
        let name = format!("urls{shards}");
        let descriptor = create(call, &name, shards);
        let items = numbered("item", 60_000);
        let path = file(dir.path(), &items);
        // In lines, in items with lengths, and as arguments of a user without the packed command.
        call(b"", &[b"ACL", b"SETUSER", b"plain", b"on", b">x", b"~*", b"+@all", b"-bf.bulkadd"]);
        call(b"", &[b"ACL", b"SETUSER", b"plain", b"-bf.bulkexists"]);
        for (options, part) in [
            ("", &items[..20_000]),
            ("-0 --batch 1kb", &items[20_000..40_000]),
            ("--user plain --pass x", &items[40_000..]),
        ] {
            let separator = if options.contains("-0") { "\0" } else { "\n" };
            let words = format!("load {name} --json {options}");
            let done = run_with(&server, &words, part.join(separator).as_bytes()).done();
            checked("load", &done);
            assert_eq!(number(&done, "items"), 20_000, "{done}");
        }
        let now = cards(call, &descriptor.current.keys);
        // False positives at a fill far below capacity are rare.
        let known = 60_000 - now.iter().sum::<i64>();
        assert!((0..60).contains(&known), "{now:?}");
        for (shard, &card) in now.iter().enumerate() {
            let own = |item: &&String| usize::from(shard_of(item.as_bytes(), shards)) == shard;
            let expected = items.iter().filter(own).count() as i64;
            assert!((expected - 60..=expected).contains(&card), "{now:?}, {expected}");
        }
        assert_all_in(&server, &name, &path);
        for user in ["", "--user plain --pass x"] {
            let input = format!("{}\nnone\n{}\n\nnothing", items[7], items[50_000]);
            let words = format!("check {name} --answers --batch 10b {user}");
            let ran = run_with(&server, &words, input.as_bytes());
            assert_eq!((ran.code, ran.stdout.as_str()), (1, "1\n0\n1\n0\n0\n"), "{ran:?}");
            let ran = run_with(&server, &format!("check {name} --absent {user}"), input.as_bytes());
            assert_eq!(ran.stdout, "none\n\nnothing\n");
        }
        let ran = run_at(&server, &format!("check {name} {} {} --json", items[1], items[2]));
        checked("check", &ran.stdout);
        assert_eq!(ran.stdout, "{\"items\":2,\"present\":2,\"absent\":0}\n");
        let ran = run_at(&server, &format!("verify {name} --json"));
        checked("verify", &ran.stdout);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stdout.contains("\"error_rate\":0.001"), "{ran:?}");
    }
    let ran = run_with(&server, "load urls3", b"a\nb\n");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("3 of 3 shards are on servers without a replica"), "{ran:?}");
    // The least rights that docs/reference/cli.md lists.
    let rights = "ACL SETUSER least on >x ~urls3 ~{urls3:* +bf.bulkadd +bf.info +info +type \
                  +hgetall +wait +bf.bulkexists +cluster|slots";
    let rights: Vec<&[u8]> = rights.split_whitespace().map(str::as_bytes).collect();
    assert_eq!(call(b"", &rights), ok());
    run_with(&server, "load urls3 --user least --pass x", b"least").done();
    run_at(&server, "check urls3 least --user least --pass x").done();
}

#[test]
fn an_empty_input_and_an_idle_pipe() {
    let server = Server::start();
    let mut client = server.client();
    let descriptor = create(&mut at(&mut client), "urls", 8);
    let ran = run_with(&server, "load urls", b"");
    assert!(ran.done().starts_with("0 items: 0 new, 0 known"));
    let mut child = command_at(&server, "load urls")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    let mut input = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, b"one\ntwo\nthr").expect("the tool reads");
    let keys = &descriptor.current.keys;
    wait_until("both whole lines are in", || {
        cards(&mut at(&mut client), keys).iter().sum::<i64>() == 2
    });
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    let ran = ended(child);
    assert_eq!(ran.code, 130, "{ran:?}");
    assert!(ran.stderr.contains("Load again from the beginning. If it is a COUNTING"), "{ran:?}");
    assert!(ran.stdout.starts_with("2 items: 2 new"), "{ran:?}");
}

#[test]
fn a_sharded_load_killed_at_any_time_goes_on_and_misses_nothing() {
    let seed = 22;
    let mut random = Random::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut client = server.client();
    let descriptor = create(&mut at(&mut client), "urls", 8);
    let items = numbered("item", 200_000);
    let path = file(dir.path(), &items);
    let journal = journal_of(&path);
    let words = format!(
        "load urls --resume --json --batch 4kb --rate 500000 --journal-every 5ms {}",
        path.display()
    );
    let mut within = 0;
    for round in 0..20 {
        let before = fs::read(&journal).ok();
        let mut child = started(&server, &words);
        // On a busy machine a load may need longer to begin. So every other one is killed only
        // after it went on.
        if round % 2 == 0 {
            thread::sleep(Duration::from_millis(random.below(60) as u64));
        } else {
            wait_until("the load goes on, or ends", || {
                fs::read(&journal).ok() != before || child.try_wait().expect("its state").is_some()
            });
            thread::sleep(Duration::from_millis(random.below(10) as u64));
        }
        child.kill().expect("it runs, or has ended");
        child.wait().expect("it ended");
        within += i32::from(fs::read_to_string(&journal).is_ok_and(|text| {
            let (_, text) = text.split_once('\n').expect("the first line of a journal");
            let value: serde_json::Value = serde_json::from_str(text).expect("a whole journal");
            assert_eq!(value["position"]["generation"], 1);
            value["position"]["offset"] != 0
        }));
    }
    assert!(within > 0, "seed {seed}: no kill left a journal in the middle");
    let done = run_at(&server, &words).done();
    assert!(number(&done, "items") <= items.len() as u64);
    assert_all_in(&server, "urls", &path);
    assert!(!journal.exists());
    let all = cards(&mut at(&mut client), &descriptor.current.keys).iter().sum::<i64>();
    assert!(all <= items.len() as i64);
}

/// Starts a slow load of 200,000 items, and returns when some are in, and the journal says so.
fn under_way(
    server: &Server,
    call: Call<'_>,
    keys: &[Vec<u8>],
    path: &Path,
    options: &str,
) -> Child {
    let words = format!(
        "load urls --batch 4kb --rate 100000 --journal-every 5ms --json {options} {}",
        path.display()
    );
    let child = started(server, &words);
    wait_until("some items are in", || {
        cards(call, keys).iter().sum::<i64>() > 5_000 && journal_of(path).exists()
    });
    child
}

#[test]
fn what_changed_since_an_earlier_load_is_resumed_at_the_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    let mut descriptor = create(call, "urls", 4);
    let items = numbered("item", 200_000);
    let path = file(dir.path(), &items);
    let journal = journal_of(&path);
    let mut child = under_way(&server, call, &descriptor.current.keys, &path, "");
    wait_until("the journal is within the file", || {
        let text = fs::read_to_string(&journal).unwrap_or_default();
        !text.is_empty() && !text.contains("\"offset\":0,")
    });
    // Another load of the file would write the same journal.
    let ran = run_at(&server, &format!("load urls {}", path.display()));
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    assert!(ran.stderr.contains("is being loaded already"), "{ran:?}");
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    let kept = fs::read(&journal).expect("a journal");

    let refused = |words: &str, code: i32, text: &str| {
        fs::write(&journal, &kept).expect("a file that can be written");
        let ran = run_at(&server, &format!("load {words} --resume {}", path.display()));
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{ran:?}");
        assert!(ran.stderr.contains(text), "{ran:?}");
    };
    refused("urls -0", 2, "lines; not urls in database 0, zero bytes");
    let begins_again = || {
        fs::write(&journal, &kept).expect("a file that can be written");
        let ran = run_at(&server, &format!("load urls --json --resume {}", path.display()));
        assert!(ran.stderr.contains("nothing proves that urls has all items"), "{ran:?}");
        assert_eq!(number(&ran.done(), "items"), 200_000);
    };
    // A shard that lost items.
    let key = descriptor.current.keys[2].clone();
    call(&key, &[b"DEL", &key]);
    assert_eq!(call(&key, &[b"BF.RESERVE", &key, b"0.001", b"300000", b"SHARD", b"2", b"4"]), ok());
    begins_again();
    assert_all_in(&server, "urls", &path);
    // A rebuilt filter.
    let next = reserve(call, "urls", 2, 2, "");
    descriptor.current = next.current;
    write(call, "urls", &descriptor);
    begins_again();
    assert_all_in(&server, "urls", &path);
    call(b"", &[b"DEL", b"urls"]);
    assert_eq!(call(b"", &[b"BF.RESERVE", b"urls", b"0.01", b"200000"]), ok());
    begins_again();
    // A filter that was made anew under the same number, with as many items.
    call(b"", &[b"DEL", b"urls"]);
    create(call, "urls", 8);
    assert_eq!(run_at(&server, &format!("load urls {}", path.display())).code, 0);
    begins_again();
    // A changed file.
    fs::write(&path, "other").unwrap();
    refused("urls", 2, "the file changed since it was loaded");
}

#[test]
fn a_resumed_load_says_where_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    let descriptor = create(call, "urls", 4);
    let path = file(dir.path(), &numbered("item", 200_000));
    let words = format!("load urls --resume {}", path.display());
    let child = under_way(&server, call, &descriptor.current.keys, &path, "--resume");
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    let ran = ended(child);
    assert_eq!(ran.code, 130, "{ran:?}");
    assert!(ran.stderr.contains("items: no journal, so from the beginning"), "{ran:?}");
    assert!(ran.stderr.contains("Repeat the command with --resume."), "{ran:?}");
    let loaded = number(&ran.stdout, "items");
    let ran = run_at(&server, &words);
    let grouped = format!("{},{:03}", loaded / 1_000, loaded % 1_000);
    assert!(ran.stderr.contains(&format!(", after {grouped} items")), "{ran:?} {loaded}");
    ran.done();
    assert_all_in(&server, "urls", &path);
}

/// Names of filters in one key, and of sharded ones, from their creation to their end.
#[test]
fn a_name_may_be_any_bytes() {
    let server = Server::start();
    let mut client = server.client();
    file(server.dir(), &numbered("item", 1_000));
    let run = |words: &str, names: &[&[u8]]| -> Ran {
        let mut command = command_at(&server, words);
        command.current_dir(server.dir()).args(names.iter().map(|name| OsStr::from_bytes(name)));
        command.output().expect("the tool runs").into()
    };
    for name in [&b"\xff"[..], b"a b\n\x1b[2J'", "m\u{fc}nchen".as_bytes()] {
        for sharded in [false, true] {
            let done = |words: &str, more: &[&[u8]]| {
                let ran = run(words, &[&[name], more].concat());
                assert_eq!(ran.code, 0, "{words}: {ran:?}");
                ran.stdout
            };
            let shards = if sharded { " --shards 3 --poll 1" } else { "" };
            done(&format!("create --items 10k --error 1%{shards}"), &[]);
            done("load", &[b"items"]);
            done("check", &[b"item-3", b"item-4"]);
            done("verify --probes 100", &[]);
            let shown = done("info", &[]);
            let readable = match name {
                b"\xff" => "\\xff",
                _ if name[0] == b'a' => "a b\\n\\u{1b}[2J'",
                _ => "m\u{fc}nchen",
            };
            assert!(shown.starts_with(&format!("{readable}\n")), "{shown}");
            if sharded {
                assert!(shown.contains(&format!("{{{readable}:")), "{shown}");
                let key = client.cmd(&[b"HGET", name, b"1"]).payload();
                let own = [b"{", name, b":"].concat();
                assert!(key.starts_with(&own), "{key:?}");
                assert_eq!(client.cmd(&[b"UNLINK", &key[..]]), int(1));
                let ran = run("info", &[name]);
                let typed = match name {
                    b"\xff" => "$'\\xff'",
                    _ if name[0] == b'a' => "$'a b\\n\\x1b[2J\\''",
                    _ => "'m\u{fc}nchen'",
                };
                assert_eq!(ran.code, 5, "{ran:?}");
                assert!(ran.stderr.contains(&format!("`rebuild {typed} --from FILE")), "{ran:?}");
                done("rebuild --shards 2 --items 20k --from items --commit --", &[]);
                done("check", &[b"item-3", b"item-4"]);
            }
            done("drop", &[]);
        }
    }
}

#[test]
fn a_lost_shard_is_refused_and_not_known() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    let descriptor = create(call, "urls", 8);
    let items = numbered("item", 8_000);
    let path = file(dir.path(), &items);
    run_at(&server, &format!("load urls {}", path.display())).done();
    let own = |item: &&String| shard_of(item.as_bytes(), 8) == 5;
    let of_shard = items.iter().filter(own).count();
    let key = &descriptor.current.keys[5];
    for makes in [&[&b"DEL"[..], key][..], &[b"SET", key, b"text"]] {
        call(key, makes);
        let wrong = makes.len() == 3;
        let ran = run_at(&server, &format!("load urls --json {}", path.display()));
        assert_eq!(ran.code, if wrong { 4 } else { 5 }, "{ran:?}");
        let text =
            if wrong { "shard 5 of 8: WRONGTYPE" } else { "shard 5 of 8: the filter is gone" };
        assert!(ran.stderr.contains(text), "{ran:?}");
        assert!(wrong || ran.stderr.contains("`rebuild urls --from FILE --commit`"), "{ran:?}");
        if !wrong {
            assert_eq!(call(key, &[b"EXISTS", key]), int(0), "no shard is made anew");
        }

        let input = items.join("\n") + "\nnone";
        let ran = run_with(&server, "check urls --json", input.as_bytes());
        assert_eq!(ran.code, 5, "{ran:?}");
        checked("check", &ran.stdout);
        assert_eq!(number(&ran.stdout, "unknown"), of_shard as u64);
        assert_eq!(number(&ran.stdout, "present"), (8_000 - of_shard) as u64);
        assert!(ran.stderr.contains("shard 5 of 8 is lost: nothing is known about"), "{ran:?}");
        let ran = run_with(&server, "check urls --answers", input.as_bytes());
        let answers: Vec<_> = ran.stdout.lines().collect();
        for (item, answer) in items.iter().zip(&answers) {
            assert_eq!(*answer, if own(&item) { "?" } else { "1" }, "{item}");
        }
        let ran = run_with(&server, "check urls --answers --json", input.as_bytes());
        let lines = checked("check-item", &ran.stdout);
        assert_eq!(lines.iter().filter(|line| line["present"].is_null()).count(), of_shard);
        let ran = run_with(&server, "check urls --absent", input.as_bytes());
        assert_eq!(ran.stdout, "none\n", "what is not known is not absent");

        let ran = run_at(&server, "verify urls --json --probes 8000");
        assert_eq!(ran.code, 5, "{ran:?}");
        checked("verify", &ran.stdout);
        assert!((1..8_000).contains(&number(&ran.stdout, "probes")), "the others: {ran:?}");
        assert!(ran.stderr.contains("`rebuild urls --from FILE --commit`"), "{ran:?}");
    }
}

/// A shard under the key of another one, as a mistaken RENAME leaves it.
#[test]
fn a_shard_under_the_key_of_another_is_lost() {
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    let descriptor = create(call, "urls", 2);
    let items = numbered("item", 100);
    let path = file(server.dir(), &items);
    run_at(&server, &format!("load urls {}", path.display())).done();
    let [first, second] = &descriptor.current.keys[..] else { panic!("two shards") };
    call(first, &[b"RENAME", first, second]);
    let input = items.join("\n");
    let ran = run_with(&server, "check urls --json", input.as_bytes());
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(number(&ran.stdout, "unknown"), 100);
    let ran = run_at(&server, "verify urls --json");
    assert_eq!((ran.code, number(&ran.stdout, "probes")), (5, 0), "{ran:?}");
    checked("verify", &ran.stdout);
}

/// `BF.ADD` makes a lost shard anew, as a filter that is no shard and has none of its items.
#[test]
fn a_shard_that_was_made_anew_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    let descriptor = create(call, "urls", 4);
    let items = numbered("item", 1_000);
    let path = file(dir.path(), &items);
    run_at(&server, &format!("load urls {}", path.display())).done();
    let key = &descriptor.current.keys[2];
    call(key, &[b"DEL", key]);
    assert_eq!(call(key, &[b"BF.ADD", key, b"new"]), int(1));
    let input = items.join("\n");
    for words in ["load urls", "check urls --answers", "verify urls --probes 100"] {
        let ran = run_with(&server, words, input.as_bytes());
        assert_eq!(ran.code, 5, "{words}: {ran:?}");
        assert!(ran.stderr.contains("`rebuild urls --from FILE --commit`"), "{words}: {ran:?}");
    }
    assert_eq!(cards(call, &descriptor.current.keys)[2], 1, "nothing is added to it");
}

/// A base of another type is lost; it must not be asked for ever.
#[test]
fn a_base_that_is_no_filter_is_lost() {
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    let mut descriptor = create(call, "urls", 4);
    descriptor.base = Some(b"old".to_vec());
    write(call, "urls", &descriptor);
    call(b"", &[b"SET", b"old", b"text"]);
    run_with(&server, "load urls", b"new").done();
    let ran = run_at(&server, "check urls new none --answers");
    assert_eq!((ran.code, ran.stdout.as_str()), (5, "1\n?\n"), "{ran:?}");
    assert!(ran.stderr.contains("the filter `base` is lost"), "{ran:?}");
}

/// At the end of a rebuild the old shards become tombstones before the descriptor forgets them.
#[test]
fn an_old_generation_that_ends_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    let mut descriptor = create(call, "urls", 4);
    let old = descriptor.current.clone();
    descriptor.current = reserve(call, "urls", 3, 2, "").current;
    descriptor.next = Ok(Some(old.clone()));
    write(call, "urls", &descriptor);
    let items = numbered("item", 200_000);
    let path = file(dir.path(), &items);
    let child = under_way(&server, call, &descriptor.current.keys, &path, "");
    for key in &old.keys {
        call(key, &[b"UNLINK", key]);
        assert_eq!(call(key, &[b"SET", key, b"moved to 2", b"EX", b"604800"]), ok());
    }
    let ran = ended(child);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(number(&ran.stdout, "items"), 200_000);
    assert_all_in(&server, "urls", &path);
    // A load that begins then.
    run_at(&server, &format!("load urls {}", path.display())).done();
}

#[test]
fn lost_items_of_shards_are_found_and_added_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    create(call, "urls", 8);
    let mut items = numbered("item", 8_000);
    let path = file(dir.path(), &items);
    run_at(&server, &format!("load urls {}", path.display())).done();
    items.extend(numbered("lost", 500));
    let path = file(dir.path(), &items);
    let ran = check_file(&server, "urls --json", &path);
    assert_eq!((ran.code, number(&ran.stdout, "absent")), (1, 500), "{ran:?}");
    // What docs/reference/cli.md says instead of an option.
    let absent = run_with(&server, "check urls --absent", &fs::read(&path).expect("the items"));
    let ran = run_with(&server, "load urls --json", absent.stdout.as_bytes());
    assert_eq!((ran.code, number(&ran.stdout, "items")), (0, 500), "{ran:?}");
    assert_all_in(&server, "urls", &path);
}

#[test]
fn a_base_is_asked_for_what_no_shard_has() {
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    let mut descriptor = create(call, "urls", 4);
    assert_eq!(call(b"", &[b"BF.RESERVE", b"old", b"0.002", b"1000"]), ok());
    call(b"", &[b"BF.ADD", b"old", b"from-before"]);
    descriptor.base = Some(b"old".to_vec());
    write(call, "urls", &descriptor);
    run_with(&server, "load urls", b"new").done();
    assert_eq!(call(b"", &[b"BF.CARD", b"old"]), int(1), "additions go to the shards only");
    let ran = run_at(&server, "check urls from-before new none --answers");
    assert_eq!(ran.stdout, "1\n1\n0\n", "{ran:?}");
    let ran = run_at(&server, "verify urls --json");
    assert!(ran.stdout.contains("\"error_rate\":0.003"), "the rates add up: {ran:?}");
    // A lost shard: what the base has is known.
    let shard = usize::from(shard_of(b"from-before", 4));
    let key = &descriptor.current.keys[shard];
    call(key, &[b"DEL", key]);
    let ran = run_at(&server, "check urls from-before --answers");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "1\n"), "{ran:?}");
}

/// Clients that can read the next generation may be filling it: what is added to the current one
/// alone would be lost when the next one takes its place. Questions go on.
#[test]
fn a_next_generation_that_cannot_be_read_stops_additions() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    let descriptor = create(call, "urls", 4);
    run_with(&server, "load urls", b"there").done();
    call(b"urls", &[b"HSET", b"urls", b"next.rule", b"siphash"]);
    let path = file(dir.path(), &["there".to_owned(), "new".to_owned()]);
    let ran = run_at(&server, &format!("load urls {}", path.display()));
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("urls: additions are impossible: rule 'siphash'"), "{ran:?}");
    assert_eq!(cards(call, &descriptor.current.keys).iter().sum::<i64>(), 1);
    let ran = run_at(&server, "check urls there new --answers");
    assert_eq!((ran.code, ran.stdout.as_str()), (1, "1\n0\n"), "{ran:?}");
    assert_eq!(check_file(&server, "urls", &path).code, 1, "an item is lost");
}

#[test]
fn a_full_shard_is_an_error_inside_of_a_reply() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    let descriptor = reserve_for(call, "urls", 4, 1, 20_000, "NONSCALING");
    write(call, "urls", &descriptor);
    let path = file(dir.path(), &numbered("item", 30_000));
    let ran = run_at(&server, &format!("load urls --json --batch 4kb {}", path.display()));
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains(" of 4: ERR non scaling filter is full"), "{ran:?}");
    assert!(ran.stderr.contains("from the beginning, without --resume"), "{ran:?}");
    let all = cards(call, &descriptor.current.keys).iter().sum::<i64>();
    assert!(number(&ran.stdout, "new") as i64 <= all);
    assert!(number(&ran.stdout, "new") <= number(&ran.stdout, "items"), "{ran:?}");
    assert!(ran.stdout.contains("\"complete\":false"), "{ran:?}");
}

/// A rebuild under a load that runs: a next generation appears and takes what follows, too. Then it
/// answers alone, and the old shards are tombstones.
#[test]
fn a_load_follows_a_rebuild() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    let mut descriptor = create(call, "urls", 4);
    let old = descriptor.current.clone();
    let items = numbered("item", 400_000);
    let path = file(dir.path(), &items);
    let child = under_way(&server, call, &old.keys, &path, "");

    let next = reserve(call, "urls", 7, 2, "").current;
    descriptor.next = Ok(Some(next.clone()));
    write(call, "urls", &descriptor);
    // What came before the load knew is loaded from the source: a poll at most, and 20,000 items
    // for what was under way and for those that tested known.
    let mut before = 0;
    wait_until("the next generation takes items", || {
        before = cards(call, &old.keys).iter().sum::<i64>();
        cards(call, &next.keys).iter().sum::<i64>() > 0
    });
    let before = usize::try_from(before).expect("a number") + 20_000;
    assert!(before < 350_000, "{before}");
    for key in &next.keys {
        let own = items[..before].iter().map(String::as_bytes);
        let own: Vec<&[u8]> = own.filter(|item| next.key_of(item) == key).collect();
        for items in own.chunks(5_000) {
            let command: Vec<&[u8]> =
                [&[b"BF.INSERT", &key[..], b"NOCREATE", b"ITEMS"], items].concat();
            assert!(!call(key, &command).is_error());
        }
    }
    (descriptor.current, descriptor.next) = (next.clone(), Ok(None));
    write(call, "urls", &descriptor);
    for key in &old.keys {
        call(key, &[b"UNLINK", key]);
        assert_eq!(call(key, &[b"SET", key, b"moved to 2", b"EX", b"604800"]), ok());
    }
    let ran = ended(child);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("generation 1 and 2"), "{ran:?}");
    assert!(ran.stderr.contains("rebuilt, or was: generation 2"), "{ran:?}");
    for shards in [4, 4 + 7, 7] {
        let alone = format!("{shards} of {shards} shards are on servers without a replica");
        assert_eq!(ran.stderr.matches(&alone).count(), 1, "{ran:?}");
    }
    assert_all_in(&server, "urls", &path);
    assert!(!journal_of(&path).exists());
}

/// A tool with an old descriptor is told by the tombstone, and sends what is not confirmed to the
/// new shards.
#[test]
fn a_tombstone_leads_to_the_new_shards() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut client = server.client();
    let call: Call<'_> = &mut at(&mut client);
    let mut descriptor = create(call, "urls", 4);
    // So seldom that only the tombstone tells.
    descriptor.poll = 100_000;
    write(call, "urls", &descriptor);
    let old = descriptor.current.clone();
    let items = numbered("item", 400_000);
    let path = file(dir.path(), &items);
    let child = under_way(&server, call, &old.keys, &path, "");
    descriptor.current = reserve(call, "urls", 3, 2, "").current;
    write(call, "urls", &descriptor);
    let mut taken = 0;
    for key in &old.keys {
        taken += call(key, &[b"BF.CARD", key]).int();
        call(key, &[b"UNLINK", key]);
        assert_eq!(call(key, &[b"SET", key, b"moved to 2", b"EX", b"604800"]), ok());
    }
    let ran = ended(child);
    assert_eq!(ran.code, 0, "{ran:?}");
    let new = cards(call, &descriptor.current.keys).iter().sum::<i64>();
    // What the old shards had taken came before the rebuild; all else is in the new ones, but for
    // items that tested known.
    assert!(new >= 400_000 - taken - 2_000, "{new} of 400000, {taken} before");
    let late = file(dir.path(), &items[300_000..]);
    assert_all_in(&server, "urls", &late);
}

/// The rest is on the cluster: three primaries with a replica each.
#[test]
fn a_cluster_takes_a_load_while_slots_move_and_a_node_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start();
    let mut client = cluster.client();
    let count = if std::env::var_os("REDIS_BLOOM_LARGE").is_some() { 5_000_000 } else { 500_000 };
    let descriptor = reserve_for(&mut over(&mut client), "urls", 16, 1, count, "EXPANSION 1");
    write(&mut over(&mut client), "urls", &descriptor);
    let keys = &descriptor.current.keys;
    let items = numbered("item", count as usize);
    let path = file(dir.path(), &items);
    let words = format!("load urls --json {}", path.display());
    let ran = run_at(&cluster.nodes[1], &words);
    assert!(!ran.stderr.contains("without a replica"), "{ran:?}");
    let done = ran.done();
    assert_eq!(number(&done, "items"), count);
    let all = cards(&mut over(&mut client), keys).iter().sum::<i64>() as u64;
    assert_eq!(number(&done, "new"), all, "the cards of the shards sum up");
    // Each item that counts as loaded is on a replica.
    for (number, replica) in cluster.nodes[PRIMARIES..].iter().enumerate() {
        let mut reader = replica.client();
        assert_eq!(reader.run("READONLY"), ok());
        for key in keys {
            if node_of(&cluster, &client, key) == number {
                let here = reader.cmd(&[&b"BF.CARD"[..], key]);
                assert_eq!(here, over(&mut client)(key, &[b"BF.CARD", key]));
            }
        }
    }
    let ran = run_at(&cluster.nodes[2], "verify urls");
    assert_eq!(ran.code, 0, "the rate is at most what was asked for: {ran:?}");
    assert_all_in(&cluster.nodes[2], "urls", &path);
    // At 1 %, all ten absent items are found in one run of 10^20.
    let absent = numbered("none", 10).join(" ");
    let ran = run_at(&cluster.nodes[0], &format!("check urls {} {absent} --answers", items[1]));
    let answers: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!((answers.len(), answers[0]), (11, "1"), "{ran:?}");
    assert!(answers[1..].contains(&"0"), "{ran:?}");

    // A slot moves in the middle of a load, key by key.
    let items: Vec<String> = numbered("more", 200_000);
    let path = file(dir.path(), &items);
    let key = &keys[3];
    let from = node_of(&cluster, &client, key);
    let to = (from + 1) % PRIMARIES;
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    let slow =
        format!("load urls --rate 40000 --batch 4kb --journal-every 5ms --json {}", path.display());
    let child = started(target, &slow);
    let card = |client: &mut ClusterClient| over(client)(key, &[b"BF.CARD", key]).int();
    let before = card(&mut client);
    wait_until("some more items are in", || card(&mut client) > before + 500);
    let slot = key_slot(key);
    let (mut old, mut new) = (source.client(), target.client());
    assert_eq!(new.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", cluster.ids[from])), ok());
    assert_eq!(old.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", cluster.ids[to])), ok());
    let port = target.port().to_string();
    let migrate: [&[u8]; 6] = [b"MIGRATE", b"127.0.0.1", port.as_bytes(), key, b"0", b"10000"];
    assert_eq!(old.cmd(&migrate), ok());
    // Now the old node answers ASK.
    new.run("ASKING");
    let moved = new.cmd(&[&b"BF.CARD"[..], key]).int();
    wait_until("more items are in at the new node", || {
        new.run("ASKING");
        new.cmd(&[&b"BF.CARD"[..], key]).int() > moved
    });
    for client in [&mut new, &mut old] {
        assert_eq!(client.run(&format!("CLUSTER SETSLOT {slot} NODE {}", cluster.ids[to])), ok());
    }
    let ran = ended(child);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(number(&ran.stdout, "items"), 200_000);
    assert_all_in(source, "urls", &path);

    // A slot moves at once, where the server can do that. A migration gives up if writes are too
    // fast for it, so it is asked for again.
    if version().valkey && version().major >= 9 {
        let path = file(dir.path(), &numbered("atomic", 200_000));
        let key = &keys[4];
        let slot = key_slot(key);
        let from = node_of(&cluster, &client, key);
        let to = (from + 1) % PRIMARIES;
        let (mut old, id) = (cluster.nodes[from].client(), &cluster.ids[to]);
        let child = started(&cluster.nodes[from], &slow.replace("40000", "30000"));
        wait_until("the slot has moved", || {
            old.run(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {id}"));
            thread::sleep(Duration::from_millis(50));
            old.cmd(&[&b"BF.CARD"[..], key]).is_error()
        });
        let ran = ended(child);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_all_in(&cluster.nodes[from], "urls", &path);
    }

    // One node has no memory: the load ends, names the shard, and goes on later.
    let items: Vec<String> = numbered("full", 200_000);
    let path = file(dir.path(), &items);
    let child = started(&cluster.nodes[0], &slow);
    wait_until("the journal is within the file", || {
        let text = fs::read_to_string(journal_of(&path)).unwrap_or_default();
        !text.is_empty() && !text.contains("\"offset\":0,")
    });
    let mut full = cluster.nodes[1].client();
    assert_eq!(full.run("CONFIG SET maxmemory 1"), ok());
    let ran = ended(child);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains(" of 16: OOM"), "{ran:?}");
    assert!(ran.stderr.contains("Raise maxmemory") && ran.stderr.contains("--resume"), "{ran:?}");
    assert_eq!(full.run("CONFIG SET maxmemory 0"), ok());
    let ran = run_at(&cluster.nodes[0], &format!("{words} --resume"));
    assert!(number(&ran.done(), "items") < 200_000, "it does not begin again");
    assert_all_in(&cluster.nodes[0], "urls", &path);
}

/// Kills a primary, and waits until its replica is promoted.
fn fail_over(cluster: &mut Cluster, client: &mut ClusterClient, node: usize, key: &[u8]) {
    let port = cluster.nodes[node].port();
    cluster.nodes[node].kill();
    let text = str::from_utf8(key).expect("text");
    wait_until("the replica is promoted", || {
        client.call(text, &["TYPE", text]);
        client.owner(text) != port
    });
}

/// What is not on a replica dies with its primary. The tool waits for replicas, and loses nothing;
/// told not to wait, it loses items.
#[test]
fn a_primary_that_dies_in_a_load_takes_nothing_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start();
    let mut client = cluster.client();
    let descriptor = create(&mut over(&mut client), "urls", 6);
    let key_on = |cluster: &Cluster, client: &ClusterClient, node: usize| {
        let mut keys = descriptor.current.keys.iter();
        keys.find(|key| node_of(cluster, client, key) == node).expect("a shard").clone()
    };
    // The replica of the node stands still and has no link, so it gets nothing that follows.
    let cut = |cluster: &Cluster, client: &mut ClusterClient, node: usize| {
        let key = key_on(cluster, client, node);
        wait_until("the replica has what is there", || {
            client.wait(str::from_utf8(&key).expect("text")) > 0
        });
        let stopped = Stopped::stop(cluster.nodes[PRIMARIES + node].pid());
        let mut primary = cluster.nodes[node].client();
        assert_eq!(primary.run("CLIENT KILL TYPE replica"), int(1));
        stopped
    };

    // Without waiting: the load says that it is done, and items are lost with the node.
    let path = file(dir.path(), &numbered("lost", 60_000));
    let key = key_on(&cluster, &client, 0);
    let stopped = cut(&cluster, &mut client, 0);
    let ran = run_at(&cluster.nodes[1], &format!("load urls --acks 0 {}", path.display()));
    assert_eq!(ran.code, 0, "{ran:?}");
    cluster.nodes[0].kill();
    drop(stopped);
    fail_over(&mut cluster, &mut client, 0, &key);
    let ran = check_file(&cluster.nodes[1], "urls --json", &path);
    assert_eq!(ran.code, 1, "{ran:?}");
    // A third of the shards is on that node: all that the load added there.
    assert!(number(&ran.stdout, "absent") > 15_000, "{ran:?}");
    cluster.nodes[0].relaunch();

    // With waiting, which is the default here: the same in the middle of a load.
    let path = file(dir.path(), &numbered("kept", 200_000));
    let key = key_on(&cluster, &client, 1);
    let words = format!("load urls --rate 40000 --batch 4kb --json {}", path.display());
    let card = |client: &mut ClusterClient| over(client)(&key, &[b"BF.CARD", &key]).int();
    let before = card(&mut client);
    let child = started(&cluster.nodes[2], &words);
    wait_until("some items are in", || card(&mut client) > before + 1_000);
    let stopped = cut(&cluster, &mut client, 1);
    let unacknowledged = card(&mut client);
    wait_until("items are in that no replica has", || card(&mut client) > unacknowledged + 500);
    cluster.nodes[1].kill();
    drop(stopped);
    fail_over(&mut cluster, &mut client, 1, &key);
    // Without it nothing could be acknowledged.
    cluster.nodes[1].relaunch();
    let ran = ended(child);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.stderr.matches("trying again for 60 s").count(), 1, "once a node: {ran:?}");
    assert_eq!(number(&ran.stdout, "items"), 200_000);
    assert!(number(&ran.stdout, "resent") > 0, "{ran:?}");
    assert_all_in(&cluster.nodes[2], "urls", &path);
}
