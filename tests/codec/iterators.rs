//! BF.SCANDUMP with any integer, and BF.LOADCHUNK with any integer and any bytes.

use std::time::{Duration, Instant};

use redis_bloom::{
    codec::{
        Error,
        native::{Load, Taken, dump},
    },
    filter::{
        Classic, Expansion, Family, LayerPlan, Plan, RedisBloom, Rule, Shape,
        foreign::redisbloom::{bits_per_item, probes},
    },
};

use crate::{
    forge::{self, frame},
    sample,
};

/// Iterators that no filter of these tests returns.
const ODD: [i64; 10] =
    [i64::MIN, i64::MIN + 1, -(1 << 32), -2, -1, 1 << 31, 1 << 32, 1 << 53, i64::MAX - 1, i64::MAX];

#[test]
fn any_iterator_reads_the_stream_from_its_word_on_or_nothing() {
    for (name, filter) in sample::all().into_iter().filter(|(_, filter)| filter.bit_bytes() < 3_000)
    {
        let stream = sample::stream(&filter);
        let size = stream.len() as i64;
        for iterator in (0..size + 1_024).chain(ODD) {
            let chunk = dump::at(&filter, iterator);
            if !(1..=size).contains(&iterator) {
                assert_eq!(chunk, None, "{name}, {iterator}");
                continue;
            }
            let (next, data) = chunk.unwrap_or_else(|| panic!("{name}, {iterator}"));
            assert_eq!(next, size + 1, "{name}, {iterator}");
            let first = (iterator as usize - 1) / 8 * 8;
            assert_eq!(forge::first_byte(&data), first as u64, "{name}, {iterator}");
            let bits = &data[frame::bits(&data)..data.len() - forge::SEAL];
            assert_eq!(bits, &stream[first..], "{name}, {iterator}");
        }
    }
}

#[test]
fn any_iterator_reads_a_half_loaded_filter_up_to_the_received_bytes() {
    let filter = sample::small();
    let stream = sample::stream(&filter);
    let (end, data) = dump::at(&filter, 1).expect("a chunk");
    for received in (8..stream.len()).step_by(8) {
        let mut load = Load::begin(&dump::header(&filter).1, u64::MAX).expect("its header");
        let [head, _] = forge::split(end, &data, received);
        load.take(head.0, &head.1, |_| u64::MAX).expect("the first part");
        for iterator in (0..stream.len() as i64 + 1_024).chain(ODD) {
            let chunk = dump::at(&load, iterator);
            if !(1..=received as i64).contains(&iterator) {
                assert_eq!(chunk, None, "{iterator} of {received}");
                continue;
            }
            let (next, data) = chunk.unwrap_or_else(|| panic!("{iterator} of {received}"));
            assert_eq!(next, received as i64 + 1);
            let bits = &data[frame::bits(&data)..data.len() - forge::SEAL];
            let first = (iterator as usize - 1) / 8 * 8;
            assert_eq!(bits, &stream[first..received], "{iterator} of {received}");
        }
    }
}

#[test]
fn a_chunk_from_inside_a_word_begins_with_it_and_none_may_end_inside_one() {
    let filter = sample::small();
    let (_, header) = dump::header(&filter);
    let size = filter.bit_bytes() as i64;
    let (end, whole) = dump::at(&filter, 1).expect("a chunk");
    for iterator in 1..=size {
        let (next, data) = dump::at(&filter, iterator).expect("a chunk");
        // A load that has all words before the cut.
        let mut load = Load::begin(&header, u64::MAX).expect("its header");
        let before = (iterator as usize - 1) / 8 * 8;
        if before > 0 {
            let [head, _] = forge::split(end, &whole, before);
            load.take(head.0, &head.1, |_| u64::MAX).expect("the first part");
        }
        let outcome = load.take(next, &data, |_| u64::MAX);
        assert_eq!(outcome, Ok(Taken::Last), "{iterator}");
        assert!(dump::repeat(&filter, next, &data).is_ok(), "{iterator}");
        // A chunk that ends inside a word.
        let length = whole.len() - forge::SEAL - frame::bits(&whole);
        if length as i64 > iterator && iterator % 8 != 0 {
            let [head, _] = forge::split(end, &whole, iterator as usize);
            let mut load = Load::begin(&header, u64::MAX).expect("its header");
            let outcome = load.take(head.0, &head.1, |_| u64::MAX);
            assert!(
                matches!(outcome, Err(Error::Unaligned { .. })),
                "end at {iterator}: {outcome:?}"
            );
        }
    }
}

