//! A page: a cache line with the starts of 31 blocks, then the blocks, of any length, in one
//! allocation.
//!
//! ```text
//!   word 0              8             start 1              start 2                  start 31
//!   ┌───────────────────┬─────────────┬────────────────────┬─ ─ ─ ─ ─ ─┬──────────────┐
//!   │ 32 starts, 16 bit │ block 0     │ block 1            │           │ block 30     │ spare
//!   └───────────────────┴─────────────┴────────────────────┴─ ─ ─ ─ ─ ─┴──────────────┘
//! ```
//!
//! Start i is in bits 16 (i % 4) of word i / 4, in words from the start of the page; start 31 is
//! its end. A block that needs another word pushes the later ones up, 2 KiB on average. With more
//! blocks, pushing and splitting would take longer. With fewer, starts and size classes of the
//! allocator would take more memory.
//!
//! A page with few slots is short: one block of 64 buckets, each for 31 places, and no starts.
//!
//! ```text
//!   place    0 ... 30   31 ... 61             1953 ... 1983
//!   bucket      0          1         ─ ─ ─         63               place / 31
//!
//!            payload: c bits   tag with marker: r + 1 bits   rest: 5 bits
//!   slot   ┌────────────────┬───┬─────────────────────────┬─────────────┐
//!          │                │ 1 │ r bits of the tag       │ place % 31  │
//!          └────────────────┴───┴─────────────────────────┴─────────────┘
//! ```
//!
//! In its block, the rest is the low part of the tag. It lies below the marker in every slot, so
//! slots match only items of their place, and a short page has the slots that a long one would
//! have. It becomes long before it has as many words as a long page without slots, so the length of
//! a page says which it is. A long page becomes short when it loses its last slot.
//!
//! A page without slots has no allocation: the items of a reservation may never come.

use std::ops::Range;

use super::{
    Generations, Payload, Plan,
    block::{self, BUCKETS, Found},
    memory,
    slot::{Format, VOID, are_prefix_free, joined},
    words::{Portable, Select, WORD, low, read, set},
};
use crate::filter::{
    error::Error,
    hash::{Hash, scale},
    layer::bits::prefetch,
};

pub(super) const BLOCKS: usize = 31;
pub(in crate::filter) const PAGE_BUCKETS: usize = BLOCKS * BUCKETS;
/// Words of a long page without slots. A short page has fewer words, a long one more.
pub(super) const LEAST_WORDS: usize = HEADER + BLOCKS;
/// Words of the starts.
pub(super) const HEADER: usize = (BLOCKS + 1) / LANES;
/// Starts in a word.
const LANES: usize = 4;
/// 1 in each lane.
const ONES: u64 = 0x0001_0001_0001_0001;

/// The most slots of a block, many times what a block has by chance. It bounds the time in which a
/// union or a join compares the slots of a bucket, which may be forged. It also keeps starts within
/// 16 bits.
const MOST_SLOTS: usize = 1 << 11;
/// Bits of the widest slot of a long page and of its zero among the ends.
const MOST_BITS: usize = 58;
const _: () = assert!(LEAST_WORDS + BLOCKS * MOST_SLOTS * MOST_BITS / WORD <= u16::MAX as usize);

/// Bits that tell the 31 places of a bucket of a short page apart.
pub(super) const REST_BITS: u8 = 5;

/// The block of a page without slots.
static NO_SLOTS: [u64; 1] = [u64::MAX];

/// A bucket of a page: number `block * 64 + bucket`, in [0, 1983].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(pub(super) u16);

impl Place {
    /// The place of an item.
    #[inline(always)]
    pub(super) fn of(hash: Hash) -> Self {
        Self(scale(hash.probes, PAGE_BUCKETS as u64) as u16)
    }

    pub(super) fn block(self) -> usize {
        usize::from(self.0) / BUCKETS
    }

    pub(super) fn bucket(self) -> usize {
        usize::from(self.0) % BUCKETS
    }
}

