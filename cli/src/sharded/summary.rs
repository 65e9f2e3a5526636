//! The totals of many shards.

use serde::Serialize;

use crate::filter_info::FilterInfo;

/// Shards of one generation as one filter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Sums of items, capacities and bytes; means of fill and rate, because a query goes to one
    /// shard; the most layers.
    #[serde(flatten)]
    pub(crate) whole: FilterInfo,
    /// The fullest shard, and its fill.
    pub(crate) worst_fill: Option<Worst>,
    /// The shard with the highest rate of false positives.
    pub(crate) worst_rate: Option<Worst>,
    /// Whether a shard that does not grow is nearly full.
    #[serde(skip)]
    pub(crate) nearly_full: bool,
}

/// A shard, and the value that makes it the worst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Worst {
    pub(crate) shard: u64,
    pub(crate) value: f64,
}

impl Summary {
    /// Of shards with their numbers; `None` if there are none.
    pub(crate) fn of<'i>(shards: impl IntoIterator<Item = (u64, &'i FilterInfo)>) -> Option<Self> {
        let shards: Vec<_> = shards.into_iter().collect();
        let (_, first) = shards.first()?;
        let count = shards.len() as f64;
        let sum = |value: fn(&FilterInfo) -> u64| {
            shards.iter().map(|(_, info)| value(info)).fold(0, u64::saturating_add)
        };
        // Unknown, if it is unknown of one shard.
        let mean = |value: fn(&FilterInfo) -> Option<f64>| {
            let all: Option<f64> = shards.iter().map(|(_, info)| value(info)).sum();
            all.map(|all| all / count)
        };
        let worst = |value: fn(&FilterInfo) -> Option<f64>| {
            let known = shards
                .iter()
                .filter_map(|(shard, info)| Some(Worst { shard: *shard, value: value(info)? }));
            // The first of equal ones.
            known.reduce(|worst, next| if next.value > worst.value { next } else { worst })
        };
        Some(Self {
            worst_fill: worst(|info| info.fill),
            worst_rate: worst(|info| info.rate_now),
            nearly_full: shards.iter().any(|(_, info)| info.nearly_full()),
            whole: FilterInfo {
                items: sum(|info| info.items),
                capacity: sum(|info| info.capacity),
                bytes: sum(|info| info.bytes),
                fill: mean(|info| info.fill),
                rate_now: mean(|info| info.rate_now),
                layer_count: shards.iter().map(|(_, info)| info.layer_count).max().unwrap_or(0),
                shard: None,
                ..(*first).clone()
            },
        })
    }
}
