//! A page: 31 blocks of any lengths behind a line of their places, in one allocation.
//!
//! ```text
//!   word 0              8             start 1              start 2                  start 31
//!   ┌───────────────────┬─────────────┬────────────────────┬─ ─ ─ ─ ─ ─┬──────────────┐
//!   │ 32 starts, 16 bit │ block 0     │ block 1            │           │ block 30     │ spare
//!   └───────────────────┴─────────────┴────────────────────┴─ ─ ─ ─ ─ ─┴──────────────┘
//! ```
//!
//! Start i is in bits 16 (i % 4) of word i / 4, in words from the start of the page. The last one,
//! start 31, is the end of the page. One line of cache answers where a block lies, and a block of
//! some 22 words comes in three or four lines, which are fetched at the same time.
//!
//! A block that needs another word pushes the later ones up, 2 KiB on average. Why 31 blocks: with
//! more, pushing and splitting take longer; with fewer, starts and classes of memory cost more.
//!
//! A page without slots has the same words in every format ([`EMPTY`]), and no allocation: a
//! structure may be reserved for billions of items that never come.

use std::{iter::FusedIterator, ops::Range};

use super::{
    block::{self, BUCKETS, Found},
    memory,
    select::{Portable, Select},
    slot::{Format, VOID, are_prefix_free, joined},
    words::{WORD, low, read, set},
};
use crate::filter::{error::Error, layer::bits::prefetch};

/// Blocks of a page.
pub(super) const BLOCKS: usize = 31;
/// Buckets of a page.
pub(super) const PAGE_BUCKETS: usize = BLOCKS * BUCKETS;
/// Words of a page without slots.
pub(super) const LEAST_WORDS: usize = HEADER + BLOCKS;
/// Words of the starts.
pub(super) const HEADER: usize = (BLOCKS + 1) / LANES;
/// Starts in a word.
const LANES: usize = 4;
/// 1 in each lane.
const ONES: u64 = 0x0001_0001_0001_0001;
/// The most words of a page, so that starts have 16 bits.
const MAX_WORDS: usize = u16::MAX as usize;

/// The most words of a block, three times what one has by chance. It bounds the time of a bucket,
/// whose slots a union and a join compare with each other, where pages are forged or somebody
/// makes items for one bucket.
const MOST_BLOCK_WORDS: usize = 1 << 10;

/// The words of a page without slots: each block is a word of 64 ends.
static EMPTY: [u64; LEAST_WORDS] = {
    let mut words = [u64::MAX; LEAST_WORDS];
    let mut word = 0;
    while word < HEADER {
        let first = (HEADER + word * LANES) as u64;
        words[word] = ONES * first + 0x0003_0002_0001_0000;
        word += 1;
    }
    words
};

/// A bucket of a page: number `block * 64 + bucket`, in [0, 1983].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(pub(super) u16);

impl Place {
    pub(super) fn block(self) -> usize {
        usize::from(self.0) / BUCKETS
    }

    pub(super) fn bucket(self) -> usize {
        usize::from(self.0) % BUCKETS
    }
}

/// The slots of some items, in 1,984 buckets. No words stand for those of `EMPTY`.
#[derive(Debug, PartialEq, Eq)]
pub struct Page(Vec<u64>);

/// Why words are not those of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageFault {
    /// The starts of the blocks do not follow each other from the first word to the last, or are
    /// too far apart.
    #[error("blocks of a page that do not fill it")]
    Starts,
    /// A block has too few ends, or other words than its slots need.
    #[error("a block without its 64 ends, or of a wrong length")]
    Ends,
    /// The gap between ends and slots is not zero.
    #[error("a block with a gap that is not empty")]
    Gap,
    /// A slot has no marker.
    #[error("a slot without a marker")]
    Marker,
    /// A tag of a bucket begins another one of the bucket.
    #[error("two slots that match the same item")]
    Ambiguous,
    /// Entries of the small form that are too many, or equal, or of no bucket.
    #[error("entries that no items have")]
    Entries,
    /// No page of this level starts where the page before ends.
    #[error("a page that does not follow the one before")]
    Position,
    /// The levels of pages differ by too much.
    #[error("pages of too different levels")]
    Levels,
    /// The allocator refused this many bytes.
    #[error("no memory for {0} bytes of slots")]
    OutOfMemory(u64),
}

