//! The header: all numbers of a filter, little-endian.
//!
//! ```text
//!   0        6         8      16         24         28       32        40
//!   ┌────────┬─────────┬──────┬──────────┬──────────┬────────┬─────────┬─ ─ ─ ─
//!   │ rbloom │ version │ seed │ error    │ expan-   │ layers │ present │ ...
//!   │        │ = 1     │ u64  │ rate f64 │ sion u32 │ u32    │ u64     │
//!   └────────┴─────────┴──────┴──────────┴──────────┴────────┴─────────┴─ ─ ─ ─
//!   40
//!   ┌────────┬─ ─ ─ ─ ─ ─ ┬─────────┬──────┬────────┬─ ─ ─ ─ ─ ┬─ ─ ─ ┬─ ─ ─ ─ ─ ─ ─ ┬─────────┐
//!   │ family │ fields of  │ records │ kind │ length │ `length` │ next │ layers,      │ XXH3-64 │
//!   │ u8     │ the family │ u16     │ u16  │ u32    │ bytes    │      │ oldest first │ of all  │
//!   └────────┴─ ─ ─ ─ ─ ─ ┴─────────┴──────┴────────┴─ ─ ─ ─ ─ ┴─ ─ ─ ┴─ ─ ─ ─ ─ ─ ─ ┴─────────┘
//!   family     0 native · 1 RedisBloom, then options u8: 1 exact (not rounded), 4 64-bit hash ·
//!              2 valkey-bloom, then seed, 32 bytes · tightening ratio f64 · 3 Guava
//!
//!   layer      0 u8, blocked · probes u8 · block_words u16 · blocks u32 ·
//!              capacity u64 · items u64 · error rate f64                            32 bytes
//!
//!              1 u8, classic · rule u8 · probes u16 · bits u64 · bytes u64 ·
//!              capacity u64 · items u64 · error rate f64                            44 bytes
//!              rule: 0 remainder, 1 low bits, 2 prime, 3 mitz32, 4 mitz64
//!
//!   record     1, shard, of native filters: number of the shard u16 · number of shards u16
//!
//!              2, pages, of native filters with at most one layer, which is below them:
//!              tag bits u8 · payload kind u8 · payload bits u8 · doublings u8 ·
//!              slots of a page u16 · first pages u32 · capacity u64 · copies u64
//!              payload kind: 0 nothing, 1 counts, 2 generations (filter/pages/plan.rs)
//!
//!              3, window, of filters in pages:
//!              span u8: 0 time, 1 items · generations u8 · refresh u8 · milliseconds u64 ·
//!              number u64 · oldest u64 · floor u64 · page u64 · changes u8 ·
//!              for each generation: start i64 · items u64
//! ```
//!
//! `present` is the place (`body.rs`) up to which bits and pages follow: all of a complete filter,
//! less while BF.LOADCHUNK fills it, none in a dump. Records are properties that most filters lack.
//!
//! Kinds of records ascend; 0 is not a kind. So each filter has exactly one header, by which the
//! chunks of a dump are matched (`Plan::dump_identity`). A new family, kind or property takes the
//! next number; a new meaning of the bits gets a new version.
//!
//! A release that does not know a record of a kind below 32,768 refuses the header, because the
//! filter is not the same without that record. It skips records of other kinds, does not write them
//! again, and leaves them out of the identities of a filter.

use crate::{
    codec::{
        Error,
        reader::{Reader, open, seal},
        redisbloom,
    },
    filter::{
        Classic, Error as FilterError, Expansion, Family, Geometry, LayerPlan, MAX_LAYERS,
        PagedPlan, Plan, Rule, Rules, Shape, Span, Valkey,
        paged::{Generation, Sweep, Window},
        pages::{self, END, Payload},
    },
    sharding::Shard,
};

pub(super) const MAGIC: &str = "rbloom";
/// Bytes of the shortest layer.
const LAYER: usize = 32;
/// Kinds of records.
const SHARD: u16 = 1;
const PAGES: u16 = 2;
const WINDOW: u16 = 3;
/// Records of kinds from this one on are optional: a release that does not know them skips them.
const OPTIONAL: u16 = 1 << 15;
/// Rules of a classic layer, by their numbers.
const RULES: [Rule; 5] = [Rule::Remainder, Rule::LowBits, Rule::Prime, Rule::Mitz32, Rule::Mitz64];

/// The refusal of a family, record, layer, option or rule that no version has.
const UNKNOWN: Error = Error::Malformed("a kind, option or rule that is not known");

impl Plan {
    /// The place behind the last bit or page.
    pub(super) fn end(&self) -> u64 {
        self.bit_bytes().saturating_add(if self.paged.is_some() { END } else { 0 })
    }

    /// Void slots that splits copied.
    pub(super) fn copies(&self) -> u64 {
        self.paged.as_ref().map_or(0, |paged| paged.copies)
    }

