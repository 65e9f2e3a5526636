//! Filters that forget: words, errors, replies, and what depends on no time. Times are in
//! `windows_clock.rs`.

use crate::harness::{
    Protocol, Reply, Server, assert_unharmed, check, digest, dump, err, int, ints, load, madd,
    mexists, null, numbered, ok, wait_until,
};
use crate::obeyed::aof;

#[test]
fn the_words_of_a_window_are_checked() {
    let server = Server::start();
    let (span, generations) = ("WINDOW must be ", "GENERATIONS must be in the range [1, 32]");
    let (missing, scales) = ("GENERATIONS and NOREFRESH need", "WINDOW COUNT cannot have an");
    let wrong = [
        ("WINDOW", span),
        ("WINDOW x", span),
        ("WINDOW EX", span),
        ("WINDOW EX x", span),
        ("WINDOW EX 0", span),
        ("WINDOW EX -1", span),
        ("WINDOW EX 1.5", span),
        ("WINDOW EX 315360001", span),
        ("WINDOW EX 18446744073709551615", span),
        ("WINDOW PX 3", span),
        ("WINDOW PX 315360000001", span),
        ("WINDOW PX 31 GENERATIONS 32", span),
        ("WINDOW EX 9 GENERATIONS", generations),
        ("WINDOW EX 9 GENERATIONS 0", generations),
        ("WINDOW EX 9 GENERATIONS 33", generations),
        ("WINDOW EX 9 GENERATIONS 260", generations),
        ("WINDOW EX 9 COUNTING", "not with COUNTING"),
        ("COUNTING WINDOW COUNT", "not with COUNTING"),
        ("WINDOW COUNT EXPANSION 1", scales),
        ("EXPANSION 2 WINDOW COUNT", scales),
        ("GENERATIONS 4", missing),
        ("NOREFRESH", missing),
        ("GENERATIONS 4 NOREFRESH", missing),
    ];
    let right = [
        "WINDOW EX 1",
        "WINDOW EX 315360000",
        "WINDOW PX 4",
        "window px 315360000000 generations 32 norefresh",
        "WINDOW PX 1 GENERATIONS 1",
        "NOREFRESH GENERATIONS 7 WINDOW EX 9 EXPANSION 3",
        "WINDOW EX 9 NONSCALING SEED 1",
        "WINDOW EX 9 SHARD 0 1",
        "WINDOW COUNT",
        "WINDOW COUNT NONSCALING",
        "WINDOW COUNT EXPANSION 0 NOREFRESH",
        // The last one counts, as with other options.
        "WINDOW EX 9 WINDOW COUNT",
    ];
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        for (words, why) in wrong {
            client.run("DEL k");
            let lines = [
                format!("BF.RESERVE k 0.01 100 {words}"),
                format!("BF.INSERT k CAPACITY 100 {words} ITEMS a"),
                format!("BF.BULKADD k CAPACITY 100 {words} LINES a"),
            ];
            // These words end too early where other words follow.
            let ends = ["WINDOW", "WINDOW EX", "WINDOW EX 9 GENERATIONS"].contains(&words);
            for line in if ends { &lines[..1] } else { &lines[..] } {
                let reply = client.run(line);
                let expected = format!("ERR bad window: {why}");
                assert!(reply.error().starts_with(&expected), "{line}: {reply:?}");
            }
            assert_eq!(client.run("EXISTS k"), int(0), "{words}");
        }
        for words in right {
            let new = |line: String, client: &mut crate::harness::Client| {
                client.run("DEL k");
                let reply = client.run(&line);
                assert!(!reply.is_error(), "{line}: {reply:?}");
                let other = err("ERR the filter has another window");
                assert_eq!(client.run("BF.INSERT k WINDOW EX 77 ITEMS b"), other);
                let same = client.run(&format!("BF.INSERT k {words} ITEMS b"));
                assert_eq!(same.elements().len(), 1, "{words}");
                client.run("BF.INFO k WINDOW")
            };
            let reserved = new(format!("BF.RESERVE k 0.01 100 {words}"), client);
            let inserted = new(format!("BF.INSERT k CAPACITY 100 {words} ITEMS a"), client);
            let packed = new(format!("BF.BULKADD k CAPACITY 100 {words} LINES a"), client);
            assert!(reserved == inserted && inserted == packed, "{words}");
        }
    }
}

