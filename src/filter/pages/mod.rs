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
//!   page    starts of 31 blocks, block 0 ... block 30                           (page.rs)
//!   block   64 ends among n zeros ──▶ gap ◀── n slots                           (block.rs)
//!   slot    payload of c bits, marker, what is left of the tag                  (slot.rs)
//! ```
//!
//! A quotient filter in pages of some 4.5 KiB, of which one at a time is split by one bit of the
//! tags, without rehashing. It needs no reservation, has no layers, and no pause is longer than a
//! split of some 5,000 slots, at any size. A slot may have a payload: a count, or the generation in
//! which the item came last.
//!
//! Litwin, "Linear Hashing: A New Tool for File and Table Addressing" (1980): which page is split
//! next depends on the number of slots alone. Bender et al., "Don't Thrash" (2012), and Pandey et
//! al., "A General-Purpose Counting Filter" (2017): buckets and slots. Dayan et al., "InfiniFilter"
//! (2023): tags that lose a bit when the table grows. The rate is computed, not estimated
//! (`plan.rs`).
//!
//! # What always holds
//! 1. No tag of a bucket begins another tag of it: an item gets a slot only if no slot matches it.
//!    Therefore every item matches at most one slot, for ever, and deletions are never ambiguous.
//! 2. An item that was added matches a slot until that slot is removed.
//! 3. The words of the pages follow from the plan and the sequence of changing operations, so
//!    replicas are equal. An operation that fails for lack of memory has changed nothing.
//! 4. There are at most [`Plan::most_slots`] slots, but for copies of void ones.
//!
//! # Use
//! [`Plan::new`] chooses the numbers for a rate; [`Pages::new`] makes an empty structure. All other
//! operations take the hash of an item, one or a chunk of up to 64 ([`Pages::find_chunk`]):
//!
//! | one | a chunk | answer |
//! |---|---|---|
//! | [`Pages::find`] | [`Pages::find_chunk`] | payload of the slot that matches, or `None` |
//! | [`Pages::insert`] | [`Pages::insert_chunk`] | payload before, `None` for a new item |
//! | | [`Pages::alter_chunk`] | payload before, or `None` |
//!
//! - A filter that only grows has [`Payload::Nothing`]; its payloads are 0.
//! - A filter that counts has [`Payload::Count`] and [`raise`](Pages::raise),
//!   [`lower`](Pages::lower), [`count`](Pages::count).
//! - A window has [`Payload::Generation`]. It calls [`turn`](Pages::turn) when a generation starts,
//!   inserts with [`generation`](Pages::generation) as payload, and takes only a payload that
//!   [`is_alive`](Pages::is_alive) for an answer. Before a number is used again,
//!   [`sweep`](Pages::sweep) must have visited each block of pages 0, 1, 2 ... up to the last one.
//!   Splits and joins in between need no attention. [`join_if_due`](Pages::join_if_due) between
//!   sweeps returns memory.
//! - [`pages`](Pages::pages), [`small_lanes`](Pages::small_lanes) and [`copies`](Pages::copies) are
//!   the whole state; [`Pages::from_pages`] and [`Pages::from_small`] read it back, from any
//!   source. [`piece_at`](Pages::piece_at) and [`Pieces`] copy a structure that changes in the
//!   meantime. [`slots`](Pages::slots) iterates over all slots with what is known of the hashes of
//!   their items.
//!
//! Arguments, time, and bytes on disk do not belong here.

mod batch;
mod block;
mod counts;
mod memory;
mod page;
mod pieces;
mod plan;
mod sample;
mod select;
mod size;
mod slot;
mod small;
mod unite;
mod words;

pub use page::{Page, PageFault};
pub use pieces::{END, Piece, Pieces, Reach};
pub use plan::{Growth, MAX_PAGES, Payload, Plan};
pub use sample::Sample;
pub use slot::Format;

use page::{PAGE_BUCKETS, Place};
use select::{Select, with_select};
use slot::marker;
use small::Small;

use super::{
    error::Error,
    hash::{Hash, probe::scale},
};

/// Blocks of a page, for [`Pages::sweep`].
pub const BLOCKS: usize = page::BLOCKS;

