//! Filters in pages: stored, dumped while they change, damaged.

mod damage;
mod dump;
mod fixtures;
mod round_trip;

use redis_bloom::{
    codec::native::paged::{
        Settings,
        rdb::{self, Stored},
    },
    filter::{
        Expansion, Hash,
        pages::{Growth, Pages, Payload, Plan},
    },
    sharding::Shard,
};

use crate::support::{Reading, Strings, item};

/// Bits of the counts of COUNTING.
const COUNT: Payload = Payload::Count { bits: 4 };
const GENERATION: Payload = Payload::Generation { bits: 3 };

/// The hash of item `number`.
fn hash(number: u64) -> Hash {
    Hash::of(&item(9, number), 0x5EED)
}

fn settings() -> Settings {
    let expansion = Expansion::new(2).expect("an expansion in range");
    Settings { seed: 0x5EED, error_rate: 0.01, capacity: 100, expansion, shard: None }
}

/// A plan with small pages, so that few items fill many.
fn crowded(tag_bits: u8, payload: Payload) -> Plan {
    Plan { tag_bits, payload, doublings: 19, page_slots: 256, first_pages: 1 }
}

/// A filter of items 0 to `items` - 1. With counts, each third one is added three times; with
/// generations, 2,000 items come in each of 8.
fn filled(plan: Plan, items: u64) -> Pages {
    let mut pages = Pages::new(plan).expect("memory");
    for number in 0..items {
        if matches!(plan.payload, Payload::Generation { .. }) {
            pages.turn((number / 2_000 % 8) as u8, 5);
        }
        let now = pages.generation();
        pages.insert(hash(number), now, |_| now).expect("memory");
    }
    if matches!(plan.payload, Payload::Count { .. }) {
        for number in (0..items).step_by(3).chain((0..items).step_by(3)) {
            pages.raise(hash(number)).expect("memory");
        }
    }
    pages
}

/// Filters of every form, all of them small enough to damage every byte.
fn smalls() -> Vec<(&'static str, Pages)> {
    let of = |rate, capacity, growth, payload, items| {
        filled(Plan::new(rate, capacity, growth, payload).expect("numbers in range"), items)
    };
    let first_pages = |plan: Plan, first_pages| Plan { first_pages, ..plan };
    let mut joined = filled(crowded(24, COUNT), 2_000);
    for number in 0..1_000 {
        while joined.lower(hash(number)).expect("memory") > 0 {}
    }
    vec![
        ("empty", of(0.01, 0, Growth::Endless, Payload::Nothing, 0)),
        ("an item", of(0.01, 0, Growth::Endless, Payload::Nothing, 1)),
        ("the small form, full", of(0.01, 0, Growth::Endless, COUNT, 128)),
        ("the small form, wide", of(1e-9, 0, Growth::Endless, COUNT, 64)),
        ("the first page", of(0.01, 0, Growth::Endless, Payload::Nothing, 129)),
        ("a generation, small", of(0.01, 0, Growth::Endless, GENERATION, 30)),
        ("a page of generations", of(0.01, 0, Growth::Endless, GENERATION, 1_500)),
        ("reserved, empty", filled(first_pages(crowded(9, Payload::Nothing), 3), 0)),
        ("reserved, full", filled(first_pages(crowded(9, COUNT), 3), 700)),
        ("void slots", filled(crowded(2, Payload::Nothing), 1_500)),
        ("void counts", filled(crowded(2, COUNT), 1_500)),
        ("wide tags", filled(Plan { doublings: 0, ..crowded(36, COUNT) }, 1_000)),
        ("joined", joined),
    ]
}

/// Filters of every form, also large ones.
fn all() -> Vec<(&'static str, Pages)> {
    let of = |rate, payload, items| {
        let plan = Plan::new(rate, 0, Growth::Endless, payload).expect("numbers in range");
        filled(plan, items)
    };
    let mut all = smalls();
    all.extend([
        ("many pages", of(0.01, Payload::Nothing, 100_000)),
        ("many pages of counts", of(0.001, COUNT, 50_000)),
        ("many pages of generations", of(0.01, GENERATION, 50_000)),
        ("many void slots", filled(crowded(4, Payload::Nothing), 60_000)),
        ("many void counts", filled(crowded(5, COUNT), 60_000)),
        ("many void generations", filled(crowded(4, GENERATION), 30_000)),
        ("tags that become longer", filled(Plan { doublings: 2, ..crowded(8, COUNT) }, 20_000)),
    ]);
    all
}

/// The RDB strings of a complete filter.
fn strings(pages: &Pages) -> Strings {
    strings_of(&settings(), pages)
}

fn strings_of(settings: &Settings, pages: &Pages) -> Strings {
    let mut strings = Strings::default();
    rdb::save(settings, pages, &mut strings);
    strings
}

/// The complete filter that the strings have.
#[track_caller]
fn loaded(strings: &Strings) -> (Settings, Pages) {
    match rdb::load(&mut Reading(strings.0.iter()), u64::MAX) {
        Ok(Stored::Complete(settings, pages)) => (settings, pages),
        other => panic!("not a complete filter: {other:?}"),
    }
}

/// Checks that a filter works, whatever its pages say.
#[track_caller]
fn check_sane(mut pages: Pages) {
    let stored = strings(&pages);
    assert_eq!(loaded(&stored).1, pages);
    assert_eq!(pages.slots().count() as u64, pages.slot_count());
    let newest = pages.generation();
    for number in 0..600 {
        pages.insert(hash(number), newest, |_| newest).expect("memory");
        assert!(pages.find(hash(number)).is_some());
    }
    for number in 0..600 {
        pages.lower(hash(number)).expect("memory");
    }
    assert_eq!(pages.slots().count() as u64, pages.slot_count());
}

/// splitmix64: each run has the same numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The numbers in the frame of a chunk, and its records.
mod frame {
    use crate::forge::{SEAL, seal};

    const RECORDS: usize = 20;

    fn records_at(chunk: &[u8]) -> usize {
        RECORDS + u32::from_le_bytes(chunk[16..20].try_into().expect("4 bytes")) as usize
    }

    /// The first position.
    pub(super) fn first(chunk: &[u8]) -> u64 {
        u64::from_le_bytes(chunk[8..16].try_into().expect("8 bytes"))
    }

    /// The records: bytes, and the positions that they cover.
    pub(super) fn records(chunk: &[u8]) -> Vec<(Vec<u8>, u64)> {
        let mut rest = &chunk[records_at(chunk)..chunk.len() - SEAL];
        let mut records = Vec::new();
        while let [level, low, high, ..] = *rest {
            let (each, level) = if level == 255 { (4, 0) } else { (8, level) };
            let length = 3 + each * usize::from(u16::from_le_bytes([low, high]));
            let (record, after) = rest.split_at(length);
            records.push((record.to_vec(), 1 << (40 - level)));
            rest = after;
        }
        records
    }

    /// The chunk of the first `count` records of `chunk`, and its iterator.
    pub(super) fn cut(chunk: &[u8], count: usize) -> (i64, Vec<u8>) {
        let mut out = chunk[..records_at(chunk)].to_vec();
        let mut end = first(chunk);
        for (record, positions) in records(chunk).into_iter().take(count) {
            out.extend(record);
            end += positions;
        }
        out.extend([0; SEAL]);
        seal(&mut out);
        (end as i64 + 1, out)
    }
}

/// The shard of a fixture.
fn shard() -> Option<Shard> {
    Shard::new(5, 8)
}
