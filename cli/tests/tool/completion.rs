//! Completions and the manual page.

use crate::run::run;

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
    for word in ["REDISCLI_AUTH", "NO_COLOR", "FILE.redis\\-bloom", "FILE.part"] {
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
    assert!(items.contains("--csv"), "{help}");
}
