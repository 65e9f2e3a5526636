//! Large filters in pages of 2 MiB: which filters get them, and when. The kernel's figures are
//! those of the whole server, in which nothing else has huge pages: the system's mode is `madvise`.

use crate::harness::{
    Builder, Client, Server, Stopped, can_contain, child, config_name, digest, madd, mexists,
    numbered, ok, skipped, wait_until,
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

/// A server with the setting on.
fn with_huge_pages() -> Builder {
    Server::with().config(&format!("{} yes", config_name("huge-pages")))
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

/// Waits until the filter of [`RESERVE`] is in huge pages.
#[track_caller]
fn wait_for_huge_pages(server: &Server) {
    let client = &mut server.client();
    wait_until("the filter has huge pages", || shown(client) >= MOST);
    assert!(huge(server) >= MOST, "{} bytes", huge(server));
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
    let server = with_huge_pages().start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), ok());
    let items = numbered("item", ENOUGH);
    madd(client, "k", &items);
    let before = digest(client, "k");
    wait_for_huge_pages(&server);
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
    let server = with_huge_pages().start();
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
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), ok());
    madd(client, "k", &numbered("item", ENOUGH));
    // Two rounds of the thread.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!((huge(&server), shown(client)), (0, 0));
    assert_eq!(client.cmd(&["CONFIG", "SET", &setting, "yes"]), ok());
    wait_for_huge_pages(&server);
}

/// The module has 4,096 places for large arrays: one that is freed must give its place back.
#[test]
fn filters_that_come_and_go_leave_room_for_others() {
    if !possible("filters_that_come_and_go_leave_room_for_others") {
        return;
    }
    let server = with_huge_pages().start();
    let client = &mut server.client();
    for _ in 0..5_000 {
        assert_eq!(client.run(RESERVE), ok());
        assert_eq!(client.run("DEL k").int(), 1);
    }
    // 37 or 38 huge pages: more than the places of the other filters name, wherever it lies.
    assert_eq!(client.run("BF.RESERVE k 0.01 60000000"), ok());
    madd(client, "k", &numbered("item", ENOUGH * 3 / 2));
    wait_until("the filter has huge pages", || shown(client) >= 70 * MIB);
    assert!(huge(&server) >= shown(client), "a page is counted twice");
}

/// While a child saves, a write to a shared huge page splits it, and nothing makes huge pages of
/// what is shared: that would copy the whole filter. They come back when the child has ended.
#[test]
fn huge_pages_that_a_fork_split_come_back() {
    if !possible("huge_pages_that_a_fork_split_come_back") {
        return;
    }
    let server = with_huge_pages().config("rdbcompression no").start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), ok());
    madd(client, "k", &numbered("item", ENOUGH));
    wait_for_huge_pages(&server);
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
    let before = digest(client, "k");
    drop(stopped);
    wait_for_huge_pages(&server);
    assert_eq!(digest(client, "k"), before);
    assert!(mexists(client, "k", &numbered("item", ENOUGH)).iter().all(|&there| there));
    assert!(mexists(client, "k", &numbered("new", 2_000)).iter().all(|&there| there));
}

/// The memory that the server counts, and that `maxmemory` limits, is as it was; resident memory
/// grows by a huge page at most, while it is made.
#[test]
fn huge_pages_take_no_more_memory() {
    if !possible("huge_pages_take_no_more_memory") {
        return;
    }
    let setting = config_name("huge-pages");
    let server = Server::with().config(&format!("{setting} no")).start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), ok());
    madd(client, "k", &numbered("item", ENOUGH));
    let mut figures = || {
        let used = client.server_info("memory", "used_memory").parse::<u64>().expect("a number");
        [used, client.run("MEMORY USAGE k").int().unsigned_abs(), memory(&server, "Rss")]
    };
    let before = figures();
    assert_eq!(server.client().cmd(&["CONFIG", "SET", &setting, "yes"]), ok());
    wait_for_huge_pages(&server);
    let after = figures();
    println!("used, of the key, resident: {before:?} in small pages, {after:?} in huge ones");
    // Connections come and go, the thread starts, and it notes its pages.
    assert!(after[0].abs_diff(before[0]) < MIB, "{before:?}, {after:?}");
    assert_eq!(after[1], before[1]);
    assert!(after[2] < before[2] + 3 * MIB, "{before:?}, {after:?}");
}

