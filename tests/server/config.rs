//! The runtime configuration: defaults, ranges, error texts, and the effect on later filters.

use crate::{
    harness::{
        Builder, Client, Server, Version, config_name, err, info, layers, module_path, ok, skipped,
        version,
    },
    redisbloom_live::{peer, redisbloom},
};

#[track_caller]
fn set(client: &mut Client, name: &str, value: &str) -> crate::harness::Reply {
    client.cmd(&["CONFIG", "SET", &config_name(name), value])
}

#[track_caller]
fn get(client: &mut Client, name: &str) -> String {
    let name = config_name(name);
    client.config_get(&name).unwrap_or_else(|| panic!("the server has no setting {name}"))
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
        ("layout", "native"),
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
            let (got, value): (f64, f64) =
                (got.parse().expect("a number"), value.parse().expect("a number"));
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
    // (name, values, parts of the error text)
    let rate = &["0", "1", "1.5", "-0.1", "inf"][..];
    let size = &["0", "-1", "4611686018427387905"][..];
    let factor = &["-1", "32769"][..];
    for (name, values, bounds) in [
        ("error-rate", rate, &["must be in the range", "(0.000000, 1.000000)"][..]),
        ("initial-size", size, &["must be in the range", "[1, 4611686018427387904]"]),
        ("expansion-factor", factor, &["must be in the range", "[0, 32768]"]),
    ] {
        let before = get(client, name);
        for value in values {
            let reply = set(client, name, value);
            let text = reply.error();
            assert!(text.starts_with("ERR "), "{name} {value}: {text}");
            for bound in bounds {
                assert!(text.contains(bound), "{name} {value}: {text:?} does not say {bound:?}");
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
            assert!(reply.error().contains(&config_name(name)), "{name} {value:?}: {reply:?}");
            assert_eq!(get(client, name), before, "{name} {value:?} changed something");
        }
    }
    let reply = set(client, "error-rate", "x");
    let wanted = format!("Invalid value for `{}`", config_name("error-rate"));
    assert!(reply.error().contains(&wanted), "{reply:?}");
}

/// Without options, BF.ADD, BF.MADD and BF.INSERT create a filter with the configured values.
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
    // An option of BF.INSERT overrides the configuration; the configuration gives the others.
    client.run("BF.INSERT some CAPACITY 10 ITEMS a");
    assert_eq!((info(client, "some").capacity, info(client, "some").expansion), (10, Some(5)));
    client.run("BF.INSERT rate ERROR 0.25 NONSCALING ITEMS a");
    assert_eq!((info(client, "rate").capacity, layers(client, "rate").1[0].ratio), (777, 0.25));
    // BF.RESERVE takes only the expansion from the configuration.
    client.run("BF.RESERVE reserved 0.01 100");
    assert_eq!(
        (info(client, "reserved").capacity, info(client, "reserved").expansion),
        (100, Some(5))
    );
    // An existing filter does not change.
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
    // A configured expansion does not conflict with NONSCALING.
    assert_eq!(set(client, "expansion-factor", "3"), ok());
    client.run("DEL k");
    assert_eq!(client.run("BF.RESERVE k 0.01 100 NONSCALING"), ok());
    assert_eq!(info(client, "k").expansion, None);
}

#[test]
fn a_configured_capacity_beyond_memory_is_an_error_of_the_command() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(set(client, "initial-size", "4611686018427387904"), ok());
    for line in ["BF.ADD k a", "BF.MADD k a b", "BF.INSERT k ITEMS a"] {
        assert_eq!(client.run(line), err("ERR Insufficient memory to create filter"), "{line}");
        client.assert_in_step();
    }
    assert_eq!(client.run("DBSIZE").int(), 0);
    assert_eq!(client.run("BF.INSERT k CAPACITY 10 ITEMS a").answers(), [true]);
}

