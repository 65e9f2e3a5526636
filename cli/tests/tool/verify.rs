//! `redis-bloom verify`.

use std::{fs, path::Path};

use crate::{
    check::redisbloom,
    fake::{Fake, array},
    harness::{Server, int, ok},
    relay::{Before, relayed},
    run::{Ran, command_at, run, run_at},
    schema::checked,
};

/// Runs `verify urls` with the items of a file.
fn verify(server: &Server, file: &Path, words: &str) -> Ran {
    let mut command = command_at(server, "verify urls --file");
    command.arg(file).args(words.split_whitespace());
    command.output().expect("the tool runs").into()
}

fn lines(prefix: &str, count: usize) -> String {
    (0..count).map(|number| format!("{prefix}{number}\n")).collect()
}

/// Adds lines to `urls`.
fn add(server: &Server, text: &str) {
    let items: Vec<_> = text.lines().collect();
    for items in items.chunks(1_000) {
        let reply = server.client().call("BF.MADD", "urls", items);
        assert_eq!(reply.elements().len(), items.len());
    }
}

#[test]
fn a_full_filter_passes() {
    let server = Server::start();
    let file = server.dir().join("items");
    let text = lines("https://example.com/", 10_000);
    fs::write(&file, &text).unwrap();
    // The first layer of a filter that may grow is made for 0.75 %. Of 40,000 probes 300 are
    // positive then, and the filter fails from 440 on, 8 standard deviations away; of 10,000 probes
    // 75, and it fails from 120 on, 5 standard deviations away.
    server.client().run("BF.RESERVE urls 0.01 10000 SEED 7");
    add(&server, &text);
    let ran = verify(&server, &file, "");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    // The rate is measured with random items, so only the form is fixed.
    let (start, end) = ran.stdout.split_once(" % positive (").expect("a rate");
    let rate = start.strip_prefix("10,000 items: all present.  40,000 probes: ").expect("probes");
    assert!(rate.parse::<f64>().is_ok(), "{ran:?}");
    let interval = end.strip_prefix("asked 1 %, 95 %: ").expect("the asked rate");
    assert!(interval.ends_with(" %)\n") && interval.contains(" to "), "{ran:?}");

    let ran = verify(&server, &file, "--probes 0");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "10,000 items: all present.\n"));
    server.client().run("BF.ADD small a");
    let ran = run_at(&server, "verify small --probes 1k");
    assert!(ran.done().starts_with("1,000 probes: "));
    let ran = run_at(&server, "verify urls --rate-within 10%");
    assert!(ran.done().starts_with("10,000 probes: "));
}

#[test]
fn lost_items_are_shown() {
    let server = Server::start();
    let mut client = server.client();
    let file = server.dir().join("items");
    client.run("BF.RESERVE urls 1e-9 10000");
    add(&server, &lines("old", 100));
    let mut text = lines("old", 100).into_bytes();
    text.extend(b"\xff \\\"\n\n");
    text.extend(lines("new", 10).bytes());
    fs::write(&file, &text).unwrap();
    let ran = verify(&server, &file, "--probes 0");
    let expected = "112 items: 12 LOST.\nlost: \\xff \\\\\\\"\nlost: \nlost: new0\nlost: new1\n\
                    lost: new2\nlost: new3\nlost: new4\nlost: new5\nlost: new6\nlost: new7\n\
                    lost: 2 more\n";
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (1, expected, ""));
    assert_eq!(client.run("BF.CARD urls"), int(100), "nothing was added");

    let ran = verify(&server, &file, "--probes 0 --json");
    let report: serde_json::Value = checked("verify", &ran.stdout).remove(0);
    assert_eq!((&report["lost"], &report["passed"]), (&12.into(), &false.into()), "{ran:?}");
    assert_eq!(report["lost_items"].as_array().map(Vec::len), Some(10));
    // The least rights that docs/reference/cli.md lists.
    client.run("ACL SETUSER reader on >secret resetkeys %R~urls -@all +bf.bulkexists +bf.info");
    let ran = verify(&server, &file, "--user reader --pass secret --probes 0");
    assert_eq!((ran.code, ran.stdout.as_str()), (1, expected), "{ran:?}");
}

/// `--error` asks the filter for a rate that is lower than the one it was made for.
#[test]
fn a_rate_above_what_was_asked_fails() {
    let server = Server::start();
    server.client().run("BF.RESERVE urls 0.01 10000 SEED 7");
    add(&server, &lines("", 10_000));
    // The rate is about 0.75 % (above). 160,000 probes give some 1,200 positives. With 0.25 % they
    // would be 400, and the filter fails from 440 on: 22 standard deviations below 1,200.
    let ran = run_at(&server, "verify urls --error 0.25%");
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""), "{ran:?}");
    assert!(ran.stdout.starts_with("160,000 probes: "), "{ran:?}");
    assert!(ran.stdout.contains("asked 0.25 %, 95 %: "), "{ran:?}");
    assert!(ran.stdout.ends_with(" %): TOO HIGH\n"), "{ran:?}");

    let ran = run_at(&server, "verify urls --error 0.25% --json");
    let report: serde_json::Value = checked("verify", &ran.stdout).remove(0);
    assert_eq!((ran.code, &report["passed"]), (1, &false.into()));
    assert_eq!(report["probes"], 160_000);
    assert_eq!(report["asked_rate"], 0.0025);
    let number = |name: &str| report[name].as_f64().expect("a number");
    assert!(number("rate_low") < number("rate") && number("rate") < number("rate_high"));
    assert_eq!(number("positives") / 160_000.0, number("rate"));
    assert!(number("estimated_rate") > 0.007, "{report}");
    assert_eq!(report["name"], "urls");
    assert!(report.get("items").is_none(), "{report}");
}

