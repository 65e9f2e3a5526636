//! Four probes in one look: on x86-64 processors with AVX-512VL, most of Intel's servers since
//! Skylake and of AMD's since Zen 4.
//!
//! ```text
//!   places   ┌────┬────┬────┬────┐      the same 64 bits in four lanes
//!            └────┴────┴────┴────┘
//!   at       places >> 61 - 9 i         its three lowest bits: which word of the line; two choose from a half, one the half
//!   bit      1 rotated left by places >> 55 - 9 i         (a rotation goes by the lowest six bits of its count)
//!   missing  lanes in which word & bit = 0
//! ```
//!
//! Nine instructions for 28, in registers of 256 bits: for those of 512 processors slow down, some
//! of them much, and most of all when they meet one after a pause. Which code is taken is decided
//! for a chunk of items, because a function that is compiled for these instructions cannot be part
//! of one that is not; single items are looked for in plain code, where that call would cost more
//! than it gains.
//!
//! CPU time in one process, of that in plain code (`make compare REV=0683694`, arrays on whole
//! lines, batches of 100):
//!
//! | filter                      | hit  | miss | new  |
//! |-----------------------------|------|------|------|
//! | 2 M items at 1 %            | 0.82 | 0.82 | 0.86 |
//! | 2 M items at 0.01 %         | 0.84 | 0.93 | 0.87 |
//! | 100 M items at 1 %          | 0.79 | 0.84 | 0.80 |
//! | 8 layers, 0.8 M items, 1 %  | 0.83 | 0.73 | 0.77 |
//! | 12 layers, 4.2 M items, 1 % | 0.89 | 0.81 | 0.83 |
//!
//! Also measured, and not kept: one choice from both halves, of which the compiler makes one from a
//! register of 512 bits (0.82, 0.89 and 0.77 in the first row; 0.78 of misses in 12 layers); eight
//! probes at once in such registers (0.83, 0.94 and 0.94; 0.83); the same look with AVX2, which has
//! no test into a mask (0.89, 0.90 and 0.9; 0.87); plain code compiled for BMI2 (0.91, 0.98 and
//! 0.86; 1.07).

pub(super) use code::Avx512;

#[cfg(all(target_arch = "x86_64", not(feature = "portable")))]
mod code {
    use std::arch::x86_64::{
        __m256i, _mm256_mask_permutexvar_epi64, _mm256_permutexvar_epi64, _mm256_rolv_epi64,
        _mm256_set1_epi64x, _mm256_setr_epi64x, _mm256_srlv_epi64, _mm256_test_epi64_mask,
        _mm256_testn_epi64_mask,
    };

    use crate::filter::{
        geometry::PROBE_GROUP,
        hash::probe::ProbeGroup,
        layer::blocked::line_probe::{Line, LineProbe},
    };

    /// That the processor has the instructions: there is none where it has not.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::filter::layer::blocked) struct Avx512(());

    impl Avx512 {
        /// `None` where the processor has not.
        pub(in crate::filter::layer::blocked) fn detected() -> Option<Self> {
            let has = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2");
            has.then_some(Self(()))
        }
    }

    impl LineProbe for Avx512 {
        #[inline(always)]
        fn run<R>(self, work: impl FnOnce() -> R) -> R {
            // SAFETY: the processor has the instructions, or there would be no `self`.
            unsafe { run(work) }
        }

        #[inline(always)]
        fn set_in_line(self, line: &Line, group: ProbeGroup, count: u8) -> u64 {
            debug_assert!(count <= PROBE_GROUP);
            // SAFETY: as above.
            let missing = unsafe { missing(line, group) };
            u64::from(missing & ((1 << count) - 1) == 0)
        }
    }

    /// Whatever is inlined here is compiled for the instructions.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2")]
    fn run<R>(work: impl FnOnce() -> R) -> R {
        work()
    }

    /// Which of four bits of a line are not set: probe i in bit i.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn missing(&[a, b, c, d, e, f, g, h]: &Line, group: ProbeGroup) -> u8 {
        let places = _mm256_set1_epi64x(group.places.cast_signed());
        let at = _mm256_srlv_epi64(places, _mm256_setr_epi64x(61, 52, 43, 34));
        // Of the first half by the two lowest bits of `at`, of the second where the third is set.
        // One choice from both halves the compiler makes a choice from one register of 512 bits.
        let first = _mm256_permutexvar_epi64(at, half([a, b, c, d]));
        let second = _mm256_test_epi64_mask(at, _mm256_set1_epi64x(4));
        let word = _mm256_mask_permutexvar_epi64(first, second, at, half([e, f, g, h]));
        let bit = _mm256_srlv_epi64(places, _mm256_setr_epi64x(55, 46, 37, 28));
        let bit = _mm256_rolv_epi64(_mm256_set1_epi64x(1), bit);
        _mm256_testn_epi64_mask(word, bit)
    }

    /// Four words in a register.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn half(words: [u64; 4]) -> __m256i {
        let [a, b, c, d] = words.map(u64::cast_signed);
        _mm256_setr_epi64x(a, b, c, d)
    }
}

/// Elsewhere there is none.
#[cfg(not(all(target_arch = "x86_64", not(feature = "portable"))))]
mod code {
    use crate::filter::{
        hash::probe::ProbeGroup,
        layer::blocked::line_probe::{Line, LineProbe},
    };

    #[derive(Clone, Copy, Debug)]
    pub(in crate::filter::layer::blocked) enum Avx512 {}

    impl Avx512 {
        pub(in crate::filter::layer::blocked) fn detected() -> Option<Self> {
            None
        }
    }

    impl LineProbe for Avx512 {
        fn run<R>(self, _: impl FnOnce() -> R) -> R {
            match self {}
        }

        fn set_in_line(self, _: &Line, _: ProbeGroup, _: u8) -> u64 {
            match self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{
        hash::{Hash, probe::ProbeGroup},
        layer::blocked::line_probe::{Line, LineProbe, Scalar},
    };

    #[test]
    fn a_wide_look_sees_what_a_plain_one_sees() {
        let Some(wide) = Avx512::detected() else {
            // None to be had. A processor's own word for it: what is never detected is never
            // tested.
            let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            let has = processor.split_whitespace().any(|flag| flag == "avx512vl");
            let hidden = cfg!(any(feature = "portable", miri, not(target_arch = "x86_64")));
            assert!(
                !has || hidden,
                "AVX-512VL, which the processor has, was not detected (valgrind hides it)"
            );
            return;
        };
        let mut words = (0_u64..).map(|i| Hash::of(&i.to_le_bytes(), 1).probes);
        let mut random = || words.next().unwrap_or(0);
        let mut seen = [[0; 2]; 5];
        for _ in 0..20_000 {
            // Three of four bits are set, so that every answer of every count is frequent.
            let line: Line = std::array::from_fn(|_| random() | random());
            let group = ProbeGroup { line: 0, places: random() };
            for count in 0..=4 {
                let plain = Scalar.set_in_line(&line, group, count);
                assert_eq!(
                    wide.set_in_line(&line, group, count),
                    plain,
                    "{line:x?} {group:x?} {count}"
                );
                let within = wide.run(|| wide.set_in_line(&line, group, count));
                assert_eq!(within, plain, "{line:x?} {group:x?} {count}");
                seen[usize::from(count)][plain as usize] += 1;
            }
        }
        assert_eq!(seen[0], [0, 20_000]);
        assert!(seen[1..].iter().flatten().all(|&answers| answers > 4_000), "{seen:?}");
    }
}
