//! A server that is told to load the module twice, or beside another module of its name, does not
//! start. The server's own lines do not say why, so the module does.

use std::fs;

use crate::{
    harness::{Server, assert_unharmed, config_name, info, int, module_path, ok},
    redisbloom_live::peer,
};

const TAKEN: &str = "a module of the name 'bf' is loaded already: ";

fn line(path: &str) -> String {
    format!("loadmodule \"{path}\"")
}

fn path() -> String {
    module_path().display().to_string()
}

/// The log line in which the module says why it was not loaded.
#[track_caller]
fn reason(log: &str) -> &str {
    let lines: Vec<_> = log.lines().filter(|line| line.contains("bf: not loaded:")).collect();
    let [line] = lines[..] else { panic!("not one line with the reason in the log:\n{log}") };
    assert!(line.contains(" # "), "a warning, not a notice: {line}");
    line
}

/// The configuration file after CONFIG REWRITE, without the directory, which is gone at the next
/// start.
#[track_caller]
fn rewritten(server: &Server) -> String {
    assert_eq!(server.client().run("CONFIG REWRITE"), ok());
    let text = fs::read_to_string(server.dir().join("redis.conf")).expect("the file");
    text.lines().filter(|line| !line.starts_with("dir ")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_module_that_is_named_twice_says_so() {
    let elsewhere = tempfile::tempdir().expect("a directory");
    let copy = elsewhere.path().join("copy.so");
    fs::copy(module_path(), &copy).expect("a copy of the module");
    for second in [path(), copy.display().to_string()] {
        let log = Server::with().config(&line(&second)).try_start().err().expect("no start");
        let reason = reason(&log);
        assert!(reason.contains(TAKEN) && reason.contains("CONFIG REWRITE"), "{reason}");
    }
}

/// An included file names the module, and CONFIG REWRITE names it once more.
#[test]
fn an_include_and_config_rewrite_name_the_module_twice() {
    let elsewhere = tempfile::tempdir().expect("a directory");
    let included = elsewhere.path().join("module.conf");
    fs::write(&included, line(&path())).expect("an included file");
    let include = format!("include \"{}\"", included.display());
    let server = Server::with().without_module().file(&include).start();
    let text = rewritten(&server);
    assert!(text.contains(&include) && text.contains(&line(&path()).replace('"', "")), "{text}");
    let log = Server::with().without_module().file(&text).try_start().err().expect("no start");
    assert!(reason(&log).contains(TAKEN), "{log}");
    // The cure: one of the two goes.
    let cured = text.replace(&include, "");
    let server = Server::with().without_module().file(&cured).start();
    assert_eq!(server.client().run("BF.ADD k a"), int(1));
}

/// A `loadmodule` line in the server's own file stays one line, with its arguments and beside the
/// settings, however often CONFIG REWRITE runs.
#[test]
fn a_line_in_the_servers_own_file_survives_config_rewrite() {
    let setting = config_name("error-rate");
    let arguments = "ERROR_RATE 0.25 INITIAL_SIZE 50";
    let mut text = format!("{} {arguments}", line(&path()));
    for value in ["0.03", "0.04", "0.05"] {
        let server = Server::with().without_module().file(&text).start();
        let client = &mut server.client();
        assert_eq!(client.cmd(&["CONFIG", "SET", &setting, value]), ok());
        text = rewritten(&server);
        let loads: Vec<_> = text.lines().filter(|line| line.starts_with("loadmodule ")).collect();
        let [load] = loads[..] else { panic!("{text}") };
        assert!(load.ends_with(arguments), "{load}");
        let again = Server::with().without_module().file(&text).start();
        let client = &mut again.client();
        assert_eq!(client.config_get(&setting).as_deref(), Some(value));
        assert_eq!(client.run("BF.ADD k a"), int(1));
        assert_eq!(info(client, "k").capacity, 50);
    }
}

#[test]
fn a_second_module_load_leaves_the_first_as_it_is() {
    let server = Server::with().config("enable-module-command yes").start();
    let client = &mut server.client();
    client.run("BF.ADD k a");
    for _ in 0..3 {
        let reply = client.cmd(&["MODULE", "LOAD", &path()]);
        assert!(reply.error().starts_with("ERR Error loading the extension"), "{reply:?}");
        assert_eq!(client.run("BF.ADD k a"), int(0));
        assert_eq!(client.run("BF.EXISTS k a"), int(1));
    }
    let log = server.log();
    assert_eq!(log.matches(TAKEN).count(), 3, "{log}");
    assert_unharmed(&server);
}

#[test]
fn redisbloom_that_is_loaded_already_keeps_the_name() {
    let Some(theirs) = peer("redisbloom_that_is_loaded_already_keeps_the_name") else {
        return;
    };
    let log = Server::with().config(&line(&theirs)).try_start().err().expect("no start");
    assert!(reason(&log).contains(TAKEN), "{log}");
}

/// RedisBloom does not say why it fails, and this module cannot: docs/guide/troubleshooting.md
/// shows the lines of the server.
#[test]
fn redisbloom_that_is_loaded_second_gives_no_reason() {
    let Some(theirs) = peer("redisbloom_that_is_loaded_second_gives_no_reason") else {
        return;
    };
    let both = Server::with().module_at(&module_path()).config(&line(&theirs));
    let log = both.try_start().err().expect("no start");
    let of_the_server = [
        format!("Module 'bf' loaded from {}", path()),
        format!("Module {theirs} initialization failed. Module "),
    ];
    for expected in of_the_server {
        assert!(log.contains(&expected), "{log}");
    }
    assert!(!log.contains("bf: not loaded"), "{log}");
}
