//! The file of `dump`: the chunks of BF.SCANDUMP, each with its iterator and a checksum.
//!
//! All numbers are little-endian. Each checksum is the XXH3-64 of all bytes of its record before
//! it, as in the module's own encodings.
//!
//! ```text
//!   the file begins with a header:
//!   0         8         10       12           12 + length
//!   ┌─────────┬─────────┬────────┬──── ─ ─ ────┬─────────┐
//!   │ rb-dump │ version │ length │ product, as │ XXH3-64 │      rb-dump: 7 letters and a line feed
//!   │ \n      │ 1, u16  │ u16    │ UTF-8       │         │      product: redis-bloom
//!   └─────────┴─────────┴────────┴──── ─ ─ ────┴─────────┘
//!   then a record for each chunk; the iterators are those of BF.SCANDUMP's replies, and rise:
//!   0     1          9        17           17 + length
//!   ┌─────┬──────────┬────────┬──── ─ ─ ────┬─────────┐
//!   │ 'C' │ iterator │ length │ data        │ XXH3-64 │      iterator 1: the filter's header
//!   │     │ u64      │ u64    │             │         │
//!   └─────┴──────────┴────────┴──── ─ ─ ────┴─────────┘
//!   at the end, and nothing behind it:
//!   0     1        9           17         25
//!   ┌─────┬────────┬───────────┬──────────┬─────────┐
//!   │ 'E' │ chunks │ bytes of  │ XXH3-64  │ XXH3-64 │      of the checksums of all records before
//!   │     │ u64    │ data, u64 │ of those │         │      this one, in order
//!   └─────┴────────┴───────────┴──────────┴─────────┘
//! ```
//!
//! The file is written as `part_file.rs` says, or into a pipe. A reader of a pipe that was cut
//! finds no last record.

use std::{
    fs::File,
    io::{self, BufReader, Read, Write as _},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    error::Error,
    interrupt, name,
    output::ended_by_reader,
    part_file::{MAGIC, Part, open_regular},
};

/// The path that stands for a pipe.
pub(crate) const PIPE: &str = "-";
const VERSION: u16 = 1;
const CHUNK: u8 = b'C';
const END: u8 = b'E';
/// The longest data of a chunk: what a server takes as one argument. A chunk has at most 16 MiB of
/// bits or pages. A header has up to 53 bytes for each layer of the filter.
const MAX_DATA: u64 = 512 << 20;
/// Bytes of a record of a chunk before its data, and of its checksum.
const HEAD: usize = 17;
const CHECKSUM: usize = 8;

/// A chunk of a filter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) iterator: u64,
    pub(crate) data: Vec<u8>,
}

/// What the last record says.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) chunks: u64,
    /// Bytes of data.
    pub(crate) bytes: u64,
    /// Of the checksums of all records.
    checksums: Xxh3,
    /// The iterator of the last chunk.
    last: u64,
}

impl Totals {
    /// Counts a chunk, if it may come here.
    fn take(&mut self, iterator: u64, length: u64, checksum: [u8; CHECKSUM]) -> Option<()> {
        let first = self.chunks == 0;
        if first != (iterator == 1) || iterator <= self.last {
            return None;
        }
        self.last = iterator;
        self.chunks += 1;
        self.bytes += length;
        self.checksums.update(&checksum);
        Some(())
    }
}

/// Where a dump goes.
enum Sink {
    File(Part),
    Stdout,
}

/// Writes a dump.
pub(crate) struct Writer {
    sink: Sink,
    /// What was written so far.
    pub(crate) totals: Totals,
}

impl Writer {
    /// Begins a file, or a dump into stdout.
    pub(crate) fn create(path: &Path, product: &str) -> Result<Self, Error> {
        let sink = match path == Path::new(PIPE) {
            true => Sink::Stdout,
            false => Sink::File(Part::create(path)?),
        };
        let mut writer = Self { sink, totals: Totals::default() };
        let product = &product.as_bytes()[..product.len().min(usize::from(u16::MAX))];
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_le_bytes());
        head.extend((product.len() as u16).to_le_bytes());
        head.extend(product);
        let checksum = writer.record(&head, &[])?;
        writer.totals.checksums.update(&checksum);
        Ok(writer)
    }

    /// Appends a chunk.
    pub(crate) fn push(&mut self, iterator: u64, data: &[u8]) -> Result<(), Error> {
        let mut head = [0; HEAD];
        head[0] = CHUNK;
        head[1..9].copy_from_slice(&iterator.to_le_bytes());
        head[9..].copy_from_slice(&(data.len() as u64).to_le_bytes());
        let checksum = self.record(&head, data)?;
        self.totals.take(iterator, data.len() as u64, checksum).ok_or_else(|| Error::Reply {
            command: "BF.SCANDUMP".to_owned(),
            reply: format!("iterator {iterator} after {}", self.totals.last),
        })
    }

    fn record(&mut self, head: &[u8], data: &[u8]) -> Result<[u8; CHECKSUM], Error> {
        let mut hash = Xxh3::new();
        hash.update(head);
        hash.update(data);
        let checksum = hash.digest().to_le_bytes();
        for bytes in [head, data, &checksum] {
            match &mut self.sink {
                Sink::File(part) => part.write(bytes)?,
                Sink::Stdout => io::stdout().write_all(bytes).or_else(ended_by_reader)?,
            }
        }
        Ok(checksum)
    }

    /// Writes the last record. A file is on disk then, and has its name.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let mut head = vec![END];
        head.extend(self.totals.chunks.to_le_bytes());
        head.extend(self.totals.bytes.to_le_bytes());
        head.extend(self.totals.checksums.digest().to_le_bytes());
        self.record(&head, &[])?;
        match self.sink {
            Sink::File(part) => part.finish(),
            Sink::Stdout => io::stdout().flush().or_else(ended_by_reader),
        }
    }
}

