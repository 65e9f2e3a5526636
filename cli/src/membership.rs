//! Asks a filter whether it has items: batch after batch, with some commands under way.
//!
//! ```text
//!   batch ──▶ BF.BULKEXISTS key LENGTHS blob ──▶ count, bits ──▶ Answers
//!         └─▶ BF.MEXISTS key item ... (RedisBloom, valkey-bloom) ─┘
//!   and after each batch BF.INFO key: of a missing filter a server may say that nothing is in it
//! ```

use std::collections::VecDeque;

use redis::{ServerError, Value};

use crate::{
    connection::{Connection, text_of},
    error::Error,
    items::Batch,
};

/// Batches under way. While the server answers one, it has the next, and the tool reads a third.
const UNDER_WAY: usize = 3;
/// Items in one `BF.MEXISTS`: enough to be fast, few enough not to delay other clients.
const ITEMS: usize = 1000;

/// Asks one filter.
pub(crate) struct Membership<'c> {
    connection: &'c mut Connection,
    key: &'c [u8],
    /// Whether the server has `BF.BULKEXISTS`, and lets this user send it.
    packed: bool,
}

/// The answers to a batch.
pub(crate) struct Answers {
    /// A bit for each item: 1, it may be in the filter. Item 0 is the top bit of byte 0.
    bits: Vec<u8>,
    /// The number of items.
    pub(crate) items: u64,
    /// The number of items that may be in the filter.
    pub(crate) present: u64,
}

impl Answers {
    fn of(bits: Vec<u8>, items: u64) -> Self {
        let present = bits.iter().map(|byte| u64::from(byte.count_ones())).sum();
        Self { bits, items, present }
    }

    /// Whether each item may be in the filter, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = bool> {
        let bits = self.bits.iter().flat_map(|byte| (0..8).map(move |at| byte << at & 0x80 != 0));
        bits.take(self.items as usize)
    }
}

impl<'c> Membership<'c> {
    /// Looks for the filter, and finds out which command the server has.
    ///
    /// # Errors
    /// `Error::Refused` with `ERR not found` or `WRONGTYPE ...`, if there is no such filter.
    pub(crate) fn of(connection: &'c mut Connection, key: &'c [u8]) -> Result<Self, Error> {
        connection.call_for_key(redis::cmd("BF.INFO").arg(key))?;
        let nothing = connection.call(redis::cmd("BF.BULKEXISTS").arg(key).arg("LINES").arg(""));
        let packed = match nothing {
            Ok(_) => true,
            Err(Error::Refused { text, .. }) if lacks_command(&text) => false,
            Err(error) => return Err(error),
        };
        Ok(Self { connection, key, packed })
    }

    /// Asks for all batches, and gives `answered` each of them with its answers, in order.
    pub(crate) fn ask(
        &mut self,
        mut batches: impl FnMut() -> Result<Option<Batch>, Error>,
        mut answered: impl FnMut(&Batch, &Answers) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut under_way = VecDeque::new();
        loop {
            while under_way.len() < UNDER_WAY
                && let Some(batch) = batches()?
            {
                self.send(&batch)?;
                under_way.push_back(batch);
            }
            let Some(batch) = under_way.pop_front() else { return Ok(()) };
            let answers = self.receive(&batch)?;
            answered(&batch, &answers)?;
        }
    }

    fn send(&mut self, batch: &Batch) -> Result<(), Error> {
        if self.packed {
            let mut command = redis::cmd("BF.BULKEXISTS");
            command.arg(self.key).arg(batch.packing.word()).arg(&batch.blob);
            self.connection.send(&command)?;
        } else {
            for items in batch.items().chunks(ITEMS) {
                self.connection.send(redis::cmd("BF.MEXISTS").arg(self.key).arg(items))?;
            }
        }
        self.connection.send(redis::cmd("BF.INFO").arg(self.key))
    }

    fn receive(&mut self, batch: &Batch) -> Result<Answers, Error> {
        let items = batch.count;
        let bits = if self.packed {
            let reply = self.receive_reply("BF.BULKEXISTS")?;
            packed_bits(reply, items)?
        } else {
            let mut bits = vec![0; items.div_ceil(8) as usize];
            let mut first = 0;
            while first < items {
                let count = (items - first).min(ITEMS as u64);
                let reply = self.receive_reply("BF.MEXISTS")?;
                set_bits(reply, first, count, &mut bits)?;
                first += count;
            }
            bits
        };
        // The filter was there before the first batch, and is there after this one.
        self.receive_reply("BF.INFO")?;
        Ok(Answers::of(bits, items))
    }

    fn receive_reply(&mut self, command: &str) -> Result<Value, Error> {
        accepted(command, self.connection.receive()?)
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
    Error::Refused { command: command.to_owned(), text: text_of(error) }
}

/// Whether an error means that another command may do: the server has none of this name, or the
/// user may not send it.
pub(crate) fn lacks_command(text: &str) -> bool {
    text.starts_with("ERR unknown command") || text.starts_with("NOPERM")
}

/// The bits of a reply to `BF.BULKEXISTS` for so many items.
fn packed_bits(reply: Value, items: u64) -> Result<Vec<u8>, Error> {
    let wrong = |reply: &Value| Error::Reply {
        command: "BF.BULKEXISTS".to_owned(),
        reply: format!("{reply:?}"),
    };
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
    let wrong = |reply: &Value| Error::Reply {
        command: "BF.MEXISTS".to_owned(),
        reply: format!("{reply:?}"),
    };
    let Value::Array(answers) = reply else { return Err(wrong(&reply)) };
    if answers.len() as u64 != count {
        return Err(wrong(&Value::Array(answers)));
    }
    for (at, answer) in (first as usize..).zip(answers) {
        match accepted("BF.MEXISTS", answer)? {
            Value::Int(0) | Value::Boolean(false) => {}
            Value::Int(1) | Value::Boolean(true) => bits[at / 8] |= 0x80 >> (at % 8),
            other => return Err(wrong(&other)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Value {
        redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap()
    }

    #[test]
    fn bits_of_bulkexists() {
        let two = || vec![Value::Int(9), Value::BulkString(vec![0x80, 0x80])];
        assert_eq!(packed_bits(Value::Array(two()), 9).unwrap(), [0x80, 0x80]);
        let answers = Answers::of(vec![0x80, 0x80], 9);
        assert_eq!(answers.present, 2);
        let expected = [true, false, false, false, false, false, false, false, true];
        assert_eq!(answers.iter().collect::<Vec<_>>(), expected);
        // Fewer answers than items, bits of another length, an error behind the answers.
        assert!(matches!(packed_bits(Value::Array(two()), 10), Err(Error::Reply { .. })));
        assert!(matches!(packed_bits(Value::Array(two()), 17), Err(Error::Reply { .. })));
        assert!(matches!(packed_bits(Value::Int(9), 9), Err(Error::Reply { .. })));
        assert!(matches!(packed_bits(Value::Array(vec![]), 0), Err(Error::Reply { .. })));
        let mut three = two();
        three.push(error("OOM no memory"));
        let refused = packed_bits(Value::Array(three), 9);
        assert!(matches!(refused, Err(Error::Refused { text, .. }) if text == "OOM no memory"));
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
