//! `redis.conf.example` is up to date: it shows every setting with its default and every load
//! argument, and a server starts with it unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::harness::{Client, Server, config_name, module_path, ok};

fn example() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("redis.conf.example");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The module's settings in CONFIG GET: names without the prefix, and values.
fn get_all(client: &mut Client) -> BTreeMap<String, String> {
    let mut known = BTreeMap::new();
    for pattern in ["bf.*", "bf-*"] {
        let reply = client.cmd(&["CONFIG", "GET", pattern]);
        for pair in reply.elements().chunks_exact(2) {
            known.insert(pair[0].text()[3..].to_owned(), pair[1].text());
        }
    }
    known
}

/// The module's settings in the text, commented out or not: lines of exactly a name and a value.
/// Names come without `bf.` or `bf-`, because the prefix depends on the server. Valkey-bloom's
/// names come only if the server adds the prefix.
fn settings(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let line = line.trim_start_matches(['#', ' ']);
        let Some(rest) = line.strip_prefix("bf.").or_else(|| line.strip_prefix("bf-")) else {
            continue;
        };
        let words: Vec<_> = rest.split_whitespace().collect();
        if let [name, value] = words[..] {
            if name.starts_with("bloom-") && !has_prefix() {
                continue;
            }
            let value = value.trim_matches('"').to_owned();
            let twice = found.insert(name.to_owned(), value);
            assert_eq!(twice, None, "{name} is in the example twice");
        }
    }
    found
}

/// Whether the server adds `bf.` to the names of the settings, as all but Redis 8 do.
fn has_prefix() -> bool {
    config_name("error-rate").contains('.')
}

#[test]
fn the_example_shows_every_setting_with_its_default_and_no_other() {
    let server = Server::start();
    let client = &mut server.client();
    let shown = settings(&example());
    let mut known = get_all(client);
    // An alias shows nothing until it is set. Setting it to the default in the example changes only
    // the alias itself.
    let aliases = known.iter_mut().filter(|(_, value)| value.is_empty());
    for (name, value) in aliases {
        let default = shown.get(name).unwrap_or_else(|| panic!("no {name} in the example"));
        let before = get_all(client);
        assert_eq!(client.cmd(&["CONFIG", "SET", &config_name(name), default]), ok());
        let after = get_all(client);
        let changed = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
        assert_eq!(changed.collect::<Vec<_>>(), [(name as &_, default)], "{name}: not the default");
        value.clone_from(default);
    }
    assert!(known.len() >= 5, "CONFIG GET knows only {known:?}");
    assert_eq!(shown, known, "left: redis.conf.example, right: CONFIG GET");
}

/// The arguments of each `loadmodule` line of the text, commented out or not.
fn load_lines(text: &str) -> Vec<Vec<String>> {
    let lines = text
        .lines()
        .filter_map(|line| line.trim_start_matches(['#', ' ']).strip_prefix("loadmodule "));
    lines.map(|line| line.split_whitespace().skip(1).map(str::to_owned).collect()).collect()
}

#[test]
fn the_example_shows_every_load_argument_in_a_line_that_loads() {
    let lines = load_lines(&example());
    for argument in ["ERROR_RATE", "INITIAL_SIZE", "CF_MAX_EXPANSIONS"] {
        let shown = lines.iter().flatten().any(|word| word == argument);
        assert!(shown, "no loadmodule line of the example shows {argument}: {lines:?}");
    }
    for line in lines {
        let arguments: Vec<_> = line.iter().map(String::as_str).collect();
        let server = Server::with().module_arguments(&arguments).try_start();
        assert!(
            server.is_ok(),
            "loadmodule … {arguments:?}:\n{}",
            server.err().unwrap_or_default()
        );
    }
}

/// The file is used unchanged, except for the path of the module.
#[test]
fn a_server_starts_with_the_example() {
    let kept: Vec<_> = example()
        .lines()
        .filter(|line| !line.starts_with("loadmodule "))
        .map(str::to_owned)
        .collect();
    let server = Server::with().file(&kept.join("\n")).start();
    assert!(server.client().run("BF.ADD k a").int() == 1, "{}", module_path().display());
}

/// Every setting of the module is uncommented, and keeps the default that the example shows.
#[test]
fn a_server_starts_with_every_setting_of_the_example_in_force() {
    let mut builder = Server::with();
    let shown = settings(&example());
    for (name, value) in &shown {
        builder = builder.config(&format!("{} \"{value}\"", config_name(name)));
    }
    let server = builder.start();
    let client = &mut server.client();
    for (name, value) in &shown {
        let got = client.config_get(&config_name(name));
        assert_eq!(got.as_deref(), Some(value.as_str()), "{name}");
    }
}
