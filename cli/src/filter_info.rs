//! What a server says about a filter: `BF.INFO`, and where the module has more, the words of
//! `BF.INFO` and the lines of `BF.DEBUG`.
//!
//! ```text
//!   BF.INFO key ─▶ five to eight fields ─▶ which module? ─┬─▶ redis-bloom: BF.INFO key FPR ...
//!                                                         ├─▶ RedisBloom: BF.DEBUG key
//!                                                         └─▶ valkey-bloom: nothing more
//! ```
//!
//! A server has one module, so a [`Reader`] finds out once, and then sends only commands that the
//! module knows. What a server does not say, or does not let its user read, is `None`.

use bloom::filter::Span;
use redis::{Cmd, Value};
use serde::Serialize;

use crate::{
    connection::Connection,
    error::Error,
    refusal::Kind,
    reply::{self, number, text},
    window::{Generation, Window},
};

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

/// How much of a filter is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The filter: constant time on the server, but for a sample of its bits.
    Filter,
    /// The filter and each of its layers.
    Layers,
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
    /// Share of bits set, or of counters above 0. Of RedisBloom: computed from the counts of items.
    pub(crate) fill: Option<f64>,
    /// The rate of false positives that was asked for.
    pub(crate) error_rate: Option<f64>,
    /// The rate of false positives now, from the bits. Of RedisBloom: from the counts of items.
    pub(crate) rate_now: Option<f64>,
    /// Size of each new layer over the size of the one before, of a filter that grows in layers;
    /// `None` if the filter does not grow.
    pub(crate) expansion: Option<u64>,
    /// Items whose count is above 15, which cannot be deleted any more.
    pub(crate) saturated_counters: Option<u64>,
    /// Deletions of items that tested present and stayed.
    pub(crate) refused_deletions: Option<u64>,
    /// Which shard of how many it knows it is; `None` for a filter that takes all items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shard: Option<(u64, u64)>,
    /// How it forgets; `None` for a filter that does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<Window>,
    /// The generations of a filter that forgets, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) generations: Vec<Generation>,
    pub(crate) layer_count: u64,
    /// The layers, oldest first; empty unless they were asked for and the server tells.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) layers: Vec<LayerInfo>,
}

