//! The hash that lists the keys.

use redis_bloom::sharding::{
    Descriptor, Field, Generation, Malformed, POLL, State, shard_keys, shard_of,
};

fn descriptor() -> Descriptor {
    Descriptor::new(b"urls", 8, 0.001, 10_000_000_000, 10).expect("a name without braces")
}

fn parse(fields: &[Field]) -> Result<Descriptor, Malformed> {
    Descriptor::parse(fields.iter().map(|(field, value)| (field.as_slice(), value.as_slice())))
}

fn set(fields: &mut Vec<Field>, field: &str, value: &str) {
    fields.retain(|(name, _)| name != field.as_bytes());
    fields.push((field.into(), value.into()));
}

fn text(fields: &[Field]) -> String {
    let words = fields.iter().flat_map(|(field, value)| [field, value]);
    words.map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
}

#[test]
fn fields_as_they_are_written() {
    let descriptor = Descriptor::new(b"urls", 2, 0.001, 1_000, 10).expect("no braces");
    assert_eq!(
        text(&descriptor.fields(State::Ready)),
        "rule crc32 poll 10 shards 2 generation 1 error 0.001 capacity 1000 \
         0 {urls:5968}:1 1 {urls:1796}:1 state ready"
    );
}

#[test]
fn what_is_written_is_read() {
    let mut whole = descriptor();
    let keys = shard_keys(b"urls", 16, 2).expect("no braces");
    whole.next = Some(Generation { number: 2, error_rate: 1e-9, capacity: 20_000_000_000, keys });
    whole.base = Some(b"old \xff".to_vec());
    for descriptor in [descriptor(), whole] {
        let mut fields = descriptor.fields(State::Ready);
        assert_eq!(parse(&fields), Ok(descriptor.clone()));
        fields.reverse();
        fields.push((b"note".to_vec(), b"ignored".to_vec()));
        assert_eq!(parse(&fields), Ok(descriptor));
    }
}

#[test]
fn an_item_leads_to_the_key_of_its_shard() {
    let current = descriptor().current;
    for item in ["", "a", "{}", "https://example.com/"] {
        let shard = usize::from(shard_of(item.as_bytes(), 8));
        assert_eq!(current.key_of(item.as_bytes()), current.keys[shard], "{item}");
    }
}

/// A reader that finds fewer fields than were written never takes the descriptor for whole.
#[test]
fn the_first_fields_alone_are_no_descriptor() {
    let fields = descriptor().fields(State::Ready);
    assert_eq!(parse(&[]), Err(Malformed::Missing));
    for count in 1..fields.len() {
        assert_eq!(parse(&fields[..count]), Err(Malformed::HalfWritten), "{count} fields");
    }
    assert_eq!(parse(&descriptor().fields(State::Creating)), Err(Malformed::HalfWritten));
}

/// Each field that is left out is an error that names it, but the interval of polls has a default.
#[test]
fn every_field_but_one_is_needed() {
    let fields = descriptor().fields(State::Ready);
    for (left_out, (name, _)) in fields.iter().enumerate() {
        let mut fields = fields.clone();
        fields.remove(left_out);
        let name = String::from_utf8_lossy(name).into_owned();
        if name == "poll" {
            continue;
        }
        let expected = match name.as_str() {
            "state" => Malformed::HalfWritten,
            digits if digits.parse::<u16>().is_ok() => Malformed::MissingKey(name),
            _ => Malformed::MissingField(name),
        };
        assert_eq!(parse(&fields), Err(expected));
    }
}

