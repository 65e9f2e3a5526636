//! `redis-bloom check`.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::ffi::OsStrExt as _,
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    fake::Fake,
    harness::{Fault, Proxy, Server, madd, numbered, skipped, wait_until},
    run::{Ran, command, command_at, run, run_at, run_with},
    schema::checked,
};

/// A server with the filter `seen` that has `a`, `b`, an empty item and bytes that are no text.
pub(crate) fn server_with_filter() -> Server {
    let server = Server::start();
    let mut client = server.client();
    client.run("BF.RESERVE seen 1e-9 1000 SEED 1");
    client.call("BF.MADD", "seen", &[&b"a"[..], b"b", b"", b"\x00\xff\n", b"x,\"y\""]);
    client.run("SET text value");
    server
}

#[track_caller]
fn assert_ran(ran: &Ran, code: i32, stdout: &str, stderr: &str) {
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (code, stdout, stderr));
}

#[test]
fn items_of_the_command_line() {
    let server = server_with_filter();
    assert_ran(&run_at(&server, "check seen a"), 0, "1 item: present\n", "");
    assert_ran(&run_at(&server, "check seen a b"), 0, "2 items: all present\n", "");
    assert_ran(&run_at(&server, "check seen a c"), 1, "2 items: 1 present, 1 absent\n", "");
    assert_ran(&run_at(&server, "check seen c d"), 1, "2 items: all absent\n", "");
    let ran = run_at(&server, "check seen c a d --absent");
    assert_ran(&ran, 1, "c\nd\n", "3 items: 1 present, 2 absent\n");
    let ran = run_at(&server, "check seen c a d --absent -0 --quiet");
    assert_ran(&ran, 1, "c\0d\0", "");
    let ran = run_at(&server, "check seen c a d --answers");
    assert_ran(&ran, 1, "0\n1\n0\n", "3 items: 1 present, 2 absent\n");
    // Arguments may be any bytes, also none.
    let mut command = command_at(&server, "check seen");
    command.args(["", "a"]).arg(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    let ran = command.output().expect("the tool runs").into();
    assert_ran(&ran, 1, "3 items: 2 present, 1 absent\n", "");
    assert_eq!(run_at(&server, "check seen --absent --answers a").code, 2);
    assert_eq!(run_at(&server, "check").code, 2);
}

#[test]
fn items_of_standard_input() {
    let server = server_with_filter();
    for words in ["check seen", "check seen -"] {
        let ran = run_with(&server, words, b"a\n\nc\nb");
        assert_ran(&ran, 1, "4 items: 3 present, 1 absent\n", "");
    }
    let ran = run_with(&server, "check seen -0", b"a\0\0\0");
    assert_ran(&ran, 0, "3 items: all present\n", "");
    let ran = run_with(&server, "check seen --absent", b"a\nc\n\nd");
    assert_ran(&ran, 1, "c\nd\n", "4 items: 2 present, 2 absent\n");
    let ran = run_with(&server, "check seen --absent -0", b"a\0c\nc\0d");
    assert_ran(&ran, 1, "c\nc\0d\0", "3 items: 1 present, 2 absent\n");
    assert_ran(&run_with(&server, "check seen", b""), 0, "0 items\n", "");
}

#[test]
fn answers_come_as_the_items_do() {
    let server = server_with_filter();
    let mut tool = command_at(&server, "check seen --answers --quiet");
    let child = tool.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("the tool runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for (items, answers) in [("a\nc\n", &["1", "0"][..]), ("b\n", &["1"])] {
        stdin.write_all(items.as_bytes()).expect("it reads");
        for answer in answers {
            assert_eq!(lines.next().expect("a line").expect("text"), *answer);
        }
    }
    drop(stdin);
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
}

/// `head` closes the pipe: whether items are absent is not known then.
#[test]
fn a_closed_pipe_is_no_answer() {
    let server = server_with_filter();
    let tool = command_at(&server, "check seen --absent");
    let mut command = std::process::Command::new("bash");
    command.args(["-c", "seq 1 2000000 | \"$@\" | head -n1; echo ${PIPESTATUS[1]}", "bash"]);
    command.arg(tool.get_program()).args(tool.get_args());
    let ran: Ran = command.output().expect("bash runs").into();
    assert_ran(&ran, 0, "1\n141\n", "");
}

#[test]
fn answers_as_json() {
    let server = server_with_filter();
    let ran = run_with(&server, "check seen --json", b"a\nc\nd\n");
    assert_ran(&ran, 1, "{\"items\":3,\"present\":1,\"absent\":2}\n", "");
    checked("check", &ran.stdout);
    let ran = run_with(&server, "check seen --json --absent -0 --quiet", b"a\0c\"\0\xfe\xff\0");
    assert_ran(&ran, 1, "{\"item\":\"c\\\"\"}\n{\"item_hex\":\"feff\"}\n", "");
    checked("check-item", &ran.stdout);
    let ran = run_with(&server, "check seen --json --answers --quiet", b"a\nc\n");
    let lines = "{\"item\":\"a\",\"present\":true}\n{\"item\":\"c\",\"present\":false}\n";
    assert_ran(&ran, 1, lines, "");
    checked("check-item", &ran.stdout);
}

#[test]
fn a_missing_filter_is_an_error() {
    let server = server_with_filter();
    for words in ["check missing a", "check missing", "check missing --answers a"] {
        let ran = run_at(&server, words);
        let error = "redis-bloom: BF.INFO: ERR not found\n  \
                     There is no filter of this name; create it first.\n";
        assert_ran(&ran, 4, "", error);
    }
    let ran = run_at(&server, "check text a");
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""));
    assert!(ran.stderr.starts_with("redis-bloom: BF.INFO: WRONGTYPE"), "{ran:?}");
}

