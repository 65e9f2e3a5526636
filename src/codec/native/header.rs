//! The header: all numbers of a filter. Version 1, for native filters of blocked layers, has 48
//! bytes and 32 bytes for each layer. All numbers are little-endian.
//!
//! ```text
//!   0        6         8      16         24         28       32        40
//!   ┌────────┬─────────┬──────┬──────────┬──────────┬────────┬─────────┬─ ─ ─ ─ ─┬─────────┐
//!   │ rbloom │ version │ seed │ error    │ expan-   │ layers │ present │ layers, │ XXH3-64 │
//!   │        │ = 1     │ u64  │ rate f64 │ sion u32 │ u32    │ u64     │ 32 each │ of all  │
//!   └────────┴─────────┴──────┴──────────┴──────────┴────────┴─────────┴─ ─ ─ ─ ─┴─────────┘
//!   a layer, 32 bytes; the oldest layer comes first:
//!   ┌────────┬────────┬─────────────┬────────┬──────────┬───────┬────────────┐
//!   │ kind 0 │ probes │ block_words │ blocks │ capacity │ items │ error rate │
//!   │ u8     │ u8     │ u16         │ u32    │ u64      │ u64   │ f64        │
//!   └────────┴────────┴─────────────┴────────┴──────────┴───────┴────────────┘
//! ```
//!
//! `present` is the number of bytes of bits that follow the header: all bytes of a complete filter,
//! fewer while BF.LOADCHUNK fills the filter.
//!
//! Version 2, for filters of other products, puts a family before the layers. Each kind of layer
//! has its own length. A new family or kind takes the next number.
//!
//! ```text
//!   bytes 0 to 40 of version 1, with version = 2, then:
//!   40
//!   ┌────────┬─ ─ ─ ─ ─ ─ ┬─ ─ ─ ─ ─ ─ ─ ┬─────────┐
//!   │ family │ fields of  │ layers,      │ XXH3-64 │
//!   │ u8     │ the family │ oldest first │ of all  │
//!   └────────┴─ ─ ─ ─ ─ ─ ┴─ ─ ─ ─ ─ ─ ─ ┴─────────┘
//!   family 0, native filters, in version 3: no fields
//!   family 1, RedisBloom: options u8, RedisBloom's numbers: 1 exact (not rounded), 4 64-bit hash
//!   family 2, valkey-bloom: seed, 32 bytes; tightening ratio, f64
//!   family 3, Guava: no fields
//!
//!   kind 0, blocked, 32 bytes: as in version 1
//!   kind 1, classic, 44 bytes:
//!   ┌────────┬──────┬────────┬──────┬───────┬──────────┬───────┬────────────┐
//!   │ kind 1 │ rule │ probes │ bits │ bytes │ capacity │ items │ error rate │
//!   │ u8     │ u8   │ u16    │ u64  │ u64   │ u64      │ u64   │ f64        │
//!   └────────┴──────┴────────┴──────┴───────┴──────────┴───────┴────────────┘
//!   rule (filter/layer/classic/positions.rs): 0 remainder, 1 low bits, 2 prime, 3 mitz32, 4 mitz64
//! ```
//!
//! Version 3 is version 2 with records between the fields of the family and the layers. A new
//! property gets a new kind of record, not a new version. Version 4 is for pages
//! (`paged/header.rs`).
//!
//! ```text
//!   bytes 0 to 40 of version 1, with version = 3, then:
//!   ┌────────┬─ ─ ─ ─ ─ ─ ┬─────────┬──────┬────────┬─ ─ ─ ─ ─ ┬─ ─ ─ ┬─ ─ ─ ─ ─ ─ ─ ┬─────────┐
//!   │ family │ fields of  │ records │ kind │ length │ `length` │ next │ layers,      │ XXH3-64 │
//!   │ u8     │ the family │ u16     │ u16  │ u32    │ bytes    │      │ oldest first │ of all  │
//!   └────────┴─ ─ ─ ─ ─ ─ ┴─────────┴──────┴────────┴─ ─ ─ ─ ─ ┴─ ─ ─ ┴─ ─ ─ ─ ─ ─ ─ ┴─────────┘
//!   kind 1, shard, 4 bytes: number of the shard u16, number of shards u16; native filters only
//!   kind 3, window: only in version 4
//! ```
//!
//! Kinds ascend, so no kind is there twice; 0 is no kind. A header that breaks this is refused, so
//! that each filter has one header, which its identity is computed from.
//!
//! A release that does not know a kind below 32,768 refuses the header. Records of kinds from
//! 32,768 on are optional: such a release skips them, and the identity of a filter leaves them out.

