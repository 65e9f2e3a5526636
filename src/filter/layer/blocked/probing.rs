//! Inside one block: tests and sets the bits of a probe sequence.
//!
//! - **Four probes are tested together, without a branch between them.** After four the branch is
//!   predictable: 15 of 16 absent items stop there. In batches `simd.rs` may test them.
//! - **Blocks of one cache line have their own copy of the code**, which selects no line.
//! - **An addition tests until the first clear bit.** That bit shows that the item is new, so its
//!   group and all groups after it are set without a test. Only that group is computed twice.

use crate::filter::hash::{LINE_WORDS, PROBE_GROUP, ProbeGroup, ProbeSequence};

pub(super) type Line = [u64; LINE_WORDS];

/// Tests a cache line for the bits of a probe group.
pub(super) trait LineProbe: Copy {
    /// Calls `work`. Code inlined into `work` is compiled for this implementation's processor.
    fn run<R>(self, work: impl FnOnce() -> R) -> R;

    /// 1 if the first `count` bits of the group, at most 4, are set in the line, else 0.
    fn test_group(self, line: &Line, group: ProbeGroup, count: u8) -> u64;
}

/// Portable code.
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

/// Returns whether the next `left` bits of a sequence are set in a block of lines.
#[inline(always)]
pub(super) fn all_set(
    line_probe: impl LineProbe,
    block: &[u64],
    sequence: ProbeSequence,
    left: u8,
) -> bool {
    match block.as_chunks().0 {
        [line] => first_clear(line_probe, std::array::from_ref(line), sequence, left).is_none(),
        lines => first_clear(line_probe, lines, sequence, left).is_none(),
    }
}

/// Sets the next `left` bits of a sequence in a block of lines; returns whether one was clear.
#[inline(always)]
pub(super) fn add(
    line_probe: impl LineProbe,
    block: &mut [u64],
    sequence: ProbeSequence,
    left: u8,
) -> bool {
    match block.as_chunks_mut().0 {
        [line] => add_to(line_probe, std::array::from_mut(line), sequence, left),
        lines => add_to(line_probe, lines, sequence, left),
    }
}

#[inline(always)]
fn set(line: &mut Line, group: ProbeGroup, count: u8) {
    for i in 0..PROBE_GROUP {
        if i < count {
            let (word, bit) = group.at(i);
            line[word] |= 1 << bit;
        }
    }
}

/// Skips the groups of a sequence that are set in these lines. Returns what is left of the sequence
/// from the first group with a clear bit, or `None` if all its `left` bits are set.
#[inline(always)]
fn first_clear(
    line_probe: impl LineProbe,
    lines: &[Line],
    mut sequence: ProbeSequence,
    mut left: u8,
) -> Option<(ProbeSequence, u8)> {
    let are_set = |mut sequence: ProbeSequence, count| {
        let group = sequence.group(lines.len() as u64);
        line_probe.test_group(&lines[group.line], group, count) == 1
    };
    while left >= PROBE_GROUP {
        if !are_set(sequence, PROBE_GROUP) {
            return Some((sequence, left));
        }
        sequence.step();
        left -= PROBE_GROUP;
    }
    (left > 0 && !are_set(sequence, left)).then_some((sequence, left))
}

/// [`add`] to these lines.
#[inline(always)]
fn add_to(
    line_probe: impl LineProbe,
    lines: &mut [Line],
    sequence: ProbeSequence,
    left: u8,
) -> bool {
    let Some((mut sequence, mut left)) = first_clear(line_probe, lines, sequence, left) else {
        return false;
    };
    let count = lines.len() as u64;
    while left >= PROBE_GROUP {
        let group = sequence.group(count);
        set(&mut lines[group.line], group, PROBE_GROUP);
        left -= PROBE_GROUP;
    }
    // Sets nothing if none is left.
    let group = sequence.group(count);
    set(&mut lines[group.line], group, left);
    true
}

/// [`all_set`] for blocks in which each bit lies anywhere.
#[inline(always)]
pub(super) fn all_set_anywhere(block: &[u64], mut sequence: ProbeSequence, mut left: u8) -> bool {
    let bits = block.len() as u64 * 64;
    let mut bit = || {
        let at = sequence.one(bits);
        block[(at / 64) as usize] >> (at % 64)
    };
    while left >= PROBE_GROUP {
        if bit() & bit() & bit() & bit() & 1 == 0 {
            return false;
        }
        left -= PROBE_GROUP;
    }
    (0..left).fold(1, |all, _| all & bit()) & 1 == 1
}

#[inline(never)]
pub(super) fn add_anywhere(block: &mut [u64], mut sequence: ProbeSequence, mut left: u8) -> bool {
    let bits = block.len() as u64 * 64;
    let mut absent = false;
    while left > 0 {
        let here = left.min(PROBE_GROUP);
        left -= here;
        let group: [u64; PROBE_GROUP as usize] = std::array::from_fn(|_| sequence.one(bits));
        let group = &group[..usize::from(here)];
        let set = |all, at: &u64| all & block[(at / 64) as usize] >> (at % 64);
        if absent || group.iter().fold(1, set) == 0 {
            absent = true;
            for at in group {
                block[(at / 64) as usize] |= 1 << (at % 64);
            }
        }
    }
    absent
}
