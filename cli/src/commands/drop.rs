//! `redis-bloom drop NAME`: removes a filter, and nothing else.

use redis::Value;

use crate::{
    connection::Options,
    error::{Error, Exit},
    output::Output,
};

/// The names of the data types of Bloom filters: RedisBloom's, which is also this project's, and
/// valkey-bloom's.
const TYPES: [&str; 2] = ["MBbloom--", "bloomfltr"];

/// Removes a filter
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter
    name: String,
    /// Checks that the filter is there, and removes nothing
    #[arg(long)]
    dry_run: bool,
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        let mut server = connection.target()?.connect()?;
        let name = &self.name;
        let found = server.call_for_key(redis::cmd("TYPE").arg(name))?;
        match found {
            Value::SimpleString(kind) if TYPES.contains(&kind.as_str()) => {}
            Value::SimpleString(kind) if kind == "none" => {
                return Err(Error::Refused {
                    command: format!("drop {name}"),
                    text: "ERR not found".to_owned(),
                });
            }
            Value::SimpleString(kind) => {
                return Err(Error::Refused {
                    command: format!("drop {name}"),
                    text: format!("WRONGTYPE the key holds a {kind}"),
                });
            }
            other => {
                return Err(Error::Reply {
                    command: "TYPE".to_owned(),
                    reply: format!("{other:?}"),
                });
            }
        }
        if self.dry_run {
            output.remark(format_args!("{name} would be removed"));
            return Ok(Exit::Done);
        }
        // The memory of a large filter is given back outside of the server's main thread.
        server.call(redis::cmd("UNLINK").arg(name))?;
        output.remark(format_args!("{name} removed"));
        Ok(Exit::Done)
    }
}
