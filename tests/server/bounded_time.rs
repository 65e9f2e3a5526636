//! The time of a command is bounded by layers times items, never by the capacity that a header
//! claims.
//!
//! A forged RESTORE of 10 MB can create 2^18 layers of one word each, the most that a filter may
//! have; or layers that claim 2^62 items. Both filters must answer every command with plausible
//! numbers. The tests print the times and assert none; docs/security.md has the figures.

use std::time::Instant;

use crate::harness::{
    Client, Header, Payload, Reply, Server, StoredLayer, add_until_card, assert_sane,
    assert_unharmed, dump, info, int, mexists, numbered, ok,
};

/// The options of BF.RESERVE for a filter with bits, and for one with counters.
const CELLS: [&str; 2] = ["", "COUNTING"];

/// A RESTORE payload of a filter with `count` layers, each of one block of 64 positions. All layers
/// except the newest are full.
fn forged(client: &mut Client, count: usize, capacity: u64, cells: &str) -> Vec<u8> {
    assert_eq!(client.run(&format!("BF.RESERVE small 0.01 1 EXPANSION 1 SEED 3 {cells}")), ok());
    let mut payload = Payload::of(client, "small");
    let mut header = Header::parse(&payload.strings[0]);
    let layer = |items| StoredLayer {
        kind: header.layers[0].kind,
        probes: 7,
        block_words: 1,
        blocks: 1,
        capacity,
        items,
        error_rate: 0.001,
        changes: 5,
        deletions: 0,
    };
    let (full, empty) = (layer(capacity), layer(0));
    header.layers = vec![full; count - 1];
    header.layers.push(empty);
    header.count = count as u32;
    header.present = header.layers.iter().map(StoredLayer::bytes).sum();
    payload.strings = vec![header.bytes()];
    let bits = vec![0; usize::try_from(header.present).expect("megabytes")];
    payload.strings.extend(bits.chunks(1 << 20).map(<[u8]>::to_vec));
    client.run("DEL small");
    payload.bytes()
}

fn server() -> Server {
    Server::with().config("rdbcompression no").start()
}

#[test]
fn a_filter_of_5000_layers_answers_everything() {
    let server = server();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 1 EXPANSION 1"), ok());
    let items = add_until_card(client, "k", "item", 5_000);
    assert_eq!(info(client, "k").filters, 5_000);
    assert!(mexists(client, "k", &items).iter().all(|&there| there));
    assert_eq!(client.run("BF.DEBUG k").elements().len(), 5_001);
    assert_eq!(client.run("BF.INFO k LAYERS").elements()[0].elements().len(), 5_000);
    assert_sane(client, "k", "5,000 layers");
    assert_unharmed(&server);
}

#[test]
fn a_forged_filter_of_all_the_layers_there_may_be_answers() {
    for cells in CELLS {
        println!("{}", if cells.is_empty() { "BITS" } else { cells });
        check_a_forged_filter_of_all_the_layers(cells);
    }
}

fn check_a_forged_filter_of_all_the_layers(cells: &str) {
    let server = server();
    let client = &mut server.client();
    let most = 1 << 18;
    let payload = forged(client, most, 1, cells);
    let mut timed = |words: &[&[u8]]| {
        let begin = Instant::now();
        let reply = client.cmd(words);
        let name: Vec<_> = words.iter().take(2).map(|word| String::from_utf8_lossy(word)).collect();
        println!("{most} layers: {} took {:?}", name.join(" "), begin.elapsed());
        reply
    };
    assert_eq!(timed(&[b"RESTORE", b"k", b"0", &payload]), ok());
    assert_eq!(timed(&[b"BF.EXISTS", b"k", b"a"]), int(0));
    let items = numbered("item", 1_000);
    let words: Vec<&[u8]> =
        [&b"BF.MEXISTS"[..], b"k"].into_iter().chain(items.iter().map(String::as_bytes)).collect();
    assert_eq!(timed(&words).elements().len(), 1_000);
    assert_eq!(timed(&[b"BF.ADD", b"k", b"a"]), int(1));
    assert_eq!(timed(&[b"BF.EXISTS", b"k", b"a"]), int(1));
    // The filter is full and cannot grow: an error, not a hang.
    assert!(timed(&[b"BF.ADD", b"k", b"b"]).is_error());
    assert_eq!(timed(&[b"BF.CARD", b"k"]), int(most as i64));
    assert!(!timed(&[b"BF.INFO", b"k", b"FPR"]).is_error());
    let header = timed(&[b"BF.SCANDUMP", b"k", b"0"]);
    assert!(matches!(&header.elements()[1], Reply::Bulk(bytes) if bytes.len() < 16 << 20));
    assert!(!timed(&[b"BF.SCANDUMP", b"k", b"1"]).is_error());
    assert_eq!(timed(&[b"DEL", b"k"]), int(1));
    assert_unharmed(&server);
}

#[test]
fn sums_over_forged_counts_are_correct_after_their_filters_are_deleted() {
    for cells in CELLS {
        check_sums_over_forged_counts(cells);
    }
}

fn check_sums_over_forged_counts(cells: &str) {
    let server = server();
    let client = &mut server.client();
    let field = |client: &mut Client, name: &str| client.server_info("bf", &format!("bf_{name}"));
    // Seven full layers of 2^62 items exceed both i64 and u64.
    let payload = forged(client, 8, 1 << 62, cells);
    for key in ["a", "b", "c"] {
        assert_eq!(client.call("RESTORE", key, &[b"0", &payload[..]]), ok());
    }
    assert_eq!(client.run("BF.CARD a"), int(i64::MAX));
    let shown = info(client, "a");
    assert_eq!((shown.items, shown.capacity), (i64::MAX, i64::MAX));
    for word in ["FPR", "FILL", "LAYERS", "ERROR"] {
        assert!(!client.run(&format!("BF.INFO a {word}")).is_error(), "{word}");
    }
    // Forged filters accept more items; after their deletion the sums are correct.
    assert_eq!(client.run("BF.ADD a new"), int(1));
    if !cells.is_empty() {
        assert_eq!(client.run("BF.ADD b new"), int(1));
        assert_eq!(client.run("BF.DEL b new"), int(1));
    }
    assert_eq!(client.run("BF.RESERVE honest 0.01 100"), ok());
    assert_eq!(client.run("BF.ADD honest item"), int(1));
    assert_eq!(client.run("COPY a d"), int(1));
    assert_eq!(client.run("DEL a b c d"), int(4));
    for (name, value) in [("filters", "1"), ("items", "1"), ("capacity", "100"), ("layers", "1")] {
        assert_eq!(field(client, name), value, "bf_{name}");
    }
    assert_unharmed(&server);
}

#[test]
fn scandump_copies_at_most_16_mib() {
    let server = server();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 100000000"), ok());
    let bits = info(client, "k").size;
    let pieces = dump(client, "k");
    let (least, frame) = (bits / (16 << 20), 1 << 10);
    assert!(pieces.len() as i64 > least, "{} pieces of {bits} bytes", pieces.len());
    assert!(pieces.iter().all(|(_, data)| data.len() <= (16 << 20) + frame));
    assert_unharmed(&server);
}
