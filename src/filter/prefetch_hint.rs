//! Prefetches the cache lines of an item, also before its filter is known.

use super::{foreign::Tag, hash::Hash, layer::BlockAddress, stack::Filter};

/// The seed of a filter, and the address of the blocks of its newest layer, which is never read: a
/// hint may outlive its filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefetchHint {
    seed: u64,
    blocks: BlockAddress,
}

impl PrefetchHint {
    /// The hint for a filter; `None` if its newest layer stays cached, or its hash is not native.
    #[inline]
    pub fn of(filter: &Filter) -> Option<Self> {
        let blocks = filter.newest().blocks()?.block_address()?;
        (filter.family == Tag::Native).then(|| Self { seed: filter.seed(), blocks })
    }

    /// Hashes an item, and prefetches its cache lines; for every filter that this hint
    /// [fits](Self::fits).
    #[inline]
    pub fn hash(&self, item: &[u8]) -> Hash {
        let hash = Hash::of(item, self.seed);
        self.blocks.prefetch(hash);
        hash
    }

    /// Whether the filter has the hint's seed, and its bits at the hint's address. The shape is not
    /// compared: with another shape, prefetches are useless, but harmless.
    #[inline]
    pub fn fits(&self, filter: &Filter) -> bool {
        filter.family == Tag::Native
            && filter.seed() == self.seed
            && filter.newest().bits().words().as_ptr() == self.blocks.words
    }
}
