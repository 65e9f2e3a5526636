//! The shape of a layer of any kind.

use super::classic::Classic;
use crate::filter::geometry::Geometry;

/// A layer without its bits: its kind, and the numbers of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every bit of an item is in one block.
    Blocked(Geometry),
    /// The bits of an item are anywhere.
    Classic(Classic),
}

impl Shape {
    /// Words of the whole layer.
    #[must_use]
    pub fn words(&self) -> u64 {
        match self {
            Self::Blocked(geometry) => geometry.words(),
            Self::Classic(classic) => classic.words(),
        }
    }

    /// Bits set per item.
    #[must_use]
    pub fn probes(&self) -> u16 {
        match self {
            Self::Blocked(geometry) => u16::from(geometry.probes),
            Self::Classic(classic) => classic.probes,
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
