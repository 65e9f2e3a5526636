//! A shard, or a filter in one key, with its connection: the commands for a batch, and their
//! replies. If the connection breaks, or the slot moves, the batch is sent again on another one.

use bloom::sharding::Shard as Place;
use redis::{Cmd, Value};

use crate::{
    connection::{Connection, Targets, accepted, text_of},
    error::Error,
    items::Batch,
    loading::not_shard,
    refusal::Refusal,
    retry::{RETRY_FOR, retry},
};

/// Items in one `BF.MEXISTS`: enough to be fast, few enough not to delay other clients.
const ITEMS: usize = 1000;

/// A shard, or a filter in one key.
pub(super) struct Shard {
    pub(super) key: Vec<u8>,
    /// Which shard the filter must be; `None` for any filter.
    place: Option<Place>,
    /// Whether the server has `BF.BULKEXISTS`, and lets this user send it.
    packed: bool,
    connection: Option<Connection>,
    /// A batch is in flight on the connection.
    sent: bool,
    /// The key is not this shard: it is lost, or a rebuild replaced it. The caller reads the
    /// descriptor before it queries again.
    suspected: bool,
    /// It was suspected, and is still not there.
    pub(super) lost: bool,
}

/// Whether each item may be in a shard; `None` if it is lost.
pub(super) type Found = Option<Vec<bool>>;

impl Shard {
    pub(super) fn of(key: &[u8], place: Option<Place>) -> Self {
        let (packed, connection, sent) = (true, None, false);
        let (suspected, lost) = (false, false);
        Self { key: key.to_vec(), place, packed, connection, sent, suspected, lost }
    }

    /// Sends a batch, if it has items and there is a connection. Otherwise [`Shard::receive`] does.
    pub(super) fn send(&mut self, batch: &Batch) {
        let Some(mut connection) = self.connection.take().filter(|_| batch.count > 0) else {
            return;
        };
        self.sent = self.send_on(&mut connection, batch).is_ok();
        self.connection = Some(connection).filter(|_| self.sent);
    }

    /// The answers for a batch that was offered to [`Shard::send`].
    ///
    /// # Errors
    /// One that [`is_gone`] the first time that the shard is not there.
    pub(super) fn receive(&mut self, targets: &Targets, batch: &Batch) -> Result<Found, Error> {
        if batch.count == 0 {
            return Ok(Some(Vec::new()));
        }
        let sent = std::mem::take(&mut self.sent);
        // After an error replies may be in flight, so the connection is not used again.
        let received = self.connection.take().filter(|_| sent).and_then(|mut connection| {
            let found = self.receive_on(&mut connection, batch).ok()?;
            Some((found, connection))
        });
        let received = received.map_or_else(|| self.ask_alone(targets, batch), Ok);
        let gone = received.as_ref().is_err_and(is_gone);
        // One that was suspected and answers now was restored, or its slot moved.
        if std::mem::replace(&mut self.suspected, gone) && gone {
            self.lost = true;
            return Ok(None);
        }
        let (found, connection) = received?;
        self.connection = Some(connection);
        Ok(Some(found))
    }

    /// Queries a batch on a new connection; again, while the server fails or slots move.
    fn ask_alone(
        &mut self,
        targets: &Targets,
        batch: &Batch,
    ) -> Result<(Vec<bool>, Connection), Error> {
        let key = self.key.clone();
        retry(RETRY_FOR, |_| {
            targets.on_node(&key, |mut connection| {
                let mut command = redis::cmd("BF.BULKEXISTS");
                match connection.call_for_key(command.arg(&key).arg("LINES").arg("")) {
                    Ok(_) => {}
                    Err(error) if error.refusal().is_some_and(Refusal::lacks_command) => {
                        self.packed = false;
                    }
                    Err(error) => return Err(error),
                }
                self.send_on(&mut connection, batch)?;
                Ok((self.receive_on(&mut connection, batch)?, connection))
            })
        })
    }

    fn send_on(&self, connection: &mut Connection, batch: &Batch) -> Result<(), Error> {
        for command in self.commands(batch) {
            connection.send(&command)?;
        }
        Ok(())
    }

