//! Sizes above the bits that are present, above the ceiling, and above what can be allocated.

use redis_bloom::{
    codec::{
        Error,
        native::{Load, Taken, dump, rdb},
    },
    filter::{Error as FilterError, Filter},
};

use super::{OVERHEAD, refused};
use crate::{
    allocation::peak,
    forge::{
        self,
        header::{BLOCK_WORDS, BLOCKS, FIRST, PRESENT},
    },
    sample,
    support::{Reading, Strings, filter, params},
};

#[test]
fn headers_that_announce_too_many_bits_are_refused() {
    let filter = sample::small();
    let total = filter.bit_bytes();
    let (_, header) = dump::header(&filter);
    for present in [total + 1, total + 8, 2 * total, 1 << 32, 1 << 63, u64::MAX - 7, u64::MAX] {
        let error =
            refused(&forge::patched(&header, PRESENT, &present.to_le_bytes()), 1 << 20, "present");
        assert_eq!(error, Error::TooBig { from: 0, to: present, total });
    }
    // A file ends between words.
    for present in 1..total {
        let header = forge::patched(&header, PRESENT, &present.to_le_bytes());
        assert!(Load::begin(&header, 1 << 20).is_err(), "a dump has no bits in its header");
        let strings = Strings(vec![header, vec![0; present as usize]]);
        let read = rdb::load(&mut Reading(strings.0.iter()), 1 << 20);
        assert_eq!(read.is_ok(), present.is_multiple_of(8), "{present} bytes present");
    }
}

#[test]
fn enormous_shapes_are_refused_before_anything_is_allocated() {
    let (_, header) = dump::header(&sample::small());
    let shape = |header: &[u8], words: u16, blocks: u32| {
        let header = forge::patched(header, FIRST + BLOCK_WORDS, &words.to_le_bytes());
        forge::patched(&header, FIRST + BLOCKS, &blocks.to_le_bytes())
    };
    for (words, blocks) in [(u16::MAX, u32::MAX), (1, u32::MAX), (4_096, 1 << 31), (u16::MAX, 16)] {
        let forged = shape(&header, words, blocks);
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
}

/// What the header of a dump announces is allocated as it arrives, too: 2^51 bytes cost nothing,
/// and a chunk of them eight times its own size.
#[test]
fn what_a_dump_announces_is_not_allocated() {
    const CAME: usize = 1 << 16;
    let (_, header) = dump::header(&filter(&params(0.01, 20, 2, 1)));
    for blocks in [1 << 16, 1 << 24, u32::MAX] {
        let forged = forge::patched(&header, FIRST + BLOCK_WORDS, &[255; 2]);
        let forged = forge::patched(&forged, FIRST + BLOCKS, &blocks.to_le_bytes());
        let (begun, most) = peak(|| Load::begin(&forged, u64::MAX));
        let mut load = begun.expect("any shape will do");
        assert!(most < OVERHEAD, "{most} bytes for {blocks} blocks");
        assert!(load.layered().expect("layers").bytes() < OVERHEAD as u64, "{blocks} blocks");
        assert_eq!(
            load.layered().expect("layers").bit_bytes(),
            u64::from(blocks) * u64::from(u16::MAX) * 8
        );
        let (garbage, most) = peak(|| load.take(9, b"garbage", |_| u64::MAX));
        assert!(garbage.is_err() && most < OVERHEAD, "{most} bytes");
        for chunk in 0..4 {
            let first = chunk * CAME;
            let data = forge::frame_of(&forged, first as u64, &[0; CAME]);
            let (taken, most) = peak(|| load.take((first + CAME) as i64 + 1, &data, |_| u64::MAX));
            assert_eq!(taken, Ok(Taken::Next));
            // While it grows, the old array is there beside the new one, which is counted from 0.
            assert!(most < (first + CAME) * 8 + OVERHEAD, "{most} bytes for chunk {chunk}");
            let room = load.bytes();
            assert!(room <= (first + CAME) as u64 * 8, "{room} bytes for chunk {chunk}");
            assert!(load.layered().expect("layers").bytes() - room < OVERHEAD as u64);
        }
        let copy = load.duplicate().expect("there is memory");
        let bytes = |load: &Load| (load.bytes(), load.layered().map(Filter::bytes));
        assert_eq!(bytes(&copy), bytes(&load));
        assert_eq!(forge::stored(&copy), forge::stored(&load));
    }
}

/// Memory is allocated as the bits arrive, at most eight times their size: however many bits the
/// header announces, for a complete filter and for a half-loaded one.
#[test]
fn announced_bits_that_do_not_arrive_are_not_allocated() {
    const CAME: usize = 1 << 16;
    let (_, header) = dump::header(&filter(&params(0.01, 20, 2, 1)));
    for blocks in [1 << 16, 1 << 20, 1 << 24, 1 << 28, u32::MAX] {
        let forged = forge::patched(&header, FIRST + BLOCK_WORDS, &64_u16.to_le_bytes());
        let forged = forge::patched(&forged, FIRST + BLOCKS, &blocks.to_le_bytes());
        let announced = u64::from(blocks) * 64 * 8;
        for present in [announced, announced / 2] {
            let forged = forge::patched(&forged, PRESENT, &present.to_le_bytes());
            for pieces in [0, 1, 3] {
                let strings = Strings([vec![forged.clone()], vec![vec![0; CAME]; pieces]].concat());
                let read = || rdb::load(&mut Reading(strings.0.iter()), u64::MAX).map(|_| ());
                let (outcome, most) = peak(read);
                assert_eq!(outcome, Err(Error::Truncated), "{blocks} blocks, {present} bytes");
                // While an array grows, the old and the new one are both allocated.
                let bound = pieces * CAME * 9 + OVERHEAD;
                assert!(most < bound, "{most} bytes for {pieces} pieces of {present} bytes");
            }
        }
    }
}

#[test]
fn a_filter_as_large_as_the_ceiling_is_accepted() {
    let filter = sample::small();
    let total = filter.bit_bytes();
    let (_, header) = dump::header(&filter);
    assert!(Load::begin(&header, total).is_ok());
    let expected = Error::Filter(FilterError::Ceiling { wanted: total, ceiling: total - 1 });
    assert_eq!(refused(&header, total - 1, "a byte too many"), expected);
}
