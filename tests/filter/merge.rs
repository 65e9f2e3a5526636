//! The union of filters that were reserved alike: its bits are those of the filter that got all
//! items, its counts are near that filter's, and what it could not hold is refused.

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngAlgorithm, RngSeed},
};
use redis_bloom::{
    filter::{
        Classic, Error, Expansion, FIXED_SEED, Family, Filter, LayerPlan, Member, Params, Plan,
        RedisBloom, Rule, Shape, TIGHTENING, Union, Unmergeable, Valkey, foreign::redisbloom,
    },
    sharding::Shard,
};

use crate::{
    steps::bytes,
    support::{Strings, add, fill, filter, has, item, params, stack},
};

/// The union of filters of layers, with what is refused.
fn of(filters: &[&Filter], limited: bool) -> Result<Option<Union>, Unmergeable> {
    let members: Vec<Member> = filters.iter().copied().map(Member::Layers).collect();
    match Union::of(&members, limited, |_| panic!("no memory is wanted")) {
        Ok(union) => Ok(union),
        Err(Error::Unmergeable(why)) => Err(why),
        Err(error) => panic!("{error}"),
    }
}

/// Makes `filter` the union; returns whether it changed.
fn write(union: Option<Union>, filter: &mut Filter, others: &[&Filter]) -> bool {
    let others: Vec<Member> = others.iter().copied().map(Member::Layers).collect();
    match union {
        None => false,
        Some(Union::Layer(items)) => {
            filter.unite(&others, items);
            true
        }
        Some(Union::Pages(_)) => panic!("none has pages"),
    }
}

/// Merges `others` into `filter`.
fn merge(filter: &mut Filter, others: &[&Filter]) -> Result<(), Unmergeable> {
    let filters: Vec<&Filter> = std::iter::once(&*filter).chain(others.iter().copied()).collect();
    write(of(&filters, true)?, filter, others);
    Ok(())
}

/// A copy of the first filter, merged with the others.
#[track_caller]
fn union(filters: &[&Filter]) -> Filter {
    let mut union = filters[0].duplicate().expect("memory");
    merge(&mut union, &filters[1..]).unwrap_or_else(|error| panic!("{error}"));
    union
}

/// All words of all layers.
fn words(filter: &Filter) -> Vec<Vec<u64>> {
    filter.layers().map(|layer| layer.bits().words().to_vec()).collect()
}

/// Items counted, by layer.
fn counts(filter: &Filter) -> Vec<u64> {
    filter.layers().map(|layer| layer.counted).collect()
}

fn add_all(filter: &mut Filter, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        add(filter, &item(0, number));
    }
}

/// An empty filter of every family and kind, for 2,000 items, with its name.
fn every_kind() -> Vec<(&'static str, Filter)> {
    let one = |family, seed, capacity, error_rate, shape: Classic| {
        let layers =
            vec![LayerPlan { capacity, items: 0, error_rate, shape: Shape::Classic(shape) }];
        let expansion = Expansion::NONSCALING;
        let plan = Plan { family, seed, error_rate, expansion, layers, ..Plan::default() };
        plan.check().expect("a sound filter");
        plan.allocate(u64::MAX).expect("memory")
    };
    let per_item = redisbloom::bits_per_item(0.01);
    let bits = ((2_000.0 * per_item) as u64).div_ceil(64) * 64;
    let probes = redisbloom::probes(per_item) as u16;
    let classic = |rule| Classic { bits, bytes: bits / 8, probes, rule };
    let exact = RedisBloom { hash64: true, rounds: false };
    let valkey = Valkey { seed: FIXED_SEED, tightening: TIGHTENING };
    let mut kinds = vec![
        ("RedisBloom", one(Family::RedisBloom(exact), 0, 2_000, 0.01, classic(Rule::Remainder))),
        ("Guava 32", one(Family::Guava, 0, 2_000, 0.01, classic(Rule::Mitz32))),
        ("Guava 64", one(Family::Guava, 0, 2_000, 0.01, classic(Rule::Mitz64))),
        (
            "valkey-bloom",
            Filter::of_family(Family::Valkey(valkey), &params(0.01, 2_000, 2, 0), u64::MAX)
                .expect("memory"),
        ),
    ];
    // Several blocks of one line, of several lines, and a single block.
    for (name, rate) in [("25 %", 0.25), ("1 %", 0.01), ("0.1 %", 0.001), ("1e-6", 1e-6)] {
        for expansion in [0, 2] {
            kinds.push((name, filter(&params(rate, 2_000, expansion, 7))));
        }
    }
    kinds
}

