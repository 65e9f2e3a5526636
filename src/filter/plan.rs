//! The invariants of every filter of every product: the one list that every decoder checks.
//!
//! Stored bytes are not trusted until they pass this check. A decoder first parses numbers into a
//! [`Plan`], calls [`Plan::check`], and only then allocates and reads bits.
//!
//! Each native layer stores its own rate and geometry, so the sizing may improve without a new
//! encoding. The shape of a RedisBloom or valkey-bloom layer must follow from its capacity and
//! rate, because those products always compute it (`foreign/redisbloom.rs`).

use super::{
    error::Error,
    foreign::{Family, Valkey, redisbloom},
    geometry::{Geometry, MAX_WORDS},
    layer::{Layer, Rule, Shape, bits::Bits},
    paged::PagedPlan,
    pages::Payload,
    params::{CellKind, Expansion, MAX_LAYERS, Params, check_ranges},
    sizing::{MAX_PROBES, geometry, layer_rate},
    stack::Filter,
};
use crate::sharding::Shard;

/// The memory that a filter asks for: bytes of bits, of all its layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Bytes that are allocated already, those that are about to be dropped included.
    pub present: u64,
    /// Bytes in total with what is asked for; `u64::MAX` if they cannot be addressed.
    pub wanted: u64,
}

impl Demand {
    /// Calls `ceiling`, which returns the bytes that the filter may have in total.
    ///
    /// # Errors
    /// `Error::Ceiling` if `wanted` is above them.
    pub fn check(self, ceiling: impl FnOnce(Self) -> u64) -> Result<(), Error> {
        let (wanted, ceiling) = (self.wanted, ceiling(self));
        if wanted <= ceiling { Ok(()) } else { Err(Error::Ceiling { wanted, ceiling }) }
    }
}

/// A layer without its bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerPlan {
    /// Items that the layer is sized for.
    pub capacity: u64,
    /// Items counted.
    pub items: u64,
    /// Rate of this layer.
    pub error_rate: f64,
    /// Shape of the bit array.
    pub shape: Shape,
}

impl LayerPlan {
    pub(super) fn of(layer: &Layer) -> Self {
        Self {
            capacity: layer.capacity(),
            items: layer.counted(),
            error_rate: layer.error_rate(),
            shape: layer.shape(),
        }
    }

    /// Makes the layer, with all bits clear, if there is memory.
    pub fn empty(&self) -> Result<Layer, Error> {
        Ok(self.over(Bits::zeroed(self.shape.words())?))
    }

    /// Makes the layer over bits, which may be too few until all have arrived.
    fn over(&self, bits: Bits) -> Layer {
        let mut layer = Layer::over(bits, self.shape, self.capacity, self.error_rate);
        layer.set_counted(self.items);
        layer
    }
}

/// The refusal of a layer whose bits cannot be addressed.
pub(super) const NOT_ADDRESSABLE: Error =
    Error::Ceiling { wanted: u64::MAX, ceiling: MAX_WORDS * 8 };

/// A filter without its bits: what a decoder has read before it allocates anything.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// The layers, oldest first. Below pages there is one at most.
    pub layers: Vec<LayerPlan>,
    /// What a filter in pages has besides.
    pub paged: Option<PagedPlan>,
}

impl Plan {
    /// The plan of an existing filter.
    pub fn of(filter: &Filter) -> Self {
        Self {
            family: filter.family(),
            seed: filter.seed(),
            error_rate: filter.error_rate(),
            expansion: filter.expansion(),
            shard: filter.shard(),
            layers: filter.layers().map(LayerPlan::of).collect(),
            paged: None,
        }
    }

    /// The parameters of an equal empty filter; a valkey-bloom filter needs its family, too, and a
    /// window its rules.
    pub fn params(&self) -> Params {
        let &Self { error_rate, expansion, seed, ref paged, ref layers, .. } = self;
        let cells = match paged {
            Some(paged) if matches!(paged.pages.payload, Payload::Count { .. }) => {
                CellKind::Counters
            }
            _ => CellKind::Bits,
        };
        let first = layers.first().map_or(0, |layer| layer.capacity);
        let capacity = paged.as_ref().map_or(first, |paged| paged.capacity);
        Params { error_rate, capacity, expansion, seed, cells }
    }

