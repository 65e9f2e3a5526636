//! One layer of a filter: a bit array of some kind, with the plan it was built to.
//!
//! Only `Blocked` is not boxed: each filter contains a `Layer`, and servers hold millions of small
//! filters.

pub(super) mod bits;
mod blocked;
mod classic;
pub(super) mod item_set;
pub(super) mod occupancy;

pub use blocked::uses_avx512;
pub(super) use blocked::{BlockAddress, Blocked};
use classic::ClassicLayer;
pub use classic::{Classic, MAX_BITS, MAX_CLASSIC_PROBES, Rule, Start};

use bits::Bits;
use item_set::ItemSet;

use super::{
    error::Error,
    hash::{Hash, LINE_WORDS},
};

/// Shape of a layer of blocks: `blocks * block_words` words of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// Words of 64 bits in a block, at least 1.
    pub block_words: u16,
    /// Bits set per item, in [1, `MAX_PROBES`].
    pub probes: u8,
}

impl Geometry {
    /// Words of the whole layer.
    pub fn words(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_words)
    }

    /// Cache lines of a block, if four probes share a line: in several blocks of whole lines.
    #[inline]
    pub fn lines(&self) -> Option<u64> {
        let words = usize::from(self.block_words);
        (self.blocks > 1 && words.is_multiple_of(LINE_WORDS)).then_some((words / LINE_WORDS) as u64)
    }
}

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
    pub fn words(&self) -> u64 {
        match self {
            Self::Blocked(geometry) => geometry.words(),
            Self::Classic(classic) => classic.words(),
        }
    }

    /// Bits set per item.
    pub fn probes(&self) -> u16 {
        match self {
            Self::Blocked(geometry) => u16::from(geometry.probes),
            Self::Classic(classic) => classic.probes,
        }
    }
}

/// A fixed-size part of a filter, made for `capacity` items at `error_rate`.
#[derive(Debug)]
pub struct Layer {
    kind: Kind,
    /// Items counted so far: items that tested absent when they were added.
    pub counted: u64,
    /// Items that the layer is sized for, at least 1.
    pub capacity: u64,
    /// The false positive rate of the layer at its capacity is on average at most this; in (0, 1).
    pub error_rate: f64,
}

#[derive(Debug)]
enum Kind {
    Blocked(Blocked),
    Classic(Box<ClassicLayer>),
}

// The tag of `Kind` lies in a niche of `Blocked`: the other kinds add no memory.
const _: () = assert!(size_of::<Kind>() == size_of::<Blocked>());

/// A layer that is being read gets room for this many times the words that have arrived. A larger
/// factor lets a forged size allocate more; a smaller one copies more.
const ROOM_FACTOR: u64 = 8;

impl Layer {
    /// Makes room for the first `words` words, more than there are, and for up to eight times as
    /// many in advance. If there is no memory, the layer is unchanged.
    pub fn make_room(&mut self, words: u64) -> Result<(), Error> {
        let words = words.saturating_mul(ROOM_FACTOR).min(self.shape().words());
        let bits = self.bits_mut();
        *bits = bits.extended(words)?;
        Ok(())
    }

    /// Copies the layer, if there is memory. The copy is the first layer of a filter.
    pub fn duplicate(&self) -> Result<Self, Error> {
        let bits = self.bits();
        Ok(LayerPlan::of(self).over(bits.extended(bits.words().len() as u64)?))
    }

    /// Returns whether the layer holds as many items as it is sized for.
    pub fn is_full(&self) -> bool {
        self.counted >= self.capacity
    }

