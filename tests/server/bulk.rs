//! BF.BULKADD and BF.BULKEXISTS: BF.INSERT and BF.MEXISTS with all items in one string. They answer
//! as those commands do, and leave the same filter.

use crate::harness::{
    Client, Protocol, Random, Reply, Server, array, bits, bulk, config_name, digest, err, fresh,
    info, int, layers, numbered, ok,
};

/// A reply of BF.BULKADD or BF.BULKEXISTS.
fn answers(count: i64, bits: &[u8]) -> Reply {
    array([int(count), bulk(bits)])
}

/// Packs items as LENGTHS.
fn lengths<A: AsRef<[u8]>>(items: &[A]) -> Vec<u8> {
    let mut blob = Vec::new();
    for item in items.iter().map(AsRef::as_ref) {
        let mut left = item.len();
        while left >= 128 {
            blob.push((left % 128 + 128) as u8);
            left /= 128;
        }
        blob.push(left as u8);
        blob.extend(item);
    }
    blob
}

#[test]
fn each_item_gets_a_bit_as_setbit_counts() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        fresh(
            client,
            &[
                (&[], "BF.BULKADD k LINES a", answers(1, &[0x80])),
                (&[], "bf.bulkadd k lines a", answers(1, &[0x80])),
                (&["BF.MADD k a b"], "BF.BULKADD k WIDTH 1 axb", answers(3, &[0x40])),
                (&["BF.MADD k a b"], "BF.BULKEXISTS k WIDTH 1 axb", answers(3, &[0xA0])),
                (&["BF.MADD k a b"], "bf.bulkexists k width 1 axb", answers(3, &[0xA0])),
                (&["BF.ADD k i"], "BF.BULKEXISTS k WIDTH 1 abcdefghi", answers(9, &[0, 0x80])),
                (&["BF.ADD k abc"], "BF.BULKEXISTS k WIDTH 3 abcabd", answers(2, &[0x80])),
                // A missing key holds nothing, and no question creates it.
                (&[], "BF.BULKEXISTS k WIDTH 1 abcdefghi", answers(9, &[0, 0])),
                (&["BF.BULKEXISTS k LINES a"], "EXISTS k", int(0)),
            ],
        );
        client.run("FLUSHALL");
        assert_eq!(client.cmd(&["BF.BULKADD", "k", "LINES", "a\n\nb\na\n"]), answers(4, &[0xE0]));
        let blob = b"\x01a\x00\x01c\x01b";
        assert_eq!(
            client.cmd(&[b"BF.BULKEXISTS", &b"k"[..], b"LENGTHS", blob]),
            answers(4, &[0xD0])
        );
        // Bits as the server's own commands read them.
        let reply = client.cmd(&["BF.BULKEXISTS", "k", "WIDTH", "1", "a"]);
        assert_eq!(
            client.cmd(&[&b"SET"[..], b"bits", &reply.elements()[1].clone().payload()]),
            ok()
        );
        assert_eq!(client.run("GETBIT bits 0"), int(1));
        assert_eq!(client.run("BITCOUNT bits"), int(1));
    }
}

/// An empty blob is a batch of no items. BF.BULKADD makes the filter all the same.
#[test]
fn an_empty_blob_has_no_items() {
    let server = Server::start();
    let client = &mut server.client();
    for format in [&["LINES"][..], &["LENGTHS"], &["WIDTH", "8"]] {
        client.run("FLUSHALL");
        let call = |name| [&[name, "k"], format, &[""]].concat();
        assert_eq!(client.cmd(&call("BF.BULKEXISTS")), answers(0, b""), "{format:?}");
        assert_eq!(client.run("EXISTS k"), int(0));
        assert_eq!(client.cmd(&call("BF.BULKADD")), answers(0, b""), "{format:?}");
        assert_eq!(client.run("BF.CARD k"), int(0));
        assert_eq!(client.run("EXISTS k"), int(1));
        assert_eq!(client.cmd(&call("BF.BULKADD")), answers(0, b""), "{format:?}");
        assert_eq!(client.cmd(&call("BF.BULKEXISTS")), answers(0, b""), "{format:?}");
    }
}

