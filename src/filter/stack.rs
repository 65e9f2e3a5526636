//! The filter: a stack of layers that grows, under one seed and one promised rate.
//!
//! ```text
//!            ┌───────────────────────┐
//!   newest   │ capacity * e^2        │ ◀── additions        e = expansion
//!            ├───────────────┬───────┘
//!   older    │ capacity * e  │  full, never written again
//!            ├───────┬───────┘
//!            │capacity│  full            a query asks newest first, and stops at the first layer that says yes
//!            └───────┘
//! ```
//!
//! Almeida, Baquero, Preguiça and Hutchison, "Scalable Bloom Filters" (2007), with the budget of
//! `budget.rs` and blocked layers. An item is added to the newest layer, and counted, only if no
//! layer holds it: then each layer's count is the number of items that changed its bits.
//!
//! A filter that counts (`counting.rs`) adds to the newest layer whatever the others hold, and its
//! older layers change when items are deleted.
//!
//! A filter of another family (`foreign/mod.rs`) hashes its items and sizes its next layer by that
//! family's rules; the stack is the same.
//!
//! The newest layer lives inside the struct, not in the list: a filter that never grew, by far the
//! most common, is one struct of 80 bytes and one bit array, and its hot path follows one pointer.

use super::{
    error::Error,
    extra::Extra,
    foreign::{Family, Tag, Valkey, guava},
    hash::Hash,
    layer::{Layer, Start},
    params::{Expansion, MAX_CAPACITY, MAX_LAYERS, Params},
    plan::LayerPlan,
    sizing::layer_rate,
};

/// A scaling Bloom filter.
#[derive(Debug)]
pub struct Filter {
    seed: u64,
    error_rate: f64,
    newest: Layer,
    /// Absent in a filter that needs none of it, so that such a filter stays small.
    extra: Option<Box<Extra>>,
    expansion: Expansion,
    family: Tag,
}

impl Filter {
    /// An empty filter whose bits take at most `ceiling` bytes. Its memory is zeroed lazily: time
    /// and resident memory do not depend on its size.
    ///
    /// # Errors
    /// `Error::ErrorRate`, `Error::Capacity`, `Error::Ceiling`, `Error::OutOfMemory`; nothing is
    /// allocated then.
    pub fn new(params: &Params, ceiling: u64) -> Result<Self, Error> {
        params.check()?;
        let &Params { error_rate, capacity, expansion, seed, cells } = params;
        let rate = layer_rate(error_rate, 0, expansion.factor().is_some());
        let newest = LayerPlan::make(LayerPlan::native(cells, capacity, rate), 0, ceiling)?;
        Ok(Self { seed, error_rate, newest, extra: None, expansion, family: Tag::Native })
    }

    /// An empty filter as valkey-bloom makes one, whose bits take at most `ceiling` bytes. The seed
    /// of `params` is not used.
    ///
    /// # Errors
    /// As [`Self::new`]; `Error::ErrorRate` for the ratio too.
    pub fn of_valkey(valkey: Valkey, params: &Params, ceiling: u64) -> Result<Self, Error> {
        params.check()?;
        let &Params { error_rate, capacity, expansion, .. } = params;
        let rate = valkey.layer_rate(error_rate, 0);
        let rate = rate.ok_or(Error::ErrorRate(valkey.tightening))?;
        let newest = LayerPlan::make(Valkey::layer(capacity, rate), 0, ceiling)?;
        Ok(Self {
            seed: 0,
            error_rate,
            newest,
            extra: Extra::boxed(Vec::new(), Family::Valkey(valkey)),
            expansion,
            family: Tag::Valkey,
        })
    }

    /// A filter from stored layers, oldest first; `None` without a layer. The caller has checked
    /// them (`check.rs`).
    #[must_use]
    pub fn from_layers(
        family: Family,
        seed: u64,
        error_rate: f64,
        expansion: Expansion,
        layers: Vec<Layer>,
    ) -> Option<Self> {
        let mut older = layers;
        let mut below: Option<&Layer> = None;
        for layer in &mut older {
            if let Some(below) = below {
                layer.put_on(below);
            }
            below = Some(layer);
        }
        let newest = older.pop()?;
        older.shrink_to_fit();
        Some(Self {
            seed,
            error_rate,
            newest,
            extra: Extra::boxed(older, family),
            expansion,
            family: family.tag(),
        })
    }

