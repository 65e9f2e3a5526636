//! Windows under load: users who return, bursts, idle times; memory, refusals and the rate.

use redis_bloom::filter::{
    Author, Error, Params, Rules,
    paged::{MOST_SWEPT, Paged},
};

use super::{check_equal, check_rate, paged, stored};
use crate::{
    pages::exact_rate,
    support::{item, params, time},
};

/// Milliseconds of a generation.
const SLOT: i64 = 1_000;

fn timed(generations: u8, refresh: bool) -> Rules {
    time(SLOT as u64 * u64::from(generations), generations, refresh)
}

/// Adds an item; returns whether it was new.
fn add(window: &mut Paged, set: u64, number: u64, now: i64) -> Result<bool, Error> {
    window.turn(now);
    let hash = window.hash(&item(set, number));
    window.add(hash, Author::Client(now), |_| u64::MAX).map(|done| done.new)
}

/// How many of the first `count` items of a set are found.
fn found(window: &Paged, set: u64, count: u64, now: i64) -> u64 {
    let has = |&number: &u64| window.contains(window.hash(&item(set, number)), now);
    (0..count).filter(has).count() as u64
}

/// Users who come in every generation, and others who come once: set g comes in generation g alone.
/// The window is not reserved for one item more than come within T (1 + 1/G).
#[test]
fn a_window_refuses_nothing_while_its_capacity_came() {
    let (users, guests) = (1_500, 20);
    for generations in 1..=32_u8 {
        let parts = u64::from(generations) + 1;
        let capacity = users + guests * parts;
        for refresh in [true, false] {
            let rules = timed(generations, refresh);
            let mut window = paged(&params(0.01, capacity, 0, 1), Some(rules));
            // Without refresh, an addition that answers 0 promises nothing.
            let mut promised = Vec::new();
            for turn in 0..2 * parts + 5 {
                let now = turn as i64 * SLOT;
                for number in 0..users {
                    let new = add(&mut window, u64::MAX, number, now).expect("room");
                    assert!(!(new && refresh && turn > 0), "user {number} was forgotten");
                }
                for number in 0..guests {
                    if add(&mut window, turn, number, now).expect("room") || refresh {
                        promised.push((turn, number));
                    }
                }
                let last = now + SLOT - 1;
                assert_eq!(found(&window, u64::MAX, users, last), users);
                promised.retain(|&(came, _)| came + parts > turn);
                for &(came, number) in &promised {
                    let hash = window.hash(&item(came, number));
                    assert!(window.contains(hash, last), "{number} of {came} at {turn}");
                }
                assert!(window.items(last) <= capacity);
            }
            let now = (2 * parts + 4) as i64 * SLOT;
            let forgotten = (0..parts + 4).map(|set| found(&window, set, guests, now)).sum();
            let queries = guests * (parts + 4);
            check_rate(forgotten, queries, 0.01, &format!("G = {generations}"));
            let absent = found(&window, u64::MAX - 1, 20_000, now);
            check_rate(absent, 20_000, 0.01, &format!("G = {generations}"));
            // Dead slots leave long before their number is used again.
            let slots = window.pages().slot_count();
            assert!(slots <= capacity + 3 * guests, "{slots} slots for {capacity} items");
        }
    }
}

/// 23 bits a user at most, who comes in every generation, and 22 for items that come once.
#[test]
fn returning_users_take_one_place_each() {
    for generations in [4, 24] {
        let mut window = paged(&params(0.01, 20_000, 0, 1), Some(timed(generations, true)));
        for turn in 0..2 * i64::from(generations) {
            for number in 0..20_000 {
                add(&mut window, 1, number, turn * SLOT).expect("room");
            }
        }
        let bits = window.bytes() as f64 * 8.0 / 20_000.0;
        assert!(bits <= 23.0, "{bits} bits with {generations} generations");
    }
    let mut window = paged(&params(0.01, 100_000, 0, 1), Some(timed(4, true)));
    for turn in 0..12 {
        for number in 0..20_000 {
            add(&mut window, turn, number, turn as i64 * SLOT).expect("room");
        }
        let bits = window.bytes() as f64 * 8.0 / 100_000.0;
        assert!(turn < 4 || bits <= 22.0, "{bits} bits at {turn}");
    }
}

