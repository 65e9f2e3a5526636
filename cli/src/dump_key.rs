//! One filter into one file: BF.SCANDUMP, chunk by chunk.
//!
//! A dump takes many commands, and the filter may change in the meantime. The copy has all items
//! that were in the filter throughout. What else may happen:
//!
//! ```text
//!   format          how a change shows                      what is done
//!   redis-bloom     a filter that was replaced, bits that   the dump begins again
//!                   got pages above them, or a window that
//!                   got another generation: another
//!                   identity in header or chunks, or,
//!                   without pages, a lower item count
//!                   items were added or deleted: other      nothing: chunks carry the newest
//!                   numbers in the header                   numbers
//!   RedisBloom      another header at the end               the dump begins again
//! ```

use std::path::Path;

use bloom::{
    codec::native::{Load, dump},
    filter::checksum,
};
use redis::Value;

use crate::{
    connection::Connection,
    dump_file::{PIPE, Writer},
    error::Error,
    filter_info::{FilterInfo, Module},
    interrupt, name,
    output::Output,
};

/// How often a dump of a filter that changes is tried.
const ATTEMPTS: u32 = 3;
/// The first bytes of a header and of a chunk of this module.
const HEADER: &[u8] = b"rbloom";
const FRAME: &[u8] = b"rbchnk";

/// A filter, and the file that it goes into.
pub(crate) struct Dump<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) path: &'a Path,
    pub(crate) output: &'a Output,
}

/// A file that was written.
#[derive(Debug)]
pub(crate) struct Dumped {
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
    /// Whether items were added during the dump.
    pub(crate) changed: bool,
}

impl Dump<'_> {
    /// Writes the file. `watch` is told how many bytes are in it.
    ///
    /// # Errors
    /// `Error::incomplete` for a filter that changes all the time. A dump into a pipe cannot
    /// begin again, so its errors are never temporary.
    pub(crate) fn run(
        &self,
        server: &mut Connection,
        info: &FilterInfo,
        watch: &mut dyn FnMut(u64),
    ) -> Result<Dumped, Error> {
        let (shown, pipe) = (name::readable(self.key), self.path == Path::new(PIPE));
        for _ in 0..if pipe { 1 } else { ATTEMPTS } {
            let header = header(server, self.key)?;
            let module = info.module.name();
            let dumped =
                self.attempt(header, server, (module, watch)).map_err(|error| match error {
                    error if pipe => {
                        error.partly("The reader of the pipe notices it. Dump the filter again.")
                    }
                    error => error,
                });
            if let Some(dumped) = dumped? {
                return Ok(dumped);
            }
            self.output.remark(format_args!("{shown} changed during the dump"));
        }
        let hint = match info.module {
            Module::RedisBloom if info.window.is_some() => {
                "Its generations come and go: COPY the filter, and dump the copy."
            }
            Module::RedisBloom => "Dump it when no client replaces it.",
            _ => "Dump it when no client adds.",
        };
        let times = if pipe { String::new() } else { format!(", {ATTEMPTS} times") };
        Err(Error::incomplete(format!("{shown} changed during the dump{times}"), hint))
    }

    /// Writes the file; `None` if the filter changes, so that it would have parts of two states.
    fn attempt(
        &self,
        header: Vec<u8>,
        server: &mut Connection,
        (module, watch): (&str, &mut dyn FnMut(u64)),
    ) -> Result<Option<Dumped>, Error> {
        let mut writer = Writer::create(self.path, module)?;
        writer.push(1, &header)?;
        let first = Load::begin(&header, u64::MAX).ok();
        let (mut from, mut count) = (1, None);
        ask(server, self.key, from)?;
        loop {
            let (next, data) = answer(server)?;
            if next == 0 {
                break;
            }
            // The server reads the next chunk while this one is written.
            ask(server, self.key, next)?;
            if !is_whole(&data) {
                return Err(Error::incomplete(
                    format!("the chunk behind iterator {from} was damaged on its way"),
                    "Dump it again.",
                ));
            }
            let own = header_in(&data);
            let found = own.and_then(count_of);
            let same = own.is_none_or(|own| first.as_ref().is_some_and(|of| of.began_with(own)));
            // The item count of a filter without pages only rises.
            if !same || found < count {
                answer(server)?;
                return Ok(None);
            }
            writer.push(next, &data)?;
            watch(writer.totals.bytes);
            (from, count) = (next, found);
            interrupt::check("Nothing was written.")?;
        }
        let end = self::header(server, self.key)?;
        if !is_same(&header, &end) {
            return Ok(None);
        }
        let (chunks, bytes) = (writer.totals.chunks, writer.totals.bytes);
        writer.finish()?;
        Ok(Some(Dumped { chunks, bytes, changed: end != header }))
    }
}

/// The header of the filter as it is now.
fn header(server: &mut Connection, key: &[u8]) -> Result<Vec<u8>, Error> {
    ask(server, key, 0)?;
    answer(server).map(|(_, header)| header)
}

/// Whether chunks of a filter with the first header may be continued with those of the filter that
/// has the second header now. In RedisBloom's format the headers must be equal.
fn is_same(old: &[u8], new: &[u8]) -> bool {
    old == new
        || old.starts_with(HEADER)
            && Load::begin(old, u64::MAX).is_ok_and(|load| load.began_with(new))
}

/// The header of the filter as it was then, in a chunk of this module (`codec/native/dump.rs`).
fn header_in(data: &[u8]) -> Option<&[u8]> {
    // Behind the version and the place.
    let (length, rest) = data.strip_prefix(FRAME)?.get(10..)?.split_first_chunk()?;
    rest.get(..u32::from_le_bytes(*length) as usize)
}

/// The items of the newest layer in a header; `None` for a filter with pages.
fn count_of(header: &[u8]) -> Option<u64> {
    let plan = dump::read_header(header).ok().filter(|plan| plan.paged.is_none())?;
    plan.layers.last().map(|layer| layer.items)
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
