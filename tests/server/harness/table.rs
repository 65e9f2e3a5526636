//! Tables of commands and the replies they must get. All rows run; the failing ones are printed
//! together.

use super::client::Client;
use super::reply::Reply;

/// One row: what happens first (none of it may fail), the command, and its reply.
///
/// Seeds are random where a row gives none, so an item that must be new to a full filter needs a
/// rate like 1e-9: at 1 % such a row fails once in a hundred runs.
pub(crate) type Case<'a> = (&'a [&'a str], &'a str, Reply);

/// Runs the rows one after another in the same data set.
#[track_caller]
pub(crate) fn check(client: &mut Client, rows: &[(&str, Reply)]) {
    let failures: Vec<String> =
        rows.iter().filter_map(|(line, expected)| row(client, line, expected)).collect();
    report(&failures, rows.len());
}

/// Runs each row in an empty data set.
#[track_caller]
pub(crate) fn fresh(client: &mut Client, rows: &[Case<'_>]) {
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

/// Runs one row and a PING after it: a reply of the wrong length shows there.
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
