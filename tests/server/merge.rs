//! BF.MERGE: filters that were reserved alike become one, which is saved and replicated as any
//! other. What cannot be merged is refused, and changes nothing.

use std::process::Command;

use crate::harness::{
    Client, Cluster, NO_COPY, PRIMARIES, Protocol, Reply, Server, add_until_card, assert_unharmed,
    check, config_name, digest, dump, err, info, int, load, madd, mexists, numbered, ok, simple,
    slot, wait_until,
};

const NOT_FOUND: &str = "ERR not found";
const NO_MEMORY: &str = "ERR Insufficient memory to create filter";

/// Reserves the filters with one seed, capacity and rate, and further options.
#[track_caller]
fn reserve(client: &mut Client, keys: &[&str], options: &str) {
    for key in keys {
        let line = format!("BF.RESERVE {key} 0.01 1000 SEED 7 {options}");
        assert_eq!(client.run(line.trim()), ok(), "{line}");
    }
}

/// Asserts that all of these items are in the filter.
#[track_caller]
fn all_in(client: &mut Client, key: &str, items: &[String]) {
    assert!(mexists(client, key, items).iter().all(|&there| there), "{key}");
}

/// The answers that show a filter, bit by bit.
fn shown(client: &mut Client, key: &str) -> [Reply; 3] {
    ["DUMP", "BF.INFO", "BF.DEBUG"].map(|command| client.cmd(&[command, key]))
}

/// The digest of everything on the server.
fn whole(client: &mut Client) -> String {
    client.run("DEBUG DIGEST").text()
}

/// The five totals of INFO, and the same numbers by BF.INFO of every key.
#[track_caller]
fn totals_are_right(client: &mut Client) {
    let keys: Vec<String> = client.run("KEYS *").elements().iter().map(Reply::text).collect();
    let mut sums = [0; 5];
    for of in keys.iter().map(|key| info(client, key)) {
        for (sum, one) in sums.iter_mut().zip([1, of.size, of.items, of.capacity, of.filters]) {
            *sum += one;
        }
    }
    let names = ["filters", "bytes", "items", "capacity", "layers"];
    let totals = names.map(|name| client.server_info("bf", &format!("bf_{name}")));
    assert_eq!(totals, sums.map(|sum| sum.to_string()));
}

#[test]
fn a_merged_filter_answers_as_the_one_that_was_given_all_items() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        for options in ["", "NONSCALING", "EXPANSION 4", "COUNTING", "COUNTING NONSCALING"] {
            // Without SYNC Valkey frees the filters later, and INFO counts them until then.
            client.run("FLUSHALL SYNC");
            reserve(client, &["a", "b", "c", "all"], options);
            let items = numbered("item", 900);
            for (key, part) in [("a", 0..500), ("b", 300..700), ("c", 650..900)] {
                madd(client, key, &items[part.clone()]);
                madd(client, "all", &items[part]);
            }
            // Into a filter that exists, and into a missing key.
            assert_eq!(client.run("COPY a into"), int(1));
            assert_eq!(client.run("BF.MERGE into b c"), ok(), "{options}");
            assert_eq!(client.run("BF.MERGE new c a b"), ok(), "{options}");
            for key in ["into", "new"] {
                all_in(client, key, &items);
                let absent = numbered("absent", 3_000);
                assert_eq!(mexists(client, key, &absent), mexists(client, "all", &absent));
                // Five times the deviation of the estimate of 900 items at 1 %, 7.
                let card = client.run(&format!("BF.CARD {key}")).int();
                assert!((865..=935).contains(&card), "{options}: {card}");
            }
            assert_eq!(client.run("BF.CARD into"), client.run("BF.CARD new"));
            // The sources stay.
            assert_eq!(client.run("BF.CARD a"), int(500));
            totals_are_right(client);
        }
    }
    assert_unharmed(&server);
}

