//! The memory of a filter, compared with the classic optimum and with the formulas of other
//! products.
//!
//! The classic optimum is Bloom's (1970) with a real number of probes: ln(1/p) / ln(2)^2 bits per
//! item. Bits are those of the bit arrays; `tests/server/memory.rs` measures the rest of a key on a
//! server.

use std::f64::consts::LN_2;

use redis_bloom::filter::{CellKind, Error, Params, Plan, geometry, layer_rate};

use crate::support::{CELLS, fill, filter, params};

/// Bits per item of a layer.
fn bits(capacity: u64, rate: f64) -> f64 {
    let geometry = geometry(capacity, rate)
        .unwrap_or_else(|| panic!("{capacity} items at {rate} can be addressed"));
    geometry.words() as f64 * 64.0 / capacity as f64
}

/// The classic optimum.
fn optimum(rate: f64) -> f64 {
    -rate.ln() / (LN_2 * LN_2)
}

/// Rates from `from` down to `to`, `steps` per factor of ten; both ends included.
fn rates(from: f64, to: f64, steps: u32) -> impl Iterator<Item = f64> {
    let count = ((from / to).log10() * f64::from(steps)).ceil() as u32;
    (0..=count).map(move |i| (from * 10f64.powf(-f64::from(i) / f64::from(steps))).max(to))
}

/// Capacities from `from` to `to`, `steps` per factor of ten.
fn capacities(from: f64, to: f64, steps: u32) -> impl Iterator<Item = u64> {
    let count = ((to / from).log10() * f64::from(steps)).ceil() as u32;
    (0..=count).map(move |i| (from * 10f64.powf(f64::from(i) / f64::from(steps))) as u64)
}

/// The case with the largest share of its bound.
#[derive(Default)]
struct Worst {
    /// Bits per item as a share of the bound.
    share: f64,
    capacity: u64,
    rate: f64,
}

impl Worst {
    fn see(&mut self, capacity: u64, rate: f64, bits: f64, bound: f64) {
        if bits / bound > self.share {
            *self = Self { share: bits / bound, capacity, rate };
        }
    }

    /// Prints the case, and fails if it is above the bound by more than rounding.
    #[track_caller]
    fn check(&self, title: &str) {
        let &Self { share, capacity, rate } = self;
        println!("{share:.4} of {title}: {capacity} items at {rate:.4e}");
        assert!(share > 0.5, "{title}: nothing was measured");
        assert!(share <= 1.0 + 1e-9, "{share} of {title}: {capacity} items at {rate}");
    }
}

#[test]
fn a_nonscaling_filter_stays_near_the_classic_optimum() {
    // Highest and lowest rate, and the bound as a multiple of the optimum.
    for (from, to, bound) in
        [(0.1, 0.001, 1.06), (0.000_999, 0.000_1, 1.04), (0.000_099_9, 1e-6, 1.025)]
    {
        let mut worst = Worst::default();
        for rate in rates(from, to, 100) {
            for capacity in capacities(1e4, 1e10, 12) {
                worst.see(capacity, rate, bits(capacity, rate), bound * optimum(rate));
            }
        }
        worst.check(&format!("{bound} times the optimum, {from} to {to}"));
    }
}

/// Distinct items added per counted item, in a filter whose final rate is `rate`.
///
/// A filter counts items that changed a bit: dc/dx = 1 - (1 - e^-x)^k, with the load x = k n / m.
/// So n / c is the final load over the integral, here by Simpson's rule (`sizing/mod.rs` has the
/// closed form).
fn growth(rate: f64, probes: f64) -> f64 {
    const STEPS: u32 = 1_000;
    let load = -(-rate.powf(1.0 / probes)).ln_1p();
    let counted = |i| 1.0 - (1.0 - (-load * f64::from(i) / f64::from(STEPS)).exp()).powf(probes);
    let weight = |i| match i {
        0 | STEPS => 1.0,
        _ => f64::from(2 + i % 2 * 2),
    };
    let integral: f64 =
        (0..=STEPS).map(|i| weight(i) * counted(i)).sum::<f64>() / f64::from(3 * STEPS);
    1.0 / integral
}

