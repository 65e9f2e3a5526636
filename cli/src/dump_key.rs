//! One filter into one file: BF.SCANDUMP, chunk by chunk.
//!
//! A dump takes many commands, and the filter may change meanwhile. The copy has all items that
//! were in all the time. What else may happen:
//!
//! ```text
//!   format          how a change shows                      what is done
//!   redis-bloom     a filter that was replaced, bits that   the dump begins again
//!                   got pages above them, or a window that
//!                   got another generation: another
//!                   identity in header or chunks, or a
//!                   count of bits that falls
//!                   items were added or deleted: other      nothing: chunks carry the newest
//!                   numbers in the header                   numbers
//!   RedisBloom      another header at the end               the dump begins again
//! ```

use std::path::Path;

use bloom::{
    codec::native::Load,
    filter::{Filter, checksum},
    sharding::Shard,
};
use redis::Value;

use crate::{
    connection::Connection,
    dump_file::{Resumed, Writer},
    error::Error,
    filter_info::{FilterInfo, Module},
    interrupt, name,
    output::Output,
    progress::Watch,
    reply::{field, number, text},
    restore_key::Checked,
    sharded,
};

/// How often a dump of a filter that changes begins again.
const ATTEMPTS: u32 = 3;
/// The first bytes of a header and of a chunk of this module.
const HEADER: &[u8] = b"rbloom";
const FRAME: &[u8] = b"rbchnk";
/// The versions of chunks of layers and of pages.
const LAYERS: u16 = 1;
const PAGES: u16 = 2;

/// A filter, and the file that it goes into.
pub(crate) struct Dump<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) path: &'a Path,
    /// The module of the server, and its version.
    pub(crate) product: &'a str,
    /// The shard that the filter must be; `None` for a filter in one key.
    pub(crate) shard: Option<Shard>,
    pub(crate) output: &'a Output,
}

/// A file that was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dumped {
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
    /// The checksum of the file's checksums.
    pub(crate) checksums: u64,
    /// Whether items were added during the dump.
    pub(crate) changed: bool,
}

/// How an attempt ended.
enum Attempt {
    /// The dump is whole.
    Whole { writer: Writer, changed: bool },
    /// The filter changed: the copy has parts of two states.
    Changed(Writer),
}

impl Dump<'_> {
    /// Writes the file. `resume`: goes on with what an interrupted dump left, if that is of the
    /// filter as it is now.
    ///
    /// # Errors
    /// `Error::Incomplete` for a filter that changes all the time, and for a connection that broke.
    pub(crate) fn run(
        &self,
        server: &mut Connection,
        info: &FilterInfo,
        resume: bool,
        watch: &mut dyn Watch,
    ) -> Result<Dumped, Error> {
        let mut resumed = if resume { Writer::resume(self.path)? } else { None };
        for _ in 0..ATTEMPTS {
            match self.attempt(resumed.take(), server, watch)? {
                Attempt::Whole { writer, changed } => {
                    let dumped = Dumped {
                        chunks: writer.chunks(),
                        bytes: writer.bytes(),
                        checksums: writer.checksums(),
                        changed,
                    };
                    writer.finish()?;
                    return Ok(dumped);
                }
                Attempt::Changed(writer) => {
                    let shown = name::readable(self.key);
                    self.output.remark(format_args!("{shown} changed during the dump"));
                    if !writer.discard()? {
                        // What is in a pipe stays there.
                        let what = format!("{shown} changed during the dump");
                        return Err(Error::incomplete(what, hint(info)));
                    }
                }
            }
        }
        Err(Error::incomplete(
            format!("{} changed during the dump, {ATTEMPTS} times", name::readable(self.key)),
            hint(info),
        ))
    }

    /// What an earlier dump has completed, if that is of the filter as it is now.
    pub(crate) fn kept(
        &self,
        server: &mut Connection,
        watch: &mut dyn Watch,
    ) -> Result<Option<Dumped>, Error> {
        if !self.path.exists() {
            return Ok(None);
        }
        let Ok(checked) = Checked::of(self.path, watch) else { return Ok(None) };
        let header = self.header(server)?;
        Ok(is_same(&checked.header, &header).then_some(Dumped {
            chunks: checked.chunks,
            bytes: checked.bytes,
            checksums: checked.checksums,
            changed: checked.header != header,
        }))
    }

    /// The header of the filter as it is now.
    fn header(&self, server: &mut Connection) -> Result<Vec<u8>, Error> {
        let (_, header) = scan(server, self.key, 0)?;
        let held = || Load::begin(&header, u64::MAX).ok().and_then(|load| load.shard());
        match self.shard {
            Some(shard) if held() != Some(shard) => Err(sharded::foreign(self.key, shard)),
            _ => Ok(header),
        }
    }

    fn attempt(
        &self,
        resumed: Option<Resumed>,
        server: &mut Connection,
        watch: &mut dyn Watch,
    ) -> Result<Attempt, Error> {
        let header = self.header(server)?;
        let resumed = resumed.filter(|resumed| {
            let same = is_same(&resumed.header, &header);
            if !same {
                self.output.remark("The filter is not the same: the dump begins again.");
            }
            same
        });
        let (mut writer, header, mut state) = match resumed {
            Some(Resumed { writer, header, last }) => {
                let state = (!last.is_empty()).then(|| state_of(&last));
                (writer, header, state)
            }
            None => {
                let mut writer = Writer::create(self.path, self.product)?;
                writer.push(1, &header)?;
                (writer, header, None)
            }
        };
        let first = Load::begin(&header, u64::MAX).ok();
        // How many bytes of pages come, nobody knows.
        let length = first.as_ref().and_then(Load::layered).map(Filter::bit_bytes);
        watch.begin(writer.bytes(), length);
        // A connection that breaks, and Ctrl-C, leave what --resume goes on with.
        let mut from = writer.last();
        ask(server, self.key, from)?;
        loop {
            let (next, data) = answer(server)?;
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
            ask(server, self.key, next)?;
            if !is_whole(&data) {
                return Err(Error::incomplete(
                    format!("the chunk behind iterator {from} was damaged on its way"),
                    writer.hint(),
                ));
            }
            let found = state_of(&data);
            let same = header_in(&data)
                .is_none_or(|own| first.as_ref().is_some_and(|first| first.began_with(own)));
            if !same || state.is_some_and(|state| !goes_on(state, found)) {
                answer(server)?;
                return Ok(Attempt::Changed(writer));
            }
            state = Some(found);
            writer.push(next, &data)?;
            watch.at(writer.bytes());
            from = next;
            interrupt::check(writer.hint())?;
        }
        let end = self.header(server)?;
        let changed = end != header;
        if !is_same(&header, &end) {
            return Ok(Attempt::Changed(writer));
        }
        Ok(Attempt::Whole { writer, changed })
    }
}

