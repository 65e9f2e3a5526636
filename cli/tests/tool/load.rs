//! `redis-bloom load`: every form of input, every way in which a load can end, and going on.

use std::{
    collections::HashSet,
    fs,
    io::{BufRead, BufReader, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    fake::Fake,
    harness::{
        Builder, Client, Cluster, PRIMARIES, Random, Server, Stopped, int, mexists, numbered, ok,
        skipped, wait_until,
    },
    run::{Ran, catches_ctrl_c, command, command_at, run, run_at, run_with},
    schema::checked,
};

const NAME: &str = "urls";
/// The name of a filter of [`Reluctant`] that counts additions.
const COUNTED: &[u8] = b"counted";

/// A server with an empty filter for a million items at 0.1 %.
fn server() -> (Server, Client) {
    reserved(Server::with(), "BF.RESERVE urls 0.001 1000000")
}

fn reserved(builder: Builder, reserve: &str) -> (Server, Client) {
    let server = builder.start();
    let mut client = server.client();
    assert_eq!(client.run(reserve), ok());
    (server, client)
}

/// A file of lines.
fn file(dir: &Path, name: &str, items: &[impl AsRef<[u8]>]) -> PathBuf {
    let path = dir.join(name);
    let mut text = Vec::new();
    for item in items {
        text.extend(item.as_ref());
        text.push(b'\n');
    }
    fs::write(&path, text).expect("a file that can be written");
    path
}

fn journal_of(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.redis-bloom", path.display()))
}

/// A number in a line of JSON.
#[track_caller]
fn number(json: &str, field: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(json).expect("a line of JSON");
    value[field].as_u64().unwrap_or_else(|| panic!("no number {field} in {json}"))
}

/// How many bytes of a file its journal holds as loaded; `None` without a journal.
fn offset_in(journal: &Path) -> Option<u64> {
    let text = fs::read_to_string(journal).ok()?;
    let (_, content) = text.split_once('\n').expect("the first line of a journal");
    let value: serde_json::Value = serde_json::from_str(content).expect("a whole journal");
    value["position"]["offset"].as_u64()
}

#[track_caller]
fn assert_all_in<A: AsRef<[u8]>>(client: &mut Client, items: &[A]) {
    let missing = mexists(client, NAME, items).iter().filter(|&&present| !present).count();
    assert_eq!(missing, 0, "of {} items", items.len());
}

fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
}

/// Starts a load, and leaves it running.
fn started(server: &Server, words: &str) -> Child {
    command_at(server, words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool runs")
}

fn ended(child: Child) -> Ran {
    child.wait_with_output().expect("the tool ends").into()
}

fn card(client: &mut Client) -> i64 {
    client.run("BF.CARD urls").int()
}

#[test]
fn every_form_of_input_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let long: Vec<Vec<u8>> = (b'a'..b'f').map(|letter| vec![letter; 1 << 20]).collect();
    let plain: Vec<Vec<u8>> = [&b"one"[..], b"", b"  two\t", b"three\r", b"\xff\xfe\x00"]
        .iter()
        .map(|item| item.to_vec())
        .chain(long)
        .collect();
    let binary: Vec<Vec<u8>> = [&b"line\nfeed"[..], b"", b"\xff\r\n", b"\n"]
        .iter()
        .map(|item| item.to_vec())
        .chain(plain.iter().filter(|item| !item.contains(&0)).cloned())
        .collect();
    let lines = plain.join(&b'\n');
    let null = binary.join(&0);
    let mut ended_lines = lines.clone();
    ended_lines.push(b'\n');
    // Options, the bytes of the input, and its items.
    type Case<'a> = (&'a str, &'a [u8], &'a [Vec<u8>]);
    let cases: [Case; 6] = [
        ("", &lines, &plain),
        ("", &ended_lines, &plain),
        ("--batch 100b", &lines, &plain),
        ("-0", &null, &binary),
        ("--null --batch 1mb", &null, &binary),
        ("", b"", &[]),
    ];
    for (number_of_case, (options, input, items)) in cases.iter().enumerate() {
        let path = dir.path().join("input");
        fs::write(&path, input).unwrap();
        for from in ["file", "stdin", "dash"] {
            let (server, mut client) = server();
            let ran = match from {
                "file" => {
                    run_at(&server, &format!("load urls {options} --json {}", path.display()))
                }
                "stdin" => run_with(&server, &format!("load urls {options} --json"), input),
                _ => run_with(&server, &format!("load urls {options} --json -"), input),
            };
            let done = ran.done();
            checked("load", &done);
            let what = format!("case {number_of_case} from {from}: {done}");
            assert_eq!(number(&done, "items"), items.len() as u64, "{what}");
            assert_eq!(number(&done, "new") as i64, card(&mut client), "{what}");
            assert_eq!(number(&done, "new") + number(&done, "known"), items.len() as u64);
            if !items.is_empty() {
                assert_all_in(&mut client, items);
            }
        }
        assert!(!journal_of(&path).exists(), "a journal is removed at the end");
    }
}

#[test]
fn several_files_are_loaded_in_order_and_counted_together() {
    let dir = tempfile::tempdir().unwrap();
    let items = numbered("item", 5_000);
    let paths = [
        file(dir.path(), "a", &items[..2_000]),
        file(dir.path(), "empty", &[] as &[&str]),
        // Known: the last thousand of the first file.
        file(dir.path(), "b", &items[1_000..]),
    ];
    let words: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    let (server, mut client) = server();
    let ran = run_at(&server, &format!("load urls {}", words.join(" ")));
    let new = card(&mut client);
    let text = ran.done();
    let known = 6_000 - new;
    assert!((1_000..1_050).contains(&known), "false positives at 0.1 % are few: {known}");
    let begin = format!(
        "6,000 items: {},{:03} new, {},{:03} known; ",
        new / 1000,
        new % 1000,
        known / 1000,
        known % 1000
    );
    assert!(text.starts_with(&begin), "{text}");
    assert_eq!(text.lines().count(), 1);
    assert_all_in(&mut client, &items);
}

#[test]
fn a_filter_that_is_not_there_is_not_created() {
    let server = Server::start();
    let mut client = server.client();
    let ran = run_with(&server, "load urls", b"a\n");
    assert_eq!(ran.code, 4);
    assert_eq!(
        ran.stderr,
        "redis-bloom: load urls: ERR not found\n  There is no filter of this name; create it \
         first.\n"
    );
    assert_eq!(client.run("EXISTS urls"), int(0));
}

#[test]
fn wrong_calls_are_told_apart() {
    let (server, mut client) = server();
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "items", &["a"]).display().to_string();
    client.run("SET text value");
    for (words, code, text) in [
        (format!("load text {path}"), 4, "WRONGTYPE"),
        (format!("load urls {path} {path}-none"), 2, "No such file"),
        (format!("load urls {}", dir.path().display()), 2, "is a directory"),
        ("load urls --resume".to_owned(), 2, "stdin cannot be resumed"),
        (format!("load urls --rate 0 {path}"), 2, "at least 1"),
        (format!("load urls --batch 1gb {path}"), 2, "not a size from 1b to 64mb"),
        (format!("load urls --retry-for long {path}"), 2, "not a time"),
    ] {
        let ran = run_at(&server, &words);
        assert_eq!(ran.code, code, "{words}: {ran:?}");
        assert!(ran.stderr.contains(text), "{words}: {ran:?}");
    }
    assert_eq!(card(&mut client), 0);
    let ran = run(&format!("load urls {path} -p 1"));
    assert_eq!(ran.code, 3, "{ran:?}");
}

