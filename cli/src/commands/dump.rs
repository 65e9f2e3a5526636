//! `redis-bloom dump NAME -o FILE`: a filter as a file, by BF.SCANDUMP (`dump_key.rs`); a sharded
//! filter as a directory (`dump_directory.rs`).

mod sharded;

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;

use crate::{
    amount,
    connection::{Connection, Options},
    dump_file::PIPE,
    dump_key::{Dump, product_of},
    error::{Error, Exit},
    filter_info::{Detail, FilterInfo, Module, Reader},
    interrupt,
    name::{self, Named},
    output::Output,
    part_file::{self, Part, RESUME},
    progress::Alone,
    retry::RETRY_FOR,
    sharded::{Filter, find},
};

/// Writes a filter to a file
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter
    name: OsString,
    /// File to write, - for a pipe, or directory for a sharded filter; it holds the filter's seed
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Goes on with an interrupted dump to this file, if the filter is still the same
    #[arg(long)]
    resume: bool,
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

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        interrupt::register();
        let mut server = connection.target()?.connect()?;
        if let Filter::Sharded(descriptor) = find(&mut server, self.key())? {
            return self.dump_shards(&server, &descriptor, output);
        }
        if !self.is_pipe() {
            part_file::may_write(&self.output)?;
        } else if self.resume || io::stdout().is_terminal() {
            let what =
                "the dump goes to standard output, which is no pipe that another command reads";
            return Err(Error::usage(
                what,
                "Name a file, or `| redis-bloom restore - NAME`; no --resume.",
            ));
        }
        let info = server.follow(self.key(), RETRY_FOR, |server, _| {
            Reader::default().read_one(server, self.key(), Detail::Filter)
        })?;
        self.dump_key(&mut server, &info, output)
    }

    /// Whether the dump goes to standard output.
    fn is_pipe(&self) -> bool {
        self.output == Path::new(PIPE)
    }

    /// Writes a filter in one key.
    fn dump_key(
        &self,
        server: &mut Connection,
        info: &FilterInfo,
        output: &Output,
    ) -> Result<Exit, Error> {
        let product = product_of(server, info.module)?;
        let dump =
            Dump { key: self.key(), path: &self.output, product: &product, shard: None, output };
        let mut progress = Alone::new(output, self.shown());
        // What is in a pipe cannot be written again.
        let retry_for = if self.is_pipe() { Duration::ZERO } else { RETRY_FOR };
        let dumped = server.follow(self.key(), retry_for, |server, again| {
            dump.run(server, info, self.resume || again, &mut progress)
        });
        // What is written stays.
        let stays = Part::is_there(&self.output);
        let dumped =
            dumped.map_err(|error| if stays { error.resumed_by(RESUME) } else { error })?;
        drop(progress);
        let report = Report {
            name: Named::of(self.key()),
            file: &self.output.display().to_string(),
            product: &product,
            chunks: dumped.chunks,
            bytes: dumped.bytes,
            changed: dumped.changed,
        };
        self.say(&report, info, output)?;
        Ok(Exit::Done)
    }

    fn key(&self) -> &[u8] {
        name::bytes(&self.name)
    }

    /// The name for messages.
    fn shown(&self) -> String {
        name::readable(self.key())
    }

    fn say(&self, report: &Report, info: &FilterInfo, output: &Output) -> Result<(), Error> {
        if report.changed {
            output
                .remark("Items were added during the dump. It has all that were in when it began.");
        }
        let size = amount::readable_bytes(report.bytes);
        if self.is_pipe() {
            output.remark(format_args!("{}: {size}", self.shown()));
            return Ok(());
        }
        if info.module == Module::RedisBloom {
            output.remark(format_args!(
                "{} holds the filter's seed: whoever reads it can make items that collide.",
                name::readable_path(&self.output)
            ));
        }
        let file = name::readable_path(&self.output);
        output.data(report, format_args!("{}: {size} in {file}", self.shown()))
    }
}
