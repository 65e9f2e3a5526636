//! Very deep stacks: with a capacity of 1 and an expansion of 1, each item makes a layer. Also the
//! shares of the error rate over many layers.

use redis_bloom::filter::{Error, Filter, Layer, LayerPlan, MAX_LAYERS, Plan, layer_rate};

use crate::support::{Strings, add, fill, filter, has, item, params};

const DEEP: u64 = 5_000;

#[test]
fn five_thousand_layers_hold_what_was_added_and_keep_the_rate() {
    let asked = 0.01;
    let mut filter = filter(&params(asked, 1, 1, 77));
    let added = fill(&mut filter, 1, DEEP);
    assert_eq!(filter.layers().len() as u64, DEEP);
    assert_eq!((filter.items(), filter.capacity()), (DEEP, DEEP));
    for number in 0..added {
        assert!(has(&filter, &item(1, number)), "item {number}");
    }
    // 30,000 queries have a standard deviation of 5.8 % at 1 %; 4.5 deviations are 26 %. The true
    // rate is about a quarter of the requested one, because a layer of one item has a whole word,
    // more bits than its share needs.
    let queries = 30_000;
    let wrong = (0..queries).filter(|&number| has(&filter, &item(2, number))).count();
    let measured = wrong as f64 / queries as f64;
    println!(
        "{DEEP} layers of one item: {measured:.5} of {asked}, {} bytes of bits",
        filter.bit_bytes()
    );
    assert!(measured < 1.26 * asked, "{measured}");
    let shares: f64 = filter.layers().map(Layer::error_rate).sum();
    assert!(shares < asked, "{shares}");
}

#[test]
fn a_deep_stack_is_stored_and_answers_in_batches() {
    let mut filter = filter(&params(0.001, 1, 1, 78));
    let added = fill(&mut filter, 1, DEEP);
    let strings = Strings::of(&filter);
    let copy = strings.filter();
    assert_eq!(Strings::of(&copy), strings);
    let items: Vec<_> = (0..added).map(|number| item(1, number)).collect();
    let mut answers = 0;
    copy.contains_each(items.iter().map(<[u8; 16]>::as_slice), |found| {
        assert_eq!(found.ones(), found.count(), "after {answers} items");
        answers += found.count();
    });
    assert_eq!(answers, items.len());
}

#[test]
fn a_filter_has_at_most_2_to_the_18_layers() {
    // Made from a plan: adding 2^18 layers one by one takes a minute.
    let mut one = filter(&params(0.5, 1, 1, 1));
    add(&mut one, b"x");
    let mut plan = Plan::of(&one);
    let layer: LayerPlan = plan.layers[0];
    plan.layers = vec![layer; MAX_LAYERS];
    assert_eq!(plan.check(), Ok(()));
    let mut filter = plan.allocate(u64::MAX).expect("2 MiB of bits");
    assert_eq!(filter.items(), MAX_LAYERS as u64);
    assert_eq!(filter.grow(|_| u64::MAX), Err(Error::Layers));
    let hash = filter.hash(b"new");
    assert_eq!(filter.add(hash, |_| u64::MAX), Err(Error::Layers));
    plan.layers.push(layer);
    assert!(plan.check().is_err());
}

#[test]
fn the_shares_of_all_layers_never_add_up_to_more_than_the_asked_rate() {
    for asked in [0.999, 0.25, 0.01, 1e-6, 1e-30] {
        let mut sum = 0.0;
        for index in 0..1 << 18 {
            let share = layer_rate(asked, index, true);
            assert!(share > 0.0 && share < asked, "{asked}, layer {index}: {share}");
            sum += share;
            // 1 - 1 / (4 (n + 1)) up to layer n, with room for 2^18 roundings.
            let whole = asked * (1.0 - 0.25 / (index as f64 + 1.0));
            assert!((sum / whole - 1.0).abs() < 1e-12, "{asked}, up to layer {index}: {sum}");
        }
        assert!(sum < asked, "{asked}: {sum}");
    }
    // No share is zero, however small the rate.
    assert!(layer_rate(5e-324, 200_000, true) > 0.0);
}

/// Servers hold millions of small filters.
#[test]
fn a_filter_is_80_bytes_and_a_layer_48() {
    assert_eq!((size_of::<Filter>(), size_of::<Layer>()), (80, 48));
}
