//! How far a file is loaded, in a file beside it, so that a load that was killed can go on.
//!
//! ```text
//!   load ──confirmed(offset)──▶ state ──once a second──▶ a new file ──rename──▶ FILE.redis-bloom
//! ```
//!
//! An offset is noted only when every item before it is confirmed, so the journal may be behind,
//! but never ahead. A thread writes the journal: the load never waits for the disk.
//!
//! The first line of a journal says that it is one. A file without that line, a link or anything
//! else under the name of a journal is not ours: it is neither read further nor replaced.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::{fs::OFlags, io::Errno};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::proof::Mark;
use crate::{error::Error, name};

/// Bytes at each end of a file that are hashed.
const END: u64 = 64 << 10;
/// The first line of a journal, before the number of its form.
const MAGIC: &str = "redis-bloom journal ";
/// The form of a journal; others are refused.
const VERSION: u32 = 6;

/// What must be equal when a load goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The filter, with escapes for bytes that are no text.
    key: String,
    /// The number of its database.
    database: i64,
    /// The options that items depend on, in words.
    items: String,
    size: u64,
    /// Nanoseconds of the last change.
    modified: i128,
    /// A hash of the first and the last 64 KiB.
    hash: u64,
}

/// How far a file is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Every item before this byte is in the filter.
    pub(crate) offset: u64,
    /// The number of those items.
    pub(crate) items: u64,
    /// The generations of a sharded filter that have all of them: that which answers, then the next
    /// one.
    pub(crate) generations: Vec<u64>,
    /// What the filter, or each shard of the first generation, has at least; `None` where nothing
    /// is known.
    pub(crate) marks: Vec<Option<Mark>>,
}

#[derive(Serialize, Deserialize)]
struct Content {
    file: Identity,
    position: Position,
}

/// The journal of one file.
pub(crate) struct Journal {
    path: PathBuf,
    /// The file that is loaded, locked: another load of it would write the same journal.
    _lock: File,
    position: Arc<Mutex<Position>>,
    /// Dropped to end the thread.
    open: Option<Sender<()>>,
    writer: Option<JoinHandle<io::Result<()>>>,
}

impl Identity {
    /// Describes an open file. Its position is afterwards at the start.
    pub(crate) fn of(
        file: &mut File,
        (key, database): (&[u8], i64),
        items: String,
    ) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let mut hash = Xxh3::new();
        let mut end = Vec::new();
        for start in [0, metadata.len().saturating_sub(END)] {
            file.seek(SeekFrom::Start(start))?;
            end.clear();
            (&mut *file).take(END).read_to_end(&mut end)?;
            hash.update(&end);
        }
        file.seek(SeekFrom::Start(0))?;
        Ok(Self {
            key: name::readable(key),
            database,
            items,
            size: metadata.len(),
            modified: modified(&metadata),
            hash: hash.digest(),
        })
    }

    /// Whether the file has the size and the time of its last change that it had.
    pub(crate) fn is_unchanged(&self, metadata: &Metadata) -> bool {
        self.size == metadata.len() && self.modified == modified(metadata)
    }

    /// The length of the file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// What differs from the journal of an earlier load; `None` if nothing does.
    fn difference(&self, earlier: &Self) -> Option<String> {
        if earlier.key != self.key {
            Some(format!("its journal belongs to the filter {}", earlier.key))
        } else if earlier.database != self.database {
            Some(format!("its journal belongs to database {}", earlier.database))
        } else if earlier.items != self.items {
            Some(format!("it was loaded with other options: {}", earlier.items))
        } else {
            (earlier != self).then(|| "the file changed since it was loaded".to_owned())
        }
    }
}

fn modified(metadata: &Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

/// The path of a file's journal.
pub(crate) fn path_for(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".redis-bloom");
    name.into()
}