    /// Whose rules it follows.
    #[must_use]
    pub fn family(&self) -> Family {
        match self.family {
            Tag::Native => Family::Native,
            Tag::RedisBloom(family) => Family::RedisBloom(family),
            Tag::Valkey => Family::Valkey(self.valkey()),
            Tag::Guava => Family::Guava,
        }
    }

    /// What a filter of valkey-bloom's has beside its layers. One that is tagged so always has it.
    fn valkey(&self) -> Valkey {
        let extra = self.extra.as_deref();
        extra.and_then(|extra| extra.valkey.as_deref().copied()).unwrap_or_default()
    }

    /// The key of its hash. A secret: show it to no client.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The rate of false positives that all layers together never exceed.
    #[must_use]
    pub fn error_rate(&self) -> f64 {
        self.error_rate
    }

    /// How it grows.
    #[must_use]
    pub fn expansion(&self) -> Expansion {
        self.expansion
    }

    /// The parameters that make an equal empty filter, of a native one or, with its family, one of
    /// valkey-bloom's.
    #[must_use]
    pub fn params(&self) -> Params {
        let first = self.older_list().first().unwrap_or(&self.newest);
        Params {
            error_rate: self.error_rate,
            capacity: first.capacity(),
            expansion: self.expansion,
            seed: self.seed,
            cells: self.newest.shape().cells(),
        }
    }

    /// Its layers, oldest first; never none.
    pub fn layers(&self) -> impl ExactSizeIterator<Item = &Layer> + DoubleEndedIterator {
        // `chain` would not be an exact-size iterator.
        let older = self.older_list();
        (0..older.len() + 1).map(|i| {
            steps::step();
            older.get(i).unwrap_or(&self.newest)
        })
    }

    /// Its layers from the `index`th on, oldest first; at least the newest.
    pub fn layers_from(&self, index: usize) -> impl Iterator<Item = &Layer> {
        let older = self.older_list().get(index..).unwrap_or_default();
        older.iter().chain(std::iter::once(&self.newest)).inspect(|_| steps::step())
    }

    /// Its layers from the `index`th on, oldest first, to fill from stored ones; at least the
    /// newest.
    pub fn layers_from_mut(&mut self, index: usize) -> impl Iterator<Item = &mut Layer> {
        let older = self.extra.as_deref_mut().map_or(&mut [][..], |extra| &mut extra.older);
        older
            .get_mut(index..)
            .unwrap_or_default()
            .iter_mut()
            .chain(std::iter::once(&mut self.newest))
            .inspect(|_| steps::step())
    }

    /// The layer that byte `at` of all layers lies in, its index and where it begins, if bytes are
    /// counted by `count`; the newest for a byte past the end. It is found by halving among layers
    /// that know where they begin (the classic ones). Of others the two counts are the same, and
    /// the layers before it are walked.
    #[must_use]
    pub fn layer_at(&self, at: u64, count: fn(Start) -> u64) -> (usize, Start) {
        let older = self.older_list();
        let Some((start, _)) = self.newest.span() else {
            return self.walk_to(at);
        };
        if count(start) <= at {
            return (older.len(), start);
        }
        let begins = |layer: &Layer| {
            steps::step();
            layer.span().is_some_and(|(start, _)| count(start) <= at)
        };
        let index = older.partition_point(begins).saturating_sub(1);
        let start = older.get(index).and_then(Layer::span);
        (index, start.map_or(Start::default(), |(start, _)| start))
    }

    /// [`Self::layer_at`] where layers do not know where they begin.
    fn walk_to(&self, at: u64) -> (usize, Start) {
        let mut start = 0;
        let index = self.older_list().iter().position(|layer| {
            steps::step();
            let end = start + layer.shape().words() * 8;
            let here = at < end;
            start = if here { start } else { end };
            here
        });
        let start = Start { stored: start, memory: start };
        (index.unwrap_or(self.older_list().len()), start)
    }

