//! A file of dump into one key: BF.LOADCHUNK, chunk by chunk.
//!
//! A file is read and checked to its end first, and then read again, chunk by chunk: a damaged file
//! never reaches a server. A pipe is checked while it is loaded.

use std::path::Path;

use bloom::codec::native::dump::read_header;
use redis::Value;

use crate::{
    connection::Connection,
    dump_file::{Chunk, Reader},
    error::Error,
    interrupt, name,
    refusal::{Kind, Refusal},
    reply::{only, text},
};

/// Chunks under way: the server loads one while the next is on its way.
const UNDER_WAY: u64 = 2;

/// A dump that was read to its end, and is right.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) product: String,
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
    /// The checksum of the file's checksums.
    pub(crate) checksums: u64,
    /// The filter's header: the first chunk.
    pub(crate) header: Vec<u8>,
}

impl Checked {
    /// Reads a whole file. `watch` is told how many bytes were read.
    pub(crate) fn of(path: &Path, watch: &mut dyn FnMut(u64)) -> Result<Self, Error> {
        let mut reader = Reader::open(path)?;
        let header = first(&mut reader)?;
        while reader.next()?.is_some() {
            watch(reader.position());
            interrupt::check("Nothing was restored.")?;
        }
        Ok(Self::ended(&reader, &header))
    }

    /// What a reader has read that is at its end.
    fn ended(reader: &Reader, header: &Chunk) -> Self {
        Self {
            product: reader.product().to_owned(),
            chunks: reader.chunks(),
            bytes: reader.bytes(),
            checksums: reader.checksums(),
            header: header.data.clone(),
        }
    }
}

/// Whether a key holds the filter with this header, with more or fewer items. `true` for a filter
/// of another module, which does not tell.
pub(crate) fn holds(server: &mut Connection, key: &[u8], header: &[u8]) -> Result<bool, Error> {
    let Ok(plan) = read_header(header) else { return Ok(true) };
    let found = match server.call_for_key(redis::cmd("BF.INFO").arg(key).arg("IDENTITY")) {
        Err(error) if error.is(Kind::NoField) => return Ok(true),
        Err(error) if error.refusal().is_some_and(Refusal::is_no_filter) => return Ok(false),
        found => found?,
    };
    let identity = format!("{:016x}", plan.identity());
    Ok(text(only(&found)).is_none_or(|found| found == identity))
}

/// The first chunk: the filter's header.
pub(crate) fn first(reader: &mut Reader) -> Result<Chunk, Error> {
    reader.next()?.ok_or_else(|| reader.damaged("it has no chunk"))
}

/// The error of a file that is not the one that was checked.
pub(crate) fn changed(file: &Path) -> Error {
    Error::usage(
        format!("{}: changed while it was read", name::readable_path(file)),
        "Restore it again when nobody writes to it.",
    )
}

/// Sends the header, which makes the key. A server that refuses it has nothing of the filter.
pub(crate) fn begin(server: &mut Connection, key: &[u8], header: &Chunk) -> Result<(), Error> {
    send(server, key, header)?;
    receive(server)
}

/// Loads all chunks behind the header, and checks that the filter is complete. The connection can
/// be used also after an error of the input.
pub(crate) fn load(
    server: &mut Connection,
    key: &[u8],
    (reader, header): (&mut Reader, &Chunk),
    watch: &mut dyn FnMut(u64),
) -> Result<Checked, Error> {
    let mut under_way = 0;
    let ended = loop {
        let chunk = match reader.next() {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        send(server, key, &chunk)?;
        under_way += 1;
        if under_way == UNDER_WAY {
            receive(server)?;
            under_way -= 1;
        }
        watch(reader.position());
        if let Err(interrupted) = interrupt::check("Nothing was restored.") {
            break Err(interrupted);
        }
    };
    (0..under_way).try_for_each(|_| receive(server))?;
    ended?;
    // Complete filters answer it, others do not.
    server.call_for_key(redis::cmd("BF.INFO").arg(key))?;
    Ok(Checked::ended(reader, header))
}

fn send(server: &mut Connection, key: &[u8], chunk: &Chunk) -> Result<(), Error> {
    let iterator = chunk.iterator.to_string();
    server.send_parts(&[b"BF.LOADCHUNK", key, iterator.as_bytes(), &chunk.data])
}

fn receive(server: &mut Connection) -> Result<(), Error> {
    match server.receive()? {
        Value::Okay => Ok(()),
        Value::ServerError(error) => Err(server.refused("BF.LOADCHUNK", &error)),
        other => Err(Error::reply("BF.LOADCHUNK", &other)),
    }
}