#[test]
fn a_load_killed_at_any_time_goes_on_and_misses_nothing() {
    let seed = 21;
    let mut random = Random::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let items = numbered("item", 200_000);
    let paths = [file(dir.path(), "a", &items[..70_000]), file(dir.path(), "b", &items[70_000..])];
    let (server, mut client) = server();
    let words = format!(
        "load urls --resume --json --rate 500000 --journal-every 5ms {} {}",
        paths[0].display(),
        paths[1].display()
    );
    let mut resumed_within = 0;
    for round in 0..20 {
        let before = offsets_in(&paths);
        let mut child = started(&server, &words);
        // On a busy machine a load may need longer to begin. So every other one is killed only
        // after it went on.
        if round % 2 == 0 {
            thread::sleep(Duration::from_millis(random.below(60) as u64));
        } else {
            wait_until("the load goes on, or ends", || {
                offsets_in(&paths) != before || child.try_wait().expect("its state").is_some()
            });
            thread::sleep(Duration::from_millis(random.below(10) as u64));
        }
        child.kill().expect("it runs, or has ended");
        child.wait().expect("it ended");
        if child_is_within(&paths) {
            resumed_within += 1;
        }
    }
    assert!(resumed_within > 0, "seed {seed}: no kill left a journal in the middle");
    // A run may have been done before it was killed: then this one begins again.
    let ran = run_at(&server, &words);
    let loaded = number(&ran.done(), "items");
    assert!(loaded <= items.len() as u64);
    assert_all_in(&mut client, &items);
    for path in &paths {
        assert!(!journal_of(path).exists());
    }
    // The number of items that are new cannot exceed that of the items.
    assert!(card(&mut client) <= items.len() as i64);
}

/// Whether a journal says that a part of a file is loaded.
fn child_is_within(paths: &[PathBuf]) -> bool {
    offsets_in(paths).into_iter().flatten().any(|offset| offset > 0)
}

/// The offsets in the journals of files, none of a file without a journal.
fn offsets_in(paths: &[PathBuf]) -> Vec<Option<u64>> {
    paths.iter().map(|path| offset_in(&journal_of(path))).collect()
}

/// A server that answers as many packed batches as it is allowed to.
#[derive(Clone)]
struct Reluctant {
    port: u16,
    /// Batches that may be answered.
    allowed: Arc<AtomicUsize>,
    /// Batches that came.
    came: Arc<AtomicUsize>,
    /// Whether it closes the connection in place of waiting until it may answer.
    cuts: bool,
    /// Errors for the next batches that may be answered.
    errors: Arc<Mutex<Vec<String>>>,
    /// Items of batches that were answered without an error.
    added: Arc<Mutex<HashSet<Vec<u8>>>>,
}

impl Reluctant {
    fn start(allowed: usize) -> Self {
        Self::start_with(allowed, false)
    }

    fn start_with(allowed: usize, cuts: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let server = Self {
            port: listener.local_addr().expect("its address").port(),
            allowed: Arc::new(AtomicUsize::new(allowed)),
            came: Arc::default(),
            cuts,
            errors: Arc::default(),
            added: Arc::default(),
        };
        let shared = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = shared.clone();
                thread::spawn(move || shared.serve(stream));
            }
        });
        server
    }
}

/// A command: its name and its arguments.
type Words = Vec<Vec<u8>>;

/// The next command; `None` at the end of the connection.
fn read_words(reader: &mut impl BufRead) -> Option<Words> {
    let length = |reader: &mut dyn BufRead| {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.get(1..)?.trim().parse::<usize>().ok()
    };
    let mut words = Vec::new();
    for _ in 0..length(reader)? {
        let mut word = vec![0; length(reader)? + 2];
        reader.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}

/// Whether this is BF.BULKADD with items.
fn is_batch(words: &Words) -> bool {
    words[0] == b"BF.BULKADD" && !words[4].is_empty()
}

impl Reluctant {
    /// Reads commands in another thread and answers in this one, so that batches arrive that are
    /// not answered.
    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a socket can be shared"));
        let (sender, commands) = channel::<Words>();
        let came = Arc::clone(&self.came);
        thread::spawn(move || {
            while let Some(words) = read_words(&mut reader) {
                came.fetch_add(usize::from(is_batch(&words)), Ordering::SeqCst);
                if sender.send(words).is_err() {
                    return;
                }
            }
        });
        let mut answered = 0;
        for words in commands {
            if is_batch(&words) {
                if self.cuts && answered >= self.allowed.load(Ordering::SeqCst) {
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
                while answered >= self.allowed.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
                answered += 1;
            }
            if stream.write_all(&self.reply(&words)).is_err() {
                return;
            }
        }
    }

    fn reply(&self, words: &Words) -> Vec<u8> {
        match &words[0][..] {
            b"TYPE" => b"+MBbloom--\r\n".to_vec(),
            b"HGETALL" => b"-WRONGTYPE Operation against a key\r\n".to_vec(),
            b"CLUSTER" => b"-ERR This instance has cluster support disabled\r\n".to_vec(),
            b"INFO" => b"$8\r\nrun_id:1\r\n".to_vec(),
            b"BF.INFO" if words[1] == COUNTED && words[2] == b"SATURATED" => {
                b"*1\r\n:0\r\n".to_vec()
            }
            b"BF.INFO" if words[2] == b"ITEMS" => b"*1\r\n:0\r\n".to_vec(),
            b"BF.INFO" => b"*1\r\n$-1\r\n".to_vec(),
            b"BF.BULKADD" if words[4].is_empty() => b"*2\r\n:0\r\n$0\r\n\r\n".to_vec(),
            b"BF.BULKADD" => {
                if let Some(error) = self.errors.lock().expect("no panic").pop() {
                    return format!("-{error}\r\n").into_bytes();
                }
                let items = words[4].split_inclusive(|&byte| byte == b'\n');
                let count = items.clone().count();
                self.added.lock().expect("no panic").extend(items.map(<[u8]>::to_vec));
                let bits = count.div_ceil(8);
                let mut reply = format!("*2\r\n:{count}\r\n${bits}\r\n").into_bytes();
                reply.extend(vec![0; bits]);
                reply.extend(b"\r\n");
                reply
            }
            _ => b"+OK\r\n".to_vec(),
        }
    }

    fn command(&self) -> Command {
        self.command_for(NAME)
    }

    fn command_for(&self, name: &str) -> Command {
        let mut command = command();
        command.args(["-p", &self.port.to_string(), "load", name, "--batch", "256b"]);
        command
    }
}

#[test]
fn the_journal_is_never_ahead_of_the_replies() {
    let dir = tempfile::tempdir().unwrap();
    // Lines of 16 bytes, 16 in a batch.
    let items: Vec<_> = (0..10_000).map(|number| format!("item-{number:010}")).collect();
    let path = file(dir.path(), "items", &items);
    let journal = journal_of(&path);
    let server = Reluctant::start(5);
    let mut child = server
        .command()
        .args(["--journal-every", "0ms"])
        .arg(&path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the tool runs");
    for allowed in [5, 6, 100, 300] {
        server.allowed.store(allowed, Ordering::SeqCst);
        wait_until("batches come that are not answered", || {
            server.came.load(Ordering::SeqCst) > allowed
        });
        let confirmed = 256 * allowed as u64;
        wait_until("the journal has every batch that was answered", || {
            let offset = offset_in(&journal).unwrap_or(0);
            assert!(offset <= confirmed, "{offset} bytes, of {confirmed} that were answered");
            offset == confirmed
        });
    }
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    assert_eq!(offset_in(&journal), Some(300 * 256));
}

#[test]
fn what_is_not_acknowledged_by_replicas_is_not_confirmed() {
    let dir = tempfile::tempdir().unwrap();
    let items = numbered("item", 10_000);
    let path = file(dir.path(), "items", &items);
    let (server, _) = server();
    let words = format!("load urls --acks 1 --retry-for 300ms {}", path.display());
    let ran = run_at(&server, &words);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("too few replicas acknowledged"), "{ran:?}");
    assert!(
        ran.stderr.contains("0 items are confirmed") && ran.stderr.contains("--resume"),
        "{ran:?}"
    );
    assert_eq!(offset_in(&journal_of(&path)), Some(0));

    let replica = server.replica();
    let ran = run_at(&server, &format!("{words} --resume --json"));
    assert_eq!(number(&ran.done(), "items"), 10_000);
    let mut reader = replica.client();
    assert_all_in(&mut reader, &items);
    assert!(!journal_of(&path).exists());
}

/// Ctrl-C while a server hangs is no failure of the server.
#[test]
fn ctrl_c_ends_the_wait_for_a_server_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "items", &["one"]);
    let (server, _) = server();
    let _stopped = Stopped::stop(server.pid());
    let child = started(&server, &format!("load urls {}", path.display()));
    wait_until("it waits", || catches_ctrl_c(&child));
    signal(&child, "INT");
    let ran = ended(child);
    assert_eq!((ran.code, &*ran.stdout), (130, ""), "{ran:?}");
    assert!(ran.stderr.starts_with("redis-bloom: interrupted\n"), "{ran:?}");
}

