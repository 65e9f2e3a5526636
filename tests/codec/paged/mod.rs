//! Filters in pages: stored, dumped while they change, damaged.

mod damage;
mod dump;
mod fixtures;
mod round_trip;

use redis_bloom::{
    codec::native::{Load, Stored, rdb},
    filter::{
        Author, Hash, PagedPlan, Params, Plan as FilterPlan,
        paged::{Generation, Paged, Sweep, Window},
        pages::{Generations, Growth, Pages, Payload, Plan},
    },
    sharding::Shard,
};

use crate::support::{self, Reading, Strings, item, params, time};

/// Bits of the counts of COUNTING.
const COUNT: Payload = Payload::Count(4);
const GENERATION: Payload = Payload::Generation(3);

/// The hash of item `number`.
fn hash(number: u64) -> Hash {
    Hash::of(&item(9, number), 0x5EED)
}

/// Adds an item to slots that count.
fn raise(pages: &mut Pages, number: u64) {
    let most = pages.plan().payload.most();
    pages
        .insert_chunk(&[hash(number)], 0, |payload| (payload + 1).min(most), |_| ())
        .expect("memory");
}

/// Deletes an item once; returns its count before.
fn lower(pages: &mut Pages, number: u64) -> u64 {
    let mut count = 0;
    pages.lower_chunk(&[hash(number)], |before| count = before);
    count
}

/// The filter with these pages.
#[track_caller]
fn paged(pages: &Pages) -> Paged {
    let payload = pages.plan().payload;
    let window = matches!(payload, Payload::Generation(_)).then(|| {
        let Generations { newest, alive, .. } = pages.generations();
        let generation = |i| Generation { start: i as i64 * 1_250, items: 1 };
        let swept = newest + 9 - alive;
        Window {
            rules: time(5_000, 4, true),
            generations: (0..alive).map(generation).collect(),
            number: newest + 8,
            sweep: Sweep { oldest: swept, floor: swept, page: 0, changes: 7 },
        }
    });
    let paged = PagedPlan { capacity: 100, pages: pages.plan(), copies: pages.copies(), window };
    let plan = FilterPlan {
        seed: 0x5EED,
        error_rate: 0.01,
        expansion: params(0.01, 100, 2, 0).expansion,
        paged: Some(paged),
        ..FilterPlan::default()
    };
    plan.check().expect("a sound plan");
    plan.with_pages(None, pages.duplicate().expect("memory"))
}

/// A filter that grew above its reserved layer.
fn above(items: u64) -> Paged {
    let params = Params { shard: shard(), ..params(0.01, 500, 2, 0x5EED) };
    let mut full = support::filter(&params);
    support::fill(&mut full, 1, 500);
    let base = full.newest().duplicate().expect("memory");
    let mut filter = Paged::above(|| base, &params).expect("a sound filter");
    for number in 0..items {
        let hash = filter.hash(&item(9, number));
        filter.add(hash, Author::Client(0), |_| u64::MAX).expect("room");
    }
    filter
}

/// Checks that two filters are equal word for word.
#[track_caller]
fn check_equal(a: &Paged, b: &Paged, what: &str) {
    assert_eq!(FilterPlan::of_pages(a), FilterPlan::of_pages(b), "{what}");
    let bits = |filter: &Paged| filter.base().map(|base| base.bits().words().to_vec());
    assert!(a.pages() == b.pages() && bits(a) == bits(b), "{what}");
    assert_eq!(a.bytes(), b.bytes(), "{what}");
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
        if matches!(plan.payload, Payload::Generation(_)) {
            pages.turn((number / 2_000 % 8) as u8, 5);
        }
        let now = pages.generations().newest;
        pages.insert_chunk(&[hash(number)], now, |_| now, |_| ()).expect("memory");
    }
    if matches!(plan.payload, Payload::Count(_)) {
        for number in (0..items).step_by(3).chain((0..items).step_by(3)) {
            raise(&mut pages, number);
        }
    }
    pages
}

/// Filters of every form, all of them small enough to damage every byte.
fn smalls() -> Vec<(&'static str, Paged)> {
    let of = |rate, capacity, growth, payload, items| {
        filled(Plan::new(rate, capacity, growth, payload).expect("numbers in range"), items)
    };
    let first_pages = |plan: Plan, first_pages| Plan { first_pages, ..plan };
    let mut joined = filled(crowded(24, COUNT), 2_000);
    for number in 0..1_000 {
        while lower(&mut joined, number) > 0 {}
    }
    let pages = vec![
        ("empty", of(0.01, 0, Growth::Endless, Payload::Nothing, 0)),
        ("an item", of(0.01, 0, Growth::Endless, Payload::Nothing, 1)),
        ("a short page, full", of(0.01, 0, Growth::Endless, COUNT, 107)),
        ("a short page, wide", of(1e-9, 0, Growth::Endless, COUNT, 50)),
        ("the first long page", of(0.01, 0, Growth::Endless, Payload::Nothing, 132)),
        ("a short page of generations", of(0.01, 0, Growth::Endless, GENERATION, 30)),
        ("a page of generations", of(0.01, 0, Growth::Endless, GENERATION, 1_500)),
        ("reserved, empty", filled(first_pages(crowded(9, Payload::Nothing), 3), 0)),
        ("reserved, full", filled(first_pages(crowded(9, COUNT), 3), 700)),
        ("void slots", filled(crowded(2, Payload::Nothing), 1_500)),
        ("void counts", filled(crowded(2, COUNT), 1_500)),
        ("wide tags", filled(Plan { doublings: 0, ..crowded(36, COUNT) }, 1_000)),
        ("joined", joined),
    ];
    let mut all: Vec<_> = pages.iter().map(|(name, pages)| (*name, paged(pages))).collect();
    all.extend([("above a layer", above(40)), ("many above a layer", above(2_500))]);
    all
}

