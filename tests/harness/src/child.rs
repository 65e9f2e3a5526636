//! The child process that a server forks to save. A test can stop the child at any time.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

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
        signal(pid, Signal::STOP).expect("the process can be stopped");
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
        let _ = signal(self.0, Signal::CONT); // it may have been killed
    }
}

/// Sends a signal to a process.
pub fn signal(pid: u32, signal: Signal) -> rustix::io::Result<()> {
    let pid = pid.try_into().ok().and_then(Pid::from_raw).expect("the id of a process");
    kill_process(pid, signal)
}
