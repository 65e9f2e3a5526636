//! Wrong options of BF.INSERT. They are refused whether or not the filter exists.

use crate::harness::{Case, Protocol, Server, err, fresh, int};

const ARITY: &str = "ERR wrong number of arguments for 'bf.insert' command";
const UNKNOWN: &str = "ERR Unknown argument received";

const ERRORS: &[(&str, &str)] = &[
    // An option without its value, no ITEMS, nothing after ITEMS.
    ("BF.INSERT k", ARITY),
    ("BF.INSERT k ITEMS", ARITY),
    ("BF.INSERT k NOCREATE ITEMS", ARITY),
    ("BF.INSERT k CAPACITY 10 ITEMS", ARITY),
    ("BF.INSERT k CAPACITY 10", ARITY),
    ("BF.INSERT k NOCREATE NONSCALING", ARITY),
    ("BF.INSERT k NOCREATE CAPACITY", ARITY),
    ("BF.INSERT k NOCREATE ERROR", ARITY),
    ("BF.INSERT k NOCREATE EXPANSION", ARITY),
    ("BF.INSERT k NOCREATE SEED", ARITY),
    // Option names are whole words; RedisBloom takes any word with the right first letters.
    ("BF.INSERT k JUNK ITEMS a", UNKNOWN),
    ("BF.INSERT k a b", UNKNOWN),
    ("BF.INSERT k N ITEMS a", UNKNOWN),
    ("BF.INSERT k NO ITEMS a", UNKNOWN),
    ("BF.INSERT k NOPE ITEMS a", UNKNOWN),
    ("BF.INSERT k NXC ITEMS a", UNKNOWN),
    ("BF.INSERT k E ITEMS a", UNKNOWN),
    ("BF.INSERT k CAP-ACITY 10 ITEMS a", UNKNOWN),
    ("BF.INSERT k CAPACITY 10 20 ITEMS a", UNKNOWN),
    ("BF.INSERT k ITEM a ITEMS b", UNKNOWN),
    ("BF.INSERT k ITEMSX a", UNKNOWN),
    ("BF.INSERT k TIGHTENED 0.5 ITEMS a", UNKNOWN),
    // Values.
    ("BF.INSERT k ERROR x ITEMS a", "ERR Bad error rate"),
    ("BF.INSERT k ERROR nan ITEMS a", "ERR Bad error rate"),
    ("BF.INSERT k ERROR 0 ITEMS a", "ERR Bad error rate"),
    ("BF.INSERT k ERROR 1 ITEMS a", "ERR Bad error rate"),
    ("BF.INSERT k ERROR -0.1 ITEMS a", "ERR Bad error rate"),
    ("BF.INSERT k ERROR inf ITEMS a", "ERR Bad error rate"),
    ("BF.INSERT k ERROR ITEMS a", "ERR Bad error rate"),
    ("BF.INSERT k CAPACITY x ITEMS a", "ERR Bad capacity"),
    ("BF.INSERT k CAPACITY 1.5 ITEMS a", "ERR Bad capacity"),
    ("BF.INSERT k CAPACITY +1 ITEMS a", "ERR Bad capacity"),
    ("BF.INSERT k CAPACITY 0 ITEMS a", "ERR Bad capacity"),
    ("BF.INSERT k CAPACITY -1 ITEMS a", "ERR Bad capacity"),
    ("BF.INSERT k CAPACITY 4611686018427387905 ITEMS a", "ERR Bad capacity"),
    ("BF.INSERT k CAPACITY 9223372036854775808 ITEMS a", "ERR Bad capacity"),
    ("BF.INSERT k CAPACITY ITEMS a", "ERR Bad capacity"),
    ("BF.INSERT k EXPANSION x ITEMS a", "ERR Bad expansion"),
    ("BF.INSERT k EXPANSION -1 ITEMS a", "ERR Bad expansion"),
    ("BF.INSERT k EXPANSION 32769 ITEMS a", "ERR Bad expansion"),
    ("BF.INSERT k NONSCALING EXPANSION 32769 ITEMS a", "ERR Bad expansion"),
    ("BF.INSERT k EXPANSION 32769 NONSCALING ITEMS a", "ERR Bad expansion"),
    ("BF.INSERT k EXPANSION 4294967298 ITEMS a", "ERR Bad expansion"),
    ("BF.INSERT k EXPANSION ITEMS a", "ERR Bad expansion"),
    ("BF.INSERT k SEED x ITEMS a", "ERR Bad seed"),
    ("BF.INSERT k SEED -1 ITEMS a", "ERR Bad seed"),
    ("BF.INSERT k SEED 18446744073709551616 ITEMS a", "ERR Bad seed"),
    // The options are checked before the key.
    ("BF.INSERT k NOCREATE ERROR x ITEMS a", "ERR Bad error rate"),
    ("BF.INSERT k NOCREATE JUNK ITEMS a", UNKNOWN),
];

#[test]
fn a_refused_insert_says_why_and_creates_nothing() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        let rows: Vec<Case<'_>> =
            ERRORS.iter().map(|&(line, text)| (&[][..], line, err(text))).collect();
        fresh(client, &rows);
        for (line, _) in ERRORS {
            client.run(line);
            assert_eq!(client.run("DBSIZE"), int(0), "{protocol:?}: {line} left a key");
        }
    }
}

#[test]
fn the_options_are_checked_even_when_the_filter_exists() {
    let server = Server::start();
    let client = &mut server.client();
    let there = &["BF.RESERVE k 0.01 100"][..];
    let rows: Vec<Case<'_>> = ERRORS.iter().map(|&(line, text)| (there, line, err(text))).collect();
    fresh(client, &rows);
    for (line, _) in ERRORS {
        client.run(line);
        assert_eq!(client.run("BF.CARD k"), int(0), "{line} added something");
    }
}
