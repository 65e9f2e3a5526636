//! The counting Bloom layer: a counter of four bits in the place of each bit of a blocked layer.
//!
//! ```text
//!   hash.block ──scale──▶ block b of 0 .. blocks
//!   ┌──────────┬──────────┬──────────┬ ─ ─ ─ ┬──────────┐
//!   │ block 0  │ block 1  │    b     │       │          │  block_words * 4 words of 16 counters
//!   └──────────┴──────────┴──┬───┬───┴ ─ ─ ─ ┴──────────┘
//!                            └───┴── k counters in it, where a blocked layer has k bits
//!   word   ┌────┬────┬────┬ ─ ─ ┬────┐
//!          │ c0 │ c1 │ c2 │     │ c15│      counter i of a block is nibble i % 16 of word i / 16,
//!          └────┴────┴────┴ ─ ─ ┴────┘      least significant first
//! ```
//!
//! Fan, Cao, Almeida and Broder, "Summary Cache" (2000), in blocks. An addition increments the
//! item's counters, a deletion decrements them. An item is present if none of its counters is 0.
//! Positions, blocks and probes are those of a blocked layer of the same geometry, so the nonzero
//! counters are where that layer has set bits, and the rate is equal. The price is four times the
//! memory.
//!
//! A counter that reaches 15 no longer knows how many items it has, so it stays at 15 for ever. It
//! may keep a deleted item; it never loses a present one. At the capacity the mean of the counters
//! is about 0.7, and about one in 10^14 reaches 15 if no item is added twice. So the items that
//! reach 15 are those added over and over.
//!
//! If the probe sequence of an item contains a counter twice, an addition increments it twice and a
//! deletion decrements it twice. To treat it once, every sequence would have to be searched for
//! repetitions.
//!
//! The layer keeps the number of counters that are not 0 and the number of those at 15. Both are
//! updated whenever a counter is incremented, decremented, or read from a stored layer
//! ([`CountingLayer::merge`] is the only way in). The first number tells how many items there are
//! (`fullness.rs`).
//!
//! Each change updates a running hash, (h ^ item) * odd, of the changes and their order. Parts of a
//! layer from before and after a change do not fit together, nor do parts of two copies that
//! changed separately. So chunks of a dump carry this hash (`codec/native/dump.rs`).
//!
//! Above the cache size, lines that were not prefetched dominate. A block at 1 % spans five cache
//! lines, of which an item needs three or four, so each word of the item is prefetched, not the
//! whole block. In older layers, where most lookups miss, only the words of the first group are
//! prefetched.

pub(super) mod counters;
mod fullness;

use crate::filter::{
    error::Error,
    geometry::{Geometry, PROBE_GROUP},
    hash::{
        Hash,
        probe::{all_positions, scale},
    },
    layer::{bits::Bits, item_set::ItemSet, shape::Counting},
};

use counters::{SATURATED, WIDTH, nonzero, place, saturated};
use fullness::Fullness;

/// What a change adds to the running hash.
const INCREMENT: u64 = 0;
const DECREMENT: u64 = u64::MAX;

/// An array of counters, cut into equal blocks.
#[derive(Debug)]
pub struct CountingLayer {
    bits: Bits,
    shape: Counting,
    fullness: Fullness,
    /// Counters that are not 0.
    nonzero: u64,
    /// Counters at 15.
    saturated: u64,
    /// Deletions that this server refused while this was the newest layer, and those of layers that
    /// were dropped then. Neither stored nor copied.
    pub(in crate::filter) refused_deletions: u64,
}

/// What a deletion did to a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decremented {
    /// Whether a counter changed.
    pub(super) any: bool,
    /// Whether the item tests absent now.
    pub(super) absent: bool,
    /// Whether all counters are 0 now.
    pub(super) last: bool,
}

impl CountingLayer {
    /// Makes a layer of the given shape, for `capacity` items at `error_rate`, over counters that
    /// are all 0. The array may still be shorter than the shape; it has its full length before the
    /// first query.
    #[must_use]
    pub fn new(shape: Counting, capacity: u64, error_rate: f64, bits: Bits) -> Self {
        Self {
            bits,
            shape,
            fullness: Fullness::new(&shape, capacity, error_rate),
            nonzero: 0,
            saturated: 0,
            refused_deletions: 0,
        }
    }

