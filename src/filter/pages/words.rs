//! Bits in an array of words: numbers, runs that move, and the place of the i-th one of a word.
//!
//! ```text
//!   word 0                 word 1                   bit i is bit i % 64 of word i / 64
//!   ┌──────────────┬─────┐ ┌───────┬─────────────┐
//!   │              │ low │ │ high  │             │  a number that crosses two words
//!   └──────────────┴─────┘ └───────┴─────────────┘
//! ```
//!
//! Only the values of words count, never their bytes, so every machine computes the same words.
//!
//! The i-th one is found with `pdep` of BMI2: Pandey, Bender and Johnson, "A Fast x86
//! Implementation of Select" (2017). Elsewhere, counts of ones give it without a branch.

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
    in_run(words, from, to, |run| run.fill(0));
}

/// Moves the bits `from..to` down by `by` places, in [1, 63]; zeros come in at the top.
#[inline(always)]
pub(super) fn shift_down(words: &mut [u64], from: usize, to: usize, by: usize) {
    in_run(words, from, to, |run| {
        let mut carried = 0;
        for word in run.iter_mut().rev() {
            (carried, *word) = (*word << (WORD - by), *word >> by | carried);
        }
    });
}

/// Moves the bits `from..to` up by `by` places, in [1, 63]; zeros come in at the bottom.
#[inline(always)]
pub(super) fn shift_up(words: &mut [u64], from: usize, to: usize, by: usize) {
    in_run(words, from, to, |run| {
        let mut carried = 0;
        for word in run {
            (carried, *word) = (*word >> (WORD - by), *word << by | carried);
        }
    });
}

/// Changes the bits `from..to`; there is at least one. `change` gets their words, with zeros around
/// the run. What was there is put back.
#[inline(always)]
fn in_run(words: &mut [u64], from: usize, to: usize, change: impl FnOnce(&mut [u64])) {
    let run = &mut words[from / WORD..=(to - 1) / WORD];
    let (below, above) = (low(from % WORD), !(u64::MAX >> (WORD - 1 - (to - 1) % WORD)));
    let end = run.len() - 1;
    let (first, last) = (run[0] & below, run[end] & above);
    run[0] &= !below;
    run[end] &= !above;
    change(run);
    run[0] = run[0] & !below | first;
    run[end] = run[end] & !above | last;
}

/// A way to find the `i`-th one of a word. Code is compiled once for each.
pub(super) trait Select: Copy {
    /// The place of the `i`-th one, counted from 0, if the word has that many.
    fn in_word(self, word: u64, i: u32) -> u32;
}

/// For every processor.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Select for Portable {
    #[inline(always)]
    fn in_word(self, word: u64, mut i: u32) -> u32 {
        // Ones of each two, four and eight bits, side by side.
        let twos = word - (word >> 1 & 0x5555_5555_5555_5555);
        let fours = (twos & 0x3333_3333_3333_3333) + (twos >> 2 & 0x3333_3333_3333_3333);
        let eights = (fours + (fours >> 4)) & 0x0F0F_0F0F_0F0F_0F0F;
        // Byte k has the ones of bytes 0 to k: at most 64, so nothing is carried.
        let sums = eights.wrapping_mul(0x0101_0101_0101_0101);
        // A bit for each byte whose sum is at most i: these bytes lie below the place.
        let tops = 0x8080_8080_8080_8080;
        let below = (((u64::from(i) * 0x0101_0101_0101_0101) | tops) - sums) & tops;
        let mut place = below.count_ones() * 8;
        i -= (sums << 8 >> place & 0xFF) as u32;
        for (half, counts, mask) in [(4, fours, 15), (2, twos, 3), (1, word, 1)] {
            let ones = (counts >> place & mask) as u32;
            let up = ones <= i;
            i -= if up { ones } else { 0 };
            place += if up { half } else { 0 };
        }
        place
    }
}

/// For processors with BMI2: no value exists elsewhere.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Bmi2(());

#[cfg(target_arch = "x86_64")]
impl Bmi2 {
    #[inline(always)]
    pub(super) fn detected() -> Option<Self> {
        let has = crate::filter::allows_extensions()
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        has.then_some(Self(()))
    }

    /// Calls `work`. Code inlined into it is compiled for the instructions.
    #[inline(always)]
    pub(super) fn run<R>(self, work: impl FnOnce() -> R) -> R {
        #[inline]
        #[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt")]
        fn run<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        // SAFETY: `self` exists only if the processor has the instructions.
        unsafe { run(work) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Select for Bmi2 {
    #[inline(always)]
    fn in_word(self, word: u64, i: u32) -> u32 {
        // SAFETY: `self` exists only if the processor has the instructions.
        unsafe { std::arch::x86_64::_pdep_u64(1 << (i & 63), word) }.trailing_zeros()
    }
}

/// Runs `$work` with `$select` as the best way to select on this processor.
macro_rules! with_select {
    ($select:ident => $work:expr) => {{
        #[cfg(target_arch = "x86_64")]
        let done = match $crate::filter::pages::words::Bmi2::detected() {
            Some($select) => $select.run(|| $work),
            None => {
                let $select = $crate::filter::pages::words::Portable;
                $work
            }
        };
        #[cfg(not(target_arch = "x86_64"))]
        let done = {
            let $select = $crate::filter::pages::words::Portable;
            $work
        };
        done
    }};
}
pub(super) use with_select;
