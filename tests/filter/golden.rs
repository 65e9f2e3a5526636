//! Golden vectors: values that may never change, because two servers must agree on them.
//!
//! A primary sends the parameters of a filter and the items to its replicas, not the bits. An AOF
//! and a cluster migration do the same. If a version changes the hash, the probes, or the
//! geometry, replicas of different versions hold different bits from then on,
//! and saved filters may answer "absent" for items that they hold. **A change of a value below
//! makes replicas of different versions diverge.** For the sizing such a change can
//! be right (a layer stores its own rate and shape, so old files keep working), but it must be
//! named in CHANGELOG.md. For hash, probes and block it is never right once a version is released.
//!
//! Hashes, checksums, probes and blocks were computed with the C library xxHash 0.8.4 (from
//! Python), not with the code under test. The other values were recorded from the code.

use redis_bloom::{
    filter::{
        Family, Filter, Geometry, Hash, Params, Plan, RedisBloom, Valkey, checksum, geometry, scale,
    },
    sharding::Shard,
};

use crate::{
    paged::{last_items, paged},
    probe::positions,
    support::{Strings, fill, filter, params, time},
};

/// `length` bytes: 0, 1, 2 ... 250, 0 ...
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

/// Compares the rows. Prints those that differ, in the form of the tables below.
#[track_caller]
fn check<T: PartialEq + std::fmt::Debug>(rows: impl IntoIterator<Item = (T, T)>) {
    let wrong: Vec<String> = rows
        .into_iter()
        .filter(|(golden, got)| golden != got)
        .map(|(golden, got)| format!("  golden {golden:?}\n     got {got:?}"))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} rows changed (read the top of this file):\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Length of the item, seed, the two halves of the hash. XXH3 has separate code for each range of