/// Items before the one that a full filter refused are confirmed as others are.
#[test]
fn items_before_a_refused_one_are_not_confirmed_without_replicas() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "items", &numbered("item", 3_000));
    const RESERVE: &str = "BF.RESERVE urls 0.001 1000 NONSCALING";
    let (server, mut client) = reserved(Server::with(), RESERVE);
    let replica = server.replica();
    let load = || run_at(&server, &format!("load urls --acks 1 {}", path.display()));
    let stopped = Stopped::stop(replica.pid());
    let ran = load();
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stdout.starts_with("0 items: 0 new"), "{ran:?}");
    drop(stopped);
    client.run("DEL urls");
    client.run(RESERVE);
    client.run("WAIT 1 60000");
    let ran = load();
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!((1_000..1_020).contains(&items_in(&ran.stderr)), "{ran:?}");
}

/// What is known may have been added a moment ago, by a load that was killed: its connection wrote
/// it, not this one, so WAIT answers at once (Redis 7.2 and later, Valkey).
#[test]
fn what_was_known_already_is_confirmed_by_replicas_too() {
    let dir = tempfile::tempdir().unwrap();
    let items = numbered("item", 10_000);
    let path = file(dir.path(), "items", &items);
    let (server, _) = server();
    let replica = server.replica();
    let stopped = Stopped::stop(replica.pid());
    run_at(&server, &format!("load urls {}", path.display())).done();
    let words = format!("load urls --acks 1 --retry-for 300ms --resume {}", path.display());
    let ran = run_at(&server, &words);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("too few replicas acknowledged"), "{ran:?}");
    assert!(ran.stderr.contains("0 items are confirmed"), "{ran:?}");
    drop(stopped);
    run_at(&server, &words.replace("300ms", "60s")).done();
    assert_all_in(&mut replica.client(), &items);
}

/// As on a full disk.
#[test]
fn a_journal_that_cannot_be_written_leaves_nothing() {
    let (server, _) = reserved(Server::with(), "BF.RESERVE urls 0.001 1000");
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "items", &numbered("item", 10));
    let load = command_at(&server, &format!("load urls {}", path.display()));
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""]);
    let ran: Ran = shell.arg(load.get_program()).args(load.get_args()).output().unwrap().into();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("without a journal this load cannot be resumed"), "{ran:?}");
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(left, [path]);
}

#[test]
fn a_journal_of_another_load_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client) = server();
    let killed = |client: &mut Client| {
        let (mut child, path, _) = under_way(&server, client, dir.path(), 1_000_000, "");
        child.kill().expect("it runs");
        child.wait().expect("it ended");
        path
    };
    let path = killed(&mut client);
    let kept = fs::read(journal_of(&path)).expect("a journal");
    let refused = |words: &str, text: &str| {
        let ran = run_at(&server, &format!("load {words} {}", path.display()));
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(text) && ran.stderr.contains("Remove "), "{ran:?}");
        assert_eq!(fs::read(journal_of(&path)).expect("a journal"), kept, "{words}");
    };
    client.run("BF.RESERVE other 0.01 100");
    for resume in ["", " --resume"] {
        let before = "its journal is of another load: urls in database 0, lines; not";
        refused(&format!("other{resume}"), &format!("{before} other in database 0, lines"));
        refused(&format!("urls -n 1{resume}"), &format!("{before} urls in database 1, lines"));
        refused(&format!("urls -0{resume}"), &format!("{before} urls in database 0, zero bytes"));
    }
    let mut changed = fs::read(&path).unwrap();
    changed[3] = b'!';
    fs::write(&path, &changed).unwrap();
    refused("urls --resume", "the file changed since it was loaded");
    fs::write(journal_of(&path), "redis-bloom journal 8\n{").unwrap();
    let ran = run_at(&server, &format!("load urls --resume {}", path.display()));
    assert!(ran.code == 2 && ran.stderr.contains("its journal cannot be read"), "{ran:?}");
    fs::write(journal_of(&path), kept).unwrap();
    // The journal of the same load is replaced without --resume.
    let ran = run_at(&server, &format!("load urls {}", path.display()));
    assert_eq!((ran.code, journal_of(&path).exists()), (0, false), "{ran:?}");
}