/// Probes and bits per item of the smallest classic filter with a whole number of probes.
fn whole(rate: f64) -> (f64, f64) {
    let with = |k: f64| (k, -k / (-rate.powf(1.0 / k)).ln_1p());
    (1..64)
        .map(|k| with(f64::from(k)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .expect("some numbers of probes")
}

#[test]
fn above_10_per_cent_the_uncounted_items_are_all_that_costs_more() {
    assert!((growth(0.5, 1.0) - 2.0 * LN_2).abs() < 1e-9, "known: 1 / (1 - (1 - ln 2) / ln 2)");
    let (mut real, mut integer) = (Worst::default(), Worst::default());
    for rate in (1..=999).map(|i| f64::from(i) / 1_000.0).filter(|&rate| rate > 0.1) {
        let (probes, classic) = whole(rate);
        for capacity in capacities(1e4, 1e10, 8) {
            let bits = bits(capacity, rate);
            let items = growth(rate, probes);
            // Up to a rate of 1/3 the bound is the optimum with a real number of probes. Above,
            // that optimum has fewer than one and a half probes, and one or two probes cost up to
            // twice as much. There the bound is the optimum with a whole number of probes.
            if rate <= 1.0 / 3.0 {
                real.see(capacity, rate, bits, 1.06 * optimum(rate) * items);
            }
            integer.see(capacity, rate, bits, 1.03 * classic * items);
        }
    }
    real.check("1.06 times the optimum for the distinct items, 10 % to 33 %");
    integer.check("1.03 times the best whole number of probes, 10 % to 99.9 %");
}

#[test]
fn a_reserved_scaling_filter_is_no_larger_than_the_formula_of_redisbloom() {
    // RedisBloom sizes the first layer of a scaling filter for half the rate: ln(2/p) / ln(2)^2
    // bits per item.
    let mut worst = Worst::default();
    for rate in rates(0.999, 1e-9, 100) {
        for capacity in capacities(1e3, 1e12, 6) {
            let bits = bits(capacity, layer_rate(rate, 0, true));
            worst.see(capacity, rate, bits, optimum(rate / 2.0));
        }
    }
    worst.check("RedisBloom's formula");
}

#[test]
fn a_small_scaling_filter_is_one_short_block() {
    // Items, rate, largest number of bytes.
    for (capacity, rate, most) in
        [(1, 0.01, 8), (10, 0.01, 16), (100, 0.01, 128), (100, 0.001, 192), (1_000, 0.01, 1_280)]
    {
        let bytes = filter(&params(rate, capacity, 2, 0)).bit_bytes();
        assert!(bytes <= most, "{capacity} items at {rate}: {bytes} bytes, at most {most}");
    }
}

#[test]
fn counters_take_four_times_the_bits() {
    for (rate, capacity, layers) in
        [(0.25, 1, 1), (0.01, 100, 4), (0.001, 1_000, 3), (1e-6, 250, 2)]
    {
        let bits = params(rate, capacity, 2, 9);
        let counters = Params { cells: CellKind::Counters, ..bits };
        let bytes = [bits, counters].map(|params| {
            let mut filter = filter(&params);
            while filter.layers().len() < layers {
                let full = filter.capacity();
                fill(&mut filter, 1, full + 1);
            }
            filter.bit_bytes()
        });
        assert_eq!(bytes[1], 4 * bytes[0], "{capacity} items at {rate}");
    }
}

#[test]
fn twelve_layers_pay_less_for_growing_than_halved_rates_would() {
    // Almeida et al. (2007) give layer i the rate p / 2^(i + 1).
    for rate in [0.05, 0.01, 0.001, 0.000_1] {
        let (ours, halved) = (0..12).fold((0.0, 0.0), |(ours, halved), index| {
            let layer = bits(10_000, layer_rate(rate, index, true));
            (ours + layer, halved + bits(10_000, rate / f64::from(2 << index)))
        });
        assert!(ours < halved, "{rate}: {} against {} bits an item", ours / 12.0, halved / 12.0);
    }
}

#[test]
fn the_plan_for_a_number_of_items_is_the_filter_that_holds_them() {
    // A filter of bits: it grows as items are counted.
    let few = params(0.01, 100, 2, 7);
    let mut grown = filter(&few);
    for items in [0, 1, 50, 100, 101, 299, 300, 301, 700, 701, 5_000] {
        fill(&mut grown, 1, items);
        let plan = Plan::for_items(&few, items).expect("a plan");
        assert_eq!(plan, Plan::of(&grown), "{items} items");
        assert_eq!(plan.bytes(), grown.bytes(), "{items} items");
    }
    // Filters of both kinds: they grow when they are told to.
    for cells in CELLS {
        for (rate, capacity, expansion) in
            [(0.3, 1, 1), (0.01, 1_000, 2), (1e-9, 70_000, 3), (1e-40, 10, 30)]
        {
            let params = Params { cells, ..params(rate, capacity, expansion, 7) };
            let mut grown = filter(&params);
            for layers in 1..4 {
                let items = grown.capacity();
                let plan = Plan::for_items(&params, items).expect("a plan");
                let case = format!("{params:?}, {layers} layers");
                assert_eq!(plan.layers.len(), layers, "{case}");
                assert_eq!(plan.bytes(), grown.bytes(), "{case}");
                for (planned, layer) in plan.layers.iter().zip(grown.layers()) {
                    assert_eq!(planned.shape, layer.shape(), "{case}");
                    assert_eq!(planned.capacity, layer.capacity(), "{case}");
                    assert_eq!(planned.error_rate, layer.error_rate(), "{case}");
                }
                grown.grow(|_| u64::MAX).expect("memory for a layer");
            }
        }
    }
}

#[test]
fn a_plan_that_no_filter_can_follow_is_refused() {
    let nonscaling = params(0.01, 100, 0, 7);
    assert_eq!(Plan::for_items(&nonscaling, 100).map(|plan| plan.layers.len()), Ok(1));
    assert_eq!(Plan::for_items(&nonscaling, 101), Err(Error::Full));
    assert_eq!(Plan::for_items(&params(0.01, 1, 1, 7), u64::MAX), Err(Error::Layers));
    let wide = Plan::for_items(&params(0.01, 1 << 62, 2, 7), 1);
    assert!(matches!(wide, Err(Error::Ceiling { .. })), "{wide:?}");
    assert_eq!(Plan::for_items(&params(1.0, 100, 2, 7), 1), Err(Error::ErrorRate(1.0)));
    assert_eq!(Plan::for_items(&params(0.1, 0, 2, 7), 1), Err(Error::Capacity(0)));
}
