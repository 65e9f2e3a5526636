//! What BF.SCANDUMP and BF.LOADCHUNK refuse: hostile, damaged and misplaced bytes. Any client that
//! may write can send a chunk.

use crate::harness::{
    Case, Client, Piece, Protocol, Random, Reply, Server, add_until_card, array, bulk, dump, err,
    fresh, int, load, ok,
};

const NOT_NUMERIC: &str = "ERR Second argument must be numeric";
const NOT_FOUND: &str = "ERR not found";
const BAD_DATA: &str = "ERR received bad data";
/// The only error texts that RedisBloom's fuzz tests accept for an existing filter.
const REFUSALS: [&str; 3] = [
    BAD_DATA,
    "ERR invalid offset - no link found",
    "ERR invalid chunk - Too big for current filter",
];

#[test]
fn scandump_and_loadchunk_report_what_is_wrong() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let filter = &["BF.ADD k a"][..];
        let rows: Vec<Case<'_>> = vec![
            (&[], "BF.SCANDUMP missing 0", err(NOT_FOUND)),
            (&[], "BF.SCANDUMP missing 1", err(NOT_FOUND)),
            // The key is checked first.
            (&[], "BF.SCANDUMP missing x", err(NOT_FOUND)),
            (filter, "BF.SCANDUMP k x", err(NOT_NUMERIC)),
            (filter, "BF.SCANDUMP k 1.5", err(NOT_NUMERIC)),
            (filter, "BF.SCANDUMP k 9223372036854775808", err(NOT_NUMERIC)),
            (&[], "BF.LOADCHUNK missing x data", err(NOT_NUMERIC)),
            (&[], "BF.LOADCHUNK missing 1 data", err(BAD_DATA)),
            (&[], "BF.LOADCHUNK missing 2 data", err(NOT_FOUND)),
            (&[], "BF.LOADCHUNK missing 0 data", err(NOT_FOUND)),
            (&[], "BF.LOADCHUNK missing -1 data", err(NOT_FOUND)),
            (filter, "BF.LOADCHUNK k x data", err(NOT_NUMERIC)),
        ];
        fresh(&mut server.speak(protocol), &rows);
    }
}

/// An iterator is a place in the bits or, behind them, one of 2^40 positions of pages.
#[test]
fn any_iterator_is_answered_with_a_piece_or_the_end() {
    let server = Server::start();
    let client = &mut server.client();
    let mut random = Random::new(7);
    for (key, options, card) in [
        ("bits", "0.01 3000", 2_500),
        ("above", "0.01 1000", 2_500),
        ("small", "0.01 100", 70),
        ("pages", "0.01 100", 20_000),
        ("counting", "0.01 20000 COUNTING", 3_000),
        ("window", "0.01 100 WINDOW PX 9999999", 3_000),
    ] {
        assert_eq!(client.run(&format!("BF.RESERVE {key} {options}")), ok());
        add_until_card(client, key, "item", card);
        let (end, _) = dump(client, key).pop().expect("a piece");
        let below = |random: &mut Random| random.below(end as usize) as i64;
        let some: Vec<i64> = (0..300).map(|_| below(&mut random)).collect();
        let edges = [-1, -2, i64::MIN, i64::MAX, i64::MAX - 1, 1 << 53, 1 << 41, end, end + 8];
        for iterator in (0..1_500).chain(some).chain([end - 1, end - 8]).chain(edges) {
            let reply = client.cmd(&["BF.SCANDUMP", key, &iterator.to_string()]);
            match reply.elements() {
                [Reply::Int(0), Reply::Bulk(data)] if data.is_empty() => {
                    assert!(!(0..end).contains(&iterator), "{key} {iterator}: the end");
                }
                [Reply::Int(next), Reply::Bulk(_)]
                    if *next > iterator && (0..end).contains(&iterator) => {}
                other => panic!("BF.SCANDUMP {key} {iterator} answered {other:?}"),
            }
        }
    }
    assert_eq!(client.run("BF.SCANDUMP bits 1000000000"), array([int(0), bulk("")]));
}

#[test]
fn a_finished_filter_refuses_chunks_that_are_not_its_own() {
    let server = Server::start();
    let client = &mut server.client();
    for (key, options, card) in [
        ("empty", "0.01 100", 0),
        ("one_block", "0.01 100", 50),
        ("grown", "0.001 100", 3_000),
        ("full", "0.01 9 NONSCALING", 9),
    ] {
        assert_eq!(client.run(&format!("BF.RESERVE {key} {options}")), ok());
        add_until_card(client, key, "item", card);
    }
    client.run("BF.RESERVE other 0.01 100");
    client.run("BF.ADD other x");
    let mut chunks = dump(client, "other");
    for length in [0, 1, 7, 64, 5_000] {
        for iterator in [i64::MIN, -1, 0, 1, 2, 65, 5_001, i64::MAX] {
            chunks.push((iterator, vec![0xff; length]));
        }
    }
    for key in ["empty", "one_block", "grown", "full"] {
        let before = client.cmd(&["DUMP", key]);
        for chunk in &chunks {
            let reply = load(client, key, chunk);
            let known = matches!(&reply, Reply::Error(text) if REFUSALS.contains(&text.as_str()));
            assert!(known, "{key}, iterator {}, {} bytes: {reply:?}", chunk.0, chunk.1.len());
        }
        assert_eq!(client.cmd(&["DUMP", key]), before, "{key} is unchanged");
    }
}

/// One changed bit in any byte of any piece makes BF.LOADCHUNK refuse the piece.
#[test]
fn a_damaged_piece_is_refused() {
    let server = Server::start();
    let client = &mut server.client();
    for (options, card) in [
        ("0.01 150", 100),
        ("0.01 120", 150),
        ("0.01 100", 150),
        ("0.01 100 COUNTING", 90),
        ("0.01 100 WINDOW PX 9999999 SHARD 0 1", 150),
    ] {
        client.run("DEL k");
        assert_eq!(client.run(&format!("BF.RESERVE k {options} SEED 1")), ok());
        add_until_card(client, "k", "item", card);
        check_damaged_pieces(client);
    }
    client.assert_in_step();
}

#[track_caller]
fn check_damaged_pieces(client: &mut Client) {
    let pieces = dump(client, "k");
    for (place, (iterator, data)) in pieces.iter().enumerate() {
        for byte in 0..data.len() {
            let mut damaged = data.clone();
            damaged[byte] ^= 1 << (byte % 8);
            refused_at(client, &pieces, place, (*iterator, damaged), &format!("byte {byte}"));
        }
        for length in [0, 1, data.len() / 2, data.len() - 1] {
            refused_at(
                client,
                &pieces,
                place,
                (*iterator, data[..length].to_vec()),
                &format!("{length} bytes"),
            );
        }
        let longer = [data.as_slice(), b"x"].concat();
        refused_at(client, &pieces, place, (*iterator, longer), "a byte too many");
    }
}

#[track_caller]
fn refused_at(client: &mut Client, pieces: &[Piece], place: usize, damaged: Piece, what: &str) {
    client.run("DEL copy");
    for piece in &pieces[..place] {
        assert_eq!(load(client, "copy", piece), ok());
    }
    let reply = load(client, "copy", &damaged);
    let known = matches!(&reply, Reply::Error(text) if REFUSALS.contains(&text.as_str()));
    assert!(known, "piece {place}, {what}: {reply:?}");
    // The undamaged piece still loads.
    for piece in &pieces[place..] {
        assert_eq!(load(client, "copy", piece), ok(), "after piece {place}, {what}");
    }
}
