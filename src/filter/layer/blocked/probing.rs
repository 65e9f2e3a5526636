//! Inside one block: whether bits on a walk are set, and setting them.
//!
//! Four probes are looked at together, without a branch between them. Half of the bits of a full
//! layer are set, so a branch after each probe of an absent item is a coin toss, and a toss that
//! the processor loses costs more than three probes; after four it is right 15 times of 16. Server
//! CPU per item in batches of 100, with a branch each time and so, in one run each, RedisBloom 2.8
//! beside it:
//!
//! | work                      | branches | fours  | RedisBloom |
//! |---------------------------|----------|--------|------------|
//! | miss, 2 M items           | 101 ns   | 86 ns  | 215 ns     |
//! | hit, 2 M items            | 101 ns   | 85 ns  | 231 ns     |
//!
//! Most filters have blocks of one cache line, and those have a copy of the code of their own, in
//! which the compiler knows that there is no line to choose and no bound to check. An addition
//! looks and sets on one walk: fours that are set are left behind, and the first that is not tells
//! that the item is new, so that all from there on is set without another look. Instructions an
//! item (`make compare COUNT=1`, batches of 100, 2 M items at 1 %, the hash among them):
//!
//! | code                                         | hit | miss | new |
//! |----------------------------------------------|-----|------|-----|
//! | words of a `BitBox`, look first and then set | 231 | 193  | 322 |
//! | plain words (`bits.rs`), one walk            | 220 | 182  | 252 |
//! | a copy for blocks of one line                | 197 | 169  | 243 |
//! | and the look inlined wherever it is taken    | 190 | 155  | 242 |
//! | four probes from one step of the walk        | 170 | 144  | 240 |
//! | the additions of a chunk in a loop           | 167 | 141  | 217 |
//! | answers chunk by chunk                       | 156 | 129  | 219 |
//!
//! Single misses in 12 layers take 959 instructions with four probes from one step, and 1,310 with
//! a copy for blocks of one line.
//!
//! That is plain code, which every processor runs, and valgrind's. In batches a look at four probes
//! is one of nine instructions where the processor has them (`simd.rs`).

use super::{
    line_probe::{Line, LineProbe, Scalar},
    simd::Avx512,
};
use crate::filter::{
    geometry::{Geometry, PROBE_GROUP},
    hash::probe::{ProbeGroup, ProbeSequence},
};

/// How the blocks of a layer are probed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Probing {
    /// Each probe lies anywhere in its block.
    Anywhere,
    /// Four probes share a line of a block, which is of whole ones.
    Lines(Scalar),
    /// The same, on a processor that looks at four at once.
    Avx512(Avx512),
}

impl Probing {
    /// That of blocks of this shape, on this processor.
    pub(super) fn of(geometry: Geometry) -> Self {
        match (geometry.lines(), Avx512::detected()) {
            (None, _) => Self::Anywhere,
            (Some(_), None) => Self::Lines(Scalar),
            (Some(_), Some(wide)) => Self::Avx512(wide),
        }
    }
}

/// Whether the next `left` bits on a walk over a block of lines are set.
#[inline(always)]
pub(super) fn all_set(
    line_probe: impl LineProbe,
    block: &[u64],
    sequence: ProbeSequence,
    left: u8,
) -> bool {
    match block.as_chunks().0 {
        [line] => all_set_in(line_probe, std::array::from_ref(line), sequence, left),
        lines => all_set_in(line_probe, lines, sequence, left),
    }
}

/// Sets the next `left` bits on a walk over a block of lines; whether one was not set. Where all
/// were, nothing is written.
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

/// Sets the first `count` of four bits of a line.
#[inline(always)]
fn set(line: &mut Line, group: ProbeGroup, count: u8) {
    for i in 0..PROBE_GROUP {
        if i < count {
            let (word, bit) = group.at(i);
            line[word] |= 1 << bit;
        }
    }
}

/// [`all_set`] in these lines.
#[inline(always)]
fn all_set_in(
    line_probe: impl LineProbe,
    lines: &[Line],
    mut sequence: ProbeSequence,
    mut left: u8,
) -> bool {
    let mut are_set = |count| {
        let group = sequence.group(lines.len() as u64);
        line_probe.set_in_line(&lines[group.line], group, count) == 1
    };
    while left >= PROBE_GROUP {
        if !are_set(PROBE_GROUP) {
            return false;
        }
        left -= PROBE_GROUP;
    }
    left == 0 || are_set(left)
}

/// [`add`] to these lines. Once a bit was not set the item is new, and the rest is set without a
/// look.
#[inline(always)]
fn add_to(
    line_probe: impl LineProbe,
    lines: &mut [Line],
    mut sequence: ProbeSequence,
    mut left: u8,
) -> bool {
    let count = lines.len() as u64;
    let mut absent = false;
    while left >= PROBE_GROUP {
        let group = sequence.group(count);
        let line = &mut lines[group.line];
        if absent || line_probe.set_in_line(line, group, PROBE_GROUP) == 0 {
            absent = true;
            set(line, group, PROBE_GROUP);
        }
        left -= PROBE_GROUP;
    }
    if left > 0 {
        let group = sequence.group(count);
        let line = &mut lines[group.line];
        if absent || line_probe.set_in_line(line, group, left) == 0 {
            absent = true;
            set(line, group, left);
        }
    }
    absent
}

/// [`all_set`] where each bit lies anywhere.
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

/// [`add`] where each bit lies anywhere.
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