    /// Writes the header. What lies before the place `present` must follow it.
    pub(super) fn encode(&self, present: u64) -> Vec<u8> {
        let shard = self.shard.map(|shard| (SHARD, put_shard(shard)));
        let mut records: Vec<_> = shard.into_iter().collect();
        if let Some(paged) = &self.paged {
            records.push((PAGES, put_pages(paged)));
            records.extend(paged.window.as_ref().map(|window| (WINDOW, put_window(window))));
        }
        let mut out = open(MAGIC);
        out.extend(self.seed.to_le_bytes());
        out.extend(self.error_rate.to_le_bytes());
        out.extend(self.expansion.factor().unwrap_or(0).to_le_bytes());
        // A filter never has more than `MAX_LAYERS`.
        out.extend((self.layers.len() as u32).to_le_bytes());
        out.extend(present.to_le_bytes());
        put_family(self.family, &mut out);
        // There are few kinds, and no record has 4 GiB.
        out.extend((records.len() as u16).to_le_bytes());
        for (kind, bytes) in records {
            out.extend(kind.to_le_bytes());
            out.extend((bytes.len() as u32).to_le_bytes());
            out.extend(bytes);
        }
        self.layers.iter().for_each(|layer| put_layer(layer, &mut out));
        seal(out)
    }

    /// The header with what does not change while items come and go. It changes when a filter gets
    /// a layer, and when a generation starts: all payloads mean something else then. Not a
    /// checksum: a client could search for two filters with equal ones, and mix their chunks.
    pub(super) fn dump_identity(mut self) -> Vec<u8> {
        if let Some(paged) = &mut self.paged {
            paged.copies = 0;
            if let Some(window) = &mut paged.window {
                window.generations.clear();
                window.sweep = Sweep::default();
            }
        } else {
            self.layers.iter_mut().for_each(|layer| layer.items = 0);
        }
        self.encode(0)
    }
}

fn put_family(family: Family, out: &mut Vec<u8>) {
    match family {
        Family::Native => out.push(0),
        Family::RedisBloom(family) => out.extend([1, redisbloom::options_of(family)]),
        Family::Valkey(Valkey { seed, tightening }) => {
            out.push(2);
            out.extend(seed);
            out.extend(tightening.to_le_bytes());
        }
        Family::Guava => out.push(3),
    }
}

fn put_layer(layer: &LayerPlan, out: &mut Vec<u8>) {
    match layer.shape {
        Shape::Blocked(geometry) => {
            out.extend([0, geometry.probes]);
            out.extend(geometry.block_words.to_le_bytes());
            out.extend(geometry.blocks.to_le_bytes());
        }
        Shape::Classic(classic) => {
            let rule = RULES.iter().position(|rule| *rule == classic.rule).unwrap_or(0);
            out.extend([1, rule as u8]);
            out.extend(classic.probes.to_le_bytes());
            out.extend(classic.bits.to_le_bytes());
            out.extend(classic.bytes.to_le_bytes());
        }
    }
    out.extend(layer.capacity.to_le_bytes());
    out.extend(layer.items.to_le_bytes());
    out.extend(layer.error_rate.to_le_bytes());
}

fn put_shard(shard: Shard) -> Vec<u8> {
    [shard.index(), shard.count()].map(u16::to_le_bytes).as_flattened().to_vec()
}

fn put_pages(PagedPlan { capacity, pages, copies, .. }: &PagedPlan) -> Vec<u8> {
    let (payload, bits) = match pages.payload {
        Payload::Nothing => (0, 0),
        Payload::Count(bits) => (1, bits),
        Payload::Generation(bits) => (2, bits),
    };
    let mut out = vec![pages.tag_bits, payload, bits, pages.doublings];
    out.extend(pages.page_slots.to_le_bytes());
    out.extend(pages.first_pages.to_le_bytes());
    out.extend(capacity.to_le_bytes());
    out.extend(copies.to_le_bytes());
    out
}

fn put_window(window: &Window) -> Vec<u8> {
    let Window { rules, generations, number, sweep } = window;
    let (span, milliseconds) = match rules.span {
        Span::Time(milliseconds) => (0, milliseconds),
        Span::Items => (1, 0),
    };
    let mut out = vec![span, rules.generations, u8::from(rules.refresh)];
    for number in [milliseconds, *number, sweep.oldest, sweep.floor, sweep.page] {
        out.extend(number.to_le_bytes());
    }
    out.push(sweep.changes);
    for generation in generations {
        out.extend(generation.start.to_le_bytes());
        out.extend(generation.items.to_le_bytes());
    }
    out
}