/// lengths: 0, 1 to 3, 4 to 8, 9 to 16, 17 to 128, 129 to 240, and longer. Items of the last range
/// use a secret expanded from the seed.
#[rustfmt::skip]
const HASHES: [(usize, u64, u64, u64); 39] = [
    (0, 0x0000_0000_0000_0000, 0x99AA_06D3_0147_98D8, 0x6001_C324_468D_497F),
    (0, 0x0123_4567_89AB_CDEF, 0xA4CB_05DB_BF09_907A, 0xAAA2_87AF_24A9_BB3A),
    (0, 0xFFFF_FFFF_FFFF_FFFF, 0x5334_EC22_748B_5FCD, 0x2D10_110A_247D_19DD),
    (1, 0x0000_0000_0000_0000, 0xA6CD_5E93_9200_0F6A, 0xC44B_DFF4_074E_ECDB),
    (1, 0x0123_4567_89AB_CDEF, 0xCFED_A148_0838_2AD3, 0xD5DD_6891_1C7F_195D),
    (1, 0xFFFF_FFFF_FFFF_FFFF, 0x4084_B473_DCC2_9B59, 0x77B2_DF5F_F42A_AB88),
    (3, 0x0000_0000_0000_0000, 0xE3B5_5F57_945A_17CF, 0x5F42_99FC_161C_9CBB),
    (3, 0x0123_4567_89AB_CDEF, 0x5910_9E2C_7580_E6E6, 0x6DB0_8023_5333_6496),
    (3, 0xFFFF_FFFF_FFFF_FFFF, 0x9DC2_9E26_B838_D9A4, 0x8FEC_B24E_5F5C_2208),
    (4, 0x0000_0000_0000_0000, 0xEB70_BF5F_C779_E9E6, 0xA611_1D53_E80A_3DB5),
    (4, 0x0123_4567_89AB_CDEF, 0x234A_845E_731E_E8C3, 0xC226_D1F5_A56D_EC1A),
    (4, 0xFFFF_FFFF_FFFF_FFFF, 0x3F8C_CC6C_A6E5_A293, 0xA708_E608_3DB5_1760),
    (8, 0x0000_0000_0000_0000, 0xE1E4_432A_6221_7FE4, 0xCFD5_0C61_C8BB_98C1),
    (8, 0x0123_4567_89AB_CDEF, 0x31B6_00D2_5B84_B1DD, 0x820D_57BE_67D0_DD52),
    (8, 0xFFFF_FFFF_FFFF_FFFF, 0x5384_D376_18C5_CACF, 0xFC4C_4F57_F161_795B),
    (9, 0x0000_0000_0000_0000, 0x16C7_69D8_3E4A_EBCE, 0x9079_3197_9DCA_3746),
    (9, 0x0123_4567_89AB_CDEF, 0x3603_CE02_1F0B_88F4, 0x38D6_48D4_CE49_FA1B),
    (9, 0xFFFF_FFFF_FFFF_FFFF, 0x87A6_F9C5_E8D2_76E8, 0x319D_E0CB_7AE5_5E6F),
    (16, 0x0000_0000_0000_0000, 0x7295_0631_8276_07E2, 0x8428_12CC_870D_CAE2),
    (16, 0x0123_4567_89AB_CDEF, 0xB14D_0B33_AEDC_79CB, 0xFDB5_7B7F_9152_AA8D),
    (16, 0xFFFF_FFFF_FFFF_FFFF, 0x044D_F9C7_A9E0_C082, 0x652C_1A33_D94D_6D99),
    (17, 0x0000_0000_0000_0000, 0x685B_C458_B37D_057F, 0xC06E_233D_F772_9217),
    (17, 0x0123_4567_89AB_CDEF, 0xF75A_265D_040E_8FB9, 0xC4E9_1051_864D_F390),
    (17, 0xFFFF_FFFF_FFFF_FFFF, 0x17C7_B437_F6A7_9DA6, 0x193A_927B_32CF_C801),
    (128, 0x0000_0000_0000_0000, 0x1479_2FC3_AF88_DC6C, 0x0532_1A0B_64D6_7B41),
    (128, 0x0123_4567_89AB_CDEF, 0xA735_B0D3_CCE9_3E16, 0xB848_932B_FC16_7ADB),
    (128, 0xFFFF_FFFF_FFFF_FFFF, 0x96E7_7A7D_42A5_239F, 0x92C0_C952_425C_1130),
    (129, 0x0000_0000_0000_0000, 0xDD5E_74AC_6B45_F54E, 0xBC30_B633_82B0_9A3B),
    (129, 0x0123_4567_89AB_CDEF, 0x7593_90B2_4BE5_EBC2, 0x1DDD_AD78_AD26_C26C),
    (129, 0xFFFF_FFFF_FFFF_FFFF, 0x05F2_A94D_235A_9BAF, 0x63DD_7F76_4AD1_CD33),
    (240, 0x0000_0000_0000_0000, 0x65B5_BE86_DA55_40E7, 0xC92B_68E1_6F83_BBB6),
    (240, 0x0123_4567_89AB_CDEF, 0xC774_9934_436F_BF97, 0xB8FF_7D7B_210B_F7D8),
    (240, 0xFFFF_FFFF_FFFF_FFFF, 0xBA86_0B4F_19A3_0B59, 0x9830_9241_3C4A_B9A7),
    (241, 0x0000_0000_0000_0000, 0xCF33_F360_799D_DCC8, 0x1CA0_D6EE_623D_9E13),
    (241, 0x0123_4567_89AB_CDEF, 0x2AFA_4A3D_A1EF_777C, 0xF1AB_75EA_E9D6_AF26),
    (241, 0xFFFF_FFFF_FFFF_FFFF, 0x0D96_FCD9_76D6_A0CE, 0x3788_BE1A_8189_7F09),
    (1000, 0x0000_0000_0000_0000, 0xF434_C5E2_44A3_D7B1, 0x02EE_4881_A4AC_653B),
    (1000, 0x0123_4567_89AB_CDEF, 0xE19F_5074_CC7F_4DA7, 0x84AD_4418_BEBE_95CF),
    (1000, 0xFFFF_FFFF_FFFF_FFFF, 0xC261_964A_BE77_EE3D, 0xCB41_5C99_44FC_8BFC),
];

