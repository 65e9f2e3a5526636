//! The union of filters with equal parameters: the filter that all their items would have made.
//!
//! ```text
//!   destination   ┌────────┬─────────────┐
//!                 │ 0      │ 1           │        layer i of the union is the union of the
//!                 ├────────┼─────────────┘        layers i: bit by bit;
//!   source        │ 0      │                      a layer that the destination lacks is added
//!                 └────────┘
//! ```
//!
//! Equal parameters give equal layers, and an item has the same positions in layer i of each
//! filter. So an item that one filter has in layer i is in layer i of the union. Items cannot be
//! moved to another layer: a filter does not know them. So a union is refused where a layer would
//! hold more items than it is sized for, before anything changes.
//!
//! # How many items
//!
//! If one of the layers i has all nonzero positions of the union, the union counts what the layer
//! that counts most does. Otherwise its nonzero positions r are counted, which depend only on the
//! items:
//!
//! ```text
//!   items = n(r) - root of S / 2         at least 1 more than each layer of the row counts
//! ```
//!
//! n(r) is that of `layer/occupancy.rs`. Its error has the variance S, with a term for the
//! differing loads of blocks and lines:
//!
//! ```text
//!   S = m / k^2 * (e^a - 1 - a + a^2 / 2 * (k^2 / c + g^2 / 512))
//! ```
//!
//! with m positions in blocks of c, k probes in groups of g that share a line (4, or 0 in blocks of
//! one line), and a = -ln(1 - f). At 1 %, the root of S is 8 in a full filter of 1,000 items, and
//! 250 in a million (`tests/filter/merge.rs`).
//!
//! A union above the capacity is refused. Without the half deviation, half of the unions of exactly
//! as many items as the capacity would be; with it, three of ten. It raises the rate by 2 % in a
//! filter of 1,000 items, which is what the sizing leaves free (`sizing/mod.rs`). Replicas must
//! reach the same counts, so this file computes as `sizing/mod.rs` does: with +, -, *, / and
//! `libm`.

use std::iter::zip;

use super::{
    error::Error,
    foreign::Family,
    layer::{Layer, occupancy},
    params::Params,
    plan::{Demand, LayerPlan},
    stack::Filter,
};
use crate::sharding::Shard;

/// A union counts this many deviations fewer than its nonzero positions say.
const DEVIATIONS: f64 = 0.5;

/// The first property in which filters differ, so that their bits cannot be united.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// The product that made them, its version, or bits and counters.
    #[error("kind")]
    Kind,
    /// The shard that they are, if they are shards.
    #[error("shard")]
    Shard,
    /// The key of the hash.
    #[error("seed")]
    Seed,
    /// The rate of the whole filter.
    #[error("error rate")]
    ErrorRate,
    /// The capacity of the first layer.
    #[error("capacity")]
    Capacity,
    /// How they grow.
    #[error("expansion")]
    Expansion,
    /// The ratio of the rates of two layers, in filters of valkey-bloom.
    #[error("tightening ratio")]
    Tightening,
    /// The shape of a layer, with the same parameters: another version computed it.
    #[error("the size of a layer")]
    Layer,
}

/// Why filters cannot be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmergeable {
    /// One of them forgets: its items are of several generations.
    #[error("a filter with a window")]
    Window,
    /// They have different parameters.
    #[error("filters differ in {0}")]
    Differ(Difference),
    /// A layer of the union would hold more items than it is sized for.
    #[error("layer {index} of {layers} would hold about {items} items of {capacity}")]
    Full {
        /// Index of the layer, oldest first.
        index: usize,
        /// Layers of the union.
        layers: usize,
        /// Estimated items of the layer.
        items: u64,
        /// Items that the layer is sized for.
        capacity: u64,
    },
    /// Pages with the slots of all of them would have a higher rate than the filter.
    #[error("the union would pass the error rate")]
    Rate,
    /// So many slots would stop the server for too long.
    #[error("a union of {0} slots")]
    Large(u64),
}

/// The numbers of a union that is not made yet.
#[derive(Debug, PartialEq)]
pub struct Union {
    layers: Vec<UnitedLayer>,
}

#[derive(Debug, PartialEq)]
pub(super) struct UnitedLayer {
    pub(super) plan: LayerPlan,
    /// The items that it holds, by the estimate; 0 if one of the layers has them all already.
    pub(super) estimate: u64,
    /// Whether it differs from the layer of the first filter.
    changes: bool,
}

impl Union {
    /// Computes the union of `filters`. Without `limited`, no number of items is refused.
    ///
    /// # Errors
    /// `Unmergeable::Differ`, and `Unmergeable::Full` if `limited`.
    pub fn of(filters: &[&Filter], limited: bool) -> Result<Self, Unmergeable> {
        if let [first, others @ ..] = filters
            && let Some(difference) = others.iter().find_map(|other| difference(first, other))
        {
            return Err(Unmergeable::Differ(difference));
        }
        let held = filters.first().map_or(0, |first| first.layers().len());
        let mut layers = Vec::new();
        for (index, row) in rows(filters).enumerate() {
            let layer = UnitedLayer::of(&row, index < held)?;
            let (items, capacity) = (layer.estimate, layer.plan.capacity);
            if limited && items > capacity {
                let layers = filters.iter().map(|filter| filter.layers().len()).max();
                let layers = layers.unwrap_or_default();
                return Err(Unmergeable::Full { index, layers, items, capacity });
            }
            layers.push(layer);
        }
        Ok(Self { layers })
    }

