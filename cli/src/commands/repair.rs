//! `redis-bloom repair NAME --shard I --from FILE...`: a lost shard of a sharded filter from the
//! source of its items.
//!
//! ```text
//!   FILE ── items of shard i ──▶ {NAME:k}:g:repair ── RENAMENX ──▶ {NAME:k}:g
//!                                in the slot of the shard
//! ```
//!
//! Clients never see a part of the shard. A run that was killed leaves the temporary key, and the
//! next one begins anew. Nothing is replaced: what is in the place of the shard is dropped first,
//! by its key. A filter that was rebuilt or dropped meanwhile gets no shard.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use crate::sharding::Generation;
use bloom::sharding::Shard;
use redis::Value;
use serde::Serialize;

use crate::{
    amount,
    at_once::Servers,
    connection::{Connection, Options, Target},
    descriptor::{Change, Fields, note, noted, parsed, update},
    error::{Error, Exit},
    interrupt, items,
    loading::{self, Files, Goal, load_files},
    name::{self, Named},
    new_shard::{New, growth_for},
    output::Output,
    refusal::Kind,
    replication::LastWrite,
    retry::{RETRY_FOR, retry},
    scan, sharded,
    stamp::Stamp,
    watched::watched,
};

/// Makes a lost shard of a sharded filter anew from its items
///
/// The files have the items of the whole filter: those of other shards are left out. Clients see
/// the shard when it is complete.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the sharded filter
    name: OsString,
    /// Number of the lost shard, from 0
    #[arg(long, value_name = "I")]
    shard: u16,
    /// Files with items, - is standard input
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    from: Vec<PathBuf>,
    #[command(flatten)]
    loading: loading::Options,
    #[command(flatten)]
    items: items::Options,
}

/// What was repaired.
#[derive(Debug, Serialize)]
struct Report<'n> {
    #[serde(flatten)]
    name: Named<'n>,
    shard: u16,
    shards: u16,
    generation: u64,
    /// Items that were loaded.
    items: u64,
}

/// A shard that is repaired.
struct Repair<'a> {
    arguments: &'a Arguments,
    servers: Servers,
    generation: Generation,
    shard: Shard,
    output: &'a Output,
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        for path in self.from.iter().filter(|path| *path != Path::new("-")) {
            if path.metadata().map_err(Error::file(path))?.is_dir() {
                return Err(Error::usage(
                    format!("{}: a directory", name::readable_path(path)),
                    "Of a dump, restore the file of the shard: `restore DIR/shard-... KEY`.",
                ));
            }
        }
        interrupt::register();
        let name = name::bytes(&self.name);
        let target = connection.target()?;
        let filter = sharded::find_sharded(&mut target.connect()?, name)?;
        let shown = name::readable(name);
        let generation = filter.current;
        let count = generation.shards();
        let Some(shard) = Shard::new(self.shard, count) else {
            return Err(Error::usage(
                format!("{shown} has shards 0 to {}", count.saturating_sub(1)),
                "Name one of them by --shard.",
            ));
        };
        if let Ok(Some(next)) = &filter.next {
            output.remark(format_args!(
                "{shown} is being rebuilt: generation {} is repaired, which answers; not {}",
                generation.number, next.number
            ));
        }
        let number = generation.number;
        let servers = Servers::of(target.clone(), output)?;
        let repair = Repair { arguments: self, servers, generation, shard, output };
        let report = Report {
            name: Named::of(name),
            shard: self.shard,
            shards: count,
            generation: number,
            items: repair.run(target)?,
        };
        let items = amount::grouped(report.items);
        let text = format!("{shown}: shard {} of {count} repaired: {items} items", self.shard);
        output.data(&report, text)?;
        Ok(Exit::Done)
    }
}

