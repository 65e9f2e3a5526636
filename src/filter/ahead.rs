//! The cache lines of an item, asked for before its filter is at hand.

use super::{family::Family, hash::Hash, layer::Site, scaling::Filter};

/// What it takes to ask for the cache lines of an item: the seed of a filter, and where the blocks of its newest layer are. It
/// may be kept for longer than the filter lives: nothing is read there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ahead {
    seed: u64,
    site: Site,
}

impl Ahead {
    /// That of a filter; `None` of one that gains nothing by it: its newest layer is cached anyway, or not of blocks, or the
    /// hash is another family's.
    #[inline]
    #[must_use]
    pub fn of(filter: &Filter) -> Option<Self> {
        let site = filter.newest().site()?;
        (filter.family() == Family::Native).then(|| Self {
            seed: filter.seed(),
            site,
        })
    }

    /// Hashes an item, and asks for its cache lines.
    #[inline]
    #[must_use]
    pub fn hash(self, item: &[u8]) -> Hashed {
        let hash = Hash::of(item, self.seed);
        self.site.prefetch(hash);
        Hashed { ahead: self, hash }
    }
}

/// An item that was hashed ahead.
#[derive(Clone, Copy, Debug)]
pub struct Hashed {
    ahead: Ahead,
    hash: Hash,
}

impl Hashed {
    /// The item's hash; `None` if this is another filter than was expected, or its newest layer lies elsewhere by now.
    #[inline]
    #[must_use]
    pub fn of(self, filter: &Filter) -> Option<Hash> {
        let Ahead { seed, site } = self.ahead;
        // Blocks are those of a native filter.
        (filter.seed() == seed && filter.newest().is_at(site)).then_some(self.hash)
    }
}
