//! Jedis, go-redis and NRedisStack cannot run here. The test sends what each of their methods
//! sends, and checks that a model of the method's parser reads the reply.
//!
//! Commands and parsers as of August 2026 (Jedis 7.5, go-redis 9.22, NRedisStack 1.7). Clients that
//! can run do so in tests/clients. Each script runs in RESP2 and in RESP3, on an empty data set.

use crate::harness::{Client, Protocol, Reply, Server};

/// The client library whose parser is modelled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Library {
    Jedis,
    GoRedis,
    NRedisStack,
}
use Library::{GoRedis, Jedis, NRedisStack};

/// The return type of a method, which selects the parser.
#[derive(Clone, Copy, Debug)]
enum Method {
    Status,
    Bool,
    Bools,
    Long,
    Info,
    /// BF.INFO with a field; only go-redis has a method for it.
    Field,
    Dump,
}
use Method::{Bool, Bools, Dump, Field, Info, Long, Status};

/// A command, the parser of its method, and the expected result of `read`.
type Call<'a> = (&'a str, Method, &'a str);

/// What the method returns: the value, or `!` and the error of the whole call.
fn read(library: Library, method: Method, words: &[&str], reply: &Reply) -> String {
    let value = match (method, reply) {
        (_, Reply::Error(text)) => Err(text.clone()),
        (Status, reply) => status(reply),
        (Bool, reply) => bit(reply),
        (Bools, reply) => bools(library, reply),
        (Long, reply) => long(reply).map(|value| value.to_string()),
        (Info, reply) => pairs(reply).and_then(|pairs| info(library, &pairs)),
        (Field, reply) => field(words, reply),
        (Dump, reply) => dump(reply),
    };
    value.unwrap_or_else(|error| format!("!{error}"))
}

/// All three libraries expect a simple string.
fn status(reply: &Reply) -> Result<String, String> {
    match reply {
        Reply::Simple(text) => Ok(text.clone()),
        other => Err(format!("no status: {other:?}")),
    }
}

/// Jedis casts to Boolean or Long; the others compare the text with "1" and "true".
fn bit(reply: &Reply) -> Result<String, String> {
    match reply {
        Reply::Int(1) | Reply::Bool(true) => Ok("yes".into()),
        Reply::Int(0) | Reply::Bool(false) => Ok("no".into()),
        other => Err(format!("no boolean: {other:?}")),
    }
}

/// An error among the elements is null in Jedis and false in NRedisStack. go-redis returns it as
/// the error of the call and does not read the elements after it, so it takes them for the reply to
/// the next command.
fn bools(library: Library, reply: &Reply) -> Result<String, String> {
    let Reply::Array(elements) = reply else {
        return Err(format!("no array: {reply:?}"));
    };
    let mut read = Vec::new();
    for (index, element) in elements.iter().enumerate() {
        read.push(match (library, element) {
            (GoRedis, Reply::Error(text)) if index + 1 == elements.len() => {
                return Err(text.clone());
            }
            (GoRedis, Reply::Error(_)) => return Err("the connection is out of step".into()),
            (Jedis, Reply::Error(_)) => "null".into(),
            (NRedisStack, Reply::Error(_)) => "no".into(),
            (_, element) => bit(element)?,
        });
    }
    Ok(read.join(" "))
}

fn long(reply: &Reply) -> Result<i64, String> {
    match reply {
        Reply::Int(value) => Ok(*value),
        other => Err(format!("no integer: {other:?}")),
    }
}

/// Reads a map, or a flat array of even length.
fn pairs(reply: &Reply) -> Result<Vec<(String, &Reply)>, String> {
    match reply {
        Reply::Map(pairs) => Ok(pairs.iter().map(|(name, value)| (name.text(), value)).collect()),
        Reply::Array(flat) if flat.len() % 2 == 0 => {
            Ok(flat.chunks(2).map(|pair| (pair[0].text(), &pair[1])).collect())
        }
        other => Err(format!("no map: {other:?}")),
    }
}

/// Capacity, filters, items and expansion. go-redis accepts only five names, with integers.
fn info(library: Library, pairs: &[(String, &Reply)]) -> Result<String, String> {
    const NAMES: [&str; 5] =
        ["Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"];
    let mut shown = Vec::new();
    for (name, value) in pairs {
        if !NAMES.contains(&name.as_str()) {
            return Err(format!("unexpected key {name}"));
        }
        let value = match (library, value) {
            (Jedis, Reply::Null) => "null".into(),
            (NRedisStack, Reply::Null) => "0".into(),
            (GoRedis, Reply::Null) => return Err("redis: nil".into()),
            (_, value) => long(value)?.to_string(),
        };
        if name != "Size" {
            shown.push(value);
        }
    }
    match pairs.len() {
        5 => Ok(shown.join(" ")),
        count => Err(format!("{count} fields")),
    }
}

