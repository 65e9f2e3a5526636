//! `create --shards`: a sharded filter.
//!
//! ```text
//!   look      the name is free; every node has room, and a module with SHARD; slots are served
//!   lock      one transaction: `state creating`, the new generation in `spare.*`, and `creator`
//!   reserve   BF.RESERVE of every shard, WAIT
//!   ready     one transaction: the generation is the current one, `state ready`; WAIT
//! ```
//!
//! After the lock, a run that ends early is finished by `create --resume` or undone by `drop`.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use bloom::{
    command::number,
    filter::{Rules, Span},
};
use redis::Value;
use serde::Serialize;

use super::{Arguments, Created, Size};
use crate::sharding::{
    Descriptor, Generation, Malformed, NameError, Shard, State, key_slot, shard_capacity,
};
use crate::{
    amount,
    at_once::{Servers, on_all},
    commands::plan::bits_per_item,
    connection::{Connection, Nodes, Options, Target},
    descriptor::{Change, DROPPING, Fields, names_of, spare, spare_fields, unused, update},
    error::{Error, Exit},
    filter_info::{Detail, FilterInfo, Module, Reader},
    interrupt,
    name::{self, Named},
    new_shard::reserve,
    output::Output,
    refusal::{Kind, Refusal},
    replication::LastWrite,
    sharded::{Growth, shard_at},
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

/// What is at the name.
enum Present {
    Nothing,
    /// A run that ended early, and the shards that it was reserving.
    Begun(Generation),
    Ready(Descriptor),
    /// Another key, or a filter that is being restored.
    Other,
}

/// What a run has done.
struct Run {
    generation: u64,
    /// Whether it made the filter; false for a dry run, and for a filter that was there.
    created: bool,
}

/// A sharded filter that is being created.
struct Making<'a> {
    arguments: &'a Arguments,
    name: &'a [u8],
    count: u16,
    /// Items that each shard is reserved for.
    shard_capacity: u64,
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
        let first = first.map_err(|error| wrong_name(name, error))?;
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
            shard_capacity,
            planned,
            rules,
            servers: Servers::of(target, output)?,
            nodes,
            output: *output,
        };
        let Run { generation, created } = making.run()?;
        let all = |bytes: u64| bytes.saturating_mul(u64::from(count));
        let created = Created {
            name: Named::of(name),
            created,
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
    /// Creates the filter.
    fn run(&self) -> Result<Run, Error> {
        let resumes = self.arguments.resume;
        let begun = match self.present()? {
            Present::Nothing => None,
            Present::Ready(descriptor) if resumes => {
                self.same_as(&descriptor.current)?;
                self.is_there(&descriptor.current)?;
                return Ok(Run { generation: descriptor.current.number, created: false });
            }
            Present::Begun(begun) if resumes => Some(begun),
            Present::Begun(_) => return Err(self.busy()),
            Present::Ready(_) | Present::Other => return Err(exists()),
        };
        if let Some(begun) = &begun {
            self.same_as(begun)?;
        }
        let generation = match &begun {
            Some(begun) => begun.clone(),
            None => {
                let Arguments { error, items, .. } = self.arguments;
                unused(&self.servers, self.name, self.count, 1, *error, *items)?
            }
        };
        self.modules_know_shards()?;
        self.is_room(&generation.keys)?;
        if !self.arguments.dry_run {
            match &begun {
                None => self.lock(&generation)?,
                Some(_) => self.servers.confirm(&[self.name.to_vec()])?,
            }
            self.make(&generation).map_err(|error| self.half_written(error))?;
            self.is_whole(&generation)?;
        }
        let created = !self.arguments.dry_run;
        Ok(Run { generation: generation.number, created })
    }

    /// What is at the name.
    fn present(&self) -> Result<Present, Error> {
        let seen =
            update(&self.servers, self.name, |fields| Ok((Change::default(), fields.clone())));
        let fields = match seen {
            Err(error) if error.is(Kind::WrongType) => {
                return Ok(Present::Other);
            }
            fields => fields?,
        };
        let pairs = fields.iter().map(|(field, value)| (&field[..], &value[..]));
        Ok(match Descriptor::parse(pairs) {
            Ok(descriptor) => Present::Ready(descriptor),
            Err(Malformed::Missing) => Present::Nothing,
            Err(Malformed::HalfWritten) => begun(&fields).map_or(Present::Other, Present::Begun),
            Err(_) => Present::Other,
        })
    }

    /// Checks that an earlier run was making the same filter.
    fn same_as(&self, begun: &Generation) -> Result<(), Error> {
        let Arguments { error, items, .. } = self.arguments;
        if (begun.shards(), begun.error_rate, begun.capacity) == (self.count, *error, *items) {
            return Ok(());
        }
        Err(Error::refused_partly(
            format!(
                "{} was begun with --shards {} --items {} --error {}",
                name::readable(self.name),
                begun.shards(),
                begun.capacity,
                number::shortest(begun.error_rate),
            ),
            format!("Name these again, or remove it by `drop {}`.", name::typed(self.name)),
        ))
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

    /// Checks that each node has room for its shards below its `maxmemory`. Those of an earlier run
    /// have their room already.
    fn is_room(&self, keys: &[Vec<u8>]) -> Result<(), Error> {
        let absent = self.absent(keys)?;
        for node in &self.having {
            let here = |key: &[u8]| self.nodes.node_of(key).is_some_and(|at| at.same_server(node));
            let count =
                keys.iter().zip(&absent).filter(|(key, absent)| **absent && here(key)).count();
            let needed = self.planned.most().saturating_mul(count as u64);
            let Some(info) = node.connect()?.info(&["memory"])? else {
                self.output.remark("whether the nodes have room is unknown: no right to INFO");
                return Ok(());
            };
            let Some((most, used)) = info.number("maxmemory").zip(info.number("used_memory"))
            else {
                continue;
            };
            let free = most.saturating_sub(used);
            if most > 0 && needed > free {
                return Err(Error::refused_partly(
                    format!(
                        "{node}: its shards need {}, and {} are free below maxmemory",
                        amount::readable_bytes(needed),
                        amount::readable_bytes(free)
                    ),
                    "Raise maxmemory there, move slots away, or lower --items.",
                ));
            }
        }
        Ok(())
    }

    /// Whether each key is absent.
    fn absent(&self, keys: &[Vec<u8>]) -> Result<Vec<bool>, Error> {
        let look = |server: &mut Connection, place: usize, _| {
            let count = server.call_for_key(redis::cmd("EXISTS").arg(&keys[place]))?;
            Ok(count == Value::Int(0))
        };
        on_all(&self.servers, keys, look)
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

    /// Makes the shards and the descriptor. Each step can be done again.
    fn make(&self, generation: &Generation) -> Result<(), Error> {
        let (keys, growth) = (&generation.keys, self.growth());
        let work = |server: &mut Connection, place: usize, _| {
            interrupt::check(&self.go_on())?;
            let Some(shard) = shard_at(place, keys.len()) else { return Ok(()) };
            let key = &keys[place];
            match reserve(&self.servers, server, key, shard, generation, growth, false) {
                Err(error) if error.is(Kind::Exists) => {
                    self.is_own(server, key, shard)?;
                    self.servers.acknowledged(server, LastWrite::Elsewhere)
                }
                done => done,
            }
        };
        on_all(&self.servers, &generation.keys, work)?;
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
        })
    }

    /// Checks that all shards are there: a server may have lost one while others were reserved.
    fn is_whole(&self, generation: &Generation) -> Result<(), Error> {
        let absent = self.absent(&generation.keys)?;
        match absent.iter().position(|&absent| absent) {
            None => Ok(()),
            Some(place) => Err(Error::incomplete(
                format!(
                    "create {}: shard {place} of {} is lost",
                    name::readable(self.name),
                    self.count
                ),
                format!(
                    "See the server's log. Remove the filter by `drop {}`, and create it again.",
                    name::typed(self.name)
                ),
            )),
        }
    }

    /// How the shards grow and forget.
    fn growth(&self) -> Growth {
        let counts = self.rules.is_some_and(|rules| rules.span == Span::Items);
        let fixed = self.arguments.nonscaling || counts;
        let expansion = (!fixed).then(|| self.arguments.expansion.unwrap_or(1));
        Growth { expansion, window: self.rules.map(Window::from) }
    }

    /// Checks that a filter is the shard that is to be made: an earlier run made it, or this one
    /// did and the reply was lost.
    fn is_own(&self, server: &mut Connection, key: &[u8], shard: Shard) -> Result<(), Error> {
        let found = Reader::default().read_one(server, key, Detail::Filter)?;
        let is_shard = found.shard == Some((shard.index().into(), shard.count().into()));
        if is_shard
            && (found.capacity, found.items) == (self.shard_capacity, 0)
            && found.window == self.growth().window
        {
            return self.grows_alike(&found);
        }
        Err(Error::refused_partly(
            format!("{} is another filter", name::readable(key)),
            "Remove that key, or use another name.",
        ))
    }

    /// Checks that a shard grows as this run was told.
    fn grows_alike(&self, found: &FilterInfo) -> Result<(), Error> {
        if found.expansion == self.growth().expansion {
            return Ok(());
        }
        let expansion = |factor| format!("--expansion {factor}");
        let words = found.expansion.map_or("--nonscaling".to_owned(), expansion);
        Err(Error::refused_partly(
            format!("{} was begun with {words}", name::readable(self.name)),
            format!("Name that again, or remove it by `drop {}`.", name::typed(self.name)),
        ))
    }

    /// Checks that the shards of a complete filter grow as this run was told, and waits until
    /// replicas have all: the run that made it may not have.
    fn is_there(&self, generation: &Generation) -> Result<(), Error> {
        let keys = &generation.keys;
        let look = |server: &mut Connection, place: usize, _| {
            match Reader::default().read_one(server, &keys[place], Detail::Filter) {
                Ok(found) => self.grows_alike(&found)?,
                // `info` tells lost shards.
                Err(error) if error.refusal().is_some_and(Refusal::is_no_filter) => {}
                Err(error) => return Err(error),
            }
            self.servers.acknowledged(server, LastWrite::Elsewhere)
        };
        on_all(&self.servers, keys, look)?;
        self.servers.confirm(&[self.name.to_vec()])
    }

    /// How to go on after the lock was taken.
    fn go_on(&self) -> String {
        let name = name::typed(self.name);
        format!("Finish it by the same command with --resume, or remove it by `drop {name}`.")
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

fn wrong_name(name: &[u8], error: NameError) -> Error {
    Error::usage(format!("{}: {error}", name::readable(name)), "Use a name without { and }.")
}

/// The shards that `create` was reserving for a filter that is not ready. `restore` and `drop` note
/// more. A hash of somebody else may have a state, too.
fn begun(fields: &Fields) -> Option<Generation> {
    let other = [&b"restoring"[..], DROPPING].iter().any(|name| fields.contains_key(*name));
    spare(fields).filter(|_| !other)
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
