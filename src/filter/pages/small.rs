//! The first items: an array of fingerprints, before there is a page.
//!
//! ```text
//!   ┌─────────────┬──────────────────┬────────────┐
//!   │ place: 11   │ tag: r bits      │ payload: c │   an entry, of 32 bits if they suffice,
//!   └─────────────┴──────────────────┴────────────┘   otherwise of 64
//! ```
//!
//! An entry has all that a slot of the only page has, so the page is built from the entries. A page
//! takes at least 640 bytes; ten items take 48 here.

use super::{
    memory,
    page::{PAGE_BUCKETS, Place},
    slot::Format,
    words::low,
};
use crate::filter::{error::Error, hash::Hash, layer::bits::relocate};

/// Entries of 32 bits that take as much as a page of them; half as many of 64 bits do.
const MOST_LANES: usize = 128;

/// Entries of which one is looked for at once.
const GROUP: usize = 16;

/// Lanes of 32 bits in an entry.
#[inline(always)]
pub(super) fn lanes(format: Format) -> usize {
    if 11 + format.tag_bits + format.payload_bits <= 32 { 1 } else { 2 }
}

#[inline(always)]
fn entry(of: &[u32], format: Format, index: usize) -> u64 {
    match lanes(format) {
        1 => of[index].into(),
        _ => u64::from(of[2 * index]) | u64::from(of[2 * index + 1]) << 32,
    }
}

/// The entry without its payload.
#[inline(always)]
fn key(format: Format, entry: u64) -> u64 {
    entry & !low(format.payload_bits.into())
}

#[inline(always)]
fn key_of(format: Format, hash: Hash) -> u64 {
    let bits = usize::from(format.tag_bits);
    (u64::from(Place::of(hash).0) << bits | hash.block & low(bits)) << format.payload_bits
}

#[inline(always)]
fn find(of: &[u32], format: Format, key: u64) -> Option<usize> {
    let mask = !low(format.payload_bits.into());
    if lanes(format) == 2 {
        let is = |lanes: &[u32]| (u64::from(lanes[0]) | u64::from(lanes[1]) << 32) & mask == key;
        return of.chunks_exact(2).position(is);
    }
    let is = |&lane: &u32| lane & mask as u32 == key as u32;
    // Groups without a branch between their entries.
    let group =
        of.chunks(GROUP).position(|group| group.iter().fold(false, |any, lane| any | is(lane)))?;
    let first = group * GROUP;
    of[first..].iter().position(is).map(|index| first + index)
}

/// The places, tags without markers, and payloads, in the order in which they came.
pub(super) fn entries(of: &[u32], format: Format) -> impl Iterator<Item = (Place, u64, u64)> {
    let (tag, payload) = (usize::from(format.tag_bits), usize::from(format.payload_bits));
    (0..of.len() / lanes(format)).map(move |index| {
        let entry = entry(of, format, index);
        let place = Place((entry >> (tag + payload)) as u16);
        (place, entry >> payload & low(tag), entry & low(payload))
    })
}

/// Whether lanes that may come from anywhere are those of the small form.
pub(super) fn are_sound(of: &[u32], format: Format) -> bool {
    let bits = usize::from(format.tag_bits + format.payload_bits);
    of.len() <= MOST_LANES
        && of.len().is_multiple_of(lanes(format))
        && (0..of.len() / lanes(format)).all(|index| {
            let entry = entry(of, format, index);
            (entry >> bits) < PAGE_BUCKETS as u64
                && find(of, format, key(format, entry)) == Some(index)
        })
}

/// Items as an array of entries, with zeros behind them. Their number is known to the owner.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Small(Box<[u32]>);

impl Small {
    /// Whether one more than so many items needs a page.
    pub(super) fn is_full(format: Format, items: u64) -> bool {
        items as usize * lanes(format) >= MOST_LANES
    }

