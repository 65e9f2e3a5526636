//! Completions and the manual page.

use std::{fs, process::Command};

use crate::{
    harness::skipped,
    run::run,
    terminal::{Terminal, in_terminal},
};

/// What is typed before a tab, and the words that the program gets.
const COMPLETED: [(&str, &str); 6] = [
    ("redis-bloom verif", "<verify>"),
    ("redis-bloom load urls --resu", "<load><urls><--resume>"),
    ("redis-bloom drop urls --js", "<drop><urls><--json>"),
    ("redis-bloom -p 7000 top --sort mem", "<-p><7000><top><--sort><memory>"),
    ("redis-bloom rebuild urls --com", "<rebuild><urls><--commit>"),
    ("redis-bloom completion fi", "<completion><fish>"),
];

/// A shell in a terminal, in which the program shows the words that it gets.
fn shell(program: &str, arguments: &[&str], setup: &str) -> Terminal {
    let mut command = Command::new(program);
    command.args(arguments).env("HISTFILE", "/dev/null").env_remove("ENV");
    let mut terminal = in_terminal(&command, 24, 200);
    terminal.press(&format!("{setup}\n"));
    terminal.press("redis-bloom() { printf '<%s>' \"$@\"; echo .; }\n");
    // The shell does not show this word while it is typed.
    terminal.press("echo rea''dy\n");
    terminal.wait_for("ready\r\n");
    terminal
}

/// Presses tab and return after each of [`COMPLETED`].
fn completes(mut terminal: Terminal) {
    for (typed, words) in COMPLETED {
        terminal.forget();
        terminal.press(&format!("{typed}\t\n"));
        terminal.wait_for(">.");
        let seen = terminal.seen();
        assert!(seen.contains(&format!("{words}.")), "{typed}: {seen:?}");
    }
    terminal.press("exit\n");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn bash_completes_options_of_subcommands() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("redis-bloom.bash");
    fs::write(&script, run("completion bash").done()).expect("a file");
    let setup = format!("source '{}'", script.display());
    completes(shell("bash", &["--noprofile", "--norc", "-i"], &setup));
}

#[test]
fn zsh_completes_options_of_subcommands() {
    if Command::new("zsh").arg("--version").output().is_err() {
        skipped("zsh_completes_options_of_subcommands", "there is no zsh");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("_redis-bloom"), run("completion zsh").done()).expect("a file");
    // A tab completes, also if more is typed already.
    let setup = format!(
        "fpath=('{}' $fpath); autoload -Uz compinit; compinit -u -D; \
         zstyle ':completion:*' insert-tab false",
        dir.path().display()
    );
    completes(shell("zsh", &["-f", "-i"], &setup));
}

#[test]
fn each_shell_has_a_script_that_knows_the_subcommands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&format!("completion {shell}")).done();
        for word in ["drop", "completion", "askpass"] {
            assert!(script.contains(word), "the script for {shell} lacks {word}");
        }
    }
    assert_eq!(run("completion dosh").code, 2);
}

#[test]
fn the_manual_page_shows_every_subcommand_that_the_help_lists() {
    let page = run("man").done();
    let help = run("--help").done();
    let listed = help.split("Commands:\n").nth(1).expect("a list").split("\n\n").next();
    let names: Vec<&str> = listed
        .expect("a list")
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|&name| name != "help")
        .collect();
    assert!(names.contains(&"drop"), "{help}");
    for name in names {
        let heading = format!(".SH \"REDIS-BLOOM {}\"", name.to_uppercase());
        assert!(page.contains(&heading), "the page lacks {name}");
    }
    for section in ["OPTIONS", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES", "\"SEE ALSO\""] {
        let count = page.matches(&format!("\n.SH {section}\n")).count();
        assert_eq!(count, 1, "{section}: {page}");
    }
    for word in ["REDISCLI_AUTH", "NO_COLOR", "FILE.redis\\-bloom", "FILE*.part"] {
        assert!(page.contains(&format!("\n.TP\n{word}\n")), "{word}");
    }
    // Sections of a subcommand are below its heading, and its description is the long one.
    let (_, load) = page.split_once(".SH \"REDIS-BLOOM LOAD\"\n").expect("load");
    let (load, _) = load.split_once("\n.SH ").expect("another subcommand");
    for section in ["SYNOPSIS", "DESCRIPTION", "OPTIONS"] {
        assert!(load.contains(&format!(".SS {section}\n")), "{section}: {load}");
    }
    assert!(load.contains("Every line is an item, as it is"), "{load}");
}

#[test]
fn options_are_below_their_heading() {
    let help = run("check --help").done();
    let (own, items) = help.split_once("\nItems:\n").expect("options of items");
    for option in ["--absent", "--answers"] {
        assert!(own.contains(option) && !items.contains(option), "{option}: {help}");
    }
    assert!(items.contains("--null"), "{help}");
}