#[test]
fn a_configuration_file_sets_every_value() {
    let mut builder = Server::with();
    let values = [("error-rate", "0.125"), ("initial-size", "50"), ("expansion-factor", "7")];
    for (name, value) in values {
        builder = builder.config(&format!("{} {value}", config_name(name)));
    }
    let server = builder.start();
    let client = &mut server.client();
    for (name, value) in values {
        assert_eq!(get(client, name), value, "{name}");
    }
    client.run("BF.INSERT k NONSCALING ITEMS a");
    assert_eq!((info(client, "k").capacity, layers(client, "k").1[0].ratio), (50, 0.125));
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

/// Our name of a setting, and valkey-bloom's if there is one. Redis 8 has only our names.
const NAMES: [(&str, Option<&str>); 4] = [
    ("error-rate", Some("bloom-fp-rate")),
    ("initial-size", Some("bloom-capacity")),
    ("expansion-factor", Some("bloom-expansion")),
    ("max-filter-bytes", Some("bloom-memory-usage-limit")),
];

fn has_aliases() -> bool {
    config_name("").ends_with('.')
}

/// Values in the documented range are kept exactly, and others are refused with the name of the
/// setting: in a file, by CONFIG SET, and as a load argument, under both names.
#[test]
fn every_value_is_kept_as_it_is_or_refused_with_a_reason() {
    let kept = [
        ("initial-size", "1", "1"),
        ("initial-size", "4611686018427387904", "4611686018427387904"),
        ("expansion-factor", "0", "0"),
        ("expansion-factor", "32768", "32768"),
        ("max-filter-bytes", "0", "0"),
        ("max-filter-bytes", "9223372036854775807", "9223372036854775807"),
        ("max-filter-bytes", "9223372036854775806", "9223372036854775806"),
        ("max-filter-bytes", "7B", "7"),
        ("max-filter-bytes", "3k", "3000"),
        ("max-filter-bytes", "3Kb", "3072"),
        ("max-filter-bytes", "3m", "3000000"),
        ("max-filter-bytes", "3mb", "3145728"),
        ("max-filter-bytes", "3g", "3000000000"),
        ("max-filter-bytes", "8589934591GB", "9223372035781033984"),
        ("error-rate", "5e-324", "5e-324"),
        ("error-rate", "0.9999999999999999", "0.9999999999999999"),
    ];
    let refused = [
        ("initial-size", "0"),
        ("initial-size", "-1"),
        ("initial-size", "4611686018427387905"),
        ("initial-size", "9223372036854775807"),
        ("initial-size", "9223372036854775808"),
        ("initial-size", "18446744073709551617"),
        ("initial-size", "1kb"),
        ("expansion-factor", "-1"),
        ("expansion-factor", "32769"),
        ("expansion-factor", "9223372036854775807"),
        ("expansion-factor", "18446744073709551618"),
        ("max-filter-bytes", "-1"),
        ("max-filter-bytes", "9223372036854775808"),
        ("max-filter-bytes", "18446744073709551615"),
        ("max-filter-bytes", "18446744073709551616"),
        ("max-filter-bytes", "8589934592gb"),
        // 2^64 + 2^30 bytes.
        ("max-filter-bytes", "17179869185gb"),
        ("max-filter-bytes", "170141183460469231731687303715884105727gb"),
        ("max-filter-bytes", "gb"),
        ("max-filter-bytes", "1tb"),
        ("error-rate", "9223372036854775807"),
        ("error-rate", "1"),
        ("missing-key-error", "maybe"),
    ];
    let aliases = |name: &str| {
        let alias = NAMES.iter().find(|names| names.0 == name);
        let alias = alias.and_then(|names| names.1).filter(|_| has_aliases());
        [Some(name.to_owned()), alias.map(str::to_owned)].into_iter().flatten()
    };
    let server = Server::start();
    let client = &mut server.client();
    for (name, value, shown) in kept {
        for alias in aliases(name) {
            assert_eq!(set(client, &alias, value), ok(), "{alias} {value}");
            assert_eq!(get(client, name), shown, "{alias} {value}");
            let line = format!("{} {value}", config_name(&alias));
            let started = Server::with().config(&line).start();
            assert_eq!(get(&mut started.client(), name), shown, "{line}");
        }
    }
    for (name, value) in refused {
        for alias in aliases(name) {
            let before = get(client, name);
            let reply = set(client, &alias, value);
            assert!(reply.error().contains(&config_name(&alias)), "{alias} {value}: {reply:?}");
            assert_eq!(get(client, name), before, "{alias} {value}");
            let line = format!("{} {value}", config_name(&alias));
            let Err(log) = Server::with().config(&line).try_start() else {
                panic!("{line} started a server")
            };
            let reason = log.lines().any(|said| {
                said.contains("Issue during loading") && said.contains(&config_name(&alias))
            });
            assert!(reason, "{line}: the log does not say why:\n{log}");
        }
    }
    for (name, argument) in [("error-rate", "ERROR_RATE"), ("initial-size", "INITIAL_SIZE")] {
        for (_, value, shown) in kept.iter().filter(|row| row.0 == name) {
            let started = Server::with().module_arguments(&[argument, value]).start();
            assert_eq!(get(&mut started.client(), name), *shown, "{argument} {value}");
        }
        for (_, value) in refused.iter().filter(|row| row.0 == name) {
            let Err(log) = Server::with().module_arguments(&[argument, value]).try_start() else {
                panic!("{argument} {value} started a server")
            };
            let reason = log.lines().any(|said| said.contains("<bf>") && said.contains(argument));
            assert!(reason, "{argument} {value}: the log does not say why:\n{log}");
        }
    }
}

/// A line of the file overrides the load arguments, even if it sets the default. The server applies
/// valkey-bloom's names before ours, so our line wins in either order, unless it says the default
/// of the server's start.
#[test]
fn every_line_of_the_file_overrides_the_load_arguments() {
    let defaults = ["0.01", "100", "2", "0"];
    let others = [["0.05", "0.07"], ["50", "70"], ["5", "7"], ["5000000", "7000000"]];
    for (((name, alias), default), [one, two]) in NAMES.into_iter().zip(defaults).zip(others) {
        let argued = matches!(name, "error-rate" | "initial-size");
        let ours = |value: &str| format!("{} {value}", config_name(name));
        let mut cases = vec![(vec![ours(default)], default), (vec![ours(one)], one)];
        if let Some(alias) = alias.filter(|_| has_aliases()) {
            let theirs = |value: &str| format!("{} {value}", config_name(alias));
            cases.extend([
                (vec![theirs(default)], default),
                (vec![theirs(one)], one),
                (vec![ours(one), theirs(two)], one),
                (vec![theirs(two), ours(one)], one),
                (vec![ours(one), theirs(default)], one),
                (vec![ours(default), theirs(two)], if argued { default } else { two }),
            ]);
        }
        for (lines, expected) in cases {
            let mut builder = Server::with();
            if argued {
                builder = builder.module_arguments(&["ERROR_RATE", "0.03", "INITIAL_SIZE", "30"]);
            }
            for line in &lines {
                builder = builder.config(line);
            }
            let server = builder.start();
            assert_eq!(get(&mut server.client(), name), expected, "{lines:?}");
        }
    }
}

/// Runs CONFIG REWRITE; returns the module's lines of the file, sorted and without the prefix.
#[track_caller]
fn rewritten(server: &Server) -> Vec<String> {
    assert_eq!(server.client().run("CONFIG REWRITE"), ok());
    let text = std::fs::read_to_string(server.dir().join("redis.conf")).expect("the file");
    let prefix = config_name("");
    let mut lines: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with(&prefix))
        .map(|line| line[prefix.len()..].to_owned())
        .collect();
    lines.sort();
    lines
}

