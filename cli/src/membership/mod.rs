//! Asks a filter whether it has items: batch after batch, with some commands under way.
//!
//! ```text
//!   batch ──▶ BF.BULKEXISTS key LENGTHS blob ──▶ count, bits ──▶ Answers
//!         └─▶ BF.MEXISTS key item ... (RedisBloom, valkey-bloom) ─┘
//!   and after each batch BF.INFO key: of a missing filter a server may say that nothing is in it,
//!   and a shard may have been made anew as another filter
//!
//!   batch ──split by the rule──▶ piece ──▶ shard 0 ──▶ bits ──┐
//!                                piece ──▶ shard 1 ──▶ bits ──┴──▶ Answers
//!                                what is absent there ──▶ base, if there is one
//! ```
//!
//! If a sharded filter was rebuilt meanwhile, the batches under way are asked again, in the new
//! generation.

mod question;
mod shard;

use std::{
    collections::VecDeque,
    io,
    time::{Duration, Instant},
};

use crate::sharding::Generation;

use crate::{
    amount,
    connection::{Target, Targets},
    error::Error,
    items::Batch,
    loading::batch_bytes,
    name,
    reply::{only, text},
    sharded::{self, Filter, shard_at},
    window::Window,
};
use question::Question;
use shard::{Shard, is_gone};

/// Batches under way: while the server answers one, it has the next.
const UNDER_WAY: usize = 2;

/// Asks one filter, in one key or in shards.
pub(crate) struct Membership {
    name: Vec<u8>,
    targets: Targets,
    /// The generation that is asked; `None` for a filter in one key.
    generation: Option<Generation>,
    /// How often the descriptor is read, which may name another generation; `None` if it is not.
    poll: Option<Duration>,
    /// When it was read.
    read: Instant,
    /// The shards, or the one key.
    shards: Vec<Shard>,
    base: Option<Shard>,
}

/// A key, and the identity of its filter (`BF.INFO key IDENTITY`); `None` if the key is lost, or
/// the server does not have that word.
pub(crate) type Seen = (Vec<u8>, Option<String>);

/// A batch under way.
struct Asked {
    batch: Batch,
    /// The shard of each item; none for a filter in one key.
    owners: Vec<u16>,
    /// The piece of each shard, and the number of the connection that it was sent on.
    pieces: Vec<(Batch, u64)>,
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
    /// Finds the filter, in one key or in shards. `target` is any node of the cluster.
    ///
    /// # Errors
    /// `Error::Refused` with `ERR not found` or `WRONGTYPE ...`, if there is no such filter.
    pub(crate) fn find(target: &Target, name: &[u8]) -> Result<Self, Error> {
        let mut found = Self::at(target, name)?;
        let (targets, key) = (&found.targets, &mut found.shards[0]);
        match key.patiently(targets, |_, server| sharded::find(server, name))? {
            Filter::Key => key.patiently(targets, |question, server| {
                server.call_for_key(redis::cmd("BF.INFO").arg(name))?;
                question.find_command(server)
            })?,
            Filter::Sharded(descriptor) => {
                found.poll = Some(Duration::from_secs(descriptor.poll));
                found.adopt(descriptor.current, descriptor.base)?;
            }
        }
        Ok(found)
    }

    /// Asks the shards of this generation, and no other one, whatever the descriptor says.
    pub(crate) fn of_generation(
        target: &Target,
        name: &[u8],
        generation: Generation,
    ) -> Result<Self, Error> {
        let mut alone = Self::at(target, name)?;
        alone.adopt(generation, None)?;
        Ok(alone)
    }

    fn at(target: &Target, name: &[u8]) -> Result<Self, Error> {
        Ok(Self {
            name: name.to_vec(),
            targets: Targets::of(target.clone(), &mut target.connect()?)?,
            generation: None,
            poll: None,
            read: Instant::now(),
            shards: vec![Shard::of(name, None)],
            base: None,
        })
    }

