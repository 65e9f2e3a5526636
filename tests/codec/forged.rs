//! Numbers that no filter has, under a checksum that is right: each is refused, by its own error, before anything of
//! its size is allocated. The list of what broke the peers is in `filter/check.rs` what must hold.

use redis_bloom::{
    codec::{
        Error,
        chunk::{self, Load},
        v100,
    },
    filter::{
        Broken, Cells, Counting, Error as FilterError, Filter, Geometry, Layer, MAX_LAYERS, Plan, Shape,
    },
};

use crate::{
    allocation::peak,
    forge::{
        self,
        header::{
            BLOCK_WORDS, BLOCKS, CAPACITY, ERROR_RATE, EXPANSION, FIRST, ITEMS, KIND, LAYER, LAYER_RATE,
            LAYERS, MAGIC, PRESENT, PROBES, SEED, VERSION,
        },
    },
    sample, sane,
    support::{CELLS, Reading, Strings, fill, filter, params},
};

/// Beside the bits, for a header of some hundred bytes.
const OVERHEAD: usize = 8_192;

/// Reads a header both ways; both must refuse it alike and allocate nothing to speak of.
#[track_caller]
fn refused(header: &[u8], ceiling: u64, case: &str) -> Error {
    let (outcome, most) = peak(|| Load::begin(header, ceiling).map(|_| ()));
    let error = outcome.expect_err(case);
    assert!(most < OVERHEAD, "{case}: {most} bytes");
    let strings = Strings(vec![header.to_vec(), vec![0; 1 << 16]]);
    let (outcome, most) = peak(|| v100::load(&mut Reading(strings.0.iter()), ceiling).map(|_| ()));
    let other = outcome.expect_err(case);
    assert!(most < OVERHEAD, "{case}: {most} bytes");
    // As text: a NaN does not equal itself.
    assert_eq!(format!("{error:?}"), format!("{other:?}"), "{case}");
    error
}

/// Refuses each row: what is wrong, where, the bytes there, and the error.
#[track_caller]
fn check(base: &Filter, rows: &[(&str, usize, &[u8], Error)]) {
    let (_, header) = chunk::header(base);
    for (case, at, bytes, expected) in rows {
        let error = refused(&forge::patched(&header, *at, bytes), 1 << 20, case);
        assert_eq!(format!("{error:?}"), format!("{expected:?}"), "{case}");
    }
}

fn range(error: FilterError) -> Error {
    Error::Broken(Broken::Range(error))
}

