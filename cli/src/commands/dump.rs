//! `redis-bloom dump NAME -o FILE`: a filter as a file, by BF.SCANDUMP.
//!
//! A dump takes many commands, and the filter may change meanwhile. Bits only rise, so the copy has
//! all items that were in when the dump began. What else may happen:
//!
//! ```text
//!   format          how a change shows                      what is done
//!   redis-bloom     a filter that grew or was replaced,     the dump begins again
//!                   or counters that changed: another
//!                   identity in header or chunks
//!                   items were added: other counts in the   nothing: chunks carry the newest count
//!                   header
//!   RedisBloom      another header at the end               the dump begins again; with
//!                                                           --allow-changes, the newer counts are
//!                                                           kept if no layer was added
//! ```

use std::{ffi::OsString, path::PathBuf};

use bloom::{codec::native::dump::Load, filter::checksum};
use redis::Value;
use serde::Serialize;

use crate::{
    amount,
    connection::{Connection, Options},
    dump_file::{RESUME, Resumed, Writer},
    error::{Error, Exit},
    filter_info::{Cells, Detail, FilterInfo, Module, Reader},
    interrupt::Interrupt,
    name::{self, Named},
    output::Output,
    progress::{Progress, Unit},
};

/// How often a dump of a filter that changes begins again.
const ATTEMPTS: u32 = 3;
/// The first bytes of a header and of a chunk of this module.
const HEADER: &[u8] = b"rbloom";
const FRAME: &[u8] = b"rbchnk";

/// Writes a filter to a file
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter
    name: OsString,
    /// File to write; it holds the filter's seed
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Goes on with an interrupted dump to this file, if the filter is still the same
    #[arg(long)]
    resume: bool,
    /// Accepts additions to a filter in RedisBloom's format during the dump
    #[arg(long)]
    allow_changes: bool,
    /// Looks for the filter, and writes nothing
    #[arg(long)]
    dry_run: bool,
}

/// What was written.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    name: Named<'a>,
    file: &'a str,
    product: &'a str,
    chunks: u64,
    bytes: u64,
    /// Whether items were added during the dump.
    changed: bool,
}

/// What would be written.
#[derive(Debug, Serialize)]
struct DryRun<'a> {
    #[serde(flatten)]
    name: Named<'a>,
    file: &'a str,
    /// Bytes of the filter.
    bytes: u64,
}

