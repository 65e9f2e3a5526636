//! `redis-bloom verify NAME`: measures the false positive rate, and compares it
//! with the configured one.
//!
//! The rate is measured with random probes of 16 bytes: none of them was ever added.
//! `statistics.rs` decides when a filter passes. `check` finds lost items.

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    io::{self, Read as _},
};

use serde::Serialize;

use crate::{
    amount,
    connection::Options,
    error::{Error, Exit},
    items::Batch,
    membership::Membership,
    name::{self, Named},
    output::Output,
    progress::Progress,
    statistics,
};

/// Bytes of a probe.
const PROBE: usize = 16;
/// Probes in one command.
const PROBES: u64 = 8192;
/// The precision of the rate, one standard deviation: the number of probes follows from it.
const PRECISION: f64 = 0.05;
/// Below this rate the number of probes rises no further: seconds would become minutes.
const LOWEST_MEASURED: f64 = 1e-5;

/// Measures the error rate: how many items that were never added test present
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter
    name: OsString,
    /// Number of random items. Without it, enough to measure the rate to within 5 %
    #[arg(long, value_name = "NUMBER", value_parser = amount::positive_items)]
    probes: Option<u64>,
    /// The error rate to compare with. Without it, the configured one
    #[arg(long, value_name = "RATE", value_parser = amount::rate)]
    error: Option<f64>,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Report<'n> {
    #[serde(flatten)]
    name: Named<'n>,
    probes: u64,
    positives: u64,
    rate: f64,
    rate_low: f64,
    rate_high: f64,
    error_rate: Option<f64>,
    /// `None` without a rate to compare with.
    passed: Option<bool>,
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        let key = name::bytes(&self.name);
        let mut membership = Membership::find(&connection.target()?, key)?;
        let error_rate = match self.error {
            None => membership.error_rate()?,
            error => error,
        };
        let probes = self.probes.unwrap_or_else(|| {
            // Without a rate: as for one in a thousand.
            statistics::trials(error_rate.unwrap_or(1e-3).max(LOWEST_MEASURED), PRECISION)
        });
        let (probes, positives) = count_positives(probes, &mut membership, output)?;
        let (rate_low, rate_high) = statistics::interval(positives, probes.max(1)).into_inner();
        let rate = positives as f64 / probes.max(1) as f64;
        let passed = error_rate.map(|configured| configured >= rate_low);
        let name = Named::of(key);
        let report =
            Report { name, probes, positives, rate, rate_low, rate_high, error_rate, passed };
        output.data(&report, &report)?;
        if passed.is_none() {
            output.remark("No rate to compare with: name it by --error.");
        }
        if membership.loses_shards() {
            return Err(membership.unknown(&format!("verify {}", name::readable(key)), 0));
        }
        Ok(if passed == Some(false) { Exit::No } else { Exit::Done })
    }
}

/// Queries random items: how many were answered, and how many of them test present.
fn count_positives(
    probes: u64,
    membership: &mut Membership,
    output: &Output,
) -> Result<(u64, u64), Error> {
    const SOURCE: &str = "/dev/urandom";
    let mut random = File::open(SOURCE).map_err(Error::file(SOURCE))?;
    let mut progress = Progress::new(output, "probes", Some(probes));
    let (mut sent, mut answered, mut positives) = (0, 0, 0);
    let most = membership.batch_size(PROBES * (PROBE as u64 + 1)) / (PROBE as u64 + 1);
    let next = || {
        let count = most.min(probes - sent);
        sent += count;
        if count == 0 {
            return Ok(None);
        }
        random_items(&mut random, count).map(Some).map_err(Error::file(SOURCE))
    };
    membership.ask(next, |_, answers| {
        positives += answers.present;
        answered += answers.items - answers.unknown;
        progress.at(answered, answered, amount::readable_items);
        Ok(())
    })?;
    Ok((answered, positives))
}

fn random_items(random: &mut File, count: u64) -> io::Result<Batch> {
    let mut bytes = vec![0; count as usize * PROBE];
    random.read_exact(&mut bytes)?;
    Ok(Batch::of(bytes.chunks_exact(PROBE)))
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let probes = amount::counted(self.probes, "probe");
        let [rate, low, high] =
            [self.rate, self.rate_low, self.rate_high].map(amount::readable_rate);
        write!(formatter, "{probes}: {rate} positive (")?;
        if let Some(configured) = self.error_rate {
            write!(formatter, "configured {}, ", amount::readable_rate(configured))?;
        }
        write!(formatter, "95 %: {low} to {high})")?;
        if self.passed == Some(false) { formatter.write_str(": TOO HIGH") } else { Ok(()) }
    }
}
