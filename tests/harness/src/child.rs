//! The child process that a server forks to save. A test can stop the child at any time.

use std::{fs, process::Command};

use super::{server::Server, wait::wait_until};

/// A stopped child. Dropping the value lets it continue.
pub struct Stopped(u32);

/// The process id of the only child of a server.
#[track_caller]
pub fn child(server: &Server) -> u32 {
    let pid = server.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .expect("the server's children");
    children.trim().parse().expect("one child")
}

/// The state of a process: `T` while it is stopped.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

impl Stopped {
    #[track_caller]
    pub fn stop(pid: u32) -> Self {
        signal(pid, "STOP");
        wait_until("the child is stopped", || state(pid) == Some('T'));
        Self(pid)
    }

    /// Whether the child still exists and is stopped.
    pub fn stands(&self) -> bool {
        state(self.0) == Some('T')
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

fn signal(pid: u32, name: &str) {
    let kill = format!("kill -{name} {pid}");
    let _ = Command::new("sh").args(["-c", &kill]).status();
}