#[test]
fn every_error_has_its_name() {
    let shards =
        |field: &str, value: &str| Malformed::Shards { field: field.into(), value: value.into() };
    let value =
        |field: &str, value: &str| Malformed::Value { field: field.into(), value: value.into() };
    let cases = [
        (&[("rule", "siphash")][..], Malformed::Rule("siphash".into())),
        // A newer rule is named, whatever else is new.
        (&[("rule", "siphash"), ("state", "split")], Malformed::Rule("siphash".into())),
        (&[("state", "split")], Malformed::State("split".into())),
        (&[("shards", "0")], shards("shards", "0")),
        (&[("shards", "1025")], shards("shards", "1025")),
        (&[("shards", "eight")], shards("shards", "eight")),
        (&[("shards", "9")], Malformed::MissingKey("8".into())),
        (&[("generation", "0")], value("generation", "0")),
        (&[("error", "1")], value("error", "1")),
        (&[("error", "nan")], value("error", "nan")),
        (&[("capacity", "-5")], value("capacity", "-5")),
    ];
    for (changes, expected) in cases {
        let mut fields = descriptor().fields(State::Ready);
        changes.iter().for_each(|(field, value)| set(&mut fields, field, value));
        assert_eq!(parse(&fields), Err(expected), "{changes:?}");
    }
}

#[test]
fn clients_poll_every_ten_seconds_unless_told_otherwise() {
    let mut fields = descriptor().fields(State::Ready);
    for (value, poll) in [("7", 7), ("0", POLL), ("-1", POLL), ("soon", POLL), ("", POLL)] {
        set(&mut fields, "poll", value);
        assert_eq!(parse(&fields).map(|read| read.poll), Ok(poll), "{value:?}");
    }
    fields.retain(|(name, _)| name != b"poll");
    assert_eq!(parse(&fields).map(|read| read.poll), Ok(10));
}

/// The fields of the next generation are set at once. Some of them, or a wrong one, are the trace
/// of a writer that died or of a hand: the filter is used as if they were not there.
#[test]
fn a_half_written_next_generation_is_none() {
    let next = Generation::new(b"urls", 3, 2, 0.01, 9).expect("no braces");
    let (now, all) = (descriptor().fields(State::Ready), next.next_fields());
    let with = |more: &[Field]| parse(&[&now[..], more].concat()).map(|read| read.next);
    assert_eq!(with(&all), Ok(Some(next)));
    for left_out in 0..all.len() {
        assert_eq!(with(&[&all[..left_out], &all[left_out + 1..]].concat()), Ok(None));
        assert_eq!(with(&all[..left_out]), Ok(None));
    }
    for (field, value) in [
        ("next.shards", "2000"),
        ("next.shards", "0"),
        ("next.generation", "0"),
        ("next.error", "1"),
        ("next.capacity", "many"),
    ] {
        let mut fields = [&now[..], &all].concat();
        set(&mut fields, field, value);
        assert_eq!(parse(&fields), Ok(descriptor()), "{field} {value}");
    }
}

/// Whether the next generation has more shards than the current one or fewer.
#[test]
fn an_exchange_leaves_both_generations_whole_and_no_other_field() {
    assert_eq!(descriptor().exchange(), None);
    for shards in [1, 2, 8, 9, 64] {
        let mut before = descriptor();
        let next = Generation::new(b"urls", shards, 2, 0.01, 9).expect("no braces");
        (before.next, before.base) = (Some(next.clone()), Some(b"old".to_vec()));
        let (changed, deleted) = before.exchange().expect("a next generation");
        let mut fields = before.fields(State::Ready);
        fields.retain(|(name, _)| !deleted.contains(name));
        for (name, value) in changed {
            set(
                &mut fields,
                &String::from_utf8(name).expect("text"),
                &String::from_utf8(value).expect("text"),
            );
        }
        let after = Descriptor { current: next, next: Some(before.current.clone()), ..before };
        fields.sort();
        let mut expected = after.fields(State::Ready);
        expected.sort();
        assert_eq!(fields, expected, "{shards} shards");
    }
}

/// A value of a hash may have any bytes and any length, and an error text must not.
#[test]
fn error_texts_are_printable_and_short() {
    let mut fields = descriptor().fields(State::Ready);
    fields.retain(|(name, _)| name != b"rule");
    fields.push((b"rule".to_vec(), b"\r\n\xff".repeat(1000)));
    let error = parse(&fields).expect_err("unknown rule").to_string();
    assert!(
        error.len() < 400 && error.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
        "{error}"
    );
}
