//! The header of a stored filter as numbers. Tests forge headers with it: they change any value,
//! and the checksum is computed again.
//!
//! `src/codec/native/header.rs` defines the layout. This file repeats it, because the module's own
//! encoder cannot store values that it refuses.

use xxhash_rust::xxh3::xxh3_64;

/// The numbers of a filter header of a native filter without records: one of one layer of blocks.
#[derive(Clone, Debug)]
pub struct Header {
    pub version: u16,
    pub seed: u64,
    pub error_rate: f64,
    pub expansion: u32,
    /// Number of layers that the header announces.
    pub count: u32,
    /// Bytes of bits that follow.
    pub present: u64,
    /// The layers that follow.
    pub layers: Vec<StoredLayer>,
}

#[derive(Clone, Copy, Debug)]
pub struct StoredLayer {
    pub kind: u8,
    pub probes: u8,
    pub block_words: u16,
    pub blocks: u32,
    pub capacity: u64,
    pub items: u64,
    pub error_rate: f64,
}

const MAGIC: &[u8] = b"rbloom";

/// Takes a little-endian number from the front of the bytes.
macro_rules! take {
    ($bytes:ident, $type:ty) => {{
        let (number, rest) = $bytes.split_at(size_of::<$type>());
        $bytes = rest;
        <$type>::from_le_bytes(number.try_into().expect("as many bytes as the number has"))
    }};
}

impl Header {
    #[track_caller]
    pub fn parse(bytes: &[u8]) -> Header {
        let (body, checksum) = bytes.split_at(bytes.len() - 8);
        assert_eq!(xxh3_64(body).to_le_bytes(), checksum, "the checksum of a header");
        let mut rest = body.strip_prefix(MAGIC).expect("a header begins with its magic");
        let version = take!(rest, u16);
        let (seed, error_rate) = (take!(rest, u64), take!(rest, f64));
        let (expansion, count, present) = (take!(rest, u32), take!(rest, u32), take!(rest, u64));
        let (family, records) = (take!(rest, u8), take!(rest, u16));
        assert_eq!((version, family, records), (1, 0, 0));
        let mut layers = Vec::new();
        while !rest.is_empty() {
            layers.push(StoredLayer {
                kind: take!(rest, u8),
                probes: take!(rest, u8),
                block_words: take!(rest, u16),
                blocks: take!(rest, u32),
                capacity: take!(rest, u64),
                items: take!(rest, u64),
                error_rate: take!(rest, f64),
            });
        }
        let header = Header { version, seed, error_rate, expansion, count, present, layers };
        assert_eq!(header.bytes(), bytes, "encoding the parsed header gives the same bytes");
        header
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.seed.to_le_bytes());
        bytes.extend(self.error_rate.to_le_bytes());
        bytes.extend(self.expansion.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(self.present.to_le_bytes());
        // The family, and the number of records.
        bytes.extend([0; 3]);
        for layer in &self.layers {
            bytes.extend([layer.kind, layer.probes]);
            bytes.extend(layer.block_words.to_le_bytes());
            bytes.extend(layer.blocks.to_le_bytes());
            bytes.extend(layer.capacity.to_le_bytes());
            bytes.extend(layer.items.to_le_bytes());
            bytes.extend(layer.error_rate.to_le_bytes());
        }
        sealed_with_xxh3(bytes)
    }
}

impl StoredLayer {
    /// Bytes of the layer's bits.
    pub fn bytes(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_words) * 8
    }
}

/// Appends the checksum of headers and chunks to the bytes.
pub fn sealed_with_xxh3(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = xxh3_64(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}