#[test]
fn counters_are_added_and_bits_are_not_changed_by_a_second_merge() {
    let server = Server::start();
    let client = &mut server.client();
    reserve(client, &["a", "b"], "COUNTING");
    client.run("BF.MADD a x x x y");
    client.run("BF.MADD b x z");
    check(
        client,
        &[
            ("BF.MERGE a b", ok()),
            ("BF.COUNT a x", int(4)),
            ("BF.CARD a", int(3)),
            // The destination as a source, and a source twice: each counts once.
            ("BF.MERGE a a", ok()),
            ("BF.COUNT a x", int(4)),
            ("BF.MERGE a b b", ok()),
            ("BF.COUNT a x", int(5)),
            ("BF.MERGE a a b a", ok()),
            ("BF.COUNT a x", int(6)),
            ("BF.DEL a z", int(1)),
            ("BF.COUNT b x", int(1)),
        ],
    );
    reserve(client, &["c", "d"], "");
    client.run("BF.MADD c x y");
    client.run("BF.MADD d y z");
    assert_eq!(client.run("BF.MERGE c d"), ok());
    let before = shown(client, "c");
    for line in ["BF.MERGE c d", "BF.MERGE c c", "BF.MERGE c d c d d"] {
        assert_eq!(client.run(line), ok());
        assert_eq!(shown(client, "c"), before, "{line}");
    }
}

#[test]
fn what_cannot_be_merged_is_refused_and_changes_nothing() {
    let server = Server::start();
    let client = &mut server.client();
    reserve(client, &["k", "alike"], "");
    reserve(client, &["full"], "NONSCALING");
    reserve(client, &["fixed"], "NONSCALING");
    reserve(client, &["counting"], "COUNTING");
    reserve(client, &["expanding"], "EXPANSION 4");
    for (key, parameters) in [
        ("seed", "0.01 1000 SEED 8"),
        ("rate", "0.02 1000 SEED 7"),
        ("capacity", "0.01 1001 SEED 7"),
        ("random", "0.01 1000"),
    ] {
        assert_eq!(client.run(&format!("BF.RESERVE {key} {parameters}")), ok());
    }
    let seed = "0123456789abcdef0123456789abcdef";
    client.run(&format!("BF.INSERT valkey TIGHTENING 0.5 SEED {seed} CAPACITY 1000"));
    let guava = std::fs::read("tests/fixtures/guava-31-mitz64.bin").expect("a fixture");
    assert_eq!(client.cmd(&[b"BF.IMPORT", b"guava" as &[u8], b"GUAVA", &guava]), ok());
    madd(client, "k", &numbered("item", 900));
    madd(client, "alike", &numbered("other", 900));
    add_until_card(client, "full", "item", 1_000);
    client.run("BF.ADD fixed new-item");
    client.run("SET string x");
    let pieces = dump(client, "alike");
    assert_eq!(load(client, "half", &pieces[0]), ok());
    reserve(client, &["counted", "counted2"], "COUNTING NONSCALING");
    add_until_card(client, "counted", "item", 1_000);
    client.run("BF.ADD counted2 new-item");
    // Its layer is full, and has pages above it.
    reserve(client, &["overflowed"], "");
    add_until_card(client, "overflowed", "item", 2_000);
    let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
    let loading = "ERR filter is being loaded by BF.LOADCHUNK";
    let before = whole(client);
    for (line, text) in [
        ("BF.MERGE k", "ERR wrong number of arguments for 'bf.merge' command"),
        ("BF.MERGE k missing", NOT_FOUND),
        ("BF.MERGE k alike missing", NOT_FOUND),
        ("BF.MERGE missing missing", NOT_FOUND),
        ("BF.MERGE missing alike missing", NOT_FOUND),
        ("BF.MERGE k string", wrong_type),
        ("BF.MERGE string k", wrong_type),
        ("BF.MERGE string string", wrong_type),
        ("BF.MERGE k half", loading),
        ("BF.MERGE half k", loading),
        ("BF.MERGE half half", loading),
        ("BF.MERGE new half", loading),
        ("BF.MERGE k counting", "ERR filters differ in kind"),
        ("BF.MERGE k valkey", "ERR filters differ in kind"),
        ("BF.MERGE guava k", "ERR filters differ in kind"),
        ("BF.MERGE k seed", "ERR filters differ in seed"),
        ("BF.MERGE k random", "ERR filters differ in seed"),
        ("BF.MERGE k rate", "ERR filters differ in error rate"),
        ("BF.MERGE k capacity", "ERR filters differ in capacity"),
        ("BF.MERGE k expanding", "ERR filters differ in expansion"),
        ("BF.MERGE k full", "ERR filters differ in expansion"),
        ("BF.MERGE counting counted", "ERR filters differ in expansion"),
        ("BF.MERGE new k seed", "ERR filters differ in seed"),
        ("BF.MERGE new k k rate", "ERR filters differ in error rate"),
    ] {
        assert_eq!(client.run(line), err(text), "{line}");
        client.assert_in_step();
        assert_eq!(whole(client), before, "{line}");
    }
    for (line, start, end) in [
        ("BF.MERGE k alike", "ERR the union holds about 1", " items, the filter 1000"),
        ("BF.MERGE new alike k", "ERR the union holds about 1", " items, the filter 1000"),
        ("BF.MERGE full fixed", "ERR the union holds about 1001", " items, the filter 1000"),
        ("BF.MERGE overflowed alike", "ERR the union holds about 1", " items, the filter 1000"),
        ("BF.MERGE alike overflowed", "ERR the union holds about 1", " items, the filter 1000"),
        ("BF.MERGE counted counted2", "ERR the union holds about 1001 items", "the filter 1000"),
    ] {
        let refused = client.server_info("bf", "bf_refused");
        let reply = client.run(line);
        let text = reply.error();
        assert!(text.starts_with(start) && text.ends_with(end), "{line}: {text}");
        assert_ne!(client.server_info("bf", "bf_refused"), refused, "{line}");
        assert_eq!(whole(client), before, "{line}");
    }
    assert_unharmed(&server);
}

