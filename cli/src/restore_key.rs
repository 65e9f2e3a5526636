//! A file of dump into one key: BF.LOADCHUNK, chunk by chunk.
//!
//! The file is read and checked to its end first, and then read again, chunk by chunk: a damaged
//! file never reaches a server.

use std::path::Path;

use bloom::codec::native::kinds::Load;
use redis::Value;

use crate::{
    connection::Connection,
    dump_file::{Chunk, Reader},
    error::Error,
    interrupt, name,
    progress::Watch,
    refusal::Kind,
    reply::{only, text},
};

/// Chunks under way: the server loads one while the next is on its way.
const UNDER_WAY: u64 = 2;

/// A file that was read to its end, and is right.
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
    /// Reads the whole file.
    pub(crate) fn of(path: &Path, watch: &mut dyn Watch) -> Result<Self, Error> {
        let mut reader = Reader::open(path)?;
        watch.begin(0, Some(reader.length()));
        let (mut chunks, mut bytes, mut header) = (0, 0, Vec::new());
        while let Some(chunk) = reader.next()? {
            watch.at(reader.position());
            interrupt::check("Nothing was restored.")?;
            chunks += 1;
            bytes += chunk.data.len() as u64;
            if chunks == 1 {
                header = chunk.data;
            }
        }
        let (product, checksums) = (reader.product().to_owned(), reader.checksums());
        Ok(Self { product, chunks, bytes, checksums, header })
    }
}

impl Checked {
    /// `BF.INFO key IDENTITY` of the filter; `None` for a file of another module.
    pub(crate) fn identity(&self) -> Option<String> {
        let load = Load::begin(&self.header, u64::MAX).ok()?;
        Some(format!("{:016x}", load.identity()))
    }

    /// Checks that a key holds the filter of this file.
    ///
    /// # Errors
    /// `Error::Incomplete` if somebody put another filter there.
    pub(crate) fn must_be_at(&self, server: &mut Connection, key: &[u8]) -> Result<(), Error> {
        let Some(identity) = self.identity() else { return Ok(()) };
        let found = match server.call_for_key(redis::cmd("BF.INFO").arg(key).arg("IDENTITY")) {
            Err(error) if error.is(Kind::NoField) => return Ok(()),
            found => text(only(&found?)).map(str::to_owned),
        };
        if found.is_none_or(|found| found == identity) {
            return Ok(());
        }
        Err(Error::incomplete(
            format!("{} holds another filter than was loaded", name::readable(key)),
            "Restore it again when nobody else writes that key.",
        ))
    }
}

/// A restore under way.
pub(crate) struct Restore<'a> {
    pub(crate) file: &'a Path,
    pub(crate) checked: &'a Checked,
    pub(crate) server: &'a mut Connection,
    /// The key that is filled.
    pub(crate) key: &'a [u8],
}

impl Restore<'_> {
    /// Sends the header, which makes the key. A server that refuses it has nothing of the filter.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        let (_, header) = self.reader(0)?;
        self.send(&header)?;
        self.receive()
    }

    /// How many chunks the key has: 0 if it cannot be continued.
    pub(crate) fn chunks_done(&mut self) -> Result<u64, Error> {
        // This module answers OK to chunks that it has and to the next one, and refuses those
        // behind it. RedisBloom overwrites any part of any filter, but refuses a header of a filter
        // that exists.
        let header = self.reader(0)?.1;
        if !self.accepts(&header)? {
            return Ok(0);
        }
        // All before `low` are in; `high` is not.
        let (mut low, mut high) = (1, self.checked.chunks);
        while low < high {
            let middle = low + (high - low) / 2;
            let (_, chunk) = self.reader(middle)?;
            if self.accepts(&chunk)? { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// The chunk with this index, and the reader behind it.
    fn reader(&self, index: u64) -> Result<(Reader, Chunk), Error> {
        let mut reader = Reader::open(self.file)?;
        for _ in 0..index {
            self.next(&mut reader)?;
        }
        let chunk = self.next(&mut reader)?;
        Ok((reader, chunk))
    }

    fn next(&self, reader: &mut Reader) -> Result<Chunk, Error> {
        reader.next()?.ok_or_else(|| self.changed())
    }

    fn changed(&self) -> Error {
        Error::usage(
            format!("{}: changed while it was read", name::readable_path(self.file)),
            "Restore it again when nobody writes to it.",
        )
    }

    fn accepts(&mut self, chunk: &Chunk) -> Result<bool, Error> {
        self.send(chunk)?;
        match self.receive() {
            Ok(()) => Ok(true),
            Err(error) if error.is(Kind::BadChunk) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Loads all chunks but the first `done`.
    pub(crate) fn load(&mut self, done: u64, watch: &mut dyn Watch) -> Result<(), Error> {
        let mut reader = Reader::open(self.file)?;
        for _ in 0..done {
            self.next(&mut reader)?;
        }
        watch.begin(reader.position(), Some(reader.length()));
        let mut under_way = 0;
        for _ in done..self.checked.chunks {
            let chunk = self.next(&mut reader)?;
            self.send(&chunk)?;
            under_way += 1;
            if under_way == UNDER_WAY {
                self.receive()?;
                under_way -= 1;
            }
            watch.at(reader.position());
            if interrupt::requested() {
                (0..under_way).try_for_each(|_| self.receive())?;
                return Err(Error::Interrupted { hint: String::new() });
            }
        }
        (0..under_way).try_for_each(|_| self.receive())?;
        // What was loaded is what was checked.
        while reader.next()?.is_some() {}
        if reader.checksums() == self.checked.checksums { Ok(()) } else { Err(self.changed()) }
    }

    fn send(&mut self, chunk: &Chunk) -> Result<(), Error> {
        let iterator = chunk.iterator.to_string();
        self.server.send_parts(&[b"BF.LOADCHUNK", self.key, iterator.as_bytes(), &chunk.data])
    }

    fn receive(&mut self) -> Result<(), Error> {
        match self.server.receive()? {
            Value::Okay => Ok(()),
            Value::ServerError(error) => Err(self.server.refused("BF.LOADCHUNK", &error)),
            other => Err(Error::reply("BF.LOADCHUNK", &other)),
        }
    }
}
