//! The runtime configuration: its defaults, its ranges, its error texts, and what it does to filters made afterwards.

use crate::harness::{Client, Server, config_name, err, info, layers, ok, version};

#[track_caller]
fn set(client: &mut Client, name: &str, value: &str) -> crate::harness::Reply {
    client.cmd(&["CONFIG", "SET", &config_name(name), value])
}

#[track_caller]
fn get(client: &mut Client, name: &str) -> String {
    let name = config_name(name);
    client
        .config_get(&name)
        .unwrap_or_else(|| panic!("the server knows no {name}"))
}

#[test]
fn the_defaults_are_those_of_the_peers() {
    let server = Server::start();
    let client = &mut server.client();
    for (name, value) in [
        ("error-rate", "0.01"),
        ("initial-size", "100"),
        ("expansion-factor", "2"),
        ("max-filter-bytes", "0"),
        ("missing-key-error", "no"),
    ] {
        assert_eq!(get(client, name), value, "{name}");
    }
}

#[test]
fn a_value_in_its_range_is_taken_and_read_back() {
    let server = Server::start();
    let client = &mut server.client();
    for (name, value) in [
        ("error-rate", "0.5"),
        ("error-rate", "0.001"),
        ("error-rate", "1e-7"),
        ("error-rate", "1.0E-4"),
        ("error-rate", "0.9999999999999999"),
        ("error-rate", "0.01"),
        ("initial-size", "1"),
        ("initial-size", "4611686018427387904"),
        ("initial-size", "100"),
        ("expansion-factor", "0"),
        ("expansion-factor", "1"),
        ("expansion-factor", "32768"),
        ("expansion-factor", "2"),
    ] {
        assert_eq!(set(client, name, value), ok(), "{name} {value}");
        let got = get(client, name);
        if name == "error-rate" {
            let (got, value): (f64, f64) = (got.parse().expect("a number"), value.parse().expect("a number"));
            assert_eq!(got, value, "{name}");
        } else {
            assert_eq!(got, value, "{name}");
        }
    }
}

#[test]
fn a_value_out_of_its_range_is_refused_with_the_range() {
    let server = Server::start();
    let client = &mut server.client();
    // (name, values, what the text must hold)
    let rate = &["0", "1", "1.5", "-0.1", "inf"][..];
    let size = &["0", "-1", "4611686018427387905"][..];
    let factor = &["-1", "32769"][..];
    for (name, values, bounds) in [
        (
            "error-rate",
            rate,
            &["must be in the range", "(0.000000, 1.000000)"][..],
        ),
        (
            "initial-size",
            size,
            &["must be in the range", "[1, 4611686018427387904]"],
        ),
        (
            "expansion-factor",
            factor,
            &["must be in the range", "[0, 32768]"],
        ),
    ] {
        let before = get(client, name);
        for value in values {
            let reply = set(client, name, value);
            let text = reply.error();
            assert!(text.starts_with("ERR "), "{name} {value}: {text}");
            for bound in bounds {
                assert!(
                    text.contains(bound),
                    "{name} {value}: {text:?} does not say {bound:?}"
                );
            }
            assert_eq!(get(client, name), before, "{name} {value} changed something");
        }
    }
}

#[test]
fn a_value_that_is_no_number_is_refused() {
    let server = Server::start();
    let client = &mut server.client();
    for name in ["error-rate", "initial-size", "expansion-factor"] {
        let before = get(client, name);
        for value in ["x", "", "0.01x", "1 2", "nan"] {
            let reply = set(client, name, value);
            assert!(reply.error().starts_with("ERR "), "{name} {value:?}: {reply:?}");
            assert!(
                reply.error().contains(&config_name(name)),
                "{name} {value:?}: {reply:?}"
            );
            assert_eq!(get(client, name), before, "{name} {value:?} changed something");
        }
    }
    let reply = set(client, "error-rate", "x");
    let wanted = format!("Invalid value for `{}`", config_name("error-rate"));
    assert!(reply.error().contains(&wanted), "{reply:?}");
}

