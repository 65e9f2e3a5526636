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
//!   │ \n      │ 1, u16  │ u16    │ UTF-8       │         │      product: redis-bloom 0.1.0
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
//! A file is written as `FILE.part` and renamed when it is complete and on disk. Only its owner may
//! read it: chunks of this module hold the filter's seed.

use std::{
    fmt::Display,
    fs::{File, Metadata, OpenOptions, Permissions},
    io::{self, BufReader, Read, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, io::Errno, process::geteuid};
use xxhash_rust::xxh3::Xxh3;

use crate::{error::Error, name};

/// The first bytes of a file.
pub(crate) const MAGIC: &[u8; 8] = b"rb-dump\n";
const VERSION: u16 = 1;
const CHUNK: u8 = b'C';
const END: u8 = b'E';
/// The longest data of a chunk: what a server takes as one argument. Chunks have 16 MiB and, in the
/// header of a filter of very many layers, 32 bytes a layer.
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

/// What the last record tells.
#[derive(Clone, Default)]
struct Totals {
    chunks: u64,
    bytes: u64,
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

/// Writes a dump to `FILE.part`.
pub(crate) struct Writer {
    file: File,
    path: PathBuf,
    part: PathBuf,
    totals: Totals,
}

/// What an interrupted dump left.
pub(crate) struct Resumed {
    pub(crate) writer: Writer,
    /// The first chunk: the filter's header.
    pub(crate) header: Vec<u8>,
    /// The last chunk; empty if there is none but the header.
    pub(crate) last: Vec<u8>,
}

impl Writer {
    /// Begins a file.
    pub(crate) fn create(path: &Path, product: &str) -> Result<Self, Error> {
        let part = part_of(path);
        let mut writer = Self {
            file: open_part(path, &part)?,
            path: path.to_owned(),
            part,
            totals: Totals::default(),
        };
        writer.file.set_len(0).map_err(Error::file(&writer.part))?;
        let product = &product.as_bytes()[..product.len().min(usize::from(u16::MAX))];
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_le_bytes());
        head.extend((product.len() as u16).to_le_bytes());
        head.extend(product);
        let checksum = writer.record(&head, &[])?;
        writer.totals.checksums.update(&checksum);
        Ok(writer)
    }

    /// Goes on with what an interrupted dump left. `None` if there is nothing to go on with.
    pub(crate) fn resume(path: &Path) -> Result<Option<Resumed>, Error> {
        let part = part_of(path);
        if !part.exists() {
            return Ok(None);
        }
        let file = open_part(path, &part)?;
        // A killed dump may have left a part of a record: the file ends before it.
        let Ok(mut reader) = Reader::open(&part) else { return Ok(None) };
        let Ok(Some(header)) = reader.next() else { return Ok(None) };
        // A dump that was killed before the rename left the last record, too: it is written again.
        let (mut end, mut last) = (reader.position(), Vec::new());
        while let Ok(Some(chunk)) = reader.next() {
            (end, last) = (reader.position(), chunk.data);
        }
        let mut writer = Self { file, path: path.to_owned(), part, totals: reader.totals };
        writer
            .file
            .set_len(end)
            .and_then(|()| writer.file.seek(SeekFrom::End(0)))
            .map_err(Error::file(&writer.part))?;
        Ok(Some(Resumed { writer, header: header.data, last }))
    }

    /// The iterator of the last chunk.
    pub(crate) fn last(&self) -> u64 {
        self.totals.last
    }

    /// Chunks so far.
    pub(crate) fn chunks(&self) -> u64 {
        self.totals.chunks
    }

    /// Bytes of data so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.totals.bytes
    }

    /// The checksum of the checksums so far, as [`Reader::checksums`].
    pub(crate) fn checksums(&self) -> u64 {
        self.totals.checksums.digest()
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
        let written = [head, data, &checksum].iter().try_for_each(|part| self.file.write_all(part));
        written.map_err(unwritten(&self.part, RESUME))?;
        Ok(checksum)
    }

    /// Writes the last record, waits until the file is on disk, and gives it its name.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let mut head = vec![END];
        head.extend(self.totals.chunks.to_le_bytes());
        head.extend(self.totals.bytes.to_le_bytes());
        head.extend(self.totals.checksums.digest().to_le_bytes());
        self.record(&head, &[])?;
        // Nobody knows which bytes are on disk after an error.
        let again = "Dump it again without --resume, to another disk.";
        self.file.sync_all().map_err(unwritten(&self.part, again))?;
        // Somebody else may have taken the name meanwhile.
        may_write(&self.path)?;
        std::fs::rename(&self.part, &self.path).map_err(Error::file(&self.path))?;
        let directory = match self.path.parent() {
            Some(directory) if directory != Path::new("") => directory,
            _ => Path::new("."),
        };
        // The name must be on disk, too.
        File::open(directory).and_then(|file| file.sync_all()).map_err(Error::file(directory))
    }

    /// Removes what was written: nothing of it can be used.
    pub(crate) fn discard(self) -> Result<(), Error> {
        std::fs::remove_file(&self.part).map_err(Error::file(&self.part))
    }
}

