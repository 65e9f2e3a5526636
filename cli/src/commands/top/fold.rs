//! The shards of a sharded filter as one line.
//!
//! A shard is recognized by what it says of itself, `SHARD i n`, and by its key,
//! `{<name>:<k>}:<generation>`. So it is known how many others there must be, and the descriptor is
//! not needed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    filter_info::FilterInfo,
    memory::{self, Need},
    name::{self, Named},
    scan::State,
    sharded::{Summary, shard_name},
};

/// A filter and where it is.
#[derive(Debug, Serialize)]
pub(super) struct Line<'s> {
    #[serde(flatten)]
    named: Named<'s>,
    #[serde(skip)]
    pub(super) name: &'s [u8],
    /// The server that has it; null for a sharded filter.
    server: Option<&'s str>,
    #[serde(flatten)]
    filter: Filter<'s>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Filter<'s> {
    Whole(&'s FilterInfo),
    Sharded(Box<Folded>),
}

/// The shards of a sharded filter that were found.
#[derive(Debug, Serialize)]
pub(super) struct Folded {
    /// How many shards there must be.
    shards: u64,
    /// How many were found. While keys are still scanned, they may be fewer.
    shards_found: usize,
    generation: u64,
    #[serde(flatten)]
    summary: Summary,
    /// Bytes of the shards that were found, with what the allocator adds.
    #[serde(skip)]
    allocated: u64,
    /// Whether all keys have been scanned.
    #[serde(skip)]
    complete: bool,
    /// Whether there is another generation of the same name.
    #[serde(skip)]
    ambiguous: bool,
}

/// All filters, each once.
pub(super) fn lines(state: &State) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    // By name, generation and number of shards: the shards that were found, by their number.
    let mut sharded: BTreeMap<(&[u8], u64, u64), BTreeMap<u64, &FilterInfo>> = BTreeMap::new();
    for node in &state.nodes {
        for (key, info) in &node.seen.filters {
            match info.shard.zip(shard_name(key)) {
                // A pattern may match the keys of some shards, and not the name of the filter.
                Some((_, (name, _))) if !state.shows(name) => {}
                Some(((index, count), (name, generation))) => {
                    // While a slot moves, two nodes may show a shard.
                    sharded.entry((name, generation, count)).or_default().insert(index, info);
                }
                None if !state.shows(key) => {}
                None => lines.push(Line {
                    named: Named::of(key),
                    name: key,
                    server: Some(&node.name),
                    filter: Filter::Whole(info),
                }),
            }
        }
    }
    let names: Vec<_> = sharded.keys().map(|(name, ..)| *name).collect();
    for ((name, generation, shards), found) in sharded {
        let shards_found = found.len();
        let allocated = Need::of(found.values().map(|info| info.bytes)).allocated;
        if let Some(summary) = Summary::of(found) {
            let ambiguous = names.iter().filter(|&&other| other == name).count() > 1;
            let complete = state.complete();
            lines.push(Line {
                named: Named::of(name),
                name,
                server: None,
                filter: Filter::Sharded(Box::new(Folded {
                    shards,
                    shards_found,
                    generation,
                    summary,
                    allocated,
                    complete,
                    ambiguous,
                })),
            });
        }
    }
    lines
}

impl Line<'_> {
    /// The bytes of all its keys, with what the allocator adds.
    pub(super) fn allocated(&self) -> u64 {
        match &self.filter {
            Filter::Whole(info) => memory::allocated(info.bytes),
            Filter::Sharded(folded) => folded.allocated,
        }
    }

    pub(super) fn info(&self) -> &FilterInfo {
        match &self.filter {
            Filter::Whole(info) => info,
            Filter::Sharded(folded) => &folded.summary.whole,
        }
    }

    pub(super) fn shards(&self) -> Option<&Folded> {
        match &self.filter {
            Filter::Whole(_) => None,
            Filter::Sharded(folded) => Some(folded),
        }
    }

    pub(super) fn readable_name(&self) -> String {
        let name = name::readable(self.name);
        match self.shards() {
            Some(Folded { ambiguous: true, generation, .. }) => {
                format!("{name} (generation {generation})")
            }
            _ => name,
        }
    }
}

impl Folded {
    /// The number of shards: `8`, or `7 of 8` if one is not found.
    pub(super) fn count(&self) -> String {
        if self.shards_found as u64 == self.shards {
            self.shards.to_string()
        } else {
            format!("{} of {}", self.shards_found, self.shards)
        }
    }

    /// The highest rate of false positives of a shard.
    pub(super) fn worst_rate(&self) -> Option<f64> {
        self.summary.worst_rate.map(|worst| worst.value)
    }

    /// Whether a shard that does not grow is nearly full.
    pub(super) fn nearly_full(&self) -> bool {
        self.summary.nearly_full
    }

    /// Whether a shard is lost.
    pub(super) fn lacks(&self) -> bool {
        self.complete && (self.shards_found as u64) < self.shards
    }
}
