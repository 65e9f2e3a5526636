//! `redis-bloom dump NAME -o FILE`: a filter as a file, by BF.SCANDUMP (`dump_key.rs`); a sharded
//! filter as a directory (`dump_directory.rs`), all nodes at once.

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    slice,
    sync::atomic::{AtomicU64, Ordering},
};

use serde::Serialize;

use crate::{
    amount,
    at_once::{Servers, on_all, on_all_watched},
    connection::{Connection, Options},
    dump_directory::{self, Manifest, path_of},
    dump_file::PIPE,
    dump_key::{Dump, Dumped},
    error::{Error, Exit},
    filter_info::{Detail, FilterInfo, Module, Reader},
    interrupt,
    name::{self, Named},
    output::Output,
    part_file,
    progress::{Part, Progress, Unit},
    refusal::Kind,
    restore_key::holds,
    sharded::{Filter, find, shard_at},
    sharding::Descriptor,
};

/// Writes a filter to a file
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter
    name: OsString,
    /// File to write, - for a pipe, or directory for a sharded filter; it holds the filter's seed
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// What was written.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    name: Named<'a>,
    file: &'a str,
    product: &'a str,
    chunks: u64,
    bytes: u64,
    /// Whether items were added during the dump.
    changed: bool,
}

/// What was written of a sharded filter.
#[derive(Debug, Serialize)]
struct ShardsReport<'a> {
    #[serde(flatten)]
    name: Named<'a>,
    directory: &'a str,
    shards: usize,
    bytes: u64,
    /// Whether items were added during the dump.
    changed: bool,
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        interrupt::register();
        let target = connection.target()?;
        let filter = find(&mut target.connect()?, self.key())?;
        let servers = Servers::of(target, output)?;
        match filter {
            Filter::Key => self.dump_key(&servers, output)?,
            Filter::Sharded(descriptor) => self.dump_shards(&servers, &descriptor, output)?,
        }
        Ok(Exit::Done)
    }

    fn key(&self) -> &[u8] {
        name::bytes(&self.name)
    }

    /// The name for messages.
    fn shown(&self) -> String {
        name::readable(self.key())
    }

    /// Writes a filter in one key.
    fn dump_key(&self, servers: &Servers, output: &Output) -> Result<(), Error> {
        let pipe = self.output == Path::new(PIPE);
        if !pipe {
            part_file::may_write(&self.output)?;
        } else if io::stdout().is_terminal() {
            let hint = "Name a file, or `| redis-bloom restore - NAME`.";
            return Err(Error::usage("the dump would go to this terminal", hint));
        }
        let key = self.key().to_vec();
        let what = Sources { servers, keys: slice::from_ref(&key), sharded: false, output };
        let infos = what.read()?;
        let dumped = what.dump(&infos, |_| self.output.clone())?;
        let report = Report {
            name: Named::of(self.key()),
            file: &self.output.display().to_string(),
            product: infos[0].module.name(),
            chunks: dumped[0].chunks,
            bytes: dumped[0].bytes,
            changed: dumped[0].changed,
        };
        if report.changed {
            output.remark(CHANGED);
        }
        let (size, file) =
            (amount::readable_bytes(report.bytes), name::readable_path(&self.output));
        if pipe {
            output.remark(format_args!("{}: {size}", self.shown()));
            return Ok(());
        }
        if infos[0].module == Module::RedisBloom {
            output.remark(format_args!(
                "{file} contains the filter's seed. Anyone who can read it can make items that \
                 collide."
            ));
        }
        output.data(&report, format_args!("{}: {size} in {file}", self.shown()))
    }

    fn dump_shards(
        &self,
        servers: &Servers,
        descriptor: &Descriptor,
        output: &Output,
    ) -> Result<(), Error> {
        let shown = self.shown();
        if descriptor.base.is_some() {
            return Err(Error::usage(
                format!("{shown}: a dump of its shards lacks the items of its base"),
                "Rebuild it from the source of its items first; then it needs no base.",
            ));
        }
        let keys = &descriptor.current.keys;
        let directory = dump_directory::begin(&self.output)?;
        let what = Sources { servers, keys, sharded: true, output };
        let infos = what.read()?;
        let dumped = what.dump(&infos, |at| path_of(directory.path(), at))?;
        let replaced = |how: &str| {
            Error::incomplete(format!("{shown} {how} during the dump"), "Dump it again.")
        };
        // A rebuild that ended meanwhile has replaced the shards, one after the other.
        match find(&mut servers.connect(self.key())?, self.key())? {
            Filter::Sharded(now) if now.current == descriptor.current => {}
            _ => return Err(replaced("was rebuilt")),
        }
        // One that was dropped and created again has the same keys.
        on_all(servers, keys, |server, at, _| {
            match holds(server, &keys[at], &dumped[at].header)? {
                true => Ok(()),
                false => Err(replaced("or a shard of it was replaced")),
            }
        })?;
        let checksums = dumped.iter().map(|dumped| dumped.checksums);
        let manifest = Manifest::new(self.key(), descriptor, infos[0].module, checksums);
        dump_directory::finish(directory, &self.output, &manifest)?;
        let report = ShardsReport {
            name: Named::of(self.key()),
            directory: &self.output.display().to_string(),
            shards: keys.len(),
            bytes: dumped.iter().map(|dumped| dumped.bytes).sum(),
            changed: dumped.iter().any(|dumped| dumped.changed),
        };
        if report.changed {
            output.remark(CHANGED);
        }
        let directory = name::readable_path(&self.output);
        output.remark(format_args!(
            "{directory} contains the filters' seeds. Anyone who can read it can make items that \
             collide."
        ));
        let (count, size) = (keys.len(), amount::readable_bytes(report.bytes));
        output.data(&report, format_args!("{shown}: {count} shards, {size} in {directory}"))
    }
}

