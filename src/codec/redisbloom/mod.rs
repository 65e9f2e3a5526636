//! RedisBloom's own layouts: RDB and DUMP of the encoding versions 0 to 4, and the chunks of BF.SCANDUMP and its AOF.
//!
//! ```text
//!   RDB        size · layers · [options]₂₊ · [growth]₄ · a layer after the other:
//!              capacity · rate f64 · probes · bits per item f64 · [bits · n2]₁₊ · the bits as one string · items
//!
//!   header     size u64 · layers u32 · options u32 · growth u32 · a layer after the other, 53 bytes:          packed,
//!   of dumps   bytes u64 · bits u64 · items u64 · rate f64 · bits per item f64 · probes u32 · capacity u64 · n2 u8   LE
//!              before 2.2.4 the capacity is a u32, before 2.2 there is no growth: the length tells them apart
//!
//!   chunk      at most 16 MiB of the bits of one layer, bare; its iterator says where it ends, as in chunk.rs
//!
//!   options    1 exact, 4 hash of 64 bits, 8 non-scaling; 2 is in its code, but no command ever made such a filter
//!   n2         0, or the layer has 2^n2 positions; bits is then 0 (before 2.2), 2^n2, or 8 times the bytes
//! ```
//!
//! These files crash RedisBloom when they are forged: it allocates by counts that it has not checked, and probes by
//! numbers that do not fit the array. Here a layer is allocated when its string has arrived and has the length that
//! follows from capacity and rate, and nothing that can be computed is believed (`filter::fits`).
//!
//! What is written (`header`, `cut`) is what RedisBloom 2.4 and later read, so that nobody is locked in.

use super::{Error, header, reader::Reader, stream, values::Values};
use crate::filter::{
    Classic, Error as FilterError, Expansion, Family, Filter, Layer, LayerPlan, MAX_LAYERS, Plan, RedisBloom,
    Rule, Shape, bits_per_item, fits, probes,
};

/// The encoding versions of RedisBloom's RDB.
pub const ENCODING_VERSIONS: std::ops::RangeInclusive<i32> = 0..=4;
/// The first that has the number of bits and n2.
const BITS_SINCE: i32 = 1;
/// The first that has options.
const OPTIONS_SINCE: i32 = 2;
/// The first that has the growth; and since then the first layer gets half of the rate that was asked for.
const GROWTH_SINCE: i32 = 4;

const EXACT: u64 = 1;
const HASH64: u64 = 4;
const NONSCALING: u64 = 8;

/// The growth of filters that do not say: RedisBloom's default, then and now.
const GROWTH: u64 = 2;
/// The most bytes in a chunk.
const BITS: u64 = 16 << 20;
/// Bytes of a dump's header before its layers, and of a layer.
const HEADER: usize = 20;
const LAYER: usize = 53;
/// How far a stored number of bits per item may be from ours: the logarithms of C libraries differ in the last bit.
const ROUNDING: f64 = 1e-12;

/// The numbers of a filter.
struct Chain {
    size: u64,
    family: RedisBloom,
    expansion: Expansion,
    /// Whether the first layer has half of the filter's rate.
    halves: bool,
}

impl Chain {
    fn new(size: u64, options: u64, growth: Option<u64>) -> Result<Self, Error> {
        if options & !(EXACT | HASH64 | NONSCALING) != 0 {
            return Err(Error::Options(options));
        }
        let scales = options & NONSCALING == 0;
        let expansion = match growth.unwrap_or(GROWTH) {
            _ if !scales => Expansion::NONSCALING,
            // Versions before 2.2.10 lost the growth of filters that they loaded from a dump.
            0 => Expansion::stored(GROWTH as u32),
            growth => Expansion::stored(u32::try_from(growth).map_err(|_| FilterError::Expansion(growth))?),
        };
        Ok(Self {
            size,
            family: RedisBloom {
                hash64: options & HASH64 != 0,
                rounds: options & EXACT == 0,
            },
            expansion,
            halves: scales && growth.is_some(),
        })
    }

    /// The plan of the filter with these layers, checked.
    fn plan(&self, layers: Vec<LayerPlan>) -> Result<Plan, Error> {
        let sum = layers
            .iter()
            .fold(0_u64, |sum, layer| sum.saturating_add(layer.items));
        if sum != self.size {
            return Err(Error::Sum { size: self.size, sum });
        }
        let first = layers.first().map_or(0.0, |layer| layer.error_rate);
        // A file of before 2.2 that a later version saved may have a first layer above one half.
        let doubled = (first * 2.0).min(1.0 - f64::EPSILON);
        let plan = Plan {
            family: Family::RedisBloom(self.family),
            seed: 0,
            error_rate: if self.halves { doubled } else { first },
            expansion: self.expansion,
            layers,
        };
        plan.check()?;
        Ok(plan)
    }
}