/// Where an item belongs in a page. Valid until a block changes its length.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) format: Format,
    /// The bits of the tag, and maybe others above them.
    pub(super) tag: u64,
    pub(super) bucket: usize,
    /// The block, its first word, and the word behind its last.
    number: usize,
    start: usize,
    end: usize,
}

impl Spot {
    #[inline(always)]
    pub(super) fn words(self) -> Range<usize> {
        self.start..self.end
    }
}

/// The slots of some items, in 1,984 buckets. Without slots, it has no words: see `NO_SLOTS`.
#[derive(Debug, PartialEq, Eq)]
pub struct Page(Vec<u64>);

/// The refusal of words that are not a page: a block lacks ends, has a wrong length or bits in its
/// gap, or one slot's tag is the beginning of another's.
const NO_PAGE: Error = Error::Impossible("words that are not those of a page");

impl Page {
    pub(super) fn empty() -> Self {
        Self(Vec::new())
    }

    /// Whether it is one block without starts.
    #[inline(always)]
    fn is_short(&self) -> bool {
        self.0.len() < LEAST_WORDS
    }

    /// Frees memory that is not needed; all of it if there are no slots.
    fn fit(&mut self) {
        match self.0.len() {
            1 | LEAST_WORDS => *self = Self::empty(),
            _ => memory::fit(&mut self.0),
        }
    }

    /// The words. They hold the whole page, and are the same on every machine.
    pub fn words(&self) -> &[u64] {
        if self.0.is_empty() { &NO_SLOTS } else { &self.0 }
    }

    #[inline(always)]
    pub(super) fn allocated(&self) -> usize {
        self.0.len()
    }

    /// The page with these words, which may come from anywhere.
    ///
    /// # Errors
    /// `Error::Impossible` if they are not those of a page, `Error::OutOfMemory`.
    pub fn from_words(words: &[u64], format: Format) -> Result<Self, Error> {
        if words.is_empty() {
            return Err(NO_PAGE);
        }
        let mut page = Self::copy(words)?;
        if !page.is_short() {
            let starts: [usize; BLOCKS + 1] = std::array::from_fn(|i| page.start(i));
            let ends = (starts[0], starts[BLOCKS]) == (HEADER, words.len());
            if !ends || !starts.is_sorted_by(|a, b| a < b) {
                return Err(NO_PAGE);
            }
        }
        page.check_blocks(page.format(format))?;
        page.fit();
        Ok(page)
    }

    fn copy(words: &[u64]) -> Result<Self, Error> {
        let mut copy = Vec::new();
        memory::reserve(&mut copy, words.len())?;
        copy.extend_from_slice(words);
        Ok(Self(copy))
    }

    pub(super) fn duplicate(&self) -> Result<Self, Error> {
        Self::copy(&self.0)
    }

    fn check_blocks(&self, format: Format) -> Result<(), Error> {
        let (rest_bits, mut tags) = (self.rest_bits(), Vec::new());
        // In a short page, the rest is a place below 31.
        let rest = |tag: u64| tag & low(rest_bits.into());
        let sound = |tag: u64| tag >> rest_bits != 0 && rest(tag) < BLOCKS as u64;
        for block in self.blocks() {
            let ones: usize = block.iter().map(|word| word.count_ones() as usize).sum();
            let slots = if ones < BUCKETS { 0 } else { block::slots(Portable, block) };
            let fits = slots <= MOST_SLOTS && block.len() == block::words_of(slots, format);
            if ones < BUCKETS || !fits {
                return Err(NO_PAGE);
            }
            let mut gap = BUCKETS + slots..block.len() * WORD - slots * format.width();
            tags.clear();
            memory::reserve(&mut tags, slots)?;
            tags.extend(
                block::iter(block, format).map(|(bucket, slot)| (bucket, format.tag(slot))),
            );
            let same_bucket = |a: &(usize, u64), b: &(usize, u64)| a.0 == b.0;
            if gap.any(|bit| read(block, bit) & 1 == 1)
                || !tags.iter().all(|&(_, tag)| sound(tag))
                || !tags.chunk_by_mut(same_bucket).all(are_prefix_free)
            {
                return Err(NO_PAGE);
            }
        }
        Ok(())
    }

