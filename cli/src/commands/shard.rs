//! `redis-bloom shard NAME ITEM`: which shard of a sharded filter an item belongs to.

use std::ffi::OsString;

use bloom::sharding::{Generation, key_slot, shard_of};
use serde::Serialize;

use crate::{
    connection::{Nodes, Options},
    error::{Error, Exit},
    name::{self, Key, Named},
    output::{Column, Output, Style, Table},
    sharded,
};

/// Shows which shard an item belongs to, its key, its slot and its node
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the sharded filter
    name: OsString,
    /// The item
    item: OsString,
}

/// The shard of the item in a generation of the filter.
#[derive(Debug, Serialize)]
struct Found<'n> {
    #[serde(flatten)]
    name: Named<'n>,
    generation: u64,
    /// Whether it is the generation that answers questions.
    current: bool,
    shard: u16,
    shards: u16,
    #[serde(flatten)]
    key: Key<'n>,
    slot: u16,
    /// The primary that has the slot; null if no node has it.
    node: Option<String>,
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        let filter = name::bytes(&self.name);
        let mut server = connection.target()?.connect()?;
        let descriptor = sharded::find_sharded(&mut server, filter)?;
        let nodes = Nodes::of_if_allowed(&mut server)?;
        let generations =
            [Some(&descriptor.current), descriptor.next.as_ref().ok().and_then(Option::as_ref)];
        let found: Vec<_> = generations
            .into_iter()
            .flatten()
            .map(|generation| self.found(generation, &nodes, generation == &descriptor.current))
            .collect();
        if output.json() {
            for found in &found {
                output.data(found, "")?;
            }
        } else {
            let item = name::bytes(&self.item);
            let keys: Vec<_> = generations
                .into_iter()
                .flatten()
                .map(|generation| generation.key_of(item))
                .collect();
            output.data(&(), table(&found, &keys).text(output.coloured()))?;
        }
        Ok(Exit::Done)
    }

    fn found<'f>(&'f self, generation: &'f Generation, nodes: &Nodes, current: bool) -> Found<'f> {
        let item = name::bytes(&self.item);
        let key = generation.key_of(item);
        Found {
            name: Named::of(name::bytes(&self.name)),
            generation: generation.number,
            current,
            shard: shard_of(item, generation.shards()),
            shards: generation.shards(),
            key: Key::of(key),
            slot: key_slot(key),
            node: nodes.node_of(key).map(ToString::to_string),
        }
    }
}

fn table(found: &[Found<'_>], keys: &[&[u8]]) -> Table {
    let mut table = Table::new(&[
        Column::Number("SHARD"),
        Column::Number("OF"),
        Column::Number("GENERATION"),
        Column::Number("SLOT"),
        Column::Text("NODE"),
        Column::Text("KEY"),
    ]);
    for (found, key) in found.iter().zip(keys) {
        let cells = vec![
            found.shard.to_string(),
            found.shards.to_string(),
            found.generation.to_string(),
            found.slot.to_string(),
            found.node.clone().unwrap_or_else(|| "-".to_owned()),
            name::readable(key),
        ];
        table.row(cells, Style::Plain);
    }
    table
}
