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
    assert!(page.contains("EXIT STATUS"));
}
