//! Prefetches the cache lines of an item, also before its filter is known.

use super::{foreign::Tag, geometry::Geometry, hash::Hash, layer::prefetch_item, stack::Filter};

/// The seed of a filter, and address and shape of the blocks of its newest layer. Nothing is read
/// at the address: a hint may outlive its filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefetchHint {
    seed: u64,
    words: *const u64,
    geometry: Geometry,
}

impl PrefetchHint {
    /// The hint for a filter; `None` if its newest layer stays cached, or its hash is not native.
    #[inline]
    pub fn of(filter: &Filter) -> Option<Self> {
        let blocks = filter.newest().blocks()?;
        let words = blocks.bits.words().as_ptr();
        let hint = Self { seed: filter.seed(), words, geometry: blocks.geometry() };
        (blocks.bits.is_uncached() && filter.family == Tag::Native).then_some(hint)
    }

    /// Hashes an item, and prefetches its cache lines; for every filter that this hint
    /// [fits](Self::fits).
    #[inline]
    pub fn hash(&self, item: &[u8]) -> Hash {
        let hash = Hash::of(item, self.seed);
        prefetch_item(self.words, self.geometry, hash);
        hash
    }

    /// Whether the filter has the hint's seed, and its bits at the hint's address. The shape is not
    /// compared: with another shape, prefetches are useless, but harmless.
    #[inline]
    pub fn fits(&self, filter: &Filter) -> bool {
        filter.family == Tag::Native
            && filter.seed() == self.seed
            && filter.newest().bits().words().as_ptr() == self.words
    }
}
