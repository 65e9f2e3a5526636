//! Limits that an operator sets, on one filter and on the server. The module checks them before it
//! allocates.

use crate::harness::{
    Client, Reply, Server, add_until_card, add_until_refused, config_name, dump, err, info, int,
    load, madd, mexists, numbered, ok, wait_until,
};

const NO_MEMORY: &str = "ERR Insufficient memory to create filter";
const NO_GROWTH: &str = "ERR problem inserting into filter";
const MIB: i64 = 1 << 20;

fn set_limit(client: &mut Client, bytes: &str) -> Reply {
    client.cmd(&["CONFIG", "SET", &config_name("max-filter-bytes"), bytes])
}

#[test]
fn a_filter_may_be_limited_in_bytes() {
    let server = Server::start();
    let client = &mut server.client();
    // The value may have a unit, like the server's own sizes.
    assert_eq!(set_limit(client, "100kb"), ok());
    let shown = client.config_get(&config_name("max-filter-bytes"));
    assert_eq!(shown.as_deref(), Some("102400"));
    // 70,000 items at 1 % are 94 kB; 100,000 are 133 kB.
    assert_eq!(client.run("BF.RESERVE large 0.01 100000"), err(NO_MEMORY));
    assert_eq!(client.run("BF.INSERT large CAPACITY 100000 ITEMS a"), err(NO_MEMORY));
    assert_eq!(client.run("BF.RESERVE small 0.01 70000"), ok());
    // The limit is on the whole filter: 10,000 items at 0.1 % are 18 kB of bits, and each item
    // above them takes some 22 bits.
    for reserve in ["BF.RESERVE grown 0.001 10000", "BF.RESERVE grown 0.001 100"] {
        assert_eq!(set_limit(client, "100kb"), ok());
        client.run("DEL grown");
        assert_eq!(client.run(reserve), ok());
        let (tried, error) = add_until_refused(client, "grown", "item");
        assert_eq!(error, NO_GROWTH);
        let full = info(client, "grown");
        assert!((95_000..=102_400).contains(&full.size), "{reserve}: {full:?}");
        assert!(full.items > 35_000, "{reserve}: {full:?}");
        assert!(mexists(client, "grown", &tried).iter().all(|&there| there));
        // Without the limit the filter grows.
        assert_eq!(set_limit(client, "0"), ok());
        let absent = numbered("absent", 20_000);
        madd(client, "grown", &absent);
        assert!(info(client, "grown").size > 130_000);
    }
    for value in ["-1", "many", "10xb"] {
        assert!(set_limit(client, value).is_error(), "{value}");
    }
}

/// A complete payload contains its bits. The payload of a load that has just begun has some hundred
/// bytes, and announces any size: its bits are allocated when the next chunk comes, within the
/// limits of BF.LOADCHUNK.
#[test]
fn restore_is_not_bounded_and_a_load_that_it_begins_is() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 10000000"), ok());
    assert_eq!(client.run("BF.ADD k a"), int(1));
    let whole = client.cmd(&["DUMP", "k"]).payload();
    let pieces = dump(client, "k");
    assert_eq!(load(client, "half", &pieces[0]), ok());
    let half = client.cmd(&["DUMP", "half"]).payload();
    assert!(half.len() < 200, "{} bytes", half.len());
    assert_eq!(client.run("DEL k half"), int(2));
    let used = client.memory("used_memory");
    // The filter takes 13 MB.
    for (maxmemory, filter_bytes, goes_on) in [
        ("0", "0", true),
        ("0", "1mb", false),
        ("100mb", "0", true),
        ("100mb", "1mb", false),
        ("20mb", "0", false),
    ] {
        assert_eq!(client.cmd(&["CONFIG", "SET", "maxmemory", maxmemory]), ok());
        assert_eq!(set_limit(client, filter_bytes), ok());
        for (what, payload) in [("the whole", &whole), ("half", &half)] {
            let reply = client.call("RESTORE", "new", &[&b"0"[..], payload]);
            let case =
                format!("{what} under maxmemory {maxmemory}, max-filter-bytes {filter_bytes}");
            assert_eq!(reply, ok(), "{case}");
            if what == "half" {
                let left = client.memory("used_memory") - used;
                assert!(left < MIB, "{case}: {left} bytes are taken");
                let next = load(&mut server.client(), "new", &pieces[1]);
                assert_eq!(next == ok(), goes_on, "{case}: {next:?}");
            }
            client.run("DEL new");
            // The server frees the buffer of the closed connection later.
            wait_until(&format!("{case}: nothing is left"), || {
                client.memory("used_memory") - used < MIB
            });
        }
    }
}

