//! What the server reports about the module and its commands: MODULE LIST, TYPE, COMMAND INFO.
//! Client libraries, cluster proxies and GUIs read these.

use crate::harness::{Command, READS, Reply, Server, array, bulk, commands, int, listed, simple};

/// redis-py and GUIs find the module by this name and compare `ver` as MM*10000+mm*100+pp.
#[test]
fn the_module_is_called_bf_and_has_a_version() {
    let server = Server::start();
    let reply = server.client().run("MODULE LIST");
    let module = reply.elements().iter().find(|module| module.get("name") == Some(&bulk("bf")));
    let module = module.unwrap_or_else(|| panic!("no module bf in {reply:?}"));
    let version: Vec<i64> =
        env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse().unwrap_or(0)).collect();
    let expected = version[0] * 10_000 + version[1] * 100 + version[2];
    assert_eq!(module.get("ver"), Some(&int(expected)), "the version of the package");
}

#[test]
fn the_type_is_the_one_that_tools_know() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.ADD k a");
    assert_eq!(client.run("TYPE k"), simple("MBbloom--"));
    assert_eq!(client.run("OBJECT ENCODING k"), bulk("raw"));
    assert_eq!(client.run("SCAN 0 TYPE MBbloom--"), array([bulk("0"), array([bulk("k")])]));
}

#[test]
fn the_module_has_every_command_and_no_other() {
    let server = Server::start();
    let mut expected: Vec<_> = commands().map(Command::name).collect();
    expected.sort_unstable();
    assert_eq!(listed(&mut server.client()), expected);
}

/// The texts of an array.
fn texts(reply: &Reply) -> Vec<String> {
    reply.elements().iter().map(Reply::text).collect()
}

#[test]
fn command_info_has_arity_flags_and_keys() {
    let server = Server::start();
    let client = &mut server.client();
    for command in commands() {
        let name = command.name();
        let name = name.as_str();
        let reply = client.cmd(&["COMMAND", "INFO", name]);
        let info = reply.elements()[0].elements();
        assert_eq!(info[0], bulk(name), "{name}");
        assert_eq!(info[1], int(command.arity), "arity of {name}");
        let flags = texts(&info[2]);
        for flag in ["write", "readonly", "denyoom", "fast"] {
            let wanted = command.flags.contains(&flag);
            assert_eq!(
                flags.iter().any(|known| known == flag),
                wanted,
                "{name}: {flag} in {flags:?}"
            );
        }
        // Of BF.MERGE every argument is a key.
        let last = if name == "bf.merge" { -1 } else { 1 };
        assert_eq!(info[3..6], [int(1), int(last), int(1)], "first key, last key, step of {name}");
        // A proxy must not cache answers that can change without a write to the key.
        let dont_cache = matches!(name, "bf.info" | "bf.debug" | "bf.scandump");
        assert_eq!(
            texts(&info[7]).contains(&"dont_cache".to_owned()),
            dont_cache,
            "tips of {name}"
        );
        let specs = info[8].elements();
        let count = if name == "bf.merge" { 2 } else { 1 };
        assert_eq!(specs.len(), count, "key specs of {name}: {specs:?}");
        assert_key_spec(name, &specs[0], command.key);
    }
}

/// Asserts that the spec is that of one key, the first argument.
#[track_caller]
fn assert_key_spec(name: &str, spec: &Reply, flags: &[&str]) {
    let mut got = texts(spec.get("flags").expect("a key spec has flags"));
    got.sort();
    let mut wanted: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    wanted.sort();
    assert_eq!(got, wanted, "{name}: flags of the key spec");
    let begin =
        spec.get("begin_search").and_then(|begin| begin.get("spec")).expect("where the key begins");
    assert_eq!(begin.get("index"), Some(&int(1)), "{name}: {spec:?}");
    let find = spec.get("find_keys").and_then(|find| find.get("spec")).expect("how keys are found");
    for (field, value) in [("lastkey", 0), ("keystep", 1), ("limit", 0)] {
        assert_eq!(find.get(field), Some(&int(value)), "{name}: {field} in {spec:?}");
    }
}

#[test]
fn command_getkeys_finds_the_key() {
    let server = Server::start();
    let client = &mut server.client();
    for Command { call, .. } in commands() {
        let keys = if call.starts_with("BF.MERGE") { vec!["k", "k"] } else { vec!["k"] };
        let reply = client.run(&format!("COMMAND GETKEYS {call}"));
        assert_eq!(reply, array(keys.into_iter().map(bulk)), "{call}");
    }
    let reply = client.run("COMMAND GETKEYS BF.MERGE a b c");
    assert_eq!(reply, array(["a", "b", "c"].map(bulk)));
    let reply = client.run("COMMAND INFO bf.merge");
    let specs = reply.elements()[0].elements()[8].elements();
    let mut flags = texts(specs[1].get("flags").expect("a key spec has flags"));
    flags.sort();
    assert_eq!(flags, READS, "the sources");
}

/// INFO commandstats lists the commands in lower case.
#[test]
fn the_server_counts_the_commands() {
    let server = Server::start();
    let client = &mut server.client();
    for item in 0..10 {
        client.run(&format!("BF.ADD k {item}"));
    }
    let calls = client.server_info("commandstats", "cmdstat_bf.add");
    assert!(calls.starts_with("calls=10,"), "{calls}");
    let failed = client.run("BF.ADD k");
    assert!(failed.is_error());
    let calls = client.server_info("commandstats", "cmdstat_bf.add");
    assert!(calls.contains("rejected_calls=1"), "the server counts a wrong arity: {calls}");
}
