//! Every bit flipped and every length cut: a decoder refuses the bytes or returns a valid filter.

use redis_bloom::{
    codec::{
        Error,
        native::{Load, Stored, Taken, dump, rdb},
    },
    filter::Filter,
};

use crate::{
    allocation::peak,
    forge::{self, frame},
    sample, sane,
    support::{Reading, Strings, layers},
};

/// Bytes of bits that a decoder may allocate in these tests.
const CEILING: u64 = 1 << 16;

/// Runs `decode` and checks its peak of memory: the ceiling for the bits, and for the plan a
/// multiple of the input (40, 48 and 48 bytes for a layer of 32 bytes in the header).
#[track_caller]
fn within<T>(input: usize, decode: impl FnOnce() -> T) -> T {
    let (result, most) = peak(decode);
    let bound = CEILING as usize + 8 * input + 1_024;
    assert!(
        most <= bound,
        "{most} bytes were allocated for {input} bytes of input, at most {bound}"
    );
    result
}

#[track_caller]
fn read(strings: &Strings) -> Result<Stored, Error> {
    let input = strings.0.iter().map(Vec::len).sum();
    within(input, || rdb::load(&mut Reading(strings.0.iter()), CEILING))
}

#[track_caller]
fn begin(header: &[u8]) -> Result<Load, Error> {
    within(header.len(), || Load::begin(header, CEILING))
}

#[test]
fn a_flipped_bit_of_a_header_or_a_chunk_is_refused() {
    for filter in sample::smalls() {
        check_a_flipped_bit_of_a_header_or_a_chunk_is_refused(&filter);
    }
}

fn check_a_flipped_bit_of_a_header_or_a_chunk_is_refused(filter: &Filter) {
    let (_, header) = dump::header(filter);
    let (iterator, data) = dump::at(filter, 1).expect("a chunk");
    for (bytes, bit) in [(&header, 0), (&data, 1)]
        .iter()
        .flat_map(|(bytes, _)| (0..8 * bytes.len()).map(move |bit| (bytes, bit)))
    {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(begin(&damaged).is_err(), "bit {bit}");
        let mut load = begin(&header).expect("its header");
        assert!(load.take(iterator, &damaged, |_| u64::MAX).is_err(), "bit {bit}");
        assert_eq!(load.received(), 0);
        assert!(dump::repeat(filter, iterator, &damaged).is_err(), "bit {bit}");
        let mut strings = Strings::of(filter);
        strings.0[0] = damaged;
        assert!(read(&strings).is_err(), "bit {bit}");
    }
}

#[test]
fn a_header_or_a_chunk_of_any_other_length_is_refused() {
    for filter in sample::smalls() {
        check_a_header_or_a_chunk_of_any_other_length_is_refused(&filter);
    }
}

fn check_a_header_or_a_chunk_of_any_other_length_is_refused(filter: &Filter) {
    let (_, header) = dump::header(filter);
    let (iterator, data) = dump::at(filter, 1).expect("a chunk");
    let lengths = (0..header.len()).chain(header.len() + 1..header.len() + 100);
    for length in lengths {
        let mut cut = header.clone();
        cut.resize(length, 0);
        assert!(begin(&cut).is_err(), "a header of {length} bytes");
        // The same bytes with a correct checksum.
        if length >= forge::SEAL {
            forge::seal(&mut cut);
            assert!(begin(&cut).is_err(), "a sealed header of {length} bytes");
            let mut strings = Strings::of(filter);
            strings.0[0] = cut;
            assert!(read(&strings).is_err(), "a sealed header of {length} bytes");
        }
    }
    for length in (0..data.len()).chain(data.len() + 1..data.len() + 100) {
        let mut load = begin(&header).expect("its header");
        let mut cut = data.clone();
        cut.resize(length, 0);
        assert!(load.take(iterator, &cut, |_| u64::MAX).is_err(), "a chunk of {length} bytes");
        if length >= forge::SEAL {
            forge::seal(&mut cut);
            assert!(
                load.take(iterator, &cut, |_| u64::MAX).is_err(),
                "a sealed chunk of {length} bytes"
            );
        }
        assert_eq!(load.received(), 0);
    }
}

