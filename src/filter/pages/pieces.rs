//! Pages that a copy collects, while the structure that they come from splits and joins.
//!
//! ```text
//!   position   0             1/4            1/2            3/4             1     of 2^40
//!   level 0    ├───────────────────────── page 0 ──────────────────────────┤
//!   level 1    ├────────── page 0 ───────────┼────────── page 1 ───────────┤
//!   level 2    ├── page 0 ───┼─── page 2 ────┼── page 1 ────┼── page 3 ────┤
//! ```
//!
//! The position of an address is the address with its bits reversed, as in SCAN of Redis. Every
//! page covers a range of positions: a split halves it, and a join unites two. A copy takes the
//! page at each position in turn. After a join it reads a page that it has in part, and the later
//! page replaces that part. So each address lies in one page of the copy, which is from one moment.
//!
//! The pages of a copy may have levels that no table has at the same time. [`Pieces::finish`]
//! splits pages until a table has them all. It joins none, because two pages need not fit into one.

use super::{
    Levels, MAX_PAGES, Page, Pages, Payload, Place, Plan, Slot, memory, with_select, words::low,
};
use crate::filter::error::Error;

/// The end of all positions.
pub const END: u64 = MAX_PAGES;

/// The highest level of a page.
const MAX_LEVEL: u32 = END.ilog2();

/// The most pages of the table for each page of the copy: more splits would take too long.
const MOST_SPLITS: u64 = 4;

/// The refusal of a page that does not start where the page before it ends.
pub(crate) const NOT_NEXT: Error = Error::Impossible("a page that does not follow the one before");

/// The positions that a page covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The first position.
    pub start: u64,
    /// The level of the page: in [0, 40].
    pub level: u32,
}

impl Reach {
    /// The reach of the page of a level that starts at a position; `None` if none does.
    pub fn new(start: u64, level: u32) -> Option<Self> {
        (level <= MAX_LEVEL && start < END && start & ((END >> level) - 1) == 0)
            .then_some(Self { start, level })
    }

    /// The reach of a page; its number is below 2^level.
    fn of(number: u64, level: u32) -> Self {
        Self { start: number.reverse_bits() >> (u64::BITS - MAX_LEVEL), level }
    }

    fn address(position: u64) -> u64 {
        (position << (u64::BITS - MAX_LEVEL)).reverse_bits()
    }

    fn number(self) -> u64 {
        Self::address(self.start)
    }

    /// The position behind the last.
    pub fn end(self) -> u64 {
        self.start + (END >> self.level)
    }

    /// The fewest pages of a table that contains this page, or pages that were split from it.
    fn least_pages(self) -> u64 {
        match self.level.checked_sub(1) {
            None => 1,
            Some(level) => (self.number() & low(level as usize)) + (1 << level) + 1,
        }
    }
}

/// Pages that cover a range of positions, in order.
#[derive(Debug)]
pub struct Pieces {
    plan: Plan,
    start: u64,
    list: Vec<Held>,
    /// Bytes of the pages.
    bytes: u64,
    /// Copies of void slots that [`Self::finish`] has made.
    copies: u64,
}

#[derive(Debug)]
struct Held {
    reach: Reach,
    page: Page,
}

impl Pages {
    /// The page that covers a position; `None` from [`END`] on.
    pub fn page_at(&self, position: u64) -> Option<(Reach, &Page)> {
        if position >= END {
            return None;
        }
        let (page, level) = self.levels.page(Reach::address(position), self.table.len());
        Some((Reach::of(page as u64, level), &self.table[page]))
    }

    /// Whether each item with a slot in `pieces` also matches a slot here.
    pub fn holds(&self, pieces: &Pieces) -> bool {
        let mut slots = pieces.slots();
        with_select!(select => {
            slots.all(|slot| self.find_by(select, slot.block, Place(slot.place)).is_some())
        })
    }
}

impl Pieces {
    /// No pages, from a position on.
    pub fn new(plan: Plan, start: u64) -> Self {
        Self { plan, start, list: Vec::new(), bytes: 0, copies: 0 }
    }

    /// An empty list for the same structure that starts at a position.
    #[must_use]
    pub fn from(&self, start: u64) -> Self {
        Self::new(self.plan, start)
    }

    /// The position of the next page; [`END`] if there is none.
    pub fn end(&self) -> u64 {
        self.list.last().map_or(self.start, |last| last.reach.end())
    }

    /// The bytes that the pages and their list take from the allocator.
    pub fn bytes(&self) -> u64 {
        memory::bytes::<Held>(self.list.len()) + self.bytes
    }

    /// Adds the page of a level at the next position. Its words may come from anywhere.
    ///
    /// # Errors
    /// `Error::Impossible` if no page of the level starts there, and those of [`Page::from_words`].
    pub fn push(&mut self, level: u32, words: &[u64]) -> Result<(), Error> {
        let reach = Reach::new(self.end(), level).ok_or(NOT_NEXT)?;
        let page = Page::from_words(words, self.plan.format(level))?;
        reserve(&mut self.list, 1)?;
        self.bytes += page.bytes();
        self.list.push(Held { reach, page });
        Ok(())
    }