/// Items in pages that split.
#[derive(Debug, PartialEq, Eq)]
pub struct Pages {
    body: Body,
    /// Slots in all pages.
    slots: u64,
    /// Void slots that a split copied; 0 if payloads are generations.
    copies: u64,
    /// Bytes of all pages: a sum over billions of items would take too long.
    bytes: u64,
    numbers: Numbers,
    /// Which page an item belongs to; it follows from the plan and the number of pages.
    levels: Levels,
    generations: Generations,
}

// Small filters are many.
const _: () = assert!(size_of::<Pages>() <= 64);

#[derive(Debug, PartialEq, Eq)]
enum Body {
    /// The first items, if one page is reserved, and after [`Pages::clear`].
    Small(Small),
    /// At least one page.
    Table(Vec<Page>),
}

/// Which payloads are alive, if they are numbers of generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Generations {
    /// The number of the newest generation.
    newest: u8,
    /// How many numbers are alive, counted back from the newest.
    alive: u8,
}

/// What becomes of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    Nothing,
    /// It gets this payload.
    Payload(u64),
    /// It is removed.
    Remove,
}

/// A slot, and what it says about the hashes of its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Block of the page times 64, plus bucket of the block: in [0, 1983].
    pub place: u16,
    /// The lowest bits of `Hash::block`, as far as they are known.
    pub block: u64,
    /// How many bits of it are known, in [0, 63].
    pub known: u8,
    /// The payload.
    pub payload: u64,
}

/// A [`Plan`] in 10 bytes, without an alignment above 2: it lies beside other short fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    /// Low and high half.
    first_pages: [u16; 2],
    page_slots: u16,
    payload: Payload,
    tag_bits: u8,
    doublings: u8,
}

impl Numbers {
    /// The numbers of a plan that passed [`Plan::check`].
    fn of(&Plan { tag_bits, payload, doublings, page_slots, first_pages }: &Plan) -> Self {
        let first_pages = [first_pages as u16, (first_pages >> 16) as u16];
        Self { first_pages, page_slots, payload, tag_bits, doublings }
    }

    #[inline(always)]
    fn plan(self) -> Plan {
        let Self { first_pages: [low, high], page_slots, payload, tag_bits, doublings } = self;
        let first_pages = u64::from(low) | u64::from(high) << 16;
        Plan { tag_bits, payload, doublings, page_slots, first_pages }
    }
}

/// The two levels of a table: that of the pages that are still to be split, and the next one. Four
/// bytes, because small filters are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Levels {
    /// The lower level.
    level: u8,
    /// Bits of a tag that is added at either level.
    tag_bits: [u8; 2],
    payload_bits: u8,
}

impl Levels {
    /// The levels of a table of `pages` pages; at least 1.
    fn new(plan: &Plan, pages: u64) -> Self {
        let level = pages.ilog2();
        let tag_bits = [level, level + 1].map(|level| plan.format(level).tag_bits);
        Self { level: level as u8, tag_bits, payload_bits: plan.payload.bits() }
    }

    /// The page of an item in a table of `pages` pages, and its level above the lower one.
    #[inline(always)]
    fn page(self, hash: Hash, pages: usize) -> (usize, usize) {
        let lower = 1 << self.level;
        let page = hash.block as usize & (lower - 1);
        let above = usize::from(page < pages - lower);
        (page | hash.block as usize & above << self.level, above)
    }

    /// Where an item belongs in a table of `pages` pages.
    #[inline(always)]
    fn address(self, hash: Hash, pages: usize) -> Address {
        let (page, above) = self.page(hash, pages);
        let format = Format { tag_bits: self.tag_bits[above], payload_bits: self.payload_bits };
        let level = usize::from(self.level) + above;
        Address { page, format, place: place(hash), tag: hash.block >> level }
    }
}

/// Where an item belongs.
#[derive(Clone, Copy)]
struct Address {
    page: usize,
    /// The slots of the page.
    format: Format,
    place: Place,
    /// The bits of the tag; as many as the hash has.
    tag: u64,
}

/// The level of a page in a table of `pages` pages.
#[inline(always)]
fn level_of(page: usize, pages: usize) -> u32 {
    let level = pages.ilog2();
    let is_split = page < pages - (1 << level) || page >= 1 << level;
    level + u32::from(is_split)
}

