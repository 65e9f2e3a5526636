//! Numbers out of range, in the filter and in each of its layers.

use redis_bloom::{
    codec::Error,
    filter::{Error as FilterError, MAX_LAYERS},
};

use super::check;
use crate::{
    forge::header::{
        BLOCK_WORDS, BLOCKS, CAPACITY, ERROR_RATE, EXPANSION, FIRST, ITEMS, KIND, LAYER_RATE,
        LAYERS, MAGIC, PROBES, VERSION,
    },
    sample,
};

const MAGICS: Error = Error::Malformed("the magic of another layout");
const KINDS: Error = Error::Malformed("a kind, option or rule that is not known");
const TOO_MANY: Error =
    Error::Filter(FilterError::Impossible("a layer with too many items or too few"));
const SHAPE: Error =
    Error::Filter(FilterError::Impossible("a layer that no filter of its family has"));

#[test]
fn numbers_of_the_filter_out_of_range_are_refused() {
    let many = MAX_LAYERS as u32;
    let rate = |rate| Error::Filter(FilterError::ErrorRate(rate));
    check(
        &sample::small(),
        &[
            ("another magic", MAGIC, b"rbloom2", Error::Version(u16::from(b'2'))),
            ("the magic of a chunk", MAGIC, b"rbchnk", MAGICS),
            ("no magic", MAGIC, &[0; 6], MAGICS),
            ("version 0", VERSION, &0_u16.to_le_bytes(), Error::Version(0)),
            ("version 2", VERSION, &2_u16.to_le_bytes(), Error::Version(2)),
            ("version 65535", VERSION, &[255; 2], Error::Version(65_535)),
            ("rate 0", ERROR_RATE, &0_f64.to_le_bytes(), rate(0.0)),
            ("rate -0", ERROR_RATE, &(-0_f64).to_le_bytes(), rate(-0.0)),
            ("rate 1", ERROR_RATE, &1_f64.to_le_bytes(), rate(1.0)),
            ("rate 2", ERROR_RATE, &2_f64.to_le_bytes(), rate(2.0)),
            ("rate -0.5", ERROR_RATE, &(-0.5_f64).to_le_bytes(), rate(-0.5)),
            ("rate NaN", ERROR_RATE, &f64::NAN.to_le_bytes(), rate(f64::NAN)),
            ("rate infinite", ERROR_RATE, &f64::INFINITY.to_le_bytes(), rate(f64::INFINITY)),
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
            ("no layers", LAYERS, &[0; 4], Error::Malformed("bytes behind the end")),
            ("2 of 1 layers", LAYERS, &2_u32.to_le_bytes(), Error::Truncated),
            ("65536 layers", LAYERS, &65_536_u32.to_le_bytes(), Error::Truncated),
            ("2^18 layers", LAYERS, &many.to_le_bytes(), Error::Truncated),
            ("2^18 + 1 layers", LAYERS, &(many + 1).to_le_bytes(), FilterError::Layers.into()),
            ("2^31 - 1 layers", LAYERS, &i32::MAX.to_le_bytes(), FilterError::Layers.into()),
            ("2^31 layers", LAYERS, &(1_u32 << 31).to_le_bytes(), FilterError::Layers.into()),
            ("2^32 - 1 layers", LAYERS, &[255; 4], FilterError::Layers.into()),
        ],
    );
}

#[test]
fn numbers_of_a_layer_out_of_range_are_refused() {
    let filter = sample::small();
    let at = |field| FIRST + field;
    let capacity = filter.newest().capacity;
    let rate = |rate| Error::Filter(FilterError::ErrorRate(rate));
    let small = |capacity| Error::Filter(FilterError::Capacity(capacity));
    let above = (1_u64 << 62) + 1;
    check(
        &filter,
        &[
            ("kind 1", at(KIND), &[1], KINDS),
            ("kind 255", at(KIND), &[255], KINDS),
            ("no probes", at(PROBES), &[0], SHAPE),
            ("129 probes", at(PROBES), &[129], SHAPE),
            ("255 probes", at(PROBES), &[255], SHAPE),
            ("no words", at(BLOCK_WORDS), &[0; 2], SHAPE),
            ("no blocks", at(BLOCKS), &[0; 4], SHAPE),
            ("capacity 0", at(CAPACITY), &[0; 8], small(0)),
            ("capacity 2^62 + 1", at(CAPACITY), &above.to_le_bytes(), small(above)),
            ("capacity 2^64 - 1", at(CAPACITY), &[255; 8], small(u64::MAX)),
            ("an item too many", at(ITEMS), &(capacity + 1).to_le_bytes(), TOO_MANY),
            ("2^63 items", at(ITEMS), &(1_u64 << 63).to_le_bytes(), TOO_MANY),
            ("2^64 - 1 items", at(ITEMS), &[255; 8], TOO_MANY),
            ("rate 0", at(LAYER_RATE), &0_f64.to_le_bytes(), rate(0.0)),
            ("rate 1", at(LAYER_RATE), &1_f64.to_le_bytes(), rate(1.0)),
            ("rate 2", at(LAYER_RATE), &2_f64.to_le_bytes(), rate(2.0)),
            ("rate NaN", at(LAYER_RATE), &f64::NAN.to_le_bytes(), rate(f64::NAN)),
            ("rate -NaN", at(LAYER_RATE), &(-f64::NAN).to_le_bytes(), rate(-f64::NAN)),
        ],
    );
}

/// A stack of valkey-bloom: a layer below the newest is full.
#[test]
fn an_older_layer_with_room_is_refused() {
    // Seed and ratio of the family come before the layers.
    const STACK: usize = FIRST + 32 + 8;
    const LONG: usize = 44;
    let filter = sample::small_stack();
    for (index, layer) in filter.layers().enumerate().take(2) {
        let capacity = layer.capacity;
        let at = STACK + index * LONG + 28;
        check(
            &filter,
            &[
                ("with room", at, &(capacity - 1).to_le_bytes(), TOO_MANY),
                ("empty", at, &[0; 8], TOO_MANY),
                ("an item too many", at, &(capacity + 1).to_le_bytes(), TOO_MANY),
            ],
        );
    }
    let expansion = &[0; 4];
    let broken = Error::Filter(FilterError::Impossible("a wrong number of layers"));
    check(&filter, &[("layers of a non-scaling filter", EXPANSION, expansion, broken)]);
}