/// Starts a server whose file has these lines, as `rewritten` returns them.
#[track_caller]
fn with_lines(lines: &[String]) -> Server {
    let add =
        |builder: Builder, line: &String| builder.config(&format!("{}{line}", config_name("")));
    lines.iter().fold(Server::with(), add).start()
}

#[test]
fn config_rewrite_writes_what_was_set_and_the_next_start_is_the_same() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(rewritten(&server), [""; 0]);
    for (name, value) in
        [("error-rate", "0.05"), ("max-filter-bytes", "1gb"), ("missing-key-error", "YES")]
    {
        assert_eq!(set(client, name, value), ok());
    }
    // Valkey-bloom's names come before ours.
    let lines = |bytes: &str, missing: &str| {
        let names = [r#"bloom-fp-rate "0.05""#, &format!("bloom-memory-usage-limit \"{bytes}\"")]
            .map(str::to_owned);
        let ours = [
            r#"error-rate "0.05""#.to_owned(),
            format!("max-filter-bytes \"{bytes}\""),
            format!("missing-key-error \"{missing}\""),
        ];
        let names = names.into_iter().filter(|_| has_aliases());
        names.chain(ours).collect::<Vec<_>>()
    };
    assert_eq!(rewritten(&server), lines("1073741824", "yes"));
    let again = with_lines(&rewritten(&server));
    assert_eq!(get(&mut again.client(), "max-filter-bytes"), "1073741824");
    assert_eq!(rewritten(&again), lines("1073741824", "yes"));
    for (name, value) in [("max-filter-bytes", "0"), ("missing-key-error", "no")] {
        assert_eq!(set(client, name, value), ok());
    }
    assert_eq!(set(&mut again.client(), "error-rate", "0.01"), ok());
    assert_eq!(get(&mut with_lines(&rewritten(&again)).client(), "error-rate"), "0.01");
    assert_eq!(rewritten(&server), lines("0", "no"));
}

