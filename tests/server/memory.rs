//! MEMORY USAGE: small filters stay small, and the figure is correct. Also copy-on-write: how many
//! pages an addition copies while a child saves.

use crate::harness::{
    Server, Stopped, add_until_card, child, digest, info, layers, madd, numbered, ok, wait_until,
};

/// Applications keep one filter per user, so millions of small filters must fit. RedisBloom needs
/// 272 bytes for any small filter.
#[test]
fn a_small_filter_takes_few_bytes() {
    let server = Server::start();
    let client = &mut server.client();
    for (create, items, most) in [
        ("BF.ADD f item-0", 1, 208),
        ("BF.ADD f item-0", 10, 224),
        ("BF.RESERVE f 0.01 10", 10, 224),
        ("BF.RESERVE f 0.01 10 COUNTING", 10, 224),
        ("BF.ADD f item-0", 100, 640),
        // Bits.
        ("BF.RESERVE f 0.01 100 NONSCALING", 100, 256),
    ] {
        client.run("FLUSHALL");
        assert!(!client.run(create).is_error());
        add_until_card(client, "f", "item", items);
        let usage = client.run("MEMORY USAGE f").int();
        println!("{create}: {items} items take {usage} bytes");
        assert!(usage <= most, "{create}: {items} items take {usage} bytes, more than {most}");
    }
}

/// For ten thousand small filters, `used_memory` must agree with MEMORY USAGE of each.
#[test]
fn memory_usage_agrees_with_what_the_server_counts() {
    let server = Server::start();
    let client = &mut server.client();
    const KEYS: i64 = 10_000;
    let used = client.memory("used_memory");
    let commands: Vec<Vec<String>> = (0..KEYS)
        .map(|key| vec!["BF.RESERVE".into(), format!("f{key}"), "0.01".into(), "100".into()])
        .collect();
    // In small pipelines, so that the connection's buffers stay small.
    for commands in commands.chunks(100) {
        assert!(client.pipeline(commands).iter().all(|reply| *reply == ok()));
    }
    let each = (client.memory("used_memory") - used) / KEYS;
    let usage = client.run("MEMORY USAGE f1234").int();
    println!("a filter of 100 items: {usage} bytes by MEMORY USAGE, {each} bytes of used_memory");
    // MEMORY USAGE leaves out two objects of the server around the value, 16 bytes each, and the
    // slots of the key table, up to 40 bytes per key. Some servers also count parts that a module's
    // value does not have. The margin is smaller than a small filter.
    assert!(
        (usage - 48..=usage + 96).contains(&each),
        "MEMORY USAGE {usage}, used_memory {each} per key"
    );
}

/// A filter takes no more memory than its items need: 17.8 bits an item from 12,000 items on, and
/// what the allocator rounds up.
#[test]
fn memory_usage_follows_the_filter_as_it_grows() {
    let server = Server::start();
    let client = &mut server.client();
    for reserve in ["BF.RESERVE k 0.01 100", "BF.RESERVE k 0.01 2000"] {
        client.run("DEL k");
        client.run(reserve);
        let mut last = 0;
        for card in [100, 2_001, 5_000, 12_000, 20_000, 50_000] {
            add_until_card(client, "k", &format!("to-{card}"), card);
            let (_, layers) = layers(client, "k");
            let bits: i64 = layers.iter().map(|layer| layer.bytes).sum();
            let usage = client.run("MEMORY USAGE k").int();
            let size = info(client, "k").size;
            assert!(usage > last, "with {card} items: {usage} bytes, before {last}");
            assert!(
                size >= bits && usage >= size,
                "{card} items: bits {bits}, BF.INFO Size {size}, usage {usage}"
            );
            // 512 bytes are for the key and the structures.
            assert!(usage <= size + size / 8 + 512, "{card} items: {usage} bytes of {size}");
            let each = usage as f64 * 8.0 / card as f64;
            assert!(card < 12_000 || each <= 18.8, "{card} items: {each} bits each");
            last = usage;
        }
    }
}

#[test]
fn deleting_filters_frees_their_memory() {
    let server = Server::start();
    let client = &mut server.client();
    let fill = |client: &mut crate::harness::Client| {
        for key in 0..20 {
            client.run(&format!("BF.RESERVE k{key} 0.001 1000000"));
            add_until_card(client, &format!("small{key}"), "item", 1_000);
        }
    };
    fill(client);
    client.run("FLUSHALL SYNC");
    let used = client.memory("used_memory");
    for _ in 0..5 {
        fill(client);
        client.run("FLUSHALL SYNC");
    }
    let left = client.memory("used_memory") - used;
    assert!(left < 100_000, "{left} bytes are left after five rounds of filters of 36 MB");
}

/// Bytes of the pages that a process wrote to and shares with no other process.
fn own_pages(pid: u32) -> u64 {
    let map = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .expect("the pages of the server");
    let kib = map.lines().find_map(|line| {
        line.strip_prefix("Private_Dirty:")?.split_whitespace().next()?.parse::<u64>().ok()
    });
    kib.expect("a line of private pages") << 10
}

/// While a child saves, the kernel copies each page that the server writes to. A new item must
/// write to one page at most, and an item that is already in the filter to none. The file holds the
/// filter as it was at the fork.
#[test]
fn additions_during_a_snapshot_copy_one_page_each_at_most() {
    let server = Server::with().config("rdbcompression no").start();
    let client = &mut server.client();
    // The filter is so large that the child is stopped before it has written much of it.
    assert_eq!(client.run("BF.RESERVE k 0.01 150000000"), ok());
    let there = numbered("item", 40_000);
    madd(client, "k", &there);
    let saved = digest(client, "k");
    assert!(!client.run("BGSAVE").is_error());
    let stopped = Stopped::stop(child(&server));
    let before = own_pages(server.pid());
    assert!(madd(client, "k", &there).iter().all(|&new| !new));
    let again = own_pages(server.pid()).saturating_sub(before);
    madd(client, "k", &numbered("new", 10_000));
    let new = own_pages(server.pid()).saturating_sub(before);
    println!("{again} bytes of pages copied for 40,000 known items, {new} with 10,000 new ones");
    assert!(stopped.stands(), "the child has exited: nothing was measured");
    // Connection buffers and statistics.
    const SLACK: u64 = 2 << 20;
    assert!(again < SLACK, "{again} bytes");
    // A block is one cache line, and some pages of 4 KiB get more than one new item.
    assert!(new < (10_000 << 12) + 2 * SLACK, "{new} bytes");
    assert!(new > 12 << 20, "{new} bytes: the measurement does not work");
    drop(stopped);
    assert_ne!(digest(client, "k"), saved);
    wait_until("the child ends", || !client.has_child());
    let file = std::fs::read(server.dir().join("dump.rdb")).expect("the file");
    let other = Server::on_file("dump.rdb", &file, &[]);
    assert_eq!(digest(&mut other.client(), "k"), saved);
}