const CHANGED: &str = "Items were added during the dump. It has all that were in when it began.";

/// What is dumped: a filter in one key, or all shards of one.
struct Sources<'a> {
    servers: &'a Servers,
    keys: &'a [Vec<u8>],
    sharded: bool,
    output: &'a Output,
}

impl Sources<'_> {
    fn read(&self) -> Result<Vec<FilterInfo>, Error> {
        on_all(self.servers, self.keys, |server, at, _| {
            let info = Reader::default().read_one(server, &self.keys[at], Detail::Filter);
            info.map_err(|error| self.explained(error, at))
        })
    }

    /// An error of the work on a key.
    fn explained(&self, error: Error, at: usize) -> Error {
        match error {
            error if self.sharded && (error.is(Kind::NotFound) || error.is(Kind::WrongType)) => {
                Error::incomplete(
                    format!("shard {at} of {} is lost", self.keys.len()),
                    "`info` names the shards that are lost, `repair` makes them from their items.",
                )
            }
            error => error,
        }
    }

    /// Writes the files. A node that fails is waited for, and its file begun again.
    fn dump(
        &self,
        infos: &[FilterInfo],
        path: impl Fn(usize) -> PathBuf + Sync,
    ) -> Result<Vec<Dumped>, Error> {
        let bytes = infos.iter().map(|info| info.bytes).sum();
        let sum = AtomicU64::new(0);
        let mut progress = Progress::new(self.output, "dump", Some(bytes));
        let work = |server: &mut Connection, at: usize, _| {
            let shard = if self.sharded { shard_at(at, self.keys.len()) } else { None };
            let (key, path) = (&self.keys[at], &path(at));
            let dump = Dump { key, path, shard, output: self.output };
            let mut part = Part::of(&sum);
            let dumped = dump.run(server, &infos[at], &mut |bytes| part.at(bytes));
            dumped.map_err(|error| self.explained(error, at))
        };
        on_all_watched(self.servers, self.keys, work, || {
            let done = sum.load(Ordering::Relaxed);
            progress.at(done, done, Unit::Bytes);
        })
    }
}
