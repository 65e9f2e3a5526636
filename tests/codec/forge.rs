//! Changes bytes of headers and frames, and corrects the checksum. The offsets are copied from the
//! layouts in `src/codec/native/header.rs` and `dump.rs`, not imported: a test that imports them
//! misses a wrong change.

use redis_bloom::{
    codec::native::{Load, dump, rdb},
    filter::{Filter, checksum},
};

use crate::support::Strings;

/// Offsets in a header.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 6;
    pub(crate) const SEED: usize = 8;
    pub(crate) const ERROR_RATE: usize = 16;
    pub(crate) const EXPANSION: usize = 24;
    pub(crate) const LAYERS: usize = 28;
    pub(crate) const PRESENT: usize = 32;
    /// The first layer of a native filter without records.
    pub(crate) const FIRST: usize = 43;
    /// Offsets in a layer.
    pub(crate) const KIND: usize = 0;
    pub(crate) const PROBES: usize = 1;
    pub(crate) const BLOCK_WORDS: usize = 2;
    pub(crate) const BLOCKS: usize = 4;
    pub(crate) const CAPACITY: usize = 8;
    pub(crate) const ITEMS: usize = 16;
    pub(crate) const LAYER_RATE: usize = 24;
}

/// Offsets in a frame.
pub(crate) mod frame {
    pub(crate) const FIRST: usize = 8;
    const LENGTH: usize = 16;
    const HEADER: usize = 20;

    /// The bits, behind the header.
    pub(crate) fn bits(chunk: &[u8]) -> usize {
        let length = chunk[LENGTH..HEADER].try_into().expect("four bytes");
        HEADER + u32::from_le_bytes(length) as usize
    }
}

/// Bytes of a checksum.
pub(crate) const SEAL: usize = 8;

/// Writes the correct checksum into the last 8 bytes.
pub(crate) fn seal(bytes: &mut [u8]) {
    let (body, seal) = bytes.split_last_chunk_mut::<SEAL>().expect("room for a checksum");
    *seal = checksum(body).to_le_bytes();
}

/// A copy of `bytes` with `new` at offset `at` and a correct checksum.
pub(crate) fn patched(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[at..at + new.len()].copy_from_slice(new);
    seal(&mut out);
    out
}

/// Makes a chunk for a dump with this `header`, whose layers have bits.
pub(crate) fn frame_of(header: &[u8], first: u64, bits: &[u8]) -> Vec<u8> {
    let mut out = b"rbchnk\x01\0".to_vec();
    out.extend(first.to_le_bytes());
    out.extend((header.len() as u32).to_le_bytes());
    out.extend(header);
    out.extend(bits);
    out.extend([0; SEAL]);
    seal(&mut out);
    out
}

/// Cuts a chunk in two after `count` bytes of bits. Returns iterator and bytes of each part.
pub(crate) fn split(iterator: i64, chunk: &[u8], count: usize) -> [(i64, Vec<u8>); 2] {
    let bits = &chunk[frame::bits(chunk)..chunk.len() - SEAL];
    let part = |first: u64, bits: &[u8]| {
        let mut out = chunk[..frame::bits(chunk)].to_vec();
        out[frame::FIRST..frame::FIRST + 8].copy_from_slice(&first.to_le_bytes());
        out.extend(bits);
        out.extend([0; SEAL]);
        seal(&mut out);
        out
    };
    let first = first_byte(chunk);
    let (head, tail) = bits.split_at(count);
    let middle = iterator - tail.len() as i64;
    [(middle, part(first, head)), (iterator, part(first + count as u64, tail))]
}

/// The header of a filter, and its stream in chunks of `words` words.
pub(crate) fn cut(filter: &Filter, words: usize) -> (Vec<u8>, Vec<(i64, Vec<u8>)>) {
    let (_, header) = dump::header(filter);
    let mut rest = dump::at(filter, 1).expect("a chunk");
    let mut chunks = Vec::new();
    let bits = |chunk: &[u8]| chunk.len() - frame::bits(chunk) - SEAL;
    while bits(&rest.1) > 8 * words {
        let [head, tail] = split(rest.0, &rest.1, 8 * words);
        chunks.push(head);
        rest = tail;
    }
    chunks.push(rest);
    (header, chunks)
}

/// The strings that an RDB has of a load.
pub(crate) fn stored(load: &Load) -> Vec<Vec<u8>> {
    let mut strings = Strings::default();
    rdb::save(load, &mut strings);
    strings.0
}

/// The position of a chunk in the stream, from its frame.
pub(crate) fn first_byte(chunk: &[u8]) -> u64 {
    let bytes = &chunk[frame::FIRST..frame::FIRST + 8];
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}
