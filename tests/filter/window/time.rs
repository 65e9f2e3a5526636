//! Boundaries of time: ages of exactly T and T (1 + 1/G), and a clock that is set.

use redis_bloom::filter::{
    Author, Demand, Dropped, Error, Generation, MAX_GENERATIONS, MAX_MILLISECONDS, MAX_TIME, NEVER,
    Rules, Shift, Span, Window,
};

use super::{add_each, add_in_place, added, check, has, stored, window};
use crate::support::{self, add_at as add, item, last_items, params, time};

const NOW: i64 = 1_790_000_000_000;

/// An item for each number: no two of those used here collide at the rates used.
fn one(number: u64) -> Vec<u8> {
    item(1, number).to_vec()
}

fn starts(window: &Window) -> Vec<i64> {
    window.ring().generations.iter().map(|generation| generation.start - NOW).collect()
}

#[test]
fn an_item_is_found_up_to_the_age_t_and_gone_after_the_slack() {
    // T, G, and the first age at which the first item of a generation is gone: T (1 + 1/G), rounded
    // up.
    for (length, generations, gone) in
        [(1_000, 4, 1_250), (1_000, 1, 2_000), (1_000, 3, 1_334), (7, 7, 8), (10, 4, 13)]
    {
        for refresh in [true, false] {
            let mut window = window(1e-9, 100, 2, time(length, generations, refresh));
            assert!(add(&mut window, &one(0), NOW));
            for age in [0, length as i64, gone - 1] {
                assert!(has(&window, &one(0), NOW + age), "{length}, {generations}: {age}");
            }
            assert!(!has(&window, &one(0), NOW + gone), "{length}, {generations}");
            // The last item of the generation is remembered for T.
            let last = NOW + (length as i64 + i64::from(generations) - 1) / i64::from(generations);
            add(&mut window, &one(1), last - 1);
            assert_eq!(window.ring().generations.len(), 1);
            assert!(has(&window, &one(1), last - 1 + length as i64));
            add(&mut window, &one(2), last);
            assert_eq!(window.ring().generations.len(), 2);
            check(&window, last);
        }
    }
}

#[test]
fn a_query_changes_nothing_and_frees_nothing() {
    let mut window = window(0.01, 100, 2, time(1_000, 4, true));
    (0..10).for_each(|number| {
        add(&mut window, &one(number), NOW + 200 * number as i64);
    });
    let before = stored(&window);
    for after in [0, 2_000, 10_000, i64::MAX - NOW, -NOW, i64::MIN] {
        let now = NOW.saturating_add(after);
        has(&window, &one(0), now);
        window.contains_each([&one(0)[..], &one(9)].into_iter(), now, |_| {});
        assert_eq!(stored(&window), before);
    }
    assert_eq!(window.items(i64::MAX), 0);
    assert!(!has(&window, &one(9), i64::MAX));
    assert!(has(&window, &one(9), i64::MIN), "a clock that is behind forgets nothing");
}

#[test]
fn generations_start_at_least_a_gth_of_the_window_apart() {
    let mut window = window(0.01, 100, 2, time(1_000, 4, true));
    for at in [0, 100, 249, 250, 499, 600, 849, 850, 5_000] {
        add(&mut window, &one(at), NOW + at as i64);
        check(&window, NOW + at as i64);
    }
    // All before 5,000 were out of the window then.
    assert_eq!(starts(&window), [5_000]);
    // Without the jump there were five, and never more.
    let mut window = super::window(0.01, 100, 2, time(1_000, 4, true));
    for at in 0..5_000 {
        add(&mut window, &one(at), NOW + at as i64);
        assert!(window.ring().generations.len() <= 5);
    }
    assert_eq!(starts(&window), [3_750, 4_000, 4_250, 4_500, 4_750]);
}

#[test]
fn a_window_that_was_not_used_waits_for_its_first_addition() {
    let mut window = window(0.01, 100, 2, time(1_000, 4, true));
    assert_eq!(window.ring().generations, [Generation { start: NEVER, layers: 1 }]);
    assert!(!has(&window, &one(0), NOW));
    let (shift, done, _) = add_each(&mut window, &[], NOW);
    // 100 / 4 items and two standard deviations.
    assert_eq!((shift, done), (Some(Shift { start: NOW, capacity: 35 }), vec![]));
    // An empty newest generation gets a new start when it is time.
    let (shift, ..) = add_each(&mut window, &[], NOW + 249);
    assert_eq!(shift, None);
    let (shift, ..) = add_each(&mut window, &[one(1)], NOW + 250);
    assert_eq!(shift, Some(Shift { start: NOW + 250, capacity: 35 }));
    assert_eq!(starts(&window), [250]);
}

