//! The keys of shards, and how they lie on the nodes of a cluster.

use std::collections::HashSet;

use crate::sharding::{MAX_SHARDS, NameError, key_slot, keys::middle_slot, shard_keys};
use sha2::{Digest, Sha256};

/// Names, numbers of shards, and the number in each key.
pub(crate) const NUMBERS: [(&str, &[u32]); 3] = [
    ("urls", &[25249, 3206, 4282, 43610, 7835, 79281, 29169, 48179]),
    ("users", &[4795, 4358, 11859, 3711, 45182, 12623, 23116, 8078]),
    ("urls", &[5968, 1796]),
];

/// Numbers of shards, and the first digits of the SHA-256 of all keys of `urls`, generation 1,
/// joined by spaces.
pub(crate) const DIGESTS: [(u16, &str); 6] = [
    (2, "751796e479ddc25a"),
    (8, "ba1479968673d40d"),
    (16, "8ffb0a73e02168be"),
    (64, "cd5f3a2af93b1e0c"),
    (128, "5dea727ec98370ac"),
    (1024, "dcd98322ca8216bb"),
];

fn keys(name: &str, count: u16) -> Vec<Vec<u8>> {
    shard_keys(name.as_bytes(), count, 1).expect("a name without braces")
}

#[test]
fn vectors() {
    for (name, numbers) in NUMBERS {
        let expected: Vec<Vec<u8>> =
            numbers.iter().map(|number| format!("{{{name}:{number}}}:1").into()).collect();
        assert_eq!(keys(name, numbers.len() as u16), expected);
    }
    for (count, digest) in DIGESTS {
        let hash = Sha256::digest(keys("urls", count).join(&b' '));
        let hex: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, digest, "{count} shards");
    }
    assert_eq!(shard_keys(b"urls", 2, 37).expect("no braces")[0], b"{urls:5968}:37");
}

#[test]
fn slots_are_those_of_a_cluster() {
    // The example of the cluster specification, and what CLUSTER KEYSLOT answers.
    for (key, slot) in [
        (&b"123456789"[..], 12739),
        (b"", 0),
        (b"foo", 12182),
        (b"{foo}bar", 12182),
        (b"{}foo", key_slot(b"{}foo")),
        (b"x{foo}{bar}", 12182),
        (b"foo{", key_slot(b"foo{")),
    ] {
        assert_eq!(key_slot(key), slot, "{key:?}");
    }
    assert_ne!(key_slot(b"{}foo"), key_slot(b"foo"), "empty braces hide nothing");
}

/// A name in front of a number XORs a constant to its slot, so the slots of all numbers of six
/// digits prove that each name has a key in every slot.
#[test]
fn numbers_of_six_digits_have_every_slot() {
    let slots: HashSet<u16> =
        (100_000..1_000_000).map(|number| key_slot(number.to_string().as_bytes())).collect();
    assert_eq!(slots.len(), 16_384);
}

/// Every number of shards up to 64, and the powers of two above.
fn counts() -> impl Iterator<Item = u16> {
    (1..=64).chain([128, 256, 512, MAX_SHARDS])
}

/// Keys lie in the middle of their ranges, also under names that are empty, long or not text.
#[test]
fn each_key_is_in_its_own_range() {
    for name in [&b"urls"[..], b"", b"\x00\xff a\r\n", &[b'x'; 300]] {
        for count in counts() {
            let keys = shard_keys(name, count, 1).expect("a name without braces");
            assert_eq!(keys.len(), usize::from(count));
            for (index, key) in (0..).zip(&keys) {
                assert_eq!(key_slot(key), middle_slot(index, count), "{count} shards, {index}");
            }
        }
    }
}

/// The most and the fewest keys on one of `nodes` nodes, which hold equal ranges of slots, as
/// `redis-cli --cluster create` deals them out.
fn spread(slots: &[u16], nodes: u32) -> (usize, usize) {
    let start = |node: u32| (f64::from(node) * 16_384.0 / f64::from(nodes)).round() as u16;
    let on = |node: u32| {
        slots.iter().filter(|&&slot| (start(node)..start(node + 1)).contains(&slot)).count()
    };
    let counts: Vec<usize> = (0..nodes).map(on).collect();
    (*counts.iter().max().expect("a node"), *counts.iter().min().expect("a node"))
}

/// Whether the nodes of each cluster of 3 to 12 have equally many keys, give or take one.
fn is_even(slots: &[u16]) -> bool {
    (3..=12).all(|nodes| {
        let (most, fewest) = spread(slots, nodes);
        most - fewest <= 1
    })
}

#[test]
fn nodes_get_equally_many_keys() {
    for count in counts() {
        let slots: Vec<u16> = keys("urls", count).iter().map(|key| key_slot(key)).collect();
        assert!(is_even(&slots), "{count} shards");
    }
}

/// What people write by hand fails the test that the keys of this module pass.
#[test]
fn numbers_alone_do_not_spread() {
    let naive = |count: u16| -> Vec<u16> {
        (0..count).map(|index| key_slot(format!("urls:{{{index}}}").as_bytes())).collect()
    };
    for count in [8, 16, 64, 128] {
        assert!(!is_even(&naive(count)), "{count} shards");
    }
    assert_eq!(spread(&naive(16), 8), (4, 0));
}

#[test]
fn names_and_numbers_of_shards_are_checked() {
    for name in ["{urls}", "ur{ls", "}"] {
        assert_eq!(shard_keys(name.as_bytes(), 8, 1), Err(NameError::Braces), "{name}");
    }
    for count in [0, MAX_SHARDS + 1, u16::MAX] {
        assert_eq!(shard_keys(b"urls", count, 1), Err(NameError::Shards(count.into())));
    }
}
