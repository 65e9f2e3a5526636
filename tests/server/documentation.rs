//! The console sessions of README.md and docs/commands.md, run in a real redis-cli: what the documents show is what a
//! reader gets. Each block starts on an empty server.

use std::{fs, path::Path, process::Command};

use crate::harness::{Server, config_name};

/// A command line of a document, and the lines that it shows below.
type Step = (String, String);

/// The steps of each console block; `prompt` starts a command.
fn blocks(document: &str, prompt: &str) -> Vec<Vec<Step>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let consoles = text
        .split("```console\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default());
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
    let port = server.port().to_string();
    let output = Command::new("redis-cli")
        .args(["--no-raw", "-h", "127.0.0.1", "-p", &port])
        .args(command.split_whitespace())
        .output()
        .expect("redis-cli is installed: make setup");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_sessions_in_the_documents_are_what_redis_cli_shows() {
    let mut steps_run = 0;
    for (document, prompt) in [("README.md", "127.0.0.1:6379> "), ("docs/commands.md", "> ")] {
        for block in blocks(document, prompt) {
            let server = Server::start();
            for (command, shown) in block {
                // The documents use the names of Redis 7 and Valkey.
                let command = command.replace("bf.missing-key-error", &config_name("missing-key-error"));
                assert_eq!(
                    run(&server, &command).trim_end(),
                    shown.trim_end(),
                    "{document}: {command}"
                );
                steps_run += 1;
            }
        }
    }
    assert!(steps_run >= 30, "only {steps_run} steps were found");
}
