//! Pages that split: their answers, their rate, their words, and lack of memory.

// The module has a global allocator of its own.
#[cfg(not(feature = "module"))]
pub(crate) mod allocation;
mod model;
mod plan;
mod rate;
mod short;
mod stored;
mod window;

use redis_bloom::filter::{
    Error, Hash,
    pages::{Growth, Pages, Payload, Pieces, Plan},
};

use crate::support::item;

/// Bits of the counts of COUNTING.
pub(crate) const COUNT: Payload = Payload::Count(4);

/// One item at a time.
pub(crate) trait Counts {
    /// Adds an item; returns its payload before.
    fn insert(
        &mut self,
        hash: Hash,
        fresh: u64,
        change: impl Fn(u64) -> u64,
    ) -> Result<Option<u64>, Error>;
    /// The count of an item.
    fn count(&self, hash: Hash) -> u64;
    /// Adds an item once more; returns its count before.
    fn raise(&mut self, hash: Hash) -> Result<u64, Error>;
    /// Deletes an item once; returns its count before.
    fn lower(&mut self, hash: Hash) -> u64;
}

impl Counts for Pages {
    fn insert(
        &mut self,
        hash: Hash,
        fresh: u64,
        change: impl Fn(u64) -> u64,
    ) -> Result<Option<u64>, Error> {
        let mut before = None;
        self.insert_chunk(&[hash], fresh, change, |payload| before = payload)?;
        Ok(before)
    }

    fn count(&self, hash: Hash) -> u64 {
        self.find(hash).map_or(0, |payload| payload + 1)
    }

    fn raise(&mut self, hash: Hash) -> Result<u64, Error> {
        let most = self.plan().payload.most();
        let before = self.insert(hash, 0, |payload| (payload + 1).min(most))?;
        Ok(before.map_or(0, |payload| payload + 1))
    }

    fn lower(&mut self, hash: Hash) -> u64 {
        let mut count = 0;
        self.lower_chunk(&[hash], |before| count = before);
        count
    }
}

/// The hash of item `number`.
pub(crate) fn hash(number: u64) -> Hash {
    Hash::of(&item(9, number), 0x5EED)
}

/// An empty structure.
pub(crate) fn pages(rate: f64, capacity: u64, growth: Growth, payload: Payload) -> Pages {
    let plan = Plan::new(rate, capacity, growth, payload).expect("numbers in range");
    Pages::new(plan).expect("memory")
}

/// A structure with short tags and small pages, so that splits are frequent and tags are soon used
/// up.
pub(crate) fn crowded(tag_bits: u8, payload: Payload) -> Pages {
    let plan = Plan { tag_bits, payload, doublings: 19, page_slots: 256, first_pages: 1 };
    Pages::new(plan).expect("memory")
}

/// Adds an item whose payload does not change; returns whether it was new.
pub(crate) fn add(pages: &mut Pages, number: u64) -> bool {
    pages.insert(hash(number), 0, |payload| payload).expect("memory").is_none()
}

/// Writes all words out and reads them in.
pub(crate) fn copy(pages: &Pages) -> Pages {
    let mut pieces = Pieces::new(pages.plan(), 0);
    while let Some((reach, page)) = pages.page_at(pieces.end()) {
        pieces.push(reach.level, page.words()).expect("sound words");
    }
    pieces.finish(pages.copies()).expect("a sound table")
}

/// Adds items once more each.
pub(crate) fn raise(pages: &mut Pages, numbers: std::ops::Range<u64>) {
    for number in numbers {
        pages.raise(hash(number)).expect("memory");
    }
}

/// The probability that a random item matches a slot, exactly: no item matches two.
pub(crate) fn exact_rate(pages: &Pages) -> f64 {
    pages.slots().map(|slot| 0.5_f64.powi(slot.known.into())).sum::<f64>() / 1984.0
}
