//! Pages that split: one structure for filters that grow, that count, and that forget.
//!
//! ```text
//!   Hash::block    ─ ─ ──────────────────┬───────────────┐
//!                   tag: the next r bits │ page: l bits  │   l + 1 bits if the page was split
//!                  ─ ─ ──────────────────┴───────────────┘
//!   Hash::probes   ── * 31 * 64 / 2^64 ──▶ place: block of the page, bucket of the block
//!
//!   table   ┌────────┬────────┬─ ─ ─┬────────┐   splits go round: page 0 to page 2^l - 1, then
//!           │ page 0 │ page 1 │     │ page n │   the next level; page s + 2^l gets what page s
//!           └───┬────┴───┬────┴─ ─ ─┴───┬────┘   had with the address bit 1
//!               ▼        ▼              ▼
//!   page    starts of 31 blocks, block 0 ... block 30; at first one block only  (page.rs)
//!   block   64 ends among n zeros ──▶ gap ◀── n slots                           (block.rs)
//!   slot    payload of c bits, marker, what is left of the tag                  (slot.rs)
//! ```
//!
//! A quotient filter in pages of some 4.5 KiB, of which one at a time is split by one bit of the
//! tags, without rehashing. A slot may have a payload: a count, or the number of a generation.
//!
//! Litwin, "Linear Hashing: A New Tool for File and Table Addressing" (1980): pages that split.
//! Bender et al., "Don't Thrash: How to Cache Your Hash on Flash" (2012), and Pandey et al., "A
//! General-Purpose Counting Filter" (2017): buckets and slots. Dayan et al., "InfiniFilter" (2023):
//! tags that lose a bit when the table grows.
//!
//! # What always holds
//! 1. No tag of a bucket is the beginning of another one in that bucket. So every item matches at
//!    most one slot.
//! 2. An item that was added matches a slot until that slot is removed.
//! 3. The words of the pages follow from the plan and the sequence of changing operations. An
//!    operation that fails for lack of memory has changed nothing.
//! 4. There are at most [`Plan::most_slots`] slots, not counting copies of void ones.
//!
//! A window calls [`turn`](Pages::turn) when its generations change, inserts with the newest number
//! as payload, and accepts only slots of [`Generations`] that are alive. Before a number is used
//! again, [`sweep`](Pages::sweep) must have visited all pages in order. Splits and joins in between
//! need no attention.

mod batch;
mod block;
mod figures;
mod memory;
mod page;
mod pieces;
mod plan;
mod slot;
mod unite;
mod words;

pub use figures::Sample;
pub use page::Page;
pub(crate) use pieces::NOT_NEXT;
pub use pieces::{END, Pieces, Reach};
pub use plan::{Growth, MAX_PAGES, Payload, Plan};
pub use slot::Format;

pub(super) use page::PAGE_BUCKETS;
use page::{Place, Spot};
use slot::marker;
use words::{Portable, Select, with_select};

use super::{error::Error, hash::Hash};

/// Items in pages that split.
#[derive(Debug, PartialEq, Eq)]
pub struct Pages {
    /// At least one page.
    table: Vec<Page>,
    slots: u64,
    /// Void slots that a split copied; 0 if payloads are generations.
    copies: u64,
    /// Bytes of all pages: a sum over billions of items would take too long.
    bytes: u64,
    plan: Plan,
    /// They follow from the plan and the number of pages.
    levels: Levels,
    /// The number of the newest generation, and how many are alive.
    newest: u8,
    alive: u8,
}

// Small filters are many.
const _: () = assert!(size_of::<Pages>() <= 64);

/// Which payloads are alive: the numbers of the newest generations.
#[derive(Clone, Copy, Debug)]
pub struct Generations {
    /// The number of the newest generation.
    pub newest: u64,
    /// The highest number. After it, numbers start at 0 again.
    pub most: u64,
    /// How many generations are alive, counted back from the newest.
    pub alive: u64,
}

impl Generations {
    /// How many generations ago the one with this number was.
    #[inline(always)]
    pub(super) fn age(self, number: u64) -> u64 {
        self.newest.wrapping_sub(number) & self.most
    }

    /// Whether the generation with this number is alive.
    #[inline(always)]
    pub fn is_alive(self, number: u64) -> bool {
        self.age(number) < self.alive
    }

