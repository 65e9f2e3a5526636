//! The header of a filter in pages: version 4 of the headers (`native/header.rs`). All numbers are
//! little-endian.
//!
//! ```text
//!   0        6         8      16         24         32         36
//!   ┌────────┬─────────┬──────┬──────────┬──────────┬──────────┬─ ─
//!   │ rbloom │ version │ seed │ error    │ capacity │ expan-   │
//!   │        │ = 4     │ u64  │ rate f64 │ u64      │ sion u32 │
//!   └────────┴─────────┴──────┴──────────┴──────────┴──────────┴─ ─
//!   36     37        38        39          40      42       44        46
//!   ┌──────┬─────────┬─────────┬───────────┬───────┬────────┬─────────┬─ ─
//!   │ tag  │ payload │ payload │ doublings │ slots │ layers │ records │
//!   │ bits │ kind    │ bits    │           │ of a  │ u16    │ u16     │
//!   │ u8   │ u8      │ u8      │ u8        │ page  │        │         │
//!   └──────┴─────────┴─────────┴───────────┴───────┴────────┴─────────┴─ ─
//!   46            54       62        70
//!   ┌─────────────┬────────┬─────────┬─ ─ ─ ─ ─ ┬─ ─ ─ ─ ─ ─ ─ ─ ┬─────────┐
//!   │ first pages │ copies │ present │ records  │ the layer,     │ XXH3-64 │
//!   │ u64         │ u64    │ u64     │          │ as in version 1│ of all  │
//!   └─────────────┴────────┴─────────┴─ ─ ─ ─ ─ ┴─ ─ ─ ─ ─ ─ ─ ─ ┴─────────┘
//!   payload kind: 0 nothing, 1 counts, 2 generations (filter/pages/plan.rs)
//!   layers: 1 if the pages are above a layer, otherwise 0
//!
//!   records as in version 3; kind 3, window, 44 bytes, then start i64 and items u64 of each
//!   generation, oldest first:
//!   ┌──────┬────────┬─────────┬────────┬────────┬────────┬───────┬──────┬─────────┬─ ─
//!   │ span │ gener- │ refresh │ milli- │ number │ oldest │ floor │ page │ changes │
//!   │ u8   │ ations │ u8      │ seconds│ u64    │ u64    │ u64   │ u64  │ u8      │
//!   │      │ u8     │         │ u64    │        │        │       │      │         │
//!   └──────┴────────┴─────────┴────────┴────────┴────────┴───────┴──────┴─────────┴─ ─
//! ```
//!
//! `present` is the place (`mod.rs`) up to which bits and pages follow: all of them in a complete
//! filter, fewer while BF.LOADCHUNK fills it, none in a dump.

use super::end;
use crate::{
    codec::{
        Error,
        native::header::{
            MAGIC, PAGED as VERSION, Records, UNKNOWN, WINDOW, layer, put_layer, put_records,
            shard_record,
        },
        reader::{Reader, open, seal},
    },
    filter::{
        Error as FilterError, Expansion, Rules, Span, checksum,
        paged::{Generation, PagedPlan, Sweep, Window},
        pages::{Payload, Plan},
    },
};

const NOTHING: u8 = 0;
const COUNT: u8 = 1;
const GENERATION: u8 = 2;
const TIME: u8 = 0;
const ITEMS: u8 = 1;
const GENERATION_BYTES: usize = 16;

/// Writes the header of a plan, to be followed by what is before the place `present`.
pub(super) fn encode(plan: &PagedPlan, present: u64) -> Vec<u8> {
    let window = plan.window.as_ref().map(|window| (WINDOW, put_window(window)));
    let records: Vec<_> = plan.shard.map(shard_record).into_iter().chain(window).collect();
    let payload = match plan.pages.payload {
        Payload::Nothing => [NOTHING, 0],
        Payload::Count { bits } => [COUNT, bits],
        Payload::Generation { bits } => [GENERATION, bits],
    };
    let mut out = open(MAGIC, VERSION);
    out.extend(plan.seed.to_le_bytes());
    out.extend(plan.error_rate.to_le_bytes());
    out.extend(plan.capacity.to_le_bytes());
    out.extend(plan.expansion.factor().unwrap_or(0).to_le_bytes());
    out.push(plan.pages.tag_bits);
    out.extend(payload);
    out.push(plan.pages.doublings);
    out.extend(plan.pages.page_slots.to_le_bytes());
    out.extend(u16::from(plan.base.is_some()).to_le_bytes());
    out.extend((records.len() as u16).to_le_bytes());
    for number in [plan.pages.first_pages.into(), plan.copies, present] {
        out.extend(number.to_le_bytes());
    }
    put_records(&mut out, records);
    if let Some(base) = &plan.base {
        put_layer(&mut out, base);
    }
    seal(out)
}

