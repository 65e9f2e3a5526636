//! RedisBloom's layouts: RDB and DUMP with the encoding versions 0 to 4, and the chunks of its
//! BF.SCANDUMP and AOF.
//!
//! ```text
//!   RDB        size · layers · [options]₂₊ · [growth]₄ · for each layer:
//!              capacity · rate f64 · probes · bits per item f64 · [bits · n2]₁₊ ·
//!              the bits as one string · items
//!              (₁₊, ₂₊, ₄: in the encoding versions from 1 on, from 2 on, 4)
//!
//!   dump       size u64 · layers u32 · options u32 · growth u32 · for each layer, 53 bytes:
//!   header     bytes u64 · bits u64 · items u64 · rate f64 · bits per item f64 · probes u32 ·
//!              capacity u64 · n2 u8                    packed, little-endian
//!              Before 2.2.4 the capacity is a u32, before 2.2 there is no growth; the length of
//!              the header shows which.
//!
//!   chunk      at most 16 MiB of the bits of one layer, without a frame; the iterator gives its
//!              end, as in native/dump.rs
//!
//!   options    1 exact, 4 64-bit hash, 8 non-scaling; 2 is in RedisBloom's code, but no command
//!              ever created such a filter
//!   n2         0, or the layer has 2^n2 positions; bits is then 0 (before 2.2), 2^n2, or 8 * bytes
//! ```
//!
//! RDB is only read. Numbers that can be computed are compared with the computed ones
//! (`foreign::redisbloom::fits`). RedisBloom 2.4 and later read the dumps written here.

use std::ops::Range;

use super::{
    Error,
    io::NumberSource,
    native::stream,
    reader::{OTHER_LAYOUT, Reader},
};
use crate::filter::{
    Classic, Error as FilterError, Expansion, Family, Filter, LayerPlan, MAX_LAYERS, Plan,
    RedisBloom, Rule, Shape, check_ranges, foreign::redisbloom,
};

/// The encoding versions of RedisBloom's RDB.
pub const ENCODING_VERSIONS: std::ops::RangeInclusive<i32> = 0..=4;

const EXACT: u8 = 1;
const HASH64: u8 = 4;
const NONSCALING: u8 = 8;

/// The growth factor of filters without a stored one: RedisBloom's default in all versions.
const GROWTH: u32 = 2;
/// The largest relative difference of bits per item: C libraries differ in the last bit.
const ROUNDING: f64 = 1e-12;

/// The most bytes of bits in a chunk.
const BITS: u64 = 16 << 20;

/// The options of a family; the number does not have NONSCALING.
pub(super) fn options_of(family: RedisBloom) -> u8 {
    let exact = if family.rounds { 0 } else { EXACT };
    exact | if family.hash64 { HASH64 } else { 0 }
}

/// The family with these options, without NONSCALING; `None` if RedisBloom does not write them.
pub(super) fn family_of(options: u8) -> Option<RedisBloom> {
    let family = RedisBloom { hash64: options & HASH64 != 0, rounds: options & EXACT == 0 };
    (options_of(family) == options).then_some(family)
}

/// Family and growth of a filter; `growth` is 0 if there is none.
fn kind(options: u64, growth: u64) -> Result<(RedisBloom, Expansion), Error> {
    let unknown = Error::Malformed("options that RedisBloom does not write");
    let options = u8::try_from(options).map_err(|_| unknown)?;
    let family = family_of(options & !NONSCALING).ok_or(unknown)?;
    if options & NONSCALING != 0 {
        return Ok((family, Expansion::NONSCALING));
    }
    let growth = u32::try_from(growth).map_err(|_| FilterError::Expansion(growth))?;
    // Versions before 2.2.10 lost the growth factor of filters loaded from a dump.
    Ok((family, Expansion::stored(if growth == 0 { GROWTH } else { growth })))
}

/// The plan of a filter of these numbers (RedisBloom's `SBChain`).
fn plan(
    size: u64,
    (family, expansion): (RedisBloom, Expansion),
    layers: Vec<LayerPlan>,
) -> Result<Plan, Error> {
    let sum = layers.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.items));
    if sum != size {
        return Err(Error::Malformed("a count that is not the sum of the layers' counts"));
    }
    let first = layers.first().map_or(0.0, |layer| layer.error_rate);
    let plan = Plan {
        family: Family::RedisBloom(family),
        // A filter that grows has layers of half, a quarter, ... of its rate.
        error_rate: redisbloom::error_rate(first, expansion.factor().is_some()),
        expansion,
        layers,
        ..Plan::default()
    };
    plan.check()?;
    Ok(plan)
}