    /// The lowest bits of those that are dead among the lowest `count` slots of a word.
    #[inline(always)]
    fn dead(self, format: Format, count: usize, slots: u64) -> u64 {
        let ones = (0..count).fold(0, |ones, i| ones | 1 << (i * format.width()));
        // Each number needs one bit more here: a slot has at least two besides its payload.
        let above = self.most + 1;
        let numbers = format.payload(slots) & (self.most * ones);
        let ages = ((self.newest & self.most | above) * ones - numbers) & (self.most * ones);
        ((ages + above.saturating_sub(self.alive) * ones) >> format.payload_bits) & ones
    }
}

/// A slot, and what it says about the hashes of its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Block of the page times 64, plus bucket of the block: in [0, 1983].
    pub place: u16,
    /// The known bits of `Hash::block`, which are its lowest.
    pub block: u64,
    /// How many bits of it are known, in [0, 63].
    pub known: u8,
    /// The payload.
    pub payload: u64,
}

/// The two levels of a table: that of pages still to be split, and the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Levels {
    /// The lower level.
    level: u8,
    /// Bits of a new tag at either level.
    tag_bits: [u8; 2],
    payload_bits: u8,
}

impl Levels {
    fn new(plan: &Plan, pages: u64) -> Self {
        let level = pages.ilog2();
        let tag_bits = [level, level + 1].map(|level| plan.format(level).tag_bits);
        Self { level: level as u8, tag_bits, payload_bits: plan.payload.bits() }
    }

    /// The page of an address in a table of `pages` pages, and its level. The number of a page is
    /// one of its addresses.
    #[inline(always)]
    fn page(self, address: u64, pages: usize) -> (usize, u32) {
        let lower = 1 << self.level;
        let page = address as usize & (lower - 1);
        let above = usize::from(page < pages - lower);
        (page | address as usize & above << self.level, u32::from(self.level) + above as u32)
    }

    /// The page of an item in a table of `pages` pages, its format, and `block` without the bits of
    /// the address: its lowest bits are the tag.
    #[inline(always)]
    fn address(self, block: u64, pages: usize) -> (usize, Format, u64) {
        let (page, level) = self.page(block, pages);
        let tag_bits = self.tag_bits[(level - u32::from(self.level)) as usize];
        let format = Format { tag_bits, payload_bits: self.payload_bits };
        (page, format, block >> level)
    }
}

/// Updates `bytes` after a page that had `before` allocated words was changed.
#[inline(always)]
fn resized(bytes: &mut u64, before: usize, page: &Page) {
    if page.allocated() != before {
        *bytes = *bytes + page.bytes() - memory::bytes::<u64>(before);
    }
}

impl Pages {
    /// Makes an empty structure. Fails with `Error::OutOfMemory` or as [`Plan::check`] does.
    pub fn new(plan: Plan) -> Result<Self, Error> {
        plan.check()?;
        Ok(Self::of(plan, empty(plan.first_pages as usize)?, 0, 0))
    }

    /// The structure of a checked plan with these pages, each of the format of its level. The
    /// newest generation is 0 until [`Self::turn`].
    fn of(plan: Plan, table: Vec<Page>, slots: u64, copies: u64) -> Self {
        let bytes = table.iter().map(Page::bytes).sum();
        let levels = Levels::new(&plan, table.len() as u64);
        Self { table, slots, copies, bytes, plan, levels, newest: 0, alive: 1 }
    }

    /// The numbers with which it was made.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// The number of slots.
    pub fn slot_count(&self) -> u64 {
        self.slots
    }

    /// The slots above which a page is split.
    #[inline]
    pub fn most_slots(&self) -> u64 {
        self.plan.most_slots(self.table.len() as u64)
    }

    /// The number of items that have a slot. In a window, the number of slots.
    pub fn items(&self) -> u64 {
        self.slots - self.copies
    }

    /// Void slots that splits copied.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// The pages; at least one.
    pub fn pages(&self) -> &[Page] {
        &self.table
    }

    /// Lets an allocator move pages, from number `from` on, until `stop` says so. Returns the next
    /// number.
    ///
    /// # Safety
    /// As for `Bits::relocate`.
    pub(super) unsafe fn relocate(
        &mut self,
        from: u64,
        mut mover: impl FnMut(*mut u8, usize) -> *mut u8,
        mut stop: impl FnMut() -> bool,
    ) -> Option<u64> {
        let last = self.table.len() - 1;
        for (number, page) in self.table.iter_mut().enumerate().skip(from as usize) {
            // SAFETY: the caller's promise.
            unsafe { page.relocate(&mut mover) };
            if number < last && stop() {
                return Some(number as u64 + 1);
            }
        }
        None
    }

