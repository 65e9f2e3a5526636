//! Records: a shard that cannot be, and records of kinds that are not known.

use redis_bloom::{
    codec::{
        Error,
        native::{Load, dump},
    },
    filter::{Error as FilterError, FIXED_SEED, Family, Params, Plan, TIGHTENING, Valkey},
    sharding::{MAX_SHARDS, Shard},
};

use super::{check, refused};
use crate::{
    forge::{self, header::FIRST},
    sample,
    support::{Strings, filter, params},
};

/// Offsets in the header of a filter with one record, which follows the family's byte.
const RECORDS: usize = FIRST - 2;
const KIND: usize = RECORDS + 2;
const LENGTH: usize = KIND + 2;
const INDEX: usize = LENGTH + 4;
const COUNT: usize = INDEX + 2;
const LAYERS: usize = COUNT + 2;
/// The first kind of the optional records.
const OPTIONAL: u16 = 32_768;

#[test]
fn a_shard_that_cannot_be_is_refused() {
    let filter = sample::shard();
    let unknown = Error::Malformed("a kind, option or rule that is not known");
    let shard = Error::Malformed("a shard that cannot be");
    check(
        &filter,
        &[
            ("no shards", COUNT, &[0, 0], shard),
            ("too few shards", COUNT, &[5, 0], shard),
            ("the shard behind the last", INDEX, &[8, 0], shard),
            ("shard 65,535", INDEX, &[255, 255], shard),
            ("1,025 shards", COUNT, &(MAX_SHARDS + 1).to_le_bytes(), shard),
            ("65,535 shards", COUNT, &[255, 255], shard),
            ("a record of kind 0", KIND, &[0, 0], Error::Malformed("records out of order")),
            ("a record of kind 2, pages", KIND, &[2, 0], unknown),
            ("a record of kind 3, a window", KIND, &[3, 0], Error::Truncated),
            ("a record of kind 4", KIND, &[4, 0], unknown),
            ("a record of kind 32,767", KIND, &[255, 127], unknown),
            (
                "a record that is too long",
                LENGTH,
                &[5, 0, 0, 0],
                Error::Malformed("bytes behind the end"),
            ),
            ("a record that is too short", LENGTH, &[3, 0, 0, 0], Error::Truncated),
            ("an endless record", LENGTH, &[255; 4], Error::Truncated),
        ],
    );
}

/// The header with other records in the place of its own.
fn with_records(header: &[u8], records: &[(u16, &[u8])]) -> Vec<u8> {
    let mut out = header[..RECORDS].to_vec();
    out.extend((records.len() as u16).to_le_bytes());
    for (kind, bytes) in records {
        out.extend(kind.to_le_bytes());
        out.extend((bytes.len() as u32).to_le_bytes());
        out.extend(*bytes);
    }
    out.extend(&header[LAYERS..]);
    forge::seal(&mut out);
    out
}

/// A later release may write records that this one does not know. It says by their kinds whether
/// the filter is the same without them.
#[test]
fn records_of_later_releases_are_skipped_or_refused() {
    let filter = sample::shard();
    let (_, header) = dump::header(&filter);
    let shard = &header[INDEX..LAYERS];
    let records = [(1, shard), (OPTIONAL, b"any bytes"), (OPTIONAL + 7, b""), (u16::MAX, b"x")];
    let load = Load::begin(&with_records(&header, &records), u64::MAX).expect("a header");
    assert_eq!(load.layered().expect("layers").shard(), Shard::new(5, 8));
    // The filter is the one without the optional records, which are not written again.
    assert!(load.began_with(&header));
    assert_eq!(dump::header(load.layered().expect("layers")).1, header);
    let refused = Load::begin(&with_records(&header, &[(1, shard), (4, b"matters")]), u64::MAX);
    assert_eq!(
        refused.map(|_| ()),
        Err(Error::Malformed("a kind, option or rule that is not known"))
    );
}

