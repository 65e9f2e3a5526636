//! What a filter refuses: parameters out of range, more memory than the ceiling or the machine
//! allows, items when it is full.

use redis_bloom::filter::{
    Bits, Demand, Error, Expansion, Filter, Geometry, Hash, Layer, LayerPlan, MAX_CAPACITY,
    MAX_EXPANSION, Params, Shape, geometry, scale,
};

use crate::probe::all_positions;
use crate::support::{Strings, add, fill, filter, has, item, params, stack};

/// All words of all layers, and their counts.
fn bits(filter: &Filter) -> Vec<(u64, Vec<u64>)> {
    filter.layers().map(|layer| (layer.counted, layer.bits().words().to_vec())).collect()
}

#[test]
fn rates_and_capacities_out_of_range_are_refused() {
    let refused = [
        (0.0, 100),
        (-0.0, 100),
        (1.0, 100),
        (1.5, 100),
        (-0.01, 100),
        (f64::INFINITY, 100),
        (f64::NEG_INFINITY, 100),
        (f64::NAN, 100),
        (0.01, 0),
        (0.01, MAX_CAPACITY + 1),
        (0.01, u64::MAX),
    ];
    for (rate, capacity) in refused {
        for expansion in [0, 2] {
            let params = params(rate, capacity, expansion, 0);
            let outcome = Filter::new(&params, u64::MAX).map(|_| ()).expect_err("refused");
            let expected =
                if capacity == 100 { Error::ErrorRate(rate) } else { Error::Capacity(capacity) };
            // Compared as text, because NaN does not equal NaN.
            assert_eq!(format!("{outcome:?}"), format!("{expected:?}"), "{params:?}");
        }
    }
    for (rate, capacity) in [(5e-324, 1), (1.0 - f64::EPSILON / 2.0, 1), (0.999_999, 7), (0.01, 1)]
    {
        let mut filter = filter(&params(rate, capacity, 2, 0));
        fill(&mut filter, 1, capacity);
    }
}

#[test]
fn expansions_range_from_none_to_32768() {
    let largest = u64::from(MAX_EXPANSION);
    assert_eq!(largest, 32_768);
    assert_eq!(Expansion::new(0), Ok(Expansion::NONSCALING));
    assert_eq!(Expansion::NONSCALING.factor(), None);
    for factor in [1, 2, 3, 255, 256, 32_767, largest] {
        let expansion = Expansion::new(factor).expect("in range");
        assert_eq!(expansion.factor().map(u64::from), Some(factor));
    }
    for factor in [largest + 1, 65_535, 65_536, 65_537, 1 << 32, u64::MAX] {
        assert_eq!(Expansion::new(factor), Err(Error::Expansion(factor)));
    }
}

#[test]
fn a_filter_may_take_its_ceiling_and_not_a_byte_more() {
    for (rate, capacity, expansion) in [(0.01, 10, 2), (0.01, 100_000, 0), (1e-6, 100_000, 4)] {
        let params = params(rate, capacity, expansion, 0);
        let wanted = filter(&params).bit_bytes();
        assert!(Filter::new(&params, wanted).is_ok(), "{params:?}");
        for ceiling in [wanted - 1, wanted / 2, 0] {
            let outcome = Filter::new(&params, ceiling).map(|_| ());
            assert_eq!(outcome, Err(Error::Ceiling { wanted, ceiling }), "{params:?}");
        }
    }
}

#[test]
fn growth_says_what_it_wants_and_obeys_the_ceiling_exactly() {
    for expansion in [1, 2, 7] {
        let mut filter = stack(&params(0.01, 50, expansion, 9));
        for round in 0..5 {
            let capacity = filter.capacity();
            fill(&mut filter, round, capacity);
            let before = bits(&filter);
            let present = filter.bit_bytes();
            let absent = (0..)
                .map(|number| item(100, number))
                .find(|item| !has(&filter, item))
                .expect("one that is absent");
            let hash = filter.hash(&absent);
            // Adding a present item to a full filter does not ask for the ceiling.
            let (known, unasked) =
                (filter.hash(&item(round, 0)), |_| panic!("a present item needs no memory"));
            assert_eq!(filter.add(known, unasked), Ok(false));
            let mut told = None;
            let outcome = filter.add(hash, |demand| {
                told = Some(demand);
                0
            });
            let Err(Error::Ceiling { wanted, ceiling: 0 }) = outcome else {
                panic!("round {round}: {outcome:?}");
            };
            assert_eq!(told, Some(Demand { present, wanted }), "round {round}");
            assert_eq!(
                filter.add(hash, |_| wanted - 1),
                Err(Error::Ceiling { wanted, ceiling: wanted - 1 })
            );
            assert_eq!(bits(&filter), before, "round {round}: a refusal changed the filter");
            assert_eq!(filter.add(hash, |_| wanted), Ok(true));
            assert_eq!(filter.bit_bytes(), wanted, "round {round}");
        }
    }
}

