//! The cache lines of a single item, asked for before its key is looked up.
//!
//! A single command waits for the block of its item, and before it knows the filter it has the
//! server look up the key, some 300 instructions in which that wait could pass. So what names led
//! to last is remembered, and where a name comes again, the item is hashed and its block asked for
//! first:
//!
//! ```text
//!   name ──known?──▶ hash, prefetch ─┐
//!      └──▶ the server looks up the key ─┴─▶ filter ──the same seed and place?──▶ probe
//! ```
//!
//! By then the name may lead to another filter, or to none. What is remembered is an address to
//! prefetch, which is never read, and the hash is used only where it was made under the filter's
//! seed. So nothing depends on what is remembered but time: it needs no lock, and a digest of a
//! name will do for the name.
//!
//! Filters that the processor caches anyway are not remembered. Time of a single command above that
//! of the floor (`examples/floor.rs`), without a memory and with that of the last filter alone,
//! Redis 7.0, server CPU by turns in one run:
//!
//! | filter          | hit           | miss          | new           |
//! |-----------------|---------------|---------------|---------------|
//! | 2 M items       | 0.14 -> 0.08  | 0.13 -> 0.06  | 0.24 -> 0.13  |
//! | 100 M items     | 0.29 -> 0.25  | 0.28 -> 0.19  | 0.34 -> 0.24  |
//! | 1,000 items     | 0.04 -> 0.05  | 0.05 -> 0.04  |               |
//!
//! That of several, told by digests, without a lock or a thread's own memory, takes 50 instructions
//! less of a command's 4,500. Of the floor, means of seven starts of the server for the first row
//! and nine for the second:
//!
//! | filter          | hit            | miss           | new            | known          |
//! |-----------------|----------------|----------------|----------------|----------------|
//! | 2 M items       | 1.120 -> 1.102 | 1.101 -> 1.089 | 1.160 -> 1.147 |                |
//! | 1,000 items     | 1.095 -> 1.077 | 1.085 -> 1.073 |                | 1.062 -> 1.056 |

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::filter::{Filter, Hash, PrefetchHint, PrefetchHintCell, PrehashedItem};

/// Names have a slot by the four highest bits of their digests. Those that share one drive each
/// other out.
static SLOTS: [Slot; 16] = [const { Slot::empty() }; 16];

/// What a name led to last.
struct Slot {
    /// The digest of the name.
    name: AtomicU64,
    ahead: PrefetchHintCell,
}

impl Slot {
    const fn empty() -> Self {
        Self { name: AtomicU64::new(0), ahead: PrefetchHintCell::empty() }
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
    hashed: Option<PrehashedItem>,
}

impl<'a> Lookahead<'a> {
    /// Asks for the item's cache lines, if the name is remembered.
    #[inline]
    pub(crate) fn new(name: &[u8], item: &'a [u8]) -> Self {
        let name = digest(name);
        let slot = Slot::of(name).filter(|slot| slot.name.load(Relaxed) == name);
        let hashed = slot.and_then(|slot| slot.ahead.get()).map(|ahead| ahead.hash(item));
        Self { name, item, hashed }
    }