impl Journal {
    /// The position at which an earlier load of this file ended; `None` without a journal, and with
    /// `restart` whatever load a journal is of.
    ///
    /// # Errors
    /// `Error::Usage` for the journal of another load, and for a file that is no journal.
    pub(crate) fn read(
        file: &Path,
        identity: &Identity,
        restart: bool,
    ) -> Result<Option<Position>, Error> {
        let path = path_for(file);
        let text = match own(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(Error::usage(
                    format!("{}: {error}", name::readable_path(&path)),
                    "Give it another name: a load keeps its journal there.",
                ));
            }
            Err(error) => return Err(Error::file(path)(error)),
        };
        let Some(text) = text.filter(|_| !restart) else { return Ok(None) };
        let refused = |why: String| {
            Error::usage(
                format!("{}: {why}", name::readable_path(file)),
                "--restart begins at the start of the file, with a new journal.",
            )
        };
        let content = text.strip_prefix(format!("{MAGIC}{VERSION}\n").as_bytes());
        let content = content
            .ok_or_else(|| refused("its journal is of another release of this program".to_owned()))
            .and_then(|content| {
                serde_json::from_slice::<Content>(content)
                    .map_err(|error| refused(format!("its journal cannot be read: {error}")))
            })?;
        match identity.difference(&content.file) {
            // Nothing is loaded.
            _ if content.position.offset == 0 => Ok(None),
            Some(why) => Err(refused(why)),
            None => Ok(Some(content.position)),
        }
    }

    /// Locks the file that is loaded, writes the journal at `position`, and starts the thread that
    /// keeps it. If it cannot be written later, the old one stays, `failed` is told once, and the
    /// thread goes on trying.
    ///
    /// # Errors
    /// `WouldBlock` if another process loads the file.
    pub(crate) fn start(
        path: PathBuf,
        (loaded, file): (File, Identity),
        position: Position,
        every: Duration,
        failed: impl Fn(&io::Error) + Send + 'static,
    ) -> io::Result<Self> {
        match loaded.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            // A file system without locks has none for the other load either.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        write(&path, &Content { file: file.clone(), position: position.clone() })?;
        let state = Arc::new(Mutex::new(position.clone()));
        let (open, closed) = channel::<()>();
        let writer = {
            let (path, state) = (path.clone(), Arc::clone(&state));
            thread::spawn(move || {
                let mut written = position;
                let mut told = false;
                loop {
                    let ended = closed.recv_timeout(every) != Err(RecvTimeoutError::Timeout);
                    let position = locked(&state).clone();
                    if position != written {
                        let content = Content { file: file.clone(), position };
                        match write(&path, &content) {
                            Ok(()) => written = content.position,
                            Err(error) if ended => return Err(error),
                            Err(error) if !told => {
                                told = true;
                                failed(&error);
                            }
                            Err(_) => {}
                        }
                    }
                    if ended {
                        return Ok(());
                    }
                }
            })
        };
        Ok(Self { path, _lock: loaded, position: state, open: Some(open), writer: Some(writer) })
    }

    /// Notes that `items` more items are confirmed, up to `offset`.
    pub(crate) fn advance(&self, items: u64, offset: u64) {
        let mut position = locked(&self.position);
        position.items += items;
        position.offset = offset;
    }

    /// Notes which generations have the items, and what the filter or its shards have.
    pub(crate) fn describe(&self, generations: &[u64], marks: &[Option<Mark>]) {
        let mut position = locked(&self.position);
        position.generations.clear();
        position.generations.extend(generations);
        position.marks.clear();
        position.marks.extend_from_slice(marks);
    }

    /// Writes the last position, and ends the thread. The file stays.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        self.open = None;
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let written = writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer failed")));
        written.map_err(Error::file(&self.path))
    }

    /// Removes the file.
    pub(crate) fn remove(mut self) -> Result<(), Error> {
        // A journal that could not be written is removed, too.
        let _ = self.close();
        let removed = match own(&self.path) {
            Ok(Some(_)) => fs::remove_file(&self.path),
            found => found.map(|_| ()),
        };
        removed.map_err(Error::file(&self.path))
    }
}