/// Kills a load, puts a file with the text that `change` makes in the place of the loaded one, with
/// its time, and resumes. `check` gets the items that were in the first file.
fn resumed_in_another_file(
    change: impl Fn(String) -> String,
    check: impl Fn(&mut Client, Ran, &[String]),
) {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client) = server();
    let (mut child, path, items) = under_way(&server, &mut client, dir.path(), 1_000_000, "");
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    let modified = fs::metadata(&path).and_then(|it| it.modified()).expect("a time");
    let text = change(fs::read_to_string(&path).expect("the items"));
    let other = dir.path().join("other");
    fs::write(&other, text).expect("another file");
    fs::File::options().write(true).open(&other).and_then(|it| it.set_modified(modified)).unwrap();
    fs::rename(&other, &path).expect("another file in its place");
    let ran = run_at(&server, &format!("load urls --json --resume {}", path.display()));
    check(&mut client, ran, &items);
}

/// Device and inode may change by a reboot or a copy; size, time and both ends say which file it
/// is.
#[test]
fn a_load_goes_on_with_a_file_that_has_another_inode() {
    resumed_in_another_file(
        |text| text,
        |client, ran, items| {
            assert!(number(&ran.done(), "items") < 1_000_000, "it does not begin again");
            assert_all_in(client, items);
        },
    );
}

/// Another file can have the same size and time, for example after `cp -p` or `rsync -t`.
#[test]
fn a_load_does_not_go_on_with_another_file_of_equal_size_and_time() {
    resumed_in_another_file(
        |text| text.replace("item", "time"),
        |_, ran, _| assert_eq!(ran.code, 2, "{ran:?}"),
    );
}

/// A dump that has the name of a journal, and a link.
#[test]
fn files_that_are_no_journals_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client) = server();
    let path = file(dir.path(), "items", &numbered("item", 1_000));
    let (other, place) = (dir.path().join("other"), journal_of(&path));
    fs::write(&other, "precious").unwrap();
    for link in [false, true] {
        match link {
            true => std::os::unix::fs::symlink(&other, &place).unwrap(),
            false => fs::write(&place, "precious").unwrap(),
        }
        for options in ["", "--resume"] {
            let ran = run_at(&server, &format!("load urls {options} {}", path.display()));
            assert_eq!(ran.code, 2, "{options}: {ran:?}");
            assert!(ran.stderr.contains("not a journal of this program"), "{ran:?}");
        }
        assert_eq!(fs::read(&place).unwrap(), b"precious");
        fs::remove_file(&place).unwrap();
    }
    // An empty file under the name of a journal is somebody else's.
    fs::write(journal_of(&path), "").unwrap();
    let ran = run_at(&server, &format!("load urls {}", path.display()));
    assert!(ran.code == 2 && ran.stderr.contains("not a journal of this program"), "{ran:?}");
    fs::remove_file(journal_of(&path)).expect("it stays");
    assert_eq!(card(&mut client), 0);
    let ran = run_at(&server, &format!("load urls {0} {0}", path.display()));
    assert!(ran.code == 2 && ran.stderr.contains("items is being loaded already"), "{ran:?}");
    run_at(&server, &format!("load urls {}", path.display())).done();
}

/// Starts a load of a file of `count` items slowly, and returns when some are in.
fn under_way(
    server: &Server,
    client: &mut Client,
    dir: &Path,
    count: usize,
    options: &str,
) -> (Child, PathBuf, Vec<String>) {
    let items = numbered("item", count);
    let path = file(dir, "items", &items);
    let words = format!("load urls --rate 100000 --journal-every 5ms {options} {}", path.display());
    let child = started(server, &words);
    wait_until("some items are in, and the journal says so", || {
        card(client) > 5_000
            && (options.contains("--acks")
                || offset_in(&journal_of(&path)).is_some_and(|offset| offset > 0))
    });
    (child, path, items)
}

#[test]
fn a_load_survives_a_restart_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let aof = Server::with().config("appendonly yes");
    let (mut server, mut client) = reserved(aof, "BF.RESERVE urls 0.001 1000000");
    let (child, path, items) = under_way(&server, &mut client, dir.path(), 100_000, "");
    server.kill_and_restart();
    let ran = ended(child);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("trying again for 60 s"), "{ran:?}");
    assert_all_in(&mut server.client(), &items);
    assert!(!journal_of(&path).exists());
}

#[test]
fn items_that_a_restarted_server_lost_are_sent_again() {
    for snapshot in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (mut server, mut client) = server();
        if snapshot {
            assert_eq!(client.run("SAVE"), ok());
        }
        let (child, path, items) = under_way(&server, &mut client, dir.path(), 100_000, "");
        server.kill_and_restart();
        let ran = ended(child);
        if snapshot {
            assert_eq!(ran.code, 0, "{ran:?}");
            assert!(ran.stderr.contains("sending all of them again"), "{ran:?}");
            assert_all_in(&mut server.client(), &items);
        } else {
            assert_eq!(ran.code, 5, "{ran:?}");
            assert!(ran.stderr.contains("the filter is gone"), "{ran:?}");
            assert!(ran.stderr.contains("Load again from the beginning"), "{ran:?}");
        }
        assert!(!journal_of(&path).exists());
    }
}

/// What other clients add brings the count up again.
#[test]
fn a_load_whose_server_restarted_is_resumed_at_the_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let (mut server, mut client) = server();
    assert_eq!(client.run("SAVE"), ok());
    let (mut child, path, items) = under_way(&server, &mut client, dir.path(), 500_000, "");
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    server.kill_and_restart();
    let mut client = server.client();
    crate::harness::madd(&mut client, NAME, &numbered("other", 300_000));
    let ran = run_at(&server, &format!("load urls --resume {}", path.display()));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("nothing proves that urls has all items"), "{ran:?}");
    assert_all_in(&mut client, &items);
}

#[test]
fn a_filter_that_lost_items_between_two_loads_is_resumed_at_the_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client) = server();
    let (mut child, path, items) = under_way(&server, &mut client, dir.path(), 1_000_000, "");
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    client.run("DEL urls");
    client.run("BF.RESERVE urls 0.001 1000000");
    // As many as the earlier load had.
    crate::harness::madd(&mut client, NAME, &numbered("other", 100_000));
    let ran = run_at(&server, &format!("load urls --resume {}", path.display()));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("nothing proves that urls has all items"), "{ran:?}");
    assert_all_in(&mut client, &items);
}

/// Its items are not those of the load, however many it has.
#[test]
fn another_filter_in_its_place_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client) = server();
    client.run("BF.RESERVE larger 0.001 1000000");
    crate::harness::madd(&mut client, "larger", &numbered("other", 200_000));
    let (child, path, _) = under_way(&server, &mut client, dir.path(), 100_000, "");
    assert_eq!(client.run("RENAME larger urls"), ok());
    let ran = ended(child);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("the key holds another filter than before"), "{ran:?}");
    assert_eq!(ran.stdout, "", "no item is in that is said to be new");
    assert!(!journal_of(&path).exists());
}

