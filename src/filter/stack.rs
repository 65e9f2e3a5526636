//! The filter: one layer of blocks, or the stack of layers of another product.
//!
//! ```text
//!            ┌───────────────────────┐
//!   newest   │ capacity * e^2        │ ◀── additions        e = expansion
//!            ├───────────────┬───────┘
//!   older    │ capacity * e  │  full, never written again
//!            ├────────┬──────┘
//!            │capacity│  full      a query asks the newest layer first, and stops at the first hit
//!            └────────┘
//! ```
//!
//! A native filter has one layer. When the layer is full, a scaling filter puts further items into
//! pages ([`Filter::overflow`]). A filter of another family grows by the rules of that family:
//! Almeida, Baquero, Preguiça and Hutchison, "Scalable Bloom Filters" (2007). An item is added to
//! the newest layer, and counted, only if no layer holds it.

use super::{
    error::{Demand, Error},
    estimate::{Estimate, SAMPLE_WORDS},
    foreign::{Family, Tag, Valkey, murmur, redisbloom},
    hash::Hash,
    layer::{
        Layer, LayerPlan, Shape, Start,
        bits::{Bits, NOT_ADDRESSABLE},
    },
    paged::Paged,
    params::{Expansion, MAX_CAPACITY, MAX_LAYERS, Params, check_ranges},
    plan::Plan,
};
use crate::sharding::Shard;

/// A Bloom filter of layers.
#[derive(Debug)]
pub struct Filter {
    seed: u64,
    error_rate: f64,
    newest: Layer,
    /// `None` in most filters, so that small ones stay small.
    extra: Option<Box<Extra>>,
    expansion: Expansion,
    pub(super) family: Tag,
}

/// Bytes of [`Filter`] on a server; see `STRUCT_BYTES` of `paged/mod.rs`.
const STRUCT_BYTES: u64 = 80;
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Filter>() as u64 == STRUCT_BYTES);

// Small filters are many: one more word would take the next class of the allocator.
const _: () = assert!(size_of::<Result<Filter, Paged>>() <= 96);

#[derive(Debug, Default)]
struct Extra {
    /// The layers below the newest, oldest first. All are full.
    older: Vec<Layer>,
    /// Keys and tightening ratio of a valkey-bloom filter.
    valkey: Option<Valkey>,
    shard: Option<Shard>,
}

impl Filter {
    /// Makes an empty filter whose bits take at most `ceiling` bytes. Memory is zeroed lazily, so
    /// time and resident memory do not depend on the size.
    ///
    /// # Errors
    /// `Error::ErrorRate`, `Error::Capacity`, `Error::Ceiling`, `Error::OutOfMemory`.
    pub fn new(params: &Params, ceiling: u64) -> Result<Self, Error> {
        Plan::new(params)?.allocate(ceiling)
    }

    /// [`Self::new`] as the product of this family does; only a native filter has seed and shard.
    ///
    /// # Errors
    /// Those of [`Self::new`], and `Error::ErrorRate` for a tightening ratio outside (0, 1).
    pub fn of_family(family: Family, params: &Params, ceiling: u64) -> Result<Self, Error> {
        let &Params { error_rate, capacity, expansion, .. } = params;
        check_ranges(error_rate, capacity)?;
        let scales = expansion.factor().is_some();
        let (error_rate, first) = match family {
            Family::RedisBloom(family) => {
                let rate = error_rate * if scales { redisbloom::LAYER_RATE_RATIO } else { 1.0 };
                (redisbloom::error_rate(rate, scales), family.layer(capacity, rate))
            }
            Family::Valkey(family) => {
                let rate = family.layer_rate(error_rate, 0);
                let rate = rate.ok_or(Error::ErrorRate(family.tightening))?;
                (error_rate, Valkey::layer(capacity, rate))
            }
            Family::Native => return Self::new(params, ceiling),
            Family::Guava => (error_rate, None),
        };
        let layers = vec![first.ok_or(NOT_ADDRESSABLE)?];
        Plan { family, error_rate, expansion, layers, ..Plan::default() }.allocate(ceiling)
    }

    /// The shard that the filter is; `None` for a filter that takes all items.
    pub fn shard(&self) -> Option<Shard> {
        self.extra.as_deref().and_then(|extra| extra.shard)
    }

