//! Unions: they hold what their members held, counts add up, the rate holds, and what is refused.

use std::collections::HashMap;

use redis_bloom::{
    filter::{
        Demand, Error, Expansion, Filter, Member, Params, Plan, Union, Unmergeable, paged::Paged,
        pages::Pages,
    },
    sharding::Shard,
};

use super::{add, check_equal, check_rate, counting, false_positives, growing, has, paged, stored};
use crate::{
    pages::exact_rate,
    support::{self, fill, filter, item, params},
};

fn union(members: &[Member]) -> Result<Option<Paged>, Error> {
    of(members, true, |_| u64::MAX)
}

fn of(
    members: &[Member],
    limited: bool,
    ceiling: impl FnOnce(Demand) -> u64,
) -> Result<Option<Paged>, Error> {
    Ok(Union::of(members, limited, ceiling)?.map(|union| match union {
        Union::Pages(paged) => paged,
        Union::Layer(_) => panic!("one has pages"),
    }))
}

/// The union of two filters, which changes the first.
#[track_caller]
fn both(a: &Paged, b: &Paged) -> Paged {
    union(&[Member::Pages(a), Member::Pages(b)]).expect("a union").expect("a change")
}

/// A filter of these items.
fn with(mut filter: Paged, set: u64, numbers: std::ops::Range<u64>) -> Paged {
    numbers.for_each(|number| _ = add(&mut filter, &item(set, number)));
    filter
}

const SIZES: [u64; 7] = [0, 10, 130, 1_000, 3_000, 20_000, 70_000];

#[test]
fn a_union_holds_what_its_members_held_at_every_pair_of_sizes() {
    let asked = 0.01;
    for a in SIZES {
        for b in SIZES {
            // A third of the smaller one is in both.
            let shared = a.min(b) / 3;
            let first = with(growing(asked), 1, 0..a);
            let second = with(growing(asked), 1, a - shared..a - shared + b);
            let last = a - shared + b;
            let members = [Member::Pages(&first), Member::Pages(&second)];
            let Some(mut united) = union(&members).expect("a union") else {
                assert!((0..last).all(|number| has(&first, &item(1, number))), "{a} {b}");
                continue;
            };
            let what = format!("{a} and {b}");
            assert!((0..last).all(|number| has(&united, &item(1, number))), "{what}");
            // Items that are taken for others are fewer than two deviations above the mean.
            let rate = exact_rate(united.pages());
            assert!(rate <= asked, "{what}: {rate}");
            let distinct = united.items(0);
            let fewest = last as f64 * (1.0 - rate) - 5.0 * (last as f64 * rate).sqrt() - 5.0;
            assert!(distinct <= last && distinct as f64 >= fewest, "{what}: {distinct} of {last}");
            check_equal(&stored(&united), &united, &what);
            assert_eq!(Plan::of_pages(&united).check(), Ok(()));
            // The same again changes nothing, from either side.
            let again = |one| union(&[Member::Pages(&united), Member::Pages(one)]);
            assert!(again(&first).is_ok_and(|none| none.is_none()), "{what}");
            assert!(again(&second).is_ok_and(|none| none.is_none()), "{what}");
            (0..20_000).for_each(|number| _ = add(&mut united, &item(2, number)));
            assert!((0..20_000).all(|number| has(&united, &item(2, number))), "{what}");
            check_rate(false_positives(&united, 20_000), 20_000, asked, &what);
        }
    }
}

/// What the planned growth adds to the rate: ∫ (1 - x/2) dx of d 2^-r in each doubling, from the
/// share x on that is split already, and at most 5/4 d 2^-r in all later doublings together
/// (`src/filter/pages/plan.rs`).
fn growth_adds(pages: &Pages) -> f64 {
    const STEPS: u32 = 1_000;
    let plan = pages.plan();
    let planned = plan.first_pages.ilog2() + u32::from(plan.doublings);
    let now = (pages.pages().len() as f64).log2();
    let middles = (0..STEPS).map(|step| (f64::from(step) + 0.5) / f64::from(STEPS));
    let doubling = |level: u32| {
        let split = (pages.pages().len() as f64 / f64::from(level).exp2() - 1.0).clamp(0.0, 1.0);
        middles.clone().filter(|x| *x > split).map(|x| 1.0 - x / 2.0).sum::<f64>()
            / f64::from(STEPS)
    };
    let doublings: f64 = (now as u32..planned).map(doubling).sum();
    let unit = f64::from(plan.page_slots) / 1984.0 * 0.5_f64.powi(plan.tag_bits.into());
    unit * (doublings + 1.25)
}

