//! redis-rs: every method of its `bloom` feature, in both protocols.
//!
//! `make test-clients` starts the server and puts its address into `REDIS_URL`. These tests check
//! the values that the client returns; the types on the wire (integer or boolean) are tested
//! elsewhere.

use std::sync::atomic::{AtomicU32, Ordering};

use redis::bloom::{
    BloomFilterDumpIterator, BloomFilterInfoType as Field, BloomFilterInsertOptions as Insert,
    BloomFilterScalingOptions as Scaling,
};
use redis::{Connection, RedisError, TypedCommands};

/// A connection in each protocol, with a new key.
fn connections() -> impl Iterator<Item = (Connection, String)> {
    static KEYS: AtomicU32 = AtomicU32::new(0);
    let url = std::env::var("REDIS_URL")
        .expect("REDIS_URL names the server: run these tests with `make test-clients`");
    ["resp2", "resp3"].into_iter().map(move |protocol| {
        let client = redis::Client::open(format!("{url}?protocol={protocol}"))
            .expect("a well-formed address");
        let connection = client.get_connection().expect("the server answers");
        (connection, format!("redis-rs:{}", KEYS.fetch_add(1, Ordering::Relaxed)))
    })
}

/// The text of an error, with its code.
#[track_caller]
fn refused<T: std::fmt::Debug>(reply: Result<T, RedisError>) -> String {
    let error = reply.expect_err("the command fails");
    let code = error.code().map(|code| format!("{code} "));
    format!("{}{}", code.unwrap_or_default(), error.detail().unwrap_or_default())
}

#[test]
fn reserve_makes_a_filter_as_asked() -> Result<(), RedisError> {
    for (mut redis, key) in connections() {
        redis.bf_reserve(&key, 1e-7, 1000)?;
        assert_eq!(refused(redis.bf_reserve(&key, 1e-7, 1000)), "ERR item exists");
        let info = redis.bf_info(&key)?;
        let mut names: Vec<_> = info.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["Capacity", "Expansion rate", "Number of filters", "Number of items inserted", "Size"]
        );
        assert_eq!(info["Capacity"], 1000.0);
        assert_eq!(info["Expansion rate"], 2.0);
        assert!(*info["Size"] > 1000.0, "{info:?}");
    }
    Ok(())
}

#[test]
fn reserve_takes_options() -> Result<(), RedisError> {
    for (mut redis, key) in connections() {
        redis.bf_reserve_options(&key, 0.01, 100, Scaling::ExpansionRate(4))?;
        assert_eq!(redis.bf_info_type(&key, Field::Expansion)?, 4.0);
        let rigid = format!("{key}:2");
        redis.bf_reserve_options(&rigid, "0.01", "100", Scaling::NonScaling)?;
        // The expansion is a null. The client reads it as 0 in the full reply, and fails to read it
        // in the array of one field, which RedisBloom has in the same form.
        assert_eq!(redis.bf_info(&rigid)?["Expansion rate"], 0.0);
        let unread = redis
            .bf_info_type(&rigid, Field::Expansion)
            .expect_err("redis-rs 1.8.1 cannot read [null]");
        assert_eq!(unread.kind(), redis::ErrorKind::Parse);
    }
    Ok(())
}

#[test]
fn additions_say_what_was_new() -> Result<(), RedisError> {
    for (mut redis, key) in connections() {
        assert!(redis.bf_add(&key, "a")?);
        assert!(!redis.bf_add(&key, "a")?);
        assert_eq!(redis.bf_madd(&key, &["a", "b"])?, [false, true]);
        assert_eq!(redis.bf_insert(&key, &["b", "c"])?, [false, true]);
        assert_eq!(redis.bf_card(&key)?, 3);
    }
    Ok(())
}

#[test]
fn insert_takes_options() -> Result<(), RedisError> {
    for (mut redis, key) in connections() {
        let options = || Insert::default().capacity(500).error_rate(0.0001);
        let grows = options().expansion(Scaling::ExpansionRate(3));
        assert_eq!(redis.bf_insert_options(&key, &["a", "b"], grows)?, [true, true]);
        assert_eq!(redis.bf_info_type(&key, Field::Capacity)?, 500.0);
        assert_eq!(redis.bf_info_type(&key, Field::Expansion)?, 3.0);

        let missing = format!("{key}:2");
        let reply = redis.bf_insert_options(&missing, &["a"], options().nocreate());
        assert_eq!(refused(reply), "ERR not found");
        let rigid = options().expansion(Scaling::NonScaling);
        assert_eq!(redis.bf_insert_options(&missing, &["a"], rigid)?, [true]);
        assert_eq!(
            redis.bf_insert_options(&missing, &["a"], Insert::default().nocreate())?,
            [false]
        );
    }
    Ok(())
}

