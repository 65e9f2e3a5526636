//! The cache lines of a single item, asked for before its key is looked up.
//!
//! A single command waits for the block of its item, and before it knows the filter it has the server look up the key, some
//! 300 instructions in which that wait could pass. So what names led to last is remembered, and where a name comes again, the
//! item is hashed and its block asked for first:
//!
//! ```text
//!   name ──known?──▶ hash, prefetch ─┐
//!      └──▶ the server looks up the key ─┴─▶ filter ──the same seed and place?──▶ probe
//! ```
//!
//! By then the name may lead to another filter, or to none. What is remembered is an address to prefetch, which is never
//! read, and the hash is used only where it was made under the filter's seed. So nothing depends on what is remembered but
//! time: it needs no lock, and a digest of a name will do for the name.
//!
//! Filters that the processor caches anyway are not remembered. Time of a single command above that of the floor
//! (`examples/floor.rs`), without and with this, Redis 7.0, server CPU by turns in one run:
//!
//! | filter          | hit           | miss          | new           |
//! |-----------------|---------------|---------------|---------------|
//! | 2 M items       | 0.14 -> 0.08  | 0.13 -> 0.06  | 0.24 -> 0.13  |
//! | 100 M items     | 0.29 -> 0.25  | 0.28 -> 0.19  | 0.34 -> 0.24  |
//! | 1,000 items     | 0.04 -> 0.05  | 0.05 -> 0.04  |               |
//!
//! In three later runs of the first row 0.03 to 0.07 less for questions, and 0.01 to 0.06 for additions. That was with the last
//! filter alone, told by its whole name, in a thread's own memory. Several filters and digests take 50 instructions less than
//! that of a command's 4,500; means of seven to nine starts of the server, of the floor:
//!
//! | filter          | hit            | miss           | new, known     |
//! |-----------------|----------------|----------------|----------------|
//! | 2 M items       | 1.120 -> 1.102 | 1.101 -> 1.089 | 1.160 -> 1.147 |
//! | 1,000 items     | 1.095 -> 1.077 | 1.085 -> 1.073 | 1.062 -> 1.056 |

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::filter::{Ahead, AheadCell, Filter, Hash, Hashed};

/// Digests have a slot by their four highest bits.
static SLOTS: [Slot; 16] = [const { Slot::empty() }; 16];

/// What a name led to last.
struct Slot {
    /// The digest of the name.
    name: AtomicU64,
    ahead: AheadCell,
}

impl Slot {
    const fn empty() -> Self {
        Self {
            name: AtomicU64::new(0),
            ahead: AheadCell::empty(),
        }
    }

    /// There is one for every digest.
    #[inline]
    fn of(digest: u64) -> Option<&'static Self> {
        SLOTS.get((digest >> 60) as usize)
    }
}

/// An item of a command on the filter of some name, before the filter is known.
pub(crate) struct Lookahead<'a> {
    /// The digest of the name.
    name: u64,
    item: &'a [u8],
    hashed: Option<Hashed>,
}

impl<'a> Lookahead<'a> {
    /// Asks for the item's cache lines, if the name is remembered.
    #[inline]
    pub(crate) fn new(name: &[u8], item: &'a [u8]) -> Self {
        let name = digest(name);
        let slot = Slot::of(name).filter(|slot| slot.name.load(Relaxed) == name);
        let hashed = slot
            .and_then(|slot| slot.ahead.get())
            .map(|ahead| ahead.hash(item));
        Self { name, item, hashed }
    }

    /// The item's hash in the filter that the name led to.
    #[inline(always)]
    pub(crate) fn hash(self, filter: &Filter) -> Hash {
        if let Some(hash) = self.hashed.and_then(|hashed| hashed.of(filter)) {
            return hash;
        }
        let ahead = Ahead::of(filter);
        if self.hashed.is_some() || ahead.is_some() {
            remember(self.name, ahead);
        }
        filter.hash(self.item)
    }
}

/// Remembers what a name leads to.
#[inline(never)]
fn remember(name: u64, ahead: Option<Ahead>) {
    if let Some(slot) = Slot::of(name) {
        slot.name.store(name, Relaxed);
        slot.ahead.set(ahead);
    }
}

/// Tells names apart, as far as nobody means them to be mistaken for each other: that costs a command some 150 instructions.
#[inline]
fn digest(name: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |digest: u64, word: u64| {
        let product = (digest ^ word).wrapping_mul(MULTIPLIER);
        product ^ product >> 32
    };
    let start = name.len() as u64;
    if let Some(&last) = name.last_chunk() {
        // It overlaps the words before.
        let words = name.as_chunks().0.iter();
        let digest = words.fold(start, |digest, &word| mix(digest, u64::from_le_bytes(word)));
        mix(digest, u64::from_le_bytes(last))
    } else {
        mix(
            start,
            name.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::digest;

    /// Names of every length, and each with any one of its bytes changed. Of 17,000 digests of 64 bits two are equal with a
    /// chance of 1e-11.
    #[test]
    fn names_that_differ_anywhere_have_digests_that_differ() {
        let mut digests = HashSet::new();
        let mut names = 0;
        for len in 0..=130_u8 {
            let name: Vec<u8> = (0..len).map(|i| b'a' + i % 26).collect();
            let changed = (0..usize::from(len)).filter_map(|at| {
                let mut changed = name.clone();
                *changed.get_mut(at)? ^= 1 << (at % 8);
                Some(changed)
            });
            for name in changed.chain([name.clone()]) {
                names += 1;
                digests.insert(digest(&name));
            }
        }
        assert_eq!(digests.len(), names);
    }

    /// Their four highest bits choose a slot.
    #[test]
    fn names_are_spread_over_the_slots() {
        let mut slots = [0_u32; 16];
        for number in 0..1_600 {
            let digest = digest(format!("filter:{number}").as_bytes());
            if let Some(slot) = slots.get_mut((digest >> 60) as usize) {
                *slot += 1;
            }
        }
        // 100 each; six standard deviations are 58.
        assert!(slots.iter().all(|slot| slot.abs_diff(100) < 58), "{slots:?}");
    }
}
