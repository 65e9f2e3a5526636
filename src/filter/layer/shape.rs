//! The shape of a layer of any kind.

use super::{
    classic::Classic,
    counting::counters::{PER_WORD, WIDTH},
};
use crate::filter::{geometry::Geometry, hash::Hash, params::CellKind};

/// A layer without its bits: its kind, and the numbers of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every bit of an item is in one block.
    Blocked(Geometry),
    /// The bits of an item are anywhere.
    Classic(Classic),
    /// Counters instead of bits; every counter of an item is in one block.
    Counting(Counting),
}

impl Shape {
    /// Words of the whole layer.
    #[must_use]
    pub fn words(&self) -> u64 {
        match self {
            Self::Blocked(geometry) => geometry.words(),
            Self::Classic(classic) => classic.words(),
            Self::Counting(counting) => counting.words(),
        }
    }

    /// The shape of an empty layer with the same positions.
    pub(in crate::filter) fn empty(self) -> Self {
        match self {
            Self::Counting(counting) => Counting::of(counting.geometry).into(),
            Self::Blocked(_) | Self::Classic(_) => self,
        }
    }

    /// What each position holds.
    #[must_use]
    pub fn cells(&self) -> CellKind {
        match self {
            Self::Blocked(_) | Self::Classic(_) => CellKind::Bits,
            Self::Counting(_) => CellKind::Counters,
        }
    }

    /// Bits set, or counters incremented, per item.
    #[must_use]
    pub fn probes(&self) -> u16 {
        match self {
            Self::Blocked(geometry) => u16::from(geometry.probes),
            Self::Classic(classic) => classic.probes,
            Self::Counting(counting) => u16::from(counting.geometry.probes),
        }
    }
}

impl From<Geometry> for Shape {
    fn from(geometry: Geometry) -> Self {
        Self::Blocked(geometry)
    }
}

impl From<Classic> for Shape {
    fn from(classic: Classic) -> Self {
        Self::Classic(classic)
    }
}

impl From<Counting> for Shape {
    fn from(counting: Counting) -> Self {
        Self::Counting(counting)
    }
}

/// An odd multiplier with unrelated bits: SplitMix64's first (Steele, Lea and Flood, 2014).
const MIX: u64 = 0xBF58_476D_1CE4_E5B9;

/// A counting layer without its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// Geometry of the blocked layer with the same positions.
    pub geometry: Geometry,
    /// A running hash of the increments and decrements, in order. It distinguishes the states of a
    /// layer, and two layers that were equal before.
    pub changes: u64,
    /// Deletions that decremented a counter, since the layer was last empty.
    pub deletions: u64,
}

impl Counting {
    /// The shape of an empty layer.
    #[must_use]
    pub fn of(geometry: Geometry) -> Self {
        Self { geometry, changes: 0, deletions: 0 }
    }

    /// Words of the whole layer.
    #[must_use]
    pub fn words(&self) -> u64 {
        self.geometry.words() * WIDTH as u64
    }

    /// Counters of the whole layer.
    pub(super) fn counters(&self) -> u64 {
        self.words() * PER_WORD
    }

    /// Adds a change to the running hash.
    #[inline]
    pub(super) fn change(&mut self, hash: Hash, direction: u64) {
        self.changes = (self.changes ^ hash.block ^ direction).wrapping_mul(MIX);
    }

    /// Adds the changes of another layer, whose counters were added to this one's. Its running hash
    /// is rotated, so that it does not cancel an equal one.
    pub(super) fn merge(&mut self, other: Self) {
        self.changes = (self.changes ^ other.changes.rotate_left(32)).wrapping_mul(MIX);
        self.deletions = self.deletions.saturating_add(other.deletions);
    }
}
