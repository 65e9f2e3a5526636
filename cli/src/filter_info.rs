//! What a server reports about a filter: `BF.INFO`, and the further fields of redis-bloom.
//!
//! ```text
//!   BF.INFO key ─▶ five to eight fields ─▶ which module? ─┬─▶ redis-bloom: BF.INFO key FPR ...
//!                                                         └─▶ another: nothing more
//! ```
//!
//! A server has one module, so a [`Reader`] finds out once, and then sends only commands that the
//! module knows. What a server does not report, or does not let its user read, is `None`.

use bloom::filter::Span;
use redis::{Cmd, Value};
use serde::Serialize;

use crate::{
    connection::{Connection, accepted},
    error::Error,
    name,
    refusal::Kind,
    reply::{self, number, only, text},
    window::Window,
};

/// The names of the data types of Bloom filters: RedisBloom's, which is also this project's, and
/// valkey-bloom's.
pub(crate) const TYPES: [&str; 2] = ["MBbloom--", "bloomfltr"];

/// The module that gives a server its `BF.*` commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Module {
    /// This project.
    #[serde(rename = "redis-bloom")]
    RedisBloom,
    /// RedisBloom of Redis Ltd., also as a part of Redis 8.
    #[serde(rename = "RedisBloom")]
    Redis,
    #[serde(rename = "valkey-bloom")]
    Valkey,
}

impl Module {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RedisBloom => "redis-bloom",
            Self::Redis => "RedisBloom",
            Self::Valkey => "valkey-bloom",
        }
    }
}

/// What the positions of a filter hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Cells {
    /// Bits: items can be added.
    Bits,
    /// Counters: items can be added and deleted.
    Counters,
}

impl Cells {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bits => "bits",
            Self::Counters => "counters",
        }
    }
}

/// What a server says about a filter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FilterInfo {
    pub(crate) module: Module,
    /// Bits or counters.
    pub(crate) cells: Cells,
    /// The product that makes such filters, as `BF.INFO key LAYOUT` names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) layout: Option<String>,
    /// Items added and not deleted, as BF.CARD counts them.
    pub(crate) items: u64,
    /// Items that all present layers together are made for.
    pub(crate) capacity: u64,
    pub(crate) bytes: u64,
    /// Share of bits set, or of counters above 0.
    pub(crate) fill: Option<f64>,
    /// The configured error rate.
    pub(crate) error_rate: Option<f64>,
    /// The rate of false positives now, from the bits.
    pub(crate) rate_now: Option<f64>,
    /// Size of each new layer over the size of the one before, of a filter that grows in layers;
    /// `None` if the filter does not grow.
    pub(crate) expansion: Option<u64>,
    /// Which shard of how many it knows it is; `None` for a filter that takes all items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shard: Option<(u64, u64)>,
    /// How it forgets; `None` for a filter that does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<Window>,
    pub(crate) layer_count: u64,
}

/// Reads filters of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reader {
    /// The module of the server; `None` until a filter was read.
    module: Option<Module>,
}

impl Reader {
    /// Reads one filter. Follows the redirections of a cluster.
    pub(crate) fn read_one(
        &mut self,
        connection: &mut Connection,
        key: &[u8],
    ) -> Result<FilterInfo, Error> {
        let reply = connection.call_for_key(redis::cmd("BF.INFO").arg(key))?;
        let mut infos = [(key, FilterInfo::from_fields(reply)?)];
        match self.read_more(connection, &mut infos)? {
            Some(passing) => Err(passing),
            None => {
                let [(_, info)] = infos;
                Ok(info)
            }
        }
    }

    /// Reads several filters of this server in a few round trips. A filter that cannot be read is
    /// an `Error::Refused` in its place.
    pub(crate) fn read(
        &mut self,
        connection: &mut Connection,
        keys: &[Vec<u8>],
    ) -> Result<Vec<Result<FilterInfo, Error>>, Error> {
        let commands: Vec<_> =
            keys.iter().map(|key| redis::cmd("BF.INFO").arg(key).take()).collect();
        let mut found = Vec::new();
        let mut results = Vec::new();
        for (key, reply) in keys.iter().zip(connection.request_all(&commands)?) {
            match accepted("BF.INFO", reply).and_then(FilterInfo::from_fields) {
                Ok(info) => {
                    results.push(Ok(found.len()));
                    found.push((&key[..], info));
                }
                Err(error) => results.push(Err(error)),
            }
        }
        self.read_more(connection, &mut found)?;
        Ok(results.into_iter().map(|result| result.map(|index| found[index].1.clone())).collect())
    }

    /// Reads what the module says beyond the fields of `BF.INFO` without a word. Returns a
    /// temporary error, if a filter could not be read whole.
    fn read_more(
        &mut self,
        connection: &mut Connection,
        infos: &mut [(&[u8], FilterInfo)],
    ) -> Result<Option<Error>, Error> {
        for (key, info) in &*infos {
            if self.module.is_none() {
                self.module = module_of(connection, key, info)?;
            }
        }
        // Only a filter that still exists shows which module it is.
        let Some(module) = self.module else { return Ok(None) };
        let words = if module == Module::RedisBloom { WORDS } else { &[] };
        let commands: Vec<_> =
            infos.iter().flat_map(|(key, _)| words.iter().map(|word| command(word, key))).collect();
        let mut replies = connection.request_all(&commands)?.into_iter();
        let mut passing = None;
        for (_, info) in infos {
            info.module = module;
            for (word, reply) in words.iter().zip(&mut replies) {
                match accepted("BF.INFO", reply) {
                    Ok(reply) => info.take(word, &reply)?,
                    Err(error) if error.passes() => passing = Some(error),
                    // The filter may be gone by now.
                    Err(_) => {}
                }
            }
        }
        Ok(passing)
    }
}

