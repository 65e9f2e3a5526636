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
//! tags, without rehashing. It needs no reservation, and no pause is longer than a split of some
//! 5,000 slots. A slot may have a payload: a count, or the generation in which the item came last.
//!
//! Litwin, "Linear Hashing: A New Tool for File and Table Addressing" (1980): which page is split
//! next depends on the number of slots alone. Bender et al., "Don't Thrash" (2012), and Pandey et
//! al., "A General-Purpose Counting Filter" (2017): buckets and slots. Dayan et al., "InfiniFilter"
//! (2023): tags that lose a bit when the table grows. The rate is computed, not estimated
//! (`plan.rs`).
//!
//! # What always holds
//! 1. No tag of a bucket is the beginning of another one in that bucket: an item gets a slot only
//!    if no slot matches it. So every item matches at most one slot, and deletions are never
//!    ambiguous.
//! 2. An item that was added matches a slot until that slot is removed.
//! 3. The words of the pages follow from the plan and the sequence of changing operations, so
//!    replicas are equal. An operation that fails for lack of memory has changed nothing.
//! 4. There are at most [`Plan::most_slots`] slots, not counting copies of void ones.
//!
//! A window calls [`turn`](Pages::turn) when a generation starts, inserts with the newest number as
//! payload, and accepts as answers only slots of [`Generations`] that are alive. Before a number is
//! used again, [`sweep`](Pages::sweep) must have visited pages 0, 1, 2 ... up to the last one.
//! Splits and joins in between need no attention.
//!
//! Arguments, time, and bytes on disk do not belong here.

mod batch;
mod block;
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

pub use page::Page;
pub(crate) use pieces::NOT_NEXT;
pub use pieces::{END, Piece, Pieces, Reach};
pub use plan::{Growth, MAX_PAGES, Payload, Plan};
pub use sample::Sample;
pub use slot::Format;

pub(super) use page::PAGE_BUCKETS;
use page::Place;
use select::{Select, with_select};
use slot::marker;
use small::Small;

use super::{error::Error, hash::Hash};

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
    plan: Plan,
    /// Which page an item belongs to; it follows from the plan and the number of pages.
    levels: Levels,
    /// The number of the newest generation, and how many are alive.
    newest: u8,
    alive: u8,
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

/// Which payloads are alive: those that are the numbers of the newest generations.
#[derive(Clone, Copy, Debug)]
pub struct Generations {
    /// The number of the newest generation.
    pub newest: u64,
    /// The highest number: they are used again after so many others.
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

/// The two levels of a table: that of pages still to be split, and the next one.
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
        Address { page, format, place: Place::of(hash), tag: hash.block >> level }
    }
}

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

impl Pages {
    /// Makes an empty structure.
    ///
    /// # Errors
    /// `Error::OutOfMemory`, and those of [`Plan::check`].
    pub fn new(plan: Plan) -> Result<Self, Error> {
        plan.check()?;
        Ok(Self::of(plan, Body::empty(&plan)?))
    }

    /// The structure of a plan that was checked, without its slots counted.
    fn of(plan: Plan, body: Body) -> Self {
        let (pages, bytes) = match &body {
            Body::Small(_) => (1, 0),
            Body::Table(table) => (table.len(), table.iter().map(Page::bytes).sum()),
        };
        let levels = Levels::new(&plan, pages as u64);
        Self { body, slots: 0, copies: 0, bytes, plan, levels, newest: 0, alive: 1 }
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
        self.plan.most_slots(self.pages().len().max(1) as u64)
    }

    /// The number of items that have a slot. In a window, that of slots.
    pub fn items(&self) -> u64 {
        self.slots - self.copies
    }

    /// Slots that a split made of void ones.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// The pages; none while it is small.
    pub fn pages(&self) -> &[Page] {
        match &self.body {
            Body::Small(_) => &[],
            Body::Table(table) => table,
        }
    }

    /// The number of the page with an address, of which the bits of all levels count.
    fn page_at(&self, address: u64) -> usize {
        let (pages, lower) = (self.pages().len(), 1 << self.levels.level);
        let wide = address as usize & (2 * lower - 1);
        if wide < pages { wide } else { wide - lower }
    }