/// A burst of 100,000 items, then some every generation. Numbers are used again many times.
#[test]
fn memory_returns_after_a_burst_and_nothing_of_it() {
    for (few, slices) in [(1, 0), (100, 0), (1, 10), (100, 10), (2_000, 0)] {
        let mut window = paged(&params(1e-9, 1_000, 2, 1), Some(timed(4, true)));
        for number in 0..100_000 {
            add(&mut window, u64::MAX, number, 0).expect("room");
        }
        let burst = window.bytes();
        for turn in 1..30 {
            let now = turn as i64 * SLOT;
            for number in 0..few {
                assert_eq!(add(&mut window, turn, number, now), Ok(true));
            }
            window.sweep(slices);
            let old = found(&window, u64::MAX, 1_000, now);
            assert_eq!(old, if turn < 5 { 1_000 } else { 0 }, "at {turn}");
            let items = if turn < 5 { 100_000 + few * turn } else { 5 * few };
            // Where nobody sweeps for long, a generation goes on, and lives longer.
            let is_late = slices == 0 && few < 2_000 && turn >= 8;
            let most = if is_late { 9 * few } else { items };
            assert!((items..=most).contains(&window.items(now)), "{} at {turn}", window.items(now));
        }
        while window.sweep(1).is_some() {}
        let slots = window.pages().slot_count();
        assert_eq!(slots, 5 * few, "slots");
        assert!(window.bytes() < burst / 8, "{} of {burst} bytes", window.bytes());
    }
}

/// Where no timer sweeps what a burst left, and each addition starts a generation.
#[test]
fn no_addition_sweeps_more_pages_than_a_slice() {
    let mut window = paged(&params(0.01, 1_000, 2, 1), Some(timed(4, true)));
    for number in 0..300_000 {
        add(&mut window, u64::MAX, number, 0).expect("room");
    }
    // Each page that is swept comes with a join of two.
    let slice = (MOST_SWEPT + 1) * 3 * u64::from(window.pages().plan().page_slots);
    assert!(slice < 150_000);
    let mut copy = window.duplicate().expect("memory");
    for turn in 1..60 {
        let (now, before) = (turn as i64 * SLOT, window.pages().slot_count());
        let shift = window.turn(now).expect("a generation is over");
        copy.obey(shift).expect("a shift of the window");
        let hash = window.hash(&item(1, turn));
        for (each, author) in [(&mut window, Author::Client(now)), (&mut copy, Author::Obeyed)] {
            assert!(each.add(hash, author, |_| u64::MAX).expect("room").new);
        }
        super::check_equal(&copy, &window, "the copy");
        let swept = before - (window.pages().slot_count() - 1).min(before);
        assert!(swept <= slice, "{swept} slots at {turn}");
        assert!((turn.saturating_sub(4)..=turn).all(|set| {
            set == 0 || window.contains(window.hash(&item(1, set)), now + SLOT - 1)
        }));
        let old = found(&window, u64::MAX, 1_000, now);
        assert!(turn < 5 || old < 50, "{old} of the burst at {turn}");
    }
    assert!(window.items(60 * SLOT) <= 5 && window.pages().slot_count() < 10);
}

#[test]
fn a_window_of_which_nothing_is_alive_is_emptied_at_once() {
    for (capacity, expansion, items) in
        [(1_000, 2, 100_000), (50_000, 2, 100_000), (50_000, 0, 50_000)]
    {
        emptied_at_once(&params(0.01, capacity, expansion, 1), items);
    }
}

/// A single page needs no timer.
#[test]
fn a_small_window_is_emptied_without_a_rest() {
    let fresh = paged(&params(0.01, 100, 2, 1), Some(timed(4, true)));
    let mut window = fresh.duplicate().expect("memory");
    (0..50).for_each(|number| _ = add(&mut window, 1, number, 0).expect("room"));
    assert!(window.forget(5 * SLOT).is_some());
    assert!(!window.release(0));
    assert_eq!(window.memory(|_| 0), fresh.memory(|_| 0));
}

