//! How far a file is loaded, in a file beside it, so that a load that was killed can be resumed.
//!
//! ```text
//!   load ──confirmed──▶ position ──once a second──▶ a new file ──rename──▶ FILE.redis-bloom
//! ```
//!
//! An offset is noted only when every item before it is confirmed, so the journal may be behind,
//! but never ahead.
//!
//! The first line identifies a journal. A file without that line, a link or anything else under the
//! name of a journal is not ours: it is neither read further nor replaced.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bloom::filter::checksum;
use rustix::{fs::OFlags, io::Errno};
use serde::{Deserialize, Serialize};

use super::proof::Mark;
use crate::{error::Error, name, output::Output, part_file::directory_of};

/// The first line of a journal, before the number of its form.
const MAGIC: &str = "redis-bloom journal ";
/// The form of a journal; others are refused.
const VERSION: u32 = 8;
/// Bytes at each end of a file that are hashed.
const END: u64 = 1 << 16;

/// What must be equal when a load is resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The filter, its database and the options that items depend on, in words.
    load: String,
    size: u64,
    /// Nanoseconds of the last change.
    modified: i128,
    /// A hash of the first and the last 64 KiB: another file may have the same size and time, if it
    /// was copied to this name.
    ends: u64,
}

/// How far a file is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Every item before this byte is in the filter.
    pub(crate) offset: u64,
    /// The number of those items.
    pub(crate) items: u64,
    /// The generation of a sharded filter that has all of them, 0 for a filter in one key; `None`
    /// if another one came during the load.
    pub(crate) generation: Option<u64>,
    /// What the filter, or each shard of the first generation, has at least; `None` where nothing
    /// is known.
    pub(crate) marks: Vec<Option<Mark>>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Content {
    file: Identity,
    position: Position,
}

/// The journal of one file.
pub(crate) struct Journal {
    path: PathBuf,
    /// The file that is loaded, locked: another load of it would write the same journal.
    _lock: File,
    content: Content,
    /// Whether the generation and the marks in the content belong to its offset.
    described: bool,
    /// The offset on the disk, and when it was written.
    written: (u64, Instant),
    every: Duration,
    /// Where to report, once, that the journal cannot be written.
    output: Option<Output>,
}

impl Identity {
    /// Describes a file; `load` says how it is loaded.
    pub(crate) fn of(file: &File, load: String) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let (size, modified) = size_and_time(&metadata);
        let mut ends = Vec::new();
        for start in [0, size.saturating_sub(END)] {
            let mut end = vec![0; size.min(END) as usize];
            file.read_exact_at(&mut end, start)?;
            ends.append(&mut end);
        }
        Ok(Self { load, size, modified, ends: checksum(&ends) })
    }

    /// Whether the file has the size and the time of its last change that it had.
    pub(crate) fn is_unchanged(&self, metadata: &Metadata) -> bool {
        (self.size, self.modified) == size_and_time(metadata)
    }

    /// The length of the file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }
}

fn size_and_time(metadata: &Metadata) -> (u64, i128) {
    let seconds = i128::from(metadata.mtime());
    (metadata.len(), seconds * 1_000_000_000 + i128::from(metadata.mtime_nsec()))
}

/// The path of a file's journal.
pub(crate) fn path_for(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".redis-bloom");
    name.into()
}

impl Journal {
    /// The position at which an earlier load of this file ended; `None` without a journal, and if
    /// this load does not `resume` it.
    ///
    /// # Errors
    /// `Error::usage` for the journal of another load, and for a file that is no journal.
    pub(crate) fn read(
        file: &Path,
        identity: &Identity,
        resume: bool,
    ) -> Result<Option<Position>, Error> {
        let path = path_for(file);
        let Some(text) = own(&path).map_err(|error| unusable(&path, error))? else {
            return Ok(None);
        };
        let refused = |why: String| {
            Error::usage(
                format!("{}: {why}", name::readable_path(file)),
                format!("Remove {} to load the file from its beginning.", path.display()),
            )
        };
        let content = text.strip_prefix(format!("{MAGIC}{VERSION}\n").as_bytes());
        let content = content
            .ok_or_else(|| refused("its journal is of another release of this program".to_owned()))
            .and_then(|content| {
                serde_json::from_slice::<Content>(content)
                    .map_err(|error| refused(format!("its journal cannot be read: {error}")))
            })?;
        let (now, then) = (&identity.load, &content.file.load);
        match content.position {
            // Nothing is loaded.
            Position { offset: 0, .. } => Ok(None),
            _ if now != then => {
                Err(refused(format!("its journal is of another load: {then}; not {now}")))
            }
            _ if !resume => Ok(None),
            _ if content.file != *identity => {
                Err(refused("the file changed since it was loaded".to_owned()))
            }
            position => Ok(Some(position)),
        }
    }