impl Repair<'_> {
    /// The key of the shard.
    fn key(&self) -> &[u8] {
        &self.generation.keys[usize::from(self.shard.index())]
    }

    /// The key that is filled; it has the slot of the shard.
    fn temporary(&self) -> Vec<u8> {
        [self.key(), b":repair"].concat()
    }

    /// Does something on the node of the shard. Tries again while that fails.
    fn on_node<T>(
        &self,
        work: impl Fn(&mut Connection, bool) -> Result<T, Error>,
    ) -> Result<T, Error> {
        retry(RETRY_FOR, |again| work(&mut self.servers.connect(self.key())?, again))
    }

    /// Checks that the shard is lost, and that the key that is filled is not somebody else's.
    fn look(&self) -> Result<(), Error> {
        if let Some(kind) = self.kind(self.key())? {
            return Err(self.in_place(&format!("there is a key of the type {kind}")));
        }
        let key = self.temporary();
        match self.kind(&key)? {
            Some(kind) if !scan::TYPES.contains(&&*kind) => Err(Error::refused_partly(
                format!(
                    "repair {}: BUSYKEY {} is a key of the type {kind}",
                    self.task(),
                    name::readable(&key)
                ),
                "The shard is filled under that name: rename the key that has it.",
            )),
            _ => Ok(()),
        }
    }

    /// The type of a key; `None` if there is no key.
    fn kind(&self, key: &[u8]) -> Result<Option<String>, Error> {
        self.on_node(|server, _| match server.call_for_key(redis::cmd("TYPE").arg(key))? {
            Value::SimpleString(kind) => Ok(Some(kind).filter(|kind| kind != "none")),
            other => Err(Error::reply("TYPE", &other)),
        })
    }

    fn in_place(&self, what: &str) -> Error {
        Error::refused_partly(
            format!("repair {}: BUSYKEY {what} in its place", self.task()),
            format!(
                "If it is to go, with all that was added to it: `drop {}`, then repeat this.",
                name::typed(self.key())
            ),
        )
    }

    /// The shard, for messages.
    fn task(&self) -> String {
        let name = name::readable(name::bytes(&self.arguments.name));
        format!("{name}: shard {} of {}", self.shard.index(), self.shard.count())
    }

    /// Fills the temporary key, and renames it. Returns the number of items.
    fn run(&self, target: Target) -> Result<u64, Error> {
        self.look()?;
        let done = self.load(target).and_then(|(begun, items)| self.rename(&begun).map(|()| items));
        if done.is_err() {
            // The next run begins anew: it needs nothing of this one.
            let _ = self.clear();
        }
        done
    }

    /// Removes what an earlier run left.
    fn clear(&self) -> Result<(), Error> {
        let key = self.temporary();
        self.on_node(|server, _| server.call_for_key(redis::cmd("UNLINK").arg(&key)))?;
        Ok(())
    }

    /// Loads the files. Returns which filter got the items, and how many they were.
    fn load(&self, target: Target) -> Result<(Stamp, u64), Error> {
        let (arguments, key) = (self.arguments, self.temporary());
        let growth = growth_for(&self.servers, &self.generation)?;
        self.clear()?;
        self.on_node(|server, again| {
            let (shard, generation) = (self.shard, &self.generation);
            New { key: &key, shard, generation, growth }.reserve(&self.servers, server, again)
        })?;
        let begun = self.on_node(|server, _| Stamp::of(server, &key, self.shard))?;
        let begun = begun.ok_or_else(|| self.lost())?;
        let totals = load_files(
            &format!("repair {}", name::readable(name::bytes(&arguments.name))),
            Goal::Shard(self.shard, key),
            &Files {
                paths: &arguments.from,
                items: &arguments.items,
                confirmed: &arguments.loading,
            },
            target,
            self.output,
        )?;
        if totals.items == 0 {
            return Err(Error::usage(
                format!("repair {}: no item of the files belongs to it", self.task()),
                "Name the files of all items of the filter, and their form by -0.",
            ));
        }
        Ok((begun, totals.items))
    }

    fn lost(&self) -> Error {
        Error::incomplete(
            format!("repair {}: the server lost items of it", self.task()),
            "See its log, then repeat this.",
        )
    }

    /// Puts the complete shard, which was filled as `begun`, in its place.
    fn rename(&self, begun: &Stamp) -> Result<(), Error> {
        let (key, temporary) = (self.key(), self.temporary());
        let complete = self.on_node(|server, _| Stamp::of(server, &temporary, self.shard))?;
        let complete = complete.filter(|now| now.is_of(begun)).ok_or_else(|| self.lost())?;
        let is_complete = |now: Option<Stamp>| now.is_some_and(|stamp| stamp.has_all_of(&complete));
        let rename = [redis::cmd("RENAMENX").arg(&temporary).arg(key).take()];
        let renamed = self.on_node(|server, again| {
            let reply = watched(server, &[&temporary], &rename, |server| {
                self.is_current()?;
                match Stamp::of(server, &temporary, self.shard)? {
                    // The reply to an earlier attempt may be lost.
                    None if again => Ok(true),
                    now => is_complete(now).then_some(true).ok_or_else(|| self.lost()),
                }
            });
            let (renamed, last) = match reply {
                Ok(reply) => (reply != Some(Value::Int(0)), LastWrite::Here),
                // The reply to an earlier attempt was lost.
                Err(error) if again && error.is(Kind::NotFound) => (true, LastWrite::Elsewhere),
                Err(error) => return Err(error),
            };
            // The server may have restarted, without the temporary key or with an older one.
            if again && renamed && !is_complete(Stamp::of(server, key, self.shard)?) {
                return Err(self.lost());
            }
            self.servers.acknowledged(server, last)?;
            Ok(renamed)
        })?;
        if renamed { self.note() } else { Err(self.in_place("somebody has made a key")) }
    }

    /// Checks that the shard is one of the generation that answers.
    fn is_current(&self) -> Result<(), Error> {
        let name = name::bytes(&self.arguments.name);
        match sharded::find_sharded(&mut self.servers.connect(name)?, name)? {
            now if now.current == self.generation => Ok(()),
            _ => Err(Error::incomplete(
                format!("repair {}: the filter was rebuilt meanwhile", self.task()),
                "`info` says whether a shard of it is lost now.",
            )),
        }
    }

    /// A rebuild that has let this generation answer compares its shards with notes, until the old
    /// ones are gone: this shard is another filter now.
    fn note(&self) -> Result<(), Error> {
        let name = name::bytes(&self.arguments.name);
        let place = usize::from(self.shard.index());
        let is_noted = |fields: &Fields| {
            noted(fields, place).is_some()
                && parsed(name, fields).is_ok_and(|now| {
                    now.current == self.generation
                        && matches!(now.next, Ok(Some(next)) if next.number < now.current.number)
                })
        };
        // A user without the right to WATCH may repair a filter that is not being rebuilt.
        let fields = sharded::fields(&mut self.servers.connect(name)?, name)?;
        if !fields.is_some_and(|fields| is_noted(&fields.into_iter().collect())) {
            return Ok(());
        }
        let Some(stamp) = Stamp::of_shard(&self.servers, &self.generation, place)? else {
            return Ok(());
        };
        update(&self.servers, name, |fields| {
            let set = if is_noted(fields) { vec![note(place, &stamp)] } else { Vec::new() };
            Ok((Change { set, delete: Vec::new() }, ()))
        })
    }
}
