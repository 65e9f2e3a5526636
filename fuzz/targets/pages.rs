//! Compares pages that count with an exact multiset under random operations, through splits and
//! joins: no count is too low, deletions of all that was added leave nothing but highest counts,
//! and the words read back are the same. Words that come from anywhere are refused, or do no harm.
//!
//! The first 3 bytes of the input choose the plan, and whether words or operations follow. An
//! operation is one byte, followed by the number of an item in two.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use redis_bloom::filter::{
    Hash,
    pages::{Growth, Pages, Payload, Pieces, Plan},
};

const RATES: [f64; 4] = [0.25, 0.01, 1e-4, 1e-9];

/// More of them would take seconds.
const MOST_OPERATIONS: usize = 500;

fn plan([rate, growth, payload]: [u8; 3], capacity: u64) -> Plan {
    let growth = match growth % 3 {
        0 => Growth::Never,
        1 => Growth::Doublings(growth / 16),
        _ => Growth::Endless,
    };
    let rate = RATES[usize::from(rate) % RATES.len()];
    let mut plan = Plan::new(rate, capacity, growth, payload_of(payload)).expect("a rate in range");
    if payload & 64 != 0 {
        // Pages that are split early, so that few items reach all levels, and tags are used up.
        plan.page_slots = 256;
        plan.tag_bits = plan.tag_bits.min(12).div_ceil(3);
    }
    plan
}

fn payload_of(byte: u8) -> Payload {
    match byte % 3 {
        0 => Payload::Nothing,
        1 => Payload::Count(4),
        _ => Payload::Generation(3),
    }
}

fn hash(number: u64) -> Hash {
    Hash::of(&number.to_le_bytes(), 1)
}

/// Adds an item once more; returns its count before.
fn raise(pages: &mut Pages, number: u64) -> u64 {
    let most = pages.plan().payload.most();
    let (raised, mut count) = (|payload: u64| (payload + 1).min(most), 0);
    let counted = |before: Option<u64>| count = before.map_or(0, |payload| payload + 1);
    pages.insert_chunk(&[hash(number)], 0, raised, counted).expect("memory");
    count
}

/// Deletes an item once; returns its count before.
fn lower(pages: &mut Pages, number: u64) -> u64 {
    let mut count = 0;
    pages.lower_chunk(&[hash(number)], |before| count = before);
    count
}

/// The structure with the same words.
fn stored(pages: &Pages) -> Pages {
    let mut pieces = Pieces::new(pages.plan(), 0);
    while let Some((reach, page)) = pages.page_at(pieces.end()) {
        pieces.push(reach.level, page.words()).expect("its own words");
    }
    pieces.finish(pages.copies()).expect("its own pages")
}

/// Counts up and down, against a multiset.
fn operate(mut pages: Pages, operations: &[[u8; 3]]) {
    let counts = matches!(pages.plan().payload, Payload::Count(_));
    let mut model = BTreeMap::<u64, u64>::new();
    let highest = pages.plan().payload.most() + 1;
    for &[operation, low, high] in operations {
        let number = u64::from(u16::from_le_bytes([low, high]));
        match operation % 8 {
            // A run of items, so that an input of a few bytes splits pages.
            0..4 => {
                for number in number..number + u64::from(operation) {
                    let before = raise(&mut pages, number);
                    let count = model.entry(number).or_default();
                    assert!(before >= (*count).min(highest) || !counts);
                    *count += 1;
                }
            }
            4..6 if counts => {
                let run: Vec<_> = model.range(number..).map(|(&number, _)| number).collect();
                for &number in run.iter().take(operation.into()) {
                    let before = lower(&mut pages, number);
                    let count = model[&number];
                    assert!(before >= count.min(highest));
                    if count == 1 {
                        model.remove(&number)
                    } else {
                        model.insert(number, count - 1)
                    };
                }
            }
            6 => assert!(pages == stored(&pages), "other words are read back"),
            7 => assert!(pages == pages.duplicate().expect("memory"), "a copy differs"),
            _ => {}
        }
        let count = model.get(&number).copied().unwrap_or(0);
        let counted = pages.find(hash(number)).map_or(0, |payload| payload + 1);
        assert!(if counts { counted >= count.min(highest) } else { counted > 0 || count == 0 });
    }
    let slots = pages.slots().count() as u64;
    assert_eq!((slots, slots - pages.copies()), (pages.slot_count(), pages.items()));
    if counts {
        for (number, count) in model {
            (0..count).for_each(|_| assert!(lower(&mut pages, number) > 0));
        }
        // A count that reached the highest stays.
        assert!(pages.slots().all(|slot| slot.payload + 1 == highest));
    }
}

/// A window: what came in a generation that is alive is found.
fn pass(mut pages: Pages, operations: &[[u8; 3]]) {
    let (mut last, mut now) = (BTreeMap::<u64, u64>::new(), 0_u64);
    let (alive, most) = (4, pages.plan().payload.most());
    pages.turn(0, alive);
    for &[operation, low, high] in operations {
        let number = u64::from(u16::from_le_bytes([low, high]));
        match operation % 4 {
            0..2 => {
                for number in number..number + u64::from(operation) {
                    let now_code = pages.generations().newest;
                    let hashes = [hash(number)];
                    pages.insert_chunk(&hashes, now_code, |_| now_code, |_| ()).expect("memory");
                    last.insert(number, now);
                }
            }
            2 => {
                let mut page = 0;
                while page < pages.pages().len() {
                    pages.sweep(page);
                    page += 1;
                }
                now += 1;
                pages.turn((now & most) as u8, alive);
            }
            _ => _ = pages.join_if_due(),
        }
        if last.get(&number).is_some_and(|&came| now - came < u64::from(alive)) {
            let generations = pages.generations();
            let found = pages.find(hash(number)).is_some_and(|code| generations.is_alive(code));
            assert!(found, "{number} is lost");
        }
    }
}

/// Words from anywhere, of the only page.
fn read(plan: Plan, data: &[u8]) {
    let words: Vec<u64> =
        data.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8"))).collect();
    let mut pieces = Pieces::new(plan, 0);
    if pieces.push(0, &words).is_err() {
        return;
    }
    if let Ok(mut pages) = pieces.finish(0) {
        assert!(pages == stored(&pages), "other words are read back");
        for number in 0..3_000 {
            raise(&mut pages, number);
        }
        assert!((0..3_000).all(|number| pages.find(hash(number)).is_some()));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&head, data)) = data.split_first_chunk::<3>() else {
        return;
    };
    if head[2] & 128 != 0 {
        return read(plan(head, 0), data);
    }
    let plan = plan(head, u64::from(head[0]) << 4);
    let pages = Pages::new(plan).expect("a small structure");
    let (operations, _) = data.as_chunks();
    let operations = &operations[..operations.len().min(MOST_OPERATIONS)];
    match plan.payload {
        Payload::Generation(_) => pass(pages, operations),
        _ => operate(pages, operations),
    }
});