#[test]
fn a_string_in_its_place_has_no_items() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client) = server();
    let (child, _, _) = under_way(&server, &mut client, dir.path(), 100_000, "");
    assert_eq!(client.run("SET urls other"), ok());
    let ran = ended(child);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("another key replaced the filter: WRONGTYPE"), "{ran:?}");
    assert!(!ran.stderr.contains("items are"), "{ran:?}");
}

#[test]
fn a_paused_server_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client) = server();
    let (child, _, items) =
        under_way(&server, &mut client, dir.path(), 60_000, "--timeout 1 --retry-for 50s");
    let stopped = Stopped::stop(server.pid());
    // Longer than two timeouts of the tool, so that it connects again, and is not answered then.
    thread::sleep(Duration::from_millis(2_600));
    drop(stopped);
    let ran = ended(child);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("no reply within 1 s; trying again"), "{ran:?}");
    assert_all_in(&mut client, &items);
}

#[test]
fn a_server_that_stays_away_ends_the_load_and_it_goes_on_later() {
    let dir = tempfile::tempdir().unwrap();
    let aof = Server::with().config("appendonly yes");
    let (mut server, mut client) = reserved(aof, "BF.RESERVE urls 0.001 1000000");
    let (child, path, items) =
        under_way(&server, &mut client, dir.path(), 100_000, "--retry-for 100ms");
    server.kill();
    let ran = ended(child);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("repeat the command with --resume"), "{ran:?}");
    let offset = offset_in(&journal_of(&path)).expect("a journal");
    assert!(offset > 0);
    assert!(ran.stderr.contains("it is unknown how many items are in the filter"), "{ran:?}");
    server.relaunch();
    let ran = run_at(&server, &format!("load urls --json --resume {}", path.display()));
    assert_eq!(number(&ran.done(), "items"), 100_000, "nothing proves that it has the first ones");
    assert_all_in(&mut server.client(), &items);
}

#[test]
fn a_full_server_refuses_and_the_load_goes_on_later() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client) = server();
    let (child, path, items) = under_way(&server, &mut client, dir.path(), 100_000, "--json");
    assert_eq!(client.run("CONFIG SET maxmemory 1"), ok());
    let ran = ended(child);
    let before = card(&mut client);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("OOM") && ran.stderr.contains("items are in"), "{ran:?}");
    assert!(ran.stderr.contains("Raise maxmemory") && ran.stderr.contains("--resume"), "{ran:?}");
    assert_eq!(number(&ran.stdout, "new") as i64, before);
    assert_eq!(client.run("CONFIG SET maxmemory 0"), ok());
    run_at(&server, &format!("load urls --resume {}", path.display())).done();
    assert_all_in(&mut client, &items);
}

/// The number of items in a sentence such as `1,234 items are in`.
#[track_caller]
fn items_in(text: &str) -> i64 {
    let number = text.split(" items are ").next().and_then(|text| text.rsplit(' ').next());
    let digits: String = number.unwrap_or_default().chars().filter(|&sign| sign != ',').collect();
    digits.parse().unwrap_or_else(|_| panic!("no number of items in {text}"))
}

#[test]
fn a_full_filter_is_an_error_inside_of_a_reply() {
    let dir = tempfile::tempdir().unwrap();
    let items = numbered("item", 30_000);
    let path = file(dir.path(), "items", &items);
    // As a user without the packed command, too: then items are arguments.
    for user in ["", "--user plain --pass secret"] {
        let (server, mut client) =
            reserved(Server::with(), "BF.RESERVE urls 0.001 20000 NONSCALING");
        client.run("ACL SETUSER plain on >secret ~* +@all -bf.bulkadd");
        let ran =
            run_at(&server, &format!("load urls --json --batch 10kb {user} {}", path.display()));
        assert_eq!(ran.code, 4, "{ran:?}");
        assert!(ran.stderr.contains("ERR non scaling filter is full"), "{ran:?}");
        assert!(ran.stderr.contains("from the beginning, without --resume"), "{ran:?}");
        // Items are in up to the one that was refused; what tests present behind it does not count.
        let answered = items_in(&ran.stderr);
        let present = mexists(&mut client, NAME, &items);
        assert_eq!(Some(answered as usize), present.iter().position(|&present| !present));
        assert_eq!(number(&ran.stdout, "items") as i64, answered);
        assert_eq!(number(&ran.stdout, "new") as i64, card(&mut client));
        assert!((20_000..20_400).contains(&answered), "{answered}");
        // The journal is at a batch before the item that was refused.
        let offset = offset_in(&journal_of(&path)).expect("a journal");
        let lines =
            fs::read(&path).unwrap()[..offset as usize].split(|&byte| byte == b'\n').count();
        assert!(lines as i64 - 1 <= answered);
    }
}

#[test]
fn a_server_without_the_packed_command_gets_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let mut items: Vec<Vec<u8>> =
        numbered("item", 20_000).into_iter().map(String::into_bytes).collect();
    items.extend([b"with\nline feed".to_vec(), Vec::new(), vec![b'x'; 1 << 20]]);
    let path = dir.path().join("items");
    fs::write(&path, items.join(&0)).unwrap();
    let (server, mut client) = server();
    client.run("ACL SETUSER plain on >secret ~* +@all -bf.bulkadd");
    let words = format!("load urls -0 --json {}", path.display());
    let ran = run_at(&server, &format!("{words} --user plain --pass secret"));
    let done = ran.done();
    assert_eq!(number(&done, "items"), items.len() as u64);
    assert_eq!(number(&done, "new") as i64, card(&mut client));
    assert_all_in(&mut client, &items);

    let Some(peer) = std::env::var_os("REDIS_BLOOM_PEER_REDISBLOOM") else {
        skipped(
            "a_server_without_the_packed_command_gets_arguments",
            "REDIS_BLOOM_PEER_REDISBLOOM is not set",
        );
        return;
    };
    let peer = Server::with().module_at(Path::new(&peer));
    let (server, mut client) = reserved(peer, "BF.RESERVE urls 0.001 1000000");
    let done = run_at(&server, &words).done();
    assert_eq!(number(&done, "new") as i64, card(&mut client));
    assert_all_in(&mut client, &items);
    client.run("DEL urls");
    client.run("BF.RESERVE urls 0.001 10000 NONSCALING");
    let ran = run_at(&server, &words);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("non scaling filter is full"), "{ran:?}");
    assert_eq!(number(&ran.stdout, "new") as i64, card(&mut client));
}

