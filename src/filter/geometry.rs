//! The shape of a layer of blocks. `sizing/mod.rs` chooses it, `hash/probe.rs` computes positions
//! in it, and a stored layer contains it.

pub(super) const LINE_WORDS: usize = 8;

/// Probes that share one line.
pub(super) const PROBE_GROUP: u8 = 4;

/// The most words of one bit array: the number of a bit has at most 61 bits.
pub(super) const MAX_WORDS: u64 = (u64::MAX >> 3) / 64;

/// Shape of one layer: `blocks * block_words` words of bits.
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
