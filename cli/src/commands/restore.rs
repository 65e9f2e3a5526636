//! `redis-bloom restore FILE NAME`: a filter from the file of `dump`, by BF.LOADCHUNK.
//!
//! ```text
//!   FILE ── read and checked to its end ──▶ then read again, chunk by chunk
//!                                              │ BF.LOADCHUNK
//!                                              ▼
//!                     NAME:restoring:K, a key in the slot of NAME ── RENAME ──▶ NAME
//! ```
//!
//! A damaged file never reaches the server, and readers of NAME never see a part of the filter.

mod sharded;

use std::{ffi::OsString, path::PathBuf};

use redis::Value;
use serde::Serialize;

use crate::{
    amount,
    connection::{Connection, Options},
    error::{Error, Exit},
    interrupt,
    name::{self, Named},
    output::Output,
    progress::Alone,
    restore_key::{Checked, Restore},
    retry::RETRY_FOR,
    scan::TYPES,
    watched::watched,
};

pub(super) use sharded::{check_shard, load_shard};

/// Makes a filter from a file of dump
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// File that dump wrote, or its directory of a sharded filter
    file: PathBuf,
    /// Name of the filter to make
    name: OsString,
    /// Goes on with an interrupted restore of this file
    #[arg(long)]
    resume: bool,
    /// Replaces a filter of this name
    #[arg(long)]
    replace: bool,
    /// Checks the file and the name, and changes nothing on the server
    #[arg(long)]
    dry_run: bool,
}

/// What was restored, or would be.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    name: Named<'a>,
    file: &'a str,
    product: &'a str,
    chunks: u64,
    bytes: u64,
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        interrupt::register();
        if self.file.is_dir() {
            return self.restore_shards(connection, output);
        }
        let mut progress = Alone::new(output, "checking".to_owned());
        let checked = Checked::of(&self.file, &mut progress)?;
        drop(progress);
        let name = name::bytes(&self.name);
        let shown = name::readable(name);
        let mut server = connection.target()?.connect_for(name)?;
        let exists = filter_exists(&mut server, name)?;
        let taken = || {
            Error::refused_partly(
                format!("restore {shown}: BUSYKEY the filter exists"),
                "Put the file in its place by --replace, or use another name.",
            )
        };
        if exists && !self.replace {
            return Err(taken());
        }
        let size = amount::readable_bytes(checked.bytes);
        let file = name::readable_path(&self.file);
        let report = Report {
            name: Named::of(name),
            file: &self.file.display().to_string(),
            product: &checked.product,
            chunks: checked.chunks,
            bytes: checked.bytes,
        };
        if self.dry_run {
            let product = name::readable(checked.product.as_bytes());
            output.data(&report, format_args!("{file}: {size} of {product}; would be {shown}"))?;
            return Ok(Exit::Done);
        }
        let key = name::beside(name, "restoring");
        let hint = || {
            let key = name::readable(&key);
            format!("{key} has what is loaded: --resume goes on, drop removes it.")
        };
        let mut begun = false;
        let loaded = server.follow(&key, RETRY_FOR, |server, again| {
            let mut restore = Restore { file: &self.file, checked: &checked, server, key: &key };
            let mut done = self.chunks_done(&mut restore, self.resume || again, output)?;
            if done == 0 {
                let header = restore.begin();
                // A server that refuses the header has nothing.
                begun |= !matches!(header, Err(Error::Refused { .. }));
                header?;
                done = 1;
            }
            begun = true;
            let mut progress = Alone::new(output, name::readable(&key));
            restore.load(done, &mut progress)?;
            // Complete filters answer it, others do not.
            server.call(redis::cmd("BF.INFO").arg(&key))
        });
        let placed = loaded.and_then(|_| {
            // Both keys must be in one node.
            server.follow(name, RETRY_FOR, |server, _| self.place(server, &key, &checked))
        });
        if !placed.map_err(|error| if begun { error.partly(hint()) } else { error })? {
            server.call(redis::cmd("UNLINK").arg(&key))?;
            return Err(taken());
        }
        output.data(&report, format_args!("{shown}: {size} from {file}"))?;
        Ok(Exit::Done)
    }

    /// Gives the filter that was loaded into `key` its name. Returns `false` if that is taken.
    /// Another client may have made a key of another type there, or changed the loaded one.
    fn place(&self, server: &mut Connection, key: &[u8], checked: &Checked) -> Result<bool, Error> {
        let name = name::bytes(&self.name);
        let rename = if self.replace { "RENAME" } else { "RENAMENX" };
        let command = redis::cmd(rename).arg(key).arg(name).take();
        let watch = if self.replace { &[key, name][..] } else { &[key] };
        let renamed = watched(server, watch, &command, |server| {
            if self.replace {
                filter_exists(server, name)?;
            }
            checked.must_be_at(server, key).map(|()| true)
        })?;
        Ok(renamed != Some(Value::Int(0)))
    }

    /// How many chunks an earlier restore loaded.
    fn chunks_done(
        &self,
        restore: &mut Restore,
        resume: bool,
        output: &Output,
    ) -> Result<u64, Error> {
        let key = restore.key;
        let shown = name::readable(key);
        if !filter_exists(restore.server, key)? {
            return Ok(0);
        }
        if !resume {
            return Err(Error::refused_partly(
                format!(
                    "restore: BUSYKEY {shown}: another restore is under way or was interrupted"
                ),
                format!(
                    "Go on with that one by --resume, or give it up by `drop {}`.",
                    name::typed(key)
                ),
            ));
        }
        let done = restore.chunks_done()?;
        if done == 0 {
            output.remark(format_args!(
                "{shown} is of another file or server: loaded from the start"
            ));
            restore.server.call(redis::cmd("UNLINK").arg(key))?;
        }
        Ok(done)
    }
}

/// Whether there is a filter of this name.
///
/// # Errors
/// `Error::Refused` if the key holds something else.
fn filter_exists(server: &mut Connection, name: &[u8]) -> Result<bool, Error> {
    match server.call(redis::cmd("TYPE").arg(name))? {
        Value::SimpleString(kind) if kind == "none" => Ok(false),
        Value::SimpleString(kind) if TYPES.contains(&kind.as_str()) => Ok(true),
        Value::SimpleString(kind) => Err(Error::refused(
            format!("restore {}", name::readable(name)),
            format!("WRONGTYPE the key holds a {kind}"),
        )),
        other => Err(Error::reply("TYPE", &other)),
    }
}
