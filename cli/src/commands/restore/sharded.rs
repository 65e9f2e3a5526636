//! The restore of a sharded filter: all files of the directory are checked, then the shards are
//! loaded, all nodes at once, and at last the descriptor is written (`new_sharded.rs`).

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use bloom::codec::native::Load;
use serde::Serialize;

use super::Arguments;
use crate::{
    amount,
    at_once::{Servers, on_all_watched},
    connection::{Connection, Options},
    descriptor::{bad_name, unused},
    dump_directory::{Manifest, path_of},
    error::{Error, Exit},
    interrupt,
    name::{self, Named},
    new_sharded::NewSharded,
    output::Output,
    progress::{Part, Progress, Unit},
    replication::LastWrite,
    restore_key::{Checked, holds, load_file},
    sharded,
    sharding::{Descriptor, Generation},
};

/// What was restored, or would be.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    name: Named<'a>,
    directory: &'a str,
    product: &'a str,
    shards: usize,
    bytes: u64,
}

impl Arguments {
    pub(super) fn restore_shards(
        &self,
        connection: &Options,
        output: &Output,
    ) -> Result<Exit, Error> {
        if self.replace {
            let hint = "`drop` that one first, or use another name.";
            return Err(Error::usage("a sharded filter is not replaced", hint));
        }
        let manifest = Manifest::read(&self.file)?;
        let count = manifest.files.len();
        let mut progress = Progress::new(output, "checking", None);
        let (mut files, mut bytes) = (Vec::with_capacity(count), 0);
        for at in 0..count {
            let watch = &mut |read| progress.at(bytes + read, bytes + read, Unit::Bytes);
            let file = check_shard(&self.file, &manifest, at, watch)?;
            bytes += file.bytes;
            files.push(file);
        }
        drop(progress);
        let name = name::bytes(&self.name);
        let (shown, directory) = (name::readable(name), name::readable_path(&self.file));
        let servers = Servers::of(connection.target()?, output)?;
        let new = NewSharded { task: "restore", name, servers: &servers };
        new.is_free()?;
        let size = amount::readable_bytes(bytes);
        let mut text = format!("{directory}: {count} shards, {size}; would be {shown}");
        if !self.dry_run {
            let shards = u16::try_from(count).unwrap_or(u16::MAX);
            let wanted = Generation::new(name, shards, 1, manifest.error_rate(), manifest.capacity);
            let wanted = wanted.map_err(|error| bad_name(name, error))?;
            let current = unused(&servers, name, &wanted)?;
            let filter = Descriptor { current, next: Ok(None), base: None, poll: manifest.poll };
            let keys = &filter.current.keys;
            let fill = || self.load_shards(&servers, keys, &files, output);
            new.make(&filter, fill, |server, at| holds(server, &keys[at], &files[at].header))?;
            text = format!("{shown}: {count} shards, {size} from {directory}");
        }
        let report = Report {
            name: Named::of(name),
            directory: &self.file.display().to_string(),
            product: &manifest.product,
            shards: count,
            bytes,
        };
        output.data(&report, text)?;
        Ok(Exit::Done)
    }

    /// Loads each shard into its key. A node that fails is waited for, and its shard begun again.
    fn load_shards(
        &self,
        servers: &Servers,
        keys: &[Vec<u8>],
        files: &[Checked],
        output: &Output,
    ) -> Result<(), Error> {
        let total = AtomicU64::new(0);
        let bytes = files.iter().map(|file| file.bytes).sum();
        let mut progress = Progress::new(output, "restore", Some(bytes));
        let work = |server: &mut Connection, at: usize, again| {
            interrupt::check("")?;
            let (key, path) = (&keys[at], path_of(&self.file, at));
            if again {
                // Nobody else has keys of this generation.
                server.call_for_key(redis::cmd("UNLINK").arg(key))?;
            }
            let mut part = Part::of(&total);
            load_file(server, key, (&path, &files[at]), &mut |bytes| part.at(bytes))?;
            servers.acknowledged(server, LastWrite::Here)
        };
        let done = on_all_watched(servers, keys, work, || {
            let done = total.load(Ordering::Relaxed);
            progress.at(done, done, Unit::Bytes);
        });
        done.map(|_| ())
    }
}

/// Reads the file of a shard to its end. It must be the one that the manifest names, and hold that
/// shard.
fn check_shard(
    directory: &Path,
    manifest: &Manifest,
    at: usize,
    watch: &mut dyn FnMut(u64),
) -> Result<Checked, Error> {
    let path = path_of(directory, at);
    let checked = Checked::of(&path, watch)?;
    let shard = sharded::shard_at(at, manifest.files.len());
    let held = Load::begin(&checked.header, u64::MAX).ok().and_then(|load| load.shard());
    if manifest.has(at, checked.checksums) && held.is_some() && held == shard {
        return Ok(checked);
    }
    Err(Error::usage(
        format!("{}: a file of another dump, or of another shard", name::readable_path(&path)),
        "Restore the directory as dump wrote it.",
    ))
}
