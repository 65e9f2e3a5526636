//! `redis-bloom create`.

use crate::{
    harness::{Server, free_port, int, null, ok, simple, skipped},
    run::{run, run_at},
    schema::checked,
};

/// A server with RedisBloom from the environment; reports a skipped test if there is none.
pub(crate) fn redisbloom(test: &str) -> Option<Server> {
    const VARIABLE: &str = "REDIS_BLOOM_PEER_REDISBLOOM";
    let module = std::env::var_os(VARIABLE);
    if module.is_none() {
        skipped(test, &format!("{VARIABLE} names no module"));
    }
    Some(Server::with().module_at(module?.as_ref()).start())
}

#[test]
fn create_makes_a_filter_and_says_what() {
    let server = Server::start();
    let mut client = server.client();
    let text = run_at(&server, "create urls --items 10M --error 0.1%").done();
    assert_eq!(text, "urls created: 10.0 M items at 0.1 %, 19.4 MB, 15.53 bits an item\n");
    assert_eq!(client.run("BF.INFO urls CAPACITY").elements()[0], int(10_000_000));
    assert_eq!(client.run("BF.INFO urls EXPANSION").elements()[0], int(2));
    assert_eq!(client.run("BF.INFO urls ERROR").elements()[0].text(), "0.001");

    run_at(&server, "create once --items 100 --error 0.01 --nonscaling").done();
    assert_eq!(client.run("BF.INFO once EXPANSION").elements()[0], null());
    run_at(&server, "create wide --items 100 --error 0.01 --expansion 4").done();
    assert_eq!(client.run("BF.INFO wide EXPANSION").elements()[0], int(4));

    let json = run_at(&server, "create undo --items 1k --error 1e-9 --counting --json").done();
    let lines = checked("create", &json);
    assert_eq!(lines[0]["module"], "redis-bloom");
    assert_eq!(client.run("BF.INFO undo SATURATED").elements()[0], int(0));
    let size = client.run("BF.INFO undo SIZE").elements()[0].int();
    assert_eq!(lines[0]["bytes"], size);
}

#[test]
fn create_ends_with_the_right_code() {
    let server = Server::start();
    let mut client = server.client();
    client.run("SET text value");
    run_at(&server, "create urls --items 100 --error 0.01").done();
    let ran = run_at(&server, "create urls --items 100 --error 0.01");
    assert_eq!((ran.code, &*ran.stdout), (4, ""), "{ran:?}");
    assert!(
        ran.stderr.ends_with(": ERR item exists\n  Drop the filter first, or use another name.\n"),
        "{ran:?}"
    );
    assert_eq!(run_at(&server, "create text --items 100 --error 0.01").code, 4);
    assert_eq!(client.run("GET text").text(), "value");
    for wrong in [
        "create",
        "create new --items 100",
        "create new --items 0 --error 0.1",
        "create new --items 10 --error 2",
        "create new --items 10 --error 0.1 --expansion 2 --nonscaling",
        "create new --items 10 --error 0.1 --seed 1",
    ] {
        assert_eq!(run_at(&server, wrong).code, 2, "{wrong}");
    }
    assert_eq!(client.run("EXISTS new"), int(0));
    let nowhere = free_port();
    let ran = run(&format!("-p {nowhere} create new --items 10 --error 0.1"));
    assert_eq!(ran.code, 3, "{ran:?}");
}

#[test]
fn a_user_who_may_not_read_creates_a_filter() {
    let server = Server::start();
    let mut client = server.client();
    let user = "ACL SETUSER writer on >secret ~* -@all +bf.reserve";
    assert_eq!(client.run(user), ok());
    let ran = run_at(&server, "--user writer --pass secret create urls --items 100 --error 0.01");
    assert_eq!((ran.code, &*ran.stdout), (0, "urls created: 100 items at 1 %\n"), "{ran:?}");
    let json = "--user writer --pass secret create more --items 100 --error 0.01 --json";
    let lines = checked("create", &run_at(&server, json).done());
    assert!(lines[0]["bytes"].is_null(), "{}", lines[0]);
    assert_eq!(client.run("TYPE urls"), simple("MBbloom--"));
    let ran = run_at(&server, "--user writer --pass secret info urls");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("NOPERM"), "{ran:?}");
}

#[test]
fn create_works_on_redisbloom() {
    let Some(server) = redisbloom("create_works_on_redisbloom") else { return };
    let mut client = server.client();
    let text = run_at(&server, "create urls --items 1000 --error 0.01").done();
    assert!(text.starts_with("urls created: 1.00 k items at 1 %, "), "{text}");
    let ran = run_at(&server, "create urls --items 1000 --error 0.01");
    assert_eq!(ran.code, 4, "{ran:?}");
    let ran = run_at(&server, "create undo --items 1000 --error 0.01 --counting");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("no filters with counters"), "{ran:?}");
    assert_eq!(client.run("EXISTS undo"), int(0));
    let lines = checked(
        "create",
        &run_at(&server, "create fix --items 1000 --error 0.01 --nonscaling --json").done(),
    );
    assert_eq!(lines[0]["module"], "RedisBloom");
    let size = client.run("BF.INFO fix SIZE").elements()[0].int();
    assert_eq!(lines[0]["bytes"], size);
}