#[test]
fn the_first_ctrl_c_ends_in_order_and_the_second_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client) = server();
    let (child, path, items) = under_way(&server, &mut client, dir.path(), 300_000, "--json");
    signal(&child, "INT");
    let ran = ended(child);
    assert_eq!(ran.code, 130, "{ran:?}");
    assert!(ran.stderr.contains("Repeat the command with --resume."), "{ran:?}");
    // What was under way is confirmed, and in the journal.
    let loaded = number(&ran.stdout, "items") as usize;
    assert_eq!(number(&ran.stdout, "new") as i64, card(&mut client));
    let bytes: usize = items[..loaded].iter().map(|item| item.len() + 1).sum();
    assert_eq!(offset_in(&journal_of(&path)), Some(bytes as u64));

    let words = format!("load urls --resume --json {}", path.display());
    let ran = run_at(&server, &words);
    assert_eq!(number(&ran.done(), "items") as usize, items.len() - loaded);
    assert_all_in(&mut client, &items);

    // A server that does not answer is not waited for.
    let (child, path, _) = under_way(&server, &mut client, dir.path(), 600_000, "");
    let stopped = Stopped::stop(server.pid());
    let asked = Instant::now();
    signal(&child, "INT");
    let ran = ended(child);
    assert!(ran.code == 130 && asked.elapsed() < Duration::from_secs(4), "{ran:?}");
    drop(stopped);
    fs::remove_file(journal_of(&path)).expect("a journal");

    let (child, _, _) = under_way(&server, &mut client, dir.path(), 900_000, "");
    let _stopped = Stopped::stop(server.pid());
    signal(&child, "INT");
    // The first signal must be handled before the second comes, or both are one.
    thread::sleep(Duration::from_millis(100));
    signal(&child, "INT");
    assert_eq!(ended(child).code, 130);
}

#[test]
fn items_of_an_idle_pipe_are_sent_and_ctrl_c_ends_it() {
    let (server, mut client) = server();
    let mut child = command_at(&server, "load urls")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"one\ntwo\nthr").expect("the tool reads");
    wait_until("both whole lines are in", || card(&mut client) == 2);
    signal(&child, "INT");
    let ran = ended(child);
    assert_eq!(ran.code, 130, "{ran:?}");
    assert!(ran.stderr.contains("Load again from the beginning. If it is a COUNTING"), "{ran:?}");
    assert_eq!(card(&mut client), 2);
}

/// A COUNTING filter gets what other filters get, and the user is told.
#[test]
fn what_counts_twice_in_a_counting_filter_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let aof = Server::with().config("appendonly yes");
    let (mut server, mut client) = reserved(aof, "BF.RESERVE urls 0.001 1000000 COUNTING");
    let path = file(dir.path(), "items", &numbered("item", 100_000));
    let words = format!("load urls --rate 100000 {}", path.display());
    let child = started(&server, &words);
    wait_until("some items are in", || card(&mut client) > 5_000);
    server.kill_and_restart();
    let ran = ended(child);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("items that were sent again count twice"), "{ran:?}");
    assert_all_in(&mut server.client(), &numbered("item", 100_000));
}

#[test]
fn a_load_goes_on_at_the_new_primary_of_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start();
    let mut client = cluster.client();
    assert_eq!(client.call(NAME, &["BF.RESERVE", NAME, "0.001", "1000000"]), ok());
    let owner = client.owner(NAME);
    let other = cluster.nodes[..PRIMARIES].iter().position(|node| node.port() != owner);
    let other = other.expect("three primaries");
    let items = numbered("item", 200_000);
    let path = file(dir.path(), "items", &items);
    let words = format!("load urls --acks 1 --rate 200000 {}", path.display());
    let child = started(&cluster.nodes[other], &words);
    wait_until("some items are in", || client.call(NAME, &["BF.CARD", NAME]).int() > 10_000);
    let primary = cluster.nodes.iter().position(|node| node.port() == owner).expect("the owner");
    cluster.nodes[primary].kill();
    wait_until("the replica is promoted", || {
        client.call(NAME, &["BF.CARD", NAME]);
        client.owner(NAME) != owner
    });
    // It comes back as a replica. Without one nothing could be acknowledged.
    cluster.nodes[primary].relaunch();
    let ran = ended(child);
    assert_eq!(ran.code, 0, "{ran:?}");
    for batch in items.chunks(1_000) {
        let mut words = vec!["BF.MEXISTS", NAME];
        words.extend(batch.iter().map(String::as_str));
        let reply = client.call(NAME, &words);
        assert_eq!(reply.answers().iter().filter(|&&present| !present).count(), 0);
    }
}

/// The node that the user names dies for good, with items that its replica never got.
#[test]
fn a_load_begins_again_without_the_node_that_was_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start();
    let mut client = cluster.client();
    assert_eq!(client.call(NAME, &["BF.RESERVE", NAME, "0.001", "1000000"]), ok());
    let owner = client.owner(NAME);
    let primary = cluster.nodes.iter().position(|node| node.port() == owner).expect("the owner");
    assert!(client.wait(NAME) > 0, "the replica has the filter");
    let items = numbered("item", 200_000);
    let path = file(dir.path(), "items", &items);
    let words = format!("load urls --rate 100000 {}", path.display());
    let child = started(&cluster.nodes[primary], &words);
    wait_until("some items are in", || client.call(NAME, &["BF.CARD", NAME]).int() > 10_000);
    cluster.nodes[primary].kill();
    let ran = ended(child);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("sending all of them again"), "{ran:?}");
    for batch in items.chunks(1_000) {
        let mut words = vec!["BF.MEXISTS", NAME];
        words.extend(batch.iter().map(String::as_str));
        assert!(client.call(NAME, &words).answers().iter().all(|&present| present));
    }
}

#[test]
fn a_replica_refuses() {
    let (server, _client) = server();
    let replica = server.replica();
    let ran = run_with(&replica, "load urls", b"a\n");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("READONLY") && ran.stderr.contains("its primary"), "{ran:?}");
}