    /// Its layers, oldest first, to fill from stored ones or to move.
    pub fn layers_mut(&mut self) -> impl Iterator<Item = &mut Layer> {
        self.layers_from_mut(0)
    }

    /// The layer that takes additions.
    #[inline]
    #[must_use]
    pub fn newest(&self) -> &Layer {
        &self.newest
    }

    /// The layer that takes additions, to change it.
    #[inline]
    pub fn newest_mut(&mut self) -> &mut Layer {
        &mut self.newest
    }

    /// The layers that take no additions any more, newest first.
    #[inline]
    pub fn older(&self) -> impl ExactSizeIterator<Item = &Layer> + Clone {
        self.older_list().iter().rev()
    }

    /// The same, to change them.
    #[inline]
    pub(super) fn older_mut(&mut self) -> impl Iterator<Item = &mut Layer> {
        self.extra.iter_mut().flat_map(|extra| extra.older.iter_mut().rev())
    }

    #[inline]
    fn older_list(&self) -> &[Layer] {
        self.extra.as_deref().map_or(&[], |extra| extra.older.as_slice())
    }

    /// Addresses of the allocations beside the bits, null for one that is not there, for
    /// accounting; `None` in a filter that has none of them.
    #[must_use]
    pub fn older_memory(&self) -> Option<[*const u8; 3]> {
        self.extra.as_deref().map(Extra::memory)
    }

