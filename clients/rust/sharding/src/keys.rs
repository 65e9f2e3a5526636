//! The keys of the shards: `{<name>:<k>}:<generation>`.
//!
//! A cluster has 16,384 slots. Shard i of n gets the middle slot of the i-th of n equal ranges, so
//! that shards spread evenly over nodes that hold equal ranges of slots. The number k is the
//! smallest for which `<name>:<k>`, the part in braces that a cluster hashes, has that slot.

use std::collections::HashMap;

use super::MAX_SHARDS;

/// Slots of a cluster.
const SLOTS: u32 = 16_384;

/// Why a name has no shard keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A cluster would hash another part of the key.
    #[error("the name of a sharded filter has no braces")]
    Braces,
    /// The number of shards is 0 or above [`MAX_SHARDS`].
    #[error("{0} shards: between 1 and {MAX_SHARDS} are possible")]
    Shards(u64),
}

/// The keys of all `count` shards of the filter `name`, shard 0 first.
///
/// # Errors
/// [`NameError`].
pub fn shard_keys(name: &[u8], count: u16, generation: u64) -> Result<Vec<Vec<u8>>, NameError> {
    if name.iter().any(|byte| b"{}".contains(byte)) {
        return Err(NameError::Braces);
    }
    if count == 0 || count > MAX_SHARDS {
        return Err(NameError::Shards(count.into()));
    }
    let slot_and_index = |index| (middle_slot(index, count), usize::from(index));
    let mut missing: HashMap<u16, usize> = (0..count).map(slot_and_index).collect();
    let mut keys = vec![Vec::new(); count.into()];
    let prefix = crc16(crc16(0, name), b":");
    // It ends: the numbers of six digits have all slots, and a name in front permutes the slots.
    let mut numbers = (0u32..).map(|number| number.to_string());
    while let (false, Some(number)) = (missing.is_empty(), numbers.next()) {
        if let Some(index) = missing.remove(&slot_of(crc16(prefix, number.as_bytes()))) {
            keys[index] =
                [&b"{"[..], name, format!(":{number}}}:{generation}").as_bytes()].concat();
        }
    }
    Ok(keys)
}

/// The middle slot of range `index` of `count` equal ranges of all slots: the slot of that shard.
/// 0 if `count` is 0.
#[must_use]
pub fn middle_slot(index: u16, count: u16) -> u16 {
    let slot = (2 * u32::from(index) + 1) * SLOTS;
    (slot.checked_div(2 * u32::from(count)).unwrap_or(0) % SLOTS) as u16
}

/// The slot of a key in a cluster, as `CLUSTER KEYSLOT` computes it: only the text in the first
/// pair of braces counts, if there is any.
#[must_use]
pub fn key_slot(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|&byte| byte == b'{')?;
        let behind = key.get(open.checked_add(1)?..)?;
        let close = behind.iter().position(|&byte| byte == b'}')?;
        behind.get(..close).filter(|tag| !tag.is_empty())
    };
    slot_of(crc16(0, tag().unwrap_or(key)))
}

fn slot_of(crc: u16) -> u16 {
    (u32::from(crc) % SLOTS) as u16
}

/// Continues a CRC-16 (XMODEM: polynomial 0x1021, start 0) with `bytes`.
fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    })
}