    /// Locks the file that is loaded, and writes the journal at `position`. If it cannot be written
    /// later, the old one stays, `output` says so once, and it is tried again.
    ///
    /// # Errors
    /// `WouldBlock` if another process loads the file, or this one as another input.
    pub(crate) fn start(
        file: &Path,
        (loaded, identity): (File, Identity),
        position: Position,
        every: Duration,
        output: &Output,
    ) -> io::Result<Self> {
        match loaded.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            // A file system without locks has none for the other load either.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let written = (position.offset, Instant::now());
        let (path, content) = (path_for(file), Content { file: identity, position });
        write(&path, &content)?;
        Ok(Self {
            path,
            _lock: loaded,
            content,
            described: true,
            written,
            every,
            output: Some(*output),
        })
    }

    /// Notes that `items` more items are confirmed, up to `offset`.
    pub(crate) fn advance(&mut self, items: u64, offset: u64) {
        self.content.position.items += items;
        self.content.position.offset = offset;
        self.described = false;
    }

    /// Notes which generation has the items, and what the filter or its shards have, if items were
    /// confirmed since that was noted.
    pub(crate) fn describe(&mut self, generation: Option<u64>, marks: &[Option<Mark>]) {
        if !self.described {
            let position = &mut self.content.position;
            position.generation = generation;
            position.marks = marks.to_vec();
            self.described = true;
        }
    }

    /// Writes the journal if it is time, after [`Self::describe`].
    pub(crate) fn keep(&mut self, generation: Option<u64>, marks: &[Option<Mark>]) {
        if self.written.1.elapsed() < self.every {
            return;
        }
        self.describe(generation, marks);
        if let Err(error) = self.save()
            && let Some(output) = self.output.take()
        {
            let path = self.path.display();
            output.remark(format_args!("{path}: {error}; an older journal stays"));
        }
    }

    fn save(&mut self) -> io::Result<()> {
        self.written.1 = Instant::now();
        write(&self.path, &self.content)?;
        self.written.0 = self.content.position.offset;
        Ok(())
    }

    /// Writes the last position. The file stays.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        match self.written.0 == self.content.position.offset {
            true => Ok(()),
            false => self.save().map_err(Error::file(&self.path)),
        }
    }

    /// Removes the file.
    pub(crate) fn remove(self) -> Result<(), Error> {
        let removed = match own(&self.path) {
            Ok(Some(_)) => fs::remove_file(&self.path),
            found => found.map(|_| ()),
        };
        removed.map_err(Error::file(&self.path))
    }
}

/// The error for a journal that cannot be read or written.
pub(crate) fn unusable(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData => Error::usage(
            format!("{}: {error}", name::readable_path(path)),
            "Give it another name: a load keeps its journal there.",
        ),
        _ => Error::file(path)(error),
    }
}

/// The bytes of a journal; `None` if there is no file.
///
/// # Errors
/// `InvalidData` for what is no journal.
fn own(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let foreign = || io::Error::new(io::ErrorKind::InvalidData, "not a journal of this program");
    // This follows no link, and does not wait for a pipe.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(foreign());
        }
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Err(foreign());
    }
    let mut text = Vec::new();
    (&mut file).take(MAGIC.len() as u64).read_to_end(&mut text)?;
    if text != MAGIC.as_bytes() {
        return Err(foreign());
    }
    file.read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Replaces the journal as a whole: a crash leaves the old one or the new one.
fn write(path: &Path, content: &Content) -> io::Result<()> {
    own(path)?;
    let mut new = tempfile::NamedTempFile::new_in(directory_of(path))?;
    writeln!(new, "{MAGIC}{VERSION}")?;
    serde_json::to_writer(&new, content)?;
    new.write_all(b"\n")?;
    new.as_file().sync_all()?;
    new.persist(path).map(|_| ()).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Options;

    /// A directory in the place of the journal is an error as a full disk is.
    #[test]
    fn a_journal_is_written_again_when_there_is_room_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("items");
        fs::write(&path, "a\nb\n").unwrap();
        let loaded = File::open(&path).unwrap();
        let identity = Identity::of(&loaded, String::new()).unwrap();
        let read =
            || Journal::read(&path, &identity, true).unwrap().map(|position| position.offset);
        let output = Output::new(Options { json: false, quiet: true });
        let (both, start) = ((loaded, identity.clone()), Position::default());
        let mut kept = Journal::start(&path, both, start, Duration::ZERO, &output).unwrap();
        let journal = path_for(&path);
        fs::remove_file(&journal).unwrap();
        fs::create_dir(&journal).unwrap();
        kept.advance(1, 2);
        kept.keep(None, &[]);
        assert!(kept.output.is_none(), "it is told");
        fs::remove_dir(&journal).unwrap();
        kept.keep(None, &[]);
        assert_eq!(read(), Some(2));
        fs::write(&journal, format!("{MAGIC}99\n{{}}")).unwrap();
        let other = Journal::read(&path, &identity, true).unwrap_err().to_string();
        assert!(other.contains("another release"), "{other}");
        kept.remove().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the items are left");
    }
}
