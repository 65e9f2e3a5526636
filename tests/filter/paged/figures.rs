//! What `BF.INFO` and MEMORY USAGE show, and allocations that move.

use redis_bloom::{
    filter::{Params, Plan, Rules, paged::Paged},
    sharding::Shard,
};

use super::{CLIENT, add, check_equal, counting, growing, paged, stored};
use crate::{
    pages::exact_rate,
    support::{fill, filter, item, params, time},
};

/// The pages of a level that are not read are like those that are: a sum of 2,000 slots a page, of
/// at least 64 pages, is off by a few thousandths.
#[test]
fn the_rate_is_the_sum_over_the_slots() {
    let mut filter = growing(0.01);
    assert_eq!((filter.estimate().error_rate, filter.estimate().fill), (0.0, 0.0));
    let mut next = 0;
    for size in [1, 100, 1_000, 5_000, 60_000, 100_000, 900_000] {
        (next..size).for_each(|number| _ = add(&mut filter, &item(1, number)));
        next = size;
        let (exact, shown) = (exact_rate(filter.pages()), filter.estimate());
        let off = (shown.error_rate / exact - 1.0).abs();
        assert!(off < if size <= 100_000 { 1e-9 } else { 0.01 }, "{exact}: {shown:?}");
        let pages = filter.pages().pages().len() as u64;
        let room = filter.pages().plan().most_slots(pages);
        assert_eq!(shown.fill, filter.pages().slot_count() as f64 / room as f64);
    }
}

#[test]
fn the_rate_of_a_layer_and_that_of_the_pages_add_up() {
    let params = params(0.01, 20_000, 2, 0x5EED);
    let mut full = filter(&params);
    fill(&mut full, 1, 20_000);
    let layer = full.estimate().error_rate;
    let mut filter = full.overflow().expect("memory");
    assert!((filter.estimate().error_rate / layer - 1.0).abs() < 1e-9);
    (20_000..60_000).for_each(|number| _ = add(&mut filter, &item(1, number)));
    let pages = exact_rate(filter.pages());
    let both = 1.0 - (1.0 - layer) * (1.0 - pages);
    assert!((filter.estimate().error_rate / both - 1.0).abs() < 1e-9);
    assert!((filter.estimate_pages().error_rate / pages - 1.0).abs() < 1e-9);
    assert!(pages <= filter.error_rate_of_pages() && both <= 0.01);
}

#[test]
fn forgotten_slots_have_no_rate() {
    let mut window = paged(&params(0.01, 10_000, 2, 1), Some(time(1_000, 4, true)));
    window.turn(0);
    for number in 0..10_000 {
        window.add(window.hash(&item(1, number)), CLIENT, |_| u64::MAX).expect("room");
    }
    assert!(window.estimate().error_rate > 0.001);
    window.turn(1_249);
    assert!(window.forget(1_250).is_some());
    window
        .add(window.hash(&item(2, 0)), redis_bloom::filter::Author::Client(1_250), |_| u64::MAX)
        .expect("room");
    assert!(window.pages().slot_count() > 5_000, "most are not swept yet");
    assert!(window.estimate().error_rate < 0.000_01, "{:?}", window.estimate());
}

#[test]
fn saturated_counts_are_counted() {
    let mut filter = counting(0.001, 1_000, 2);
    assert_eq!(growing(0.01).saturated(), None);
    for number in 0..5_000 {
        for _ in 0..if number % 50 == 0 { 16 } else { 15 } {
            add(&mut filter, &item(1, number));
        }
    }
    let exact = filter.pages().slots().filter(|slot| slot.payload == 15).count() as u64;
    assert_eq!(filter.saturated(), Some(exact));
    assert!((100..110).contains(&exact), "{exact}");
}