/// The filter vanishes between two batches: the server then answers 0 for each item.
#[test]
fn a_filter_that_vanishes_is_an_error() {
    use std::{io::Write as _, process::Stdio};
    let server = server_with_filter();
    let mut child = command_at(&server, "check seen --batch 4")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    // The tool has looked for the filter.
    let mut client = server.client();
    crate::harness::wait_until("the tool asks", || {
        client.run("INFO commandstats").text().to_ascii_lowercase().contains("cmdstat_bf.info")
    });
    client.run("DEL seen");
    let _ = stdin.write_all(&b"a\nb\n".repeat(100));
    drop(stdin);
    let ran: Ran = child.wait_with_output().expect("the tool ends").into();
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""), "{ran:?}");
    assert!(ran.stderr.starts_with("redis-bloom: BF.INFO: ERR not found\n"), "{ran:?}");
}

#[test]
fn long_items_and_many_batches() {
    let server = server_with_filter();
    let mut client = server.client();
    let long = [vec![b'l'; 1 << 20], vec![b'm'; (1 << 20) + 7]];
    client.call("BF.MADD", "seen", &long);
    let mut input = Vec::new();
    for item in &long {
        input.extend(item);
        input.extend(b"\nc\n\n");
    }
    for batch in ["1", "100", "256kb", "4mb"] {
        let ran = run_with(&server, &format!("check seen --batch {batch}"), &input);
        assert_ran(&ran, 1, "6 items: 4 present, 2 absent\n", "");
        let ran = run_with(&server, &format!("check seen --absent --batch {batch}"), &input);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, "c\nc\n"));
    }
}

/// Servers without `BF.BULKEXISTS`, and users without the right to it.
#[test]
fn without_packed_commands_the_answers_are_equal() {
    let server = server_with_filter();
    let mut client = server.client();
    let input: Vec<u8> = (0..2_500).flat_map(|number| format!("{number}\n").into_bytes()).collect();
    let added: Vec<_> = (0..2_500).step_by(3).map(|number| number.to_string()).collect();
    client.call("BF.MADD", "seen", &added);
    let packed = run_with(&server, "check seen --absent", &input);
    assert_eq!(packed.code, 1);
    assert_eq!(packed.stderr, "2,500 items: 834 present, 1,666 absent\n");
    client.run("ACL SETUSER reader on >secret resetkeys %R~seen -@all +bf.mexists +bf.info");
    let single = run_with(&server, "--user reader --pass secret check seen --absent", &input);
    assert_eq!((single.code, &single.stdout), (1, &packed.stdout), "{}", single.stderr);
    assert_eq!(single.stderr, packed.stderr);
    let calls = client.run("INFO commandstats").text().to_ascii_lowercase();
    assert!(calls.contains("cmdstat_bf.mexists:calls=3,"), "{calls}");

    client.run("ACL SETUSER none on >secret resetkeys %R~seen -@all +bf.info");
    let ran = run_with(&server, "--user none --pass secret check seen", &input);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""));
    assert!(ran.stderr.starts_with("redis-bloom: BF.MEXISTS: NOPERM"), "{ran:?}");
    client.run("ACL SETUSER packed on >secret resetkeys %R~seen -@all +bf.info +bf.bulkexists");
    let ran = run_with(&server, "--user packed --pass secret check seen --absent", &input);
    assert_eq!((ran.code, &ran.stdout), (1, &packed.stdout), "{}", ran.stderr);
}

