//! The shards of a sharded filter as one line.
//!
//! A shard is recognized by what it says of itself, `SHARD i n`, and by its key,
//! `{<name>:<k>}:<generation>`. These give the number of shards, so the descriptor is not needed.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Serialize;

use crate::{
    filter_info::FilterInfo,
    memory::Need,
    name::{self, Named},
    scan::State,
    sharded::{Summary, Worst, shard_name},
};

/// A filter and where it is.
#[derive(Debug, Serialize)]
pub(super) struct Line<'s> {
    #[serde(flatten)]
    named: Named<'s>,
    /// The server that has it; null for a sharded filter.
    server: Option<&'s str>,
    #[serde(flatten)]
    pub(super) shards: Option<Shards>,
    /// The filter, or all shards that were found as one filter.
    #[serde(flatten)]
    pub(super) info: Cow<'s, FilterInfo>,
    /// The name for people.
    #[serde(skip)]
    pub(super) shown: String,
    /// Bytes of all its keys, with what the allocator adds.
    #[serde(skip)]
    pub(super) allocated: u64,
    /// The highest rate of false positives of a shard.
    #[serde(skip)]
    pub(super) worst_rate: Option<f64>,
    /// Whether it, or a shard, does not grow and is nearly full.
    #[serde(skip)]
    pub(super) nearly_full: bool,
    /// Whether a shard is lost.
    #[serde(skip)]
    pub(super) lacks: bool,
}

/// The shards of a sharded filter that were found.
#[derive(Debug, Serialize)]
pub(super) struct Shards {
    /// How many shards there must be.
    shards: u64,
    /// How many were found. While keys are still scanned, they may be fewer.
    shards_found: usize,
    generation: u64,
    worst_fill: Option<Worst>,
    worst_rate: Option<Worst>,
}

/// All filters, each once.
pub(super) fn lines(state: &State) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    // By name, generation and number of shards: the shards that were found, by their number.
    let mut sharded: BTreeMap<(&[u8], u64, u64), BTreeMap<u64, &FilterInfo>> = BTreeMap::new();
    for node in &state.nodes {
        for (key, info) in &node.seen.filters {
            let Ok(info) = info else { continue };
            match info.shard.zip(shard_name(key)) {
                // While a slot moves, two nodes may show a shard.
                Some(((index, count), (name, generation))) if state.shows(name) => {
                    sharded.entry((name, generation, count)).or_default().insert(index, info);
                }
                None if state.shows(key) => lines.push(Line {
                    named: Named::of(key),
                    server: Some(&node.name),
                    shards: None,
                    info: Cow::Borrowed(info),
                    shown: name::readable(key),
                    allocated: Need::of([info.bytes]).allocated,
                    worst_rate: info.rate_now,
                    nearly_full: info.nearly_full(),
                    lacks: false,
                }),
                // A pattern may match the keys of some shards, and not the name of the filter.
                _ => {}
            }
        }
    }
    let names: Vec<_> = sharded.keys().map(|(name, ..)| *name).collect();
    for ((name, generation, shards), found) in sharded {
        let shards_found = found.len();
        let allocated = Need::of(found.values().map(|info| info.bytes)).allocated;
        let Some(Summary { whole, worst_fill, worst_rate, nearly_full }) = Summary::of(found)
        else {
            continue;
        };
        let mut shown = name::readable(name);
        if names.iter().filter(|&&other| other == name).count() > 1 {
            shown += &format!(" (generation {generation})");
        }
        lines.push(Line {
            named: Named::of(name),
            server: None,
            shards: Some(Shards { shards, shards_found, generation, worst_fill, worst_rate }),
            info: Cow::Owned(whole),
            shown,
            allocated,
            worst_rate: worst_rate.map(|worst| worst.value),
            nearly_full,
            lacks: state.complete() && (shards_found as u64) < shards,
        });
    }
    lines
}

impl Shards {
    /// The number of shards: `8`, or `7 of 8` if one is not found.
    pub(super) fn count(&self) -> String {
        match self.shards_found as u64 == self.shards {
            true => self.shards.to_string(),
            false => format!("{} of {}", self.shards_found, self.shards),
        }
    }
}