/// A union that has growth planned has room for it, until the next union is refused. One item more
/// in a hundred at each turn.
#[test]
fn a_union_has_room_for_the_growth_it_plans() {
    let asked = 0.01;
    let mut united = with(growing(asked), 1, 0..30_000);
    let doublings = united.pages().plan().doublings;
    let mut planned = 0;
    for turn in 0..1_000 {
        let rate = exact_rate(united.pages()) + growth_adds(united.pages());
        assert!(rate <= asked, "{turn}: {rate}");
        planned += u32::from(united.pages().plan().doublings == doublings);
        let next = with(growing(asked), 2, turn * 300..(turn + 1) * 300);
        match union(&[Member::Pages(&united), Member::Pages(&next)]) {
            Ok(more) => united = more.expect("new items"),
            Err(refused) => {
                assert_eq!(refused, Error::Unmergeable(Unmergeable::Rate));
                assert!(planned > 2 && turn > 50, "{planned} of {turn}");
                return;
            }
        }
    }
    panic!("nothing was refused");
}

/// A union of many may be at the limit of its rate, but never above it, also when it grows.
#[test]
fn a_union_is_refused_before_it_passes_its_rate() {
    let (asked, size) = (0.01, 30_000);
    let mut united = with(growing(asked), 1, 0..size);
    let mut merged = 1;
    let refused = loop {
        let next = with(growing(asked), 1, merged * size..(merged + 1) * size);
        match union(&[Member::Pages(&united), Member::Pages(&next)]) {
            Ok(Some(more)) => united = more,
            Ok(None) => panic!("{size} new items change nothing"),
            Err(refused) => break refused,
        }
        merged += 1;
        assert!(exact_rate(united.pages()) <= asked, "{merged}");
    };
    assert_eq!(refused, Error::Unmergeable(Unmergeable::Rate));
    assert!(merged >= 4, "{merged} filters of {size} items");
    assert!((0..merged * size).all(|number| has(&united, &item(1, number))));
    (0..1_000_000).for_each(|number| _ = add(&mut united, &item(2, number)));
    assert!(exact_rate(united.pages()) <= asked, "it grew");
    check_rate(false_positives(&united, 100_000), 100_000, asked, "it grew");
    // What another server did is done.
    let next = with(growing(asked), 3, 0..size);
    let obeyed = [Member::Pages(&united), Member::Pages(&next)];
    assert!(of(&obeyed, false, |_| u64::MAX).is_ok_and(|done| done.is_some()));
}

/// Two filters of a million items each.
#[test]
fn two_filters_of_a_million_items_can_be_united() {
    let (a, b) = (with(growing(0.01), 1, 0..1_000_000), with(growing(0.01), 2, 0..1_000_000));
    let united = both(&a, &b);
    assert!(exact_rate(united.pages()) <= 0.01);
    let found = |set| (0..1_000_000).filter(|&number| has(&united, &item(set, number))).count();
    assert_eq!((found(1), found(2)), (1_000_000, 1_000_000));
    let second = both(&with(growing(0.01), 3, 0..1_000_000), &with(growing(0.01), 4, 0..1_000_000));
    let refused = union(&[Member::Pages(&united), Member::Pages(&second)]).map(drop);
    assert_eq!(refused, Err(Error::Unmergeable(Unmergeable::Rate)));
}

