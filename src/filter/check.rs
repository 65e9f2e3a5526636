//! The invariants of every filter, whoever made it: the one list that every decoder checks.
//!
//! Stored bytes are hostile until they pass this check. A decoder first parses numbers into a
//! [`Plan`], then calls [`Plan::check`], and only then allocates and reads bits. So a forged number
//! costs only the refusal.
//!
//! The geometry of a native filter need not be the one that `sizing/mod.rs` would choose today:
//! each layer stores its own rate and shape, so the sizing may improve without a new encoding. The
//! shape of a RedisBloom or valkey-bloom layer must follow from its capacity and rate, because
//! those products always compute it from them (`foreign/redisbloom.rs`).

use super::{
    error::Error,
    foreign::{Family, Valkey, redisbloom},
    geometry::{Geometry, MAX_WORDS},
    layer::{Layer, Rule, Shape},
    paged::Fault,
    params::{Expansion, MAX_EXPANSION, MAX_LAYERS, Params, check_ranges},
    plan::LayerPlan,
    sizing::{MAX_PROBES, layer_rate},
    stack::Filter,
};
use crate::sharding::Shard;

/// A filter without its bits: what a decoder has read before it allocates anything.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The product whose rules the filter follows.
    pub family: Family,
    /// Key of the hash; 0 in families without one.
    pub seed: u64,
    /// Rate of the whole filter.
    pub error_rate: f64,
    /// How the filter grows.
    pub expansion: Expansion,
    /// The shard that the filter is, if it is one.
    pub shard: Option<Shard>,
    /// The layers, oldest first.
    pub layers: Vec<LayerPlan>,
}

