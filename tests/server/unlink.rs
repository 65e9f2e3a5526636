//! Freeing of memory: large filters are freed in the background, all memory is freed, and MEMORY
//! USAGE is correct until then.

use std::time::Instant;

use crate::harness::{
    Client, Payload, Reply, Server, add_until_card, assert_unharmed, digest, dump, info, int, load,
    madd, numbered, ok, sealed, settled_memory, wait_until,
};

/// Bytes by which the server's own memory may change between two measurements.
const NOISE: i64 = 100_000;

/// Makes a filter of 1 GiB and writes to most of its pages.
fn dirty_gibibyte(client: &mut Client, key: &str) {
    assert_eq!(client.run(&format!("BF.RESERVE {key} 0.01 900000000 NONSCALING")), ok());
    assert!(info(client, key).size > 1 << 30);
    // An item writes to one block of 64 bytes, so 500,000 items write to 85 % of the 262,144 pages.
    for part in 0..10 {
        madd(client, key, &numbered(&format!("item-{part}"), 50_000));
    }
}

#[test]
fn a_gibibyte_of_dirty_pages_is_freed_in_the_background() {
    let server = Server::start();
    let client = &mut server.client();
    let used = client.memory("used_memory");
    for line in ["UNLINK k", "FLUSHALL ASYNC"] {
        dirty_gibibyte(client, "k");
        let before = client.memory("lazyfreed_objects");
        let begin = Instant::now();
        let reply = client.run(line);
        let took = begin.elapsed();
        let resident = client.memory("used_memory_rss");
        assert!(!reply.is_error(), "{line}: {reply:?}");
        println!("{line} of a gibibyte, {} MiB resident: {took:.2?}", resident >> 20);
        wait_until("the memory is back", || {
            client.memory("lazyfreed_objects") > before
                && client.memory("used_memory") - used < 1 << 20
        });
    }
    assert_unharmed(&server);
}

/// By `free_effort`, small filters are freed at once and large ones by the background thread.
#[test]
fn only_large_filters_go_to_the_background_thread() {
    let server = Server::start();
    let client = &mut server.client();
    for (options, background) in
        [("0.01 100", false), ("0.01 1000000", true), ("0.01 50", true), ("0.01 50 COUNTING", true)]
    {
        assert_eq!(client.run(&format!("BF.RESERVE k {options}")), ok());
        if options.starts_with("0.01 50") {
            // Some 40 pages.
            add_until_card(client, "k", "item", 40_000);
        }
        let before = client.memory("lazyfreed_objects");
        assert_eq!(client.run("UNLINK k"), int(1));
        // The thread counts an object as freed only after it is no longer pending.
        wait_until(options, || {
            client.memory("lazyfree_pending_objects") == 0
                && client.memory("lazyfreed_objects") - before == i64::from(background)
        });
    }
}

/// The pages of a window that was emptied are still to be freed, one slice after the other.
#[test]
fn an_emptied_window_goes_to_the_background_thread() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 50 WINDOW PX 400 GENERATIONS 1"), ok());
    // Some 200 pages: BF.FORGET frees the first slice itself.
    madd(client, "k", &numbered("item", 200_000));
    let before = client.memory("lazyfreed_objects");
    wait_until("the window is over", || client.run("BF.CARD k") == int(0));
    client.run("MULTI");
    client.run("BF.FORGET k");
    client.run("UNLINK k");
    assert_eq!(client.run("EXEC").elements().last(), Some(&int(1)));
    wait_until("it is freed", || client.memory("lazyfreed_objects") - before == 1);
}

