//! The header of a stored filter as numbers, to be forged: any value can be put in, and the
//! checksum is right again.
//!
//! The layout is drawn in `src/codec/native/header.rs`; it is written down a second time here
//! because a test that used the module's own encoder could not store what that encoder refuses.

use xxhash_rust::xxh3::xxh3_64;

/// The numbers of a filter: version 1, or version 2 of the family of native filters, for counting
/// layers.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) version: u16,
    pub(crate) seed: u64,
    pub(crate) error_rate: f64,
    pub(crate) expansion: u32,
    /// How many layers it says it has.
    pub(crate) count: u32,
    /// Bytes of bits that follow.
    pub(crate) present: u64,
    /// The layers it really has.
    pub(crate) layers: Vec<StoredLayer>,
}

/// The numbers of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredLayer {
    pub(crate) kind: u8,
    pub(crate) probes: u8,
    pub(crate) block_words: u16,
    pub(crate) blocks: u32,
    pub(crate) capacity: u64,
    pub(crate) items: u64,
    pub(crate) error_rate: f64,
    /// The hash of the changes, and deletions: of a layer of kind 2 alone.
    pub(crate) changes: u64,
    pub(crate) deletions: u64,
}

const MAGIC: &[u8] = b"rbloom";
/// The family of native filters, in version 2.
const NATIVE: u8 = 0;
/// The kind of a counting layer.
pub(crate) const COUNTING: u8 = 2;

/// The next bytes as a little-endian number.
macro_rules! take {
    ($bytes:ident, $type:ty) => {{
        let (number, rest) = $bytes.split_at(size_of::<$type>());
        $bytes = rest;
        <$type>::from_le_bytes(number.try_into().expect("as many bytes as the number has"))
    }};
}

impl Header {
    /// Reads what the module wrote.
    #[track_caller]
    pub(crate) fn parse(bytes: &[u8]) -> Header {
        let (body, checksum) = bytes.split_at(bytes.len() - 8);
        assert_eq!(xxh3_64(body).to_le_bytes(), checksum, "the checksum of a header");
        let mut rest = body.strip_prefix(MAGIC).expect("a header begins with its magic");
        let version = take!(rest, u16);
        let (seed, error_rate) = (take!(rest, u64), take!(rest, f64));
        let (expansion, count, present) = (take!(rest, u32), take!(rest, u32), take!(rest, u64));
        if version == 2 {
            assert_eq!(take!(rest, u8), NATIVE);
        }
        let mut layers = Vec::new();
        while !rest.is_empty() {
            let mut layer = StoredLayer {
                kind: take!(rest, u8),
                probes: take!(rest, u8),
                block_words: take!(rest, u16),
                blocks: take!(rest, u32),
                capacity: take!(rest, u64),
                items: take!(rest, u64),
                error_rate: take!(rest, f64),
                changes: 0,
                deletions: 0,
            };
            if layer.kind == COUNTING {
                (layer.changes, layer.deletions) = (take!(rest, u64), take!(rest, u64));
            }
            layers.push(layer);
        }
        let header = Header { version, seed, error_rate, expansion, count, present, layers };
        assert_eq!(header.bytes(), bytes, "a header put together again is the same");
        header
    }

    /// Writes it, with the checksum that it must have.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.seed.to_le_bytes());
        bytes.extend(self.error_rate.to_le_bytes());
        bytes.extend(self.expansion.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(self.present.to_le_bytes());
        if self.version == 2 {
            bytes.push(NATIVE);
        }
        for layer in &self.layers {
            bytes.extend([layer.kind, layer.probes]);
            bytes.extend(layer.block_words.to_le_bytes());
            bytes.extend(layer.blocks.to_le_bytes());
            bytes.extend(layer.capacity.to_le_bytes());
            bytes.extend(layer.items.to_le_bytes());
            bytes.extend(layer.error_rate.to_le_bytes());
            if layer.kind == COUNTING {
                bytes.extend(layer.changes.to_le_bytes());
                bytes.extend(layer.deletions.to_le_bytes());
            }
        }
        sealed_with_xxh3(bytes)
    }
}

impl StoredLayer {
    /// Bytes of its bits, or of its counters of four bits.
    pub(crate) fn bytes(&self) -> u64 {
        let words = u64::from(self.blocks) * u64::from(self.block_words);
        words * if self.kind == COUNTING { 32 } else { 8 }
    }
}

/// Puts the checksum of headers and chunks behind the bytes.
pub(crate) fn sealed_with_xxh3(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = xxh3_64(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}