#[test]
fn the_hash_of_an_item_never_changes() {
    check(HASHES.map(|golden| {
        let (length, seed, ..) = golden;
        let hash = Hash::of(&bytes(length), seed);
        (golden, (length, seed, hash.block, hash.probes))
    }));
}

#[test]
fn the_checksum_of_stored_bytes_never_changes() {
    #[rustfmt::skip]
    const CHECKSUMS: [(usize, u64); 7] = [
        (0, 0x2D06_8005_38D3_94C2),
        (1, 0xC44B_DFF4_074E_ECDB),
        (8, 0x3A1C_2D7C_85AF_88F8),
        (56, 0xBC77_D05F_F952_F606),
        (240, 0x375A_384D_957F_E865),
        (241, 0x02E8_CD95_421C_6D02),
        (1000, 0x33EF_703F_B2B2_0ED1),
    ];
    check(CHECKSUMS.map(|golden| (golden, (golden.0, checksum(&bytes(golden.0))))));
}

/// Words of the block, and the first positions of the item `golden` under seed 7.
#[rustfmt::skip]
const POSITIONS: [(u16, [u64; 12]); 10] = [
    (1, [62, 2, 63, 24, 29, 43, 59, 18, 28, 8, 8, 29]),
    (3, [188, 6, 189, 72, 89, 131, 177, 54, 85, 25, 24, 87]),
    (8, [503, 9, 265, 448, 17, 387, 202, 166, 505, 457, 160, 143]),
    (16, [1006, 531, 531, 897, 35, 262, 404, 332, 1011, 914, 832, 799]),
    (15, [943, 33, 948, 363, 448, 655, 886, 273, 427, 126, 122, 438]),
    (64, [4024, 3660, 3663, 3591, 142, 27, 82, 305, 4047, 3658, 3842, 3708]),
    (512, [32_193, 31_841, 31_864, 31_806, 1136, 1241, 1172, 1418, 32_377, 32_340, 32_273, 32_743]),
    (4096, [257_545, 257_801, 257_984, 258_035, 9091, 8906,
        8870, 8786, 259_017, 258_720, 258_703, 258_878]),
    (4095, [257_482, 9089, 258_954, 99_292, 122_438, 178_876,
        242_144, 74_730, 116_784, 34_424, 33_390, 119_752]),
    (65_535, [4_120_665, 145_460, 4_144_213, 1_589_042, 1_959_470, 2_862_673,
        3_875_200, 1_195_960, 1_868_983, 550_911, 534_373, 1_916_477]),
];

#[test]
fn the_probes_of_an_item_never_change() {
    check(POSITIONS.map(|golden| {
        let (words, _) = golden;
        (golden, (words, positions(Hash::of(b"golden", 7), words)))
    }));
}

#[test]
fn the_block_of_an_item_never_changes() {
    /// Number of blocks, and the blocks of the items `0`, `1`, `2`, `3` under seed 7.
    #[rustfmt::skip]
    const BLOCKS: [(u64, [u64; 4]); 7] = [
        (1, [0, 0, 0, 0]),
        (2, [0, 1, 1, 1]),
        (3, [1, 1, 2, 1]),
        (7, [2, 4, 5, 4]),
        (1000, [392, 624, 794, 576]),
        (2_147_483_648, [841_990_212, 1_341_530_885, 1_706_143_767, 1_237_532_320]),
        (4_294_967_295, [1_683_980_423, 2_683_061_770, 3_412_287_534, 2_475_064_640]),
    ];
    check(BLOCKS.map(|golden| {
        let block = |item: &[u8]| scale(Hash::of(item, 7).block, golden.0);
        let items: [&[u8]; 4] = [b"0", b"1", b"2", b"3"];
        (golden, (golden.0, items.map(block)))
    }));
}

/// The capacities of the columns in `GEOMETRIES`.
const CAPACITIES: [u64; 8] =
    [1, 10, 100, 1_000, 10_000, 1_000_000, 1_000_000_000, 1_000_000_000_000];

/// Blocks, words in a block, probes.
type Shape = (u32, u16, u8);

