//! The description of a server before it starts: its configuration file, the module's arguments,
//! and the limits of its process.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::clock::Clock;
use super::server::Server;
use super::version::{server_program, version};

/// How many ports a start tries: another process may bind a port between our check and the
/// server's bind.
const PORT_ATTEMPTS: u32 = 5;

/// Hides the control groups of the machine from a process in a separate mount namespace.
const OWN_CGROUPS: &str = "mount -t tmpfs none /sys/fs/cgroup";

/// Whether this process may start a server in a separate mount namespace.
pub fn can_contain() -> bool {
    let tried = Command::new("unshare").args(["-m", "sh", "-c", OWN_CGROUPS]).output();
    tried.is_ok_and(|output| output.status.success())
}

pub fn module_path() -> PathBuf {
    let path = std::env::var_os("REDIS_BLOOM_SO").unwrap_or_else(|| {
        panic!(
            "REDIS_BLOOM_SO is not set: run these tests with `make test-server`, which builds \
             the module first"
        )
    });
    let path = PathBuf::from(path);
    path.canonicalize().unwrap_or_else(|error| panic!("REDIS_BLOOM_SO={}: {error}", path.display()))
}

/// The description of a server.
#[derive(Clone, Default)]
pub struct Builder {
    program: Option<String>,
    file: String,
    lines: Vec<String>,
    module_arguments: Vec<String>,
    without_module: bool,
    sentinel: bool,
    address_space: Option<u64>,
    mounts: Vec<String>,
    survives_full_files: bool,
    clock: Option<Clock>,
}

impl Builder {
    /// Sets text that comes first in the configuration file.
    pub fn file(mut self, text: &str) -> Builder {
        self.file = text.to_owned();
        self
    }

    /// Adds a line to the configuration file: `.config("appendonly yes")`.
    pub fn config(mut self, line: &str) -> Builder {
        self.lines.push(line.to_owned());
        self
    }

    /// Sets the arguments of the module's `loadmodule` line.
    pub fn module_arguments(mut self, arguments: &[&str]) -> Builder {
        self.module_arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        self
    }

    pub fn without_module(mut self) -> Builder {
        self.without_module = true;
        self
    }

    /// Runs another server program, of the same version.
    pub fn on(mut self, program: &str) -> Builder {
        self.program = Some(program.to_owned());
        self
    }

    /// The server program.
    pub fn program(&self) -> String {
        self.program.clone().unwrap_or_else(server_program)
    }

    /// Loads the module from another path.
    pub fn module_at(self, path: &Path) -> Builder {
        self.without_module().config(&format!("loadmodule \"{}\"", path.display()))
    }

    /// Starts Sentinel, without the module.
    pub fn sentinel(self) -> Builder {
        Builder { sentinel: true, ..self.without_module() }
    }

    /// Arguments of the server after its configuration file.
    pub fn arguments(&self) -> &'static [&'static str] {
        if self.sentinel { &["--sentinel"] } else { &[] }
    }

    /// Limits the virtual memory of the process, in bytes, so that large allocations fail on any
    /// machine.
    pub fn address_space(mut self, bytes: u64) -> Builder {
        self.address_space = Some(bytes);
        self
    }

    /// Shows the process a container's memory limit of that many bytes, in `/sys/fs/cgroup` of a
    /// separate mount namespace. The limit is not enforced. Such a server starts only if
    /// [`can_contain`] returns true.
    pub fn container(self, bytes: u64) -> Builder {
        self.mount(&format!("{OWN_CGROUPS} && echo {bytes} > /sys/fs/cgroup/memory.max"))
    }

    /// Runs a shell command before the server, in a separate mount namespace. Such a server starts
    /// only if [`can_contain`] returns true.
    pub fn mount(mut self, command: &str) -> Builder {
        self.mounts.push(format!("{command} && "));
        self
    }

    /// Ignores SIGXFSZ, so that a write beyond the file size limit fails, as on a full disk, and
    /// does not kill the server.
    pub fn survives_full_files(mut self) -> Builder {
        self.survives_full_files = true;
        self
    }

    /// Gives the process a clock that the test sets. No replica and no client is dropped because it
    /// jumped.
    pub fn clock(mut self, clock: &Clock) -> Builder {
        self.clock = Some(clock.clone());
        self.config("repl-timeout 1000000000")
    }

    /// The clock of [`Self::clock`].
    pub fn own_clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// Shell commands to run before the server, if any.
    pub fn preparation(&self) -> Option<String> {
        let bound = self.address_space.map(|bytes| format!("ulimit -v {} && ", bytes / 1024));
        let ignore = self.survives_full_files.then(|| "trap '' XFSZ && ".to_owned());
        let mounts = (!self.mounts.is_empty()).then(|| self.mounts.concat());
        let steps = [mounts, bound, ignore, self.clock.as_ref().map(Clock::environment)];
        steps.iter().any(Option::is_some).then(|| steps.into_iter().flatten().collect())
    }

    /// The command line that starts the shell of [`Self::preparation`].
    pub fn shell(&self) -> &'static [&'static str] {
        if self.mounts.is_empty() { &["sh"] } else { &["unshare", "-m", "sh"] }
    }

    pub fn replica_of(self, master: &Server) -> Builder {
        self.config(&format!("replicaof 127.0.0.1 {}", master.port()))
    }

    /// Starts the server; panics with its log if it does not come up.
    #[track_caller]
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// Starts the server, or returns its log if it does not come up.
    pub fn try_start(self) -> Result<Server, String> {
        for attempt in 1.. {
            match Server::launched(&self) {
                Err(log) if log.contains("Address already in use") && attempt < PORT_ATTEMPTS => {}
                started => return started,
            }
        }
        unreachable!("the last attempt returns")
    }

    pub fn text(&self, port: u16, dir: &Path) -> String {
        let mut text =
            format!("{}\nport {port}\nbind 127.0.0.1\ndaemonize no\nsave \"\"\n", self.file);
        text += &format!("dir \"{}\"\n", dir.display());
        if version().major >= 7 {
            text += "enable-debug-command yes\nshutdown-timeout 1\n";
        }
        // By default a server may write acknowledged commands to the AOF seconds later, and a kill
        // would lose them.
        text += "repl-diskless-sync-delay 0\nappendfsync always\n";
        for line in &self.lines {
            text += &format!("{line}\n");
        }
        if !self.without_module {
            text += &format!("loadmodule \"{}\"", module_path().display());
            for argument in &self.module_arguments {
                text += &format!(" \"{argument}\"");
            }
            text.push('\n');
        }
        text
    }
}