#[test]
fn bulkadd_creates_the_filter_that_insert_creates() {
    let server = Server::start();
    let client = &mut server.client();
    for options in [
        "SEED 9",
        "CAPACITY 500 ERROR 0.001 EXPANSION 4 SEED 9",
        "NONSCALING SEED 9 CAPACITY 3",
        "seed 9 counting",
        "EXPANSION 0 SEED 18446744073709551615",
        "TIGHTENING 0.5 VALIDATESCALETO 10 SEED 9",
        "TIGHTENING 0.5 SEED 0123456789abcdef0123456789abcdef",
    ] {
        client.run("FLUSHALL");
        client.run(&format!("BF.INSERT inserted {options} ITEMS a b a"));
        let reply = client.run(&format!("BF.BULKADD k {options} WIDTH 1 aba"));
        assert_eq!(reply, answers(3, &[0xC0]), "{options}");
        assert_eq!(client.run("DUMP k"), client.run("DUMP inserted"), "{options}");
    }
    client.run("FLUSHALL");
    client.run("BF.BULKADD k CAPACITY 7 EXPANSION 3 LINES a");
    let made = info(client, "k");
    assert_eq!((made.capacity, made.expansion, made.items), (7, Some(3), 1));
    // These options have no effect on a filter that exists.
    assert_eq!(client.run("BF.BULKADD k ERROR 0.5 CAPACITY 9 LINES b"), answers(1, &[0x80]));
    assert_eq!(info(client, "k").capacity, 7);
    assert_eq!(layers(client, "k").1.len(), 1);
}

#[test]
fn wrong_calls_are_refused_and_change_nothing() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        let unknown = || err("ERR Unknown argument received");
        let width = || err("ERR width must be in the range [1, 4096]");
        fresh(
            client,
            &[
                (&[], "BF.BULKADD k NOCREATE LINES a", err("ERR not found")),
                (&[], "BF.BULKADD k ITEMS a", unknown()),
                (&[], "BF.BULKADD k LINE a", unknown()),
                (&[], "BF.BULKADD k a LINES a", unknown()),
                (&[], "BF.BULKEXISTS k ITEMS a", unknown()),
                (&[], "BF.BULKEXISTS k NOCREATE LINES a", unknown()),
                (&[], "BF.BULKADD k CAPACITY 0 LINES a", err("ERR Bad capacity")),
                (&[], "BF.BULKADD k ERROR 1 LINES a", err("ERR Bad error rate")),
                (&[], "BF.BULKADD k EXPANSION -1 LINES a", err("ERR Bad expansion")),
                (&[], "BF.BULKADD k SEED -1 LINES a", err("ERR bad seed")),
                (&[], "BF.BULKADD k WIDTH 0 a", width()),
                (&[], "BF.BULKADD k WIDTH 4097 a", width()),
                (&[], "BF.BULKADD k WIDTH -1 a", width()),
                (&[], "BF.BULKADD k WIDTH 01 a", width()),
                (&[], "BF.BULKADD k WIDTH x a", width()),
                (&[], "BF.BULKEXISTS k WIDTH 4097 a", width()),
                (&[], "BF.BULKADD k WIDTH 2 abcde", err("ERR bad blob at byte 4")),
                (&[], "BF.BULKEXISTS k WIDTH 4096 a", err("ERR bad blob at byte 0")),
                (&[], "BF.BULKADD k LENGTHS \u{1}a\u{3}bc", err("ERR bad blob at byte 2")),
                (&["BF.ADD k a"], "BF.BULKADD k LENGTHS \u{1}b9", err("ERR bad blob at byte 2")),
                (&["BF.ADD k a"], "BF.BULKEXISTS k LENGTHS 9", err("ERR bad blob at byte 0")),
                (&["BF.ADD k a"], "BF.BULKADD k ERROR 2 LINES b", err("ERR Bad error rate")),
            ],
        );
        assert_eq!(client.run("BF.CARD k"), int(1), "nothing of the last batch is in");
        client.run("FLUSHALL");
        client.run("BF.BULKADD k WIDTH 2 abcde");
        assert_eq!(client.run("DBSIZE"), int(0));
    }
}