#[test]
fn the_window_is_described() {
    let server = Server::start();
    let client = &mut server.resp3();
    client.run("BF.RESERVE k 0.01 1000 WINDOW EX 60 NOREFRESH");
    let window = client.run("BF.INFO k WINDOW");
    let window = window.get("Window").expect("the window");
    let field = |map: &Reply, name: &str| map.get(name).expect("a field").clone();
    assert_eq!(field(window, "Kind").text(), "time");
    assert_eq!(field(window, "Milliseconds"), int(60_000));
    assert_eq!(field(window, "Generations"), int(4));
    assert_eq!(field(window, "Refresh"), Reply::Bool(false));
    assert_eq!(field(window, "Capacity"), int(1_000));
    let generations = |client: &mut crate::harness::Client| {
        client.run("BF.INFO k GENERATIONS").get("Generations").expect("generations").clone()
    };
    let new = generations(client);
    assert_eq!(new.elements().len(), 1);
    // No time before the first addition.
    assert_eq!(field(&new.elements()[0], "Started"), null());
    assert_eq!(client.run("BF.MADD k a b c").answers(), [true; 3]);
    let one = generations(client);
    let one = &one.elements()[0];
    assert!(field(one, "Started").int() > 1_600_000_000_000, "{one:?}");
    assert_eq!(field(one, "Items"), int(3));
    assert_eq!(field(one, "Alive"), Reply::Bool(true));
    assert_eq!(client.run("BF.CARD k"), int(3));
    // The full reply keeps RedisBloom's five pairs.
    let Reply::Map(pairs) = client.run("BF.INFO k") else { panic!("a map") };
    assert_eq!(pairs.len(), 5);
    client.run("BF.RESERVE plain 0.01 1000");
    assert_eq!(client.run("BF.INFO plain WINDOW").get("Window"), Some(&Reply::Null));
    assert_eq!(client.run("BF.INFO plain GENERATIONS").get("Generations"), Some(&Reply::Null));
    client.run("BF.RESERVE n 0.01 1000 WINDOW COUNT");
    let window = client.run("BF.INFO n WINDOW");
    let window = window.get("Window").expect("the window");
    assert_eq!(
        (field(window, "Kind").text(), field(window, "Milliseconds")),
        ("count".into(), null())
    );
}

#[test]
fn other_commands_refuse_or_take_a_window() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE w 0.01 1000 WINDOW EX 600");
    client.run("BF.RESERVE plain 0.01 1000");
    client.run("BF.MADD w a b");
    check(
        client,
        &[
            ("BF.DEL w a", err("ERR not a counting filter")),
            ("BF.COUNT w a", err("ERR not a counting filter")),
            ("BF.MERGE w plain", err("ERR filters with a window cannot be merged")),
            ("BF.MERGE plain w", err("ERR filters with a window cannot be merged")),
            ("BF.MERGE new w", err("ERR filters with a window cannot be merged")),
            ("EXISTS new", int(0)),
            ("BF.FORGET w", int(0)),
            ("BF.FORGET plain", err("ERR not a filter with a window")),
            ("BF.FORGET missing", err("ERR not found")),
            ("BF.EXISTS w a", int(1)),
            ("BF.EXISTS w c", int(0)),
            ("BF.MEXISTS w a b c", ints([1, 1, 0])),
            ("BF.ADD w a", int(0)),
            ("BF.ADD w c", int(1)),
            ("BF.CARD w", int(3)),
        ],
    );
    let refused = "ERR BF.SHIFT is for servers: it is sent by a primary or an AOF";
    for line in ["BF.SHIFT w OPEN 1", "BF.SHIFT missing SWEEP 1", "BF.SHIFT plain x y"] {
        assert_eq!(client.run(line), err(refused), "{line}");
    }
    let bits = client.cmd(&["BF.BULKEXISTS", "w", "LINES", "a\nb\nx"]);
    assert_eq!(bits.elements()[0], int(3));
    assert_unharmed(&server);
}