    /// The bytes that the page takes from the allocator.
    pub fn bytes(&self) -> u64 {
        memory::bytes::<u64>(self.allocated())
    }

    /// The first word of a block. For `BLOCKS`, the end of the page.
    #[inline(always)]
    fn start(&self, block: usize) -> usize {
        usize::from((self.0[block / LANES % HEADER] >> (block % LANES * 16)) as u16)
    }

    fn range(&self, block: usize) -> Range<usize> {
        if self.is_short() {
            return 0..self.words().len();
        }
        self.start(block)..self.start(block + 1)
    }

    /// The block of these words. A page without an allocation has the block `NO_SLOTS`.
    #[inline(always)]
    pub(super) fn block(&self, words: Range<usize>) -> &[u64] {
        debug_assert!(self.0.is_empty() || words.end <= self.0.len(), "{words:?}");
        self.0.get(words).unwrap_or(&NO_SLOTS)
    }

    #[inline(always)]
    fn blocks(&self) -> impl Iterator<Item = &[u64]> {
        let count = if self.is_short() { 1 } else { BLOCKS };
        (0..count).map(|number| self.block(self.range(number)))
    }

    /// Bits of a tag that tell the places of a bucket apart.
    #[inline(always)]
    fn rest_bits(&self) -> u8 {
        if self.is_short() { REST_BITS } else { 0 }
    }

    /// The slot widths of this page. `format` has the slot widths of a long page.
    fn format(&self, format: Format) -> Format {
        Format { tag_bits: format.tag_bits + self.rest_bits(), ..format }
    }

    /// Where an item belongs. Format, place and tag are given as for a long page.
    #[inline(always)]
    pub(super) fn spot(&self, format: Format, place: Place, tag: u64) -> Spot {
        if self.is_short() {
            return self.short_spot(format, place, tag);
        }
        let number = place.block();
        let (start, end) = (self.start(number), self.start(number + 1));
        Spot { format, tag, bucket: place.bucket(), number, start, end }
    }

    #[cold]
    fn short_spot(&self, format: Format, place: Place, tag: u64) -> Spot {
        let (bucket, rest) = (usize::from(place.0) / BLOCKS, usize::from(place.0) % BLOCKS);
        let tag = tag << REST_BITS | rest as u64;
        let (format, end) = (self.format(format), self.words().len());
        Spot { format, tag, bucket, number: 0, start: 0, end }
    }

    /// Moves all starts behind a block by `words`. All stay in their 16 bits, so no lane overflows.
    /// A negative number is added modulo 2^64.
    #[inline(always)]
    fn move_starts(&mut self, block: usize, words: isize) {
        if self.is_short() {
            return;
        }
        let (first, lane) = ((block + 1) / LANES, (block + 1) % LANES);
        let moved = ONES.wrapping_mul(words as u64);
        self.0[first] = self.0[first].wrapping_add(moved << (lane * 16));
        for word in &mut self.0[first + 1..HEADER] {
            *word = word.wrapping_add(moved);
        }
    }

    #[inline(always)]
    pub(super) fn prefetch_starts(&self) {
        prefetch(self.0.as_ptr());
    }

    /// Prefetches the block of a place. Returns it if the page is long.
    #[inline(always)]
    pub(super) fn prefetch_block(&self, place: Place) -> Option<&[u64]> {
        if self.is_short() {
            prefetch_lines(self.words());
            return None;
        }
        let block = &self.0[self.range(place.block())];
        prefetch_lines(block);
        Some(block)
    }

    #[inline(always)]
    pub(super) fn find(&self, select: impl Select, spot: Spot) -> Found {
        block::find(select, self.block(spot.words()), spot.format, spot.bucket, spot.tag)
    }