/// What a server says about a layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LayerInfo {
    pub(crate) items: u64,
    /// Items that the layer is made for.
    pub(crate) capacity: u64,
    /// Bytes of its bits or counters.
    pub(crate) bytes: u64,
    /// Bits or counters that an item sets.
    pub(crate) probes: Option<u64>,
    /// Share of bits set, or of counters above 0.
    pub(crate) fill: Option<f64>,
    /// The rate of false positives that the layer is made for.
    pub(crate) error_rate: f64,
    /// The rate of false positives now.
    pub(crate) rate_now: Option<f64>,
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
        detail: Detail,
    ) -> Result<FilterInfo, Error> {
        let reply = connection.call_for_key(redis::cmd("BF.INFO").arg(key))?;
        let mut infos = [(key, FilterInfo::from_fields(reply)?)];
        match self.read_more(connection, &mut infos, detail)? {
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
        detail: Detail,
    ) -> Result<Vec<Result<FilterInfo, Error>>, Error> {
        let commands: Vec<_> =
            keys.iter().map(|key| redis::cmd("BF.INFO").arg(key).take()).collect();
        let mut found = Vec::new();
        let mut results = Vec::new();
        for (key, reply) in keys.iter().zip(connection.request_all(&commands)?) {
            match accepted(connection, reply).and_then(FilterInfo::from_fields) {
                Ok(info) => {
                    results.push(Ok(found.len()));
                    found.push((&key[..], info));
                }
                Err(error) => results.push(Err(error)),
            }
        }
        self.read_more(connection, &mut found, detail)?;
        Ok(results.into_iter().map(|result| result.map(|index| found[index].1.clone())).collect())
    }

    /// Reads what the module says beyond the fields of `BF.INFO` without a word. Returns an error
    /// that passes, if a filter could not be read whole.
    fn read_more(
        &mut self,
        connection: &mut Connection,
        infos: &mut [(&[u8], FilterInfo)],
        detail: Detail,
    ) -> Result<Option<Error>, Error> {
        for (key, info) in &*infos {
            if self.module.is_none() {
                self.module = module_of(connection, key, info)?;
            }
        }
        // Without a filter that is still there, nobody can be asked.
        let Some(module) = self.module else { return Ok(None) };
        let mut passing = None;
        let fields = fields(module, detail);
        let commands: Vec<_> = infos
            .iter()
            .flat_map(|(key, _)| fields.iter().map(|word| command(word, key)))
            .collect();
        let mut replies = connection.request_all(&commands)?.into_iter();
        for (_, info) in infos {
            info.module = module;
            for (field, reply) in fields.iter().zip(&mut replies) {
                match accepted(connection, reply) {
                    Ok(reply) => info.take(field, reply)?,
                    Err(error) if error.passes() => passing = Some(error),
                    // The filter may be gone by now, and the user may lack the right to BF.DEBUG.
                    Err(_) => {}
                }
            }
            if detail == Detail::Filter {
                // BF.DEBUG of RedisBloom tells about the layers in any case.
                info.layers.clear();
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
    Ok(match connection.call(&command("ERROR", key)) {
        Ok(_) => Some(Module::RedisBloom),
        Err(error) if error.is(Kind::NoField) => match connection.call(&command(DEBUG, key)) {
            Err(error) if error.is(Kind::UnknownCommand) => Some(Module::Valkey),
            Ok(_) | Err(Error::Refused { .. }) => Some(Module::Redis),
            Err(error) => return Err(error),
        },
        Err(Error::Refused { .. }) => None,
        Err(error) => return Err(error),
    })
}

/// Checks that a server has this module, which alone has filters with counters, shards and windows:
/// others ignore words of BF.RESERVE that they do not know.
pub(crate) fn must_be_ours(server: &mut Connection, key: &[u8], what: &str) -> Result<(), Error> {
    // With an argument too few the command only tells whether it is there.
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

/// The word that stands for `BF.DEBUG key`; others are those of `BF.INFO key word`.
const DEBUG: &str = "DEBUG";

/// The further fields that a module has.
fn fields(module: Module, detail: Detail) -> &'static [&'static str] {
    // Those about layers at both ends: BF.DEBUG adds the probes to the layers that are there.
    const ALL: &[&str] = &[
        "LAYERS",
        "ERROR",
        "FPR",
        "FILL",
        "SATURATED",
        "UNDELETED",
        "SHARD",
        "WINDOW",
        "GENERATIONS",
        "LAYOUT",
        DEBUG,
    ];
    match (module, detail) {
        (Module::RedisBloom, Detail::Filter) => &ALL[1..ALL.len() - 1],
        (Module::RedisBloom, Detail::Layers) => ALL,
        (Module::Redis, _) => &[DEBUG],
        (Module::Valkey, _) => &[],
    }
}

fn command(word: &str, key: &[u8]) -> Cmd {
    match word {
        DEBUG => redis::cmd("BF.DEBUG").arg(key).take(),
        word => redis::cmd("BF.INFO").arg(key).arg(word).take(),
    }
}

impl FilterInfo {
    /// Takes the reply to `BF.INFO key field`.
    fn take(&mut self, word: &str, reply: Value) -> Result<(), Error> {
        if word == DEBUG {
            return self.take_debug(&reply);
        }
        let wrong = Error::reply("BF.INFO", &reply);
        let value = match &reply {
            Value::Array(values) => values.first(),
            Value::Map(pairs) => pairs.first().map(|(_, value)| value),
            _ => None,
        };
        let value = value.ok_or(wrong)?;
        match word {
            "ERROR" => self.error_rate = Some(double(value)?),
            "FPR" => self.rate_now = Some(double(value)?),
            "FILL" => self.fill = Some(double(value)?),
            "SHARD" => self.shard = shard(value)?,
            "WINDOW" => self.window = Window::from_reply(value),
            "GENERATIONS" => {
                self.generations = Generation::all_from_reply(value).unwrap_or_default();
            }
            "LAYOUT" => self.layout = text(value).map(str::to_owned),
            "UNDELETED" => self.refused_deletions = optional(value)?,
            "SATURATED" => {
                self.saturated_counters = optional(value)?;
                if self.saturated_counters.is_some() {
                    self.cells = Cells::Counters;
                }
            }
            _ => {
                let Value::Array(layers) = value else {
                    return Err(Error::reply("BF.INFO", value));
                };
                self.layers =
                    layers.iter().map(LayerInfo::from_fields).collect::<Result<_, _>>()?;
            }
        }
        Ok(())
    }

    /// Whether it does not grow, and nine tenths of what it takes are in.
    pub(crate) fn nearly_full(&self) -> bool {
        // A window of items makes room for each.
        let refuses = self.expansion.is_none()
            && self.window.is_none_or(|window| window.0.span != Span::Items);
        refuses && self.items >= self.capacity - self.capacity / 10
    }

    pub(crate) fn readable_expansion(&self) -> String {
        self.expansion.map_or_else(|| "none (NONSCALING)".to_owned(), |factor| factor.to_string())
    }

    /// How many generations it has, and how many of them are asked: `2, 1 alive`.
    pub(crate) fn readable_generations(&self) -> String {
        let alive = self.generations.iter().filter(|generation| generation.alive).count();
        format!("{}, {alive} alive", self.generations.len())
    }

    /// The fields of `BF.INFO key`. The module is a guess until [`Reader::read_more`] knows it.
    fn from_fields(reply: Value) -> Result<Self, Error> {
        let fields = Fields(&reply);
        Ok(Self {
            module: Module::RedisBloom,
            cells: Cells::Bits,
            layout: None,
            items: fields.integer("Number of items inserted")?,
            capacity: fields.integer("Capacity")?,
            bytes: fields.integer("Size")?,
            fill: None,
            error_rate: fields.get("Error rate").map(double).transpose()?,
            rate_now: None,
            expansion: fields.get("Expansion rate").map_or(Ok(None), optional)?,
            saturated_counters: None,
            refused_deletions: None,
            shard: None,
            window: None,
            generations: Vec::new(),
            layer_count: fields.integer("Number of filters")?,
            layers: Vec::new(),
        })
    }

    /// Takes the lines of `BF.DEBUG`: the layers of RedisBloom, and the probes of this project's.
    fn take_debug(&mut self, reply: &Value) -> Result<(), Error> {
        let wrong = || Error::reply("BF.DEBUG", reply);
        let Value::Array(lines) = reply else { return Err(wrong()) };
        let lines: Vec<_> = lines
            .iter()
            .skip(1)
            .map(|line| DebugLine::parse(line).ok_or_else(wrong))
            .collect::<Result<_, _>>()?;
        if self.module == Module::RedisBloom {
            // Between the two commands the filter may have grown.
            for (layer, line) in self.layers.iter_mut().zip(&lines) {
                layer.probes = Some(line.hashes);
            }
            return Ok(());
        }
        if lines.iter().any(|line| line.bits == 0) {
            return Err(wrong());
        }
        let (mut set, mut bits, mut absent) = (0.0, 0.0, 1.0);
        self.layers = lines
            .iter()
            .map(|line| {
                let (fill, rate_now) = line.expected();
                set += fill * line.bits as f64;
                bits += line.bits as f64;
                absent *= 1.0 - rate_now;
                LayerInfo {
                    items: line.size,
                    capacity: line.capacity,
                    bytes: line.bytes,
                    probes: Some(line.hashes),
                    fill: Some(fill),
                    error_rate: line.ratio,
                    rate_now: Some(rate_now),
                }
            })
            .collect();
        if let Some(first) = lines.first() {
            self.fill = Some(set / bits);
            self.rate_now = Some(1.0 - absent);
            // RedisBloom asks half of the rate of the first layer of a filter that grows.
            let share = if self.expansion.is_some() { 0.5 } else { 1.0 };
            self.error_rate = Some(first.ratio / share);
        }
        Ok(())
    }
}

impl LayerInfo {
    fn from_fields(layer: &Value) -> Result<Self, Error> {
        let fields = Fields(layer);
        Ok(Self {
            items: fields.integer("Items")?,
            capacity: fields.integer("Capacity")?,
            bytes: fields.integer("Size")?,
            probes: None,
            fill: fields.get("Fill").map(double).transpose()?,
            error_rate: double(fields.needed("Error rate")?)?,
            rate_now: fields.get("False positive rate").map(double).transpose()?,
        })
    }
}

/// A layer in `BF.DEBUG`: `bytes:128 bits:1024 hashes:7 hashwidth:64 capacity:100 size:0
/// ratio:0.0075`.
#[derive(Debug, Default)]
struct DebugLine {
    bytes: u64,
    bits: u64,
    hashes: u64,
    capacity: u64,
    size: u64,
    ratio: f64,
}

impl DebugLine {
    fn parse(line: &Value) -> Option<Self> {
        let mut parsed = Self::default();
        for word in text(line)?.split(' ') {
            let (name, value) = word.split_once(':')?;
            match name {
                "bytes" => parsed.bytes = value.parse().ok()?,
                "bits" => parsed.bits = value.parse().ok()?,
                "hashes" => parsed.hashes = value.parse().ok()?,
                "capacity" => parsed.capacity = value.parse().ok()?,
                "size" => parsed.size = value.parse().ok()?,
                "ratio" => parsed.ratio = value.parse().ok()?,
                _ => {}
            }
        }
        (parsed.hashes > 0).then_some(parsed)
    }

    /// The fill and the rate of a classic layer, as expected of its count of items: with k probes
    /// of n items in m bits, 1 - e^(-kn/m) of the bits are set, and the rate is the k-th power.
    fn expected(&self) -> (f64, f64) {
        let fill = -f64::exp_m1(-(self.hashes as f64) * self.size as f64 / self.bits as f64);
        (fill, fill.powf(self.hashes as f64))
    }
}

/// The fields of a reply.
struct Fields<'v>(&'v Value);

impl<'v> Fields<'v> {
    fn get(&self, name: &str) -> Option<&'v Value> {
        reply::field(self.0, name)
    }

    fn needed(&self, name: &str) -> Result<&'v Value, Error> {
        let wrong = || Error::reply("BF.INFO", format_args!("without the field {name}"));
        self.get(name).ok_or_else(wrong)
    }

    fn integer(&self, name: &str) -> Result<u64, Error> {
        let value = self.needed(name)?;
        optional(value)?.ok_or_else(|| Error::reply("BF.INFO", value))
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

/// The reply, or the server's error.
fn accepted(connection: &Connection, reply: Value) -> Result<Value, Error> {
    match reply {
        Value::ServerError(error) => Err(connection.refused("BF.INFO", &error)),
        reply => Ok(reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(pairs: &[(&str, Value)]) -> Value {
        let simple = |name: &str| Value::SimpleString(name.to_owned());
        Value::Array(pairs.iter().flat_map(|(name, value)| [simple(name), value.clone()]).collect())
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn five() -> Vec<(&'static str, Value)> {
        vec![
            ("Capacity", Value::Int(1000)),
            ("Size", Value::Int(1360)),
            ("Number of filters", Value::Int(1)),
            ("Number of items inserted", Value::Int(2)),
            ("Expansion rate", Value::Int(2)),
        ]
    }

    #[test]
    fn the_lines_of_redisbloom_give_layers_and_rates() {
        let mut info = FilterInfo::from_fields(flat(&five())).unwrap();
        info.module = Module::Redis;
        let layer =
            "bytes:1379 bits:11032 hashes:8 hashwidth:64 capacity:1000 size:1000 ratio:0.005";
        info.take_debug(&Value::Array(vec![bulk("size:1000"), bulk(layer)])).unwrap();
        assert_eq!(info.error_rate, Some(0.01));
        // 1 - e^(-8 * 1000 / 11032) = 0.5157, and its 8th power is 0.0050.
        assert!((info.fill.unwrap() - 0.5157).abs() < 1e-4, "{info:?}");
        assert!((info.rate_now.unwrap() - 0.0050).abs() < 1e-4, "{info:?}");
        let layers = &info.layers[..];
        let [LayerInfo { items: 1000, capacity: 1000, bytes: 1379, probes: Some(8), .. }] = layers
        else {
            panic!("{layers:?}")
        };
    }
}
