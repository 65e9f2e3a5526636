//! The first items: an array of fingerprints, before there is a page.
//!
//! ```text
//!   ┌─────────────┬──────────────────┬────────────┐
//!   │ place: 11   │ tag: r bits      │ payload: c │   an entry, of 32 bits if they suffice,
//!   └─────────────┴──────────────────┴────────────┘   otherwise of 64
//! ```
//!
//! An entry has all that a slot of the only page has, so the page is built from the entries. A page
//! takes 640 bytes at the least; ten items take 48 here.

use super::{
    memory,
    page::{PAGE_BUCKETS, Place},
    slot::Format,
    words::low,
};
use crate::filter::error::Error;

/// Entries of 32 bits that take as much as a page of them; half as many of 64 bits do.
const MOST_LANES: usize = 128;

/// Entries of which one is looked for at once.
const GROUP: usize = 16;

/// Items as an array of entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Small(Vec<u32>);

impl Small {
    /// Lanes of 32 bits in an entry.
    #[inline(always)]
    fn lanes(format: Format) -> usize {
        if 11 + format.tag_bits + format.payload_bits <= 32 { 1 } else { 2 }
    }

    /// The number of items.
    pub(super) fn len(&self, format: Format) -> usize {
        self.0.len() / Self::lanes(format)
    }

    /// Whether another item needs a page.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MOST_LANES
    }

    /// The bytes that the array takes from the allocator.
    pub(super) fn bytes(&self) -> u64 {
        memory::bytes::<u32>(self.0.len())
    }

    /// The lanes: low and then high 32 bits of an entry that has 64.
    pub(super) fn lanes_of(&self) -> &[u32] {
        &self.0
    }

    /// The array of these lanes, which may come from anywhere. `None` if they are none.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub(super) fn from_lanes(lanes: &[u32], format: Format) -> Result<Option<Self>, Error> {
        if lanes.len() > MOST_LANES || !lanes.len().is_multiple_of(Self::lanes(format)) {
            return Ok(None);
        }
        let mut small = Self::default();
        memory::reserve(&mut small.0, lanes.len())?;
        small.0.extend_from_slice(lanes);
        let sound = (0..small.len(format)).all(|index| {
            let entry = small.entry(format, index);
            let bits = usize::from(format.tag_bits + format.payload_bits);
            (entry >> bits) < PAGE_BUCKETS as u64
                && small.find(format, Self::key(format, entry)) == Some(index)
        });
        Ok(sound.then_some(small))
    }

    /// Copies the array.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub(super) fn duplicate(&self) -> Result<Self, Error> {
        let mut copy = Self::default();
        memory::reserve(&mut copy.0, self.0.len())?;
        copy.0.extend_from_slice(&self.0);
        Ok(copy)
    }

    #[inline(always)]
    fn entry(&self, format: Format, index: usize) -> u64 {
        match Self::lanes(format) {
            1 => self.0[index].into(),
            _ => u64::from(self.0[2 * index]) | u64::from(self.0[2 * index + 1]) << 32,
        }
    }

    fn set_entry(&mut self, format: Format, index: usize, entry: u64) {
        match Self::lanes(format) {
            1 => self.0[index] = entry as u32,
            _ => (self.0[2 * index], self.0[2 * index + 1]) = (entry as u32, (entry >> 32) as u32),
        }
    }

    /// The entry without its payload.
    #[inline(always)]
    fn key(format: Format, entry: u64) -> u64 {
        entry & !low(format.payload_bits.into())
    }

    /// The key of an item.
    #[inline(always)]
    pub(super) fn key_of(format: Format, place: Place, tag: u64) -> u64 {
        let bits = usize::from(format.tag_bits);
        (u64::from(place.0) << bits | tag & low(bits)) << format.payload_bits
    }

    /// The index of the entry with this key.
    #[inline(always)]
    pub(super) fn find(&self, format: Format, key: u64) -> Option<usize> {
        let mask = !low(format.payload_bits.into());
        if Self::lanes(format) == 2 {
            let is =
                |lanes: &[u32]| (u64::from(lanes[0]) | u64::from(lanes[1]) << 32) & mask == key;
            return self.0.chunks_exact(2).position(is);
        }
        let is = |&lane: &u32| lane & mask as u32 == key as u32;
        // Groups without a branch between their entries.
        let group = self
            .0
            .chunks(GROUP)
            .position(|group| group.iter().fold(false, |any, lane| any | is(lane)))?;
        let first = group * GROUP;
        self.0[first..].iter().position(is).map(|index| first + index)
    }

    /// The payload of an entry.
    pub(super) fn payload(&self, format: Format, index: usize) -> u64 {
        self.entry(format, index) & low(format.payload_bits.into())
    }

    /// Writes the payload of an entry.
    pub(super) fn set_payload(&mut self, format: Format, index: usize, payload: u64) {
        let key = Self::key(format, self.entry(format, index));
        self.set_entry(format, index, key | payload);
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; nothing has changed then.
    pub(super) fn push(&mut self, format: Format, key: u64, payload: u64) -> Result<(), Error> {
        let (index, lanes) = (self.len(format), self.0.len() + Self::lanes(format));
        memory::reserve(&mut self.0, lanes)?;
        self.0.resize(lanes, 0);
        self.set_entry(format, index, key | payload);
        Ok(())
    }

    /// Takes out an entry; the others keep their order.
    pub(super) fn remove(&mut self, format: Format, index: usize) {
        let lanes = Self::lanes(format);
        self.0.drain(index * lanes..(index + 1) * lanes);
        memory::fit(&mut self.0);
    }

    /// Takes out the entries with a payload for which `dead` holds; returns how many.
    pub(super) fn sweep(&mut self, format: Format, dead: impl Fn(u64) -> bool) -> usize {
        let before = self.len(format);
        for index in (0..before).rev() {
            if dead(self.payload(format, index)) {
                let lanes = Self::lanes(format);
                self.0.drain(index * lanes..(index + 1) * lanes);
            }
        }
        memory::fit(&mut self.0);
        before - self.len(format)
    }

    /// The places, tags without markers, and payloads, in the order in which they came.
    pub(super) fn entries(&self, format: Format) -> impl Iterator<Item = (Place, u64, u64)> {
        let (tag, payload) = (usize::from(format.tag_bits), usize::from(format.payload_bits));
        (0..self.len(format)).map(move |index| {
            let entry = self.entry(format, index);
            let place = Place((entry >> (tag + payload)) as u16);
            (place, entry >> payload & low(tag), entry & low(payload))
        })
    }
}
