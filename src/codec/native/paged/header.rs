//! The header of a filter in pages: version 4 of the headers (`native/header.rs`), 80 bytes and the
//! records. All numbers are little-endian.
//!
//! ```text
//!   0        6         8      16         24         32         36
//!   ┌────────┬─────────┬──────┬──────────┬──────────┬──────────┬─ ─
//!   │ rbloom │ version │ seed │ error    │ capacity │ expan-   │
//!   │        │ = 4     │ u64  │ rate f64 │ u64      │ sion u32 │
//!   └────────┴─────────┴──────┴──────────┴──────────┴──────────┴─ ─
//!   36     37        38        39          40      42       43       45       46        48
//!   ┌──────┬─────────┬─────────┬───────────┬───────┬────────┬────────┬────────┬─────────┬─ ─
//!   │ tag  │ payload │ payload │ doublings │ slots │ newest │ alive  │ layers │ records │
//!   │ bits │ kind    │ bits    │           │ of a  │ u8     │ u16    │ = 0    │ u16     │
//!   │ u8   │ u8      │ u8      │ u8        │ page  │        │        │ u8     │         │
//!   └──────┴─────────┴─────────┴───────────┴───────┴────────┴────────┴────────┴─────────┴─ ─
//!   48            56       64        72
//!   ┌─────────────┬────────┬─────────┬─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┬─────────┐
//!   │ first pages │ copies │ present │ records, as those  │ XXH3-64 │
//!   │ u64         │ u64    │ u64     │ of version 3       │ of all  │
//!   └─────────────┴────────┴─────────┴─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┴─────────┘
//!   payload kind: 0 nothing, 1 counts, 2 generations (filter/pages/plan.rs)
//!   newest, alive: the number of the newest generation, and how many are alive; 0 and 1 in filters
//!   without generations
//! ```
//!
//! `present` is the position (filter/pages/pieces.rs) up to which pages follow: 2^40 in a complete
//! filter, less while BF.LOADCHUNK fills it, 0 in a dump.

use super::Settings;
use crate::{
    codec::{
        Error,
        native::header::{MAGIC, Records, put_records, shard_record},
        reader::{Reader, open, seal},
    },
    filter::{
        CellKind, Error as FilterError, Expansion, Params, checksum,
        pages::{END, Pages, Payload, Plan},
    },
};

const VERSION: u16 = 4;
/// Kinds of payloads.
const NOTHING: u8 = 0;
const COUNT: u8 = 1;
const GENERATION: u8 = 2;

/// Everything but the pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Head {
    pub(super) settings: Settings,
    pub(super) plan: Plan,
    /// The newest generation, and how many are alive.
    pub(super) generations: (u8, u16),
    /// Slots that splits made of void ones.
    pub(super) copies: u64,
}

impl Head {
    /// The header of a filter.
    pub(super) fn of(settings: &Settings, pages: &Pages) -> Self {
        Self {
            settings: *settings,
            plan: *pages.plan(),
            // The number has at most 8 bits.
            generations: (pages.generation() as u8, pages.generations_alive()),
            copies: pages.copies(),
        }
    }

    /// Writes the header, to be followed by the pages up to position `present`.
    pub(super) fn encode(&self, present: u64) -> Vec<u8> {
        let Self { settings, plan, generations: (newest, alive), copies } = self;
        let records: Vec<_> = settings.shard.into_iter().map(shard_record).collect();
        let payload = match plan.payload {
            Payload::Nothing => [NOTHING, 0],
            Payload::Count { bits } => [COUNT, bits],
            Payload::Generation { bits } => [GENERATION, bits],
        };
        let mut out = open(MAGIC, VERSION);
        out.extend(settings.seed.to_le_bytes());
        out.extend(settings.error_rate.to_le_bytes());
        out.extend(settings.capacity.to_le_bytes());
        out.extend(settings.expansion.factor().unwrap_or(0).to_le_bytes());
        out.push(plan.tag_bits);
        out.extend(payload);
        out.push(plan.doublings);
        out.extend(plan.page_slots.to_le_bytes());
        out.push(*newest);
        out.extend(alive.to_le_bytes());
        out.push(0);
        // One kind of record.
        out.extend((records.len() as u16).to_le_bytes());
        for number in [plan.first_pages, *copies, present] {
            out.extend(number.to_le_bytes());
        }
        put_records(&mut out, records);
        seal(out)
    }

    /// Reads and checks a header: the numbers, and the position up to which pages follow.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, u64), Error> {
        let (_, mut reader) = Reader::sealed(bytes, MAGIC, VERSION..=VERSION)?;
        let (seed, error_rate, capacity) = (reader.u64()?, reader.f64()?, reader.u64()?);
        let expansion = Expansion::new(reader.u32()?.into())?;
        let [tag_bits, kind, bits, doublings] = reader.array()?;
        let payload = match (kind, bits) {
            (NOTHING, 0) => Payload::Nothing,
            (COUNT, bits) => Payload::Count { bits },
            (GENERATION, bits) => Payload::Generation { bits },
            (kind, _) => return Err(Error::Payload(kind)),
        };
        let page_slots = reader.u16()?;
        let generations = (reader.u8()?, reader.u16()?);
        match reader.u8()? {
            0 => {}
            layers => return Err(Error::Kind(layers)),
        }
        let count = reader.u16()?;
        let (first_pages, copies, present) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let Records { shard, window } = Records::read(&mut reader, count)?;
        reader.end()?;
        if window.is_some() {
            return Err(Error::Window);
        }
        let plan = Plan { tag_bits, payload, doublings, page_slots, first_pages };
        let settings = Settings { seed, error_rate, capacity, expansion, shard };
        let head = Self { settings, plan, generations, copies };
        head.check()?;
        if present > END {
            return Err(Error::TooBig { from: 0, to: present, total: END });
        }
        Ok((head, present))
    }

    /// Checks every number but those that only the pages can confirm.
    fn check(&self) -> Result<(), FilterError> {
        let Settings { seed, error_rate, capacity, expansion, .. } = self.settings;
        Params { error_rate, capacity, expansion, seed, cells: CellKind::Bits }.check()?;
        self.plan.check()?;
        let (newest, alive) = self.generations;
        let most = self.plan.payload.most();
        let sound = match self.plan.payload {
            Payload::Generation { .. } => {
                u64::from(newest) <= most && u64::from(alive) <= most && self.copies == 0
            }
            Payload::Nothing | Payload::Count { .. } => (newest, alive) == (0, 1),
        };
        if sound { Ok(()) } else { Err(FilterError::Window) }
    }

    /// A checksum of what does not change while items come and go. Pages of filters with the same
    /// identity fit together. It changes when a generation starts, because the payloads of all
    /// slots mean something else then.
    pub(super) fn identity(&self) -> u64 {
        checksum(&Self { copies: 0, ..*self }.encode(0))
    }

    /// The filter with these pages.
    pub(super) fn filter(&self, mut pages: Pages) -> (Settings, Pages) {
        let (newest, alive) = self.generations;
        pages.turn(newest, alive);
        (self.settings, pages)
    }
}
