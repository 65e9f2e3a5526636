//! Every wrong BF.RESERVE, and its error text. A command that fails must create nothing.

use crate::harness::{Case, Protocol, Server, err, fresh, int, numbered};

const RATE_RANGE: &str = "ERR error rate must be in the range (0.000000, 1.000000)";
const CAPACITY_RANGE: &str = "ERR capacity must be in the range [1, 4611686018427387904]";
const EXPANSION_RANGE: &str = "ERR expansion must be in the range [0, 32768]";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NON_SCALING: &str = "ERR Nonscaling filters cannot expand";

const ERRORS: &[(&str, &str)] = &[
    // The rate is not a number. As in the server's own commands, spaces and NaN are refused.
    ("BF.RESERVE k x 100", "ERR bad error rate"),
    ("BF.RESERVE k 0.01x 100", "ERR bad error rate"),
    ("BF.RESERVE k 1% 100", "ERR bad error rate"),
    ("BF.RESERVE k 0,01 100", "ERR bad error rate"),
    ("BF.RESERVE k nan 100", "ERR bad error rate"),
    ("BF.RESERVE k NaN 100", "ERR bad error rate"),
    ("BF.RESERVE k -nan 100", "ERR bad error rate"),
    // A rate outside (0, 1).
    ("BF.RESERVE k 0 100", RATE_RANGE),
    ("BF.RESERVE k 0.0 100", RATE_RANGE),
    ("BF.RESERVE k -0 100", RATE_RANGE),
    ("BF.RESERVE k 1 100", RATE_RANGE),
    ("BF.RESERVE k 1.0 100", RATE_RANGE),
    ("BF.RESERVE k 1.5 100", RATE_RANGE),
    ("BF.RESERVE k -0.01 100", RATE_RANGE),
    ("BF.RESERVE k inf 100", RATE_RANGE),
    ("BF.RESERVE k -inf 100", RATE_RANGE),
    // This one rounds to 1 as a double.
    ("BF.RESERVE k 0.99999999999999999999 100", RATE_RANGE),
    // The capacity is not an integer as the server reads integers.
    ("BF.RESERVE k 0.01 x", "ERR bad capacity"),
    ("BF.RESERVE k 0.01 1.5", "ERR bad capacity"),
    ("BF.RESERVE k 0.01 1e3", "ERR bad capacity"),
    ("BF.RESERVE k 0.01 +100", "ERR bad capacity"),
    ("BF.RESERVE k 0.01 0100", "ERR bad capacity"),
    ("BF.RESERVE k 0.01 0x64", "ERR bad capacity"),
    ("BF.RESERVE k 0.01 9223372036854775808", "ERR bad capacity"),
    ("BF.RESERVE k 0.01 99999999999999999999999999", "ERR bad capacity"),
    // A capacity outside [1, 2^62].
    ("BF.RESERVE k 0.01 0", CAPACITY_RANGE),
    ("BF.RESERVE k 0.01 -1", CAPACITY_RANGE),
    ("BF.RESERVE k 0.01 -9223372036854775808", CAPACITY_RANGE),
    ("BF.RESERVE k 0.01 4611686018427387905", CAPACITY_RANGE),
    ("BF.RESERVE k 0.01 9223372036854775807", CAPACITY_RANGE),
    // The expansion is missing, not an integer, or outside [0, 32768].
    ("BF.RESERVE k 0.01 100 EXPANSION", "ERR no expansion"),
    ("BF.RESERVE k 0.01 100 NONSCALING EXPANSION", "ERR no expansion"),
    ("BF.RESERVE k 0.01 100 EXPANSION x", "ERR bad expansion"),
    ("BF.RESERVE k 0.01 100 EXPANSION 1.5", "ERR bad expansion"),
    ("BF.RESERVE k 0.01 100 EXPANSION NONSCALING", "ERR bad expansion"),
    ("BF.RESERVE k 0.01 100 EXPANSION 99999999999999999999", "ERR bad expansion"),
    ("BF.RESERVE k 0.01 100 EXPANSION -1", EXPANSION_RANGE),
    ("BF.RESERVE k 0.01 100 EXPANSION 32769", EXPANSION_RANGE),
    ("BF.RESERVE k 0.01 100 EXPANSION 4294967298", EXPANSION_RANGE),
    ("BF.RESERVE k 0.01 100 EXPANSION 9223372036854775807", EXPANSION_RANGE),
    // NONSCALING contradicts an expansion above 0, in both orders.
    ("BF.RESERVE k 0.01 100 EXPANSION 2 NONSCALING", NON_SCALING),
    ("BF.RESERVE k 0.01 100 NONSCALING EXPANSION 2", NON_SCALING),
    ("BF.RESERVE k 0.01 100 nonscaling expansion 1", NON_SCALING),
    ("BF.RESERVE k 0.01 100 4 EXPANSION 2 NONSCALING", NON_SCALING),
    // An unknown option is refused, because ignoring it could make a filter of the wrong kind.
    ("BF.RESERVE k 0.01 100 COUNTNG", "ERR unknown argument 'COUNTNG'"),
    ("BF.RESERVE k 0.01 100 NONSCALING JUNK", "ERR unknown argument 'JUNK'"),
    ("BF.RESERVE k 0.01 100 JUNK EXPANSION 5", "ERR unknown argument 'JUNK'"),
    ("BF.RESERVE k 0.01 100 4 5", "ERR unknown argument '5'"),
    ("BF.RESERVE k 0.01 100 EXPANSION 2 5", "ERR unknown argument '5'"),
    ("BF.RESERVE k 0.01 100 32769", "ERR unknown argument '32769'"),
    ("BF.RESERVE k 0.01 100 -1", "ERR unknown argument '-1'"),
    ("BF.RESERVE k 0.01 100 COUNT ING", "ERR unknown argument 'COUNT'"),
    // The seed is missing, or not an unsigned 64-bit integer.
    ("BF.RESERVE k 0.01 100 SEED", "ERR wrong number of arguments for 'bf.reserve' command"),
    ("BF.RESERVE k 0.01 100 SEED x", "ERR bad seed"),
    ("BF.RESERVE k 0.01 100 SEED -1", "ERR bad seed"),
    ("BF.RESERVE k 0.01 100 SEED 1.5", "ERR bad seed"),
    ("BF.RESERVE k 0.01 100 SEED 18446744073709551616", "ERR bad seed"),
    // The order of the checks: error rate, capacity, options, key.
    ("BF.RESERVE k x x EXPANSION x", "ERR bad error rate"),
    ("BF.RESERVE k 2 0 EXPANSION x", RATE_RANGE),
    ("BF.RESERVE k 0.01 x EXPANSION x", "ERR bad capacity"),
    ("BF.RESERVE k 0.01 0 EXPANSION x", CAPACITY_RANGE),
];

