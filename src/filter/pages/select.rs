//! Select: the place of the i-th one in a word. Only this depends on the processor.
//!
//! ```text
//!   word         0 1 1 0 1 0 0 1      bit 0 at the right
//!   ones           3 2   1     0
//!   place          6 5   3     0      select(2) = 5
//! ```
//!
//! With BMI2, `pdep` puts 1 << i at the i-th one, and the number of trailing zeros is the answer:
//! Pandey, Bender and Johnson, "A Fast x86 Implementation of Select" (2017). Elsewhere counts of
//! ones in halves of halves give it in six steps without a branch.

/// A way to select. Code is compiled once for each.
pub(super) trait Select: Copy {
    /// The place of the `i`-th one of `word`, counted from 0, if it has that many.
    fn in_word(self, word: u64, i: u32) -> u32;
}

/// For every processor.
#[derive(Clone, Copy, Debug)]
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
        let mut place = 0;
        for half in [32, 16, 8] {
            // The ones below the middle of what is left, less those below what is left.
            let ones = sums >> (place + half - 8) & 0xFF;
            place += if ones as u32 <= i { half } else { 0 };
        }
        i -= if place == 0 { 0 } else { (sums >> (place - 8) & 0xFF) as u32 }.min(i);
        for (half, counts, mask) in [(4, fours, 15), (2, twos, 3), (1, word, 1)] {
            let ones = (counts >> place & mask) as u32;
            let up = ones <= i;
            i -= if up { ones } else { 0 };
            place += if up { half } else { 0 };
        }
        place
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod bmi2 {
    use super::Select;
    use crate::filter::allows_extensions;
    use std::arch::x86_64::_pdep_u64;

    /// Proof that the processor has the instructions: no value exists where it has not.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::filter::pages) struct Bmi2(());

    impl Bmi2 {
        /// Returns `None` if the processor does not have the instructions.
        #[inline(always)]
        pub(in crate::filter::pages) fn detected() -> Option<Self> {
            let has = allows_extensions()
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            has.then_some(Self(()))
        }

        /// Calls `work`. Code inlined into it is compiled for the instructions.
        #[inline(always)]
        pub(in crate::filter::pages) fn run<R>(self, work: impl FnOnce() -> R) -> R {
            // SAFETY: `self` exists only if the processor has the instructions.
            unsafe { run(work) }
        }
    }

    impl Select for Bmi2 {
        #[inline(always)]
        fn in_word(self, word: u64, i: u32) -> u32 {
            // SAFETY: `self` exists only if the processor has the instructions.
            unsafe { in_word(word, i) }
        }
    }

    /// Everything inlined into `work` is compiled for the instructions.
    #[inline]
    #[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt")]
    fn run<R>(work: impl FnOnce() -> R) -> R {
        work()
    }

    #[inline]
    #[target_feature(enable = "bmi1,bmi2")]
    fn in_word(word: u64, i: u32) -> u32 {
        _pdep_u64(1 << (i & 63), word).trailing_zeros()
    }
}

/// Runs `$work` with `$select` as the best way to select on this processor.
macro_rules! with_select {
    ($select:ident => $work:expr) => {{
        #[cfg(target_arch = "x86_64")]
        let done = match $crate::filter::pages::select::bmi2::Bmi2::detected() {
            Some($select) => $select.run(|| $work),
            None => {
                let $select = $crate::filter::pages::select::Portable;
                $work
            }
        };
        #[cfg(not(target_arch = "x86_64"))]
        let done = {
            let $select = $crate::filter::pages::select::Portable;
            $work
        };
        done
    }};
}
pub(super) use with_select;