#[test]
fn numbers_of_the_filter_out_of_range_are_refused() {
    let many = MAX_LAYERS as u32;
    let rate = |rate| range(FilterError::ErrorRate(rate));
    check(
        &sample::small(),
        &[
            (
                "another magic",
                MAGIC,
                b"rbloom2",
                Error::Version(u16::from(b'2')),
            ),
            ("the magic of a chunk", MAGIC, b"rbchnk", Error::Magic("rbloom")),
            ("no magic", MAGIC, &[0; 6], Error::Magic("rbloom")),
            ("version 0", VERSION, &0_u16.to_le_bytes(), Error::Version(0)),
            // The family takes a byte, which the layers lack.
            ("version 2", VERSION, &2_u16.to_le_bytes(), Error::Truncated),
            ("version 3", VERSION, &3_u16.to_le_bytes(), Error::Version(3)),
            ("version 65535", VERSION, &[255; 2], Error::Version(65_535)),
            ("rate 0", ERROR_RATE, &0_f64.to_le_bytes(), rate(0.0)),
            ("rate -0", ERROR_RATE, &(-0_f64).to_le_bytes(), rate(-0.0)),
            ("rate 1", ERROR_RATE, &1_f64.to_le_bytes(), rate(1.0)),
            ("rate 2", ERROR_RATE, &2_f64.to_le_bytes(), rate(2.0)),
            ("rate -0.5", ERROR_RATE, &(-0.5_f64).to_le_bytes(), rate(-0.5)),
            ("rate NaN", ERROR_RATE, &f64::NAN.to_le_bytes(), rate(f64::NAN)),
            (
                "rate infinite",
                ERROR_RATE,
                &f64::INFINITY.to_le_bytes(),
                rate(f64::INFINITY),
            ),
            (
                "expansion 32769",
                EXPANSION,
                &32_769_u32.to_le_bytes(),
                FilterError::Expansion(32_769).into(),
            ),
            (
                "expansion 65536",
                EXPANSION,
                &65_536_u32.to_le_bytes(),
                FilterError::Expansion(65_536).into(),
            ),
            (
                "expansion 65537",
                EXPANSION,
                &65_537_u32.to_le_bytes(),
                FilterError::Expansion(65_537).into(),
            ),
            (
                "expansion 2^32 - 1",
                EXPANSION,
                &[255; 4],
                FilterError::Expansion(u64::from(u32::MAX)).into(),
            ),
            (
                "layers of a non-scaling filter",
                EXPANSION,
                &[0; 4],
                Error::Broken(Broken::Layers(3)),
            ),
            ("no layers", LAYERS, &[0; 4], Error::Excess(3 * LAYER)),
            (
                "2 of 3 layers",
                LAYERS,
                &2_u32.to_le_bytes(),
                Error::Excess(LAYER),
            ),
            ("4 of 3 layers", LAYERS, &4_u32.to_le_bytes(), Error::Truncated),
            (
                "65536 layers",
                LAYERS,
                &65_536_u32.to_le_bytes(),
                Error::Truncated,
            ),
            ("2^18 layers", LAYERS, &many.to_le_bytes(), Error::Truncated),
            (
                "2^18 + 1 layers",
                LAYERS,
                &(many + 1).to_le_bytes(),
                FilterError::Layers.into(),
            ),
            (
                "2^31 - 1 layers",
                LAYERS,
                &i32::MAX.to_le_bytes(),
                FilterError::Layers.into(),
            ),
            (
                "2^31 layers",
                LAYERS,
                &(1_u32 << 31).to_le_bytes(),
                FilterError::Layers.into(),
            ),
            ("2^32 - 1 layers", LAYERS, &[255; 4], FilterError::Layers.into()),
        ],
    );
}

#[test]
fn a_header_of_no_layers_is_refused() {
    let (_, header) = chunk::header(&sample::small());
    let mut none = header[..FIRST].to_vec();
    none[LAYERS..PRESENT].copy_from_slice(&[0; 4]);
    none.extend([0; forge::SEAL]);
    forge::seal(&mut none);
    assert_eq!(
        refused(&none, 1 << 20, "no layers"),
        Error::Broken(Broken::Layers(0))
    );
}

#[test]
fn bits_that_are_not_there_are_refused() {
    let filter = sample::small();
    let total = filter.bit_bytes();
    let (_, header) = chunk::header(&filter);
    for present in [
        total + 1,
        total + 8,
        2 * total,
        1 << 32,
        1 << 63,
        u64::MAX - 7,
        u64::MAX,
    ] {
        let error = refused(
            &forge::patched(&header, PRESENT, &present.to_le_bytes()),
            1 << 20,
            "present",
        );
        assert_eq!(
            error,
            Error::TooBig {
                from: 0,
                to: present,
                total
            }
        );
    }
    // Positions inside a word are none at which a file ends.
    for present in 1..total {
        let header = forge::patched(&header, PRESENT, &present.to_le_bytes());
        assert!(
            Load::begin(&header, 1 << 20).is_err(),
            "a dump has no bits in its header"
        );
        let strings = Strings(vec![header, vec![0; present as usize]]);
        let read = v100::load(&mut Reading(strings.0.iter()), 1 << 20);
        assert_eq!(read.is_ok(), present.is_multiple_of(8), "{present} bytes present");
    }
}