    /// The bytes of its allocations: equal on replicas.
    pub fn bytes(&self) -> u64 {
        memory::bytes::<Page>(self.table.len()) + self.bytes
    }

    /// Copies the structure, if there is memory.
    pub fn duplicate(&self) -> Result<Self, Error> {
        let mut table = Vec::new();
        memory::reserve(&mut table, self.table.len())?;
        for page in &self.table {
            table.push(page.duplicate()?);
        }
        Ok(Self { table, ..*self })
    }

    /// The page of an item, and where it belongs there.
    #[inline(always)]
    fn spot(&self, block: u64, place: Place) -> (usize, Spot) {
        let (page, format, tag) = self.levels.address(block, self.table.len());
        (page, self.table[page].spot(format, place, tag))
    }

    /// The payload of the slot that matches an item.
    pub fn find(&self, hash: Hash) -> Option<u64> {
        with_select!(select => self.find_by(select, hash.block, Place::of(hash)))
    }

    #[inline(always)]
    fn find_by(&self, select: impl Select, block: u64, place: Place) -> Option<u64> {
        let (page, spot) = self.spot(block, place);
        let (_, slot) = self.table[page].find(select, spot).slot?;
        Some(spot.format.payload(slot))
    }

    /// Adds an item, as [`Self::insert_chunk`] does. After an error nothing has changed.
    #[inline(always)]
    fn insert(
        &mut self,
        select: impl Select,
        hash: Hash,
        fresh: u64,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<Option<u64>, Error> {
        let (number, spot) = self.spot(hash.block, Place::of(hash));
        let (format, page) = (spot.format, &mut self.table[number]);
        let found = page.find(select, spot);
        if let Some((index, slot)) = found.slot {
            let payload = format.payload(slot);
            let changed = change(payload);
            if changed != payload {
                let slot = format.with_payload(format.tag(slot), changed);
                page.set_slot(spot, index, slot);
            }
            return Ok(Some(payload));
        }
        let slot = format.slot(spot.tag, fresh);
        if self.slots >= self.most_slots() {
            return self.insert_and_split(number, spot, found.end, slot).map(|()| None);
        }
        let page = &mut self.table[number];
        let before = page.allocated();
        page.insert(select, spot, found.end, slot)?;
        resized(&mut self.bytes, before, page);
        self.slots += 1;
        Ok(None)
    }

    /// Deletes an item once, and returns its count before. Does not delete an item of the highest
    /// count, because its slot may be void and stand for items of two pages.
    #[inline(always)]
    fn lower_by(&mut self, select: impl Select, hash: Hash) -> u64 {
        let most = self.plan.payload.most();
        let (number, spot) = self.spot(hash.block, Place::of(hash));
        let (format, page) = (spot.format, &mut self.table[number]);
        let Some((index, slot)) = page.find(select, spot).slot else {
            return 0;
        };
        let payload = format.payload(slot);
        if payload == 0 && most > 0 {
            let before = page.allocated();
            page.remove(select, spot, index);
            resized(&mut self.bytes, before, page);
            self.removed(1);
            // After the removal: a join may give a slot the highest count, which is not removed.
            self.join_if_due();
        } else if payload < most {
            let slot = format.with_payload(format.tag(slot), payload - 1);
            page.set_slot(spot, index, slot);
        }
        payload + 1
    }

    /// Counts slots that were removed.
    #[inline(always)]
    fn removed(&mut self, slots: u64) {
        self.slots -= slots;
        // A join may make one slot of two copies.
        self.copies = self.copies.min(self.slots);
    }

    /// Adds a slot, then splits the next page.
    #[inline(never)]
    fn insert_and_split(
        &mut self,
        number: usize,
        spot: Spot,
        end: usize,
        slot: u64,
    ) -> Result<(), Error> {
        let (page, bytes) = (&mut self.table[number], self.bytes);
        let old = page.duplicate()?;
        page.insert(Portable, spot, end, slot)?;
        self.bytes = bytes + page.bytes() - old.bytes();
        self.slots += 1;
        self.split().inspect_err(|_| {
            self.table[number] = old;
            (self.bytes, self.slots) = (bytes, self.slots - 1);
        })
    }

    fn split(&mut self) -> Result<(), Error> {
        let table = &mut self.table;
        memory::reserve(table, table.len() + 1)?;
        let level = table.len().ilog2();
        let page = table.len() - (1 << level);
        let ([zero, one], voids) = table[page].split(&self.plan, level)?;
        self.bytes = self.bytes + zero.bytes() + one.bytes() - table[page].bytes();
        table[page] = zero;
        table.push(one);
        self.levels = Levels::new(&self.plan, table.len() as u64);
        self.slots += voids;
        if self.plan.counts_copies() {
            self.copies += voids;
        }
        Ok(())
    }

    /// Joins the last page with the one that it was split from, if that is due. Returns whether it
    /// did. Without memory nothing changes, and a later call tries again.
    #[inline]
    pub fn join_if_due(&mut self) -> bool {
        let pages = self.table.len() as u64;
        self.plan.joins_below(pages, self.slots) && self.join().is_ok()
    }

    #[inline(never)]
    fn join(&mut self) -> Result<(), Error> {
        let (generations, merge) = (self.generations(), self.merging());
        let table = &mut self.table;
        let last = table.len() - 1;
        let level = last.ilog2();
        let first = last - (1 << level);
        let pages = [&table[first], &table[last]];
        let (page, fewer) = Page::join(pages, &self.plan, level, generations, merge)?;
        self.bytes = self.bytes + page.bytes() - table[first].bytes() - table[last].bytes();
        table[first] = page;
        table.truncate(last);
        memory::fit(table);
        self.levels = Levels::new(&self.plan, last as u64);
        self.removed(fewer);
        Ok(())
    }

    /// The payload of a slot that replaces two slots.
    #[inline(always)]
    fn merging(&self) -> impl Fn(u64, u64) -> u64 + use<> {
        let (payload, generations) = (self.plan.payload, self.generations());
        move |a, b| match payload {
            Payload::Count(_) => generations.most.min(a + b + 1),
            Payload::Generation(_) if generations.age(a) > generations.age(b) => b,
            Payload::Nothing | Payload::Generation(_) => a,
        }
    }

    /// Sets which generations are alive: `alive` of them, counted back from `newest` (modulo 2^c).
    pub fn turn(&mut self, newest: u8, alive: u8) {
        (self.newest, self.alive) = (newest, alive);
    }

    /// Which generations are alive; without generations, all payloads are.
    #[inline]
    pub fn generations(&self) -> Generations {
        let most = self.plan.payload.most();
        let forgets = matches!(self.plan.payload, Payload::Generation(_));
        let alive = if forgets { self.alive.into() } else { most + 1 };
        Generations { newest: self.newest.into(), most, alive }
    }

    /// Removes the slots of dead generations from a page, if it is there.
    pub fn sweep(&mut self, page: usize) {
        let (generations, pages) = (self.generations(), self.table.len());
        let Some(swept) = self.table.get_mut(page) else { return };
        let (_, level) = self.levels.page(page as u64, pages);
        let format = self.plan.format(level);
        let before = swept.allocated();
        let removed = with_select!(select => swept.sweep(select, format, generations));
        resized(&mut self.bytes, before, swept);
        self.removed(removed as u64);
    }

    /// Removes all slots, and returns the pages. The caller frees them: at a billion items that
    /// takes a tenth of a second. Without memory for an empty table, they are freed here.
    pub fn clear(&mut self) -> Vec<Page> {
        // Fewer than the first pages if the plan is forged.
        let pages = self.table.len().min(self.plan.first_pages as usize);
        let gone = empty(pages).map(|table| std::mem::replace(&mut self.table, table));
        if gone.is_err() {
            self.table.truncate(pages);
            self.table.fill_with(Page::empty);
        }
        (self.slots, self.copies, self.bytes) = (0, 0, 0);
        self.levels = Levels::new(&self.plan, pages as u64);
        gone.unwrap_or_default()
    }

    /// All slots, page by page.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        self.table.iter().enumerate().flat_map(|(number, page)| {
            let (_, level) = self.levels.page(number as u64, self.table.len());
            Slot::of_page(&self.plan, page, number as u64, level)
        })
    }
}

impl Slot {
    /// The slots of a page.
    fn of_page(plan: &Plan, page: &Page, number: u64, level: u32) -> impl Iterator<Item = Self> {
        let format = plan.format(level);
        page.slots(format).map(move |(place, slot)| {
            let tag = format.tag(slot);
            let len = marker(tag);
            Self {
                place: place.0,
                block: (tag ^ 1 << len) << level | number,
                known: (level as usize + len).min(63) as u8,
                payload: format.payload(slot),
            }
        })
    }
}

/// A table of pages without slots.
fn empty(pages: usize) -> Result<Vec<Page>, Error> {
    let mut table = Vec::new();
    memory::reserve(&mut table, pages)?;
    table.resize_with(pages, Page::empty);
    Ok(table)
}
