//! What an operator sees: the section `bf` of INFO, the additional fields of BF.INFO (FILL, FPR,
//! ERROR, LAYERS), and the events of a filter that grows or fills.

use crate::harness::{
    Client, Reply, Server, add_until_card, add_until_refused, config_name, dump, info, load,
    numbered, ok, wait_until,
};

fn field(client: &mut Client, name: &str) -> i64 {
    client
        .server_info("bf", &format!("bf_{name}"))
        .parse()
        .unwrap_or_else(|_| panic!("bf_{name} is not a number"))
}

/// The five totals of INFO bf: filters, bytes, items, capacity, layers.
fn totals(client: &mut Client) -> [i64; 5] {
    let names = ["filters", "bytes", "items", "capacity", "layers"];
    let all = client.cmd(&["INFO", "bf"]).text();
    let value = |name: &str| -> i64 {
        let prefix = format!("bf_{name}:");
        let line = all.lines().find_map(|line| line.strip_prefix(&prefix));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {prefix} in {all}"))
    };
    names.map(value)
}

/// The five totals of [`totals`], computed from BF.INFO of every key.
fn summed(client: &mut Client) -> [i64; 5] {
    let keys: Vec<String> = client.run("KEYS *").elements().iter().map(Reply::text).collect();
    keys.iter().map(|key| info(client, key)).fold([0; 5], |sum, of| {
        let one = [1, of.size, of.items, of.capacity, of.filters];
        std::array::from_fn(|i| sum[i] + one[i])
    })
}

