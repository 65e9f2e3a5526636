//! Filters as large as the machine's memory, and larger: cheap until they are used, and refused at
//! once if they are impossible.

use std::time::{Duration, Instant};

use crate::harness::{Client, Server, config_name, err, info, int, madd, mexists, numbered, ok};

const NO_MEMORY: &str = "ERR Insufficient memory to create filter";
const GIB: i64 = 1 << 30;

/// A bound for a reply that hangs, not a measure of speed, which the tests print.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Bytes that the allocator, client buffers and statistics may add to `used_memory`.
const NOISE: i64 = 1 << 20;

fn timed(client: &mut Client, line: &str) -> (crate::harness::Reply, Duration) {
    let begin = Instant::now();
    let reply = client.run(line);
    (reply, begin.elapsed())
}

#[test]
fn a_filter_of_a_gibibyte_is_made_at_once_and_counted_in_used_memory() {
    let server = Server::start();
    let client = &mut server.client();
    let (used, resident) = (client.memory("used_memory"), client.memory("used_memory_rss"));
    // 900 million items at 1 % need at least ln(100)/ln2^2 = 9.585 bits each: 1.078e9 bytes.
    let (reply, took) = timed(client, "BF.RESERVE k 0.01 900000000 NONSCALING");
    assert_eq!(reply, ok());
    let size = info(client, "k").size;
    println!("BF.RESERVE of {size} bytes took {took:?}");
    assert!(size >= GIB, "BF.INFO Size is {size}");
    assert!(took < AT_ONCE, "BF.RESERVE of {size} bytes took {took:?}");
    let grown = client.memory("used_memory") - used;
    // jemalloc has four sizes between two powers of two, so it may round up by a quarter.
    assert!(
        grown >= GIB && grown <= size + size / 4 + NOISE,
        "used_memory grew by {grown} for {size} bytes"
    );
    let usage = client.run("MEMORY USAGE k").int();
    assert!(
        (usage - grown).abs() < NOISE,
        "MEMORY USAGE says {usage}, used_memory grew by {grown}"
    );

    // The memory is zeroed lazily: pages without writes are not resident. The server updates the
    // number ten times a second.
    std::thread::sleep(Duration::from_millis(500));
    let touched = client.memory("used_memory_rss") - resident;
    println!("{touched} bytes of it are resident");
    assert!(touched < GIB / 4, "{touched} bytes are resident before anything was added");

    assert_eq!(client.run("BF.ADD k a"), int(1));
    assert_eq!(client.run("BF.EXISTS k a"), int(1));
    assert_eq!(client.run("BF.EXISTS k b"), int(0));
    // Some servers free a large value in the background.
    client.run("DEL k");
    let deadline = Instant::now() + Duration::from_secs(10);
    while client.memory("used_memory") - used >= NOISE {
        assert!(Instant::now() < deadline, "DEL does not give the memory back");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Most machines have less memory and the kernel must overcommit (`make test-huge` checks), so a
/// plain run leaves this test out.
#[test]
#[ignore = "needs a kernel that overcommits: make test-huge"]
fn a_sparse_filter_of_64_gibibytes_is_made_used_and_deleted_at_once() {
    let server = Server::start();
    let client = &mut server.client();
    client.cmd(&["CONFIG", "SET", &config_name("max-filter-bytes"), "100gb"]);
    let (used, resident) = (client.memory("used_memory"), client.memory("used_memory_rss"));
    // 57 billion items at 1 % need at least 9.585 bits each: 68.3e9 bytes.
    let (reply, took) = timed(client, "BF.RESERVE k 0.01 57000000000 NONSCALING");
    assert_eq!(reply, ok());
    let size = info(client, "k").size;
    println!("BF.RESERVE of {size} bytes took {took:?}");
    assert!(size >= 64 * GIB, "BF.INFO Size is {size}");
    assert!(took < AT_ONCE, "BF.RESERVE took {took:?}");
    assert!(client.memory("used_memory") - used >= 64 * GIB);

    let items = numbered("item", 10_000);
    assert!(madd(client, "k", &items).iter().all(|&new| new), "all are new");
    assert!(mexists(client, "k", &items).iter().all(|&there| there), "all are there");
    let others = mexists(client, "k", &numbered("other", 10_000));
    assert!(others.iter().all(|&there| !there), "10,000 items leave the filter almost empty");
    assert_eq!(info(client, "k").items, 10_000);
    std::thread::sleep(Duration::from_millis(500));
    let touched = client.memory("used_memory_rss") - resident;
    println!("{touched} bytes of it are resident after 10,000 items and 10,000 queries");
    // Each item touches a page. A query of an untouched page maps the kernel's shared page of
    // zeros, which is not resident memory.
    assert!(touched < GIB / 4, "{touched} bytes are resident");

    let (_, took) = timed(client, "DEL k");
    println!("DEL took {took:?}");
    assert!(took < AT_ONCE, "DEL took {took:?}");
    let deadline = Instant::now() + Duration::from_secs(10);
    while client.memory("used_memory") - used >= NOISE {
        assert!(Instant::now() < deadline, "DEL does not give the memory back");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn requests_beyond_memory_are_refused_at_once_and_take_no_memory() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("PING");
    let used = client.memory("used_memory");
    let requests = [
        // (rate, capacity): each needs more than the 2^47 bytes that a process can address, even if
        // a rate below the resolution of a 128-bit hash is raised to that resolution.
        ("0.01", 1_u64 << 60),
        ("0.01", 1 << 62),
        ("0.01", 1_000_000_000_000_000_000),
        ("0.01", 1 << 50),
        ("0.5", 1 << 62),
        ("0.5", 1 << 51),
        ("1e-300", 1 << 60),
        ("1e-300", 1 << 62),
        ("1e-300", 1 << 45),
        ("5e-324", 1 << 62),
        ("5e-324", 1 << 53),
        ("1e-15", (1 << 62) - 1),
        ("1e-9", (1 << 53) + 1),
        ("0.9", 1 << 62),
        // Just over 2^64 bits, which would wrap around to a few.
        ("0.01", 1_924_571_000_000_000_000),
        ("0.01", 1_925_000_000_000_000_000),
    ];
    for (rate, capacity) in requests {
        for line in [
            format!("BF.RESERVE k {rate} {capacity}"),
            format!("BF.RESERVE k {rate} {capacity} NONSCALING"),
            format!("BF.RESERVE k {rate} {capacity} EXPANSION 32768"),
            format!("BF.RESERVE k {rate} {capacity} COUNTING"),
            format!("BF.RESERVE k {rate} {capacity} WINDOW COUNT"),
            format!("BF.RESERVE k {rate} {capacity} WINDOW EX 60 NONSCALING"),
            format!("BF.INSERT k ERROR {rate} CAPACITY {capacity} ITEMS a b"),
        ] {
            let (reply, took) = timed(client, &line);
            assert_eq!(reply, err(NO_MEMORY), "{line}");
            assert!(took < AT_ONCE, "{line} took {took:?}");
            client.assert_in_step();
            assert_eq!(client.run("DBSIZE"), int(0), "{line} left a key");
            let grown = client.memory("used_memory") - used;
            assert!(grown < NOISE, "{line} left {grown} bytes");
        }
    }
    assert_eq!(client.run("BF.ADD k a"), int(1), "the server is alive");
}

/// Needs more memory than the system gives and less than can be addressed. The address space is
/// limited, so the test is equal on every machine.
#[test]
fn a_request_beyond_the_memory_of_the_system_is_refused() {
    let server = Server::with().address_space(1 << 30).start();
    let client = &mut server.client();
    let used = client.memory("used_memory");
    for line in [
        "BF.RESERVE k 0.01 1000000000",
        "BF.RESERVE k 0.01 900000000 NONSCALING",
        "BF.RESERVE k 0.01 10000000000",
        "BF.RESERVE k 1e-9 300000000",
        "BF.RESERVE k 0.01 100000000000 COUNTING",
        "BF.RESERVE k 0.01 100000000000 WINDOW COUNT",
        "BF.INSERT k CAPACITY 1000000000 ITEMS a",
    ] {
        let (reply, took) = timed(client, line);
        assert_eq!(reply, err(NO_MEMORY), "{line}");
        assert!(took < AT_ONCE, "{line} took {took:?}");
        assert!(client.memory("used_memory") - used < NOISE, "{line} left memory behind");
    }
    assert_eq!(client.run("DBSIZE"), int(0));
    assert_eq!(client.run("BF.RESERVE k 0.01 1000000"), ok(), "what fits is still made");
}

/// A reserved filter that grows gives its pages a part of the rate; the smallest doubles must not
/// underflow to 0.
#[test]
fn the_smallest_rates_survive_growth() {
    let server = Server::start();
    let client = &mut server.client();
    for rate in ["1e-15", "1e-100", "1e-300", "2.3e-308", "5e-324"] {
        client.run("FLUSHALL SYNC");
        let used = client.memory("used_memory");
        for capacity in [1, 101] {
            assert_eq!(client.run(&format!("BF.RESERVE k{capacity} {rate} {capacity}")), ok());
            let (key, items) = (format!("k{capacity}"), numbered("item", 400));
            assert!(madd(client, &key, &items).iter().all(|&new| new), "{rate}, {key}");
            assert!(mexists(client, &key, &items).iter().all(|&there| there), "{rate}, {key}");
        }
        let grown = client.memory("used_memory") - used;
        // 1,075 bits are the most that any double asks for an item: some 110 kB for both.
        assert!(grown < 4 * NOISE, "{rate}: 800 items take {grown} bytes");
    }
}

#[test]
fn writers_are_refused_above_maxmemory_and_readers_are_not() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.ADD k a");
    client.run("CONFIG SET maxmemory 1");
    let oom = err("OOM command not allowed when used memory > 'maxmemory'.");
    for line in [
        "BF.RESERVE n 0.01 100",
        "BF.ADD k b",
        "BF.MADD k b c",
        "BF.INSERT k ITEMS b",
        "BF.LOADCHUNK n 1 data",
    ] {
        assert_eq!(client.run(line), oom, "{line}");
    }
    assert_eq!(client.run("BF.EXISTS k a"), int(1));
    assert_eq!(client.run("BF.CARD k"), int(1));
    for line in ["BF.MEXISTS k a b", "BF.INFO k", "BF.DEBUG k", "BF.SCANDUMP k 0"] {
        assert!(!client.run(line).is_error(), "{line}");
    }
}
