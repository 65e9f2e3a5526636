//! A filter larger than the 512 MB that an argument or a DUMP may have is saved, rewritten into an
//! AOF of commands, and loaded, without a second copy in memory.

use std::fs;
use std::time::Instant;

use crate::harness::{
    Client, Server, assert_unharmed, digest, info, mexists, numbered, ok, wait_until,
};

/// Bytes of private memory that a child may have while it saves a filter without concurrent writes:
/// two pieces of 1 MiB or two chunks of 16 MiB, buffers, and what the server touches.
const MAX_PRIVATE: u64 = 80 << 20;

/// Waits until the save that just began ends; returns the peak of its child's private memory, in
/// bytes.
#[track_caller]
fn peak_of_child(server: &Server, client: &mut Client) -> u64 {
    let private = |child: &str| {
        let map = fs::read_to_string(format!("/proc/{child}/smaps_rollup")).ok()?;
        let line = map.lines().find_map(|line| line.strip_prefix("Private_Dirty:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    let pid = server.pid();
    let mut peak = 0;
    wait_until("the save ends", || {
        let children =
            fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        peak = children.split_whitespace().filter_map(private).fold(peak, u64::max);
        !client.has_child()
    });
    peak
}

#[test]
fn a_filter_of_more_than_512_mb_survives_a_rewrite_without_preamble() {
    const ITEMS: usize = 200_000;
    let mut server = Server::with()
        .config("appendonly yes")
        .config("aof-use-rdb-preamble no")
        .config("auto-aof-rewrite-percentage 0")
        .start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 410000000 EXPANSION 1"), ok());
    let size = info(client, "k").size;
    assert!(size > 512 << 20, "{size} bytes");
    println!("a filter of {size} bytes, {ITEMS} items");
    let items = numbered("item", ITEMS);
    for batch in items.chunks(1_000) {
        let words = ["NOCREATE", "ITEMS"].into_iter().chain(batch.iter().map(String::as_str));
        let reply = client.call("BF.INSERT", "k", &words.collect::<Vec<_>>());
        assert_eq!(reply.elements().len(), batch.len());
    }
    let card = client.run("BF.CARD k");

    for (line, status) in
        [("BGREWRITEAOF", "aof_last_bgrewrite_status"), ("BGSAVE", "rdb_last_bgsave_status")]
    {
        let begin = Instant::now();
        assert!(!client.run(line).is_error());
        let peak = peak_of_child(&server, client);
        println!(
            "{line}: {:.1?}, its child had at most {} MiB of private memory",
            begin.elapsed(),
            peak >> 20
        );
        assert_eq!(client.server_info("persistence", status), "ok");
        assert!(peak < MAX_PRIVATE, "the child of {line} had {peak} bytes of private memory");
    }

    let before = digest(client, "k");
    let begin = Instant::now();
    server.kill_and_restart();
    println!("restart from the AOF: {:.1?}", begin.elapsed());
    let client = &mut server.client();
    assert_eq!(client.run("BF.CARD k"), card);
    assert_eq!(digest(client, "k"), before, "every bit");
    assert!(mexists(client, "k", &items).iter().all(|&there| there));
    assert_eq!(info(client, "k").size, size);
    assert_unharmed(&server);
}
