//! A command that is sent only while its keys are what was seen: WATCH, a look, MULTI, EXEC.

use redis::{Cmd, Value};

use crate::{
    connection::{Connection, name_of, text_of},
    error::Error,
    refusal::Refusal,
};

/// How often it is tried while the keys change all the time.
const TRIES: u32 = 1000;

/// Sends `command` if `look` returns true, and returns its reply; `None` if `look` returns false.
/// No key of `keys` changes between the two, if the user may use transactions. The keys have one
/// slot, and `look` leads the connection to no other node.
///
/// # Errors
/// `Error::Incomplete` if the keys change all the time: nothing was done.
pub(crate) fn watched(
    server: &mut Connection,
    keys: &[&[u8]],
    command: &Cmd,
    mut look: impl FnMut(&mut Connection) -> Result<bool, Error>,
) -> Result<Option<Value>, Error> {
    let name = name_of(command);
    // At once, so that little time is left for a change.
    let transaction = [redis::cmd("MULTI"), command.clone(), redis::cmd("EXEC")];
    for _ in 0..TRIES {
        let watches = match server.call_for_key(redis::cmd("WATCH").arg(keys)) {
            Ok(_) => true,
            Err(error) if error.refusal().is_some_and(Refusal::lacks_command) => false,
            Err(error) => return Err(error),
        };
        if !look(server)? {
            return Ok(None);
        }
        if !watches {
            return server.call_for_key(command).map(Some);
        }
        let replies = server.request_all(&transaction)?;
        let Ok([began, queued, done]) = <[Value; 3]>::try_from(replies) else {
            return Err(Error::reply("MULTI", "fewer than three replies"));
        };
        let refused = |error| Err(server.refused(&name, &error));
        match (began, queued, done) {
            (Value::ServerError(error), reply, _) => {
                let refusal = Refusal::from(text_of(&error));
                return match reply {
                    _ if !refusal.lacks_command() => Err(Error::refused("MULTI", refusal)),
                    Value::ServerError(error) => refused(error),
                    // Without the right to MULTI it was sent alone.
                    reply => Ok(Some(reply)),
                };
            }
            (_, Value::ServerError(error), _) => return refused(error),
            // A key has changed, perhaps only by an addition to the filter.
            (_, _, Value::Nil) => {}
            (_, _, Value::Array(mut replies)) => {
                return match replies.pop() {
                    Some(Value::ServerError(error)) => refused(error),
                    reply => Ok(reply),
                };
            }
            (_, _, other) => return Err(Error::reply("EXEC", &other)),
        }
    }
    Err(Error::incomplete(
        format!("{name}: the key changes all the time"),
        "Repeat it when fewer clients add to the filter.",
    ))
}