#[test]
fn errors_that_pass_are_waited_for_and_others_end_the_load() {
    let dir = tempfile::tempdir().unwrap();
    let items: Vec<_> = (0..2_000).map(|number| format!("item-{number:010}\n")).collect();
    let path = dir.path().join("items");
    fs::write(&path, items.concat()).unwrap();
    // The last error comes first, each for a batch of its own in the middle of the load.
    let passing = [
        "UNBLOCKED force unblock from blocking operation",
        "READONLY You can't write against a read only replica.",
        "MASTERDOWN Link with MASTER is down",
        "NOREPLICAS Not enough good replicas to write.",
        "BUSY Redis is busy running a script",
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "LOADING Redis is loading the dataset in memory",
    ];
    let start = |name: &str, errors: &[&str]| {
        let server = Reluctant::start(3);
        let child = server
            .command_for(name)
            .arg(&path)
            .args(["--json", "--retry-for", "50s"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the tool runs");
        // A tool whose reader is slow waits for each reply: then a later batch is refused.
        let mut answered = 3;
        let mut patience = Instant::now();
        wait_until("the tool has sent two more batches", || {
            if patience.elapsed() > Duration::from_secs(1) {
                answered += 1;
                server.allowed.store(answered, Ordering::SeqCst);
                patience = Instant::now();
            }
            server.added.lock().expect("no panic").len() == answered * 16
                && server.came.load(Ordering::SeqCst) >= answered + 2
        });
        server.errors.lock().expect("no panic").extend(errors.iter().map(|&text| text.to_owned()));
        server.allowed.store(usize::MAX, Ordering::SeqCst);
        (ended(child), server, answered as i64 * 16)
    };
    for name in [NAME, "counted"] {
        let (ran, server, _) = start(name, &passing);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(number(&ran.stdout, "items"), 2_000);
        let added = server.added.lock().expect("no panic").clone();
        assert!(items.iter().all(|item| added.contains(item.as_bytes())));
        // Batches behind a refused one were accepted.
        assert!(number(&ran.stdout, "resent") > 0, "{ran:?}");
        assert_eq!(ran.stderr.contains("sent again count twice"), name != NAME, "{ran:?}");
    }

    for text in [
        "MISCONF Redis is configured to save RDB snapshots",
        "NOPERM this user has no permissions",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "ERR problem inserting into filter",
    ] {
        let (ran, server, before) = start(NAME, &[text]);
        assert_eq!(ran.code, 4, "{ran:?}");
        assert!(ran.stderr.contains(text) && ran.stderr.contains("--resume"), "{ran:?}");
        // Batches behind the one that was refused are no items that are all in.
        assert!(server.added.lock().expect("no panic").len() as i64 > before);
        assert_eq!(items_in(&ran.stderr), before);
        // The journal ends before the batch that was refused.
        assert_eq!(offset_in(&journal_of(&path)), Some(before as u64 * 16));
    }
}

#[test]
fn a_batch_without_a_reply_is_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let items: Vec<_> = (0..400).map(|number| format!("item-{number:010}\n")).collect();
    let path = dir.path().join("items");
    fs::write(&path, items.concat()).unwrap();
    // Each connection answers three batches of 16 items, and ends when another one comes.
    let server = Reluctant::start_with(3, true);
    let output = server.command().arg(&path).arg("--json").output().expect("the tool runs");
    let ran = Ran::from(output);
    let added = server.added.lock().expect("no panic").len();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!((added, number(&ran.stdout, "items")), (400, 400));
    assert!(number(&ran.stdout, "resent") > 0, "{ran:?}");
}

/// Known items of a batch, and those of other clients, prove nothing.
#[test]
fn a_surplus_hides_no_loss() {
    // More items than the load has under way, and fewer than a batch of it.
    for others in [50_000, 1_000] {
        let dir = tempfile::tempdir().unwrap();
        let (mut server, mut client) = server();
        assert_eq!(client.run("SAVE"), ok());
        let (child, _, items) = under_way(&server, &mut client, dir.path(), 200_000, "");
        server.kill_and_restart();
        crate::harness::madd(&mut server.client(), NAME, &numbered("other", others));
        let ran = ended(child);
        assert_eq!(ran.code, 0, "{others}: {ran:?}");
        assert!(ran.stderr.contains("sending all of them again"), "{ran:?}");
        assert_all_in(&mut server.client(), &items);
    }
    // What came from a pipe cannot be read again.
    let (mut server, mut client) = server();
    assert_eq!(client.run("SAVE"), ok());
    let mut child = command_at(&server, "load urls --quiet")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"a\nb\n").expect("the tool reads");
    wait_until("they are in", || card(&mut client) == 2);
    // The server has written its reply to the tool, too: without it, both items are sent again.
    client.run("PING");
    server.kill_and_restart();
    crate::harness::madd(&mut server.client(), NAME, &["a", "c", "d"]);
    input.write_all(b"a\nb\n").expect("the tool reads");
    drop(input);
    let ran = ended(child);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("it is unknown how many items are in the filter"), "{ran:?}");
}

#[test]
fn a_slot_that_moves_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start();
    let mut client = cluster.client();
    assert_eq!(client.call(NAME, &["BF.RESERVE", NAME, "0.001", "1000000"]), ok());
    let owner = client.owner(NAME);
    let primaries = || (0..PRIMARIES).map(|number| (number, &cluster.nodes[number]));
    let (from, source) = primaries().find(|(_, node)| node.port() == owner).expect("the owner");
    let (to, target) = primaries().find(|(_, node)| node.port() != owner).expect("another");
    let items = numbered("item", 200_000);
    let path = file(dir.path(), "items", &items);
    let child = started(target, &format!("load urls --rate 200000 --json {}", path.display()));
    wait_until("some items are in", || client.call(NAME, &["BF.CARD", NAME]).int() > 10_000);

    let slot = crate::harness::slot(NAME);
    let (mut old, mut new) = (source.client(), target.client());
    assert_eq!(new.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", cluster.ids[from])), ok());
    assert_eq!(old.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", cluster.ids[to])), ok());
    assert_eq!(old.run(&format!("MIGRATE 127.0.0.1 {} urls 0 10000", target.port())), ok());
    // Now the old node answers ASK.
    new.run("ASKING");
    let moved = new.run("BF.CARD urls").int();
    wait_until("more items are in at the new node", || {
        new.run("ASKING");
        new.run("BF.CARD urls").int() > moved
    });
    for client in [&mut new, &mut old] {
        assert_eq!(client.run(&format!("CLUSTER SETSLOT {slot} NODE {}", cluster.ids[to])), ok());
    }
    let ran = ended(child);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(number(&ran.stdout, "items"), 200_000);
    assert_all_in(&mut new, &items);
}

/// A load begins while the key is at its new node already, and the slot is not.
#[test]
fn a_load_begins_while_its_slot_moves() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start();
    let mut client = cluster.client();
    assert_eq!(client.call(NAME, &["BF.RESERVE", NAME, "0.001", "10000"]), ok());
    let owner = client.owner(NAME);
    let primaries = || (0..PRIMARIES).map(|number| (number, &cluster.nodes[number]));
    let (from, source) = primaries().find(|(_, node)| node.port() == owner).expect("the owner");
    let (to, target) = primaries().find(|(_, node)| node.port() != owner).expect("another");
    let slot = crate::harness::slot(NAME);
    let (mut old, mut new) = (source.client(), target.client());
    assert_eq!(new.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", cluster.ids[from])), ok());
    assert_eq!(old.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", cluster.ids[to])), ok());
    assert_eq!(old.run(&format!("MIGRATE 127.0.0.1 {} urls 0 10000", target.port())), ok());
    let items = numbered("item", 1_000);
    let path = file(dir.path(), "items", &items);
    let ran = run_at(source, &format!("load urls --retry-for 5 {}", path.display()));
    assert_eq!(ran.code, 0, "{ran:?}");
    for client in [&mut new, &mut old] {
        assert_eq!(client.run(&format!("CLUSTER SETSLOT {slot} NODE {}", cluster.ids[to])), ok());
    }
    assert_all_in(&mut new, &items);
}

/// What a server answers that has an empty filter, adds every item, and has one replica.
fn usual(command: &str) -> String {
    let text = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let words: Vec<_> = command.splitn(5, ' ').collect();
    match words[..] {
        ["TYPE", ..] => "+MBbloom--\r\n".to_owned(),
        ["HGETALL", ..] => "-WRONGTYPE Operation against a key\r\n".to_owned(),
        ["CLUSTER", ..] => "-ERR This instance has cluster support disabled\r\n".to_owned(),
        ["INFO", ..] => {
            text("run_id:1\r\nslave0:state=online,offset=7\r\nmaster_repl_offset:7\r\n")
        }
        ["BF.INFO", _, "ITEMS"] => "*1\r\n:0\r\n".to_owned(),
        ["BF.INFO", ..] => "*1\r\n$-1\r\n".to_owned(),
        ["WAIT", ..] => ":1\r\n".to_owned(),
        ["BF.BULKADD", .., items] => {
            let count = items.lines().count();
            format!("*2\r\n:{count}\r\n{}", text(&"\0".repeat(count.div_ceil(8))))
        }
        _ => "+OK\r\n".to_owned(),
    }
}

/// The items of a command; none if it adds none.
fn items_of(command: &str) -> Vec<&str> {
    match command.splitn(5, ' ').collect::<Vec<_>>()[..] {
        ["BF.BULKADD", .., items] => items.lines().collect(),
        _ => Vec::new(),
    }
}

/// Runs a load of a file at a fake server: batches of 16 items of 16 bytes.
fn load_at(fake: &Fake, options: &str, path: &Path) -> Ran {
    let mut command = command();
    command.args(["-p", &fake.port.to_string(), "load", NAME, "--batch", "256b"]);
    command.args(options.split_whitespace()).arg(path);
    command.output().expect("the tool runs").into()
}

#[test]
fn a_reply_that_is_not_understood_is_shown_in_part() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "items", &["a"]);
    for begin in ["", "x"] {
        let reply = format!("{begin}{}", "\u{e9}".repeat(300));
        let fake = Fake::start(move |command| match items_of(command).is_empty() {
            true => usual(command),
            false => format!("${}\r\n{reply}\r\n", reply.len()),
        });
        let ran = load_at(&fake, "", &path);
        assert_eq!(ran.code, 4, "{ran:?}");
        assert!(ran.stderr.contains("unexpected reply"), "{ran:?}");
    }
}

