//! `redis-bloom dump NAME -o FILE`: a filter as a file, by BF.SCANDUMP (`dump_key.rs`).

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    amount,
    connection::{Options, Targets},
    dump_file::PIPE,
    dump_key::Dump,
    error::{Error, Exit},
    filter_info::{Module, Reader},
    interrupt,
    name::{self, Named},
    output::Output,
    part_file,
    progress::Progress,
    refusal::Kind,
    retry::{RETRY_FOR, retry},
};

/// Writes a filter to a file
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter, or key of a shard
    name: OsString,
    /// File to write, or - for a pipe; it holds the filter's seed
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

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        interrupt::register();
        let pipe = self.output == Path::new(PIPE);
        if !pipe {
            part_file::may_write(&self.output)?;
        } else if io::stdout().is_terminal() {
            let hint = "Name a file, or `| redis-bloom restore - NAME`.";
            return Err(Error::usage("the dump would go to this terminal", hint));
        }
        let key = name::bytes(&self.name);
        let shown = name::readable(key);
        let targets = Targets::of(connection.target()?)?;
        let dump = Dump { key, path: &self.output, output };
        // A node that fails is waited for, and the dump begun again.
        let (module, dumped) = retry(RETRY_FOR, |_| {
            let mut server = targets.connect_for(key)?;
            let info = Reader::default().read_one(&mut server, key)?;
            let mut progress = Progress::new(output, "dump", Some(info.bytes));
            let watch = &mut |bytes| progress.at(bytes, bytes, amount::readable_bytes);
            Ok((info.module, dump.run(&mut server, &info, watch)?))
        })
        .map_err(|error| match error {
            error if error.is(Kind::WrongType) => Error::refused_partly(
                format!("dump {shown}: WRONGTYPE the key holds no filter"),
                "Dump each shard of a sharded filter by its key: `info` shows the keys.",
            ),
            error => error,
        })?;
        let report = Report {
            name: Named::of(key),
            file: &self.output.display().to_string(),
            product: module.name(),
            chunks: dumped.chunks,
            bytes: dumped.bytes,
            changed: dumped.changed,
        };
        if report.changed {
            output.remark(
                "Items were added during the dump. It has every item that was in the filter when \
                 it began.",
            );
        }
        let (size, file) =
            (amount::readable_bytes(report.bytes), name::readable_path(&self.output));
        if pipe {
            output.remark(format_args!("{shown}: {size}"));
            return Ok(Exit::Done);
        }
        if module == Module::RedisBloom {
            output.remark(format_args!(
                "{file} contains the filter's seed. Anyone who can read it can make items that \
                 collide."
            ));
        }
        output.data(&report, format_args!("{shown}: {size} in {file}"))?;
        Ok(Exit::Done)
    }
}
