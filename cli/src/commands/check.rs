//! `redis-bloom check NAME [ITEM...|-]`: whether items are in a filter.

use std::{
    ffi::OsString,
    fmt,
    io::{self, BufWriter, Write},
    os::unix::ffi::OsStrExt as _,
};

use serde::Serialize;

use crate::{
    amount,
    connection::Options,
    error::{Error, Exit},
    items::{self, Batch, Batches, Live},
    membership::{Answer, Answers, Membership},
    name::{self, Named},
    output::{self, Output},
    progress::Progress,
};

/// Queries items; exits with status 1 if one is absent
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter
    name: OsString,
    /// Items; none, or -, reads them from standard input
    #[arg(value_name = "ITEM")]
    items: Vec<OsString>,
    /// Prints the absent items, in the form of the input
    #[arg(long, conflicts_with = "answers")]
    absent: bool,
    /// Prints 1 or 0 for each item, a line each; ? if its shard is lost
    #[arg(long)]
    answers: bool,
    // Last: clap puts all later options under the same heading.
    #[command(flatten)]
    input: items::Options,
}

/// How many of the items are in the filter.
#[derive(Debug, Default, Serialize)]
struct Counts {
    items: u64,
    present: u64,
    absent: u64,
    /// Items of lost shards.
    #[serde(skip_serializing_if = "output::is_default")]
    unknown: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&amount::counted(self.items, "item"))?;
        if self.unknown > 0 {
            let [present, absent, unknown] =
                [self.present, self.absent, self.unknown].map(amount::grouped);
            return write!(formatter, ": {present} present, {absent} absent, {unknown} not known");
        }
        match (self.present, self.absent) {
            (0, 0) => Ok(()),
            (1, 0) => formatter.write_str(": present"),
            (0, 1) => formatter.write_str(": absent"),
            (_, 0) => formatter.write_str(": all present"),
            (0, _) => formatter.write_str(": all absent"),
            (present, absent) => {
                let [present, absent] = [present, absent].map(amount::grouped);
                write!(formatter, ": {present} present, {absent} absent")
            }
        }
    }
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        let mut membership = Membership::find(&connection.target()?, name::bytes(&self.name))?;
        let mut counts = Counts::default();
        let mut lines = BufWriter::new(io::stdout().lock());
        let answered = |batch: &Batch, answers: &Answers| {
            counts.items += answers.items;
            counts.present += answers.present;
            counts.unknown += answers.unknown;
            let printed = self.print(batch, answers, output, &mut lines);
            printed.and_then(|()| lines.flush()).or_else(output::ended_by_reader)
        };
        let from_arguments = !self.items.is_empty() && self.items != ["-"];
        if from_arguments {
            let mut batch = Some(Batch::of(self.items.iter().map(|item| item.as_bytes())));
            membership.ask(|| Ok(batch.take()), answered)?;
        } else {
            let size = membership.batch_size(self.input.batch);
            // Answers come as the items do.
            let input = Live::new(io::stdin());
            let mut batches = Batches::new(input, &self.input).of_size(size as usize);
            let mut progress = Progress::new(output, "stdin", None);
            let mut items = 0;
            let next = || {
                let batch = batches.next_batch().map_err(Error::file("stdin"))?;
                if let Some(batch) = &batch {
                    items += batch.count;
                    progress.at(batch.end, items, amount::readable_items);
                }
                Ok(batch)
            };
            membership.ask(next, answered)?;
        }
        drop(lines);
        counts.absent = counts.items - counts.present - counts.unknown;
        if self.absent || self.answers {
            output.remark(&counts);
        } else {
            output.data(&counts, &counts)?;
        }
        if counts.unknown > 0 {
            let task = format!("check {}", name::readable(name::bytes(&self.name)));
            return Err(membership.unknown(&task, counts.unknown));
        }
        Ok(if counts.absent == 0 { Exit::Done } else { Exit::No })
    }

    /// Prints each item, or its answer, as the options say.
    fn print(
        &self,
        batch: &Batch,
        answers: &Answers,
        output: &Output,
        lines: &mut impl Write,
    ) -> io::Result<()> {
        if !self.absent && !self.answers {
            return Ok(());
        }
        if self.absent && answers.present == answers.items {
            return Ok(());
        }
        if self.answers && !output.json() {
            return answers.each.iter().try_for_each(|answer| {
                lines.write_all(match answer {
                    Answer::Present => b"1\n",
                    Answer::Absent => b"0\n",
                    Answer::Unknown => b"?\n",
                })
            });
        }
        for (item, answer) in batch.items().into_iter().zip(&answers.each) {
            if self.absent && *answer != Answer::Absent {
                continue;
            }
            if output.json() {
                let present = match answer {
                    Answer::Present => Some(true),
                    Answer::Absent => Some(false),
                    Answer::Unknown => None,
                };
                let present = self.answers.then_some(present);
                let line = Line { item: Named::in_field("item", item), present };
                serde_json::to_writer(&mut *lines, &line)?;
                lines.write_all(b"\n")?;
            } else {
                lines.write_all(item)?;
                lines.write_all(if self.input.null { b"\0" } else { b"\n" })?;
            }
        }
        Ok(())
    }
}

/// An item in JSON.
#[derive(Serialize)]
struct Line<'i> {
    #[serde(flatten)]
    item: Named<'i>,
    /// Whether it is present; null if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    present: Option<Option<bool>>,
}
