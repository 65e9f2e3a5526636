//! Log lines that name the limit behind a refusal, which the error text for clients does not.

use std::time::Instant;

use crate::harness::{Server, add_until_card, config_name, err, ok};

#[test]
fn errors_of_clients_do_not_flood_the_log() {
    let server = Server::start();
    let client = &mut server.client();
    let begun = Instant::now();
    for _ in 0..30 {
        assert!(client.run("BF.RESERVE k 1e-15 4611686018427387904").is_error());
    }
    let seconds = begun.elapsed().as_secs() as usize;
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("a new filter refused")).count();
    assert!((10..=11 + seconds).contains(&lines), "{log}");
}

#[test]
fn the_limit_that_refused_a_new_filter_is_logged() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.cmd(&["CONFIG", "SET", &config_name("max-filter-bytes"), "100kb"]), ok());
    assert!(client.run("BF.RESERVE large 0.01 100000").is_error());
    let log = server.log();
    assert!(log.contains("a new filter refused: a filter of "), "{log}");
    assert!(log.contains(" bytes passes the ceiling of 102400 bytes"), "{log}");
}

#[test]
fn the_limit_that_kept_a_filter_from_growing_is_logged() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.cmd(&["CONFIG", "SET", &config_name("max-filter-bytes"), "2kb"]), ok());
    assert_eq!(client.run("BF.RESERVE k 0.01 1000"), ok());
    add_until_card(client, "k", "item", 1_000);
    assert_eq!(client.run("BF.ADD k another"), err("ERR problem inserting into filter"));
    let log = server.log();
    assert!(log.contains("a full filter could not grow: a filter of "), "{log}");
    assert!(log.contains(" bytes passes the ceiling of 2048 bytes"), "{log}");
}

#[test]
fn a_filter_beyond_addressable_memory_is_logged() {
    let server = Server::start();
    let client = &mut server.client();
    assert!(client.run("BF.RESERVE k 1e-15 4611686018427387904").is_error());
    let log = server.log();
    assert!(
        log.contains("a filter of more bytes than can be addressed passes the ceiling of "),
        "{log}"
    );
}
