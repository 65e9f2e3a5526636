//! `load --window`: a filter that is there must forget as the options say, in one key or in shards.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{
    fake::{Fake, array},
    harness::{Client, Server, int, ok},
    run::{Ran, command, run_with},
};

/// Loads three items into `name` with the options that make a window of a day.
fn load(server: &Server, name: &str, options: &str) -> Ran {
    run_with(server, &format!("load {name} --items 1000 --error 1% {options}"), b"a\nb\nc")
}

#[track_caller]
fn refused(ran: &Ran, code: i32, what: &str) {
    assert_eq!((ran.code, &*ran.stdout), (code, ""), "{ran:?}");
    assert!(ran.stderr.contains(what), "{what}: {ran:?}");
}

/// The sums of items in the shards of a filter.
fn cards(client: &mut Client, name: &str, shards: usize) -> i64 {
    let key = |client: &mut Client, shard| client.run(&format!("HGET {name} {shard}")).text();
    (0..shards)
        .map(|shard| {
            let key = key(client, shard);
            client.run(&format!("BF.CARD {key}")).int()
        })
        .sum()
}

const OTHER: [(&str, &str); 5] = [
    ("--window 7d", "not 7d in 4 generations"),
    ("--window 24h --generations 8", "not 24h in 8 generations"),
    ("--window 24h --no-refresh", "since an item was added first (NOREFRESH)"),
    ("--window count", "not the last items in 4 generations"),
    ("--window 86399s", "not 86399s in 4 generations"),
];

#[test]
fn a_load_refuses_a_filter_with_another_window() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("BF.RESERVE day 0.01 1000 WINDOW EX 86400"), ok());
    assert_eq!(client.run("BF.RESERVE plain 0.01 1000"), ok());
    for (options, what) in OTHER {
        let ran = load(&server, "day", options);
        refused(&ran, 2, what);
        assert!(ran.stderr.contains("day is there with another window: 24h in 4 "), "{ran:?}");
    }
    let ran = load(&server, "plain", "--window 24h");
    refused(&ran, 2, "plain is there, and has no window: it forgets nothing");
    assert_eq!(client.run("BF.CARD day"), int(0));
    assert_eq!(client.run("BF.CARD plain"), int(0));
    load(&server, "day", "--window 1d").done();
    // Without --window any filter will do.
    load(&server, "day", "").done();
    assert_eq!(client.run("BF.CARD day"), int(3));
}

#[test]
fn a_load_refuses_shards_with_another_window() {
    let server = Server::start();
    let mut client = server.client();
    for (name, window) in [("day", "--window 24h"), ("plain", "")] {
        let words = format!("create {name} --items 1000 --error 1% --shards 2 {window}");
        crate::run::run_at(&server, &words).done();
    }
    for (options, what) in OTHER {
        refused(&load(&server, "day", options), 2, what);
    }
    let ran = load(&server, "plain", "--window 24h");
    refused(&ran, 2, "plain is there, and has no window: it forgets nothing");
    assert_eq!((cards(&mut client, "day", 2), cards(&mut client, "plain", 2)), (0, 0));
    load(&server, "day", "--window 24h").done();
    load(&server, "plain", "").done();
    assert_eq!((cards(&mut client, "day", 2), cards(&mut client, "plain", 2)), (3, 3));
    // A lost shard is told as ever.
    let key = client.run("HGET day 0").text();
    client.run(&format!("DEL {key}"));
    let ran = load(&server, "day", "--window 24h");
    assert!(ran.code == 5 && ran.stderr.contains("shard 0 of 2: the filter is gone"), "{ran:?}");
}

/// Without the right to BF.INFO nobody can tell whether the filter forgets.
#[test]
fn a_window_that_may_not_be_seen_is_not_taken_for_none() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("BF.RESERVE day 0.01 1000 WINDOW EX 86400"), ok());
    let rights = "+bf.bulkadd +bf.insert +type +info +time +hgetall";
    client.run(&format!("ACL SETUSER adder on >secret ~* -@all {rights}"));
    let ran = load(&server, "day", "--user adder --pass secret --window 24h");
    refused(&ran, 4, "day: whether it has the window is unknown");
    assert!(ran.stderr.contains("+bf.info"), "{ran:?}");
    assert_eq!(client.run("BF.CARD day"), int(0));
    load(&server, "day", "--user adder --pass secret").done();
    assert_eq!(client.run("BF.CARD day"), int(3));
}

/// BF.ADD of another client was faster than the BF.RESERVE of the load.
#[test]
fn a_filter_that_came_meanwhile_is_looked_at() {
    let asked = AtomicUsize::new(0);
    let server = Fake::start(move |command| {
        let words: Vec<_> = command.splitn(5, ' ').collect();
        match words[..] {
            ["HGETALL", ..] => "*0\r\n".to_owned(),
            ["INFO", ..] => "$8\r\nrun_id:1\r\n".to_owned(),
            ["BF.RESERVE", ..] => {
                asked.fetch_add(1, Ordering::SeqCst);
                "-ERR item exists\r\n".to_owned()
            }
            ["BF.INFO", ..] if asked.load(Ordering::SeqCst) == 0 => "-ERR not found\r\n".to_owned(),
            ["BF.INFO", _, "ITEMS"] => array(&[":1"]),
            ["BF.INFO", ..] => array(&["$-1"]),
            ["BF.FORGET", ..] => "-ERR wrong number of arguments\r\n".to_owned(),
            ["BF.BULKADD", .., ""] => "*2\r\n:0\r\n$0\r\n\r\n".to_owned(),
            _ => "-ERR no\r\n".to_owned(),
        }
    });
    let mut load = command();
    load.args(["-p", &server.port.to_string()]);
    load.args("load seen --items 10 --error 1% --window 24h".split(' '));
    let ran: Ran = load.output().expect("the tool runs").into();
    refused(&ran, 2, "seen is there, and has no window");
    let commands = server.commands();
    assert!(commands.iter().any(|command| command.starts_with("BF.RESERVE")), "{commands:?}");
    assert!(!commands.iter().any(|command| command.starts_with("BF.BULKADD")), "{commands:?}");
}