#[test]
fn the_union_of_filters_of_any_kind_has_the_bits_of_the_filter_with_all_items() {
    for (name, empty) in every_kind() {
        let [mut a, mut b, mut c, mut all] = [0; 4].map(|_| empty.duplicate().expect("memory"));
        add_all(&mut a, 0..700);
        add_all(&mut b, 400..1_000);
        add_all(&mut c, 900..1_300);
        let lists = [0..700, 400..1_000, 900..1_300];
        lists.into_iter().for_each(|numbers| add_all(&mut all, numbers));
        let case = format!("{name}, {:?}", empty.newest().shape());

        let orders = [[&a, &b, &c], [&b, &c, &a], [&c, &b, &a], [&b, &a, &c]];
        let unions = orders.map(|order| union(&order));
        for merged in &unions {
            assert!(words(merged) == words(&all), "{case}");
            assert!((0..1_300).all(|number| has(merged, &item(0, number))), "{case}");
            assert_eq!(counts(merged), counts(&unions[0]), "{case}: the order matters");
        }
        // One after another, in both groupings.
        let (left, right) = (union(&[&union(&[&a, &b]), &c]), union(&[&a, &union(&[&b, &c])]));
        assert!(words(&left) == words(&all) && words(&right) == words(&all), "{case}");
        // Near the count of the filter with all items: five times the greatest deviation.
        let off = unions[0].items().abs_diff(all.items());
        assert!(off < 5 * 15, "{case}: {} of {}", unions[0].items(), all.items());
        // What is stored is accepted, and equal.
        if all.family() == Family::Native {
            let stored = Strings::of(&unions[0]);
            assert_eq!(Strings::of(&stored.filter()), stored, "{case}");
        }
    }
}

#[test]
fn a_union_that_adds_nothing_does_not_change_the_filter() {
    let [mut full, mut part, empty] = [0; 3].map(|_| filter(&params(0.05, 200, 2, 3)));
    fill(&mut full, 0, 200);
    add_all(&mut part, 0..100);
    // A full filter and an empty one, or a part of its own items.
    for other in [&empty, &part] {
        assert!(of(&[&full, other], true).expect("alike").is_none());
    }
    let union = of(&[&part, &full], true).expect("alike");
    assert!(write(union, &mut part, &[&full]));
    assert_eq!(counts(&part), [200], "the count of the fuller one is exact");
}

#[test]
fn a_layer_that_would_hold_too_much_is_refused_and_nothing_changes() {
    for expansion in [0, 2] {
        let [mut a, mut b] = [0; 2].map(|_| filter(&params(0.01, 1_000, expansion, 3)));
        add_all(&mut a, 0..900);
        add_all(&mut b, 900..1_800);
        let before = Strings::of(&a);
        let refused = merge(&mut a, &[&b]).expect_err("1,800 items of 1,000");
        let Unmergeable::Full { items, capacity: 1_000 } = refused else {
            panic!("{refused:?}");
        };
        // The filter that got all of them counts fewer, since it is too full.
        assert!((1_700..=1_800).contains(&items), "{items}");
        assert_eq!(Strings::of(&a), before);
        // A primary or an AOF is obeyed.
        let union = of(&[&a, &b], false).expect("alike");
        assert!(write(union, &mut a, &[&b]));
        assert!((0..1_800).all(|number| has(&a, &item(0, number))));
        assert_eq!(a.items(), 1_000);
        assert_eq!(Strings::of(&Strings::of(&a).filter()), Strings::of(&a));
    }
}

