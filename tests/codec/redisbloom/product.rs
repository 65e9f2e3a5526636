//! What RedisBloom wrote and answered: the files `tests/fixtures/redisbloom-*`, whose origin stands in the README there.
//!
//! ```text
//!   .dump       DUMP of the filter:  type 7 · name and version · numbers and strings, a tag before each · 0 · footer
//!   .scandump   its BF.SCANDUMP:     iterator i64 · length u32 · bytes · ...                      little-endian
//!   .answers    lines, a word and its value:
//!                 added N            items item-0 .. item-(N-1) were added
//!                 debug LINE         BF.DEBUG then
//!                 exists HEX         BF.MEXISTS of those and of absent-0 .. absent-3999, 8 to a byte, lowest bit first
//!                 later DIGITS       BF.ADD of later-0, later-1 ..: 1, 0, or 2 for "non scaling filter is full"
//!                 debug-later LINE, exists-later HEX     the same once more, of the later items too
//! ```

use std::{fs, path::PathBuf};

use redis_bloom::{
    codec::{redisbloom::Values, v100::Source},
    filter::Filter,
};

use crate::support::has;

/// Every filter there is.
pub(crate) const NAMES: [&str; 7] = [
    "redisbloom-2.8-one-layer",
    "redisbloom-2.8-grown",
    "redisbloom-2.8-nonscaling",
    "redisbloom-2.8-rounded-32",
    "redisbloom-2.8-rounded-64",
    "redisbloom-2.8-encver-0",
    "redisbloom-8.8-grown",
];

/// A value of an RDB.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Unsigned(u64),
    Double(f64),
    String(Vec<u8>),
}

/// The values of a filter, to read one after the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fields(pub(crate) Vec<Value>);

pub(crate) struct FieldReader<'a>(std::slice::Iter<'a, Value>);

impl Fields {
    pub(crate) fn read(&self) -> FieldReader<'_> {
        FieldReader(self.0.iter())
    }
}

impl<'a> Source for FieldReader<'a> {
    type Piece = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self.0.next() {
            Some(Value::String(bytes)) => Some(bytes),
            _ => None,
        }
    }
}

impl Values for FieldReader<'_> {
    fn unsigned(&mut self) -> Option<u64> {
        match self.0.next() {
            Some(Value::Unsigned(value)) => Some(*value),
            _ => None,
        }
    }

    fn double(&mut self) -> Option<f64> {
        match self.0.next() {
            Some(Value::Double(value)) => Some(*value),
            _ => None,
        }
    }
}

/// The bytes of a fixture.
#[track_caller]
pub(crate) fn file(name: &str, kind: &str) -> Vec<u8> {
    let path: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "tests",
        "fixtures",
        &format!("{name}.{kind}"),
    ]
    .iter()
    .collect();
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The values of a DUMP, which must be one of encoding version 4.
#[track_caller]
pub(crate) fn fields(name: &str) -> Fields {
    let file = file(name, "dump");
    // The last ten bytes are the version of the format and a checksum.
    let mut rest = &file[..file.len() - 10];
    let byte = |rest: &mut &[u8]| {
        let first = rest[0];
        *rest = &rest[1..];
        first
    };
    let length = |rest: &mut &[u8]| -> u64 {
        let first = byte(rest);
        let take = |rest: &mut &[u8], count: usize| {
            let (head, tail) = rest.split_at(count);
            *rest = tail;
            head.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
        };
        match first >> 6 {
            0 => u64::from(first),
            1 => u64::from(first & 0x3f) << 8 | take(rest, 1),
            _ if first == 0x80 => take(rest, 4),
            _ => take(rest, 8),
        }
    };
    assert_eq!(byte(&mut rest), 7, "a value of a module");
    assert_eq!(length(&mut rest) & 0x3ff, 4, "the encoding version");
    let mut fields = Vec::new();
    loop {
        fields.push(match length(&mut rest) {
            0 => break,
            2 => Value::Unsigned(length(&mut rest)),
            4 => {
                let (double, tail) = rest.split_first_chunk().expect("a double");
                rest = tail;
                Value::Double(f64::from_le_bytes(*double))
            }
            5 => {
                let count = length(&mut rest) as usize;
                let (string, tail) = rest.split_at(count);
                rest = tail;
                Value::String(string.to_vec())
            }
            tag => panic!("{name}: tag {tag}"),
        });
    }
    assert!(rest.is_empty());
    Fields(fields)
}