    /// Whether the first filter changes when it becomes the union.
    pub fn changes(&self) -> bool {
        self.layers.iter().any(|layer| layer.changes)
    }

    /// Checks that the union may take its memory, in the place of `present` bytes of bits.
    /// `ceiling` returns the bytes of bits that a filter may take; it is called only if the union
    /// takes more than `present`.
    ///
    /// # Errors
    /// `Error::Ceiling`.
    pub fn check_memory(
        &self,
        present: u64,
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<(), Error> {
        let bytes = self.layers.iter().map(|layer| layer.plan.shape.words().saturating_mul(8));
        let wanted = bytes.fold(0, u64::saturating_add);
        if wanted > present {
            Demand { present, wanted }.check(ceiling)?;
        }
        Ok(())
    }

    /// Makes `filter` the union. It is the first of the filters of [`Self::of`], and `others` are
    /// the remaining ones.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; nothing has changed then.
    pub fn write(self, filter: &mut Filter, others: &[&Filter]) -> Result<(), Error> {
        let missing = self.layers.iter().skip(filter.layers().len());
        let missing = missing.map(|UnitedLayer { plan, .. }| plan.empty());
        for layer in missing.collect::<Result<Vec<_>, _>>()? {
            filter.push(layer);
        }
        let rows = rows(others).map(Some).chain(std::iter::repeat_with(|| None));
        for ((layer, row), united) in zip(zip(filter.layers_from_mut(0), rows), self.layers) {
            if united.changes {
                layer.unite(&row.unwrap_or_default());
                layer.set_counted(united.plan.items);
            }
        }
        Ok(())
    }
}

impl UnitedLayer {
    /// The union of a row. `held` is whether its first layer is that of the first filter.
    pub(super) fn of(row: &[&Layer], held: bool) -> Result<Self, Unmergeable> {
        let [first, others @ ..] = row else {
            return Err(Unmergeable::Differ(Difference::Layer));
        };
        if others.iter().any(|other| !same_plan(first, other)) {
            return Err(Unmergeable::Differ(Difference::Layer));
        }
        let (shape, capacity, error_rate) = (first.shape(), first.capacity(), first.error_rate());
        let (nonzero, union) = Layer::count_union(row);
        let most = row.iter().map(|layer| layer.counted()).max().unwrap_or_default();
        let (mut items, mut estimate) = (most, 0);
        if nonzero.iter().all(|&nonzero| nonzero < union) {
            let deviation = libm::sqrt(occupancy::variance(shape, union));
            let by_positions = occupancy::items(shape, union) - DEVIATIONS * deviation;
            estimate = most.saturating_add(1).max((by_positions + 0.5) as u64);
            items = estimate;
        }
        // A layer never counts above its capacity (`plan.rs`).
        let items = items.min(capacity);
        let changes = match (held, nonzero.as_slice()) {
            (true, &[nonzero, ..]) => union > nonzero || items != first.counted(),
            _ => true,
        };
        Ok(Self { plan: LayerPlan { capacity, items, error_rate, shape }, estimate, changes })
    }
}

/// The layers of the filters side by side: the oldest of each, then the next, and so on.
fn rows<'a>(filters: &[&'a Filter]) -> impl Iterator<Item = Vec<&'a Layer>> {
    let mut stacks: Vec<_> = filters.iter().map(|filter| filter.layers()).collect();
    std::iter::from_fn(move || {
        let row: Vec<_> = stacks.iter_mut().filter_map(Iterator::next).collect();
        (!row.is_empty()).then_some(row)
    })
}

/// The first parameter in which two filters of layers differ.
fn difference(a: &Filter, b: &Filter) -> Option<Difference> {
    let (alike, params) = (a.family().tag() == b.family().tag(), [a.params(), b.params()]);
    let (seeds, ratios) = match (a.family(), b.family()) {
        (Family::Valkey(a), Family::Valkey(b)) => (a.seed == b.seed, a.tightening == b.tightening),
        _ => (params[0].seed == params[1].seed, true),
    };
    difference_of(alike, seeds, params, [a.shard(), b.shard()])
        .or((!ratios).then_some(Difference::Tightening))
}

/// The first parameter in which filters of one kind (`alike`) and seed (`seeds`) differ.
pub(super) fn difference_of(
    alike: bool,
    seeds: bool,
    [a, b]: [Params; 2],
    shards: [Option<Shard>; 2],
) -> Option<Difference> {
    let checks = [
        (alike && a.cells == b.cells, Difference::Kind),
        (shards[0] == shards[1], Difference::Shard),
        (seeds, Difference::Seed),
        (a.error_rate == b.error_rate, Difference::ErrorRate),
        (a.capacity == b.capacity, Difference::Capacity),
        (a.expansion == b.expansion, Difference::Expansion),
    ];
    checks.into_iter().find(|(alike, _)| !alike).map(|(_, difference)| difference)
}

fn same_plan(a: &Layer, b: &Layer) -> bool {
    let plan = |layer: &Layer| (layer.shape(), layer.capacity(), layer.error_rate());
    plan(a) == plan(b)
}