/// Counts that a page had `before` words allocated.
#[inline(always)]
fn resized(bytes: &mut u64, before: usize, page: &Page) {
    if page.allocated() != before {
        *bytes = *bytes + page.bytes() - memory::bytes::<u64>(before);
    }
}

#[inline(always)]
fn place(hash: Hash) -> Place {
    Place(scale(hash.probes, PAGE_BUCKETS as u64) as u16)
}

impl Pages {
    /// Makes an empty structure.
    ///
    /// # Errors
    /// `Error::OutOfMemory`, and those of [`Plan::check`].
    pub fn new(plan: Plan) -> Result<Self, Error> {
        plan.check()?;
        let generations = Generations { newest: 0, alive: 1 };
        let body = Body::empty(&plan)?;
        let levels = Levels::new(&plan, plan.first_pages);
        let numbers = Numbers::of(&plan);
        let bytes = body.page_bytes();
        Ok(Self { body, slots: 0, copies: 0, bytes, numbers, levels, generations })
    }

    /// The small form of a plan that was checked, empty.
    fn small(plan: Plan) -> Self {
        Self {
            body: Body::Small(Small::default()),
            slots: 0,
            copies: 0,
            bytes: 0,
            numbers: Numbers::of(&plan),
            levels: Levels::new(&plan, 1),
            generations: Generations { newest: 0, alive: 1 },
        }
    }