#[test]
fn numbers_of_a_layer_out_of_range_are_refused() {
    let filter = sample::small();
    let shapes: Vec<Geometry> = filter
        .layers()
        .map(|layer| match layer.shape() {
            Shape::Blocked(geometry) => geometry,
            other => panic!("{other:?}"),
        })
        .collect();
    let capacities: Vec<u64> = filter.layers().map(Layer::capacity).collect();
    for index in 0..3 {
        let at = |field| FIRST + index * LAYER + field;
        let shape = shapes[index];
        let capacity = capacities[index];
        let broken = |geometry: Geometry| {
            let shape = geometry.into();
            Error::Broken(Broken::Shape { index, shape })
        };
        let items = |items, capacity| {
            Error::Broken(Broken::Items {
                index,
                items,
                capacity,
            })
        };
        let probes = |probes| broken(Geometry { probes, ..shape });
        let rate = |rate| range(FilterError::ErrorRate(rate));
        let small = |capacity| range(FilterError::Capacity(capacity));
        let above = (1_u64 << 62) + 1;
        check(
            &filter,
            &[
                ("kind 1", at(KIND), &[1], Error::Kind(1)),
                ("kind 255", at(KIND), &[255], Error::Kind(255)),
                ("no probes", at(PROBES), &[0], probes(0)),
                ("129 probes", at(PROBES), &[129], probes(129)),
                ("255 probes", at(PROBES), &[255], probes(255)),
                (
                    "no words",
                    at(BLOCK_WORDS),
                    &[0; 2],
                    broken(Geometry {
                        block_words: 0,
                        ..shape
                    }),
                ),
                (
                    "no blocks",
                    at(BLOCKS),
                    &[0; 4],
                    broken(Geometry { blocks: 0, ..shape }),
                ),
                ("capacity 0", at(CAPACITY), &[0; 8], small(0)),
                (
                    "capacity 2^62 + 1",
                    at(CAPACITY),
                    &above.to_le_bytes(),
                    small(above),
                ),
                ("capacity 2^64 - 1", at(CAPACITY), &[255; 8], small(u64::MAX)),
                (
                    "an item too many",
                    at(ITEMS),
                    &(capacity + 1).to_le_bytes(),
                    items(capacity + 1, capacity),
                ),
                (
                    "2^63 items",
                    at(ITEMS),
                    &(1_u64 << 63).to_le_bytes(),
                    items(1 << 63, capacity),
                ),
                ("2^64 - 1 items", at(ITEMS), &[255; 8], items(u64::MAX, capacity)),
                ("rate 0", at(LAYER_RATE), &0_f64.to_le_bytes(), rate(0.0)),
                ("rate 1", at(LAYER_RATE), &1_f64.to_le_bytes(), rate(1.0)),
                ("rate 2", at(LAYER_RATE), &2_f64.to_le_bytes(), rate(2.0)),
                (
                    "rate NaN",
                    at(LAYER_RATE),
                    &f64::NAN.to_le_bytes(),
                    rate(f64::NAN),
                ),
                (
                    "rate -NaN",
                    at(LAYER_RATE),
                    &(-f64::NAN).to_le_bytes(),
                    rate(-f64::NAN),
                ),
            ],
        );
        if index < 2 {
            check(
                &filter,
                &[
                    (
                        "an older layer with room",
                        at(ITEMS),
                        &(capacity - 1).to_le_bytes(),
                        items(capacity - 1, capacity),
                    ),
                    ("an empty older layer", at(ITEMS), &[0; 8], items(0, capacity)),
                    (
                        "more capacity than items",
                        at(CAPACITY),
                        &(capacity + 1).to_le_bytes(),
                        items(capacity, capacity + 1),
                    ),
                ],
            );
        }
    }
}