/// Filters of a family of another product merge with their own.
#[test]
fn filters_of_other_products_are_merged_with_their_own_kind() {
    let server = Server::start();
    let client = &mut server.client();
    let seed = "0123456789abcdef0123456789abcdef";
    for key in ["v", "w", "both"] {
        let line = format!("BF.INSERT {key} TIGHTENING 0.5 SEED {seed} CAPACITY 100 ERROR 0.01");
        client.run(&line);
    }
    client.run("BF.MADD v a b c");
    client.run("BF.MADD w c d");
    client.run("BF.MADD both a b c d");
    check(client, &[("BF.MERGE x v w", ok()), ("TYPE x", simple("bloomfltr"))]);
    assert_eq!(digest(client, "x"), digest(client, "both"));
    // Filters of RedisBloom, from its dumps. All layers but the newest are full, so filters with
    // several have no room for others.
    for (name, keys) in [("one-layer", ["r", "s"]), ("grown", ["grown", "grown2"])] {
        let path =
            format!("{}/tests/fixtures/redisbloom-2.8-{name}.dump", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(path).expect("a fixture");
        for key in keys {
            assert_eq!(client.cmd(&[b"RESTORE", key.as_bytes(), b"0", &bytes]), ok());
        }
    }
    client.run("BF.MADD s later-1 later-2");
    let before = digest(client, "grown");
    check(
        client,
        &[
            ("BF.MERGE r s", ok()),
            ("BF.MERGE r v", err("ERR filters differ in kind")),
            ("BF.MERGE grown grown2", err("ERR filters with several layers cannot be merged")),
        ],
    );
    assert_eq!(digest(client, "r"), digest(client, "s"));
    assert_eq!(digest(client, "grown"), before);
}

/// Merges of every kind, the last of which make layers and a key.
const MERGES: [&str; 7] = [
    "BF.MERGE a b",
    "BF.MERGE new b a",
    "BF.MERGE counting more",
    "BF.MERGE counting counting more",
    "BF.MERGE small grown",
    "BF.MERGE few many",
    "BF.MERGE made few grown-copy",
];

#[track_caller]
fn prepare(client: &mut Client) {
    reserve(client, &["a", "b"], "");
    reserve(client, &["counting", "more"], "COUNTING");
    madd(client, "a", &numbered("item", 500));
    madd(client, "b", &numbered("item", 900)[400..]);
    client.run("BF.MADD counting x x y");
    madd(client, "more", &numbered("item", 500));
    client.run("BF.DEL more item-3");
    for (key, options) in
        [("small", ""), ("grown", ""), ("few", "EXPANSION 1"), ("many", "EXPANSION 1")]
    {
        client.run(format!("BF.RESERVE {key} 0.01 50 SEED 7 {options}").trim());
    }
    add_until_card(client, "grown", "item", 400);
    add_until_card(client, "many", "item", 400);
    madd(client, "small", &numbered("item", 20));
    madd(client, "few", &numbered("item", 50));
    assert_eq!(client.run("COPY many grown-copy"), int(1));
}

const MERGED: [&str; 6] = ["a", "new", "counting", "small", "few", "made"];

#[test]
fn a_replica_an_aof_and_a_restart_have_the_same_filters() {
    let mut server = Server::with().config("appendonly yes").start();
    let replica = server.replica();
    let (client, read) = (&mut server.client(), &mut replica.client());
    // Refused to clients of the replica's own, but not to the primary.
    let limit = config_name("max-filter-bytes");
    assert_eq!(read.cmd(&["CONFIG", "SET", &limit, "100"]), ok());
    prepare(client);
    for line in MERGES {
        assert_eq!(client.run(line), ok(), "{line}");
        totals_are_right(client);
    }
    assert_eq!(info(client, "small").filters, info(client, "grown").filters);
    client.cmd(&["EVAL", "return redis.call('BF.MERGE', KEYS[1], KEYS[2])", "2", "lua", "a"]);
    client.run("MULTI");
    client.run("BF.MERGE multi a");
    client.run("BF.ADD multi later");
    assert_eq!(client.run("EXEC").elements(), [ok(), int(1)]);
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    let keys: Vec<&str> = MERGED.into_iter().chain(["lua", "multi"]).collect();
    let kept: Vec<_> = keys.iter().map(|key| shown(client, key)).collect();
    for (key, kept) in keys.iter().zip(&kept) {
        assert_eq!(&shown(read, key), kept, "{key} on the replica");
    }
    totals_are_right(read);
    assert_eq!(read.server_info("bf", "bf_unapplied"), "0");
    let digest = whole(client);
    // By the commands of the AOF, then by a rewritten AOF, then with a merge after the rewrite.
    server.kill_and_restart();
    let client = &mut server.client();
    assert_eq!(whole(client), digest);
    assert_eq!(client.run("CONFIG SET aof-use-rdb-preamble no"), ok());
    client.run("BGREWRITEAOF");
    wait_until("the AOF is rewritten", || !client.has_child());
    madd(client, "b", &numbered("later", 30));
    assert_eq!(client.run("BF.MERGE a b"), ok());
    let digest = whole(client);
    server.kill_and_restart();
    let client = &mut server.client();
    assert_eq!(whole(client), digest);
    totals_are_right(client);
    assert_eq!(client.run("DEBUG RELOAD"), ok());
    assert_eq!(whole(client), digest);
    assert_unharmed(&server);
}

/// Neither replicas nor watchers nor subscribers hear of a merge that changes nothing.
#[test]
fn only_a_merge_that_changes_something_is_announced() {
    let server = Server::start();
    let replica = server.replica();
    let (client, read) = (&mut server.client(), &mut replica.client());
    let (subscriber, other) = (&mut server.client(), &mut server.client());
    client.run("CONFIG SET notify-keyspace-events Eg$");
    assert!(!subscriber.run("PSUBSCRIBE __keyevent@0__:*").is_error());
    prepare(client);
    reserve(client, &["p", "q"], "NONSCALING");
    add_until_card(client, "q", "item", 1_000);
    reserve(client, &["empty"], "COUNTING");
    let rows: [(&str, &str, &[&str]); 11] = [
        ("a", "BF.MERGE a b", &["bloom.merge"]),
        ("a", "BF.MERGE a b", &[]),
        ("a", "BF.MERGE a a b", &[]),
        ("counting", "BF.MERGE counting empty", &[]),
        ("counting", "BF.MERGE counting counting", &[]),
        ("small", "BF.MERGE small grown", &["bloom.merge", "bloom.scale"]),
        ("p", "BF.MERGE p q", &["bloom.full", "bloom.merge"]),
        ("p", "BF.MERGE p q", &[]),
        ("new", "BF.MERGE new a", &["bloom.merge", "bloom.reserve"]),
        ("full", "BF.MERGE full q", &["bloom.full", "bloom.merge", "bloom.reserve"]),
        ("a", "BF.MERGE a counting", &[]),
    ];
    let calls = |read: &mut Client| {
        let stats = read.server_info("commandstats", "cmdstat_bf.merge");
        let calls = stats.split(['=', ',']).nth(1).map(str::to_owned);
        calls.map_or(0, |calls| calls.parse::<u64>().expect("a number"))
    };
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    let mut replicated = 0;
    for (key, line, expected) in rows {
        client.run("SET begin x");
        while subscriber.read().elements()[3].text() != "begin" {}
        client.run(&format!("WATCH {key}"));
        other.run(line);
        client.run("MULTI");
        client.run("SET end x");
        let aborted = matches!(client.run("EXEC"), Reply::Null | Reply::NullArray);
        assert_eq!(aborted, !expected.is_empty(), "{line}");
        if aborted {
            client.run("SET end x");
        }
        let mut events = Vec::new();
        loop {
            let message = subscriber.read();
            let [_, _, channel, name] = message.elements() else { panic!("{message:?}") };
            if name.text() == "end" {
                break;
            }
            assert_eq!(name.text(), key, "{line}");
            events.push(channel.text().rsplit(':').next().unwrap_or_default().to_owned());
        }
        events.sort();
        assert_eq!(events, expected, "{line}");
        assert_eq!(client.run("WAIT 1 30000"), int(1));
        replicated += u64::from(!expected.is_empty());
        assert_eq!(calls(read), replicated, "{line}");
    }
    assert_eq!(whole(read), whole(client));
    // `q`, `p` and `full`.
    assert_eq!(client.server_info("bf", "bf_filled"), "3");
}

/// Another module, of which the subscriber of `expired` deletes the destination and fills its
/// memory with strings. Its source needs no header: the server passes the function that finds the
/// others.
const SUBSCRIBER: &str = r#"
static int (*get_api)(const char *, void *);
static void *(*call)(void *, const char *, const char *, ...);
static void (*free_reply)(void *);
static int (*subscribe)(void *, int, int (*)(void *, int, const char *, void *));
static void (*set_attribs)(void *, const char *, int, int);

static int expired(void *ctx, int type, const char *event, void *key) {
    (void)type, (void)event, (void)key;
    void *reply = call(ctx, "DEL", "c", "destination");
    if (reply) free_reply(reply);
    for (int i = 0; i < 200; i++) {
        reply = call(ctx, "RPUSH", "cc", "strings", "AAAAAAAAAAAAAAAA");
        if (reply) free_reply(reply);
        long long at = i * 64;
        reply = call(ctx, "SETRANGE", "clc", "padding", at, "BBBBBBBBBBBBBBBBBBBBBBBB");
        if (reply) free_reply(reply);
    }
    return 0;
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    (void)argv, (void)argc;
    get_api = ((void **)ctx)[0];
    get_api("RedisModule_SetModuleAttribs", &set_attribs);
    get_api("RedisModule_Call", &call);
    get_api("RedisModule_FreeCallReply", &free_reply);
    get_api("RedisModule_SubscribeToKeyspaceEvents", &subscribe);
    set_attribs(ctx, "subscriber", 1, 1);
    return subscribe(ctx, 1 << 8, expired);
}
"#;

/// A source expires when it is opened, and a subscriber deletes the destination then.
#[test]
fn a_subscriber_may_delete_the_destination_when_a_source_expires() {
    let directory = tempfile::tempdir().expect("a directory");
    let (source, module) = (directory.path().join("s.c"), directory.path().join("s.so"));
    std::fs::write(&source, SUBSCRIBER).expect("a file");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&module, &source])
        .status()
        .expect("a C compiler, as for Rust's linker");
    assert!(compiled.success());
    let server = Server::with().config(&format!("loadmodule \"{}\"", module.display())).start();
    let client = &mut server.client();
    assert_eq!(client.run("DEBUG SET-ACTIVE-EXPIRE 0"), ok());
    reserve(client, &["other"], "");
    for _ in 0..20 {
        reserve(client, &["destination", "source"], "");
        // Redis deletes a key at once, without the event, if the time is over when PEXPIRE ends.
        assert_eq!(client.run("PEXPIRE source 20"), int(1));
        std::thread::sleep(std::time::Duration::from_millis(22));
        assert_eq!(client.run("BF.MERGE destination source other"), err(NOT_FOUND));
        assert_eq!(client.run("EXISTS destination source"), int(0));
    }
    assert_unharmed(&server);
}

