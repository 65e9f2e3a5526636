//! The invariants of every filter of every product: the one list that every decoder checks.
//!
//! A decoder first parses numbers into a [`Plan`], calls [`Plan::check`], and only then allocates
//! and reads bits and pages. So a forged number costs nothing but the refusal.
//!
//! Each native layer stores its own rate and geometry, so the sizing may improve without a new
//! encoding. The shape of a layer of another product must follow from its capacity and rate.
//!
//! Each page is checked as it is read (`Page::from_words`). Two things are not checked: that
//! [`Generation::items`](super::paged::Generation::items) match the slots, and that each slot has
//! the number of a generation. Such a filter answers as a filter with other items would.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;

use super::{
    error::Error,
    foreign::{Family, RedisBloom, Valkey, redisbloom},
    layer::{
        Geometry, Layer, LayerPlan, Rule, Shape,
        bits::{MAX_WORDS, NOT_ADDRESSABLE},
    },
    paged::{Paged, Span, Window, number_bits},
    pages::{self, Pages, Payload},
    params::{Expansion, MAX_LAYERS, Params, check_ranges},
    sizing::{MAX_PROBES, geometry, layer_rate},
};
use crate::sharding::Shard;

/// The additional numbers in the plan of a paged filter.
#[derive(Clone, Debug, PartialEq)]
pub struct PagedPlan {
    /// Items that it was reserved for.
    pub capacity: u64,
    /// The numbers of the pages.
    pub pages: pages::Plan,
    /// Void slots that splits copied.
    pub copies: u64,
    /// How the filter forgets, if it does.
    pub window: Option<Window>,
}

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
    /// The plan of an existing filter in pages.
    pub fn of_pages(filter: &Paged) -> Self {
        let paged = PagedPlan {
            capacity: filter.capacity(),
            pages: filter.pages().plan(),
            copies: filter.pages().copies(),
            window: filter.window().cloned(),
        };
        Self {
            family: Family::Native,
            seed: filter.seed(),
            error_rate: filter.error_rate(),
            expansion: filter.expansion(),
            shard: filter.shard(),
            layers: filter.base().map(LayerPlan::of).into_iter().collect(),
            paged: Some(paged),
        }
    }

    /// The filter of this plan, which has pages and was checked, with its layer and pages.
    pub fn with_pages(&self, base: Option<Layer>, pages: Pages) -> Paged {
        let window = self.paged.as_ref().and_then(|paged| paged.window.clone());
        Paged::with(&self.params(), base, window, pages)
    }

    /// The parameters of an equal empty filter; a valkey-bloom filter needs its family, too, and a
    /// window its rules.
    pub fn params(&self) -> Params {
        let &Self { error_rate, expansion, seed, shard, ref paged, ref layers, .. } = self;
        let payload = paged.as_ref().map(|paged| paged.pages.payload);
        let counts = matches!(payload, Some(Payload::Count(_)));
        let first = layers.first().map_or(0, |layer| layer.capacity);
        let capacity = paged.as_ref().map_or(first, |paged| paged.capacity);
        Params { error_rate, capacity, expansion, seed, counts, shard }
    }

    /// The plan of a new native filter of `params` with bits. Allocates none.
    ///
    /// # Errors
    /// `Error::ErrorRate`, `Error::Capacity`, and `Error::Ceiling` if the bits cannot be addressed.
    pub fn new(params: &Params) -> Result<Self, Error> {
        let &Params { error_rate, capacity, expansion, seed, shard, .. } = params;
        check_ranges(error_rate, capacity)?;
        let rate = layer_rate(error_rate, expansion.factor().is_some());
        let shape = Shape::Blocked(geometry(capacity, rate).ok_or(NOT_ADDRESSABLE)?);
        let layers = vec![LayerPlan { capacity, items: 0, error_rate: rate, shape }];
        Ok(Self { seed, error_rate, expansion, shard, layers, ..Self::default() })
    }

    /// The identity: 64 bits that no addition changes. Equal for a filter and its copies, and, with
    /// random seeds, different for other filters. Filters without a secret seed differ only by
    /// their parameters.
    ///
    /// It is SipHash-2-4, keyed by the seed. Aumasson and Bernstein, "SipHash: a fast short-input
    /// PRF" (2012): the output of a pseudorandom function does not give its key away. So clients
    /// may see the identity, and not the seed.
    pub fn identity(&self) -> u64 {
        let (family, key, public): (u64, u128, u128) = match self.family {
            Family::Native => (0, self.seed.into(), 0),
            Family::RedisBloom(RedisBloom { hash64, rounds }) => {
                (1, 0, u128::from(hash64) << 1 | u128::from(rounds))
            }
            Family::Valkey(Valkey { seed, .. }) => {
                let half = |from| u128::from_le_bytes(std::array::from_fn(|at| seed[from + at]));
                (2, half(0), half(16))
            }
            Family::Guava => (3, 0, 0),
        };
        let Params { error_rate, capacity, expansion, counts, .. } = self.params();
        let shard = |shard: Shard| u64::from(shard.count()) << 16 | u64::from(shard.index());
        let mut numbers = vec![
            family,
            public as u64,
            (public >> 64) as u64,
            error_rate.to_bits(),
            expansion.factor().unwrap_or(0).into(),
            counts.into(),
            capacity,
            self.shard.map_or(0, shard),
        ];
        if let Some(Window { rules, .. }) = self.paged.as_ref().and_then(|it| it.window.as_ref()) {
            let span = if let Span::Time(milliseconds) = rules.span { milliseconds } else { 0 };
            numbers.extend([span, rules.generations.into(), rules.refresh.into()]);
        }
        let mut hash = SipHasher24::new_with_key(&key.to_le_bytes());
        numbers.iter().for_each(|number| hash.write(&number.to_le_bytes()));
        hash.finish()
    }

    /// Bytes of all bit arrays; `u64::MAX` if there are more.
    pub fn bit_bytes(&self) -> u64 {
        let bytes = |layer: &LayerPlan| layer.shape.words().saturating_mul(8);
        self.layers.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// Checks every invariant: `Error::Impossible` for the first that is broken, or the error of a
    /// number that is out of its range.
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
        self.paged.as_ref().map_or(Ok(()), |paged| self.check_pages(paged))
    }

    /// Checks layer `index`. Only the newest layer of a stack may be less than full.
    fn check_layer(&self, index: usize, layer: &LayerPlan, newest: bool) -> Result<(), Error> {
        let &LayerPlan { capacity, items, error_rate, .. } = layer;
        check_ranges(error_rate, capacity)?;
        if items > capacity || (items < capacity && !newest) {
            return Err(Error::Impossible("a layer with too many items or too few"));
        }
        let belongs = match (self.family, layer.shape) {
            (Family::Native, Shape::Blocked(_)) => true,
            (Family::RedisBloom(_), Shape::Classic(classic)) => {
                redisbloom::fits(&classic, capacity, error_rate)
            }
            (Family::Valkey(_), Shape::Classic(classic)) => {
                classic.rule == Rule::Prime && Valkey::fits(&classic, capacity, error_rate)
            }
            // Users of Guava choose bits and probes freely.
            (Family::Guava, Shape::Classic(classic)) => {
                matches!(classic.rule, Rule::Mitz32 | Rule::Mitz64)
            }
            _ => false,
        };
        let sound = match layer.shape {
            Shape::Blocked(Geometry { blocks, block_words, probes }) => {
                blocks > 0 && block_words > 0 && (1..=MAX_PROBES).contains(&probes)
            }
            Shape::Classic(classic) => classic.is_sound(),
        };
        if !(belongs && sound && layer.shape.words() <= MAX_WORDS) {
            return Err(Error::Impossible("a layer that no filter of its family has"));
        }
        if let Family::Valkey(family) = self.family
            && family.layer_rate(self.error_rate, index) != Some(error_rate)
        {
            return Err(Error::Impossible("rates of layers that do not follow from their ratio"));
        }
        Ok(())
    }

    fn check_pages(&self, paged: &PagedPlan) -> Result<(), Error> {
        let PagedPlan { capacity, pages, window, .. } = paged;
        check_ranges(self.error_rate, *capacity)?;
        pages.check()?;
        if self.family != Family::Native {
            return Err(Error::Impossible("pages of a filter that another product made"));
        }
        let scales = self.expansion.factor().is_some();
        // There is one layer at most.
        if let Some(base) = self.layers.first() {
            if base.items != base.capacity || base.capacity != *capacity {
                return Err(Error::Impossible("a layer below pages that is not full"));
            }
            if !scales || pages.payload != Payload::Nothing {
                return Err(Error::Impossible("a layer below pages of another kind"));
            }
        }
        let belong = match window {
            None => matches!(pages.payload, Payload::Nothing | Payload::Count(_)),
            Some(window) if window.is_sound(scales, *capacity) => {
                pages.payload == Payload::Generation(number_bits(window.rules))
            }
            Some(_) => return Err(Error::Impossible("a window that no filter has")),
        };
        if belong { Ok(()) } else { Err(Error::Impossible("pages of another kind of filter")) }
    }
}