impl Page {
    /// A page without slots.
    pub(super) fn empty() -> Self {
        Self(Vec::new())
    }

    /// Whether it has no slots, and no allocation. Where it has, a compiler need not check again
    /// that the starts are there.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.len() < HEADER
    }

    /// Allocates the words of a page without slots, for its first slot, which then finds memory.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    #[cold]
    pub(super) fn fill(&mut self) -> Result<(), Error> {
        memory::reserve(&mut self.0, LEAST_WORDS + 1)?;
        self.0.extend_from_slice(&EMPTY);
        Ok(())
    }

    /// The page with these words, which are sound.
    fn of(words: Vec<u64>) -> Self {
        if words.len() > LEAST_WORDS { Self(words) } else { Self::empty() }
    }

    /// The words. They hold the whole page, and are the same on every machine.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        if self.is_empty() { &EMPTY } else { &self.0 }
    }

    /// How many words are allocated.
    #[inline(always)]
    pub(super) fn allocated(&self) -> usize {
        self.0.len()
    }

    /// The page with these words, which may come from anywhere: all that this module relies on is
    /// checked.
    ///
    /// # Errors
    /// What is wrong.
    pub fn from_words(words: &[u64], format: Format) -> Result<Self, PageFault> {
        if !(LEAST_WORDS..=MAX_WORDS).contains(&words.len()) {
            return Err(PageFault::Starts);
        }
        let refused = PageFault::OutOfMemory(words.len() as u64 * 8);
        let mut page = Self(Vec::new());
        memory::reserve(&mut page.0, words.len()).map_err(|_| refused)?;
        page.0.extend_from_slice(words);
        let starts: [usize; BLOCKS + 1] = std::array::from_fn(|i| page.start(i));
        let ends = (starts[0], starts[BLOCKS]) == (HEADER, words.len());
        let sound = |pair: &[usize]| pair[0] < pair[1] && pair[1] - pair[0] <= MOST_BLOCK_WORDS;
        if !ends || !starts.windows(2).all(sound) {
            return Err(PageFault::Starts);
        }
        let mut tags = Vec::new();
        for number in 0..BLOCKS {
            check_block(page.some_block(number), format, &mut tags)?;
        }
        Ok(Self::of(page.0))
    }

    /// Copies the page.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub(super) fn duplicate(&self) -> Result<Self, Error> {
        let mut copy = Vec::new();
        memory::reserve(&mut copy, self.0.len())?;
        copy.extend_from_slice(&self.0);
        Ok(Self(copy))
    }

    /// The bytes that the page takes from the allocator.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        memory::bytes::<u64>(self.allocated())
    }

    /// The first word of a block; for `BLOCKS`, the end of the page.
    #[inline(always)]
    fn start(&self, block: usize) -> usize {
        usize::from((self.0[block / LANES % HEADER] >> (block % LANES * 16)) as u16)
    }

    /// The words of a block.
    #[inline(always)]
    fn block(&self, number: usize) -> &[u64] {
        if self.is_empty() { &EMPTY[HEADER..=HEADER] } else { self.some_block(number) }
    }

    /// The words of a block of a page with an allocation.
    #[inline(always)]
    fn some_block(&self, number: usize) -> &[u64] {
        &self.0[self.start(number)..self.start(number + 1)]
    }

    /// The words of a block of a page with an allocation, mutable.
    #[inline(always)]
    fn block_mut(&mut self, number: usize) -> &mut [u64] {
        let (start, end) = (self.start(number), self.start(number + 1));
        &mut self.0[start..end]
    }

    /// Moves all starts behind a block up by `words`.
    #[inline(always)]
    fn raise_starts(&mut self, block: usize, words: usize) {
        let (first, mask) = ((block + 1) / LANES, u64::MAX << ((block + 1) % LANES * 16));
        let amount = ONES * words as u64;
        // No sum passes MAX_WORDS, so nothing is carried from lane to lane.
        self.0[first] += amount & mask;
        self.0[first + 1..HEADER].iter_mut().for_each(|word| *word += amount);
    }

    /// Moves all starts behind a block down by `words`.
    fn lower_starts(&mut self, block: usize, words: usize) {
        let (first, mask) = ((block + 1) / LANES, u64::MAX << ((block + 1) % LANES * 16));
        let amount = ONES * words as u64;
        // No start is below `words`, so nothing is borrowed from lane to lane.
        self.0[first] -= amount & mask;
        self.0[first + 1..HEADER].iter_mut().for_each(|word| *word -= amount);
    }

    /// Prefetches the starts.
    #[inline(always)]
    pub(super) fn prefetch_starts(&self) {
        prefetch(self.0.as_ptr());
    }

    /// Prefetches the block of a place, and returns it. Reads the starts.
    #[inline(always)]
    pub(super) fn prefetch_block(&self, place: Place) -> &[u64] {
        let block = self.block(place.block());
        // Lines have 8 words. The first and the last word of a block lie in any of a line.
        let (mut line, last) = (block.as_ptr(), block.as_ptr().wrapping_add(block.len() - 1));
        while line < last {
            prefetch(line);
            line = line.wrapping_add(8);
        }
        prefetch(last);
        block
    }

    /// Looks for the slot that matches the tag bits `tag`.
    #[inline(always)]
    pub(super) fn find(
        &self,
        select: impl Select,
        format: Format,
        place: Place,
        tag: u64,
    ) -> Found {
        block::find(select, self.block(place.block()), format, place.bucket(), tag)
    }

    /// [`Self::find`] in a page with an allocation.
    #[inline(always)]
    pub(super) fn find_before_insert(
        &self,
        select: impl Select,
        format: Format,
        place: Place,
        tag: u64,
    ) -> Found {
        block::find(select, self.some_block(place.block()), format, place.bucket(), tag)
    }

    /// The indices of the slots of a bucket, and the place of its end among the ends, of a page
    /// with an allocation.
    #[inline(always)]
    pub(super) fn bounds(&self, select: impl Select, place: Place) -> (Range<usize>, usize) {
        block::bounds(select, self.some_block(place.block()), place.bucket())
    }

    /// The slot with this index of the block of a place.
    #[inline(always)]
    pub(super) fn slot(&self, format: Format, place: Place, index: usize) -> u64 {
        block::slot(self.some_block(place.block()), format, index)
    }

    /// Writes a slot of the block of a place.
    #[inline(always)]
    pub(super) fn set_slot(&mut self, format: Format, place: Place, index: usize, slot: u64) {
        block::set_slot(self.block_mut(place.block()), format, index, slot);
    }

    /// Adds a slot to a bucket that ends at `end`, of a page with an allocation.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; nothing has changed then.
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        select: impl Select,
        format: Format,
        place: Place,
        end: usize,
        slot: u64,
    ) -> Result<(), Error> {
        let number = place.block();
        let block = self.some_block(number);
        let slots = block::slots(select, block);
        if block::words_of(slots + 1, format) > block.len() {
            self.widen(number, slots)?;
        }
        let index = end - place.bucket();
        block::insert(self.block_mut(number), format, (slots, end, index), slot);
        Ok(())
    }

    /// Takes a slot out of a bucket.
    #[inline(always)]
    pub(super) fn remove(
        &mut self,
        select: impl Select,
        format: Format,
        place: Place,
        index: usize,
    ) {
        let slots = block::slots(select, self.some_block(place.block()));
        self.take_out(format, place, index, slots);
    }

    /// [`Self::remove`] from a block of `slots` slots. Not inlined: it selects nothing, and a
    /// longer caller might be compiled without the instructions of `select`.
    #[inline(never)]
    fn take_out(&mut self, format: Format, place: Place, index: usize, slots: usize) {
        let number = place.block();
        let zero = index + place.bucket();
        block::remove(self.block_mut(number), format, (slots, zero, index));
        self.narrow(format, number, slots - 1);
    }

    /// Takes out the slots of a block whose payload is `dead`; returns how many.
    #[inline(always)]
    pub(super) fn sweep(
        &mut self,
        select: impl Select,
        format: Format,
        number: usize,
        dead: impl Fn(u64) -> bool,
    ) -> usize {
        if self.is_empty() {
            return 0;
        }
        let block = self.block_mut(number);
        let slots = block::slots(select, block);
        let kept = block::retain(select, block, format, slots, dead);
        self.narrow(format, number, kept);
        slots - kept
    }

    /// Puts another word into the gap of a block of `slots` slots.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; nothing has changed then.
    #[inline(never)]
    fn widen(&mut self, number: usize, slots: usize) -> Result<(), Error> {
        let len = self.0.len() + 1;
        if len > MAX_WORDS || self.block(number).len() >= MOST_BLOCK_WORDS {
            return Err(Error::OutOfMemory(len as u64 * 8));
        }
        memory::reserve(&mut self.0, len)?;
        let ends = BUCKETS + slots;
        let at = self.start(number) + ends / WORD;
        if ends.is_multiple_of(WORD) {
            self.0.insert(at, 0);
        } else {
            // The word in which the ends stop may also have the lowest slot: one copy for each.
            self.0.insert(at, self.0[at]);
            self.0[at] &= low(ends % WORD);
            self.0[at + 1] &= !low(ends % WORD);
        }
        self.raise_starts(number, 1);
        Ok(())
    }

    /// Takes the words out of the gap of a block that its `slots` slots do not need.
    #[inline(always)]
    fn narrow(&mut self, format: Format, number: usize, slots: usize) {
        let (start, end) = (self.start(number), self.start(number + 1));
        let spare = block::spare(format, end - start, slots);
        if !spare.is_empty() {
            self.cut(number, start + spare.start..start + spare.end);
        }
    }

    /// Takes spare words out of the gap of a block.
    #[inline(never)]
    fn cut(&mut self, number: usize, spare: Range<usize>) {
        self.lower_starts(number, spare.len());
        block::close(&mut self.0, spare);
        if self.0.len() > LEAST_WORDS {
            memory::fit(&mut self.0);
        } else {
            *self = Self::empty();
        }
    }

    /// The slots, in order of their places.
    pub(super) fn slots(&self, format: Format) -> Slots<'_> {
        let mut slots = Slots { page: self, format, block: &[], place: 0, end: 0, bit: 0 };
        slots.enter(0);
        slots
    }

    /// The number of slots.
    pub(super) fn count(&self) -> u64 {
        (0..BLOCKS).map(|number| block::slots(Portable, self.block(number)) as u64).sum()
    }

    /// Divides the slots by the lowest bit of their tags, which becomes a bit of the address. Void
    /// slots go to both sides, and `void` makes their payload. Returns the pages for 0 and 1, of
    /// format `to`, and the number of void slots.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub(super) fn split(
        &self,
        from: Format,
        to: Format,
        void: impl Fn(u64) -> u64,
    ) -> Result<([Self; 2], u64), Error> {
        let (mut zeros, mut ones) = ([0; BLOCKS], [0; BLOCKS]);
        let mut voids = 0;
        for (number, (zeros, ones)) in zeros.iter_mut().zip(&mut ones).enumerate() {
            let block = self.block(number);
            for index in 0..block::slots(Portable, block) {
                let tag = from.tag(block::slot(block, from, index));
                let (one, both) = ((tag & 1) as usize, usize::from(tag == VOID));
                *zeros += 1 - one + both;
                *ones += one;
                voids += both as u64;
            }
        }
        let mut halves = [Writer::new(to, &zeros)?, Writer::new(to, &ones)?];
        for (place, slot) in self.slots(from) {
            let (tag, payload) = (from.tag(slot), from.payload(slot));
            if tag == VOID {
                let slot = to.with_payload(VOID, void(payload));
                halves.iter_mut().for_each(|half| half.put(place, slot));
            } else {
                halves[(tag & 1) as usize].put(place, to.with_payload(tag >> 1, payload));
            }
        }
        let [zero, one] = halves.map(Writer::finish);
        Ok(([zero, one], voids))
    }

    /// Undoes a split: the page of format `to` with the slots of both, `pages[1]` being the one
    /// whose address bit is 1. Leaves out the payloads for which `dead` holds. Tags that become
    /// equal share a slot, whose payload `merge` makes. Returns how many slots there are fewer, or
    /// `None` if they do not fit into a page.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub(super) fn join(
        pages: [&Self; 2],
        from: Format,
        to: Format,
        dead: impl Fn(u64) -> bool,
        merge: impl Fn(u64, u64) -> u64,
    ) -> Result<Option<(Self, u64)>, Error> {
        let before = pages.map(Self::count).iter().sum::<u64>();
        let mut slots: Vec<(Place, u64)> = Vec::new();
        memory::reserve(&mut slots, before as usize)?;
        let mut halves = pages.map(|page| page.slots(from).peekable());
        while let Some(place) = halves.iter_mut().filter_map(|half| Some(half.peek()?.0)).min() {
            let first = slots.len();
            for (bit, half) in halves.iter_mut().enumerate() {
                while let Some((_, slot)) = half.next_if(|next| next.0 == place) {
                    let (tag, payload) = (from.tag(slot), from.payload(slot));
                    if dead(payload) {
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
        let mut counts = [0; BLOCKS];
        slots.iter().for_each(|(place, _)| counts[place.block()] += 1);
        if words_of(to, &counts).is_none() {
            return Ok(None);
        }
        let mut writer = Writer::new(to, &counts)?;
        slots.iter().for_each(|&(place, slot)| writer.put(place, slot));
        Ok(Some((writer.finish(), before - slots.len() as u64)))
    }

    /// Lets an allocator move the page: `mover` gets the address of its words, if there are slots,
    /// and returns the new one, or null if it did not move them.
    ///
    /// # Safety
    /// A new address must point to an allocation of the same allocator and layout with the same
    /// content, and `mover` must have freed the old one. If `mover` returns null, the old
    /// allocation must be untouched.
    pub unsafe fn relocate(&mut self, mover: impl FnOnce(*mut u64) -> *mut u64) {
        if self.is_empty() {
            return;
        }
        let mut words = std::mem::ManuallyDrop::new(std::mem::take(&mut self.0));
        let (old, len, capacity) = (words.as_mut_ptr(), words.len(), words.capacity());
        let new = mover(old);
        let at = if new.is_null() { old } else { new };
        // SAFETY: `at` is the old allocation, given up just above, or one equal to it, as the
        // caller guarantees.
        self.0 = unsafe { Vec::from_raw_parts(at, len, capacity) };
    }
}

/// Checks a block of any words.
fn check_block(block: &[u64], format: Format, tags: &mut Vec<u64>) -> Result<(), PageFault> {
    let ones: usize = block.iter().map(|word| word.count_ones() as usize).sum();
    if ones < BUCKETS {
        return Err(PageFault::Ends);
    }
    let slots = block::slots(Portable, block);
    if block.len() != block::words_of(slots, format) {
        return Err(PageFault::Ends);
    }
    let gap = (BUCKETS + slots, block.len() * WORD - slots * format.width());
    if (gap.0..gap.1).any(|bit| read(block, bit) & 1 == 1) {
        return Err(PageFault::Gap);
    }
    let mut index = 0;
    for bucket in 0..BUCKETS {
        let last = index + (read_zeros(block, index + bucket));
        tags.clear();
        memory::reserve(tags, last - index)
            .map_err(|_| PageFault::OutOfMemory((last - index) as u64 * 8))?;
        tags.extend((index..last).map(|index| format.tag(block::slot(block, format, index))));
        if tags.contains(&0) {
            return Err(PageFault::Marker);
        }
        if !are_prefix_free(tags) {
            return Err(PageFault::Ambiguous);
        }
        index = last;
    }
    Ok(())
}

/// The zeros before the next one, which must be in the array.
fn read_zeros(words: &[u64], from: usize) -> usize {
    let mut zeros = 0;
    loop {
        let more = read(words, from + zeros).trailing_zeros() as usize;
        zeros += more;
        if more < WORD {
            return zeros;
        }
    }
}

/// The slots of a page and their places, in order.
#[derive(Clone, Debug)]
pub(super) struct Slots<'a> {
    page: &'a Page,
    format: Format,
    /// The present block; empty at the end.
    block: &'a [u64],
    /// The place of the last slot, or the first of the block.
    place: usize,
    /// The place of the next bit among the ends.
    end: usize,
    /// The bit behind the next slot.
    bit: usize,
}

impl Slots<'_> {
    /// Goes to the first slot of a block.
    fn enter(&mut self, number: usize) {
        self.block = if number < BLOCKS { self.page.block(number) } else { &[] };
        (self.place, self.end, self.bit) = (number * BUCKETS, 0, self.block.len() * WORD);
    }
}

impl Iterator for Slots<'_> {
    type Item = (Place, u64);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        while !self.block.is_empty() {
            // The ones end buckets, then comes the zero of a slot. Behind the last end, the ones of
            // slots may follow.
            let ones = read(self.block, self.end).trailing_ones() as usize;
            let place = self.place + ones;
            if place / BUCKETS == self.place / BUCKETS {
                self.place = place;
                self.end += ones + 1;
                self.bit -= self.format.width();
                let slot = read(self.block, self.bit) & low(self.format.width());
                return Some((Place(place as u16), slot));
            }
            self.enter(self.place / BUCKETS + 1);
        }
        None
    }
}