/// An AOF may be of a build whose estimate is another: its merges are never refused.
#[test]
fn a_merge_of_an_aof_is_applied_whatever_the_number_of_items() {
    let mut lines = vec![
        "BF.RESERVE a 0.01 1000 NONSCALING SEED 7".to_owned(),
        "BF.RESERVE b 0.01 1000 NONSCALING SEED 7".to_owned(),
    ];
    let items = numbered("item", 1_900);
    lines.push(format!("BF.MADD a {}", items[..950].join(" ")));
    lines.push(format!("BF.MADD b {}", items[950..].join(" ")));
    lines.extend(
        ["BF.MERGE a b", "BF.RESERVE d 0.01 100", "BF.ADD d x", "BF.MERGE d missing"]
            .map(str::to_owned),
    );
    let mut aof = String::new();
    for line in &lines {
        aof += &format!("*{}\r\n", line.split(' ').count());
        for word in line.split(' ') {
            aof += &format!("${}\r\n{word}\r\n", word.len());
        }
    }
    let server = Server::on_file("appendonly.aof", aof.as_bytes(), &["appendonly yes"]);
    let client = &mut server.client();
    all_in(client, "a", &items);
    assert_eq!(client.run("BF.CARD a"), int(1_000));
    // The merge with a missing key could not be applied, and `d` lacks the items of that key.
    assert_eq!(client.server_info("bf", "bf_unapplied"), "1");
    assert_eq!(client.run("BF.EXISTS d x"), err(NO_COPY));
    let digest = whole(client);
    assert_eq!(client.run("DEBUG RELOAD"), ok());
    assert_eq!(whole(client), digest);
    // To clients the limit applies again: `a` has all that `b` has, but not what `c` has.
    assert_eq!(client.run("BF.MERGE b a"), ok());
    client.run("BF.RESERVE c 0.01 1000 NONSCALING SEED 7");
    madd(client, "c", &numbered("other", 100));
    let reply = client.run("BF.MERGE c a");
    assert!(reply.error().starts_with("ERR the union holds about"), "{reply:?}");
}

