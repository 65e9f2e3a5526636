//! Wrong options of BF.INSERT, which are refused whether or not the filter exists. And options that
//! differ from the filter in the key.

use crate::harness::{Case, Protocol, Server, err, fresh, int, ok};

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
    ("BF.INSERT k SEED x ITEMS a", "ERR bad seed"),
    ("BF.INSERT k SEED -1 ITEMS a", "ERR bad seed"),
    ("BF.INSERT k SEED 18446744073709551616 ITEMS a", "ERR bad seed"),
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

/// What names another kind of filter than the key holds: the key was lost, and made again by a
/// command without these words.
#[test]
fn a_command_for_another_kind_of_filter_is_refused_and_changes_nothing() {
    const NO_WINDOW: &str = "ERR not a filter with a window";
    const OTHER_WINDOW: &str = "ERR the filter has another window";
    const NOT_COUNTING: &str = "ERR not a counting filter";
    const NO_SHARD: &str = "ERR filter is not shard 0 of 1";
    let server = Server::start();
    let client = &mut server.client();
    for (kind, refused, taken) in [
        (
            "",
            &[
                ("WINDOW EX 60", NO_WINDOW),
                ("WINDOW COUNT GENERATIONS 2 NOREFRESH", NO_WINDOW),
                ("COUNTING", NOT_COUNTING),
                ("SHARD 0 1", NO_SHARD),
            ][..],
            &["", "CAPACITY 7 ERROR 0.5 EXPANSION 3", "NONSCALING SEED 9"][..],
        ),
        (
            "COUNTING",
            &[("WINDOW EX 60", NO_WINDOW), ("SHARD 0 1", NO_SHARD)],
            &["", "COUNTING CAPACITY 7"],
        ),
        (
            "WINDOW EX 60 GENERATIONS 3",
            &[
                ("WINDOW EX 61 GENERATIONS 3", OTHER_WINDOW),
                ("WINDOW EX 60 GENERATIONS 2", OTHER_WINDOW),
                ("WINDOW EX 60 GENERATIONS 3 NOREFRESH", OTHER_WINDOW),
                ("WINDOW COUNT GENERATIONS 3", OTHER_WINDOW),
                ("COUNTING", NOT_COUNTING),
                ("SHARD 0 1", NO_SHARD),
            ],
            &["", "CAPACITY 7 WINDOW PX 60000 GENERATIONS 3"],
        ),
    ] {
        client.run("DEL k");
        assert_eq!(client.run(&format!("BF.RESERVE k 0.01 100 {kind}")), ok());
        for (words, text) in refused {
            for line in
                [format!("BF.INSERT k {words} ITEMS a"), format!("BF.BULKADD k {words} LINES a")]
            {
                assert_eq!(client.run(&line), err(text), "{line} for {kind}");
                assert_eq!(client.run("BF.CARD k"), int(0), "{line} for {kind}");
            }
        }
        for words in taken {
            let reply = client.run(&format!("BF.INSERT k {words} ITEMS a"));
            assert_eq!(reply.elements().len(), 1, "{words} for {kind}");
        }
    }
}
