//! COMMAND DOCS: `redis-cli` shows it as hints while the user types.

use crate::harness::{Reply, Server, commands};

#[test]
fn command_docs_describes_every_command() {
    let server = Server::start();
    let client = &mut server.resp3();
    for command in commands() {
        let name = &command.name();
        let reply = client.cmd(&["COMMAND", "DOCS", name]);
        let docs = reply.get(name).unwrap_or_else(|| panic!("no docs of {name}: {reply:?}"));
        let field = |field: &str| {
            docs.get(field).unwrap_or_else(|| panic!("docs of {name} have no {field}: {docs:?}"))
        };
        assert!(field("summary").text().len() > 10, "{name}: {docs:?}");
        assert!(field("complexity").text().starts_with("O("), "{name}: {docs:?}");
        assert_eq!(field("since").text(), command.since, "{name}");
        assert_eq!(field("group").text(), "module", "{name}");
        assert_eq!(field("module").text(), "bf", "{name}");
        let names: Vec<_> = field("arguments")
            .elements()
            .iter()
            .map(|argument| text_of(argument, "name"))
            .collect();
        let names: Vec<_> = names
            .iter()
            .map(String::as_str)
            .filter(|name| {
                let own = ["seed", "counting", "shard", "window", "generations", "norefresh"];
                !own.contains(name)
            })
            .collect();
        assert_eq!(names.join(" "), command.arguments, "{name}: arguments");
        assert_eq!(text_of(&field("arguments").elements()[0], "type"), "key", "{name}");
    }
}

#[track_caller]
fn text_of(argument: &Reply, field: &str) -> String {
    argument.get(field).unwrap_or_else(|| panic!("no {field} in {argument:?}")).text()
}

#[test]
fn command_docs_gives_the_arguments_their_types() {
    let server = Server::start();
    let client = &mut server.resp3();
    let rows = [
        ("bf.reserve", "error_rate", "double"),
        ("bf.reserve", "capacity", "integer"),
        ("bf.reserve", "expansion", "block"),
        ("bf.reserve", "nonscaling", "pure-token"),
        ("bf.reserve", "counting", "pure-token"),
        ("bf.del", "item", "string"),
        ("bf.count", "item", "string"),
        ("bf.insert", "counting", "pure-token"),
        ("bf.insert", "capacity", "block"),
        ("bf.insert", "error", "block"),
        ("bf.insert", "expansion", "block"),
        ("bf.insert", "nocreate", "pure-token"),
        ("bf.insert", "nonscaling", "pure-token"),
        ("bf.insert", "items", "pure-token"),
        ("bf.insert", "item", "string"),
        ("bf.bulkadd", "capacity", "block"),
        ("bf.bulkadd", "counting", "pure-token"),
        ("bf.bulkadd", "format", "oneof"),
        ("bf.bulkadd", "blob", "string"),
        ("bf.bulkexists", "format", "oneof"),
        ("bf.bulkexists", "blob", "string"),
        ("bf.madd", "item", "string"),
        ("bf.add", "item", "string"),
        ("bf.info", "single_value", "oneof"),
    ];
    for (command, name, kind) in rows {
        let reply = client.cmd(&["COMMAND", "DOCS", command]);
        let arguments =
            reply.get(command).and_then(|docs| docs.get("arguments")).expect("arguments");
        let argument =
            arguments.elements().iter().find(|argument| text_of(argument, "name") == name);
        let argument = argument.unwrap_or_else(|| panic!("{command} has no argument {name}"));
        assert_eq!(text_of(argument, "type"), kind, "{command} {name}");
        let flags = argument.get("flags").map(texts).unwrap_or_default();
        let optional = !matches!(name, "error_rate" | "item" | "items" | "format" | "blob")
            && (command, name) != ("bf.reserve", "capacity");
        assert_eq!(flags.contains(&"optional".to_owned()), optional, "{command} {name}: {flags:?}");
        // As in RedisBloom: the block has the token and contains only the value.
        if kind == "block" {
            assert_eq!(text_of(argument, "token"), name.to_uppercase(), "{command}");
            let values = argument.get("arguments").expect("the value").elements();
            assert_eq!(values.len(), 1, "{command} {name}");
            assert!(["integer", "double"].contains(&text_of(&values[0], "type").as_str()));
        }
        let own = argument.get("since").map(Reply::text);
        // In a command that RedisBloom has.
        let expected = (name == "counting" && command != "bf.bulkadd").then(|| "0.1.0".to_owned());
        assert_eq!(own, expected, "{command} {name}");
        let multiple = name == "item" && !["bf.add", "bf.count"].contains(&command);
        assert_eq!(flags.contains(&"multiple".to_owned()), multiple, "{command} {name}: {flags:?}");
        if name == "format" {
            let formats = argument.get("arguments").expect("the formats").elements();
            for (format, (token, kind)) in formats.iter().zip([
                ("LINES", "pure-token"),
                ("LENGTHS", "pure-token"),
                ("WIDTH", "block"),
            ]) {
                assert_eq!(text_of(format, "token"), token, "{command}");
                assert_eq!(text_of(format, "type"), kind, "{command} {token}");
                assert!(format.get("flags").is_none(), "{command} {token}: {format:?}");
            }
            assert_eq!(formats.len(), 3, "{command}");
        }
        if name == "single_value" {
            let words: Vec<_> = argument
                .get("arguments")
                .expect("the fields")
                .elements()
                .iter()
                .map(|field| text_of(field, "token"))
                .collect();
            for word in [
                "CAPACITY",
                "SIZE",
                "FILTERS",
                "ITEMS",
                "EXPANSION",
                "SATURATED",
                "UNDELETED",
                "SHARD",
                "WINDOW",
                "GENERATIONS",
                "IDENTITY",
                "LAYOUT",
            ] {
                assert!(words.iter().any(|known| known == word), "{words:?}");
            }
        }
    }
}

fn texts(reply: &Reply) -> Vec<String> {
    reply.elements().iter().map(Reply::text).collect()
}

#[test]
fn the_server_knows_the_keys_of_every_command() {
    let server = Server::start();
    let client = &mut server.client();
    for (line, keys) in [
        ("BF.ADD k item", &["k"][..]),
        ("BF.MERGE k source", &["k", "source"]),
        ("BF.MERGE k k source other", &["k", "k", "source", "other"]),
        ("BF.IMPORT k GUAVA data", &["k"]),
    ] {
        let reply = client.run(&format!("COMMAND GETKEYS {line}"));
        assert_eq!(texts(&reply), keys, "{line}");
        let reply = client.run(&format!("COMMAND GETKEYSANDFLAGS {line}"));
        let found: Vec<_> = reply
            .elements()
            .iter()
            .map(|key| (key.elements()[0].text(), texts(&key.elements()[1])))
            .collect();
        let flags = |at: usize| match (line.starts_with("BF.IMPORT"), at) {
            (false, 0) => vec!["RW", "access", "insert"],
            (true, 0) => vec!["RW", "insert"],
            (_, _) => vec!["RO", "access"],
        };
        let expected: Vec<_> = keys
            .iter()
            .enumerate()
            .map(|(at, key)| {
                let flags = flags(at).into_iter().map(str::to_owned);
                ((*key).to_owned(), flags.collect())
            })
            .collect();
        assert_eq!(found, expected, "{line}");
    }
    assert_eq!(client.run("DBSIZE").int(), 0);
}