    /// Items in it, as far as it can know ([`Layer::items`]): of a filter of bits those that tested
    /// absent when they were added.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.layers().map(Layer::items).fold(0, u64::saturating_add)
    }

    /// Items that the layers there are were made for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.layers().map(Layer::capacity).fold(0, u64::saturating_add)
    }

    /// Bytes of all bit arrays, of those still to arrive too ([`Layer::arriving`]).
    #[must_use]
    pub fn bit_bytes(&self) -> u64 {
        if let Some((_, end)) = self.newest.span() {
            return end.memory;
        }
        self.layers().map(|layer| layer.shape().words() * 8).sum()
    }

    /// Makes room for what has not arrived of its layers ([`Layer::arriving`]).
    ///
    /// # Errors
    /// `Error::OutOfMemory`; no bit has changed then.
    pub fn make_whole(&mut self) -> Result<(), Error> {
        self.layers_mut().try_for_each(Layer::make_whole)
    }

    /// Bytes of the filter in all: bit arrays, this struct, the older layers. The same for equal
    /// filters, so without the room that a list keeps for growing.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let list = size_of_val(self.older_list());
        let boxes: usize = self.layers().filter_map(Layer::boxed).map(|(_, size)| size).sum();
        let keys = match self.family {
            Tag::Valkey => size_of::<Valkey>(),
            Tag::Native | Tag::RedisBloom(_) | Tag::Guava => 0,
        };
        self.bit_bytes() + (size_of::<Self>() + list + boxes + keys) as u64
    }

    /// The item's hash by the filter's family, under its seed.
    #[inline]
    #[must_use]
    pub fn hash(&self, item: &[u8]) -> Hash {
        match self.family {
            Tag::Native => Hash::of(item, self.seed),
            _ => self.foreign_hash(item),
        }
    }

    /// The same in the other families. Not inlined: the native path is a few instructions, and
    /// stays so.
    #[cold]
    #[inline(never)]
    fn foreign_hash(&self, item: &[u8]) -> Hash {
        match self.family {
            Tag::Native => Hash::of(item, self.seed),
            Tag::RedisBloom(family) => family.hash(item),
            Tag::Valkey => self.valkey().hash(item, |start| self.newest.prefetch_start(start)),
            Tag::Guava => guava::hash(item),
        }
    }

    /// Whether the item may have been added. Never false for an item that was.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: Hash) -> bool {
        self.newest.contains(hash) || (self.extra.is_some() && self.in_older(hash))
    }

    /// Whether a full layer may hold the item. Not inlined: most filters have none.
    #[inline(never)]
    pub(super) fn in_older(&self, hash: Hash) -> bool {
        self.older().any(|layer| layer.contains(hash))
    }

    /// Adds the item; whether it tested absent before. A filter of bits changes only if it did, one
    /// of counters always (`counting.rs`).
    ///
    /// A full filter grows first: then `ceiling` is told the bytes its bits take, and answers how
    /// many they may take.
    ///
    /// # Errors
    /// As [`Self::grow`]; the filter is unchanged then and goes on answering.
    #[inline]
    pub fn add(&mut self, hash: Hash, ceiling: impl FnOnce(u64) -> u64) -> Result<bool, Error> {
        if self.counts() {
            return self.add_counted(hash, ceiling);
        }
        if self.older().len() > 0 || self.newest.is_full() {
            return self.add_to_stack(hash, ceiling);
        }
        Ok(self.newest.add(hash))
    }

    /// [`Self::add`] where older layers may hold the item, or the newest is full. Not inlined: most
    /// filters are one layer.
    #[inline(never)]
    fn add_to_stack(
        &mut self,
        hash: Hash,
        ceiling: impl FnOnce(u64) -> u64,
    ) -> Result<bool, Error> {
        if self.contains(hash) {
            return Ok(false);
        }
        if self.newest.is_full() {
            self.grow(ceiling(self.bit_bytes()))?;
        }
        Ok(self.newest.add(hash))
    }

    /// [`Self::add`] of an item that must not be refused: where there is no room, the newest layer
    /// takes it uncounted. Such items are never forgotten, but the rate is promised for the
    /// capacity only.
    #[cold]
    pub(super) fn add_uncounted(&mut self, hash: Hash) -> bool {
        self.add(hash, |_| u64::MAX).unwrap_or_else(|_| self.newest.add_uncounted(hash))
    }

    /// A copy with the same seed, bits and counts.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn duplicate(&self) -> Result<Self, Error> {
        let older =
            self.older_list().iter().map(Layer::duplicate).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            newest: self.newest.duplicate()?,
            extra: Extra::boxed(older, self.family()),
            ..*self
        })
    }

    /// Puts a new layer on the stack, whose bits and those before it take at most `ceiling` bytes
    /// in all.
    ///
    /// # Errors
    /// `Error::Full` for a non-scaling filter, `Error::Layers`, `Error::Ceiling`,
    /// `Error::OutOfMemory`.
    #[cold]
    pub fn grow(&mut self, ceiling: u64) -> Result<(), Error> {
        let factor = self.expansion.factor().ok_or(Error::Full)?;
        let index = self.older_list().len() + 1;
        if index >= MAX_LAYERS {
            return Err(Error::Layers);
        }
        let (capacity, rate) = (self.newest.capacity(), self.newest.error_rate());
        let plan = match self.family {
            Tag::Native => LayerPlan::native(
                self.newest.shape().cells(),
                capacity.saturating_mul(u64::from(factor)).min(MAX_CAPACITY),
                layer_rate(self.error_rate, index, true),
            ),
            Tag::RedisBloom(family) => family.next_layer(capacity, rate, factor),
            Tag::Valkey => self.valkey().next_layer(self.error_rate, index, capacity, factor),
            Tag::Guava => None,
        };
        let mut layer = LayerPlan::make(plan, self.bit_bytes(), ceiling)?;
        layer.put_on(&self.newest);
        self.extra.get_or_insert_default().older.push(std::mem::replace(&mut self.newest, layer));
        Ok(())
    }
}

/// How many layers were looked at, for tests that count steps; nothing elsewhere.
pub(crate) mod steps {
    #[cfg(test)]
    thread_local! {
        static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    #[inline(always)]
    pub(super) fn step() {
        #[cfg(test)]
        STEPS.set(STEPS.get() + 1);
    }

    /// How many layers this thread looked at so far.
    #[cfg(test)]
    pub(crate) fn total() -> u64 {
        STEPS.get()
    }

    /// Runs `work`; its result, and how many layers this thread looked at.
    #[cfg(test)]
    pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (T, u64) {
        let before = total();
        let result = work();
        (result, total() - before)
    }
}