/// What to do after an error that leaves a part of a dump.
pub(crate) const RESUME: &str = "dump --resume goes on from here.";

/// The error of a file that cannot be written on: a full disk is no wrong name.
fn unwritten<'a>(part: &'a Path, hint: &'a str) -> impl FnOnce(io::Error) -> Error + 'a {
    move |error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            incomplete(part, &error, hint)
        }
        _ if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
            incomplete(part, &error, hint)
        }
        _ => Error::file(part)(error),
    }
}

fn incomplete(part: &Path, error: &io::Error, hint: &str) -> Error {
    let what = format!("{}: {error}", name::readable_path(part));
    Error::incomplete(what, hint.to_owned())
}

/// Whether there is a part of a dump that `--resume` goes on with.
pub(crate) fn has_part(path: &Path) -> bool {
    part_of(path).exists()
}

/// The name of a file that is not complete.
fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// Checks that a dump may take this name: that of no file or of an older dump.
///
/// # Errors
/// `Error::Usage` for what is not to be overwritten.
pub(crate) fn may_write(path: &Path) -> Result<(), Error> {
    let shown = name::readable_path(path);
    if path == Path::new("-") {
        return Err(Error::usage(
            "a dump cannot go to standard output: it gets its name when it is complete",
            "Name a file.",
        ));
    }
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    // A rename would replace a device such as /dev/null by a file.
    if !metadata.is_file() {
        let what = format!("{shown}: not a regular file");
        return Err(Error::usage(what, "Name a file: it is written beside, then renamed."));
    }
    must_begin(&File::open(path).map_err(Error::file(path))?, path, MAGIC, MAGIC.len())
}

/// Checks that the open file has this start, as far as it goes, and `least` bytes of it.
///
/// # Errors
/// `Error::Usage` for the content of somebody else.
fn must_begin(file: &File, path: &Path, start: &[u8], least: usize) -> Result<(), Error> {
    let mut found = Vec::new();
    let mut reader = file;
    let read = reader.seek(SeekFrom::Start(0)).and_then(|_| {
        reader.take(start.len() as u64).read_to_end(&mut found)?;
        reader.seek(SeekFrom::Start(0))
    });
    read.map_err(Error::file(path))?;
    if start.starts_with(&found) && found.len() >= least {
        return Ok(());
    }
    let what = format!("{}: it exists, and is no dump of a filter", name::readable_path(path));
    Err(Error::usage(what, "Name another file, or remove this one."))
}

/// Checks that the file at `path` is one of this program, with this start, that may be removed.
///
/// # Errors
/// `Error::Usage` for a file of somebody else.
pub(crate) fn must_be_own(path: &Path, start: &[u8]) -> Result<(), Error> {
    must_begin(&open_own(OpenOptions::new().read(true), path)?, path, start, 0)
}