/// Filters of every form, also large ones.
fn all() -> Vec<(&'static str, Paged)> {
    let of = |rate, payload, items| {
        let plan = Plan::new(rate, 0, Growth::Endless, payload).expect("numbers in range");
        filled(plan, items)
    };
    let mut all = smalls();
    let pages = [
        ("many pages", of(0.01, Payload::Nothing, 100_000)),
        ("many pages of counts", of(0.001, COUNT, 50_000)),
        ("many pages of generations", of(0.01, GENERATION, 50_000)),
        ("many void slots", filled(crowded(4, Payload::Nothing), 60_000)),
        ("many void counts", filled(crowded(5, COUNT), 60_000)),
        ("many void generations", filled(crowded(4, GENERATION), 30_000)),
        ("tags that become longer", filled(Plan { doublings: 2, ..crowded(8, COUNT) }, 20_000)),
    ];
    all.extend(pages.iter().map(|(name, pages)| (*name, paged(pages))));
    all
}

/// The RDB strings of a complete filter.
fn strings(filter: &Paged) -> Strings {
    let mut strings = Strings::default();
    rdb::save(filter, &mut strings);
    strings
}

/// The complete filter that the strings have.
#[track_caller]
fn loaded(strings: &Strings) -> Paged {
    match rdb::load(&mut Reading(strings.0.iter()), u64::MAX) {
        Ok(Stored::Pages(filter)) => filter,
        other => panic!("not a complete filter: {other:?}"),
    }
}

/// The filter that a load has become.
#[track_caller]
fn finished(mut load: Load) -> Paged {
    match load.finish() {
        Ok(Stored::Pages(filter)) => filter,
        other => panic!("not a complete filter: {other:?}"),
    }
}

/// Checks that a filter works, whatever its pages say.
#[track_caller]
fn check_sane(filter: &Paged) {
    check_equal(&loaded(&strings(filter)), filter, "stored");
    let mut pages = filter.pages().duplicate().expect("memory");
    assert_eq!(pages.slots().count() as u64, pages.slot_count());
    let newest = pages.generations().newest;
    for number in 0..600 {
        pages.insert_chunk(&[hash(number)], newest, |_| newest, |_| ()).expect("memory");
        assert!(pages.find(hash(number)).is_some());
    }
    for number in 0..600 {
        lower(&mut pages, number);
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

    /// The first place.
    pub(super) fn first(chunk: &[u8]) -> u64 {
        u64::from_le_bytes(chunk[8..16].try_into().expect("8 bytes"))
    }

    /// The parts: bytes, and the places that they cover. `bits` is the bytes of bits before the
    /// pages: then the parts are words.
    pub(super) fn records(chunk: &[u8], bits: u64) -> Vec<(Vec<u8>, u64)> {
        if first(chunk) < bits {
            let bytes = &chunk[records_at(chunk)..chunk.len() - SEAL];
            return bytes.chunks(8).map(|word| (word.to_vec(), 8)).collect();
        }
        let mut rest = &chunk[records_at(chunk)..chunk.len() - SEAL];
        let mut records = Vec::new();
        while let [level, low, high, ..] = *rest {
            let length = 3 + 8 * usize::from(u16::from_le_bytes([low, high]));
            let (record, after) = rest.split_at(length);
            records.push((record.to_vec(), 1 << (40 - level)));
            rest = after;
        }
        records
    }

    /// The chunk of the first `count` parts of `chunk`, and its iterator.
    pub(super) fn cut(chunk: &[u8], bits: u64, count: usize) -> (i64, Vec<u8>) {
        let mut out = chunk[..records_at(chunk)].to_vec();
        let mut end = first(chunk);
        for (record, positions) in records(chunk, bits).into_iter().take(count) {
            out.extend(record);
            end += positions;
        }
        out.extend([0; SEAL]);
        seal(&mut out);
        (end as i64 + 1, out)
    }
}

/// Bytes of bits before the pages.
fn bits(filter: &Paged) -> u64 {
    filter.base().map_or(0, |base| base.shape().words() * 8)
}

/// A shard.
fn shard() -> Option<Shard> {
    Shard::new(5, 8)
}
