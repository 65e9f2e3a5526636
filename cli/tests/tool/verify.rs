//! `redis-bloom verify`.

use crate::{
    check::redisbloom,
    fake::{Fake, array},
    harness::Server,
    run::{run, run_at},
    schema::checked,
};

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
    // The first layer of a filter that may grow is made for 0.75 %. Of 40,000 probes 300 are
    // positive then, and the filter fails from 440 on, 8 standard deviations away; of 10,000 probes
    // 75, and it fails from 120 on, 5 standard deviations away.
    server.client().run("BF.RESERVE urls 0.01 10000 SEED 7");
    add(&server, &lines("https://example.com/", 10_000));
    // The least rights that docs/reference/cli.md lists.
    let rights = "ACL SETUSER reader on >secret resetkeys %R~urls -@all +bf.bulkexists +bf.info";
    server.client().run(rights);
    let ran = run_at(&server, "verify urls --user reader --pass secret");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    // The rate is measured with random items, so only the form is fixed.
    let (start, end) = ran.stdout.split_once(" % positive (").expect("a rate");
    let rate = start.strip_prefix("40,000 probes: ").expect("probes");
    assert!(rate.parse::<f64>().is_ok(), "{ran:?}");
    let interval = end.strip_prefix("configured 1 %, 95 %: ").expect("the configured rate");
    assert!(interval.ends_with(" %)\n") && interval.contains(" to "), "{ran:?}");

    server.client().run("BF.ADD small a");
    let ran = run_at(&server, "verify small --probes 1k");
    assert!(ran.done().starts_with("1,000 probes: "));
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
    assert!(ran.stdout.contains("configured 0.25 %, 95 %: "), "{ran:?}");
    assert!(ran.stdout.ends_with(" %): TOO HIGH\n"), "{ran:?}");

    let ran = run_at(&server, "verify urls --error 0.25% --json");
    let report: serde_json::Value = checked("verify", &ran.stdout).remove(0);
    assert_eq!((ran.code, &report["passed"]), (1, &false.into()));
    assert_eq!(report["probes"], 160_000);
    assert_eq!(report["error_rate"], 0.0025);
    let number = |name: &str| report[name].as_f64().expect("a number");
    assert!(number("rate_low") < number("rate") && number("rate") < number("rate_high"));
    assert_eq!(number("positives") / 160_000.0, number("rate"));
    assert_eq!(report["name"], "urls");
}

/// A server that does not tell the configured rate: nothing is compared.
#[test]
fn an_unknown_error_rate_is_no_pass() {
    let fields = ["Capacity", ":100", "Size", ":208", "Number of filters", ":1"];
    let more = ["Number of items inserted", ":5", "Expansion rate", "$-1"];
    let info = array(&[&fields[..], &more].concat());
    let fake = Fake::start(move |command| match command.split(' ').collect::<Vec<_>>()[..] {
        ["BF.INFO", "urls"] => info.clone(),
        ["HGETALL", ..] => "-WRONGTYPE Operation against a key\r\n".to_owned(),
        ["BF.INFO", ..] => "-NOPERM no permissions\r\n".to_owned(),
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
    assert_eq!(run_at(&server, "-p 1 verify urls").code, 2, "two ports");
}

#[test]
fn counting_and_grown_filters_are_verified() {
    let server = Server::start();
    let mut client = server.client();
    let text = lines("", 5_000);
    for options in ["5000 COUNTING", "100", "5000 NONSCALING"] {
        client.run("DEL urls");
        client.run(&format!("BF.RESERVE urls 0.01 {options} SEED 3"));
        add(&server, &text);
        // 8,000 probes. At the highest rate, 1 %, 80 are positive, and it fails from 440 on.
        let ran = run_at(&server, "verify urls --error 5%");
        assert_eq!(ran.code, 0, "{options}: {ran:?}");
    }
}

#[test]
fn redisbloom_is_verified() {
    let Some(server) = redisbloom("verify::redisbloom_is_verified") else { return };
    server.client().run("BF.RESERVE urls 0.01 2000");
    add(&server, &lines("", 1_000));
    let ran = run_at(&server, "verify urls --error 0.01");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.starts_with("40,000 probes: "), "{ran:?}");
}