#[test]
fn an_identity_is_that_of_the_parameters_and_the_seed() {
    let of = |filter: &Paged| Plan::of_pages(filter).identity();
    let made = |params: &Params, rules: Option<Rules>| of(&paged(params, rules));
    let base = params(0.01, 100, 2, 0x5EED);
    let others = [
        made(&base, None),
        made(&Params { seed: 1, ..base }, None),
        made(&Params { error_rate: 0.02, ..base }, None),
        made(&Params { capacity: 101, ..base }, None),
        made(&Params { counts: true, ..base }, None),
        made(&base, Some(time(60_000, 4, true))),
        made(&base, Some(time(60_000, 4, false))),
        made(&params(0.01, 100, 0, 0x5EED), Some(super::last_items(4, true))),
        made(&Params { shard: Shard::new(1, 4), ..base }, None),
    ];
    for (i, identity) in others.iter().enumerate() {
        assert!(!others[..i].contains(identity), "{i}");
    }
    let mut full = filter(&base);
    assert_eq!(Plan::of(&full).identity(), others[0]);
    fill(&mut full, 1, 100);
    let mut grown = full.overflow().expect("memory");
    assert_eq!(of(&grown), others[0], "above its layer");
    (0..5_000).for_each(|number| _ = add(&mut grown, &item(2, number)));
    assert_eq!(of(&stored(&grown)), others[0], "grown and stored");
}

/// A filter of each kind: small, and in pages.
fn kinds() -> Vec<Paged> {
    let mut full = filter(&params(0.01, 100, 2, 1));
    fill(&mut full, 1, 100);
    let above = full.overflow().expect("memory");
    let window = paged(&params(0.01, 1_000, 2, 1), Some(time(60_000, 4, true)));
    let mut kinds = vec![growing(0.01), counting(0.01, 100, 2), above, window];
    for _ in 0..4 {
        let mut grown = kinds[kinds.len() - 4].duplicate().expect("memory");
        grown.turn(0);
        (0..20_000).for_each(|number| _ = add(&mut grown, &item(2, number)));
        kinds.push(grown);
    }
    kinds.iter_mut().for_each(|filter| {
        filter.turn(0);
        (0..10).for_each(|number| _ = add(filter, &item(3, number)));
    });
    kinds
}

#[test]
fn allocations_move_one_at_a_time_and_the_filter_stays() {
    for mut filter in kinds() {
        let before = filter.duplicate().expect("memory");
        let (mut moved, mut from) = (0, Some(0));
        let mut steps = 0;
        while let Some(number) = from {
            let mover = |old: *mut u8, bytes: usize| {
                moved += 1;
                // Every third one stays.
                if moved % 3 == 0 { old } else { moved_to(old, bytes) }
            };
            // SAFETY: `moved_to` keeps the layout and the content, and frees the old allocation.
            from = unsafe { filter.relocate(number, mover, || true) };
            steps += 1;
        }
        check_equal(&filter, &before, "moved");
        let pages = filter.pages().pages().len();
        assert_eq!(moved, pages + usize::from(filter.base().is_some()));
        assert_eq!(steps, pages);
        assert!(!add(&mut filter, &item(3, 1)));
        for number in 100..4_000 {
            add(&mut filter, &item(3, number));
        }
    }
}

/// A copy of an allocation, in place of it.
fn moved_to(old: *mut u8, bytes: usize) -> *mut u8 {
    let layout = std::alloc::Layout::from_size_align(bytes, 8).expect("a layout");
    // SAFETY: the bytes are not zero.
    let new = unsafe { std::alloc::alloc(layout) };
    // SAFETY: both have so many bytes, and are apart.
    unsafe { std::ptr::copy_nonoverlapping(old, new, bytes) };
    // SAFETY: it was allocated with this layout.
    unsafe { std::alloc::dealloc(old, layout) };
    new
}

/// An allocator that rounds as jemalloc does.
#[test]
fn memory_is_all_that_the_filter_has() {
    for filter in kinds() {
        let asked = std::cell::Cell::new(0);
        let memory = filter.memory(|address| {
            assert!(!address.is_null());
            asked.set(asked.get() + 1);
            1_000
        });
        assert_eq!(memory, filter.pages().bytes() as usize + 1_000 * asked.get());
        let part = filter.base().is_some() || filter.window().is_some();
        assert_eq!(asked.get(), if part { 2 } else { 0 });
    }
}
