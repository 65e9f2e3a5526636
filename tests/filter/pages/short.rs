//! Short pages: what they answer, when they become long, and how they are joined with long pages.

use std::{
    cmp::min,
    collections::{BTreeMap, BTreeSet},
};

use redis_bloom::filter::{
    Hash,
    pages::{Pages, Payload, Pieces, Plan},
};

use super::{COUNT, Counts, copy, crowded, hash};

/// Fewer words than a long page without slots.
fn is_short(pages: &Pages, page: usize) -> bool {
    pages.pages()[page].words().len() < 39
}

/// All slots, in an order that does not depend on the form of the page.
fn slots(pages: &Pages) -> BTreeMap<(u16, u8, u64), u64> {
    let slots: Vec<_> = pages.slots().collect();
    let map: BTreeMap<_, _> =
        slots.iter().map(|slot| ((slot.place, slot.known, slot.block), slot.payload)).collect();
    assert_eq!(map.len(), slots.len());
    map
}

/// The place and the tag that an item has in the only page.
fn key(hash: Hash, bits: u8) -> (u16, u8, u64) {
    let place = ((u128::from(hash.probes) * 1984) >> 64) as u16;
    (place, bits, hash.block & ((1 << bits) - 1))
}

/// Every slot, and every answer, before, at, and after the change to a long page, and back to none.
#[test]
fn a_page_is_short_until_it_has_as_many_words_as_a_long_one() {
    for (bits, payload) in [
        (1, Payload::Nothing),
        (2, COUNT),
        (11, Payload::Nothing),
        (11, COUNT),
        (27, COUNT),
        (45, Payload::Count(8)),
    ] {
        let plan =
            Plan { tag_bits: bits, payload, doublings: 19, page_slots: u16::MAX, first_pages: 1 };
        let mut pages = Pages::new(plan).expect("memory");
        let mut model = BTreeMap::new();
        let width = 1 + 1 + u64::from(bits + payload.bits());
        let most = (38 * 64 - 64) / (width + 5);
        let mut number = 0;
        while pages.slot_count() < 2 * most {
            let (hash, count) = (hash(number), pages.slot_count());
            number += 1;
            let known = model.get(&key(hash, bits)).map(|count| count + 1);
            assert_eq!(pages.find(hash), known.map(|count| count - 1), "{number}");
            assert_eq!(pages.raise(hash), Ok(known.unwrap_or(0)));
            let raised = |count: &mut u64| *count = (*count + 1).min(payload.most());
            model.entry(key(hash, bits)).and_modify(raised).or_insert(0);
            assert_eq!(is_short(&pages, 0), pages.slot_count() <= most, "{bits}: {count}");
            assert_eq!(slots(&pages), model, "{bits}: {number}");
            assert_eq!(pages, copy(&pages));
            let words = pages.pages()[0].words().len();
            let block = (64 + pages.slot_count() * (width + 5)).div_ceil(64);
            assert!(!is_short(&pages, 0) || words as u64 == block, "{words}");
        }
        if payload == Payload::Nothing {
            continue;
        }
        // It stays long until its last slot leaves.
        for number in 0..number {
            assert!(pages.slot_count() == 0 || !is_short(&pages, 0), "{}", pages.slot_count());
            pages.lower(hash(number));
        }
        let left: BTreeSet<_> = slots(&pages).into_values().collect();
        assert!(left.is_empty() || left == [payload.most()].into());
        assert!(bits < 5 || pages == Pages::new(plan).expect("memory"));
    }
}

/// An item of a page of the first level, whose other bits are `number`.
fn of_page(page: u64, number: u64) -> Hash {
    Hash { block: number << 1 | page, probes: hash(number).probes }
}

