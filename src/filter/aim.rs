//! Where in memory a filter looks for an item, in numbers that can be kept beside the filter: to ask for an item's block
//! before the filter itself is at hand (`module/ahead.rs`).

use super::{
    bits,
    hash::Hash,
    layer::{Shape, first_words},
    scaling::Filter,
    sizing::Geometry,
};

/// The seed of a filter, and address and geometry of its newest layer. They are no more than a guess: the filter may have
/// grown, moved or gone since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    seed: u64,
    address: u64,
    geometry: Geometry,
}

impl Aim {
    /// Hashes the item as the filter does, and asks for the memory of its block without waiting. Nothing is read there:
    /// a wrong address costs a cache line.
    #[inline]
    #[must_use]
    pub fn ask(self, item: &[u8]) -> Hash {
        let hash = Hash::of(item, self.seed);
        first_words(self.geometry, hash, |word| {
            bits::prefetch((self.address as usize).wrapping_add(word.wrapping_mul(size_of::<u64>())));
        });
        hash
    }

    /// Whether another aim hashes items as this one does.
    #[inline]
    #[must_use]
    pub fn hashes_as(self, other: Self) -> bool {
        self.seed == other.seed
    }

    /// Three numbers to keep it in.
    #[inline]
    #[must_use]
    pub fn to_words(self) -> [u64; 3] {
        let Geometry {
            blocks,
            block_words,
            probes,
        } = self.geometry;
        let geometry = u64::from(blocks) << 32 | u64::from(block_words) << 8 | u64::from(probes);
        [self.seed, self.address, geometry]
    }

    /// What [`Self::to_words`] made them of. Any numbers will do.
    #[inline]
    #[must_use]
    pub fn of_words([seed, address, geometry]: [u64; 3]) -> Self {
        Self {
            seed,
            address,
            geometry: Geometry {
                blocks: (geometry >> 32) as u32,
                block_words: (geometry >> 8) as u16,
                probes: geometry as u8,
            },
        }
    }
}

impl Filter {
    /// Where it looks for its items; `None` if it hashes by another product's rules, or is small enough to be in the
    /// processor's caches.
    #[inline]
    #[must_use]
    pub fn aim(&self) -> Option<Aim> {
        let newest = self.newest();
        match newest.shape() {
            Shape::Blocked(geometry) if newest.bits().is_uncached() => Some(Aim {
                seed: self.seed(),
                address: newest.bits().words().as_ptr() as u64,
                geometry,
            }),
            _ => None,
        }
    }
}
