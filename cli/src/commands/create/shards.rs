//! `create --shards`: a sharded filter.
//!
//! ```text
//!   look      the name is free; every node has room, and a module with SHARD; slots are served
//!   lock      one transaction: `state creating`, the new generation in `spare.*`, and `creator`
//!   reserve   BF.RESERVE of every shard, WAIT
//!   ready     one transaction: the generation is the current one, `state ready`; WAIT
//! ```
//!
//! After the lock, a run that ends early is undone by `drop`: no client has used the filter.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use bloom::filter::{Rules, Span};
use redis::Value;
use serde::Serialize;

use super::{Arguments, Created, Size};
use crate::sharding::{Descriptor, Generation, Malformed, State, key_slot, shard_capacity};
use crate::{
    amount,
    at_once::{Servers, on_all},
    commands::plan::bits_per_item,
    connection::{Nodes, Options, Target},
    descriptor::{Change, bad_name, names_of, read, spare, spare_fields, unused, update, whole},
    error::{Error, Exit},
    filter_info::Module,
    interrupt,
    memory::{self, Room},
    name::{self, Named},
    new_shard::reserve_all,
    output::Output,
    refusal::{Kind, Refusal},
    sharded::Growth,
    window::Window,
};

/// The field that tells whose lock it is: of two that create a filter at once, one is refused.
const CREATOR: &[u8] = b"creator";

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
    name: &'a [u8],
    count: u16,
    /// The generation, as far as its parameters go.
    first: Generation,
    planned: Size,
    /// How each shard forgets, if it does.
    rules: Option<Rules>,
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
        let rules = self.rules()?;
        let planned = self.planned(shard_capacity, 1, rules)?;
        let target = connection.target()?;
        let nodes = Nodes::of_if_allowed(&mut target.connect()?)?;
        interrupt::register();
        let making = Making {
            having: nodes_with(&nodes, name, &first.keys)?,
            arguments: self,
            name,
            count,
            first,
            planned,
            rules,
            servers: Servers::of(target, output)?,
            nodes,
            output: *output,
        };
        let generation = making.run()?;
        let all = |bytes: u64| bytes.saturating_mul(u64::from(count));
        let created = Created {
            name: Named::of(name),
            created: !self.dry_run,
            module: Some(Module::RedisBloom),
            counting: false,
            capacity: self.items,
            error_rate: self.error,
            bytes: Some(all(making.planned.bytes)),
            full_bytes: making.planned.full.map(all),
            bits_per_item: Some(bits_per_item(all(making.planned.most()), self.items)),
            window: rules.map(Window::from),
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
    fn run(&self) -> Result<u64, Error> {
        self.is_free()?;
        let generation = unused(&self.servers, self.name, 1, &self.first)?;
        self.modules_know_shards()?;
        self.is_room(&generation.keys)?;
        if !self.arguments.dry_run {
            self.lock(&generation)?;
            self.make(&generation).map_err(|error| self.half_written(error))?;
        }
        Ok(generation.number)
    }

    /// Checks that nothing is at the name.
    fn is_free(&self) -> Result<(), Error> {
        let fields = read(&self.servers, self.name).map_err(|error| match error {
            error if error.is(Kind::WrongType) => exists(),
            error => error,
        })?;
        match whole(&fields) {
            Err(Malformed::Missing) => Ok(()),
            Err(Malformed::HalfWritten) => Err(self.busy()),
            _ => Err(exists()),
        }
    }

    /// Checks that the module of each node, replicas included, has the word `SHARD`, and `WINDOW`
    /// if it is needed.
    fn modules_know_shards(&self) -> Result<(), Error> {
        let words = if self.rules.is_some() { &["SHARD", "WINDOW"][..] } else { &["SHARD"] };
        let missing = |docs: &Value| words.iter().find(|word| !mentions(docs, word)).copied();
        for node in self.nodes.all() {
            let mut server = node.connect()?;
            match server.call(redis::cmd("COMMAND").arg("DOCS").arg("BF.RESERVE")) {
                Ok(docs) if missing(&docs).is_none() => {}
                Ok(docs) => {
                    let word = missing(&docs).unwrap_or_default();
                    return Err(Error::refused_partly(
                        format!("{node}: BF.RESERVE of its module has no {word}"),
                        "Load this release of redis-bloom into every node, replicas first.",
                    ));
                }
                Err(error) if error.refusal().is_some_and(Refusal::is_forbidden) => {
                    self.output.remark(format_args!(
                        "whether every node has a module with SHARD is unknown: {error}"
                    ));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
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

    /// Takes the name: of two that create it at once, one goes on.
    fn lock(&self, generation: &Generation) -> Result<(), Error> {
        // The standard library seeds each of its hashers from the system's random numbers.
        let creator = RandomState::new().build_hasher().finish().to_string().into_bytes();
        update(&self.servers, self.name, |fields| {
            if fields.get(CREATOR) == Some(&creator) {
                // An earlier attempt, whose reply was lost.
                return Ok((Change::default(), ()));
            }
            if !fields.is_empty() {
                return Err(self.busy());
            }
            let mut set = spare_fields(generation);
            set.push((CREATOR.to_vec(), creator.clone()));
            set.push((b"state".to_vec(), State::Creating.name().into()));
            Ok((Change { set, delete: Vec::new() }, ()))
        })
    }

    /// Makes the shards and the descriptor, and looks whether a server has lost a shard meanwhile.
    fn make(&self, generation: &Generation) -> Result<(), Error> {
        let keys = &generation.keys;
        reserve_all(&self.servers, generation, self.growth(), false)?;
        update(&self.servers, self.name, |fields| {
            if spare(fields).as_ref() != Some(generation) {
                // An earlier attempt, whose reply was lost; or somebody removed the filter.
                return match fields.get(&b"state"[..]) {
                    Some(state) if state == State::Ready.name().as_bytes() => {
                        Ok((Change::default(), ()))
                    }
                    _ => Err(self.busy()),
                };
            }
            let poll = self.arguments.poll;
            let whole =
                Descriptor { current: generation.clone(), next: Ok(None), base: None, poll };
            let mut delete = names_of(fields, "spare.");
            delete.push(CREATOR.to_vec());
            Ok((Change { set: whole.fields(State::Ready), delete }, ()))
        })?;
        on_all(&self.servers, keys, |server, place, _| {
            match server.call_for_key(redis::cmd("EXISTS").arg(&keys[place]))? {
                Value::Int(0) => Err(Error::incomplete(
                    format!("shard {place} of {} is lost: see the server's log", self.count),
                    self.go_on(),
                )),
                _ => Ok(()),
            }
        })?;
        Ok(())
    }

    /// How the shards grow and forget.
    fn growth(&self) -> Growth {
        let counts = self.rules.is_some_and(|rules| rules.span == Span::Items);
        let fixed = self.arguments.nonscaling || counts;
        let expansion = (!fixed).then(|| self.arguments.expansion.unwrap_or(1));
        Growth { expansion, window: self.rules.map(Window::from) }
    }

    /// How to go on after the lock was taken.
    fn go_on(&self) -> String {
        format!("Remove it by `drop {}`, and create it again.", name::typed(self.name))
    }

    fn busy(&self) -> Error {
        Error::refused_partly(
            format!("{}: somebody is creating it, or a run ended early", name::readable(self.name)),
            self.go_on(),
        )
    }

    /// The error of a run that took the lock.
    fn half_written(&self, error: Error) -> Error {
        let what = format!("{} is half-written: {error}", name::readable(self.name));
        match error {
            Error::Incomplete { .. } => Error::incomplete(what, self.go_on()),
            error => error.partly(self.go_on()).named(what),
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

fn exists() -> Error {
    Error::refused("create", "ERR item exists")
}

/// Whether the documentation of a command has this word somewhere.
fn mentions(docs: &Value, word: &str) -> bool {
    match docs {
        Value::Array(values) => values.iter().any(|value| mentions(value, word)),
        Value::Map(pairs) => pairs.iter().any(|(_, value)| mentions(value, word)),
        Value::BulkString(text) => text == word.as_bytes(),
        Value::SimpleString(text) => text == word,
        _ => false,
    }
}
