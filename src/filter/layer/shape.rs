//! What a layer looks like, of whichever kind.

use super::{
    classic::Classic,
    counting::counters::{PER_WORD, WIDTH},
};
use crate::filter::{geometry::Geometry, hash::Hash, params::CellKind};

/// What a layer looks like, without its bits: the kind, and the numbers of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every bit of an item in one block.
    Blocked(Geometry),
    /// The bits of an item anywhere.
    Classic(Classic),
    /// Counters instead of bits, every one of an item in one block.
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

    /// What there is at each position.
    #[must_use]
    pub fn cells(&self) -> CellKind {
        match self {
            Self::Blocked(_) | Self::Classic(_) => CellKind::Bits,
            Self::Counting(_) => CellKind::Counters,
        }
    }

    /// Bits set, or counters raised, per item.
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

/// Odd, and no bit of it tells of another: SplitMix64's first multiplier (Steele, Lea and Flood,
/// 2014).
const MIX: u64 = 0xBF58_476D_1CE4_E5B9;

/// A counting layer without its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// Of the blocked layer that this one counts in.
    pub geometry: Geometry,
    /// A running hash of what was raised and lowered, in order: tells the states of a layer apart,
    /// and two that were the same once.
    pub changes: u64,
    /// Deletions that lowered a counter, since the layer was last empty.
    pub deletions: u64,
}

impl Counting {
    /// An empty layer.
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

    /// Notes a change.
    #[inline]
    pub(super) fn change(&mut self, hash: Hash, direction: u64) {
        self.changes = (self.changes ^ hash.block ^ direction).wrapping_mul(MIX);
    }
}
