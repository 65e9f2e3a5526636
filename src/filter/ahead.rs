//! The cache lines of an item, asked for before its filter is at hand.

use std::{
    ptr::null_mut,
    sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed},
};

use super::{foreign::Family, geometry::Geometry, hash::Hash, layer::BlockAddress, stack::Filter};

/// What it takes to ask for the cache lines of an item: the seed of a filter, and where the blocks
/// of its newest layer are. It may be kept for longer than the filter lives: nothing is read there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefetchHint {
    seed: u64,
    address_of_blocks: BlockAddress,
}

impl PrefetchHint {
    /// That of a filter; `None` of one that gains nothing by it: its newest layer is cached anyway,
    /// or not of blocks, or the hash is another family's.
    #[inline]
    #[must_use]
    pub fn of(filter: &Filter) -> Option<Self> {
        let address_of_blocks = filter.newest().address_of_blocks()?;
        (filter.family() == Family::Native).then(|| Self { seed: filter.seed(), address_of_blocks })
    }

    /// Hashes an item, and asks for its cache lines.
    #[inline]
    #[must_use]
    pub fn hash(self, item: &[u8]) -> PrehashedItem {
        let hash = Hash::of(item, self.seed);
        self.address_of_blocks.prefetch(hash);
        PrehashedItem { ahead: self, hash }
    }
}

/// An item that was hashed ahead.
#[derive(Clone, Copy, Debug)]
pub struct PrehashedItem {
    ahead: PrefetchHint,
    hash: Hash,
}

impl PrehashedItem {
    /// The item's hash; `None` if this is another filter than was expected, or its newest layer
    /// lies elsewhere by now.
    #[inline]
    #[must_use]
    pub fn of(self, filter: &Filter) -> Option<Hash> {
        let PrefetchHint { seed, address_of_blocks } = self.ahead;
        // Blocks are those of a native filter.
        (filter.seed() == seed && filter.newest().is_at(address_of_blocks)).then_some(self.hash)
    }
}

/// Room for an [`PrefetchHint`]. Threads may use it at once: the worst that one finds is a mixture
/// of two, which is as good as that of a filter that went.
#[derive(Debug)]
pub struct PrefetchHintCell {
    seed: AtomicU64,
    words: AtomicPtr<u64>,
    /// Packed: blocks, words of a block, probes. 0, which no filter has: none is in it.
    geometry: AtomicU64,
}

impl PrefetchHintCell {
    /// With none in it.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            seed: AtomicU64::new(0),
            words: AtomicPtr::new(null_mut()),
            geometry: AtomicU64::new(0),
        }
    }

    /// What is in it.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<PrefetchHint> {
        let geometry = self.geometry.load(Relaxed);
        (geometry != 0).then(|| PrefetchHint {
            seed: self.seed.load(Relaxed),
            address_of_blocks: BlockAddress::new(
                self.words.load(Relaxed),
                Geometry {
                    blocks: (geometry >> 32) as u32,
                    block_words: (geometry >> 16) as u16,
                    probes: geometry as u8,
                },
            ),
        })
    }

    /// Puts that in.
    pub fn set(&self, ahead: Option<PrefetchHint>) {
        let Some(PrefetchHint { seed, address_of_blocks }) = ahead else {
            return self.geometry.store(0, Relaxed);
        };
        let Geometry { blocks, block_words, probes } = address_of_blocks.geometry();
        self.seed.store(seed, Relaxed);
        let packed = u64::from(blocks) << 32 | u64::from(block_words) << 16 | u64::from(probes);
        self.geometry.store(packed, Relaxed);
        self.words.store(address_of_blocks.words().cast_mut(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As another thread may find it in the middle of `set`.
    #[test]
    fn of_any_mixture_an_item_can_be_hashed() {
        let cell = PrefetchHintCell::empty();
        cell.words.store(&raw mut *Box::new(0), Relaxed);
        assert_eq!(cell.get(), None, "without a geometry");
        cell.words.store(null_mut(), Relaxed);
        for (block_words, probes) in [(1, 1), (8, 7), (16, 10), (512, 20), (u16::MAX, 255)] {
            let packed = u64::MAX << 32 | u64::from(block_words) << 16 | probes;
            cell.geometry.store(packed, Relaxed);
            let hashed = cell.get().map(|ahead| ahead.hash(b"item").hash);
            assert_eq!(hashed, Some(Hash::of(b"item", 0)));
        }
    }
}