/// A header whose records are all optional is that of the filter that takes all items.
#[test]
fn a_filter_with_optional_records_alone_is_a_plain_one() {
    let (_, header) = dump::header(&sample::shard());
    let (_, plain) = dump::header(&sample::small());
    let optional = [(OPTIONAL, &b"any bytes"[..]), (u16::MAX, b"")];
    for records in [&optional[..0], &optional[..1], &optional] {
        let load = Load::begin(&with_records(&header, records), u64::MAX).expect("a header");
        assert_eq!(load.layered().expect("layers").shard(), None);
        assert!(load.began_with(&plain), "{records:?}");
        assert_eq!(dump::header(load.layered().expect("layers")).1, plain, "{records:?}");
        assert!(!load.began_with(&header), "the chunks of a shard are of another filter");
    }
}

/// Kinds ascend from 1 on.
#[test]
fn records_out_of_order_are_refused() {
    let (_, header) = dump::header(&sample::shard());
    let shard = &header[INDEX..LAYERS];
    let (first, next) = ((OPTIONAL, &b"x"[..]), (OPTIONAL + 1, &b""[..]));
    for (case, records) in [
        ("a shard twice", &[(1, shard), (1, shard)][..]),
        ("a shard behind an optional record", &[first, (1, shard)]),
        ("an optional record twice", &[(1, shard), first, first]),
        ("optional records that descend", &[(1, shard), next, first]),
        ("kind 0 alone", &[(0, b"")]),
        ("kind 0 behind a shard", &[(1, shard), (0, b"")]),
    ] {
        let error = refused(&with_records(&header, records), u64::MAX, case);
        assert_eq!(error, Error::Malformed("records out of order"), "{case}");
    }
}

#[test]
fn only_shards_have_records() {
    let [plain, _, shard] = sample::smalls();
    // The header of a shard differs in the record alone.
    let (with, without) = (Strings::of(&shard), Strings::of(&plain));
    let (with, without) = (&with.0[0], &without.0[0]);
    assert_eq!(with[..RECORDS], without[..RECORDS]);
    assert_eq!(with[RECORDS..LAYERS], [1, 0, 1, 0, 4, 0, 0, 0, 5, 0, 8, 0]);
    assert_eq!(with[LAYERS..with.len() - 8], without[FIRST..without.len() - 8]);
}

/// The headers of small filters as the first release writes them.
#[test]
fn headers_keep_their_bytes() {
    let header = |shard| {
        let empty = filter(&Params { shard, ..params(0.01, 100, 2, 0x5EED) });
        let (_, header) = dump::header(&empty);
        header.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    // Seed, rate, expansion, number of layers, bytes of bits that follow.
    let start = "ed5e000000000000 7b14ae47e17a843f 02000000 01000000 0000000000000000";
    // Probes, words of a block, blocks, capacity, items, rate.
    let layer = "07 1000 01000000 6400000000000000 0000000000000000 b81e85eb51b87e3f";
    for (shard, behind) in [
        (None, format!("00 0000 00 {layer} cd506d8e65052456")),
        (Shard::new(5, 8), format!("00 0100 0100 04000000 0500 0800 00 {layer} 58c7bb8be555ab0f")),
    ] {
        let expected = format!("72626c6f6f6d 0100 {start} {behind}").replace(' ', "");
        assert_eq!(header(shard), expected, "{shard:?}");
    }
}

/// Filters of other products are no shards, because their own encodings have no place for it: none
/// becomes one, and a header that says so is refused.
#[test]
fn a_filter_of_another_product_is_no_shard() {
    let shard = Shard::new(0, 2).expect("in range");
    let valkey = Valkey { seed: FIXED_SEED, tightening: TIGHTENING };
    let params = Params { shard: Some(shard), ..params(0.01, 100, 2, 0) };
    let foreign = redis_bloom::filter::Filter::of_family(Family::Valkey(valkey), &params, u64::MAX);
    let foreign = foreign.expect("memory");
    assert_eq!(foreign.shard(), None);
    let mut plan = Plan::of(&foreign);
    assert_eq!((plan.family, plan.check()), (Family::Valkey(valkey), Ok(())));
    plan.shard = Some(shard);
    assert_eq!(plan.check(), Err(FilterError::Impossible("a shard that another product made")));
    assert_eq!(Plan::of(&filter(&params)).shard, Some(shard));
}
