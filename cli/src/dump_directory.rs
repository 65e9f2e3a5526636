//! The directory of a dump of a sharded filter: a file of dump for each shard (`dump_file.rs`), and
//! `descriptor.json`, which says what they are together.
//!
//! ```text
//!   urls.dump/descriptor.json      shards, error rate, capacity ..., the checksum of each file
//!   urls.dump/shard-000.rbloom     one filter, as dump writes it and restore reads it
//!   urls.dump/shard-001.rbloom
//! ```
//!
//! It gets its name when it is complete and on disk. Only its owner may read it: the files hold the
//! seeds of the filters.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    error::Error,
    filter_info::Module,
    name,
    part_file::{beside, directory_of, open_regular, sync_directory_of},
    sharding::Descriptor,
};

const FORMAT: &str = "redis-bloom sharded dump 1";
const MANIFEST: &str = "descriptor.json";
/// More than 1,024 shards need.
const MAX_MANIFEST: u64 = 1 << 20;

/// What the files of a directory are together.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    format: String,
    /// The name of the filter, for people.
    name: String,
    pub(crate) product: String,
    /// The error rate, as in the descriptor.
    error: String,
    pub(crate) capacity: u64,
    pub(crate) poll: u64,
    /// The checksum of the checksums of each file, in hexadecimal digits.
    pub(crate) files: Vec<String>,
    /// XXH3-64 of this as one line of JSON, with an empty checksum.
    checksum: String,
}

impl Manifest {
    pub(crate) fn new(
        name: &[u8],
        descriptor: &Descriptor,
        module: Module,
        checksums: impl IntoIterator<Item = u64>,
    ) -> Self {
        Self {
            format: FORMAT.to_owned(),
            name: name::readable(name),
            product: module.name().to_owned(),
            error: descriptor.current.error_rate.to_string(),
            capacity: descriptor.current.capacity,
            poll: descriptor.poll,
            files: checksums.into_iter().map(hexadecimal).collect(),
            checksum: String::new(),
        }
        .sealed()
    }

    fn sealed(mut self) -> Self {
        self.checksum.clear();
        let text = serde_json::to_vec(&self).unwrap_or_default();
        self.checksum = hexadecimal(xxh3_64(&text));
        self
    }

    pub(crate) fn error_rate(&self) -> f64 {
        self.error.parse().unwrap_or(0.0)
    }

    /// Whether the file of this shard has these checksums.
    pub(crate) fn has(&self, shard: usize, checksums: u64) -> bool {
        self.files.get(shard).is_some_and(|file| *file == hexadecimal(checksums))
    }

    /// Reads the manifest of a directory; its files are not read.
    pub(crate) fn read(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(MANIFEST);
        let (file, _) = open_regular(&path)?;
        let mut text = Vec::new();
        file.take(MAX_MANIFEST).read_to_end(&mut text).map_err(Error::file(&path))?;
        let wrong = |what: &str| {
            Error::usage(
                format!("{}: {what}", name::readable_path(&path)),
                "Use another copy, and a release of redis-bloom that is not older than it.",
            )
        };
        let manifest: Self =
            serde_json::from_slice(&text).map_err(|error| wrong(&error.to_string()))?;
        let (known, checksum) = (manifest.format == FORMAT, manifest.checksum.clone());
        let manifest = manifest.sealed();
        match known && manifest.checksum == checksum {
            true => Ok(manifest),
            false => Err(wrong("damaged, or of a newer release")),
        }
    }
}

fn hexadecimal(checksum: u64) -> String {
    format!("{checksum:016x}")
}

/// The path of the file of a shard.
pub(crate) fn path_of(directory: &Path, shard: usize) -> PathBuf {
    directory.join(format!("shard-{shard:03}.rbloom"))
}

/// Makes a directory that [`finish`] gives the name `path`, which must be free.
///
/// # Errors
/// `Error::Usage` for a name that is taken.
pub(crate) fn begin(path: &Path) -> Result<TempDir, Error> {
    if path == Path::new("-") || path.symlink_metadata().is_ok() {
        return Err(Error::usage(
            format!(
                "{}: the dump of a sharded filter is a new directory",
                name::readable_path(path)
            ),
            "Name one that does not exist yet.",
        ));
    }
    let mut private = beside(path);
    private.permissions(Permissions::from_mode(0o700));
    private.tempdir_in(directory_of(path)).map_err(Error::file(path))
}

/// Writes the manifest, waits until all is on disk, and gives the directory its name.
pub(crate) fn finish(written: TempDir, path: &Path, manifest: &Manifest) -> Result<(), Error> {
    let file = written.path().join(MANIFEST);
    let text = serde_json::to_string_pretty(manifest).unwrap_or_default();
    fs::write(&file, text + "\n")
        .and_then(|()| File::open(&file)?.sync_all())
        .map_err(Error::file(&file))?;
    sync_directory_of(&file)?;
    // It replaces no file, and no directory but an empty one.
    let renamed: io::Result<()> = fs::rename(written.path(), path);
    renamed.map_err(Error::file(path))?;
    let _ = written.keep();
    sync_directory_of(path)
}
