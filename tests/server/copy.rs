//! COPY and DEBUG DIGEST must cover every bit of a filter. RedisBloom refuses COPY and has no
//! digest.

use crate::harness::{Client, Server, add_until_card, err, info, int, mexists, numbered, ok};

#[track_caller]
fn digest(client: &mut Client, key: &str) -> String {
    client.cmd(&["DEBUG", "DIGEST-VALUE", key]).elements()[0].text()
}

#[test]
fn a_copy_is_identical_and_independent() {
    let server = Server::start();
    let client = &mut server.client();
    for (key, options, card) in [
        ("empty", "0.01 100", 0),
        ("small", "0.01 100", 70),
        ("grown", "0.01 100", 4_000),
        ("full", "1e-9 500 NONSCALING", 500),
        ("narrow", "0.01 1 EXPANSION 1", 200),
        ("counting", "0.01 100 COUNTING", 70),
        ("counting_grown", "0.01 100 COUNTING", 2_000),
        ("counting_full", "1e-9 500 NONSCALING COUNTING", 500),
        ("shard", "0.01 100 SHARD 0 1", 2_000),
    ] {
        assert_eq!(client.run(&format!("BF.RESERVE {key} {options}")), ok());
        let items = add_until_card(client, key, "item", card);
        let before = client.cmd(&["DUMP", key]);
        assert_eq!(client.cmd(&["COPY", key, "copy", "REPLACE"]), int(1), "{key}");
        for command in ["DUMP", "BF.DEBUG", "BF.INFO", "BF.CARD"] {
            assert_eq!(
                client.cmd(&[command, "copy"]),
                client.cmd(&[command, key]),
                "{command} {key}"
            );
        }
        assert_eq!(digest(client, "copy"), digest(client, key), "{key}");
        assert!(mexists(client, "copy", &items).iter().all(|&there| there), "{key}");
        // A change of one does not change the other.
        if info(client, key).expansion.is_some() {
            client.call("BF.MADD", "copy", &numbered("more", 300));
        } else {
            assert_eq!(client.run("BF.ADD copy absent"), err("ERR non scaling filter is full"));
        }
        assert_eq!(client.cmd(&["DUMP", key]), before, "{key}");
        client.cmd(&["DEL", key]);
        assert!(
            mexists(client, "copy", &items).iter().all(|&there| there),
            "the copy of {key} after DEL"
        );
    }
}

/// One different item, seed or parameter gives another digest.
#[test]
fn the_digest_shows_every_difference() {
    let server = Server::start();
    let client = &mut server.client();
    let make = |client: &mut Client, options: &str, items: &str| {
        client.run("DEL k");
        assert_eq!(client.run(&format!("BF.RESERVE k {options}")), ok(), "{options}");
        client.run(&format!("BF.MADD k {items}"));
        digest(client, "k")
    };
    let first = make(client, "0.01 1000 SEED 1", "a b c");
    assert_eq!(make(client, "0.01 1000 SEED 1", "a b c"), first, "the same filter again");
    assert_eq!(
        make(client, "0.01 1000 SEED 1", "c a b b"),
        first,
        "the same items in another order"
    );
    for (options, items) in [
        ("0.01 1000 SEED 2", "a b c"),
        ("0.01 1001 SEED 1", "a b c"),
        ("0.02 1000 SEED 1", "a b c"),
        ("0.01 1000 EXPANSION 3 SEED 1", "a b c"),
        ("0.01 1000 COUNTING SEED 1", "a b c"),
        ("0.01 1000 SEED 1 SHARD 0 1", "a b c"),
        ("0.01 1000 SEED 1", "a b d"),
        ("0.01 1000 SEED 1", "a b"),
        ("0.01 1000 SEED 1", "a b c d"),
    ] {
        assert_ne!(make(client, options, items), first, "{options} with {items}");
    }
    let before = digest(client, "k");
    assert_eq!(client.run("DEBUG RELOAD"), ok());
    assert_eq!(digest(client, "k"), before, "a reload changes nothing");
}