/// The invariant that stored numbers break.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Broken {
    /// Rate or capacity out of range.
    #[error(transparent)]
    Range(#[from] Error),
    /// The rates of a valkey-bloom filter do not fall by a ratio inside (0, 1).
    #[error("layer {index}: rate {error_rate} with a tightening ratio of {tightening}")]
    Tightening {
        /// Index of the layer, oldest first.
        index: usize,
        /// The layer's rate.
        error_rate: f64,
        /// The ratio.
        tightening: f64,
    },
    /// The family does not grow, but the filter has an expansion.
    #[error("a filter of a family that does not grow, with an expansion")]
    Grows,
    /// A filter of another product is a shard.
    #[error("a filter of another product that is shard {0}")]
    Shard(Shard),
    /// The window of a filter that forgets.
    #[error("window: {0}")]
    Window(#[from] Fault),
    /// No layer, too many, or several in a non-scaling filter.
    #[error("{0} layers")]
    Layers(usize),
    /// Pages of another kind than the filter, or another number of them, or of slots, than they may
    /// have.
    #[error("pages that do not belong to the filter")]
    Pages,
    /// In a layer of bits: more items than the capacity, or fewer in an older layer.
    #[error("layer {index}: {items} items of {capacity}")]
    Items {
        /// Index of the layer, oldest first.
        index: usize,
        /// Items counted.
        items: u64,
        /// Items that the layer is sized for.
        capacity: u64,
    },
    /// No blocks, no words, no probes, too many probes, or more bits than can be addressed; or a
    /// shape that filters of this family never have.
    #[error("layer {index}: shape {shape:?}")]
    Shape {
        /// Index of the layer, oldest first.
        index: usize,
        /// The layer's shape.
        shape: Shape,
    },
}

impl Plan {
    /// The plan of an existing filter.
    #[must_use]
    pub fn of(filter: &Filter) -> Self {
        Self {
            family: filter.family(),
            seed: filter.seed(),
            error_rate: filter.error_rate(),
            expansion: filter.expansion(),
            shard: filter.shard(),
            layers: filter.layers().map(LayerPlan::of).collect(),
        }
    }

    /// The plan of a new native filter of `params` with bits. Allocates none.
    ///
    /// # Errors
    /// Those of [`Filter::new`], for any memory: `Error::ErrorRate`, `Error::Capacity`, and
    /// `Error::Ceiling` if the bits cannot be addressed.
    pub fn new(params: &Params) -> Result<Self, Error> {
        params.check()?;
        let &Params { error_rate, capacity, expansion, seed, .. } = params;
        let rate = layer_rate(error_rate, expansion.factor().is_some());
        let not_addressable = Error::Ceiling { wanted: u64::MAX, ceiling: MAX_WORDS * 8 };
        let layers = vec![LayerPlan::native(capacity, rate).ok_or(not_addressable)?];
        Ok(Self { family: Family::Native, seed, error_rate, expansion, shard: None, layers })
    }

    /// Bytes of the whole filter, as [`Filter::bytes`] returns them; `u64::MAX` if there are more.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let shapes = self.layers.iter().map(|layer| layer.shape);
        self.bit_bytes().saturating_add(Filter::struct_bytes(self.family.tag(), shapes))
    }

    /// Bytes of all bit arrays; `u64::MAX` if there are more.
    #[must_use]
    pub fn bit_bytes(&self) -> u64 {
        self.layers
            .iter()
            .fold(0, |sum, layer| sum.saturating_add(layer.shape.words().saturating_mul(8)))
    }

    /// Checks every invariant.
    ///
    /// # Errors
    /// The first invariant that is broken.
    pub fn check(&self) -> Result<(), Broken> {
        let count = self.layers.len();
        let most = match self.expansion.factor() {
            Some(_) if self.family != Family::Native => MAX_LAYERS,
            _ => 1,
        };
        if count == 0 || count > most {
            return Err(Broken::Layers(count));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            self.check_layer(index, layer, index + 1 == count)?;
        }
        if self.family == Family::Guava && self.expansion.factor().is_some() {
            return Err(Broken::Grows);
        }
        if let Some(shard) = self.shard
            && self.family != Family::Native
        {
            return Err(Broken::Shard(shard));
        }
        match self.expansion.factor() {
            Some(factor) if self.family == Family::Native && factor > u32::from(MAX_EXPANSION) => {
                return Err(Error::Expansion(u64::from(factor)).into());
            }
            _ => {}
        }
        check_ranges(self.error_rate, 1)?;
        if self.bit_bytes() / 8 > MAX_WORDS {
            return Err(Error::Ceiling { wanted: self.bit_bytes(), ceiling: MAX_WORDS * 8 }.into());
        }
        Ok(())
    }

    /// Checks layer `index`. Only the newest layer of a stack of bits may be less than full.
    fn check_layer(&self, index: usize, layer: &LayerPlan, newest: bool) -> Result<(), Broken> {
        let &LayerPlan { capacity, items, error_rate, shape } = layer;
        check_ranges(error_rate, capacity)?;
        if items > capacity || (items < capacity && !newest) {
            return Err(Broken::Items { index, items, capacity });
        }
        if !self.may_have(layer) {
            return Err(Broken::Shape { index, shape });
        }
        if let Family::Valkey(family) = self.family
            && family.layer_rate(self.error_rate, index) != Some(error_rate)
        {
            let tightening = family.tightening;
            return Err(Broken::Tightening { index, error_rate, tightening });
        }
        Ok(())
    }

    /// Returns whether filters of this family have such layers.
    fn may_have(&self, layer: &LayerPlan) -> bool {
        let sound = match (self.family, layer.shape) {
            (Family::Native, Shape::Blocked(Geometry { blocks, block_words, probes })) => {
                blocks > 0 && block_words > 0 && (1..=MAX_PROBES).contains(&probes)
            }
            (Family::RedisBloom(_), Shape::Classic(classic)) => {
                classic.is_sound() && redisbloom::fits(&classic, layer.capacity, layer.error_rate)
            }
            (Family::Valkey(_), Shape::Classic(classic)) => {
                classic.rule == Rule::Prime
                    && classic.is_sound()
                    && Valkey::fits(&classic, layer.capacity, layer.error_rate)
            }
            // Users of Guava choose bits and probes freely.
            (Family::Guava, Shape::Classic(classic)) => {
                matches!(classic.rule, Rule::Mitz32 | Rule::Mitz64) && classic.is_sound()
            }
            (Family::Native, Shape::Classic(_))
            | (Family::RedisBloom(_) | Family::Valkey(_) | Family::Guava, Shape::Blocked(_)) => {
                false
            }
        };
        sound && layer.shape.words() <= MAX_WORDS
    }

    /// Makes a filter of this plan with all bits clear, for a decoder to fill. Call [`Self::check`]
    /// first.
    ///
    /// # Errors
    /// `Error::Ceiling` if the bits take more than `ceiling` bytes, `Error::OutOfMemory`.
    pub fn allocate(&self, ceiling: u64) -> Result<Filter, Error> {
        self.build(ceiling, |plan| Layer::new(plan.shape, plan.capacity, plan.error_rate))
    }

    /// Makes a filter of this plan whose bits have not arrived: each layer has room for one word
    /// ([`Layer::arriving`]). Call [`Self::check`] first.
    ///
    /// # Errors
    /// `Error::Ceiling` above `ceiling` bytes of bits, `Error::OutOfMemory`.
    pub fn begin(&self, ceiling: u64) -> Result<Filter, Error> {
        self.build(ceiling, |plan| Layer::arriving(plan.shape, plan.capacity, plan.error_rate, 0))
    }

    /// Makes a filter of this plan. Calls `layer` to make each layer, oldest first. Call
    /// [`Self::check`] first.
    ///
    /// # Errors
    /// `Error::Ceiling` if the bits take more than `ceiling` bytes, `Error::OutOfMemory`, and the
    /// errors of `layer`.
    pub fn build<E: From<Error>>(
        &self,
        ceiling: u64,
        mut layer: impl FnMut(&LayerPlan) -> Result<Layer, E>,
    ) -> Result<Filter, E> {
        let wanted = self.bit_bytes();
        if wanted > ceiling {
            return Err(Error::Ceiling { wanted, ceiling }.into());
        }
        let mut layers = Vec::new();
        layers.try_reserve_exact(self.layers.len()).map_err(|_| Error::OutOfMemory(wanted))?;
        for plan in &self.layers {
            let mut layer = layer(plan)?;
            layer.set_counted(plan.items);
            layers.push(layer);
        }
        Filter::from_layers(self.family, self.seed, self.error_rate, self.expansion, layers)
            .map(|filter| filter.with_shard(self.shard))
            .ok_or(Error::OutOfMemory(0).into())
    }
}