    /// The commands for a batch. The last one is BF.INFO: a server may answer "absent" for a
    /// missing filter. The filter was there before the first batch, and is there after this one.
    fn commands(&self, batch: &Batch) -> Vec<Cmd> {
        let mut commands = Vec::new();
        if self.packed {
            let mut command = redis::cmd("BF.BULKEXISTS");
            command.arg(&self.key).arg(batch.packing.word()).arg(&batch.blob);
            commands.push(command);
        } else {
            let command = |items: &[_]| redis::cmd("BF.MEXISTS").arg(&self.key).arg(items).take();
            commands.extend(batch.items().chunks(ITEMS).map(command));
        }
        let words = self.place.map(|_| "SHARD");
        commands.push(redis::cmd("BF.INFO").arg(&self.key).arg(words).take());
        commands
    }

    fn receive_on(&self, connection: &mut Connection, batch: &Batch) -> Result<Vec<bool>, Error> {
        let mut found = Vec::new();
        let items = batch.count as usize;
        while found.len() < items {
            let reply = connection.receive()?;
            found.extend(match self.packed {
                true => packed(reply, items)?,
                false => listed(reply, ITEMS.min(items - found.len()))?,
            });
        }
        let reply = accepted("BF.INFO", connection.receive()?)?;
        match self.place.and_then(|place| not_shard(&reply, place)) {
            Some(text) => Err(Error::refused("BF.INFO", text)),
            None => Ok(found),
        }
    }
}

/// Whether an error means that the key is not this shard: it is lost, or the filter was rebuilt.
pub(super) fn is_gone(error: &Error) -> bool {
    error.refusal().is_some_and(Refusal::is_gone)
}

/// The bits of a reply to `BF.BULKEXISTS` for `items` items. An error is the last element, behind
/// the answers of the items before it.
fn packed(reply: Value, items: usize) -> Result<Vec<bool>, Error> {
    let reply = accepted("BF.BULKEXISTS", reply)?;
    match &reply {
        Value::Array(elements) => match &elements[..] {
            [.., Value::ServerError(error)] => Err(Error::refused("BF.BULKEXISTS", text_of(error))),
            [Value::Int(count), Value::BulkString(bits)]
                if usize::try_from(*count) == Ok(items) && bits.len() == items.div_ceil(8) =>
            {
                Ok((0..items).map(|at| bits[at / 8] << (at % 8) & 0x80 != 0).collect())
            }
            _ => Err(Error::reply("BF.BULKEXISTS", &reply)),
        },
        _ => Err(Error::reply("BF.BULKEXISTS", &reply)),
    }
}

/// The answers of a reply to `BF.MEXISTS` for `items` items.
fn listed(reply: Value, items: usize) -> Result<Vec<bool>, Error> {
    let answer = |value| match accepted("BF.MEXISTS", value)? {
        Value::Int(0) | Value::Boolean(false) => Ok(false),
        Value::Int(1) | Value::Boolean(true) => Ok(true),
        other => Err(Error::reply("BF.MEXISTS", other)),
    };
    match accepted("BF.MEXISTS", reply)? {
        Value::Array(values) if values.len() == items => values.into_iter().map(answer).collect(),
        other => Err(Error::reply("BF.MEXISTS", other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_do_not_fit_the_batch_are_errors() {
        let two = || Value::Array(vec![Value::Int(9), Value::BulkString(vec![0x80, 0x80])]);
        let mut expected = [false; 9];
        (expected[0], expected[8]) = (true, true);
        assert_eq!(packed(two(), 9).unwrap(), expected);
        for (reply, items) in [(two(), 10), (two(), 17), (Value::Int(9), 9)] {
            assert!(matches!(packed(reply, items), Err(Error::Reply { .. })), "{items}");
        }
        let answers =
            |values: &[i64]| Value::Array(values.iter().copied().map(Value::Int).collect());
        assert_eq!(listed(answers(&[1, 0]), 2).unwrap(), [true, false]);
        for (reply, items) in [(answers(&[1, 0]), 3), (answers(&[2]), 1), (Value::Nil, 1)] {
            assert!(matches!(listed(reply, items), Err(Error::Reply { .. })), "{items}");
        }
    }
}
