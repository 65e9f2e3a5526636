//! `redis-bloom verify NAME`: no item of a file is lost, and the rate of false positives is what
//! was asked for.
//!
//! The rate is measured with random probes of 16 bytes: none of them was ever added. How many, and
//! when a filter passes: `statistics.rs`.

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    io::{self, Read as _},
    path::PathBuf,
};

use serde::Serialize;

use crate::{
    amount,
    connection::Options,
    error::{Error, Exit},
    items::{self, Batch, Batches, Source},
    membership::{Answer, Membership},
    name::{self, Named},
    output::{self, Output},
    progress::{Progress, Unit},
    statistics,
};

/// Bytes of a probe.
const PROBE: usize = 16;
/// Probes in one command.
const PROBES: u64 = 8192;
/// Below this rate the number of probes rises no further: seconds would become minutes.
const LOWEST_MEASURED: f64 = 1e-5;
/// Lost items that are shown.
const SHOWN: usize = 10;

/// Checks that no item of a file is lost, and measures the rate of false positives
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter
    name: OsString,
    /// File of items that were added; - is standard input
    #[arg(long)]
    file: Option<PathBuf>,
    /// Number of random items that measure the rate; 0 measures nothing
    #[arg(long, value_name = "NUMBER", value_parser = amount::items)]
    probes: Option<u64>,
    /// Precision of the rate, one standard deviation: the number of probes follows from it
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = amount::rate)]
    rate_within: f64,
    /// The rate that was asked for, where the server does not tell it
    #[arg(long, value_name = "RATE", value_parser = amount::rate)]
    error: Option<f64>,
    #[command(flatten)]
    input: items::Options,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Report<'n> {
    #[serde(flatten)]
    name: Named<'n>,
    #[serde(flatten)]
    items: Option<Items>,
    #[serde(flatten)]
    rate: Option<Rate>,
    /// `None` if nothing was compared.
    passed: Option<bool>,
}

impl<'n> Report<'n> {
    fn of(name: &'n [u8]) -> Self {
        Self { name: Named::of(name), items: None, rate: None, passed: None }
    }
}

/// The items of the file.
#[derive(Debug, Default, Serialize)]
struct Items {
    items: u64,
    lost: u64,
    /// Items of lost shards.
    #[serde(skip_serializing_if = "output::is_default")]
    unknown: u64,
    /// The first of the lost items, escaped.
    lost_items: Vec<String>,
    /// Whether the filter forgets: what is absent may be older than its window.
    #[serde(skip_serializing_if = "output::is_default")]
    forgets: bool,
}

impl Items {
    /// What an absent item is.
    fn absent(&self) -> &'static str {
        if self.forgets { "forgotten or lost" } else { "lost" }
    }
}

/// The measured rate.
#[derive(Debug, Serialize)]
struct Rate {
    probes: u64,
    positives: u64,
    rate: f64,
    rate_low: f64,
    rate_high: f64,
    asked_rate: Option<f64>,
    /// The server's estimate.
    estimated_rate: Option<f64>,
}

impl Rate {
    /// Whether the rate is what was asked for; `None` if nobody knows what was asked.
    fn passes(&self) -> Option<bool> {
        // No affordable number of probes tells ten rare rates from one: the estimate must be right,
        // too, with the tolerance that `top` gives it.
        let estimated = |asked: f64| self.estimated_rate.is_none_or(|now| now <= 1.1 * asked);
        self.asked_rate.map(|asked| asked >= self.rate_low && (!self.is_rare() || estimated(asked)))
    }