/// How an attempt ended.
enum Attempt {
    /// The dump is whole.
    Whole { writer: Writer, changed: bool },
    /// The filter changed: the copy has parts of two states.
    Changed(Writer),
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        let interrupt = Interrupt::register();
        let mut server = connection.target()?.connect()?;
        let info = Reader::default().read_one(&mut server, self.key(), Detail::Filter)?;
        let file = name::readable_path(&self.output);
        if self.dry_run {
            let size = amount::readable_bytes(info.bytes);
            let found = DryRun {
                name: Named::of(self.key()),
                file: &self.output.display().to_string(),
                bytes: info.bytes,
            };
            let text = format!("{}: {size} would be written to {file}", self.shown());
            output.data(&found, text)?;
            return Ok(Exit::Done);
        }
        let product = product_of(&mut server, info.module)?;
        let mut resumed = if self.resume { Writer::resume(&self.output)? } else { None };
        for _ in 0..ATTEMPTS {
            let attempt =
                self.attempt(resumed.take(), &mut server, &product, &interrupt, output)?;
            let (writer, changed) = match attempt {
                Attempt::Whole { writer, changed } => (writer, changed),
                Attempt::Changed(writer) => {
                    output.remark(format_args!("{} changed during the dump", self.shown()));
                    writer.discard()?;
                    continue;
                }
            };
            let report = Report {
                name: Named::of(self.key()),
                file: &self.output.display().to_string(),
                product: &product,
                chunks: writer.chunks(),
                bytes: writer.bytes(),
                changed,
            };
            writer.finish()?;
            self.say(&report, &info, output)?;
            return Ok(Exit::Done);
        }
        Err(Error::Incomplete {
            what: format!("{} changed during the dump, {ATTEMPTS} times", self.shown()),
            hint: hint(&info).to_owned(),
        })
    }

    fn key(&self) -> &[u8] {
        name::bytes(&self.name)
    }

    /// The name for messages.
    fn shown(&self) -> String {
        name::readable(self.key())
    }

    fn say(&self, report: &Report, info: &FilterInfo, output: &Output) -> Result<(), Error> {
        if report.changed {
            output
                .remark("Items were added during the dump. It has all that were in when it began.");
        }
        if info.module == Module::RedisBloom {
            output.remark(format_args!(
                "{} holds the filter's seed: whoever reads it can make items that collide.",
                name::readable_path(&self.output)
            ));
        }
        let size = amount::readable_bytes(report.bytes);
        let file = name::readable_path(&self.output);
        output.data(report, format_args!("{}: {size} in {file}", self.shown()))
    }

    fn attempt(
        &self,
        resumed: Option<Resumed>,
        server: &mut Connection,
        product: &str,
        interrupt: &Interrupt,
        output: &Output,
    ) -> Result<Attempt, Error> {
        let (_, header) = scan(server, self.key(), 0)?;
        let resumed = resumed.filter(|resumed| {
            let same = self.is_same(&resumed.header, &header);
            if !same {
                output.remark("The filter is not the same: the dump begins again.");
            }
            same
        });
        let (mut writer, header) = match resumed {
            Some(Resumed { writer, header }) => (writer, header),
            None => {
                let mut writer = Writer::create(&self.output, product)?;
                writer.push(1, &header)?;
                (writer, header)
            }
        };
        let length = Load::begin(&header, u64::MAX).ok().map(|load| load.filter().bit_bytes());
        let mut progress =
            Progress::new(output, &self.shown(), length).from(writer.last().saturating_sub(1));
        // A connection that breaks, and Ctrl-C, leave what --resume goes on with.
        let mut identity = None;
        let mut from = writer.last();
        ask(server, self.key(), from).map_err(resumable)?;
        loop {
            let (next, data) = answer(server).map_err(resumable)?;
            if next == 0 {
                break;
            }
            if next <= from {
                return Err(Error::Reply {
                    command: "BF.SCANDUMP".to_owned(),
                    reply: format!("iterator {next} after {from}"),
                });
            }
            // The server reads the next chunk while this one is written.
            ask(server, self.key(), next).map_err(resumable)?;
            if !is_whole(&data) {
                return Err(Error::Incomplete {
                    what: format!("the chunk behind iterator {from} was damaged on its way"),
                    hint: RESUME.to_owned(),
                });
            }
            let found = identity_of(&data);
            if identity.is_some() && identity != found {
                answer(server).map_err(resumable)?;
                return Ok(Attempt::Changed(writer));
            }
            identity = found;
            writer.push(next, &data)?;
            progress.at(next - 1, next - 1, Unit::Bytes);
            from = next;
            if interrupt.requested() {
                return Err(Error::Interrupted { hint: RESUME.to_owned() });
            }
        }
        drop(progress);
        let (_, end) = scan(server, self.key(), 0).map_err(resumable)?;
        let changed = end != header;
        if !self.is_same(&header, &end) {
            return Ok(Attempt::Changed(writer));
        }
        if changed && !end.starts_with(HEADER) {
            writer.push(1, &end)?;
        }
        Ok(Attempt::Whole { writer, changed })
    }

    /// Whether chunks of a filter with the first header may be continued with those of the filter
    /// that has the second header now.
    fn is_same(&self, old: &[u8], new: &[u8]) -> bool {
        if old == new {
            return true;
        }
        if old.starts_with(HEADER) {
            return Load::begin(old, u64::MAX).is_ok_and(|load| load.began_with(new));
        }
        // RedisBloom's header begins with the count of items, and has a part for each layer.
        let count = |header: &[u8]| header.first_chunk().map(|count| u64::from_le_bytes(*count));
        self.allow_changes && old.len() == new.len() && count(old) < count(new)
    }
}