/// BF.ADD, BF.MADD and BF.INSERT without options make what the configuration says.
#[test]
fn filters_made_by_adding_follow_the_configuration() {
    let server = Server::start();
    let client = &mut server.client();
    set(client, "error-rate", "0.3");
    set(client, "initial-size", "777");
    set(client, "expansion-factor", "5");
    client.run("BF.RESERVE asked 0.3 777 EXPANSION 5");
    client.run("BF.ADD asked a");
    let asked = client.run("BF.DEBUG asked");
    for make in ["BF.ADD k a", "BF.MADD k a", "BF.INSERT k ITEMS a"] {
        client.run("DEL k");
        client.run(make);
        let made = info(client, "k");
        assert_eq!((made.capacity, made.expansion), (777, Some(5)), "{make}");
        assert_eq!(client.run("BF.DEBUG k"), asked, "{make}");
    }
    // An option of BF.INSERT beats the configuration, and what it leaves out comes from there.
    client.run("BF.INSERT some CAPACITY 10 ITEMS a");
    assert_eq!(
        (info(client, "some").capacity, info(client, "some").expansion),
        (10, Some(5))
    );
    client.run("BF.INSERT rate ERROR 0.25 NONSCALING ITEMS a");
    assert_eq!(
        (info(client, "rate").capacity, layers(client, "rate").1[0].ratio),
        (777, 0.25)
    );
    // BF.RESERVE takes only its expansion from there.
    client.run("BF.RESERVE reserved 0.01 100");
    assert_eq!(
        (
            info(client, "reserved").capacity,
            info(client, "reserved").expansion
        ),
        (100, Some(5))
    );
    // A filter that is there stays as it was made.
    set(client, "expansion-factor", "2");
    assert_eq!(info(client, "k").expansion, Some(5));
}

/// With `bf-expansion-factor 0` RedisBloom 8 refuses every explicit expansion.
#[test]
fn an_explicit_expansion_beats_a_configured_zero() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(set(client, "expansion-factor", "0"), ok());
    for (line, expansion) in [
        ("BF.ADD k a", None),
        ("BF.MADD k a", None),
        ("BF.INSERT k ITEMS a", None),
        ("BF.RESERVE k 0.01 100", None),
        ("BF.RESERVE k 0.01 100 NONSCALING", None),
        ("BF.RESERVE k 0.01 100 EXPANSION 4", Some(4)),
        ("BF.RESERVE k 0.01 100 4", Some(4)),
        ("BF.INSERT k EXPANSION 4 ITEMS a", Some(4)),
        ("BF.INSERT k EXPANSION 0 ITEMS a", None),
    ] {
        client.run("DEL k");
        let reply = client.run(line);
        assert!(!reply.is_error(), "{line} answered {reply:?}");
        assert_eq!(info(client, "k").expansion, expansion, "{line}");
    }
    // And a configured expansion does not clash with NONSCALING.
    assert_eq!(set(client, "expansion-factor", "3"), ok());
    client.run("DEL k");
    assert_eq!(client.run("BF.RESERVE k 0.01 100 NONSCALING"), ok());
    assert_eq!(info(client, "k").expansion, None);
}

/// A default that no machine can hold is no reason to crash.
#[test]
fn a_configured_capacity_beyond_memory_is_an_error_of_the_command() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(set(client, "initial-size", "4611686018427387904"), ok());
    for line in ["BF.ADD k a", "BF.MADD k a b", "BF.INSERT k ITEMS a"] {
        assert_eq!(
            client.run(line),
            err("ERR Insufficient memory to create filter"),
            "{line}"
        );
        client.assert_in_step();
    }
    assert_eq!(client.run("DBSIZE").int(), 0);
    assert_eq!(client.run("BF.INSERT k CAPACITY 10 ITEMS a").answers(), [true]);
}

