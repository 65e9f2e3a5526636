//! `redis-bloom top`: once, and live in a pseudo-terminal.

use crate::{
    fake::{Fake, array},
    harness::{Cluster, PRIMARIES, Server, Stopped, madd, numbered, ok, slot},
    info::two_filters,
    run::{command_at, run, run_at},
    schema::checked,
    terminal::{Terminal, in_terminal},
};

/// What the tool writes when it gives the terminal back.
const CLOSED: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

#[test]
fn top_without_a_terminal_prints_all_filters_once() {
    let server = Server::start();
    let mut client = server.client();
    two_filters(&mut client);
    client.run("SET text value");
    client.run("BF.RESERVE 5percent 0.05 10 NONSCALING SEED 1");
    madd(&mut client, "5percent", &numbered("item", 9));
    for (words, names) in [
        ("top", ["grown", "undo", "5percent"]),
        ("top --sort memory --once", ["grown", "undo", "5percent"]),
        ("top --sort items", ["grown", "5percent", "undo"]),
        ("top --sort rate", ["5percent", "grown", "undo"]),
        ("top --sort fill", ["5percent", "grown", "undo"]),
    ] {
        let ran = run_at(&server, words);
        assert_eq!(ran.code, 0, "{words}");
        assert!(ran.stderr.starts_with("All: 1.89 kB allocated, 3.42 kB with"), "{ran:?}");
        let shown: Vec<_> =
            ran.stdout.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(shown, names, "{words}");
        let json = checked("top", &run_at(&server, &format!("{words} --json")).done());
        let shown: Vec<_> = json.iter().map(|line| line["name"].as_str().unwrap()).collect();
        assert_eq!(shown, names, "{words}");
        assert_eq!(json[0]["server"], format!("127.0.0.1:{}", server.port()));
    }
    assert_eq!(run_at(&server, "top").done(), include_str!("golden/top.txt"));
    let text = run_at(&server, "top --match u*").done();
    assert_eq!(text.lines().count(), 2, "{text}");
    let text = run_at(&server, "top --match nothing").done();
    assert_eq!(text, "NAME  ITEMS  OF  FILL  RATE NOW  ERROR RATE  MEMORY  LAYERS\n");
    assert_eq!(run_at(&server, "top --match nothing --json").done(), "");
}

#[test]
fn top_ends_with_the_right_code() {
    assert_eq!(run("-p 1 top").code, 3);
    for wrong in ["top --sort size", "top --every 0", "top --every x", "top name"] {
        assert_eq!(run(wrong).code, 2, "{wrong}");
    }
    let server = Server::start();
    let mut client = server.client();
    two_filters(&mut client);
    assert_eq!(client.run("ACL SETUSER blind on >secret ~* -@all +bf.info"), ok());
    let ran = run_at(&server, "--user blind --pass secret top");
    assert_eq!((ran.code, &*ran.stdout), (4, ""));
    assert!(ran.stderr.contains("redis-bloom: SCAN: NOPERM"), "{ran:?}");
    // A user who may look for filters, and may read some of them.
    let user = "ACL SETUSER some on >secret ~gr* -@all +scan +bf.info";
    assert_eq!(client.run(user), ok());
    let ran = run_at(&server, "--user some --pass secret top");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.stdout.lines().count(), 2, "{ran:?}");
    assert!(ran.stderr.contains("1 filter not shown, such as undo: NOPERM"), "{ran:?}");
    let quiet = run_at(&server, "--user some --pass secret --quiet top");
    assert_eq!(quiet.stderr, "");
}

