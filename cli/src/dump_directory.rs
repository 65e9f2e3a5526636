//! The directory of a dump of a sharded filter: a file of dump for each shard (`dump_file.rs`), and
//! `descriptor.json`, which says what they are together.
//!
//! ```text
//!   urls.dump/descriptor.json      rule, shards, error, capacity ..., the checksum of each file
//!   urls.dump/shard-000.rbloom     one filter, as dump writes it and restore reads it
//!   urls.dump/shard-001.rbloom
//! ```
//!
//! The directory is written as `urls.dump.part` and renamed when it is complete and on disk. Only
//! its owner may read it: the files hold the seeds of the filters.

use std::{
    fs::{self, DirBuilder, DirEntry, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use crate::sharding::RULE;
use rustix::{fs::OFlags, process::geteuid};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    descriptor,
    error::Error,
    name, part_file,
    sharding::{Descriptor, Generation},
};

const FORMAT: &str = "redis-bloom sharded dump 1";
/// The first bytes of the manifest.
const MANIFEST_START: &[u8] = b"{\n  \"format\": \"redis-bloom sharded dump ";
const MANIFEST: &str = "descriptor.json";
/// More than 1,024 shards need.
const MAX_MANIFEST: u64 = 1 << 20;

/// What the files of a directory are together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: String,
    /// The name of the filter, for people.
    name: String,
    rule: String,
    pub(crate) shards: u16,
    generation: u64,
    /// The error rate, as in the descriptor.
    error: String,
    pub(crate) capacity: u64,
    pub(crate) poll: u64,
    pub(crate) product: String,
    pub(crate) files: Vec<Entry>,
}

/// The file of a shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    file: String,
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
    /// The checksum of the file's checksums, in hexadecimal digits.
    checksum: String,
}

#[derive(Serialize, Deserialize)]
struct Sealed {
    #[serde(flatten)]
    manifest: Manifest,
    /// XXH3-64 of the other fields as one line of JSON.
    checksum: String,
}

impl Entry {
    pub(crate) fn new(shard: usize, chunks: u64, bytes: u64, checksums: u64) -> Self {
        Self { file: file_of(shard), chunks, bytes, checksum: format!("{checksums:016x}") }
    }

    /// Whether this is the file with these checksums.
    pub(crate) fn is_of(&self, checksums: u64) -> bool {
        self.checksum == format!("{checksums:016x}")
    }
}

impl Manifest {
    pub(crate) fn new(
        name: &[u8],
        descriptor: &Descriptor,
        product: &str,
        files: Vec<Entry>,
    ) -> Self {
        let current = &descriptor.current;
        Self {
            format: FORMAT.to_owned(),
            name: name::readable(name),
            rule: RULE.to_owned(),
            shards: current.shards(),
            generation: current.number,
            error: current.error_rate.to_string(),
            capacity: current.capacity,
            poll: descriptor.poll,
            product: product.to_owned(),
            files,
        }
    }

    fn checksum(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        format!("{:016x}", xxh3_64(&text))
    }

    /// The generation of a filter of this name, as far as its parameters go.
    pub(crate) fn generation(&self, name: &[u8]) -> Result<Generation, Error> {
        Generation::new(name, self.shards, 1, self.error_rate(), self.capacity)
            .map_err(|error| descriptor::bad_name(name, error))
    }

    fn error_rate(&self) -> f64 {
        self.error.parse().unwrap_or(0.0)
    }

    /// What tells this dump from others.
    pub(crate) fn identity(&self) -> String {
        self.checksum()
    }

    /// Reads and checks the manifest of a directory; its files are not read.
    pub(crate) fn read(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(MANIFEST);
        let shown = name::readable_path(&path);
        let damaged = |what: &str| {
            Error::usage(
                format!("{shown}: {what}"),
                "The file was cut or changed: use another copy, or dump the filter again.",
            )
        };
        if !path.try_exists().map_err(Error::file(&path))? {
            return Err(Error::usage(
                format!("{}: no {MANIFEST}", name::readable_path(directory)),
                "Name a directory that redis-bloom dump has completed.",
            ));
        }
        let (file, _) = part_file::open_regular(&path)?;
        let mut text = Vec::new();
        file.take(MAX_MANIFEST).read_to_end(&mut text).map_err(Error::file(&path))?;
        let sealed: Sealed =
            serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))?;
        let manifest = sealed.manifest;
        if manifest.format != FORMAT || manifest.rule != RULE {
            return Err(Error::usage(
                format!("{shown}: an unknown format or rule"),
                "Use the release of redis-bloom that wrote it, or a newer one.",
            ));
        }
        if manifest.checksum() != sealed.checksum {
            return Err(damaged("the checksum is wrong"));
        }
        let named = manifest.files.iter().enumerate().all(|(at, entry)| entry.file == file_of(at));
        let rate = manifest.error_rate();
        if !named
            || manifest.files.len() != usize::from(manifest.shards)
            || manifest.files.is_empty()
            || !(rate > 0.0 && rate < 1.0)
        {
            return Err(damaged("what it says is not possible"));
        }
        Ok(manifest)
    }
}

/// The name of the file of a shard.
fn file_of(shard: usize) -> String {
    format!("shard-{shard:03}.rbloom")
}

/// The path of the file of a shard.
pub(crate) fn path_of(directory: &Path, shard: usize) -> PathBuf {
    directory.join(file_of(shard))
}

/// A directory that is written.
pub(crate) struct Directory {
    path: PathBuf,
    pub(crate) part: PathBuf,
    /// Holds the lock.
    _locked: File,
}