#[test]
fn an_error_is_the_third_element_and_the_items_before_it_are_in() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        let full = |count, bits: &[u8]| {
            array([int(count), bulk(bits), err("ERR non scaling filter is full")])
        };
        let empty = &["BF.RESERVE k 1e-9 2 NONSCALING"][..];
        let filled = &["BF.RESERVE k 1e-9 2 NONSCALING", "BF.MADD k a b"][..];
        fresh(
            client,
            &[
                (empty, "BF.BULKADD k WIDTH 1 ab", answers(2, &[0xC0])),
                (empty, "BF.BULKADD k WIDTH 1 abcde", full(2, &[0xC0])),
                (empty, "BF.BULKADD k WIDTH 1 aabcd", full(3, &[0xA0])),
                (filled, "BF.BULKADD k WIDTH 1 aba", answers(3, &[0])),
                (filled, "BF.BULKADD k WIDTH 1 acb", full(1, &[0])),
                (filled, "BF.BULKADD k WIDTH 1 c", full(0, &[])),
                (
                    &[],
                    "BF.BULKADD k ERROR 1e-9 CAPACITY 2 NONSCALING WIDTH 1 abcd",
                    full(2, &[0xC0]),
                ),
            ],
        );
        assert_eq!(client.run("BF.BULKEXISTS k WIDTH 1 abcd"), answers(4, &[0xC0]));
    }
    // A filter that may not grow.
    let client = &mut server.client();
    client.run("FLUSHALL");
    client.run("BF.RESERVE k 1e-9 1000");
    assert_eq!(client.cmd(&["CONFIG", "SET", &config_name("max-filter-bytes"), "10000"]), ok());
    let lines = numbered("item", 6_000).join("\n");
    let reply = client.cmd(&["BF.BULKADD", "k", "LINES", &lines]);
    let card = client.run("BF.CARD k").int();
    assert_eq!(reply.elements()[0], int(card), "each item is new until the filter is full");
    assert_eq!(reply.elements()[2], err("ERR problem inserting into filter"));
    let before = digest(client, "k");
    let reply = client.cmd(&["BF.BULKADD", "k", "LINES", "item-0\nabsent\nitem-1"]);
    let failed = err("ERR problem inserting into filter");
    assert_eq!(reply, array([int(1), bulk(b"\0"), failed]));
    assert_eq!(digest(client, "k"), before);
    assert_eq!(
        client.run("BF.BULKADD new CAPACITY 1000000 LINES a"),
        err("ERR Insufficient memory to create filter")
    );
}

#[test]
fn missing_key_error_and_half_a_load_refuse_questions() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.cmd(&["CONFIG", "SET", &config_name("missing-key-error"), "yes"]), ok());
    assert_eq!(client.run("BF.BULKEXISTS k LINES a"), err("ERR not found"));
    assert_eq!(client.cmd(&["BF.BULKEXISTS", "k", "LINES", ""]), err("ERR not found"));
    assert_eq!(client.run("BF.BULKADD k LINES a"), answers(1, &[0x80]));
    let header = client.run("BF.SCANDUMP k 0").elements()[1].clone().payload();
    assert_eq!(client.call("BF.LOADCHUNK", "half", &[b"1", &header[..]]), ok());
    let loading = err("ERR filter is being loaded by BF.LOADCHUNK");
    assert_eq!(client.run("BF.BULKEXISTS half LINES a"), loading);
    assert_eq!(client.run("BF.BULKADD half LINES a"), loading);
}

/// At `maxmemory` the server refuses additions and answers questions.
#[test]
fn additions_are_refused_at_maxmemory() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.ADD k a");
    client.run("CONFIG SET maxmemory 1");
    let reply = client.run("BF.BULKADD k LINES b");
    assert!(reply.error().starts_with("OOM"), "{reply:?}");
    assert_eq!(client.run("BF.BULKEXISTS k WIDTH 1 ab"), answers(2, &[0x80]));
}

