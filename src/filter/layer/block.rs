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
//!
//! Single misses in 12 layers take 972 instructions with the last, and 1,310 with the third.

use crate::filter::{
    geometry::LINE_WORDS,
    probe::{FOUR, Four, Walk},
};

/// The words of a cache line.
pub(super) type Line = [u64; LINE_WORDS];

/// Whether the next `left` bits on a walk over a block are set; `in_lines` says whether four of them share a line, and the
/// block is of whole ones.
#[inline(always)]
pub(super) fn all_set(block: &[u64], in_lines: bool, walk: Walk, left: u8) -> bool {
    if !in_lines {
        return all_set_anywhere(block, walk, left);
    }
    match block.as_chunks().0 {
        [line] => all_set_in_lines(std::array::from_ref(line), walk, left),
        lines => all_set_in_lines(lines, walk, left),
    }
}

/// Sets the next `left` bits on a walk over a block, as [`all_set`]; whether one was not set. Where all were, nothing is
/// written.
#[inline]
pub(super) fn add(block: &mut [u64], in_lines: bool, walk: Walk, left: u8) -> bool {
    if !in_lines {
        return add_anywhere(block, walk, left);
    }
    match block.as_chunks_mut().0 {
        [line] => add_to_lines(std::array::from_mut(line), walk, left),
        lines => add_to_lines(lines, walk, left),
    }
}

/// Whether the first `N` of four bits of a line are set, 1 or 0 in the lowest bit.
#[inline(always)]
fn first_set<const N: u8>(line: &Line, four: Four) -> u64 {
    (0..N).fold(1, |all, i| {
        let (word, bit) = four.at(i);
        all & line[word] >> bit
    })
}

/// The same of the first `count`, at most four.
#[inline(always)]
pub(super) fn set_in_line(line: &Line, four: Four, count: u8) -> u64 {
    match count {
        0 => 1,
        1 => first_set::<1>(line, four),
        2 => first_set::<2>(line, four),
        3 => first_set::<3>(line, four),
        _ => first_set::<4>(line, four),
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

/// [`all_set`] in lines.
#[inline(always)]
fn all_set_in_lines(lines: &[Line], mut walk: Walk, mut left: u8) -> bool {
    let mut are_set = |count| {
        let four = walk.four(lines.len() as u64);
        set_in_line(&lines[four.line], four, count) & 1 == 1
    };
    while left >= FOUR {
        if !are_set(FOUR) {
            return false;
        }
        left -= FOUR;
    }
    left == 0 || are_set(left)
}

/// [`add`] in lines. Once a bit was not set the item is new, and the rest is set without a look.
#[inline(always)]
fn add_to_lines(lines: &mut [Line], mut walk: Walk, mut left: u8) -> bool {
    let count = lines.len() as u64;
    let mut absent = false;
    while left >= FOUR {
        let four = walk.four(count);
        let line = &mut lines[four.line];
        if absent || set_in_line(line, four, FOUR) & 1 == 0 {
            absent = true;
            set(line, four, FOUR);
        }
        left -= FOUR;
    }
    if left > 0 {
        let four = walk.four(count);
        let line = &mut lines[four.line];
        if absent || set_in_line(line, four, left) & 1 == 0 {
            absent = true;
            set(line, four, left);
        }
    }
    absent
}

/// [`all_set`] where each bit lies anywhere.
#[inline(always)]
fn all_set_anywhere(block: &[u64], mut walk: Walk, mut left: u8) -> bool {
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
fn add_anywhere(block: &mut [u64], mut walk: Walk, mut left: u8) -> bool {
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