    /// Asks these shards from now on.
    fn adopt(&mut self, generation: Generation, base: Option<Vec<u8>>) -> Result<(), Error> {
        let keys = &generation.keys;
        let shard = |(place, key): (usize, &Vec<u8>)| Shard::of(key, shard_at(place, keys.len()));
        self.shards = keys.iter().enumerate().map(shard).collect();
        self.base = base.map(|key| Shard::of(&key, None));
        self.generation = Some(generation);
        for shard in self.shards.iter_mut().chain(&mut self.base) {
            match shard.patiently(&self.targets, Question::find_command) {
                // The answer to the first items says what it means.
                Ok(()) | Err(Error::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The rate of false positives that was asked for, and what the server estimates now: of shards
    /// the mean, because each is asked equally often, and that of the base. `None` if one of them
    /// does not say.
    pub(crate) fn rates(&mut self) -> Result<(Option<f64>, Option<f64>), Error> {
        let (mut asked, mut now) = (Vec::new(), Vec::new());
        for shard in &mut self.shards {
            match shard.info(&self.targets) {
                Ok(info) => {
                    asked.push(info.error_rate);
                    now.push(info.rate_now);
                }
                Err(Error::Refused { .. }) if self.generation.is_some() => now.push(None),
                Err(error) => return Err(error),
            }
        }
        let asked = match &self.generation {
            Some(generation) => Some(generation.error_rate),
            None => asked.pop().flatten(),
        };
        let count = now.len().max(1) as f64;
        let now = now.into_iter().sum::<Option<f64>>().map(|sum| sum / count);
        let Some(base) = &mut self.base else { return Ok((asked, now)) };
        let info = base.info(&self.targets)?;
        let sum = |one: Option<f64>, other: Option<f64>| Some(one? + other?);
        Ok((sum(asked, info.error_rate), sum(now, info.rate_now)))
    }

    /// The filters that are asked.
    pub(crate) fn identities(&mut self) -> Result<Vec<Seen>, Error> {
        let mut identities = Vec::new();
        for shard in self.shards.iter_mut().chain(&mut self.base) {
            let key = shard.question.key.clone();
            let command = redis::cmd("BF.INFO").arg(&key).arg("IDENTITY").take();
            let reply = shard.patiently(&self.targets, |_, server| server.call_for_key(&command));
            let identity = match reply {
                Ok(reply) => text(only(&reply)).map(str::to_owned),
                Err(Error::Refused { .. }) => None,
                Err(error) => return Err(error),
            };
            identities.push((key, identity));
        }
        Ok(identities)
    }

    /// Whether a key holds another filter than before, or none. A rebuild that ended is followed:
    /// its shards have other keys.
    pub(crate) fn is_replaced(&mut self, before: &[Seen]) -> Result<bool, Error> {
        let now = self.identities()?;
        let other = |(key, identity): &Seen| {
            let same_key = now.iter().find(|(now, _)| now == key);
            identity.is_some() && same_key.is_some_and(|(_, now)| now != identity)
        };
        Ok(before.iter().any(other))
    }

    /// Whether the filter forgets: the first shard that says so.
    pub(crate) fn forgets(&mut self) -> Result<bool, Error> {
        for shard in &mut self.shards {
            let window = shard
                .patiently(&self.targets, |question, server| Window::of(server, &question.key))?;
            if window.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether shards are lost, as far as items were asked for.
    pub(crate) fn loses_shards(&self) -> bool {
        self.shards.iter().any(|shard| shard.lost)
    }

    /// The error for items about which nothing is known, because their shards are lost.
    pub(crate) fn unknown(&self, task: &str, items: u64) -> Error {
        let shards = self.shards.len();
        let lost = |place: &usize| self.shards[*place].lost;
        let numbers: Vec<_> = (0..shards).filter(lost).map(|place| place.to_string()).collect();
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
                name::typed(&self.name)
            ),
        )
    }

    /// The bytes of a batch, if one command is to have so many.
    pub(crate) fn batch_size(&self, command: u64) -> u64 {
        match self.generation {
            None => command,
            Some(_) => batch_bytes(command, self.shards.len()),
        }
    }

    /// Asks for all batches, and gives `answered` each of them with its answers, in order. An input
    /// that has nothing at the moment says `WouldBlock`.
    pub(crate) fn ask(
        &mut self,
        mut batches: impl FnMut() -> Result<Option<Batch>, Error>,
        mut answered: impl FnMut(&Batch, &Answers) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut under_way: VecDeque<Asked> = VecDeque::new();
        loop {
            let mut ended = true;
            while under_way.len() < UNDER_WAY {
                let input = Input::of(batches())?;
                ended = !matches!(input, Input::Idle);
                let Input::Batch(batch) = input else { break };
                if self.follow()? {
                    under_way = under_way.into_iter().map(|old| self.send(old.batch)).collect();
                }
                let asked = self.send(batch);
                under_way.push_back(asked);
            }
            let Some(asked) = under_way.front() else {
                if ended {
                    return Ok(());
                }
                continue;
            };
            match self.receive(asked) {
                Ok(answers) => {
                    answered(&asked.batch, &answers)?;
                    under_way.pop_front();
                }
                // A filter in one key is never lost: that it is gone is an error.
                Err(error) if self.generation.is_some() && is_gone(&error) => {
                    // If the descriptor says the same, the shard is lost.
                    if !self.read_descriptor()? {
                        self.shards.iter_mut().chain(&mut self.base).for_each(Shard::disconnect);
                    }
                    under_way = under_way.into_iter().map(|old| self.send(old.batch)).collect();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends the pieces of a batch. What cannot be sent is asked when its answer is wanted.
    fn send(&mut self, batch: Batch) -> Asked {
        let mut owners = Vec::new();
        let pieces = match &self.generation {
            None => vec![Batch { blob: batch.blob.clone(), ..batch }],
            Some(generation) => batch.split(generation.shards(), |shard| owners.push(shard)),
        };
        let pieces = pieces.into_iter().zip(&mut self.shards);
        let pieces = pieces.map(|(piece, shard)| {
            let connection = shard.send(&piece);
            (piece, connection)
        });
        Asked { pieces: pieces.collect(), batch, owners }
    }

    fn receive(&mut self, asked: &Asked) -> Result<Answers, Error> {
        let mut found = Vec::new();
        for ((piece, connection), shard) in asked.pieces.iter().zip(&mut self.shards) {
            found.push((shard.receive(&self.targets, piece, *connection)?, 0));
        }
        if self.generation.is_none() {
            let bits = found.pop().and_then(|(bits, _)| bits).unwrap_or_default();
            return Ok(Answers::of(bits, Vec::new(), asked.batch.count));
        }
        let bytes = asked.owners.len().div_ceil(8);
        let (mut present, mut lost) = (vec![0; bytes], vec![0; bytes]);
        for (at, &owner) in asked.owners.iter().enumerate() {
            let (bits, next) = &mut found[usize::from(owner)];
            match bits {
                Some(bits) if bit(bits, *next) => set_bit(&mut present, at),
                Some(_) => {}
                None => set_bit(&mut lost, at),
            }
            *next += 1;
        }
        if let Some(base) = &mut self.base {
            // Asked for what no shard has.
            let items = asked.batch.items();
            let places: Vec<_> = (0..items.len()).filter(|at| !bit(&present, *at)).collect();
            let batch = Batch::of(places.iter().map(|at| items[*at]));
            let bits = base.receive(&self.targets, &batch, 0)?;
            for (next, at) in places.into_iter().enumerate() {
                match &bits {
                    Some(bits) if bit(bits, next) => set_bit(&mut present, at),
                    Some(_) => {}
                    None => set_bit(&mut lost, at),
                }
            }
            for (lost, present) in lost.iter_mut().zip(&present) {
                *lost &= !present;
            }
        }
        Ok(Answers::of(present, lost, asked.owners.len() as u64))
    }

    /// Reads the descriptor again, if it is time. Returns whether other shards are asked from now
    /// on.
    fn follow(&mut self) -> Result<bool, Error> {
        match self.poll {
            Some(poll) if self.read.elapsed() >= poll => self.read_descriptor(),
            _ => Ok(false),
        }
    }

    /// Reads the descriptor again. If the filter has another generation now, that is asked: returns
    /// whether it is so.
    fn read_descriptor(&mut self) -> Result<bool, Error> {
        if self.poll.is_none() {
            return Ok(false);
        }
        let name = &self.name;
        let mut descriptor = Shard::of(name, None);
        let base = self.base.as_ref().map(|base| &base.question.key);
        let Filter::Sharded(found) =
            descriptor.patiently(&self.targets, |_, server| sharded::find(server, name))?
        else {
            return Err(Error::incomplete(
                format!("{}: its descriptor is gone", name::readable(name)),
                format!(
                    "Was the filter removed meanwhile? `info {}` tells what is there.",
                    name::typed(name)
                ),
            ));
        };
        self.poll = Some(Duration::from_secs(found.poll));
        self.read = Instant::now();
        let changed =
            self.generation.as_ref() != Some(&found.current) || found.base.as_ref() != base;
        if changed {
            self.adopt(found.current, found.base)?;
        }
        Ok(changed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_in_the_order_of_the_items() {
        let answers = Answers::of(vec![0x80, 0x80], vec![0x20, 0], 9);
        assert_eq!((answers.present, answers.unknown), (2, 1));
        let mut expected = [Answer::Absent; 9];
        (expected[0], expected[2], expected[8]) =
            (Answer::Present, Answer::Unknown, Answer::Present);
        assert_eq!(answers.iter().collect::<Vec<_>>(), expected);
    }
}