/// Opens a file that can be read again from its start. A pipe is not waited for.
///
/// # Errors
/// `Error::Usage` for anything but a regular file.
pub(crate) fn open_regular(path: &Path) -> Result<(File, Metadata), Error> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(Error::file(path))?;
    let metadata = file.metadata().map_err(Error::file(path))?;
    if metadata.is_file() {
        return Ok((file, metadata));
    }
    let what = format!("{}: not a regular file", name::readable_path(path));
    Err(Error::usage(what, "Name a file that redis-bloom dump wrote: it is read more than once."))
}

/// Opens a regular file of this user, if that is at `path`.
fn open_own(options: &mut OpenOptions, path: &Path) -> Result<File, Error> {
    // A link here may have been made by somebody who wants another file to be overwritten. A pipe
    // is not waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = options.custom_flags(flags.bits().cast_signed()).open(path);
    let metadata = match &opened {
        Ok(file) => file.metadata(),
        Err(_) => path.symlink_metadata(),
    };
    match metadata {
        Ok(found) if !found.is_file() || found.uid() != geteuid().as_raw() => {
            let shown = name::readable_path(path);
            let what = format!("{shown}: not a regular file of this user");
            Err(Error::usage(what, "Remove it, or name another file."))
        }
        _ => opened.map_err(Error::file(path)),
    }
}

/// Opens `FILE.part` for this program alone.
fn open_part(path: &Path, part: &Path) -> Result<File, Error> {
    may_write(path)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = open_own(&mut options, part)?;
    // A dump that was killed may have written nothing.
    must_begin(&file, part, MAGIC, 0)?;
    lock(&file, part)?;
    Ok(file)
}

/// Makes the open file, which must be the one at `part`, private and this program's alone.
fn lock(file: &File, part: &Path) -> Result<(), Error> {
    let shown = name::readable_path(part);
    let taken = |what: &dyn Display| {
        let hint = "Another dump to this file is under way: wait, or name another file.";
        Error::usage(format!("{shown}: {what}"), hint)
    };
    file.try_lock().map_err(|error| taken(&error))?;
    let metadata = file.metadata().map_err(Error::file(part))?;
    // The lock may be that of a file that another dump has completed and renamed meanwhile.
    let same = |found: &Metadata| (found.dev(), found.ino()) == (metadata.dev(), metadata.ino());
    if !part.symlink_metadata().is_ok_and(|found| same(&found)) {
        return Err(taken(&"it was renamed or removed"));
    }
    // The mode of a file that was there already.
    file.set_permissions(Permissions::from_mode(0o600)).map_err(Error::file(part))
}

/// Reads a dump, and checks every byte of it.
pub(crate) struct Reader {
    input: BufReader<File>,
    path: PathBuf,
    /// Bytes of the file.
    length: u64,
    /// Bytes that were read and are right.
    position: u64,
    product: String,
    totals: Totals,
}

impl Reader {
    /// Opens a file, and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let (file, metadata) = open_regular(path)?;
        let mut reader = Self {
            // Data of chunks are read past this buffer.
            input: BufReader::with_capacity(64, file),
            path: path.to_owned(),
            length: metadata.len(),
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
        let product = reader.bytes(u64::from(length), &mut hash)?;
        let checksum = reader.checksum(&hash)?;
        reader.product =
            String::from_utf8(product).map_err(|_| reader.damaged("no UTF-8 in the product"))?;
        // A terminal obeys some of them.
        if reader.product.contains(char::is_control) {
            return Err(reader.damaged("control characters in the product"));
        }
        reader.totals.checksums.update(&checksum);
        reader.position += 8 + 2 + 2 + u64::from(length) + CHECKSUM as u64;
        Ok(reader)
    }

    /// The module that the filter came from.
    pub(crate) fn product(&self) -> &str {
        &self.product
    }

    /// Bytes of the file.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes that were read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The checksum of the checksums so far: two equal files have equal ones.
    pub(crate) fn checksums(&self) -> u64 {
        self.totals.checksums.digest()
    }

