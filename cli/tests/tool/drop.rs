//! `redis-bloom drop`.

use crate::{
    fake::Fake,
    harness::{Server, dump, int, load, ok},
    relay::{Before, relayed},
    run::{Ran, run, run_at},
};

#[test]
fn drop_removes_a_filter_and_nothing_else() {
    let server = Server::start();
    let mut client = server.client();
    client.run("BF.RESERVE urls 0.01 1000");
    client.run("SET text value");

    let ran = run_at(&server, "drop urls");
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", "urls removed\n"));
    assert_eq!(client.run("EXISTS urls"), int(0));

    let ran = run_at(&server, "drop urls");
    assert_eq!(ran.code, 4);
    assert_eq!(
        ran.stderr,
        "redis-bloom: drop urls: ERR not found\n  \
         There is no filter of this name; `top --once` shows all.\n"
    );
    let ran = run_at(&server, "drop text");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert_eq!(client.run("EXISTS text"), int(1));
}

/// A server without memory refuses every command of a transaction, also one that frees memory.
#[test]
fn drop_frees_memory_where_there_is_none() {
    let server = Server::start();
    let mut client = server.client();
    client.run("BF.RESERVE urls 0.001 1000000");
    let limit = client.memory("used_memory") + (1 << 20);
    client.run(&format!("CONFIG SET maxmemory {limit}"));
    let text = "x".repeat(10_000);
    let full = (0..1_000).any(|key| client.run(&format!("SET text{key} {text}")).is_error());
    assert!(full, "there is memory");
    let ran = run_at(&server, "drop urls");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "urls removed\n"));
    assert_eq!(client.run("EXISTS urls"), int(0));
}

/// EXEC does nothing if a key has changed since WATCH.
#[test]
fn a_key_that_changes_all_the_time_is_not_removed_unseen() {
    let fake = Fake::start(|command| {
        let reply = match command.split(' ').next() {
            Some("HGETALL") => "-WRONGTYPE Operation against a key\r\n",
            Some("CLUSTER") => "-ERR This instance has cluster support disabled\r\n",
            Some("TYPE") => "+MBbloom--\r\n",
            Some("EXEC") => "*-1\r\n",
            _ => "+OK\r\n",
        };
        reply.to_owned()
    });
    let ran = run(&format!("-p {} drop urls", fake.port));
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("the key changes all the time"), "{ran:?}");
    let commands = fake.commands();
    let unlinked = |pair: &&[String]| pair[1] == "UNLINK urls";
    assert!(commands.windows(2).filter(unlinked).count() > 20);
    assert!(commands.windows(2).filter(unlinked).all(|pair| pair[0] == "MULTI"));
}

#[test]
fn drop_removes_a_filter_that_is_still_being_loaded() {
    let server = Server::start();
    let mut client = server.client();
    client.run("BF.RESERVE whole 0.01 1000");
    let pieces = dump(&mut client, "whole");
    load(&mut client, "half", &pieces[0]);
    assert!(client.run("BF.INFO half").is_error());
    let user = "ACL SETUSER dropper on >secret ~* -@all +type +unlink";
    client.run(user);
    let words = "--user dropper --pass secret drop half";
    assert_eq!(run_at(&server, words).code, 0);
    assert_eq!(client.run("EXISTS half"), int(0));
    assert_eq!(run_at(&server, "--user dropper --pass secret drop whole").code, 0);
    assert_eq!(client.run("EXISTS whole"), int(0));
    assert_eq!(run_at(&server, words).code, 4);
    client.run("SET text value");
    assert_eq!(run_at(&server, "--user dropper --pass secret drop text").code, 4);
    assert_eq!(client.run("EXISTS text"), int(1));
    // Without the right to UNLINK nothing is removed.
    client.run("ACL SETUSER dropper -unlink");
    client.run("BF.RESERVE whole 0.01 1000");
    let ran = run_at(&server, "--user dropper --pass secret drop whole");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert_eq!(client.run("EXISTS whole"), int(1));
}

/// Another client puts a string in the place of the filter, or of a shard, before each command of a
/// drop.
#[test]
fn drop_never_removes_what_took_the_place_of_a_filter() {
    let server = Server::start();
    let mut client = server.client();
    for shards in ["", "--shards 2"] {
        let mut at = 0;
        loop {
            client.run("FLUSHALL");
            run_at(&server, &format!("create urls --items 1k --error 1% {shards}")).done();
            let key = match shards {
                "" => "urls".to_owned(),
                _ => client.run("HGET urls 0").text(),
            };
            let before = Before { after: "", command: at };
            let run = relayed(&server, server.dir(), "drop urls", before, |_| {
                client.run(&format!("SET {key} text")) == ok()
            });
            if !run.reached {
                break;
            }
            let ran = Ran::from(run.output);
            assert_eq!(client.run(&format!("GET {key}")).text(), "text", "{key} {at}: {ran:?}");
            at += 1;
        }
        assert!(at > 3, "{at} commands");
    }
}

#[test]
fn drop_needs_one_name_and_a_server() {
    assert_eq!(run("drop").code, 2);
    assert_eq!(run("drop a b").code, 2);
    assert_eq!(run("-p 1 drop a").code, 3);
}
