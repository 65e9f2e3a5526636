//! Windows under load: items that come at random, in a burst, and at ten times the plan.

use std::collections::VecDeque;

use redis_bloom::filter::Window;
use redis_bloom_harness::Random;

use super::{add_each, check, has};
use crate::support::{add_at, item, last_items, params, time, window};

const NOW: i64 = 1_790_000_000_000;
/// T, in milliseconds.
const LENGTH: u64 = 1_000_000;

/// Times of additions, in milliseconds from the start: a Poisson process of so many generations,
/// with `mean` additions in each.
fn poisson(mean: f64, generations: u64, seed: u64) -> impl Iterator<Item = i64> {
    let (mut random, slot) = (Random::new(seed), (LENGTH / 4) as f64);
    let mut at = 0.0;
    std::iter::from_fn(move || {
        let uniform = (random.next() >> 11) as f64 * 2_f64.powi(-53);
        at -= f64::ln(1.0 - uniform) * slot / mean;
        (at < generations as f64 * slot).then_some(at as i64)
    })
}

/// A generation is made for the mean and two standard deviations: 250 items and 31 more. It starts
/// with its first item, so it grows if 281 or more come in the T/G after that: a Poisson number of
/// mean 250 is as large with probability 2.7 %. Of 10,000 generations, the share that grows has a
/// standard deviation of 0.16 %; the bounds are five of them away.
#[test]
fn items_that_come_as_planned_seldom_make_a_generation_grow() {
    let generations = 10_000;
    let mut window = window(&params(0.01, 1_000, 2, 1), time(LENGTH, 4, true));
    let planned = window.filter().bit_bytes();
    let (mut opened, mut grown, mut bytes) = (0_u64, 0_u64, 0);
    let (mut start, mut layers, mut most) = (0, 0, 0);
    let mut recent = VecDeque::new();
    for (number, at) in (0..).zip(poisson(250.0, generations, 1)) {
        let now = NOW + at;
        add_at(&mut window, &item(1, number), now);
        recent.push_back((now, number));
        let newest = window.ring().newest();
        if newest.start != start {
            grown += u64::from(layers > 1);
            (start, opened) = (newest.start, opened + 1);
            bytes += window.filter().bit_bytes();
            while recent.front().is_some_and(|(then, _)| then + (LENGTH as i64) < now) {
                recent.pop_front();
            }
            if opened % 100 == 0 {
                check(&window, now);
                let lost = recent.iter().find(|(_, number)| !has(&window, &item(1, *number), now));
                assert_eq!(lost, None);
            }
        }
        layers = newest.layers;
        most = most.max(layers);
    }
    let share = grown as f64 / opened as f64;
    let mean = bytes as f64 / opened as f64 / planned as f64;
    println!("{opened} generations, {share} grew, to {most} layers; {mean} times the first");
    // They last a 250th longer than T/G.
    assert!(opened > generations * 98 / 100, "{opened}");
    assert!((0.019..0.035).contains(&share), "{share}");
    assert!(most <= 2, "{most} layers");
    // Five generations are there. A second layer takes less than three times the first: it is for
    // twice as many items at a sixth of the rate.
    assert!(mean < 5.0 * (1.0 + 3.0 * share), "{mean} times the first generation");
}

/// A generation takes its first item and 280 of the Poisson number that comes in the T/G after it.
/// Of a mean of 250, 0.18 are above 280 on average: 0.07 % of all.
#[test]
fn a_window_that_cannot_grow_refuses_few_items_that_come_as_planned() {
    let mut window = window(&params(0.01, 1_000, 0, 1), time(LENGTH, 4, true));
    let (mut refused, mut all) = (0_u64, 0_u64);
    for (number, at) in (0..).zip(poisson(250.0, 2_000, 2)) {
        let outcome = add_each(&mut window, &[item(1, number).to_vec()], NOW + at).2;
        (refused, all) = (refused + u64::from(outcome.is_err()), all + 1);
    }
    println!("{refused} of {all} items were refused");
    assert!(refused > 0 && refused < all / 1_000, "{refused} of {all}");
}

