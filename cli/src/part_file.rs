//! A file that gets its name when it is complete and on disk. Until then it has another name in the
//! same directory, and is removed if the program ends. Only its owner may read it: chunks of a
//! filter hold the filter's seed.

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use tempfile::NamedTempFile;

use crate::{error::Error, name};

/// The first bytes of a dump.
pub(crate) const MAGIC: &[u8; 8] = b"rb-dump\n";

/// A file that is being written.
pub(crate) struct Part {
    file: NamedTempFile,
    path: PathBuf,
}

impl Part {
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        may_write(path)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(path.file_name().unwrap_or_default()).suffix(".part");
        let file = builder.tempfile_in(directory_of(path)).map_err(Error::file(path))?;
        Ok(Self { file, path: path.to_owned() })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(Error::file(&self.path))
    }

    /// Waits until the file is on disk, and gives it its name.
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.file.as_file().sync_all().map_err(Error::file(&self.path))?;
        // Another program may have taken the name in the meantime.
        may_write(&self.path)?;
        self.file.persist(&self.path).map_err(|error| Error::file(&self.path)(error.error))?;
        // Its name shall be on disk, too.
        let directory = directory_of(&self.path);
        File::open(directory).and_then(|file| file.sync_all()).map_err(Error::file(directory))
    }
}

/// The directory of a file.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|directory| *directory != Path::new("")).unwrap_or(Path::new("."))
}

/// Checks that a dump may take this name: there is no such file, or it is an older dump.
///
/// # Errors
/// `Error::usage` for what is not to be overwritten.
pub(crate) fn may_write(path: &Path) -> Result<(), Error> {
    let shown = name::readable_path(path);
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    // A rename would replace a device such as /dev/null by a file.
    if !metadata.is_file() {
        let what = format!("{shown}: not a regular file");
        let hint = "Name a regular file: a new file is written beside it, then renamed.";
        return Err(Error::usage(what, hint));
    }
    let mut found = Vec::new();
    let start = File::open(path).map(|file| file.take(MAGIC.len() as u64));
    start.and_then(|mut start| start.read_to_end(&mut found)).map_err(Error::file(path))?;
    if found == MAGIC {
        return Ok(());
    }
    let what = format!("{shown}: it exists, and is no dump of a filter");
    Err(Error::usage(what, "Name another file, or remove this one."))
}

/// Opens a file that can be read again from its start. A pipe is not waited for.
///
/// # Errors
/// `Error::usage` for anything but a regular file.
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
