//! BF.EXISTS and BF.MEXISTS answer "certainly not" or "probably". They never change anything.

use crate::harness::{
    Protocol, Server, add_until_card, config_name, err, fresh, int, mexists, numbered, ok,
};

#[test]
fn exists_answers_in_either_protocol() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let (yes, no) = (protocol.bit(true), protocol.bit(false));
        let filled = &["BF.MADD k a b"][..];
        fresh(
            &mut server.speak(protocol),
            &[
                (filled, "BF.EXISTS k a", yes.clone()),
                (filled, "bf.exists k b", yes),
                (filled, "BF.EXISTS k A", no.clone()),
                (filled, "BF.EXISTS k c", no.clone()),
                (&["BF.RESERVE k 0.01 100"], "BF.EXISTS k a", no.clone()),
                (&[], "BF.EXISTS missing a", no),
                (filled, "BF.MEXISTS k a", protocol.bits([1])),
                (filled, "BF.MEXISTS k a c b a", protocol.bits([1, 0, 1, 1])),
                (&["BF.RESERVE k 0.01 100"], "BF.MEXISTS k a b", protocol.bits([0, 0])),
                (&[], "BF.MEXISTS missing a", protocol.bits([0])),
                (&[], "BF.MEXISTS missing a b c", protocol.bits([0, 0, 0])),
            ],
        );
    }
}

#[test]
fn a_query_creates_no_key() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.EXISTS k a");
    client.run("BF.MEXISTS k a b");
    client.run("BF.CARD k");
    client.run("BF.INFO k");
    client.run("BF.DEBUG k");
    assert_eq!(client.run("DBSIZE"), int(0));
}

#[test]
fn every_layer_of_a_grown_filter_answers() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.001 50 EXPANSION 2 SEED 1"), ok());
    let tried = add_until_card(client, "k", "item", 5_000);
    assert!(
        mexists(client, "k", &tried).iter().all(|&there| there),
        "an item that was added is missing"
    );
    // Single queries take another path in the module.
    for item in tried.iter().step_by(97) {
        assert_eq!(client.cmd(&["BF.EXISTS", "k", item]), int(1), "{item}");
    }
    // At 0.1 %, 20 of 20,000 others are expected to test present. The standard deviation is sqrt(20
    // + 4^2) = 6: 20 for the sample, and 4 (20 % of 20) for a rate that is itself random with a
    // first layer of 50 items (`real_input.rs`). The bound is five deviations above 20.
    let others = mexists(client, "k", &numbered("other", 20_000));
    let positives = others.iter().filter(|&&there| there).count();
    assert!(positives <= 50, "{positives} false positives among 20,000 at 0.1 %");
}

#[test]
fn a_query_does_not_change_the_filter() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 100 SEED 3");
    client.run("BF.MADD k a b c");
    let before = client.run("DUMP k");
    mexists(client, "k", &numbered("item", 1_000));
    client.run("BF.EXISTS k z");
    client.run("BF.INFO k");
    client.run("BF.DEBUG k");
    assert_eq!(client.run("DUMP k"), before);
}

/// With `missing-key-error yes`, a filter that was lost or never made is an error and not "absent".
#[test]
fn a_missing_key_can_be_made_an_error() {
    let server = Server::start();
    let client = &mut server.client();
    let setting = config_name("missing-key-error");
    for (value, expected) in [("yes", true), ("no", false), ("yes", true)] {
        assert_eq!(client.cmd(&["CONFIG", "SET", &setting, value]), ok());
        for line in ["BF.EXISTS missing a", "BF.MEXISTS missing a b"] {
            let reply = client.run(line);
            assert_eq!(
                reply == err("ERR not found"),
                expected,
                "{value}: {line} answered {reply:?}"
            );
            client.assert_in_step();
        }
    }
    assert_eq!(client.run("BF.ADD k a"), int(1), "writers still make filters");
    assert_eq!(client.run("BF.EXISTS k a"), int(1));
    assert_eq!(client.run("BF.EXISTS k b"), int(0));
    assert_eq!(client.run("BF.CARD missing"), int(0));
    assert!(client.cmd(&["CONFIG", "SET", &setting, "perhaps"]).is_error());
}