#[test]
fn a_full_nonscaling_filter_refuses_new_items_and_accepts_present_ones() {
    for (rate, capacity) in [(0.01, 1), (0.9, 3), (0.5, 100), (0.000_1, 1_000)] {
        let mut filter = filter(&params(rate, capacity, 0, 3));
        let count = fill(&mut filter, 1, capacity);
        let before = Strings::of(&filter);
        let (mut refused, mut present) = (0, 0);
        for number in 0..1_000 {
            let hash = filter.hash(&item(2, number));
            let known = filter.contains(hash);
            match filter.add(hash, |_| u64::MAX) {
                Ok(false) if known => present += 1,
                Err(Error::Full) if !known => refused += 1,
                other => panic!("{capacity} items at {rate}: {other:?}, known: {known}"),
            }
        }
        assert!(refused > 0 && refused + present == 1_000, "{capacity} items at {rate}");
        assert!((0..count).all(|number| has(&filter, &item(1, number))));
        assert_eq!(Strings::of(&filter), before, "{capacity} items at {rate}");
    }
}

#[test]
fn each_layer_is_the_last_times_the_expansion() {
    for (expansion, capacities) in [
        (1, [10, 10, 10, 10]),
        (2, [10, 20, 40, 80]),
        (3, [10, 30, 90, 270]),
        (10, [10, 100, 1_000, 10_000]),
    ] {
        let made = params(0.01, 10, expansion, 0);
        let mut filter = stack(&made);
        while filter.layers().len() < 4 {
            filter.grow(|_| u64::MAX).expect("memory for a small layer");
        }
        let got: Vec<u64> = filter.layers().map(|layer| layer.capacity).collect();
        assert_eq!(got, capacities, "expansion {expansion}");
        assert_eq!(filter.capacity(), capacities.iter().sum::<u64>());
        assert_eq!(filter.params(), made);
        assert_eq!(filter.older().len(), 3);
    }
}

#[test]
fn requests_beyond_memory_are_refused_and_allocate_nothing() {
    for (rate, capacity) in [
        (1e-300, 1 << 60),
        (5e-324, MAX_CAPACITY),
        (0.01, MAX_CAPACITY),
        (0.99, MAX_CAPACITY),
        (0.01, 1 << 48),
    ] {
        for ceiling in [u64::MAX, 1 << 40, 0] {
            let params = params(rate, capacity, 2, 0);
            let outcome = Filter::new(&params, ceiling).map(|filter| filter.bit_bytes());
            assert!(
                matches!(outcome, Err(Error::Ceiling { .. } | Error::OutOfMemory(_))),
                "{params:?}: {outcome:?}"
            );
        }
    }
}

#[test]
fn bit_arrays_of_impossible_sizes_are_refused() {
    for words in [0, 1 << 45, 1 << 55, (1 << 55) + 1, 1 << 60, 1 << 61, u64::MAX] {
        let outcome = Bits::zeroed(words).map(|bits| bits.words().len());
        assert_eq!(outcome, Err(Error::OutOfMemory(words.saturating_mul(8))), "{words} words");
    }
    let shape = Shape::Blocked(Geometry { blocks: u32::MAX, block_words: u16::MAX, probes: 1 });
    let plan = LayerPlan { capacity: 1, items: 0, error_rate: 0.5, shape };
    assert!(matches!(plan.empty(), Err(Error::OutOfMemory(_))));
}

#[test]
fn a_bit_array_starts_at_zero_and_counts_its_bits() {
    let mut bits = Bits::zeroed(1_000).expect("8 kB");
    assert!(bits.words().iter().all(|&word| word == 0));
    assert_eq!(bits.count_ones(), 0);
    bits.words_mut()[0] = 1;
    bits.words_mut()[999] = u64::MAX;
    assert_eq!(bits.count_ones(), 65);
    // A prefetch is a hint, so any index is allowed.
    for index in [0, 999, 1_000, 1 << 40, usize::MAX] {
        bits.prefetch(index);
    }
}

/// Ten billion items need more bits, and more words, than 32 bits count. Both ends of the array
/// must be reachable, at the places that 128-bit arithmetic gives; a truncation would wrap around
/// to the beginning.
#[test]
fn the_last_block_of_ten_billion_items_is_where_128_bits_say() {
    const ITEMS: u64 = 10_000_000_000;
    for rate in [0.01, 0.000_1] {
        let shape = geometry(ITEMS, rate).expect("64 bits can address it");
        let words = shape.words();
        assert!(
            words > 1 << 30 && words * 64 > ITEMS * 9,
            "{words} words for {ITEMS} items at {rate}"
        );
        assert_eq!(u128::from(words), u128::from(shape.blocks) * u128::from(shape.block_words));
        let len = u64::from(shape.block_words);
        for block in [0, 1 << 31, 1 << 32, 1 << 63, u64::MAX - 1, u64::MAX] {
            let wide = (u128::from(block) * u128::from(shape.blocks)) >> 64;
            assert_eq!(u128::from(scale(block, shape.blocks.into())), wide, "block of {block:#x}");
            let start = wide * u128::from(len);
            assert!(start + u128::from(len) <= u128::from(words), "block of {block:#x}");
            for probes in [0, 1, u64::MAX / 3, u64::MAX] {
                let positions = all_positions(Hash { block, probes }, shape);
                let inside = positions.iter().all(|&at| at < len * 64);
                assert!(inside, "probes of {probes:#x} leave the block");
            }
        }
    }
}