    /// Lets an allocator move allocations, from number `from` on, until `stop` says so. Returns the
    /// number of the next.
    ///
    /// # Safety
    /// As for `layer::bits::relocate`.
    pub(super) unsafe fn relocate(
        &mut self,
        from: u64,
        mut mover: impl FnMut(*mut u8, usize) -> *mut u8,
        mut stop: impl FnMut() -> bool,
    ) -> Option<u64> {
        let table = match &mut self.body {
            Body::Small(small) => {
                // SAFETY: the caller's promise.
                unsafe { small.relocate(mover) };
                return None;
            }
            Body::Table(table) => table,
        };
        let last = table.len() - 1;
        for (number, page) in table.iter_mut().enumerate().skip(from as usize) {
            // SAFETY: the caller's promise.
            unsafe { page.relocate(&mut mover) };
            if number < last && stop() {
                return Some(number as u64 + 1);
            }
        }
        None
    }

    /// The entries of the small form.
    pub fn small_lanes(&self) -> Option<&[u32]> {
        match &self.body {
            Body::Small(small) => Some(small.lanes_of(self.plan.format(0), self.slots)),
            Body::Table(_) => None,
        }
    }

    /// The bytes that it takes from the allocator, besides itself: equal on replicas.
    pub fn bytes(&self) -> u64 {
        match &self.body {
            Body::Small(small) => small.bytes(),
            Body::Table(table) => memory::bytes::<Page>(table.len()) + self.bytes,
        }
    }