impl FusedIterator for Slots<'_> {}

/// The words of a page of blocks with these numbers of slots; `None` if there may not be so many.
fn words_of(format: Format, counts: &[usize; BLOCKS]) -> Option<usize> {
    let mut words = HEADER;
    for &slots in counts {
        let block = block::words_of(slots, format);
        words += block;
        if block > MOST_BLOCK_WORDS {
            return None;
        }
    }
    (words <= MAX_WORDS).then_some(words)
}

/// Writes a page, slot by slot.
struct Writer {
    page: Page,
    format: Format,
    /// The bucket of the last slot.
    place: usize,
    /// The next bit of the ends, from the start of the page.
    end: usize,
    /// The bit behind the next slot, from the start of the page.
    bit: usize,
}

impl Writer {
    /// Starts a page of blocks with these numbers of slots.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    fn new(format: Format, counts: &[usize; BLOCKS]) -> Result<Self, Error> {
        let words = words_of(format, counts).ok_or(Error::OutOfMemory(MAX_WORDS as u64 * 8))?;
        let mut page = Page(Vec::new());
        memory::reserve(&mut page.0, words)?;
        page.0.resize(words, 0);
        let mut start = HEADER;
        for (i, slots) in counts.iter().chain([&0]).enumerate() {
            set(&mut page.0, i * 16, start as u64);
            start += block::words_of(*slots, format);
        }
        let mut writer = Self { page, format, place: 0, end: 0, bit: 0 };
        writer.enter(0);
        Ok(writer)
    }

    fn enter(&mut self, block: usize) {
        self.end = self.page.start(block) * WORD;
        self.bit = self.page.start(block + 1) * WORD;
    }

    /// Ends buckets up to `place`, which is in [0, `PAGE_BUCKETS`].
    #[inline(always)]
    fn advance(&mut self, place: usize) {
        while self.place / BUCKETS < place / BUCKETS {
            let ones = BUCKETS - self.place % BUCKETS;
            set(&mut self.page.0, self.end, u64::MAX >> (BUCKETS - ones));
            self.place += ones;
            if self.place < PAGE_BUCKETS {
                self.enter(self.place / BUCKETS);
            }
        }
        let ones = place - self.place;
        if ones > 0 {
            set(&mut self.page.0, self.end, low(ones));
            self.end += ones;
            self.place = place;
        }
    }

    /// Writes the next slot. Places must not decrease.
    #[inline(always)]
    fn put(&mut self, place: Place, slot: u64) {
        self.advance(place.0.into());
        self.end += 1;
        self.bit -= self.format.width();
        set(&mut self.page.0, self.bit, slot);
    }

    fn finish(mut self) -> Page {
        self.advance(PAGE_BUCKETS);
        Page::of(self.page.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_an_allocator_moved_is_the_same() {
        let format = Format { tag_bits: 11, payload_bits: 4 };
        let mut page = Page::empty();
        page.fill().expect("memory");
        let insert = |page: &mut Page, place: u16| {
            let (place, tag) = (Place(place), u64::from(place));
            let end = page.find(Portable, format, place, tag).end;
            page.insert(Portable, format, place, end, format.slot(tag, 3)).expect("memory");
        };
        (0..500).for_each(|i| insert(&mut page, i * 3));
        let (words, capacity) = (page.words().to_vec(), page.0.capacity());
        let mover = |old: *mut u64| {
            let mut copy = Vec::with_capacity(capacity);
            assert_eq!(copy.capacity(), capacity);
            copy.extend_from_slice(&words);
            // SAFETY: `relocate` gives up the array at `old`, which has this capacity.
            drop(unsafe { Vec::from_raw_parts(old, 0, capacity) });
            std::mem::ManuallyDrop::new(copy).as_mut_ptr()
        };
        let before = page.words().as_ptr();
        // SAFETY: the new allocation has the layout and the content of the old one, which is freed.
        unsafe { page.relocate(mover) };
        assert!(page.words() == words && page.words().as_ptr() != before);
        // SAFETY: nothing is moved.
        unsafe { page.relocate(|_| std::ptr::null_mut()) };
        assert_eq!(page.words(), words);
        (0..500).for_each(|i| insert(&mut page, i * 3 + 1));
        assert_eq!(page.count(), 1_000);
    }
}
