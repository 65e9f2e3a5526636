//! Asks a filter whether it has items: batch after batch, with some commands under way.
//!
//! ```text
//!   batch ──▶ BF.BULKEXISTS key LENGTHS blob ──▶ count, bits ──▶ Answers
//!         └─▶ BF.MEXISTS key item ... (RedisBloom, valkey-bloom) ─┘
//!   and after each batch BF.INFO key: of a missing filter a server may say that nothing is in it,
//!   and a shard may have been made anew as another filter
//! ```
//!
//! A batch for a sharded filter is split by its rule (`shards.rs`).

mod key;
mod shards;

use std::io;

use crate::sharding::{Descriptor, Generation, Shard};
use redis::{Cmd, ServerError, Value};

use crate::{
    amount,
    connection::{Connection, Target, text_of},
    error::Error,
    filter_info::{Detail, Reader},
    items::Batch,
    loading::not_shard,
    name,
    refusal::Refusal,
    reply::{only, text},
    sharded::{self, Filter},
    window::Window,
};
use key::Key;
use shards::Shards;

/// Items in one `BF.MEXISTS`: enough to be fast, few enough not to delay other clients.
const ITEMS: usize = 1000;

/// Asks one filter.
pub(crate) enum Membership {
    Key(Box<Key>),
    Shards(Box<Shards>),
}

/// The answer for one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Absent,
    /// It may be in the filter.
    Present,
    /// Its shard is lost.
    Unknown,
}

/// The answers to a batch.
pub(crate) struct Answers {
    /// A bit for each item: 1, it may be in the filter. Item 0 is the top bit of byte 0.
    bits: Vec<u8>,
    /// A bit for each item: 1, its shard is lost. Empty if no shard is.
    lost: Vec<u8>,
    /// The number of items.
    pub(crate) items: u64,
    /// The number of items that may be in the filter.
    pub(crate) present: u64,
    /// The number of items about which nothing is known.
    pub(crate) unknown: u64,
}

impl Answers {
    fn of(bits: Vec<u8>, lost: Vec<u8>, items: u64) -> Self {
        let ones = |bits: &[u8]| bits.iter().map(|byte| u64::from(byte.count_ones())).sum();
        let (present, unknown) = (ones(&bits), ones(&lost));
        Self { bits, lost, items, present, unknown }
    }

    /// What is known about each item, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Answer> {
        (0..self.items as usize).map(|at| match (bit(&self.bits, at), bit(&self.lost, at)) {
            (true, _) => Answer::Present,
            (false, true) => Answer::Unknown,
            (false, false) => Answer::Absent,
        })
    }
}

/// The bit of an item; false beyond the end.
fn bit(bits: &[u8], at: usize) -> bool {
    bits.get(at / 8).is_some_and(|byte| byte << (at % 8) & 0x80 != 0)
}

fn set_bit(bits: &mut [u8], at: usize) {
    if let Some(byte) = bits.get_mut(at / 8) {
        *byte |= 0x80 >> (at % 8);
    }
}

impl Membership {
    /// Connects to the shards of a sharded filter. `target` is any node of the cluster.
    pub(crate) fn of_shards(
        target: &Target,
        name: &[u8],
        descriptor: Descriptor,
    ) -> Result<Self, Error> {
        Ok(Self::Shards(Box::new(Shards::connect(target, name, descriptor, true)?)))
    }

    /// Connects to the shards of this generation, and asks no other one, whatever the descriptor
    /// of the filter says.
    pub(crate) fn of_generation(
        target: &Target,
        name: &[u8],
        generation: Generation,
    ) -> Result<Self, Error> {
        let alone = Descriptor { current: generation, next: Ok(None), base: None, poll: 1 };
        Ok(Self::Shards(Box::new(Shards::connect(target, name, alone, false)?)))
    }

    /// Finds the filter, in one key or in shards. `target` is any node of the cluster.
    ///
    /// # Errors
    /// `Error::Refused` with `ERR not found` or `WRONGTYPE ...`, if there is no such filter.
    pub(crate) fn find(target: &Target, name: &[u8]) -> Result<Self, Error> {
        let mut key = Key::connect(target, name)?;
        match key.patiently(|_, server| sharded::find(server, name))? {
            Filter::Key => {
                key.patiently(|question, server| {
                    server.call_for_key(redis::cmd("BF.INFO").arg(name))?;
                    question.find_command(server)
                })?;
                Ok(Self::Key(Box::new(key)))
            }
            Filter::Sharded(descriptor) => Self::of_shards(target, name, descriptor),
        }
    }

    /// The rate of false positives that was asked for, and what the server estimates now.
    pub(crate) fn rates(&mut self) -> Result<(Option<f64>, Option<f64>), Error> {
        match self {
            Self::Key(key) => {
                let info = key.patiently(|question, server| {
                    Reader::default().read_one(server, &question.key, Detail::Filter)
                })?;
                Ok((info.error_rate, info.rate_now))
            }
            Self::Shards(shards) => Ok((shards.error_rate()?, shards.rate_now()?)),
        }
    }

