//! Gives files of other products to the decoders, and compares RedisBloom's answers with those of a
//! filter.

use redis_bloom::{
    codec::{
        Error,
        io::{NumberSource, Source},
    },
    filter::Filter,
};

pub(crate) use crate::products::{ABSENT, Answers, REDISBLOOM, file, pieces};
use crate::support::has;

/// A value of an RDB.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Unsigned(u64),
    Double(f64),
    String(Vec<u8>),
}

/// The values of a filter in an RDB.
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

    fn next(&mut self) -> Result<&'a [u8], Error> {
        match self.0.next() {
            Some(Value::String(bytes)) => Ok(bytes),
            _ => Err(Error::Truncated),
        }
    }
}

impl NumberSource for FieldReader<'_> {
    fn unsigned(&mut self) -> Result<u64, Error> {
        match self.0.next() {
            Some(Value::Unsigned(value)) => Ok(*value),
            _ => Err(Error::Truncated),
        }
    }

    fn double(&mut self) -> Result<f64, Error> {
        match self.0.next() {
            Some(Value::Double(value)) => Ok(*value),
            _ => Err(Error::Truncated),
        }
    }
}

/// The values of a DUMP of RedisBloom with encoding version 4.
#[track_caller]
pub(crate) fn fields(name: &str) -> Fields {
    dumped(name, 4)
}

/// The values of a DUMP with that encoding version.
#[track_caller]
pub(crate) fn dumped(name: &str, encoding: u64) -> Fields {
    let file = file(&format!("{name}.dump"));
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
    assert_eq!(length(&mut rest) & 0x3ff, encoding, "the encoding version");
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

/// Compares every answer before the later items are added.
#[track_caller]
pub(crate) fn check_first(filter: &Filter, answers: &Answers, name: &str) {
    check_exists_first(filter, answers, name);
    assert_eq!(debug(filter), answers.debug, "{name}");
}

/// Compares every answer after the later items were added.
#[track_caller]
pub(crate) fn check_later(filter: &Filter, answers: &Answers, name: &str) {
    check_exists_later(filter, answers, name);
    assert_eq!(debug(filter), answers.debug_later, "{name}");
}

/// Compares BF.MEXISTS before the later items are added, item by item.
#[track_caller]
pub(crate) fn check_exists_first(filter: &Filter, answers: &Answers, name: &str) {
    check_answers(filter, &answers.items(0), answers.added, &answers.exists, name);
}

/// Compares BF.MEXISTS after the later items were added, item by item.
#[track_caller]
pub(crate) fn check_exists_later(filter: &Filter, answers: &Answers, name: &str) {
    let items = answers.items(answers.later.len());
    check_answers(filter, &items, answers.added, &answers.exists_later, name);
}

#[track_caller]
fn check_answers(filter: &Filter, items: &[String], added: usize, expected: &[bool], name: &str) {
    assert_eq!(items.len(), expected.len(), "{name}");
    let mut each = Vec::new();
    filter.contains_each(items.iter().map(String::as_bytes), |found| {
        each.extend(found.each());
    });
    for ((item, &expected), &in_batch) in items.iter().zip(expected).zip(&each) {
        let found = (has(filter, item.as_bytes()), in_batch);
        assert_eq!(found, (expected, expected), "{name}: {item}");
    }
    // Without a false positive, an exact set would pass the test.
    assert!(
        filter.items() == 0 || expected[added..added + ABSENT].contains(&true),
        "{name} has no false positive"
    );
}

/// The lines of RedisBloom's BF.DEBUG.
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
            layer.capacity,
            layer.counted,
            layer.error_rate
        ));
    }
    lines
}