/// Reads and checks a header: the plan, and how much of bits and pages follows.
pub(super) fn decode(bytes: &[u8]) -> Result<(Plan, u64), Error> {
    let mut reader = Reader::sealed(bytes, MAGIC)?;
    let (seed, error_rate, factor) = (reader.u64()?, reader.f64()?, reader.u32()?);
    let (count, present) = (reader.u32()? as usize, reader.u64()?);
    let (family, expansion) = (family(&mut reader)?, Expansion::stored(factor));
    let mut plan = Plan { family, seed, error_rate, expansion, ..Plan::default() };
    records(&mut reader, &mut plan)?;
    if count > MAX_LAYERS {
        return Err(FilterError::Layers.into());
    }
    // Memory is reserved for a count only if the bytes of its layers are present.
    if reader.0.len() / LAYER < count {
        return Err(Error::Truncated);
    }
    plan.layers.try_reserve_exact(count).map_err(|_| FilterError::OutOfMemory(count as u64))?;
    for _ in 0..count {
        let shape = shape(&mut reader)?;
        let (capacity, items, error_rate) = (reader.u64()?, reader.u64()?, reader.f64()?);
        plan.layers.push(LayerPlan { capacity, items, error_rate, shape });
    }
    reader.end()?;
    plan.check()?;
    let total = plan.end();
    if present > total {
        return Err(Error::TooBig { from: 0, to: present, total });
    }
    Ok((plan, present))
}

fn family(reader: &mut Reader) -> Result<Family, Error> {
    match reader.u8()? {
        0 => Ok(Family::Native),
        1 => redisbloom::family_of(reader.u8()?).map(Family::RedisBloom).ok_or(UNKNOWN),
        2 => Ok(Family::Valkey(Valkey { seed: reader.array()?, tightening: reader.f64()? })),
        3 => Ok(Family::Guava),
        _ => Err(UNKNOWN),
    }
}

/// The records of a header that this release knows. The record of pages precedes the record of a
/// window.
fn records(reader: &mut Reader, plan: &mut Plan) -> Result<(), Error> {
    let mut last = 0;
    for _ in 0..reader.u16()? {
        let (kind, length) = (reader.u16()?, reader.u32()?);
        let mut record = Reader(reader.bytes(length as usize)?);
        if kind <= last {
            return Err(Error::Malformed("records out of order"));
        }
        last = kind;
        match kind {
            SHARD => plan.shard = Some(shard(&mut record)?),
            PAGES => plan.paged = Some(pages(&mut record)?),
            WINDOW => {
                let window = Some(window(&mut record)?);
                let layered = Error::Malformed("a window of a filter of layers");
                plan.paged.as_mut().ok_or(layered)?.window = window;
            }
            OPTIONAL.. => continue,
            _ => return Err(UNKNOWN),
        }
        record.end()?;
    }
    Ok(())
}

fn shard(record: &mut Reader) -> Result<Shard, Error> {
    let (index, count) = (record.u16()?, record.u16()?);
    Shard::new(index, count).ok_or(Error::Malformed("a shard that cannot be"))
}

fn pages(record: &mut Reader) -> Result<PagedPlan, Error> {
    let [tag_bits, kind, bits, doublings] = record.array()?;
    let payload = match (kind, bits) {
        (0, 0) => Payload::Nothing,
        (1, bits) => Payload::Count(bits),
        (2, bits) => Payload::Generation(bits),
        _ => return Err(UNKNOWN),
    };
    let (page_slots, first_pages) = (record.u16()?, record.u32()?);
    let pages = pages::Plan { tag_bits, payload, doublings, page_slots, first_pages };
    Ok(PagedPlan { capacity: record.u64()?, pages, copies: record.u64()?, window: None })
}

fn window(record: &mut Reader) -> Result<Window, Error> {
    let [span, generations, refresh] = record.array()?;
    let span = match (span, record.u64()?) {
        (0, milliseconds) => Span::Time(milliseconds),
        (1, 0) => Span::Items,
        _ => return Err(UNKNOWN),
    };
    if refresh > 1 {
        return Err(UNKNOWN);
    }
    let rules = Rules { span, generations, refresh: refresh == 1 };
    let [number, oldest, floor, page] =
        [record.u64()?, record.u64()?, record.u64()?, record.u64()?];
    let sweep = Sweep { oldest, floor, page, changes: record.u8()? };
    // `Plan::check` bounds their number, but after they are allocated.
    if record.0.len() > rules.most_generations().saturating_mul(16) {
        return Err(UNKNOWN);
    }
    let mut generations = Vec::new();
    while !record.0.is_empty() {
        generations.push(Generation { start: record.u64()? as i64, items: record.u64()? });
    }
    Ok(Window { rules, generations, number, sweep })
}

fn shape(reader: &mut Reader) -> Result<Shape, Error> {
    match reader.u8()? {
        0 => {
            let (probes, block_words) = (reader.u8()?, reader.u16()?);
            Ok(Shape::Blocked(Geometry { blocks: reader.u32()?, block_words, probes }))
        }
        1 => {
            let rule = *RULES.get(usize::from(reader.u8()?)).ok_or(UNKNOWN)?;
            let (probes, bits, bytes) = (reader.u16()?, reader.u64()?, reader.u64()?);
            Ok(Shape::Classic(Classic { bits, bytes, probes, rule }))
        }
        _ => Err(UNKNOWN),
    }
}