    /// The numbers with which it was made.
    #[inline]
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.numbers.plan()
    }

    /// The number of slots.
    #[inline]
    #[must_use]
    pub fn slot_count(&self) -> u64 {
        self.slots
    }

    /// The number of items that have a slot. In a window, that of slots.
    #[inline]
    #[must_use]
    pub fn items(&self) -> u64 {
        self.slots - self.copies
    }

    /// Slots that a split made of void ones.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// The pages; none while it is small.
    #[must_use]
    pub fn pages(&self) -> &[Page] {
        match &self.body {
            Body::Small(_) => &[],
            Body::Table(table) => table,
        }
    }

    /// The pages, mutable only so that an allocator may move them.
    pub fn pages_mut(&mut self) -> &mut [Page] {
        match &mut self.body {
            Body::Small(_) => &mut [],
            Body::Table(table) => table,
        }
    }

    /// Lets an allocator move the array of the small form.
    ///
    /// # Safety
    /// As for [`Page::relocate`].
    pub(super) unsafe fn relocate_small(&mut self, mover: impl FnOnce(*mut u8, usize) -> *mut u8) {
        if let Body::Small(small) = &mut self.body {
            // SAFETY: the caller's promise.
            unsafe { small.relocate(mover) };
        }
    }

    /// The entries of the small form.
    #[must_use]
    pub fn small_lanes(&self) -> Option<&[u32]> {
        match &self.body {
            Body::Small(small) => Some(small.lanes_of(self.plan().format(0), self.slots)),
            Body::Table(_) => None,
        }
    }

    /// The bytes that it takes from the allocator, besides itself. They follow from the state, so
    /// replicas report the same.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.body {
            Body::Small(small) => small.bytes(),
            Body::Table(table) => memory::bytes::<Page>(table.len()) + self.bytes,
        }
    }

    /// Copies the structure.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn duplicate(&self) -> Result<Self, Error> {
        let body = match &self.body {
            Body::Small(small) => Body::Small(small.duplicate()?),
            Body::Table(table) => {
                let mut copy = Vec::new();
                memory::reserve(&mut copy, table.len())?;
                for page in table {
                    copy.push(page.duplicate()?);
                }
                Body::Table(copy)
            }
        };
        Ok(Self { bytes: body.page_bytes(), body, ..*self })
    }

    /// The structure with these pages, in order, each of them read with [`Plan::format_of`]. What
    /// it relies on is checked. Its newest generation is 0 until [`Self::turn`].
    ///
    /// # Errors
    /// Those of [`Plan::check`]; `Error::Capacity` if there is no page, or more slots than the
    /// pages may have, or more copies than slots.
    pub fn from_pages(plan: Plan, table: Vec<Page>, copies: u64) -> Result<Self, Error> {
        plan.check()?;
        let pages = table.len() as u64;
        let slots = table.iter().map(Page::count).sum::<u64>();
        let counted = !matches!(plan.payload, Payload::Generation { .. });
        let most = plan.most_slots(pages);
        let sound = (1..=MAX_PAGES).contains(&pages)
            && if counted { copies <= slots && slots - copies <= most } else { copies == 0 };
        if !sound {
            return Err(Error::Capacity(slots));
        }
        let generations = Generations { newest: 0, alive: 1 };
        let levels = Levels::new(&plan, pages);
        let (body, numbers) = (Body::Table(table), Numbers::of(&plan));
        let bytes = body.page_bytes();
        Ok(Self { body, slots, copies, bytes, numbers, levels, generations })
    }

    /// The structure with these entries ([`Self::small_lanes`]), which may come from anywhere.
    ///
    /// # Errors
    /// As those of [`Self::from_pages`].
    pub fn from_small(plan: Plan, lanes: &[u32]) -> Result<Self, Error> {
        plan.check()?;
        let mut made = Self::small(plan);
        let format = plan.format(0);
        if !small::are_sound(lanes, format) {
            return Err(Error::Capacity(lanes.len() as u64));
        }
        made.body = Body::Small(Small::of(lanes)?);
        made.slots = (lanes.len() / small::lanes(format)) as u64;
        Ok(made)
    }

    /// Looks for the slot that matches an item; returns its payload.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: Hash) -> Option<u64> {
        with_select!(select => self.find_by(select, hash))
    }

    #[inline(always)]
    fn find_by(&self, select: impl Select, hash: Hash) -> Option<u64> {
        match &self.body {
            Body::Small(small) => {
                let format = self.plan().format(0);
                let key = small::key_of(format, place(hash), hash.block);
                let index = small.find(format, self.slots, key)?;
                Some(small.payload(format, index))
            }
            Body::Table(table) => {
                let at = self.levels.address(hash, table.len());
                let (_, slot) = table[at.page].find(select, at.format, at.place, at.tag).slot?;
                Some(at.format.payload(slot))
            }
        }
    }

    /// Adds an item: with the payload `fresh` if no slot matches it; otherwise `change` makes the
    /// payload of the slot from what it was. Returns the payload before, `None` if the item is new.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; nothing has changed then.
    #[inline]
    pub fn insert(
        &mut self,
        hash: Hash,
        fresh: u64,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<Option<u64>, Error> {
        with_select!(select => self.insert_by(select, hash, fresh, change))
    }

    #[inline(always)]
    fn insert_by(
        &mut self,
        select: impl Select,
        hash: Hash,
        fresh: u64,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<Option<u64>, Error> {
        let Body::Table(table) = &mut self.body else {
            return self.insert_small(hash, fresh, change);
        };
        let pages = table.len();
        let at = self.levels.address(hash, table.len());
        let (page, format) = (&mut table[at.page], at.format);
        if page.is_empty() {
            return self.insert_first(hash, fresh, change);
        }
        let found = page.find_before_insert(select, format, at.place, at.tag);
        if let Some((index, slot)) = found.slot {
            let payload = format.payload(slot);
            let changed = change(payload);
            if changed != payload {
                let slot = format.with_payload(format.tag(slot), changed);
                page.set_slot(format, at.place, index, slot);
            }
            return Ok(Some(payload));
        }
        let before = page.allocated();
        page.insert(select, format, at.place, found.end, format.slot(at.tag, fresh))?;
        resized(&mut self.bytes, before, page);
        self.slots += 1;
        if self.slots > self.plan().most_slots(pages as u64) {
            self.split_for(hash)?;
        }
        Ok(None)
    }

    /// [`Self::insert_by`] of the first item of a page.
    #[cold]
    #[inline(never)]
    fn insert_first(
        &mut self,
        hash: Hash,
        fresh: u64,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<Option<u64>, Error> {
        if let Body::Table(table) = &mut self.body {
            let at = self.levels.address(hash, table.len());
            let page = &mut table[at.page];
            page.fill()?;
            self.bytes += page.bytes();
        }
        self.insert_by(select::Portable, hash, fresh, change)
    }

    /// [`Self::insert_by`] in the small form.
    #[inline(never)]
    fn insert_small(
        &mut self,
        hash: Hash,
        fresh: u64,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<Option<u64>, Error> {
        let format = self.plan().format(0);
        let Body::Small(small) = &mut self.body else {
            return Ok(None);
        };
        let key = small::key_of(format, place(hash), hash.block);
        if let Some(index) = small.find(format, self.slots, key) {
            let payload = small.payload(format, index);
            small.set_payload(format, index, change(payload));
            return Ok(Some(payload));
        }
        if Small::is_full(format, self.slots) {
            let mut page = Page::empty();
            page.fill()?;
            let last = (place(hash), hash.block, fresh);
            for (place, tag, payload) in
                small::entries(small.lanes_of(format, self.slots), format).chain([last])
            {
                let end = page.find(select::Portable, format, place, tag).end;
                page.insert(select::Portable, format, place, end, format.slot(tag, payload))?;
            }
            let mut table = Vec::new();
            memory::reserve(&mut table, 1)?;
            self.bytes = page.bytes();
            table.push(page);
            self.body = Body::Table(table);
        } else {
            small.push(format, self.slots, key, fresh)?;
        }
        self.slots += 1;
        Ok(None)
    }

    /// [`Self::alter_chunk`] for one item; returns the payload before.
    #[inline(always)]
    fn alter_by(
        &mut self,
        select: impl Select,
        hash: Hash,
        change: &impl Fn(u64) -> Change,
    ) -> Option<u64> {
        let Body::Table(table) = &mut self.body else {
            let mut before = None;
            self.alter_small(hash, change, &mut before);
            return before;
        };
        let at = self.levels.address(hash, table.len());
        let (page, format) = (&mut table[at.page], at.format);
        let (index, slot) = page.find(select, format, at.place, at.tag).slot?;
        let payload = format.payload(slot);
        match change(payload) {
            Change::Nothing => {}
            Change::Payload(payload) => {
                let slot = format.with_payload(format.tag(slot), payload);
                page.set_slot(format, at.place, index, slot);
            }
            Change::Remove => {
                let before = page.allocated();
                page.remove(select, format, at.place, index);
                resized(&mut self.bytes, before, page);
                self.removed(1);
                let pages = self.pages().len() as u64;
                if self.plan().joins_below(pages, self.slots) {
                    self.join_after_removal();
                }
            }
        }
        Some(payload)
    }

    /// Joins two pages. If there is no memory for that, the next removal tries again. The join
    /// comes after the removal: a slot that it unites with another may get the highest count, which
    /// is not removed.
    #[inline(never)]
    fn join_after_removal(&mut self) {
        let _ = self.join();
    }

    /// [`Self::alter_by`] in the small form; `before` gets the payload before. A caller is compiled
    /// for the instructions of `Bmi2` only if what it calls returns no pair of registers, as an
    /// `Option<u64>` would be.
    #[inline(never)]
    fn alter_small(
        &mut self,
        hash: Hash,
        change: &impl Fn(u64) -> Change,
        before: &mut Option<u64>,
    ) {
        let format = self.plan().format(0);
        let Body::Small(small) = &mut self.body else {
            return;
        };
        let key = small::key_of(format, place(hash), hash.block);
        let Some(index) = small.find(format, self.slots, key) else {
            return;
        };
        let payload = small.payload(format, index);
        *before = Some(payload);
        match change(payload) {
            Change::Nothing => {}
            Change::Payload(payload) => small.set_payload(format, index, payload),
            Change::Remove => {
                small.remove(format, self.slots, index);
                self.removed(1);
            }
        }
    }

    /// Counts slots that were removed. Without slots, it is as it was made.
    #[inline(always)]
    fn removed(&mut self, slots: u64) {
        self.slots -= slots;
        // A join may make one slot of two copies.
        self.copies = self.copies.min(self.slots);
        if self.slots == 0 && matches!(&self.body, Body::Table(table) if table.len() == 1) {
            self.clear();
        }
    }

    /// Splits the next page after an item was added. If there is no memory for it, the item leaves
    /// again: what an insertion put in, a removal takes out to the same words.
    #[inline(never)]
    fn split_for(&mut self, hash: Hash) -> Result<(), Error> {
        let split = self.split();
        if split.is_err()
            && let Body::Table(table) = &mut self.body
        {
            let at = self.levels.address(hash, table.len());
            let (page, format) = (&mut table[at.page], at.format);
            let found = page.find(select::Portable, format, at.place, at.tag).slot;
            let before = page.allocated();
            found.into_iter().for_each(|(index, _)| {
                page.remove(select::Portable, format, at.place, index);
            });
            resized(&mut self.bytes, before, page);
            self.slots -= 1;
        }
        split
    }

    /// Splits the next page.
    fn split(&mut self) -> Result<(), Error> {
        let Body::Table(table) = &mut self.body else {
            return Ok(());
        };
        memory::reserve(table, table.len() + 1)?;
        let level = table.len().ilog2();
        let page = table.len() - (1 << level);
        let ([zero, one], voids) = self.numbers.plan().split(&table[page], level)?;
        self.bytes = self.bytes + zero.bytes() + one.bytes() - table[page].bytes();
        table[page] = zero;
        table.push(one);
        self.levels = Levels::new(&self.numbers.plan(), table.len() as u64);
        self.slots += voids;
        if self.plan().counts_copies() {
            self.copies += voids;
        }
        Ok(())
    }

    /// Joins the last page with the one that it was split from, if there are so few slots that it
    /// is due; returns whether it did. A deletion does so itself.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; nothing has changed then.
    pub fn join_if_due(&mut self) -> Result<bool, Error> {
        let pages = self.pages().len() as u64;
        Ok(self.plan().joins_below(pages, self.slots) && self.join()?)
    }

    /// Joins the last page with the one that it was split from. Slots of dead generations leave.
    /// Returns false if the slots do not fit into one page.
    fn join(&mut self) -> Result<bool, Error> {
        let (plan, generations) = (self.plan(), self.generations);
        let Body::Table(table) = &mut self.body else {
            return Ok(false);
        };
        let last = table.len() - 1;
        let level = last.ilog2();
        let first = last - (1 << level);
        let (from, to) = (plan.format(level + 1), plan.format(level));
        let most = plan.payload.most();
        let dead = |payload| match plan.payload {
            Payload::Generation { .. } => !generations.is_alive(payload, most),
            _ => false,
        };
        let merge = |a, b| match plan.payload {
            Payload::Nothing => 0,
            Payload::Count { .. } => most.min(a + b + 1),
            Payload::Generation { .. } if generations.age(a, most) <= generations.age(b, most) => a,
            Payload::Generation { .. } => b,
        };
        let pages = [&table[first], &table[last]];
        let Some((page, fewer)) = Page::join(pages, from, to, dead, merge)? else {
            return Ok(false);
        };
        self.bytes = self.bytes + page.bytes() - table[first].bytes() - table[last].bytes();
        table[first] = page;
        table.truncate(last);
        memory::fit(table);
        self.levels = Levels::new(&plan, last as u64);
        self.removed(fewer);
        Ok(true)
    }

    /// Starts a generation: `newest` is its number modulo 2^c, and `alive` numbers are alive from
    /// now on, counted back from it.
    pub fn turn(&mut self, newest: u8, alive: u8) {
        self.generations = Generations { newest, alive };
    }

    /// The number of the newest generation.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generations.newest.into()
    }

    /// How many generations are alive, counted back from the newest.
    #[must_use]
    pub fn generations_alive(&self) -> u64 {
        self.generations.alive.into()
    }

    /// Whether a payload is the number of a generation that is alive.
    #[inline]
    #[must_use]
    pub fn is_alive(&self, payload: u64) -> bool {
        self.generations.is_alive(payload, self.plan().payload.most())
    }

    /// Removes the slots of dead generations from block `block` (in [0, 30]) of a page; returns
    /// their number. The small form counts as a page of one block.
    pub fn sweep(&mut self, page: usize, block: usize) -> u64 {
        let (generations, most) = (self.generations, self.plan().payload.most());
        let dead = |payload| !generations.is_alive(payload, most);
        let plan = self.plan();
        let removed = match &mut self.body {
            Body::Small(small) if page == 0 && block == 0 => {
                small.sweep(plan.format(0), self.slots, dead)
            }
            Body::Table(table) if page < table.len() && block < BLOCKS => {
                let format = plan.format(level_of(page, table.len()));
                let page = &mut table[page];
                let before = page.allocated();
                let removed = with_select!(select => page.sweep(select, format, block, dead));
                resized(&mut self.bytes, before, page);
                removed as u64
            }
            _ => 0,
        };
        self.removed(removed);
        removed
    }

    /// Removes all slots at once, and returns the pages for the caller to free: at a billion items
    /// that takes a tenth of a second. It is as new then, but its generations stay. Without memory
    /// for the table of reserved pages it begins with one, which splits.
    pub fn clear(&mut self) -> Vec<Page> {
        let (plan, generations) = (self.plan(), self.generations);
        let new = Self::new(plan).unwrap_or_else(|_| Self::small(plan));
        let before = std::mem::replace(self, Self { generations, ..new });
        match before.body {
            Body::Small(_) => Vec::new(),
            Body::Table(table) => table,
        }
    }

    /// All slots: page by page, in order of their places; in the small form in the order in which
    /// they came.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        let (small, pages) = match &self.body {
            Body::Small(_) => (self.small_lanes(), &[][..]),
            Body::Table(table) => (None, table.as_slice()),
        };
        let (plan, format) = (self.plan(), self.plan().format(0));
        let small = small.into_iter().flat_map(move |lanes| Slot::of_small(lanes, format));
        let paged = pages.iter().enumerate().flat_map(move |(number, page)| {
            let level = level_of(number, pages.len());
            Slot::of_page(page, plan.format(level), number as u64, level)
        });
        small.chain(paged)
    }
}