/// Adds `items` items evenly over the time of generation number `generation`.
fn slot(window: &mut Window, generation: u64, items: u64) {
    for number in 0..items {
        let at = generation * LENGTH / 4 + number * (LENGTH / 4) / items;
        add_at(window, &item(generation, number), NOW + at as i64);
    }
}

#[test]
fn memory_follows_ten_times_the_load_up_and_down() {
    let mut window = window(&params(0.01, 1_000, 2, 1), time(LENGTH, 4, true));
    (0..8).for_each(|generation| slot(&mut window, generation, 250));
    let planned = window.filter().bit_bytes();
    assert_eq!((window.ring().generations.len(), window.filter().layers().len()), (5, 5));
    for generation in 8..40 {
        slot(&mut window, generation, 2_500);
        check(&window, NOW + ((generation + 1) * LENGTH / 4) as i64 - 1);
        let newest = window.ring().newest().layers;
        // The first one grows; from the second on, they are large enough from the start.
        assert_eq!(newest > 1, generation == 8, "generation {generation}: {newest} layers");
    }
    let loaded = window.filter().bit_bytes() as f64 / planned as f64;
    assert!((8.0..11.0).contains(&loaded), "{loaded} times the plan");
    // One generation is still large; the others follow.
    (40..46).for_each(|generation| slot(&mut window, generation, 250));
    assert_eq!(window.filter().bit_bytes(), planned);
}

#[test]
fn a_burst_of_a_whole_window_makes_one_generation_grow() {
    let mut window = window(&params(0.01, 1_000, 2, 1), time(LENGTH, 4, true));
    (0..6).for_each(|generation| slot(&mut window, generation, 250));
    let planned = window.filter().bit_bytes();
    slot(&mut window, 6, 1_000);
    check(&window, NOW + (7 * LENGTH / 4) as i64 - 1);
    // Layers for 281 and 562 items hold 843; the third is for 1,124.
    assert_eq!(window.ring().newest().layers, 3);
    (7..13).for_each(|generation| slot(&mut window, generation, 250));
    assert_eq!(window.filter().bit_bytes(), planned);
}

/// Bits per item of the window, with all generations there. The plan of a window of time has two
/// standard deviations more; one that may grow leaves a quarter of the rate to later layers.
#[test]
fn a_million_items_take_the_memory_that_the_documents_say() {
    let items = 1_000_000;
    for (rules, rate, expansion, most) in [
        (last_items(4, true), 0.01, 0, 17.2),
        (time(LENGTH, 4, true), 0.01, 0, 17.2),
        (time(LENGTH, 4, true), 0.01, 2, 18.0),
        (last_items(4, true), 0.001, 0, 22.9),
        (last_items(10, true), 0.01, 0, 16.8),
        (last_items(2, true), 0.01, 0, 18.9),
    ] {
        let window = window(&params(rate, items, expansion, 1), rules);
        let generations = f64::from(rules.generations) + 1.0;
        let bits = window.filter().bit_bytes() as f64 * 8.0 * generations / items as f64;
        println!("{rules:?} at {rate}, expansion {expansion}: {bits:.2} bits");
        assert!(bits <= most, "{rules:?} at {rate}, expansion {expansion}: {bits} bits");
    }
}

/// A window of items never takes more than five times the memory of its first generation.
#[test]
fn memory_does_not_grow_over_a_thousand_shifts() {
    let mut window = window(&params(0.01, 400, 0, 1), last_items(4, true));
    let one = window.filter().bytes();
    for number in 0..100_000 {
        add_at(&mut window, &item(1, number), NOW);
        assert!(window.filter().bytes() <= 5 * one, "{number}");
        assert!(has(&window, &item(1, number.saturating_sub(399)), NOW));
    }
    check(&window, NOW);
}
