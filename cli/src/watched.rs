//! A command that is sent only while its keys are what was seen: WATCH, a look, MULTI, EXEC.

use redis::{Cmd, Value};

use crate::{
    connection::{Connection, name_of},
    error::Error,
    refusal::Refusal,
};

/// How often keys that change all the time are watched. Then the command is sent unwatched.
const WATCHED: u32 = 20;

/// Sends `command` if `look` returns true, and returns its reply; `None` if `look` returns false.
/// No key of `keys` changes between the two, if the user may use transactions. The keys have one
/// slot, and `look` leads the connection to no other node.
pub(crate) fn watched(
    server: &mut Connection,
    keys: &[&[u8]],
    command: &Cmd,
    mut look: impl FnMut(&mut Connection) -> Result<bool, Error>,
) -> Result<Option<Value>, Error> {
    for _ in 0..WATCHED {
        if !allowed(server, redis::cmd("WATCH").arg(keys))? {
            break;
        }
        if !look(server)? {
            return Ok(None);
        }
        if !allowed(server, &redis::cmd("MULTI"))? {
            break;
        }
        if let Err(error) = server.call(command) {
            // The connection may be used again. Without the right to it, nothing is lost.
            if !matches!(error, Error::Connection { .. }) {
                let _ = server.call(&redis::cmd("DISCARD"));
            }
            return Err(error);
        }
        match server.call(&redis::cmd("EXEC"))? {
            // A key has changed, perhaps only by an addition to the filter.
            Value::Nil => {}
            Value::Array(mut replies) => {
                return match replies.pop() {
                    Some(Value::ServerError(error)) => {
                        Err(server.refused(&name_of(command), &error))
                    }
                    reply => Ok(reply),
                };
            }
            other => return Err(Error::reply("EXEC", &other)),
        }
    }
    match look(server)? {
        true => server.call_for_key(command).map(Some),
        false => Ok(None),
    }
}

/// Sends a command, and returns whether the user may send it.
fn allowed(server: &mut Connection, command: &Cmd) -> Result<bool, Error> {
    match server.call_for_key(command) {
        Ok(_) => Ok(true),
        Err(error) if error.refusal().is_some_and(Refusal::lacks_command) => Ok(false),
        Err(error) => Err(error),
    }
}
