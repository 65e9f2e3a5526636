//! Filters and answers of a build from the sources of valkey-bloom 1.0
//! (`tests/fixtures/README.md`): every answer is the same here, growth included, and the bytes
//! written here are the same.

use redis_bloom::{
    codec::valkey_bloom,
    filter::{Error as FilterError, Family, Filter},
};

use super::Written;
use crate::{
    products::{Answers, VALKEY_BLOOM, file},
    redisbloom::product::{Fields, Value, check_exists_first, check_exists_later, dumped},
    support::Strings,
};

/// The filter of a fixture.
#[track_caller]
fn filter(name: &str) -> Filter {
    valkey_bloom::load(&mut dumped(name, valkey_bloom::ENCODING_VERSION as u64).read(), u64::MAX)
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The lines of valkey-bloom's BF.INFO, without the size of its memory and the largest capacity
/// that the filter can grow to.
fn info(filter: &Filter) -> Vec<String> {
    let Family::Valkey(family) = filter.family() else {
        panic!("{:?}", filter.family());
    };
    let capacity: u64 = filter.layers().map(|layer| layer.capacity).sum();
    let factor = filter.expansion().factor();
    let mut lines = vec![
        format!("Capacity: {capacity}"),
        format!("Number of filters: {}", filter.layers().len()),
        format!("Number of items inserted: {}", filter.items()),
        format!("Error rate: {}", filter.error_rate()),
        factor.map_or("Expansion rate: none".to_owned(), |factor| {
            format!("Expansion rate: {factor}")
        }),
    ];
    lines.extend(factor.map(|_| format!("Tightening ratio: {}", family.tightening)));
    lines
}

/// The lines of a fixture that [`info`] writes.
fn compared(lines: &[String]) -> Vec<&String> {
    let other = |line: &&String| !line.starts_with("Max scaled capacity");
    lines.iter().filter(other).collect()
}

#[track_caller]
fn check_first(filter: &Filter, answers: &Answers, name: &str) {
    check_exists_first(filter, answers, name);
    assert_eq!(info(filter).iter().collect::<Vec<_>>(), compared(&answers.info), "{name}");
}

/// Adds the later items and compares each answer with valkey-bloom's.
#[track_caller]
fn add_later_items(filter: &mut Filter, answers: &Answers, name: &str) {
    for (number, &expected) in answers.later.iter().enumerate() {
        let item = format!("later-{number}");
        let answer = match filter.add(filter.hash(item.as_bytes()), |_| u64::MAX) {
            Ok(new) => u8::from(new),
            Err(FilterError::Full) => 2,
            Err(error) => panic!("{name}: {item}: {error}"),
        };
        assert_eq!(answer, expected, "{name}: {item}");
    }
    check_exists_later(filter, answers, name);
    assert_eq!(info(filter).iter().collect::<Vec<_>>(), compared(&answers.info_later), "{name}");
}

#[test]
fn a_dump_answers_and_grows_as_in_valkey_bloom_and_is_written_back() {
    for name in VALKEY_BLOOM {
        let (mut filter, answers) = (filter(name), Answers::read(name));
        check_first(&filter, &answers, name);
        let mut written = Written(Vec::new());
        valkey_bloom::save(&filter, &mut written);
        assert_eq!(Fields(written.0), dumped(name, 1), "{name}");
        add_later_items(&mut filter, &answers, name);
    }
}

#[test]
fn native_encodings_keep_every_field() {
    for name in VALKEY_BLOOM {
        let answers = Answers::read(name);
        let blob = valkey_bloom::blob(&filter(name)).expect("a blob");
        let stores = [
            Strings::of(&filter(name)).filter(),
            valkey_bloom::read_blob(&blob, u64::MAX).expect("its own blob"),
            filter(name).duplicate().expect("memory"),
        ];
        for mut stored in stores {
            check_first(&stored, &answers, name);
            add_later_items(&mut stored, &answers, name);
        }
    }
}

/// The commands of an AOF, each as a list of arguments.
fn commands(mut rest: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let number = |rest: &mut &[u8], mark: u8| -> usize {
        let end = rest.iter().position(|&byte| byte == b'\n').expect("a line");
        let (line, tail) = rest.split_at(end + 1);
        *rest = tail;
        assert_eq!(line[0], mark);
        let digits = std::str::from_utf8(&line[1..end - 1]).expect("digits");
        digits.parse().expect("a number")
    };
    let mut commands = Vec::new();
    while !rest.is_empty() {
        let mut arguments = Vec::new();
        for _ in 0..number(&mut rest, b'*') {
            let length = number(&mut rest, b'$');
            arguments.push(rest[..length].to_vec());
            rest = &rest[length + 2..];
        }
        commands.push(arguments);
    }
    commands
}

#[test]
fn the_blobs_of_an_aof_equal_the_filters_of_the_dumps() {
    let commands = commands(&file("valkey-bloom-1.0.aof"));
    for (key, name) in
        [("grown", "valkey-bloom-1.0-grown"), ("full", "valkey-bloom-1.0-nonscaling")]
    {
        let load = [b"BF.LOAD".to_vec(), key.into()];
        let blob = commands.iter().find(|command| command.starts_with(&load));
        let blob = &blob.expect("a BF.LOAD")[2];
        assert_eq!(valkey_bloom::blob(&filter(name)).as_ref(), Some(blob), "{name}");
        let mut filter = valkey_bloom::read_blob(blob, u64::MAX).expect("a filter");
        let answers = Answers::read(name);
        check_first(&filter, &answers, name);
        add_later_items(&mut filter, &answers, name);
    }
}

#[test]
fn a_bitmap_of_another_length_is_refused() {
    for name in VALKEY_BLOOM {
        let whole = dumped(name, 1);
        for at in 0..whole.0.len() {
            let mut fields = whole.clone();
            if let Value::String(bitmap) = &mut fields.0[at] {
                bitmap.pop();
                assert!(valkey_bloom::load(&mut fields.read(), u64::MAX).is_err(), "{name}");
            }
        }
    }
}
