//! A filter that is written and read back is equal.

use redis_bloom::{
    codec::native::{Load, Stored, Taken, dump, rdb},
    filter::{Filter, Plan},
};

use crate::{
    forge, sample,
    support::{Reading, Strings, fill, filter, has, item, layers, params},
};

/// Bytes of bits in a string of an RDB.
const PIECE: usize = 1 << 20;
/// Bytes of bits in a chunk of a dump.
const CHUNK: usize = 16 << 20;

/// Asserts that two filters have the same plan, bits and parameters.
#[track_caller]
fn assert_equal(left: &Filter, right: &Filter, case: &str) {
    assert_eq!(Plan::of(left), Plan::of(right), "{case}");
    assert!(sample::stream(left) == sample::stream(right), "{case}: bits");
    assert_eq!(left.params(), right.params(), "{case}");
    assert_eq!(left.shard(), right.shard(), "{case}");
}

#[track_caller]
fn load_all(pieces: &[(i64, Vec<u8>)]) -> Filter {
    let (header, chunks) = pieces.split_first().expect("a header");
    let mut load = Load::begin(&header.1, u64::MAX).expect("a header");
    for (index, (iterator, data)) in chunks.iter().enumerate() {
        let last = index + 1 == chunks.len();
        let expected = if last { Taken::Last } else { Taken::Next };
        assert_eq!(load.take(*iterator, data, |_| u64::MAX), Ok(expected), "chunk {index}");
    }
    layers(load)
}

#[test]
fn a_filter_of_any_shape_is_stored_and_read_back() {
    for (name, filter) in sample::all() {
        let strings = Strings::of(&filter);
        assert_equal(&strings.filter(), &filter, &name);
        // One header, then the stream, and nothing more.
        assert_eq!(strings.0[1..].concat(), sample::stream(&filter), "{name}");
    }
}

#[test]
fn a_filter_of_any_shape_is_dumped_and_loaded() {
    for (name, filter) in sample::all() {
        let pieces = sample::dump(&filter);
        assert_eq!(pieces[0].0, 1, "{name}: the header comes with iterator 1");
        assert_equal(&load_all(&pieces), &filter, &name);
    }
}

#[test]
fn a_filter_that_was_read_back_takes_additions_like_the_original() {
    for (name, mut original) in sample::all() {
        let mut copy = Strings::of(&original).filter();
        let mut loaded = load_all(&sample::dump(&original));
        for number in 0..2_000 {
            let hash = original.hash(&item(2, number));
            let added = original.add(hash, |_| u64::MAX);
            assert_eq!(copy.add(hash, |_| u64::MAX), added, "{name}, item {number}");
            assert_eq!(loaded.add(hash, |_| u64::MAX), added, "{name}, item {number}");
        }
        assert_equal(&copy, &original, &name);
        assert_equal(&loaded, &original, &name);
    }
}

#[test]
fn bits_are_stored_in_pieces_of_a_mebibyte_and_dumped_in_chunks_of_16() {
    // 36 MB in one layer, and some MB in seven layers.
    let mut large = filter(&params(0.01, 30_000_000, 0, 3));
    fill(&mut large, 1, 2_000);
    let grown = sample::stack(&params(0.001, 10_000, 2, 4), 10_000 * 127);
    for (name, filter) in [("one layer", large), ("seven layers", grown)] {
        let total = filter.bit_bytes() as usize;
        let strings = Strings::of(&filter);
        let lengths = (0..total).step_by(PIECE).map(|from| PIECE.min(total - from));
        let found: Vec<_> = strings.0[1..].iter().map(Vec::len).collect();
        assert_eq!(found, lengths.collect::<Vec<_>>(), "{name}");
        assert_equal(&strings.filter(), &filter, name);

        let pieces = sample::dump(&filter);
        assert_eq!(pieces.len(), 1 + total.div_ceil(CHUNK), "{name}");
        for (index, (iterator, data)) in pieces[1..].iter().enumerate() {
            let bits = data.len() - forge::frame::bits(data) - forge::SEAL;
            let end = total.min((index + 1) * CHUNK);
            assert_eq!(
                (*iterator, bits),
                (1 + end as i64, end - index * CHUNK),
                "{name}, chunk {index}"
            );
        }
        assert_equal(&load_all(&pieces), &filter, name);
    }
}

#[test]
fn pieces_may_be_cut_anywhere_between_words() {
    sample::smalls().iter().for_each(cut_anywhere);
}