/// Rate, and the shape for each capacity.
#[rustfmt::skip]
const GEOMETRIES: [(f64, [Shape; 8]); 14] = [
    (0.9, [
        (1, 1, 1), (1, 1, 1), (1, 2, 1), (1, 18, 1), (1, 176, 1),
        (2193, 8, 1), (2_192_278, 8, 1), (2_192_277_460, 8, 1),
    ]),
    (0.5, [
        (1, 1, 1), (1, 1, 1), (1, 4, 1), (1, 32, 1), (1, 316, 1),
        (3947, 8, 1), (3_946_102, 8, 1), (3_946_101_070, 8, 1),
    ]),
    (0.25, [
        (1, 1, 1), (1, 1, 1), (1, 6, 2), (1, 51, 2), (63, 8, 2),
        (6298, 8, 2), (6_297_439, 8, 2), (3_148_719_192, 16, 2),
    ]),
    (0.1, [
        (1, 1, 1), (1, 1, 2), (1, 8, 3), (1, 78, 3), (98, 8, 3),
        (9781, 8, 3), (9_780_288, 8, 3), (2_445_173_421, 32, 3),
    ]),
    (0.05, [
        (1, 1, 1), (1, 2, 2), (1, 10, 4), (1, 100, 4), (126, 8, 4),
        (12_540, 8, 4), (12_539_846, 8, 4), (3_135_537_202, 32, 4),
    ]),
    (0.01, [
        (1, 1, 2), (1, 2, 3), (1, 16, 5), (1, 151, 6), (195, 8, 6),
        (19_456, 8, 6), (19_455_104, 8, 6), (2_447_579_830, 64, 5),
    ]),
    (0.0075, [
        (1, 1, 2), (1, 2, 4), (1, 16, 7), (1, 160, 7), (209, 8, 6),
        (20_833, 8, 6), (20_832_021, 8, 6), (2_546_498_810, 64, 6),
    ]),
    (0.001, [
        (1, 1, 2), (1, 3, 5), (1, 23, 8), (1, 226, 9), (148, 16, 9),
        (14_728, 16, 9), (14_727_143, 16, 9), (3_651_724_112, 64, 8),
    ]),
    (0.0001, [
        (1, 1, 4), (1, 4, 6), (1, 31, 10), (1, 300, 13), (24, 128, 12),
        (4837, 64, 12), (4_836_899, 64, 12), (2_417_309_439, 128, 11),
    ]),
    (1e-5, [
        (1, 1, 5), (1, 4, 12), (1, 38, 14), (1, 375, 16), (1, 3762, 15),
        (1495, 256, 15), (1_494_861, 256, 15), (1_494_860_814, 256, 15),
    ]),
    (1e-6, [
        (1, 1, 6), (1, 5, 12), (1, 46, 16), (1, 450, 20), (2, 2302, 16),
        (1795, 256, 19), (1_794_301, 256, 19), (1_794_300_753, 256, 19),
    ]),
    (1e-9, [
        (1, 1, 13), (1, 7, 23), (1, 68, 26), (1, 676, 28), (2, 3434, 24),
        (670, 1024, 29), (669_615, 1024, 29), (669_614_638, 1024, 29),
    ]),
    (1e-15, [
        (1, 2, 17), (1, 12, 34), (1, 113, 45), (1, 1127, 46), (3, 3865, 38),
        (1132, 1024, 46), (1_131_147, 1024, 46), (1_131_146_433, 1024, 46),
    ]),
    (1e-30, [
        (1, 3, 47), (1, 23, 84), (1, 226, 89), (1, 2254, 91), (6, 3864, 94),
        (566, 4096, 92), (566_036, 4096, 92), (566_035_277, 4096, 92),
    ]),
];

#[test]
fn the_geometry_of_a_layer_never_changes_unnoticed() {
    check(GEOMETRIES.map(|golden| {
        let (rate, _) = golden;
        let shape = |capacity| {
            let Geometry { blocks, block_words, probes } =
                geometry(capacity, rate).expect("bits that can be addressed");
            (blocks, block_words, probes)
        };
        (golden, (rate, CAPACITIES.map(shape)))
    }));
}