    #[inline(always)]
    pub(super) fn set_slot(&mut self, spot: Spot, index: usize, slot: u64) {
        block::set_slot(&mut self.0[spot.words()], spot.format, index, slot);
    }

    /// Adds a slot to a bucket that ends at `end`. After an error nothing has changed.
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        select: impl Select,
        mut spot: Spot,
        end: usize,
        slot: u64,
    ) -> Result<(), Error> {
        let block = self.block(spot.words());
        let slots = block::slots(select, block);
        if block::words_of(slots + 1, spot.format) > block.len() {
            if self.0.len() + 1 == LEAST_WORDS {
                return self.lengthen(spot, slot);
            }
            self.widen(spot, slots)?;
            spot.end += 1;
        }
        let block = &mut self.0[spot.words()];
        block::insert(block, spot.format, (slots, end, end - spot.bucket), slot);
        Ok(())
    }

    #[cold]
    fn lengthen(&mut self, spot: Spot, slot: u64) -> Result<(), Error> {
        let format = Format { tag_bits: spot.format.tag_bits - REST_BITS, ..spot.format };
        *self = self.long(format, Some(self.unfold(spot.bucket, slot)))?;
        Ok(())
    }

    /// A long page with the slots of this short one, and one more slot.
    #[cold]
    fn long(&self, format: Format, last: Option<(Place, u64)>) -> Result<Self, Error> {
        let mut slots = Vec::new();
        memory::reserve(&mut slots, self.count() as usize + 1)?;
        slots.extend(self.slots(format).chain(last));
        slots.sort_unstable();
        Self::of_slots(format, &slots)
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, select: impl Select, spot: Spot, index: usize) {
        let slots = block::slots(select, self.block(spot.words()));
        self.take_out(spot, index, slots);
    }

    /// The part of [`Self::remove`] that needs no `select`. Not inlined: it would be compiled once
    /// for each.
    #[inline(never)]
    fn take_out(&mut self, spot: Spot, index: usize, slots: usize) {
        let zero = index + spot.bucket;
        let block = &mut self.0[spot.words()];
        block::remove(block, spot.format, (slots, zero, index));
        self.narrow(spot.format, spot.number, slots - 1);
    }

    /// Takes out the slots that are not alive; returns how many.
    #[inline(always)]
    pub(super) fn sweep(
        &mut self,
        select: impl Select,
        format: Format,
        alive: Generations,
    ) -> usize {
        let (mut gone, format) = (0, self.format(format));
        for number in 0..self.blocks().count() {
            // The last slot takes the allocation with it.
            if self.0.is_empty() {
                break;
            }
            let range = self.range(number);
            let block = &mut self.0[range];
            let slots = block::slots(select, block);
            let kept = block::retain(select, block, format, slots, alive);
            self.narrow(format, number, kept);
            gone += slots - kept;
        }
        gone
    }

    /// Inserts a word into the gap of a block of `slots` slots. Fails if the block has the greatest
    /// length, too. After an error nothing has changed.
    #[inline(never)]
    fn widen(&mut self, spot: Spot, slots: usize) -> Result<(), Error> {
        let len = self.words().len() + 1;
        // A word has fewer than 64 slots.
        if slots + WORD > MOST_SLOTS {
            return Err(Error::OutOfMemory(len as u64 * 8));
        }
        memory::reserve(&mut self.0, len)?;
        if self.0.is_empty() {
            self.0.extend(NO_SLOTS);
        }
        let ends = BUCKETS + slots;
        let at = spot.start + ends / WORD;
        if ends.is_multiple_of(WORD) {
            self.0.insert(at, 0);
        } else {
            // This word may hold the last ends and the lowest slot. Each copy keeps one part.
            self.0.insert(at, self.0[at]);
            self.0[at] &= low(ends % WORD);
            self.0[at + 1] &= !low(ends % WORD);
        }
        self.move_starts(spot.number, 1);
        Ok(())
    }

    /// Removes those words from the gap of a block that its `slots` slots do not need.
    #[inline(always)]
    fn narrow(&mut self, format: Format, number: usize, slots: usize) {
        let Range { start, end } = self.range(number);
        let spare = block::spare(format, end - start, slots);
        if !spare.is_empty() {
            self.cut(number, start + spare.start..start + spare.end);
        }
    }

    /// Removes spare words from the gap of a block. The first may have the last ends, which stay.
    #[inline(never)]
    fn cut(&mut self, number: usize, spare: Range<usize>) {
        self.move_starts(number, -(spare.len() as isize));
        let (at, ends) = (spare.start, self.0[spare.start]);
        self.0.drain(spare);
        if ends != 0 {
            self.0[at] |= ends;
        }
        self.fit();
    }

    /// The slots, with the widths of a long page; in a long page, in order of their places.
    #[inline(always)]
    pub(super) fn slots(&self, format: Format) -> impl Iterator<Item = (Place, u64)> {
        let format = self.format(format);
        self.blocks().enumerate().flat_map(move |(number, block)| {
            let slots = block::iter(block, format);
            slots.map(move |(bucket, slot)| self.unfold(number * BUCKETS + bucket, slot))
        })
    }

    /// A bucket and a slot of this page as the place and slot of a long page.
    #[inline(always)]
    fn unfold(&self, bucket: usize, slot: u64) -> (Place, u64) {
        let (places, bits) = (if self.is_short() { BLOCKS } else { 1 }, self.rest_bits());
        (Place((bucket * places) as u16 + (slot & low(bits.into())) as u16), slot >> bits)
    }

    pub(super) fn count(&self) -> u64 {
        self.blocks().map(|block| block::slots(Portable, block) as u64).sum()
    }

    /// The page with these slots, in order of their places: a long page, or an empty one.
    fn of_slots(format: Format, slots: &[(Place, u64)]) -> Result<Self, Error> {
        if slots.is_empty() {
            return Ok(Self::empty());
        }
        let mut counts = [0; BLOCKS];
        slots.iter().for_each(|(place, _)| counts[place.block()] += 1);
        let blocks = counts.map(|count| block::words_of(count, format));
        let words = HEADER + blocks.iter().sum::<usize>();
        if counts.iter().any(|&count| count > MOST_SLOTS) {
            return Err(Error::OutOfMemory(words as u64 * 8));
        }
        let mut page = Self(Vec::new());
        memory::reserve(&mut page.0, words)?;
        page.0.resize(words, 0);
        let (mut start, mut rest) = (HEADER, slots);
        for number in 0..BLOCKS {
            set(&mut page.0, number * 16, start as u64);
            let (these, later) = rest.split_at(counts[number]);
            let block = &mut page.0[start..start + blocks[number]];
            let these = these.iter().map(|(place, slot)| (place.bucket(), *slot));
            block::write(block, format, counts[number], these);
            (start, rest) = (start + blocks[number], later);
        }
        set(&mut page.0, BLOCKS * 16, start as u64);
        Ok(page)
    }

    /// Divides the slots of a page of a level by the lowest bit of their tags. Void slots go to
    /// both sides. Returns the pages for 0 and 1, and the number of void slots.
    pub(super) fn split(&self, plan: &Plan, level: u32) -> Result<([Self; 2], u64), Error> {
        let (from, to, kind) = (plan.format(level), plan.format(level + 1), plan.payload);
        if self.is_short() && !self.0.is_empty() {
            return self.long(from, None)?.split(plan, level);
        }
        let (mut halves, mut voids) = ([Vec::new(), Vec::new()], 0);
        let most = self.count() as usize;
        for half in &mut halves {
            memory::reserve(half, most)?;
        }
        self.slots(from).for_each(|(place, slot)| {
            let (tag, mut payload) = (from.tag(slot), from.payload(slot));
            if tag == VOID {
                // It stands for items of both pages, so their count is no longer known.
                if let Payload::Count(_) = kind {
                    payload = kind.most();
                }
                let slot = to.with_payload(VOID, payload);
                halves.iter_mut().for_each(|half| half.push((place, slot)));
                voids += 1;
            } else {
                halves[(tag & 1) as usize].push((place, to.with_payload(tag >> 1, payload)));
            }
        });
        let [zero, one] = halves.map(|half| Self::of_slots(to, &half));
        Ok(([zero?, one?], voids))
    }

    /// Undoes a split: makes one page of a level from two. `pages[1]` is the page whose address bit
    /// is 1. Slots of dead `generations` leave. Slots whose tags become equal share one slot, and
    /// `merge` makes its payload. Returns the page, and how many slots fewer it has.
    pub(super) fn join(
        pages: [&Self; 2],
        plan: &Plan,
        level: u32,
        generations: Generations,
        merge: impl Fn(u64, u64) -> u64,
    ) -> Result<(Self, u64), Error> {
        let (from, to) = (plan.format(level + 1), plan.format(level));
        let before = pages.map(Self::count).iter().sum::<u64>();
        let long = |page: &Self| page.is_short().then(|| page.long(from, None)).transpose();
        let long = [long(pages[0])?, long(pages[1])?];
        let pages = [0, 1].map(|half| long[half].as_ref().unwrap_or(pages[half]));
        // Checked before slots are compared. Otherwise each deletion would compare all slots of two
        // forged pages that do not fit into one.
        let slots = |page: &Self, block| block::slots(Portable, page.block(page.range(block)));
        if (0..BLOCKS)
            .any(|block| pages.map(|page| slots(page, block)).iter().sum::<usize>() > MOST_SLOTS)
        {
            return Err(Error::OutOfMemory(0));
        }
        let mut slots: Vec<(Place, u64)> = Vec::new();
        memory::reserve(&mut slots, before as usize)?;
        let mut halves = pages.map(|page| page.slots(from).peekable());
        while let Some(place) = halves.iter_mut().filter_map(|half| Some(half.peek()?.0)).min() {
            let first = slots.len();
            for (bit, half) in halves.iter_mut().enumerate() {
                while let Some((_, slot)) = half.next_if(|next| next.0 == place) {
                    let (tag, payload) = (from.tag(slot), from.payload(slot));
                    if !generations.is_alive(payload) {
                        continue;
                    }
                    let tag = joined(tag, bit as u64, to.tag_bits);
                    match slots[first..].iter_mut().find(|(_, slot)| to.tag(*slot) == tag) {
                        Some((_, slot)) => {
                            let payload = merge(to.payload(*slot), payload);
                            *slot = to.with_payload(tag, payload);
                        }
                        None => slots.push((place, to.with_payload(tag, payload))),
                    }
                }
            }
        }
        Ok((Self::of_slots(to, &slots)?, before - slots.len() as u64))
    }

    /// Lets an allocator move the page.
    ///
    /// # Safety
    /// As for `Pages::relocate`.
    pub(super) unsafe fn relocate(&mut self, mover: impl FnOnce(*mut u8, usize) -> *mut u8) {
        if self.0.is_empty() {
            return;
        }
        let mut words = std::mem::ManuallyDrop::new(std::mem::take(&mut self.0));
        let (old, len, capacity) = (words.as_mut_ptr(), words.len(), words.capacity());
        let at: *mut u64 = mover(old.cast(), memory::bytes::<u64>(len) as usize).cast();
        // SAFETY: `at` is the old allocation, given up above, or one equal to it, as the caller
        // guarantees.
        self.0 = unsafe { Vec::from_raw_parts(at, len, capacity) };
    }
}

/// Prefetches all lines of a block.
#[inline(always)]
fn prefetch_lines(block: &[u64]) {
    // Lines have 8 words. A block may begin and end anywhere in a line.
    let (mut line, last) = (block.as_ptr(), block.as_ptr().wrapping_add(block.len() - 1));
    while line < last {
        prefetch(line);
        line = line.wrapping_add(8);
    }
    prefetch(last);
}
