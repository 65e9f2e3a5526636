//! `create --shards`: a sharded filter. It first checks that the name is free, that every node has
//! room and a module with SHARD, and that all slots are served.
//!
//! ```text
//!   lock      one transaction: `state creating`, the new generation in `spare.*`, and `creator`
//!   fill      every shard is reserved
//!   ready     one transaction: the generation is the current one, `state ready`; WAIT
//!   look      the shards are there: a server may have lost one in the meantime
//! ```
//!
//! After the lock, a run that ends early is undone by `drop`: no client has used the filter.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use redis::Value;
use serde::Serialize;

use super::{Arguments, Created, Size};
use crate::sharding::{Descriptor, Generation, Malformed, State, key_slot, shard_capacity};
use crate::{
    amount,
    at_once::{Servers, on_all},
    commands::plan::bits_per_item,
    connection::{Nodes, Options, Target},
    descriptor::{
        CREATOR, Change, bad_name, dropped, locked, names_of, read, reserve_all, spare, unused,
        update, whole,
    },
    error::{Error, Exit},
    filter_info::{Module, must_be_ours},
    interrupt,
    memory::{self, Room},
    name::{self, Named},
    output::Output,
    refusal::Kind,
};

/// Why a name is refused.
const BUSY: &str = "another run is creating it, or was interrupted";

/// What was made: the fields that only a sharded filter has.
#[derive(Debug, Serialize)]
pub(super) struct Made {
    shards: u16,
    /// Items that each shard is made for.
    shard_capacity: u64,
    /// Bytes of each shard.
    shard_bytes: u64,
    /// The number that ends the keys.
    generation: u64,
    /// Nodes that have shards.
    nodes: usize,
}

impl Made {
    pub(super) fn text(&self) -> String {
        let shards = amount::counted(self.shards.into(), "shard");
        format!("{shards} on {}, ", amount::counted(self.nodes as u64, "node"))
    }
}

/// A sharded filter that is being created.
struct Making<'a> {
    name: &'a [u8],
    arguments: &'a Arguments,
    planned: Size,
    servers: Servers,
    nodes: Nodes,
    /// The nodes that have shards, whatever the generation is.
    having: Vec<Target>,
    output: Output,
}

impl Arguments {
    pub(super) fn create_shards(
        &self,
        count: u16,
        connection: &Options,
        output: &Output,
    ) -> Result<Exit, Error> {
        let name = name::bytes(&self.name);
        let first = Generation::new(name, count, 1, self.error, self.items);
        let first = first.map_err(|error| bad_name(name, error))?;
        // The options have at least one shard, and at least one item is needed for a plan.
        let shard_capacity = shard_capacity(self.items, count).unwrap_or(0);
        let planned = self.planned(shard_capacity, 1, None)?;
        let target = connection.target()?;
        let nodes = Nodes::of_if_allowed(&mut target.connect()?)?;
        interrupt::register();
        let making = Making {
            name,
            having: nodes_with(&nodes, name, &first.keys)?,
            arguments: self,
            planned,
            servers: Servers::of(target, output)?,
            nodes,
            output: *output,
        };
        let generation = making.run(&first)?;
        let all = |bytes: u64| bytes.saturating_mul(u64::from(count));
        let created = Created {
            name: Named::of(name),
            module: Some(Module::RedisBloom),
            counting: false,
            capacity: self.items,
            error_rate: self.error,
            bytes: Some(all(making.planned.bytes)),
            full_bytes: making.planned.full.map(all),
            bits_per_item: Some(bits_per_item(all(making.planned.most()), self.items)),
            window: None,
            shards: Some(Made {
                shards: count,
                shard_capacity,
                shard_bytes: making.planned.most(),
                generation,
                nodes: making.having.len(),
            }),
        };
        output.data(&created, self.text(&created))?;
        Ok(Exit::Done)
    }
}

