//! Large filters in pages of 2 MiB: which filters get them, and when. The kernel's figures are
//! those of the whole server, in which nothing else has huge pages: the system's mode is `madvise`.

use crate::harness::{
    Client, Server, Stopped, child, config_name, digest, madd, mexists, numbered, ok, skipped,
    wait_until,
};

const MIB: u64 = 1 << 20;

/// A filter of 53 MB: its array has 24 or 25 whole huge pages.
const RESERVE: &str = "BF.RESERVE k 0.01 40000000";
/// Items that put 20 on each small page, on average: a page without one is found in one filter of
/// 37,000 (13,000 pages, e^-20 each).
const ENOUGH: usize = 260_000;
/// Bytes of huge pages of the filter, but for the ends of its array.
const MOST: u64 = 46 * MIB;

/// The modes of the system, the one in force in brackets.
fn mode() -> String {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default()
}

/// Whether huge pages can be tested here; prints why not.
fn possible(test: &str) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let own = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let why = if version < (6, 1) {
        "the kernel is older than Linux 6.1"
    } else if !mode().contains("[madvise]") {
        "the system's mode of transparent huge pages is not madvise"
    } else if own.lines().any(|line| line.split_whitespace().eq(["THP_enabled:", "0"])) {
        "huge pages are turned off for this process"
    } else {
        return true;
    };
    skipped(test, why);
    false
}

/// A figure of the memory of a process, in bytes.
#[track_caller]
fn memory(server: &Server, field: &str) -> u64 {
    let map = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", server.pid()))
        .expect("the memory of the server");
    let kib = map.lines().find_map(|line| {
        line.strip_prefix(field)?.strip_prefix(':')?.split_whitespace().next()?.parse::<u64>().ok()
    });
    kib.expect("the field") << 10
}

fn huge(server: &Server) -> u64 {
    memory(server, "AnonHugePages")
}

/// What INFO shows.
fn shown(client: &mut Client) -> u64 {
    client.server_info("bf", "bf_huge_page_bytes").parse().expect("a number")
}

/// Waits until INFO shows that a round of the thread found a large filter that is dense. A round
/// goes over all filters, so it has seen every filter that was there before.
fn wait_for_a_round(client: &mut Client) {
    assert_eq!(client.run("BF.RESERVE dense 0.01 8000000"), ok());
    madd(client, "dense", &numbered("dense", 52_000));
    wait_until("the dense filter has huge pages", || shown(client) > 0);
    let first = shown(client);
    assert_eq!(client.run("DEL dense").int(), 1);
    wait_until("another round", || shown(client) != first);
}

#[test]
fn a_full_filter_gets_huge_pages_and_gives_them_back() {
    if !possible("a_full_filter_gets_huge_pages_and_gives_them_back") {
        return;
    }
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), ok());
    let items = numbered("item", ENOUGH);
    madd(client, "k", &items);
    let before = digest(client, "k");
    wait_until("the filter has huge pages", || shown(client) >= MOST);
    assert!(huge(&server) >= MOST, "{} bytes", huge(&server));
    assert_eq!(digest(client, "k"), before);
    assert!(mexists(client, "k", &items).iter().all(|&there| there));
    assert_eq!(client.run("DEL k").int(), 1);
    wait_until("the filter is forgotten", || shown(client) == 0);
    client.run("MEMORY PURGE");
    wait_until("the pages are free", || huge(&server) == 0);
    assert!(!server.log().contains("huge pages"), "{}", server.log());
}

/// An empty page that was only read is mapped, too, and is no page in use.
#[test]
fn a_sparse_filter_stays_sparse_however_often_it_is_read() {
    if !possible("a_sparse_filter_stays_sparse_however_often_it_is_read") {
        return;
    }
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), ok());
    madd(client, "k", &numbered("item", 500));
    mexists(client, "k", &numbered("other", 100_000));
    let before = memory(&server, "Rss");
    wait_for_a_round(client);
    client.run("MEMORY PURGE");
    wait_until("the other filter is free", || huge(&server) == 0);
    let after = memory(&server, "Rss");
    println!("resident: {before} bytes before the round, {after} after it");
    // A single huge page of the sparse filter would show.
    assert!(after < before + 2 * MIB, "{before} bytes before the round, {after} after it");
}

#[test]
fn the_setting_turns_them_off_and_on() {
    if !possible("the_setting_turns_them_off_and_on") {
        return;
    }
    let setting = config_name("huge-pages");
    let server = Server::with().config(&format!("{setting} no")).start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), ok());
    madd(client, "k", &numbered("item", ENOUGH));
    // Two rounds of the thread.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!((huge(&server), shown(client)), (0, 0));
    assert_eq!(client.cmd(&["CONFIG", "SET", &setting, "yes"]), ok());
    wait_until("the filter has huge pages", || shown(client) >= MOST);
    assert!(huge(&server) >= MOST, "{} bytes", huge(&server));
}

/// The module has 4,096 places for large arrays: one that is freed must give its place back.
#[test]
fn filters_that_come_and_go_leave_room_for_others() {
    if !possible("filters_that_come_and_go_leave_room_for_others") {
        return;
    }
    let server = Server::start();
    let client = &mut server.client();
    for _ in 0..5_000 {
        assert_eq!(client.run(RESERVE), ok());
        assert_eq!(client.run("DEL k").int(), 1);
    }
    assert_eq!(client.run(RESERVE), ok());
    madd(client, "k", &numbered("item", ENOUGH));
    wait_until("the filter has huge pages", || shown(client) >= MOST);
    assert!(huge(&server) >= shown(client), "the filter is counted twice");
}

/// While a child saves, a write to a shared huge page splits it, and nothing makes huge pages of
/// what is shared: that would copy the whole filter. They come back when the child has ended.
#[test]
fn huge_pages_that_a_fork_split_come_back() {
    if !possible("huge_pages_that_a_fork_split_come_back") {
        return;
    }
    let server = Server::with().config("rdbcompression no").start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), ok());
    madd(client, "k", &numbered("item", ENOUGH));
    wait_until("the filter has huge pages", || shown(client) >= MOST);
    // The child would save the filter before the additions are sent, if it were not stopped.
    client.run("CONFIG SET rdb-key-save-delay 500000");
    assert!(!client.run("BGSAVE").is_error());
    let stopped = Stopped::stop(child(&server));
    let before = memory(&server, "Private_Dirty");
    madd(client, "k", &numbered("new", 2_000));
    wait_until("a round that finds shared pages", || shown(client) == 0);
    let (split, copied) = (huge(&server), memory(&server, "Private_Dirty").saturating_sub(before));
    println!("{split} bytes in huge pages; {copied} bytes copied for 2,000 additions");
    assert!(stopped.stands(), "the child has exited: nothing was measured");
    assert!(split < MOST / 2, "{split} bytes");
    // One page of 4 KiB an addition, and connection buffers.
    assert!(copied < (2_000 << 12) + 2 * MIB, "{copied} bytes");
    client.run("CONFIG SET rdb-key-save-delay 0");
    drop(stopped);
    wait_until("the filter has huge pages again", || shown(client) >= MOST);
    assert!(huge(&server) >= MOST, "{} bytes", huge(&server));
}
