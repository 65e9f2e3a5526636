//! Every command with unusual arguments: extreme numbers, wrong types, missing and repeated words,
//! random bytes, a megabyte in place of a word; in RESP2 and RESP3. Each call must get exactly one
//! reply. The server must survive, and free its memory when the keys are deleted.
//!
//! `REDIS_BLOOM_ARGUMENT_CALLS` is the number of calls (default 20,000);
//! `REDIS_BLOOM_ARGUMENT_SEED` repeats a run.

use crate::harness::{
    Client, Protocol, Random, Reply, Server, assert_unharmed, commands, config_name, dump, listed,
    numbered, ok, settled_memory,
};

const KEYS: [&str; 11] =
    ["grown", "counts", "full", "half", "time", "last", "string", "list", "missing", "new", ""];
const NUMBERS: [&str; 42] = [
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "01",
    "+1",
    " 1",
    "1 ",
    "100",
    "65536",
    "32768",
    "32769",
    "1000000",
    "10000000",
    "2147483647",
    "2147483648",
    "4294967296",
    "4611686018427387904",
    "4611686018427387905",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "0.5",
    "0.01",
    "0.999999999999999999999",
    "1e-300",
    "5e-324",
    "1e-400",
    "1e400",
    "-1e-5",
    "nan",
    "-nan",
    "inf",
    "-inf",
    "0x10",
    "1e",
    "٣",
];
const WORDS: [&str; 32] = [
    "COUNTING",
    "SATURATED",
    "UNDELETED",
    "GUAVA",
    "EXPANSION",
    "NONSCALING",
    "SEED",
    "SHARD",
    "WINDOW",
    "EX",
    "PX",
    "COUNT",
    "GENERATIONS",
    "NOREFRESH",
    "CAPACITY",
    "ERROR",
    "NOCREATE",
    "LINES",
    "LENGTHS",
    "WIDTH",
    "ITEMS",
    "items",
    "Size",
    "FILTERS",
    "LAYERS",
    "FPR",
    "FILL",
    "VALIDATESCALETO",
    "*",
    "a",
    "",
    "\0",
];

/// Calls with options, in addition to those of `commands`.
const SHAPES: [&str; 21] = [
    "BF.RESERVE k 0.01 100",
    "BF.RESERVE k 0.001 10 EXPANSION 3 SEED 7",
    "BF.RESERVE k 0.5 1 NONSCALING",
    "BF.RESERVE k 0.01 100 SHARD 3 8",
    "BF.BULKADD k SHARD 0 2 WIDTH 2 aabb",
    "BF.RESERVE k 0.01 100 WINDOW EX 60 GENERATIONS 2 NOREFRESH",
    "BF.RESERVE k 0.01 100 WINDOW COUNT",
    "BF.INSERT k CAPACITY 10 WINDOW PX 100 ITEMS a b",
    "BF.BULKADD k WINDOW COUNT GENERATIONS 3 WIDTH 1 ab",
    "BF.INFO k GENERATIONS",
    "BF.INSERT k CAPACITY 10 ERROR 0.1 ITEMS a b",
    "BF.INSERT k NOCREATE EXPANSION 2 SEED 1 ITEMS a",
    "BF.INSERT k TIGHTENING 0.5 SEED 0123456789abcdef0123456789abcdef",
    "BF.BULKADD k CAPACITY 10 ERROR 0.1 LENGTHS \u{1}a\u{1}b",
    "BF.BULKADD k NOCREATE WIDTH 2 aabb",
    "BF.BULKEXISTS k WIDTH 1 ab",
    "BF.INFO k CAPACITY",
    "BF.SCANDUMP k 1",
    "BF.IMPORT k GUAVA data",
    "BF.MERGE k grown",
    "BF.MERGE k k counts",
];

/// Bytes that may stay in use: buffers, statistics, fragments.
const NOISE: i64 = 2 << 20;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| {
        value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number"))
    })
}

/// Creates keys of every kind. Returns chunks of dumps, to be loaded in any order.
fn prepare(client: &mut Client) -> Vec<Vec<u8>> {
    assert_eq!(client.run("FLUSHALL"), ok());
    client.run("BF.RESERVE grown 0.01 2 EXPANSION 1");
    client.run("BF.RESERVE time 0.01 20 WINDOW PX 600");
    client.run("BF.RESERVE last 0.01 20 WINDOW COUNT");
    for key in ["time", "last"] {
        client.call("BF.MADD", key, &numbered("item", 60));
    }
    client.call("BF.MADD", "grown", &numbered("item", 60));
    client.run("BF.RESERVE counts 0.01 5 COUNTING");
    client.call("BF.MADD", "counts", &numbered("item", 60));
    client.run("BF.RESERVE full 0.01 5 NONSCALING");
    client.call("BF.MADD", "full", &numbered("item", 50));
    client.run("SET string x");
    client.run("RPUSH list x");
    let pieces = dump(client, "grown");
    client.call("BF.LOADCHUNK", "half", &[b"1", &pieces[0].1[..]]);
    let more = dump(client, "counts");
    pieces.into_iter().chain(more).map(|(_, data)| data).collect()
}

