//! A slot: what is left of an item's tag below a marker, and a payload.
//!
//! ```text
//!            payload: c bits   tag with marker: r + 1 bits
//!   slot   ┌────────────────┬───┬─────────────────────────┐
//!          │                │ 1 │ r bits of the tag       │   as it is added
//!          ├────────────────┼───┴─┬───┬───────────────────┤
//!          │                │ 0 0 │ 1 │ r - 2 bits        │   after two splits of its page
//!          ├────────────────┼─────┴───┴───────────┬───┬───┤
//!          │                │ 0 0 0 0 0 0 0 0 0 0 │ 0 │ 1 │   void: the tag is used up
//!          └────────────────┴─────────────────────┴───┴───┘
//! ```
//!
//! The lowest bit of the tag is the next bit of the address. A split takes it away, a join puts it
//! back. A tag matches an item that has all of its bits. A void slot matches every item of its
//! bucket.

use super::words::low;

/// The widths of a slot. All slots of a page have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of a tag when its item is added: r, in [1, 48]; in a short page in [6, 53].
    pub tag_bits: u8,
    /// Bits of a payload: c, in [0, 8].
    pub payload_bits: u8,
}

impl Format {
    /// Bits of a slot, in [2, 57]; in a short page in [7, 62].
    pub(super) fn width(self) -> usize {
        usize::from(self.tag_bits) + 1 + usize::from(self.payload_bits)
    }

    /// The slot of an added item, with this payload. Bits of `tag` above the lowest r are ignored.
    pub(super) fn slot(self, tag: u64, payload: u64) -> u64 {
        self.with_payload(tag & low(self.tag_bits.into()) | 1 << self.tag_bits, payload)
    }

    /// The slot with this tag and marker, and this payload.
    pub(super) fn with_payload(self, tag: u64, payload: u64) -> u64 {
        payload << (self.tag_bits + 1) | tag
    }

    /// The tag of a slot, with its marker: never 0.
    pub(super) fn tag(self, slot: u64) -> u64 {
        slot & low(usize::from(self.tag_bits) + 1)
    }

    pub(super) fn payload(self, slot: u64) -> u64 {
        slot >> (self.tag_bits + 1)
    }

    pub(super) fn matches(self, slot: u64, tag: u64) -> bool {
        let slot = self.tag(slot);
        (slot ^ tag) & low(marker(slot)) == 0
    }
}

/// The place of the marker: the number of bits below it.
pub(super) fn marker(tag: u64) -> usize {
    // A tag of 0, which only forged pages have, is treated as void. Such a page is refused.
    63 - (tag | 1).leading_zeros() as usize
}

/// The tag of a used-up slot.
pub(super) const VOID: u64 = 1;

/// The tag after a join: `half` is the address bit of its page, and becomes the lowest bit. A tag
/// that already has `bits` bits loses its highest bit.
pub(super) fn joined(tag: u64, half: u64, bits: u8) -> u64 {
    let longer = tag << 1 | half;
    if marker(longer) > usize::from(bits) { longer & low(bits.into()) | 1 << bits } else { longer }
}

/// Whether no tag of a bucket is the beginning of another, so that every item matches at most one.
/// Sorts the tags.
pub(super) fn are_prefix_free(bucket: &mut [(usize, u64)]) -> bool {
    // Compared from the lowest bit on, a tag sorts before the tags that begin with it.
    bucket.sort_unstable_by_key(|&(_, tag)| {
        let len = marker(tag);
        ((tag & low(len)).reverse_bits(), len)
    });
    bucket.windows(2).all(|pair| (pair[0].1 ^ pair[1].1) & low(marker(pair[0].1)) != 0)
}
