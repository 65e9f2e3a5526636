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
//! From a pipe (`-`) the chunks are loaded as they come; a pipe that was cut leaves nothing.

mod sharded;

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
};

use redis::Value;
use serde::Serialize;

use crate::{
    amount,
    connection::{Connection, Options},
    dump_file::{Chunk, PIPE, Reader},
    error::{Error, Exit},
    interrupt,
    name::{self, Named},
    output::Output,
    progress::Alone,
    restore_key::{Checked, Restore, first},
    retry::RETRY_FOR,
    scan::TYPES,
    watched::watched,
};

/// Makes a filter from a file of dump
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// File that dump wrote, - for standard input, or its directory of a sharded filter
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
        // A pipe is read once, so it is checked while it is loaded.
        let mut pipe = match self.file == Path::new(PIPE) {
            true if io::stdin().is_terminal() => {
                let hint = "Name a file, or `redis-bloom dump NAME -o - |` before it.";
                return Err(Error::usage("standard input is a terminal", hint));
            }
            true => {
                let mut reader = Reader::of_stdin()?;
                let header = first(&mut reader)?;
                Some((reader, header))
            }
            false => None,
        };
        let checked = match &mut pipe {
            None => Some(Checked::of(&self.file, &mut progress)?),
            Some(_) if self.resume => {
                let hint = "Restore it from the start: leave out --resume.";
                return Err(Error::usage("a pipe cannot be read again", hint));
            }
            Some((reader, header)) if self.dry_run => {
                Some(Checked::read(reader, header, &mut progress)?)
            }
            Some(_) => None,
        };
        drop(progress);
        let name = name::bytes(&self.name);
        let shown = name::readable(name);
        let mut server = connection.target()?.connect_for(name)?;
        if filter_exists(&mut server, name)? && !self.replace {
            return Err(self.taken());
        }
        if self.dry_run {
            let Some(checked) = checked else { return Ok(Exit::Done) };
            let (size, product) =
                (amount::readable_bytes(checked.bytes), name::readable(checked.product.as_bytes()));
            let file = name::readable_path(&self.file);
            let text = format!("{file}: {size} of {product}; would be {shown}");
            return self.say(&checked, text, output);
        }
        let key = name::beside(name, "restoring");
        let hint = match &pipe {
            None => {
                let key = name::readable(&key);
                format!("{key} has what is loaded: --resume goes on, drop removes it.")
            }
            Some(_) => "Nothing was restored: repeat both commands.".to_owned(),
        };
        let mut filling = Filling { server: &mut server, key: &key, begun: false, output };
        let loaded = match (checked, &mut pipe) {
            (Some(checked), _) => self.load_file(&mut filling, &checked).map(|()| checked),
            (None, Some((reader, header))) => filling.load_pipe(reader, header),
            (None, None) => return Ok(Exit::Done),
        };
        let begun = filling.begun;
        let placed = loaded.and_then(|checked| {
            // Both keys must be in one node.
            let placed =
                server.follow(name, RETRY_FOR, |server, _| self.place(server, &key, &checked))?;
            Ok((placed, checked))
        });
        let (placed, checked) = match placed {
            Ok(placed) => placed,
            Err(error) => {
                if pipe.is_some() && begun {
                    // The next run begins anew. If this fails, it says that the key is there.
                    let _ = server.call(redis::cmd("UNLINK").arg(&key));
                }
                return Err(if begun { error.partly(hint) } else { error });
            }
        };
        if !placed {
            server.call(redis::cmd("UNLINK").arg(&key))?;
            return Err(self.taken());
        }
        let (size, file) = (amount::readable_bytes(checked.bytes), name::readable_path(&self.file));
        self.say(&checked, format!("{shown}: {size} from {file}"), output)
    }

    fn taken(&self) -> Error {
        let shown = name::readable(name::bytes(&self.name));
        Error::refused_partly(
            format!("restore {shown}: BUSYKEY the filter exists"),
            "Put the file in its place by --replace, or use another name.",
        )
    }

    fn say(&self, checked: &Checked, text: String, output: &Output) -> Result<Exit, Error> {
        let report = Report {
            name: Named::of(name::bytes(&self.name)),
            file: &self.file.display().to_string(),
            product: &checked.product,
            chunks: checked.chunks,
            bytes: checked.bytes,
        };
        output.data(&report, text)?;
        Ok(Exit::Done)
    }

    /// Loads a file.
    fn load_file(&self, to: &mut Filling<'_>, checked: &Checked) -> Result<(), Error> {
        let Filling { server, key, begun, output } = to;
        server.follow(key, RETRY_FOR, |server, again| {
            let mut restore = Restore { server, key };
            let mut done = self.chunks_done(&mut restore, checked, again, output)?;
            if done == 0 {
                let begins = restore.begin(&first(&mut Reader::open(&self.file)?)?);
                // A server that refuses the header has nothing.
                *begun |= !matches!(begins, Err(Error::Refused { .. }));
                begins?;
                done = 1;
            }
            *begun = true;
            let mut progress = Alone::new(output, name::readable(key));
            restore.load_file(&self.file, checked, done, &mut progress)?;
            // Complete filters answer it, others do not.
            server.call(redis::cmd("BF.INFO").arg(&**key)).map(|_| ())
        })
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
        checked: &Checked,
        again: bool,
        output: &Output,
    ) -> Result<u64, Error> {
        let key = restore.key;
        if !filter_exists(restore.server, key)? {
            return Ok(0);
        }
        if !self.resume && !again {
            return Err(under_way(key));
        }
        let done = restore.chunks_done(&self.file, checked)?;
        if done == 0 {
            output.remark(format_args!(
                "{} is of another file or server: loaded from the start",
                name::readable(key)
            ));
            restore.server.call(redis::cmd("UNLINK").arg(key))?;
        }
        Ok(done)
    }
}

/// A key that is filled.
struct Filling<'a> {
    server: &'a mut Connection,
    key: &'a [u8],
    /// Whether the server may have a part of the filter.
    begun: bool,
    output: &'a Output,
}

impl Filling<'_> {
    /// Loads what comes through a pipe. Nothing of it is there again for another try.
    fn load_pipe(&mut self, reader: &mut Reader, header: &Chunk) -> Result<Checked, Error> {
        if filter_exists(self.server, self.key)? {
            return Err(under_way(self.key));
        }
        let mut restore = Restore { server: self.server, key: self.key };
        let begins = restore.begin(header);
        self.begun = !matches!(begins, Err(Error::Refused { .. }));
        begins?;
        restore.load(reader, &mut Alone::new(self.output, name::readable(self.key)))?;
        self.server.call(redis::cmd("BF.INFO").arg(self.key))?;
        Ok(Checked::ended(reader, header))
    }
}

/// The error of a restore that another one is in the way of.
fn under_way(key: &[u8]) -> Error {
    Error::refused_partly(
        format!(
            "restore: BUSYKEY {}: another restore is under way or was interrupted",
            name::readable(key)
        ),
        format!("Go on with that one by --resume, or give it up by `drop {}`.", name::typed(key)),
    )
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
