//! `redis-bloom info`.

use crate::{
    create::redisbloom,
    fake::{Fake, array},
    harness::{Client, Server, config_name, madd, numbered, ok},
    run::{run, run_at},
    schema::checked,
};

/// A filter of bits with pages above them, and an empty one of counters, whose seeds are known.
pub(crate) fn two_filters(client: &mut Client) {
    assert_eq!(client.run("BF.RESERVE grown 0.01 200 SEED 1"), ok());
    assert_eq!(client.run("BF.RESERVE undo 0.001 1000 COUNTING NONSCALING SEED 1"), ok());
    for items in numbered("item", 500).chunks(100) {
        madd(client, "grown", items);
    }
}

#[test]
fn info_shows_everything_about_a_filter() {
    let server = Server::start();
    two_filters(&mut server.client());
    let ran = run_at(&server, "info grown undo");
    assert_eq!((ran.code, &*ran.stderr), (0, ""));
    assert_eq!(ran.stdout, include_str!("golden/info.txt"));
}

/// The list of docs/guide/migration.md: filters that cannot go back to RedisBloom.
#[test]
fn the_layout_of_a_filter_is_shown() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.ADD own a");
    client.cmd(&["CONFIG", "SET", &config_name("layout"), "redisbloom"]);
    client.run("BF.ADD theirs a");
    assert!(!run_at(&server, "info own").done().contains("layout "));
    let text = run_at(&server, "info theirs").done();
    assert!(text.contains("  layout            redisbloom\n"), "{text}");
    let lines = run_at(&server, "--json top --once").done();
    let native: Vec<_> =
        lines.lines().filter(|line| !line.contains(r#""layout":"redisbloom""#)).collect();
    assert_eq!(native.len(), 1, "{lines}");
    assert!(native[0].contains(r#""name":"own""#), "{lines}");
}

#[test]
fn info_in_json_has_the_fields_of_the_schema() {
    let server = Server::start();
    two_filters(&mut server.client());
    let lines = checked("info", &run_at(&server, "info grown undo --json").done());
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["name"], "grown");
    assert_eq!((&lines[0]["cells"], &lines[0]["layout"]), (&"bits".into(), &"native".into()));
    assert_eq!(lines[0]["layer_count"], 2);
    assert_eq!(lines[0]["expansion"], 2);
    assert_eq!(lines[1]["cells"], "counters");
    assert!(lines[1]["expansion"].is_null());
    // A name that is not UTF-8.
    server.client().cmd(&[&b"BF.ADD"[..], b"\xff\n", b"item"]);
    let lines = checked("top", &run_at(&server, "info --json").done());
    assert!(lines.iter().any(|line| line["name_hex"] == "ff0a"), "{lines:?}");
    let text = run_at(&server, "info").done();
    assert!(text.contains("\n\\xff\\n "), "{text}");
}

#[test]
fn info_of_what_is_no_filter_ends_with_4() {
    let server = Server::start();
    let mut client = server.client();
    two_filters(&mut client);
    client.run("SET text value");
    let ran = run_at(&server, "info nothing undo text");
    assert_eq!(ran.code, 4);
    assert!(ran.stdout.starts_with("undo\n  module"), "{}", ran.stdout);
    assert_eq!(
        ran.stderr,
        "redis-bloom: BF.INFO nothing: ERR not found\n  \
         There is no filter of this name; create it first.\n\
         redis-bloom: BF.INFO text: WRONGTYPE Operation against a key holding the wrong kind of \
         value\n  The key is not a Bloom filter; use another name.\n"
    );
    assert_eq!(run("-p 1 info x").code, 3);
    assert_eq!(run("info --wrong").code, 2);
    let ran = run_at(&server, "info");
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.starts_with("NAME "), "{}", ran.stdout);
}

#[test]
fn info_shows_what_redisbloom_says() {
    let Some(server) = redisbloom("info_shows_what_redisbloom_says") else { return };
    let mut client = server.client();
    assert_eq!(client.run("BF.RESERVE urls 0.01 100"), ok());
    madd(&mut client, "urls", &numbered("item", 250));
    let lines = checked("info", &run_at(&server, "info urls --json").done());
    let line = &lines[0];
    assert_eq!((&line["module"], &line["cells"]), (&"RedisBloom".into(), &"bits".into()));
    assert_eq!(line["layer_count"], 2);
    assert_eq!(line["items"], client.run("BF.CARD urls").int());
    assert!(line["rate_now"].is_null());
    let text = run_at(&server, "info urls").done();
    assert!(text.contains("\n  module            RedisBloom\n"), "{text}");
    let lines = checked("top", &run_at(&server, "top --json").done());
    assert_eq!(lines[0]["name"], "urls");
}

/// valkey-bloom 1.0 has eight fields and other words.
#[test]
fn info_shows_what_valkey_bloom_says() {
    let fake = Fake::start(|command| match command {
        "BF.INFO urls" => array(&[
            "Capacity",
            ":1000",
            "Size",
            ":1879",
            "Number of filters",
            ":1",
            "Number of items inserted",
            ":7",
            "Error rate",
            "0.01",
            "Expansion rate",
            ":2",
            "Tightening ratio",
            "0.5",
            "Max scaled capacity",
            ":26214300",
        ]),
        "CLIENT SETNAME redis-bloom" => "+OK\r\n".to_owned(),
        other => format!("-ERR unknown command '{other}'\r\n"),
    });
    let text = run(&format!("-p {} info urls", fake.port)).done();
    assert_eq!(text, include_str!("golden/info-valkey-bloom.txt"));
    let lines = checked("info", &run(&format!("-p {} info urls --json", fake.port)).done());
    assert_eq!(lines[0]["module"], "valkey-bloom");
    let asked: Vec<_> =
        fake.commands().into_iter().filter(|asked| asked.starts_with("BF.")).collect();
    assert_eq!(asked, ["BF.INFO urls", "BF.INFO urls"], "no command in vain");
}

/// A reply that makes no sense ends with an error, not with a panic.
#[test]
fn nonsense_of_a_server_is_an_error() {
    for reply in [
        "+OK\r\n",
        "*0\r\n",
        "*1\r\n:1\r\n",
        "$-1\r\n",
        ":5\r\n",
        "*2\r\n$8\r\nCapacity\r\n$1\r\nx\r\n",
    ] {
        let fake = Fake::start(move |_| reply.to_owned());
        let ran = run(&format!("-p {} info urls", fake.port));
        assert_eq!((ran.code, &*ran.stdout), (4, ""), "{reply:?}: {ran:?}");
        assert!(ran.stderr.contains("unexpected reply"), "{reply:?}: {ran:?}");
    }
}
