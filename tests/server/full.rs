//! A full non-scaling filter, and a scaling filter that may not grow. The error must
//! be the last element: go-redis stops reading at the first error inside an array. Every case ends
//! with a PING, which detects a reply of the wrong length.

use crate::harness::{
    Protocol, Server, add_until_card, add_until_refused, array, config_name, err, fresh, info, int,
    madd, mexists, numbered, ok,
};

const FULL: &str = "ERR non scaling filter is full";

#[test]
fn the_error_of_a_full_filter_is_the_last_element() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let (yes, no, full) = (protocol.bit(true), protocol.bit(false), err(FULL));
        let one = || yes.clone();
        let empty = &["BF.RESERVE k 1e-9 2 NONSCALING"][..];
        let filled = &["BF.RESERVE k 1e-9 2 NONSCALING", "BF.MADD k a b"][..];
        fresh(
            &mut server.speak(protocol),
            &[
                (empty, "BF.MADD k a b", array([one(), one()])),
                (empty, "BF.MADD k a b c", array([one(), one(), full.clone()])),
                (empty, "BF.MADD k a b c d e", array([one(), one(), full.clone()])),
                (empty, "BF.MADD k a a b c d", array([one(), no.clone(), one(), full.clone()])),
                (empty, "BF.MADD k a b a c b", array([one(), one(), no.clone(), full.clone()])),
                (empty, "BF.INSERT k ITEMS a b c d e", array([one(), one(), full.clone()])),
                (
                    &[],
                    "BF.INSERT k ERROR 1e-9 CAPACITY 2 NONSCALING ITEMS a b c d",
                    array([one(), one(), full.clone()]),
                ),
                (
                    &[],
                    "BF.INSERT k ERROR 1e-9 CAPACITY 2 EXPANSION 0 ITEMS a b c d",
                    array([one(), one(), full.clone()]),
                ),
                // An item that tests present needs no room.
                (filled, "BF.ADD k a", no.clone()),
                (filled, "BF.MADD k a b a", array([no.clone(), no.clone(), no.clone()])),
                (filled, "BF.INSERT k ITEMS b a", array([no.clone(), no.clone()])),
                (filled, "BF.MADD k a c b", array([no.clone(), full.clone()])),
                (filled, "BF.MADD k c", array([full.clone()])),
                (filled, "BF.INSERT k ITEMS c d", array([full.clone()])),
                // BF.ADD returns the error itself.
                (filled, "BF.ADD k c", full.clone()),
                (&["BF.RESERVE k 1e-9 2 EXPANSION 0", "BF.MADD k a b"], "BF.ADD k c", full.clone()),
                // The filter has exactly its two items.
                (filled, "BF.MEXISTS k a b c", array([one(), one(), no.clone()])),
                (filled, "BF.CARD k", int(2)),
            ],
        );
    }
}

/// The batches are longer than the module's internal chunks; the array ends at the error in any
/// place.
#[test]
fn a_long_batch_ends_where_the_filter_is_full() {
    let server = Server::start();
    let client = &mut server.client();
    for room in [0_usize, 1, 63, 64, 65, 127, 128, 129, 1_000] {
        client.run("FLUSHALL");
        // At so small a rate there are no false positives: every item is new.
        client.run(&format!("BF.RESERVE k 1e-12 {} NONSCALING", 1_000));
        madd(client, "k", &numbered("old", 1_000 - room));
        let reply = client.call("BF.MADD", "k", &numbered("new", 1_500));
        client.assert_in_step();
        let mut expected = vec![int(1); room];
        expected.push(err(FULL));
        assert_eq!(reply, array(expected), "with room for {room}");
        assert_eq!(info(client, "k").items, 1_000, "with room for {room}");
        let there = mexists(client, "k", &numbered("new", 1_500));
        let expected: Vec<bool> = (0..1_500).map(|place| place < room).collect();
        assert_eq!(there, expected, "with room for {room}: only answered items were added");
    }
}

#[test]
fn a_non_scaling_filter_takes_exactly_its_capacity() {
    let server = Server::start();
    let client = &mut server.client();
    for capacity in [1, 2, 10, 100, 12_345] {
        client.run("FLUSHALL");
        client.run(&format!("BF.RESERVE k 0.01 {capacity} NONSCALING"));
        let tried = add_until_card(client, "k", "item", capacity);
        let absent = (0..).map(|number| format!("absent-{number}")).find(|item| {
            let there = client.cmd(&["BF.EXISTS", "k", item]);
            there == int(0)
        });
        let absent = absent.expect("some item tests absent");
        assert_eq!(client.cmd(&["BF.ADD", "k", &absent]), err(FULL), "capacity {capacity}");
        let now = info(client, "k");
        assert_eq!((now.items, now.capacity, now.filters), (capacity, capacity, 1));
        assert!(mexists(client, "k", &tried).iter().all(|&there| there), "capacity {capacity}");
    }
}

/// A filter may not grow beyond what the operator allows: new items are refused, and known items
/// need no room.
#[test]
fn a_filter_that_cannot_grow_answers_one_error_and_keeps_its_items() {
    let server = Server::start();
    let client = &mut server.client();
    let failed = err("ERR problem inserting into filter");
    let most = config_name("max-filter-bytes");
    for reserve in ["BF.RESERVE k 1e-6 100", "BF.RESERVE k 1e-6 10000"] {
        client.run("FLUSHALL");
        assert_eq!(client.run(reserve), ok());
        assert_eq!(client.cmd(&["CONFIG", "SET", &most, "100000"]), ok());
        let (added, error) = add_until_refused(client, "k", "item");
        assert_eq!(err(&error), failed);
        let (before, at_first) = (client.run("DUMP k"), info(client, "k"));
        let absent = numbered("absent", 200);
        assert_eq!(client.cmd(&["BF.ADD", "k", &absent[0]]), failed);
        assert_eq!(client.call("BF.MADD", "k", &absent), array([failed.clone()]));
        client.assert_in_step();
        let known_first = [added[0].as_str(), added.last().unwrap(), &absent[0], &absent[1]];
        let expected = array([int(0), int(0), failed.clone()]);
        assert_eq!(client.call("BF.MADD", "k", &known_first), expected);
        let with_word = ["ITEMS", &added[0], &absent[0], &absent[1]];
        let expected = array([int(0), failed.clone()]);
        assert_eq!(client.call("BF.INSERT", "k", &with_word), expected);
        client.assert_in_step();

        assert_eq!(info(client, "k"), at_first, "{reserve}");
        assert_eq!(client.run("DUMP k"), before, "{reserve}");
        assert!(mexists(client, "k", &added).iter().all(|&there| there), "{reserve}");
        assert!(!mexists(client, "k", &absent).contains(&true), "{reserve}");
        assert_eq!(client.run("BF.ADD other a"), int(1), "another filter still works");
        assert_eq!(client.cmd(&["CONFIG", "SET", &most, "0"]), ok());
        assert_eq!(client.call("BF.MADD", "k", &absent).answers(), vec![true; 200], "{reserve}");
    }
}
