//! The records of version 3: a shard that cannot be, and records of kinds that are not known.

use redis_bloom::{
    codec::{Error, native::dump::Load},
    filter::{Broken, CellKind, FIXED_SEED, Family, Params, Plan, TIGHTENING, Valkey},
    sharding::{MAX_SHARDS, Shard},
};

use super::check;
use crate::{
    forge::{self, header::FIRST},
    sample,
    support::{CELLS, Strings, filter, params},
};

/// Offsets in the header of a filter with one record, which follows the family's byte.
const RECORDS: usize = FIRST + 1;
const KIND: usize = RECORDS + 2;
const LENGTH: usize = KIND + 2;
const INDEX: usize = LENGTH + 4;
const COUNT: usize = INDEX + 2;
const LAYERS: usize = COUNT + 2;

#[test]
fn a_shard_that_cannot_be_is_refused() {
    let filter = sample::shard_of(CellKind::Bits);
    let shard = |index, count| Error::Shard { index, count };
    check(
        &filter,
        &[
            ("no shards", COUNT, &[0, 0], shard(5, 0)),
            ("too few shards", COUNT, &[5, 0], shard(5, 5)),
            ("the shard behind the last", INDEX, &[8, 0], shard(8, 8)),
            ("shard 65,535", INDEX, &[255, 255], shard(u16::MAX, 8)),
            ("1,025 shards", COUNT, &(MAX_SHARDS + 1).to_le_bytes(), shard(5, MAX_SHARDS + 1)),
            ("65,535 shards", COUNT, &[255, 255], shard(5, u16::MAX)),
            ("a record of kind 0", KIND, &[0, 0], Error::Record(0)),
            ("a record of kind 2", KIND, &[2, 0], Error::Record(2)),
            ("a record of kind 32,767", KIND, &[255, 127], Error::Record(32_767)),
            ("a record that is too long", LENGTH, &[5, 0, 0, 0], Error::Excess(1)),
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
    for cells in CELLS {
        let filter = sample::shard_of(cells);
        let (_, header) = redis_bloom::codec::native::dump::header(&filter);
        let shard = &header[INDEX..LAYERS];
        let optional = |kind: u16| (kind | 1 << 15, &b"any bytes"[..]);
        let records = [optional(0), (1, shard), optional(7), optional(7), (u16::MAX, b"")];
        let load = Load::begin(&with_records(&header, &records), u64::MAX).expect("a header");
        assert_eq!(load.filter().shard(), Shard::new(5, 8));
        // Chunks of the same filter without the records fit.
        assert!(load.began_with(&header));
        for (records, expected) in [
            (&[(1, shard), (1, shard)][..], Error::Record(1)),
            (&[(1, shard), (3, b"matters")], Error::Record(3)),
        ] {
            let refused = Load::begin(&with_records(&header, records), u64::MAX);
            assert_eq!(refused.map(|_| ()), Err(expected));
        }
        // Without a shard it is the filter that takes all items.
        let plain = Load::begin(&with_records(&header, &[]), u64::MAX).expect("a header");
        assert_eq!(plain.filter().shard(), None);
        assert!(!plain.began_with(&header), "the chunks of a shard are of another filter");
    }
}

/// A filter that no shard is has the bytes that it had before there were shards.
#[test]
fn only_a_shard_has_records() {
    let versions = |filter| Strings::of(filter).0[0][6];
    let [bits, counters, shard] = sample::smalls();
    assert_eq!([versions(&bits), versions(&counters), versions(&shard)], [1, 2, 3]);
    let back = shard.with_shard(None);
    assert_eq!(Strings::of(&back), Strings::of(&bits));
    // The header of a shard differs in the version and the record alone.
    let (with, without) =
        (Strings::of(&sample::shard_of(CellKind::Counters)), Strings::of(&counters));
    let (with, without) = (&with.0[0], &without.0[0]);
    assert_eq!(with[8..RECORDS], without[8..RECORDS]);
    assert_eq!(with[RECORDS..LAYERS], [1, 0, 1, 0, 4, 0, 0, 0, 5, 0, 8, 0]);
    assert_eq!(with[LAYERS..with.len() - 8], without[RECORDS..without.len() - 8]);
}

/// Filters of other products are no shards: their own encodings have no place for it.
#[test]
fn a_filter_of_another_product_is_no_shard() {
    let shard = Shard::new(0, 2).expect("in range");
    let valkey = Valkey { seed: FIXED_SEED, tightening: TIGHTENING };
    let params = Params { cells: CellKind::Bits, ..params(0.01, 100, 2, 0) };
    let foreign = redis_bloom::filter::Filter::of_valkey(valkey, &params, u64::MAX);
    let mut plan = Plan::of(&foreign.expect("memory"));
    assert_eq!((plan.family, plan.check()), (Family::Valkey(valkey), Ok(())));
    plan.shard = Some(shard);
    assert_eq!(plan.check(), Err(Broken::Shard(shard)));
    assert_eq!(Plan { shard: plan.shard, ..Plan::of(&filter(&params)) }.check(), Ok(()));
}
