//! A block: 64 buckets of slots in some 22 words, after the quotient filter.
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
//! The i-th one is the end of bucket i, and each zero before it is a slot, so the slots of a bucket
//! lie between two ones (`select.rs`). Both sides grow into the gap, which stays below a word: W is
//! the least number of words, so n slots have one form alone.
//!
//! Bender et al., "Don't Thrash: How to Cache Your Hash on Flash" (2012); Pandey et al., "A
//! General-Purpose Counting Filter" (2017).

use std::{hint::select_unpredictable, ops::Range};

use super::{
    select::Select,
    slot::Format,
    words::{WORD, clear, low, read, set, shift_down, shift_up},
};

/// Buckets of a block.
pub(super) const BUCKETS: usize = 64;

/// The words of a block of `slots` slots.
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

/// The number of slots of a block.
#[inline(always)]
pub(super) fn slots(select: impl Select, block: &[u64]) -> usize {
    select_end(select, block, BUCKETS as u32 - 1) + 1 - BUCKETS
}

/// The slot with this index.
#[inline(always)]
pub(super) fn slot(block: &[u64], format: Format, index: usize) -> u64 {
    let width = format.width();
    read(block, block.len() * WORD - (index + 1) * width) & low(width)
}

/// Writes the slot with this index.
#[inline(always)]
pub(super) fn set_slot(block: &mut [u64], format: Format, index: usize, slot: u64) {
    let width = format.width();
    let at = block.len() * WORD - (index + 1) * width;
    clear(block, at, width);
    set(block, at, slot);
}

/// What a search in a bucket found.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// The place of the bucket's end among the ends.
    pub(super) end: usize,
    /// The slot that matches, and its index.
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
    // The slots that a word holds are compared without a branch between them.
    let slot = match format.width() {
        ..=16 => find_slot::<4>(block, format, indices, tag),
        17..=21 => find_slot::<3>(block, format, indices, tag),
        22..=32 => find_slot::<2>(block, format, indices, tag),
        _ => find_slot::<1>(block, format, indices, tag),
    };
    Found { end, slot }
}

/// Looks for the slot that matches among those with these indices, `GROUP` at once.
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
        let (word, hits) = group::<GROUP>(block, format, first, |slot| format.matches(slot, tag));
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

/// The word with the `GROUP` slots from index `first` on, and for which of them `is` holds, as
/// bits. Some may belong to later buckets, or to the gap and the ends: there are 64 bits below the
/// slots. `is` gets a slot with other bits above it.
#[inline(always)]
fn group<const GROUP: usize>(
    block: &[u64],
    format: Format,
    first: usize,
    is: impl Fn(u64) -> bool,
) -> (u64, u64) {
    let width = format.width();
    let word = read(block, block.len() * WORD - (first + GROUP) * width);
    let mut hits = 0;
    for i in 0..GROUP {
        hits |= u64::from(is(word >> ((GROUP - 1 - i) * width))) << i;
    }
    (word, hits)
}

/// Puts a slot at `index` and its zero at `place` of the ends. The block has `slots` slots and the
/// words for one more.
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

/// Takes out the slot at `index` and its zero at `place` of the ends. The block has `slots` slots,
/// and keeps its words.
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

/// Takes out all slots whose payload is `dead`. Returns how many are left; the block keeps its
/// words.
#[inline(always)]
pub(super) fn retain(
    select: impl Select,
    block: &mut [u64],
    format: Format,
    slots: usize,
    dead: impl Fn(u64) -> bool,
) -> usize {
    let (mut first, mut kept) = (slots, slots);
    // From the last slot down: what lies below a removed slot has not moved.
    for number in (0..(BUCKETS + slots).div_ceil(WORD)).rev() {
        let last = (BUCKETS + slots - number * WORD).min(WORD) - 1;
        let zeros = !block[number] & u64::MAX >> (WORD - 1 - last);
        let count = zeros.count_ones() as usize;
        first -= count;
        let mut gone = match format.width() {
            ..=16 => dead_slots::<4>(block, format, first, count, &dead),
            17..=21 => dead_slots::<3>(block, format, first, count, &dead),
            _ => dead_slots::<1>(block, format, first, count, &dead),
        };
        while gone != 0 {
            let i = WORD - 1 - gone.leading_zeros() as usize;
            gone ^= 1 << i;
            let place = number * WORD + select.in_word(zeros, i as u32) as usize;
            remove(block, format, (kept, place, first + i));
            kept -= 1;
        }
    }
    kept
}

/// Which of `count` slots, at most 64, have a dead payload, as bits.
#[inline(always)]
fn dead_slots<const GROUP: usize>(
    block: &[u64],
    format: Format,
    first: usize,
    count: usize,
    dead: impl Fn(u64) -> bool,
) -> u64 {
    let is_dead = |slot| dead(format.payload(slot) & low(format.payload_bits.into()));
    let mut gone = 0;
    for i in (0..count).step_by(GROUP) {
        gone |= group::<GROUP>(block, format, first + i, is_dead).1 << i;
    }
    // What lies behind the last one is not asked for.
    gone & u64::MAX.checked_shr((WORD - count) as u32).unwrap_or(0)
}