#[test]
fn the_totals_of_info_are_the_sums_over_all_filters() {
    let mut server = Server::start();
    let client = &mut server.client();
    type Step = (&'static str, fn(&mut Client));
    let steps: [Step; 15] = [
        ("nothing", |_| {}),
        ("reserved", |client| drop(client.run("BF.RESERVE a 0.01 1000"))),
        ("made by adding", |client| drop(client.run("BF.MADD b x y z"))),
        ("grown", |client| drop(add_until_card(client, "b", "item", 1_000))),
        ("many layers", |client| {
            client.run("BF.RESERVE many 0.01 1 EXPANSION 1");
            add_until_card(client, "many", "item", 50);
        }),
        ("counted and deleted", |client| {
            client.run("BF.RESERVE counting 0.01 10 COUNTING");
            add_until_card(client, "counting", "item", 40);
            client.call("BF.MADD", "counting", &numbered("item", 5));
            client.call("BF.DEL", "counting", &numbered("item", 30));
            client.run("BF.DEL counting item-39");
        }),
        // After deletions the counters correct the item count, at each command differently.
        ("added and deleted many times", |client| {
            client.run("BF.RESERVE churned 0.25 200 COUNTING NONSCALING");
            client.call("BF.MADD", "churned", &numbered("item", 150));
            let items = numbered("item", 3_000);
            for (old, new) in items.chunks(50).zip(items[150..].chunks(50)) {
                client.call("BF.DEL", "churned", old);
                client.call("BF.MADD", "churned", new);
            }
        }),
        ("dumped in chunks and loaded", |client| {
            let pieces = dump(client, "churned");
            pieces.iter().for_each(|piece| drop(load(client, "again", piece)));
        }),
        ("copied", |client| drop(client.run("COPY b c"))),
        ("dumped and restored", |client| {
            let payload = client.run("DUMP b");
            let Reply::Bulk(bytes) = payload else { panic!("DUMP answered {payload:?}") };
            client.call("RESTORE", "d", &[&b"0"[..], &bytes]);
        }),
        ("loaded in chunks", |client| {
            let header = client.run("BF.SCANDUMP b 0");
            let [next, Reply::Bulk(bytes)] = header.elements() else {
                panic!("SCANDUMP answered {header:?}")
            };
            client.call("BF.LOADCHUNK", "e", &[next.int().to_string().as_bytes(), bytes]);
            let chunk = client.run("BF.SCANDUMP b 1");
            let [next, Reply::Bulk(bytes)] = chunk.elements() else {
                panic!("SCANDUMP answered {chunk:?}")
            };
            client.call("BF.LOADCHUNK", "e", &[next.int().to_string().as_bytes(), bytes]);
        }),
        ("renamed over another", |client| drop(client.run("RENAME c a"))),
        ("deleted", |client| drop(client.run("DEL d"))),
        ("reloaded", |client| drop(client.run("DEBUG RELOAD"))),
        ("refused", |client| {
            drop(client.run("BF.RESERVE huge 0.01 4611686018427387904"));
        }),
    ];
    for (name, step) in steps {
        step(client);
        // The totals may still include a dropped filter: some servers free in the background.
        wait_until(&format!("{name}: INFO bf is the sum of BF.INFO of all keys"), || {
            totals(client) == summed(client)
        });
    }
    assert!(totals(client)[0] >= 4, "the steps left filters: {:?}", totals(client));
    client.run("FLUSHALL SYNC");
    wait_until("nothing is left after FLUSHALL", || totals(client) == [0; 5]);
    client.run("BF.MADD k x y");
    assert_eq!(client.run("SAVE"), ok());
    server.restart();
    let client = &mut server.client();
    assert_eq!(totals(client), summed(client), "after a restart");
    assert_eq!((field(client, "loads"), field(client, "adds")), (1, 0), "counters start at 0");
}

#[test]
fn the_counters_count_items_and_refusals() {
    let server = Server::start();
    let client = &mut server.client();
    let names = [
        "adds",
        "checks",
        "positives",
        "loads",
        "refused",
        "scaled",
        "filled",
        "deletes",
        "undeleted",
    ];
    let rows: [(&str, [i64; 7]); 15] = [
        ("BF.RESERVE k 0.000001 1000", [0, 0, 0, 0, 0, 0, 0]),
        ("BF.ADD k a", [1, 0, 0, 0, 0, 0, 0]),
        ("BF.ADD k a", [1, 0, 0, 0, 0, 0, 0]),
        ("BF.MADD k a b c", [3, 0, 0, 0, 0, 0, 0]),
        ("BF.INSERT k ITEMS d", [1, 0, 0, 0, 0, 0, 0]),
        ("BF.EXISTS k a", [0, 1, 1, 0, 0, 0, 0]),
        ("BF.EXISTS k z", [0, 1, 0, 0, 0, 0, 0]),
        ("BF.MEXISTS k a b z", [0, 3, 2, 0, 0, 0, 0]),
        ("BF.MEXISTS missing a b", [0, 2, 0, 0, 0, 0, 0]),
        ("BF.RESERVE ns 0.000001 2 NONSCALING", [0, 0, 0, 0, 0, 0, 0]),
        ("BF.ADD ns a", [1, 0, 0, 0, 0, 0, 0]),
        // b fills the filter, and c is refused.
        ("BF.MADD ns b c", [2, 0, 0, 0, 1, 0, 1]),
        ("BF.RESERVE s 0.000001 1", [0, 0, 0, 0, 0, 0, 0]),
        // As a stack, it has layers of 1, 2 and 4 items.
        ("BF.MADD s a b c d", [4, 0, 0, 0, 0, 2, 0]),
        ("BF.RESERVE huge 0.01 4611686018427387904", [0, 0, 0, 0, 1, 0, 0]),
    ];
    let deletions: [(&str, [i64; 2]); 5] = [
        ("BF.INSERT c ERROR 0.000001 CAPACITY 1 COUNTING ITEMS a b", [0, 0]),
        ("BF.DEL c a", [1, 0]),
        ("BF.DEL c x y", [2, 0]),
        // The filter grew since, and holds each item once.
        ("BF.MADD c a c a", [0, 0]),
        ("BF.DEL missing x", [1, 0]),
    ];
    let without = rows.map(|(line, [a, b, c, d, e, f, g])| (line, [a, b, c, d, e, f, g, 0, 0]));
    for (line, expected) in without {
        assert_eq!(changes(client, names, line), expected, "{line}: {names:?}");
    }
    for (line, expected) in deletions {
        let changed = changes(client, ["deletes", "undeleted"], line);
        assert_eq!(changed, expected, "{line}");
    }
}

/// What an alert needs: queries of a filter that is lost, and the reason of refused additions.
#[test]
fn the_counters_tell_lost_filters_and_the_reasons_of_refusals() {
    let server = Server::start();
    let client = &mut server.client();
    let names = ["missing", "refused", "refused_growth", "refused_full"];
    let run = |client: &mut Client, rows: &[(&str, [i64; 4])]| {
        for (line, expected) in rows {
            assert_eq!(changes(client, names, line), *expected, "{line}: {names:?}");
        }
    };
    let lost = [
        ("BF.EXISTS k a", [1, 0, 0, 0]),
        ("BF.MEXISTS k a b c", [1, 0, 0, 0]),
        ("BF.BULKEXISTS k LINES a", [1, 0, 0, 0]),
        ("BF.DEL k a b", [1, 0, 0, 0]),
        ("BF.COUNT k a", [1, 0, 0, 0]),
    ];
    run(client, &lost);
    assert_eq!(client.cmd(&["CONFIG", "SET", &config_name("missing-key-error"), "yes"]), ok());
    run(client, &lost);
    assert_eq!(client.cmd(&["CONFIG", "SET", &config_name("max-filter-bytes"), "20kb"]), ok());
    run(
        client,
        &[
            ("BF.RESERVE k 0.01 1000000", [0, 1, 0, 0]),
            ("BF.RESERVE k 0.000001 1000", [0, 0, 0, 0]),
            ("BF.EXISTS k a", [0; 4]),
            ("BF.MEXISTS k a", [0; 4]),
            ("BF.RESERVE full 0.000001 1 NONSCALING", [0; 4]),
            ("BF.MADD full a b", [0, 1, 0, 1]),
            ("BF.ADD full b", [0, 1, 0, 1]),
        ],
    );
    add_until_refused(client, "k", "item");
    run(client, &[("BF.ADD k another", [0, 1, 1, 0]), ("BF.MADD k one two", [0, 1, 1, 0])]);
}

/// Runs a command; returns how much it changed the fields.
fn changes<const N: usize>(client: &mut Client, names: [&str; N], line: &str) -> [i64; N] {
    let before = names.map(|name| field(client, name));
    client.run(line);
    let after = names.map(|name| field(client, name));
    std::array::from_fn(|i| after[i] - before[i])
}

#[test]
fn a_filter_that_grows_or_fills_is_an_event() {
    let server = Server::start();
    let (client, subscriber) = (&mut server.client(), &mut server.client());
    client.run("CONFIG SET notify-keyspace-events Eg$");
    subscriber.run("PSUBSCRIBE __keyevent@0__:bloom.* __keyevent@0__:set");
    // PSUBSCRIBE replies once per pattern.
    subscriber.read();
    let rows: [(&str, &[&str]); 9] = [
        ("BF.RESERVE s 0.000001 1", &["bloom.reserve"]),
        ("BF.ADD s a", &["bloom.add"]),
        ("BF.ADD s b", &["bloom.add", "bloom.scale"]),
        ("BF.MADD s c d e f g h i", &["bloom.add", "bloom.scale"]),
        ("BF.ADD s a", &[]),
        ("BF.RESERVE ns 0.000001 2 NONSCALING", &["bloom.reserve"]),
        ("BF.MADD ns a b c", &["bloom.add", "bloom.full"]),
        ("BF.ADD ns c", &[]),
        ("BF.ADD ns a", &[]),
    ];
    for (line, expected) in rows {
        client.run(line);
        client.run("SET end x");
        let mut events = Vec::new();
        loop {
            let message = subscriber.read();
            let channel = message.elements().get(2).expect("a pattern message").text();
            match channel.rsplit(':').next() {
                Some("set") => break,
                Some(event) if event.starts_with("bloom.") => events.push(event.to_owned()),
                _ => {}
            }
        }
        assert_eq!(events, expected, "{line}");
    }
}

fn word(client: &mut Client, key: &str, word: &str) -> f64 {
    let reply = client.cmd(&["BF.INFO", key, word]);
    match reply.elements() {
        [value] => value.text().parse().unwrap_or_else(|_| panic!("{word}: {reply:?}")),
        _ => panic!("BF.INFO {key} {word} answered {reply:?}"),
    }
}

/// A full non-scaling filter of rate 0.01 has about half of its bits set, and its estimated rate is
/// just below 0.01. A tenth full, its rate is far lower. Bounds: with 10,000 items the estimate
/// varies by about 2 % with the seed (the spread of the number of set bits: blocks, 100,000 bits,
/// k = 6); the test allows 10 %, five times that.
#[test]
fn info_estimates_the_fill_and_the_false_positive_rate() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 10000 NONSCALING");
    assert_eq!(word(client, "k", "ERROR"), 0.01);
    assert_eq!((word(client, "k", "FILL"), word(client, "k", "FPR")), (0.0, 0.0), "empty");
    add_until_card(client, "k", "item", 1_000);
    let (fill, rate) = (word(client, "k", "FILL"), word(client, "k", "FPR"));
    assert!(fill > 0.04 && fill < 0.08 && rate < 1e-5, "a tenth full: {fill} {rate}");
    add_until_card(client, "k", "more", 10_000);
    let (fill, rate) = (word(client, "k", "FILL"), word(client, "k", "FPR"));
    assert!((0.40..0.55).contains(&fill), "full: {fill}");
    assert!((0.009..0.011).contains(&rate), "full: {rate}");
    // The estimate agrees with a count over 100,000 items that were never added. Five standard
    // deviations of an expected count of 990 are 157.
    let strangers = numbered("stranger", 100_000);
    let found: usize = strangers
        .chunks(10_000)
        .map(|chunk| {
            client.call("BF.MEXISTS", "k", chunk).answers().iter().filter(|&&there| there).count()
        })
        .sum();
    assert!((found as f64 - rate * 1e5).abs() < 160.0, "{found} of 100,000, estimated {rate}");
}