#[test]
fn items_sent_before_a_reconnection_are_confirmed_by_what_replicas_have() {
    let dir = tempfile::tempdir().unwrap();
    let items: Vec<_> = (0..96).map(|number| format!("item-{number:010}")).collect();
    let path = file(dir.path(), "items", &items);
    // The third batch is refused with an error after which the load connects again.
    let run = |replication: fn(usize) -> String| {
        let (batches, asked) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let fake = Fake::start(move |command| {
            if !items_of(command).is_empty() && batches.fetch_add(1, Ordering::SeqCst) == 2 {
                return "-UNBLOCKED force unblock from blocking operation\r\n".to_owned();
            }
            match command {
                "INFO replication" => replication(asked.fetch_add(1, Ordering::SeqCst)),
                _ => usual(command),
            }
        });
        let ran = load_at(&fake, "--acks 1", &path);
        let asked = fake.commands().iter().filter(|&text| text == "INFO replication").count();
        (ran, asked)
    };
    // No replica ever has all that the server has, but what the first answer says is enough.
    let (ran, asked) = run(|times| {
        let replica = if times < 3 { 99 } else { 99 + times };
        let text = format!(
            "role:master\r\nconnected_slaves:2\r\n\
             slave0:ip=127.0.0.1,port=1,state=online,offset={replica},lag=0\r\n\
             slave1:ip=127.0.0.1,port=2,state=wait_bgsave,offset=500,lag=0\r\n\
             master_repl_offset:{}\r\n",
            100 + times
        );
        format!("${}\r\n{text}\r\n", text.len())
    });
    assert!(ran.code == 0 && asked >= 4, "{asked}: {ran:?}");
}

#[test]
fn a_named_pipe_is_opened_once() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let (server, mut client) = server();
    let child = started(&server, &format!("load urls --json {}", pipe.display()));
    let mut writer = fs::OpenOptions::new().write(true).open(&pipe).expect("a reader comes");
    // The reader stays while it looks for the filter.
    wait_until("the tool is connected", || {
        client.run("CLIENT LIST").text().contains("redis-bloom")
    });
    for item in 0..50_000 {
        writeln!(writer, "item{item}").expect("the reader stays");
    }
    drop(writer);
    assert_eq!(number(&ended(child).done(), "items"), 50_000);

    // Ctrl-C ends a load whose pipe nobody writes.
    let child = started(&server, &format!("load urls {}", pipe.display()));
    wait_until("the tool is connected", || {
        client.run("CLIENT LIST").text().contains("redis-bloom")
    });
    signal(&child, "INT");
    assert_eq!(ended(child).code, 130);
}

#[test]
fn a_stdout_that_nobody_reads_hides_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "items", &numbered("item", 1_000));
    let (server, _client) = reserved(Server::with(), "BF.RESERVE urls 0.001 100 NONSCALING");
    let mut child = started(&server, &format!("load urls {}", path.display()));
    drop(child.stdout.take());
    let ran = ended(child);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("non scaling filter is full"), "{ran:?}");
}

#[test]
fn items_of_a_slow_pipe_that_is_never_idle_are_sent() {
    let (server, mut client) = server();
    let mut child = command_at(&server, "load urls --quiet")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    let mut input = child.stdin.take().expect("a pipe");
    let mut lines = 0;
    wait_until("items are in while more come", || {
        writeln!(input, "item{lines}").expect("the tool reads");
        lines += 1;
        thread::sleep(Duration::from_millis(20));
        card(&mut client) > 0
    });
    drop(input);
    ended(child).done();
    assert!(card(&mut client) > 0);
}

#[test]
fn a_file_that_changes_while_it_is_read_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client) = server();
    let (child, path, _) = under_way(&server, &mut client, dir.path(), 100_000, "");
    let mut writer = fs::OpenOptions::new().append(true).open(&path).expect("the file");
    writer.write_all(b"one more\n").expect("a file that can be written");
    let ran = ended(child);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("changed while it was read"), "{ran:?}");
}

#[test]
fn a_failover_before_the_first_confirmation_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let items: Vec<_> = (0..96).map(|number| format!("item-{number:010}")).collect();
    let path = file(dir.path(), "items", &items);
    let batches = AtomicUsize::new(0);
    let fake = Fake::start(move |command| {
        if !items_of(command).is_empty() && batches.fetch_add(1, Ordering::SeqCst) == 2 {
            return "-READONLY You can't write against a read only replica.\r\n".to_owned();
        }
        match command {
            "INFO replication" => {
                let text = "slave0:state=online,offset=7\r\nmaster_repl_offset:7\r\n";
                format!("${}\r\n{text}\r\n", text.len())
            }
            _ => usual(command),
        }
    });
    let ran = load_at(&fake, "--acks 1", &path);
    assert_eq!(ran.code, 0, "{ran:?}");
}

/// No other command helps a user who may not access the key.
#[test]
fn a_user_without_the_key_is_told_so() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("BF.RESERVE urls 0.01 1000"), ok());
    client.run("ACL SETUSER other on >secret ~other -@all +bf.bulkadd +bf.info +info +type");
    let ran = run_with(&server, "load urls --user other --pass secret", b"a\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""), "{ran:?}");
    assert!(!ran.stderr.contains("bf.insert"), "{ran:?}");
    assert!(ran.stderr.contains("Give the user this key"), "{ran:?}");
}
