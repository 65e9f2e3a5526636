//! A test that cannot run here.

use std::io::Write;

/// Prints that `test` is skipped, and why; `scripts/tally` counts these lines. The test runner
/// hides the output of `println` if a test passes, so this writes to stderr. A single write keeps
/// the line in one piece.
pub fn skipped(test: &str, why: &str) {
    let line = format!("SKIPPED {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