fn emptied_at_once(params: &Params, items: u64) {
    let fresh = paged(params, Some(timed(4, true)));
    let mut window = fresh.duplicate().expect("memory");
    for number in 0..items {
        add(&mut window, 1, number, 0).expect("room");
    }
    assert_eq!(window.forget(5 * SLOT - 1), None);
    let mut other = window.duplicate().expect("memory");
    let (full, used) = (window.pages().pages().len(), window.memory(|_| 0));
    assert!(!window.release(1), "nothing is emptied yet");
    assert!(window.forget(5 * SLOT).is_some());
    assert_eq!((window.items(5 * SLOT), window.pages().bytes()), (0, fresh.pages().bytes()));
    assert_eq!(window.sweep(1), None);
    // Its pages are freed some at a time, and counted until then.
    assert!(window.memory(|_| 0) > used * 9 / 10);
    assert!(window.release(full - 1));
    assert!((1..10_000).contains(&(window.memory(|_| 0) - fresh.memory(|_| 0))));
    assert!(!window.release(1));
    assert_eq!(window.memory(|_| 0), fresh.memory(|_| 0));
    check_equal(&stored(&window), &window, "emptied");
    // It grows again, with the same rate.
    for number in 0..items {
        add(&mut window, 3, number, 5 * SLOT).expect("room");
    }
    assert!(exact_rate(window.pages()) <= 0.01);
    assert_eq!(found(&window, 3, items, 5 * SLOT), items);
    check_equal(&stored(&window), &window, "grown again");
    assert_eq!(add(&mut other, 2, 0, 5 * SLOT), Ok(true));
    assert_eq!((other.items(5 * SLOT), other.pages().slot_count()), (1, 1));
}

/// Windows of the last N items, which come once or return.
#[test]
fn a_window_of_items_holds_the_last_ones() {
    for generations in [1, 2, 4, 32] {
        let capacity = 2_000;
        let mut window =
            paged(&params(0.01, capacity, 0, 1), Some(super::last_items(generations, true)));
        for number in 0..20 * capacity {
            add(&mut window, 1, number, 0).expect("never full");
            if number >= capacity && number % 997 == 0 {
                let last = number + 1 - capacity / 2..=number;
                let has = |number| window.contains(window.hash(&item(1, number)), 0);
                assert!(last.into_iter().all(has), "{number}");
            }
        }
        let parts = u64::from(generations) + 1;
        assert!(window.items(0) <= capacity.div_ceil(generations.into()) * parts);
        let absent = found(&window, 2, 50_000, 0);
        check_rate(absent, 50_000, 0.01, &format!("G = {generations}"));
    }
}

/// What is forgotten by the clock makes room, swept or not.
#[test]
fn a_full_window_takes_items_again_when_older_ones_are_forgotten() {
    let mut window = paged(&params(1e-9, 1_000, 0, 1), Some(timed(4, true)));
    for number in 0..1_000 {
        assert_eq!(add(&mut window, 1, number, 0), Ok(true));
    }
    assert_eq!(add(&mut window, 1, 1_000, 0), Err(Error::Full));
    assert_eq!(add(&mut window, 1, 0, 4 * SLOT), Ok(false), "a known item");
    assert_eq!(add(&mut window, 1, 1_000, 5 * SLOT - 1), Err(Error::Full));
    // All but item 0 are forgotten by the clock.
    for number in 1_000..1_999 {
        assert_eq!(add(&mut window, 1, number, 5 * SLOT), Ok(true));
    }
    assert_eq!(add(&mut window, 1, 1_999, 5 * SLOT), Err(Error::Full));
}

#[test]
fn windows_that_cannot_be_are_refused() {
    use redis_bloom::filter::Params;
    let made = |params: &Params, rules| Paged::new(params, Some(rules), u64::MAX).map(drop);
    let sound = params(0.01, 100, 2, 1);
    assert_eq!(made(&sound, timed(4, true)), Ok(()));
    assert_eq!(made(&sound, super::last_items(4, true)), Err(Error::Window));
    assert_eq!(made(&sound, time(3, 4, true)), Err(Error::Window));
    assert_eq!(made(&sound, timed(0, true)), Err(Error::Window));
    assert_eq!(made(&sound, timed(33, true)), Err(Error::Window));
    let counters = Params { counts: true, ..sound };
    assert_eq!(made(&counters, timed(4, true)), Err(Error::Window));
}

#[test]
fn shifts_that_no_copy_made_change_nothing() {
    use redis_bloom::filter::paged::Shift;
    let mut window = paged(&params(0.01, 100, 2, 1), Some(timed(4, true)));
    add(&mut window, 1, 1, 10 * SLOT).expect("room");
    let before = window.duplicate().expect("memory");
    for start in [-1, 10 * SLOT + 1, 11 * SLOT - 1, i64::MAX] {
        assert_eq!(window.obey(Shift::Open(start)), Err(Error::Window), "{start}");
    }
    assert_eq!(window.obey(Shift::Forget(-1)), Err(Error::Window));
    super::check_equal(&window, &before, "refused");
    let mut plain = super::growing(0.01);
    assert_eq!(plain.obey(Shift::Sweep(1)), Err(Error::Window));
    assert_eq!((plain.turn(0), plain.forget(0), plain.sweep(9)), (None, None, None));
}
