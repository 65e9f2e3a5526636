//! Tests a cache line for four bits at once. In batches, processors with AVX-512VL do it in nine
//! instructions (`simd.rs`).

use crate::filter::{geometry::LINE_WORDS, hash::probe::ProbeGroup};

pub(super) type Line = [u64; LINE_WORDS];

/// Tests a cache line for the bits of a probe group.
pub(super) trait LineProbe: Copy {
    /// Calls `work`. Code inlined into `work` is compiled for this implementation's processor.
    fn run<R>(self, work: impl FnOnce() -> R) -> R;

    /// 1 if the first `count` bits of the group, at most 4, are set in the line, else 0.
    fn test_group(self, line: &Line, group: ProbeGroup, count: u8) -> u64;
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Scalar;

impl LineProbe for Scalar {
    #[inline(always)]
    fn run<R>(self, work: impl FnOnce() -> R) -> R {
        work()
    }

    #[inline(always)]
    fn test_group(self, line: &Line, group: ProbeGroup, count: u8) -> u64 {
        match count {
            0 => 1,
            1 => first_are_set::<1>(line, group),
            2 => first_are_set::<2>(line, group),
            3 => first_are_set::<3>(line, group),
            _ => first_are_set::<4>(line, group),
        }
    }
}

/// Returns 1 if the first `N` bits of the group are set in the line, else 0.
#[inline(always)]
fn first_are_set<const N: u8>(line: &Line, group: ProbeGroup) -> u64 {
    (0..N).fold(1, |all, i| {
        let (word, bit) = group.at(i);
        all & line[word] >> bit
    })
}
