//! Waits for an event in a server by polling, never by a fixed sleep.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest wait.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Pause between two checks.
const POLL: Duration = Duration::from_millis(5);

/// Polls until `ready` returns true; panics with `what` after [`TIMEOUT`].
#[track_caller]
pub fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !ready() {
        assert!(Instant::now() < deadline, "this did not happen in time: {what}");
        sleep(POLL);
    }
}