/// The scan asks for a bounded number of keys at a time, for both types; what vanishes meanwhile is
/// no error.
#[test]
fn the_scan_is_bounded_and_forgives_what_vanishes() {
    let fields = |items: &str| {
        array(&[
            "Capacity",
            ":100",
            "Size",
            ":208",
            "Number of filters",
            ":1",
            "Number of items inserted",
            items,
            "Expansion rate",
            "$-1",
        ])
    };
    let fake = Fake::start(move |command| match command {
        "SCAN 0 COUNT 1000 TYPE MBbloom--" => {
            format!("*2\r\n$2\r\n17\r\n{}", array(&["gone", "changed", "here"]))
        }
        "SCAN 17 COUNT 1000 TYPE MBbloom--" => {
            format!("*2\r\n$1\r\n0\r\n{}", array(&["here", "moved", "half"]))
        }
        "SCAN 0 COUNT 1000 TYPE bloomfltr" => "-ERR unknown type name 'bloomfltr'\r\n".to_owned(),
        "BF.INFO gone" => "-ERR not found\r\n".to_owned(),
        "BF.INFO changed" => "-WRONGTYPE Operation against a key\r\n".to_owned(),
        "BF.INFO moved" => "-MOVED 1 10.0.0.1:6379\r\n".to_owned(),
        "BF.INFO half" => "-ERR filter is being loaded by BF.LOADCHUNK\r\n".to_owned(),
        "BF.INFO here" => fields(":5"),
        "BF.INFO here ERROR" => array(&["0.01"]),
        "BF.INFO here FPR" => array(&["0.005"]),
        "BF.INFO here FILL" => array(&["0.25"]),
        "BF.INFO here SATURATED" | "BF.INFO here SHARD" | "BF.INFO here WINDOW" => array(&["$-1"]),
        "BF.INFO here LAYOUT" => array(&["native"]),
        "CLUSTER SLOTS" => "-ERR This instance has cluster support disabled\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    });
    let ran = run(&format!("-p {} top", fake.port));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(
        ran.stdout,
        "NAME  ITEMS   OF  FILL  RATE NOW  ERROR RATE  MEMORY  LAYERS\n\
         here      5  100  25 %     0.5 %         1 %   208 B       1\n"
    );
    assert_eq!(
        ran.stderr,
        "1 filter not shown, such as half: ERR filter is being loaded by BF.LOADCHUNK\n"
    );
    let scans = fake.commands().iter().filter(|command| command.starts_with("SCAN")).count();
    assert_eq!(scans, 3);
}

#[test]
fn top_shows_the_filters_of_a_whole_cluster() {
    let cluster = Cluster::start();
    let mut client = cluster.client();
    let mut homes = Vec::new();
    for number in 0..12 {
        let key = format!("filter-{number}");
        assert_eq!(client.call(&key, &["BF.RESERVE", &key, "0.01", "100"]), ok());
        homes.push((key.clone(), format!("127.0.0.1:{}", client.owner(&key)), slot(&key)));
    }
    // From a primary and from a replica.
    for node in [&cluster.nodes[1], &cluster.nodes[PRIMARIES]] {
        let lines = checked("top", &run_at(node, "top --json").done());
        assert_eq!(lines.len(), homes.len());
        for (key, home, slot) in &homes {
            let line = lines.iter().find(|line| line["name"] == key.as_str());
            let line = line.unwrap_or_else(|| panic!("{key} in slot {slot} is missing"));
            assert_eq!(line["server"], home.as_str(), "{key}");
        }
        // info, create and drop find the node of a key by themselves.
        for (key, ..) in &homes {
            let lines = checked("info", &run_at(node, &format!("info {key} --json")).done());
            assert_eq!(lines[0]["capacity"], 100);
        }
        run_at(node, "create one-more --items 100 --error 0.01").done();
        run_at(node, "drop one-more").done();
    }
}

/// Starts top in a terminal, and waits for its first frame.
fn live(server: &Server, words: &str, rows: u16, columns: u16) -> Terminal {
    let terminal = in_terminal(&command_at(server, words), rows, columns);
    terminal.wait_for("q quit");
    terminal
}

#[test]
fn top_is_live_on_a_terminal() {
    let server = Server::start();
    let mut client = server.client();
    two_filters(&mut client);
    let mut terminal = live(&server, "top --every 50ms", 24, 100);
    terminal.wait_for("\x1b[?1049h");
    terminal.wait_for("\x1b[1mNAME ");
    terminal.wait_for("2 filters by memory\x1b[K\r\n\x1b[1mNAME");
    // A filter that appears, one that goes, and the order.
    client.run("BF.RESERVE fresh 0.01 1000000");
    terminal.wait_for("3 filters by memory");
    client.run("DEL undo");
    terminal.forget();
    terminal.wait_for("2 filters by memory");
    terminal.press("i");
    terminal.wait_for("by items");
    terminal.forget();
    terminal.wait_for("LAYERS\x1b[0m\x1b[K\r\ngrown");
    // A small window shows as many lines as it has.
    for number in 0..30 {
        client.run(&format!("BF.RESERVE number-{number} 0.01 100"));
    }
    terminal.wait_for("32 filters");
    terminal.resize(10, 60);
    terminal.wait_for("... and 26 more");
    terminal.press("xq");
    let (code, seen) = terminal.end();
    assert_eq!(code, 0, "{seen:?}");
    assert!(seen.ends_with(CLOSED), "{seen:?}");
}

#[test]
fn keys_scroll_and_another_order_begins_at_its_top() {
    let server = Server::start();
    let mut client = server.client();
    for number in 10..40 {
        client.run(&format!("BF.RESERVE f{number} 0.01 {number}00"));
    }
    let mut terminal = live(&server, "top", 12, 80);
    terminal.wait_for("... and 22 more");
    terminal.press("\x1b[6~\x1b[B");
    terminal.wait_for("10 to 17 of 30");
    terminal.forget();
    terminal.press("i");
    terminal.wait_for("... and 22 more");
    terminal.press("q");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn ctrl_c_ends_top_and_restores_the_terminal() {
    let server = Server::start();
    let mut terminal = live(&server, "top", 24, 100);
    terminal.press("\x03");
    let (code, seen) = terminal.end();
    assert_eq!(code, 130, "{seen:?}");
    assert!(seen.ends_with(CLOSED), "{seen:?}");
}

#[test]
fn an_error_restores_the_terminal_before_it_is_shown() {
    let mut server = Server::start();
    let terminal = live(&server, "top --every 50ms", 24, 100);
    server.kill();
    let (code, seen) = terminal.end();
    assert_eq!(code, 3, "{seen:?}");
    let (_, after) = seen.split_once(CLOSED).expect("the terminal is given back");
    assert!(after.starts_with("redis-bloom: 127.0.0.1:"), "{seen:?}");
}

/// A server that hangs does not keep the user.
#[test]
fn q_ends_top_while_the_server_hangs() {
    let fake = Fake::start(|command| {
        if command.starts_with("SCAN") {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
        match command {
            "CLUSTER SLOTS" => "-ERR This instance has cluster support disabled\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        }
    });
    let mut command = crate::run::command();
    command.args(["-p", &fake.port.to_string(), "top"]);
    let mut terminal = in_terminal(&command, 24, 100);
    terminal.wait_for("0 filters by memory  scanning");
    terminal.press("q");
    assert_eq!(terminal.end().0, 0);
}

/// A step that failed is not followed by the pause of a step.
#[test]
fn a_server_that_hangs_during_the_scan_is_noticed_after_the_timeout() {
    let fake = Fake::start(|command| {
        if command.starts_with("SCAN") {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
        redisbloom_answers(command)
    });
    for words in ["top --once", "top --json", "info"] {
        let started = std::time::Instant::now();
        let ran = run(&format!("-p {} --timeout 3 {words}", fake.port));
        assert_eq!(ran.code, 3, "{words}: {ran:?}");
        assert!(ran.stderr.contains("no reply within 3 s"), "{words}: {ran:?}");
        // A limit against hanging: the pause took 27 seconds.
        assert!(started.elapsed().as_secs() < 27, "{words}");
    }
}

/// The others are shown, and what was known of it. Its replica takes its place.
#[test]
fn a_node_that_fails_does_not_end_top() {
    let mut cluster = Cluster::start();
    let mut client = cluster.client();
    let keys: Vec<_> = (0..12).map(|number| format!("filter-{number}")).collect();
    for key in &keys {
        assert_eq!(client.call(key, &["BF.RESERVE", key, "0.01", "100"]), ok());
        client.wait(key);
    }
    let mut terminal = live(&cluster.nodes[1], "top --every 100ms", 24, 150);
    terminal.wait_for("3 nodes  12 filters by memory\x1b[K");
    let failed = cluster.nodes[0].port();
    let of_failed = keys.iter().find(|key| client.owner(key) == failed).expect("such a key");
    cluster.nodes[0].kill();
    terminal.wait_for(&format!("3 nodes  12 filters by memory  127.0.0.1:{failed}: "));
    terminal.forget();
    terminal.wait_for("3 nodes  12 filters by memory\x1b[K");
    // The replica is watched now.
    let new = format!("{{{of_failed}}}:new");
    assert_eq!(client.call(&new, &["BF.RESERVE", &new, "0.01", "100"]), ok());
    terminal.wait_for("3 nodes  13 filters by memory\x1b[K");
    terminal.press("q");
    let (code, seen) = terminal.end();
    assert_eq!(code, 0, "{seen:?}");
}

#[test]
fn once_and_json_print_once_on_a_terminal_too() {
    let server = Server::start();
    two_filters(&mut server.client());
    for words in ["top --once", "top --json", "info"] {
        let (code, seen) = in_terminal(&command_at(&server, words), 24, 100).end();
        assert_eq!(code, 0, "{seen:?}");
        assert!(!seen.contains("\x1b[?1049h"), "{words}: {seen:?}");
        assert!(seen.contains("grown"), "{words}: {seen:?}");
    }
}

/// What RedisBloom answers about a filter.
fn redisbloom_answers(command: &str) -> String {
    let fields = ["Capacity", ":100", "Size", ":208", "Number of filters", ":1"];
    let more = ["Number of items inserted", ":5", "Expansion rate", ":2"];
    match command.split(' ').collect::<Vec<_>>()[..] {
        ["BF.INFO", _] => array(&[&fields[..], &more].concat()),
        ["BF.INFO", ..] => "-ERR Invalid information value\r\n".to_owned(),
        ["CLUSTER", ..] => "-ERR This instance has cluster support disabled\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    }
}

/// The first pass takes longer than the time between two readings: filters that were read are not
/// read again before its end, and are shown at once.
#[test]
fn the_first_pass_reads_each_filter_once() {
    const STEPS: usize = 8;
    let fake = Fake::start(|command| match command.split(' ').collect::<Vec<_>>()[..] {
        ["SCAN", cursor, .., "MBbloom--"] => {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let next = (cursor.parse::<usize>().expect("a number") + 1) % STEPS;
            if next == 0 {
                // The last step never ends: what is shown was found before.
                std::thread::sleep(std::time::Duration::from_secs(3600));
            }
            let next = next.to_string();
            let names = array(&[&format!("filter-{cursor}")]);
            format!("*2\r\n${}\r\n{next}\r\n{names}", next.len())
        }
        _ => redisbloom_answers(command),
    });
    let mut command = crate::run::command();
    command.args(["-p", &fake.port.to_string(), "top", "--every", "1ms"]);
    let mut terminal = in_terminal(&command, 24, 100);
    terminal.wait_for(&format!("{} filters by memory  scanning", STEPS - 1));
    terminal.press("q");
    assert_eq!(terminal.end().0, 0);
    let commands = fake.commands();
    for number in 0..STEPS - 1 {
        let question = format!("BF.INFO filter-{number}");
        let asked = commands.iter().filter(|&command| *command == question).count();
        assert_eq!(asked, 1, "{question}: {commands:?}");
    }
}

/// Keys whose codes begin with ESC mean nothing, whatever letters the codes have: F2 has a Q.
#[test]
fn function_keys_do_not_end_top() {
    let server = Server::start();
    two_filters(&mut server.client());
    let mut terminal = live(&server, "top", 24, 100);
    terminal.press("\x1bOQ\x1b[1;5Q\x1b[13~i");
    terminal.wait_for("by items");
    terminal.press("q");
    assert_eq!(terminal.end().0, 0);
}

/// Two signals that come before top has seen the first.
#[test]
fn signals_end_top_and_restore_the_terminal() {
    let server = Server::start();
    let terminal = live(&server, "top", 24, 100);
    let stopped = Stopped::stop(terminal.pid());
    for name in ["INT", "TERM"] {
        let kill = format!("kill -{name} {}", terminal.pid());
        assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }
    drop(stopped);
    let (code, seen) = terminal.end();
    assert_eq!(code, 130, "{seen:?}");
    assert!(seen.ends_with(CLOSED), "{seen:?}");
}

#[test]
fn a_dumb_terminal_gets_the_filters_once() {
    let server = Server::start();
    two_filters(&mut server.client());
    let mut command = command_at(&server, "top --quiet");
    let (code, seen) = in_terminal(command.env("TERM", "dumb"), 24, 100).end();
    assert_eq!(code, 0, "{seen:?}");
    assert_eq!(seen.replace("\r\n", "\n"), run_at(&server, "top --once").done());
}