#[test]
fn enormous_shapes_are_refused_before_anything_is_allocated() {
    let (_, header) = chunk::header(&sample::small());
    let shape = |header: &[u8], index, words: u16, blocks: u32| {
        let header = forge::patched(header, FIRST + index * LAYER + BLOCK_WORDS, &words.to_le_bytes());
        forge::patched(&header, FIRST + index * LAYER + BLOCKS, &blocks.to_le_bytes())
    };
    for (words, blocks) in [
        (u16::MAX, u32::MAX),
        (1, u32::MAX),
        (4_096, 1 << 31),
        (u16::MAX, 16),
    ] {
        let forged = shape(&header, 2, words, blocks);
        for ceiling in [0, 1 << 20] {
            let error = refused(&forged, ceiling, "one enormous layer");
            let Error::Filter(FilterError::Ceiling { wanted, .. }) = error else {
                panic!("{words} words, {blocks} blocks: {error:?}");
            };
            let least = u64::from(words) * u64::from(blocks) * 8;
            assert!(
                (least..least + 1_000).contains(&wanted),
                "{words} words, {blocks} blocks: {wanted}"
            );
        }
    }
    // Without a ceiling the allocator refuses: 2^51 bytes.
    let forged = shape(&header, 2, u16::MAX, u32::MAX);
    assert!(matches!(
        Load::begin(&forged, u64::MAX),
        Err(Error::Filter(FilterError::OutOfMemory(_)))
    ));
}

#[test]
fn layers_that_only_together_are_too_large_are_refused() {
    // 2^48 words each: 200 of them are more than can be addressed, and 2^18 more than a u64 of bytes.
    let mut one = filter(&params(0.5, 1, 1, 1));
    fill(&mut one, 1, 1);
    let (_, header) = chunk::header(&one);
    let mut layer = header[FIRST..FIRST + LAYER].to_vec();
    layer[BLOCK_WORDS..BLOCKS].fill(255);
    layer[BLOCKS..CAPACITY].fill(255);
    for count in [200, MAX_LAYERS] {
        let mut forged = header[..FIRST].to_vec();
        forged[LAYERS..PRESENT].copy_from_slice(&(count as u32).to_le_bytes());
        forged.extend(std::iter::repeat_n(&layer, count).flatten());
        forged.extend([0; forge::SEAL]);
        forge::seal(&mut forged);
        let outcome = Load::begin(&forged, u64::MAX).map(|_| ());
        let Err(Error::Broken(Broken::Range(FilterError::Ceiling { wanted, .. }))) = outcome else {
            panic!("{count} layers: {outcome:?}");
        };
        assert!(wanted > 1 << 58, "{count} layers: {wanted}");
    }
}

#[test]
fn the_ceiling_is_the_last_byte_that_is_taken() {
    let filter = sample::small();
    let total = filter.bit_bytes();
    let (_, header) = chunk::header(&filter);
    assert!(Load::begin(&header, total).is_ok());
    let expected = Error::Filter(FilterError::Ceiling {
        wanted: total,
        ceiling: total - 1,
    });
    assert_eq!(refused(&header, total - 1, "a byte too many"), expected);
}

#[test]
fn a_filter_of_another_seed_is_a_filter() {
    // Nothing in a seed can be wrong; the items are just not found.
    let (_, header) = chunk::header(&sample::small());
    let load = Load::begin(&forge::patched(&header, SEED, &[255; 8]), 1 << 20).expect("any seed is good");
    assert_eq!(load.filter().seed(), u64::MAX);
}

#[test]
fn no_bytes_at_all_are_refused() {
    for bytes in [&b""[..], b"r", b"rbloom", b"rbloom\x01\0", &[0; 48], &[255; 48]] {
        assert!(Load::begin(bytes, 1 << 20).is_err(), "{bytes:?}");
        let strings = Strings(vec![bytes.to_vec()]);
        assert!(
            v100::load(&mut Reading(strings.0.iter()), 1 << 20).is_err(),
            "{bytes:?}"
        );
    }
    assert!(matches!(
        v100::load(&mut Reading([].iter()), 1 << 20),
        Err(Error::Truncated)
    ));
}