/// Tests both ends of a real array of 13 GB, of which two blocks are touched.
#[test]
#[ignore = "needs a kernel that lends 13 GB: make test-huge"]
fn the_ends_of_ten_billion_items_hold_their_items() {
    let (capacity, error_rate) = (10_000_000_000, 0.01);
    let geometry = geometry(capacity, error_rate).expect("64 bits can address it");
    let shape = Shape::Blocked(geometry);
    let plan = LayerPlan { capacity, items: 0, error_rate, shape };
    let mut layer = plan.empty().expect("a kernel that lends it");
    let ends = [0, u64::MAX].map(|block| Hash { block, probes: 12_345 });
    for hash in ends {
        assert!(!layer.contains(hash));
        layer.add(hash);
        assert!(layer.contains(hash));
    }
    let (len, words) = (usize::from(geometry.block_words), layer.bits().words());
    let ones = |words: &[u64]| words.iter().map(|word| word.count_ones()).sum::<u32>();
    let most = u32::from(geometry.probes);
    for end in [&words[..len], &words[words.len() - len..]] {
        assert!((1..=most).contains(&ones(end)), "{} bits at an end", ones(end));
    }
    assert_eq!(words.len() as u64, shape.words());
}

/// Resident bytes of this process.
#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    let kib = line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
    kib * 1024
}

#[test]
#[cfg(target_os = "linux")]
fn an_empty_filter_of_a_gigabyte_costs_no_resident_memory() {
    let params = params(0.01, 800_000_000, 2, 0);
    let before = resident();
    let mut filter = filter(&params);
    assert!(filter.bit_bytes() > 1_000_000_000);
    for number in 0..1_000 {
        assert!(add(&mut filter, &item(1, number)));
    }
    // 1,000 items touch a page each. Other tests run in this process at the same time.
    let taken = resident().saturating_sub(before);
    assert!(taken < 300_000_000, "{taken} bytes resident");
}

#[test]
fn the_bytes_of_a_filter_count_its_struct_and_its_layers() {
    let filter = filter(&params(0.01, 100, 2, 0));
    assert_eq!(filter.bytes(), filter.bit_bytes() + size_of::<Filter>() as u64);
    let allocations = |filter: &Filter| filter.memory(|at| usize::from(!at.is_null()));
    assert_eq!(allocations(&filter), 1);
    let mut stack = stack(&params(0.01, 100, 2, 0));
    let first = stack.bytes() - stack.bit_bytes();
    for index in 1..10 {
        stack.grow(|_| u64::MAX).expect("memory for a small layer");
        let list = stack.bytes() - stack.bit_bytes() - first;
        assert!(list >= index * size_of::<Layer>() as u64, "{index} older layers, {list} bytes");
        // Bits and box of each layer, the older layers, and what holds these.
        assert_eq!(allocations(&stack) as u64, 2 * (index + 1) + 2);
    }
}

/// A native filter that scales goes on in pages.
#[test]
fn a_full_scaling_filter_overflows_and_still_knows_its_items() {
    let mut filter = filter(&params(1e-9, 100, 2, 0));
    fill(&mut filter, 1, 100);
    let before = Strings::of(&filter);
    let hash = filter.hash(b"new");
    assert_eq!(filter.add(hash, |_| panic!("no memory is asked for")), Err(Error::Overflow));
    let known = filter.hash(&item(1, 0));
    assert_eq!(filter.add(known, |_| panic!("no memory is asked for")), Ok(false));
    let (batch, mut answered) = ([item(1, 5), item(1, 6), item(2, 0), item(1, 7)], Vec::new());
    let each = batch.iter().map(<[u8; 16]>::as_slice);
    let outcome = filter.add_each(each, |_| u64::MAX, |new| answered.extend(new.each()));
    assert_eq!((outcome, answered), (Err(Error::Overflow), vec![false, false]));
    assert_eq!(Strings::of(&filter), before);
}

#[test]
fn a_duplicate_is_equal_and_apart() {
    let mut original = filter(&params(0.01, 3_000, 2, 5));
    fill(&mut original, 1, 1_000);
    let before = Strings::of(&original);
    let mut copy = original.duplicate().expect("memory for a small filter");
    assert_eq!(Strings::of(&copy), before);
    assert_eq!(copy.params(), original.params());
    fill(&mut copy, 2, 2_000);
    assert_eq!(Strings::of(&original), before, "the copy shares memory with the original");
}

#[test]
fn equal_parameters_and_items_make_equal_filters_and_other_seeds_make_others() {
    let make = |params: Params| {
        let mut filter = filter(&params);
        fill(&mut filter, 1, 500);
        Strings::of(&filter)
    };
    let first = params(0.01, 500, 2, 5);
    assert_eq!(make(first), make(first));
    let bits = |strings: Strings| strings.0[1].clone();
    assert_ne!(bits(make(first)), bits(make(Params { seed: 6, ..first })));
}
