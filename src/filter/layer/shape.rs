//! What a layer looks like, of whichever kind.

use super::{Classic, Counting};
use crate::filter::{params::Cells, sizing::Geometry};

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
    pub fn cells(&self) -> Cells {
        match self {
            Self::Blocked(_) | Self::Classic(_) => Cells::Bits,
            Self::Counting(_) => Cells::Counters,
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