fn put_window(window: &Window) -> Vec<u8> {
    let Window { rules, generations, number, sweep } = window;
    let (span, milliseconds) = match rules.span {
        Span::Time(milliseconds) => (TIME, milliseconds),
        Span::Items => (ITEMS, 0),
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

/// Reads and checks a header: the plan, and the place up to which bits and pages follow.
pub(super) fn decode(bytes: &[u8]) -> Result<(PagedPlan, u64), Error> {
    let (_, mut reader) = Reader::sealed(bytes, MAGIC, VERSION..=VERSION)?;
    let (seed, error_rate, capacity) = (reader.u64()?, reader.f64()?, reader.u64()?);
    let expansion = Expansion::new(reader.u32()?.into())?;
    let [tag_bits, kind, bits, doublings] = reader.array()?;
    let payload = match (kind, bits) {
        (NOTHING, 0) => Payload::Nothing,
        (COUNT, bits) => Payload::Count { bits },
        (GENERATION, bits) => Payload::Generation { bits },
        _ => return Err(UNKNOWN),
    };
    let page_slots = reader.u16()?;
    let (layers, records) = (reader.u16()?, reader.u16()?);
    let (first_pages, copies, present) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let Records { shard, window } = Records::read(&mut reader, records)?;
    let base = match layers {
        0 => None,
        1 => Some(layer(&mut reader)?),
        _ => return Err(UNKNOWN),
    };
    reader.end()?;
    let first_pages = u32::try_from(first_pages).map_err(|_| FilterError::Capacity(first_pages))?;
    let pages = Plan { tag_bits, payload, doublings, page_slots, first_pages };
    let plan =
        PagedPlan { seed, error_rate, capacity, expansion, shard, base, pages, copies, window };
    plan.check()?;
    let total = end(&plan);
    if present > total {
        return Err(Error::TooBig { from: 0, to: present, total });
    }
    Ok((plan, present))
}

/// The record of a window in pages.
pub(in crate::codec::native) fn window(record: &mut Reader) -> Result<Window, Error> {
    let [span, generations, refresh] = record.array()?;
    let span = match (span, record.u64()?) {
        (TIME, milliseconds) => Span::Time(milliseconds),
        (ITEMS, 0) => Span::Items,
        _ => return Err(UNKNOWN),
    };
    if refresh > 1 {
        return Err(UNKNOWN);
    }
    let rules = Rules { span, generations, refresh: refresh == 1 };
    let [number, oldest, floor, page] =
        [record.u64()?, record.u64()?, record.u64()?, record.u64()?];
    let sweep = Sweep { oldest, floor, page, changes: record.u8()? };
    // `PagedPlan::check` bounds the number of generations.
    if record.left() > rules.most_generations().saturating_mul(GENERATION_BYTES) {
        return Err(UNKNOWN);
    }
    let mut generations = Vec::new();
    while record.left() > 0 {
        generations.push(Generation { start: record.u64()? as i64, items: record.u64()? });
    }
    Ok(Window { rules, generations, number, sweep })
}

/// A checksum of what does not change while items come and go. It changes when a generation starts,
/// because the payloads of all slots mean something else then.
pub(super) fn identity(plan: &PagedPlan) -> u64 {
    let mut plan = PagedPlan { copies: 0, ..plan.clone() };
    if let Some(window) = &mut plan.window {
        window.generations.clear();
        window.sweep = Sweep::default();
    }
    checksum(&encode(&plan, 0))
}