    /// Whether the number of probes is too small for the rate that was asked for.
    fn is_rare(&self) -> bool {
        self.asked_rate.is_some_and(|asked| asked < LOWEST_MEASURED)
    }
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        if self.probes == Some(0) && self.file.is_none() {
            return Err(Error::usage(
                "--probes 0 without --file checks nothing",
                "Name the items by --file, or leave out --probes.",
            ));
        }
        let key = name::bytes(&self.name);
        let mut report = Report::of(key);
        let mut membership = Membership::find(&connection.target()?, key)?;
        let (asked, estimated) = membership.rates()?;
        let before = membership.identities()?;
        let mut unknown = 0;
        if let Some(file) = &self.file {
            let source = Source::named(file);
            let items = self.look_for_items(&source, &mut membership, output)?;
            unknown = items.unknown;
            report.items = Some(items);
        }
        let asked = self.error.or(asked);
        let probes = self.probes.unwrap_or_else(|| {
            // Without a rate: as for one in a thousand.
            statistics::trials(asked.unwrap_or(1e-3).max(LOWEST_MEASURED), self.rate_within)
        });
        if probes > 0 {
            let (probes, positives) = count_positives(probes, &mut membership, output)?;
            let (rate_low, rate_high) = statistics::interval(positives, probes).into_inner();
            report.rate = Some(Rate {
                probes,
                positives,
                rate: positives as f64 / probes as f64,
                rate_low,
                rate_high,
                asked_rate: asked,
                estimated_rate: estimated,
            });
        }
        if !membership.loses_shards() && membership.is_replaced(&before)? {
            return Err(Error::incomplete(
                format!("verify {}: it was lost or replaced meanwhile", name::readable(key)),
                "Verify it again.",
            ));
        }
        let found = report.items.as_ref().map(|items| items.lost == 0 && items.unknown == 0);
        let rate = report.rate.as_ref().and_then(Rate::passes);
        report.passed = [found, rate].into_iter().flatten().reduce(|one, other| one && other);
        output.data(&report, &report)?;
        if report.rate.is_some() && rate.is_none() {
            output.remark("No rate to compare with: name it by --error.");
        }
        if membership.loses_shards() {
            return Err(membership.unknown(&format!("verify {}", name::readable(key)), unknown));
        }
        Ok(if report.passed == Some(false) { Exit::No } else { Exit::Done })
    }

    /// Asks for the items of a file.
    fn look_for_items(
        &self,
        source: &Source,
        membership: &mut Membership,
        output: &Output,
    ) -> Result<Items, Error> {
        let (input, length) = source.open()?;
        let size = membership.batch_size(self.input.batch);
        let mut batches = Batches::new(input, &self.input).of_size(size as usize);
        let mut progress = Progress::new(output, &source.name(), length);
        let mut found = Items::default();
        let next = || batches.next_batch().map_err(Error::file(source.name()));
        membership.ask(next, |batch, answers| {
            found.items += answers.items;
            progress.at(batch.end, found.items, Unit::Items);
            found.unknown += answers.unknown;
            let lost = answers.items - answers.present - answers.unknown;
            found.lost += lost;
            if lost > 0 && found.lost_items.len() < SHOWN {
                let items = batch.items().into_iter().zip(answers.iter());
                let lost = items.filter(|(_, answer)| *answer == Answer::Absent);
                let room = SHOWN - found.lost_items.len();
                // On one line: bytes that are no printable ASCII as `\x0a`.
                let shown = lost.take(room).map(|(item, _)| item.escape_ascii().to_string());
                found.lost_items.extend(shown);
            }
            Ok(())
        })?;
        found.forgets = found.lost > 0 && membership.forgets()?;
        Ok(found)
    }
}

/// Asks for random items: how many were answered, and how many of them test present.
fn count_positives(
    probes: u64,
    membership: &mut Membership,
    output: &Output,
) -> Result<(u64, u64), Error> {
    const SOURCE: &str = "/dev/urandom";
    let mut random = File::open(SOURCE).map_err(Error::file(SOURCE))?;
    let mut progress = Progress::new(output, "probes", Some(probes));
    let (mut sent, mut asked, mut positives) = (0, 0, 0);
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
        asked += answers.items - answers.unknown;
        progress.at(asked, asked, Unit::Items);
        Ok(())
    })?;
    Ok((asked, positives))
}

fn random_items(random: &mut File, count: u64) -> io::Result<Batch> {
    let mut bytes = vec![0; count as usize * PROBE];
    random.read_exact(&mut bytes)?;
    Ok(Batch::of(bytes.chunks_exact(PROBE)))
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.items.as_ref().map(ToString::to_string),
            self.rate.as_ref().map(ToString::to_string),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        formatter.write_str(&parts.join("  "))?;
        let Some(items) = &self.items else { return Ok(()) };
        for item in &items.lost_items {
            write!(formatter, "\n{}: {item}", items.absent())?;
        }
        match items.lost - items.lost_items.len() as u64 {
            0 => Ok(()),
            more => write!(formatter, "\n{}: {} more", items.absent(), amount::grouped(more)),
        }
    }
}

