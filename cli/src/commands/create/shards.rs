//! `create --shards`: a sharded filter. It first checks that the name is free, that every node has
//! room and a module with SHARD, and that all slots are served.

use serde::Serialize;

use super::{Arguments, Created, Size};
use crate::sharding::{Descriptor, Generation, key_slot, shard_capacity};
use crate::{
    amount,
    at_once::Servers,
    commands::plan::bits_per_item,
    connection::{Nodes, Options, Target},
    descriptor::{bad_name, unused},
    error::{Error, Exit},
    filter_info::{Module, must_be_ours},
    interrupt,
    memory::{self, Room},
    name::{self, Named},
    new_sharded::NewSharded,
    output::Output,
};

/// What was made, beyond what is said of every filter.
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
            having: nodes_with(&nodes, name, &first.keys)?,
            arguments: self,
            planned,
            servers: Servers::of(target, output)?,
            nodes,
            output: *output,
        };
        let generation = making.run(name, &first)?;
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
    fn run(&self, name: &[u8], wanted: &Generation) -> Result<u64, Error> {
        let servers = &self.servers;
        let new = NewSharded { name, servers };
        new.is_free()?;
        let current = unused(servers, name, wanted)?;
        for node in self.nodes.all() {
            must_be_ours(&mut node.connect()?, name, "shards")?;
        }
        self.is_room(&current.keys)?;
        let poll = self.arguments.poll;
        let filter = Descriptor { current, next: Ok(None), base: None, poll };
        let Arguments { expansion, nonscaling, .. } = self.arguments;
        new.make(&filter, (!nonscaling).then(|| expansion.unwrap_or(1)))?;
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