/// One CONFIG SET: names and values, whether it succeeds, and the error rate in force afterwards.
type Step = (&'static [(&'static str, &'static str)], bool, &'static str);

/// Of our name and valkey-bloom's, the one that was set last wins: in two commands, in one command,
/// and after CONFIG REWRITE and a restart. A CONFIG SET that fails changes no value.
#[test]
fn the_name_that_was_set_last_wins() {
    if !has_aliases() {
        skipped("the_name_that_was_set_last_wins", "Redis 8 has only our names");
        return;
    }
    const OURS: &str = "error-rate";
    const THEIRS: &str = "bloom-fp-rate";
    const BAD: (&str, &str) = ("initial-size", "0");
    // One of the server's own: the module is not told that it is refused.
    const SERVERS: (&str, &str) = ("maxmemory-policy", "none");
    let steps: [Step; 22] = [
        (&[(THEIRS, "0.5")], true, "0.5"),
        (&[(OURS, "0.25")], true, "0.25"),
        (&[(THEIRS, "0.125")], true, "0.125"),
        (&[(OURS, "0.01")], true, "0.01"),
        (&[(OURS, "0.2"), (THEIRS, "0.3")], true, "0.3"),
        (&[(THEIRS, "0.3"), (OURS, "0.2")], true, "0.2"),
        (&[(THEIRS, "0.01")], true, "0.01"),
        (&[(OURS, "0.4")], true, "0.4"),
        (&[(THEIRS, "0.6"), BAD], false, "0.4"),
        (&[(OURS, "0.6"), BAD], false, "0.4"),
        (&[(OURS, "0.6"), (THEIRS, "0.7"), BAD], false, "0.4"),
        (&[(THEIRS, "0.7"), (OURS, "0.6"), BAD], false, "0.4"),
        (&[(THEIRS, "0.8")], true, "0.8"),
        (&[(THEIRS, "0.6"), BAD], false, "0.8"),
        (&[(OURS, "0.6"), (THEIRS, "0.7"), BAD], false, "0.8"),
        (&[(THEIRS, "0.7"), (OURS, "0.6"), BAD], false, "0.8"),
        (&[(OURS, "0.6"), (THEIRS, "1.5")], false, "0.8"),
        (&[(OURS, "1.5")], false, "0.8"),
        (&[(OURS, "0.6"), SERVERS], false, "0.8"),
        (&[(THEIRS, "")], false, "0.8"),
        (&[(OURS, "0.4")], true, "0.4"),
        (&[(THEIRS, "0.6")], true, "0.6"),
    ];
    let server = Server::start();
    let client = &mut server.client();
    for (pairs, taken, expected) in steps {
        let mut words = vec!["CONFIG".to_owned(), "SET".to_owned()];
        for (name, value) in pairs {
            let own = *name == SERVERS.0;
            words.push(if own { (*name).to_owned() } else { config_name(name) });
            words.push((*value).to_owned());
        }
        let reply = client.cmd(&words);
        assert_eq!(reply == ok(), taken, "{pairs:?}: {reply:?}");
        assert_eq!(get(client, OURS), expected, "{pairs:?}");
        assert_eq!(get(client, THEIRS), expected, "{pairs:?}");
        let lines = rewritten(&server);
        let again = with_lines(&lines);
        assert_eq!(get(&mut again.client(), OURS), expected, "{pairs:?}: {lines:?}");
    }
    assert!(!server.log().contains("Failed restoring"), "{}", server.log());
}

