//! The counting Bloom layer: where the blocked layer has a bit, this one has a counter of four
//! bits.
//!
//! ```text
//!   hash.block ──scale──▶ block b of 0 .. blocks
//!   ┌──────────┬──────────┬──────────┬ ─ ─ ─ ┬──────────┐
//!   │ block 0  │ block 1  │    b     │       │          │     each block_words * 4 words of 16 counters
//!   └──────────┴──────────┴──┬───┬───┴ ─ ─ ─ ┴──────────┘
//!                            └───┴── k counters inside it, at the positions that would be k bits (probe.rs)
//!   word   ┌────┬────┬────┬ ─ ─ ┬────┐
//!          │ c0 │ c1 │ c2 │     │ c15│      counter i of a block is nibble i % 16 of its word i / 16, the least
//!          └────┴────┴────┴ ─ ─ ┴────┘      significant first; an item is there if none of its counters is 0
//! ```
//!
//! Fan, Cao, Almeida and Broder, "Summary Cache" (2000), in blocks. An addition raises the item's
//! counters, a deletion lowers them. A counter that reaches 15 no longer knows how many items it
//! stands for, so it stays there for ever: it may keep a deleted item, it never loses one that is
//! in. At the capacity a counter has a mean of some 0.7, and one in some 10^14 reaches 15 if no
//! item is added twice; so it is the items that are added over and over that get stuck.
//!
//! An item whose walk meets a counter twice raises it twice, and lowers it twice. To do it once
//! would mean to look for the meeting on every walk.
//!
//! The counters that are not 0 are counted, and those at 15, wherever one is raised, lowered, or
//! read from a stored layer ([`CountingLayer::merge`] is the only way in): the first number tells
//! how many items there are (`fullness.rs`).
//!
//! Each change goes into a running hash, (h ^ item) * odd, of what was raised or lowered and in
//! which order. Halves of a layer from before and after a change do not fit together, nor do halves
//! of two copies that changed since: chunks of a dump carry the hash (`codec/native/dump.rs`).
//!
//! Positions, blocks and probes are those of a blocked layer of the same geometry: the counters
//! that are not 0 stand where its bits would be set, and the rate is the same to the item. The
//! price is four times its memory.
//!
//! Beyond the caches time goes by lines that nobody asked for in time: a block of 2,048 bits lies
//! in five of them (a large array starts 16 bytes into a line), of which an item at 1 % needs three
//! or four. So each word of the item is prefetched, by its walk. Nanoseconds an item in process, in
//! batches of 100 at 1 %, 30 % in, median of 31 rounds by turns (deletions are set beside plain
//! additions); in brackets what it is to the plain filter, whose additions were not yet one walk
//! (`probing.rs`):
//!
//! | work               | plain | all lines of the block | the item's words |
//! |--------------------|-------|------------------------|------------------|
//! | add, 20,000 items  | 24    | 26 (1.10)              | 28 (1.20)        |
//! | delete             |       | 38 (1.60)              | 38 (1.62)        |
//! | add, 2 M items     | 29    | 52 (1.80)              | 48 (1.67)        |
//! | delete             |       | 56 (2.00)              | 55 (1.91)        |
//! | hit                | 21    | 47                     | 40               |
//! | add, 20 M items    | 44    | 92 (2.08)              | 69 (1.60)        |
//! | delete             |       | 100 (2.30)             | 79 (1.83)        |
//! | hit                | 34    | 86                     | 63               |
//!
//! (These and what follows were measured before four counters shared 256 bytes, `probe.rs`.) Fewer
//! will not do: every second line takes 140 and 170 ns to add, the first four words 140 and 117.
//! Prefetching for a write changes nothing. Of the older layers of a stack the first four words are
//! enough, since most items are not there: in 12 layers, 4.5 million items, a miss takes 490 ns, a
//! hit 400, a deletion 710; with all words 840, 515 and 950; with whole blocks 800, 370 and 1,040.
//! Two stages, as in a blocked layer, do as well there, and cost the hits in a single layer 3 to 9
//! ns. Instructions (callgrind, with those of the bench): add 366 before the counters that are not
//! 0 were counted, 471 now; delete 564 before, 624 now. To keep the places of the test for the
//! change, in an array on the stack, takes as many as to walk twice.

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

/// Directions of a change.
const RAISED: u64 = 0;
const LOWERED: u64 = u64::MAX;

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
    /// Deletions that were refused while this was the newest layer. Of this server alone: neither
    /// stored nor copied.
    pub(super) refused: u64,
}

/// What a deletion did to a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lowered {
    /// Whether a counter went down.
    pub(super) any: bool,
    /// Whether the item tests absent now.
    pub(super) absent: bool,
    /// Whether no counter is raised any more.
    pub(super) last: bool,
}