#[test]
fn a_chunk_with_a_wrong_iterator_is_refused() {
    let filter = sample::small();
    let (_, header) = dump::header(&filter);
    let (end, data) = dump::at(&filter, 1).expect("a chunk");
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for iterator in (-1_024..end + 1_024).chain(ODD).filter(|&iterator| iterator != end) {
        let outcome = load.take(iterator, &data, |_| u64::MAX);
        assert!(matches!(outcome, Err(Error::Order { .. })), "{iterator}: {outcome:?}");
        assert!(dump::repeat(&filter, iterator, &data).is_err(), "{iterator}");
        assert_eq!(load.received(), 0);
    }
    assert_eq!(load.take(end, &data, |_| u64::MAX), Ok(Taken::Last));
}

#[test]
fn a_first_byte_near_the_integer_limits_is_refused() {
    let filter = sample::small();
    let (_, header) = dump::header(&filter);
    let (end, data) = dump::at(&filter, 1).expect("a chunk");
    let bits = (data.len() - frame::bits(&data) - forge::SEAL) as u64;
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for first in [
        bits,
        1 << 32,
        1 << 62,
        (1 << 63) - bits - 1,
        1 << 63,
        u64::MAX - bits,
        u64::MAX - 7,
        u64::MAX,
    ] {
        let forged = forge::patched(&data, frame::FIRST, &first.to_le_bytes());
        let last = first.wrapping_add(bits).wrapping_add(1).cast_signed();
        for iterator in [end, last, 1, 0, -1, i64::MIN, i64::MAX] {
            assert!(load.take(iterator, &forged, |_| u64::MAX).is_err(), "{first}, {iterator}");
            assert!(dump::repeat(&filter, iterator, &forged).is_err(), "{first}, {iterator}");
        }
    }
    assert_eq!(load.received(), 0);
}

/// The time to dump, load and repeat the chunks of a RedisBloom filter of `count` layers of one
/// word each, as a client may forge it: one chunk for each layer.
fn time_of_chunks(count: usize) -> Duration {
    let rate = 0.25;
    let probes = probes(bits_per_item(rate)) as u16;
    let shape = Classic { bits: 64, bytes: 8, probes, rule: Rule::Remainder };
    let layer = LayerPlan { capacity: 1, items: 1, error_rate: rate, shape: Shape::Classic(shape) };
    let plan = Plan {
        family: Family::RedisBloom(RedisBloom { hash64: true, rounds: false }),
        error_rate: rate,
        expansion: Expansion::new(1).expect("in range"),
        layers: vec![layer; count],
        ..Plan::default()
    };
    let filter = plan.allocate(u64::MAX).expect("memory");
    let (mut at, header) = dump::header(&filter);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    let started = Instant::now();
    for last in (1..=count).rev().map(|left| left == 1) {
        let (next, chunk) = dump::at(&filter, at).expect("a chunk for each layer");
        assert_eq!(chunk.len(), 8);
        let taken = if last { Taken::Last } else { Taken::Next };
        assert_eq!(load.take(next, &chunk, |_| u64::MAX), Ok(taken));
        let again = if last { Taken::Last } else { Taken::Repeated };
        assert_eq!(load.take(next, &chunk, |_| u64::MAX), Ok(again));
        assert_eq!(dump::repeat(&filter, next, &chunk), Ok(()));
        at = next;
    }
    started.elapsed()
}

/// A chunk must not visit all layers: these 64,000 chunks take a tenth of a second, and would take
/// a minute.
#[test]
fn a_chunk_of_many_layers_takes_no_longer_than_one_of_few() {
    let time = time_of_chunks(64_000);
    assert!(time < Duration::from_secs(10), "{time:?}");
}