/// A file or a pipe. A read that waits ends by `WouldBlock` if the user asks to stop.
struct Input(File);

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        /// How long a pipe is waited for without a look for Ctrl-C.
        const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&MOMENT)) {
                Ok(0) | Err(Errno::INTR) if interrupt::requested() => {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return self.0.read(buffer),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Reads a dump, and checks every byte of it.
pub(crate) struct Reader {
    input: BufReader<Input>,
    path: PathBuf,
    /// Bytes of the file; `None` of a pipe.
    pub(crate) length: Option<u64>,
    /// Bytes that were read and are right.
    pub(crate) position: u64,
    /// The module that the filter came from.
    pub(crate) product: String,
    /// What was read so far.
    pub(crate) totals: Totals,
}

impl Reader {
    /// Opens a file, and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let (file, metadata) = open_regular(path)?;
        Self::of(file, path, Some(metadata.len()))
    }

    /// Reads the header of what comes from stdin.
    pub(crate) fn of_stdin() -> Result<Self, Error> {
        let path = Path::new("standard input");
        let file = io::stdin().as_fd().try_clone_to_owned().map_err(Error::file(path))?;
        Self::of(file.into(), path, None)
    }

    fn of(file: File, path: &Path, length: Option<u64>) -> Result<Self, Error> {
        let mut reader = Self {
            // The data of chunks bypass this buffer.
            input: BufReader::with_capacity(64, Input(file)),
            path: path.to_owned(),
            length,
            position: 0,
            product: String::new(),
            totals: Totals::default(),
        };
        let mut hash = Xxh3::new();
        let magic: [u8; 8] = reader.array(&mut hash)?;
        if &magic != MAGIC {
            return Err(Error::usage(
                format!("{}: not a file of redis-bloom dump", name::readable_path(path)),
                "Name a file that redis-bloom dump wrote.",
            ));
        }
        let version = u16::from_le_bytes(reader.array(&mut hash)?);
        if version != VERSION {
            return Err(Error::usage(
                format!("{}: version {version} is unknown", name::readable_path(path)),
                "Use the release of redis-bloom that wrote it, or a newer one.",
            ));
        }
        let length = u16::from_le_bytes(reader.array(&mut hash)?);
        let product = reader.data(u64::from(length), &mut hash)?;
        let checksum = reader.checksum(&hash)?;
        reader.product =
            String::from_utf8(product).map_err(|_| reader.damaged("no UTF-8 in the product"))?;
        reader.totals.checksums.update(&checksum);
        reader.position += 8 + 2 + 2 + u64::from(length) + CHECKSUM as u64;
        Ok(reader)
    }

    /// The next chunk; `None` at the end of a complete file.
    pub(crate) fn next(&mut self) -> Result<Option<Chunk>, Error> {
        let mut hash = Xxh3::new();
        let [kind] = self.array(&mut hash)?;
        let (first, second) = (self.number(&mut hash)?, self.number(&mut hash)?);
        match kind {
            CHUNK => {
                let data = self.data(second, &mut hash)?;
                let checksum = self.checksum(&hash)?;
                self.took(first, second, checksum)?;
                Ok(Some(Chunk { iterator: first, data }))
            }
            END => {
                let checksums = self.number(&mut hash)?;
                self.checksum(&hash)?;
                let totals =
                    (self.totals.chunks, self.totals.bytes, self.totals.checksums.digest());
                if (first, second, checksums) != totals {
                    return Err(self.damaged("chunks are missing or were exchanged"));
                }
                self.position += (HEAD + 8 + CHECKSUM) as u64;
                match self.input.read(&mut [0]).map_err(|error| self.unread(error))? {
                    0 => Ok(None),
                    _ => Err(self.damaged("bytes behind the end")),
                }
            }
            _ => Err(self.damaged("no such record")),
        }
    }

    fn took(&mut self, iterator: u64, length: u64, checksum: [u8; CHECKSUM]) -> Result<(), Error> {
        let taken = self.totals.take(iterator, length, checksum);
        taken.ok_or_else(|| self.damaged("chunks are out of order"))?;
        self.position += (HEAD + CHECKSUM) as u64 + length;
        Ok(())
    }

    fn number(&mut self, hash: &mut Xxh3) -> Result<u64, Error> {
        self.array(hash).map(u64::from_le_bytes)
    }

    /// Whether `count` bytes of data are more than a chunk may have, or than the file still has.
    fn exceeds(&self, count: u64) -> bool {
        let rest = self.length.map_or(u64::MAX, |length| length.saturating_sub(self.position));
        count > MAX_DATA.min(rest)
    }

    fn array<const N: usize>(&mut self, hash: &mut Xxh3) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        hash.update(&bytes);
        Ok(bytes)
    }

    fn data(&mut self, count: u64, hash: &mut Xxh3) -> Result<Vec<u8>, Error> {
        if self.exceeds(count) {
            return Err(self.damaged("it ends too early"));
        }
        // For a pipe, no memory is allocated before the bytes are there.
        let mut bytes = Vec::with_capacity(if self.length.is_some() { count as usize } else { 0 });
        let read = (&mut self.input).take(count).read_to_end(&mut bytes);
        if read.map_err(|error| self.unread(error))? as u64 != count {
            return Err(self.damaged("it ends too early"));
        }
        hash.update(&bytes);
        Ok(bytes)
    }

    fn checksum(&mut self, hash: &Xxh3) -> Result<[u8; CHECKSUM], Error> {
        let mut found = [0; CHECKSUM];
        self.fill(&mut found)?;
        if u64::from_le_bytes(found) != hash.digest() {
            return Err(self.damaged("a checksum is wrong"));
        }
        Ok(found)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.input.read_exact(bytes).map_err(|error| self.unread(error))
    }

    fn unread(&self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("it ends too early"),
            io::ErrorKind::WouldBlock => {
                Error::Interrupted { hint: "Nothing was restored.".to_owned() }
            }
            _ => Error::file(&self.path)(error),
        }
    }

    /// The error for bytes that no dump has. They are in the record at the current position.
    pub(crate) fn damaged(&self, what: &str) -> Error {
        let shown = name::readable_path(&self.path);
        Error::usage(
            format!("{shown}: damaged at byte {}: {what}", self.position),
            "The file was cut or changed: use another copy, or dump the filter again.",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKS: [(u64, &[u8]); 3] = [(1, b"header"), (9, b"eight by"), (12, b"end")];

    fn write(path: &Path, chunks: &[(u64, &[u8])]) {
        let mut writer = Writer::create(path, "redis-bloom 0.1.0").unwrap();
        chunks.iter().for_each(|(iterator, data)| writer.push(*iterator, data).unwrap());
        writer.finish().unwrap();
    }

    /// All chunks of a file that is right.
    fn read(path: &Path) -> Result<Vec<Chunk>, Error> {
        let mut reader = Reader::open(path)?;
        let mut chunks = Vec::new();
        while let Some(chunk) = reader.next()? {
            chunks.push(chunk);
        }
        assert_eq!(reader.product, "redis-bloom 0.1.0");
        Ok(chunks)
    }

    #[test]
    fn records_that_were_exchanged_doubled_or_left_out_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump");
        write(&path, &CHUNKS);
        let good = std::fs::read(&path).unwrap();
        let expected = CHUNKS.map(|(iterator, data)| Chunk { iterator, data: data.to_vec() });
        assert_eq!(read(&path).unwrap(), expected);
        // Their own checksums are right.
        let head = 8 + 2 + 2 + 17 + 8;
        let sizes = CHUNKS.map(|(_, data)| HEAD + data.len() + CHECKSUM);
        let (second, third) = (head + sizes[0], head + sizes[0] + sizes[1]);
        let fourth = third + sizes[2];
        for order in [
            [&good[..second], &good[third..]].concat(),
            [&good[..third], &good[fourth..]].concat(),
            [&good[..second], &good[third..fourth], &good[second..third], &good[fourth..]].concat(),
            [&good[..third], &good[second..]].concat(),
        ] {
            std::fs::write(&path, order).unwrap();
            assert!(read(&path).is_err());
        }
    }

    #[test]
    fn iterators_that_do_not_rise_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for wrong in
            [&[(2, &b"x"[..])][..], &[(1, b"x"), (1, b"x")], &[(1, b"x"), (5, b"x"), (5, b"x")]]
        {
            let mut writer = Writer::create(&directory.path().join("dump"), "x").unwrap();
            let all: Result<(), _> =
                wrong.iter().try_for_each(|(iterator, data)| writer.push(*iterator, data));
            assert!(all.is_err(), "{wrong:?}");
        }
    }
}
