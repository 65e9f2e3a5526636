//! Which shard of a sharded filter an item belongs to. The crate redis-bloom-sharding has the rest,
//! for the library for Rust and the CLI: the keys of the shards, and the hash that lists them
//! (`docs/reference/sharding.md`).
//!
//! ```text
//!   shard(item) = (crc32(item) * n) >> 32
//! ```
//!
//! The CRC-32 is the one of zlib. Its top bits are used, not the remainder: items that a queue has
//! partitioned by CRC-32 modulo a number still spread over all shards. Of 2 n shards, 2 i and
//! 2 i + 1 are the halves of shard i. The CRC has no secret: anyone can make items of one shard.

use crc32fast::Hasher;

/// The largest number of shards.
pub const MAX_SHARDS: u16 = 1024;

/// The shard of `item` among `count` shards: a number below `count`, or 0 if `count` is 0.
#[inline]
#[must_use]
pub fn shard_of(item: &[u8], count: u16) -> u16 {
    scale(crc32fast::hash(item), count)
}

/// The shard of an item with this CRC.
#[inline]
fn scale(crc: u32, count: u16) -> u16 {
    ((u64::from(crc) * u64::from(count)) >> 32) as u16
}

/// One of a number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u16,
    count: u16,
}

impl Shard {
    /// Shard `index` of `count`. `None` unless `index` is below `count`, and `count` is at most
    /// [`MAX_SHARDS`].
    #[must_use]
    pub const fn new(index: u16, count: u16) -> Option<Self> {
        if index < count && count <= MAX_SHARDS { Some(Self { index, count }) } else { None }
    }

    /// The shard of the first item that belongs to another one than this.
    #[inline]
    #[must_use]
    pub fn foreign<'a>(self, mut items: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        // Once: `Hasher::new` looks up what the processor can do, which takes as long as an item.
        let new = Hasher::new();
        items.find_map(|item| {
            let mut hasher = new.clone();
            hasher.update(item);
            let index = scale(hasher.finalize(), self.count);
            (index != self.index).then_some(Self { index, ..self })
        })
    }

    /// The number of this shard, from 0.
    #[must_use]
    pub const fn index(self) -> u16 {
        self.index
    }

    /// The number of shards.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.count
    }
}

/// As in error texts: `5 of 8`.
impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.index, self.count)
    }
}