/// Reads an array of one element in RESP2, or a map of one pair in RESP3. For the array, go-redis
/// takes the name from its own argument.
fn field(words: &[&str], reply: &Reply) -> Result<String, String> {
    let value = match reply {
        Reply::Array(elements) if elements.len() == 1 => {
            let known = ["CAPACITY", "SIZE", "FILTERS", "ITEMS", "EXPANSION"].contains(&words[2]);
            known.then(|| &elements[0]).ok_or(format!("unexpected key {}", words[2]))?
        }
        Reply::Map(pairs) if pairs.len() == 1 => &pairs[0].1,
        other => return Err(format!("neither array nor map of one: {other:?}")),
    };
    long(value).map(|value| value.to_string())
}

/// Reads an integer and bytes; go-redis refuses a null instead of the bytes.
fn dump(reply: &Reply) -> Result<String, String> {
    match reply.elements() {
        [Reply::Int(iterator), Reply::Bulk(data)] => {
            Ok(format!("{iterator} and {} bytes", data.len()))
        }
        _ => Err(format!("no chunk: {reply:?}")),
    }
}

/// Runs a script in both protocols, and prints all calls that fail.
#[track_caller]
fn run(library: Library, calls: &[Call<'_>]) {
    let server = Server::start();
    let mut failures = Vec::new();
    for protocol in Protocol::BOTH {
        let mut client = server.speak(protocol);
        client.run("FLUSHALL");
        for (line, method, expected) in calls {
            let words: Vec<_> = line.split(' ').collect();
            let reply = client.cmd(&words);
            client.assert_in_step();
            let got = read(library, *method, &words, &reply);
            if got != *expected {
                failures.push(format!(
                    "  {protocol:?} {line}\n    expected {expected:?}, got {got:?} from {reply:?}"
                ));
            }
        }
        copy(library, &mut client);
    }
    assert!(failures.is_empty(), "{library:?} cannot read:\n{}", failures.join("\n"));
}

/// The dump loop of each library's documentation: it loads each chunk with its iterator, until the
/// iterator is 0.
#[track_caller]
fn copy(library: Library, client: &mut Client) {
    let mut iterator = "0".to_owned();
    loop {
        let words = ["BF.SCANDUMP", "wire", &iterator];
        let reply = client.cmd(&words);
        let got = read(library, Dump, &words, &reply);
        assert!(!got.starts_with('!'), "{library:?}: {got}");
        iterator = reply.elements()[0].int().to_string();
        let Reply::Bulk(data) = &reply.elements()[1] else { unreachable!("read found bytes") };
        if iterator == "0" {
            assert_eq!(got, "0 and 0 bytes");
            break;
        }
        let loaded =
            client.cmd(&[b"BF.LOADCHUNK", b"wire:copy" as &[u8], iterator.as_bytes(), data]);
        assert_eq!(read(library, Status, &[], &loaded), "OK");
    }
    assert_eq!(client.run("BF.CARD wire:copy"), client.run("BF.CARD wire"));
}

/// Jedis sends doubles in Java's notation, and reads BF.INFO into a map of any values.
#[test]
fn jedis_can_read_the_reply_of_every_method() {
    run(
        Jedis,
        &[
            ("BF.RESERVE wire 1.0E-4 100", Status, "OK"),
            ("BF.RESERVE wire 1.0E-4 100", Status, "!ERR item exists"),
            ("BF.RESERVE wire:2 0.001 100 EXPANSION 4", Status, "OK"),
            ("BF.RESERVE wire:3 1.0E-9 2 NONSCALING", Status, "OK"),
            (
                "BF.RESERVE wire:4 0.001 100 EXPANSION 4 NONSCALING",
                Status,
                "!ERR Nonscaling filters cannot expand",
            ),
            ("BF.ADD wire a", Bool, "yes"),
            ("BF.ADD wire a", Bool, "no"),
            ("BF.MADD wire a b", Bools, "no yes"),
            ("BF.MADD wire:3 a b c d", Bools, "yes yes null"),
            ("BF.INSERT wire ITEMS b c", Bools, "no yes"),
            ("BF.INSERT wire:5 CAPACITY 1000 ERROR 1.0E-6 EXPANSION 3 ITEMS a", Bools, "yes"),
            ("BF.INSERT wire:5 NOCREATE ITEMS a b", Bools, "no yes"),
            ("BF.INSERT wire:6 NOCREATE ITEMS a", Bools, "!ERR not found"),
            ("BF.INSERT wire:6 NONSCALING ITEMS a", Bools, "yes"),
            ("BF.EXISTS wire a", Bool, "yes"),
            ("BF.EXISTS nothing a", Bool, "no"),
            ("BF.MEXISTS wire a z c", Bools, "yes no yes"),
            ("BF.CARD wire", Long, "3"),
            ("BF.CARD nothing", Long, "0"),
            ("BF.INFO wire", Info, "100 1 3 2"),
            ("BF.INFO wire:2", Info, "100 1 0 4"),
            ("BF.INFO wire:3", Info, "2 1 2 null"),
            ("BF.INFO nothing", Info, "!ERR not found"),
        ],
    );
}

/// go-redis sends doubles without an exponent, and has the strictest parser of BF.INFO.
#[test]
fn go_redis_can_read_the_reply_of_every_method() {
    run(
        GoRedis,
        &[
            ("BF.RESERVE wire 0.0001 100", Status, "OK"),
            ("BF.RESERVE wire:2 0.001 100 EXPANSION 4", Status, "OK"),
            ("BF.RESERVE wire:3 0.000000001 2 NONSCALING", Status, "OK"),
            // `BFReserveWithArgs` with no field set.
            (
                "BF.RESERVE wire:4 0 0",
                Status,
                "!ERR error rate must be in the range (0.000000, 1.000000)",
            ),
            ("BF.ADD wire a", Bool, "yes"),
            ("BF.ADD wire 1", Bool, "yes"),
            ("BF.MADD wire a b", Bools, "no yes"),
            ("BF.MADD wire:3 a b c d", Bools, "!ERR non scaling filter is full"),
            ("BF.ADD wire:3 c", Bool, "!ERR non scaling filter is full"),
            ("BF.INSERT wire:5 CAPACITY 1000 ERROR 0.000001 EXPANSION 3 ITEMS a", Bools, "yes"),
            ("BF.INSERT wire:5 NOCREATE ITEMS a b", Bools, "no yes"),
            ("BF.INSERT wire:6 NOCREATE ITEMS a", Bools, "!ERR not found"),
            ("BF.INSERT wire:6 CAPACITY 5 NONSCALING ITEMS a", Bools, "yes"),
            ("BF.EXISTS wire a", Bool, "yes"),
            ("BF.EXISTS wire z", Bool, "no"),
            ("BF.MEXISTS wire a z", Bools, "yes no"),
            ("BF.CARD wire", Long, "3"),
            ("BF.INFO wire", Info, "100 1 3 2"),
            // go-redis' own tests expect this error for a non-scaling filter.
            ("BF.INFO wire:3", Info, "!redis: nil"),
            ("BF.INFO nothing", Info, "!ERR not found"),
            ("BF.INFO wire CAPACITY", Field, "100"),
            ("BF.INFO wire FILTERS", Field, "1"),
            ("BF.INFO wire ITEMS", Field, "3"),
            ("BF.INFO wire EXPANSION", Field, "2"),
            ("BF.INFO wire:2 EXPANSION", Field, "4"),
        ],
    );
}

/// NRedisStack sends doubles in .NET's old and new notation, and from `Reserve` the expansion
/// without the word EXPANSION.
#[test]
fn nredisstack_can_read_the_reply_of_every_method() {
    run(
        NRedisStack,
        &[
            ("BF.RESERVE wire 1E-05 100", Status, "OK"),
            ("BF.RESERVE wire:2 1.0000000000000001E-05 100 4", Status, "OK"),
            ("BF.RESERVE wire:3 1E-09 2 NONSCALING", Status, "OK"),
            // RedisBloom ignores this expansion.
            ("BF.RESERVE wire:4 0.01 100 4 NONSCALING", Status, "OK"),
            ("BF.ADD wire a", Bool, "yes"),
            ("BF.ADD wire a", Bool, "no"),
            ("BF.MADD wire a b", Bools, "no yes"),
            ("BF.MADD wire:3 a b c d", Bools, "yes yes no"),
            ("BF.INSERT wire:5 CAPACITY 1000 ERROR 1E-06 EXPANSION 3 ITEMS a", Bools, "yes"),
            ("BF.INSERT wire:5 NOCREATE ITEMS a b", Bools, "no yes"),
            ("BF.INSERT wire:6 NONSCALING ITEMS a", Bools, "yes"),
            ("BF.INSERT wire:7 NOCREATE ITEMS a", Bools, "!ERR not found"),
            ("BF.EXISTS wire b", Bool, "yes"),
            ("BF.MEXISTS wire a z", Bools, "yes no"),
            ("BF.CARD wire", Long, "2"),
            ("BF.INFO wire", Info, "100 1 2 2"),
            ("BF.INFO wire:2", Info, "100 1 0 4"),
            ("BF.INFO wire:3", Info, "2 1 2 0"),
            ("BF.INFO nothing", Info, "!ERR not found"),
        ],
    );
}