#[test]
fn a_window_of_items_remembers_the_last_ones() {
    let server = Server::start();
    let replica = server.replica();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.0001 1000 WINDOW COUNT");
    let items = numbered("item", 20_000);
    for batch in items.chunks(77) {
        madd(client, "k", batch);
    }
    assert_eq!(mexists(client, "k", &items[19_000..]), vec![true; 1_000]);
    // At most N (1 + 1/G) are remembered; older ones are found with the error rate: of 18,000
    // items, 1.8 are expected, and Poisson exceeds 15 with a probability below 1e-9.
    let old = mexists(client, "k", &items[..18_000]);
    assert!(old.iter().filter(|found| **found).count() <= 15);
    assert!(client.run("BF.CARD k").int() <= 1_250);
    // A window of items is no stack, however many generations it has.
    assert_eq!(client.run("BF.INFO k FILTERS"), ints([1]));
    assert_eq!(client.run("BF.INFO k CAPACITY"), ints([1_000]));
    assert_eq!(client.run("BF.INFO k GENERATIONS").elements()[0].elements().len(), 5);
    // 20,000 items, but for false positives, in generations of 250.
    let shifts = client.server_info("bf", "bf_shifts").parse::<i64>().expect("a number");
    assert!((78..=80).contains(&shifts), "{shifts}");
    let forgotten = client.server_info("bf", "bf_forgotten").parse::<i64>().expect("a number");
    assert_eq!(forgotten, shifts - 4);
    assert_eq!(client.server_info("bf", "bf_windows"), "1");
    assert_eq!(client.server_info("bf", "bf_layers"), "1");
    assert_eq!(client.server_info("bf", "bf_items"), client.run("BF.CARD k").int().to_string());
    wait_until("passes are over, and the replica is equal", || {
        digest(&mut replica.client(), "k") == digest(client, "k")
    });
    assert_eq!(client.run("DEL k"), int(1));
    wait_until("all is freed", || client.server_info("bf", "bf_bytes") == "0");
    assert_eq!(client.server_info("bf", "bf_windows"), "0");
}