impl Slot {
    /// The entries of the small form.
    fn of_small(lanes: &[u32], format: Format) -> impl Iterator<Item = Self> {
        small::entries(lanes, format).map(move |(place, tag, payload)| Self {
            place: place.0,
            block: tag,
            known: format.tag_bits,
            payload,
        })
    }

    /// The slots of a page.
    fn of_page(page: &Page, format: Format, number: u64, level: u32) -> impl Iterator<Item = Self> {
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

impl Body {
    /// Bytes of all pages.
    fn page_bytes(&self) -> u64 {
        match self {
            Self::Small(_) => 0,
            Self::Table(table) => table.iter().map(Page::bytes).sum(),
        }
    }

    fn empty(plan: &Plan) -> Result<Self, Error> {
        if plan.first_pages == 1 {
            return Ok(Self::Small(Small::default()));
        }
        let pages =
            usize::try_from(plan.first_pages).map_err(|_| Error::OutOfMemory(plan.first_pages))?;
        let mut table = Vec::new();
        memory::reserve(&mut table, pages)?;
        table.resize_with(pages, Page::empty);
        Ok(Self::Table(table))
    }
}

impl Plan {
    /// Divides a page of a level into the pages for address bits 0 and 1. Returns how many void
    /// slots both have now.
    fn split(&self, page: &Page, level: u32) -> Result<([Page; 2], u64), Error> {
        let (from, to) = (self.format(level), self.format(level + 1));
        let counts = matches!(self.payload, Payload::Count { .. });
        let most = self.payload.most();
        // A copy of a void slot stands for items of both pages, so its count is no longer known.
        page.split(from, to, |payload| if counts { most } else { payload })
    }

    /// The widths of the slots of a page, in a table of `pages` pages; at least 1.
    #[must_use]
    pub fn format_of(&self, page: usize, pages: usize) -> Format {
        self.format(level_of(page, pages))
    }
}

impl Generations {
    /// How many generations ago the one with this number was, by numbers that are used again after
    /// `most` others.
    #[inline(always)]
    fn age(self, number: u64, most: u64) -> u64 {
        u64::from(self.newest).wrapping_sub(number) & most
    }

    #[inline(always)]
    fn is_alive(self, number: u64, most: u64) -> bool {
        self.age(number, most) < self.alive.into()
    }
}