fn cut_anywhere(filter: &Filter) {
    let strings = Strings::of(filter);
    for size in (8..=sample::stream(filter).len()).step_by(8) {
        let mut cut = Strings(vec![strings.0[0].clone()]);
        cut.0.extend(strings.0[1..].iter().flat_map(|bits| bits.chunks(size)).map(<[u8]>::to_vec));
        assert_equal(&cut.filter(), filter, &format!("pieces of {size} bytes"));
    }
}

#[test]
fn a_half_loaded_filter_is_stored_at_any_position_and_completed() {
    let smalls = sample::smalls().map(|filter| ("small".to_owned(), filter));
    for (name, filter) in sample::all().into_iter().chain(smalls) {
        let [(_, header), (iterator, data)] = &sample::dump(&filter)[..] else {
            panic!("{name} is one chunk");
        };
        let total = filter.bit_bytes() as usize;
        for at in (0..total).step_by(8 * total.div_ceil(800)) {
            let case = format!("{name}, {at} of {total} bytes");
            let [head, tail] = forge::split(*iterator, data, at);
            let mut load = Load::begin(header, u64::MAX).expect("its own header");
            if at > 0 {
                assert_eq!(load.take(head.0, &head.1, |_| u64::MAX), Ok(Taken::Next), "{case}");
            }
            assert_eq!(load.received(), at as u64, "{case}");

            let mut strings = Strings::default();
            rdb::save(&load, &mut strings);
            assert_eq!(strings.0[1..].concat(), sample::stream(&filter)[..at], "{case}");
            let Ok(Stored::Partial(again)) = rdb::load(&mut Reading(strings.0.iter()), u64::MAX)
            else {
                panic!("{case}: not partial");
            };
            let again = *again;
            assert_eq!(again.received(), at as u64, "{case}");

            // An AOF rewrite at this point writes the header and the loaded bits.
            let mut rewritten =
                Load::begin(&dump::header(again.layered().expect("layers")).1, u64::MAX)
                    .expect("its header");
            if let Some((next, chunk)) = dump::at(&again, 1) {
                assert_eq!(rewritten.take(next, &chunk, |_| u64::MAX), Ok(Taken::Next), "{case}");
                assert_eq!(dump::at(&again, next), None, "{case}");
            }
            assert_eq!(rewritten.received(), at as u64, "{case}");

            for mut load in [load.duplicate().expect("memory"), load, again, rewritten] {
                assert_eq!(load.take(tail.0, &tail.1, |_| u64::MAX), Ok(Taken::Last), "{case}");
                assert_equal(&layers(load), &filter, &case);
            }
        }
    }
}

/// Layers grow while short strings arrive, which end anywhere in a layer.
#[test]
fn a_filter_is_read_from_pieces_of_any_length() {
    for (name, filter) in sample::all() {
        let stored = Strings::of(&filter);
        for words in [1, 2, 3, 7, 8, 9, 64, 1_000] {
            let pieces = stored.0[1..].iter().flat_map(|bits| bits.chunks(8 * words));
            let pieces = pieces.map(<[u8]>::to_vec);
            let strings = Strings([stored.0[0].clone()].into_iter().chain(pieces).collect());
            let Ok(Stored::Layers(read)) = rdb::load(&mut Reading(strings.0.iter()), u64::MAX)
            else {
                panic!("{name} in pieces of {words} words");
            };
            assert_equal(&read, &filter, &format!("{name} in pieces of {words} words"));
        }
    }
}

#[test]
fn what_follows_the_last_piece_is_left_unread() {
    let filter = sample::small();
    let mut strings = Strings::of(&filter);
    strings.0.push(b"the next key".to_vec());
    let mut reading = Reading(strings.0.iter());
    let Ok(Stored::Layers(read)) = rdb::load(&mut reading, u64::MAX) else {
        panic!("not complete");
    };
    assert_equal(&read, &filter, "small");
    assert_eq!(reading.0.len(), 1);
}

#[test]
fn every_seed_and_float_survives() {
    for seed in [0, 1, 0x0123_4567_89AB_CDEF, u64::MAX] {
        for rate in [5e-324, 1e-300, 0.1, 1.0 / 3.0, 1.0 - f64::EPSILON / 2.0] {
            let mut filter = filter(&params(rate, 10, 1, seed));
            fill(&mut filter, 1, 10);
            let copy = Strings::of(&filter).filter();
            assert_equal(&copy, &filter, &format!("seed {seed}, rate {rate}"));
            assert_eq!(copy.error_rate().to_bits(), rate.to_bits());
            assert!(has(&copy, &item(1, 0)));
        }
    }
}
