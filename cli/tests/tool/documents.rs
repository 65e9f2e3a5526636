//! The examples of docs/reference/cli.md: they run in their order, in an empty directory, against
//! one server, and print what the page shows. Where false positives, times and rates make numbers
//! differ from run to run, everything else is compared.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::{harness::Server, run::command_at};

/// The commands of the page, each with the output below it.
fn examples(page: &str) -> Vec<(&str, String)> {
    let mut examples: Vec<(&str, String)> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").expect("the end of the block");
        for line in block.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => examples.push((command, String::new())),
                None => {
                    let (_, output) = examples.last_mut().expect("a command");
                    *output += line;
                    output.push('\n');
                }
            }
        }
    }
    examples
}

/// The text with `#` in place of each number, `/s` in place of the unit of a rate, and single
/// blanks.
fn without_numbers(text: &str) -> String {
    let masked = |word: &str| {
        if word.trim_start_matches(['(', '#']).starts_with(|first: char| first.is_ascii_digit()) {
            "#".to_owned()
        } else if word.ends_with("/s") {
            "/s".to_owned()
        } else {
            word.to_owned()
        }
    };
    let line = |line: &str| line.split_whitespace().map(masked).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// An item of the page that no filter has.
const ABSENT: &str = "example.org";

#[test]
fn the_page_shows_what_the_tool_prints() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli.md");
    let page = std::fs::read_to_string(page).expect("docs/reference/cli.md");
    let examples = examples(&page);
    assert!(examples.len() > 15, "the page has {} commands", examples.len());
    let server = Server::start();
    let dir = tempfile::tempdir().expect("a directory");
    let tool = command_at(&server, "");
    // The page names neither port nor path.
    let function = format!(
        "redis-bloom() {{ \"{}\" -p {} \"$@\"; }}\nexec 2>&1\n",
        tool.get_program().to_str().expect("a path in UTF-8"),
        server.port()
    );
    let run = |command: &str| {
        let output = Command::new("bash")
            .args(["-c", &format!("{function}{command}")])
            .current_dir(dir.path())
            .env_remove("REDISCLI_AUTH")
            .stdin(Stdio::null())
            .output()
            .expect("bash runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    for (command, mut expected) in examples {
        let mut command = command.to_owned();
        let mut printed = run(&command);
        if command.contains(ABSENT) && !printed.contains(ABSENT) {
            // One in 1,000 absent items is found. Two are with a probability of 10^-6.
            [command, expected] = [command, expected].map(|text| text.replace(ABSENT, "a.example"));
            printed = run(&command);
        }
        let exact = ["plan", "create", "check", "drop"].iter().any(|word| command.contains(word));
        if exact && !command.contains(" load ") {
            assert_eq!(printed, expected, "$ {command}");
        } else {
            let (left, right) = (without_numbers(&printed), without_numbers(&expected));
            assert_eq!(left, right, "$ {command}\n{printed}");
        }
    }
}
