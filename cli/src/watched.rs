//! Commands that run only if their keys have not changed since a check: WATCH, check, MULTI, EXEC.

use redis::{Cmd, Value};

use crate::{
    connection::{Connection, name_of, text_of},
    error::Error,
    refusal::{Kind, Refusal},
};

/// How often it is tried while the keys change all the time.
const TRIES: u32 = 1000;

/// Sends the commands that `look` returns, if any. Returns the last reply, and the other value that
/// `look` returned. No key of `keys` changes between `look` and the commands. That needs the right
/// to transactions, and memory for one on the server. Without them it is an error if `atomic`;
/// otherwise the commands may be sent without a transaction. The keys have one slot, and `look`
/// leads the connection to no other node.
///
/// # Errors
/// `Error::incomplete` if the keys change all the time: nothing was done.
pub(crate) fn watched<T>(
    server: &mut Connection,
    keys: &[&[u8]],
    atomic: bool,
    mut look: impl FnMut(&mut Connection) -> Result<(Vec<Cmd>, T), Error>,
) -> Result<(Option<Value>, T), Error> {
    let mut name = String::new();
    for _ in 0..TRIES {
        let watches = match server.call_for_key(redis::cmd("WATCH").arg(keys)) {
            Ok(_) => true,
            Err(error) if !atomic && error.refusal().is_some_and(Refusal::lacks_command) => false,
            Err(error) => return Err(error),
        };
        let (commands, seen) = look(server)?;
        let Some(last) = commands.last() else { return Ok((None, seen)) };
        name = name_of(last);
        let alone = |server: &mut Connection, commands: &[Cmd]| {
            commands.iter().try_fold(None, |_, command| server.call_for_key(command).map(Some))
        };
        if !watches {
            return Ok((alone(server, &commands)?, seen));
        }
        // All of them together, so that little time is left for a change.
        let [begin, end] = ["MULTI", "EXEC"].map(redis::cmd);
        let transaction: Vec<_> =
            [begin].into_iter().chain(commands.iter().cloned()).chain([end]).collect();
        let mut replies = server.request_all(&transaction)?.into_iter();
        let began = replies.next();
        let done = replies.next_back();
        if let Some(Value::ServerError(error)) = began {
            let refusal = Refusal::from(text_of(&error));
            // Without the right to MULTI the commands were sent alone.
            return match !atomic && refusal.lacks_command() {
                true => Ok((last_of(server, &commands, replies)?, seen)),
                false => Err(Error::refused("MULTI", refusal)),
            };
        }
        match last_of(server, &commands, replies) {
            // Without memory a transaction takes no command, not even one that frees memory.
            Err(error) if !atomic && commands.len() == 1 && error.is(Kind::OutOfMemory) => {
                // The refusal ended the watch, too.
                let (commands, seen) = look(server)?;
                return Ok((alone(server, &commands)?, seen));
            }
            queued => drop(queued?),
        }
        match done {
            // A key has changed, perhaps only by an addition to the filter.
            Some(Value::Nil) => {}
            Some(Value::Array(replies)) => return Ok((last_of(server, &commands, replies)?, seen)),
            // Only now, at EXEC, Valkey 9.1 checks whether all keys of the commands are there.
            Some(Value::ServerError(error)) => return Err(server.refused("EXEC", &error)),
            other => return Err(Error::reply("EXEC", &other)),
        }
    }
    Err(Error::incomplete(
        format!("{name}: the key changes all the time"),
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