    /// Copies the layer.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn duplicate(&self) -> Result<Self, Error> {
        Ok(Self { bits: self.bits.duplicate()?, refused_deletions: 0, ..*self })
    }

    /// The shape.
    #[must_use]
    pub fn shape(&self) -> Counting {
        self.shape
    }

    /// The counters, as bits.
    #[must_use]
    pub fn bits(&self) -> &Bits {
        &self.bits
    }

    /// The counters, mutable, to move them or to make room for more. The caller must not change
    /// them.
    pub(super) fn bits_to_move(&mut self) -> &mut Bits {
        &mut self.bits
    }

    /// Sets the bits of `words`, starting at word `from` of the layer. Returns false when `words`
    /// ends before the layer does.
    pub(super) fn merge(&mut self, from: usize, words: &mut impl Iterator<Item = u64>) -> bool {
        let (mut more_nonzero, mut more_saturated) = (0, 0);
        let more = self.bits.merge(from, words, |old, new| {
            more_nonzero += u64::from(nonzero(new) - nonzero(old));
            more_saturated += u64::from(saturated(new) - saturated(old));
        });
        self.nonzero += more_nonzero;
        self.saturated += more_saturated;
        more
    }

    /// Adds the counters of `others`, layers of the same geometry, and `own` times those of this
    /// layer itself. A counter stays at 15.
    pub(super) fn add_all(&mut self, own: usize, others: &[&Self]) {
        let (mut more_nonzero, mut more_saturated) = (0, 0);
        let bits: Vec<&Bits> = others.iter().map(|other| &other.bits).collect();
        self.bits.combine(own, &bits, counters::add, |old, new| {
            for (&old, &new) in old.iter().zip(new) {
                more_nonzero += u64::from(nonzero(new) - nonzero(old));
                more_saturated += u64::from(saturated(new) - saturated(old));
            }
        });
        let merged = std::iter::repeat_n((self.shape, self.nonzero), own)
            .chain(others.iter().map(|other| (other.shape, other.nonzero)));
        // An empty layer changes nothing.
        for (shape, _) in merged.filter(|&(_, nonzero)| nonzero > 0) {
            self.shape.merge(shape);
        }
        self.nonzero += more_nonzero;
        self.saturated += more_saturated;
    }

    /// Counters that are not 0.
    #[must_use]
    pub fn nonzero(&self) -> u64 {
        self.nonzero
    }

    /// Share of counters that are not 0, in [0, 1].
    pub(in crate::filter) fn fill(&self) -> f64 {
        self.nonzero as f64 / self.shape.counters() as f64
    }

    /// Counters at 15.
    #[must_use]
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// The number of items in a layer that has counted `counted` (`fullness.rs`).
    // Not inlined, like `is_full`: filters of bits share the callers, and their path stays short.
    #[inline(never)]
    pub(super) fn items(&self, counted: u64) -> u64 {
        self.fullness.items(&self.shape, counted, self.nonzero)
    }

    /// Returns whether a layer that has counted `counted` is full (`fullness.rs`).
    #[inline(never)]
    pub(super) fn is_full(&self, counted: u64) -> bool {
        self.fullness.is_full(&self.shape, counted, self.nonzero)
    }

    /// The first word of the item's block, and the number of its words.
    #[inline]
    fn block(&self, hash: Hash) -> (usize, usize) {
        let words = usize::from(self.shape.geometry.block_words) * WIDTH;
        let block = scale(hash.block, u64::from(self.shape.geometry.blocks)) as usize;
        (block * words, words)
    }

    /// Calls `test` with the positions of the item's counters, four at a time, until it returns
    /// false. Returns whether it never did.
    #[inline(always)]
    fn all_positions(&self, hash: Hash, test: impl FnMut(&[u64]) -> bool) -> bool {
        all_positions(hash, self.shape.geometry, test)
    }

    /// Prefetches the cache lines that the item needs.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        self.prefetch_counters(hash, self.shape.geometry.probes);
    }

    /// Prefetches the cache lines of the item's first `count` counters.
    #[inline]
    fn prefetch_counters(&self, hash: Hash, count: u8) {
        if self.bits.is_uncached() {
            let (start, _) = self.block(hash);
            let first = Geometry { probes: count, ..self.shape.geometry };
            all_positions(hash, first, |positions| {
                let words = positions.iter().map(|&at| place(at).0);
                words.for_each(|word| self.bits.prefetch(start + word));
                true
            });
        }
    }

    /// Prefetches the first probe group of each of these items. It is enough for most items, which
    /// are absent from all layers but one.
    #[inline(never)]
    pub(super) fn prefetch_each(&self, hashes: &[Hash], items: ItemSet) {
        items.members().for_each(|i| self.prefetch_counters(hashes[i], PROBE_GROUP));
    }

    /// Returns which of these items are present.
    #[inline(never)]
    pub(super) fn filter_present(&self, hashes: &[Hash], items: ItemSet) -> ItemSet {
        items.keep(|i| u64::from(self.contains(hashes[i])))
    }

    /// Returns whether none of the item's counters is 0.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: Hash) -> bool {
        let (start, words) = self.block(hash);
        let block = &self.bits.words()[start..start + words];
        self.all_positions(hash, |positions| {
            // A counter of 0 wraps around, which sets the highest bit.
            let less_one =
                |(word, shift): (usize, u32)| (block[word] >> shift & SATURATED).wrapping_sub(1);
            let any = positions.iter().fold(0, |any, &at| any | less_one(place(at)));
            any >> 63 == 0
        })
    }

    /// The smallest of the item's counters, at most 15.
    #[inline]
    #[must_use]
    pub fn least(&self, hash: Hash) -> u64 {
        let (start, words) = self.block(hash);
        let block = &self.bits.words()[start..start + words];
        let mut least = SATURATED;
        self.all_positions(hash, |positions| {
            for (word, shift) in positions.iter().map(|&at| place(at)) {
                least = least.min(block[word] >> shift & SATURATED);
            }
            least > 0
        });
        least
    }

    /// Increments the item's counters, and returns whether it tested absent before.
    #[inline(never)]
    pub fn increment(&mut self, hash: Hash) -> bool {
        let (start, words) = self.block(hash);
        let (mut nonzero, mut saturated) = (0, 0);
        let geometry = self.shape.geometry;
        let block = &mut self.bits.words_mut()[start..start + words];
        all_positions(hash, geometry, |positions| {
            for (word, shift) in positions.iter().map(|&at| place(at)) {
                let count = block[word] >> shift & SATURATED;
                // One branch for 14 and 15, rarely taken.
                if count >= SATURATED - 1 {
                    if count == SATURATED {
                        continue;
                    }
                    saturated += 1;
                }
                block[word] += 1 << shift;
                nonzero += u64::from(count == 0);
            }
            true
        });
        self.saturated += saturated;
        self.nonzero += nonzero;
        self.shape.change(hash, INCREMENT);
        nonzero > 0
    }

    /// Decrements those of the item's counters that are neither 0 nor 15. Returns `None`, and
    /// changes nothing, if the item tests absent.
    #[inline(never)]
    pub(super) fn decrement(&mut self, hash: Hash) -> Option<Decremented> {
        // Tested first: a write that is undone would still copy the page while the server forks for
        // a snapshot.
        if !self.contains(hash) {
            return None;
        }
        let (start, words) = self.block(hash);
        let (mut any, mut cleared) = (false, 0);
        let geometry = self.shape.geometry;
        let block = &mut self.bits.words_mut()[start..start + words];
        all_positions(hash, geometry, |positions| {
            for (word, shift) in positions.iter().map(|&at| place(at)) {
                let count = block[word] >> shift & SATURATED;
                // In an item that was never added, the sequence may contain a counter of 1 twice.
                if count == 0 || count == SATURATED {
                    continue;
                }
                block[word] -= 1 << shift;
                any = true;
                cleared += u64::from(count == 1);
            }
            true
        });
        if any {
            self.nonzero -= cleared;
            self.shape.change(hash, DECREMENT);
            self.shape.deletions = match self.nonzero {
                0 => 0,
                _ => self.shape.deletions.saturating_add(1),
            };
        }
        Some(Decremented { any, absent: cleared > 0, last: self.nonzero == 0 })
    }
}
