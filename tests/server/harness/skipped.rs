//! A test that cannot run here.

use std::io::Write;

/// Says that `test` is skipped, and why. Not through `println`, which the test runner keeps to
/// itself when a test passes; `scripts/tally` counts these lines. One write, so that no other
/// line comes between.
pub(crate) fn skipped(test: &str, why: &str) {
    let line = format!("SKIPPED {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