    /// The bytes that the array of so many items takes; `None` if they need a page.
    pub(super) fn bytes_of(format: Format, items: u64) -> Option<u64> {
        let lanes = items.saturating_mul(lanes(format) as u64);
        (lanes <= MOST_LANES as u64).then(|| memory::bytes::<u32>(lanes as usize))
    }

    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    /// The lanes of all items: low and then high 32 bits of an entry that has 64.
    #[inline(always)]
    pub(super) fn lanes_of(&self, format: Format, items: u64) -> &[u32] {
        &self.0[..items as usize * lanes(format)]
    }

    /// The array of these lanes, which are sound.
    pub(super) fn of(lanes: &[u32]) -> Result<Self, Error> {
        let mut array = Vec::new();
        memory::reserve(&mut array, lanes.len())?;
        array.extend_from_slice(lanes);
        array.resize(memory::room::<u32>(lanes.len()), 0);
        Ok(Self(array.into_boxed_slice()))
    }

    pub(super) fn duplicate(&self) -> Result<Self, Error> {
        Self::of(&self.0)
    }

    /// The index of the entry of an item, of so many, and its payload.
    #[inline(always)]
    pub(super) fn find(&self, format: Format, items: u64, hash: Hash) -> Option<(usize, u64)> {
        let index = find(self.lanes_of(format, items), format, key_of(format, hash))?;
        Some((index, entry(&self.0, format, index) & low(format.payload_bits.into())))
    }

    pub(super) fn set_payload(&mut self, format: Format, index: usize, payload: u64) {
        let key = key(format, entry(&self.0, format, index));
        self.set(format, index, key | payload);
    }

    fn set(&mut self, format: Format, index: usize, entry: u64) {
        match lanes(format) {
            1 => self.0[index] = entry as u32,
            _ => (self.0[2 * index], self.0[2 * index + 1]) = (entry as u32, (entry >> 32) as u32),
        }
    }

    /// Adds an entry behind those of so many items. After an error nothing has changed.
    pub(super) fn push(
        &mut self,
        format: Format,
        items: u64,
        hash: Hash,
        payload: u64,
    ) -> Result<(), Error> {
        let wanted = memory::room::<u32>((items as usize + 1) * lanes(format));
        if wanted > self.0.len() {
            let mut array = std::mem::take(&mut self.0).into_vec();
            let reserved = memory::reserve(&mut array, wanted);
            array.resize(if reserved.is_ok() { wanted } else { array.len() }, 0);
            self.0 = array.into_boxed_slice();
            reserved?;
        }
        self.set(format, items as usize, key_of(format, hash) | payload);
        Ok(())
    }

    /// Takes out an entry of so many items; the others keep their order.
    pub(super) fn remove(&mut self, format: Format, items: u64, index: usize) {
        let (lanes, end) = (lanes(format), items as usize * lanes(format));
        self.0.copy_within((index + 1) * lanes..end, index * lanes);
        self.0[end - lanes..end].fill(0);
        self.fit(end - lanes);
    }

    /// Takes out the entries with a payload for which `dead` holds; returns how many.
    pub(super) fn sweep(&mut self, format: Format, items: u64, dead: impl Fn(u64) -> bool) -> u64 {
        let mut kept = 0;
        for index in 0..items as usize {
            let entry = entry(&self.0, format, index);
            if !dead(entry & low(format.payload_bits.into())) {
                self.set(format, kept, entry);
                kept += 1;
            }
        }
        self.0[kept * lanes(format)..].fill(0);
        self.fit(kept * lanes(format));
        items - kept as u64
    }

    /// Returns the memory that so many lanes do not need. Without memory for fewer, it stays.
    fn fit(&mut self, lanes: usize) {
        if memory::room::<u32>(lanes) < self.0.len()
            && let Ok(smaller) = Self::of(&self.0[..lanes])
        {
            *self = smaller;
        }
    }

    /// Lets an allocator move the array.
    ///
    /// # Safety
    /// As for `Pages::relocate`.
    pub(super) unsafe fn relocate(&mut self, mover: impl FnOnce(*mut u8, usize) -> *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { relocate(&mut self.0, mover) }
    }
}