/// The words of the gap that a block of `len` words does not need for `slots` slots.
#[inline(always)]
pub(super) fn spare(format: Format, len: usize, slots: usize) -> Range<usize> {
    let lowest = len - (slots * format.width()).div_ceil(WORD);
    lowest - (len - words_of(slots, format))..lowest
}

/// Takes spare words out of a gap. The first of them may have the last ends, for which there is
/// room in the word behind them.
pub(super) fn close(words: &mut Vec<u64>, spare: Range<usize>) {
    let (at, ends) = (spare.start, words[spare.start]);
    words.drain(spare);
    if ends != 0 {
        words[at] |= ends;
    }
}

#[cfg(test)]
mod tests {
    use super::super::select::{Bmi2, Portable};
    use super::*;

    /// A block as slots in buckets.
    type Buckets = Vec<Vec<u64>>;

    /// Writes a block of the buckets bit by bit.
    fn written(buckets: &Buckets, format: Format) -> Vec<u64> {
        let slots: Vec<u64> = buckets.iter().flatten().copied().collect();
        let mut block = vec![0; words_of(slots.len(), format)];
        let mut place = 0;
        for bucket in buckets {
            place += bucket.len();
            set(&mut block, place, 1);
            place += 1;
        }
        for (index, &slot) in slots.iter().enumerate() {
            set_slot(&mut block, format, index, slot);
        }
        block
    }

    fn narrow(block: &mut Vec<u64>, slots: usize, format: Format) {
        let spare = spare(format, block.len(), slots);
        if !spare.is_empty() {
            close(block, spare);
        }
    }

    fn check(select: impl Select, block: &[u64], buckets: &Buckets, format: Format) {
        assert_eq!(slots(select, block), buckets.iter().map(Vec::len).sum::<usize>());
        let mut before = 0;
        for (number, bucket) in buckets.iter().enumerate() {
            for tag in 0..64 {
                let found = find(select, block, format, number, tag);
                let expected = bucket.iter().position(|&slot| format.matches(slot, tag));
                let expected = expected.map(|index| (index + before, bucket[index]));
                assert_eq!(found.slot, expected, "{number} {tag}");
                assert_eq!(found.end, before + bucket.len() + number);
            }
            before += bucket.len();
        }
    }

    #[test]
    fn a_block_holds_what_a_list_of_buckets_holds() {
        for format in [(5, 0), (5, 4), (12, 4), (15, 4), (20, 8), (30, 1), (48, 8)] {
            let format = Format { tag_bits: format.0, payload_bits: format.1 };
            let mut buckets: Buckets = vec![Vec::new(); BUCKETS];
            let mut block = written(&buckets, format);
            let mut random = 1_u64;
            for step in 0..600_u64 {
                random = random.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(1);
                let bucket = (random >> 58) as usize;
                let count = buckets.iter().map(Vec::len).sum::<usize>();
                let place = buckets[..bucket].iter().map(Vec::len).sum::<usize>();
                // Grows for 400 steps, and shrinks then.
                if step < 400 {
                    let slot =
                        format.slot(random >> 40, random >> 20 & low(format.payload_bits.into()));
                    let words = words_of(count + 1, format);
                    let at = (BUCKETS + count) / WORD;
                    // As a page widens a block: the gap gets the new words.
                    let mut wider = block.clone();
                    wider.resize(words, 0);
                    if words > block.len() {
                        let old = written(&buckets, format);
                        wider[at..].fill(0);
                        let ends = (BUCKETS + count) % WORD;
                        wider[at] |= old.get(at).map_or(0, |&w| w & low(ends));
                        for index in 0..count {
                            set_slot(&mut wider, format, index, super::slot(&old, format, index));
                        }
                    }
                    block = wider;
                    let index = place + buckets[bucket].len();
                    insert(&mut block, format, (count, index + bucket, index), slot);
                    buckets[bucket].push(slot);
                } else if !buckets[bucket].is_empty() {
                    remove(&mut block, format, (count, place + bucket, place));
                    buckets[bucket].remove(0);
                    narrow(&mut block, count - 1, format);
                }
                assert_eq!(block, written(&buckets, format), "step {step} of {format:?}");
                if step % 20 == 0 {
                    check(Portable, &block, &buckets, format);
                    if let Some(bmi2) = Bmi2::detected() {
                        bmi2.run(|| check(bmi2, &block, &buckets, format));
                    }
                }
            }
            let dead = |payload: u64| payload.is_multiple_of(3);
            let count = buckets.iter().map(Vec::len).sum();
            let kept = retain(Portable, &mut block, format, count, dead);
            narrow(&mut block, kept, format);
            buckets
                .iter_mut()
                .for_each(|bucket| bucket.retain(|&slot| !dead(format.payload(slot))));
            assert_eq!(block, written(&buckets, format));
        }
    }
}