/// The numbers of a layer, as both layouts have them.
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
    /// The layer, if RedisBloom makes such layers.
    fn plan(&self, index: usize) -> Result<LayerPlan, Error> {
        let forged = |field| Error::Forged { index, field };
        // NaN is outside too.
        if !(self.rate > 0.0 && self.rate < 1.0) {
            return Err(FilterError::ErrorRate(self.rate).into());
        }
        let per_item = bits_per_item(self.rate);
        let off = (self.bits_per_item - per_item).abs();
        if off.is_nan() || off > per_item * ROUNDING {
            return Err(forged("bpe"));
        }
        if self.probes != probes(per_item) {
            return Err(forged("hashes"));
        }
        let probes = u16::try_from(self.probes).map_err(|_| forged("hashes"))?;
        let (bits, rule) = if self.n2 == 0 {
            (self.bits, Rule::Remainder)
        } else {
            let power = u32::try_from(self.n2).ok().and_then(|n2| 1_u64.checked_shl(n2));
            let positions = power.ok_or_else(|| forged("n2"))?;
            let whole = self.bytes.checked_mul(8).ok_or_else(|| forged("bytes"))?;
            if ![0, positions, whole].contains(&self.bits) {
                return Err(forged("bits"));
            }
            (positions, Rule::LowBits)
        };
        let shape = Classic {
            bits,
            bytes: self.bytes,
            probes,
            rule,
        };
        if !shape.is_sound() || !fits(&shape, self.capacity, self.rate) {
            return Err(forged("bits"));
        }
        Ok(LayerPlan {
            capacity: self.capacity,
            items: self.items,
            error_rate: self.rate,
            shape: shape.into(),
        })
    }
}

/// Reads a filter of one of the `ENCODING_VERSIONS`, of at most `ceiling` bytes of bits.
///
/// # Errors
/// Any of [`Error`]; nothing stays allocated.
pub fn load(source: &mut impl Values, version: i32, ceiling: u64) -> Result<Filter, Error> {
    let size = unsigned(source)?;
    let count = unsigned(source)?;
    let options = if version >= OPTIONS_SINCE {
        unsigned(source)?
    } else {
        0
    };
    let growth = if version >= GROWTH_SINCE {
        Some(unsigned(source)?)
    } else {
        None
    };
    let chain = Chain::new(size, options, growth)?;
    if count == 0 || count > MAX_LAYERS as u64 {
        return Err(FilterError::Layers.into());
    }
    // A count reserves no memory: each layer comes with bytes of its own.
    let (mut plans, mut layers, mut present) = (Vec::new(), Vec::new(), 0_u64);
    for index in 0..count as usize {
        let capacity = unsigned(source)?;
        let rate = double(source)?;
        let probes = unsigned(source)?;
        let bits_per_item = double(source)?;
        let (bits, n2) = if version >= BITS_SINCE {
            (unsigned(source)?, unsigned(source)?)
        } else {
            ((capacity as f64 * bits_per_item) as u64, 0)
        };
        let string = source.next().ok_or(Error::Truncated)?;
        let bytes = string.as_ref();
        let link = Link {
            capacity,
            rate,
            probes,
            bits_per_item,
            bits,
            n2,
            bytes: bytes.len() as u64,
            items: 0,
        };
        let mut plan = link.plan(index)?;
        present = present.saturating_add(plan.shape.words().saturating_mul(stream::WORD));
        if present > ceiling {
            let wanted = present;
            return Err(FilterError::Ceiling { wanted, ceiling }.into());
        }
        let mut layer = Layer::new(plan.shape, plan.capacity, plan.error_rate)?;
        stream::merge_into(&mut layer, bytes);
        drop(string);
        plan.items = unsigned(source)?;
        layer.set_counted(plan.items);
        plans.push(plan);
        layers.push(layer);
    }
    let Plan {
        family,
        seed,
        error_rate,
        expansion,
        ..
    } = chain.plan(plans)?;
    Filter::from_layers(family, seed, error_rate, expansion, layers).ok_or(Error::Truncated)
}

fn unsigned(source: &mut impl Values) -> Result<u64, Error> {
    source.unsigned().ok_or(Error::Truncated)
}

fn double(source: &mut impl Values) -> Result<f64, Error> {
    source.double().ok_or(Error::Truncated)
}

/// The header of a dump, for a filter of RedisBloom's.
pub(super) fn header(filter: &Filter, family: RedisBloom) -> Vec<u8> {
    let scales = filter.expansion().factor();
    let options = if family.rounds { 0 } else { EXACT }
        | if family.hash64 { HASH64 } else { 0 }
        | if scales.is_some() { 0 } else { NONSCALING };
    let mut out = Vec::new();
    out.extend(filter.items().to_le_bytes());
    // A filter never has more than MAX_LAYERS.
    out.extend((filter.layers().len() as u32).to_le_bytes());
    out.extend((options as u32).to_le_bytes());
    out.extend(scales.unwrap_or(GROWTH as u32).to_le_bytes());
    for layer in filter.layers() {
        let Shape::Classic(shape) = layer.shape() else {
            continue;
        };
        let (bits, n2) = match shape.rule {
            Rule::Remainder => (shape.bits, 0),
            Rule::LowBits => (shape.bytes.saturating_mul(8), shape.bits.trailing_zeros() as u8),
            // Its filters have no others (`filter::Plan::check`).
            Rule::Prime | Rule::Mitz32 | Rule::Mitz64 => (shape.bits, 0),
        };
        out.extend(shape.bytes.to_le_bytes());
        out.extend(bits.to_le_bytes());
        out.extend(layer.items().to_le_bytes());
        out.extend(layer.error_rate().to_le_bytes());
        out.extend(bits_per_item(layer.error_rate()).to_le_bytes());
        out.extend(u32::from(shape.probes).to_le_bytes());
        out.extend(layer.capacity().to_le_bytes());
        out.push(n2);
    }
    out
}

