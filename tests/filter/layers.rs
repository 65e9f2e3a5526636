//! Very deep stacks: with a capacity of 1 and an expansion of 1 each item makes a layer.

use redis_bloom::filter::{Error, Layer, LayerPlan, MAX_LAYERS, Plan};

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
    // 30,000 queries: a standard deviation of 5.8 % of 1 %, so 4.5 of them are 26 %. The true rate is a quarter of the
    // asked one: a layer of one item has a whole word, which is better than its share.
    let queries = 30_000;
    let wrong = (0..queries)
        .filter(|&number| has(&filter, &item(2, number)))
        .count();
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
        assert!(found, "item {answers}");
        answers += 1;
    });
    assert_eq!(answers, items.len());
}

#[test]
fn a_filter_has_at_most_2_to_the_18_layers() {
    // Made from a plan: growing to it one by one takes a minute.
    let mut one = filter(&params(0.5, 1, 1, 1));
    add(&mut one, b"x");
    let mut plan = Plan::of(&one);
    let layer: LayerPlan = plan.layers[0];
    plan.layers = vec![layer; MAX_LAYERS];
    assert_eq!(plan.check(), Ok(()));
    let mut filter = plan.allocate(u64::MAX).expect("2 MiB of bits");
    assert_eq!(filter.items(), MAX_LAYERS as u64);
    assert_eq!(filter.grow(u64::MAX), Err(Error::Layers));
    let hash = filter.hash(b"new");
    assert_eq!(filter.add(hash, |_| u64::MAX), Err(Error::Layers));
    plan.layers.push(layer);
    assert!(plan.check().is_err());
}
