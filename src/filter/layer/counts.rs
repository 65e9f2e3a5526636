//! What layers of counters can do: of other kinds nothing happens, and nothing is told but how much of a word is taken.

use super::{
    CountingLayer, Kind, Layer, Other,
    counting::{
        Lowered,
        counters::{self, PER_WORD},
    },
};
use crate::filter::hash::Hash;

impl Layer {
    pub(super) fn counting(&self) -> Option<&CountingLayer> {
        match &self.kind {
            Kind::Other(other) => match &**other {
                Other::Counting(layer) => Some(layer),
                Other::Classic(_) => None,
            },
            Kind::Blocked(_) => None,
        }
    }

    fn counting_mut(&mut self) -> Option<&mut CountingLayer> {
        match &mut self.kind {
            Kind::Other(other) => match &mut **other {
                Other::Counting(layer) => Some(layer),
                Other::Classic(_) => None,
            },
            Kind::Blocked(_) => None,
        }
    }

    /// Whether it has counters.
    #[inline]
    #[must_use]
    pub fn counts(&self) -> bool {
        self.counting().is_some()
    }

    /// Raises the counters of an item, and counts it if it tested absent; whether it did. The count may pass the capacity
    /// (`fullness.rs`).
    pub(in crate::filter) fn raise(&mut self, hash: Hash) -> bool {
        let absent = self.counting_mut().is_some_and(|layer| layer.raise(hash));
        self.counted = self.counted.saturating_add(u64::from(absent));
        absent
    }

    /// Lowers the counters of an item, and counts it no more if it tests absent then; whether a counter went down, or
    /// `None` if it tests absent now.
    pub(in crate::filter) fn lower(&mut self, hash: Hash) -> Option<bool> {
        let lowered = self.counting_mut()?.lower(hash)?;
        self.counted = match lowered {
            Lowered { last: true, .. } => 0,
            Lowered { absent, .. } => self.counted.saturating_sub(u64::from(absent)),
        };
        Some(lowered.any)
    }

    /// The least of the counters of an item, in [0, 15].
    #[must_use]
    pub fn least(&self, hash: Hash) -> u64 {
        self.counting().map_or(0, |layer| layer.least(hash))
    }

    /// Deletions that were refused while this was the newest layer, on this server.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.counting().map_or(0, |layer| layer.refused)
    }

    /// Counts a refused deletion.
    pub(in crate::filter) fn refuse(&mut self) {
        if let Some(layer) = self.counting_mut() {
            layer.refused = layer.refused.saturating_add(1);
        }
    }

    /// Counters that reached 15 and stay there; `None` without counters.
    #[must_use]
    pub fn stuck(&self) -> Option<u64> {
        self.counting().map(CountingLayer::stuck)
    }

    /// Counters that are not 0; `None` without counters.
    #[must_use]
    pub fn raised(&self) -> Option<u64> {
        self.counting().map(CountingLayer::raised)
    }

    /// Share of counters that are not 0, in [0, 1]; `None` without counters.
    pub(in crate::filter) fn fill(&self) -> Option<f64> {
        self.counting().map(CountingLayer::fill)
    }

    /// How many positions of a word of `bits` are taken, and how many there are.
    pub(in crate::filter) fn taken(&self, word: u64) -> (u32, u32) {
        if self.counts() {
            (counters::raised(word), PER_WORD as u32)
        } else {
            (word.count_ones(), u64::BITS)
        }
    }
}