#[test]
fn a_union_that_may_not_have_its_memory_is_refused() {
    let server = Server::start();
    let client = &mut server.client();
    prepare(client);
    let size = |client: &mut Client, key: &str| info(client, key).size;
    let grown = size(client, "grown");
    let limit = config_name("max-filter-bytes");
    let before = whole(client);
    for (bytes, line) in [(grown / 2, "BF.MERGE small grown"), (16, "BF.MERGE new small")] {
        assert_eq!(client.cmd(&["CONFIG", "SET", &limit, &bytes.to_string()]), ok());
        assert_eq!(client.run(line), err(NO_MEMORY), "{line}");
        assert_eq!(whole(client), before, "{line}");
    }
    // A union of bits takes no more memory, so no limit applies, as for additions.
    assert_eq!(client.run("BF.MERGE a b"), ok());
    // Pages may take as much as all of them.
    let both = grown + size(client, "small");
    assert_eq!(client.cmd(&["CONFIG", "SET", &limit, &both.to_string()]), ok());
    assert_eq!(client.run("BF.MERGE small grown"), ok());
    assert!((grown..=both).contains(&size(client, "small")));
    // Above `maxmemory` the server refuses the command, as each that may take memory.
    assert_eq!(client.run("CONFIG SET maxmemory 1000"), ok());
    let reply = client.run("BF.MERGE a b");
    assert!(reply.error().starts_with("OOM"), "{reply:?}");
}