/// A full filter takes no new item, however few positions it makes nonzero. What tests present in
/// it is merged, and raises neither the count nor the rate.
#[test]
fn a_full_filter_takes_no_new_item_by_any_number_of_merges() {
    for rate in [0.25, 0.01, 1e-6] {
        let empty = || filter(&params(rate, 1_000, 0, 7));
        let mut full = empty();
        fill(&mut full, 0, 1_000);
        let before = (full.estimate(), full.newest().counted);
        let mut known = 0;
        for number in 0..5_000 {
            let mut one = empty();
            add(&mut one, &item(1, number));
            let present = has(&full, &item(1, number));
            known += u64::from(present);
            let merged = merge(&mut full, &[&one]);
            assert_eq!(merged.is_ok(), present, "{rate} {number}");
        }
        // At 1e-6 none of them tests present; at 25 %, more than a fifth.
        assert_eq!(known > 1_000, rate == 0.25, "{known}");
        assert_eq!((full.estimate(), full.newest().counted), before, "{rate}");
    }
}

/// The errors of many merges do not add up, and additions after them find a full filter, too.
///
/// Bound of the count: it is n(r), or the sum of the counts if that is less, and n(r) is within 4.5
/// deviations of the count of the filter with all items; half an item is rounded.
#[test]
fn many_small_merges_count_as_the_filter_with_all_items() {
    for (rate, part) in [(0.05, 1), (0.05, 10), (0.01, 3), (0.01, 10), (1e-6, 10)] {
        let capacity = 2_000 * part;
        let empty = || filter(&params(rate, capacity, 0, 11));
        let [mut merged, mut all] = [0; 2].map(|_| empty());
        for start in (0..capacity * 9 / 10).step_by(part as usize) {
            let mut small = empty();
            add_all(&mut small, start..start + part);
            merge(&mut merged, &[&small]).expect("a tenth is free");
            add_all(&mut all, start..start + part);
        }
        let deviation = spread(&all, all.items() as f64).sqrt();
        let off = all.items().abs_diff(merged.items()) as f64;
        assert!(off < 5.0 * deviation + 0.5, "{rate} {part}: {off}, {deviation}");
        fill(&mut merged, 1, capacity);
        let full = merged.estimate().error_rate;
        assert!(full < rate * 1.1, "{rate} {part}: {full}");
    }
}

/// Parts of three items that share none, merged until the union is refused.
///
/// Bound: half a deviation of items more than the capacity raises the rate by 1.9 % (at 1 %) to 4 %
/// (at 1e-6). A filter that is filled by additions has 0.98 to 0.99 of its rate, because blocks are
/// rounded up. So the mean is at most 1.02, and that of 60 filters has a standard error of 0.2 %.
#[test]
fn many_merges_of_small_parts_keep_the_error_rate() {
    const FILTERS: u64 = 60;
    for rate in [0.25, 0.01, 0.001, 1e-6] {
        let full = |seed| {
            let empty = || filter(&params(rate, 1_000, 0, seed));
            let mut merged = empty();
            for start in (0..10_000).step_by(3) {
                let mut small = empty();
                add_all(&mut small, start..start + 3);
                if merge(&mut merged, &[&small]).is_err() {
                    assert!(start > 900, "{rate}: refused after {start}");
                    return merged.estimate().error_rate;
                }
            }
            panic!("{rate}: 10,000 items are in");
        };
        let mean = (0..FILTERS).map(full).sum::<f64>() / FILTERS as f64;
        println!("{rate}: {:.4} of the rate", mean / rate);
        assert!(mean <= 1.02 * rate, "{rate}: {mean}");
    }
}

/// With four deviations fewer items than the capacity, only an error of 4.5 deviations is refused.
#[test]
fn two_filters_of_nearly_as_many_items_as_the_capacity_are_not_refused() {
    for seed in 0..200 {
        let [mut a, mut b] = [0; 2].map(|_| filter(&params(0.01, 1_000, 0, seed)));
        let free = 4.0 * spread(&a, 1_000.0).sqrt();
        let items = 1_000 - free.ceil() as u64;
        fill(&mut a, 1, items / 2);
        fill(&mut b, 2, items / 2);
        let merged = union(&[&a, &b]).items();
        assert!(items.abs_diff(merged) as f64 <= 1.25 * free, "{merged} of {items}");
    }
}

/// All but the newest of several layers are full, so nearly no union has room.
#[test]
fn filters_of_several_layers_are_refused() {
    let [mut grown, small] = [0; 2].map(|_| stack(&params(0.01, 100, 2, 0)));
    fill(&mut grown, 0, 600);
    assert_eq!(grown.layers().len(), 3);
    for pair in [[&grown, &small], [&small, &grown], [&grown, &grown]] {
        assert_eq!(of(&pair, false).expect_err("three layers"), Unmergeable::Layers);
    }
}

