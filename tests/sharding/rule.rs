//! The shard of an item, and the capacity of a shard.

use redis_bloom::sharding::{MAX_SHARDS, Shard, shard_capacity, shard_of};

/// The numbers of shards of the vectors.
pub(crate) const COUNTS: [u16; 7] = [2, 3, 8, 16, 64, 128, 1000];

/// An item, its CRC-32, and its shard for each of `COUNTS`.
pub(crate) type Vector = (&'static [u8], u32, [u16; 7]);

pub(crate) const VECTORS: [Vector; 9] = [
    (b"", 0, [0, 0, 0, 0, 0, 0, 0]),
    (b"a", 0xe8b7_be43, [1, 2, 7, 14, 58, 116, 909]),
    (b"123456789", 0xcbf4_3926, [1, 2, 6, 12, 50, 101, 796]),
    (b"user:1", 0x7ba5_c282, [0, 1, 3, 7, 30, 61, 482]),
    (b"https://example.com/", 0x682d_f0d4, [0, 1, 3, 6, 26, 52, 406]),
    (b"{}", 0xa3a6_bf43, [1, 1, 5, 10, 40, 81, 639]),
    (b"{a}b", 0xed42_5e59, [1, 2, 7, 14, 59, 118, 926]),
    ("münchen".as_bytes(), 0x45e4_e4ff, [0, 0, 2, 4, 17, 34, 273]),
    (b"\x00\xff", 0x6cdb_fd72, [0, 1, 3, 6, 27, 54, 425]),
];

#[test]
fn vectors() {
    for (item, crc, shards) in VECTORS {
        assert_eq!(COUNTS.map(|count| shard_of(item, count)), shards, "{item:?}");
        // With 2^15 shards, the shard is the top 15 bits of the CRC.
        assert_eq!(u32::from(shard_of(item, 1 << 15)), crc >> 17, "{item:?}");
    }
}

/// Doubles give the same: languages without 64-bit integers need them.
#[test]
fn doubles_give_the_same_shard() {
    for number in 0..100_000_u32 {
        let item = number.to_string();
        let crc = f64::from(crc32fast::hash(item.as_bytes()));
        for count in COUNTS {
            let shard = (crc * f64::from(count) / 4_294_967_296.0).floor();
            assert_eq!(f64::from(shard_of(item.as_bytes(), count)), shard, "{item}");
        }
    }
}

#[test]
fn twice_as_many_shards_are_halves() {
    for number in 0..10_000_u32 {
        let item = number.to_le_bytes();
        for count in [1, 2, 3, 7, 100, 512] {
            assert_eq!(shard_of(&item, 2 * count) / 2, shard_of(&item, count));
        }
    }
}

#[test]
fn a_shard_is_below_the_number_of_shards() {
    assert_eq!(Shard::new(0, 1).map(|shard| shard.to_string()).as_deref(), Some("0 of 1"));
    assert!(Shard::new(MAX_SHARDS - 1, MAX_SHARDS).is_some());
    for (index, count) in [(0, 0), (1, 1), (8, 8), (0, MAX_SHARDS + 1), (u16::MAX, u16::MAX)] {
        assert_eq!(Shard::new(index, count), None, "{index} of {count}");
    }
    let shard = Shard::new(5, 8).expect("in range");
    assert_eq!((shard.of(b"{}"), shard.of(b"a")), (shard, Shard::new(7, 8).expect("in range")));
    assert_eq!(shard_of(b"a", 0), 0);
}

#[test]
fn the_first_item_of_another_shard_is_found() {
    let shard = Shard::new(7, 8).expect("in range");
    let items = [&b"a"[..], b"a", b"123456789", b"a", b"{}"];
    let first = |items: &[&'static [u8]]| shard.first_foreign(items.iter().copied());
    assert_eq!(first(&items), Some((2, Shard::new(6, 8).expect("in range"))));
    assert_eq!(first(&items[3..]), Some((1, Shard::new(5, 8).expect("in range"))));
    assert_eq!(first(&items[..2]), None);
    assert_eq!(first(&[]), None);
}

/// Items that look alike spread as random ones do. The count of a shard is binomial: 5 deviations
/// are exceeded once in 1.7 million times, and there are 5 * (16 + 128) counts.
#[test]
fn items_spread_evenly() {
    const ITEMS: u32 = 200_000;
    type Maker = fn(u32) -> Vec<u8>;
    let makers: [Maker; 5] = [
        |n| n.to_string().into(),
        |n| format!("user:{n}").into(),
        |n| format!("{{\"id\":{n}}}").into(),
        |n| format!("https://example.com/page/{n}.html").into(),
        |n| u64::from(n).to_be_bytes().into(),
    ];
    for (index, make) in makers.iter().enumerate() {
        for shards in [16_u16, 128] {
            let mut counts = vec![0_u32; shards.into()];
            (0..ITEMS).for_each(|n| counts[usize::from(shard_of(&make(n), shards))] += 1);
            let mean = f64::from(ITEMS) / f64::from(shards);
            let most = counts.iter().map(|&count| f64::from(count)).fold(0.0, f64::max);
            let bound = mean + 5.0 * mean.sqrt();
            assert!(most <= bound, "kind {index}, {shards} shards: {most} of {bound}");
        }
    }
}

#[test]
fn capacity_of_a_shard() {
    // Mean 78,125,000, deviation 8,838.8.
    assert_eq!(shard_capacity(10_000_000_000, 128), Some(78_178_034));
    assert_eq!(shard_capacity(100, 1), Some(160));
    assert_eq!(shard_capacity(1, 4), Some(4));
    assert_eq!(shard_capacity(0, 8), Some(0));
    assert_eq!(shard_capacity(1, 0), None);
}