    /// Copies the structure, if there is memory.
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
        Ok(Self { body, ..*self })
    }

    /// The structure with these pages, in order, each of them read with [`Plan::format_of`]. What
    /// it relies on is checked, but for [`Plan::check`]. Its newest generation is 0 until
    /// [`Self::turn`].
    ///
    /// # Errors
    /// `Error::Capacity` if there is no page, or more slots than the pages may have, or more copies
    /// than slots.
    pub fn from_pages(plan: Plan, table: Vec<Page>, copies: u64) -> Result<Self, Error> {
        let pages = table.len() as u64;
        let slots = table.iter().map(Page::count).sum::<u64>();
        let most = plan.most_slots(pages);
        let counted = if plan.counts_copies() {
            copies <= slots && slots - copies <= most
        } else {
            copies == 0
        };
        let sound = (1..=MAX_PAGES).contains(&pages) && counted;
        if !sound {
            return Err(Error::Capacity(slots));
        }
        Ok(Self { slots, copies, ..Self::of(plan, Body::Table(table)) })
    }

    /// The structure with these entries ([`Self::small_lanes`]), which may come from anywhere, of a
    /// plan that [`Plan::check`] accepts.
    ///
    /// # Errors
    /// `Error::Impossible` for entries that no items have, `Error::OutOfMemory`.
    pub fn from_small(plan: Plan, lanes: &[u32]) -> Result<Self, Error> {
        let format = plan.format(0);
        if !small::are_sound(lanes, format) {
            return Err(Error::Impossible("entries that no items have"));
        }
        let body = Body::Small(Small::of(lanes)?);
        let slots = (lanes.len() / small::lanes(format)) as u64;
        Ok(Self { slots, ..Self::of(plan, body) })
    }

    /// Looks for the slot that matches an item; returns its payload.
    #[inline]
    pub fn find(&self, hash: Hash) -> Option<u64> {
        with_select!(select => self.find_by(select, hash))
    }

    #[inline(always)]
    fn find_by(&self, select: impl Select, hash: Hash) -> Option<u64> {
        match &self.body {
            Body::Small(small) => Some(small.find(self.plan.format(0), self.slots, hash)?.1),
            Body::Table(table) => {
                let at = self.levels.address(hash, table.len());
                let (_, slot) = table[at.page].find(select, at.format, at.place, at.tag).slot?;
                Some(at.format.payload(slot))
            }
        }
    }

    /// How often an item was added and not deleted since; the highest count means "at least".
    pub fn count(&self, hash: Hash) -> u64 {
        self.find(hash).map_or(0, |payload| payload + 1)
    }

    /// Adds an item: with the payload `fresh` if no slot matches it; otherwise `change` makes the
    /// payload from what it was. Returns the payload before, `None` if the item is new.
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
        let found = page.find(select, format, at.place, at.tag);
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
        if self.slots > self.plan.most_slots(pages as u64) {
            self.split_for(hash)?;
        }
        Ok(None)
    }

    #[inline(never)]
    fn insert_small(
        &mut self,
        hash: Hash,
        fresh: u64,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<Option<u64>, Error> {
        let format = self.plan.format(0);
        let Body::Small(small) = &mut self.body else {
            return Ok(None);
        };
        if let Some((index, payload)) = small.find(format, self.slots, hash) {
            small.set_payload(format, index, change(payload));
            return Ok(Some(payload));
        }
        if Small::is_full(format, self.slots) {
            let mut page = Page::empty();
            let last = (Place::of(hash), hash.block, fresh);
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
            small.push(format, self.slots, hash, fresh)?;
        }
        self.slots += 1;
        Ok(None)
    }

    /// Deletes an item once; returns its count before. One at the highest count stays: its slot may
    /// be void and stand for items of two pages.
    #[inline(always)]
    fn lower_by(&mut self, select: impl Select, hash: Hash) -> u64 {
        let most = self.plan.payload.most();
        let Body::Table(table) = &mut self.body else {
            return self.lower_small(hash, most);
        };
        let at = self.levels.address(hash, table.len());
        let (page, format) = (&mut table[at.page], at.format);
        let Some((index, slot)) = page.find(select, format, at.place, at.tag).slot else {
            return 0;
        };
        let payload = format.payload(slot);
        if payload == 0 && most > 0 {
            let before = page.allocated();
            page.remove(select, format, at.place, index);
            resized(&mut self.bytes, before, page);
            self.removed(1);
            // After the removal: a join may give a slot the highest count, which is not removed.
            self.join_if_due();
        } else if payload < most {
            let slot = format.with_payload(format.tag(slot), payload - 1);
            page.set_slot(format, at.place, index, slot);
        }
        payload + 1
    }

    #[inline(never)]
    fn lower_small(&mut self, hash: Hash, most: u64) -> u64 {
        let format = self.plan.format(0);
        let Body::Small(small) = &mut self.body else {
            return 0;
        };
        let Some((index, payload)) = small.find(format, self.slots, hash) else {
            return 0;
        };
        if payload == 0 && most > 0 {
            small.remove(format, self.slots, index);
            self.removed(1);
        } else if payload < most {
            small.set_payload(format, index, payload - 1);
        }
        payload + 1
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

    /// Splits the next page after an item was added. Without memory for it, the item leaves again.
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

    fn split(&mut self) -> Result<(), Error> {
        let Body::Table(table) = &mut self.body else {
            return Ok(());
        };
        memory::reserve(table, table.len() + 1)?;
        let level = table.len().ilog2();
        let page = table.len() - (1 << level);
        let ([zero, one], voids) = self.plan.split(&table[page], level)?;
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

    /// Joins the last page with the one that it was split from, if that is due; returns whether it
    /// did. A deletion does so itself. What finds no memory is tried again later.
    #[inline]
    pub fn join_if_due(&mut self) -> bool {
        let pages = self.pages().len() as u64;
        self.plan.joins_below(pages, self.slots) && self.join().is_ok()
    }

    /// Joins the last page with the one that it was split from. Slots of dead generations leave.
    #[inline(never)]
    fn join(&mut self) -> Result<(), Error> {
        let (plan, generations, merge) = (self.plan, self.generations(), self.merging());
        let Body::Table(table) = &mut self.body else {
            return Ok(());
        };
        let last = table.len() - 1;
        let level = last.ilog2();
        let first = last - (1 << level);
        let (from, to) = (plan.format(level + 1), plan.format(level));
        let pages = [&table[first], &table[last]];
        let dead = |payload| !generations.is_alive(payload);
        let (page, fewer) = Page::join(pages, from, to, dead, merge)?;
        self.bytes = self.bytes + page.bytes() - table[first].bytes() - table[last].bytes();
        table[first] = page;
        table.truncate(last);
        memory::fit(table);
        self.levels = Levels::new(&plan, last as u64);
        self.removed(fewer);
        Ok(())
    }

    /// The payload of a slot that stands for the items of two.
    #[inline(always)]
    fn merging(&self) -> impl Fn(u64, u64) -> u64 + use<> {
        let (payload, generations) = (self.plan.payload, self.generations());
        move |a, b| match payload {
            Payload::Count { .. } => generations.most.min(a + b + 1),
            Payload::Generation { .. } if generations.age(a) > generations.age(b) => b,
            Payload::Nothing | Payload::Generation { .. } => a,
        }
    }

    /// Starts generation `newest` modulo 2^c; `alive` numbers are alive, counted back from it.
    pub fn turn(&mut self, newest: u8, alive: u8) {
        (self.newest, self.alive) = (newest, alive);
    }

    /// Which generations are alive; without generations, all payloads are.
    #[inline]
    pub fn generations(&self) -> Generations {
        let most = self.plan.payload.most();
        let forgets = matches!(self.plan.payload, Payload::Generation { .. });
        let alive = if forgets { self.alive.into() } else { most + 1 };
        Generations { newest: self.newest.into(), most, alive }
    }

    /// Removes the slots of dead generations from a page; the small form counts as one.
    pub fn sweep(&mut self, page: usize) {
        let (plan, generations) = (self.plan, self.generations());
        let dead = |payload| !generations.is_alive(payload);
        let removed = match &mut self.body {
            Body::Small(small) if page == 0 => small.sweep(plan.format(0), self.slots, dead),
            Body::Table(table) if page < table.len() => {
                let format = plan.format(level_of(page, table.len()));
                let page = &mut table[page];
                let before = page.allocated();
                let removed = with_select!(select => page.sweep(select, format, dead));
                resized(&mut self.bytes, before, page);
                removed as u64
            }
            _ => 0,
        };
        self.removed(removed);
    }

    /// Removes all slots, and returns the pages for the caller to free: at a billion items that
    /// takes a tenth of a second. The structure is as new, but keeps its generations. Without
    /// memory for the table of reserved pages it begins with one page, which splits.
    pub fn clear(&mut self) -> Vec<Page> {
        let (plan, newest, alive) = (self.plan, self.newest, self.alive);
        // Pages that it does not have were not made: there was no memory, or the plan is forged.
        let is_reserved = self.pages().len() as u64 >= plan.first_pages.into();
        let body = is_reserved.then(|| Body::empty(&plan)).and_then(Result::ok);
        let body = body.unwrap_or(Body::Small(Small::default()));
        let before = std::mem::replace(self, Self { newest, alive, ..Self::of(plan, body) });
        match before.body {
            Body::Small(_) => Vec::new(),
            Body::Table(table) => table,
        }
    }

    /// All slots: page by page, by place; in the small form in the order in which they came.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        let (plan, pages) = (self.plan, self.pages());
        let format = plan.format(0);
        let lanes = self.small_lanes().unwrap_or_default();
        let small = small::entries(lanes, format).map(move |(place, block, payload)| Slot {
            place: place.0,
            block,
            known: format.tag_bits,
            payload,
        });
        let paged = pages.iter().enumerate().flat_map(move |(number, page)| {
            let level = level_of(number, pages.len());
            Slot::of_page(page, plan.format(level), number as u64, level)
        });
        small.chain(paged)
    }
}

impl Slot {
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
    fn empty(plan: &Plan) -> Result<Self, Error> {
        if plan.first_pages == 1 {
            return Ok(Self::Small(Small::default()));
        }
        let pages = plan.first_pages as usize;
        let mut table = Vec::new();
        memory::reserve(&mut table, pages)?;
        table.resize_with(pages, Page::empty);
        Ok(Self::Table(table))
    }
}

impl Plan {
    /// Divides a page of a level by an address bit. Returns how many void slots both have now.
    fn split(&self, page: &Page, level: u32) -> Result<([Page; 2], u64), Error> {
        let (from, to) = (self.format(level), self.format(level + 1));
        let counts = matches!(self.payload, Payload::Count { .. });
        let most = self.payload.most();
        // A copy of a void slot stands for items of both pages, so its count is no longer known.
        page.split(from, to, |payload| if counts { most } else { payload })
    }

    /// The widths of the slots of a page, in a table of `pages` pages; at least 1.
    pub fn format_of(&self, page: usize, pages: usize) -> Format {
        self.format(level_of(page, pages))
    }
}