#[test]
fn the_first_difference_is_named() {
    let plain = params(0.01, 1_000, 2, 3);
    let [valkey, other_key, other_ratio] = [
        Valkey { seed: FIXED_SEED, tightening: 0.5 },
        Valkey { seed: [1; 32], tightening: 0.5 },
        Valkey { seed: FIXED_SEED, tightening: 0.25 },
    ]
    .map(|valkey| Filter::of_family(Family::Valkey(valkey), &plain, u64::MAX).expect("memory"));
    let kinds = every_kind();
    let named = |name| &kinds.iter().find(|(kind, _)| *kind == name).expect("a kind").1;
    let first = filter(&plain);
    for (a, b, difference) in [
        (&first, &valkey, "kind"),
        (named("RedisBloom"), named("Guava 32"), "kind"),
        (&first, &filter(&Params { seed: 4, error_rate: 0.5, ..plain }), "seed"),
        (&valkey, &other_key, "seed"),
        (&first, &filter(&params(0.02, 999, 2, 3)), "error rate"),
        (&first, &filter(&params(0.01, 999, 4, 3)), "capacity"),
        (&first, &filter(&params(0.01, 1_000, 4, 3)), "expansion"),
        (&first, &filter(&params(0.01, 1_000, 0, 3)), "expansion"),
        (&valkey, &other_ratio, "tightening ratio"),
        (named("Guava 32"), named("Guava 64"), "the size of a layer"),
    ] {
        for pair in [[a, b], [b, a]] {
            let refused = of(&pair, false).expect_err("different filters");
            assert_eq!(refused, Unmergeable::Differ(difference));
        }
        // Also of a later source.
        assert!(of(&[a, a, b], true).is_err());
    }
}

/// S, the variance of the count of a union of `items` items, by the differing loads of blocks and
/// lines: with m positions in blocks of c, k probes in groups of g that share a line (4, or 0 in
/// blocks of one line), and a = k items / m,
///
/// ```text
///   S = m / k^2 * (e^a - 1 - a + a^2 / 2 * (k^2 / c + g^2 / 512))
/// ```
fn spread(filter: &Filter, items: f64) -> f64 {
    let shape = filter.newest().shape();
    let geometry = match shape {
        Shape::Blocked(geometry) => geometry,
        Shape::Classic(classic) => panic!("{classic:?}"),
    };
    let (m, k) = (geometry.words() as f64 * 64.0, f64::from(geometry.probes));
    let a = k * items / m;
    let block = f64::from(geometry.block_words) * 64.0;
    let lines = geometry.lines().is_some_and(|lines| lines > 1);
    let loads = k * k / block + if lines { 16.0 / 512.0 } else { 0.0 };
    m / (k * k) * (a.exp() - 1.0 - a + a * a / 2.0 * loads)
}

/// The error of the count of a union against the filter that got the items of both.
/// Its variance is S.
///
/// Bounds: the mean of 400 pairs has a standard error of a twentieth of the deviation, and 4.5 of
/// these are allowed, and half an item for the curvature of n(r). The deviation of 400 has a
/// standard error of a 28th; 4.5 of these are 16 %. Above 1 % both counts miss the same items, so
/// there the prediction is only an upper bound.
#[test]
fn the_error_of_the_count_of_a_union_is_the_predicted_one() {
    const SEEDS: u64 = 400;
    let mut table = String::new();
    let mut hold = true;
    for (rate, capacity) in [
        (0.25, 1_000),
        (0.05, 1_000),
        (0.01, 1_000),
        (0.01, 20_000),
        (0.001, 20_000),
        (1e-6, 2_000),
    ] {
        // Tenths of the capacity: items of the base, of the other, and of both.
        for [base, other, both] in [[8, 2, 1], [6, 5, 3]] {
            let [base, other, both] = [base, other, both].map(|tenths| capacity * tenths / 10);
            let (mut off, mut predicted) = (Vec::new(), 0.0);
            for seed in 0..SEEDS {
                let seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let [mut a, mut b] = [0; 2].map(|_| filter(&params(rate, capacity, 0, seed)));
                add_all(&mut a, 0..base);
                add_all(&mut b, base - both..base - both + other);
                let merged = union(&[&a, &b]).items() as f64;
                let mut all = a;
                add_all(&mut all, base - both..base - both + other);
                predicted = spread(&all, all.items() as f64).sqrt();
                off.push(merged - all.items() as f64);
            }
            let count = SEEDS as f64;
            let mean = off.iter().sum::<f64>() / count;
            let squares: f64 = off.iter().map(|off| (off - mean).powi(2)).sum();
            let deviation = (squares / (count - 1.0)).sqrt();
            let least = if rate > 0.01 { 0.0 } else { 0.84 };
            let bound = 4.5 * predicted / count.sqrt() + 0.5;
            hold &= mean.abs() < bound && (least..1.16).contains(&(deviation / predicted));
            table += &format!(
                "{rate:>8} {base:>6} + {other:>6} - {both:>5} of {capacity:>6}: off by \
                 {mean:>6.2} ± {deviation:>6.2}, predicted {predicted:>6.2}\n"
            );
        }
    }
    println!("{table}");
    assert!(hold, "{table}");
}