use crate::{
    codec::{
        Error,
        reader::{Reader, open, seal},
    },
    filter::{
        Classic, Error as FilterError, Expansion, Family, Geometry, LayerPlan, MAX_LAYERS, Plan,
        RedisBloom, Rule, Shape, Valkey, checksum, paged,
    },
    sharding::Shard,
};

pub(in crate::codec) const MAGIC: &str = "rbloom";
/// The version for native filters of blocked layers.
const NATIVE: u16 = 1;
const ANY: u16 = 2;
/// The version for filters with records.
const RECORDS: u16 = 3;
/// The version for filters in pages.
pub(super) const PAGED: u16 = 4;
/// Bytes of the shortest layer.
const LAYER: usize = 32;
/// Layer kinds.
pub(super) const BLOCKED: u8 = 0;
const CLASSIC: u8 = 1;
/// Families of versions 2 and 3.
const OWN: u8 = 0;
const REDISBLOOM: u8 = 1;
const VALKEY: u8 = 2;
const GUAVA: u8 = 3;
/// Kinds of records.
const SHARD: u16 = 1;
/// Only in version 4.
pub(super) const WINDOW: u16 = 3;
/// The first kind of the records that a release which does not know them may skip.
const OPTIONAL: u16 = 1 << 15;
/// Options of the family `REDISBLOOM`.
const EXACT: u8 = 1;
const HASH64: u8 = 4;
const REMAINDER: u8 = 0;
const LOW_BITS: u8 = 1;
const PRIME: u8 = 2;
const MITZ32: u8 = 3;
const MITZ64: u8 = 4;

/// The refusal of a family, record, layer, option or rule that no version has.
pub(super) const UNKNOWN: Error = Error::Malformed("a kind, option or rule that is not known");

/// Writes the header of `plan`, to be followed by `present` bytes of bits.
pub(in crate::codec) fn encode(plan: &Plan, present: u64) -> Vec<u8> {
    let records: Vec<_> = plan.shard.map(shard_record).into_iter().collect();
    let version = match plan.family {
        _ if !records.is_empty() => RECORDS,
        Family::Native => NATIVE,
        Family::RedisBloom(_) | Family::Valkey(_) | Family::Guava => ANY,
    };
    let mut out = open(MAGIC, version);
    out.reserve(plan.layers.len().saturating_add(2).saturating_mul(LAYER));
    out.extend(plan.seed.to_le_bytes());
    out.extend(plan.error_rate.to_le_bytes());
    out.extend(plan.expansion.factor().unwrap_or(0).to_le_bytes());
    out.extend((plan.layers.len() as u32).to_le_bytes());
    out.extend(present.to_le_bytes());
    match plan.family {
        Family::Native if version == NATIVE => {}
        Family::Native => out.push(OWN),
        Family::RedisBloom(RedisBloom { hash64, rounds }) => {
            let exact = if rounds { 0 } else { EXACT };
            out.extend([REDISBLOOM, exact | if hash64 { HASH64 } else { 0 }]);
        }
        Family::Valkey(Valkey { seed, tightening }) => {
            out.push(VALKEY);
            out.extend(seed);
            out.extend(tightening.to_le_bytes());
        }
        Family::Guava => out.push(GUAVA),
    }
    if version == RECORDS {
        out.extend((records.len() as u16).to_le_bytes());
        put_records(&mut out, records);
    }
    for layer in &plan.layers {
        match layer.shape {
            Shape::Blocked(geometry) => put_geometry(&mut out, geometry),
            Shape::Classic(classic) => {
                let rule = match classic.rule {
                    Rule::Remainder => REMAINDER,
                    Rule::LowBits => LOW_BITS,
                    Rule::Prime => PRIME,
                    Rule::Mitz32 => MITZ32,
                    Rule::Mitz64 => MITZ64,
                };
                out.extend([CLASSIC, rule]);
                out.extend(classic.probes.to_le_bytes());
                out.extend(classic.bits.to_le_bytes());
                out.extend(classic.bytes.to_le_bytes());
            }
        }
        put_numbers(&mut out, layer);
    }
    seal(out)
}

