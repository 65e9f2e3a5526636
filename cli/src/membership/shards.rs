//! Asks all shards of a sharded filter: each batch is split, all shards are asked at once, and the
//! answers are put into the order of the items.
//!
//! ```text
//!   batch ──split by the rule──▶ piece ──▶ shard 0 ──▶ bits ──┐
//!                                piece ──▶ shard 1 ──▶ bits ──┴──▶ Answers
//!                                what is absent there ──▶ base, if there is one
//! ```
//!
//! If a connection breaks, or slots move, a piece is asked again, alone. If the filter was rebuilt
//! meanwhile, the batches under way are asked again, in the new generation.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::sharding::{Descriptor, Generation};

use super::{Answers, Input, Question, bit, set_bit};
use crate::{
    connection::{Connection, Target, Targets},
    error::Error,
    filter_info::{Detail, Reader},
    items::{Batch, Packing, push_item},
    loading::batch_bytes,
    name,
    refusal::Refusal,
    retry::{RETRY_FOR, retry},
    sharded::{Filter, find, shard_at},
    window::Window,
};

/// Batches under way.
const UNDER_WAY: usize = 2;

/// A sharded filter, with a connection for each shard.
pub(crate) struct Shards {
    pub(super) name: Vec<u8>,
    /// Nodes of the cluster.
    targets: Targets,
    /// Whether the generation is that of the descriptor, also if it changes.
    follows: bool,
    /// How often the descriptor is read.
    poll: Duration,
    /// When it was read.
    read: Instant,
    generation: Generation,
    shards: Vec<Shard>,
    base: Option<Shard>,
}

/// A shard, or a filter in one key.
pub(super) struct Shard {
    pub(super) question: Question,
    connection: Option<Connection>,
    /// The number of the connection, from 1.
    connections: u64,
    /// Pieces under way on this connection.
    under_way: usize,
    lost: bool,
    /// The last answer was that the key is not this shard: it is lost, or a rebuild replaced it.
    refused: bool,
    /// The descriptor was read after that, and is the same: so the shard is lost.
    descriptor_read: bool,
}

/// A batch under way.
struct Asked {
    batch: Batch,
    /// The shard of each item.
    owners: Vec<u16>,
    /// The piece of each shard, and the number of the connection that it was sent on.
    pieces: Vec<(Batch, u64)>,
}

/// What a shard says about its items; `None` if it is lost.
pub(super) type Bits = Option<Vec<u8>>;

impl Shards {
    pub(super) fn connect(
        target: &Target,
        name: &[u8],
        descriptor: Descriptor,
        follows: bool,
    ) -> Result<Self, Error> {
        let mut server = target.connect()?;
        let targets = Targets::of(target.clone(), &mut server)?;
        let mut shards = Self {
            name: name.to_vec(),
            targets,
            follows,
            poll: Duration::from_secs(descriptor.poll),
            read: Instant::now(),
            generation: descriptor.current.clone(),
            shards: Vec::new(),
            base: None,
        };
        shards.adopt(descriptor)?;
        Ok(shards)
    }