#[test]
fn a_clock_set_back_by_a_gth_of_the_window_moves_nothing_by_more_moves_all() {
    for (back, moved) in [(0, false), (249, false), (250, false), (251, true), (100_000, true)] {
        let mut window = window(1e-9, 100, 2, time(1_000, 4, true));
        for at in [0, 300, 600] {
            add(&mut window, &one(at), NOW + at as i64);
        }
        let now = NOW + 600 - back;
        let (shift, ..) = add_each(&mut window, &[one(9_999)], now);
        assert_eq!(shift.map(|shift| shift.start), moved.then_some(now), "{back}");
        let by = if moved { back } else { 0 };
        assert_eq!(starts(&window), [-by, 300 - by, 600 - by]);
        check(&window, now);
        // Items live longer: T after the clock was set, all that were in the window still are.
        for number in [300, 600, 9_999] {
            assert!(has(&window, &one(number), now + 700), "{back}: {number}");
        }
    }
}

#[test]
fn an_item_is_added_in_place_only_if_nothing_else_changes() {
    let now = |at: u64| Author::Client(NOW + at as i64);
    let mut window = window(1e-9, 4, 2, time(1_000, 4, true));
    let before = stored(&window);
    assert_eq!(add_in_place(&mut window, &one(0), now(0)), None, "no generation has started");
    assert_eq!(stored(&window), before);
    add(&mut window, &one(0), NOW);
    let before = stored(&window);
    assert_eq!(add_in_place(&mut window, &one(0), now(249)), Some((false, false)));
    assert_eq!(stored(&window), before);
    assert_eq!(add_in_place(&mut window, &one(0), now(250)), None, "a generation is due");
    assert_eq!(stored(&window), before);
    // A generation is made for 1 item and two standard deviations: 3.
    assert_eq!(add_in_place(&mut window, &one(1), now(1)), Some((true, true)));
    assert_eq!(add_in_place(&mut window, &one(2), now(1)), Some((true, true)));
    let before = stored(&window);
    assert_eq!(add_in_place(&mut window, &one(3), now(1)), None, "the generation is full");
    assert_eq!(stored(&window), before);
    assert_eq!(add_in_place(&mut window, &one(2), now(1)), Some((false, false)));
    // What a primary added goes in whatever the time is.
    add(&mut window, &one(3), NOW + 2);
    assert_eq!(add_in_place(&mut window, &one(4), Author::Obeyed), Some((true, true)));
    add(&mut window, &one(5), NOW + 250);
    assert_eq!(add_in_place(&mut window, &one(4), now(250)), Some((false, true)), "once more");
    assert_eq!(add_in_place(&mut window, &one(3), Author::Obeyed), Some((true, true)));
}

#[test]
fn clocks_at_the_ends_of_time_do_no_harm() {
    for now in [i64::MIN, -1, 0, 1, MAX_TIME, MAX_TIME + 1, i64::MAX - 1, i64::MAX] {
        for then in [i64::MIN, 0, NOW, MAX_TIME, i64::MAX] {
            let mut window = window(0.01, 10, 1, time(MAX_MILLISECONDS, MAX_GENERATIONS, false));
            for (number, now) in [(0, now), (1, then), (2, now)] {
                add(&mut window, &one(number), now);
                check(&window, now);
                assert!(has(&window, &one(number), now));
                let again = super::window_of(stored(&window).filter());
                assert_eq!(stored(&again), stored(&window));
            }
        }
    }
}

