//! Checks the documents against a server: the console sessions of the guide and of
//! docs/reference/commands.md run in a real redis-cli, each block on an empty server, and so do the
//! first commands of README.md; docs/guide/sizing.md has the sizes that a server reports;
//! the lists of what RedisBloom lacks are whole. `reference.rs` compares the tables of
//! docs/reference.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::harness::{Client, OWN, Server, config_name, info, int, ok, skipped, version};

/// A command in a document, and the output shown below it.
type Step = (String, String);

/// The text of a document.
#[track_caller]
fn text(document: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The steps of each console block; `prompt` starts a command.
fn blocks(document: &str, prompt: &str) -> Vec<Vec<Step>> {
    let text = text(document);
    let consoles =
        text.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let steps = |console: &str| {
        let mut steps: Vec<Step> = Vec::new();
        for line in console.lines() {
            match (line.strip_prefix(prompt), steps.last_mut()) {
                (Some(command), _) => steps.push((command.to_owned(), String::new())),
                (None, Some((_, shown))) => shown.push_str(&format!("{line}\n")),
                (None, None) => {}
            }
        }
        steps
    };
    consoles.map(steps).collect()
}

fn run(server: &Server, command: &str) -> String {
    run_as(server, "--no-raw", command)
}

fn run_as(server: &Server, form: &str, command: &str) -> String {
    let port = server.port().to_string();
    let output = Command::new("redis-cli")
        .args([form, "-h", "127.0.0.1", "-p", &port])
        .args(command.split_whitespace())
        .output()
        .expect("redis-cli is installed: make setup");
    String::from_utf8(output.stdout).expect("text")
}

/// The pages of docs/guide.
fn guide() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide");
    let pages = fs::read_dir(path).expect("the guide").map(|entry| entry.expect("an entry"));
    let names = pages.map(|page| page.file_name().into_string().expect("a name in UTF-8"));
    names.map(|name| format!("docs/guide/{name}")).collect()
}

#[test]
fn the_sessions_in_the_documents_are_what_redis_cli_shows() {
    let mut steps_run = 0;
    for document in guide().into_iter().chain(["docs/reference/commands.md".to_owned()]) {
        for block in blocks(&document, "> ") {
            let server = Server::start();
            for (command, shown) in block {
                // The documents use the setting names of Redis 7 and Valkey.
                let command =
                    command.replace("bf.missing-key-error", &config_name("missing-key-error"));
                assert_eq!(
                    run(&server, &command).trim_end(),
                    shown.trim_end(),
                    "{document}: {command}"
                );
                steps_run += 1;
            }
        }
    }
    assert!(steps_run >= 40, "only {steps_run} steps were found");
}

/// Each `redis-cli` line of README.md has what it prints behind it, on one line.
#[test]
fn the_first_commands_of_the_readme_print_what_it_says() {
    let server = Server::start();
    let text = text("README.md");
    let lines: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("redis-cli ")?.split_once(" # "))
        .collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (command, shown) in lines {
        let reply = run_as(&server, "--raw", command);
        assert_eq!(reply.split_whitespace().collect::<Vec<_>>().join(" "), shown, "{command}");
    }
}

/// Parses a number such as "1,000" or "10 million".
#[track_caller]
fn number(cell: &str) -> i64 {
    let (digits, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let unit = match unit {
        "" => 1,
        "million" => 1_000_000,
        "billion" => 1_000_000_000,
        other => panic!("{other}"),
    };
    digits.replace(',', "").parse::<i64>().expect("a number") * unit
}

/// Compares `figure` with a column of each row of the table about the allocator.
#[track_caller]
fn check_allocator_table(server: &Server, column: usize, figure: impl Fn(&mut Client) -> i64) {
    const HEAD: &str =
        "| items | `BF.INFO key SIZE` | `MEMORY USAGE key` | more |\n|---|---|---|---|\n";
    let text = text("docs/guide/sizing.md");
    let (_, below) = text.split_once(HEAD).expect("the table");
    let client = &mut server.client();
    let mut rows = 0;
    for line in below.lines().take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [items, size, usage] = [0, 1, 2].map(|column| number(cells[column]));
        assert_eq!(client.run(&format!("BF.RESERVE key 0.01 {items}")), ok());
        assert_eq!(figure(client), number(cells[column]), "{line}");
        assert_eq!(client.run("DEL key"), int(1));
        let more = (usage - size) as f64 / size as f64 * 100.0;
        assert_eq!(cells[3], format!("{more:.1} %"), "{line}");
        rows += 1;
    }
    assert!(rows > 0, "the table is empty");
}

#[test]
fn the_sizes_in_the_allocator_table_are_those_of_bf_info() {
    check_allocator_table(&Server::start(), 1, |client| info(client, "key").size);
}

/// Runs only on the server that the document names; others take another number of bytes.
#[test]
fn the_allocator_table_shows_memory_usage() {
    let server = Server::start();
    let allocator = server.client().server_info("memory", "mem_allocator");
    let release = (version().valkey, version().major, version().minor);
    if (release, allocator.as_str()) != ((false, 7, 0), "jemalloc-5.3.0") {
        skipped(
            "the_allocator_table_shows_memory_usage",
            "the table was measured in Redis 7.0 with jemalloc 5.3.0",
        );
        return;
    }
    check_allocator_table(&server, 2, |client| client.run("MEMORY USAGE key").int());
}

/// The words in backticks, in the part of a document that begins with `start` and ends with `end`.
#[track_caller]
fn words(document: &str, start: &str, end: &str) -> BTreeSet<String> {
    let text = text(document);
    let (_, below) = text.split_once(start).unwrap_or_else(|| panic!("{document}: {start}"));
    let part = below.split(end).next().unwrap_or_default();
    part.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_pages_name_all_that_redisbloom_lacks() {
    let page = words(
        "docs/reference/differences.md",
        "These words have a field that RedisBloom lacks",
        ".",
    );
    let docs = Server::start().client().run("COMMAND DOCS BF.INFO");
    let docs = docs.get("bf.info").and_then(|docs| docs.get("arguments")).expect("arguments");
    let choice = docs.elements().iter().find_map(|argument| argument.get("arguments"));
    let fields = choice.expect("the words").elements().iter();
    let mut fields: BTreeSet<_> =
        fields.map(|word| word.get("token").expect("a word").text()).collect();
    for word in ["CAPACITY", "SIZE", "FILTERS", "ITEMS", "EXPANSION"] {
        assert!(fields.remove(word), "RedisBloom's {word}");
    }
    assert_eq!(page, fields, "docs/reference/differences.md, the words of BF.INFO");

    let mut own: BTreeSet<_> = OWN.iter().map(|command| command.name().to_uppercase()).collect();
    let mut page = words("docs/reference/differences.md", "It has deletion", ".\n");
    page.retain(|word| word.starts_with("BF."));
    assert_eq!(page, own, "docs/reference/differences.md, the commands");
    // Clients do not send it.
    own.remove("BF.SHIFT");
    let page = words("docs/guide/clients.md", "the commands that RedisBloom lacks", ")");
    assert_eq!(page, own, "docs/guide/clients.md");
}