#[test]
fn windows_are_saved_copied_and_dumped() {
    let mut server = Server::with().config("appendonly yes").start();
    let client = &mut server.client();
    for (key, words) in [("time", "EX 6000 EXPANSION 1"), ("count", "COUNT NOREFRESH")] {
        client.run(&format!("BF.RESERVE {key} 0.01 400 WINDOW {words}"));
        madd(client, key, &numbered("item", 900));
        assert_eq!(client.run(&format!("COPY {key} {key}:copy")), int(1));
        let payload = client.cmd(&["DUMP", key]).payload();
        let words = [b"RESTORE".as_slice(), key.as_bytes(), b"0", &payload, b"REPLACE"];
        assert_eq!(client.cmd(&words), ok());
        for piece in dump(client, key) {
            assert_eq!(load(client, &format!("{key}:loaded"), &piece), ok());
        }
    }
    let keys = ["time", "time:copy", "time:loaded", "count", "count:copy", "count:loaded"];
    let digests = |client: &mut crate::harness::Client| keys.map(|key| digest(client, key));
    // What was forgotten before is removed between commands: in a copy that was made in the midst
    // of that, from BF.FORGET on.
    for key in keys {
        assert_eq!(client.run(&format!("BF.FORGET {key}")), int(0));
    }
    wait_until("the copies are equal", || {
        let copies = digests(client);
        copies[..3].iter().all(|copy| *copy == copies[0])
            && copies[3..].iter().all(|copy| *copy == copies[3])
    });
    // All of them add and forget alike from here on.
    let more = numbered("more", 300);
    for key in &keys[3..] {
        madd(client, key, &more);
    }
    // At the end the three are equal again.
    let mut before = digests(client);
    wait_until("the copies are equal again", || {
        // It stops the removal, too, which could otherwise go on after this look.
        client.run("CLIENT PAUSE 100000 WRITE");
        before = digests(client);
        let equal = before[3] == before[4] && before[4] == before[5];
        if !equal {
            client.run("CLIENT UNPAUSE");
        }
        equal
    });
    // The commands of the AOF, the AOF rewritten as an RDB file and as chunks, and an RDB file.
    for preamble in [None, Some("yes"), Some("no")] {
        if let Some(preamble) = preamble {
            let mut client = server.client();
            client.cmd(&["CONFIG", "SET", "aof-use-rdb-preamble", preamble]);
            client.run("BGREWRITEAOF");
            wait_until("the AOF is rewritten", || {
                client.server_info("persistence", "aof_rewrite_in_progress") == "0"
                    && client.server_info("persistence", "aof_rewrite_scheduled") == "0"
            });
        }
        server.restart();
        let client = &mut server.client();
        assert_eq!(digests(client), before, "{preamble:?}");
        assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
        assert_eq!(client.server_info("bf", "bf_windows"), "6");
    }
    assert_eq!(server.client().run("DEBUG RELOAD"), ok());
    assert_eq!(digests(&mut server.client()), before);
    assert_unharmed(&server);
}

#[test]
fn a_shard_may_forget() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 1000 WINDOW EX 600 SHARD 3 8");
    let rows: Vec<Reply> =
        numbered("item", 100).iter().map(|item| client.cmd(&["BF.ADD", "k", item])).collect();
    let taken = rows.iter().filter(|reply| !reply.is_error()).count() as i64;
    assert!((1..50).contains(&taken), "{taken}");
    assert_eq!(client.run("BF.CARD k"), int(taken));
    for (item, added) in numbered("item", 100).iter().zip(&rows) {
        let asked = client.cmd(&["BF.EXISTS", "k", item]);
        assert_eq!(asked.is_error(), added.is_error(), "{item}");
    }
    let batch = client.call("BF.MEXISTS", "k", &numbered("item", 100));
    assert!(batch.is_error(), "{batch:?}");
}

/// No timer frees pages while the server loads.
#[test]
fn pages_of_emptied_windows_do_not_pile_up_during_a_load() {
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let mut commands: Vec<Vec<Vec<u8>>> = vec![words("BF.RESERVE w 0.01 1000 WINDOW EX 60 SEED 1")];
    for burst in 0..30_u32 {
        let items = (0..50_000).flat_map(|item| (burst * 50_000 + item).to_le_bytes());
        let mut add: Vec<Vec<u8>> = words("BF.BULKADD w NOCREATE WIDTH 4");
        add.push(items.collect());
        let start = u64::from(burst + 1) * 200_000;
        commands.push(words(&format!("BF.SHIFT w OPEN {start}")));
        commands.push(add);
        commands.push(words(&format!("BF.SHIFT w FORGET {}", start + 100_000)));
    }
    let script = "redis.call('SET', 'usage', redis.call('MEMORY', 'USAGE', 'w'))";
    commands.push([&b"EVAL"[..], script.as_bytes(), b"0"].map(<[u8]>::to_vec).to_vec());
    let server = Server::on_file("appendonly.aof", &aof(commands), &["appendonly yes"]);
    let client = &mut server.client();
    let usage: u64 = client.run("GET usage").text().parse().expect("a number");
    // Each burst has some 110 kB of pages.
    assert!(usage < 400_000, "{usage}");
    assert_eq!(client.server_info("bf", "bf_forgotten"), "30");
    assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
    assert_unharmed(&server);
}
