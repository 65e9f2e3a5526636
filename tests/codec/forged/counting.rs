//! Filters with counters: the rules of filters with bits hold, and sums do not overflow.

use redis_bloom::{
    codec::Error,
    filter::{Broken, CellKind, Counting, Geometry, Layer, Plan, Shape},
};

use super::check;
use crate::{
    forge::header::{BLOCKS, FIRST, LAYER, PROBES, VERSION},
    sample, sane,
    support::{CELLS, Strings},
};

/// The header of a counting filter has a byte for the family, and layers of 48 bytes.
#[test]
fn counting_layers_are_refused_by_the_same_rules() {
    const FAMILY: usize = FIRST;
    const LAYERS_AT: usize = FIRST + 1;
    const LONG: usize = LAYER + 16;
    let filter = sample::small_of(CellKind::Counters);
    let oldest = filter.layers().next().expect("a layer");
    assert!(oldest.items() < oldest.capacity(), "deletions took some");
    let broken =
        |index, layer: &Layer| Error::Broken(Broken::Shape { index, shape: layer.shape() });
    let (blocked, layers): (_, Vec<_>) = (sample::small(), filter.layers().collect());
    let Shape::Counting(newest) = layers[2].shape() else {
        panic!("{:?}", layers[2].shape());
    };
    let zero = |geometry| {
        Error::Broken(Broken::Shape { index: 2, shape: Counting { geometry, ..newest }.into() })
    };
    check(
        &filter,
        &[
            ("version 1", VERSION, &1_u16.to_le_bytes(), Error::Kind(63)),
            ("family 1", FAMILY, &[1], Error::Options(2)),
            ("family 200", FAMILY, &[200], Error::Family(200)),
            ("kind 3 or whatever is not there", LAYERS_AT, &[99], Error::Kind(99)),
            (
                "no blocks",
                LAYERS_AT + 2 * LONG + BLOCKS,
                &[0; 4],
                zero(Geometry { blocks: 0, ..newest.geometry }),
            ),
            (
                "no probes",
                LAYERS_AT + 2 * LONG + PROBES,
                &[0],
                zero(Geometry { probes: 0, ..newest.geometry }),
            ),
        ],
    );
    // A layer of bits below layers of counters.
    let mut plan = Plan::of(&filter);
    assert_eq!(plan.check(), Ok(()));
    plan.layers[0] = Plan::of(&blocked).layers[0];
    assert_eq!(
        Err(plan.check().map_err(Error::Broken).unwrap_err()),
        Err::<(), _>(broken(0, blocked.layers().next().expect("a layer")))
    );
}

/// Forged counts: no sum overflows, and no reported number of items exceeds the capacity.
#[test]
fn forged_counts_of_items_and_deletions_make_a_sane_filter() {
    for cells in CELLS {
        // In a layer of counters the count may exceed the capacity.
        for (items, deletions) in [0, 1, 1 << 61, 1 << 62, u64::MAX]
            .into_iter()
            .filter(|&items| items <= 1 << 62 || cells == CellKind::Counters)
            .flat_map(|items| [0, 1, 1 << 32, u64::MAX].map(|deletions| (items, deletions)))
        {
            let case = format!("{cells:?}, {items} items, {deletions} deletions");
            let mut plan = Plan::of(&sample::small_of(cells));
            let newest = plan.layers[2];
            plan.layers = vec![newest; 8];
            for (index, layer) in plan.layers.iter_mut().enumerate() {
                layer.capacity = 1 << 62;
                // Below the newest layer only counting layers may have room.
                let full = cells == CellKind::Bits && index < 7;
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