/// Writes a blocked layer as version 1 does.
pub(super) fn put_layer(out: &mut Vec<u8>, layer: &LayerPlan) {
    if let Shape::Blocked(geometry) = layer.shape {
        put_geometry(out, geometry);
        put_numbers(out, layer);
    }
}

fn put_numbers(out: &mut Vec<u8>, layer: &LayerPlan) {
    out.extend(layer.capacity.to_le_bytes());
    out.extend(layer.items.to_le_bytes());
    out.extend(layer.error_rate.to_le_bytes());
}

/// Reads a layer of version 1.
pub(super) fn layer(reader: &mut Reader) -> Result<LayerPlan, Error> {
    let shape = shape(reader, NATIVE)?;
    let (capacity, items, error_rate) = (reader.u64()?, reader.u64()?, reader.f64()?);
    Ok(LayerPlan { capacity, items, error_rate, shape })
}

/// The record of a shard: kind and bytes.
pub(super) fn shard_record(shard: Shard) -> (u16, Vec<u8>) {
    let numbers = [shard.index(), shard.count()].map(u16::to_le_bytes);
    (SHARD, numbers.as_flattened().to_vec())
}

pub(super) fn put_records(out: &mut Vec<u8>, records: Vec<(u16, Vec<u8>)>) {
    for (kind, bytes) in records {
        out.extend(kind.to_le_bytes());
        out.extend((bytes.len() as u32).to_le_bytes());
        out.extend(bytes);
    }
}

fn put_geometry(out: &mut Vec<u8>, geometry: Geometry) {
    out.extend([BLOCKED, geometry.probes]);
    out.extend(geometry.block_words.to_le_bytes());
    out.extend(geometry.blocks.to_le_bytes());
}

pub(super) fn is_paged(bytes: &[u8]) -> bool {
    let version = bytes.strip_prefix(MAGIC.as_bytes()).and_then(<[u8]>::first_chunk);
    version.is_some_and(|version| u16::from_le_bytes(*version) == PAGED)
}

/// Reads and checks a header: the plan, and the bytes of bits that follow.
pub(in crate::codec) fn decode(bytes: &[u8]) -> Result<(Plan, u64), Error> {
    let (version, mut reader) = Reader::sealed(bytes, MAGIC, NATIVE..=RECORDS)?;
    let seed = reader.u64()?;
    let error_rate = reader.f64()?;
    let factor = reader.u32()?;
    let count = reader.u32()? as usize;
    let present = reader.u64()?;
    let family = if version == NATIVE { Family::Native } else { family(&mut reader)? };
    let records = if version == RECORDS { reader.u16()? } else { 0 };
    let Records { shard, window } = Records::read(&mut reader, records)?;
    if window.is_some() {
        return Err(Error::Malformed("a window of a filter of layers"));
    }
    let expansion = match family {
        Family::Native => Expansion::new(u64::from(factor))?,
        Family::RedisBloom(_) | Family::Valkey(_) | Family::Guava => Expansion::stored(factor),
    };
    if count > MAX_LAYERS {
        return Err(FilterError::Layers.into());
    }
    // Memory is reserved for a count only if the bytes of its layers are present.
    if reader.left() / LAYER < count {
        return Err(Error::Truncated);
    }
    let mut layers = Vec::new();
    layers.try_reserve_exact(count).map_err(|_| FilterError::OutOfMemory(count as u64))?;
    for _ in 0..count {
        let shape = shape(&mut reader, version)?;
        let (capacity, items, error_rate) = (reader.u64()?, reader.u64()?, reader.f64()?);
        layers.push(LayerPlan { capacity, items, error_rate, shape });
    }
    reader.end()?;
    let plan = Plan { family, seed, error_rate, expansion, shard, layers };
    plan.check()?;
    let total = plan.bit_bytes();
    if present > total {
        return Err(Error::TooBig { from: 0, to: present, total });
    }
    Ok((plan, present))
}