#[test]
fn any_byte_of_a_header_is_refused_or_makes_a_sane_filter() {
    for filter in sample::smalls() {
        check_any_byte_of_a_header_is_refused_or_makes_a_sane_filter(&filter);
    }
}

fn check_any_byte_of_a_header_is_refused_or_makes_a_sane_filter(filter: &Filter) {
    let strings = Strings::of(filter);
    let (mut refused, mut taken) = (0, 0);
    for at in 0..strings.0[0].len() - forge::SEAL {
        let before = strings.0[0][at];
        for byte in (0..=u8::MAX).filter(|&byte| byte != before) {
            let mut forged = strings.clone();
            forged.0[0] = forge::patched(&strings.0[0], at, &[byte]);
            match read(&forged) {
                Err(_) => refused += 1,
                Ok(stored) => {
                    taken += 1;
                    sane::check_stored(stored, CEILING);
                }
            }
            // The same numbers in the header of a dump, which announces no bits.
            let dumped = forge::patched(&forged.0[0], forge::header::PRESENT, &[0; 8]);
            if let Ok(load) = begin(&dumped) {
                sane::check_load(&load, CEILING);
            }
        }
    }
    println!("headers with one byte changed: {refused} refused, {taken} read as another filter");
    // Seed, rates, capacity and probes have other valid values, so both outcomes must occur.
    assert!(refused > 9_000 && taken > 1_000, "{refused} refused, {taken} taken");
}

#[test]
fn two_random_numbers_in_a_header_are_refused_or_make_a_sane_filter() {
    for filter in sample::smalls() {
        check_two_random_numbers_in_a_header_are_refused_or_make_a_sane_filter(&filter);
    }
}

fn check_two_random_numbers_in_a_header_are_refused_or_make_a_sane_filter(filter: &Filter) {
    let strings = Strings::of(filter);
    // splitmix64 with a fixed seed, so that each run has the same cases.
    let mut state = 0_u64;
    let mut random = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    };
    let special =
        [0, 1, 7, 8, 63, 64, 65, 127, 128, 129, 255, 1 << 16, 1 << 31, 1 << 32, 1 << 62, u64::MAX];
    for case in 0..40_000 {
        let mut forged = strings.clone();
        for _ in 0..2 {
            let size = [1, 2, 4, 8][(random() % 4) as usize];
            let at = (random() % ((strings.0[0].len() - forge::SEAL - size) as u64)) as usize;
            // Most numbers of the header are at multiples of their size.
            let at = if random() % 4 == 0 { at } else { at / size * size };
            let value = match random() % 3 {
                0 => random(),
                1 => special[(random() % 16) as usize],
                _ => random() >> (random() % 64),
            };
            forged.0[0] = forge::patched(&forged.0[0], at, &value.to_le_bytes()[..size]);
        }
        if let Ok(stored) = read(&forged) {
            sane::check_stored(stored, CEILING);
        } else if case % 2 == 0 {
            // Without bits, only the numbers can be wrong.
            let dumped = forge::patched(&forged.0[0], forge::header::PRESENT, &[0; 8]);
            if let Ok(load) = begin(&dumped) {
                sane::check_load(&load, CEILING);
            }
        }
    }
}

#[test]
fn any_change_of_a_piece_is_another_filter_or_refused() {
    for filter in sample::smalls() {
        check_any_change_of_a_piece_is_another_filter_or_refused(&filter);
    }
}