/// The module of RedisBloom, where it is given.
pub(crate) fn redisbloom(test: &str) -> Option<Server> {
    let Some(path) = std::env::var_os("REDIS_BLOOM_PEER_REDISBLOOM") else {
        skipped(test, "REDIS_BLOOM_PEER_REDISBLOOM is not set");
        return None;
    };
    Some(Server::with().module_at(path.as_ref()).start())
}

#[test]
fn redisbloom_answers_too() {
    let Some(server) = redisbloom("check::redisbloom_answers_too") else { return };
    server.client().run("BF.MADD seen a b");
    let ran = run_with(&server, "check seen --absent", b"a\nb\nc\n");
    assert_ran(&ran, 1, "c\n", "3 items: 2 present, 1 absent\n");
    assert_eq!(run_at(&server, "check missing a").code, 4);
}

/// SIGTERM is Ctrl-C, also for a subcommand that has nothing to end in order.
#[test]
fn sigterm_has_the_exit_code_of_ctrl_c() {
    let server = server_with_filter();
    let mut client = server.client();
    let mut command = command_at(&server, "check seen");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the tool runs");
    // It asks for an item, and waits for more.
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"a\n").expect("it reads");
    wait_until("it is connected", || client.run("CLIENT LIST").text().contains("name=redis-bloom"));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TERM).expect("it runs");
    let ran: Ran = child.wait_with_output().expect("the tool ends").into();
    drop(stdin);
    assert_ran(&ran, 130, "", "");
}

/// What passes is waited for, as for shards: a connection that breaks, and a node that is busy.
#[test]
fn a_filter_in_one_key_is_asked_again() {
    let server = server_with_filter();
    let items = numbered("item", 50_000);
    madd(&mut server.client(), "seen", &items);
    let file = server.dir().join("items");
    std::fs::write(&file, items.join("\n") + "\n").expect("a file");
    // The answers have 6,250 bytes and more.
    for words in ["check seen --batch 16kb", "verify seen --probes 50000"] {
        let proxy = Proxy::before(server.port(), &[Fault::Cut(3_000)]);
        let mut command = command();
        command.args(["-p", &proxy.port().to_string()]).args(words.split(' '));
        command.stdin(std::fs::File::open(&file).expect("a file"));
        let ran: Ran = command.output().expect("the tool runs").into();
        assert_eq!(proxy.left(), 0, "{words}: {ran:?}");
        assert_eq!(ran.code, 0, "{words}: {ran:?}");
        assert!(ran.stdout.starts_with("50,000 "), "{words}: {ran:?}");
    }
    let errors = AtomicUsize::new(0);
    let fake = Fake::start(move |command| {
        const PASSING: [&str; 4] =
            ["BUSY a script", "LOADING a file", "TRYAGAIN later", "CLUSTERDOWN for now"];
        match command.split(' ').collect::<Vec<_>>()[..] {
            ["HGETALL", _] => "-WRONGTYPE Operation against a key\r\n".to_owned(),
            ["CLUSTER", ..] => "-ERR This instance has cluster support disabled\r\n".to_owned(),
            ["BF.INFO", _] => "*0\r\n".to_owned(),
            ["BF.BULKEXISTS", _, "LINES", ""] => "*2\r\n:0\r\n$0\r\n\r\n".to_owned(),
            ["BF.BULKEXISTS", ..] => match PASSING.get(errors.fetch_add(1, Ordering::SeqCst)) {
                Some(error) => format!("-{error}\r\n"),
                None => "*2\r\n:1\r\n$1\r\n\0\r\n".to_owned(),
            },
            _ => "+OK\r\n".to_owned(),
        }
    });
    let ran = run(&format!("-p {} check seen a", fake.port));
    assert_ran(&ran, 1, "1 item: absent\n", "");
}