/// A replica that refuses a filter of its primary would hold other data than the primary.
#[test]
fn the_limit_of_a_replica_does_not_apply_to_its_primary() {
    let master = Server::start();
    let replica = master.replica();
    let (client, read) = (&mut master.client(), &mut replica.client());
    assert_eq!(set_limit(read, "1kb"), ok());
    assert_eq!(client.run("BF.RESERVE k 0.01 10000"), ok());
    let items = add_until_card(client, "k", "item", 15_000);
    assert_eq!(client.run("WAIT 1 30000").int(), 1);
    assert!(mexists(read, "k", &items).iter().all(|&there| there));
    assert_eq!(read.run("DUMP k"), client.run("DUMP k"));
    assert_eq!(read.run("DEBUG RELOAD"), ok(), "the replica reads its own file");
    assert_eq!(read.run("BF.DEBUG k"), client.run("BF.DEBUG k"));
    // What a client of the replica itself makes has the limit: a table of pages is written at once.
    assert_eq!(read.run("CONFIG SET replica-read-only no"), ok());
    for kind in ["", " COUNTING", " WINDOW EX 60", " WINDOW COUNT"] {
        let reserve = format!("BF.RESERVE own 0.01 10000{kind}");
        assert_eq!(read.run(&reserve), err(NO_MEMORY), "{reserve}");
    }
    let (tried, error) = add_until_refused(read, "k", "own");
    assert_eq!(error, NO_GROWTH);
    assert!(tried.len() < 5_000, "{}", tried.len());
}

/// The server checks `maxmemory` before a command runs; the module must check what the command
/// allocates.
#[test]
fn a_filter_does_not_exceed_maxmemory() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE small 0.01 1000"), ok());
    let tried = add_until_card(client, "small", "item", 10_000);
    let used = client.memory("used_memory");
    let most = used + 8 * MIB;
    client.run(&format!("CONFIG SET maxmemory {most}"));
    // 12 MB of bits.
    assert_eq!(client.run("BF.RESERVE k 0.01 10000000"), err(NO_MEMORY));
    assert_eq!(client.run("BF.INSERT k CAPACITY 10000000 ITEMS a"), err(NO_MEMORY));
    assert_eq!(client.run("BF.RESERVE k 0.01 5000000"), ok(), "6.7 MB still fit");
    // The rest is for pages. Either the module finds no room for a page, or the server none for the
    // command.
    let most_items = numbered("more", 1_500_000);
    let error = most_items.chunks(1_000).find_map(|batch| {
        let reply = client.call("BF.MADD", "small", batch);
        match &reply {
            Reply::Error(_) => Some(reply.error().to_owned()),
            reply => reply
                .elements()
                .last()
                .filter(|last| last.is_error())
                .map(|last| last.error().to_owned()),
        }
    });
    let error = error.expect("1,500,000 items take more than 2 MB");
    assert!(error == NO_GROWTH || error.starts_with("OOM"), "{error}");
    client.assert_in_step();
    // Beside what the buffers of this connection take.
    assert!(client.memory("used_memory") < most + 100_000, "the server is above its maxmemory");
    assert!(info(client, "small").items > 400_000);
    assert!(mexists(client, "small", &tried).iter().all(|&there| there));
    assert_eq!(client.run("CONFIG SET maxmemory 0"), ok());
    assert_eq!(client.run("BF.RESERVE large 0.01 10000000"), ok());
}

/// Under `noeviction` a filter would exceed `maxmemory` by its whole size, and every later write
/// would fail.
#[test]
fn a_filter_exceeds_maxmemory_only_under_a_policy_that_evicts() {
    // 72 MB of bits, and a tenth of that.
    const LARGE: &str = "0.01 55000000";
    const SMALL: &str = "0.01 5500000";
    for policy in [
        "noeviction",
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
    ] {
        // Each policy has a new server: the memory of the last one may be freed late.
        let server = Server::with().config(&format!("maxmemory-policy {policy}")).start();
        let client = &mut server.client();
        client.run("SET lasting value");
        assert_eq!(client.run(&format!("BF.RESERVE first {LARGE}")), ok());
        assert_eq!(client.run("BF.RESERVE grown 0.0001 1000 SEED 7"), ok());
        let known = add_until_card(client, "grown", "item", 1_000);
        assert_eq!(client.run("CONFIG SET maxmemory 100mb"), ok());
        let second = format!("BF.RESERVE second {LARGE}");
        if policy == "noeviction" {
            assert_eq!(client.run(&second), err(NO_MEMORY), "{policy}");
            // A full filter gets its first page: that fits.
            assert_eq!(client.run("BF.ADD grown absent"), int(1), "{policy}");
            assert_eq!(client.run("SET after write"), ok(), "{policy}: writes go on");
            assert!(mexists(client, "grown", &known).iter().all(|&there| there));
            assert_eq!(client.run(&format!("BF.RESERVE small {SMALL}")), ok(), "{policy}: it fits");
            assert_eq!(client.run("DEL small"), int(1));
        }
        if policy != "noeviction" {
            assert_eq!(client.run(&second), ok(), "{policy}");
        }
    }
}
