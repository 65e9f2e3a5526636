//! The parts of a paged filter: read back as they were written, and refused if they do not fit.

use redis_bloom::filter::{
    Family, PagedPlan, Params, Plan, Rules,
    paged::{Generation, Paged, Sweep, Window},
    pages::Payload,
};

use super::{CLIENT, add, check_equal, counting, expansion, growing, paged, stored};
use crate::support::{self, filter, item, params, time};

/// One filter of each kind, small and in pages.
fn kinds() -> Vec<Paged> {
    let mut kinds = Vec::new();
    for items in [0, 10, 20_000] {
        let shared = params(0.01, 1_000, 0, 1);
        let mut each = vec![
            growing(0.01),
            counting(0.01, 1_000, 2),
            paged(&shared, Some(super::last_items(4, true))),
            paged(&Params { expansion: expansion(2), ..shared }, Some(time(60_000, 32, false))),
        ];
        for paged in &mut each {
            for number in 0..items {
                paged.turn(number as i64 * 10);
                let hash = paged.hash(&item(1, number));
                let client = redis_bloom::filter::Author::Client(number as i64 * 10);
                paged.add(hash, client, |_| u64::MAX).expect("room");
            }
        }
        kinds.append(&mut each);
        let params = params(0.01, 100, 2, 1);
        let mut full = filter(&params);
        support::fill(&mut full, 1, 100);
        let base = full.newest().duplicate().expect("memory");
        let mut above = Paged::above(|| base, &params).expect("a sound filter");
        for number in 0..items {
            add(&mut above, &item(2, number));
        }
        kinds.push(above);
    }
    kinds
}

#[test]
fn a_filter_is_read_back_as_it_was_written() {
    for paged in kinds() {
        let mut copy = stored(&paged);
        check_equal(&copy, &paged, "read back");
        let mut duplicate = paged.duplicate().expect("memory");
        check_equal(&duplicate, &paged, "copied");
        // Both go on as one.
        for number in 0..3_000 {
            for paged in [&mut copy, &mut duplicate] {
                let hash = paged.hash(&item(3, number));
                paged.turn(300_000 + number as i64);
                paged.add(hash, CLIENT, |_| u64::MAX).expect("room");
            }
        }
        check_equal(&copy, &duplicate, "went on");
    }
}

/// Each change of a sound plan makes it one that is refused.
#[test]
fn parts_that_do_not_fit_are_refused() {
    type Change = fn(&mut Plan);
    let any: [Change; 7] = [
        |plan| plan.error_rate = 1.0,
        |plan| plan.error_rate = f64::NAN,
        |plan| plan.family = Family::Guava,
        |plan| of(plan).capacity = 0,
        |plan| of(plan).pages.tag_bits = 0,
        |plan| of(plan).pages.tag_bits = 46,
        |plan| of(plan).pages.first_pages = 0,
    ];
    for paged in kinds() {
        let sound = Plan::of_pages(&paged);
        assert_eq!(sound.check(), Ok(()));
        let refuse = |change: Change, what: &str| {
            let mut plan = sound.clone();
            change(&mut plan);
            if plan != sound {
                assert!(plan.check().is_err(), "{what}: {plan:?}");
            }
        };
        any.iter().enumerate().for_each(|(i, &change)| refuse(change, &format!("change {i}")));
        refuse(
            |plan| {
                of(plan).pages.payload = match of(plan).pages.payload {
                    Payload::Generation(_) => Payload::Count(4),
                    _ => Payload::Generation(4),
                }
            },
            "another payload",
        );
        if !sound.layers.is_empty() {
            refuse(|plan| of(plan).pages.payload = Payload::Count(4), "counts above a layer");
            refuse(|plan| plan.expansion = expansion(0), "a layer that cannot overflow");
            refuse(|plan| of(plan).capacity += 1, "a layer of another capacity");
            refuse(
                |plan| plan.layers.iter_mut().for_each(|base| base.items -= 1),
                "a layer with room",
            );
            refuse(|plan| plan.layers.extend_from_within(..), "two layers");
        }
    }
}

/// What the plan of pages has besides.
fn of(plan: &mut Plan) -> &mut PagedPlan {
    plan.paged.as_mut().expect("pages")
}

fn window_plan(rules: Rules, generations: &[(i64, u64)], number: u64, sweep: Sweep) -> Plan {
    let params = params(0.01, 1_000, 0, 1);
    let mut plan = Plan::of_pages(&paged(&params, Some(rules)));
    let generations = generations.iter().map(|&(start, items)| Generation { start, items });
    of(&mut plan).window =
        Some(Window { rules, generations: generations.collect(), number, sweep });
    plan
}

#[test]
fn windows_whose_generations_do_not_follow_are_refused() {
    let rules = time(400, 4, true);
    let sweep = Sweep { oldest: 9, floor: 9, page: 0, changes: 31 };
    let sound = |generations: &[(i64, u64)], number, sweep| {
        window_plan(rules, generations, number, sweep).check().is_ok()
    };
    let two = [(1_000, 5), (1_100, 7)];
    assert!(sound(&two, 10, sweep));
    assert!(sound(&[(i64::MAX, 0)], 9, sweep));
    assert!(!sound(&[], 10, sweep), "none");
    assert!(!sound(&[(1_000, 5), (1_099, 7)], 10, sweep), "too close");
    assert!(!sound(&[(1_000, 5), (1_500, 7)], 10, sweep), "out of the window");
    assert!(!sound(&[(1_000, 5), (i64::MAX, 7)], 10, sweep), "one that waits, behind another");
    assert!(!sound(&[(-1_000, 5), (-1, 7)], 10, sweep), "before 1970");
    let six = [(100, 0), (200, 0), (300, 0), (400, 0), (500, 0), (600, 0)];
    assert!(!sound(&six, 10, sweep), "six of five");
    assert!(!sound(&two, 0, Sweep::default()), "a number without one before it");
    assert!(!sound(&two, 9, sweep), "a generation that was swept");
    assert!(!sound(&two, 17, sweep), "a number that is still in use");
    assert!(!sound(&two, 10, Sweep { oldest: 10, ..sweep }), "a pass that went back");
    assert!(!sound(&two, 10, Sweep { oldest: 8, floor: 10, page: 0, changes: 0 }), "alive");
    assert!(sound(&two, 10, Sweep { oldest: 8, floor: 9, page: 7, changes: 0 }));
    assert!(!sound(&two, 10, Sweep { page: 1, ..sweep }), "a page without a pass");
    assert!(!sound(&two, 10, Sweep { changes: 32, ..sweep }), "a page that is due");
    let items = |generations: &[(i64, u64)]| {
        window_plan(super::last_items(4, true), generations, 9, sweep).check().is_ok()
    };
    assert!(items(&[(0, 249)]) && !items(&[(0, 250)]) && !items(&[(1, 0)]));
}
