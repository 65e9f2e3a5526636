//! How a filter in one key, or a shard, is queried: the commands for a batch, and their replies.

use bloom::sharding::Shard;
use redis::{Cmd, ServerError, Value};

use super::set_bit;
use crate::{
    connection::{Connection, text_of},
    error::Error,
    items::Batch,
    loading::not_shard,
    refusal::Refusal,
};

/// Items in one `BF.MEXISTS`: enough to be fast, few enough not to delay other clients.
const ITEMS: usize = 1000;

/// How a filter in one key, or a shard, is asked.
pub(crate) struct Question {
    pub(super) key: Vec<u8>,
    /// Which shard the filter must be; `None` for any filter.
    pub(super) shard: Option<Shard>,
    /// Whether the server has `BF.BULKEXISTS`, and lets this user send it.
    pub(super) packed: bool,
}

impl Question {
    pub(super) fn find_command(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let mut command = redis::cmd("BF.BULKEXISTS");
        match connection.call_for_key(command.arg(&self.key).arg("LINES").arg("")) {
            Ok(_) => Ok(()),
            Err(error) if error.refusal().is_some_and(Refusal::lacks_command) => {
                self.packed = false;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The commands for a batch, but the last one.
    fn commands(&self, batch: &Batch) -> Vec<Cmd> {
        if self.packed {
            let mut command = redis::cmd("BF.BULKEXISTS");
            command.arg(&self.key).arg(batch.packing.word()).arg(&batch.blob);
            return vec![command];
        }
        let command = |items: &[&[u8]]| redis::cmd("BF.MEXISTS").arg(&self.key).arg(items).take();
        batch.items().chunks(ITEMS).map(command).collect()
    }

    /// The last command: of a missing filter a server may say that nothing is in it. The filter was
    /// there before the first batch, and is there after this one.
    fn last_command(&self) -> Cmd {
        redis::cmd("BF.INFO").arg(&self.key).arg(self.shard.map(|_| "SHARD")).take()
    }

    /// What the reply to the last command says about the filter.
    fn see(&self, reply: &Value) -> Result<(), Error> {
        match self.shard.and_then(|shard| not_shard(reply, shard)) {
            Some(text) => Err(Error::refused("BF.INFO", text)),
            None => Ok(()),
        }
    }

    pub(super) fn send(&self, connection: &mut Connection, batch: &Batch) -> Result<(), Error> {
        for command in self.commands(batch) {
            connection.send(&command)?;
        }
        connection.send(&self.last_command())
    }

    pub(super) fn receive(
        &self,
        connection: &mut Connection,
        batch: &Batch,
    ) -> Result<Vec<u8>, Error> {
        let bits = self.bits(batch, |command| accepted(command, connection.receive()?))?;
        self.see(&accepted("BF.INFO", connection.receive()?)?)?;
        Ok(bits)
    }

    /// Asks for one batch, while no other is under way. Follows redirections.
    pub(super) fn ask_alone(
        &self,
        connection: &mut Connection,
        batch: &Batch,
    ) -> Result<Vec<u8>, Error> {
        let mut commands = self.commands(batch).into_iter();
        let bits = self.bits(batch, |_| match commands.next() {
            Some(command) => connection.call_for_key(&command),
            None => Ok(Value::Nil),
        })?;
        self.see(&connection.call_for_key(&self.last_command())?)?;
        Ok(bits)
    }

    /// The bits of the replies.
    fn bits(
        &self,
        batch: &Batch,
        mut reply: impl FnMut(&str) -> Result<Value, Error>,
    ) -> Result<Vec<u8>, Error> {
        let items = batch.count;
        if self.packed {
            return packed_bits(reply("BF.BULKEXISTS")?, items);
        }
        let mut bits = vec![0; items.div_ceil(8) as usize];
        let mut first = 0;
        while first < items {
            let count = (items - first).min(ITEMS as u64);
            set_bits(reply("BF.MEXISTS")?, first, count, &mut bits)?;
            first += count;
        }
        Ok(bits)
    }
}

/// The reply, or the server's error.
fn accepted(command: &str, reply: Value) -> Result<Value, Error> {
    match reply {
        Value::ServerError(error) => Err(refused(command, &error)),
        reply => Ok(reply),
    }
}

fn refused(command: &str, error: &ServerError) -> Error {
    Error::refused(command.to_owned(), text_of(error))
}

/// The bits of a reply to `BF.BULKEXISTS` for so many items.
fn packed_bits(reply: Value, items: u64) -> Result<Vec<u8>, Error> {
    let wrong = |reply: &Value| Error::reply("BF.BULKEXISTS", reply);
    let Value::Array(elements) = &reply else { return Err(wrong(&reply)) };
    // An error is the last element, behind the answers of the items before it.
    if let Some(Value::ServerError(error)) = elements.last() {
        return Err(refused("BF.BULKEXISTS", error));
    }
    match &elements[..] {
        [Value::Int(count), Value::BulkString(bits)]
            if u64::try_from(*count) == Ok(items) && bits.len() as u64 == items.div_ceil(8) =>
        {
            Ok(bits.clone())
        }
        _ => Err(wrong(&reply)),
    }
}

/// Sets the bits from `first` on, as a reply to `BF.MEXISTS` for `count` items says.
fn set_bits(reply: Value, first: u64, count: u64, bits: &mut [u8]) -> Result<(), Error> {
    let wrong = |reply: &Value| Error::reply("BF.MEXISTS", reply);
    let Value::Array(answers) = reply else { return Err(wrong(&reply)) };
    if answers.len() as u64 != count {
        return Err(wrong(&Value::Array(answers)));
    }
    for (at, answer) in (first as usize..).zip(answers) {
        match accepted("BF.MEXISTS", answer)? {
            Value::Int(0) | Value::Boolean(false) => {}
            Value::Int(1) | Value::Boolean(true) => set_bit(bits, at),
            other => return Err(wrong(&other)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Kind;

    fn error(text: &str) -> Value {
        redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap()
    }

    #[test]
    fn bits_of_bulkexists() {
        let two = || vec![Value::Int(9), Value::BulkString(vec![0x80, 0x80])];
        assert_eq!(packed_bits(Value::Array(two()), 9).unwrap(), [0x80, 0x80]);
        // Fewer answers than items, bits of another length, an error behind the answers.
        assert!(matches!(packed_bits(Value::Array(two()), 10), Err(Error::Reply { .. })));
        assert!(matches!(packed_bits(Value::Array(two()), 17), Err(Error::Reply { .. })));
        assert!(matches!(packed_bits(Value::Int(9), 9), Err(Error::Reply { .. })));
        assert!(matches!(packed_bits(Value::Array(vec![]), 0), Err(Error::Reply { .. })));
        let mut three = two();
        three.push(error("OOM no memory"));
        let refused = packed_bits(Value::Array(three), 9);
        assert!(matches!(refused, Err(error) if error.is(Kind::OutOfMemory)));
    }

    #[test]
    fn bits_of_mexists() {
        let mut bits = [0; 2];
        let reply = Value::Array(vec![Value::Int(1), Value::Int(0), Value::Boolean(true)]);
        set_bits(reply.clone(), 6, 3, &mut bits).unwrap();
        assert_eq!(bits, [0x02, 0x80]);
        assert!(matches!(set_bits(reply, 0, 2, &mut bits), Err(Error::Reply { .. })));
        for (wrong, refused) in
            [(error("ERR some reason"), true), (Value::Int(2), false), (Value::Nil, false)]
        {
            let result = set_bits(Value::Array(vec![wrong]), 0, 1, &mut bits);
            assert_eq!(matches!(result, Err(Error::Refused { .. })), refused);
            assert!(result.is_err());
        }
    }
}