#[test]
fn the_figures_of_the_layer_and_the_pages_add_up_to_those_of_the_filter() {
    let server = Server::start();
    let client = &mut server.resp3();
    client.run("BF.RESERVE k 0.01 1000");
    add_until_card(client, "k", "item", 6_500);
    let whole = info(client, "k");
    let reply = client.run("BF.INFO k LAYERS");
    let layers = reply.get("Layers").expect("the field").elements();
    assert_eq!((layers.len(), whole.filters), (2, 3), "one for all pages");
    let sum =
        |name: &str| layers.iter().map(|layer| layer.get(name).expect(name).int()).sum::<i64>();
    assert_eq!((sum("Capacity"), sum("Items")), (whole.capacity, whole.items));
    assert!(sum("Size") < whole.size);
    let double = |reply: Option<&Reply>| match reply {
        Some(Reply::Double(value)) => *value,
        other => panic!("a double in RESP3: {other:?}"),
    };
    let (mut asked, mut absent) = (0.0, 1.0);
    for layer in layers {
        asked += double(layer.get("Error rate"));
        absent *= 1.0 - double(layer.get("False positive rate"));
        assert!((0.3..=1.0).contains(&double(layer.get("Fill"))), "{layer:?}");
    }
    assert!(asked <= 0.01, "the layers' rates add up to less than the filter's: {asked}");
    let rate = double(client.run("BF.INFO k FPR").get("False positive rate"));
    assert!((rate - (1.0 - absent)).abs() < 1e-9, "{rate}");
}

#[test]
fn a_missing_filter_is_an_error_with_missing_key_error() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.EXISTS k a").int(), 0);
    assert_eq!(client.cmd(&["CONFIG", "SET", &config_name("missing-key-error"), "yes"]), ok());
    for line in ["BF.EXISTS k a", "BF.MEXISTS k a b"] {
        assert_eq!(client.run(line).error(), "ERR not found", "{line}");
    }
    client.run("BF.ADD k a");
    assert_eq!(client.run("BF.EXISTS k a").int(), 1);
    assert_eq!(client.run("BF.MEXISTS k z").answers(), [false]);
}
