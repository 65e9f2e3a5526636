//! `redis-bloom restore FILE NAME`: a filter from the file of `dump`, by BF.LOADCHUNK.
//!
//! ```text
//!   FILE ── BF.LOADCHUNK ──▶ NAME:restoring:K, a key in the slot of NAME ── RENAME ──▶ NAME
//! ```
//!
//! The key is renamed to NAME once the file has been read to its end and verified, so readers of
//! NAME never see a part of a filter. If the file is damaged or the pipe is cut, the key is
//! removed.

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    time::Duration,
};

use redis::Value;
use serde::Serialize;

use crate::{
    amount,
    at_once::Servers,
    connection::{Connection, Options},
    dump_file::{PIPE, Reader},
    error::{Error, Exit},
    filter_info::is_filter,
    interrupt,
    name::{self, Named},
    output::Output,
    progress::Progress,
    restore_key::{begin, holds, load},
    retry::{RETRY_FOR, retry},
    watched::watched,
};

/// Restores a filter from a file that dump wrote
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// File that dump wrote, or - for standard input
    file: PathBuf,
    /// Name of the new filter
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

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        interrupt::register();
        let reader = self.open()?;
        let name = name::bytes(&self.name);
        let servers = Servers::of(connection.target()?, output)?;
        if is_filter(&mut servers.all.connect_for(name)?, name)? && !self.replace {
            return Err(self.taken());
        }
        let key = name::beside(name, "restoring");
        let mut filling = Filling { servers: &servers, key: &key, begun: false, output };
        let placed = filling.load(&self.file, reader).and_then(|(reader, header, server)| {
            let placed = self.place(&servers, server, &key, &header)?;
            Ok((placed, reader))
        });
        let is_placed = placed.as_ref().is_ok_and(|(placed, _)| *placed);
        if !is_placed && filling.begun {
            // If this fails, the next run says that the key is there.
            let unlink = |mut server: Connection| server.call(redis::cmd("UNLINK").arg(&key));
            let _ = servers.all.connect_for(&key).and_then(unlink);
        }
        let (placed, reader) = placed?;
        if !placed {
            return Err(self.taken());
        }
        self.say(&reader, output)
    }

    fn open(&self) -> Result<Reader, Error> {
        if self.file != Path::new(PIPE) {
            return Reader::open(&self.file);
        }
        if io::stdin().is_terminal() {
            let hint = "Name a file, or `redis-bloom dump NAME -o - |` before it.";
            return Err(Error::usage("standard input is a terminal", hint));
        }
        Reader::of_stdin()
    }

    fn taken(&self) -> Error {
        let shown = name::readable(name::bytes(&self.name));
        Error::refused_partly(
            format!("restore {shown}: BUSYKEY the filter exists"),
            "Replace it by --replace, or use another name.",
        )
    }

    fn say(&self, reader: &Reader, output: &Output) -> Result<Exit, Error> {
        let name = name::bytes(&self.name);
        let report = Report {
            name: Named::of(name),
            file: &self.file.display().to_string(),
            product: &reader.product,
            chunks: reader.totals.chunks,
            bytes: reader.totals.bytes,
        };
        let size = amount::readable_bytes(report.bytes);
        let (shown, file) = (name::readable(name), name::readable_path(&self.file));
        output.data(&report, format_args!("{shown}: {size} from {file}"))?;
        Ok(Exit::Done)
    }

    /// Gives the filter that was loaded into `key` its name. Returns `false` if that is taken.
    /// Another client may have made a key of another type there, or changed the loaded one.
    fn place(
        &self,
        servers: &Servers,
        mut server: Connection,
        key: &[u8],
        header: &[u8],
    ) -> Result<bool, Error> {
        let name = name::bytes(&self.name);
        let rename = if self.replace { "RENAME" } else { "RENAMENX" };
        let command = redis::cmd(rename).arg(key).arg(name).take();
        let watch = if self.replace { &[key, name][..] } else { &[key] };
        // Whether the CLI can see after a failure if the key was renamed. A server that does not
        // report what a key holds may also lack chunks by then.
        let shows = matches!(holds(&mut server, key, header), Ok(Some(_)))
            && matches!(holds(&mut server, name, header), Ok(Some(false)));
        let mut loaded_by = Some(server);
        let placed = retry(if shows { RETRY_FOR } else { Duration::ZERO }, |again| {
            // Both keys are in one node.
            let server = &mut loaded_by.take().map_or_else(|| servers.all.connect_for(name), Ok)?;
            // The reply to an earlier attempt may be lost.
            if again && !is_filter(server, key)? && holds(server, name, header)? == Some(true) {
                return Ok(true);
            }
            let (renamed, ()) = watched(server, watch, false, |server| {
                if self.replace {
                    is_filter(server, name)?;
                }
                let renamed = Ok((vec![command.clone()], ()));
                match holds(server, key, header)? {
                    Some(true) => renamed,
                    // Complete filters answer it, others do not.
                    None => server.call_for_key(redis::cmd("BF.INFO").arg(key)).and(renamed),
                    Some(false) => Err(Error::incomplete(
                        format!("{} holds another filter than was loaded", name::readable(key)),
                        "Restore it again when no other client writes that key.",
                    )),
                }
            })?;
            Ok(renamed != Some(Value::Int(0)))
        });
        placed.map_err(|error| match error.passes() && !shows {
            true => Error::incomplete(
                format!("restore {}: {error}", name::readable(name)),
                "Restore it again, by --replace if the name is taken.",
            ),
            false => error,
        })
    }
}

type Loaded = (Reader, Vec<u8>, Connection);

/// A key that is filled.
struct Filling<'a> {
    servers: &'a Servers,
    key: &'a [u8],
    /// Whether the server may have a part of the filter.
    begun: bool,
    output: &'a Output,
}

impl Filling<'_> {
    /// Loads a dump to its end. If the node fails, a file is loaded from its start again. Returns
    /// also the header of the filter, and the connection.
    fn load(&mut self, path: &Path, reader: Reader) -> Result<Loaded, Error> {
        if path == Path::new(PIPE) {
            return self.load_once(reader);
        }
        let mut opened = Some(reader);
        retry(RETRY_FOR, |_| {
            let reader = opened.take().map_or_else(|| Reader::open(path), Ok)?;
            self.load_once(reader)
        })
    }

    fn load_once(&mut self, mut reader: Reader) -> Result<Loaded, Error> {
        let header = reader.next()?.ok_or_else(|| reader.damaged("it has no chunk"))?;
        let mut server = self.servers.all.connect_for(self.key)?;
        if self.begun {
            server.call_for_key(redis::cmd("UNLINK").arg(self.key))?;
        } else if is_filter(&mut server, self.key)? {
            return Err(Error::refused_partly(
                format!(
                    "restore: BUSYKEY {}: another restore is running, or was interrupted",
                    name::readable(self.key)
                ),
                format!("Wait for it, or remove the key by `drop {}`.", name::typed(self.key)),
            ));
        }
        let begins = begin(&mut server, self.key, &header);
        // A server that refuses the header has nothing.
        self.begun |= !matches!(begins, Err(Error::Refused { .. }));
        begins?;
        let label = name::readable(self.key);
        let mut progress = Progress::new(self.output, &label, reader.length);
        let watch = &mut |at| progress.at(at, at, amount::readable_bytes);
        load(&mut server, self.key, &mut reader, watch)?;
        Ok((reader, header.data, server))
    }
}