#[test]
fn a_rare_rate_has_an_upper_bound_and_an_estimate() {
    let server = Server::start();
    server.client().run("BF.RESERVE urls 1e-7 1000");
    add(&server, &lines("", 1_000));
    let text = run_at(&server, "verify urls --probes 10000").done();
    assert!(text.starts_with("10,000 probes: 0 positive, at most 0.0367 % ("), "{text}");
    assert!(text.contains("(asked 0.00001 %, 95 %: 0 to 0.0367 %), by its bits "), "{text}");
}

/// Another filter takes the place of the filter, or of a shard, before each command.
#[test]
fn a_filter_that_is_replaced_is_not_verified() {
    let server = Server::start();
    let mut client = server.client();
    let file = server.dir().join("items");
    fs::write(&file, lines("", 100)).expect("a file");
    for (create, shard) in [
        ("create urls --items 1k --error 1%", ""),
        ("create urls --items 1k --error 1% --shards 2", "SHARD 1 2"),
    ] {
        let mut at = 0;
        loop {
            client.run("FLUSHALL");
            run_at(&server, create).done();
            run_at(&server, &format!("load urls --restart {}", file.display())).done();
            let key = match shard {
                "" => "urls".to_owned(),
                _ => client.run("HGET urls 1").text(),
            };
            let before = Before { after: "", command: at };
            let words = "verify urls --file items --probes 100";
            let run = relayed(&server, server.dir(), words, before, |_| {
                client.run(&format!("DEL {key}"));
                client.run(&format!("BF.RESERVE {key} 0.01 1000 {shard}")) == ok()
            });
            let ran = Ran::from(run.output);
            if !run.reached {
                assert_eq!(ran.code, 0, "{key}: {ran:?}");
                break;
            }
            assert!([1, 5].contains(&ran.code), "{key}, command {at}: {ran:?}");
            at += 1;
        }
        assert!(at > 5, "{at} commands");
    }
}

/// A server that does not tell the asked rate: nothing is compared.
#[test]
fn an_unknown_asked_rate_is_no_pass() {
    let fields = ["Capacity", ":100", "Size", ":208", "Number of filters", ":1"];
    let more = ["Number of items inserted", ":5", "Expansion rate", "$-1"];
    let info = array(&[&fields[..], &more].concat());
    let fake = Fake::start(move |command| match command.split(' ').collect::<Vec<_>>()[..] {
        ["BF.INFO", "urls"] => info.clone(),
        ["HGETALL", ..] => "-WRONGTYPE Operation against a key\r\n".to_owned(),
        ["BF.INFO", ..] | ["BF.DEBUG", ..] => "-NOPERM no permissions\r\n".to_owned(),
        ["BF.BULKEXISTS", ..] => "-ERR unknown command\r\n".to_owned(),
        ["BF.MEXISTS", ..] => array(&[":0"]),
        _ => "+OK\r\n".to_owned(),
    });
    let verify = |words: &str| run(&format!("-p {} verify urls {words}", fake.port));
    let ran = verify("--probes 1");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.stderr, "No rate to compare with: name it by --error.\n");
    let ran = verify("--probes 1 --json");
    assert_eq!(checked("verify", &ran.stdout)[0]["passed"], serde_json::Value::Null);
    let ran = verify("--probes 1 --json --error 50%");
    assert_eq!(checked("verify", &ran.stdout)[0]["passed"], true);
    assert_eq!(ran.stderr, "");
    // What compares nothing is no question.
    let ran = verify("--probes 0");
    assert_eq!(ran.code, 2, "{ran:?}");
}

#[test]
fn errors_have_their_exit_codes() {
    let server = Server::start();
    server.client().run("BF.ADD urls a");
    server.client().run("SET text value");
    let ran = run_at(&server, "verify missing");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("ERR not found"), "{ran:?}");
    assert_eq!(run_at(&server, "verify text").code, 4);
    let ran = run_at(&server, "verify urls --file /nonexistent/items");
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    assert_eq!(run_at(&server, "verify urls --rate-within 0").code, 2);
    assert_eq!(run_at(&server, "-p 1 verify urls").code, 2, "two ports");
}

#[test]
fn counting_and_grown_filters_are_verified() {
    let server = Server::start();
    let mut client = server.client();
    let file = server.dir().join("items");
    let text = lines("", 5_000);
    fs::write(&file, &text).unwrap();
    for options in ["5000 COUNTING", "100", "5000 NONSCALING"] {
        client.run("DEL urls");
        client.run(&format!("BF.RESERVE urls 0.01 {options} SEED 3"));
        add(&server, &text);
        // 8,000 probes. At the highest rate, 1 %, 80 are positive, and it fails from 440 on.
        let ran = verify(&server, &file, "--error 5%");
        assert_eq!(ran.code, 0, "{options}: {ran:?}");
        assert!(ran.stdout.starts_with("5,000 items: all present.  "), "{ran:?}");
    }
}

#[test]
fn redisbloom_is_verified() {
    let Some(server) = redisbloom("verify::redisbloom_is_verified") else { return };
    let file = server.dir().join("items");
    let text = lines("", 1_000);
    fs::write(&file, &text).unwrap();
    server.client().run("BF.RESERVE urls 0.01 2000");
    add(&server, &text);
    let ran = verify(&server, &file, "--error 0.01");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.starts_with("1,000 items: all present.  40,000 probes: "), "{ran:?}");
    fs::write(&file, "new\n").unwrap();
    assert_eq!(verify(&server, &file, "--probes 0").code, 1);
}
