//! Large filters in pages of 2 MiB: which filters get them, and when. The kernel's figures are
//! those of the whole server, in which nothing else has huge pages: the system's mode is `madvise`.

use std::process::Command;

use crate::harness::{
    Builder, Client, Server, Signal, Stopped, assert_no_crash, can_contain, child, config_name,
    digest, madd, mexists, numbered, ok, signal, skipped, wait_until,
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

/// Waits until the filter of [`RESERVE`] is in huge pages, and INFO shows it. False, with the
/// reason, if the machine has none: its memory may be fragmented.
#[track_caller]
#[must_use]
fn get_huge_pages(test: &str, server: &Server) -> bool {
    let client = &mut server.client();
    let none = || server.log().contains("no 2 MiB for one");
    let ready = |client: &mut Client| shown(client) >= MOST && huge(server) >= MOST;
    wait_until("the filter has huge pages", || ready(client) || none());
    let ready = ready(client);
    if !ready {
        skipped(test, "the machine has no 2 MiB for a huge page at the moment");
    }
    ready
}

/// Waits until INFO shows that a round of the thread found a large filter that is dense. A round
/// goes over all filters, so it has seen every filter that was there before. The thread notices
/// after a round that a filter is gone.
fn wait_for_a_round(client: &mut Client) {
    assert_eq!(client.run("BF.RESERVE dense 0.01 8000000"), ok());
    madd(client, "dense", &numbered("dense", 52_000));
    wait_until("the dense filter has huge pages", || shown(client) > 0);
    assert_eq!(client.run("DEL dense").int(), 1);
    wait_until("the dense filter is forgotten", || shown(client) == 0);
}

/// Whether the server has the thread.
fn has_thread(server: &Server) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("the threads");
    let name = |path: std::path::PathBuf| std::fs::read_to_string(path.join("comm"));
    let mut names = tasks.filter_map(|task| name(task.ok()?.path()).ok());
    names.any(|name| name.trim() == "bf-huge-pages")
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
    if !get_huge_pages("a_full_filter_gets_huge_pages_and_gives_them_back", &server) {
        return;
    }
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
    if !get_huge_pages("the_setting_turns_them_off_and_on", &server) {
        return;
    }
    assert_eq!(client.cmd(&["CONFIG", "SET", &setting, "no"]), ok());
    // A fork splits pages, and nothing makes them again.
    client.run("CONFIG SET rdb-key-save-delay 500000");
    assert!(!client.run("BGSAVE").is_error());
    let stopped = Stopped::stop(child(&server));
    madd(client, "k", &numbered("new", 2_000));
    client.run("CONFIG SET rdb-key-save-delay 0");
    drop(stopped);
    wait_until("the child has ended", || !client.has_child());
    let (split, last) = (huge(&server), shown(client));
    assert!(split < MOST, "{split} bytes");
    // Two rounds of the thread.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(huge(&server) <= split, "{} bytes, after {split}", huge(&server));
    assert_eq!(shown(client), last, "the last look was before");
    assert_eq!(client.cmd(&["CONFIG", "SET", &setting, "yes"]), ok());
    let _ = get_huge_pages("the_setting_turns_them_off_and_on", &server);
}

