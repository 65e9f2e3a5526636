//! The cache lines of an item, prefetched before its filter is at hand.

use super::{foreign::Family, hash::Hash, layer::BlockAddress, stack::Filter};

/// What it takes to prefetch the cache lines of an item: the seed of a filter, and where the blocks
/// of its newest layer are. It may be kept for longer than the filter lives: nothing is read there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefetchHint {
    seed: u64,
    blocks: BlockAddress,
}

impl PrefetchHint {
    /// The hint for a filter; `None` if a prefetch gains nothing: the newest layer is cached
    /// anyway, or has no blocks, or the hash is not the native one.
    #[inline]
    #[must_use]
    pub fn of(filter: &Filter) -> Option<Self> {
        let blocks = filter.newest().address_of_blocks()?;
        (filter.family() == Family::Native).then(|| Self { seed: filter.seed(), blocks })
    }

    /// Hashes an item, and prefetches its cache lines. The hash is that of any filter that this
    /// hint [fits](Self::fits).
    #[inline]
    #[must_use]
    pub fn hash(&self, item: &[u8]) -> Hash {
        let hash = Hash::of(item, self.seed);
        self.blocks.prefetch(hash);
        hash
    }

    /// Whether the filter has this seed, and its newest layer has its blocks there.
    #[inline]
    #[must_use]
    pub fn fits(&self, filter: &Filter) -> bool {
        // Only native filters have blocks.
        filter.seed() == self.seed && filter.newest().is_at(self.blocks)
    }
}
