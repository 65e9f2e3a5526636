//! A filter at the other end of a connection: commands with items and what their replies mean, and
//! what the server says about the filter. This file does not retry.

use bloom::sharding::Shard;
use redis::Value;

use super::proof::{Process, Seen};
use crate::{
    connection::{Connection, text_of},
    error::Error,
    items::Batch,
    refusal::{Kind, Refusal},
    reply::{number, only, text},
    window::Window,
};

/// How items are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// BF.BULKADD, a batch in one argument.
    Packed,
    /// BF.INSERT, an argument for each item: RedisBloom, valkey-bloom.
    Arguments,
}

/// Bytes of items in one BF.INSERT.
const INSERTED: u64 = 16 << 10;

/// What a reply means for its batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Items at the front that are in the filter: all, unless there is a refusal.
    pub(super) count: u64,
    /// Those of them that were new.
    pub(super) new: u64,
    pub(super) refusal: Option<Refusal>,
}

pub(super) struct Wire {
    pub(super) connection: Connection,
    key: Vec<u8>,
    /// Which shard the filter must be; `None` for any filter.
    shard: Option<Shard>,
    form: Form,
    /// Whether the filter counts additions.
    pub(super) counting: bool,
}

impl Wire {
    pub(super) fn new(connection: Connection, key: &[u8], shard: Option<Shard>) -> Self {
        Self { connection, key: key.to_vec(), shard, form: Form::Packed, counting: false }
    }

    /// Looks for the filter; `None` if there is none.
    pub(super) fn find(&mut self) -> Result<Option<Seen>, Error> {
        // Other modules have no such field, and no such filters.
        let found = self.field("SATURATED").and_then(|saturated| {
            self.counting = matches!(saturated, Some(Value::Array(values))
                if matches!(values[..], [Value::Int(_)]));
            self.look()
        });
        match found {
            Err(error) if error.is(Kind::NotFound) => Ok(None),
            seen => seen.map(Some),
        }
    }

    /// Finds out how the server takes items. Adds nothing.
    pub(super) fn prepare(&mut self) -> Result<(), Error> {
        self.form = match self.ask_about("BF.BULKADD", &["NOCREATE", "LINES", ""]) {
            Err(Error::Refused { refusal, .. }) if refusal.lacks_command() => Form::Arguments,
            reply => reply.map(|_| Form::Packed)?,
        };
        Ok(())
    }

    /// The bytes of a batch, if one command is to have `command` bytes.
    pub(super) fn batch_size(&self, command: u64) -> u64 {
        match self.form {
            Form::Packed => command,
            Form::Arguments => command.min(INSERTED),
        }
    }

    pub(super) fn send(&mut self, batch: &Batch) -> Result<(), Error> {
        let key = &self.key[..];
        match self.form {
            Form::Packed => {
                let word = batch.packing.word().as_bytes();
                self.connection.send_parts(&[b"BF.BULKADD", key, b"NOCREATE", word, &batch.blob])
            }
            Form::Arguments => {
                let mut words = vec![b"BF.INSERT", key, b"NOCREATE", b"ITEMS"];
                words.extend(batch.items());
                self.connection.send_parts(&words)
            }
        }
    }

    /// Receives the reply to a batch of `items` items.
    pub(super) fn receive(&mut self, items: u64) -> Result<Outcome, Error> {
        let reply = self.connection.receive()?;
        if let Value::ServerError(error) = &reply {
            let refusal = Some(text_of(error).into());
            return Ok(Outcome { refusal, ..Outcome::default() });
        }
        let (outcome, command) = match self.form {
            Form::Packed => (packed_outcome(&reply), "BF.BULKADD"),
            Form::Arguments => (outcome(&reply), "BF.INSERT"),
        };
        let fits = |outcome: &Outcome| {
            outcome.new <= items
                && match outcome.refusal {
                    None => outcome.count == items,
                    Some(_) => outcome.count <= items,
                }
        };
        outcome.filter(fits).ok_or_else(|| {
            let reply = format!("{reply:?}").chars().take(200).collect();
            Error::Reply { command: command.to_owned(), reply }
        })
    }

    /// What the server says about the filter and itself.
    pub(super) fn look(&mut self) -> Result<Seen, Error> {
        let items = number(only(&self.ask_about("BF.INFO", &["ITEMS"])?));
        let window = self.field("WINDOW")?;
        let forgets = window.is_some_and(|it| Window::from_reply(only(&it)).is_some());
        let identity = self.field("IDENTITY")?;
        let identity = identity.as_ref().and_then(|it| text(only(it))).map(str::to_owned);
        self.see_shard()?;
        // What is forgotten or deleted makes the number of items smaller.
        let items = items.filter(|_| !self.counting && !forgets);
        let info = self.connection.info_needed(&["server", "replication"])?;
        Ok(Seen { identity, items, process: Process::of(&info) })
    }

    /// A field of BF.INFO; `None` from a module that has no such field.
    fn field(&mut self, name: &str) -> Result<Option<Value>, Error> {
        match self.ask_about("BF.INFO", &[name]) {
            Err(error) if error.is(Kind::NoField) => Ok(None),
            reply => reply.map(Some),
        }
    }

    /// Sees that the filter is the shard that it must be. `BF.ADD` recreates a lost shard as a
    /// filter of another kind.
    fn see_shard(&mut self) -> Result<(), Error> {
        let Some(shard) = self.shard else { return Ok(()) };
        match not_shard(&self.ask_about("BF.INFO", &["SHARD"])?, shard) {
            Some(text) => Err(Error::refused("BF.INFO", text)),
            None => Ok(()),
        }
    }

    /// One command about the filter; nothing is in flight.
    pub(super) fn ask_about(&mut self, name: &str, words: &[&str]) -> Result<Value, Error> {
        self.connection.call_for_key(redis::cmd(name).arg(&self.key).arg(words))
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

/// What BF.BULKADD answered: a number of items, a bit for each, and perhaps an error.
fn packed_outcome(reply: &Value) -> Option<Outcome> {
    let Value::Array(parts) = reply else { return None };
    let (count, bits, refusal) = match &parts[..] {
        [Value::Int(count), Value::BulkString(bits)] => (count, bits, None),
        [Value::Int(count), Value::BulkString(bits), Value::ServerError(error)] => {
            (count, bits, Some(text_of(error).into()))
        }
        _ => return None,
    };
    let new = bits.iter().map(|byte| u64::from(byte.count_ones())).sum();
    Some(Outcome { count: u64::try_from(*count).ok()?, new, refusal })
}

/// What BF.INSERT answered: a number for each item, perhaps with an error in the place of one.
fn outcome(reply: &Value) -> Option<Outcome> {
    let Value::Array(answers) = reply else { return None };
    let mut outcome = Outcome::default();
    for answer in answers {
        match answer {
            Value::Int(0) | Value::Boolean(false) => {}
            Value::Int(1) | Value::Boolean(true) => outcome.new += 1,
            Value::ServerError(error) => {
                outcome.refusal = Some(text_of(error).into());
                break;
            }
            _ => return None,
        }
        outcome.count += 1;
    }
    Some(outcome)
}