fn hint(info: &FilterInfo) -> &'static str {
    match (info.module, info.cells) {
        (Module::RedisBloom, Cells::Counters) => {
            "Counters must not change: COPY the filter, and dump the copy."
        }
        (Module::RedisBloom, Cells::Bits) => "Dump it when it does not grow.",
        _ => "Stop the writers, or let additions in by --allow-changes.",
    }
}

/// The error of a connection that broke: what is written stays.
fn resumable(error: Error) -> Error {
    match error {
        Error::Connection { .. } => {
            Error::Incomplete { what: error.to_string(), hint: RESUME.to_owned() }
        }
        other => other,
    }
}

/// The identity of the filter in a chunk of this module (`codec/native/dump.rs`).
fn identity_of(data: &[u8]) -> Option<[u8; 8]> {
    data.starts_with(FRAME).then(|| data.get(8..16)?.try_into().ok()).flatten()
}

/// Whether the checksum at the end of a chunk of this module is right. RedisBloom's have none.
fn is_whole(data: &[u8]) -> bool {
    match data.split_last_chunk() {
        Some((body, seal)) if data.starts_with(FRAME) => {
            checksum(body) == u64::from_le_bytes(*seal)
        }
        _ => true,
    }
}

fn ask(server: &mut Connection, key: &[u8], iterator: u64) -> Result<(), Error> {
    server.send(redis::cmd("BF.SCANDUMP").arg(key).arg(iterator))
}

fn answer(server: &mut Connection) -> Result<(u64, Vec<u8>), Error> {
    const COMMAND: &str = "BF.SCANDUMP";
    let wrong = |reply| Error::Reply { command: COMMAND.to_owned(), reply };
    match server.receive_long()? {
        Value::ServerError(error) => Err(server.refused(COMMAND, &error)),
        Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
            Ok([Value::Int(next), Value::BulkString(data)]) => {
                Ok((u64::try_from(next).map_err(|_| wrong(format!("iterator {next}")))?, data))
            }
            Ok([Value::Int(0), Value::Nil]) => Ok((0, Vec::new())),
            _ => Err(wrong("an array of other elements".to_owned())),
        },
        _ => Err(wrong("no array".to_owned())),
    }
}

fn scan(server: &mut Connection, key: &[u8], iterator: u64) -> Result<(u64, Vec<u8>), Error> {
    ask(server, key, iterator)?;
    answer(server)
}

/// The name of the module and, where the user may ask for it, its version.
fn product_of(server: &mut Connection, module: Module) -> Result<String, Error> {
    let list = match server.call(redis::cmd("MODULE").arg("LIST")) {
        Ok(Value::Array(list)) => list,
        Ok(_) | Err(Error::Refused { .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    let version = list.iter().find_map(|fields| {
        let Value::Array(fields) = fields else { return None };
        let field = |name: &str| {
            let mut pairs = fields.chunks_exact(2);
            pairs.find(|pair| text(&pair[0]) == Some(name)).map(|pair| &pair[1])
        };
        match (field("name").and_then(text), field("ver")) {
            (Some("bf"), Some(Value::Int(version))) => Some(*version),
            _ => None,
        }
    });
    Ok(match version {
        Some(number) => {
            let (major, minor, patch) = (number / 10_000, number / 100 % 100, number % 100);
            format!("{} {major}.{minor}.{patch}", module.name())
        }
        None => module.name().to_owned(),
    })
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::SimpleString(text) => Some(text),
        Value::BulkString(bytes) => str::from_utf8(bytes).ok(),
        _ => None,
    }
}
