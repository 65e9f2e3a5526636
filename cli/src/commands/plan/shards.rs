//! `plan --nodes`: into how many shards to divide a filter.
//!
//! Fewer shards are better for batches, because the items of a batch are sent to each shard
//! separately. More shards are smaller, and a cluster moves small keys in more ways, and faster.

use bloom::filter::{Expansion, Params, expected_bytes};
use serde::Serialize;

use super::{Arguments, refused};
use crate::sharding::{MAX_SHARDS, shard_capacity};
use crate::{
    amount,
    error::Error,
    memory::{self, Need},
    output::{Column, Style, Table},
};

/// What is planned.
#[derive(Debug, Serialize)]
pub(super) struct Planned {
    items: u64,
    error_rate: f64,
    nodes: u64,
    max_shard_bytes: u64,
    choices: Vec<Choice>,
}

/// A number of shards.
#[derive(Debug, Serialize)]
struct Choice {
    chosen: bool,
    shards: u16,
    /// Items that a shard is reserved for.
    shard_capacity: u64,
    shard_bytes: u64,
    /// Bytes of all shards together, without replicas.
    bytes: u64,
    /// Shards of the node that has most.
    node_shards: u64,
    node_bytes: u64,
}

impl Arguments {
    /// The table of `--nodes`.
    pub(super) fn planned_shards(&self, nodes: u64) -> Result<Planned, Error> {
        let mut choices = Vec::new();
        let mut smallest = None;
        for power in 0..=MAX_SHARDS.ilog2() {
            let choice = self.choice(1 << power, nodes)?;
            // Each node has a shard, and no shard is too large.
            let enough = u64::from(choice.shards) >= nodes && choice.shard_bytes <= self.max_shard;
            choices.push(choice);
            if enough {
                smallest = choices.last().map(|choice| choice.shards);
                break;
            }
        }
        let Some(chosen) = self.shards.or(smallest) else {
            let largest = choices.last().map_or(0, |choice| choice.shard_bytes);
            return Err(Error::usage(
                format!(
                    "{MAX_SHARDS} shards are {} each, on {nodes} nodes",
                    amount::readable_bytes(largest)
                ),
                "Raise --max-shard, lower --nodes, or raise --error.",
            ));
        };
        // The two sizes above the chosen one show what fewer shards would mean.
        choices = choices.split_off(choices.len().saturating_sub(3));
        if choices.iter().all(|choice| choice.shards != chosen) {
            choices.push(self.choice(chosen, nodes)?);
            choices.sort_unstable_by_key(|choice| choice.shards);
        }
        for choice in &mut choices {
            choice.chosen = choice.shards == chosen;
        }
        Ok(Planned {
            items: self.items,
            error_rate: self.error,
            nodes,
            max_shard_bytes: self.max_shard,
            choices,
        })
    }

    fn choice(&self, shards: u16, nodes: u64) -> Result<Choice, Error> {
        let capacity = shard_capacity(self.items, shards).unwrap_or(0);
        let params = Params {
            error_rate: self.error,
            capacity,
            expansion: Expansion::stored(1),
            seed: 0,
            counts: false,
            shard: None,
        };
        let shard_bytes =
            expected_bytes(&params, None, capacity).map_err(|error| refused(&error, &params))?;
        let node_shards = u64::from(shards).div_ceil(nodes);
        Ok(Choice {
            chosen: false,
            shards,
            shard_capacity: capacity,
            shard_bytes,
            bytes: shard_bytes.saturating_mul(u64::from(shards)),
            node_shards,
            node_bytes: shard_bytes.saturating_mul(node_shards),
        })
    }
}

impl Planned {
    /// What the fullest node needs.
    pub(super) fn need(&self) -> Need {
        let chosen = self.choices.iter().find(|choice| choice.chosen);
        let node = chosen.map_or(0, |choice| {
            memory::allocated(choice.shard_bytes).saturating_mul(choice.node_shards)
        });
        // A rebuild makes all of its shards once more.
        Need { allocated: node, largest: node }
    }

    pub(super) fn text(&self, coloured: bool) -> String {
        let mut table = Table::new(&[
            Column::Text(" "),
            Column::Number("SHARDS"),
            Column::Number("EACH"),
            Column::Number("ALL"),
            Column::Number("FULLEST NODE"),
        ]);
        for choice in &self.choices {
            let cells = vec![
                if choice.chosen { "*" } else { " " }.to_owned(),
                choice.shards.to_string(),
                amount::readable_bytes(choice.shard_bytes),
                amount::readable_bytes(choice.bytes),
                amount::readable_bytes(choice.node_bytes),
            ];
            table.row(cells, Style::Plain);
        }
        let mut text = table.text(coloured);
        let Some(chosen) = self.choices.iter().find(|choice| choice.chosen) else { return text };
        text += &format!(
            "\nCapacity of a shard {} (mean + 6 sd).",
            amount::grouped(chosen.shard_capacity)
        );
        text
    }
}
