//! Equal seeds make equal filters, other seeds make other filters, and the default seed is random.

use crate::harness::{Client, Server, mexists, numbered, ok};

/// Positions of the false positives among 20,000 other items; they depend only on the seed.
fn false_positives(client: &mut Client, key: &str) -> Vec<usize> {
    let there = mexists(client, key, &numbered("other", 20_000));
    there.iter().enumerate().filter(|(_, there)| **there).map(|(place, _)| place).collect()
}

fn fill(client: &mut Client, key: &str, options: &str) {
    assert_eq!(client.run(&format!("BF.RESERVE {key} 0.05 1000 NONSCALING {options}")), ok());
    crate::harness::madd(client, key, &numbered("item", 950));
}

#[test]
fn equal_seeds_make_equal_filters_and_other_seeds_do_not() {
    let server = Server::start();
    let client = &mut server.client();
    for (key, seed) in
        [("a", "1"), ("b", "1"), ("c", "2"), ("d", "0"), ("e", "18446744073709551615")]
    {
        fill(client, key, &format!("SEED {seed}"));
    }
    assert_eq!(client.run("DUMP a"), client.run("DUMP b"));
    let first = false_positives(client, "a");
    assert!(
        first.len() > 300,
        "only {} false positives at 5 %: the filter has another rate",
        first.len()
    );
    for key in ["c", "d", "e"] {
        assert_ne!(client.run("DUMP a"), client.cmd(&["DUMP", key]), "{key}");
        // By chance, 5 % of about 1,000 are expected.
        let common =
            false_positives(client, key).iter().filter(|place| first.contains(place)).count();
        assert!(
            common * 5 < first.len(),
            "{common} of {} false positives carry over to {key}",
            first.len()
        );
    }
}

/// In RedisBloom all false positives carry over between servers, because its seed is public.
#[test]
fn false_positives_do_not_carry_over_to_another_filter_or_server() {
    let (one, other) = (Server::start(), Server::start());
    fill(&mut one.client(), "k", "");
    fill(&mut one.client(), "l", "");
    fill(&mut other.client(), "k", "");
    let first = false_positives(&mut one.client(), "k");
    assert!(!first.is_empty());
    for (server, key) in [(&one, "l"), (&other, "k")] {
        let second = false_positives(&mut server.client(), key);
        let common = second.iter().filter(|place| first.contains(place)).count();
        assert!(common * 5 < first.len(), "{common} of {} false positives carry over", first.len());
    }
}
