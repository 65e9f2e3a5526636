//! Runs the tool, and keeps what it prints and its exit code.

use std::{
    io::Write as _,
    process::{Child, Command, Output, Stdio},
};

use crate::harness::Server;

/// What a run of the tool gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("the tool ends by itself"),
            stdout: String::from_utf8(output.stdout).expect("the tool prints UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("the tool prints UTF-8"),
        }
    }
}

impl Ran {
    /// What was printed, of a run that must have ended well.
    #[track_caller]
    pub(crate) fn done(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        self.stdout
    }
}

/// The command for a run without a server.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redis-bloom"));
    command.env_remove("REDISCLI_AUTH").stdin(Stdio::null());
    command
}

/// The command for a run against a server: `words` are separated by blanks.
pub(crate) fn command_at(server: &Server, words: &str) -> Command {
    let mut command = command();
    command.args(["-p", &server.port().to_string()]).args(words.split_whitespace());
    command
}

/// Runs the tool without a server.
pub(crate) fn run(words: &str) -> Ran {
    command().args(words.split_whitespace()).output().expect("the tool runs").into()
}

/// Runs the tool against a server.
pub(crate) fn run_at(server: &Server, words: &str) -> Ran {
    command_at(server, words).output().expect("the tool runs").into()
}

/// Runs the tool against a server, with standard input.
pub(crate) fn run_with(server: &Server, words: &str, input: &[u8]) -> Ran {
    let mut child = command_at(server, words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        // A tool that ends early closes its input.
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().expect("the tool ends").into()
    })
}

/// Checks the items of a file, and ends as `check` does.
pub(crate) fn check_file(server: &Server, words: &str, file: &std::path::Path) -> Ran {
    run_with(server, &format!("check {words}"), &std::fs::read(file).expect("the items"))
}

/// Whether the tool has taken Ctrl-C over: before that, the first one ends it at once.
pub(crate) fn catches_ctrl_c(child: &Child) -> bool {
    const INT: u64 = 1 << 1;
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("Linux");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("signals");
    u64::from_str_radix(caught.trim(), 16).expect("a set of signals") & INT != 0
}

pub(crate) fn press_ctrl_c(child: &Child) {
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
}
