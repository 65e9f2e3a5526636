//! valkey-bloom's layouts: RDB and DUMP with the encoding version 1, and the blob of its BF.LOAD,
//! which valkey-bloom writes when it rewrites the AOF.
//!
//! ```text
//!   RDB     layers · expansion · rate f64 · tightening f64 · seed is random (0, 1) ·
//!           for each layer: capacity · items, of the last layer only · bitmap as one string
//!
//!   blob    1 u8 · expansion u32 · rate f64 · tightening f64 · seed is random u8 · layers u64 ·
//!           for each layer: bytes of the bitmap u64 · bitmap · items i64 · capacity i64
//!
//!   bitmap  1 u8 · bytes of the bits u64 · probes u32 · seed, 32 bytes ·
//!           bits: bit i is bit i % 8 of byte i / 8, as in native/stream.rs
//! ```
//!
//! Numbers are little-endian. The oldest layer is the first.
//!
//! Expansion 0 is a non-scaling filter. All layers have the seed of the first layer. A seed that is
//! not random is public (`FIXED_SEED`). valkey-bloom refuses files that break these rules.
//!
//! The order of fields of a layer in the RDB follows a public description of 1.0.1; no published
//! binary was compared (`tests/fixtures/README.md`). Files of builds before 1.0.0 are refused.
//! RDB and blob are written as they were read. Numbers that can be computed are compared with the
//! computed ones.

use super::{
    Error,
    io::{NumberSink, NumberSource},
    native::stream,
    reader::{Reader, version},
};
use crate::filter::{
    Classic, Error as FilterError, Expansion, FIXED_SEED, Family, Filter, Layer, LayerPlan,
    MAX_LAYERS, Plan, Rule, Shape, Valkey, check_ranges,
};

/// The encoding version of valkey-bloom's RDB.
pub const ENCODING_VERSION: i32 = 1;
/// The version of a blob, and of a bitmap.
const VERSION: u8 = 1;
/// Bytes of a bitmap before its bits.
const HEADER: usize = 45;
/// Bytes of a blob before its layers.
const START: usize = 30;
/// Bytes of a layer in a blob without its bitmap: length, items, capacity.
const FRAME: usize = 24;

/// The refusal of numbers of a layer that contradict each other.
const UNCOMPUTED: Error =
    Error::Malformed("a layer that valkey-bloom does not compute from its numbers");

/// Reads a filter with the `ENCODING_VERSION` and at most `ceiling` bytes of bits. A filter that
/// the allocator refuses is read to its end all the same, so that what comes after it can be read.
/// A later layer that is bad ends it sooner.
///
/// # Errors
/// Any [`Error`]; nothing stays allocated.
pub fn load(source: &mut impl NumberSource, ceiling: u64) -> Result<Filter, Error> {
    let (count, expansion) = (checked(source.unsigned()?)?, source.unsigned()?);
    let rates = [source.double()?, source.double()?];
    let random = source.unsigned()?;
    filter(count, expansion, rates, random, ceiling, |is_last| {
        let capacity = source.unsigned()?;
        // All layers but the last are full.
        let items = if is_last { source.unsigned()? } else { capacity };
        Ok((source.next()?, capacity, items))
    })
}

/// Reads a blob into a filter of at most `ceiling` bytes of bits.
///
/// # Errors
/// Any [`Error`]; nothing stays allocated.
pub fn read_blob(blob: &[u8], ceiling: u64) -> Result<Filter, Error> {
    let mut reader = Reader(blob);
    version(reader.u8()?.into(), VERSION.into())?;
    let (expansion, rates) = (reader.u32()?, [reader.f64()?, reader.f64()?]);
    let (random, count) = (reader.u8()?, checked(reader.u64()?)?);
    let filter = filter(count, expansion.into(), rates, random.into(), ceiling, |_| {
        let length = usize::try_from(reader.u64()?).map_err(|_| Error::Truncated)?;
        let bitmap = reader.bytes(length)?;
        let (items, capacity) = (reader.u64()?, reader.u64()?);
        Ok((bitmap, capacity, items))
    })?;
    reader.end()?;
    Ok(filter)
}

/// A number of layers that a filter may have.
fn checked(layers: u64) -> Result<usize, Error> {
    match usize::try_from(layers) {
        Ok(layers @ 1..=MAX_LAYERS) => Ok(layers),
        _ => Err(FilterError::Layers.into()),
    }
}