/// The checksum of all stored bytes of a filter.
fn stored(filter: &Filter) -> u64 {
    checksum(&Strings::of(filter).0.concat())
}

#[test]
fn the_bytes_of_a_filter_of_1000_items_never_change_unnoticed() {
    /// Rate, capacity, expansion; checksum. All checksums were also computed in Python, given the
    /// geometry, before the header got a family and a number of records: three zero bytes. The
    /// first three have blocks of one line, of two and of 16; the others have other
    /// lengths.
    #[rustfmt::skip]
    const FILTERS: [(f64, u64, u64, u64); 7] = [
        (0.01, 10_000, 0, 0xFF15_B067_E58C_04D0),
        (0.001, 10_000, 0, 0x0AD3_9008_7E07_FD7A),
        (0.0001, 10_000, 0, 0x8BC4_D1A6_0826_FED1),
        (0.01, 1000, 0, 0x3026_FC95_1B0D_95C6),
        (0.001, 1000, 0, 0xC33E_17C2_5559_0A62),
        (0.01, 1000, 2, 0xB328_8807_CD9F_EECC),
        (0.0001, 2000, 4, 0x7741_B61C_B7B8_6975),
    ];
    check(FILTERS.map(|golden| {
        let (rate, capacity, expansion, ..) = golden;
        let mut filter = filter(&params(rate, capacity, expansion, 0xB100_3F11_7E25_EED5));
        fill(&mut filter, 1, 1_000);
        (golden, (rate, capacity, expansion, stored(&filter)))
    }));
}

/// Chunks of BF.SCANDUMP carry the identity, and a newer server must recognize the filter. All
/// values were also computed in Python. (The filter that rounds has a capacity of 1,485.)
#[test]
fn the_identity_of_a_filter_never_changes_unnoticed() {
    const IDENTITIES: [(&str, u64); 10] = [
        ("native", 0x84B5_5862_071D_CE24),
        ("shard 1 of 4", 0x4851_7DCE_0AC5_ACDB),
        ("shard 1 of 1024", 0x4D27_28B9_B408_987D),
        ("COUNTING", 0x6818_2336_EA66_F8B2),
        ("a window of a minute", 0xC0A9_6E82_0759_1077),
        ("a window of items, NOREFRESH", 0xAD82_BAB7_49E8_0BD4),
        ("RedisBloom, 32 bits", 0xEA70_C345_18DB_B648),
        ("RedisBloom, 64 bits", 0x861C_EAA3_C972_BB9E),
        ("RedisBloom, 64 bits, rounded", 0x2B5A_5C21_C34E_5A0F),
        ("valkey-bloom", 0x0D35_17E1_7884_3792),
    ];
    let base = params(0.01, 1_000, 2, 0xB100_3F11_7E25_EED5);
    let fixed = params(0.01, 1_000, 0, 1);
    let bits = |params: &Params| Plan::of(&filter(params)).identity();
    let pages = |params, rules| Plan::of_pages(&paged(params, rules)).identity();
    let other = |family| {
        Plan::of(&Filter::of_family(family, &base, u64::MAX).expect("a filter")).identity()
    };
    let redisbloom = |hash64, rounds| other(Family::RedisBloom(RedisBloom { hash64, rounds }));
    let seed = std::array::from_fn(|i| i as u8);
    let identities = [
        bits(&base),
        bits(&Params { shard: Shard::new(1, 4), ..base }),
        bits(&Params { shard: Shard::new(1, 1024), ..base }),
        pages(&Params { counts: true, ..base }, None),
        pages(&base, Some(time(60_000, 4, true))),
        pages(&fixed, Some(last_items(8, false))),
        redisbloom(false, false),
        redisbloom(true, false),
        redisbloom(true, true),
        other(Family::Valkey(Valkey { seed, tightening: 0.5 })),
    ];
    let names = IDENTITIES.map(|(name, _)| name);
    check(IDENTITIES.into_iter().zip(names.into_iter().zip(identities)));
}
