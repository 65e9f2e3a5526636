//! What the server tells about the module and its commands: MODULE LIST, TYPE, COMMAND INFO. Client
//! libraries, cluster proxies and GUIs read these.

use crate::harness::{Reply, Server, array, bulk, int, simple};

/// A command as COMMAND INFO must describe it.
struct Command {
    name: &'static str,
    arity: i64,
    /// Flags it must have; the server adds some of its own.
    flags: &'static [&'static str],
    /// Flags of its one key spec.
    key: &'static [&'static str],
}

const READ: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write", "denyoom"];
const CREATES: &[&str] = &["RW", "insert"];
/// The answers of the adding commands tell what is there, so they need the permission to read as
/// well.
const ADDS: &[&str] = &["RW", "access", "insert"];
const DELETES: &[&str] = &["RW", "access", "delete"];
const READS: &[&str] = &["RO", "access"];

const fn command(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    key: &'static [&'static str],
) -> Command {
    Command { name, arity, flags, key }
}

const COMMANDS: [Command; 15] = [
    command("bf.reserve", -4, WRITE, CREATES),
    command("bf.add", 3, WRITE, ADDS),
    command("bf.madd", -3, WRITE, ADDS),
    command("bf.insert", -4, WRITE, ADDS),
    command("bf.del", -3, &["write"], DELETES),
    command("bf.exists", 3, READ, READS),
    command("bf.mexists", -3, READ, READS),
    command("bf.count", 3, READ, READS),
    command("bf.card", 2, READ, READS),
    command("bf.info", -2, READ, READS),
    command("bf.debug", 2, READ, READS),
    // RedisBloom calls it fast, although it copies up to 16 MiB.
    command("bf.scandump", 3, &["readonly"], READS),
    command("bf.loadchunk", 4, WRITE, CREATES),
    command("bf.load", 3, WRITE, CREATES),
    command("bf.import", -4, WRITE, CREATES),
];

/// redis-py and GUIs look the module up by this name and compare `ver` as MM*10000+mm*100+pp.
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
    let reply = server.client().run("COMMAND LIST FILTERBY MODULE bf");
    let mut names: Vec<_> =
        reply.elements().iter().map(|name| name.text().to_lowercase()).collect();
    names.sort();
    let mut expected: Vec<_> = COMMANDS.iter().map(|command| command.name).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

/// A list of flags in any order.
fn texts(reply: &Reply) -> Vec<String> {
    reply.elements().iter().map(Reply::text).collect()
}

#[test]
fn command_info_tells_arity_flags_and_keys() {
    let server = Server::start();
    let client = &mut server.client();
    for command in &COMMANDS {
        let name = command.name;
        let reply = client.cmd(&["COMMAND", "INFO", name]);
        let info = reply.elements()[0].elements();
        assert_eq!(info[0], bulk(name), "{name}");
        assert_eq!(info[1], int(command.arity), "arity of {name}");
        let flags = texts(&info[2]);
        for flag in command.flags {
            assert!(
                flags.iter().any(|known| known == flag),
                "{name} has flags {flags:?}, but not {flag}"
            );
        }
        for flag in ["write", "readonly", "denyoom"] {
            let wanted = command.flags.contains(&flag);
            assert_eq!(
                flags.iter().any(|known| known == flag),
                wanted,
                "{name}: {flag} in {flags:?}"
            );
        }
        assert_eq!(info[3..6], [int(1), int(1), int(1)], "first key, last key and step of {name}");
        // A proxy may not keep what changes without the key being written by name.
        let dont_cache = matches!(name, "bf.info" | "bf.debug" | "bf.scandump");
        assert_eq!(
            texts(&info[7]).contains(&"dont_cache".to_owned()),
            dont_cache,
            "tips of {name}"
        );
        let specs = info[8].elements();
        let count = if name == "bf.import" { 2 } else { 1 };
        assert_eq!(specs.len(), count, "key specs of {name}: {specs:?}");
        assert_key_spec(name, &specs[0], command.key);
    }
}

/// One key, the first argument.
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
    for line in [
        "BF.RESERVE k 0.01 100",
        "BF.ADD k a",
        "BF.MADD k a b",
        "BF.INSERT k CAPACITY 10 ITEMS a",
        "BF.EXISTS k a",
        "BF.MEXISTS k a b",
        "BF.CARD k",
        "BF.INFO k SIZE",
        "BF.DEBUG k",
        "BF.SCANDUMP k 0",
        "BF.LOADCHUNK k 1 data",
        "BF.LOAD k data",
    ] {
        assert_eq!(client.run(&format!("COMMAND GETKEYS {line}")), array([bulk("k")]), "{line}");
    }
}

/// A bitmap is in another key, which is only read.
#[test]
fn command_getkeys_finds_the_bitmap_of_an_import() {
    let server = Server::start();
    let client = &mut server.client();
    for (line, keys) in [
        ("BF.IMPORT k GUAVA bytes", &["k"][..]),
        ("BF.IMPORT k BITMAP source CAPACITY 1 ERROR 0.1", &["k", "source"]),
        ("BF.IMPORT k bitmap source GUAVA64 CAPACITY 1 ERROR 0.1", &["k", "source"]),
    ] {
        let keys = array(keys.iter().map(bulk));
        assert_eq!(client.run(&format!("COMMAND GETKEYS {line}")), keys, "{line}");
    }
    let reply = client.run("COMMAND INFO bf.import");
    let specs = reply.elements()[0].elements()[8].elements();
    let mut flags = texts(specs[1].get("flags").expect("a key spec has flags"));
    flags.sort();
    assert_eq!(flags, ["RO", "access"]);
}

/// INFO commandstats, SLOWLOG and the like name the commands in lower case; nothing of the module
/// fails under MONITOR.
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
    assert!(calls.contains("rejected_calls=1"), "the server itself refuses a wrong arity: {calls}");
}