/// A counting filter with short tags and the smallest pages, or with those of its plan.
fn counts(crowded: Option<u8>) -> Paged {
    let filter = counting(0.01, 100, 2);
    let Some(tag_bits) = crowded else {
        return filter;
    };
    let mut whole = Plan::of_pages(&filter);
    let plan = &mut whole.paged.as_mut().expect("pages").pages;
    (plan.tag_bits, plan.page_slots) = (tag_bits, 256);
    let pages = Pages::new(*plan).expect("a plan in range");
    whole.with_pages(None, pages)
}

#[test]
fn counts_add_up_and_saturate() {
    for crowded in [None, Some(45), Some(4)] {
        for (a, b) in [(50, 60), (300, 4_000), (4_000, 300), (5_000, 5_000)] {
            let mut counted: HashMap<u64, u64> = HashMap::new();
            let mut fill = |first: u64, many: u64| {
                let mut filter = counts(crowded);
                for number in first..first + many {
                    for _ in 0..number % 9 + 1 {
                        assert!(
                            filter
                                .add(filter.hash(&item(1, number)), super::CLIENT, |_| u64::MAX)
                                .is_ok()
                        );
                        *counted.entry(number).or_default() += 1;
                    }
                }
                filter
            };
            let (first, second) = (fill(0, a), fill(a / 2, b));
            let members = [Member::Pages(&first), Member::Pages(&second)];
            let united = of(&members, false, |_| u64::MAX).expect("a union");
            let mut united = united.expect("a change");
            check_equal(&stored(&united), &united, "a union of counts");
            let mut above = 0;
            for (&number, &count) in &counted {
                let shown = united.count(united.hash(&item(1, number)));
                assert!(shown >= count.min(16), "{number}: {shown} and not {count}");
                above += u64::from(shown > count.min(16));
            }
            if crowded == Some(45) {
                assert_eq!((above, united.items(0)), (0, counted.len() as u64));
            }
            // What was added as often as it was counted can be deleted as often.
            for (&number, &count) in &counted {
                for _ in 0..count {
                    super::delete(&mut united, &item(1, number));
                }
            }
            if crowded == Some(45) {
                let saturated = counted.values().filter(|&&count| count >= 16).count() as u64;
                assert_eq!(united.items(0), saturated);
            }
        }
    }
}

/// An item whose tag is longer than that of the same item in a filter with fewer pages, and which
/// is the last one of its page: a page without slots would be short.
#[test]
fn the_only_slot_of_a_page_becomes_shorter() {
    let (mut first, mut second) = (counts(Some(16)), counts(Some(16)));
    let hashed = counts(Some(16));
    let of_page = |page: u64, count: usize| -> Vec<_> {
        let items = (0..).map(|number| item(2, number));
        items.filter(|item| hashed.hash(item).block & 1 == page).take(count).collect()
    };
    let (rest, gone) = (of_page(0, 250), of_page(1, 251));
    let (last, gone) = gone.split_last().expect("items");
    for item in rest.iter().chain(gone).chain([last]) {
        add(&mut first, item);
    }
    add(&mut second, last);
    for item in gone {
        assert!(super::delete(&mut first, item));
    }
    assert_eq!(first.pages().pages().len(), 2);
    let united = both(&first, &second);
    check_equal(&stored(&united), &united, "a shorter tag");
    assert_eq!((united.count(united.hash(last)), united.items(0)), (2, 251));
    assert!(rest.iter().all(|item| united.count(united.hash(item)) == 1));
}

