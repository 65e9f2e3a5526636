//! Windows that cannot be: wrong rules, wrong generations, and filters that cannot have one.

use redis_bloom::{
    codec::Error,
    filter::{
        Broken, CellKind, FIXED_SEED, Family, Fault, Filter, Generation, MAX_CAPACITY,
        MAX_MILLISECONDS, MAX_TIME, NEVER, Params, Plan, TIGHTENING, Valkey,
    },
};

use super::{check, refused};
use crate::{
    forge::{
        self,
        header::{EXPANSION, FIRST, ITEMS, LAYER, PRESENT},
    },
    sample::{self, NOW, small_window},
    support::{Strings, filter, last_items, params, time},
};

/// Offsets in the header of a filter with one record, which follows the family's byte.
const RECORDS: usize = FIRST + 1;
const LENGTH: usize = RECORDS + 4;
const SPAN: usize = LENGTH + 4;
const GENERATIONS: usize = SPAN + 1;
const REFRESH: usize = SPAN + 2;
const MILLISECONDS: usize = SPAN + 3;
const CAPACITY: usize = SPAN + 11;
const STARTS: usize = SPAN + 19;
const START: usize = 12;

fn fault(fault: Fault) -> Error {
    Error::Broken(Broken::Window(fault))
}

/// Eight bytes.
fn number(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

#[test]
fn rules_that_cannot_be_are_refused() {
    // A window of 1,000 ms in 4 generations, which started at 0, 300, 600 and 900.
    check(
        &small_window(),
        &[
            ("another span", SPAN, &[2], Error::Window),
            ("items with milliseconds", SPAN, &[1], Error::Window),
            ("a refresh of 2", REFRESH, &[2], Error::Window),
            ("no generations", GENERATIONS, &[0], Error::Window),
            ("2 generations, of which 4 are there", GENERATIONS, &[2], Error::Window),
            ("33 generations", GENERATIONS, &[33], fault(Fault::Rules)),
            ("255 generations", GENERATIONS, &[255], fault(Fault::Rules)),
            ("no milliseconds", MILLISECONDS, &number(0), fault(Fault::Rules)),
            ("3 milliseconds", MILLISECONDS, &number(3), fault(Fault::Rules)),
            ("above ten years", MILLISECONDS, &number(MAX_MILLISECONDS + 1), fault(Fault::Rules)),
            ("no capacity", CAPACITY, &number(0), fault(Fault::Rules)),
            ("a capacity above 2^62", CAPACITY, &number(MAX_CAPACITY + 1), fault(Fault::Rules)),
        ],
    );
}

#[test]
fn generations_that_do_not_follow_each_other_are_refused() {
    let starts = || fault(Fault::Starts);
    let at = |generation: usize| STARTS + generation * START;
    let layers = |generation| at(generation) + 8;
    let time = |time: i64| time.to_le_bytes();
    check(
        &small_window(),
        &[
            ("a generation without layers", layers(1), &[0; 4], fault(Fault::Layers)),
            ("more layers than there are", layers(3), &[2, 0, 0, 0], fault(Fault::Layers)),
            ("fewer layers than there are", layers(0), &[1, 0, 0, 0], fault(Fault::Layers)),
            ("2^32 - 1 layers", layers(0), &[255; 4], fault(Fault::Layers)),
            ("too close", at(1), &time(NOW + 249), starts()),
            ("out of order", at(1), &time(NOW + 700), starts()),
            ("out of the window", at(0), &time(NOW + 900 - 1_250), starts()),
            ("the newest too late", at(3), &time(NOW + 2_000), starts()),
            ("the newest never", at(3), &time(NEVER), starts()),
            ("the newest before 1970", at(3), &time(-1), starts()),
            ("the newest at the end of time", at(3), &time(MAX_TIME + 1), starts()),
            ("an older one never", at(1), &time(NEVER), starts()),
            ("an older one before all time", at(0), &time(i64::MIN), starts()),
        ],
    );
    // No generations at all.
    let (_, header) = redis_bloom::codec::native::dump::header(&small_window());
    let mut none = header[..STARTS].to_vec();
    none[LENGTH] = 19;
    none.extend(&header[STARTS + 4 * START..]);
    forge::seal(&mut none);
    assert_eq!(refused(&none, 1 << 20, "none"), fault(Fault::Generations(0)));
    // A part of one.
    let mut part = header[..STARTS + 4 * START - 1].to_vec();
    part[LENGTH] -= 1;
    part.extend(&header[STARTS + 4 * START..]);
    forge::seal(&mut part);
    assert_eq!(refused(&part, 1 << 20, "a part of one"), Error::Truncated);
}

/// Checks a plan with one change.
#[track_caller]
fn broken(filter: &Filter, change: impl FnOnce(&mut Plan)) -> Result<(), Broken> {
    let mut plan = Plan::of(filter);
    assert_eq!(plan.check(), Ok(()));
    change(&mut plan);
    plan.check()
}

#[test]
fn more_generations_than_can_be_alive_are_refused() {
    let many = |plan: &mut Plan| {
        let layer = plan.layers[4];
        plan.layers.extend([layer; 2]);
        let ring = plan.window.as_mut().expect("a window");
        let next = |after| Generation { start: NOW + 900 + after, layers: 1 };
        ring.generations.extend([next(250), next(500)]);
    };
    let count = Broken::Window(Fault::Generations(6));
    assert_eq!(broken(&small_window(), many), Err(count));
}

#[test]
fn a_generation_of_items_must_be_full_when_the_next_one_opens() {
    let of = |rules| sample::window_of(&params(0.01, 60, 0, 1), rules, 40, 7);
    let less = |plan: &mut Plan| plan.layers[1].items -= 1;
    let items = Broken::Items { index: 1, items: 14, capacity: 15 };
    assert_eq!(broken(&of(last_items(4, true)), less), Err(items));
    assert_eq!(broken(&of(time(280, 4, true)), less), Ok(()));
    // But within a generation, only the newest layer may be less than full.
    let less = |plan: &mut Plan| plan.layers[0].items -= 1;
    assert!(matches!(broken(&small_window(), less), Err(Broken::Items { index: 0, .. })));
}

#[test]
fn a_window_of_items_has_no_times_and_does_not_grow() {
    let filter = sample::window_of(&params(0.01, 60, 0, 1), last_items(4, true), 40, 0);
    check(
        &filter,
        &[
            ("numbers out of order", STARTS, &[3], fault(Fault::Starts)),
            ("a negative number", STARTS + 7, &[255], fault(Fault::Starts)),
            ("milliseconds", MILLISECONDS, &[1], Error::Window),
            ("an expansion", EXPANSION, &[2], fault(Fault::Rules)),
        ],
    );
}

#[test]
fn a_fixed_generation_has_one_layer() {
    let fixed = |plan: &mut Plan| plan.expansion = redis_bloom::filter::Expansion::NONSCALING;
    assert_eq!(broken(&small_window(), fixed), Err(Broken::Layers(5)));
}

#[test]
fn filters_of_counters_and_of_other_products_have_no_window() {
    let ring = Plan::of(&sample::window_of(&params(0.01, 60, 2, 1), time(4, 4, true), 0, 0)).window;
    let counters = Params { cells: CellKind::Counters, ..params(0.01, 60, 2, 1) };
    let valkey = Valkey { seed: FIXED_SEED, tightening: TIGHTENING };
    let foreign = Filter::of_valkey(valkey, &params(0.01, 60, 2, 1), u64::MAX).expect("memory");
    for filter in [filter(&counters), foreign] {
        let refused = broken(&filter, |plan| plan.window.clone_from(&ring));
        assert_eq!(refused, Err(Broken::Window(Fault::Kind)), "{:?}", filter.family());
    }
    let plain = filter(&params(0.01, 60, 2, 1));
    assert_eq!(broken(&plain, |plan| plan.window.clone_from(&ring)), Ok(()));
    assert_eq!(Family::Native, plain.family());
}

/// The record of a window, byte by byte.
#[test]
fn the_record_of_a_window_keeps_its_bytes() {
    let header = &Strings::of(&small_window()).0[0];
    let starts = [(NOW, 2_u32), (NOW + 300, 1), (NOW + 600, 1), (NOW + 900, 1)];
    let mut expected = vec![1, 0, 2, 0, 67, 0, 0, 0, 0, 4, 1];
    expected.extend([number(1_000), number(40)].as_flattened());
    for (start, layers) in starts {
        expected.extend(start.to_le_bytes());
        expected.extend(layers.to_le_bytes());
    }
    let layers = STARTS + 4 * START;
    assert_eq!(header[RECORDS..layers], expected);
    assert_eq!(header.len(), layers + 5 * LAYER + 8);
    assert_eq!(header[PRESENT..PRESENT + 8], number(small_window().bit_bytes()));
    assert_eq!(header[layers + ITEMS..layers + ITEMS + 8], number(16));
}