#[test]
fn a_configuration_file_sets_every_value() {
    let mut builder = Server::with();
    let values = [
        ("error-rate", "0.125"),
        ("initial-size", "50"),
        ("expansion-factor", "7"),
    ];
    for (name, value) in values {
        builder = builder.config(&format!("{} {value}", config_name(name)));
    }
    let server = builder.start();
    let client = &mut server.client();
    for (name, value) in values {
        assert_eq!(get(client, name), value, "{name}");
    }
    client.run("BF.INSERT k NONSCALING ITEMS a");
    assert_eq!(
        (info(client, "k").capacity, layers(client, "k").1[0].ratio),
        (50, 0.125)
    );
}

#[test]
fn a_bad_value_in_a_configuration_file_refuses_the_start() {
    for (name, value) in [
        ("error-rate", "2"),
        ("error-rate", "x"),
        ("initial-size", "0"),
        ("expansion-factor", "32769"),
    ] {
        let line = format!("{} {value}", config_name(name));
        let Err(log) = Server::with().config(&line).try_start() else {
            panic!("{line} started a server")
        };
        assert!(
            log.contains(&config_name(name)) || log.contains(value),
            "{line}: the log does not say why:\n{log}"
        );
    }
}

/// A file that has both names, as CONFIG REWRITE leaves it: ours wins, also with what would be the default.
#[test]
fn our_name_wins_over_the_alias() {
    if !version().valkey && version().major >= 8 {
        return;
    }
    for (alias, name, theirs, ours) in [
        ("bloom-fp-rate", "error-rate", "0.05", "0.01"),
        ("bloom-fp-rate", "error-rate", "0.05", "0.07"),
        ("bloom-fp-rate", "error-rate", "0.01", "0.07"),
        ("bloom-capacity", "initial-size", "7", "100"),
        ("bloom-expansion", "expansion-factor", "4", "2"),
        ("bloom-memory-usage-limit", "max-filter-bytes", "1000000", "0"),
    ] {
        let lines = [format!("bf.{alias} {theirs}"), format!("bf.{name} {ours}")];
        for order in [[0, 1], [1, 0]] {
            let mut server = Server::with()
                .config(&lines[order[0]])
                .config(&lines[order[1]])
                .start();
            assert_eq!(get(&mut server.client(), name), ours, "{lines:?}");
            server.kill_and_restart();
            assert_eq!(get(&mut server.client(), name), ours, "{lines:?}, restarted");
        }
    }
}

#[test]
fn a_tiny_rate_is_shown_as_it_is_written() {
    let server = Server::start();
    let client = &mut server.client();
    for rate in ["0.5", "0.00001", "1e-6", "5e-324"] {
        assert_eq!(
            client.cmd(&["CONFIG", "SET", &config_name("error-rate"), rate]),
            ok()
        );
        assert_eq!(get(client, "error-rate"), rate);
    }
}

/// A configuration file written for valkey-bloom still starts the server.
#[test]
fn the_configuration_of_valkey_bloom_starts_the_server() {
    // Redis 8 has no prefix, and nobody runs valkey-bloom there.
    if !version().valkey && version().major >= 8 {
        return;
    }
    let server = Server::with()
        .config("bf.bloom-capacity 250")
        .config("bf.bloom-expansion 4")
        .config("bf.bloom-fp-rate 0.125")
        .config("bf.bloom-tightening-ratio 0.5")
        .config("bf.bloom-use-random-seed yes")
        .config("bf.bloom-memory-usage-limit 134217728")
        .config("bf.bloom-defrag-enabled yes")
        .start();
    let client = &mut server.client();
    for (name, value) in [
        ("initial-size", "250"),
        ("expansion-factor", "4"),
        ("error-rate", "0.125"),
    ] {
        assert_eq!(get(client, name), value, "{name}");
    }
}
