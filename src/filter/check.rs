//! What must hold of any filter, whoever made it: the one list that every decoder goes through.
//!
//! Stored bytes are hostile until they passed here. A decoder first parses numbers into a [`Plan`],
//! then asks [`Plan::check`], and only then allocates and reads bits; so a forged count costs
//! nothing but the refusal.
//!
//! Not asked: that the geometry of a native filter is the one `sizing.rs` would choose today. Each
//! layer stores its own rate and shape, so that the sizing may improve without a new encoding. Of a
//! foreign one it is asked: its maker computes it from capacity and rate, always (`redisbloom.rs`).

use super::{
    error::Error,
    foreign::{Family, Valkey, redisbloom},
    geometry::{Geometry, MAX_WORDS},
    layer::{Counting, Layer, Rule, Shape},
    params::{CellKind, Expansion, MAX_CAPACITY, MAX_EXPANSION, MAX_LAYERS, Params},
    plan::LayerPlan,
    sizing::MAX_PROBES,
    stack::Filter,
};

/// A filter without its bits: what a decoder has read before it allocates anything.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Whose rules it follows.
    pub family: Family,
    /// Key of the hash; 0 in families without one.
    pub seed: u64,
    /// Rate of the whole filter.
    pub error_rate: f64,
    /// How it grows.
    pub expansion: Expansion,
    /// Oldest first.
    pub layers: Vec<LayerPlan>,
}

/// Which rule stored numbers break.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Broken {
    /// Rate or capacity out of range.
    #[error(transparent)]
    Range(#[from] Error),
    /// The rates of a filter of valkey-bloom's do not fall by a ratio inside (0, 1).
    #[error("layer {index}: rate {error_rate} with a tightening ratio of {tightening}")]
    Tightening {
        /// Position of the layer, oldest first.
        index: usize,
        /// Its rate.
        error_rate: f64,
        /// The ratio.
        tightening: f64,
    },
    /// A family that does not grow, in a filter that says it does.
    #[error("a filter of a family that does not grow, with an expansion")]
    Grows,
    /// No layer, too many, or several in a non-scaling filter.
    #[error("{0} layers")]
    Layers(usize),
    /// In a layer of bits: more items than the capacity, or fewer in an older layer.
    #[error("layer {index}: {items} items of {capacity}")]
    Items {
        /// Position of the layer, oldest first.
        index: usize,
        /// Items counted.
        items: u64,
        /// Items it was made for.
        capacity: u64,
    },
    /// No blocks, no words, no probes, too many probes, more bits than can be addressed; or a shape
    /// that filters of this family never have.
    #[error("layer {index}: shape {shape:?}")]
    Shape {
        /// Position of the layer, oldest first.
        index: usize,
        /// Its shape.
        shape: Shape,
    },
}

impl Plan {
    /// The plan of a filter that exists.
    #[must_use]
    pub fn of(filter: &Filter) -> Self {
        let layer = |layer: &Layer| LayerPlan {
            capacity: layer.capacity(),
            items: layer.counted(),
            error_rate: layer.error_rate(),
            shape: layer.shape(),
        };
        Self {
            family: filter.family(),
            seed: filter.seed(),
            error_rate: filter.error_rate(),
            expansion: filter.expansion(),
            layers: filter.layers().map(layer).collect(),
        }
    }

    /// Bytes of all bit arrays, `u64::MAX` if more.
    #[must_use]
    pub fn bit_bytes(&self) -> u64 {
        self.layers
            .iter()
            .fold(0, |sum, layer| sum.saturating_add(layer.shape.words().saturating_mul(8)))
    }

    /// Checks every rule.
    ///
    /// # Errors
    /// The first that is broken.
    pub fn check(&self) -> Result<(), Broken> {
        let count = self.layers.len();
        let most = if self.expansion.factor().is_some() { MAX_LAYERS } else { 1 };
        if count == 0 || count > most {
            return Err(Broken::Layers(count));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let &LayerPlan { capacity, items, error_rate, shape } = layer;
            let ranges = Params {
                error_rate,
                capacity,
                expansion: self.expansion,
                seed: self.seed,
                cells: shape.cells(),
            };
            ranges.check()?;
            // Deletions take items from older layers too, and the count of a layer of counters may
            // pass its capacity.
            let counters = shape.cells() == CellKind::Counters;
            let may_lack = index + 1 == count || counters;
            if (items > capacity && !counters) || (items < capacity && !may_lack) {
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
        }
        if self.family == Family::Guava && self.expansion.factor().is_some() {
            return Err(Broken::Grows);
        }
        match self.expansion.factor() {
            Some(factor) if self.family == Family::Native && factor > u32::from(MAX_EXPANSION) => {
                return Err(Error::Expansion(u64::from(factor)).into());
            }
            _ => {}
        }
        let whole = Params {
            error_rate: self.error_rate,
            capacity: MAX_CAPACITY,
            expansion: self.expansion,
            seed: 0,
            cells: CellKind::Bits,
        };
        whole.check()?;
        if self.bit_bytes() / 8 > MAX_WORDS {
            return Err(Error::Ceiling { wanted: self.bit_bytes(), ceiling: MAX_WORDS * 8 }.into());
        }
        Ok(())
    }

    /// Whether filters of this family have layers like that. All layers of a filter have bits, or
    /// all have counters.
    fn may_have(&self, layer: &LayerPlan) -> bool {
        let newest = self.layers.last().map(|newest| newest.shape.cells());
        let sound = match (self.family, layer.shape) {
            (
                Family::Native,
                Shape::Blocked(geometry) | Shape::Counting(Counting { geometry, .. }),
            ) => {
                let Geometry { blocks, block_words, probes } = geometry;
                let cells = layer.shape.cells();
                blocks > 0
                    && block_words > 0
                    && (1..=MAX_PROBES).contains(&probes)
                    && newest == Some(cells)
            }
            (Family::RedisBloom(_), Shape::Classic(classic)) => {
                classic.is_sound() && redisbloom::fits(&classic, layer.capacity, layer.error_rate)
            }
            (Family::Valkey(_), Shape::Classic(classic)) => {
                classic.rule == Rule::Prime
                    && classic.is_sound()
                    && Valkey::fits(&classic, layer.capacity, layer.error_rate)
            }
            // Whoever made it chose its bits and probes by rules of their own.
            (Family::Guava, Shape::Classic(classic)) => {
                matches!(classic.rule, Rule::Mitz32 | Rule::Mitz64) && classic.is_sound()
            }
            (Family::Native, Shape::Classic(_))
            | (
                Family::RedisBloom(_) | Family::Valkey(_) | Family::Guava,
                Shape::Blocked(_) | Shape::Counting(_),
            ) => false,
        };
        sound && layer.shape.words() <= MAX_WORDS
    }

    /// An empty-bitted filter of this plan, for a decoder to fill. Call [`Self::check`] first.
    ///
    /// # Errors
    /// `Error::Ceiling` above `ceiling` bytes of bits, `Error::OutOfMemory`.
    pub fn allocate(&self, ceiling: u64) -> Result<Filter, Error> {
        self.build(ceiling, |plan| Layer::new(plan.shape, plan.capacity, plan.error_rate))
    }

    /// A filter of this plan, of layers that `layer` makes one after the other, oldest first. Call
    /// [`Self::check`] first.
    ///
    /// # Errors
    /// `Error::Ceiling` above `ceiling` bytes of bits, `Error::OutOfMemory`, and what `layer`
    /// answers.
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
            .ok_or(Error::OutOfMemory(0).into())
    }
}