#[test]
fn a_shift_that_no_copy_made_is_refused_and_changes_nothing() {
    let mut window = window(0.01, 100, 2, time(1_000, 4, true));
    add(&mut window, &one(0), NOW);
    let before = stored(&window);
    for start in [i64::MIN, -1, MAX_TIME + 1, NEVER, NOW, NOW + 249] {
        for capacity in [0, 1, u64::MAX] {
            let shift = Shift { start, capacity };
            if capacity == 0 && (0..=MAX_TIME).contains(&start) {
                continue;
            }
            let outcome = window.obey(shift, |_| u64::MAX, &mut Dropped::default());
            assert_eq!(outcome, Err(Error::Window), "{shift:?}");
            assert_eq!(stored(&window), before, "{shift:?}");
        }
    }
    // A generation that takes more memory than there is: the newest one starts anew.
    let shift = Shift { start: NOW + 250, capacity: u64::MAX };
    let outcome = window.obey(shift, |_| u64::MAX, &mut Dropped::default());
    assert!(matches!(outcome, Err(Error::Ceiling { .. })), "{outcome:?}");
    assert_eq!((starts(&window), window.filter().layers().len()), (vec![250], 1));
    let mut last_items = super::window(0.01, 100, 0, last_items(4, true));
    let outcome =
        last_items.obey(Shift { start: NOW, capacity: 0 }, |_| u64::MAX, &mut Dropped::default());
    assert_eq!(outcome, Err(Error::Window));
}

#[test]
fn a_shift_that_gets_no_memory_drops_what_is_old_and_tells_the_copies() {
    for expansion in [0, 2] {
        let mut window = window(0.01, 100_000, expansion, time(1_000, 4, true));
        let mut copy = super::window(0.01, 100_000, expansion, time(1_000, 4, true));
        let obey = |copy: &mut Window, shift: Option<Shift>| {
            let shift = shift.expect("a shift");
            copy.obey(shift, |_| u64::MAX, &mut Dropped::default()).expect("memory");
        };
        for at in [0, 250, 500] {
            let (shift, ..) = add_each(&mut window, &[one(at)], NOW + at as i64);
            obey(&mut copy, shift);
            added(&mut copy, &[one(at)], Author::Obeyed, &mut Dropped::default())
                .1
                .expect("obeyed");
        }
        let before = window.filter().bit_bytes();
        let mut dropped = Dropped::default();
        // At 1,500 the first two are out of the window.
        let ceiling = |demand: Demand| {
            assert_eq!((demand.present, demand.wanted), (before / 3, before / 3 * 2));
            demand.wanted - 1
        };
        let (shift, outcome) = window.turn(NOW + 1_500, ceiling, &mut dropped);
        assert!(matches!(outcome, Err(Error::Ceiling { .. })));
        assert_eq!(shift, Some(Shift { start: NOW + 1_500, capacity: 0 }));
        assert_eq!((starts(&window), dropped.count), (vec![500], 2));
        obey(&mut copy, shift);
        assert_eq!(stored(&copy), stored(&window));
        // Nothing is dropped the second time, so there is nothing to tell.
        let (shift, outcome) = window.turn(NOW + 1_500, |_| 0, &mut dropped);
        assert!(shift.is_none() && outcome.is_err());
        assert!(has(&window, &one(500), NOW + 1_500));
    }
}

/// A replica that has no memory for a generation keeps the items for longer, never for less.
#[test]
fn an_obeyed_shift_without_memory_starts_the_newest_generation_anew() {
    let mut copy = window(1e-6, 1_000, 0, time(1_000, 4, true));
    for at in [0, 300, 600] {
        let shift = Shift { start: NOW + at, capacity: 1_000 };
        let room = if at == 0 { u64::MAX } else { 0 };
        let outcome = copy.obey(shift, |_| room, &mut Dropped::default());
        assert_eq!(outcome.is_err(), at > 0);
        added(&mut copy, &[one(at as u64)], Author::Obeyed, &mut Dropped::default())
            .1
            .expect("room");
        assert_eq!(starts(&copy), [at]);
        check(&copy, NOW + at);
    }
    for at in [0, 300, 600] {
        assert!(has(&copy, &one(at as u64), NOW + 600 + 1_249), "{at}");
    }
    assert!(!has(&copy, &one(600), NOW + 600 + 1_250));
}