/// The numbers of a layer, in RDB and dump (RedisBloom's `SBLink`).
struct Link {
    capacity: u64,
    rate: f64,
    probes: u64,
    bits_per_item: f64,
    bits: u64,
    n2: u64,
    bytes: u64,
    items: u64,
}

impl Link {
    /// Makes the plan of the layer; refuses numbers that RedisBloom does not compute.
    fn plan(&self) -> Result<LayerPlan, Error> {
        let forged = Error::Malformed("a layer that RedisBloom does not compute from its numbers");
        check_ranges(self.rate, 1)?;
        let per_item = redisbloom::bits_per_item(self.rate);
        let off = (self.bits_per_item - per_item).abs();
        if off.is_nan() || off > per_item * ROUNDING {
            return Err(forged);
        }
        let probes = u16::try_from(self.probes).map_err(|_| forged)?;
        let (bits, rule) = if self.n2 == 0 {
            (self.bits, Rule::Remainder)
        } else {
            let power = u32::try_from(self.n2).ok().and_then(|n2| 1_u64.checked_shl(n2));
            let positions = power.ok_or(forged)?;
            let whole = self.bytes.checked_mul(8).ok_or(forged)?;
            if ![0, positions, whole].contains(&self.bits) {
                return Err(forged);
            }
            (positions, Rule::LowBits)
        };
        let shape = Classic { bits, bytes: self.bytes, probes, rule };
        if !shape.is_sound() || !redisbloom::fits(&shape, self.capacity, self.rate) {
            return Err(forged);
        }
        let Self { capacity, items, rate: error_rate, .. } = *self;
        Ok(LayerPlan { capacity, items, error_rate, shape: Shape::Classic(shape) })
    }
}

/// Reads a filter with one of the `ENCODING_VERSIONS` and at most `ceiling` bytes of bits.
///
/// # Errors
/// Any [`Error`]; nothing stays allocated.
pub fn load(source: &mut impl NumberSource, version: i32, ceiling: u64) -> Result<Filter, Error> {
    let (size, count) = (source.unsigned()?, source.unsigned()?);
    let options = if version >= 2 { source.unsigned()? } else { 0 };
    let growth = if version >= 4 { source.unsigned()? } else { 0 };
    if count == 0 || count > MAX_LAYERS as u64 {
        return Err(FilterError::Layers.into());
    }
    let kind = kind(options, growth)?;
    let (mut plans, mut layers, mut present) = (Vec::new(), Vec::new(), 0);
    for _ in 0..count {
        let (capacity, rate) = (source.unsigned()?, source.double()?);
        let (probes, bits_per_item) = (source.unsigned()?, source.double()?);
        let (bits, n2) = if version >= 1 {
            (source.unsigned()?, source.unsigned()?)
        } else {
            ((capacity as f64 * bits_per_item) as u64, 0)
        };
        let (string, items) = (source.next()?, source.unsigned()?);
        let bytes = string.as_ref().len() as u64;
        let link = Link { capacity, rate, probes, bits_per_item, bits, n2, bytes, items };
        let plan = link.plan()?;
        layers.push(stream::layer(&plan, string.as_ref(), &mut present, ceiling)?);
        plans.push(plan);
    }
    Ok(plan(size, kind, plans)?.with_layers(layers)?)
}

pub(super) fn header(filter: &Filter, family: RedisBloom) -> Vec<u8> {
    let scales = filter.expansion().factor();
    let options = options_of(family) | if scales.is_some() { 0 } else { NONSCALING };
    let mut out = Vec::new();
    out.extend(filter.items().to_le_bytes());
    // A filter never has more than `MAX_LAYERS`.
    out.extend((filter.layers().len() as u32).to_le_bytes());
    out.extend(u32::from(options).to_le_bytes());
    out.extend(scales.unwrap_or(GROWTH).to_le_bytes());
    for layer in filter.layers() {
        let Shape::Classic(shape) = layer.shape() else {
            continue;
        };
        let (bits, n2) = if shape.rule == Rule::LowBits {
            (shape.bytes.saturating_mul(8), shape.bits.trailing_zeros() as u8)
        } else {
            (shape.bits, 0)
        };
        out.extend(shape.bytes.to_le_bytes());
        out.extend(bits.to_le_bytes());
        out.extend(layer.counted.to_le_bytes());
        out.extend(layer.error_rate.to_le_bytes());
        out.extend(redisbloom::bits_per_item(layer.error_rate).to_le_bytes());
        out.extend(u32::from(shape.probes).to_le_bytes());
        out.extend(layer.capacity.to_le_bytes());
        out.push(n2);
    }
    out
}