/// The pieces of a BF.SCANDUMP: iterator and data of each.
pub(crate) fn pieces(name: &str) -> Vec<(i64, Vec<u8>)> {
    let file = file(name, "scandump");
    let (mut rest, mut pieces) = (file.as_slice(), Vec::new());
    while let Some((iterator, tail)) = rest.split_first_chunk() {
        let (length, tail) = tail.split_first_chunk().expect("a length");
        let (data, tail) = tail.split_at(u32::from_le_bytes(*length) as usize);
        rest = tail;
        pieces.push((i64::from_le_bytes(*iterator), data.to_vec()));
    }
    pieces
}

/// What RedisBloom answered.
pub(crate) struct Answers {
    pub(crate) added: usize,
    debug: Vec<String>,
    exists: Vec<bool>,
    /// One digit an item.
    pub(crate) later: Vec<u8>,
    debug_later: Vec<String>,
    exists_later: Vec<bool>,
}

impl Answers {
    #[track_caller]
    pub(crate) fn read(name: &str) -> Self {
        let file = String::from_utf8(file(name, "answers")).expect("text");
        let lines = |word: &str| -> Vec<String> {
            let of = |line: &str| {
                line.split_once(' ')
                    .filter(|(first, _)| *first == word)
                    .map(|(_, rest)| rest.to_owned())
            };
            file.lines().filter_map(of).collect()
        };
        let bits = |word: &str, count: usize| -> Vec<bool> {
            let hex = &lines(word)[0];
            let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("two digits");
            (0..count).map(|i| byte(i / 8) >> (i % 8) & 1 == 1).collect()
        };
        let added = lines("added")[0].parse().expect("a number");
        let later = lines("later")[0]
            .bytes()
            .map(|digit| digit - b'0')
            .collect::<Vec<_>>();
        Self {
            added,
            debug: lines("debug"),
            exists: bits("exists", added + ABSENT),
            debug_later: lines("debug-later"),
            exists_later: bits("exists-later", added + ABSENT + later.len()),
            later,
        }
    }

    /// Compares every answer before the later items.
    #[track_caller]
    pub(crate) fn check_first(&self, filter: &Filter, name: &str) {
        same(filter, self.added, &self.exists, name);
        assert_eq!(debug(filter), self.debug, "{name}");
    }

    /// Compares every answer after them.
    #[track_caller]
    pub(crate) fn check_later(&self, filter: &Filter, name: &str) {
        same(filter, self.added, &self.exists_later, name);
        assert_eq!(debug(filter), self.debug_later, "{name}");
    }
}

/// How many items were asked for that were never added.
const ABSENT: usize = 4_000;

#[track_caller]
fn same(filter: &Filter, added: usize, expected: &[bool], name: &str) {
    let items = (0..added)
        .map(|i| format!("item-{i}"))
        .chain((0..ABSENT).map(|i| format!("absent-{i}")))
        .chain((0..expected.len() - added - ABSENT).map(|i| format!("later-{i}")));
    let items: Vec<_> = items.collect();
    let mut each = Vec::new();
    filter.contains_each(items.iter().map(String::as_bytes), |found| each.push(found));
    for ((item, &expected), &in_batch) in items.iter().zip(expected).zip(&each) {
        assert_eq!(
            (has(filter, item.as_bytes()), in_batch),
            (expected, expected),
            "{name}: {item}"
        );
    }
    // Or the test would show little.
    let wrong = expected[added..added + ABSENT]
        .iter()
        .filter(|&&found| found)
        .count();
    assert!(wrong > 0, "{name} has no false positive");
}

/// BF.DEBUG as RedisBloom words it.
fn debug(filter: &Filter) -> Vec<String> {
    use redis_bloom::filter::{Family, RedisBloom, Shape};
    let mut lines = vec![format!("size:{}", filter.items())];
    let Family::RedisBloom(RedisBloom { hash64, .. }) = filter.family() else {
        panic!("{:?}", filter.family());
    };
    for layer in filter.layers() {
        let Shape::Classic(shape) = layer.shape() else {
            panic!("{:?}", layer.shape());
        };
        lines.push(format!(
            "bytes:{} bits:{} hashes:{} hashwidth:{} capacity:{} size:{} ratio:{}",
            shape.bytes,
            shape.bits,
            shape.probes,
            if hash64 { 64 } else { 32 },
            layer.capacity(),
            layer.items(),
            layer.error_rate()
        ));
    }
    lines
}
