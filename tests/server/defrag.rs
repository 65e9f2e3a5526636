//! Active defragmentation moves a filter's memory while the server works; only addresses change.
//!
//! Only servers with the patched jemalloc can defragment (the official builds can, Debian's
//! cannot). On others the test is skipped.

use std::time::{Duration, Instant};

use crate::harness::{
    Client, Random, Server, add_until_card, assert_unharmed, dump, int, load, mexists, numbered,
    ok, skipped, wait_until,
};

/// Creates filters of many sizes: most below a page of the kernel, some up to 500 kB, some of
/// pages, a few of megabytes, some half loaded. Returns the keys.
fn make(client: &mut Client, random: &mut Random) -> Vec<String> {
    let mut keys = Vec::new();
    for number in 0..12_000 {
        let key = format!("k{number}");
        let capacity = match number % 100 {
            0 => 20_000 + random.below(380_000),
            1..10 => 1_000 + random.below(20_000),
            _ => 1 + random.below(1_500),
        };
        client.send(&["BF.RESERVE", &key, "0.01", &capacity.to_string()]);
        client.send(&["BF.MADD", &key, "a", &key]);
        keys.push(key);
    }
    for _ in 0..keys.len() {
        assert_eq!(client.read(), ok());
        assert_eq!(client.read().elements()[0], int(1));
    }
    for number in 0..40 {
        let key = format!("pages{number}");
        let words = ["10", "200", "10 COUNTING", "10 WINDOW EX 600"][number / 2 % 4];
        client.run(&format!("BF.RESERVE {key} 0.01 {words}"));
        add_until_card(client, &key, "item", 20_000);
        keys.push(key);
    }
    let pieces = dump(client, "pages0");
    for number in 0..40 {
        let key = format!("half{number}");
        assert_eq!(load(client, &key, &pieces[0]), ok());
        keys.push(key);
    }
    for (key, capacity) in
        [("large0", 7_000_000), ("large1", 7_000_000), ("huge0", 40_000_000), ("huge1", 40_000_000)]
    {
        client.run(&format!("BF.RESERVE {key} 0.01 {capacity}"));
        add_until_card(client, key, "item", 10_000);
        keys.push(key.to_owned());
    }
    keys
}

fn number(client: &mut Client, section: &str, field: &str) -> i64 {
    client.server_info(section, field).parse().expect("a number")
}

#[test]
fn defragmentation_moves_filters_and_changes_none() {
    let server = Server::start();
    let client = &mut server.client();
    if client.run("CONFIG SET activedefrag yes").is_error() {
        skipped("defragmentation_moves_filters_and_changes_none", "this server cannot defragment");
        return;
    }
    assert_eq!(client.run("CONFIG SET activedefrag no"), ok());
    let empty = client.memory("used_memory");
    let keys = make(client, &mut Random::new(7));
    // Every other filter is deleted, so that each page of small ones has holes.
    for pair in keys.chunks(2) {
        client.cmd(&["DEL", &pair[0]]);
    }
    let digest = client.run("DEBUG DIGEST");
    for line in [
        "active-defrag-ignore-bytes 1mb",
        "active-defrag-threshold-lower 4",
        "active-defrag-threshold-upper 20",
        "active-defrag-cycle-min 20",
        "active-defrag-cycle-max 40",
    ] {
        assert_eq!(client.run(&format!("CONFIG SET {line}")), ok(), "{line}");
    }
    let before = number(client, "memory", "allocator_frag_bytes");
    assert_eq!(client.run("CONFIG SET activedefrag yes"), ok());
    wait_until("defragmentation begins", || number(client, "memory", "active_defrag_running") > 0);
    // Defragmentation runs in the thread of the commands, which must still be answered soon.
    let (mut slowest, mut pings, begin) = (Duration::ZERO, 0, Instant::now());
    while number(client, "memory", "active_defrag_running") > 0
        && begin.elapsed() < Duration::from_secs(8)
    {
        for _ in 0..100 {
            let sent = Instant::now();
            client.assert_in_step();
            slowest = slowest.max(sent.elapsed());
            pings += 1;
        }
        let key = &keys[1 + 2 * (pings % 1_000)];
        assert_eq!(client.cmd(&["BF.EXISTS", key, "a"]), int(1), "{key} during defragmentation");
    }
    // The server measures ten times a second, and Redis 8.2 may be done in less.
    let mut after = before;
    wait_until("the fragmentation is halved", || {
        after = number(client, "memory", "allocator_frag_bytes");
        after < before / 2
    });
    let ours = ["hits", "misses"].map(|which| number(client, "bf", &format!("bf_defrag_{which}")));
    let hits = number(client, "stats", "active_defrag_hits");
    println!(
        "fragmentation from {before} to {after} bytes in {:.1?}, {hits} allocations moved; \
         {pings} PINGs, slowest {slowest:.1?}",
        begin.elapsed()
    );
    assert!(hits > 1_000, "{hits} allocations were moved");
    println!("of filters: {} moved, {} left in place", ours[0], ours[1]);
    // The server also counts what is not a filter's: names of keys, for example.
    assert!((1_000..=hits).contains(&ours[0]), "{ours:?} of {hits}");
    assert!(ours[1] > 0, "{ours:?}");
    assert_eq!(client.run("DEBUG DIGEST"), digest, "the moved filters are unchanged");
    // Moved filters can grow and be freed.
    for key in ["pages1", "pages3", "pages5", "pages7", "k1", "k3", "large1"] {
        let items = numbered("more", 2_000);
        crate::harness::madd(client, key, &items);
        assert!(mexists(client, key, &items).iter().all(|&there| there), "{key}");
    }
    client.run("FLUSHALL SYNC");
    let left = client.memory("used_memory") - empty;
    assert!(left < 2 << 20, "{left} bytes are left");
    assert_unharmed(&server);
}
