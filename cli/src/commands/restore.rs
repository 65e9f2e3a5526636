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
    error::{Error, Exit, lacks_command, refusal_hint},
    interrupt::Interrupt,
    name::{self, Named},
    output::Output,
    progress::Alone,
    restore_key::{Checked, Restore},
    scan::TYPES,
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
        let interrupt = Interrupt::register();
        if self.file.is_dir() {
            return self.restore_shards(connection, &interrupt, output);
        }
        let mut progress = Alone::new(output, "checking".to_owned());
        let checked = Checked::of(&self.file, &interrupt, &mut progress)?;
        drop(progress);
        let name = name::bytes(&self.name);
        let shown = name::readable(name);
        let mut server = connection.target()?.connect_for(name)?;
        let exists = filter_exists(&mut server, name)?;
        let taken = || Error::RefusedPartly {
            what: format!("restore {shown}: BUSYKEY the filter exists"),
            hint: "Put the file in its place by --replace, or use another name.".to_owned(),
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
        let mut begun = false;
        let loaded = server.follow(&key, |server, again| {
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
            restore.load(done, &interrupt, &mut progress)?;
            // Complete filters answer it, others do not.
            server.call(redis::cmd("BF.INFO").arg(&key))
        });
        let placed = loaded.and_then(|_| {
            // Both keys must be in one node.
            server.follow(name, |server, _| match self.replace {
                true => replace(server, &key, name).map(|()| true),
                false => {
                    let renamed = server.call(redis::cmd("RENAMENX").arg(&key).arg(name))?;
                    Ok(renamed != Value::Int(0))
                }
            })
        });
        if !placed.map_err(|error| if begun { half_loaded(error, &key) } else { error })? {
            server.call(redis::cmd("UNLINK").arg(&key))?;
            return Err(taken());
        }
        output.data(&report, format_args!("{shown}: {size} from {file}"))?;
        Ok(Exit::Done)
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
            return Err(Error::RefusedPartly {
                what: format!(
                    "restore: BUSYKEY {shown}: another restore is under way or was interrupted"
                ),
                hint: format!(
                    "Go on with that one by --resume, or give it up by `drop {}`.",
                    name::typed(key)
                ),
            });
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

/// An error of a restore that may have loaded a part: it stays in `key`.
fn half_loaded(error: Error, key: &[u8]) -> Error {
    let key = name::readable(key);
    let hint = format!("{key} has what is loaded: --resume goes on, drop removes it.");
    match error {
        Error::Refused { command, text } => {
            let what = format!("{command}: {text}");
            Error::RefusedPartly { what, hint: format!("{} {hint}", refusal_hint(&text)) }
        }
        Error::Reply { .. } => Error::RefusedPartly { what: error.to_string(), hint },
        Error::Connection { .. } => Error::Incomplete { what: error.to_string(), hint },
        Error::Usage { .. } | Error::File { .. } => {
            Error::usage(error.to_string(), format!("{} {hint}", error.hint()))
        }
        Error::Interrupted { .. } => Error::Interrupted { hint },
        other => other,
    }
}

/// How often a key that changes all the time is watched. Then it is renamed unwatched.
pub(super) const WATCHED: u32 = 20;

/// Puts `key` in place of the filter `name`, if that is none or a filter still: another client may
/// have made a key of another type while this one was loaded.
fn replace(server: &mut Connection, key: &[u8], name: &[u8]) -> Result<(), Error> {
    for _ in 0..WATCHED {
        // The check and RENAME are one step, if the user may use transactions.
        if !allowed(server, redis::cmd("WATCH").arg(name))? {
            break;
        }
        filter_exists(server, name)?;
        if !allowed(server, &redis::cmd("MULTI"))? {
            break;
        }
        server.call(redis::cmd("RENAME").arg(key).arg(name))?;
        match server.call(&redis::cmd("EXEC"))? {
            // The key has changed, perhaps only by an addition to the filter.
            Value::Nil => {}
            Value::Array(replies) => {
                return match &replies[..] {
                    [Value::ServerError(error)] => Err(server.refused("RENAME", error)),
                    _ => Ok(()),
                };
            }
            other => {
                let reply = format!("{other:?}");
                return Err(Error::Reply { command: "EXEC".to_owned(), reply });
            }
        }
    }
    filter_exists(server, name)?;
    server.call(redis::cmd("RENAME").arg(key).arg(name)).map(|_| ())
}

/// Sends a command, and returns whether the user may send it.
fn allowed(server: &mut Connection, command: &redis::Cmd) -> Result<bool, Error> {
    match server.call(command) {
        Ok(_) => Ok(true),
        Err(Error::Refused { text, .. }) if lacks_command(&text) => Ok(false),
        Err(error) => Err(error),
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
        Value::SimpleString(kind) => Err(Error::Refused {
            command: format!("restore {}", name::readable(name)),
            text: format!("WRONGTYPE the key holds a {kind}"),
        }),
        other => Err(Error::Reply { command: "TYPE".to_owned(), reply: format!("{other:?}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_names_what_is_loaded() {
        let file = || Error::file("dump")(std::io::ErrorKind::NotFound.into());
        let reply = || Error::Reply { command: "BF.LOADCHUNK".to_owned(), reply: "1".to_owned() };
        let errors: [&dyn Fn() -> Error; 3] =
            [&file, &reply, &|| Error::usage("dump: damaged", "Use another copy.")];
        for error in errors {
            let named = half_loaded(error(), b"urls:restoring:1");
            assert_eq!(named.exit(), error().exit());
            assert_eq!(named.to_string(), error().to_string());
            let end = "urls:restoring:1 has what is loaded: --resume goes on, drop removes it.";
            assert!(named.hint().ends_with(end), "{}", named.hint());
        }
    }
}
