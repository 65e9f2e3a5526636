//! The rule of sharded filters: the shard of an item. Clients in other languages compute the same,
//! so no value here may ever change.

use redis_bloom::sharding::{MAX_SHARDS, Shard, shard_of};

/// The numbers of shards of the vectors.
const COUNTS: [u16; 7] = [2, 3, 8, 16, 64, 128, 1000];

/// An item, its CRC-32, and its shard for each of `COUNTS`.
type Vector = (&'static [u8], u32, [u16; 7]);

const VECTORS: [Vector; 9] = [
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
    assert_eq!((shard_of(b"{}", 8), shard_of(b"a", 8)), (5, 7));
    assert_eq!(shard_of(b"a", 0), 0);
}

#[test]
fn the_first_item_of_another_shard_is_found() {
    let shard = |index| Shard::new(index, 8).expect("in range");
    let all = [&b"a"[..], b"a", b"123456789", b"a", b"{}"];
    for (items, foreign) in
        [(&all[..], Some(6)), (&all[3..], Some(5)), (&all[..2], None), (&[], None)]
    {
        assert_eq!(shard(7).foreign(items.iter().copied()), foreign.map(shard));
    }
}

/// The CRC is the same at each length, also where the library takes another path: 0 to 300 bytes,
/// compared with the definition, bit by bit.
#[test]
fn items_of_every_length_have_the_crc_of_the_definition() {
    let by_bits = |item: &[u8]| {
        let bit = |crc: u32, _| (crc >> 1) ^ if crc & 1 == 0 { 0 } else { 0xedb8_8320 };
        !item.iter().fold(u32::MAX, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), bit))
    };
    for length in 0..=300_u32 {
        let item: Vec<u8> = (0..length).map(|at| (at * 151 + length * 7) as u8).collect();
        let index = (u64::from(by_bits(&item)) * 1000) >> 32;
        assert_eq!(u64::from(shard_of(&item, 1000)), index, "{length} bytes");
        let shard = Shard::new(index as u16, 1000).expect("in range");
        assert_eq!(shard.foreign([&item[..]].into_iter()), None, "{length} bytes");
    }
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

const PAGE: &str = include_str!("../../docs/reference/sharding.md");

/// The first `count` cells of the rows of tables, without backquotes.
fn rows() -> Vec<Vec<String>> {
    let rows = PAGE.lines().filter(|line| line.starts_with('|'));
    let cells = |row: &str| -> Vec<String> {
        row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()
    };
    rows.map(cells).collect()
}

#[test]
fn the_page_has_the_vectors_of_the_rule() {
    let rows = rows();
    let mut head = vec!["item".to_owned(), "CRC-32".to_owned()];
    head.extend(COUNTS.map(|count| format!("n = {count}")));
    assert!(rows.contains(&head), "{head:?}");
    for (item, crc, shards) in VECTORS {
        let item = match item {
            b"" => "(empty)".to_owned(),
            b"\x00\xff" => "the bytes 00 ff".to_owned(),
            text => String::from_utf8(text.to_vec()).expect("text"),
        };
        let mut row = vec![item, format!("{crc:08x}")];
        row.extend(shards.map(|shard| shard.to_string()));
        assert!(rows.contains(&row), "{row:?}");
    }
}