#[test]
fn a_filter_that_was_loaded_has_huge_pages_and_so_has_a_replica() {
    if !possible("a_filter_that_was_loaded_has_huge_pages_and_so_has_a_replica") {
        return;
    }
    let mut server = with_huge_pages().start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), ok());
    madd(client, "k", &numbered("item", ENOUGH));
    let before = digest(client, "k");
    server.restart();
    wait_for_huge_pages(&server);
    assert_eq!(digest(&mut server.client(), "k"), before);
    let replica = server.replica();
    replica.client().cmd(&["CONFIG", "SET", &config_name("huge-pages"), "yes"]);
    wait_for_huge_pages(&replica);
    assert_eq!(digest(&mut replica.client(), "k"), before);
}

/// Arrays below 8 MiB keep small pages, although a large one beside them does not.
#[test]
fn small_filters_keep_small_pages() {
    if !possible("small_filters_keep_small_pages") {
        return;
    }
    let server = with_huge_pages().start();
    let client = &mut server.client();
    for key in ["a", "b", "c"] {
        // 6.6 MB each.
        assert_eq!(client.cmd(&["BF.RESERVE", key, "0.01", "5000000"]), ok());
        madd(client, key, &numbered("item", 40_000));
    }
    wait_for_a_round(client);
    client.run("MEMORY PURGE");
    wait_until("the large filter is free, and nothing else has huge pages", || huge(&server) == 0);
}

/// While the thread works on large arrays, others take their addresses: filters and strings keep
/// what they hold.
#[test]
fn addresses_of_freed_arrays_can_be_used_at_once() {
    if !possible("addresses_of_freed_arrays_can_be_used_at_once") {
        return;
    }
    let server = with_huge_pages().start();
    let client = &mut server.client();
    let items = numbered("item", 52_000);
    let string = "x".repeat(10 << 20);
    let mut rounds = 0;
    let mut most = 0;
    // At least one round of the thread falls into these.
    while rounds < 10 || (most == 0 && rounds < 200) {
        assert_eq!(client.run("BF.RESERVE a 0.01 8000000"), ok());
        assert_eq!(client.run("BF.RESERVE b 0.01 8000000"), ok());
        madd(client, "a", &items);
        madd(client, "b", &items);
        most = most.max(shown(client));
        assert_eq!(client.run("UNLINK a").int(), 1);
        assert_eq!(client.cmd(&["SET", "string", &string]), ok());
        assert!(mexists(client, "b", &items).iter().all(|&there| there));
        assert_eq!(client.run("DEL b").int(), 1);
        assert!(client.run("GET string").text() == string, "the string has changed");
        assert_eq!(client.run("DEL string").int(), 1);
        rounds += 1;
    }
    assert!(most > 0, "no round of the thread");
}

/// Shows the server another mode of the system.
fn with_mode(modes: &str) -> Builder {
    let directory = "/sys/kernel/mm/transparent_hugepage";
    with_huge_pages().mount(&format!(
        "mount -t tmpfs none {directory} && echo {modes} > {directory}/enabled && \
         echo 2097152 > {directory}/hpage_pmd_size"
    ))
}

/// The log says once why there are no huge pages; the server goes on with small ones.
#[test]
fn the_log_says_why_there_are_none() {
    if !possible("the_log_says_why_there_are_none") {
        return;
    }
    if !can_contain() {
        return skipped("the_log_says_why_there_are_none", "no mount namespace can be made");
    }
    let cases = [
        (with_mode("'always madvise [never]'"), "transparent_hugepage/enabled says never"),
        // The server itself does that.
        (with_mode("'[always] madvise never'"), "turned off for this process"),
        (with_huge_pages().mount("mount -t tmpfs none /proc"), "/proc/self/pagemap cannot be read"),
        (
            with_huge_pages().mount("mount -t tmpfs none /sys/kernel/mm/transparent_hugepage"),
            "the system has none of 2 MiB",
        ),
    ];
    for (builder, why) in cases {
        let server = builder.start();
        let client = &mut server.client();
        assert_eq!(client.run(RESERVE), ok());
        madd(client, "k", &numbered("item", ENOUGH));
        let line = format!("bf: large filters do without huge pages: {why}");
        let logged = || server.log().lines().filter(|line| line.contains("huge pages:")).count();
        wait_until(&line, || server.log().contains(why));
        assert_eq!((logged(), huge(&server), shown(client)), (1, 0, 0), "{}", server.log());
    }
}

#[test]
fn where_the_mode_is_always_disable_thp_no_gives_them() {
    if !possible("where_the_mode_is_always_disable_thp_no_gives_them") {
        return;
    }
    if !can_contain() {
        let why = "no mount namespace can be made";
        return skipped("where_the_mode_is_always_disable_thp_no_gives_them", why);
    }
    let server = with_mode("'[always] madvise never'").config("disable-thp no").start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), ok());
    madd(client, "k", &numbered("item", ENOUGH));
    wait_for_huge_pages(&server);
}