    /// Asks the shards of this descriptor from now on.
    fn adopt(&mut self, descriptor: Descriptor) -> Result<(), Error> {
        self.generation = descriptor.current;
        let keys = &self.generation.keys;
        let shard = |(place, key): (usize, &Vec<u8>)| Shard::of(key, shard_at(place, keys.len()));
        self.shards = keys.iter().enumerate().map(shard).collect();
        self.base = descriptor.base.map(|key| Shard::of(&key, None));
        for shard in self.shards.iter_mut().chain(&mut self.base) {
            let found = shard.patiently(&self.targets, Question::find_command);
            match found {
                // The answer to the first items says what it means.
                Ok(()) | Err(Error::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn batch_size(&self, command: u64) -> u64 {
        batch_bytes(command, self.shards.len())
    }

    /// What the shards say about their rate of false positives now: the mean, because each is asked
    /// equally often; and that of the base. `None` if one of them does not say.
    pub(super) fn rate_now(&mut self) -> Result<Option<f64>, Error> {
        let targets = &self.targets;
        let mut rate = |shard: &mut Shard| {
            let key = shard.question.key.clone();
            let info = shard.patiently(targets, |_, server| {
                Reader::default().read_one(server, &key, Detail::Filter)
            });
            match info {
                Ok(info) => Ok(info.rate_now),
                Err(Error::Refused { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let rates = self.shards.iter_mut().map(&mut rate).collect::<Result<Vec<_>, _>>()?;
        let base = self.base.as_mut().map(rate).transpose()?.unwrap_or(Some(0.0));
        let sum = rates.iter().copied().sum::<Option<f64>>();
        let count = rates.len().max(1) as f64;
        Ok(sum.zip(base).map(|(sum, base)| sum / count + base))
    }

    /// The rate that was asked for: that of a shard, and that of the base.
    pub(super) fn error_rate(&mut self) -> Result<Option<f64>, Error> {
        let asked = self.generation.error_rate;
        let Some(base) = &mut self.base else { return Ok(Some(asked)) };
        let key = base.question.key.clone();
        let info = base.patiently(&self.targets, |_, server| {
            Reader::default().read_one(server, &key, Detail::Filter)
        })?;
        Ok(info.error_rate.map(|rate| asked + rate))
    }

    /// The keys of the shards, then the key of the base filter, if there is one.
    pub(super) fn keys(&self) -> Vec<Vec<u8>> {
        self.shards.iter().chain(&self.base).map(|shard| shard.question.key.clone()).collect()
    }

    /// Asks the shard, or the base, at this place of [`Self::keys`].
    pub(super) fn patiently<T>(
        &mut self,
        place: usize,
        work: impl FnMut(&mut Question, &mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut all = self.shards.iter_mut().chain(&mut self.base);
        let shard = all.nth(place).ok_or_else(|| Error::usage("no such shard", ""))?;
        shard.patiently(&self.targets, work)
    }

    /// How the shards forget, if they do: the first that says so.
    pub(super) fn window(&mut self) -> Result<Option<Window>, Error> {
        for shard in &mut self.shards {
            let key = shard.question.key.clone();
            let window = shard.patiently(&self.targets, |_, server| Window::of(server, &key))?;
            if window.is_some() {
                return Ok(window);
            }
        }
        Ok(None)
    }

    pub(super) fn lost(&self) -> (usize, Vec<usize>) {
        let lost = self.shards.iter().enumerate().filter(|(_, shard)| shard.lost);
        (self.shards.len(), lost.map(|(number, _)| number).collect())
    }

    pub(super) fn ask(
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
                Err(error) if is_gone(&error) => {
                    self.renew()?;
                    under_way = under_way.into_iter().map(|old| self.send(old.batch)).collect();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends the pieces of a batch. What cannot be sent is asked when its answer is wanted.
    fn send(&mut self, batch: Batch) -> Asked {
        let mut owners = Vec::with_capacity(batch.count as usize);
        let pieces = batch.split(self.generation.shards(), |shard| owners.push(shard));
        let pieces = pieces.into_iter().zip(&mut self.shards);
        let send = |(piece, shard): (Batch, &mut Shard)| {
            let connection = shard.send(&piece);
            (piece, connection)
        };
        let pieces = pieces.map(send).collect();
        Asked { batch, owners, pieces }
    }

    fn receive(&mut self, asked: &Asked) -> Result<Answers, Error> {
        let mut found: Vec<(Bits, usize)> = Vec::new();
        for ((piece, connection), shard) in asked.pieces.iter().zip(&mut self.shards) {
            found.push((shard.receive(&self.targets, piece, *connection)?, 0));
        }
        let bytes = asked.owners.len().div_ceil(8);
        let (mut present, mut lost) = (vec![0; bytes], vec![0; bytes]);
        for (at, &owner) in asked.owners.iter().enumerate() {
            let Some((bits, next)) = found.get_mut(usize::from(owner)) else { continue };
            match bits {
                Some(bits) if bit(bits, *next) => set_bit(&mut present, at),
                Some(_) => {}
                None => set_bit(&mut lost, at),
            }
            *next += 1;
        }
        if let Some(base) = &mut self.base {
            // Asked for what no shard has.
            let (mut blob, mut places) = (Vec::new(), Vec::new());
            for (at, item) in asked.batch.items().into_iter().enumerate() {
                if !bit(&present, at) {
                    push_item(&mut blob, item);
                    places.push(at);
                }
            }
            let batch =
                Batch { packing: Packing::Lengths, blob, count: places.len() as u64, end: 0 };
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
        if self.read.elapsed() < self.poll {
            return Ok(false);
        }
        self.read_descriptor()
    }

    /// Reads the descriptor again. If the filter has another generation now, that is asked: returns
    /// whether it is so.
    fn read_descriptor(&mut self) -> Result<bool, Error> {
        if !self.follows {
            return Ok(false);
        }
        let name = &self.name;
        let mut descriptor = Shard::of(name, None);
        let base = self.base.as_ref().map(|base| &base.question.key);
        let Filter::Sharded(found) =
            descriptor.patiently(&self.targets, |_, server| find(server, name))?
        else {
            return Err(Error::incomplete(
                format!("{}: its descriptor is gone", name::readable(name)),
                format!(
                    "Was the filter removed meanwhile? `info {}` tells what is there.",
                    name::typed(name)
                ),
            ));
        };
        self.poll = Duration::from_secs(found.poll);
        self.read = Instant::now();
        let changed = found.current != self.generation || found.base.as_ref() != base;
        if changed {
            self.adopt(found)?;
        }
        Ok(changed)
    }

    /// Reads the descriptor again, because a shard, or the base, refused its items. If it did not
    /// change, the shard that refused is lost.
    fn renew(&mut self) -> Result<(), Error> {
        if self.read_descriptor()? {
            return Ok(());
        }
        for shard in self.shards.iter_mut().chain(&mut self.base) {
            shard.disconnect();
            shard.descriptor_read |= shard.refused;
        }
        Ok(())
    }
}

impl Shard {
    pub(super) fn of(key: &[u8], shard: Option<bloom::sharding::Shard>) -> Self {
        Self {
            question: Question { key: key.to_vec(), shard, packed: true },
            connection: None,
            connections: 0,
            under_way: 0,
            lost: false,
            refused: false,
            descriptor_read: false,
        }
    }

    /// Sends a piece; returns the number of the connection, 0 if there is none.
    pub(super) fn send(&mut self, piece: &Batch) -> u64 {
        if piece.count == 0 {
            return 0;
        }
        let Some(connection) = &mut self.connection else { return 0 };
        if self.question.send(connection, piece).is_err() {
            self.disconnect();
            return 0;
        }
        self.under_way += 1;
        self.connections
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.under_way = 0;
    }

    /// The answers for a piece that was sent on this connection, or was not sent.
    pub(super) fn receive(
        &mut self,
        targets: &Targets,
        piece: &Batch,
        sent_on: u64,
    ) -> Result<Bits, Error> {
        if piece.count == 0 {
            return Ok(Some(Vec::new()));
        }
        let received = match &mut self.connection {
            Some(connection) if sent_on == self.connections => {
                self.under_way = self.under_way.saturating_sub(1);
                Some(self.question.receive(connection, piece))
            }
            _ => None,
        };
        let bits = match received {
            Some(Ok(bits)) => Ok(bits),
            _ => {
                // Replies of other pieces may be under way, or what is left of this one's.
                if received.is_some() || self.under_way > 0 {
                    self.disconnect();
                }
                self.patiently(targets, |question, connection| {
                    question.ask_alone(connection, piece)
                })
            }
        };
        self.refused = bits.as_ref().is_err_and(is_gone);
        // A shard that was refused and answers now was restored, or its slot moved.
        self.descriptor_read &= self.refused;
        if self.descriptor_read {
            self.lost = true;
            return Ok(None);
        }
        bits.map(Some)
    }

    /// Does something on a connection without commands under way; again, while the server fails or
    /// slots move.
    pub(super) fn patiently<T>(
        &mut self,
        targets: &Targets,
        mut work: impl FnMut(&mut Question, &mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        retry(RETRY_FOR, |_| {
            let mut why = Error::usage("no server", "");
            for place in targets.places() {
                let result = match &mut self.connection {
                    Some(connection) => work(&mut self.question, connection),
                    None => targets.connect_by(place, &self.question.key).and_then(|connection| {
                        self.connections += 1;
                        work(&mut self.question, self.connection.insert(connection))
                    }),
                };
                match result {
                    Err(error) if error.passes() => {
                        self.disconnect();
                        why = error;
                    }
                    result => return result,
                }
            }
            Err(why)
        })
    }
}

/// Whether an error means that the key is not this shard: it is lost, or the filter was rebuilt.
fn is_gone(error: &Error) -> bool {
    error.refusal().is_some_and(Refusal::is_gone)
}
