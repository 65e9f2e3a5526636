//! The child that a server forks to save, stopped where a test wants it.

use std::{fs, process::Command};

use super::{server::Server, wait::wait_until};

/// A child that stands still. It goes on when the value is dropped.
pub(crate) struct Stopped(u32);

/// The only child of a server.
#[track_caller]
pub(crate) fn child(server: &Server) -> u32 {
    let pid = server.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .expect("the server's children");
    children.trim().parse().expect("one child")
}

/// What a process does: `S` while it sleeps, `T` while it is stopped.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

impl Stopped {
    #[track_caller]
    pub(crate) fn stop(pid: u32) -> Self {
        signal(pid, "STOP");
        wait_until("the child stands still", || state(pid) == Some('T'));
        Self(pid)
    }

    /// Whether it is still there.
    pub(crate) fn stands(&self) -> bool {
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