/// One argument that is not the key.
fn argument(random: &mut Random, chunks: &[Vec<u8>]) -> Vec<u8> {
    match random.below(20) {
        0..8 => random.pick(&NUMBERS).as_bytes().to_vec(),
        8..15 => random.pick(&WORDS).as_bytes().to_vec(),
        15..17 => (0..random.below(40)).map(|_| random.next() as u8).collect(),
        17 => {
            let mut chunk = random.pick(chunks).clone();
            if random.below(2) == 0 {
                let at = random.below(chunk.len());
                chunk[at] ^= 1 << random.below(8);
            }
            chunk
        }
        18 => format!("item-{}", random.below(100)).into_bytes(),
        // Rarely, or copying memory takes most of the time.
        _ if random.below(50) == 0 => vec![b'9'; 1 << 20],
        _ => vec![b'9'; 400],
    }
}

/// A valid call with up to two arguments replaced, or a command with random arguments.
fn call(
    random: &mut Random,
    names: &[String],
    shapes: &[&str],
    chunks: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let key = random.pick(&KEYS).as_bytes().to_vec();
    if random.below(3) == 0 {
        let mut words = vec![random.pick(names).as_bytes().to_vec(), key];
        let count = random.below(9);
        words.extend((0..count).map(|_| argument(random, chunks)));
        words.truncate(1 + random.below(10));
        return words;
    }
    let mut words: Vec<_> =
        random.pick(shapes).split(' ').map(|word| word.as_bytes().to_vec()).collect();
    words[1] = key;
    for _ in 0..random.below(3) {
        let at = 2 + random.below(words.len() - 1);
        let new = argument(random, chunks);
        match words.get_mut(at) {
            Some(word) => *word = new,
            None => words.push(new),
        }
    }
    words
}

#[test]
fn any_arguments_get_one_reply_and_harm_nothing() {
    let calls = variable("REDIS_BLOOM_ARGUMENT_CALLS", 20_000);
    let seed = variable("REDIS_BLOOM_ARGUMENT_SEED", 7);
    let server = Server::with().config("latency-tracking no").start();
    let mut random = Random::new(seed);
    let names = listed(&mut server.client());
    let shapes: Vec<_> = SHAPES.into_iter().chain(commands().map(|each| each.call)).collect();
    // This limit refuses huge sizes on every machine, independent of its memory.
    let bound = ["CONFIG", "SET", &config_name("max-filter-bytes"), "33554432"];
    assert_eq!(server.client().cmd(&bound), ok());
    prepare(&mut server.client());
    server.client().run("FLUSHALL");
    let empty = settled_memory(&server);
    let (mut errors, mut done, mut peak) = (0_u64, 0, 0);
    while done < calls {
        let protocol = *random.pick(&Protocol::BOTH);
        let client = &mut server.speak(protocol);
        let chunks = prepare(client);
        let batch: Vec<_> = (0..40).map(|_| call(&mut random, &names, &shapes, &chunks)).collect();
        for words in &batch {
            let reply = client.cmd(words);
            let shown = || {
                let words: Vec<_> = words
                    .iter()
                    .map(|word| String::from_utf8_lossy(&word[..word.len().min(60)]).into_owned())
                    .collect();
                format!(
                    "seed {seed}, after {done} calls, {protocol:?}: {words:?} answered {reply:?}"
                )
            };
            if let Reply::Error(text) = &reply {
                errors += 1;
                assert!(!text.contains("internal error"), "{}", shown());
                // The first word is a code in capitals: clients parse it.
                let code = text.split(' ').next().unwrap_or_default();
                assert!(
                    code.len() > 2 && code.bytes().all(|byte| byte.is_ascii_uppercase()),
                    "{}",
                    shown()
                );
            }
            done += 1;
        }
        client.assert_in_step();
        peak = peak.max(client.memory("used_memory"));
        let there = client.run("BF.EXISTS grown item-0");
        assert_eq!(there, protocol.bit(true), "a false negative, seed {seed}");
    }
    server.client().run("FLUSHALL");
    let left = settled_memory(&server) - empty;
    println!(
        "REDIS_BLOOM_ARGUMENT_SEED={seed}: {done} calls, {errors} of them refused; {left} bytes \
         of memory left, {} MB at most",
        peak >> 20
    );
    // At most 32 MiB for the filter of each key; the allocator may round up to twice that.
    assert!(peak < empty + (KEYS.len() as i64 + 2) * (64 << 20), "{peak} bytes used");
    assert!(left < NOISE, "{left} bytes of memory are left behind");
    assert!(
        errors > calls / 10 && errors < calls * 9 / 10,
        "{errors} errors: too few calls succeed or fail"
    );
    assert_unharmed(&server);
}
