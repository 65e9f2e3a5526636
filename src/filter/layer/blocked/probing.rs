//! Inside one block: whether bits on a walk are set, and setting them.
//!
//! Four probes are looked at together, without a branch between them. Half of the bits of a full layer are set, so a
//! branch after each probe of an absent item is a coin toss, and a toss that the processor loses costs more than three
//! probes; after four it is right 15 times of 16. Server CPU per item in batches of 100, with a branch each time and so,
//! in one run each, RedisBloom 2.8 beside it:
//!
//! | work                      | branches | fours  | RedisBloom |
//! |---------------------------|----------|--------|------------|
//! | miss, 2 M items           | 101 ns   | 86 ns  | 215 ns     |
//! | hit, 2 M items            | 101 ns   | 85 ns  | 231 ns     |
//!
//! Most filters have blocks of one cache line, and those have a copy of the code of their own, in which the compiler
//! knows that there is no line to choose and no bound to check. An addition looks and sets on one walk: fours that are
//! set are left behind, and the first that is not tells that the item is new, so that all from there on is set without
//! another look. Instructions an item (`make compare COUNT=1`, batches of 100, 2 M items at 1 %, the hash among them):
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
//! Single misses in 12 layers take 959 instructions with four probes from one step, and 1,310 with a copy for blocks of one line.
//!
//! That is plain code, which every processor runs, and valgrind's. In batches a look at four probes is one of nine
//! instructions where the processor has them (`simd.rs`).

use super::{
    look::{Line, Look, Plain},
    simd::Wide,
};
use crate::filter::{
    geometry::{FOUR, Geometry},
    hash::probe::{Four, Walk},
};

/// How the blocks of a layer are probed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Probing {
    /// Each probe lies anywhere in its block.
    Anywhere,
    /// Four probes share a line of a block, which is of whole ones.
    Lines(Plain),
    /// The same, on a processor that looks at four at once.
    Wide(Wide),
}

impl Probing {
    /// That of blocks of this shape, on this processor.
    pub(super) fn of(geometry: Geometry) -> Self {
        match (geometry.lines(), Wide::detected()) {
            (None, _) => Self::Anywhere,
            (Some(_), None) => Self::Lines(Plain),
            (Some(_), Some(wide)) => Self::Wide(wide),
        }
    }
}

/// Whether the next `left` bits on a walk over a block of lines are set.
#[inline(always)]
pub(super) fn all_set(look: impl Look, block: &[u64], walk: Walk, left: u8) -> bool {
    match block.as_chunks().0 {
        [line] => all_set_in(look, std::array::from_ref(line), walk, left),
        lines => all_set_in(look, lines, walk, left),
    }
}

/// Sets the next `left` bits on a walk over a block of lines; whether one was not set. Where all were, nothing is written.
#[inline(always)]
pub(super) fn add(look: impl Look, block: &mut [u64], walk: Walk, left: u8) -> bool {
    match block.as_chunks_mut().0 {
        [line] => add_to(look, std::array::from_mut(line), walk, left),
        lines => add_to(look, lines, walk, left),
    }
}

/// Sets the first `count` of four bits of a line.
#[inline(always)]
fn set(line: &mut Line, four: Four, count: u8) {
    for i in 0..FOUR {
        if i < count {
            let (word, bit) = four.at(i);
            line[word] |= 1 << bit;
        }
    }
}

/// [`all_set`] in these lines.
#[inline(always)]
fn all_set_in(look: impl Look, lines: &[Line], mut walk: Walk, mut left: u8) -> bool {
    let mut are_set = |count| {
        let four = walk.four(lines.len() as u64);
        look.set_in_line(&lines[four.line], four, count) == 1
    };
    while left >= FOUR {
        if !are_set(FOUR) {
            return false;
        }
        left -= FOUR;
    }
    left == 0 || are_set(left)
}

/// [`add`] to these lines. Once a bit was not set the item is new, and the rest is set without a look.
#[inline(always)]
fn add_to(look: impl Look, lines: &mut [Line], mut walk: Walk, mut left: u8) -> bool {
    let count = lines.len() as u64;
    let mut absent = false;
    while left >= FOUR {
        let four = walk.four(count);
        let line = &mut lines[four.line];
        if absent || look.set_in_line(line, four, FOUR) == 0 {
            absent = true;
            set(line, four, FOUR);
        }
        left -= FOUR;
    }
    if left > 0 {
        let four = walk.four(count);
        let line = &mut lines[four.line];
        if absent || look.set_in_line(line, four, left) == 0 {
            absent = true;
            set(line, four, left);
        }
    }
    absent
}

/// [`all_set`] where each bit lies anywhere.
#[inline(always)]
pub(super) fn all_set_anywhere(block: &[u64], mut walk: Walk, mut left: u8) -> bool {
    let bits = block.len() as u64 * 64;
    let mut bit = || {
        let at = walk.one(bits);
        block[(at / 64) as usize] >> (at % 64)
    };
    while left >= FOUR {
        if bit() & bit() & bit() & bit() & 1 == 0 {
            return false;
        }
        left -= FOUR;
    }
    (0..left).fold(1, |all, _| all & bit()) & 1 == 1
}

/// [`add`] where each bit lies anywhere.
#[inline(never)]
pub(super) fn add_anywhere(block: &mut [u64], mut walk: Walk, mut left: u8) -> bool {
    let bits = block.len() as u64 * 64;
    let mut absent = false;
    while left > 0 {
        let here = left.min(FOUR);
        left -= here;
        let four: [u64; FOUR as usize] = std::array::from_fn(|_| walk.one(bits));
        let four = &four[..usize::from(here)];
        let set = |all, at: &u64| all & block[(at / 64) as usize] >> (at % 64);
        if absent || four.iter().fold(1, set) == 0 {
            absent = true;
            for at in four {
                block[(at / 64) as usize] |= 1 << (at % 64);
            }
        }
    }
    absent
}