/// Pages that are filled one side only: a split finds a short page, a join finds two.
#[test]
fn short_pages_split_and_join() {
    // 257 slots of 1 + 1 + 5 bits and their zeros are a short page.
    let mut pages = crowded(1, Payload::Nothing);
    let mut number = 0;
    while pages.pages().len() == 1 {
        assert!(is_short(&pages, 0));
        super::add(&mut pages, number);
        number += 1;
    }
    assert!((0..number).all(|number| pages.find(hash(number)).is_some()));
    assert_eq!(pages.slots().count() as u64, pages.slot_count());
    assert_eq!(pages, copy(&pages));

    let mut pages = crowded(16, COUNT);
    (0..257).for_each(|number| _ = pages.raise(of_page(0, number)));
    assert_eq!(pages.pages().len(), 2, "one of them without slots");
    (0..40).for_each(|number| _ = pages.raise(of_page(1, number)));
    assert!(!is_short(&pages, 0) && is_short(&pages, 1));
    (1..257).for_each(|number| assert_eq!(pages.lower(of_page(0, number)), 1));
    assert_eq!(pages.pages().len(), 1, "a long page and a short one");
    let all = |page: u64| move |number| (page, number);
    for (page, number) in (0..1).map(all(0)).chain((0..40).map(all(1))) {
        assert_eq!(pages.count(of_page(page, number)), 1);
        assert_eq!(pages.lower(of_page(page, number)), 1);
    }
    assert_eq!(pages, crowded(16, COUNT));
}

/// Three pages: a long one with the items that are returned, and short ones with 20 items each,
/// which are joined when items of the long one leave.
pub(super) fn apart() -> (Pages, Vec<Hash>) {
    let mut pages = crowded(16, COUNT);
    let of = |page: u64| move |number: u64| Hash { block: number << 2 | page, ..hash(number) };
    let mut odd: Vec<_> = (0..800).map(of(1)).chain((0..200).map(of(3))).collect();
    odd.iter().for_each(|&hash| _ = pages.raise(hash));
    while pages.pages().len() > 3 {
        assert_eq!(pages.lower(odd.pop().expect("an item")), 1);
    }
    for hash in (0..20).map(of(0)).chain((20..40).map(of(2))) {
        assert_eq!(pages.raise(hash), Ok(0));
    }
    assert_eq!([0, 1, 2].map(|page| is_short(&pages, page)), [true, false, true]);
    assert_eq!(pages.pages().len(), 3);
    (pages, odd)
}

#[test]
fn two_short_pages_are_joined() {
    let (mut pages, mut odd) = apart();
    let mut left = slots(&pages);
    while pages.pages().len() == 3 {
        assert_eq!(slots(&pages), left);
        let before = odd.pop().expect("an item");
        let (place, ..) = key(before, 0);
        left.retain(|&(at, known, block), _| {
            at != place || (block ^ before.block) & ((1 << known) - 1) != 0
        });
        assert_eq!(pages.lower(before), 1);
    }
    assert!(!is_short(&pages, 0));
    // A tag of level 1 has at most 16 bits: with an address bit more, it loses the highest.
    let known =
        |((place, known, block), payload): (_, u64)| ((place, min(known, 17), block), payload);
    assert_eq!(slots(&pages), left.into_iter().map(known).collect());
    assert_eq!(pages, copy(&pages));
}

/// Slots of 62 bits, in a page of a level whose tags have all the bits that they may have.
#[test]
fn the_widest_slots_are_short() {
    let payload = Payload::Count(8);
    let plan = Plan { tag_bits: 45, payload, doublings: 0, page_slots: 256, first_pages: 1 };
    let mut pages = Pages::new(plan).expect("memory");
    let crowd = |number: u64| Hash { block: number << 3, ..hash(number) };
    let few = |number: u64| Hash { block: (number << 3) + number % 7 + 1, ..hash(number) };
    (0..1_800).for_each(|number| _ = pages.raise(crowd(number)));
    assert_eq!(pages.pages().len(), 8);
    for number in 0..70 {
        for before in 0..256 {
            assert_eq!(pages.raise(few(number)), Ok(before));
        }
    }
    assert!((1..8).all(|page| is_short(&pages, page)));
    assert!((0..70).all(|number| pages.count(few(number)) == 256));
    assert!((0..1_800).all(|number| pages.count(crowd(number)) == 1));
    assert!((0..70).all(|number| pages.count(few(number + 70)) == 0));
    assert_eq!(pages, copy(&pages));
}

/// A stored page without slots has a few bytes. What holds it takes more, and is counted.
#[test]
fn pages_without_slots_are_not_free() {
    let plan = Plan { first_pages: 1_000, ..crowded(9, COUNT).plan() };
    let mut pieces = Pieces::new(plan, 0);
    assert_eq!(pieces.bytes(), 0);
    let pages = Pages::new(plan).expect("memory");
    while let Some((reach, page)) = pages.page_at(pieces.end()) {
        pieces.push(reach.level, page.words()).expect("sound words");
    }
    assert!(pieces.bytes() >= 1_000 * 40, "{}", pieces.bytes());
    assert_eq!(pieces.finish(0), Ok(pages));
}