    /// The next chunk; `None` at the end of a complete file.
    pub(crate) fn next(&mut self) -> Result<Option<Chunk>, Error> {
        let mut hash = Xxh3::new();
        let [kind] = self.array(&mut hash)?;
        let (first, second): ([u8; 8], [u8; 8]) = (self.array(&mut hash)?, self.array(&mut hash)?);
        let (first, second) = (u64::from_le_bytes(first), u64::from_le_bytes(second));
        match kind {
            CHUNK => {
                let data = self.bytes(second, &mut hash)?;
                let checksum = self.checksum(&hash)?;
                let taken = self.totals.take(first, second, checksum);
                taken.ok_or_else(|| self.damaged("chunks are out of order"))?;
                self.position += (HEAD + CHECKSUM) as u64 + second;
                Ok(Some(Chunk { iterator: first, data }))
            }
            END => {
                let checksums = u64::from_le_bytes(self.array(&mut hash)?);
                self.checksum(&hash)?;
                let totals = (self.totals.chunks, self.totals.bytes, self.checksums());
                if (first, second, checksums) != totals {
                    return Err(self.damaged("chunks are missing or were exchanged"));
                }
                self.position += (HEAD + 8 + CHECKSUM) as u64;
                if self.position != self.length {
                    return Err(self.damaged("bytes behind the end"));
                }
                Ok(None)
            }
            _ => Err(self.damaged("no such record")),
        }
    }