/// After a burst the next generation would be as large. If there is no room for that, it is as
/// large as planned.
#[test]
fn a_burst_does_not_stop_the_next_generation() {
    let mut window = window(0.01, 1_000, 2, time(1_000, 4, true));
    let mut copy = Window::try_from(stored(&window).filter()).expect("a window");
    let planned = window.filter().bit_bytes();
    let burst: Vec<_> = (0..20_000).map(one).collect();
    let (shift, done, _) = add_each(&mut window, &burst, NOW);
    let changed: Vec<_> = burst.iter().zip(done).filter(|(_, done)| done.1).collect();
    let changed: Vec<_> = changed.into_iter().map(|(item, _)| item.clone()).collect();
    let obey = |copy: &mut Window, shift: Option<Shift>| {
        copy.obey(shift.expect("a shift"), |_| u64::MAX, &mut Dropped::default()).expect("memory");
    };
    obey(&mut copy, shift);
    added(&mut copy, &changed, Author::Obeyed, &mut Dropped::default()).1.expect("memory");
    let asked = std::cell::Cell::new(0);
    let ceiling = |demand: Demand| {
        asked.set(asked.get() + 1);
        demand.present + planned
    };
    let (shift, outcome) = window.turn(NOW + 250, ceiling, &mut Dropped::default());
    assert_eq!((outcome, asked.get()), (Ok(()), 2));
    assert_eq!(window.filter().newest().shape().words() * 8, planned);
    obey(&mut copy, shift);
    assert_eq!(stored(&copy), stored(&window));
    assert!(burst.iter().all(|item| has(&window, item, NOW + 1_249)));
}

#[test]
fn what_is_forgotten_gives_its_memory_back() {
    let mut window = window(0.01, 1_000_000, 2, time(1_000, 4, true));
    for at in [0, 250, 500, 750, 1_000] {
        add(&mut window, &one(at), NOW + at as i64);
    }
    let full = window.filter().bytes();
    let mut dropped = Dropped::default();
    assert_eq!(window.forget(NOW + 1_249, &mut dropped), 0);
    assert_eq!(window.forget(NOW + 1_250, &mut dropped), 1);
    assert!(window.filter().bytes() < full * 81 / 100);
    assert!(has(&window, &one(250), NOW + 1_250));
    // All of it: what is left is a few bytes, and the next addition opens a generation.
    assert_eq!(window.forget(NOW + 100_000, &mut dropped), 4);
    assert!(window.filter().bytes() < 1_000, "{} bytes", window.filter().bytes());
    assert_eq!((window.filter().items(), dropped.count), (0, 5));
    check(&window, NOW + 100_000);
    assert_eq!(window.forget(NOW + 100_000, &mut dropped), 0);
    assert!(add(&mut window, &one(0), NOW + 100_001));
    assert_eq!((starts(&window), window.items(NOW + 100_001)), (vec![100_001], 1));
    assert_eq!(
        window.filter().bit_bytes(),
        super::window(0.01, 1_000_000, 2, time(1_000, 4, true)).filter().bit_bytes()
    );
}

#[test]
fn windows_that_cannot_be_are_refused() {
    let wrong: [(Rules, u64); 9] = [
        (time(1_000, 0, true), 2),
        (time(1_000, 33, true), 2),
        (time(3, 4, true), 2),
        (time(0, 1, true), 2),
        (time(MAX_MILLISECONDS + 1, 4, true), 0),
        (time(u64::MAX, 32, false), 1),
        (last_items(0, true), 0),
        (last_items(33, false), 0),
        (last_items(4, true), 1),
    ];
    for (rules, expansion) in wrong {
        let params = params(0.01, 100, expansion, 0);
        let refused = Window::new(&params, rules, u64::MAX);
        assert!(matches!(refused, Err(Error::Window)), "{rules:?}: {refused:?}");
    }
    for (rules, expansion) in [
        (time(4, 4, true), 0),
        (time(MAX_MILLISECONDS, 32, true), 1),
        (Rules { span: Span::Items, generations: 1, refresh: true }, 0),
    ] {
        window(0.01, 1, expansion, rules);
    }
    let counting = redis_bloom::filter::Params {
        cells: redis_bloom::filter::CellKind::Counters,
        ..params(0.01, 100, 2, 0)
    };
    let refused = Window::new(&counting, time(1_000, 4, true), u64::MAX);
    assert!(matches!(refused, Err(Error::Window)));
}

#[test]
fn a_window_is_refused_if_its_generations_do_not_fit_together() {
    let (params, rules) = (params(0.01, 1_000_000, 2, 0), time(1_000, 4, true));
    let one = support::window(&params, rules).filter().bit_bytes();
    assert!(Window::new(&params, rules, 5 * one).is_ok());
    let refused = Window::new(&params, rules, 5 * one - 1);
    let expected = Error::Ceiling { wanted: 5 * one, ceiling: 5 * one - 1 };
    assert_eq!(refused.map(|_| ()), Err(expected));
}