pub(super) fn read_header(bytes: &[u8]) -> Result<Plan, Error> {
    let mut reader = Reader(bytes);
    let (size, count, options) = (reader.u64()?, reader.u32()? as usize, reader.u32()?);
    // Bytes before the layers and of a layer: since 2.2.4, since 2.2, and before.
    let forms = [(20, 53), (20, 49), (16, 49)];
    let length = |header, layer| count.checked_mul(layer)?.checked_add(header);
    let form = forms.into_iter().find(|&(head, layer)| length(head, layer) == Some(bytes.len()));
    // Without a form, the bytes are neither RedisBloom's dump nor a native one.
    let (header, layer) = form.ok_or(OTHER_LAYOUT)?;
    let growth = if header == 20 { reader.u32()? } else { 0 };
    if count > MAX_LAYERS {
        return Err(FilterError::Layers.into());
    }
    let kind = kind(options.into(), growth.into())?;
    // The length was checked, so the bytes of all layers are present.
    let mut layers = Vec::new();
    layers.try_reserve_exact(count).map_err(|_| FilterError::OutOfMemory(count as u64))?;
    for _ in 0..count {
        let (bytes, bits, items) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (rate, bits_per_item) = (reader.f64()?, reader.f64()?);
        let probes = u64::from(reader.u32()?);
        let capacity = if layer == 53 { reader.u64()? } else { u64::from(reader.u32()?) };
        let n2 = u64::from(reader.u8()?);
        let link = Link { capacity, rate, probes, bits_per_item, bits, n2, bytes, items };
        layers.push(link.plan()?);
    }
    plan(size, kind, layers)
}

/// The layer that contains a byte, numbered as RedisBloom numbers bytes: the layer's bytes in that
/// numbering, and its first byte in the stream, which has whole words. `None` beyond the end.
fn place_of(filter: &Filter, byte: u64) -> Option<(Range<u64>, u64)> {
    let (index, start) = filter.layer_at(byte, |start| start.stored);
    let Shape::Classic(shape) = filter.layers_from(index).next()?.shape() else {
        // Not in a RedisBloom filter (`filter::Plan::check`).
        return None;
    };
    let end = start.stored.saturating_add(shape.bytes);
    (byte < end).then_some((start.stored..end, start.memory))
}

/// The next iterator and the chunk for iterator `from`, from the first `present` bytes. The chunk
/// begins where a word begins.
#[expect(clippy::arithmetic_side_effects, reason = "positions inside a filter that exists")]
pub(super) fn cut(filter: &Filter, from: i64, present: u64) -> Option<(i64, Vec<u8>)> {
    let byte = u64::try_from(from.checked_sub(1)?).ok()?;
    let (layer, start) = place_of(filter, byte)?;
    let inside = (byte - layer.start) / stream::WORD * stream::WORD;
    let (first, at) = (layer.start + inside, start + inside);
    let count = (layer.end - first).min(BITS).min(present.saturating_sub(at));
    let next = i64::try_from(first + count).ok().filter(|_| count > 0)?.checked_add(1)?;
    let mut out = Vec::with_capacity(count as usize);
    stream::read(filter, at, count as usize, &mut out);
    Some((next, out))
}

/// The position of a chunk in the stream: its start, and its end, exclusive.
///
/// # Errors
/// `Error::Malformed` if the chunk begins before the first byte, `Error::Order` if beyond the last
/// layer, `Error::TooBig` if it is not inside one layer, and `Error::Unaligned` if it is empty or
/// not whole words of that layer.
pub(super) fn place(filter: &Filter, iterator: i64, data: &[u8]) -> Result<(u64, u64), Error> {
    let (count, total) = (data.len() as u64, filter.bit_bytes());
    let end = iterator.checked_sub(1).and_then(|end| u64::try_from(end).ok());
    let Some((end, from)) = end.and_then(|end| Some((end, end.checked_sub(count)?))) else {
        return Err(Error::Malformed("a chunk that begins before the first byte"));
    };
    let (layer, start) =
        place_of(filter, from).ok_or(Error::Order { from, to: end, received: total })?;
    if end > layer.end {
        return Err(Error::TooBig { from, to: end, total });
    }
    let inside = from.saturating_sub(layer.start);
    let whole = count.is_multiple_of(stream::WORD) || end == layer.end;
    if count == 0 || !inside.is_multiple_of(stream::WORD) || !whole {
        return Err(Error::Unaligned { from, to: end });
    }
    let first = start.saturating_add(inside);
    let words = count.div_ceil(stream::WORD).saturating_mul(stream::WORD);
    Ok((first, first.saturating_add(words)))
}
