//! A file of dump into one key: BF.LOADCHUNK, chunk by chunk.
//!
//! A file is read and checked to its end first, and then read again, chunk by chunk: a damaged file
//! never reaches a server. A pipe is checked while it is loaded.

use std::path::Path;

use bloom::codec::native::Load;
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
        let first = first(&mut reader)?;
        Self::read(&mut reader, &first, watch)
    }

    /// Reads all behind the first chunk.
    pub(crate) fn read(
        reader: &mut Reader,
        first: &Chunk,
        watch: &mut dyn Watch,
    ) -> Result<Self, Error> {
        watch.begin(0, reader.length());
        while reader.next()?.is_some() {
            watch.at(reader.position());
            interrupt::check("Nothing was restored.")?;
        }
        Ok(Self::ended(reader, first))
    }

    /// What a reader has read that is at its end.
    pub(crate) fn ended(reader: &Reader, first: &Chunk) -> Self {
        Self {
            product: reader.product().to_owned(),
            chunks: reader.chunks(),
            bytes: reader.bytes(),
            checksums: reader.checksums(),
            header: first.data.clone(),
        }
    }

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

/// The first chunk: the filter's header.
pub(crate) fn first(reader: &mut Reader) -> Result<Chunk, Error> {
    reader.next()?.ok_or_else(|| reader.damaged("it has no chunk"))
}

/// A restore under way.
pub(crate) struct Restore<'a> {
    pub(crate) server: &'a mut Connection,
    /// The key that is filled.
    pub(crate) key: &'a [u8],
}

impl Restore<'_> {
    /// Loads a file that was checked, all but the first `done` chunks.
    pub(crate) fn load_file(
        &mut self,
        file: &Path,
        checked: &Checked,
        done: u64,
        watch: &mut dyn Watch,
    ) -> Result<(), Error> {
        let mut reader = Reader::open(file)?;
        (0..done).try_for_each(|_| reader.skip())?;
        self.load(&mut reader, watch)?;
        // What was loaded is what was checked.
        match reader.checksums() == checked.checksums {
            true => Ok(()),
            false => Err(Error::usage(
                format!("{}: changed while it was read", name::readable_path(file)),
                "Restore it again when nobody writes to it.",
            )),
        }
    }

    /// Sends the header, which makes the key. A server that refuses it has nothing of the filter.
    pub(crate) fn begin(&mut self, header: &Chunk) -> Result<(), Error> {
        self.send(header)?;
        self.receive()
    }

    /// How many chunks of a file the key has: 0 if it cannot be continued.
    pub(crate) fn chunks_done(&mut self, file: &Path, checked: &Checked) -> Result<u64, Error> {
        // This module answers OK to chunks that it has and to the next one, and refuses those
        // behind it. RedisBloom overwrites any part of any filter, but refuses a header of a filter
        // that exists.
        if !self.accepts(file, 0)? {
            return Ok(0);
        }
        // All before `low` are in; `high` is not.
        let (mut low, mut high) = (1, checked.chunks);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.accepts(file, middle)? { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Whether the server takes the chunk of this index.
    fn accepts(&mut self, file: &Path, index: u64) -> Result<bool, Error> {
        let mut reader = Reader::open(file)?;
        (0..index).try_for_each(|_| reader.skip())?;
        let chunk = first(&mut reader)?;
        self.send(&chunk)?;
        match self.receive() {
            Ok(()) => Ok(true),
            Err(error) if error.is(Kind::BadChunk) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Loads all chunks that are yet to be read. The connection can be used also after an error of
    /// the input.
    pub(crate) fn load(&mut self, reader: &mut Reader, watch: &mut dyn Watch) -> Result<(), Error> {
        watch.begin(reader.position(), reader.length());
        let mut under_way = 0;
        let ended = loop {
            let chunk = match reader.next() {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            self.send(&chunk)?;
            under_way += 1;
            if under_way == UNDER_WAY {
                self.receive()?;
                under_way -= 1;
            }
            watch.at(reader.position());
            if interrupt::requested() {
                break Err(Error::Interrupted { hint: String::new() });
            }
        };
        (0..under_way).try_for_each(|_| self.receive())?;
        ended
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
