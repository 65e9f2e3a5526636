//! BF.INSERT creates a filter with the given options if there is none, and adds the items.

use crate::harness::{Protocol, Server, array, bulk, err, fresh, info, int, layers, ok};

#[test]
fn insert_answers_an_array_like_madd() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        fresh(
            &mut server.speak(protocol),
            &[
                (&[], "BF.INSERT k ITEMS a", protocol.bits([1])),
                (&[], "bf.insert k items a b a", protocol.bits([1, 1, 0])),
                (&["BF.ADD k b"], "BF.INSERT k ITEMS a b c", protocol.bits([1, 0, 1])),
                (&["BF.ADD k b"], "BF.INSERT k NOCREATE ITEMS a b", protocol.bits([1, 0])),
                (&[], "BF.INSERT k CAPACITY 10 ERROR 0.1 EXPANSION 3 ITEMS a", protocol.bits([1])),
                (&[], "BF.INSERT k NONSCALING ITEMS a", protocol.bits([1])),
                (&[], "BF.INSERT k NONSCALING EXPANSION 0 ITEMS a", protocol.bits([1])),
                (&[], "BF.INSERT k SEED 18446744073709551615 ITEMS a", protocol.bits([1])),
                (&[], "BF.INSERT k eRrOr 0.1 cApAcItY 10 iTeMs a", protocol.bits([1])),
            ],
        );
    }
}

#[test]
fn all_words_after_items_are_items() {
    let server = Server::start();
    let client = &mut server.client();
    let bits = Protocol::Resp2;
    fresh(
        client,
        &[
            (&[], "BF.INSERT k ITEMS a ITEMS b", bits.bits([1, 1, 1])),
            (&[], "BF.INSERT k ITEMS ITEMS", bits.bits([1])),
            (&[], "BF.INSERT k ITEMS CAPACITY 10", bits.bits([1, 1])),
            (&[], "BF.INSERT k ITEMS NOCREATE NONSCALING EXPANSION x", bits.bits([1, 1, 1, 1])),
            (&["BF.INSERT k ITEMS a ITEMS b"], "BF.MEXISTS k a ITEMS b c", bits.bits([1, 1, 1, 0])),
        ],
    );
}

/// The options come in every order, because clients send different orders.
#[test]
fn insert_makes_the_filter_that_its_options_ask_for() {
    let server = Server::start();
    let client = &mut server.client();
    let options = ["CAPACITY 500", "ERROR 0.001", "EXPANSION 4", "SEED 9"];
    client.run("BF.RESERVE asked 0.001 500 EXPANSION 4 SEED 9");
    client.run("BF.ADD asked a");
    let asked = client.run("DUMP asked");
    for order in permutations(&options) {
        let line = format!("BF.INSERT k {} ITEMS a", order.join(" "));
        client.run("DEL k");
        assert_eq!(client.run(&line), Protocol::Resp2.bits([1]), "{line}");
        let made = info(client, "k");
        assert_eq!((made.capacity, made.expansion, made.items), (500, Some(4), 1), "{line}");
        assert_eq!(client.run("DUMP k"), asked, "{line}: identical to the filter of BF.RESERVE");
    }
    for (line, capacity, expansion) in [
        ("BF.INSERT k ITEMS a", 100, Some(2)),
        ("BF.INSERT k CAPACITY 7 ITEMS a", 7, Some(2)),
        ("BF.INSERT k NONSCALING ITEMS a", 100, None),
        ("BF.INSERT k EXPANSION 0 ITEMS a", 100, None),
        // redis-py: insert(key, items, expansion=2, noScale=True).
        ("BF.INSERT k EXPANSION 2 NONSCALING ITEMS a", 100, None),
        ("BF.INSERT k NONSCALING EXPANSION 2 ITEMS a", 100, None),
        ("BF.INSERT k EXPANSION 0 EXPANSION 3 ITEMS a", 100, Some(3)),
        ("BF.INSERT k EXPANSION 32768 CAPACITY 1 ITEMS a", 1, Some(32_768)),
    ] {
        client.run("DEL k");
        client.run(line);
        let made = info(client, "k");
        assert_eq!((made.capacity, made.expansion), (capacity, expansion), "{line}");
    }
    client.run("BF.INSERT rate NONSCALING ERROR 0.3 ITEMS a");
    assert!(
        (layers(client, "rate").1[0].ratio - 0.3).abs() < 1e-6,
        "a rate above 0.25 is taken as asked"
    );
}

#[test]
fn nocreate_creates_nothing() {
    let server = Server::start();
    let client = &mut server.client();
    for line in [
        "BF.INSERT k NOCREATE ITEMS a",
        "BF.INSERT k nocreate ITEMS a b",
        "BF.INSERT k NOCREATE CAPACITY 10 ERROR 0.1 ITEMS a",
        "BF.INSERT k NONSCALING NOCREATE ITEMS a",
    ] {
        assert_eq!(client.run(line), err("ERR not found"), "{line}");
        assert_eq!(client.run("DBSIZE"), int(0), "{line}");
    }
}

#[test]
fn the_options_do_not_change_an_existing_filter() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 100 EXPANSION 3"), ok());
    let before = info(client, "k");
    let line = "BF.INSERT k CAPACITY 1000 ERROR 0.001 NONSCALING SEED 1 ITEMS a b";
    assert_eq!(client.run(line), Protocol::Resp2.bits([1, 1]));
    let after = info(client, "k");
    assert_eq!((after.capacity, after.expansion), (before.capacity, before.expansion));
    assert_eq!(client.run("BF.INFO k ERROR"), array([bulk("0.01")]));
    assert_eq!(after.items, 2);
}

/// All orders of the words.
fn permutations<'a>(words: &[&'a str]) -> Vec<Vec<&'a str>> {
    let Some((first, rest)) = words.split_first() else {
        return vec![Vec::new()];
    };
    let mut orders = Vec::new();
    for order in permutations(rest) {
        for place in 0..=order.len() {
            let mut longer = order.clone();
            longer.insert(place, *first);
            orders.push(longer);
        }
    }
    orders
}
