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

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
};

use redis::Value;
use serde::Serialize;

use crate::{
    amount,
    at_once::Servers,
    connection::{Connection, Options},
    dump_file::{Chunk, PIPE, Reader},
    error::{Error, Exit},
    interrupt,
    name::{self, Named},
    output::Output,
    progress::{Progress, Unit},
    restore_key::{Checked, begin, changed, first, holds, load},
    retry::{RETRY_FOR, retry},
    scan::TYPES,
    watched::watched,
};

/// Makes a filter from a file of dump
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// File that dump wrote, or - for standard input
    file: PathBuf,
    /// Name of the filter to make
    name: OsString,
    /// Replaces a filter of this name
    #[arg(long)]
    replace: bool,
}

/// What was restored.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    name: Named<'a>,
    file: &'a str,
    product: &'a str,
    chunks: u64,
    bytes: u64,
}

/// Where the chunks come from.
enum Input {
    /// A file that was read to its end.
    File(Checked),
    /// A pipe, of which the header was read. It is read once, so it is checked while it is loaded.
    Pipe(Box<Reader>, Chunk),
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        interrupt::register();
        let input = self.input(output)?;
        let name = name::bytes(&self.name);
        let shown = name::readable(name);
        let servers = Servers::of(connection.target()?, output)?;
        if filter_exists(&mut servers.connect(name)?, name)? && !self.replace {
            return Err(self.taken());
        }
        let (file, size) = (name::readable_path(&self.file), amount::readable_bytes);
        let key = name::beside(name, "restoring");
        let mut filling = Filling { servers: &servers, key: &key, begun: false, output };
        let placed = filling.load(&self.file, input).and_then(|checked| {
            // Both keys must be in one node.
            let mut server = servers.connect(name)?;
            let place = |server: &mut Connection, _| self.place(server, &key, &checked.header);
            Ok((server.follow(name, RETRY_FOR, place)?, checked))
        });
        let is_placed = placed.as_ref().is_ok_and(|(placed, _)| *placed);
        if !is_placed && filling.begun {
            // If this fails, the next run says that the key is there.
            let unlink = |mut server: Connection| server.call(redis::cmd("UNLINK").arg(&key));
            let _ = servers.connect(&key).and_then(unlink);
        }
        let (placed, checked) = placed?;
        if !placed {
            return Err(self.taken());
        }
        self.say(&checked, format!("{shown}: {} from {file}", size(checked.bytes)), output)
    }

    fn input(&self, output: &Output) -> Result<Input, Error> {
        if self.file != Path::new(PIPE) {
            let length = self.file.metadata().ok().map(|metadata| metadata.len());
            let mut progress = Progress::new(output, "checking", length);
            let watch = &mut |at| progress.at(at, at, Unit::Bytes);
            return Checked::of(&self.file, watch).map(Input::File);
        }
        if io::stdin().is_terminal() {
            let hint = "Name a file, or `redis-bloom dump NAME -o - |` before it.";
            return Err(Error::usage("standard input is a terminal", hint));
        }
        let mut reader = Reader::of_stdin()?;
        let header = first(&mut reader)?;
        Ok(Input::Pipe(Box::new(reader), header))
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

    /// Gives the filter that was loaded into `key` its name. Returns `false` if that is taken.
    /// Another client may have made a key of another type there, or changed the loaded one.
    fn place(&self, server: &mut Connection, key: &[u8], header: &[u8]) -> Result<bool, Error> {
        let name = name::bytes(&self.name);
        let rename = if self.replace { "RENAME" } else { "RENAMENX" };
        let command = [redis::cmd(rename).arg(key).arg(name).take()];
        let watch = if self.replace { &[key, name][..] } else { &[key] };
        let renamed = watched(server, watch, &command, |server| {
            if self.replace {
                filter_exists(server, name)?;
            }
            match holds(server, key, header)? {
                true => Ok(true),
                false => Err(Error::incomplete(
                    format!("{} holds another filter than was loaded", name::readable(key)),
                    "Restore it again when nobody else writes that key.",
                )),
            }
        })?;
        Ok(renamed != Some(Value::Int(0)))
    }
}

/// A key that is filled.
struct Filling<'a> {
    servers: &'a Servers,
    key: &'a [u8],
    /// Whether the server may have a part of the filter.
    begun: bool,
    output: &'a Output,
}

impl Filling<'_> {
    /// Loads a file or a pipe. If the node fails, a file is loaded from its start again.
    fn load(&mut self, path: &Path, input: Input) -> Result<Checked, Error> {
        let checked = match input {
            Input::Pipe(mut reader, header) => return self.load_once(&mut reader, &header),
            Input::File(checked) => checked,
        };
        let loaded = retry(RETRY_FOR, |_| {
            let mut reader = Reader::open(path)?;
            let header = first(&mut reader)?;
            self.load_once(&mut reader, &header)
        })?;
        // What was loaded is what was checked.
        match loaded.checksums == checked.checksums {
            true => Ok(loaded),
            false => Err(changed(path)),
        }
    }

    fn load_once(&mut self, reader: &mut Reader, header: &Chunk) -> Result<Checked, Error> {
        let mut server = self.servers.connect(self.key)?;
        if self.begun {
            server.call_for_key(redis::cmd("UNLINK").arg(self.key))?;
        } else if filter_exists(&mut server, self.key)? {
            return Err(Error::refused_partly(
                format!(
                    "restore: BUSYKEY {}: another restore is running, or was interrupted",
                    name::readable(self.key)
                ),
                format!("Wait for it, or give it up by `drop {}`.", name::typed(self.key)),
            ));
        }
        let begins = begin(&mut server, self.key, header);
        // A server that refuses the header has nothing.
        self.begun |= !matches!(begins, Err(Error::Refused { .. }));
        begins?;
        let label = name::readable(self.key);
        let mut progress = Progress::new(self.output, &label, reader.length());
        let watch = &mut |at| progress.at(at, at, Unit::Bytes);
        load(&mut server, self.key, (reader, header), watch)
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