/// Reads and checks the header of a dump.
pub(super) fn read_header(bytes: &[u8]) -> Result<Plan, Error> {
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
        // A length that no header has: this is neither their dump nor ours.
        return Err(Error::Magic(header::MAGIC));
    };
    let chain = Chain::new(size, options, growth)?;
    if count > MAX_LAYERS {
        return Err(FilterError::Layers.into());
    }
    // The layers are there: the length says so.
    let mut layers = Vec::new();
    layers
        .try_reserve_exact(count)
        .map_err(|_| FilterError::OutOfMemory(count as u64))?;
    for index in 0..count {
        let (bytes, bits, items) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (rate, bits_per_item) = (reader.f64()?, reader.f64()?);
        let probes = u64::from(reader.u32()?);
        let capacity = if wide {
            reader.u64()?
        } else {
            u64::from(reader.u32()?)
        };
        let n2 = u64::from(reader.u8()?);
        let link = Link {
            capacity,
            rate,
            probes,
            bits_per_item,
            bits,
            n2,
            bytes,
            items,
        };
        layers.push(link.plan(index)?);
    }
    chain.plan(layers)
}

/// Where a layer lies: RedisBloom counts its bytes, our stream (`stream.rs`) whole words. They differ in files of before
/// 2.2.9.
struct Place {
    /// First byte as RedisBloom counts.
    start: u64,
    /// Byte after the last.
    end: u64,
    /// First byte in the stream.
    stream: u64,
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "positions inside a filter that exists"
)]
fn places(filter: &Filter) -> impl Iterator<Item = Place> {
    filter.layers().scan((0, 0), |(start, stream), layer| {
        let words = layer.bits().words().len() as u64 * stream::WORD;
        let bytes = match layer.shape() {
            Shape::Classic(shape) => shape.bytes,
            Shape::Blocked(_) | Shape::Counting(_) => words,
        };
        let place = Place {
            start: *start,
            end: *start + bytes,
            stream: *stream,
        };
        (*start, *stream) = (place.end, *stream + words);
        Some(place)
    })
}

/// The chunk that iterator `from` asks for, of the first `present` bytes of the stream, and the next iterator.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "positions inside a filter that exists"
)]
pub(super) fn cut(filter: &Filter, from: i64, present: u64) -> Option<(i64, Vec<u8>)> {
    let first = u64::try_from(from.checked_sub(1)?).ok()?;
    let place = places(filter).find(|place| first < place.end)?;
    let at = place.stream + (first - place.start);
    let count = (place.end - first).min(BITS).min(present.saturating_sub(at));
    let next = from.checked_add_unsigned(count).filter(|_| count > 0)?;
    let mut out = Vec::with_capacity(count as usize);
    stream::read(filter, at, count as usize, &mut out);
    Some((next, out))
}

/// Where in the stream a chunk belongs: its first byte and the byte after its last.
///
/// # Errors
/// `Error::TooBig` if it does not lie inside one layer, `Error::Unaligned` if it does not cover whole words of it.
pub(super) fn place(filter: &Filter, iterator: i64, data: &[u8]) -> Result<(u64, u64), Error> {
    let (count, total) = (data.len() as u64, filter.bit_bytes());
    let end = iterator.checked_sub(1).and_then(|end| u64::try_from(end).ok());
    let Some((end, from)) = end.and_then(|end| Some((end, end.checked_sub(count)?))) else {
        let bytes = data.len();
        return Err(Error::Iterator { iterator, bytes });
    };
    let place = places(filter).find(|place| from < place.end);
    let place = place.ok_or(Error::Order {
        from,
        to: end,
        received: total,
    })?;
    if end > place.end {
        return Err(Error::TooBig { from, to: end, total });
    }
    let inside = from.saturating_sub(place.start);
    let whole = count.is_multiple_of(stream::WORD) || end == place.end;
    if count == 0 || !inside.is_multiple_of(stream::WORD) || !whole {
        return Err(Error::Unaligned { from, to: end });
    }
    let first = place.stream.saturating_add(inside);
    let words = count.div_ceil(stream::WORD).saturating_mul(stream::WORD);
    Ok((first, first.saturating_add(words)))
}
