//! valkey-bloom's layouts: RDB and DUMP with the encoding version 1, and the blob of its BF.LOAD,
//! which valkey-bloom writes when it rewrites the AOF.
//!
//! ```text
//!   RDB     layers · expansion · rate f64 · tightening f64 · seed is random (0, 1) ·
//!           for each layer: capacity · items, of the last layer only · bitmap as one string
//!
//!   blob    ┌─────┬───────────┬──────┬────────────┬────────┬────────┬─ ─ ─ ─ ─ ─ ─ ┐
//!    (LE)   │ = 1 │ expansion │ rate │ tightening │ random │ layers │ layers,      │
//!           │ u8  │ u32       │ f64  │ f64        │ u8     │ u64    │ oldest first │
//!           └─────┴───────────┴──────┴────────────┴────────┴────────┴─ ─ ─ ─ ─ ─ ─ ┘
//!   layer   ┌────────┬────────┬───────┬──────────┐
//!   of a    │ length │ bitmap │ items │ capacity │   length: bytes of the bitmap
//!   blob    │ u64    │        │ i64   │ i64      │
//!           └────────┴────────┴───────┴──────────┘
//!   bitmap  ┌─────┬───────┬────────┬──────────┬─ ─ ─ ┐
//!    (LE)   │ = 1 │ bytes │ probes │ seed     │ bits │   bit i is bit i % 8 of byte i / 8, as in
//!           │ u8  │ u64   │ u32    │ 32 bytes │      │   native/stream.rs
//!           └─────┴───────┴────────┴──────────┴─ ─ ─ ┘
//! ```
//!
//! Expansion 0 is a non-scaling filter. All layers have the seed of the first layer. A seed that is
//! not random is public (`FIXED_SEED`). valkey-bloom refuses files that break these rules.
//!
//! The order of fields of a layer in the RDB follows a public description of 1.0.1; no published
//! binary was compared (`tests/fixtures/README.md`). Files of builds before 1.0.0 are refused.
//!
//! RDB and blob are written as they were read, so files go both ways. A layer is allocated when its
//! bitmap has arrived and has the length that follows from capacity and rate. Other numbers that
//! can be computed are compared with the computed ones.

use super::{
    Error,
    io::{NumberSink, NumberSource},
    native::stream,
    reader::Reader,
};
use crate::filter::{
    Classic, Error as FilterError, Expansion, FIXED_SEED, Family, Filter, Layer, LayerPlan,
    MAX_LAYERS, Plan, Rule, Shape, Valkey,
};

/// The encoding version of valkey-bloom's RDB.
pub const ENCODING_VERSION: i32 = 1;
/// The version of a blob.
const BLOB: u8 = 1;
/// The version of a bitmap.
const BITMAP: u8 = 1;
/// Bytes of a bitmap before its bits.
const HEADER: usize = 45;
/// Bytes of a blob before its layers.
const START: usize = 30;
/// Bytes of a layer in a blob without its bitmap: length, items, capacity.
const FRAME: usize = 24;

/// The refusal of numbers of a layer that contradict each other.
const UNCOMPUTED: Error =
    Error::Malformed("a layer that valkey-bloom does not compute from its numbers");

/// A filter of which layers arrive.
struct Arriving {
    plan: Plan,
    /// Whether its seed is random.
    random: bool,
    layers: Vec<Layer>,
    /// Bytes of bits so far.
    present: u64,
    ceiling: u64,
}

impl Arriving {
    fn new(
        expansion: u64,
        error_rate: f64,
        tightening: f64,
        random: u64,
        ceiling: u64,
    ) -> Result<Self, Error> {
        let expansion = u32::try_from(expansion).map_err(|_| FilterError::Expansion(expansion))?;
        // Written so that NaN is refused.
        if !(error_rate > 0.0 && error_rate < 1.0) {
            return Err(FilterError::ErrorRate(error_rate).into());
        }
        if random > 1 {
            return Err(Error::Malformed("neither a random seed nor none"));
        }
        let plan = Plan {
            family: Family::Valkey(Valkey { seed: FIXED_SEED, tightening }),
            error_rate,
            expansion: Expansion::stored(expansion),
            ..Plan::default()
        };
        Ok(Self { plan, random: random == 1, layers: Vec::new(), present: 0, ceiling })
    }

