//! Waiting for a server that does something by itself: by looking, never by sleeping as long as it
//! might take.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// No test waits longer than this for anything.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two looks.
const POLL: Duration = Duration::from_millis(5);

/// Looks until `ready` says yes; panics with `what` did not happen.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !ready() {
        assert!(Instant::now() < deadline, "it never happened: {what}");
        sleep(POLL);
    }
}