/// The header of a filter that counts: a byte for the family, and layers of 48 bytes.
#[test]
fn counting_layers_are_refused_by_the_same_rules() {
    const FAMILY: usize = FIRST;
    const LAYERS_AT: usize = FIRST + 1;
    const LONG: usize = LAYER + 16;
    let filter = sample::small_of(Cells::Counters);
    let oldest = filter.layers().next().expect("a layer");
    assert!(oldest.items() < oldest.capacity(), "deletions took some");
    let broken = |index, layer: &Layer| {
        Error::Broken(Broken::Shape {
            index,
            shape: layer.shape(),
        })
    };
    let (blocked, layers): (_, Vec<_>) = (sample::small(), filter.layers().collect());
    let Shape::Counting(newest) = layers[2].shape() else {
        panic!("{:?}", layers[2].shape());
    };
    let zero = |geometry| {
        Error::Broken(Broken::Shape {
            index: 2,
            shape: Counting { geometry, ..newest }.into(),
        })
    };
    check(
        &filter,
        &[
            ("version 1", VERSION, &1_u16.to_le_bytes(), Error::Kind(63)),
            ("family 1", FAMILY, &[1], Error::Options(2)),
            ("family 200", FAMILY, &[200], Error::Family(200)),
            (
                "kind 3 or whatever is not there",
                LAYERS_AT,
                &[99],
                Error::Kind(99),
            ),
            (
                "no blocks",
                LAYERS_AT + 2 * LONG + BLOCKS,
                &[0; 4],
                zero(Geometry {
                    blocks: 0,
                    ..newest.geometry
                }),
            ),
            (
                "no probes",
                LAYERS_AT + 2 * LONG + PROBES,
                &[0],
                zero(Geometry {
                    probes: 0,
                    ..newest.geometry
                }),
            ),
            (
                "more items than capacity",
                LAYERS_AT + ITEMS,
                &1_000_u64.to_le_bytes(),
                Error::Broken(Broken::Items {
                    index: 0,
                    items: 1_000,
                    capacity: 20,
                }),
            ),
        ],
    );
    // Bits below counters: the same numbers as a plan.
    let mut plan = Plan::of(&filter);
    assert_eq!(plan.check(), Ok(()));
    plan.layers[0] = Plan::of(&blocked).layers[0];
    assert_eq!(
        Err(plan.check().map_err(Error::Broken).unwrap_err()),
        Err::<(), _>(broken(0, blocked.layers().next().expect("a layer")))
    );
}

/// Counts that only a forger writes: every sum stays in its range, and nothing that is shown leaves the capacity.
#[test]
fn forged_counts_of_items_and_deletions_make_a_sane_filter() {
    for cells in CELLS {
        for (items, deletions) in [0, 1, 1 << 61, 1 << 62]
            .into_iter()
            .flat_map(|items| [0, 1, 1 << 32, u64::MAX].map(|deletions| (items, deletions)))
        {
            let case = format!("{cells:?}, {items} items, {deletions} deletions");
            let mut plan = Plan::of(&sample::small_of(cells));
            let newest = plan.layers[2];
            plan.layers = vec![newest; 8];
            for (index, layer) in plan.layers.iter_mut().enumerate() {
                layer.capacity = 1 << 62;
                // Only layers that count may have room below the newest.
                let full = cells == Cells::Bits && index < 7;
                layer.items = if full { layer.capacity } else { items };
                if let Shape::Counting(counting) = &mut layer.shape {
                    counting.deletions = deletions;
                }
            }
            assert_eq!(plan.check(), Ok(()), "{case}");
            let filter = plan.allocate(1 << 20).expect(&case);
            assert_eq!(filter.capacity(), u64::MAX, "{case}");
            assert!(filter.items() <= filter.capacity(), "{case}");
            for layer in filter.layers() {
                assert!(layer.items() <= layer.capacity(), "{case}");
                assert_eq!(layer.is_full(), layer.items() == layer.capacity(), "{case}");
            }
            let mut read = Strings::of(&filter).filter();
            assert_eq!(Strings::of(&read), Strings::of(&filter), "{case}");
            sane::check_filter(&mut read, 1 << 20);
        }
    }
}