#[test]
fn a_refused_reserve_returns_its_error_and_creates_nothing() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        let rows: Vec<Case<'_>> =
            ERRORS.iter().map(|&(line, text)| (&[][..], line, err(text))).collect();
        fresh(client, &rows);
        // `fresh` does not check for keys after a row, so each row runs again.
        for (line, _) in ERRORS {
            client.run(line);
            assert_eq!(client.run("DBSIZE"), int(0), "{protocol:?}: {line} left a key");
        }
    }
}

#[test]
fn a_space_in_a_number_is_refused() {
    let server = Server::start();
    let client = &mut server.client();
    for (arguments, text) in [
        (["BF.RESERVE", "k", " 0.01", "100"], "ERR bad error rate"),
        (["BF.RESERVE", "k", "0.01 ", "100"], "ERR bad error rate"),
        (["BF.RESERVE", "k", "", "100"], "ERR bad error rate"),
        (["BF.RESERVE", "k", "0.01", " 100"], "ERR bad capacity"),
        (["BF.RESERVE", "k", "0.01", "100 "], "ERR bad capacity"),
        (["BF.RESERVE", "k", "0.01", ""], "ERR bad capacity"),
        (["BF.RESERVE", "k", "0.01", "1\0"], "ERR bad capacity"),
    ] {
        assert_eq!(client.cmd(&arguments), err(text), "{arguments:?}");
    }
}

/// A line break in an error would end the reply, and clients would read the rest as the next reply.
#[test]
fn an_error_shows_an_unknown_word_escaped_and_cut_to_32_bytes() {
    let server = Server::start();
    let client = &mut server.client();
    let long = "x".repeat(1000);
    for (word, shown) in [
        ("A\r\n+OK\r\n", r"A\r\n+OK\r\n"),
        ("it's", r"it\'s"),
        ("\0", r"\x00"),
        ("", ""),
        ("%s%n", "%s%n"),
        ("é", r"\xc3\xa9"),
        (&long, &long[..32]),
    ] {
        let reply = client.cmd(&["BF.RESERVE", "k", "0.01", "100", word]);
        assert_eq!(reply, err(&format!("ERR unknown argument '{shown}'")), "{word:?}");
        client.assert_in_step();
    }
}

#[test]
fn an_error_names_the_unknown_word_however_many_words_follow() {
    let server = Server::start();
    let client = &mut server.client();
    let line = format!("BF.RESERVE k 0.01 100 foo {}", numbered("x", 300).join(" "));
    assert_eq!(client.run(&line), err("ERR unknown argument 'foo'"));
}

#[test]
fn reserve_never_touches_a_key_that_exists() {
    let server = Server::start();
    let client = &mut server.client();
    let filter = &["BF.RESERVE k 0.01 100"][..];
    let string = &["SET k v"][..];
    fresh(
        client,
        &[
            (filter, "BF.RESERVE k 0.01 100", err("ERR item exists")),
            (filter, "BF.RESERVE k 0.001 1000 NONSCALING", err("ERR item exists")),
            (&["BF.ADD k a"], "BF.RESERVE k 0.01 100", err("ERR item exists")),
            (string, "BF.RESERVE k 0.01 100", err(WRONG_TYPE)),
            (&["HSET k f v"], "BF.RESERVE k 0.01 100", err(WRONG_TYPE)),
            // The arguments are checked before the key.
            (filter, "BF.RESERVE k 2 100", err(RATE_RANGE)),
            (filter, "BF.RESERVE k 0.01 0", err(CAPACITY_RANGE)),
            (filter, "BF.RESERVE k 0.01 100 EXPANSION x", err("ERR bad expansion")),
            (string, "BF.RESERVE k 0.01 100 EXPANSION -1", err(EXPANSION_RANGE)),
        ],
    );
    client.run("FLUSHALL");
    client.run("SET k v");
    client.run("BF.RESERVE k 0.01 100");
    assert_eq!(client.run("GET k").text(), "v", "the string is unchanged");
}