impl CountingLayer {
    /// A layer of the given shape, made for `capacity` items at `error_rate`, over these counters:
    /// all 0, and as many as it has before it is asked anything.
    #[must_use]
    pub fn new(shape: Counting, capacity: u64, error_rate: f64, bits: Bits) -> Self {
        Self {
            bits,
            shape,
            fullness: Fullness::new(&shape, capacity, error_rate),
            nonzero: 0,
            saturated: 0,
            refused: 0,
        }
    }

    /// A copy.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn duplicate(&self) -> Result<Self, Error> {
        Ok(Self { bits: self.bits.duplicate()?, refused: 0, ..*self })
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

    /// The counters, to move or to make room for more, and not to change.
    pub(super) fn bits_to_move(&mut self) -> &mut Bits {
        &mut self.bits
    }

    /// Sets the bits of `words` from word `from` on; false when there are no more of them.
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

    /// Counters that are not 0.
    #[must_use]
    pub fn nonzero(&self) -> u64 {
        self.nonzero
    }

    /// Share of counters that are not 0, in [0, 1].
    pub(super) fn fill(&self) -> f64 {
        self.nonzero as f64 / self.shape.counters() as f64
    }

    /// Counters at 15.
    #[must_use]
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// Items in it, if it counted `counted` (`fullness.rs`).
    // Not inlined, as what follows: both are asked of layers of bits too, and their path stays
    // short.
    #[inline(never)]
    pub(super) fn items(&self, counted: u64) -> u64 {
        self.fullness.items(&self.shape, counted, self.nonzero)
    }

    /// Whether these are as many as it was made for.
    #[inline(never)]
    pub(super) fn is_full(&self, counted: u64) -> bool {
        self.fullness.is_full(&self.shape, counted, self.nonzero)
    }

    /// The words of the item's block: the first, and how many.
    #[inline]
    fn block(&self, hash: Hash) -> (usize, usize) {
        let words = usize::from(self.shape.geometry.block_words) * WIDTH;
        let block = scale(hash.block, u64::from(self.shape.geometry.blocks)) as usize;
        (block * words, words)
    }

    /// Hands the positions of the item's counters to `test`, four by four, until it says no;
    /// whether it never did.
    #[inline(always)]
    fn all_positions(&self, hash: Hash, test: impl FnMut(&[u64]) -> bool) -> bool {
        all_positions(hash, self.shape.geometry, test)
    }

    /// Asks for the cache lines that the item needs, without waiting for them.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        self.prefetch_first(hash, self.shape.geometry.probes);
    }

    /// The same for its first `count` counters.
    #[inline]
    fn prefetch_first(&self, hash: Hash, count: u8) {
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

    /// Asks for the lines that tell of most of these items that they are not there, as it is in all
    /// layers but one.
    #[inline(never)]
    pub(super) fn prefetch_each(&self, hashes: &[Hash], items: ItemSet) {
        items.members().for_each(|i| self.prefetch_first(hashes[i], PROBE_GROUP));
    }

    /// Which of these items are there.
    #[inline(never)]
    pub(super) fn filter_present(&self, hashes: &[Hash], items: ItemSet) -> ItemSet {
        items.keep(|i| u64::from(self.contains(hashes[i])))
    }

    /// Whether none of the item's counters is 0.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: Hash) -> bool {
        let (start, words) = self.block(hash);
        let block = &self.bits.words()[start..start + words];
        self.all_positions(hash, |positions| {
            // Of a counter of 0 the highest bit is set then.
            let less_one =
                |(word, shift): (usize, u32)| (block[word] >> shift & SATURATED).wrapping_sub(1);
            let any = positions.iter().fold(0, |any, &at| any | less_one(place(at)));
            any >> 63 == 0
        })
    }

    /// The least of the item's counters, at most 15.
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

    /// Raises the item's counters; whether it tested absent before.
    #[inline(never)]
    pub fn raise(&mut self, hash: Hash) -> bool {
        let (start, words) = self.block(hash);
        let (mut nonzero, mut saturated) = (0, 0);
        let geometry = self.shape.geometry;
        let block = &mut self.bits.words_mut()[start..start + words];
        all_positions(hash, geometry, |positions| {
            for (word, shift) in positions.iter().map(|&at| place(at)) {
                let count = block[word] >> shift & SATURATED;
                // One branch for both ends, hardly ever taken.
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
        self.shape.change(hash, RAISED);
        nonzero > 0
    }

    /// Lowers those of the item's counters that are neither 0 nor stuck; `None`, and nothing
    /// happens, if it tests absent.
    #[inline(never)]
    pub(super) fn lower(&mut self, hash: Hash) -> Option<Lowered> {
        // Asked first: a write that must be taken back would copy the page while the server forks
        // for a snapshot.
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
                // Of an item that was never added a counter at 1 may be met twice.
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
            self.shape.change(hash, LOWERED);
            self.shape.deletions = match self.nonzero {
                0 => 0,
                _ => self.shape.deletions.saturating_add(1),
            };
        }
        Some(Lowered { any, absent: cleared > 0, last: self.nonzero == 0 })
    }
}