    /// Appends `later` pages, which start at the end or before it. A page that covers only known
    /// positions is dropped; another one replaces what it overlaps. Returns whether there are more
    /// positions now. `copies` is what [`Self::finish`] gets if these are the last pages.
    ///
    /// # Errors
    /// `Error::Impossible` for a gap, or if the table with all pages would be too large;
    /// `Error::OutOfMemory`. Nothing has changed then.
    pub fn append(&mut self, later: Self, copies: u64) -> Result<bool, Error> {
        let end = self.end();
        if later.start > end {
            return Err(NOT_NEXT);
        }
        if later.end() <= end {
            return Ok(false);
        }
        // Two ranges are nested or apart, so the first new page starts where a page starts, or at
        // the end.
        let skipped = later.list.partition_point(|held| held.reach.end() <= end);
        let new = later.list.get(skipped..).unwrap_or_default();
        let start = new.first().map_or(end, |held| held.reach.start);
        let kept = self.list.partition_point(|held| held.reach.start < start);
        if later.end() == END {
            let pages = self.list.iter().take(kept).chain(new);
            let slots = pages.clone().map(|held| held.page.count()).sum::<u64>();
            let items = slots.saturating_sub(copies);
            let needed = self.plan.pages_of(pages, items);
            if needed > MOST_SPLITS * (kept + new.len()) as u64 {
                return Err(Error::Impossible(
                    "the filter grew too much while it was dumped: dump it again",
                ));
            }
        }
        reserve(&mut self.list, new.len())?;
        let gone = self.list.drain(kept..).map(|held| held.page.bytes()).sum::<u64>();
        self.bytes = self.bytes - gone + new.iter().map(|held| held.page.bytes()).sum::<u64>();
        self.list.extend(later.list.into_iter().skip(skipped));
        Ok(true)
    }

    /// The page that covers a position; `None` where there is none.
    pub fn page_at(&self, position: u64) -> Option<(Reach, &Page)> {
        let behind = self.list.partition_point(|held| held.reach.end() <= position);
        let held = self.list.get(behind).filter(|held| held.reach.start <= position)?;
        Some((held.reach, &held.page))
    }

    /// Copies the pages, if there is memory.
    pub fn duplicate(&self) -> Result<Self, Error> {
        let mut list = Vec::new();
        memory::reserve(&mut list, self.list.len())?;
        for held in &self.list {
            list.push(Held { reach: held.reach, page: held.page.duplicate()? });
        }
        Ok(Self { list, ..*self })
    }

    /// The structure of these pages, which cover all positions. `copies` is the number of slots
    /// that splits made of void ones ([`Pages::copies`]). The pages of one table give that table.
    ///
    /// # Errors
    /// `Error::OutOfMemory`: all pages are still there, and another try may succeed.
    /// `Error::Capacity` if they do not cover all positions.
    pub fn finish(&mut self, copies: u64) -> Result<Pages, Error> {
        if (self.start, self.end()) != (0, END) {
            return Err(Error::Capacity(self.list.len() as u64));
        }
        let slots = self.list.iter().map(|held| held.page.count()).sum::<u64>();
        let items = slots.saturating_sub(copies.saturating_add(self.copies));
        let (mut table, before) = (Vec::new(), self.copies);
        let done = self.split_to(items).and_then(|pages| memory::reserve(&mut table, pages));
        if let Err(error) = done {
            self.list.sort_unstable_by_key(|held| held.reach.start);
            return Err(error);
        }
        self.list.sort_unstable_by_key(|held| held.reach.number());
        table.extend(self.list.drain(..).map(|held| held.page));
        let slots = slots + self.copies - before;
        let copies = if self.plan.counts_copies() { slots - items } else { 0 };
        Ok(Pages::of(self.plan, table, slots, copies))
    }

    /// Splits pages until a table has them all, in any order. Returns their number.
    fn split_to(&mut self, items: u64) -> Result<usize, Error> {
        let pages = self.plan.pages_of(self.list.iter(), items);
        let levels = Levels::new(&self.plan, pages);
        let pages = usize::try_from(pages).map_err(|_| Error::OutOfMemory(pages))?;
        memory::reserve(&mut self.list, pages)?;
        let mut next = 0;
        while let Some(Held { reach, page }) = self.list.get_mut(next) {
            let (number, level) = (reach.number(), reach.level);
            if level == levels.page(number, pages).1 {
                next += 1;
                continue;
            }
            let ([zero, one], voids) = page.split(&self.plan, level)?;
            let before = self.list[next].page.bytes();
            self.bytes = self.bytes - before + zero.bytes() + one.bytes();
            self.list[next] = Held { reach: Reach::of(number, level + 1), page: zero };
            let other = Reach::of(number | 1 << level, level + 1);
            self.list.push(Held { reach: other, page: one });
            self.copies += voids;
        }
        Ok(pages)
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        self.list.iter().flat_map(|held| {
            Slot::of_page(&self.plan, &held.page, held.reach.number(), held.reach.level)
        })
    }
}

impl Plan {
    /// The number of pages of a table that contains these pages, or pages split from them, and has
    /// room for the items.
    fn pages_of<'a>(&self, list: impl Iterator<Item = &'a Held>, items: u64) -> u64 {
        let least = list.map(|held| held.reach.least_pages()).max().unwrap_or(1);
        if self.counts_copies() { least.max(items.div_ceil(self.page_slots.into())) } else { least }
    }

    /// Whether copies of void slots are counted: generations need no exact number of items.
    pub(super) fn counts_copies(&self) -> bool {
        !matches!(self.payload, Payload::Generation(_))
    }
}

fn reserve(list: &mut Vec<Held>, more: usize) -> Result<(), Error> {
    memory::reserve(list, list.len() + more)
}