#[test]
fn questions_find_what_was_added() -> Result<(), RedisError> {
    for (mut redis, key) in connections() {
        assert!(!redis.bf_exists(&key, "a")?);
        assert_eq!(redis.bf_mexists(&key, &["a", "b"])?, [false, false]);
        assert_eq!(redis.bf_card(&key)?, 0);
        assert_eq!(refused(redis.bf_info(&key)), "ERR not found");
        assert_eq!(refused(redis.bf_info_type(&key, Field::Size)), "ERR not found");
        let items: [&[u8]; 3] = [b"\r\n\0\xff", b"", b"a"];
        redis.bf_madd(&key, &items[..])?;
        assert!(redis.bf_exists(&key, "a")?);
        assert_eq!(redis.bf_mexists(&key, &items)?, [true; 3]);
    }
    Ok(())
}

#[test]
fn each_field_of_the_info_can_be_asked_alone() -> Result<(), RedisError> {
    for (mut redis, key) in connections() {
        redis.bf_reserve(&key, 0.001, 10)?;
        redis.bf_madd(&key, (0..20).collect::<Vec<_>>())?;
        let info = redis.bf_info(&key)?;
        for (field, name) in [
            (Field::Capacity, "Capacity"),
            (Field::Size, "Size"),
            (Field::Filters, "Number of filters"),
            (Field::Items, "Number of items inserted"),
            (Field::Expansion, "Expansion rate"),
        ] {
            assert_eq!(redis.bf_info_type(&key, field)?, *info[name], "{name}");
        }
        assert_eq!(info["Number of filters"], 2.0);
    }
    Ok(())
}

#[test]
fn an_error_inside_the_answers_is_an_error_of_the_call() -> Result<(), RedisError> {
    for (mut redis, key) in connections() {
        redis.bf_reserve_options(&key, 1e-9, 1, Scaling::NonScaling)?;
        assert_eq!(
            refused(redis.bf_madd(&key, &["a", "b", "c"])),
            "ERR non scaling filter is full"
        );
        assert_eq!(refused(redis.bf_add(&key, "b")), "ERR non scaling filter is full");
        // The connection is still in step, and the item before the error was added.
        assert!(redis.bf_exists(&key, "a")?);
        assert_eq!(redis.bf_card(&key)?, 1);
    }
    Ok(())
}

#[test]
fn a_dump_loads_into_an_equal_filter() -> Result<(), RedisError> {
    for (mut redis, key) in connections() {
        redis.bf_madd(&key, (0..1000).collect::<Vec<_>>())?;
        let chunks: Vec<_> =
            BloomFilterDumpIterator::new(&mut redis, &key).collect::<Result<_, _>>()?;
        assert!(chunks.len() > 1);
        let copy = format!("{key}:2");
        for chunk in chunks {
            redis.bf_loadchunk(&copy, chunk)?;
        }
        assert_eq!(redis.bf_info(&copy)?, redis.bf_info(&key)?);
        assert_eq!(redis.bf_mexists(&copy, &(0..1000).collect::<Vec<_>>())?, [true; 1000]);

        // Past the last bit, the reply is the end mark with empty data, which this client requires.
        let reserved = format!("{key}:3");
        redis.bf_reserve(&reserved, 0.01, 1000)?;
        let end = redis.bf_scandump(&reserved, 1 << 40)?;
        assert_eq!((end.iterator, end.data), (0, Vec::new()));
    }
    Ok(())
}

#[test]
fn a_key_of_another_type_is_refused() -> Result<(), RedisError> {
    for (mut redis, key) in connections() {
        redis.set(&key, "text")?;
        for refusal in [
            refused(redis.bf_add(&key, "a")),
            refused(redis.bf_madd(&key, "a")),
            refused(redis.bf_insert(&key, "a")),
            refused(redis.bf_exists(&key, "a")),
            refused(redis.bf_mexists(&key, &["a"])),
            refused(redis.bf_card(&key)),
            refused(redis.bf_info(&key)),
            refused(redis.bf_reserve(&key, 0.01, 10)),
            refused(redis.bf_scandump(&key, 0)),
        ] {
            assert_eq!(
                refusal,
                "WRONGTYPE Operation against a key holding the wrong kind of value"
            );
        }
    }
    Ok(())
}

#[test]
fn a_pipeline_stays_in_step_behind_an_error_inside_an_array() -> Result<(), RedisError> {
    for (mut redis, key) in connections() {
        redis.bf_reserve_options(&key, 1e-9, 1, Scaling::NonScaling)?;
        let mut pipeline = redis::pipe();
        pipeline.bf_madd(&key, &["a", "b", "c"]).bf_exists(&key, "a");
        let reply = pipeline.query::<(Vec<bool>, bool)>(&mut redis);
        assert_eq!(refused(reply), "ERR non scaling filter is full");
        assert!(redis.bf_exists(&key, "a")?);
        let (new, there): (Vec<bool>, bool) =
            redis::pipe().bf_madd(&key, &["a", "a"]).bf_exists(&key, "a").query(&mut redis)?;
        assert_eq!((new, there), (vec![false, false], true));
    }
    Ok(())
}