    /// The product whose rules the filter follows.
    pub fn family(&self) -> Family {
        self.family.map_keys(|()| self.valkey())
    }

    /// Seed and tightening ratio, which a filter tagged `Valkey` always has.
    fn valkey(&self) -> Valkey {
        let valkey = self.extra.as_deref().and_then(|extra| extra.valkey);
        // Not the default, whose seed is public.
        valkey.expect("a filter tagged Valkey has its seed")
    }

    /// The key of the filter's hash. It is secret: never send it to a client.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The false positive rate that all layers together do not exceed on average.
    pub fn error_rate(&self) -> f64 {
        self.error_rate
    }

    /// How the filter grows.
    pub fn expansion(&self) -> Expansion {
        self.expansion
    }

    /// The parameters of an equal empty filter; a valkey-bloom filter needs its family, too.
    pub fn params(&self) -> Params {
        let &Self { seed, error_rate, expansion, .. } = self;
        let capacity = self.older().first().unwrap_or(&self.newest).capacity;
        Params { error_rate, capacity, expansion, seed, counts: false, shard: self.shard() }
    }

    /// All layers, oldest first; at least one.
    pub fn layers(&self) -> impl ExactSizeIterator<Item = &Layer> + DoubleEndedIterator {
        self.layers_from(0)
    }

    /// The layers from number `first` on, oldest first; at least the newest.
    pub fn layers_from(
        &self,
        first: usize,
    ) -> impl ExactSizeIterator<Item = &Layer> + DoubleEndedIterator {
        // `chain` does not give an exact-size iterator, and `skip` would visit what it skips.
        let older = self.older();
        (first.min(older.len())..older.len() + 1).map(|i| older.get(i).unwrap_or(&self.newest))
    }

    /// The layers from number `first` on, oldest first, mutable; at least the newest.
    pub fn layers_from_mut(&mut self, first: usize) -> impl Iterator<Item = &mut Layer> {
        let older = self.extra.as_deref_mut().map_or(&mut [][..], |extra| &mut extra.older);
        let older = older.get_mut(first..).unwrap_or_default();
        older.iter_mut().chain(std::iter::once(&mut self.newest))
    }

    /// Finds the layer that contains byte `at` of all layers, in stored bytes or bytes in memory
    /// (`count`): its index, and where it begins. A byte past the end gives the newest layer.
    pub fn layer_at(&self, at: u64, count: fn(Start) -> u64) -> (usize, Start) {
        let older = self.older();
        let begins = |layer: &Layer| count(layer.start()) <= at;
        let begun = older.partition_point(begins) + usize::from(begins(&self.newest));
        let index = begun.saturating_sub(1);
        (index, older.get(index).unwrap_or(&self.newest).start())
    }

    /// The layer that takes additions.
    pub fn newest(&self) -> &Layer {
        &self.newest
    }

    /// The layer that takes additions, mutable.
    pub fn newest_mut(&mut self) -> &mut Layer {
        &mut self.newest
    }

    /// The newest layer alone.
    pub fn into_newest(self) -> Layer {
        self.newest
    }

    /// The layers that take no additions any more, oldest first.
    #[inline]
    pub fn older(&self) -> &[Layer] {
        self.extra.as_deref().map_or(&[], |extra| extra.older.as_slice())
    }

    /// Bytes that the allocator spends on all that the filter has. `size` gives those of an
    /// allocation, and 0 for null.
    pub fn memory(&self, size: impl Fn(*const u8) -> usize) -> usize {
        let list = self.extra.as_deref().map_or(0, |extra| {
            let older = extra.older.first().map_or(std::ptr::null(), std::ptr::from_ref);
            size(std::ptr::from_ref(extra).cast()) + size(older.cast())
        });
        list + self.layers().map(|layer| layer.memory(&size)).sum::<usize>()
    }

    /// The number of items that tested absent when they were added.
    pub fn items(&self) -> u64 {
        self.layers().map(|layer| layer.counted).fold(0, u64::saturating_add)
    }

    /// The number of items that the present layers are sized for.
    pub fn capacity(&self) -> u64 {
        self.layers().map(|layer| layer.capacity).fold(0, u64::saturating_add)
    }