/// Makes a filter of `count` layers. `next` gives bitmap, capacity and items of each, and gets
/// whether it is the last.
fn filter<Bitmap: AsRef<[u8]>>(
    count: usize,
    expansion: u64,
    [error_rate, tightening]: [f64; 2],
    random: u64,
    ceiling: u64,
    mut next: impl FnMut(bool) -> Result<(Bitmap, u64, u64), Error>,
) -> Result<Filter, Error> {
    let expansion = u32::try_from(expansion).map_err(|_| FilterError::Expansion(expansion))?;
    check_ranges(error_rate, 1)?;
    if random > 1 {
        return Err(Error::Malformed("neither a random seed nor none"));
    }
    let mut family = Valkey { seed: FIXED_SEED, tightening };
    let (mut plans, mut layers, mut present) = (Vec::new(), Ok(Vec::new()), 0);
    for number in 1..=count {
        let (bitmap, capacity, items) = next(number == count)?;
        let mut reader = Reader(bitmap.as_ref());
        version(reader.u8()?.into(), VERSION.into())?;
        let (bytes, probes, seed) = (reader.u64()?, reader.u32()?, reader.array()?);
        if bytes != reader.0.len() as u64 {
            return Err(Error::Malformed("a bitmap whose length does not match its bits"));
        }
        if plans.is_empty() {
            family.seed = seed;
        }
        if family.seed != seed || (random == 0 && seed != FIXED_SEED) {
            return Err(Error::Malformed("a layer with another seed than its filter"));
        }
        let probes = u16::try_from(probes).map_err(|_| UNCOMPUTED)?;
        let classic = Classic { bits: bytes.saturating_mul(8), bytes, probes, rule: Rule::Prime };
        let error_rate = family.layer_rate(error_rate, plans.len()).ok_or(UNCOMPUTED)?;
        if !classic.is_sound() || !Valkey::fits(&classic, capacity, error_rate) {
            return Err(UNCOMPUTED);
        }
        let plan = LayerPlan { capacity, items, error_rate, shape: Shape::Classic(classic) };
        if let Ok(made) = &mut layers {
            match stream::layer(&plan, reader.0, &mut present, ceiling) {
                Err(error @ FilterError::OutOfMemory(_)) => layers = Err(error),
                layer => made.push(layer?),
            }
        }
        plans.push(plan);
    }
    let layers = layers?;
    let plan = Plan {
        family: Family::Valkey(family),
        error_rate,
        expansion: Expansion::stored(expansion),
        layers: plans,
        ..Plan::default()
    };
    plan.check()?;
    Ok(plan.with_layers(layers)?)
}

/// Writes a valkey-bloom filter in the layout of its RDB; writes nothing for other filters.
pub fn save(filter: &Filter, sink: &mut impl NumberSink) {
    let Family::Valkey(family) = filter.family() else {
        return;
    };
    sink.unsigned(filter.layers().len() as u64);
    sink.unsigned(filter.expansion().factor().unwrap_or(0).into());
    sink.double(filter.error_rate());
    sink.double(family.tightening);
    sink.unsigned(u64::from(family.seed != FIXED_SEED));
    for (place, layer) in (1..).zip(filter.layers()) {
        sink.unsigned(layer.capacity);
        if place == filter.layers().len() {
            sink.unsigned(layer.counted);
        }
        let mut out = Vec::with_capacity(bitmap_bytes(layer));
        put_bitmap(layer, &family, &mut out);
        sink.put(&out);
    }
}

/// The blob of a valkey-bloom filter; `None` for others. Allocates exactly its size, because a
/// child that rewrites the AOF needs it in addition to the filter.
pub fn blob(filter: &Filter) -> Option<Vec<u8>> {
    let Family::Valkey(family) = filter.family() else {
        return None;
    };
    let layers = filter.layers().map(|layer| bitmap_bytes(layer).saturating_add(FRAME));
    let mut out = Vec::with_capacity(layers.fold(START, usize::saturating_add));
    out.push(VERSION);
    out.extend(filter.expansion().factor().unwrap_or(0).to_le_bytes());
    out.extend(filter.error_rate().to_le_bytes());
    out.extend(family.tightening.to_le_bytes());
    out.push(u8::from(family.seed != FIXED_SEED));
    out.extend((filter.layers().len() as u64).to_le_bytes());
    for layer in filter.layers() {
        out.extend((bitmap_bytes(layer) as u64).to_le_bytes());
        put_bitmap(layer, &family, &mut out);
        out.extend(layer.counted.to_le_bytes());
        out.extend(layer.capacity.to_le_bytes());
    }
    Some(out)
}

/// Size of the bitmap of a layer in bytes, header included.
fn bitmap_bytes(layer: &Layer) -> usize {
    match layer.shape() {
        Shape::Classic(shape) => HEADER.saturating_add(shape.bytes as usize),
        // Not in a valkey-bloom filter (`filter::Plan::check`).
        Shape::Blocked(_) => 0,
    }
}

fn put_bitmap(layer: &Layer, family: &Valkey, out: &mut Vec<u8>) {
    let Shape::Classic(shape) = layer.shape() else {
        return;
    };
    out.push(VERSION);
    out.extend(shape.bytes.to_le_bytes());
    out.extend(u32::from(shape.probes).to_le_bytes());
    out.extend(family.seed);
    // The last word may not be full.
    stream::put(layer.bits().words(), shape.bytes as usize, out);
}