/// A union takes no more than what is left of `maxmemory`, where no key can be evicted.
#[test]
fn a_union_that_does_not_fit_into_maxmemory_is_refused() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 8000000 SEED 7"), ok());
    assert_eq!(client.run("BF.ADD k a"), int(1));
    let size = info(client, "k").size;
    let before = whole(client);
    for (room, reply) in [(size / 2, err(NO_MEMORY)), (size * 2, ok())] {
        let maxmemory = client.memory("used_memory") + room;
        assert_eq!(client.run(&format!("CONFIG SET maxmemory {maxmemory}")), ok());
        assert_eq!(client.run("BF.MERGE new k"), reply, "{room} bytes left of maxmemory");
        assert_eq!(whole(client) == before, reply != ok());
    }
    assert_eq!(client.run("BF.EXISTS new a"), int(1));
    // A union that takes no more memory needs none.
    let maxmemory = client.memory("used_memory") + size / 2;
    assert_eq!(client.run(&format!("CONFIG SET maxmemory {maxmemory}")), ok());
    assert_eq!(client.run("BF.ADD k b"), int(1));
    assert_eq!(client.run("BF.MERGE new k"), ok());
    totals_are_right(client);
}

/// In a transaction and in a script a refusal is an answer of its own, and nothing of it reaches a
/// replica.
#[test]
fn a_refused_merge_stops_neither_a_transaction_nor_a_script() {
    let server = Server::start();
    let replica = server.replica();
    let read = &mut replica.client();
    let refused = "ERR filters differ in seed";
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        client.run("FLUSHALL");
        reserve(client, &["k", "alike"], "");
        assert_eq!(client.run("BF.RESERVE seed 0.01 1000 SEED 8"), ok());
        assert!(!client.run("BF.ADD alike a").is_error());
        client.run("MULTI");
        for line in ["BF.ADD k x", "BF.MERGE k seed", "BF.MERGE k alike"] {
            client.run(line);
        }
        let replies = client.run("EXEC");
        assert_eq!(replies.elements()[1..], [err(refused), ok()]);
        let script = "local refused = redis.pcall('BF.MERGE', KEYS[1], KEYS[2]).err
            return {refused, redis.call('BF.MERGE', KEYS[3], KEYS[1])}";
        let reply = client.cmd(&["EVAL", script, "3", "k", "seed", "new"]);
        assert_eq!(reply.elements()[0].text(), refused);
        assert_eq!(reply.elements()[1], ok());
        assert!(mexists(client, "new", &["x", "a"]).iter().all(|&there| there));
        assert_eq!(client.run("WAIT 1 30000"), int(1));
        assert_eq!(whole(read), whole(client));
    }
    let stats = read.server_info("commandstats", "cmdstat_bf.merge");
    assert!(stats.starts_with("calls=4,"), "{stats}");
    assert_eq!(read.server_info("bf", "bf_unapplied"), "0");
}