fn locked(state: &Mutex<Position>) -> MutexGuard<'_, Position> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of a journal; `None` if there is no file.
///
/// # Errors
/// `InvalidData` for what is no journal.
fn own(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let foreign = || io::Error::new(io::ErrorKind::InvalidData, "not a journal of this program");
    // Neither a link is followed, nor a pipe waited for.
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
    let directory = path.parent().filter(|directory| *directory != Path::new(""));
    let mut new = tempfile::NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
    writeln!(new, "{MAGIC}{VERSION}")?;
    serde_json::to_writer(&new, content)?;
    new.write_all(b"\n")?;
    new.as_file().sync_all()?;
    new.persist(path).map(|_| ()).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::super::proof::{Process, Seen};
    use super::*;
    use crate::connection::Info;

    #[test]
    fn a_changed_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("items");
        let identity = || {
            let mut file = File::open(&path).unwrap();
            Identity::of(&mut file, (b"urls", 0), "lines".to_owned()).unwrap()
        };
        fs::write(&path, vec![b'a'; 300_000]).unwrap();
        let first = identity();
        let journal = path_for(&path);
        let read = |identity: &Identity| Journal::read(&path, identity, false);
        assert_eq!(read(&first).unwrap(), None);
        let start = || {
            let loaded = (File::open(&path).unwrap(), first.clone());
            let (journal, start) = (journal.clone(), Position::default());
            Journal::start(journal, loaded, start, Duration::MAX, |_| ())
        };
        let mut kept = start().unwrap();
        let second = start().map(|_| ()).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock, "another load has the file");
        kept.advance(2, 7);
        let process = Process::of(Some(&Info("run_id:process".to_owned())), 0);
        let seen = Seen { identity: Some("f".to_owned()), items: Some(5), process };
        let marks = vec![None, Some(Mark::of(&seen))];
        kept.describe(&[3], &marks);
        kept.close().unwrap();
        let position = Position { offset: 7, items: 2, generations: vec![3], marks };
        assert_eq!(read(&first).unwrap(), Some(position));

        let why = |identity| {
            assert_eq!(Journal::read(&path, &identity, true).unwrap(), None);
            read(&identity).unwrap_err().to_string()
        };
        let changes: [fn(&mut Vec<u8>); 4] = [
            |bytes| bytes[0] = b'b',
            |bytes| bytes[299_999] = b'b',
            |bytes| bytes.push(b'b'),
            |bytes| bytes.truncate(200_000),
        ];
        for change in changes {
            let mut bytes = vec![b'a'; 300_000];
            change(&mut bytes);
            fs::write(&path, bytes).unwrap();
            // Equal times must not hide what the hash and the size show.
            let mut changed = identity();
            changed.modified = first.modified;
            assert!(why(changed).contains("the file changed"));
        }
        fs::write(&journal, format!("{MAGIC}{VERSION}\n{{")).unwrap();
        assert!(why(first.clone()).contains("cannot be read"));
        fs::write(&journal, format!("{MAGIC}99\n{{}}")).unwrap();
        assert!(why(first).contains("another release"));
    }

    #[test]
    fn a_journal_is_written_again_when_there_is_room_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("items");
        fs::write(&path, "a\nb\n").unwrap();
        let mut loaded = File::open(&path).unwrap();
        let file = Identity::of(&mut loaded, (b"urls", 0), String::new()).unwrap();
        let journal = path_for(&path);
        let (sender, failures) = channel();
        let every = Duration::from_millis(1);
        let start = Position { offset: 1, ..Position::default() };
        let failed = move |error: &io::Error| drop(sender.send(error.to_string()));
        let both = (loaded, file.clone());
        let mut kept = Journal::start(journal.clone(), both, start, every, failed).unwrap();
        // A directory in the place of the journal is an error as a full disk is.
        fs::remove_file(&journal).unwrap();
        fs::create_dir(&journal).unwrap();
        kept.advance(1, 2);
        let position = Position { offset: 2, items: 1, ..Position::default() };
        failures.recv().expect("the failure is told");
        fs::remove_dir(&journal).unwrap();
        while Journal::read(&path, &file, false).unwrap().as_ref() != Some(&position) {
            thread::sleep(every);
        }
        kept.close().unwrap();
        assert!(failures.recv().is_err(), "it is told once");
        kept.remove().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the items are left");
    }
}