    /// The keys of the generation that answers queries, each with the identity of its filter
    /// (`BF.INFO key IDENTITY`), if the server has that word.
    pub(crate) fn identities(&mut self) -> Result<Vec<(Vec<u8>, String)>, Error> {
        let keys = match self {
            Self::Key(key) => vec![key.name().clone()],
            Self::Shards(shards) => shards.keys(),
        };
        let mut identities = Vec::with_capacity(keys.len());
        for (place, key) in keys.into_iter().enumerate() {
            let command = redis::cmd("BF.INFO").arg(&key).arg("IDENTITY").take();
            let call = |_: &mut Question, server: &mut Connection| server.call_for_key(&command);
            let reply = match self {
                Self::Key(key) => key.patiently(call),
                Self::Shards(shards) => shards.patiently(place, call),
            };
            match reply {
                Ok(reply) => {
                    identities.extend(text(only(&reply)).map(|text| (key, text.to_owned())));
                }
                // The shard is lost, or the server does not say it.
                Err(Error::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(identities)
    }

    /// Whether a key holds another filter than before, or none. A rebuild that ended is followed:
    /// its shards have other keys.
    pub(crate) fn is_replaced(&mut self, before: &[(Vec<u8>, String)]) -> Result<bool, Error> {
        let now = self.identities()?;
        let keys = match self {
            Self::Key(key) => vec![key.name().clone()],
            Self::Shards(shards) => shards.keys(),
        };
        Ok(before.iter().any(|seen| keys.contains(&seen.0) && !now.contains(seen)))
    }

    /// Whether the filter forgets.
    pub(crate) fn forgets(&mut self) -> Result<bool, Error> {
        let window = match self {
            Self::Key(key) => {
                key.patiently(|question, server| Window::of(server, &question.key))?
            }
            Self::Shards(shards) => shards.window()?,
        };
        Ok(window.is_some())
    }

    /// Whether shards are lost, as far as items were asked for.
    pub(crate) fn loses_shards(&self) -> bool {
        matches!(self, Self::Shards(shards) if !shards.lost().1.is_empty())
    }

    /// The error for items about which nothing is known, because their shards are lost.
    pub(crate) fn unknown(&self, task: &str, items: u64) -> Error {
        let (shards, lost, name) = match self {
            Self::Key(key) => (0, Vec::new(), key.name()),
            Self::Shards(shards) => (shards.lost().0, shards.lost().1, &shards.name),
        };
        let numbers: Vec<_> = lost.iter().map(usize::to_string).collect();
        let what = match &numbers[..] {
            [] => "the filter `base` is lost".to_owned(),
            [one] => format!("shard {one} of {shards} is lost"),
            some => format!("shards {} of {shards} are lost", some.join(", ")),
        };
        let first = numbers.first().map_or("N", String::as_str);
        Error::incomplete(
            match items {
                0 => format!("{task}: {what}"),
                1 => format!("{task}: {what}: nothing is known about 1 item"),
                _ => {
                    let items = amount::grouped(items);
                    format!("{task}: {what}: nothing is known about {items} items")
                }
            },
            format!(
                "Load its items from their source by `repair {} --shard {first} --from FILE`.",
                name::typed(name)
            ),
        )
    }

    /// The bytes of a batch, if one command is to have so many.
    pub(crate) fn batch_size(&self, command: u64) -> u64 {
        match self {
            Self::Key(_) => command,
            Self::Shards(shards) => shards.batch_size(command),
        }
    }

    /// Asks for all batches, and gives `answered` each of them with its answers, in order. An input
    /// that has nothing at the moment says `WouldBlock`.
    pub(crate) fn ask(
        &mut self,
        batches: impl FnMut() -> Result<Option<Batch>, Error>,
        answered: impl FnMut(&Batch, &Answers) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::Key(key) => key.ask(batches, answered),
            Self::Shards(shards) => shards.ask(batches, answered),
        }
    }
}

/// What an input has.
enum Input {
    Batch(Batch),
    /// Nothing at the moment: what is under way is answered first.
    Idle,
    End,
}

impl Input {
    fn of(next: Result<Option<Batch>, Error>) -> Result<Self, Error> {
        match next {
            Ok(Some(batch)) => Ok(Self::Batch(batch)),
            Ok(None) => Ok(Self::End),
            Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
                Ok(Self::Idle)
            }
            Err(error) => Err(error),
        }
    }
}

/// How a filter in one key, or a shard, is asked.
pub(crate) struct Question {
    key: Vec<u8>,
    /// Which shard the filter must be; `None` for any filter.
    shard: Option<Shard>,
    /// Whether the server has `BF.BULKEXISTS`, and lets this user send it.
    packed: bool,
}

impl Question {
    fn find_command(&mut self, connection: &mut Connection) -> Result<(), Error> {
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

    fn send(&self, connection: &mut Connection, batch: &Batch) -> Result<(), Error> {
        for command in self.commands(batch) {
            connection.send(&command)?;
        }
        connection.send(&self.last_command())
    }

    fn receive(&self, connection: &mut Connection, batch: &Batch) -> Result<Vec<u8>, Error> {
        let bits = self.bits(batch, |command| accepted(command, connection.receive()?))?;
        self.see(&accepted("BF.INFO", connection.receive()?)?)?;
        Ok(bits)
    }

    /// Asks for one batch, while no other is under way. Follows redirections.
    fn ask_alone(&self, connection: &mut Connection, batch: &Batch) -> Result<Vec<u8>, Error> {
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
        let answers = Answers::of(vec![0x80, 0x80], vec![0x20, 0], 9);
        assert_eq!((answers.present, answers.unknown), (2, 1));
        let mut expected = [Answer::Absent; 9];
        (expected[0], expected[2], expected[8]) =
            (Answer::Present, Answer::Unknown, Answer::Present);
        assert_eq!(answers.iter().collect::<Vec<_>>(), expected);
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