/// Reserved filters: one that is not full, and one in pages above its layer.
#[test]
fn a_layer_below_is_united_if_it_has_room() {
    let params = params(0.01, 2_000, 2, 0x5EED);
    let mut full = filter(&params);
    let count = fill(&mut full, 1, 2_000);
    let above = with(full.overflow().expect("memory"), 1, count..9_000);
    let filled = |set, numbers: std::ops::Range<u64>| {
        let mut part = filter(&params);
        numbers.for_each(|number| _ = support::add(&mut part, &item(set, number)));
        part
    };
    // What is in the layer already changes nothing.
    let same = filled(1, 0..1_000);
    let members = [Member::Pages(&above), Member::Layers(&same)];
    assert!(union(&members).is_ok_and(|none| none.is_none()));
    let reversed = [Member::Layers(&same), Member::Pages(&above)];
    check_equal(&union(&reversed).expect("a union").expect("a change"), &above, "the pages");
    // Other pages above the same layer.
    let other = with(stored(&above), 2, 0..5_000);
    let united = both(&above, &other);
    assert!((0..9_000).all(|number| has(&united, &item(1, number))));
    assert!((0..5_000).all(|number| has(&united, &item(2, number))));
    check_equal(&stored(&united), &united, "above a layer");
    let members = [Member::Pages(&above), Member::Pages(&other)];
    let [present, bytes] = members.map(Member::bytes);
    let bits = present - above.pages().bytes();
    let mut demand = None;
    let asked = of(&members, true, |asked| {
        demand = Some((asked.present, asked.wanted));
        u64::MAX
    });
    assert!(asked.is_ok() && bits > 0);
    assert_eq!(demand, Some((present, present + bytes - bits)));
    // A layer of other items has no room.
    let refused = union(&[Member::Pages(&above), Member::Layers(&filled(2, 0..1_000))]).map(drop);
    assert!(
        matches!(refused, Err(Error::Unmergeable(Unmergeable::Full { capacity: 2_000, .. }))),
        "{refused:?}"
    );
}

#[test]
fn filters_that_differ_are_refused_and_nothing_is_done_without_memory() {
    let base = params(0.01, 100, 2, 0x5EED);
    let filled = |filter| with(filter, 1, 0..50);
    let made = |params: &Params| filled(paged(params, None));
    let one = made(&base);
    let differs =
        |other: &Paged| match union(&[Member::Pages(&one), Member::Pages(other)]).map(drop) {
            Err(Error::Unmergeable(Unmergeable::Differ(difference))) => difference,
            other => panic!("{other:?}"),
        };
    assert_eq!(differs(&made(&Params { seed: 1, ..base })), "seed");
    assert_eq!(differs(&made(&Params { error_rate: 0.02, ..base })), "error rate");
    assert_eq!(differs(&made(&Params { capacity: 101, ..base })), "capacity");
    let expansion = Expansion::new(4).expect("in range");
    assert_eq!(differs(&made(&Params { expansion, ..base })), "expansion");
    assert_eq!(differs(&filled(counting(0.01, 100, 2))), "kind");
    let shard = Shard::new(1, 4);
    assert_eq!(differs(&made(&Params { shard, ..base })), "shard");
    let plain = |params: &Params| Filter::new(params, u64::MAX).expect("memory");
    let kind = union(&[Member::Pages(&one), Member::Layers(&plain(&base))]).map(drop);
    assert_eq!(kind, Err(Error::Unmergeable(Unmergeable::Differ("kind"))));
    let window = paged(&params(0.01, 100, 0, 1), Some(super::last_items(4, true)));
    let windows = union(&[Member::Pages(&window), Member::Pages(&window)]).map(drop);
    assert_eq!(windows, Err(Error::Unmergeable(Unmergeable::Window)));

    let other = with(growing(0.01), 2, 0..50);
    let demand = std::cell::Cell::new(None);
    let refused = of(&[Member::Pages(&one), Member::Pages(&other)], true, |asked| {
        demand.set(Some(asked));
        asked.wanted - 1
    });
    let Some(Demand { present, wanted }) = demand.get() else { panic!("nobody asked") };
    assert_eq!((present, wanted), (one.pages().bytes(), 2 * present));
    let ceiling = wanted - 1;
    assert_eq!(refused.map(drop), Err(Error::Ceiling { wanted, ceiling }));
}

#[test]
fn a_non_scaling_union_holds_at_most_its_capacity() {
    let shared = |from| with(counting(0.001, 100, 0), 1, from..from + 60);
    let fits = both(&shared(0), &shared(40));
    assert_eq!(fits.items(0), 100);
    let refused = union(&[Member::Pages(&fits), Member::Pages(&shared(60))]).map(drop);
    let full = Unmergeable::Full { items: 120, capacity: 100 };
    assert_eq!(refused, Err(Error::Unmergeable(full)));
}