/// The server may exit while the thread lives, and a signal may reach any thread.
#[test]
fn a_server_with_the_thread_shuts_down() {
    if !possible("a_server_with_the_thread_shuts_down") {
        return;
    }
    for by_signal in [false, true] {
        let mut server = with_huge_pages().start();
        let client = &mut server.client();
        assert_eq!(client.run(RESERVE), ok());
        madd(client, "k", &numbered("item", ENOUGH));
        wait_until("the thread runs", || has_thread(&server));
        if by_signal {
            signal(server.pid(), Signal::TERM).expect("the server runs");
        } else {
            client.send(&["SHUTDOWN", "NOSAVE"]);
        }
        server.wait_for_exit();
        let log = server.log();
        assert!(log.contains("bye bye"), "{log}");
        assert_no_crash(&log);
    }
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
    let none = || server.log().contains("no 2 MiB for one");
    wait_until("the filter has huge pages", || shown(client) >= 70 * MIB || none());
    let known = shown(client);
    assert!(huge(&server) >= known, "a page is counted twice");
    if known < 70 * MIB {
        let why = "the machine has no 2 MiB for a huge page at the moment";
        skipped("filters_that_come_and_go_leave_room_for_others", why);
    }
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
    if !get_huge_pages("huge_pages_that_a_fork_split_come_back", &server) {
        return;
    }
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
    if !get_huge_pages("huge_pages_that_a_fork_split_come_back", &server) {
        return;
    }
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
    if !get_huge_pages("huge_pages_take_no_more_memory", &server) {
        return;
    }
    let after = figures();
    println!("used, of the key, resident: {before:?} in small pages, {after:?} in huge ones");
    // Connections come and go, the thread starts, and it notes its pages.
    assert!(after[0].abs_diff(before[0]) < MIB, "{before:?}, {after:?}");
    assert_eq!(after[1], before[1]);
    assert!(after[2] < before[2] + 3 * MIB, "{before:?}, {after:?}");
}

#[test]
fn a_filter_that_was_loaded_has_huge_pages_and_so_has_a_replica() {
    let test = "a_filter_that_was_loaded_has_huge_pages_and_so_has_a_replica";
    if !possible(test) {
        return;
    }
    let mut server = with_huge_pages().start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), ok());
    madd(client, "k", &numbered("item", ENOUGH));
    let before = digest(client, "k");
    server.restart();
    if !get_huge_pages(test, &server) {
        return;
    }
    assert_eq!(digest(&mut server.client(), "k"), before);
    let replica = server.replica();
    replica.client().cmd(&["CONFIG", "SET", &config_name("huge-pages"), "yes"]);
    if !get_huge_pages(test, &replica) {
        return;
    }
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

/// Where the system describes its huge pages.
const DIRECTORY: &str = "/sys/kernel/mm/transparent_hugepage";

/// Shows the server another mode of the system.
fn with_mode(modes: &str) -> Builder {
    with_huge_pages().mount(&format!(
        "mount -t tmpfs none {DIRECTORY} && echo {modes} > {DIRECTORY}/enabled && \
         echo 2097152 > {DIRECTORY}/hpage_pmd_size"
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
        (
            with_mode("'[always] madvise never'"),
            "they are turned off for this process (set the system's mode to madvise and restart \
             the server)",
        ),
        (
            with_huge_pages().mount("mount -t tmpfs none /proc"),
            "/proc/self/pagemap: No such file or directory",
        ),
        // A pagemap without an entry for the addresses of the filter.
        (
            with_huge_pages()
                .mount("mount -t tmpfs none /proc && mkdir /proc/self && touch /proc/self/pagemap"),
            "/proc/self/pagemap: failed to fill whole buffer",
        ),
        (
            with_huge_pages().mount(&format!("mount -t tmpfs none {DIRECTORY}")),
            "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size: No such file or directory",
        ),
        (
            with_huge_pages().mount(&format!(
                "mount -t tmpfs none {DIRECTORY} && echo 33554432 > {DIRECTORY}/hpage_pmd_size"
            )),
            "pages have 4096 and 33554432 bytes, not 4096 and 2097152",
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
    let _ = get_huge_pages("where_the_mode_is_always_disable_thp_no_gives_them", &server);
}

/// A thread needs memory for its stack. The server tries again every ten seconds.
#[test]
fn a_thread_that_cannot_start_is_logged_once() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), ok());
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("its size");
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().expect("a number");
    let limit = Command::new("prlimit")
        .arg(format!("--pid={}", server.pid()))
        .arg(format!("--as={}", (kib + 512) << 10))
        .status();
    assert!(limit.expect("prlimit of util-linux").success());
    assert_eq!(client.cmd(&["CONFIG", "SET", &config_name("huge-pages"), "yes"]), ok());
    let lines = || server.log().matches("do without huge pages: no thread").count();
    wait_until("it is logged", || lines() > 0);
    // Long enough for two more starts.
    std::thread::sleep(std::time::Duration::from_secs(22));
    assert_eq!(lines(), 1);
}
