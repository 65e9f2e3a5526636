//! The hash that lists the keys.

use crate::sharding::{
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
    let error_rate = 1e-9;
    whole.next = Ok(Some(Generation { number: 2, error_rate, capacity: 20_000_000_000, keys }));
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
            name => Malformed::Field(format!("'{name}' is missing")),
        };
        assert_eq!(parse(&fields), Err(expected));
    }
}

#[test]
fn every_error_has_its_name() {
    let unknown = |text: &str| Malformed::Unknown(text.into());
    let value = |field: &str, value: &str| Malformed::Field(format!("'{field}' is '{value}'"));
    let rule = "rule 'siphash' is unknown: this client knows 'crc32'";
    let cases = [
        (&[("rule", "siphash")][..], unknown(rule)),
        // A newer rule is named, whatever else is new.
        (&[("rule", "siphash"), ("state", "split")], unknown(rule)),
        (&[("state", "split")], unknown("state 'split' is unknown")),
        (&[("shards", "0")], value("shards", "0")),
        (&[("shards", "1025")], value("shards", "1025")),
        (&[("shards", "eight")], value("shards", "eight")),
        (&[("shards", "9")], Malformed::Field("'8' is missing".into())),
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
/// of a hand or of damage: questions go on, and nothing can be added.
#[test]
fn a_next_generation_that_cannot_be_read_stops_additions_alone() {
    let next = Generation::new(b"urls", 3, 2, 0.01, 9).expect("no braces");
    let (now, all) = (descriptor().fields(State::Ready), next.next_fields());
    let with = |more: &[Field]| parse(&[&now[..], more].concat()).expect("questions go on");
    assert_eq!(with(&all).next, Ok(Some(next.clone())));
    let unreadable = |more: &[Field], what: &str| {
        let read = with(more);
        assert_eq!(read.current, descriptor().current, "{what}");
        assert!(read.next.is_err() && read.filled().is_err(), "{what}");
        assert_eq!(read.exchange(), None, "{what}");
        assert_eq!(read.fields(State::Ready), now, "{what}");
        read.next.expect_err("checked")
    };
    for left_out in 0..all.len() {
        let (before, after) = (&all[..left_out], &all[left_out + 1..]);
        unreadable(&[before, after].concat(), &format!("without field {left_out}"));
        if left_out > 0 {
            unreadable(before, &format!("{left_out} fields"));
        }
    }
    for (field, text) in [
        ("next.generation", "0"),
        ("next.generation", "1"), // the current one
        ("next.error", "1"),
        ("next.capacity", "many"),
    ] {
        let mut fields = all.clone();
        set(&mut fields, field, text);
        let expected = Malformed::Field(format!("'{field}' is '{text}'"));
        assert_eq!(unreadable(&fields, field), expected);
    }
    let mut fields = all.clone();
    set(&mut fields, "next.shards", "2000");
    unreadable(&fields, "2000 shards");
    set(&mut fields, "next.shards", "4");
    assert_eq!(unreadable(&fields, "4 shards"), Malformed::Field("'next.3' is missing".into()));
    // A field of a newer client.
    unreadable(&[(b"next.hash".to_vec(), b"1".to_vec())], "an unknown field alone");
    let mut fields = all.clone();
    set(&mut fields, "next.hash", "1");
    assert_eq!(with(&fields).next, Ok(Some(next.clone())));
    set(&mut fields, "next.rule", "siphash");
    assert!(matches!(unreadable(&fields, "rule"), Malformed::Unknown(_)));
    set(&mut fields, "next.rule", "crc32");
    assert_eq!(with(&fields).next, Ok(Some(next)));
}

#[test]
fn additions_go_to_the_current_generation_first_then_to_the_next() {
    let numbers = |descriptor: &Descriptor| -> Vec<u64> {
        descriptor.filled().expect("readable").map(|one| one.number).collect()
    };
    let mut urls = descriptor();
    assert_eq!(numbers(&urls), [1]);
    let other = Generation::new(b"urls", 3, 2, 0.01, 9).expect("no braces");
    urls.next = Ok(Some(other.clone()));
    assert_eq!(numbers(&urls), [1, 2]);
    // At the end of a rebuild.
    (urls.next, urls.current) = (Ok(Some(urls.current)), other);
    assert_eq!(numbers(&urls), [2, 1]);
    assert_eq!(parse(&urls.fields(State::Ready)), Ok(urls));
}

/// Whether the next generation has more shards than the current one or fewer. There is no exchange
/// back: the old shards may be gone.
#[test]
fn an_exchange_leaves_both_generations_whole_and_no_other_field() {
    assert_eq!(descriptor().exchange(), None);
    for shards in [1, 2, 8, 9, 64] {
        let mut before = descriptor();
        let next = Generation::new(b"urls", shards, 2, 0.01, 9).expect("no braces");
        (before.next, before.base) = (Ok(Some(next.clone())), Some(b"old".to_vec()));
        let (changed, deleted) = before.exchange().expect("a next generation");
        let mut fields = before.fields(State::Ready);
        fields.retain(|(name, _)| !deleted.contains(name));
        for (name, value) in changed {
            assert!(!deleted.contains(&name), "set and deleted");
            set(
                &mut fields,
                &String::from_utf8(name).expect("text"),
                &String::from_utf8(value).expect("text"),
            );
        }
        let after =
            Descriptor { current: next, next: Ok(Some(before.current)), base: None, poll: 10 };
        fields.sort();
        let mut expected = after.fields(State::Ready);
        expected.sort();
        assert_eq!(fields, expected, "{shards} shards");
        assert_eq!(after.exchange(), None);
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