/// A shard is merged with the same shard alone, and the union is that shard.
#[test]
fn only_the_same_shards_are_merged() {
    let shard = |shard: Option<Shard>| filter(&Params { shard, ..params(0.01, 100, 2, 9) });
    let (five, six, other_count) = (Shard::new(5, 8), Shard::new(6, 8), Shard::new(5, 16));
    let differ = Err(Unmergeable::Differ("shard"));
    for other in [six, other_count, None] {
        assert_eq!(merge(&mut shard(five), &[&shard(other)]), differ);
        assert_eq!(merge(&mut shard(other), &[&shard(five)]), differ);
    }
    let (mut destination, mut source) = (shard(five), shard(five));
    add_all(&mut destination, 0..70);
    add_all(&mut source, 50..90);
    assert_eq!(merge(&mut destination, &[&source]), Ok(()));
    assert_eq!(destination.shard(), five);
    assert!((0..90).all(|number| has(&destination, &item(0, number))));
}

fn config() -> Config {
    Config {
        cases: 300,
        rng_algorithm: RngAlgorithm::XorShift,
        rng_seed: RngSeed::Fixed(0x3E46E),
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// Filters that got any items, before and after they had grown: a union holds every item of
    /// each, is independent of the order, and is stored and loaded; a refusal changes nothing.
    #[test]
    fn no_union_forgets_an_item(
        common in vec(any::<u16>(), 0..200),
        parts in vec(vec(any::<u16>(), 0..150), 1..4),
        capacity in 1..300_u64,
        expansion in 0..3_u64,
        rate in prop::sample::select(vec![0.5, 0.1, 0.01, 0.001, 1e-6]),
    ) {
        let mut start = filter(&params(rate, capacity, expansion, 9));
        let mut items = Vec::new();
        let mut put = |filter: &mut Filter, numbers: &[u16]| {
            for &number in numbers {
                let hash = filter.hash(&bytes(number));
                if filter.add(hash, |_| u64::MAX).is_ok() {
                    items.push(number);
                }
            }
        };
        put(&mut start, &common);
        let mut filters = Vec::new();
        for numbers in &parts {
            let mut filter = start.duplicate().expect("memory");
            put(&mut filter, numbers);
            filters.push(filter);
        }
        let forward: Vec<&Filter> = filters.iter().collect();
        let backward: Vec<&Filter> = filters.iter().rev().collect();
        let mut merged = forward[0].duplicate().expect("memory");
        match merge(&mut merged, &forward[1..]) {
            Ok(()) => {
                for &number in &items {
                    prop_assert!(has(&merged, &bytes(number)), "a false negative: {}", number);
                }
                let other = union(&backward);
                prop_assert!(words(&merged) == words(&other));
                prop_assert_eq!(counts(&merged), counts(&other));
                prop_assert!(merged.layers().all(|layer| layer.counted <= layer.capacity));
                let stored = Strings::of(&merged);
                prop_assert_eq!(Strings::of(&stored.filter()), stored);
            }
            Err(error) => {
                prop_assert!(matches!(error, Unmergeable::Full { .. }), "{}", error);
                prop_assert_eq!(Strings::of(&merged), Strings::of(forward[0]));
                prop_assert!(of(&backward, true).is_err());
            }
        }
    }
}
