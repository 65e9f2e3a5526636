//! One layer of a filter: a bit array of some kind, with the plan it was built to.
//!
//! The kinds are a closed set. Every match over them is in this file, a kind is a file beside it that knows no other,
//! and a new kind is one file and one arm per match. A kind that needs more than the 24 bytes of `Blocked` belongs in
//! a box: there is one `Layer` in every filter, and people keep millions of small filters.

mod blocked;

pub use blocked::Blocked;

use super::{bits::Bits, error::Error, hash::Hash, sizing::Geometry};

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
}

impl Layer {
    /// An empty blocked layer of the given shape and plan.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn blocked(geometry: Geometry, capacity: u64, error_rate: f64) -> Result<Self, Error> {
        Ok(Self {
            kind: Kind::Blocked(Blocked::new(geometry)?),
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
        let kind = match &self.kind {
            Kind::Blocked(layer) => Kind::Blocked(layer.duplicate()?),
        };
        Ok(Self { kind, ..*self })
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
    pub fn geometry(&self) -> Geometry {
        match &self.kind {
            Kind::Blocked(layer) => layer.geometry(),
        }
    }

    /// The bit array.
    #[must_use]
    pub fn bits(&self) -> &Bits {
        match &self.kind {
            Kind::Blocked(layer) => layer.bits(),
        }
    }

    /// The bit array, to fill from a stored one.
    pub fn bits_mut(&mut self) -> &mut Bits {
        match &mut self.kind {
            Kind::Blocked(layer) => layer.bits_mut(),
        }
    }

    /// Asks for the memory that the item needs, without waiting for it.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        match &self.kind {
            Kind::Blocked(layer) => layer.prefetch(hash),
        }
    }

    /// Whether the item may be in this layer.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: Hash) -> bool {
        match &self.kind {
            Kind::Blocked(layer) => layer.contains(hash),
        }
    }

    /// Adds an item that is not yet in this layer, and counts it. The layer must not be full.
    #[inline]
    pub fn insert(&mut self, hash: Hash) {
        debug_assert!(!self.is_full() && !self.contains(hash));
        match &mut self.kind {
            Kind::Blocked(layer) => layer.insert(hash),
        }
        self.items += 1;
    }
}