    /// The plan of a new native filter of `params` with bits. Allocates none.
    ///
    /// # Errors
    /// Those of [`Filter::new`] for any memory: `Error::ErrorRate`, `Error::Capacity`, and
    /// `Error::Ceiling` if the bits cannot be addressed.
    pub fn new(params: &Params) -> Result<Self, Error> {
        params.check()?;
        let &Params { error_rate, capacity, expansion, seed, .. } = params;
        let rate = layer_rate(error_rate, expansion.factor().is_some());
        let shape = geometry(capacity, rate).ok_or(NOT_ADDRESSABLE)?.into();
        let layers = vec![LayerPlan { capacity, items: 0, error_rate: rate, shape }];
        Ok(Self { seed, error_rate, expansion, layers, ..Self::default() })
    }

    /// Bytes of the whole filter, as [`Filter::bytes`] returns them; `u64::MAX` if there are more.
    pub fn bytes(&self) -> u64 {
        let shapes = self.layers.iter().map(|layer| layer.shape);
        self.bit_bytes().saturating_add(Filter::struct_bytes(self.family.tag(), shapes))
    }

    /// Bytes of all bit arrays; `u64::MAX` if there are more.
    pub fn bit_bytes(&self) -> u64 {
        self.layers
            .iter()
            .fold(0, |sum, layer| sum.saturating_add(layer.shape.words().saturating_mul(8)))
    }

    /// Checks every invariant.
    ///
    /// # Errors
    /// `Error::Impossible` for the first invariant that is broken, or the error of a number that is
    /// out of its range.
    pub fn check(&self) -> Result<(), Error> {
        let (count, factor) = (self.layers.len(), self.expansion.factor());
        let native = self.family == Family::Native;
        let least = usize::from(self.paged.is_none());
        if count < least || count > MAX_LAYERS || (count > 1 && (native || factor.is_none())) {
            return Err(Error::Impossible("a wrong number of layers"));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            self.check_layer(index, layer, index + 1 == count)?;
        }
        if self.family == Family::Guava && factor.is_some() {
            return Err(Error::Impossible("a filter of Guava with an expansion"));
        }
        if self.shard.is_some() && !native {
            return Err(Error::Impossible("a shard that another product made"));
        }
        if native {
            Expansion::new(factor.unwrap_or(0).into())?;
        }
        check_ranges(self.error_rate, 1)?;
        if self.bit_bytes() / 8 > MAX_WORDS {
            return Err(Error::Ceiling { wanted: self.bit_bytes(), ceiling: MAX_WORDS * 8 });
        }
        self.paged.as_ref().map_or(Ok(()), |paged| paged.check(self))
    }

    /// Checks layer `index`. Only the newest layer of a stack may be less than full.
    fn check_layer(&self, index: usize, layer: &LayerPlan, newest: bool) -> Result<(), Error> {
        let &LayerPlan { capacity, items, error_rate, .. } = layer;
        check_ranges(error_rate, capacity)?;
        if items > capacity || (items < capacity && !newest) {
            return Err(Error::Impossible("a layer with too many items or too few"));
        }
        if !self.may_have(layer) {
            return Err(Error::Impossible("a layer that no filter of its family has"));
        }
        if let Family::Valkey(family) = self.family
            && family.layer_rate(self.error_rate, index) != Some(error_rate)
        {
            return Err(Error::Impossible("rates of layers that do not follow from their ratio"));
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
        self.build(ceiling, LayerPlan::empty)
    }

    /// [`Self::allocate`], but the bits have not arrived: each layer has room for one word
    /// ([`Layer::make_room`]).
    pub fn begin(&self, ceiling: u64) -> Result<Filter, Error> {
        self.build(ceiling, |layer| Ok(layer.over(Bits::zeroed(1)?)))
    }

    fn build(
        &self,
        ceiling: u64,
        layer: impl Fn(&LayerPlan) -> Result<Layer, Error>,
    ) -> Result<Filter, Error> {
        let wanted = self.bit_bytes();
        Demand { present: 0, wanted }.check(|_| ceiling)?;
        let mut layers = Vec::new();
        layers.try_reserve_exact(self.layers.len()).map_err(|_| Error::OutOfMemory(wanted))?;
        for plan in &self.layers {
            layers.push(layer(plan)?);
        }
        self.with_layers(layers)
    }

    /// The filter of this plan, of layers that follow it.
    ///
    /// # Errors
    /// `Error::Layers` if there are none.
    pub fn with_layers(&self, layers: Vec<Layer>) -> Result<Filter, Error> {
        let &Self { family, seed, error_rate, expansion, shard, .. } = self;
        let filter = Filter::from_layers(family, seed, error_rate, expansion, layers);
        Ok(filter.ok_or(Error::Layers)?.with_shard(shard))
    }
}
