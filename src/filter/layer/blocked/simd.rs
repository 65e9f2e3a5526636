//! Tests four probes of a line at once, on x86-64 processors with AVX-512VL: most Intel servers
//! since Skylake, and AMD servers since Zen 4.
//!
//! ```text
//!   places   ┌────┬────┬────┬────┐    the same 64 bits in four lanes, i = 0 .. 4
//!            └────┴────┴────┴────┘
//!   at       places >> 61 - 9 i       low 3 bits: the word of the line
//!                                     (bits 0-1: the word in a half; bit 2: which half)
//!   bit      1 rotated left by places >> 55 - 9 i
//!                                     (a rotation uses the low 6 bits of its count)
//!   missing  lanes in which word & bit = 0
//! ```
//!
//! Processors lower their clock for registers of 512 bits. `make check-registers` verifies that
//! none is used.
//!
//! A function compiled for these instructions cannot be inlined into one that is not, so the code
//! is selected once per chunk of items. Single items use portable code.

use std::arch::x86_64::{
    __m256i, _mm256_mask_permutexvar_epi64, _mm256_permutexvar_epi64, _mm256_rolv_epi64,
    _mm256_set1_epi64x, _mm256_setr_epi64x, _mm256_srlv_epi64, _mm256_test_epi64_mask,
    _mm256_testn_epi64_mask,
};

use super::probing::{Line, LineProbe};
use crate::filter::{
    allows_extensions,
    hash::{PROBE_GROUP, ProbeGroup},
};

/// Proof that the processor has the instructions: no value exists where it has not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(());

/// Returns `None` if the processor does not have the instructions.
pub(super) fn detected() -> Option<Avx512> {
    let has = allows_extensions()
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2");
    has.then_some(Avx512(()))
}

impl LineProbe for Avx512 {
    #[inline(always)]
    fn run<R>(self, work: impl FnOnce() -> R) -> R {
        // SAFETY: `self` exists only if the processor has the instructions.
        unsafe { run(work) }
    }

    #[inline(always)]
    fn test_group(self, line: &Line, group: ProbeGroup, count: u8) -> u64 {
        debug_assert!(count <= PROBE_GROUP);
        // SAFETY: `self` exists only if the processor has the instructions.
        let missing = unsafe { missing(line, group) };
        u64::from(missing & ((1 << count) - 1) == 0)
    }
}

/// Everything inlined into `work` is compiled for the instructions.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2")]
fn run<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn missing(&[a, b, c, d, e, f, g, h]: &Line, group: ProbeGroup) -> u8 {
    let places = _mm256_set1_epi64x(group.places.cast_signed());
    let at = _mm256_srlv_epi64(places, _mm256_setr_epi64x(61, 52, 43, 34));
    // The two low bits of `at` select a word in each half, the third bit selects the half. With
    // a single selection from both halves the compiler uses a register of 512 bits.
    let first = _mm256_permutexvar_epi64(at, half([a, b, c, d]));
    let second = _mm256_test_epi64_mask(at, _mm256_set1_epi64x(4));
    let word = _mm256_mask_permutexvar_epi64(first, second, at, half([e, f, g, h]));
    let bit = _mm256_srlv_epi64(places, _mm256_setr_epi64x(55, 46, 37, 28));
    let bit = _mm256_rolv_epi64(_mm256_set1_epi64x(1), bit);
    _mm256_testn_epi64_mask(word, bit)
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn half(words: [u64; 4]) -> __m256i {
    let [a, b, c, d] = words.map(u64::cast_signed);
    _mm256_setr_epi64x(a, b, c, d)
}
