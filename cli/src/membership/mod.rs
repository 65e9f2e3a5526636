//! Queries a filter, batch after batch.
//!
//! ```text
//!   batch ──▶ BF.BULKEXISTS key LENGTHS blob ──▶ count, bits ──▶ Answers
//!         └─▶ BF.MEXISTS key item ... (RedisBloom, valkey-bloom) ─┘
//!   and after each batch BF.INFO key: a server may answer "absent" for a missing filter, and a
//!   shard may have been recreated as another filter
//!
//!   batch ──split by the rule──▶ piece ──▶ shard 0 ──▶ bits ──┐
//!                                piece ──▶ shard 1 ──▶ bits ──┴──▶ Answers
//!                                what is absent there ──▶ base, if there is one
//! ```
//!
//! All shards answer a batch at the same time. If the filter was rebuilt in the meantime, the batch
//! is queried again, in the new generation.

mod shard;

use std::{
    io,
    time::{Duration, Instant},
};

use crate::sharding::Generation;

use crate::{
    amount,
    connection::{Connection, Target, Targets},
    error::Error,
    filter_info::Reader,
    items::Batch,
    loading::batch_bytes,
    name,
    retry::{RETRY_FOR, retry},
    sharded::{self, Filter, shard_at},
};
use shard::{Shard, is_gone};

/// A filter to query, in one key or in shards.
pub(crate) struct Membership {
    name: Vec<u8>,
    targets: Targets,
    /// The generation that is queried; `None` for a filter in one key.
    generation: Option<Generation>,
    /// How often the descriptor is read, which may name another generation; `None` if it is not.
    poll: Option<Duration>,
    /// When it was read.
    read: Instant,
    /// The shards, or the one key.
    shards: Vec<Shard>,
    base: Option<Shard>,
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

impl Answer {
    fn of(found: Option<bool>) -> Self {
        found.map_or(Self::Unknown, |found| if found { Self::Present } else { Self::Absent })
    }
}

/// The answers to a batch.
pub(crate) struct Answers {
    /// What is known about each item, in order.
    pub(crate) each: Vec<Answer>,
    /// The number of items.
    pub(crate) items: u64,
    /// The number of items that may be in the filter.
    pub(crate) present: u64,
    /// The number of items about which nothing is known.
    pub(crate) unknown: u64,
}

impl Answers {
    fn of(each: Vec<Answer>) -> Self {
        let number = |which| each.iter().filter(|answer| **answer == which).count() as u64;
        let (present, unknown) = (number(Answer::Present), number(Answer::Unknown));
        Self { items: each.len() as u64, each, present, unknown }
    }
}

impl Membership {
    /// Finds the filter, in one key or in shards. `target` is any node of the cluster.
    ///
    /// # Errors
    /// `Error::Refused` with `ERR not found` or `WRONGTYPE ...`, if there is no such filter.
    pub(crate) fn find(target: &Target, name: &[u8]) -> Result<Self, Error> {
        let mut found = Self::at(target, name)?;
        match found.patiently(name, |server| sharded::find(server, name))? {
            Filter::Key => {
                let command = redis::cmd("BF.INFO").arg(name).take();
                found.patiently(name, |server| server.call_for_key(&command))?;
            }
            Filter::Sharded(descriptor) => {
                found.poll = Some(Duration::from_secs(descriptor.poll));
                found.adopt(descriptor.current, descriptor.base);
            }
        }
        Ok(found)
    }

    /// Queries the shards of this generation, whatever the descriptor says.
    pub(crate) fn of_generation(
        target: &Target,
        name: &[u8],
        generation: Generation,
    ) -> Result<Self, Error> {
        let mut alone = Self::at(target, name)?;
        alone.adopt(generation, None);
        Ok(alone)
    }

    fn at(target: &Target, name: &[u8]) -> Result<Self, Error> {
        Ok(Self {
            name: name.to_vec(),
            targets: Targets::of(target.clone())?,
            generation: None,
            poll: None,
            read: Instant::now(),
            shards: vec![Shard::of(name, None)],
            base: None,
        })
    }

    /// Queries these shards from now on.
    fn adopt(&mut self, generation: Generation, base: Option<Vec<u8>>) {
        let keys = &generation.keys;
        let shard = |(place, key): (usize, &Vec<u8>)| Shard::of(key, shard_at(place, keys.len()));
        self.shards = keys.iter().enumerate().map(shard).collect();
        self.base = base.map(|key| Shard::of(&key, None));
        self.generation = Some(generation);
    }

