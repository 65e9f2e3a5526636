//! Filters of RedisBloom: they give its answers item by item, and are written back to its format
//! unchanged. Forged ones are refused.

mod hostile;
pub(crate) mod product;
mod stored;

use redis_bloom::{
    codec::{
        Error,
        native::{Load, Taken, dump},
        redisbloom,
    },
    filter::{Error as FilterError, Filter, Plan},
};

use crate::{
    sample, sane,
    support::{Strings, layers},
};
use product::{Answers, Fields, REDISBLOOM, Value};

/// The filter of a fixture.
#[track_caller]
fn filter(name: &str) -> Filter {
    redisbloom::load(&mut product::fields(name).read(), 4, u64::MAX)
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Adds the later items and compares each answer with RedisBloom's.
#[track_caller]
fn add_later_items(filter: &mut Filter, answers: &Answers, name: &str) {
    for (number, &expected) in answers.later.iter().enumerate() {
        let item = format!("later-{number}");
        let hash = filter.hash(item.as_bytes());
        let answer = match filter.add(hash, |_| u64::MAX) {
            Ok(new) => u8::from(new),
            Err(FilterError::Full) => 2,
            Err(error) => panic!("{name}: {item}: {error}"),
        };
        assert_eq!(answer, expected, "{name}: {item}");
    }
    product::check_later(filter, answers, name);
}

#[test]
fn a_dump_answers_and_grows_as_in_redisbloom() {
    for name in REDISBLOOM {
        let (mut filter, answers) = (filter(name), Answers::read(name));
        product::check_first(&filter, &answers, name);
        add_later_items(&mut filter, &answers, name);
    }
}

#[test]
fn items_added_in_a_batch_get_the_same_answers() {
    for name in REDISBLOOM {
        let (mut filter, answers) = (filter(name), Answers::read(name));
        let items: Vec<_> = (0..answers.later.len()).map(|i| format!("later-{i}")).collect();
        // A batch ends at the first error.
        let expected: Vec<_> =
            answers.later.iter().copied().take_while(|&answer| answer < 2).collect();
        let mut found = Vec::new();
        let outcome = filter.add_each(
            items.iter().map(String::as_bytes),
            |_| u64::MAX,
            |new| found.extend(new.each().map(u8::from)),
        );
        assert_eq!(found, expected, "{name}");
        assert_eq!(outcome.is_ok(), found.len() == items.len(), "{name}");
    }
}

#[test]
fn loaded_chunks_are_dumped_again_byte_for_byte() {
    for name in REDISBLOOM {
        let pieces = product::pieces(name);
        let mut load =
            Load::begin(&pieces[0].1, u64::MAX).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(load.began_with(&pieces[0].1));
        let last = pieces.len() - 1;
        for (index, (iterator, data)) in pieces.iter().enumerate().skip(1) {
            // The half-loaded filter is valid, and a client may repeat a chunk.
            sane::check_load(&load, u64::MAX);
            let taken = load
                .take(*iterator, data, |_| u64::MAX)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(taken, if index == last { Taken::Last } else { Taken::Next }, "{name}");
            if index < last {
                assert_eq!(load.take(*iterator, data, |_| u64::MAX), Ok(Taken::Repeated), "{name}");
            }
        }
        let mut loaded = layers(load);
        assert_eq!(Strings::of(&loaded), Strings::of(&filter(name)), "{name}");

        let mut given = vec![dump::header(&loaded)];
        while let Some(next) = dump::at(&loaded, given[given.len() - 1].0) {
            given.push(next);
        }
        // The bits per item may differ in the last bit, because they come from different
        // logarithms.
        let per_item =
            |layer: &[u8]| u64::from_le_bytes(layer[32..40].try_into().expect("eight bytes"));
        let layers = given[0].1[20..].chunks(53).zip(pieces[0].1[20..].chunks(53));
        for (ours, theirs) in layers {
            assert!(per_item(ours).abs_diff(per_item(theirs)) <= 1, "{name}");
            assert_eq!((&ours[..32], &ours[40..]), (&theirs[..32], &theirs[40..]), "{name}");
        }
        assert_eq!(given[0].1[..20], pieces[0].1[..20], "{name}");
        assert_eq!(given[1..], pieces[1..], "{name}");
        for (iterator, data) in &pieces[1..] {
            assert_eq!(dump::repeat(&loaded, *iterator, data), Ok(()), "{name}");
        }
        let answers = Answers::read(name);
        add_later_items(&mut loaded, &answers, name);
    }
}

/// The start of each layer in the stream stays right when a filter grows and is copied. The layers
/// of old files are not whole words.
#[test]
fn a_filter_that_grew_here_is_dumped_and_loaded() {
    for name in REDISBLOOM {
        let mut grown = filter(name);
        add_later_items(&mut grown, &Answers::read(name), name);
        let copy = grown.duplicate().expect("memory");
        for filter in [grown, copy] {
            let words = filter.layers().map(|layer| layer.bits().words().len() as u64);
            assert_eq!(filter.bit_bytes(), 8 * words.sum::<u64>(), "{name}");
            let pieces = sample::dump(&filter);
            assert_eq!(pieces.len(), 1 + filter.layers().len(), "{name}");
            let mut load = Load::begin(&pieces[0].1, u64::MAX).expect("its header");
            for (iterator, data) in &pieces[1..] {
                load.take(*iterator, data, |_| u64::MAX)
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            assert_eq!(Strings::of(&layers(load)), Strings::of(&filter), "{name}");
        }
    }
}

#[test]
fn chunks_out_of_place_are_refused() {
    let pieces = product::pieces("redisbloom-2.8-grown");
    let (first, second) = (&pieces[1], &pieces[2]);
    let begun = || Load::begin(&pieces[0].1, u64::MAX).expect("a header");
    let mut load = begun();
    assert!(matches!(load.take(second.0, &second.1, |_| u64::MAX), Err(Error::Order { .. })));
    // Layers of 48 and 176 bytes: a chunk may not reach from one into the next.
    let both = [first.1.as_slice(), &second.1].concat();
    assert!(matches!(load.take(second.0, &both, |_| u64::MAX), Err(Error::TooBig { .. })));
    assert!(matches!(
        load.take(first.0 - 1, &first.1[..47], |_| u64::MAX),
        Err(Error::Unaligned { .. })
    ));
    assert!(matches!(load.take(first.0, &[], |_| u64::MAX), Err(Error::Unaligned { .. })));
    for iterator in [0, -1, 1, 47, i64::MIN] {
        assert_eq!(
            load.take(iterator, &first.1, |_| u64::MAX),
            Err(Error::Malformed("a chunk that begins before the first byte"))
        );
    }
    assert!(matches!(load.take(i64::MAX, &first.1, |_| u64::MAX), Err(Error::Order { .. })));
    // Two halves give the same bits as the whole chunk.
    assert_eq!(load.take(25, &first.1[..24], |_| u64::MAX), Ok(Taken::Next));
    assert_eq!(load.take(49, &first.1[24..], |_| u64::MAX), Ok(Taken::Next));
    assert_eq!(load.received(), 48);
}

/// Older encoding versions have the same values, without some of the numbers.
#[test]
fn older_encoding_versions_are_read() {
    for (name, version, options) in [
        ("redisbloom-2.8-rounded-64", 3, Some(4)),
        ("redisbloom-2.8-rounded-64", 2, Some(4)),
        ("redisbloom-2.8-rounded-32", 2, Some(0)),
        ("redisbloom-2.8-rounded-32", 1, None),
        ("redisbloom-2.8-grown", 3, Some(5)),
    ] {
        let Fields(mut fields) = product::fields(name);
        assert_eq!(fields[2], Value::Unsigned(options.unwrap_or(0)));
        fields.drain(if options.is_some() { 3..4 } else { 2..4 });
        // Before 2.2 the number of bits of a rounded layer was left at 0.
        if name.contains("rounded") {
            let first = if options.is_some() { 3 } else { 2 };
            for bits in (first + 4..fields.len()).step_by(8) {
                assert!(matches!(fields[bits], Value::Unsigned(1024 | 4096)), "{name}");
                fields[bits] = Value::Unsigned(0);
            }
        }
        let fields = Fields(fields);
        let mut filter = redisbloom::load(&mut fields.read(), version, u64::MAX)
            .unwrap_or_else(|error| panic!("{name} as version {version}: {error}"));
        let answers = Answers::read(name);
        product::check_first(&filter, &answers, name);
        if !name.contains("grown") {
            add_later_items(&mut filter, &answers, name);
        }
    }
}

/// RedisBloom 2.8 read the layer of the fixture from version 0. Its bytes are not whole words.
#[test]
fn version_0_is_read() {
    let name = "redisbloom-2.8-encver-0";
    let Fields(fields) = product::fields(name);
    // Without options, growth, number of bits and n2.
    let fields = Fields([&fields[..2], &fields[4..8], &fields[10..]].concat());
    let mut filter =
        redisbloom::load(&mut fields.read(), 0, u64::MAX).expect("a file of version 0");
    let answers = Answers::read(name);
    product::check_first(&filter, &answers, name);
    assert_eq!(plan_of_its_dump(&filter), Plan::of(&filter));
    add_later_items(&mut filter, &answers, name);
}

/// In the header of a dump the capacity had 32 bits before 2.2.4, and there was no growth before
/// 2.2.
#[test]
fn older_headers_of_dumps_are_read() {
    let name = "redisbloom-2.8-rounded-64";
    let pieces = product::pieces(name);
    let header = &pieces[0].1;
    for with_growth in [true, false] {
        let mut old = header[..16].to_vec();
        if with_growth {
            old.extend(&header[16..20]);
        }
        for layer in header[20..].chunks_exact(53) {
            old.extend(&layer[..48]);
            old.push(layer[52]);
        }
        let mut load =
            Load::begin(&old, u64::MAX).unwrap_or_else(|error| panic!("{with_growth}: {error}"));
        for (iterator, data) in &pieces[1..] {
            load.take(*iterator, data, |_| u64::MAX).expect("the next chunk");
        }
        let answers = Answers::read(name);
        let mut filter = layers(load);
        product::check_first(&filter, &answers, name);
        assert_eq!(plan_of_its_dump(&filter), Plan::of(&filter), "with growth: {with_growth}");
        add_later_items(&mut filter, &answers, name);
    }
}

/// The plan that another server reads from the dump of the filter, or from an AOF.
fn plan_of_its_dump(filter: &Filter) -> Plan {
    let (_, header) = dump::header(filter);
    let load = Load::begin(&header, u64::MAX).expect("a header of ours");
    Plan::of(load.layered().expect("layers"))
}

#[test]
fn the_native_encoding_keeps_every_field() {
    for name in REDISBLOOM {
        let filter = filter(name);
        let again = Strings::of(&filter).filter();
        assert_eq!(Plan::of(&again), Plan::of(&filter), "{name}");
        let answers = Answers::read(name);
        product::check_first(&again, &answers, name);
        add_later_items(&mut filter.duplicate().expect("memory"), &answers, name);
        sane::check_filter(&mut again.duplicate().expect("memory"), u64::MAX);
    }
}

#[test]
fn a_ceiling_is_respected() {
    let name = "redisbloom-2.8-grown";
    let bytes = filter(name).bit_bytes();
    let load = |ceiling| redisbloom::load(&mut product::fields(name).read(), 4, ceiling).is_ok();
    assert_eq!((load(bytes), load(bytes - 1)), (true, false));
    let header = &product::pieces(name)[0].1;
    assert!(Load::begin(header, bytes).is_ok());
    assert!(matches!(
        Load::begin(header, bytes - 1),
        Err(Error::Filter(FilterError::Ceiling { .. }))
    ));
}

/// A layer of 27 MB has two chunks of at most 16 MiB.
#[test]
fn a_large_layer_comes_in_several_chunks() {
    let mut header = product::pieces("redisbloom-2.8-one-layer")[0].1.clone();
    // The numbers of a RedisBloom filter for 20 million items at 0.01.
    let (capacity, bytes) = (20_000_000_u64, 27_569_384_u64);
    for (at, number) in [(20, bytes), (28, bytes * 8), (64, capacity)] {
        header[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    let mut load = Load::begin(&header, u64::MAX).expect("a header");
    let bits: Vec<u8> = (0..bytes).map(|i| ((i * 151) >> 3) as u8).collect();
    let chunks: Vec<_> = bits.chunks(16 << 20).collect();
    let (first, rest) = (1 + chunks[0].len() as i64, 1 + bytes as i64);
    assert_eq!(load.take(first, chunks[0], |_| u64::MAX), Ok(Taken::Next));
    // A half-loaded filter dumps the loaded bits.
    let (end, data) = dump::at(&load, 1).expect("a chunk");
    assert!((end, data.as_slice()) == (first, chunks[0]) && dump::at(&load, first).is_none());
    assert_eq!(load.take(rest, chunks[1], |_| u64::MAX), Ok(Taken::Last));
    let filter = layers(load);
    for (from, (end, chunk)) in [(1, (first, chunks[0])), (first, (rest, chunks[1]))] {
        let (iterator, data) = dump::at(&filter, from).expect("a chunk");
        assert!((iterator, data.as_slice()) == (end, chunk), "from {from}");
    }
    assert!(dump::at(&filter, rest).is_none());
}