    /// Bytes of all bit arrays, including bits that have not arrived yet.
    pub fn bit_bytes(&self) -> u64 {
        self.newest.end().memory
    }

    /// Bytes of the bit arrays that are allocated: all of them in a complete filter.
    pub fn room(&self) -> u64 {
        self.layers().map(|layer| size_of_val(layer.bits().words()) as u64).sum()
    }

    /// Bytes of the whole filter. Equal complete filters give equal numbers.
    pub fn bytes(&self) -> u64 {
        self.room() + Self::struct_bytes(self.family, self.layers().map(Layer::shape))
    }

    /// Bytes of a filter without its bit arrays. `shapes` are those of all its layers.
    fn struct_bytes(family: Tag, shapes: impl ExactSizeIterator<Item = Shape>) -> u64 {
        let list = (shapes.len().saturating_sub(1)) * size_of::<Layer>();
        let boxes: usize = shapes.map(Layer::boxed_bytes).sum();
        let keys = if family == Tag::Valkey(()) { size_of::<Valkey>() } else { 0 };
        STRUCT_BYTES + (list + boxes + keys) as u64
    }

    /// Hashes the item as the filter's family does, with the filter's seed.
    #[inline]
    pub fn hash(&self, item: &[u8]) -> Hash {
        match self.family {
            Tag::Native => Hash::of(item, self.seed),
            Tag::RedisBloom(_) | Tag::Valkey(()) | Tag::Guava => self.foreign_hash(item),
        }
    }

    /// [`Self::hash`] for the other families. Not inlined, to keep the native path short.
    #[cold]
    #[inline(never)]
    fn foreign_hash(&self, item: &[u8]) -> Hash {
        match self.family {
            Tag::Native => Hash::of(item, self.seed), // not called for it
            Tag::RedisBloom(family) => family.hash(item),
            Tag::Valkey(()) => self.valkey().hash(item, |start| self.newest.prefetch_start(start)),
            Tag::Guava => murmur::hash128(item),
        }
    }

    /// Returns whether the item may have been added. Never false for an item that was added.
    #[inline]
    pub fn contains(&self, hash: Hash) -> bool {
        self.newest.contains(hash) || (self.extra.is_some() && self.in_older(hash))
    }

    /// Returns whether an older layer may hold the item. Not inlined: most filters have one layer.
    #[inline(never)]
    fn in_older(&self, hash: Hash) -> bool {
        self.older().iter().rev().any(|layer| layer.contains(hash))
    }

    /// Adds the item; returns whether it tested absent. The filter changes only if it did. A full
    /// filter grows first, and then calls `ceiling` as [`Self::grow`] does.
    ///
    /// # Errors
    /// Those of [`Self::grow`]. The filter is unchanged then and still answers queries.
    #[inline]
    pub fn add(&mut self, hash: Hash, ceiling: impl FnOnce(Demand) -> u64) -> Result<bool, Error> {
        if !self.older().is_empty() || self.newest.is_full() {
            return self.add_to_stack(hash, ceiling);
        }
        Ok(self.newest.add(hash))
    }