    /// Does something about a key, on a new connection to its node; again, while the server fails
    /// or slots move.
    fn patiently<T>(
        &self,
        key: &[u8],
        mut work: impl FnMut(&mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        retry(RETRY_FOR, |_| self.targets.on_node(key, |mut server| work(&mut server)))
    }

    /// The sum of the configured error rates of filter and base; `None` if a server reports none.
    pub(crate) fn error_rate(&self) -> Result<Option<f64>, Error> {
        let of = |key: &[u8]| {
            let read = |server: &mut Connection| Reader::default().read_one(server, key);
            self.patiently(key, read).map(|info| info.error_rate)
        };
        let own = match &self.generation {
            Some(generation) => Some(generation.error_rate),
            None => of(&self.name)?,
        };
        let Some(base) = &self.base else { return Ok(own) };
        Ok(own.zip(of(&base.key)?).map(|(own, base)| own + base))
    }

    /// Whether a shard is lost that was queried.
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
        let items = match items {
            0 => String::new(),
            _ => format!(": nothing is known about {}", amount::counted(items, "item")),
        };
        Error::incomplete(
            format!("{task}: {what}{items}"),
            sharded::recreate(&name::typed(&self.name)),
        )
    }

    /// The bytes of a batch, if one command is to have `command` bytes.
    pub(crate) fn batch_size(&self, command: u64) -> u64 {
        match self.generation {
            None => command,
            Some(_) => batch_bytes(command, self.shards.len()),
        }
    }

    /// Queries all batches, and gives `answered` each of them with its answers, in order. An input
    /// that has nothing at the moment returns `WouldBlock`.
    pub(crate) fn ask(
        &mut self,
        mut batches: impl FnMut() -> Result<Option<Batch>, Error>,
        mut answered: impl FnMut(&Batch, &Answers) -> Result<(), Error>,
    ) -> Result<(), Error> {
        loop {
            let batch = match batches() {
                Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
                    continue;
                }
                batch => batch?,
            };
            let Some(batch) = batch else { return Ok(()) };
            if self.poll.is_some_and(|poll| self.read.elapsed() >= poll) {
                self.read_descriptor()?;
            }
            let answers = loop {
                match self.answers(&batch) {
                    // A filter in one key that is gone is an error. The descriptor says whether a
                    // shard was replaced.
                    Err(error) if self.generation.is_some() && is_gone(&error) => {
                        self.read_descriptor()?;
                    }
                    answers => break answers?,
                }
            };
            answered(&batch, &answers)?;
        }
    }

    fn answers(&mut self, batch: &Batch) -> Result<Answers, Error> {
        let Some(generation) = &self.generation else {
            let shard = &mut self.shards[0];
            shard.send(batch);
            let found = shard.receive(&self.targets, batch)?;
            let found = found.into_iter().flatten().map(Some);
            return Ok(Answers::of(found.map(Answer::of).collect()));
        };
        let mut owners = Vec::new();
        let pieces = batch.split(generation.shards(), |shard| owners.push(shard));
        for (piece, shard) in pieces.iter().zip(&mut self.shards) {
            shard.send(piece);
        }
        // All replies are received, also after an error of one shard.
        let received = pieces.iter().zip(&mut self.shards);
        let received: Vec<_> =
            received.map(|(piece, shard)| shard.receive(&self.targets, piece)).collect();
        let mut found = Vec::new();
        for of_shard in received {
            found.push(of_shard?.map(Vec::into_iter));
        }
        let next = |owner| Answer::of(found[usize::from(owner)].as_mut().and_then(Iterator::next));
        let mut each: Vec<_> = owners.into_iter().map(next).collect();
        if let Some(base) = &mut self.base {
            // It is queried for what no shard has.
            let items = batch.items();
            let places: Vec<_> =
                (0..items.len()).filter(|at| each[*at] != Answer::Present).collect();
            let rest = Batch::of(places.iter().map(|at| items[*at]));
            base.send(&rest);
            let found = base.receive(&self.targets, &rest)?;
            for (number, at) in places.into_iter().enumerate() {
                match found.as_ref().map(|found| found[number]) {
                    Some(true) => each[at] = Answer::Present,
                    Some(false) => {}
                    None => each[at] = Answer::Unknown,
                }
            }
        }
        Ok(Answers::of(each))
    }

    /// Reads the descriptor again. If it has another generation now, its shards are queried from
    /// then on.
    fn read_descriptor(&mut self) -> Result<(), Error> {
        if self.poll.is_none() {
            return Ok(());
        }
        let name = &self.name;
        let Filter::Sharded(found) = self.patiently(name, |server| sharded::find(server, name))?
        else {
            return Err(Error::incomplete(
                format!("{}: its descriptor is gone", name::readable(name)),
                format!(
                    "Was the filter removed? `info {}` shows what is there.",
                    name::typed(name)
                ),
            ));
        };
        self.poll = Some(Duration::from_secs(found.poll));
        self.read = Instant::now();
        let base = self.base.as_ref().map(|base| &base.key);
        if self.generation.as_ref() != Some(&found.current) || found.base.as_ref() != base {
            self.adopt(found.current, found.base);
        }
        Ok(())
    }
}
