//! A block: 64 buckets of slots in some 20 words, after the quotient filter.
//!
//! ```text
//!   bit 0                      64 + n           64 W - n w                             64 W
//!   ┌───────────────────────────┬────────────────┬─────┬─ ─ ─ ─ ─┬────────┬────────┬────────┐
//!   │ 64 ones among n zeros     │ gap of zeros   │ n-1 │         │ slot 2 │ slot 1 │ slot 0 │
//!   └───────────────────────────┴────────────────┴─────┴─ ─ ─ ─ ─┴────────┴────────┴────────┘
//!
//!   ends     0 0 1 1 0 1 ...       bit 0 at the left: bucket 0 has slots 0 and 1, bucket 1 none,
//!                                  bucket 2 slot 2
//! ```
//!
//! The i-th one ends bucket i, and each zero before it stands for a slot. So the slots of a bucket
//! lie between two ones. Both sides grow into the gap, which is shorter than a word. A slot has w
//! bits. W is the least number of words, so n slots have exactly one form.

use std::{hint::select_unpredictable, ops::Range};

use super::{
    Generations,
    slot::Format,
    words::{
        Portable, Select, WORD, clear, low, read, replace, set, shift_down, shift_up, without,
    },
};

pub(super) const BUCKETS: usize = 64;

#[inline(always)]
pub(super) fn words_of(slots: usize, format: Format) -> usize {
    (BUCKETS + slots * (1 + format.width())).div_ceil(WORD)
}

/// The place of the `i`-th one among the ends; `i` is in [0, 63].
#[inline(always)]
fn select_end(select: impl Select, block: &[u64], i: u32) -> usize {
    let (mut word, mut i) = (0, i);
    if let Some(&[a, b, c, _]) = block.first_chunk() {
        // Nearly always one of these four words, so no branch depends on which.
        let first = a.count_ones();
        let second = first + b.count_ones();
        let third = second + c.count_ones();
        let (low, high) = (i < first, i < third);
        let (words, ones) =
            select_unpredictable(low, (0, 0), select_unpredictable(high, (2, second), (3, third)));
        let is_second = !low & (i < second);
        (word, i) = (
            select_unpredictable(is_second, 1, words),
            i - select_unpredictable(is_second, first, ones),
        );
    }
    loop {
        let ones = block[word].count_ones();
        if i < ones {
            return word * WORD + select.in_word(block[word], i) as usize;
        }
        i -= ones;
        word += 1;
    }
}

#[inline(always)]
pub(super) fn slots(select: impl Select, block: &[u64]) -> usize {
    select_end(select, block, BUCKETS as u32 - 1) + 1 - BUCKETS
}

#[inline(always)]
pub(super) fn slot(block: &[u64], format: Format, index: usize) -> u64 {
    let width = format.width();
    read(block, block.len() * WORD - (index + 1) * width) & low(width)
}

#[inline(always)]
pub(super) fn set_slot(block: &mut [u64], format: Format, index: usize, slot: u64) {
    let width = format.width();
    replace(block, block.len() * WORD - (index + 1) * width, low(width), slot);
}

/// What a search in a bucket found.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// The place of the bucket's end among the ends.
    pub(super) end: usize,
    /// The index of the slot that matches, and the slot.
    pub(super) slot: Option<(usize, u64)>,
}

/// The indices of the slots of a bucket, and the place of its end among the ends.
#[inline(always)]
pub(super) fn bounds(select: impl Select, block: &[u64], bucket: usize) -> (Range<usize>, usize) {
    let start = match bucket {
        0 => 0,
        _ => select_end(select, block, bucket as u32 - 1) + 1,
    };
    let mut end = start;
    loop {
        let zeros = read(block, end).trailing_zeros() as usize;
        end += zeros;
        if zeros < WORD {
            return (start - bucket..end - bucket, end);
        }
    }
}

/// Calls a function with the number of slots that fit into a word, so that it looks at them without
/// a branch between. The word may also contain slots of later buckets, the gap or ends. It never
/// begins before the block: at least 64 bits lie below the slots.
macro_rules! in_groups {
    ($format:expr, $function:ident($($argument:expr),*)) => {
        match $format.width() {
            ..=16 => $function::<4>($($argument),*),
            17..=21 => $function::<3>($($argument),*),
            22..=32 => $function::<2>($($argument),*),
            _ => $function::<1>($($argument),*),
        }
    };
}

/// Looks for the slot of a bucket that matches the tag bits `tag`.
#[inline(always)]
pub(super) fn find(
    select: impl Select,
    block: &[u64],
    format: Format,
    bucket: usize,
    tag: u64,
) -> Found {
    let (indices, end) = bounds(select, block, bucket);
    let slot = in_groups!(format, find_slot(block, format, indices, tag));
    Found { end, slot }
}

/// Looks among these indices, `GROUP` at once.
#[inline(always)]
fn find_slot<const GROUP: usize>(
    block: &[u64],
    format: Format,
    indices: Range<usize>,
    tag: u64,
) -> Option<(usize, u64)> {
    let width = format.width();
    let mut first = indices.start;
    // At least one group: whether a bucket has slots is hard to predict.
    loop {
        let word = read(block, block.len() * WORD - (first + GROUP) * width);
        let mut hits = 0;
        for i in 0..GROUP {
            hits |= u64::from(format.matches(word >> ((GROUP - 1 - i) * width), tag)) << i;
        }
        let hits = hits & low((indices.end - first).min(GROUP));
        if hits != 0 {
            let i = hits.trailing_zeros() as usize;
            return Some((first + i, word >> ((GROUP - 1 - i) * width) & low(width)));
        }
        first += GROUP;
        if first >= indices.end {
            return None;
        }
    }
}