/// The module of the server, by what it says of a filter; `None` if the filter is gone.
fn module_of(
    connection: &mut Connection,
    key: &[u8],
    info: &FilterInfo,
) -> Result<Option<Module>, Error> {
    if info.error_rate.is_some() {
        return Ok(Some(Module::Valkey));
    }
    match connection.call(&command("ERROR", key)) {
        Ok(_) => Ok(Some(Module::RedisBloom)),
        Err(error) if error.is(Kind::NoField) => Ok(Some(Module::Redis)),
        Err(Error::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that a server has this module, which alone has filters with counters, shards and windows:
/// others ignore words of BF.RESERVE that they do not know.
pub(crate) fn must_be_ours(server: &mut Connection, key: &[u8], what: &str) -> Result<(), Error> {
    // With too few arguments it does nothing: the error says whether the command exists.
    match server.call(redis::cmd("BF.FORGET").arg(key)) {
        Err(error) if error.is(Kind::UnknownCommand) => Err(Error::refused_partly(
            format!("{}: its module has no {what}", server.target()),
            "Load this release of redis-bloom into every node, replicas first.",
        )),
        // An error about the number of arguments, or a user who may not forget.
        Ok(_) | Err(Error::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the key is a filter, complete or not; `false` if there is no key. Leads the connection
/// to the node that has it.
///
/// # Errors
/// `Error::Refused` if the key holds something else.
pub(crate) fn is_filter(server: &mut Connection, key: &[u8]) -> Result<bool, Error> {
    match server.call_for_key(redis::cmd("TYPE").arg(key))? {
        Value::SimpleString(kind) if kind == "none" => Ok(false),
        Value::SimpleString(kind) if TYPES.contains(&&*kind) => Ok(true),
        Value::SimpleString(kind) => {
            Err(Error::refused(name::readable(key), format!("WRONGTYPE the key holds a {kind}")))
        }
        other => Err(Error::reply("TYPE", &other)),
    }
}

/// The words of `BF.INFO` that are read beside the fields that all modules have.
const WORDS: &[&str] = &["ERROR", "FPR", "FILL", "SATURATED", "SHARD", "WINDOW", "LAYOUT"];

fn command(word: &str, key: &[u8]) -> Cmd {
    redis::cmd("BF.INFO").arg(key).arg(word).take()
}

impl FilterInfo {
    /// Takes the reply to `BF.INFO key word`.
    fn take(&mut self, word: &str, reply: &Value) -> Result<(), Error> {
        let value = only(reply);
        match word {
            "ERROR" => self.error_rate = Some(double(value)?),
            "FPR" => self.rate_now = Some(double(value)?),
            "FILL" => self.fill = Some(double(value)?),
            // The number of counters that overflowed.
            "SATURATED" if optional(value)?.is_some() => self.cells = Cells::Counters,
            "SHARD" => self.shard = shard(value)?,
            "WINDOW" => self.window = Window::from_reply(value),
            "LAYOUT" => self.layout = text(value).map(str::to_owned),
            _ => {}
        }
        Ok(())
    }

    /// Whether it does not grow, and is nine tenths full.
    pub(crate) fn nearly_full(&self) -> bool {
        // A window of items makes room for each.
        let refuses = self.expansion.is_none()
            && self.window.is_none_or(|window| window.0.span != Span::Items);
        refuses && self.items >= self.capacity - self.capacity / 10
    }

    pub(crate) fn readable_expansion(&self) -> String {
        self.expansion.map_or_else(|| "none (NONSCALING)".to_owned(), |factor| factor.to_string())
    }

    /// The fields of `BF.INFO key`. The module is a guess until [`Reader::read_more`] knows it.
    fn from_fields(reply: Value) -> Result<Self, Error> {
        let field = |name| reply::field(&reply, name);
        let integer =
            |name| field(name).and_then(number).ok_or_else(|| Error::reply("BF.INFO", &reply));
        Ok(Self {
            module: Module::RedisBloom,
            cells: Cells::Bits,
            layout: None,
            items: integer("Number of items inserted")?,
            capacity: integer("Capacity")?,
            bytes: integer("Size")?,
            fill: None,
            error_rate: field("Error rate").map(double).transpose()?,
            rate_now: None,
            expansion: field("Expansion rate").map_or(Ok(None), optional)?,
            shard: None,
            window: None,
            layer_count: integer("Number of filters")?,
        })
    }
}

/// A number, or null.
fn optional(value: &Value) -> Result<Option<u64>, Error> {
    match value {
        Value::Nil => Ok(None),
        value => number(value).map(Some).ok_or_else(|| Error::reply("BF.INFO", value)),
    }
}

/// The number of a shard and the number of shards, or null.
fn shard(value: &Value) -> Result<Option<(u64, u64)>, Error> {
    let Value::Array(numbers) = value else { return optional(value).map(|_| None) };
    match numbers[..] {
        [Value::Int(index), Value::Int(count)] => {
            Ok(u64::try_from(index).ok().zip(u64::try_from(count).ok()))
        }
        _ => Err(Error::reply("BF.INFO", value)),
    }
}

fn double(value: &Value) -> Result<f64, Error> {
    reply::double(value).ok_or_else(|| Error::reply("BF.INFO", value))
}
