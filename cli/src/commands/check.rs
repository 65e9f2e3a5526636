//! `redis-bloom check NAME [ITEM...|-]`: whether items are in a filter.

use std::{
    ffi::OsString,
    fmt,
    io::{self, BufWriter, Write},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use serde::Serialize;
use serde_json::json;

use crate::{
    amount,
    connection::Options,
    error::{Error, Exit},
    items::{self, Batch, Batches, Packing, Source, push_item},
    membership::{Answer, Answers, Membership},
    name,
    output::{self, Output},
    progress::{Progress, Unit},
};

/// Tells whether items are in a filter; exits with 1 if one is absent
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
    // Last, because the heading of its options goes on for those that follow.
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
    #[serde(skip_serializing_if = "is_zero")]
    unknown: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.items == 1 { "" } else { "s" };
        write!(formatter, "{} item{plural}", amount::grouped(self.items))?;
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
            self.print(batch, answers, output, &mut lines).or_else(output::ended_by_reader)
        };
        let from_arguments = !self.items.is_empty() && self.items != ["-"];
        if from_arguments {
            let mut batch = Some(self.batch_of_arguments());
            membership.ask(|| Ok(batch.take()), answered)?;
        } else {
            let source = Source::named(Path::new("-"));
            let (input, length) = source.open()?;
            let size = membership.batch_size(self.input.batch);
            let mut batches = Batches::new(input, &self.input).of_size(size as usize);
            let mut progress = Progress::new(output, &source.name(), length);
            let mut items = 0;
            let next = || {
                let batch = batches.next_batch().map_err(Error::file(source.name()))?;
                if let Some(batch) = &batch {
                    items += batch.count;
                    progress.at(batch.end, items, Unit::Items);
                }
                Ok(batch)
            };
            membership.ask(next, answered)?;
        }
        lines.flush().or_else(output::ended_by_reader)?;
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

    fn batch_of_arguments(&self) -> Batch {
        let mut blob = Vec::new();
        for item in &self.items {
            push_item(&mut blob, item.as_bytes());
        }
        Batch { packing: Packing::Lengths, blob, count: self.items.len() as u64, end: 0 }
    }

    /// Prints what is asked for about each item.
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
            return answers.iter().try_for_each(|answer| {
                lines.write_all(match answer {
                    Answer::Present => b"1\n",
                    Answer::Absent => b"0\n",
                    Answer::Unknown => b"?\n",
                })
            });
        }
        for (item, answer) in batch.items().into_iter().zip(answers.iter()) {
            if self.absent && answer != Answer::Absent {
                continue;
            }
            if output.json() {
                let mut value = json_of(item);
                if self.answers {
                    value["present"] = match answer {
                        Answer::Present => true.into(),
                        Answer::Absent => false.into(),
                        Answer::Unknown => serde_json::Value::Null,
                    };
                }
                writeln!(lines, "{value}")?;
            } else if self.input.csv.is_some() {
                csv_field(item, lines)?;
            } else {
                lines.write_all(item)?;
                lines.write_all(if self.input.null { b"\0" } else { b"\n" })?;
            }
        }
        Ok(())
    }
}

/// An item in JSON, which has no strings of bytes: those that are no text are in hexadecimal.
fn json_of(item: &[u8]) -> serde_json::Value {
    match str::from_utf8(item) {
        Ok(text) => json!({ "item": text }),
        Err(_) => {
            let hex: String = item.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "item_hex": hex })
        }
    }
}

/// A record of CSV with this field alone.
fn csv_field(item: &[u8], lines: &mut impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(lines);
    writer.write_record([item])?;
    writer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_in_words() {
        for (present, absent, expected) in [
            (0, 0, "0 items"),
            (1, 0, "1 item: present"),
            (0, 1, "1 item: absent"),
            (3, 0, "3 items: all present"),
            (0, 3, "3 items: all absent"),
            (1_000, 1, "1,001 items: 1,000 present, 1 absent"),
        ] {
            let counts = Counts { items: present + absent, present, absent, unknown: 0 };
            assert_eq!(counts.to_string(), expected);
        }
        let counts = Counts { items: 6, present: 1, absent: 2, unknown: 3 };
        assert_eq!(counts.to_string(), "6 items: 1 present, 2 absent, 3 not known");
    }

    #[test]
    fn items_in_json_and_csv() {
        assert_eq!(json_of(b"a\"b\n").to_string(), r#"{"item":"a\"b\n"}"#);
        assert_eq!(json_of(b"\x00\xff").to_string(), r#"{"item_hex":"00ff"}"#);
        for (item, expected) in
            [(&b"a"[..], &b"a\n"[..]), (b"a,\"b", b"\"a,\"\"b\"\n"), (b"", b"\"\"\n")]
        {
            let mut line = Vec::new();
            csv_field(item, &mut line).unwrap();
            assert_eq!(line, expected);
        }
    }
}