/// Of two lines for one setting ours counts.
#[test]
fn of_two_lines_for_one_setting_ours_counts() {
    if !has_aliases() {
        skipped("of_two_lines_for_one_setting_ours_counts", "Redis 8 has our names alone");
        return;
    }
    for theirs in ["1gb", "0", "64mb"] {
        let lines = ["max-filter-bytes 1gb".into(), format!("bloom-memory-usage-limit {theirs}")];
        let server = with_lines(&lines);
        assert_eq!(get(&mut server.client(), "max-filter-bytes"), "1073741824", "{theirs}");
    }
}

#[test]
fn a_tiny_rate_is_shown_as_it_is_written() {
    let server = Server::start();
    let client = &mut server.client();
    for rate in ["0.5", "0.00001", "1e-6", "5e-324"] {
        assert_eq!(client.cmd(&["CONFIG", "SET", &config_name("error-rate"), rate]), ok());
        assert_eq!(get(client, "error-rate"), rate);
    }
}

#[test]
fn the_configuration_of_valkey_bloom_starts_the_server() {
    // Redis 8 has no prefix, and users of valkey-bloom do not run it.
    if !has_aliases() {
        skipped(
            "the_configuration_of_valkey_bloom_starts_the_server",
            "Redis 8 has only our names",
        );
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
    for (name, value) in
        [("initial-size", "250"), ("expansion-factor", "4"), ("error-rate", "0.125")]
    {
        assert_eq!(get(client, name), value, "{name}");
    }
}

/// The settings of RedisBloom's cuckoo filters on Redis 8: names, RedisBloom's defaults, and other
/// values. RedisBloom's CONFIG REWRITE writes the lines of those that do not have their default.
const CUCKOO: [(&str, &str, &str); 5] = [
    ("cf-bucket-size", "2", "4"),
    ("cf-initial-size", "1024", "2048"),
    ("cf-max-iterations", "20", "30"),
    ("cf-expansion-factor", "1", "2"),
    ("cf-max-expansions", "32", "16"),
];

/// The `cf-` lines of the file after CONFIG REWRITE, sorted.
#[track_caller]
fn rewritten_cuckoo(server: &Server) -> Vec<String> {
    assert_eq!(server.client().run("CONFIG REWRITE"), ok());
    let text = std::fs::read_to_string(server.dir().join("redis.conf")).expect("the file");
    let mut lines: Vec<_> =
        text.lines().filter(|line| line.starts_with("cf-")).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn the_settings_of_cuckoo_filters_are_accepted_and_ignored_on_redis_8() {
    let test = "the_settings_of_cuckoo_filters_are_accepted_and_ignored_on_redis_8";
    if has_aliases() {
        skipped(test, "only Redis 8 has such settings");
        return;
    }
    let ignored = |server: &Server| -> Vec<String> {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains("has no effect here"));
        lines.map(str::to_owned).collect()
    };
    // The lines as RedisBloom's CONFIG REWRITE writes them.
    let mut lines = CUCKOO.map(|(name, _, value)| format!("{name} \"{value}\""));
    lines.sort();
    let server = lines.iter().fold(Server::with(), |builder, line| builder.config(line)).start();
    let client = &mut server.client();
    let said = ignored(&server);
    assert_eq!(said.len(), CUCKOO.len(), "{said:#?}");
    for (name, _, value) in CUCKOO {
        let line = said.iter().find(|line| line.contains(name)).expect(name);
        assert!(line.contains(" # "), "a warning, not a notice: {line}");
        assert_eq!(client.config_get(name).as_deref(), Some(value), "{name}");
    }
    // Patterns do not show them: they are settings of nothing here.
    for pattern in ["*", "cf*", "cf-*"] {
        let shown = client.cmd(&["CONFIG", "GET", pattern]);
        let found = shown.elements().iter().any(|word| word.text().starts_with("cf-"));
        assert!(!found, "CONFIG GET {pattern}: {shown:?}");
    }
    assert_eq!(rewritten_cuckoo(&server), lines, "CONFIG REWRITE loses no line");
    assert_eq!(ignored(&server).len(), CUCKOO.len());

    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(rewritten_cuckoo(&server), [""; 0], "CONFIG REWRITE adds no line");
    for (name, default, value) in CUCKOO {
        assert_eq!(client.config_get(name).as_deref(), Some(default), "{name}");
        assert_eq!(client.cmd(&["CONFIG", "SET", name, default]), ok());
        assert_eq!(client.cmd(&["CONFIG", "SET", name, value]), ok());
        assert!(ignored(&server).last().is_some_and(|line| line.contains(name)), "{name}");
        let reply = client.cmd(&["CONFIG", "SET", name, "many"]);
        assert!(reply.error().contains(name), "{reply:?}");
    }
    assert_eq!(ignored(&server).len(), CUCKOO.len(), "{:#?}", ignored(&server));
    assert_eq!(rewritten_cuckoo(&server), lines);
}

/// A file that RedisBloom rewrote itself starts this module, with RedisBloom's library replaced.
#[test]
fn a_file_that_redisbloom_rewrote_starts_the_server() {
    let test = "a_file_that_redisbloom_rewrote_starts_the_server";
    let Some(path) = peer(test) else { return };
    let theirs = redisbloom(&path);
    let client = &mut theirs.client();
    let own = [("error-rate", "0.02"), ("initial-size", "200"), ("expansion-factor", "4")];
    // RedisBloom has settings only on Redis 8.
    let settings = if has_aliases() { &[][..] } else { &own };
    for (name, value) in settings {
        assert_eq!(set(client, name, value), ok());
    }
    let cuckoo = if has_aliases() { &[][..] } else { &CUCKOO };
    for (name, _, value) in cuckoo {
        assert_eq!(client.cmd(&["CONFIG", "SET", name, value]), ok());
    }
    assert_eq!(client.run("CONFIG REWRITE"), ok());
    let text = std::fs::read_to_string(theirs.dir().join("redis.conf")).expect("the file");
    let ours = module_path().display().to_string();
    let swapped = text.replace(&path, &ours);
    assert!(swapped.contains(&format!("loadmodule {ours}")), "{text}");
    let server = Server::with().without_module().file(&swapped).start();
    let client = &mut server.client();
    for (name, value) in settings {
        assert_eq!(get(client, name), *value, "{name}");
    }
    assert_eq!(rewritten_cuckoo(&server).len(), cuckoo.len());
    assert_eq!(client.run("BF.ADD k a").int(), 1);
}

/// A name that no module has keeps the server from starting, and the log repeats it. Redis 7 and
/// Valkey 7 say only that there is such a name, if the name has the form of a module's setting.
#[test]
fn a_misspelt_setting_in_a_configuration_file_refuses_the_start() {
    const UNNAMED: &str = "Module Configuration detected without loadmodule directive";
    for name in ["bf.eror-rate", "bf-eror-rate", "cf-bucketsize", "cf.bucket-size"] {
        let Err(log) = Server::with().config(&format!("{name} 4")).try_start() else {
            panic!("{name} started a server")
        };
        let expected = match version() {
            Version { major: 7, .. } if name.contains('.') => UNNAMED,
            _ => name,
        };
        assert!(log.contains(expected), "{name}: the log does not say why:\n{log}");
    }
}
