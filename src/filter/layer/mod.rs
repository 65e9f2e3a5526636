//! One layer of a filter: a bit array of some kind, with the plan it was built to.
//!
//! The kinds are a closed set. Every match over them is in this file, a kind is a file beside it that knows no other,
//! and a new kind is one file and one arm per match. A kind that needs more than the 24 bytes of `Blocked` belongs in
//! a box: there is one `Layer` in every filter, and people keep millions of small filters.

mod blocked;
mod classic;

pub use blocked::Blocked;
pub use classic::{Classic, ClassicLayer, MAX_BITS, MAX_CLASSIC_PROBES, Rule};

use super::{bits::Bits, error::Error, hash::Hash, sizing::Geometry};

/// What a layer looks like, without its bits: the kind, and the numbers of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every bit of an item in one block.
    Blocked(Geometry),
    /// The bits of an item anywhere.
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

/// A fixed-size part of a filter, made for `capacity` items at `error_rate`.
#[derive(Debug)]
pub struct Layer {
    kind: Kind,
    /// Items counted so far (those that changed a bit); never above `capacity`.
    items: u64,
    /// Items that it was sized for, at least 1.
    capacity: u64,
    /// The false positive rate that it stays below up to its capacity, in (0, 1).
    error_rate: f64,
}

#[derive(Debug)]
enum Kind {
    Blocked(Blocked),
    Classic(Box<ClassicLayer>),
}

impl Layer {
    /// An empty layer of the given shape and plan. The shape is sound (`check.rs`).
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn new(shape: Shape, capacity: u64, error_rate: f64) -> Result<Self, Error> {
        let kind = match shape {
            Shape::Blocked(geometry) => Kind::Blocked(Blocked::new(geometry)?),
            Shape::Classic(classic) => Kind::Classic(Box::new(ClassicLayer::new(classic)?)),
        };
        Ok(Self {
            kind,
            items: 0,
            capacity,
            error_rate,
        })
    }

    /// A copy.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn duplicate(&self) -> Result<Self, Error> {
        let mut copy = Self::new(self.shape(), self.capacity, self.error_rate)?;
        copy.items = self.items;
        // Page by page, without the empty ones: they need no memory until they are touched.
        let pages = copy
            .bits_mut()
            .words_mut()
            .chunks_mut(512)
            .zip(self.bits().words().chunks(512));
        for (copy, page) in pages.filter(|(_, page)| page.iter().any(|&word| word != 0)) {
            copy.copy_from_slice(page);
        }
        Ok(copy)
    }

    /// Items counted so far.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Sets the count of a layer whose bits were read from a stored one.
    pub fn set_items(&mut self, items: u64) {
        self.items = items;
    }

    /// Items that it was sized for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The rate that it stays below up to its capacity.
    #[must_use]
    pub fn error_rate(&self) -> f64 {
        self.error_rate
    }

    /// Whether it holds as many items as it was sized for.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.items >= self.capacity
    }

    /// The shape of its bit array.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match &self.kind {
            Kind::Blocked(layer) => layer.geometry().into(),
            Kind::Classic(layer) => layer.shape().into(),
        }
    }

    /// Address and size of the box of a kind that has one, for accounting.
    #[must_use]
    pub fn boxed(&self) -> Option<(*const u8, usize)> {
        match &self.kind {
            Kind::Blocked(_) => None,
            Kind::Classic(layer) => Some((
                std::ptr::from_ref::<ClassicLayer>(layer).cast(),
                size_of::<ClassicLayer>(),
            )),
        }
    }

    /// The bit array.
    #[must_use]
    pub fn bits(&self) -> &Bits {
        match &self.kind {
            Kind::Blocked(layer) => layer.bits(),
            Kind::Classic(layer) => layer.bits(),
        }
    }

    /// The bit array, to fill from a stored one.
    pub fn bits_mut(&mut self) -> &mut Bits {
        match &mut self.kind {
            Kind::Blocked(layer) => layer.bits_mut(),
            Kind::Classic(layer) => layer.bits_mut(),
        }
    }

    /// Asks for the memory that the item needs, without waiting for it.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        match &self.kind {
            Kind::Blocked(layer) => layer.prefetch(hash),
            Kind::Classic(layer) => layer.prefetch(hash),
        }
    }

    /// Whether the item may be in this layer.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: Hash) -> bool {
        match &self.kind {
            Kind::Blocked(layer) => layer.contains(hash),
            Kind::Classic(layer) => layer.contains(hash),
        }
    }

    /// Adds an item that is not yet in this layer, and counts it. The layer must not be full.
    #[inline]
    pub fn insert(&mut self, hash: Hash) {
        debug_assert!(!self.is_full() && !self.contains(hash));
        match &mut self.kind {
            Kind::Blocked(layer) => layer.insert(hash),
            Kind::Classic(layer) => layer.insert(hash),
        }
        self.items += 1;
    }
}
