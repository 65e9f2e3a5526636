//! The block of an item, asked for before the key of its filter is looked up.
//!
//! A command of one item has nothing to do while it waits for the item's block, and that wait is nearly all that it costs
//! above a command that does nothing: in a filter of 2 KB, whose blocks are in the processor's caches, BF.EXISTS is within 2 %
//! of the floor, in one of 2.4 MB it was at 1.28 times. Looking up the key is work of that length. So the last filter of a
//! name is remembered, by what it takes to ask for an item's memory (`filter/aim.rs`):
//!
//! ```text
//!   name ─▶ slot: seed, address, geometry ─▶ hash, prefetch ─▶ look up the key ─▶ same seed? then the hash is good,
//!                                                                                 and the block is on its way
//! ```
//!
//! CPU of the server's main thread against the floor in one run, without and with it (of about 540 ns):
//!
//! | filter           | BF.EXISTS, there | absent         | BF.ADD, known  |
//! |------------------|------------------|----------------|----------------|
//! | 2.4 MB           | 1.23 to 1.17     | 1.22 to 1.16   | 1.24 to 1.19   |
//! | 2 KB, not kept   | 1.03 to 1.03     | 1.02 to 1.05   | 1.02 to 1.05   |
//!
//! A slot is a guess. The key may hold another filter by now, or none; then the hash is thrown away, and the prefetch, which
//! reads nothing and cannot fault, was for nothing. An answer never depends on it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::api::Str;
use crate::filter::{Aim, Filter, Hash};

/// Names remembered; a power of two. Two that share a slot take turns in it.
const SLOTS: usize = 64;

/// The fingerprint of a name, and the aim of its filter. The main thread alone reads and writes it.
struct Slot {
    name: AtomicU64,
    aim: [AtomicU64; 3],
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        name: AtomicU64::new(0),
        aim: [const { AtomicU64::new(0) }; 3],
    }
}; SLOTS];

/// An item on its way, and what was guessed about it.
pub(super) struct Ahead<'a> {
    item: &'a [u8],
    name: u64,
    slot: &'static Slot,
    guess: Option<(Aim, Hash)>,
}

impl<'a> Ahead<'a> {
    /// Asks for the item's memory in the filter that `name` held last.
    #[inline]
    pub(super) fn of(name: Str, item: Str<'a>) -> Self {
        let item = item.bytes();
        let name = fingerprint(name.bytes());
        let slot = TABLE.get(name as usize % SLOTS).unwrap_or(&TABLE[0]);
        let guess = (slot.name.load(Relaxed) == name).then(|| {
            let aim = Aim::of_words(slot.aim.each_ref().map(|word| word.load(Relaxed)));
            (aim, aim.ask(item))
        });
        Self {
            item,
            name,
            slot,
            guess,
        }
    }

    /// The item's hash in `filter`, which the name holds. Remembers the filter for the next time.
    #[inline]
    pub(super) fn hash(&self, filter: &Filter) -> Hash {
        let aim = filter.aim();
        if let (Some(aim), Some((guess, hash))) = (aim, self.guess)
            && aim.hashes_as(guess)
        {
            if aim != guess {
                self.slot.keep(self.name, aim);
            }
            return hash;
        }
        if let Some(aim) = aim {
            self.slot.keep(self.name, aim);
        }
        filter.hash(self.item)
    }
}

impl Slot {
    #[cold]
    fn keep(&self, name: u64, aim: Aim) {
        self.name.store(name, Relaxed);
        for (word, value) in self.aim.iter().zip(aim.to_words()) {
            word.store(value, Relaxed);
        }
    }
}

/// Tells most names apart: their length, first and last eight bytes.
#[inline]
fn fingerprint(name: &[u8]) -> u64 {
    let (head, tail) = match (name.first_chunk(), name.last_chunk()) {
        (Some(&head), Some(&tail)) => (u64::from_le_bytes(head), u64::from_le_bytes(tail)),
        _ => (name.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)), 0),
    };
    // The high half of the product depends on every bit.
    (head ^ tail.rotate_left(29) ^ name.len() as u64)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(32)
}
