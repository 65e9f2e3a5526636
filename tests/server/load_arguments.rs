//! The arguments of the `loadmodule` line. A wrong argument makes the load fail with a reason: a
//! server must not run with other defaults than its operator wrote down.

use crate::harness::{Server, assert_unharmed, config_name, info, module_path, skipped, version};

#[test]
fn load_arguments_set_the_defaults() {
    let rows: [(&[&str], &str, &str); 8] = [
        (&[], "0.01", "100"),
        (&["ERROR_RATE", "0.001"], "0.001", "100"),
        (&["INITIAL_SIZE", "5000"], "0.01", "5000"),
        (&["ERROR_RATE", "0.125", "INITIAL_SIZE", "50"], "0.125", "50"),
        (&["initial_size", "7", "Error_Rate", "0.5"], "0.5", "7"),
        (&["CF_MAX_EXPANSIONS", "16", "ERROR_RATE", "0.25"], "0.25", "100"),
        (&["LAYOUT", "redisbloom", "INITIAL_SIZE", "9"], "0.01", "9"),
        // Some tools write an empty argument for none.
        (&[""], "0.01", "100"),
    ];
    for (arguments, rate, capacity) in rows {
        let server = Server::with().module_arguments(arguments).start();
        let client = &mut server.client();
        let got = client.config_get(&config_name("error-rate")).expect("an error rate");
        assert_eq!(got.parse(), rate.parse::<f64>(), "{arguments:?}");
        assert_eq!(
            client.config_get(&config_name("initial-size")).as_deref(),
            Some(capacity),
            "{arguments:?}"
        );
        client.run("BF.ADD k a");
        assert_eq!(info(client, "k").capacity.to_string(), capacity, "{arguments:?}");
        client.run(&format!("BF.RESERVE asked {rate} {capacity}"));
        client.run("BF.ADD asked a");
        assert_eq!(client.run("BF.DEBUG k"), client.run("BF.DEBUG asked"), "{arguments:?}");
    }
}

/// Existing `loadmodule` lines of RedisBloom have this argument; this module has no cuckoo filters.
#[test]
fn the_cuckoo_argument_is_accepted_with_a_warning() {
    let server = Server::with().module_arguments(&["cf_max_expansions", "32"]).start();
    let log = server.log();
    let warning = log
        .lines()
        .find(|line| line.contains("<bf>") && line.to_lowercase().contains("cf_max_expansions"));
    let warning = warning.unwrap_or_else(|| panic!("no warning in the log:\n{log}"));
    assert!(warning.contains(" # "), "a warning, not a notice: {warning}");
    let quiet = Server::start().log();
    assert!(
        !quiet.to_lowercase().contains("cf_max_expansions"),
        "no argument, no warning:\n{quiet}"
    );
}

#[test]
fn a_bad_load_argument_refuses_the_load_and_names_it() {
    // The arguments, and a word that a log line must contain.
    let rows: [(&[&str], &str); 20] = [
        (&["ERROR_RATE"], "ERROR_RATE"),
        (&["INITIAL_SIZE"], "INITIAL_SIZE"),
        (&["CF_MAX_EXPANSIONS"], "CF_MAX_EXPANSIONS"),
        (&["ERROR_RATE", "0.01", "INITIAL_SIZE"], "INITIAL_SIZE"),
        (&["NO_SUCH", "1"], "NO_SUCH"),
        (&["ERROR_RATE", "0.01", "NO_SUCH", "1"], "NO_SUCH"),
        (&["0.01", "100"], "0.01"),
        (&["ERROR", "0.01"], "ERROR"),
        (&["ERROR_RATE", "x"], "ERROR_RATE"),
        (&["ERROR_RATE", ""], "ERROR_RATE"),
        (&["ERROR_RATE", "nan"], "ERROR_RATE"),
        (&["ERROR_RATE", "0"], "ERROR_RATE"),
        (&["ERROR_RATE", "1"], "ERROR_RATE"),
        (&["ERROR_RATE", "-0.5"], "ERROR_RATE"),
        (&["ERROR_RATE", "2"], "ERROR_RATE"),
        (&["INITIAL_SIZE", "x"], "INITIAL_SIZE"),
        (&["INITIAL_SIZE", "0"], "INITIAL_SIZE"),
        (&["INITIAL_SIZE", "-1"], "INITIAL_SIZE"),
        (&["INITIAL_SIZE", "1.5"], "INITIAL_SIZE"),
        (&["INITIAL_SIZE", "4611686018427387905"], "INITIAL_SIZE"),
    ];
    let mut failures = Vec::new();
    for (arguments, word) in rows {
        match Server::with().module_arguments(arguments).try_start() {
            Ok(_) => failures.push(format!("{arguments:?} started a server")),
            Err(log) => {
                let said: Vec<_> = log.lines().filter(|line| line.contains("<bf>")).collect();
                if !said.iter().any(|line| line.contains(word)) {
                    failures.push(format!(
                        "{arguments:?}: the module does not name {word}, it says {said:#?}"
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// docs/guide/troubleshooting.md describes this, and names the servers that crash.
#[test]
fn a_misspelt_setting_of_module_loadex_is_an_error() {
    if version().at_least((7, 2), (0, 0)) && !version().at_least((8, 0), (u32::MAX, 0)) {
        skipped(
            "a_misspelt_setting_of_module_loadex_is_an_error",
            "Redis 7.2 and 7.4 and Valkey crash, with other modules too",
        );
        return;
    }
    let server = Server::with().without_module().config("enable-module-command yes").start();
    let client = &mut server.client();
    let path = module_path().display().to_string();
    let rate = config_name("error-rate");
    let loadex =
        ["MODULE", "LOADEX", &path, "CONFIG", &rate, "0.5", "CONFIG", "bf.eror-rate", "0.5"];
    let reply = client.cmd(&loadex);
    assert!(reply.error().starts_with("ERR Error loading the extension"), "{reply:?}");
    let added = client.run("BF.ADD k a");
    assert_eq!(added.is_error(), version().major >= 8, "{added:?}");
    assert_unharmed(&server);
}

/// Checks the harness: without the module there are no commands, so every other test would fail.
#[test]
fn without_the_module_there_are_no_commands() {
    let server = Server::with().without_module().start();
    let reply = server.client().run("BF.ADD k a");
    assert!(reply.error().starts_with("ERR unknown command"), "{reply:?}");
}
