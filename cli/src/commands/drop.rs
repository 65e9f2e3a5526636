//! `redis-bloom drop NAME`: removes a filter, and nothing else.
//!
//! It asks no question on a terminal: it removes one key, which the user has named, and only a
//! filter. `--dry-run` is there for who is not sure.

use std::ffi::OsString;

use redis::Value;

use crate::{
    connection::{Connection, Options},
    error::{Error, Exit},
    name,
    output::Output,
    scan::TYPES,
};

/// Removes a filter
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter
    name: OsString,
    /// Checks that the filter is there, and removes nothing
    #[arg(long)]
    dry_run: bool,
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        let mut server = connection.target()?.connect()?;
        let key = name::bytes(&self.name);
        let name = name::readable(key);
        is_filter(&mut server, key).map_err(|error| match error {
            Error::Refused { text, .. } if text.starts_with("ERR not found") => {
                Error::RefusedPartly {
                    what: format!("drop {name}: {text}"),
                    hint: "There is no filter of this name; `top --once` shows all.".to_owned(),
                }
            }
            Error::Refused { text, .. } => Error::Refused { command: format!("drop {name}"), text },
            error => error,
        })?;
        if self.dry_run {
            output.remark(format_args!("{name} would be removed"));
            return Ok(Exit::Done);
        }
        // The memory of a large filter is given back outside of the server's main thread.
        server.call(redis::cmd("UNLINK").arg(key))?;
        output.remark(format_args!("{name} removed"));
        Ok(Exit::Done)
    }
}

/// Checks that the key is a filter, complete or not. Leads the connection to the node that has it.
fn is_filter(server: &mut Connection, key: &[u8]) -> Result<(), Error> {
    let refused = |text: String| Err(Error::Refused { command: String::new(), text });
    match server.call_for_key(redis::cmd("TYPE").arg(key)) {
        Ok(Value::SimpleString(kind)) if TYPES.contains(&kind.as_str()) => Ok(()),
        Ok(Value::SimpleString(kind)) if kind == "none" => refused("ERR not found".to_owned()),
        Ok(Value::SimpleString(kind)) => refused(format!("WRONGTYPE the key holds a {kind}")),
        Ok(other) => Err(Error::Reply { command: "TYPE".to_owned(), reply: format!("{other:?}") }),
        // A user without the right to TYPE: BF.INFO answers for filters only.
        Err(Error::Refused { text, .. }) if text.starts_with("NOPERM") => {
            match server.call_for_key(redis::cmd("BF.INFO").arg(key)) {
                Err(Error::Refused { text, .. }) if text.contains("BF.LOADCHUNK") => Ok(()),
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}