/// Random items: empty ones, binary ones, and now and then one of a megabyte.
fn random_items(random: &mut Random, width: Option<usize>) -> Vec<Vec<u8>> {
    let count = random.below(300);
    let mut items = Vec::new();
    for _ in 0..count {
        let length = match (width, random.below(500)) {
            (Some(width), _) => width,
            (None, 0) => 1 << 20,
            (None, 1..10) => random.below(1_000),
            (None, _) => random.below(4),
        };
        // Few different bytes, so that items repeat.
        let mut item: Vec<_> =
            (0..length).map(|_| [0, b'\n', 0xFF, b'a'][random.below(4)]).collect();
        if let Some(last) = item.last_mut().filter(|_| random.below(2) == 0) {
            *last = random.next() as u8;
        }
        items.push(item);
    }
    items
}

/// Every filter gets the same items, each by another command, and one seed.
#[test]
fn all_formats_agree_with_madd_and_mexists_on_random_items() {
    let server = Server::start();
    let client = &mut server.client();
    let mut random = Random::new(20);
    for kind in ["", "COUNTING", "NONSCALING", "NONSCALING COUNTING"] {
        client.run("FLUSHALL");
        for key in ["listed", "lines", "lengths", "width"] {
            let line = format!("BF.RESERVE {key} 0.05 700 SEED 5 {kind}");
            assert_eq!(client.run(&line), ok(), "{line}");
        }
        for round in 0..12 {
            let mut width = (round % 2 == 0).then(|| 1 + random.below(9));
            let mut items = random_items(&mut random, width);
            let whole = |item: &Vec<u8>| !item.contains(&b'\n');
            if round % 3 == 0 {
                items.retain(whole);
            }
            if items.is_empty() {
                // Not a call of BF.MADD.
                items.push(b"x".to_vec());
                width = None;
            }
            // The last item may be empty, so every line ends with a line end.
            let mut lines =
                items.iter().flat_map(|item| [item, &b"\n"[..]]).collect::<Vec<_>>().concat();
            if random.below(2) == 0 && items.last().is_some_and(|item| !item.is_empty()) {
                lines.pop();
            }
            let mut ways = vec![("lengths", vec![b"LENGTHS".to_vec(), lengths(&items)])];
            if items.iter().all(whole) {
                ways.push(("lines", vec![b"LINES".to_vec(), lines]));
            }
            if let Some(width) = width {
                let words = vec![b"WIDTH".to_vec(), width.to_string().into(), items.concat()];
                ways.push(("width", words));
            }
            let listed = client.call("BF.MADD", "listed", &items);
            let error = listed.elements().iter().find(|reply| reply.is_error()).cloned();
            let expected: Vec<_> =
                listed.elements().iter().filter(|reply| !reply.is_error()).collect();
            let expected = array(expected.into_iter().cloned()).answers();
            let there = client.call("BF.MEXISTS", "listed", &items).answers();
            for key in ["lines", "lengths", "width"] {
                let Some((_, words)) = ways.iter().find(|(way, _)| *way == key) else {
                    // What the format cannot hold is added by BF.MADD.
                    client.call("BF.MADD", key, &items);
                    continue;
                };
                let reply = client.call("BF.BULKADD", key, words);
                assert_eq!(reply.elements().get(2), error.as_ref(), "{kind} {key}");
                let two = array(reply.elements()[..2].iter().cloned());
                assert_eq!(bits(&two), expected, "{kind} {key}, round {round}");
                let reply = client.call("BF.BULKEXISTS", key, words);
                assert_eq!(bits(&reply), there, "{kind} {key}, round {round}");
            }
            for key in ["lines", "lengths", "width"] {
                assert_eq!(digest(client, key), digest(client, "listed"), "{kind} {key}");
            }
        }
        client.assert_in_step();
    }
}

#[test]
fn transactions_and_scripts_can_call_them() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("MULTI");
    client.run("BF.BULKADD k WIDTH 1 ab");
    client.run("BF.BULKEXISTS k WIDTH 1 abc");
    assert_eq!(client.run("EXEC"), array([answers(2, &[0xC0]), answers(3, &[0xC0])]));
    let script = "local added = redis.call('BF.BULKADD', KEYS[1], 'LINES', ARGV[1])
        local asked = redis.call('BF.BULKEXISTS', KEYS[1], 'WIDTH', '1', 'ax')
        return {added[1], added[2], asked[1], asked[2]}";
    let reply = client.cmd(&["EVAL", script, "1", "k", "a\nx"]);
    assert_eq!(reply, array([int(2), bulk([0x40]), int(2), bulk([0xC0])]));
}

