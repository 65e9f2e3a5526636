//! Tables of commands and expected replies. All rows run, and all failures are printed together.

use super::client::Client;
use super::reply::Reply;

/// One row: commands that run first and must not fail, the command, and its reply.
///
/// A row without a seed gets a random one. If a row needs an item to be new in a full filter, it
/// needs a rate like 1e-9: at 1 % it would fail once in a hundred runs.
pub type Case<'a> = (&'a [&'a str], &'a str, Reply);

/// Runs the rows one after another in the same data set.
#[track_caller]
pub fn check(client: &mut Client, rows: &[(&str, Reply)]) {
    let failures: Vec<String> =
        rows.iter().filter_map(|(line, expected)| row(client, line, expected)).collect();
    report(&failures, rows.len());
}

/// Runs each row in an empty data set.
#[track_caller]
pub fn fresh(client: &mut Client, rows: &[Case<'_>]) {
    let mut failures = Vec::new();
    for (before, line, expected) in rows {
        client.run("FLUSHALL");
        for step in *before {
            let reply = client.run(step);
            if reply.is_error() {
                failures.push(format!("  {step}  (before {line})\n      got {reply:?}"));
            }
        }
        let failure = row(client, line, expected);
        failures.extend(failure.map(|text| match before.is_empty() {
            true => text,
            false => format!("{text}\n    after {}", before.join(" ; ")),
        }));
    }
    report(&failures, rows.len());
}

/// Runs one row and then a PING, which detects a reply of the wrong length.
fn row(client: &mut Client, line: &str, expected: &Reply) -> Option<String> {
    let got = client.run(line);
    client.assert_in_step();
    (got != *expected).then(|| format!("  {line}\n    expected {expected:?}\n         got {got:?}"))
}

#[track_caller]
fn report(failures: &[String], rows: usize) {
    assert!(
        failures.is_empty(),
        "{} of {rows} cases fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