    fn array<const N: usize>(&mut self, hash: &mut Xxh3) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        hash.update(&bytes);
        Ok(bytes)
    }

    fn bytes(&mut self, count: u64, hash: &mut Xxh3) -> Result<Vec<u8>, Error> {
        // Before memory is taken for them.
        if count > MAX_DATA || count > self.length - self.position {
            return Err(self.damaged("it ends too early"));
        }
        let mut bytes = vec![0; count as usize];
        self.fill(&mut bytes)?;
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
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("it ends too early"),
            _ => Error::file(&self.path)(error),
        })
    }

    /// The error for what no dump holds; it is in the record at the position.
    fn damaged(&self, what: &str) -> Error {
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
    use crate::error::Exit;

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
        assert_eq!(reader.product(), "redis-bloom 0.1.0");
        Ok(chunks)
    }

    #[test]
    fn every_damage_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump");
        write(&path, &CHUNKS);
        let good = std::fs::read(&path).unwrap();
        let expected = CHUNKS.map(|(iterator, data)| Chunk { iterator, data: data.to_vec() });
        assert_eq!(read(&path).unwrap(), expected);
        for at in 0..good.len() {
            for mask in [1, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= mask;
                std::fs::write(&path, bad).unwrap();
                assert!(read(&path).is_err(), "byte {at} xor {mask}");
            }
            std::fs::write(&path, &good[..at]).unwrap();
            assert!(read(&path).is_err(), "the first {at} bytes");
        }
        let mut longer = good.clone();
        longer.push(0);
        std::fs::write(&path, longer).unwrap();
        assert!(read(&path).is_err(), "a byte more");
        // Whole records that were exchanged, doubled or left out: their own checksums are right.
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
    fn a_part_of_a_file_is_continued() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump");
        write(&path, &CHUNKS);
        let good = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let first = 8 + 2 + 2 + 17 + 8 + HEAD + 6 + CHECKSUM;
        for length in 0..=good.len() {
            std::fs::write(part_of(&path), &good[..length]).unwrap();
            let Some(Resumed { mut writer, header, .. }) = Writer::resume(&path).unwrap() else {
                assert!(length < first, "{length} bytes have the first chunk");
                continue;
            };
            assert_eq!(header, b"header");
            let last = writer.last();
            for (iterator, data) in CHUNKS.iter().filter(|(iterator, _)| *iterator > last) {
                writer.push(*iterator, data).unwrap();
            }
            assert_eq!((writer.chunks(), writer.bytes()), (3, 17));
            writer.finish().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), good, "{length} bytes");
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn files_are_private_locked_and_regular() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump");
        let writer = Writer::create(&path, "x").unwrap();
        let refused = Writer::create(&path, "x").err().unwrap();
        assert!(refused.hint().starts_with("Another dump"), "{refused}");
        writer.finish().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!part_of(&path).exists());
        assert!(Writer::create(Path::new("/dev/null"), "x").is_err());
        assert!(!Path::new("/dev/null.part").exists());
        assert!(Writer::resume(&path).unwrap().is_none());
    }

    /// Another dump may rename its file between the open and the lock of this one.
    #[test]
    fn a_file_that_was_renamed_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump");
        let part = part_of(&path);
        let writer = Writer::create(&path, "x").unwrap();
        let opened = File::open(&part).unwrap();
        writer.finish().unwrap();
        assert!(lock(&opened, &part).err().unwrap().hint().starts_with("Another dump"));
        // Nor if a new file has the name now.
        std::fs::write(&part, "").unwrap();
        assert!(lock(&opened, &part).is_err());
        assert!(lock(&File::open(&part).unwrap(), &part).is_ok());
    }

    #[test]
    fn files_that_were_there_become_private_and_links_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump");
        let part = part_of(&path);
        for resumed in [false, true] {
            std::fs::write(&part, "").unwrap();
            std::fs::set_permissions(&part, Permissions::from_mode(0o666)).unwrap();
            if resumed {
                assert!(Writer::resume(&path).unwrap().is_none());
            } else {
                drop(Writer::create(&path, "x").unwrap());
            }
            assert_eq!(part.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{resumed}");
        }
        std::fs::remove_file(&part).unwrap();
        let other = directory.path().join("other");
        std::fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, &part).unwrap();
        assert!(Writer::create(&path, "x").is_err());
        assert!(Writer::resume(&path).is_err());
        assert_eq!(std::fs::read(&other).unwrap(), b"precious");
        std::fs::remove_file(&part).unwrap();
        // The content of somebody else stays.
        std::fs::write(&part, "precious").unwrap();
        for refused in [Writer::create(&path, "x").err(), Writer::resume(&path).err()] {
            let refused = refused.expect("it is refused").to_string();
            assert!(refused.ends_with("dump.part: it exists, and is no dump of a filter"));
        }
        assert_eq!(std::fs::read(&part).unwrap(), b"precious");
        // Only root can give a file away.
        std::fs::write(&part, "").unwrap();
        if std::os::unix::fs::chown(&part, Some(65_534), None).is_ok() {
            assert!(Writer::create(&path, "x").is_err(), "another user's file");
        }
    }

    #[test]
    fn a_name_that_was_taken_during_the_dump_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump");
        let mut writer = Writer::create(&path, "x").unwrap();
        writer.push(1, b"header").unwrap();
        std::fs::write(&path, "precious").unwrap();
        assert!(writer.finish().is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert!(part_of(&path).exists());
    }

    #[test]
    fn a_full_disk_leaves_what_is_resumed() {
        for number in [Errno::NOSPC, Errno::DQUOT, Errno::FBIG, Errno::IO] {
            let error = io::Error::from_raw_os_error(number.raw_os_error());
            let error = unwritten(Path::new("dump.part"), RESUME)(error);
            assert_eq!((error.exit(), error.hint()), (Exit::Incomplete, RESUME), "{number}");
        }
        let error = unwritten(Path::new("dump.part"), RESUME)(io::ErrorKind::NotFound.into());
        assert_eq!(error.exit(), Exit::Usage);
    }

    /// What a terminal would obey: ESC in the name of the module.
    #[test]
    fn a_product_has_no_control_characters() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump");
        let mut writer = Writer::create(&path, "x\x1b[2J").unwrap();
        writer.push(1, b"header").unwrap();
        writer.finish().unwrap();
        let refused = Reader::open(&path).err().unwrap().to_string();
        assert!(refused.ends_with("control characters in the product"), "{refused}");
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