    fn take(&mut self, bitmap: &[u8], capacity: u64, items: u64) -> Result<(), Error> {
        let mut reader = Reader::plain(bitmap);
        match reader.u8()? {
            BITMAP => {}
            version => return Err(Error::Version(version.into())),
        }
        let (bytes, probes) = (reader.u64()?, reader.u32()?);
        let seed = reader.array()?;
        let bits = reader.rest();
        if bytes != bits.len() as u64 {
            return Err(Error::Malformed("a bitmap whose length is not that of its bits"));
        }
        let Family::Valkey(family) = &mut self.plan.family else {
            return Err(UNCOMPUTED);
        };
        if self.layers.is_empty() {
            family.seed = seed;
        }
        if family.seed != seed || (!self.random && seed != FIXED_SEED) {
            return Err(Error::Malformed("a layer with another seed than its filter"));
        }
        let probes = u16::try_from(probes).map_err(|_| UNCOMPUTED)?;
        let classic = Classic { bits: bytes.saturating_mul(8), bytes, probes, rule: Rule::Prime };
        let rate = family.layer_rate(self.plan.error_rate, self.layers.len());
        let error_rate = rate.ok_or(UNCOMPUTED)?;
        if !classic.is_sound() || !Valkey::fits(&classic, capacity, error_rate) {
            return Err(UNCOMPUTED);
        }
        let plan = LayerPlan { capacity, items, error_rate, shape: Shape::Classic(classic) };
        self.layers.push(stream::layer(&plan, bits, &mut self.present, self.ceiling)?);
        self.plan.layers.push(plan);
        Ok(())
    }

    fn finish(self) -> Result<Filter, Error> {
        self.plan.check()?;
        Ok(self.plan.with_layers(self.layers)?)
    }
}

fn count(layers: u64) -> Result<usize, Error> {
    match usize::try_from(layers) {
        Ok(layers @ 1..=MAX_LAYERS) => Ok(layers),
        _ => Err(FilterError::Layers.into()),
    }
}

/// Reads a filter with the `ENCODING_VERSION` and at most `ceiling` bytes of bits. A filter that
/// the allocator refuses is read to its end all the same, so that what comes after it can be read.
///
/// # Errors
/// Any [`Error`]; nothing stays allocated.
pub fn load(source: &mut impl NumberSource, ceiling: u64) -> Result<Filter, Error> {
    let (layers, expansion) = (count(source.unsigned()?)?, source.unsigned()?);
    let (rate, tightening) = (source.double()?, source.double()?);
    let random = source.unsigned()?;
    let mut filter = Arriving::new(expansion, rate, tightening, random, ceiling)?;
    let mut refused = None;
    for left in (0..layers).rev() {
        let capacity = source.unsigned()?;
        // All layers but the last are full.
        let items = if left == 0 { source.unsigned()? } else { capacity };
        let bitmap = source.next()?;
        if refused.is_none() {
            match filter.take(bitmap.as_ref(), capacity, items) {
                Err(Error::Filter(error @ FilterError::OutOfMemory(_))) => refused = Some(error),
                taken => taken?,
            }
        }
    }
    refused.map_or_else(|| filter.finish(), |error| Err(error.into()))
}

/// Reads a blob into a filter of at most `ceiling` bytes of bits.
///
/// # Errors
/// Any [`Error`]; nothing stays allocated.
pub fn read_blob(blob: &[u8], ceiling: u64) -> Result<Filter, Error> {
    let mut reader = Reader::plain(blob);
    match reader.u8()? {
        BLOB => {}
        version => return Err(Error::Version(version.into())),
    }
    let expansion = reader.u32()?;
    let (rate, tightening, random) = (reader.f64()?, reader.f64()?, reader.u8()?);
    let layers = count(reader.u64()?)?;
    let mut filter = Arriving::new(expansion.into(), rate, tightening, random.into(), ceiling)?;
    for _ in 0..layers {
        let length = usize::try_from(reader.u64()?).map_err(|_| Error::Truncated)?;
        let bitmap = reader.bytes(length)?;
        let (items, capacity) = (reader.u64()?, reader.u64()?);
        filter.take(bitmap, capacity, items)?;
    }
    reader.end()?;
    filter.finish()
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
    out.push(BLOB);
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
    out.push(BITMAP);
    out.extend(shape.bytes.to_le_bytes());
    out.extend(u32::from(shape.probes).to_le_bytes());
    out.extend(family.seed);
    // The last word may not be full.
    stream::put(layer.bits().words(), shape.bytes as usize, out);
}