/// Checks that a dump of a sharded filter may take this name: that of nothing or of an empty
/// directory.
pub(crate) fn may_make(path: &Path) -> Result<(), Error> {
    let shown = name::readable_path(path);
    if path == Path::new("-") {
        return Err(Error::usage(
            "the dump of a sharded filter is a directory, and no pipe takes it",
            "Name a directory, or dump its shards by their keys.",
        ));
    }
    let hint = "Name another directory, or remove this one.";
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(Error::usage(format!("{shown}: a directory that is not empty"), hint)),
            None => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(Error::usage(
            format!("{shown}: a file; the dump of a sharded filter is a directory"),
            hint,
        )),
        Err(error) => Err(Error::file(path)(error)),
    }
}

/// Opens a directory of this user. A link is not followed: what is in the directory is removed.
fn open_own(path: &Path) -> Result<File, Error> {
    let shown = name::readable_path(path);
    let foreign = || {
        let what = format!("{shown}: not a directory of this user");
        Error::usage(what, "Remove it, or name another directory.")
    };
    let flags = OFlags::NOFOLLOW | OFlags::DIRECTORY;
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let directory = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotADirectory => foreign(),
        _ => Error::file(path)(error),
    })?;
    let owner = directory.metadata().map_err(Error::file(path))?.uid();
    if owner == geteuid().as_raw() { Ok(directory) } else { Err(foreign()) }
}

/// Checks that a file in `PATH.part` is one that a dump has written there.
fn must_be_own(file: &Path) -> Result<(), Error> {
    let written = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if written == MANIFEST {
        return part_file::must_be_own(file, MANIFEST_START);
    }
    let whole = written.strip_suffix(".part").unwrap_or(written);
    let number = whole.strip_prefix("shard-").and_then(|rest| rest.strip_suffix(".rbloom"));
    if number.and_then(|number| number.parse().ok()).is_some_and(|shard| file_of(shard) == whole) {
        return part_file::must_be_own(file, part_file::MAGIC);
    }
    let what = format!("{}: no file of a dump", name::readable_path(file));
    Err(Error::usage(what, "Remove it, or name another directory."))
}

impl Directory {
    /// Makes `PATH.part`, or goes on in it. Without `resume` the files that are there are removed.
    ///
    /// # Errors
    /// `Error::Usage` for files of somebody else.
    pub(crate) fn begin(path: &Path, resume: bool) -> Result<Self, Error> {
        let path: PathBuf = path.components().collect();
        may_make(&path)?;
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        match DirBuilder::new().mode(0o700).create(&part) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(Error::file(&part))?,
        }
        let locked = open_own(&part)?;
        locked.try_lock().map_err(|error| {
            Error::usage(
                format!("{}: {error}", name::readable_path(&part)),
                "Another dump to this directory is under way: wait, or name another one.",
            )
        })?;
        let entries = fs::read_dir(&part).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let files: Vec<_> =
            entries.map_err(Error::file(&part))?.iter().map(DirEntry::path).collect();
        // All of them, before the first one is removed.
        files.iter().try_for_each(|file| must_be_own(file))?;
        if !resume {
            for file in files {
                fs::remove_file(&file).map_err(Error::file(&file))?;
            }
        }
        Ok(Self { path, part, _locked: locked })
    }

    /// Writes the manifest, waits until all is on disk, and gives the directory its name.
    pub(crate) fn finish(self, manifest: Manifest) -> Result<(), Error> {
        let path = self.part.join(MANIFEST);
        let checksum = manifest.checksum();
        let mut text =
            serde_json::to_vec_pretty(&Sealed { manifest, checksum }).unwrap_or_default();
        text.push(b'\n');
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        opened
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
            .map_err(Error::file(&path))?;
        part_file::sync_directory_of(&path)?;
        fs::rename(&self.part, &self.path).map_err(Error::file(&self.path))?;
        part_file::sync_directory_of(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::error::Exit;

    /// Nothing of somebody else is removed, also not beside files of an interrupted dump.
    #[test]
    fn a_directory_of_somebody_else_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (path, part) = (directory.path().join("urls"), directory.path().join("urls.part"));
        let begin = |resume| Directory::begin(&path, resume).map(drop);
        for (name, content) in [
            ("shard-7.rbloom", "rb-dump\n"),
            ("shard-007.rbloom.part", "precious"),
            ("descriptor.json", "{\"precious\": 1}"),
            ("notes", ""),
        ] {
            begin(false).unwrap();
            let (own, foreign) = (part.join("shard-000.rbloom"), part.join(name));
            fs::write(&own, "rb-dump\n").unwrap();
            fs::write(&foreign, content).unwrap();
            for resume in [false, true] {
                assert_eq!(begin(resume).unwrap_err().exit(), Exit::Usage, "{name}");
                assert_eq!(fs::read_to_string(&foreign).unwrap(), content, "{name}");
                assert!(own.exists(), "{name}");
            }
            fs::remove_file(&foreign).unwrap();
        }
        // What a killed dump leaves.
        fs::write(part.join("descriptor.json"), &MANIFEST_START[..9]).unwrap();
        begin(true).unwrap();
        assert_eq!(fs::read_dir(&part).unwrap().count(), 2);
        begin(false).unwrap();
        assert_eq!(fs::read_dir(&part).unwrap().count(), 0);
        // A link would lead to another directory.
        fs::remove_dir(&part).unwrap();
        symlink(directory.path(), &part).unwrap();
        assert!(begin(false).is_err());
    }
}
