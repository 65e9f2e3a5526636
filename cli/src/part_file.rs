//! `FILE.part`: a file that is written, and gets its name when it is complete and on disk. Only its
//! owner may read it: chunks of a filter hold the filter's seed.
//!
//! Nothing of somebody else is overwritten or renamed: not through a link, not in a file of another
//! kind, not under another dump, which holds the lock, and not if the file at the name has changed.

use std::{
    fmt::Display,
    fs::{File, Metadata, OpenOptions, Permissions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, io::Errno, process::geteuid};

use crate::{error::Error, name};

/// The first bytes of a dump.
pub(crate) const MAGIC: &[u8; 8] = b"rb-dump\n";

/// What to do after an error that leaves a part of a dump.
pub(crate) const RESUME: &str = "dump --resume goes on from here.";

/// A file that is being written.
pub(crate) struct Part {
    file: File,
    path: PathBuf,
    part: PathBuf,
}

impl Part {
    /// Opens `FILE.part` for this program alone, with what it has.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let part = part_of(path);
        may_write(path)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = open_own(&mut options, &part)?;
        // A dump that was killed may have written nothing.
        must_begin(&file, &part, MAGIC, 0)?;
        lock(&file, &part)?;
        Ok(Self { file, path: path.to_owned(), part })
    }

    /// Whether there is a part of a dump that `--resume` goes on with.
    pub(crate) fn is_there(path: &Path) -> bool {
        part_of(path).exists()
    }

    /// The name until it is complete.
    pub(crate) fn part(&self) -> &Path {
        &self.part
    }

    /// Leaves the first bytes, and goes on behind them.
    pub(crate) fn cut(&mut self, length: u64) -> Result<(), Error> {
        let cut = self.file.set_len(length).and_then(|()| self.file.seek(SeekFrom::End(0)));
        cut.map(|_| ()).map_err(Error::file(&self.part))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(unwritten(&self.part, RESUME))
    }

    /// Waits until the file is on disk, and gives it its name.
    pub(crate) fn finish(self) -> Result<(), Error> {
        // Nobody knows which bytes are on disk after an error.
        let again = "Dump it again without --resume, to another disk.";
        self.file.sync_all().map_err(unwritten(&self.part, again))?;
        // Somebody else may have taken one of the names meanwhile.
        may_write(&self.path)?;
        must_be_at(&self.file, &self.part)?;
        std::fs::rename(&self.part, &self.path).map_err(Error::file(&self.path))?;
        sync_directory_of(&self.path)
    }

    /// Removes what was written: nothing of it can be used.
    pub(crate) fn discard(self) -> Result<(), Error> {
        must_be_at(&self.file, &self.part)?;
        std::fs::remove_file(&self.part).map_err(Error::file(&self.part))
    }
}

/// Waits until the name of a file is on disk, too.
pub(crate) fn sync_directory_of(path: &Path) -> Result<(), Error> {
    let directory = match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    };
    File::open(directory).and_then(|file| file.sync_all()).map_err(Error::file(directory))
}

/// The error of a file that cannot be written on: a full disk is no wrong name.
fn unwritten<'a>(part: &'a Path, hint: &'a str) -> impl FnOnce(io::Error) -> Error + 'a {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    move |error| {
        let full = matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
            || error.raw_os_error() == Some(Errno::IO.raw_os_error());
        match full {
            true => Error::incomplete(format!("{}: {error}", name::readable_path(part)), hint),
            false => Error::file(part)(error),
        }
    }
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

/// Makes the open file, which must be the one at `part`, private and this program's alone.
fn lock(file: &File, part: &Path) -> Result<(), Error> {
    file.try_lock().map_err(|error| taken(part, &error))?;
    // The lock may be that of a file that another dump has completed and renamed meanwhile.
    must_be_at(file, part)?;
    // The mode of a file that was there already.
    file.set_permissions(Permissions::from_mode(0o600)).map_err(Error::file(part))
}

/// Checks that the open file is the one at `part`.
fn must_be_at(file: &File, part: &Path) -> Result<(), Error> {
    let opened = file.metadata().map_err(Error::file(part))?;
    let same = |found: &Metadata| (found.dev(), found.ino()) == (opened.dev(), opened.ino());
    match part.symlink_metadata() {
        Ok(found) if same(&found) => Ok(()),
        _ => Err(taken(part, &"it was renamed, replaced or removed")),
    }
}

fn taken(part: &Path, what: &dyn Display) -> Error {
    Error::usage(
        format!("{}: {what}", name::readable_path(part)),
        "Another dump to this file is under way: wait, or name another file.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Exit;

    /// A directory, the path of a file in it, and the one of its part.
    fn paths() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump");
        let part = part_of(&path);
        (directory, path, part)
    }

    #[test]
    fn files_are_private_and_locked_and_links_are_refused() {
        let (directory, path, part) = paths();
        std::fs::write(&part, "").unwrap();
        std::fs::set_permissions(&part, Permissions::from_mode(0o666)).unwrap();
        let writer = Part::open(&path).unwrap();
        let refused = Part::open(&path).err().unwrap();
        assert!(refused.hint().starts_with("Another dump"), "{refused}");
        writer.finish().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!part.exists());
        std::fs::remove_file(&path).unwrap();
        let other = directory.path().join("other");
        std::fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, &part).unwrap();
        assert!(Part::open(&path).is_err(), "a link");
        assert_eq!(std::fs::read(&other).unwrap(), b"precious");
        std::fs::rename(&other, &part).unwrap();
        let refused = Part::open(&path).err().unwrap().to_string();
        assert!(refused.ends_with("dump.part: it exists, and is no dump of a filter"));
        assert_eq!(std::fs::read(&part).unwrap(), b"precious");
        // Only root can give a file away.
        std::fs::write(&part, "").unwrap();
        if std::os::unix::fs::chown(&part, Some(65_534), None).is_ok() {
            assert!(Part::open(&path).is_err(), "another user's file");
        }
        assert!(Part::open(Path::new("/dev/null")).is_err());
        assert!(!Path::new("/dev/null.part").exists());
    }

    /// Another dump may rename its file between the open and the lock of this one.
    #[test]
    fn a_file_that_was_renamed_is_not_written() {
        let (_directory, path, part) = paths();
        let writer = Part::open(&path).unwrap();
        let opened = File::open(&part).unwrap();
        writer.finish().unwrap();
        assert!(lock(&opened, &part).err().unwrap().hint().starts_with("Another dump"));
        // Nor if a new file has the name now.
        std::fs::write(&part, "").unwrap();
        assert!(lock(&opened, &part).is_err());
        assert!(lock(&File::open(&part).unwrap(), &part).is_ok());
    }

    #[test]
    fn a_name_that_was_taken_during_the_dump_is_not_overwritten() {
        for replaced in [false, true] {
            let (_directory, path, part) = paths();
            let mut writer = Part::open(&path).unwrap();
            writer.write(MAGIC).unwrap();
            // In the place of what was written, or of what it will be.
            let taken = if replaced { &part } else { &path };
            let _ = std::fs::remove_file(taken);
            std::fs::write(taken, "precious").unwrap();
            assert!(writer.finish().is_err());
            assert_eq!(std::fs::read(taken).unwrap(), b"precious");
            assert!(part.exists() && path.exists() != replaced);
        }
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
}