    /// [`Self::add`] with older layers or a full newest one. Not inlined: most filters have none.
    #[inline(never)]
    fn add_to_stack(
        &mut self,
        hash: Hash,
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<bool, Error> {
        if self.contains(hash) {
            return Ok(false);
        }
        if self.newest.is_full() {
            self.grow(ceiling)?;
        }
        Ok(self.newest.add(hash))
    }

    /// Copies the filter, with the same seed, bits and counts, if there is memory.
    pub fn duplicate(&self) -> Result<Self, Error> {
        let layers = self.layers().map(Layer::duplicate).collect::<Result<_, _>>()?;
        Plan::of(self).with_layers(layers)
    }

    /// Adds a new layer. `ceiling` gets the bytes that the bits of all layers take and would take
    /// then, and returns the bytes that they may take. It is called once, after all other checks.
    ///
    /// # Errors
    /// `Error::Full` for a non-scaling filter, `Error::Overflow` for one that goes on in pages,
    /// `Error::Layers`, `Error::Ceiling`, `Error::OutOfMemory`.
    #[cold]
    pub fn grow(&mut self, ceiling: impl FnOnce(Demand) -> u64) -> Result<(), Error> {
        let factor = self.expansion.factor().ok_or(Error::Full)?;
        if self.family == Tag::Native {
            return Err(Error::Overflow);
        }
        if self.layers().len() >= MAX_LAYERS {
            return Err(Error::Layers);
        }
        let next = |capacity| match self.family {
            Tag::RedisBloom(family) => {
                family.layer(capacity, self.newest.error_rate * redisbloom::LAYER_RATE_RATIO)
            }
            Tag::Valkey(()) => {
                let rate = self.valkey().layer_rate(self.error_rate, self.layers().len())?;
                Valkey::layer(capacity, rate)
            }
            Tag::Native | Tag::Guava => None,
        };
        let plan = self.newest.capacity.checked_mul(factor.into()).and_then(next);
        let plan = plan.filter(|plan| plan.capacity <= MAX_CAPACITY);
        let words = plan.map_or(u64::MAX, |plan| plan.shape.words());
        let present = self.bit_bytes();
        let wanted = words.saturating_mul(8).saturating_add(present);
        Demand { present, wanted }.check(ceiling)?;
        let mut layer = plan.ok_or(NOT_ADDRESSABLE)?.empty()?;
        layer.set_start(self.newest.end());
        let older = &mut self.extra.get_or_insert_default().older;
        let bytes = older.len().saturating_mul(size_of::<Layer>()) as u64;
        older.try_reserve(1).map_err(|_| Error::OutOfMemory(bytes))?;
        older.push(std::mem::replace(&mut self.newest, layer));
        Ok(())
    }

    /// After `Error::Overflow`, moves the layer below new, empty pages. Returns that filter of
    /// pages, which takes the place of this one. What is left here is empty.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; nothing has changed then.
    pub fn overflow(&mut self) -> Result<Paged, Error> {
        let params = self.params();
        let empty = Self::new(&Params { capacity: 1, shard: None, ..params }, u64::MAX)?.newest;
        Paged::above(|| std::mem::replace(&mut self.newest, empty), &params)
    }

    /// The share of set bits over all layers, and the rate of all layers together.
    pub fn estimate(&self) -> Estimate {
        let (mut set, mut all, mut absent) = (0.0, 0.0, 1.0);
        for (layer, estimate) in self.estimate_layers() {
            let words = layer.bits().words().len() as f64;
            set += estimate.fill * words;
            all += words;
            absent *= 1.0 - estimate.error_rate;
        }
        Estimate { fill: set / all, error_rate: 1.0 - absent }
    }

    /// Estimates each layer, oldest first.
    pub fn estimate_layers(&self) -> impl Iterator<Item = (&Layer, Estimate)> {
        let each = (SAMPLE_WORDS / self.layers().len()).max(1);
        self.layers().map(move |layer| (layer, layer.sample(each)))
    }
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

    /// Bytes of the whole filter, as [`Filter::bytes`] returns them; `u64::MAX` if there are more.
    pub fn bytes(&self) -> u64 {
        let shapes = self.layers.iter().map(|layer| layer.shape);
        self.bit_bytes().saturating_add(Filter::struct_bytes(self.family.tag(), shapes))
    }

    /// Makes a filter of this plan, which was checked, with all bits clear.
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

    /// The filter of this plan, of layers that follow it, oldest first. `Error::Layers` if there
    /// are none.
    pub fn with_layers(&self, mut layers: Vec<Layer>) -> Result<Filter, Error> {
        let mut start = Start::default();
        for layer in &mut layers {
            layer.set_start(start);
            start = layer.end();
        }
        let newest = layers.pop().ok_or(Error::Layers)?;
        layers.shrink_to_fit();
        let &Self { family, seed, error_rate, expansion, shard, .. } = self;
        let valkey = if let Family::Valkey(valkey) = family { Some(valkey) } else { None };
        let some = !layers.is_empty() || valkey.is_some() || shard.is_some();
        let extra = some.then(|| Box::new(Extra { older: layers, valkey, shard }));
        Ok(Filter { seed, error_rate, newest, extra, expansion, family: family.tag() })
    }
}