/// A filter that the system lends no memory for is refused, and the server goes on.
#[test]
fn a_copy_that_the_allocator_refuses_is_refused() {
    let server = Server::with().address_space(1 << 30).start();
    let client = &mut server.client();
    let limit = config_name("max-filter-bytes");
    assert_eq!(client.cmd(&["CONFIG", "SET", &limit, "4gb"]), ok());
    assert_eq!(client.run("BF.RESERVE k 0.01 450000000"), ok());
    assert_eq!(client.run("BF.MERGE new k"), err(NO_MEMORY));
    assert_eq!(client.run("DBSIZE"), int(1));
    assert!(server.log().contains("BF.MERGE refused: no memory for"), "{}", server.log());
    assert_unharmed(&server);
}

/// A user needs to write the destination, and to read it and every source.
#[test]
fn the_permissions_of_both_keys_are_needed() {
    for (rules, open) in [
        ("%R~source %RW~new", true),
        ("~new ~source", true),
        ("%R~source %W~new", false),
        ("%R~source %R~new", false),
        ("%W~source %RW~new", false),
        ("%RW~new", false),
    ] {
        let server = Server::start();
        let client = &mut server.client();
        reserve(client, &["source"], "");
        client.run("BF.ADD source a");
        assert_eq!(client.run(&format!("ACL SETUSER user on nopass +@all {rules}")), ok());
        assert_eq!(client.run("AUTH user any"), ok());
        let reply = client.run("BF.MERGE new source");
        let refused = matches!(&reply, Reply::Error(text) if text.starts_with("NOPERM"));
        assert_eq!(refused, !open, "{rules}: {reply:?}");
        // The last key counts, too.
        let reply = client.run("BF.MERGE new source other");
        assert!(reply.error().starts_with("NOPERM"), "{rules}: {reply:?}");
    }
}

