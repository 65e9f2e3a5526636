//! BF.SCANDUMP and BF.LOADCHUNK move a filter in pieces, as redis-py's examples, migration tools
//! and AOF files do.

use crate::harness::{
    Client, Protocol, Server, add_until_card, dump, err, info, int, load, madd, mexists, numbered,
    ok,
};

/// Creates filters of several shapes; returns their keys and items.
fn make(client: &mut Client) -> Vec<(&'static str, Vec<String>)> {
    let shapes = [
        ("empty", "0.01 100", 0),
        ("one_block", "0.01 100", 50),
        ("grown", "0.001 100", 3_000),
        ("narrow", "0.01 1 EXPANSION 1", 300),
        ("full", "0.01 1000 NONSCALING", 1_000),
        ("counting", "0.01 1000 COUNTING", 900),
        ("counting_grown", "0.001 100 COUNTING", 2_000),
        // The only shard takes every item.
        ("shard", "0.001 100 SHARD 0 1", 2_000),
        ("tiniest", "5e-324 1 NONSCALING", 1),
    ];
    let mut made = Vec::new();
    for (key, options, card) in shapes {
        assert_eq!(client.run(&format!("BF.RESERVE {key} {options}")), ok());
        made.push((key, add_until_card(client, key, key, card)));
    }
    made
}

#[test]
fn the_pieces_of_a_filter_make_the_same_filter() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        client.run("FLUSHALL");
        for (key, items) in make(client) {
            let pieces = dump(client, key);
            assert_eq!(pieces[0].0, 1, "{key}: the header comes with iterator 1");
            assert!(pieces.len() >= 2, "{key}: a header and some bits");
            for piece in &pieces {
                assert_eq!(load(client, "copy", piece), ok(), "{key}, iterator {}", piece.0);
            }
            for command in ["BF.CARD", "BF.INFO", "BF.DEBUG", "DUMP", "TYPE"] {
                assert_eq!(
                    client.cmd(&[command, "copy"]),
                    client.cmd(&[command, key]),
                    "{command} {key}"
                );
            }
            assert!(mexists(client, "copy", &items).iter().all(|&there| there), "{key}");
            let others = numbered("other", 3_000);
            assert_eq!(
                mexists(client, "copy", &others),
                mexists(client, key, &others),
                "{key}: the same seed"
            );
            // The copy accepts more items.
            if info(client, key).expansion.is_some() {
                let more = numbered("more", 500);
                madd(client, "copy", &more);
                assert!(mexists(client, "copy", &more).iter().all(|&there| there), "{key}");
            }
            client.run("DEL copy");
        }
    }
}

/// A piece has at most 16 MiB, so 40 MB take three pieces.
#[test]
fn a_large_filter_comes_in_bounded_pieces() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 33000000");
    let items = numbered("item", 20_000);
    madd(client, "k", &items);
    let pieces = dump(client, "k");
    assert_eq!(pieces.len(), 4, "a header and three pieces");
    assert!(
        pieces.iter().all(|(_, data)| data.len() <= (16 << 20) + 4_096),
        "a piece is too large"
    );
    for piece in &pieces {
        assert_eq!(load(client, "copy", piece), ok());
    }
    assert!(mexists(client, "copy", &items).iter().all(|&there| there));
    assert_eq!(client.run("BF.DEBUG copy"), client.run("BF.DEBUG k"));
}

/// A dump that begins again may be of another state of the filter, whose newer pages would not be
/// taken where pages are already.
#[test]
fn a_load_does_not_begin_again_behind_a_chunk() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 20000000"), ok());
    let pieces = dump(client, "k");
    assert_eq!(pieces.len(), 3, "two chunks of bits");
    for _ in 0..2 {
        assert_eq!(load(client, "copy", &pieces[0]), ok(), "its reply was lost");
    }
    assert_eq!(load(client, "copy", &pieces[1]), ok());
    assert_eq!(load(client, "copy", &pieces[0]), err("ERR received bad data"));
    for piece in &pieces[1..] {
        assert_eq!(load(client, "copy", piece), ok());
    }
    assert_eq!(client.run("DUMP copy"), client.run("DUMP k"));
}

/// A half-loaded filter would answer "absent" for an item that is not loaded yet: the one answer
/// that must never be wrong.
#[test]
fn a_filter_that_is_still_loading_refuses_queries() {
    let mut server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 100");
    let items = add_until_card(client, "k", "item", 1_000);
    let pieces = dump(client, "k");
    assert_eq!(load(client, "copy", &pieces[0]), ok());
    let (last, middle) = pieces[1..].split_last().expect("there are bits");
    for piece in middle {
        assert_eq!(load(client, "copy", piece), ok());
    }
    for command in
        ["BF.EXISTS copy item-0", "BF.MEXISTS copy item-0 x", "BF.ADD copy x", "BF.MADD copy x y"]
    {
        let reply = client.run(command);
        assert!(reply.error().starts_with("ERR "), "{command}: {reply:?}");
        client.assert_in_step();
    }
    assert!(client.run("BF.INSERT copy ITEMS x").is_error());
    assert!(client.run("BF.INSERT copy NOCREATE ITEMS x").is_error());
    assert_eq!(client.run("BF.RESERVE copy 0.01 100"), err("ERR item exists"));
    assert_eq!(client.run("RENAME copy half").text(), "OK");
    let saved = client.run("DUMP half");
    server.restart();
    let client = &mut server.client();
    assert_eq!(client.run("DUMP half"), saved, "a half-loaded filter is saved as such");
    assert!(client.run("BF.EXISTS half item-0").is_error());
    assert_eq!(load(client, "half", last), ok());
    assert!(mexists(client, "half", &items).iter().all(|&there| there));
    assert_eq!(client.run("DUMP half"), client.run("DUMP k"));
    client.run("BF.LOADCHUNK gone 1 x");
    assert_eq!(client.run("EXISTS gone"), int(0), "a refused header creates nothing");
}

#[test]
fn a_loaded_filter_reaches_the_replica_and_the_append_only_file() {
    let mut server = Server::with().config("appendonly yes").start();
    let replica = server.replica();
    let client = &mut server.client();
    let made = make(client);
    for (key, _) in &made {
        for piece in dump(client, key) {
            assert_eq!(load(client, &format!("{key}-copy"), &piece), ok(), "{key}");
        }
    }
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    let read = &mut replica.client();
    for (key, _) in &made {
        let copy = format!("{key}-copy");
        assert_eq!(read.cmd(&["DUMP", &copy]), client.cmd(&["DUMP", *key]), "{key} on the replica");
    }
    server.kill_and_restart();
    let client = &mut server.client();
    for (key, items) in &made {
        let copy = format!("{key}-copy");
        assert!(mexists(client, &copy, items).iter().all(|&there| there), "{key} from the file");
        assert_eq!(
            client.cmd(&["BF.DEBUG", &copy]),
            client.cmd(&["BF.DEBUG", *key]),
            "{key} from the file"
        );
    }
}