    /// The item's hash in the filter that the name led to.
    #[inline(always)]
    pub(crate) fn hash(self, filter: &Filter) -> Hash {
        if let Some(hash) = self.hashed.and_then(|hashed| hashed.of(filter)) {
            return hash;
        }
        let ahead = PrefetchHint::of(filter);
        if self.hashed.is_some() || ahead.is_some() {
            remember(self.name, ahead);
        }
        filter.hash(self.item)
    }
}

/// Remembers what a name leads to.
#[inline(never)]
fn remember(name: u64, ahead: Option<PrefetchHint>) {
    if let Some(slot) = Slot::of(name) {
        slot.name.store(name, Relaxed);
        slot.ahead.set(ahead);
    }
}

/// Tells names apart, those by which people tell filters apart: by their length and last 64 bytes.
/// Where it does not, an item is hashed in vain.
#[inline]
fn digest(name: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |digest: u64, word: u64| {
        let product = (digest ^ word).wrapping_mul(MULTIPLIER);
        product ^ product >> 32
    };
    let len = name.len() as u64;
    let name = name.last_chunk::<64>().map_or(name, |end| end);
    if let Some(&last) = name.last_chunk() {
        // It overlaps the words before.
        let words = name.as_chunks().0.iter();
        let digest = words.fold(len, |digest, &word| mix(digest, u64::from_le_bytes(word)));
        mix(digest, u64::from_le_bytes(last))
    } else {
        let word = name.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        mix(len << 56, word)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, iter};

    use super::*;
    use crate::filter::{CellKind, Error, Expansion, Params};

    fn filter(capacity: u64) -> Result<Filter, Error> {
        let params = Params {
            error_rate: 0.01,
            capacity,
            expansion: Expansion::NONSCALING,
            seed: 7,
            cells: CellKind::Bits,
        };
        Filter::new(&params, u64::MAX)
    }

    #[test]
    fn names_of_large_filters_are_remembered() -> Result<(), Error> {
        let (large, small) = (filter(1_000_000)?, filter(100)?);
        let slot = |name: &str| Slot::of(digest(name.as_bytes())).map(std::ptr::from_ref);
        let name = "name";
        let mut rivals = (0..).map(|number| format!("rival:{number}"));
        let rival = rivals.find(|rival| slot(rival) == slot(name)).unwrap_or_default();
        let hash = |name: &str, filter: &Filter| {
            let hash = Lookahead::new(name.as_bytes(), b"item").hash(filter);
            assert_eq!(hash, filter.hash(b"item"));
        };
        let known = |name: &str| Lookahead::new(name.as_bytes(), b"item").hashed.is_some();

        assert!(!known(name));
        hash(name, &large);
        assert!(known(name) && !known(&rival));
        // A small filter takes nobody's place.
        hash(&rival, &small);
        assert!(known(name));
        // The name leads to a small one by now.
        hash(name, &small);
        assert!(!known(name));
        hash(name, &large);
        hash(&rival, &large);
        assert!(!known(name) && known(&rival));
        Ok(())
    }

    /// Names of every length, and each with any one of its bytes changed: of 6,505 digests of 64
    /// bits two are equal with a chance of 1e-12.
    #[test]
    fn names_that_differ_anywhere_have_digests_that_differ() {
        let mut digests = HashSet::new();
        let mut names = 0;
        for len in 0..=64_usize {
            let alphabet: Vec<u8> = (b'a'..=b'z').cycle().take(len).collect();
            for name in [alphabet, vec![b'n'; len], vec![0; len]] {
                let changed = (0..len).filter_map(|at| {
                    let mut changed = name.clone();
                    *changed.get_mut(at)? ^= 128 | 1 << (at % 7);
                    Some(changed)
                });
                for name in changed.chain(iter::once(name.clone())) {
                    names += 1;
                    digests.insert(digest(&name));
                }
            }
        }
        // Of longer ones the length, and the end.
        for len in 65..=135 {
            names += 1;
            digests.insert(digest(&vec![b'n'; len]));
        }
        // The empty name is there three times.
        assert_eq!(digests.len(), names - 2);
    }

    #[test]
    fn names_are_spread_over_the_slots() {
        let slots: Vec<_> = (0..1_600)
            .filter_map(|number| Slot::of(digest(format!("filter:{number}").as_bytes())))
            .collect();
        assert_eq!(slots.len(), 1_600);
        for slot in &SLOTS {
            let names = slots.iter().filter(|&&of| std::ptr::eq(of, slot)).count();
            // 100 expected; six standard deviations are 58.
            assert!(names.abs_diff(100) < 58, "{names}");
        }
    }
}