#[test]
fn all_keys_of_a_merge_are_in_one_slot() {
    let cluster = Cluster::start();
    let mut client = cluster.client();
    let tag = "tag";
    let [a, b, new] = ["a", "b", "new"].map(|name| format!("{{{tag}}}{name}"));
    for key in [&a, &b] {
        assert_eq!(client.call(key, &["BF.RESERVE", key, "0.01", "100", "SEED", "7"]), ok());
        assert_eq!(client.call(key, &["BF.ADD", key, key]), int(1));
    }
    assert_eq!(client.call(&new, &["BF.MERGE", &new, &a, &b]), ok());
    assert_eq!(client.call(&new, &["BF.MEXISTS", &new, &a, &b]).answers(), [true, true]);
    // Another slot of the same node or of another one.
    for number in 0..5 {
        let other = format!("other-{number}");
        assert_ne!(slot(&other), slot(&new));
        for words in [["BF.MERGE", &new, &a, &other], ["BF.MERGE", &new, &other, &a]] {
            let reply = client.call(&new, &words);
            assert!(reply.error().starts_with("CROSSSLOT"), "{words:?}: {reply:?}");
        }
    }
    // While the slot moves, neither node has all keys.
    let port = client.owner(&new);
    let at = cluster.nodes.iter().position(|node| node.port() == port).expect("a node");
    let to = (at + 1) % PRIMARIES;
    let (source, target) = (&mut cluster.nodes[at].client(), &mut cluster.nodes[to].client());
    let (number, ids) = (slot(tag), &cluster.ids);
    assert_eq!(target.run(&format!("CLUSTER SETSLOT {number} IMPORTING {}", ids[at])), ok());
    assert_eq!(source.run(&format!("CLUSTER SETSLOT {number} MIGRATING {}", ids[to])), ok());
    let port = cluster.nodes[to].port();
    assert_eq!(source.run(&format!("MIGRATE 127.0.0.1 {port} {a} 0 30000")), ok());
    let before = [digest(source, &b), digest(source, &new), digest(target, &a)];
    let line = format!("BF.MERGE {new} {a} {b}");
    let reply = source.run(&line);
    assert!(reply.error().starts_with("TRYAGAIN"), "{reply:?}");
    assert_eq!(target.run("ASKING"), ok());
    let reply = target.run(&line);
    assert!(reply.error().starts_with("TRYAGAIN"), "{reply:?}");
    assert_eq!([digest(source, &b), digest(source, &new), digest(target, &a)], before);
    // With the last of its keys there, the target merges.
    for key in [&b, &new] {
        assert_eq!(source.run(&format!("MIGRATE 127.0.0.1 {port} {key} 0 30000")), ok());
    }
    assert!(source.run(&line).error().starts_with(&format!("ASK {number} ")));
    assert_eq!(target.run("ASKING"), ok());
    assert_eq!(target.run(&line), ok());
    assert_eq!(target.run("ASKING"), ok());
    assert_eq!(target.run(&format!("BF.MEXISTS {new} {a} {b}")).answers(), [true, true]);
    for node in &cluster.nodes {
        assert_unharmed(node);
    }
}
