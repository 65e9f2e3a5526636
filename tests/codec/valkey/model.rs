//! A model of valkey-bloom: the crate `bloomfilter` 3, on which it is built, with the growth, the
//! blob and the numbers of its version 1, written after its sources. Nothing comes from the code
//! under test.
//!
//! On a big-endian machine the crate hashes the length of an item with its bytes reversed, so its
//! filters are others there, and tests of answers do not run. The module's are the same everywhere.

use bloomfilter::Bloom;

/// A filter with the fields of valkey-bloom.
#[derive(Debug)]
pub(crate) struct Model {
    /// 0 for a non-scaling filter.
    pub(crate) expansion: u32,
    pub(crate) rate: f64,
    pub(crate) tightening: f64,
    pub(crate) random: bool,
    pub(crate) layers: Vec<Part>,
}

/// A layer of a [`Model`].
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) bloom: Bloom<[u8]>,
    pub(crate) items: i64,
    pub(crate) capacity: i64,
}

impl Part {
    fn new(capacity: i64, rate: f64, seed: &[u8; 32]) -> Self {
        let bloom = Bloom::new_for_fp_rate_with_seed(capacity as usize, rate, seed);
        Self { bloom: bloom.expect("a filter"), items: 0, capacity }
    }
}

impl Model {
    pub(crate) fn new(
        capacity: i64,
        rate: f64,
        tightening: f64,
        expansion: u32,
        seed: &[u8; 32],
    ) -> Self {
        Self {
            expansion,
            rate,
            tightening,
            random: true,
            layers: vec![Part::new(capacity, rate, seed)],
        }
    }

    pub(crate) fn has(&self, item: &[u8]) -> bool {
        self.layers.iter().any(|layer| layer.bloom.check(item))
    }

    /// Adds an item and returns whether it was new; `None` if the filter is full.
    pub(crate) fn add(&mut self, item: &[u8]) -> Option<bool> {
        if self.has(item) {
            return Some(false);
        }
        let (count, last) = (self.layers.len(), self.layers.last().expect("a layer"));
        if last.items == last.capacity {
            if self.expansion == 0 {
                return None;
            }
            let rate = self.rate * self.tightening.powi(count as i32);
            let seed = last.bloom.seed();
            let capacity = last.capacity.checked_mul(self.expansion.into())?;
            self.layers.push(Part::new(capacity, rate, &seed));
        }
        let last = self.layers.last_mut().expect("a layer");
        last.bloom.set(item);
        last.items += 1;
        Some(true)
    }

    /// The last argument of BF.LOAD in a rewritten AOF.
    pub(crate) fn blob(&self) -> Vec<u8> {
        let mut out = vec![1];
        out.extend(self.expansion.to_le_bytes());
        out.extend(self.rate.to_le_bytes());
        out.extend(self.tightening.to_le_bytes());
        out.push(u8::from(self.random));
        out.extend((self.layers.len() as u64).to_le_bytes());
        for layer in &self.layers {
            let bitmap = layer.bloom.as_slice();
            out.extend((bitmap.len() as u64).to_le_bytes());
            out.extend(bitmap);
            out.extend(layer.items.to_le_bytes());
            out.extend(layer.capacity.to_le_bytes());
        }
        out
    }
}
