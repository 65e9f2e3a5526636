//! The commands that carry items, and what their replies mean. No connection and no state.

use bloom::sharding::Shard;
use redis::Value;

use crate::{
    connection::text_of,
    error::Error,
    items::Batch,
    refusal::{Passing, Refusal},
};

/// How items are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// BF.BULKADD, a batch in one argument.
    Packed,
    /// BF.INSERT, an argument for each item: RedisBloom, valkey-bloom.
    Arguments,
}

/// What a reply means for its batch.
pub(super) enum Outcome {
    Added {
        new: u64,
    },
    /// The first `count` items are in, then came an error.
    Partly {
        count: u64,
        new: u64,
        refusal: Refusal,
    },
    Error(Refusal),
}

/// An error reply to a batch.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) refusal: Refusal,
    /// `None` if it stays.
    pub(super) passing: Option<Passing>,
}

impl Trouble {
    /// `loaded`: the server took items before.
    pub(super) fn of(refusal: Refusal, loaded: bool) -> Self {
        Self { passing: refusal.passing(loaded), refusal }
    }
}

/// The error of the server, if a reply to `BF.INFO key SHARD` names another shard, or none.
pub(crate) fn not_shard(reply: &Value, shard: Shard) -> Option<String> {
    let own = [Value::Int(shard.index().into()), Value::Int(shard.count().into())];
    let is_own = matches!(reply, Value::Array(fields) if matches!(
        &fields[..],
        [Value::Array(numbers)] if numbers[..] == own
    ));
    let text = || format!("ERR filter is not shard {} of {}", shard.index(), shard.count());
    (!is_own).then(text)
}

/// Appends the command for a batch.
pub(super) fn write_command(buffer: &mut Vec<u8>, form: Form, key: &[u8], batch: &Batch) {
    let word = |buffer: &mut Vec<u8>, word: &[u8]| {
        buffer.extend(format!("${}\r\n", word.len()).as_bytes());
        buffer.extend(word);
        buffer.extend(b"\r\n");
    };
    match form {
        Form::Packed => {
            buffer.extend(b"*5\r\n$10\r\nBF.BULKADD\r\n");
            word(buffer, key);
            word(buffer, b"NOCREATE");
            word(buffer, batch.packing.word().as_bytes());
            word(buffer, &batch.blob);
        }
        Form::Arguments => {
            let items = batch.items();
            buffer.extend(format!("*{}\r\n$9\r\nBF.INSERT\r\n", 4 + items.len()).as_bytes());
            word(buffer, key);
            word(buffer, b"NOCREATE");
            word(buffer, b"ITEMS");
            for item in items {
                word(buffer, item);
            }
        }
    }
}

fn unexpected(command: &str, reply: &Value) -> Error {
    let reply = format!("{reply:?}").chars().take(200).collect();
    Error::Reply { command: command.to_owned(), reply }
}

/// What BF.BULKADD answered: a number of items, a bit for each, and perhaps an error.
pub(super) fn packed_outcome(reply: Value, count: u64) -> Result<Outcome, Error> {
    if let Value::ServerError(error) = &reply {
        return Ok(Outcome::Error(text_of(error).into()));
    }
    let parts = match &reply {
        Value::Array(parts) => &parts[..],
        _ => &[],
    };
    let (answered, bits, error) = match parts {
        [Value::Int(answered), Value::BulkString(bits)] => (*answered, bits, None),
        [Value::Int(answered), Value::BulkString(bits), Value::ServerError(error)] => {
            (*answered, bits, Some(text_of(error)))
        }
        _ => return Err(unexpected("BF.BULKADD", &reply)),
    };
    let answered = u64::try_from(answered).unwrap_or(u64::MAX);
    let new = bits.iter().map(|byte| u64::from(byte.count_ones())).sum();
    match error {
        None if answered == count && new <= count => Ok(Outcome::Added { new }),
        Some(text) if answered <= count && new <= count => {
            Ok(Outcome::Partly { count: answered, new, refusal: text.into() })
        }
        _ => Err(unexpected("BF.BULKADD", &reply)),
    }
}

/// What BF.INSERT answered: a number for each item, perhaps with an error in the place of one.
pub(super) fn outcome(reply: Value, count: u64) -> Result<Outcome, Error> {
    let answers = match &reply {
        Value::ServerError(error) => return Ok(Outcome::Error(text_of(error).into())),
        Value::Array(answers) => answers,
        _ => return Err(unexpected("BF.INSERT", &reply)),
    };
    let (mut answered, mut new) = (0, 0);
    for answer in answers {
        match answer {
            Value::Int(0) | Value::Boolean(false) => {}
            Value::Int(1) | Value::Boolean(true) => new += 1,
            Value::ServerError(error) => {
                let refusal = text_of(error).into();
                return Ok(Outcome::Partly { count: answered, new, refusal });
            }
            _ => return Err(unexpected("BF.INSERT", &reply)),
        }
        answered += 1;
    }
    if answered == count {
        Ok(Outcome::Added { new })
    } else {
        Err(unexpected("BF.INSERT", &reply))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_told_from_other_filters() {
        let shard = Shard::new(2, 4).expect("a shard");
        let numbers = |numbers: [i64; 2]| {
            Value::Array(vec![Value::Array(numbers.into_iter().map(Value::Int).collect())])
        };
        assert_eq!(not_shard(&numbers([2, 4]), shard), None);
        for other in [numbers([1, 4]), numbers([2, 8]), Value::Array(vec![Value::Nil])] {
            let text = "ERR filter is not shard 2 of 4";
            assert_eq!(not_shard(&other, shard).as_deref(), Some(text));
        }
    }
}