    pub(super) fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.counted)
    }

    /// The shape of the bit array.
    pub fn shape(&self) -> Shape {
        match &self.kind {
            Kind::Blocked(layer) => Shape::Blocked(layer.geometry()),
            Kind::Classic(layer) => Shape::Classic(layer.shape),
        }
    }

    /// Bytes that the allocator spends on bits and box; `size` gives those of an allocation.
    pub(super) fn memory(&self, size: impl Fn(*const u8) -> usize) -> usize {
        let boxed = match &self.kind {
            Kind::Blocked(_) => 0,
            Kind::Classic(layer) => size(std::ptr::from_ref(&**layer).cast()),
        };
        boxed + size(self.bits().words().as_ptr().cast())
    }

    /// Bytes of the box of a layer of this shape; 0 for a kind that is not boxed.
    pub fn boxed_bytes(shape: Shape) -> usize {
        match shape {
            Shape::Blocked(_) => 0,
            Shape::Classic(_) => size_of::<ClassicLayer>(),
        }
    }

    /// The bit array.
    pub fn bits(&self) -> &Bits {
        match &self.kind {
            Kind::Blocked(layer) => &layer.bits,
            Kind::Classic(layer) => &layer.bits,
        }
    }

    /// Where the layer begins in its filter. A layer of blocks is the only one.
    pub(super) fn start(&self) -> Start {
        if let Kind::Classic(layer) = &self.kind { layer.start } else { Start::default() }
    }

    pub(super) fn set_start(&mut self, start: Start) {
        if let Kind::Classic(layer) = &mut self.kind {
            layer.start = start;
        }
    }

    /// Where the next layer begins.
    pub(super) fn end(&self) -> Start {
        let (Start { stored, memory }, shape) = (self.start(), self.shape());
        let bytes = shape.words().saturating_mul(8);
        let as_stored = if let Shape::Classic(classic) = shape { classic.bytes } else { bytes };
        Start { stored: stored.saturating_add(as_stored), memory: memory.saturating_add(bytes) }
    }

    /// Adds what layers of the same shape hold. The count becomes `items`.
    pub(super) fn unite<'a>(&mut self, others: impl Iterator<Item = &'a Self>, items: u64) {
        self.bits_mut().unite(&others.map(Self::bits).collect::<Vec<_>>());
        self.counted = items;
    }

    /// The bit array, mutable.
    pub fn bits_mut(&mut self) -> &mut Bits {
        match &mut self.kind {
            Kind::Blocked(layer) => &mut layer.bits,
            Kind::Classic(layer) => &mut layer.bits,
        }
    }

    /// Prefetches the lines of an item in a classic layer.
    #[inline]
    pub(super) fn prefetch(&self, hash: Hash) {
        if let Kind::Classic(layer) = &self.kind {
            layer.prefetch(hash);
        }
    }

    /// The layer as one of blocks, if it is.
    #[inline]
    pub(super) fn blocks(&self) -> Option<&Blocked> {
        match &self.kind {
            Kind::Blocked(layer) => Some(layer),
            Kind::Classic(_) => None,
        }
    }

    /// Prefetches position `start` modulo the bits in a classic layer.
    pub(super) fn prefetch_start(&self, start: u64) {
        if let Kind::Classic(layer) = &self.kind {
            layer.prefetch_start(start);
        }
    }

    /// Returns whether the item may be in this layer.
    #[inline]
    pub fn contains(&self, hash: Hash) -> bool {
        match &self.kind {
            Kind::Blocked(layer) => layer.contains(hash),
            Kind::Classic(layer) => layer.contains(hash),
        }
    }

    /// Which of these items of a chunk may be in this layer. A layer of blocks tests the whole
    /// chunk, so it may also return items that are not in `items`.
    #[inline]
    pub(super) fn filter_present(&self, hashes: &[Hash], items: ItemSet) -> ItemSet {
        match &self.kind {
            Kind::Blocked(layer) => layer.filter_present(hashes),
            Kind::Classic(layer) => layer.filter_present(hashes, items),
        }
    }

    /// Adds an item; returns whether it tested absent. A full layer does not count it.
    #[inline]
    pub fn add(&mut self, hash: Hash) -> bool {
        let absent = match &mut self.kind {
            Kind::Blocked(layer) => layer.add(hash),
            Kind::Classic(layer) => layer.add(hash),
        };
        self.counted = (self.counted + u64::from(absent)).min(self.capacity);
        absent
    }

    /// [`Self::add`] of these items of a chunk, for all of which there is room. A layer of blocks
    /// takes the whole chunk: there are no older layers.
    #[inline]
    pub(super) fn add_chunk(&mut self, hashes: &[Hash], items: ItemSet) -> ItemSet {
        debug_assert!(self.room() >= items.len());
        let absent = match &mut self.kind {
            Kind::Blocked(layer) => {
                debug_assert_eq!(items, ItemSet::first(hashes.len()));
                layer.add_chunk(hashes)
            }
            Kind::Classic(layer) => items.keep(|i| u64::from(layer.add(hashes[i]))),
        };
        self.counted = self.counted.saturating_add(absent.len());
        absent
    }
}

/// A layer without its bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerPlan {
    /// Items that the layer is sized for.
    pub capacity: u64,
    /// Items counted.
    pub items: u64,
    /// Rate of this layer.
    pub error_rate: f64,
    /// Shape of the bit array.
    pub shape: Shape,
}

impl LayerPlan {
    pub(super) fn of(layer: &Layer) -> Self {
        let &Layer { counted, capacity, error_rate, .. } = layer;
        Self { capacity, items: counted, error_rate, shape: layer.shape() }
    }

    /// Makes the layer, with all bits clear, if there is memory.
    pub fn empty(&self) -> Result<Layer, Error> {
        Ok(self.over(Bits::zeroed(self.shape.words())?))
    }

    /// Makes the layer over bits. If they are too few, the others arrive ([`Layer::make_room`]),
    /// and nobody may query it until then.
    pub(super) fn over(&self, bits: Bits) -> Layer {
        let &Self { capacity, items, error_rate, shape } = self;
        let kind = match shape {
            Shape::Blocked(geometry) => Kind::Blocked(Blocked::new(geometry, bits)),
            Shape::Classic(classic) => Kind::Classic(Box::new(ClassicLayer::new(classic, bits))),
        };
        Layer { kind, counted: items, capacity, error_rate }
    }
}