fn family(reader: &mut Reader) -> Result<Family, Error> {
    match reader.u8()? {
        OWN => Ok(Family::Native),
        REDISBLOOM => match reader.u8()? {
            options if options & !(EXACT | HASH64) == 0 => Ok(Family::RedisBloom(RedisBloom {
                hash64: options & HASH64 != 0,
                rounds: options & EXACT == 0,
            })),
            _ => Err(UNKNOWN),
        },
        VALKEY => Ok(Family::Valkey(Valkey { seed: reader.array()?, tightening: reader.f64()? })),
        GUAVA => Ok(Family::Guava),
        _ => Err(UNKNOWN),
    }
}

/// The records of a header that this release knows.
#[derive(Default)]
pub(super) struct Records {
    pub(super) shard: Option<Shard>,
    /// Only in version 4.
    pub(super) window: Option<paged::Window>,
}

impl Records {
    pub(super) fn read(reader: &mut Reader, count: u16) -> Result<Self, Error> {
        let (mut records, mut last) = (Self::default(), 0);
        for _ in 0..count {
            let (kind, length) = (reader.u16()?, reader.u32()?);
            let mut record = Reader::plain(reader.bytes(length as usize)?);
            if kind <= last {
                return Err(Error::Malformed("records out of order"));
            }
            last = kind;
            match kind {
                SHARD => records.shard = Some(shard(&mut record)?),
                WINDOW => records.window = Some(super::paged::window(&mut record)?),
                OPTIONAL.. => continue,
                _ => return Err(UNKNOWN),
            }
            record.end()?;
        }
        Ok(records)
    }
}

fn shard(record: &mut Reader) -> Result<Shard, Error> {
    let (index, count) = (record.u16()?, record.u16()?);
    Shard::new(index, count).ok_or(Error::Malformed("a shard that cannot be"))
}

fn shape(reader: &mut Reader, version: u16) -> Result<Shape, Error> {
    match reader.u8()? {
        BLOCKED => Ok(Shape::Blocked(geometry(reader)?)),
        CLASSIC if version != NATIVE => {
            let rule = match reader.u8()? {
                REMAINDER => Rule::Remainder,
                LOW_BITS => Rule::LowBits,
                PRIME => Rule::Prime,
                MITZ32 => Rule::Mitz32,
                MITZ64 => Rule::Mitz64,
                _ => return Err(UNKNOWN),
            };
            let (probes, bits, bytes) = (reader.u16()?, reader.u64()?, reader.u64()?);
            Ok(Shape::Classic(Classic { bits, bytes, probes, rule }))
        }
        _ => Err(UNKNOWN),
    }
}

fn geometry(reader: &mut Reader) -> Result<Geometry, Error> {
    let probes = reader.u8()?;
    let block_words = reader.u16()?;
    let blocks = reader.u32()?;
    Ok(Geometry { blocks, block_words, probes })
}

/// A checksum of the numbers of a filter that changes when it grows, and not with its items.
pub(in crate::codec) fn identity(mut plan: Plan) -> u64 {
    for layer in &mut plan.layers {
        layer.items = 0;
    }
    checksum(&encode(&plan, 0))
}
