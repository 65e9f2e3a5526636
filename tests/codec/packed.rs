//! Packed batches: the three formats against a plain parser, blobs that are refused, the bits of
//! the answers, and filters that are filled and queried in every format.

use std::num::NonZeroUsize;

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngAlgorithm, RngSeed, TestRunner},
};
use redis_bloom::{
    codec::packed::{BadByte, Format, Packed, pack, pack_answers},
    filter::{Answers, Filter},
};

use crate::support::{Strings, filter, params};

fn width(bytes: usize) -> Format {
    Format::Width(NonZeroUsize::new(bytes).expect("a width"))
}

fn items(format: Format, blob: &[u8]) -> Result<Vec<&[u8]>, BadByte> {
    Packed::new(format, blob).map(|packed| packed.items().collect())
}

/// A format, a blob, and what is read from it.
type Row<'a, T> = (Format, &'a [u8], T);

/// The layouts are in AOF files and in programs of users: these rows must never change.
#[test]
fn the_formats_are_read_as_documented() {
    let long = [&[0xAC, 0x02][..], &[b'x'; 300]].concat();
    let rows: [Row<&[&[u8]]>; 22] = [
        (Format::Lines, b"", &[]),
        (Format::Lines, b"\n", &[b""]),
        (Format::Lines, b"a", &[b"a"]),
        (Format::Lines, b"a\n", &[b"a"]),
        (Format::Lines, b"a\nb", &[b"a", b"b"]),
        (Format::Lines, b"a\nb\n", &[b"a", b"b"]),
        (Format::Lines, b"\n\na\n\n", &[b"", b"", b"a", b""]),
        (Format::Lines, b" a \r\n\0\n\xFF", &[b" a \r", b"\0", b"\xFF"]),
        (Format::Lengths, b"", &[]),
        (Format::Lengths, b"\0", &[b""]),
        (Format::Lengths, b"\x01a\0\x02b\n", &[b"a", b"", b"b\n"]),
        (Format::Lengths, &long, &[&[b'x'; 300]]),
        // A length need not be the shortest form.
        (Format::Lengths, b"\x81\0a\x01b", &[b"a", b"b"]),
        (Format::Lengths, b"\x81\x80\x80\x80\x80\x80\x80\x80\x80\0a", &[b"a"]),
        (Format::Lengths, b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\0", &[b""]),
        (width(1), b"", &[]),
        (width(1), b"a\n\0", &[b"a", b"\n", b"\0"]),
        (width(2), b"abcd", &[b"ab", b"cd"]),
        (width(3), b"abc", &[b"abc"]),
        (width(8), &[0; 16], &[&[0; 8], &[0; 8]]),
        (width(4096), &[7; 4096], &[&[7; 4096]]),
        (width(4096), b"", &[]),
    ];
    for (format, blob, expected) in rows {
        let shown = blob[..blob.len().min(20)].escape_ascii();
        assert_eq!(items(format, blob), Ok(expected.to_vec()), "{format:?} \"{shown}\"");
    }
}

#[test]
fn a_malformed_blob_is_refused_at_the_item_that_does_not_parse() {
    let rows: [Row<usize>; 17] = [
        (Format::Lengths, b"\x01", 0),
        (Format::Lengths, b"\x02a", 0),
        (Format::Lengths, b"\x01a\x03bc", 2),
        (Format::Lengths, b"\x01a\x80", 2),
        (Format::Lengths, b"\0\0\xFF", 2),
        (Format::Lengths, b"\x80\x01", 0),
        // Eleven bytes, though the length is 1.
        (Format::Lengths, b"\x81\x80\x80\x80\x80\x80\x80\x80\x80\x80\0a", 0),
        (Format::Lengths, b"\x01a\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 2),
        // 2^64, 2^64 - 1 and 2^63: more than 64 bits, and lengths that no blob has.
        (Format::Lengths, b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02a", 0),
        (Format::Lengths, b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01a", 0),
        (Format::Lengths, b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01a", 0),
        (Format::Lengths, b"\x80\x80\x80\x80\x10a", 0),
        (width(2), b"a", 0),
        (width(2), b"abc", 2),
        (width(8), &[0; 23], 16),
        (width(4096), &[0; 4095], 0),
        (width(4096), &[0; 4097], 4096),
    ];
    for (format, blob, byte) in rows {
        let shown = blob[..blob.len().min(20)].escape_ascii();
        assert_eq!(items(format, blob), Err(BadByte(byte)), "{format:?} \"{shown}\"");
    }
}

/// Answers of a filter, chunk by chunk: answer `i` is `yes[i]`.
fn answers(yes: &[bool]) -> Vec<Answers> {
    let mut filter = filter(&params(1e-9, 1_000, 2, 7));
    let known = yes.iter().enumerate().filter(|(_, yes)| **yes);
    for (at, _) in known {
        crate::support::add(&mut filter, &at.to_le_bytes());
    }
    let names: Vec<_> = (0..yes.len()).map(usize::to_le_bytes).collect();
    let mut chunks = Vec::new();
    filter.contains_each(names.iter().map(|name| &name[..]), |chunk| chunks.push(chunk));
    chunks
}

/// The bits as SETBIT sets them.
fn setbit(yes: impl IntoIterator<Item = bool>) -> Vec<u8> {
    let mut bits = Vec::new();
    for (at, yes) in yes.into_iter().enumerate() {
        bits.resize(at / 8 + 1, 0);
        bits[at / 8] |= u8::from(yes) << (7 - at % 8);
    }
    bits
}

#[test]
fn the_answer_for_item_i_is_bit_i_as_setbit_counts() {
    let golden: [(&[u8], &[u8]); 5] = [
        (b"", b""),
        (b"1", b"\x80"),
        (b"0000000", b"\0"),
        (b"00000001", b"\x01"),
        (b"110000010", b"\xC1\0"),
    ];
    for (digits, bytes) in golden {
        let yes: Vec<_> = digits.iter().map(|&digit| digit == b'1').collect();
        assert_eq!(pack_answers(answers(&yes).into_iter()), bytes, "{}", digits.escape_ascii());
    }
    for count in [1, 63, 64, 65, 127, 128, 129, 500] {
        let yes: Vec<_> = (0..count).map(|at| at % 3 == 0 || at % 7 == 2).collect();
        assert_eq!(pack_answers(answers(&yes).into_iter()), setbit(yes), "{count} answers");
    }
}

/// A replica adds what is left of a batch after an item was refused, in chunks of its own.
#[test]
fn short_chunks_leave_no_gap_between_answers() {
    let lengths = [0, 1, 5, 63, 64, 65, 130];
    for first in lengths {
        for second in lengths {
            let of = |count: usize, step| (0..count).map(|at| at % step == 0).collect::<Vec<_>>();
            let (one, two) = (of(first, 3), of(second, 2));
            let empty = Answers::default();
            let chunks = answers(&one).into_iter().chain([empty]).chain(answers(&two));
            let expected = setbit(one.iter().chain(&two).copied());
            assert_eq!(pack_answers(chunks), expected, "{first} and {second} answers");
        }
    }
}

/// What a plain loop reads from a blob; `None` if the blob is malformed.
fn plain(format: Format, blob: &[u8]) -> Option<Vec<Vec<u8>>> {
    match format {
        Format::Lines => {
            let mut lines: Vec<_> = blob.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
            if lines.last().is_some_and(Vec::is_empty) {
                lines.pop();
            }
            Some(lines)
        }
        Format::Width(width) => {
            let whole = blob.len() % width == 0;
            whole.then(|| blob.chunks(width.get()).map(<[u8]>::to_vec).collect())
        }
        Format::Lengths => {
            let (mut all, mut at) = (Vec::new(), 0);
            while at < blob.len() {
                let (mut length, mut shift) = (0_u128, 0);
                loop {
                    let byte = *blob.get(at)?;
                    at += 1;
                    length |= u128::from(byte & 0x7F) << shift;
                    shift += 7;
                    if byte < 0x80 {
                        break;
                    }
                    if shift == 70 {
                        return None;
                    }
                }
                let end = at.checked_add(usize::try_from(length).ok()?)?;
                all.push(blob.get(at..end)?.to_vec());
                at = end;
            }
            Some(all)
        }
    }
}

/// Runs a property on 1,000 random values with a fixed seed.
fn for_all<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>, test: impl Fn(T)) {
    let config = Config {
        cases: 1_000,
        rng_algorithm: RngAlgorithm::XorShift,
        rng_seed: RngSeed::Fixed(0xB100_F117),
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&strategy, |value| {
        test(value);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Bytes that are often line ends, small lengths and continued lengths.
fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(b'\n'), 0..4_u8, 0x80..0x84_u8, any::<u8>()];
    vec(byte, 0..most)
}

#[test]
fn any_bytes_are_read_as_a_plain_loop_reads_them() {
    for_all((bytes(60), 1..10_usize), |(blob, bytes)| {
        for format in [Format::Lines, Format::Lengths, width(bytes)] {
            let read = items(format, &blob);
            let expected = plain(format, &blob);
            assert_eq!(
                read.ok(),
                expected.as_ref().map(|all| all.iter().map(|item| &item[..]).collect())
            );
        }
    });
}

#[test]
fn pack_writes_what_lengths_reads() {
    let item = prop_oneof![
        8 => bytes(5),
        2 => vec(any::<u8>(), 100..300),
        1 => vec(any::<u8>(), 16_300..16_500),
    ];
    for_all(vec(item, 0..8), |all| {
        let blob = pack(all.iter().map(Vec::as_slice));
        assert_eq!(items(Format::Lengths, &blob), Ok(all.iter().map(Vec::as_slice).collect()));
        let packed = Packed::new(Format::Lengths, &blob).expect("a blob");
        let odd = all.iter().skip(1).step_by(2).map(Vec::as_slice);
        assert_eq!(packed.select((0..all.len()).map(|at| at % 2 == 1)), pack(odd));
    });
}

/// Every answer of one pass over a filter: additions, then queries.
fn work<'a>(filter: &mut Filter, items: impl Iterator<Item = &'a [u8]> + Clone) -> [Vec<bool>; 2] {
    let mut answers = [Vec::new(), Vec::new()];
    filter
        .add_each(items.clone(), |_| u64::MAX, |chunk| answers[0].extend(chunk.each()))
        .expect("a filter that grows");
    filter.contains_each(items, |chunk| answers[1].extend(chunk.each()));
    answers
}

/// The items are of one width and without line ends, so that every format can hold them.
#[test]
fn every_format_gives_the_answers_and_the_bits_of_a_list() {
    let batches = (1..9_usize, vec(vec(0..4_u8, 0..200), 1..4));
    for_all(batches, |(bytes, batches)| {
        let make = || filter(&params(0.1, 400, 2, 9));
        let (mut listed, mut packed) = (make(), [make(), make(), make()]);
        for batch in &batches {
            let items: Vec<_> = batch.iter().map(|&byte| std::vec![byte; bytes]).collect();
            let list = items.iter().map(Vec::as_slice);
            let blobs = [
                (Format::Lines, items.join(&b'\n')),
                (Format::Lengths, pack(list.clone())),
                (width(bytes), items.concat()),
            ];
            let expected = work(&mut listed, list);
            for ((format, blob), filter) in blobs.iter().zip(&mut packed) {
                let items = Packed::new(*format, blob).expect("a blob").items();
                assert_eq!(work(filter, items), expected, "{format:?}");
            }
        }
        for filter in packed {
            assert_eq!(Strings::of(&filter), Strings::of(&listed));
        }
    });
}
