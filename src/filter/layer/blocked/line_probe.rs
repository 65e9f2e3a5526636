//! One look at a line: whether four bits of it are set. All that depends on the processor;
//! `simd.rs` has the other one.

use crate::filter::{geometry::LINE_WORDS, hash::probe::ProbeGroup};

/// The words of a cache line.
pub(super) type Line = [u64; LINE_WORDS];

/// How a line is looked at: all that depends on the processor.
pub(super) trait LineProbe: Copy {
    /// Calls `work`, which is compiled for it as far as it is inlined.
    fn run<R>(self, work: impl FnOnce() -> R) -> R;

    /// Whether the first `count` of four bits of a line are set, at most four: 1 if they are, else
    /// 0.
    fn set_in_line(self, line: &Line, group: ProbeGroup, count: u8) -> u64;
}

/// The look that every processor can take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalar;

impl LineProbe for Scalar {
    #[inline(always)]
    fn run<R>(self, work: impl FnOnce() -> R) -> R {
        work()
    }

    #[inline(always)]
    fn set_in_line(self, line: &Line, group: ProbeGroup, count: u8) -> u64 {
        match count {
            0 => 1,
            1 => first_set::<1>(line, group),
            2 => first_set::<2>(line, group),
            3 => first_set::<3>(line, group),
            _ => first_set::<4>(line, group),
        }
    }
}

/// Whether the first `N` of four bits of a line are set: 1 if they are, else 0.
#[inline(always)]
fn first_set<const N: u8>(line: &Line, group: ProbeGroup) -> u64 {
    (0..N).fold(1, |all, i| {
        let (word, bit) = group.at(i);
        all & line[word] >> bit
    })
}