/// For filters of any shape and origin, MEMORY USAGE is the growth of `used_memory`.
#[test]
fn memory_usage_is_correct_within_one_per_cent() {
    type Make = fn(&mut Client);
    let rows: [(&str, Make); 11] = [
        ("one layer of 1.9 MB", |client| {
            client.run("BF.RESERVE k 0.001 1000000");
        }),
        ("one layer of 64 MiB", |client| {
            client.run("BF.RESERVE k 0.01 55000000 NONSCALING");
            madd(client, "k", &numbered("item", 1_000));
        }),
        ("a layer and pages", |client| {
            client.run("BF.RESERVE k 1e-7 1000");
            add_until_card(client, "k", "item", 200_000);
        }),
        ("ten items", |client| {
            client.call("BF.MADD", "k", &numbered("item", 10));
        }),
        ("pages", |client| {
            client.run("BF.RESERVE k 1e-9 50");
            add_until_card(client, "k", "item", 20_000);
        }),
        ("counts, most of them deleted", |client| {
            client.run("BF.RESERVE k 1e-9 50 COUNTING");
            add_until_card(client, "k", "item", 40_000);
            client.call("BF.DEL", "k", &numbered("item", 30_000));
        }),
        ("a window of the last items", |client| {
            client.run("BF.RESERVE k 1e-9 10000 WINDOW COUNT");
            madd(client, "k", &numbered("item", 60_000));
        }),
        ("half a load", |client| {
            client.run("BF.RESERVE whole 0.01 15000000");
            for piece in &dump(client, "whole")[..2] {
                assert_eq!(load(client, "k", piece), ok());
            }
            client.run("DEL whole");
        }),
        ("a copy", |client| {
            client.run("BF.RESERVE whole 1e-9 1000");
            add_until_card(client, "whole", "item", 150_000);
            client.run("COPY whole k");
            client.run("DEL whole");
        }),
        ("restored", |client| {
            client.run("BF.RESERVE k 1e-9 1000");
            add_until_card(client, "k", "item", 150_000);
            let Reply::Bulk(payload) = client.run("DUMP k") else { panic!("no payload") };
            assert_eq!(client.call("RESTORE", "k", &[b"0", &payload[..], b"REPLACE"]), ok());
        }),
        ("reloaded", |client| {
            client.run("BF.RESERVE k 1e-9 50");
            add_until_card(client, "k", "item", 20_000);
            assert_eq!(client.run("DEBUG RELOAD"), ok());
        }),
    ];
    // The slow log would keep arguments of commands in memory.
    // Valkey frees large values in a thread, after the memory was measured for the next row.
    let server = Server::with()
        .config("latency-tracking no")
        .config("slowlog-max-len 0")
        .config("lazyfree-lazy-user-del no")
        .start();
    server.client().run("BF.ADD another a");
    for (what, make) in rows {
        // The first time, the server may get buffers that it keeps.
        make(&mut server.client());
        server.client().run("DEL k");
        let before = settled_memory(&server);
        make(&mut server.client());
        // Forgotten slots of a window are removed between commands.
        let usage = || server.client().run("MEMORY USAGE k").int();
        let (mut grown, mut first) = (0, 0);
        wait_until("nothing more is removed", || {
            (first, grown) = (usage(), settled_memory(&server) - before);
            usage() == first
        });
        let usage = first;
        let off = (usage - grown).abs();
        println!("{what}: MEMORY USAGE {usage}, used_memory {grown}");
        assert!(off <= grown / 100 + 200, "{what}: MEMORY USAGE {usage}, used_memory {grown}");
        server.client().run("DEL k");
    }
}

/// All ways to make, grow, refuse and drop a filter, 200 times, must leave the memory as it was.
#[test]
fn two_hundred_rounds_leave_no_memory_behind() {
    let server = Server::with()
        .config("latency-tracking no")
        .config("rdbcompression no")
        .config("slowlog-max-len 0")
        .start();
    let round = |server: &Server, number: usize| {
        let client = &mut server.client();
        assert_eq!(client.run("BF.RESERVE grown 0.01 20"), ok());
        client.call("BF.MADD", "grown", &numbered(&format!("round-{number}"), 900));
        client.run("BF.ADD added a");
        client.run("BF.RESERVE counted 0.01 20 COUNTING");
        let counted = numbered(&format!("round-{number}"), 3_000);
        client.call("BF.MADD", "counted", &counted);
        client.call("BF.DEL", "counted", &counted[..2_500]);
        client.run("BF.RESERVE window 0.01 500 WINDOW COUNT");
        client.call("BF.MADD", "window", &counted);
        client.run("BF.INSERT full CAPACITY 5 NONSCALING ITEMS a b c d e f g h");
        assert!(client.run("BF.RESERVE huge 0.01 4611686018427387904").is_error());
        assert!(client.run("BF.RESERVE added 0.01 10").is_error());
        client.run("BF.RESERVE large 0.01 2000000");
        client.run("COPY grown copied");
        let pieces = dump(client, "grown");
        assert_eq!(load(client, "half", &pieces[0]), ok());
        assert!(load(client, "half", &(9, vec![1; 100])).is_error());
        for piece in &pieces {
            assert_eq!(load(client, "loaded", piece), ok());
        }
        let payload = Payload::of(client, "grown");
        assert_eq!(client.call("RESTORE", "restored", &[b"0", &payload.bytes()[..]]), ok());
        // Payloads cut in the header and in the middle of the bits are refused.
        let body = payload.body();
        for cut in [60, body.len() - 40] {
            let cut = sealed(&[&body[..cut], &body[body.len() - 2..]].concat());
            assert!(client.call("RESTORE", "refused", &[b"0", &cut[..]]).is_error());
        }
        client.run("RENAME copied restored");
        client.run("PEXPIRE added 1");
        client.run("SET full overwritten");
        digest(client, "grown");
        client.run("UNLINK large");
        client.run(if number.is_multiple_of(2) { "FLUSHALL SYNC" } else { "FLUSHALL ASYNC" });
        wait_until("nothing is left to free", || client.memory("lazyfree_pending_objects") == 0);
    };
    for number in 0..10 {
        round(&server, number);
    }
    let before = settled_memory(&server);
    for number in 10..210 {
        round(&server, number);
    }
    let left = settled_memory(&server) - before;
    println!("200 rounds left {left} bytes");
    assert!(left < NOISE / 2, "200 rounds left {left} bytes behind");
    assert_unharmed(&server);
}
