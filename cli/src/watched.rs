//! Commands that run only if their keys have not changed since a check: WATCH, check, MULTI, EXEC.

use redis::{Cmd, Value};

use crate::{
    connection::{Connection, name_of, text_of},
    error::Error,
    refusal::Refusal,
};

/// How often it is tried while the keys change all the time.
const TRIES: u32 = 1000;

/// Sends `commands` if `look` returns true, and returns the last reply; `None` if `look` returns
/// false. No key of `keys` changes between the two, if the user may use transactions. The keys have
/// one slot, and `look` leads the connection to no other node.
///
/// # Errors
/// `Error::Incomplete` if the keys change all the time: nothing was done.
pub(crate) fn watched(
    server: &mut Connection,
    keys: &[&[u8]],
    commands: &[Cmd],
    mut look: impl FnMut(&mut Connection) -> Result<bool, Error>,
) -> Result<Option<Value>, Error> {
    // At once, so that little time is left for a change.
    let mut transaction = vec![redis::cmd("MULTI")];
    transaction.extend_from_slice(commands);
    transaction.push(redis::cmd("EXEC"));
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
            return commands
                .iter()
                .try_fold(None, |_, command| server.call_for_key(command).map(Some));
        }
        let mut replies = server.request_all(&transaction)?.into_iter();
        let began = replies.next();
        let done = replies.next_back();
        if let Some(Value::ServerError(error)) = began {
            let refusal = Refusal::from(text_of(&error));
            // Without the right to MULTI the commands were sent alone.
            return match refusal.lacks_command() {
                true => last_of(server, commands, replies),
                false => Err(Error::refused("MULTI", refusal)),
            };
        }
        last_of(server, commands, replies)?;
        match done {
            // A key has changed, perhaps only by an addition to the filter.
            Some(Value::Nil) => {}
            Some(Value::Array(replies)) => return last_of(server, commands, replies),
            // Valkey 9.1 looks whether all keys of the commands are there only now.
            Some(Value::ServerError(error)) => return Err(server.refused("EXEC", &error)),
            other => return Err(Error::reply("EXEC", &other)),
        }
    }
    Err(Error::incomplete(
        format!(
            "{}: the key changes all the time",
            commands.last().map(name_of).unwrap_or_default()
        ),
        "Repeat it when fewer clients add to the filter.",
    ))
}

/// The last reply, if no reply is an error.
fn last_of(
    server: &Connection,
    commands: &[Cmd],
    replies: impl IntoIterator<Item = Value>,
) -> Result<Option<Value>, Error> {
    commands.iter().zip(replies).try_fold(None, |_, (command, reply)| match reply {
        Value::ServerError(error) => Err(server.refused(&name_of(command), &error)),
        reply => Ok(Some(reply)),
    })
}