/// Puts a slot at `index` and its zero at `place`. The block has the words for one more.
#[inline(always)]
pub(super) fn insert(
    block: &mut [u64],
    format: Format,
    (slots, place, index): (usize, usize, usize),
    slot: u64,
) {
    let (width, bits) = (format.width(), block.len() * WORD);
    shift_up(block, place, BUCKETS + slots + 1, 1);
    let to = bits - index * width;
    shift_down(block, bits - (slots + 1) * width, to, width);
    set(block, to - width, slot);
}

/// Takes out the slot at `index` and its zero at `place`; the block keeps its words.
#[inline(always)]
pub(super) fn remove(
    block: &mut [u64],
    format: Format,
    (slots, place, index): (usize, usize, usize),
) {
    let (width, bits) = (format.width(), block.len() * WORD);
    shift_down(block, place, BUCKETS + slots, 1);
    shift_up(block, bits - slots * width, bits - index * width, width);
}

/// Takes out all slots that are not alive; returns how many are left.
#[inline(always)]
pub(super) fn retain(
    select: impl Select,
    block: &mut [u64],
    format: Format,
    slots: usize,
    alive: Generations,
) -> usize {
    // The next slot to read, and the ends of what is kept.
    let (mut first, mut end, mut top) = (0, 0, block.len() * WORD);
    for number in 0..(BUCKETS + slots).div_ceil(WORD) {
        let count = (BUCKETS + slots - number * WORD).min(WORD);
        let ones = u64::MAX >> (WORD - count);
        let mut ends = block[number] & ones;
        let zeros = ends ^ ones;
        let indices = first..first + zeros.count_ones() as usize;
        first = indices.end;
        let mut gone = in_groups!(format, retain_slots(block, format, indices, &mut top, alive));
        let left = count - gone.count_ones() as usize;
        // From the last one down: what lies below has not moved.
        while gone != 0 {
            let i = gone.ilog2();
            gone ^= 1 << i;
            ends = without(ends, select.in_word(zeros, i) as usize, 1);
        }
        if left > 0 {
            replace(block, end, u64::MAX >> (WORD - left), ends);
        }
        end += left;
    }
    if end < BUCKETS + slots {
        clear(block, end, top);
    }
    end - BUCKETS
}

/// Moves slots that are alive to just below bit `top`, `GROUP` at a time. There are at most 64
/// slots. Returns a bit for each: 1 if it is dead.
#[inline(always)]
fn retain_slots<const GROUP: usize>(
    block: &mut [u64],
    format: Format,
    indices: Range<usize>,
    top: &mut usize,
    alive: Generations,
) -> u64 {
    let (width, bits) = (format.width(), block.len() * WORD);
    let mut gone = 0;
    for first in indices.clone().step_by(GROUP) {
        let ones = u64::MAX >> (WORD - GROUP * width);
        let mut word = read(block, bits - (first + GROUP) * width) & ones;
        // The last group may end with bits that are not a slot.
        let beyond = GROUP.saturating_sub(indices.end - first) * width;
        let dead = alive.dead(format, GROUP, word) & !low(beyond);
        let mut left = GROUP * width - beyond;
        for i in 0..GROUP {
            let at = (GROUP - 1 - i) * width;
            if dead >> at & 1 == 1 {
                word = without(word, at, width);
                left -= width;
                gone |= 1 << (first + i - indices.start);
            }
        }
        if left > 0 {
            *top -= left;
            replace(block, *top, u64::MAX >> (WORD - left), word >> beyond);
        }
    }
    gone
}

#[inline(always)]
pub(super) fn iter(block: &[u64], format: Format) -> impl Iterator<Item = (usize, u64)> {
    let mut place = 0;
    (0..slots(Portable, block)).map(move |index| {
        place += read(block, place).trailing_ones() as usize;
        let bucket = place - index;
        place += 1;
        (bucket, slot(block, format, index))
    })
}

/// Writes the `count` slots of a block of zeros, in order of their buckets.
#[inline(always)]
pub(super) fn write(
    block: &mut [u64],
    format: Format,
    count: usize,
    slots: impl Iterator<Item = (usize, u64)>,
) {
    let ends = BUCKETS + count;
    block[..ends / WORD].fill(u64::MAX);
    if !ends.is_multiple_of(WORD) {
        block[ends / WORD] = low(ends % WORD);
    }
    let mut bit = block.len() * WORD;
    for (index, (bucket, slot)) in slots.enumerate() {
        let place = bucket + index;
        block[place / WORD] &= !(1 << (place % WORD));
        bit -= format.width();
        set(block, bit, slot);
    }
}

/// The words of the gap that a block of `len` words does not need for `slots` slots.
#[inline(always)]
pub(super) fn spare(format: Format, len: usize, slots: usize) -> Range<usize> {
    let lowest = len - (slots * format.width()).div_ceil(WORD);
    lowest - (len - words_of(slots, format))..lowest
}
