//! The header and the chunks of BF.SCANDUMP and the AOF, as RedisBloom writes them.

use std::ops::Range;

use super::{Chain, EXACT, GROWTH, HASH64, Link, NONSCALING};
use crate::{
    codec::{
        Error,
        native::stream,
        reader::{OTHER_LAYOUT, Reader},
    },
    filter::{Error as FilterError, Filter, MAX_LAYERS, Plan, RedisBloom, Rule, Shape, foreign},
};

/// The most bytes of bits in a chunk.
const BITS: u64 = 16 << 20;
/// Bytes of a dump's header before its layers.
const HEADER: usize = 20;
/// Bytes of a layer in a dump's header.
const LAYER: usize = 53;

pub(in crate::codec) fn header(filter: &Filter, family: RedisBloom) -> Vec<u8> {
    let scales = filter.expansion().factor();
    let options = if family.rounds { 0 } else { EXACT }
        | if family.hash64 { HASH64 } else { 0 }
        | if scales.is_some() { 0 } else { NONSCALING };
    let mut out = Vec::new();
    out.extend(filter.items().to_le_bytes());
    // A filter never has more than `MAX_LAYERS`.
    out.extend((filter.layers().len() as u32).to_le_bytes());
    out.extend((options as u32).to_le_bytes());
    out.extend(scales.unwrap_or(GROWTH as u32).to_le_bytes());
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
        out.extend(foreign::redisbloom::bits_per_item(layer.error_rate).to_le_bytes());
        out.extend(u32::from(shape.probes).to_le_bytes());
        out.extend(layer.capacity.to_le_bytes());
        out.push(n2);
    }
    out
}

pub(in crate::codec) fn read_header(bytes: &[u8]) -> Result<Plan, Error> {
    let mut reader = Reader::plain(bytes);
    let size = reader.u64()?;
    let count = reader.u32()? as usize;
    let options = u64::from(reader.u32()?);
    let length = |header: usize, layer: usize| count.checked_mul(layer)?.checked_add(header);
    let (old_header, old_layer) = (HEADER.saturating_sub(4), LAYER.saturating_sub(4));
    let found = Some(bytes.len());
    let (growth, wide) = if found == length(HEADER, LAYER) {
        (Some(u64::from(reader.u32()?)), true)
    } else if found == length(HEADER, old_layer) {
        (Some(u64::from(reader.u32()?)), false)
    } else if found == length(old_header, old_layer) {
        (None, false)
    } else {
        // No header has this length: the bytes are neither RedisBloom's dump nor a native one.
        return Err(OTHER_LAYOUT);
    };
    let chain = Chain::new(size, options, growth)?;
    if count > MAX_LAYERS {
        return Err(FilterError::Layers.into());
    }
    // The length was checked, so the bytes of all layers are present.
    let mut layers = Vec::new();
    layers.try_reserve_exact(count).map_err(|_| FilterError::OutOfMemory(count as u64))?;
    for _ in 0..count {
        let (bytes, bits, items) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (rate, bits_per_item) = (reader.f64()?, reader.f64()?);
        let probes = u64::from(reader.u32()?);
        let capacity = if wide { reader.u64()? } else { u64::from(reader.u32()?) };
        let n2 = u64::from(reader.u8()?);
        let link = Link { capacity, rate, probes, bits_per_item, bits, n2, bytes, items };
        layers.push(link.plan()?);
    }
    chain.plan(layers)
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
pub(in crate::codec) fn cut(filter: &Filter, from: i64, present: u64) -> Option<(i64, Vec<u8>)> {
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
pub(in crate::codec) fn place(
    filter: &Filter,
    iterator: i64,
    data: &[u8],
) -> Result<(u64, u64), Error> {
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