impl Making<'_> {
    /// Creates the filter. Returns the number that ends its keys.
    fn run(&self, wanted: &Generation) -> Result<u64, Error> {
        self.is_free()?;
        let current = unused(&self.servers, self.name, wanted)?;
        for node in self.nodes.all() {
            must_be_ours(&mut node.connect()?, self.name, "shards")?;
        }
        self.is_room(&current.keys)?;
        let poll = self.arguments.poll;
        let filter = Descriptor { current, next: Ok(None), base: None, poll };
        let Arguments { expansion, nonscaling, .. } = self.arguments;
        self.make(&filter, (!nonscaling).then(|| expansion.unwrap_or(1)))?;
        Ok(filter.current.number)
    }

    /// Checks that each node has room for its shards below its `maxmemory`.
    fn is_room(&self, keys: &[Vec<u8>]) -> Result<(), Error> {
        for node in &self.having {
            let here =
                |key: &&Vec<u8>| self.nodes.node_of(key).is_some_and(|at| at.same_server(node));
            let count = keys.iter().filter(here).count() as u64;
            let needed = memory::allocated(self.planned.most()).saturating_mul(count);
            let Some(room) = Room::of(&mut node.connect()?)? else {
                self.output.remark("whether the nodes have room is unknown: no right to INFO");
                return Ok(());
            };
            if room.refuses(needed) {
                return Err(Error::refused_partly(
                    format!(
                        "{node}: its shards need {}, and {} are free below maxmemory",
                        amount::readable_bytes(needed),
                        amount::readable_bytes(room.free())
                    ),
                    "Raise maxmemory there, move slots away, or lower --items.",
                ));
            }
        }
        Ok(())
    }

    /// Checks that nothing is at the name.
    fn is_free(&self) -> Result<(), Error> {
        let exists = || Error::refused("create", "ERR item exists");
        let fields = read(&self.servers, self.name).map_err(|error| match error {
            error if error.is(Kind::WrongType) => exists(),
            error => error,
        })?;
        match whole(&fields) {
            Err(Malformed::Missing) => Ok(()),
            Err(Malformed::HalfWritten) => Err(self.refused(BUSY)),
            _ => Err(exists()),
        }
    }

    /// Makes the filter.
    ///
    /// # Errors
    /// `Error::refused_partly` if another run makes a filter of this name.
    fn make(&self, filter: &Descriptor, expansion: Option<u64>) -> Result<(), Error> {
        let generation = &filter.current;
        // The standard library seeds each of its hashers from the system's random numbers.
        let creator = RandomState::new().build_hasher().finish().to_string().into_bytes();
        self.lock(generation, &creator)?;
        reserve_all(&self.servers, generation, expansion, false)
            .and_then(|()| self.publish(filter, &creator))
            .and_then(|()| self.look(generation))
            .map_err(|error| self.half_written(error))
    }

    /// Sees that all shards are there.
    fn look(&self, generation: &Generation) -> Result<(), Error> {
        on_all(&self.servers, &generation.keys, |server, place, _| {
            let key = &generation.keys[place];
            match server.call_for_key(redis::cmd("EXISTS").arg(key))? {
                Value::Int(0) => Err(Error::incomplete(
                    format!("shard {place} of {} is lost", generation.shards()),
                    self.go_on(),
                )),
                _ => Ok(()),
            }
        })
        .map(|_| ())
    }

    /// Takes the name.
    fn lock(&self, generation: &Generation, creator: &[u8]) -> Result<(), Error> {
        update(&self.servers, self.name, |fields| {
            if fields.get(CREATOR).is_some_and(|found| found == creator) {
                // An earlier attempt, whose reply was lost.
                return Ok((Change::default(), ()));
            }
            if !fields.is_empty() {
                return Err(self.refused(BUSY));
            }
            Ok((Change { set: locked(generation, creator), delete: Vec::new() }, ()))
        })
    }

    /// Lets clients use the filter.
    fn publish(&self, filter: &Descriptor, creator: &[u8]) -> Result<(), Error> {
        update(&self.servers, self.name, |fields| {
            if let Some(change) = dropped(fields, &filter.current) {
                return Ok((change, Err(self.refused("it was dropped meanwhile"))));
            }
            let ours = fields.get(CREATOR).is_some_and(|found| found == creator)
                && spare(fields).as_ref() == Some(&filter.current);
            if !ours {
                // An earlier attempt, whose reply was lost; or the filter was removed.
                return match whole(fields) {
                    Ok(found) if found == *filter => Ok((Change::default(), Ok(()))),
                    _ => Err(self.refused(BUSY)),
                };
            }
            let mut delete = names_of(fields, "spare.");
            delete.push(CREATOR.to_vec());
            Ok((Change { set: filter.fields(State::Ready), delete }, Ok(())))
        })?
    }

    /// How to continue after the lock was taken.
    fn go_on(&self) -> String {
        format!("Remove it by `drop {}`, and create it again.", name::typed(self.name))
    }

    fn refused(&self, why: &str) -> Error {
        Error::refused_partly(format!("{}: {why}", name::readable(self.name)), self.go_on())
    }

    /// The error of a run that took the lock.
    fn half_written(&self, error: Error) -> Error {
        let what = format!("{} is half-written: {error}", name::readable(self.name));
        match error.partly(self.go_on()) {
            Error::Told { exit: Exit::Incomplete, .. } => Error::incomplete(what, self.go_on()),
            Error::Told { exit, hint, .. } => Error::Told { exit, what, hint },
            other => other,
        }
    }
}

/// The nodes that have the keys. Checks that the name has a node, too.
fn nodes_with(nodes: &Nodes, name: &[u8], keys: &[Vec<u8>]) -> Result<Vec<Target>, Error> {
    let mut having: Vec<Target> = Vec::new();
    for key in [name].into_iter().chain(keys.iter().map(Vec::as_slice)) {
        let Some(node) = nodes.node_of(key) else {
            return Err(Error::refused_partly(
                format!("no node of the cluster has slot {}", key_slot(key)),
                "Let `redis-cli --cluster fix` give every slot a node first.",
            ));
        };
        if key != name && having.iter().all(|known| !known.same_server(node)) {
            having.push(node.clone());
        }
    }
    Ok(having)
}
