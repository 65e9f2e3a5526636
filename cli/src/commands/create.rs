//! `redis-bloom create NAME`: an empty filter.
//!
//! The server chooses a random seed for the filter. There is no option for it: a command line is
//! no place for a secret.

mod shards;

use std::ffi::OsString;

use bloom::{
    command::number,
    filter::{MAX_EXPANSION, Params, Rules, Span, expected_bytes},
    sharding::MAX_SHARDS,
};
use redis::Cmd;
use serde::Serialize;

use super::plan::{bits_per_item, refused};
use crate::{
    amount,
    connection::Options,
    error::{Error, Exit},
    filter_info::{Module, Reader, must_be_ours},
    name::{self, Named},
    output::Output,
    window::{self, Window},
};

/// Creates an empty filter, in one key or sharded over the nodes of a cluster
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the filter
    name: OsString,
    /// Items that the filter is made for, such as 1000, 2.5M or 10G
    #[arg(long, value_name = "N", value_parser = amount::items)]
    items: u64,
    /// Highest rate of false positives, such as 0.001 or 0.1%
    #[arg(long, value_name = "P", value_parser = amount::rate)]
    error: f64,
    /// Makes a filter from which items can be deleted, for about twice the memory
    #[arg(long, conflicts_with = "window")]
    counting: bool,
    /// Makes a sharded filter of N keys, over the nodes of a cluster
    #[arg(long, value_name = "N", conflicts_with_all = ["counting", "window"])]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_SHARDS)))]
    shards: Option<u16>,
    /// Seconds after which clients read the list of the shards again
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "shards")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    poll: u64,
    /// How BF.INFO counts the layers of a filter that grows; without it, the server's setting, or 1
    /// for shards
    #[arg(long, value_name = "N", conflicts_with = "nonscaling")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=u64::from(MAX_EXPANSION)))]
    expansion: Option<u64>,
    /// Makes a filter that refuses new items when it is full
    #[arg(long)]
    nonscaling: bool,
    #[command(flatten)]
    window: window::Options,
}

/// The size of a filter.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Bytes of the empty filter.
    bytes: u64,
    /// Bytes with all items that it is made for, if these are more.
    full: Option<u64>,
}

impl Size {
    /// Bytes in the end, if no more items come than it is made for.
    fn most(self) -> u64 {
        self.full.unwrap_or(self.bytes)
    }
}

/// What was created.
#[derive(Debug, Serialize)]
struct Created<'n> {
    #[serde(flatten)]
    name: Named<'n>,
    /// The module of the server; null if the server does not let its user read the filter.
    module: Option<Module>,
    counting: bool,
    capacity: u64,
    error_rate: f64,
    bytes: Option<u64>,
    /// Bytes with all items that it is made for, if these are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    full_bytes: Option<u64>,
    bits_per_item: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<Window>,
    #[serde(flatten)]
    shards: Option<shards::Made>,
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        let key = name::bytes(&self.name);
        if let Some(count) = self.shards {
            return self.create_shards(count, connection, output);
        }
        let rules = self.rules()?;
        let planned = self.planned(self.items, 2, rules)?;
        let mut server = connection.target()?.connect_for(key)?;
        let mut created = Created {
            name: Named::of(key),
            module: None,
            counting: self.counting,
            capacity: self.items,
            error_rate: self.error,
            bytes: Some(planned.bytes),
            full_bytes: planned.full,
            bits_per_item: Some(bits_per_item(planned.most(), self.items)),
            window: rules.map(Window),
            shards: None,
        };
        if self.counting {
            must_be_ours(&mut server, key, "filters with counters")?;
        }
        if rules.is_some() {
            must_be_ours(&mut server, key, "sliding-window filters")?;
        }
        server.call_for_key(&self.command(key, rules))?;
        match Reader::default().read_one(&mut server, key) {
            Ok(info) => {
                created.module = Some(info.module);
                created.bytes = Some(info.bytes);
                if info.module != Module::RedisBloom {
                    created.full_bytes = None;
                }
                let most = created.full_bytes.unwrap_or(info.bytes);
                created.bits_per_item = Some(bits_per_item(most, self.items));
            }
            // A user who may write and not read.
            Err(Error::Refused { .. }) => {
                (created.bytes, created.full_bytes, created.bits_per_item) = (None, None, None);
            }
            Err(error) => return Err(error),
        }
        output.data(&created, self.text(&created))?;
        Ok(Exit::Done)
    }

    /// How the filter forgets, if it does.
    fn rules(&self) -> Result<Option<Rules>, Error> {
        self.window.rules(self.expansion)
    }

    /// The size that the filter has in the module, if it is made for `items` items. It grows by
    /// `expansion` unless the options say otherwise.
    fn planned(&self, items: u64, expansion: u64, rules: Option<Rules>) -> Result<Size, Error> {
        let expansion = if self.nonscaling { 0 } else { self.expansion.unwrap_or(expansion) };
        let params = Params {
            error_rate: self.error,
            capacity: items,
            expansion: window::expansion_of(rules, expansion)?,
            seed: 0,
            counts: self.counting,
            shard: None,
        };
        let bytes =
            |items| expected_bytes(&params, rules, items).map_err(|error| refused(&error, &params));
        let has_pages = params.has_pages(rules);
        let full = has_pages.then(|| bytes(window::most_items(rules, items))).transpose()?;
        Ok(Size { bytes: bytes(0)?, full })
    }

    /// `BF.RESERVE`. All modules understand it, if it asks for no counters and no window.
    fn command(&self, key: &[u8], rules: Option<Rules>) -> Cmd {
        let mut command = redis::cmd("BF.RESERVE");
        command.arg(key).arg(number::shortest(self.error)).arg(self.items);
        if self.counting {
            command.arg("COUNTING");
        }
        if let Some(factor) = self.expansion {
            command.arg("EXPANSION").arg(factor);
        }
        if self.nonscaling {
            command.arg("NONSCALING");
        }
        command.arg(rules.map_or_else(Vec::new, window::words));
        command
    }

    fn text(&self, created: &Created<'_>) -> String {
        let shards = created.shards.as_ref().map_or_else(String::new, shards::Made::text);
        let items = amount::readable_items(self.items);
        let remembered = match created.window.map(|window| window.0.span) {
            None => format!("{items} items"),
            Some(Span::Items) => format!("the last {items} items"),
            Some(span) => format!("{items} items in {}", amount::readable_span(span)),
        };
        let mut text = format!(
            "{} created: {shards}{remembered} at {}",
            name::readable(name::bytes(&self.name)),
            amount::readable_rate(self.error)
        );
        if let (Some(bytes), Some(bits)) = (created.bytes, created.bits_per_item) {
            text += &format!(", {}", amount::readable_bytes(bytes));
            if let Some(full) = created.full_bytes {
                text += &format!(", {} when full", amount::readable_bytes(full));
            }
            text += &format!(", {bits:.2} bits an item");
        }
        text
    }
}