/// Whether chunks of a filter with the first header may be continued with those of the filter that
/// has the second header now. RedisBloom's format has one state, that of its header.
fn is_same(old: &[u8], new: &[u8]) -> bool {
    old == new
        || old.starts_with(HEADER)
            && Load::begin(old, u64::MAX).is_ok_and(|load| load.began_with(new))
}

fn hint(info: &FilterInfo) -> &'static str {
    match info.module {
        Module::RedisBloom if info.window.is_some() => {
            "Its generations come and go: COPY the filter, and dump the copy."
        }
        Module::RedisBloom => "Dump it when nobody replaces it.",
        _ => "Dump it when nobody adds.",
    }
}

/// The bytes of a chunk of this module behind the number of its version, if that is `version`.
fn frame(data: &[u8], version: u16) -> Option<&[u8]> {
    data.strip_prefix(FRAME)?.strip_prefix(&version.to_le_bytes())
}

/// The identity of the filter, and the items of its newest layer, in a chunk of layers
/// (`codec/native/dump.rs`).
fn state_of(data: &[u8]) -> Option<[u64; 2]> {
    let body = frame(data, LAYERS)?;
    let number = |from| body.get(from..)?.first_chunk().copied().map(u64::from_le_bytes);
    Some([number(0)?, number(16)?])
}

/// The header of the filter as it was then, in a chunk of pages (`codec/native/dump.rs`).
fn header_in(data: &[u8]) -> Option<&[u8]> {
    let (length, rest) = frame(data, PAGES)?.get(8..)?.split_first_chunk()?;
    rest.get(..u32::from_le_bytes(*length) as usize)
}

/// Whether chunks of the two states are of one filter: counts only rise.
fn goes_on(old: Option<[u64; 2]>, new: Option<[u64; 2]>) -> bool {
    match (old, new) {
        (Some([old, count]), Some([new, later])) => old == new && count <= later,
        (old, new) => old == new,
    }
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
pub(crate) fn product_of(server: &mut Connection, module: Module) -> Result<String, Error> {
    let list = match server.call(redis::cmd("MODULE").arg("LIST")) {
        Ok(Value::Array(list)) => list,
        Ok(_) | Err(Error::Refused { .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    let version = list.iter().find_map(|fields| {
        let is_bloom = field(fields, "name").and_then(text) == Some("bf");
        field(fields, "ver").and_then(number).filter(|_| is_bloom)
    });
    Ok(match version {
        Some(number) => {
            let (major, minor, patch) = (number / 10_000, number / 100 % 100, number % 100);
            format!("{} {major}.{minor}.{patch}", module.name())
        }
        None => module.name().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_falls_is_another_filter() {
        let chunk = |identity: u64, count: u64| {
            let numbers = [identity, 0, count].map(u64::to_le_bytes);
            state_of(&[FRAME, &[1, 0], numbers.as_flattened()].concat())
        };
        for (old, new, expected) in [
            (chunk(1, 5), chunk(1, 5), true),
            (chunk(1, 5), chunk(1, 6), true),
            (chunk(1, 5), chunk(1, 4), false),
            (chunk(1, 5), chunk(2, 6), false),
            (chunk(1, 5), None, false),
            (None, None, true),
        ] {
            assert_eq!(goes_on(old, new), expected, "{old:?} {new:?}");
        }
    }
}