impl fmt::Display for Items {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", amount::counted(self.items, "item"))?;
        if self.unknown > 0 {
            write!(formatter, "{} not known, ", amount::grouped(self.unknown))?;
        }
        match self.lost {
            0 if self.unknown > 0 => formatter.write_str("all others present."),
            0 => formatter.write_str("all present."),
            lost if self.forgets => {
                write!(formatter, "{} forgotten or lost.", amount::grouped(lost))
            }
            lost => write!(formatter, "{} LOST.", amount::grouped(lost)),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", amount::counted(self.probes, "probe"))?;
        let rare = self.is_rare();
        if rare {
            let positives = amount::grouped(self.positives);
            write!(formatter, "{positives} positive, at most {} % (", percent(self.rate_high))?;
        } else {
            write!(formatter, "{} % positive (", percent(self.rate))?;
        }
        if let Some(asked) = self.asked_rate {
            write!(formatter, "asked {}, ", amount::readable_rate(asked))?;
        }
        let (low, high) = (percent(self.rate_low), percent(self.rate_high));
        write!(formatter, "95 %: {low} to {high} %)")?;
        if rare && let Some(estimated) = self.estimated_rate {
            write!(formatter, ", by its bits {} %", percent(estimated))?;
        }
        if self.passes() == Some(false) { formatter.write_str(": TOO HIGH") } else { Ok(()) }
    }
}

/// A rate in percent with three significant digits, without the sign.
fn percent(rate: f64) -> String {
    let percent = rate * 100.0;
    if percent == 0.0 {
        return "0".to_owned();
    }
    let decimals = 2.0 - percent.log10().floor();
    if decimals > 9.0 {
        return format!("{percent:.2e}");
    }
    format!("{percent:.*}", decimals.max(0.0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(probes: u64, positives: u64, asked_rate: Option<f64>) -> Rate {
        let (rate_low, rate_high) = statistics::interval(positives, probes).into_inner();
        let rate = positives as f64 / probes as f64;
        Rate {
            probes,
            positives,
            rate,
            rate_low,
            rate_high,
            asked_rate,
            estimated_rate: Some(2.5e-7),
        }
    }

    #[test]
    fn reports_in_words() {
        let report = Report {
            items: Some(Items { items: 78_125_000, ..Items::default() }),
            rate: Some(rate(400_000, 286, Some(0.001))),
            ..Report::of(b"urls")
        };
        assert_eq!(
            report.to_string(),
            "78,125,000 items: all present.  400,000 probes: 0.0715 % positive \
             (asked 0.1 %, 95 %: 0.0635 to 0.0803 %)"
        );
        assert_eq!(report.rate.and_then(|rate| rate.passes()), Some(true));
        let high = rate(400_000, 600, Some(0.001));
        assert_eq!(high.passes(), Some(false));
        assert_eq!(
            high.to_string(),
            "400,000 probes: 0.150 % positive (asked 0.1 %, 95 %: 0.138 to 0.162 %): TOO HIGH"
        );
        assert_eq!(
            rate(1_000, 10, None).to_string(),
            "1,000 probes: 1.00 % positive (95 %: 0.479 to 1.84 %)"
        );
        assert_eq!(
            rate(40_000_000, 10, Some(1e-6)).to_string(),
            "40,000,000 probes: 10 positive, at most 0.0000460 % (asked 0.0001 %, 95 %: \
             0.0000120 to 0.0000460 %), by its bits 0.0000250 %"
        );
    }

    /// Ten times a rare rate passes the interval in most runs: 0.4 positives are expected.
    #[test]
    fn a_rare_rate_passes_only_by_its_estimate() {
        for (asked, estimated, expected) in [
            (1e-9, Some(1e-8), Some(false)),
            (1e-9, Some(1.2e-9), Some(false)),
            (1e-9, Some(1.05e-9), Some(true)),
            (1e-9, None, Some(true)),
            // What is measured well needs no estimate.
            (1e-5, Some(1e-4), Some(true)),
        ] {
            let found = Rate { estimated_rate: estimated, ..rate(40_000_000, 0, Some(asked)) };
            assert_eq!(found.passes(), expected, "{asked}, {estimated:?}");
        }
        let found = Rate { estimated_rate: Some(1e-8), ..rate(40_000_000, 0, Some(1e-9)) };
        assert!(found.to_string().ends_with(", by its bits 0.00000100 %: TOO HIGH"), "{found}");
        assert_eq!(rate(1_000, 10, None).passes(), None);
    }
}
