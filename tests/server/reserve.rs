//! BF.RESERVE makes the requested filter, in every spelling that clients send.

use crate::harness::{Protocol, Server, err, fresh, info, int, layers, map, null, ok, simple};

#[test]
fn reserve_answers_ok_in_both_protocols() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        fresh(
            client,
            &[
                (&[], "BF.RESERVE k 0.01 100", ok()),
                (&[], "bf.reserve k 0.01 100", ok()),
                (&[], "BF.RESERVE k 0.01 100 EXPANSION 4", ok()),
                (&[], "BF.RESERVE k 0.01 100 expansion 4", ok()),
                (&[], "BF.RESERVE k 0.01 100 NONSCALING", ok()),
                (&[], "BF.RESERVE k 0.01 100 NonScaling", ok()),
                (&[], "BF.RESERVE k 0.01 100 SEED 7", ok()),
                (&[], "BF.RESERVE k 0.01 100 seed 7 EXPANSION 3", ok()),
                (&[], "BF.RESERVE k 0.01 100 EXPANSION 0 NONSCALING SEED 0", ok()),
            ],
        );
    }
}

/// Each row has a BF.RESERVE and the value of one BF.INFO field afterwards.
#[test]
fn reserve_sets_capacity_and_expansion() {
    let server = Server::start();
    let client = &mut server.resp3();
    let expansion = |rate| map([("Expansion rate", int(rate))]);
    let non_scaling = || map([("Expansion rate", null())]);
    let capacity = |capacity| map([("Capacity", int(capacity))]);
    let rows = [
        ("BF.RESERVE k 0.01 100", "CAPACITY", capacity(100)),
        ("BF.RESERVE k 0.01 1", "CAPACITY", capacity(1)),
        ("BF.RESERVE k 0.01 1234567", "CAPACITY", capacity(1_234_567)),
        ("BF.RESERVE k 0.01 100", "EXPANSION", expansion(2)),
        ("BF.RESERVE k 0.01 100 EXPANSION 1", "EXPANSION", expansion(1)),
        ("BF.RESERVE k 0.01 100 EXPANSION 32768", "EXPANSION", expansion(32_768)),
        ("BF.RESERVE k 0.01 100 EXPANSION 0", "EXPANSION", non_scaling()),
        ("BF.RESERVE k 0.01 100 NONSCALING", "EXPANSION", non_scaling()),
        ("BF.RESERVE k 0.01 100 NONSCALING EXPANSION 0", "EXPANSION", non_scaling()),
        ("BF.RESERVE k 0.01 100 EXPANSION 0 NONSCALING", "EXPANSION", non_scaling()),
        // NRedisStack sends the expansion without the word EXPANSION, also before NONSCALING.
        ("BF.RESERVE k 0.01 100 4", "EXPANSION", expansion(4)),
        ("BF.RESERVE k 0.01 100 2 NONSCALING", "EXPANSION", non_scaling()),
        ("BF.RESERVE k 0.01 100 4 EXPANSION 5", "EXPANSION", expansion(5)),
        ("BF.RESERVE k 0.01 100 4 COUNTING", "EXPANSION", expansion(4)),
    ];
    let mut failures = Vec::new();
    for (reserve, field, expected) in rows {
        client.run("FLUSHALL");
        let made = client.run(reserve);
        let got = client.cmd(&["BF.INFO", "k", field]);
        if made != ok() || got != expected {
            failures.push(format!(
                "{reserve}: answered {made:?}, then {field} is {got:?}, expected {expected:?}"
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Options are read only after the capacity. RedisBloom also finds them in the key.
#[test]
fn a_key_may_be_named_like_an_option() {
    let server = Server::start();
    let client = &mut server.client();
    for key in ["EXPANSION", "NONSCALING", "nonscaling", "expansion", "SEED", "4"] {
        assert_eq!(client.run(&format!("BF.RESERVE {key} 0.01 100")), ok(), "key {key}");
        assert_eq!(info(client, key).expansion, Some(2), "key {key}");
    }
}

/// Clients format numbers differently: Python and node `1e-07`, jedis `1.0E-4`, .NET `1E-05`.
#[test]
fn reserve_reads_an_error_rate_in_every_spelling_of_a_number() {
    let server = Server::start();
    let client = &mut server.client();
    let rows = [
        ("0.01", 0.01),
        (".01", 0.01),
        ("0.010", 0.01),
        ("1e-7", 1e-7),
        ("1e-07", 1e-7),
        ("1.0E-4", 1e-4),
        ("1E-05", 1e-5),
        ("0.3", 0.3),
        ("0.5", 0.5),
        ("0.9", 0.9),
        ("0.9999999999999999", 0.999_999_999_999_999_9),
        ("1e-15", 1e-15),
        ("1e-300", 1e-300),
    ];
    for (text, rate) in rows {
        client.run("FLUSHALL");
        // A non-scaling filter has one layer, whose rate is that of the filter.
        assert_eq!(client.run(&format!("BF.RESERVE k {text} 10 NONSCALING")), ok(), "rate {text}");
        let (_, layers) = layers(client, "k");
        // BF.DEBUG prints `%g`, six digits.
        let error = (layers[0].ratio - rate).abs() / rate;
        assert!(error < 1e-5, "rate {text}: BF.DEBUG says {}", layers[0].ratio);
        assert_eq!(client.run("BF.ADD k a"), int(1), "rate {text}");
        assert_eq!(client.run("BF.EXISTS k a"), int(1), "rate {text}");
    }
}

/// RedisBloom once computed zero bits for such a filter and divided by them (MOD-6268).
#[test]
fn a_tiny_filter_with_a_huge_error_rate_takes_its_items() {
    let server = Server::start();
    let client = &mut server.client();
    let full = err("ERR non scaling filter is full");
    for rate in ["0.5", "0.6", "0.75", "0.9", "0.99", "0.999", "0.999999"] {
        for capacity in 1..=7 {
            let case = format!("rate {rate}, capacity {capacity}");
            client.run("FLUSHALL");
            assert_eq!(
                client.run(&format!("BF.RESERVE k {rate} {capacity} NONSCALING")),
                ok(),
                "{case}"
            );
            assert_eq!(client.run("BF.ADD k first"), int(1), "{case}: an empty filter has no item");
            assert_eq!(client.run("BF.EXISTS k first"), int(1), "{case}");
            for item in 0..200 {
                let item = format!("item-{item}");
                let added = client.cmd(&["BF.ADD", "k", &item]);
                if added == full {
                    continue;
                }
                assert!(added == int(0) || added == int(1), "{case}: {item} answered {added:?}");
                assert_eq!(client.cmd(&["BF.EXISTS", "k", &item]), int(1), "{case}: {item}");
            }
            assert!(info(client, "k").items <= capacity, "{case}: more items than capacity");
            assert_eq!(client.run("PING"), simple("PONG"), "{case}");
        }
    }
}

/// RedisBloom's `test_issue178` reserves this filter. Its 1.1 GB must cost little until it is used.
#[test]
fn a_filter_for_three_hundred_million_items_at_one_in_a_million_works() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 1e-6 300000000"), ok());
    assert_eq!(client.run("BF.MADD k a b a"), Protocol::Resp2.bits([1, 1, 0]));
    assert_eq!(client.run("BF.MEXISTS k a b c"), Protocol::Resp2.bits([1, 1, 0]));
    // A Bloom filter of this rate needs at least ln(1/p) / (ln 2)^2 bits per item.
    let least = 300e6 * 28.755 / 8.0;
    assert!(info(client, "k").size as f64 >= least, "{:?}", info(client, "k"));
}

/// With `EXPANSION n` each layer has n times the capacity of the previous one.
#[test]
fn a_full_scaling_filter_grows_by_its_expansion() {
    let server = Server::start();
    let client = &mut server.client();
    for (expansion, capacities) in
        [(1, [10, 20, 30, 40]), (2, [10, 30, 70, 150]), (3, [10, 40, 130, 400])]
    {
        let key = format!("k{expansion}");
        assert_eq!(client.run(&format!("BF.RESERVE {key} 0.0001 10 EXPANSION {expansion}")), ok());
        for (layer, capacity) in (1..).zip(capacities) {
            let case = format!("expansion {expansion}, layer {layer}");
            // A layer is made when its first item is added, not earlier.
            let before = info(client, &key).items;
            let tried =
                crate::harness::add_until_card(client, &key, &format!("layer-{layer}"), capacity);
            let now = info(client, &key);
            assert_eq!(
                (now.filters, now.capacity, now.items),
                (layer, capacity, capacity),
                "{case}"
            );
            assert!(
                crate::harness::mexists(client, &key, &tried).iter().all(|&there| there),
                "{case}"
            );
            assert!(before < now.items, "{case}");
        }
    }
}