/// The commands of this module that a MONITOR of a replica, or an AOF, shows.
fn replicated(server: &Server, since: usize) -> Vec<Vec<Vec<u8>>> {
    let file = server.dir().join("appendonlydir");
    let increments = std::fs::read_dir(file).expect("the directory of the AOF");
    let path = increments
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .expect("an AOF");
    let bytes = std::fs::read(path).expect("the AOF");
    let mut commands = Vec::new();
    let mut left = &bytes[..];
    let number = |left: &mut &[u8]| {
        let end = left.iter().position(|&byte| byte == b'\r').expect("a line");
        let text = String::from_utf8_lossy(&left[1..end]).into_owned();
        *left = &left[end + 2..];
        text.parse::<usize>().expect("a number")
    };
    while !left.is_empty() {
        let words = (0..number(&mut left)).map(|_| {
            let length = number(&mut left);
            let word = left[..length].to_vec();
            left = &left[length + 2..];
            word
        });
        commands.push(words.collect());
    }
    commands.retain(|words: &Vec<Vec<u8>>| words[0].to_ascii_uppercase().starts_with(b"BF."));
    commands.split_off(since)
}

/// What reaches replicas and the AOF: the items that changed the filter, packed; the call itself if
/// all did; nothing if none did.
#[test]
fn effects_are_replicated_packed() {
    let server = Server::with().config("appendonly yes").config("appendfsync always").start();
    let client = &mut server.client();
    let mut seen = 0;
    let mut effect = |client: &mut Client, words: &[&[u8]]| {
        let reply = client.cmd(words);
        assert!(!reply.is_error(), "{reply:?}");
        let new = replicated(&server, seen);
        seen += new.len();
        new.iter()
            .map(|words| {
                let words: Vec<_> =
                    words.iter().map(|word| word.escape_ascii().to_string()).collect();
                words.join(" ")
            })
            .collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    let mut run = |client: &mut Client, line: &str| {
        effect(client, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    };
    assert_eq!(
        run(client, "BF.BULKADD k CAPACITY 9 SEED 7 WIDTH 1 aab"),
        [r"BF.BULKADD k ERROR 0.01 CAPACITY 9 EXPANSION 2 SEED 7 LENGTHS \x01a\x01b"]
    );
    assert_eq!(run(client, "BF.BULKADD k WIDTH 1 abab"), none);
    assert_eq!(run(client, "BF.BULKADD k NOCREATE LINES a"), none);
    assert_eq!(run(client, "bf.bulkadd k WIDTH 2 cdef"), ["bf.bulkadd k WIDTH 2 cdef"]);
    assert_eq!(
        run(client, "BF.BULKADD k CAPACITY 3 WIDTH 2 ghcdij"),
        [r"BF.BULKADD k NOCREATE LENGTHS \x02gh\x02ij"]
    );
    assert_eq!(run(client, "BF.BULKEXISTS k WIDTH 1 az"), none);
    assert_eq!(run(client, "BF.BULKADD k LINES "), none);
    // A new filter without items.
    assert_eq!(
        run(client, "BF.BULKADD new SEED 7 NONSCALING LINES "),
        ["BF.RESERVE new 0.01 100 NONSCALING SEED 7"]
    );
    assert_eq!(
        run(client, "BF.BULKADD valkey SEED 0123456789abcdef0123456789abcdef LINES "),
        ["BF.INSERT valkey ERROR 0.01 CAPACITY 100 EXPANSION 2 TIGHTENING 0.5 SEED \
          0123456789abcdef0123456789abcdef"]
    );
    // With counters every addition changes the filter.
    run(client, "BF.RESERVE counts 0.01 100 COUNTING");
    assert_eq!(run(client, "BF.BULKADD counts WIDTH 1 aaa"), ["BF.BULKADD counts WIDTH 1 aaa"]);
    // Only the items before an error changed the filter.
    run(client, "BF.RESERVE full 1e-9 2 NONSCALING");
    run(client, "BF.RESERVE full_counting 1e-9 2 NONSCALING COUNTING");
    for key in ["full", "full_counting"] {
        assert_eq!(
            run(client, &format!("BF.BULKADD {key} WIDTH 1 abcd")),
            [format!(r"BF.BULKADD {key} NOCREATE LENGTHS \x01a\x01b")]
        );
    }
}

#[test]
fn a_replica_and_an_aof_hold_the_same_filters() {
    let mut master = Server::with().config("appendonly yes").start();
    let replica = master.replica();
    let client = &mut master.client();
    let mut random = Random::new(21);
    let kinds = ["", "COUNTING", "NONSCALING", "EXPANSION 1 CAPACITY 20"];
    let keys: Vec<_> = (0..kinds.len()).map(|number| format!("k{number}")).collect();
    for _ in 0..20 {
        for (key, kind) in keys.iter().zip(kinds) {
            let blob = lengths(&random_items(&mut random, None));
            let mut words = vec![&b"BF.BULKADD"[..], key.as_bytes()];
            words.extend(kind.split_whitespace().map(str::as_bytes));
            words.extend([&b"LENGTHS"[..], &blob]);
            let reply = client.cmd(&words);
            assert!(!reply.is_error(), "{reply:?}");
        }
    }
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    let read = &mut replica.client();
    for key in &keys {
        assert_eq!(digest(read, key), digest(client, key), "{key}");
    }
    assert!(!replica.log().contains("CRITICAL"), "{}", replica.log());
    let kept: Vec<_> = keys.iter().map(|key| digest(client, key)).collect();
    master.restart();
    let client = &mut master.client();
    let loaded: Vec<_> = keys.iter().map(|key| digest(client, key)).collect();
    assert_eq!(loaded, kept);
    assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
}

/// A replica takes what its primary took: new layers, and the items before a full filter's error,
/// also where its own settings would refuse them to a client.
#[test]
fn a_replica_with_smaller_limits_takes_every_blob() {
    let server = Server::start();
    let replica = server.replica();
    let (client, read) = (&mut server.client(), &mut replica.client());
    assert_eq!(read.cmd(&["CONFIG", "SET", &config_name("max-filter-bytes"), "100"]), ok());
    assert_eq!(read.run("CONFIG SET maxmemory 1"), ok());
    let lines = numbered("item", 3_000).join("\n");
    for key in ["grows", "counts", "full"] {
        let kind = match key {
            "grows" => "EXPANSION 2",
            "counts" => "COUNTING",
            _ => "NONSCALING",
        };
        let line = format!("BF.BULKADD {key} CAPACITY 500 ERROR 0.01 {kind} LINES");
        let mut words: Vec<&str> = line.split(' ').collect();
        words.push(&lines);
        let reply = client.cmd(&words);
        let full = (key == "full").then(|| err("ERR non scaling filter is full"));
        assert_eq!(reply.elements().get(2), full.as_ref(), "{key}");
        // Items of the blob before, and new ones.
        let more = format!("item-7\n{}", numbered("more", 500).join("\n"));
        let reply = client.cmd(&["BF.BULKADD", key, "LINES", &more]);
        assert_eq!(reply.elements().get(2), full.as_ref(), "{key}");
    }
    assert!(info(client, "grows").filters > 1 && info(client, "counts").filters > 1);
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    for key in ["grows", "counts", "full"] {
        assert_eq!(digest(read, key), digest(client, key), "{key}");
    }
    assert_eq!(read.server_info("bf", "bf_unapplied"), "0");
}

/// INFO counts items, not commands.
#[test]
fn info_counts_the_items() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.BULKADD k WIDTH 1 aab");
    client.run("BF.BULKEXISTS k WIDTH 1 abxyz");
    client.run("BF.BULKEXISTS missing WIDTH 1 abcd");
    for (field, value) in [("adds", "3"), ("items", "2"), ("checks", "9"), ("positives", "2")] {
        assert_eq!(client.server_info("bf", &format!("bf_{field}")), value, "{field}");
    }
}