fn check_any_change_of_a_piece_is_another_filter_or_refused(filter: &Filter) {
    let strings = Strings::of(filter);
    let stream = sample::stream(filter);
    // The server's checksum of the RDB protects the bits; the codec accepts any.
    for bit in 0..8 * stream.len() {
        let mut damaged = strings.clone();
        // A string for each layer.
        let mut bits = damaged.0[1..].iter_mut().flatten();
        *bits.nth(bit / 8).expect("a byte") ^= 1 << (bit % 8);
        let Ok(Stored::Layers(mut read)) = read(&damaged) else {
            panic!("bit {bit}");
        };
        let differ: u32 =
            sample::stream(&read).iter().zip(&stream).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(differ, 1, "bit {bit}");
        sane::check_filter(&mut read, CEILING);
    }
    let [_, first, ..] = &strings.0[..] else { panic!("no bits") };
    for length in (0..first.len()).chain(first.len() + 1..first.len() + 100) {
        let mut damaged = strings.clone();
        damaged.0[1].resize(length, 0);
        assert!(read(&damaged).is_err(), "a piece of {length} bytes");
        // With the other bytes in a second string it is read if the cut is between words.
        if length < first.len() {
            damaged.0.insert(2, first[length..].to_vec());
            let good = length > 0 && length.is_multiple_of(8);
            assert_eq!(read(&damaged).is_ok(), good, "pieces of {length} bytes and the rest");
        }
    }
}

#[test]
fn missing_pieces_are_refused() {
    for filter in sample::smalls() {
        check_missing_pieces_are_refused(&filter);
    }
}

fn check_missing_pieces_are_refused(filter: &Filter) {
    let whole = Strings::of(filter);
    let mut words = Strings(vec![whole.0[0].clone()]);
    words.0.extend(whole.0[1..].iter().flat_map(|bits| bits.chunks(8)).map(<[u8]>::to_vec));
    for count in 0..words.0.len() {
        let cut = Strings(words.0[..count].to_vec());
        assert_eq!(read(&cut).map(|_| ()), Err(Error::Truncated), "{count} strings");
    }
    assert!(read(&words).is_ok());
    // An endless sequence of empty strings would never end the load.
    let mut empty = words.clone();
    empty.0.insert(3, Vec::new());
    assert!(matches!(read(&empty), Err(Error::Order { .. })));
}

#[test]
fn any_byte_of_a_chunk_is_refused_or_makes_a_sane_filter() {
    for filter in sample::smalls() {
        check_any_byte_of_a_chunk_is_refused_or_makes_a_sane_filter(&filter);
    }
}

fn check_any_byte_of_a_chunk_is_refused_or_makes_a_sane_filter(filter: &Filter) {
    let (_, header) = dump::header(filter);
    let (iterator, data) = dump::at(filter, 1).expect("a chunk");
    let newest = filter.newest();
    for at in 0..data.len() - forge::SEAL {
        let before = data[at];
        // All values for a byte of the frame, flipped bits for a byte of the filter.
        let bytes: Vec<u8> = if at < frame::bits(&data) {
            (0..=u8::MAX).filter(|&byte| byte != before).collect()
        } else {
            (0..8).map(|bit| before ^ 1 << bit).collect()
        };
        for byte in bytes {
            let forged = forge::patched(&data, at, &[byte]);
            let mut load = begin(&header).expect("its header");
            let outcome = within(forged.len(), || load.take(iterator, &forged, |_| u64::MAX));
            // The position must agree with the iterator, and the header has its own checksum.
            if at < frame::bits(&data) {
                assert!(outcome.is_err(), "byte {at} = {byte}");
            }
            let Ok(taken) = outcome else {
                assert_eq!(
                    (load.received(), load.layered().expect("layers").newest().counted),
                    (0, newest.counted)
                );
                sane::check_load(&load, CEILING);
                continue;
            };
            assert_eq!(taken, Taken::Last);
            let mut loaded = layers(load);
            assert!(loaded.newest().counted >= newest.counted, "byte {at} = {byte}");
            sane::check_filter(&mut loaded, CEILING);
            // A complete filter accepts only chunks that change nothing.
            let repeated = dump::repeat(filter, iterator, &forged);
            if byte & !before != 0 {
                assert_eq!(repeated, Err(Error::Complete), "byte {at} = {byte}");
            } else {
                assert_eq!(repeated, Ok(()), "byte {at} = {byte}");
            }
        }
    }
}
