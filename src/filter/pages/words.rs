//! Numbers of up to 64 bits at any bit of an array of words, and runs of bits that move.
//!
//! ```text
//!   word 0                 word 1                   bit i is bit i % 64 of word i / 64
//!   ┌──────────────┬─────┐ ┌───────┬─────────────┐
//!   │              │ low │ │ high  │             │  a number that crosses two words
//!   └──────────────┴─────┘ └───────┴─────────────┘
//! ```
//!
//! Only the values of words count, never their bytes, so every machine computes the same words.

pub(super) const WORD: usize = u64::BITS as usize;

/// A word whose lowest `bits` bits are set; `bits` is in [0, 63].
#[inline(always)]
pub(super) const fn low(bits: usize) -> u64 {
    (1 << bits) - 1
}

/// The 64 bits from bit `at` on. Bits beyond the array are 0.
#[inline(always)]
pub(super) fn read(words: &[u64], at: usize) -> u64 {
    let (word, shift) = (at / WORD, at % WORD);
    let high = words.get(word + 1).copied().unwrap_or(0);
    // Two shifts, because one by 64 is not defined.
    words[word] >> shift | high << 1 << (WORD - 1 - shift)
}

/// Sets the bits of `value` from bit `at` on. They must be clear, and lie in the array.
#[inline(always)]
pub(super) fn set(words: &mut [u64], at: usize, value: u64) {
    let (word, shift) = (at / WORD, at % WORD);
    words[word] |= value << shift;
    // Also where nothing is left to set: a branch on that would be hard to predict.
    if let Some(next) = words.get_mut(word + 1) {
        *next |= value >> 1 >> (WORD - 1 - shift);
    }
}

/// Replaces the bits of `ones`, the lowest of which is bit `at`, by those of `value`.
#[inline(always)]
pub(super) fn replace(words: &mut [u64], at: usize, ones: u64, value: u64) {
    let (word, shift) = (at / WORD, at % WORD);
    words[word] &= !(ones << shift);
    if let Some(next) = words.get_mut(word + 1) {
        *next &= !(ones >> 1 >> (WORD - 1 - shift));
    }
    set(words, at, value);
}

/// A word without the `width` bits from bit `at` on; those above move down.
#[inline(always)]
pub(super) fn without(word: u64, at: usize, width: usize) -> u64 {
    word & low(at) | (word >> width) & !low(at)
}

/// Clears the bits `from..to`.
#[inline(always)]
pub(super) fn clear(words: &mut [u64], from: usize, to: usize) {
    let (run, edges) = Edges::cut(words, from, to);
    run.fill(0);
    edges.restore(run);
}

/// Moves the bits `from..to` down by `by` places, in [1, 63]; zeros come in at the top.
#[inline(always)]
pub(super) fn shift_down(words: &mut [u64], from: usize, to: usize, by: usize) {
    let (run, edges) = Edges::cut(words, from, to);
    let mut carried = 0;
    for word in run.iter_mut().rev() {
        (carried, *word) = (*word << (WORD - by), *word >> by | carried);
    }
    edges.restore(run);
}

/// Moves the bits `from..to` up by `by` places, in [1, 63]; zeros come in at the bottom.
#[inline(always)]
pub(super) fn shift_up(words: &mut [u64], from: usize, to: usize, by: usize) {
    let (run, edges) = Edges::cut(words, from, to);
    let mut carried = 0;
    for word in run.iter_mut() {
        (carried, *word) = (*word >> (WORD - by), *word << by | carried);
    }
    edges.restore(run);
}

/// The bits around a run that share its first and its last word.
struct Edges {
    below: u64,
    above: u64,
    /// Bits of the first word below the run, and bits of the last word above it.
    masks: (u64, u64),
}

impl Edges {
    /// The words of a run that is not empty, with zeros around the run, and what was there.
    #[inline(always)]
    fn cut(words: &mut [u64], from: usize, to: usize) -> (&mut [u64], Self) {
        let run = &mut words[from / WORD..=(to - 1) / WORD];
        let (first, last) = (low(from % WORD), !(u64::MAX >> (WORD - 1 - (to - 1) % WORD)));
        let end = run.len() - 1;
        let edges = Self { below: run[0] & first, above: run[end] & last, masks: (first, last) };
        run[0] &= !first;
        run[end] &= !last;
        (run, edges)
    }

    #[inline(always)]
    fn restore(self, run: &mut [u64]) {
        let end = run.len() - 1;
        run[0] = run[0] & !self.masks.0 | self.below;
        run[end] = run[end] & !self.masks.1 | self.above;
    }
}
