//! Filters that forget by time, on servers whose clocks the tests set (`harness::Clock`).

use crate::harness::{
    Builder, Client, Clock, Reply, Server, array, assert_unharmed, digest, dump, err, int, ints,
    load, madd, mexists, numbered, ok, simple, wait_until,
};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// A window of a day in 4 generations. At this rate, no item of a test is found by accident: 2,000
/// questions give one with a probability of 2e-5.
const RESERVE: &str = "BF.RESERVE k 0.00000001 1000 WINDOW EX 86400";

fn at(clock: &Clock) -> Builder {
    Server::with().clock(clock)
}

fn replica_at(primary: &Server, clock: &Clock) -> Server {
    let replica = at(clock).replica_of(primary).start();
    let client = &mut replica.client();
    wait_until("the replica is in sync", || {
        client.server_info("replication", "master_link_status") == "up"
    });
    replica
}

/// Adds items that nothing added before; each is new.
#[track_caller]
fn add(client: &mut Client, items: &[String]) {
    assert!(madd(client, "k", items).into_iter().all(|new| new), "{items:?}");
}

/// How many of the items are found.
#[track_caller]
fn found(client: &mut Client, items: &[String]) -> usize {
    mexists(client, "k", items).into_iter().filter(|found| *found).count()
}

#[track_caller]
fn assert_equal(primary: &mut Client, replica: &Server) {
    let read = &mut replica.client();
    // Forgotten slots are removed between commands, also between those of one look.
    wait_until("the replica is equal", || {
        digest(read, "k") == digest(primary, "k")
            && dump(read, "k") == dump(primary, "k")
            && read.run("BF.DEBUG k") == primary.run("BF.DEBUG k")
    });
    primary.run("INCR mark");
    let replicas = primary.server_info("replication", "connected_slaves");
    assert_eq!(primary.cmd(&["WAIT", &replicas, "60000"]).int().to_string(), replicas);
    assert_eq!(read.server_info("bf", "bf_unapplied"), "0");
    assert!(!replica.log().contains("CRITICAL"), "{}", replica.log());
}

/// A clock that is ahead for a moment makes no item leave that was added before at a right time.
#[test]
fn a_clock_that_was_ahead_does_not_age_older_generations() {
    let clock = Clock::new();
    let server = at(&clock).start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), ok());
    let [right, ahead, back] = ["right", "ahead", "back"].map(|name| numbered(name, 100));
    for (hours, items) in [(0, &right), (20, &ahead), (1, &back)] {
        clock.set(hours * HOUR);
        add(client, items);
    }
    for hours in [12, 23] {
        clock.set(hours * HOUR);
        assert_eq!(found(client, &right), 100, "after {hours} hours");
    }
    clock.set(24 * HOUR);
    assert_eq!(found(client, &back), 100);
    clock.set(31 * HOUR);
    assert_eq!((found(client, &right), found(client, &back)), (0, 0), "T (1 + 1/G) have passed");
    assert_unharmed(&server);
}

#[test]
fn an_item_is_remembered_for_the_window_and_forgotten_after_it() {
    let clock = Clock::new();
    let server = at(&clock).start();
    let client = &mut server.client();
    let items = numbered("item", 50);
    client.run(RESERVE);
    add(client, &items);
    for (hours, expected) in [(0, 50), (6, 50), (23, 50), (31, 0), (100, 0)] {
        clock.set(hours * HOUR);
        assert_eq!(found(client, &items), expected, "after {hours} hours");
        assert_eq!(client.run("BF.CARD k"), int(expected as i64), "after {hours} hours");
        let one = client.cmd(&["BF.EXISTS", "k", &items[7]]);
        assert_eq!(one, int(i64::from(expected > 0)), "after {hours} hours");
        let bulk = client.cmd(&["BF.BULKEXISTS", "k", "LINES", &items[7]]);
        let bits = bulk.elements()[1].clone().payload();
        assert_eq!(bits, [if expected > 0 { 0x80 } else { 0 }], "after {hours} hours");
    }
    // A question frees nothing.
    assert_eq!(client.server_info("bf", "bf_forgotten"), "0");
    assert_eq!(client.server_info("bf", "bf_items"), "50");
    let generations = client.run("BF.INFO k GENERATIONS");
    let first = &generations.elements()[0].elements()[0].elements();
    assert_eq!((&first[4], &first[5]), (&simple("Alive"), &int(0)), "{first:?}");
    // The next addition does.
    assert_eq!(client.run("BF.ADD k item-0"), int(1));
    assert_eq!(client.server_info("bf", "bf_forgotten"), "1");
    assert_eq!(client.server_info("bf", "bf_items"), "1");
    // A clock that is set back: items live longer, never shorter.
    clock.set(50 * HOUR);
    assert_eq!(client.run("BF.EXISTS k item-0"), int(1));
    assert_eq!(client.run("BF.ADD k item-1"), int(1));
    assert_eq!(client.run("BF.MEXISTS k item-0 item-1"), ints([1, 1]));
    clock.set(70 * HOUR);
    assert_eq!(client.run("BF.MEXISTS k item-0 item-1"), ints([1, 1]));
    assert_unharmed(&server);
}

#[test]
fn an_item_that_is_added_again_lives_on_unless_the_window_does_not_refresh() {
    for (words, expected) in [("", 1), (" NOREFRESH", 0)] {
        let clock = Clock::new();
        let server = at(&clock).start();
        let client = &mut server.client();
        client.run(&format!("{RESERVE}{words}"));
        assert_eq!(client.run("BF.ADD k a"), int(1));
        for hours in [5, 10, 15, 20] {
            clock.set(hours * HOUR);
            assert_eq!(client.run("BF.ADD k a"), int(0), "{words} {hours}");
            // Something else, so that generations come.
            assert_eq!(client.cmd(&["BF.ADD", "k", &format!("other-{hours}")]), int(1));
        }
        clock.set(31 * HOUR);
        assert_eq!(client.run("BF.EXISTS k a"), int(expected), "{words}");
        // Without refresh, the item may be taken again now.
        assert_eq!(client.run("BF.ADD k a"), int(1 - expected), "{words}");
    }
}

/// Additions of three days, in steps of two hours, with a shift inside a batch, a transaction and a
/// script.
fn three_days(client: &mut Client, clocks: &[&Clock], mut step: impl FnMut(&mut Client)) {
    let script = "for i = 1, 3 do redis.call('BF.ADD', KEYS[1], ARGV[1] .. i) end
        return redis.call('BF.MADD', KEYS[1], ARGV[1] .. 1, ARGV[1] .. 4)";
    for hours in 0..36 {
        clocks.iter().for_each(|clock| clock.advance(2 * HOUR));
        let name = format!("item-{hours}-");
        match hours % 4 {
            0 => drop(madd(client, "k", &numbered(&name, 40))),
            1 => {
                client.run("MULTI");
                client.cmd(&["BF.ADD", "k", &name]);
                client.cmd(&["BF.MADD", "k", &name, "again", &format!("{name}x")]);
                assert!(client.run("EXEC").elements().iter().all(|reply| !reply.is_error()));
            }
            2 => assert!(!client.cmd(&["EVAL", script, "1", "k", &name]).is_error()),
            _ => {
                let lines = numbered(&name, 30).join("\n");
                assert!(!client.cmd(&["BF.BULKADD", "k", "LINES", &lines]).is_error());
                client.cmd(&["BF.INSERT", "k", "NOCREATE", "ITEMS", "again", &name]);
            }
        }
        step(client);
    }
}

#[test]
fn replicas_with_other_clocks_are_identical_and_forget_by_their_own() {
    for words in ["", " NOREFRESH"] {
        let clocks = [0, 90 * DAY, -90 * DAY].map(|ahead| {
            let clock = Clock::new();
            clock.set(ahead);
            clock
        });
        let [own, ahead, behind] = &clocks;
        let primary = at(own).start();
        let client = &mut primary.client();
        let (early, late) = (replica_at(&primary, ahead), replica_at(&primary, behind));
        client.run(&format!("{RESERVE}{words}"));
        three_days(client, &[own, ahead, behind], |client| {
            assert_equal(client, &early);
            assert_equal(client, &late);
        });
        let last = numbered("last", 20);
        add(client, &last);
        assert_equal(client, &early);
        // A clock that is ahead forgets early, one that is behind late. All agree on the bits.
        assert_eq!(found(&mut early.client(), &last), 0);
        assert_eq!(found(client, &last), 20);
        own.advance(31 * HOUR);
        behind.advance(31 * HOUR);
        assert_eq!(found(client, &last), 0);
        assert_eq!(found(&mut late.client(), &last), 20);
        assert_equal(client, &early);

        // A replica that is behind becomes primary: it moves the starts back.
        let promoted = &mut late.client();
        assert_eq!(promoted.run("REPLICAOF NO ONE"), ok());
        let port = late.port().to_string();
        let mut old = early.client();
        assert_eq!(old.cmd(&["REPLICAOF", "127.0.0.1", &port]), ok());
        wait_until("the replica is in sync", || {
            old.server_info("replication", "master_link_status") == "up"
        });
        add(promoted, &["after".to_owned()]);
        assert_equal(promoted, &early);
        assert_eq!(found(promoted, &last), 20, "they live longer");
        behind.advance(31 * HOUR);
        assert_eq!(found(promoted, &last), 0);
        // A replica that is ahead becomes primary: it forgets what is old by its clock.
        assert_eq!(old.run("REPLICAOF NO ONE"), ok());
        add(&mut old, &["at last".to_owned()]);
        assert_eq!(old.run("BF.CARD k"), int(1));
        [&primary, &early, &late].into_iter().for_each(assert_unharmed);
    }
}

/// A clock that is behind cannot be told from one that was ahead before. So an addition moves the
/// starts back, and items are older by as much when the clock is set right. Without an addition,
/// nothing moves.
#[test]
fn an_addition_by_a_clock_that_is_behind_makes_items_older() {
    for adds in [false, true] {
        let clock = Clock::new();
        let server = at(&clock).start();
        let client = &mut server.client();
        client.run(RESERVE);
        let items = numbered("item", 20);
        add(client, &items);
        clock.set(-7 * HOUR);
        if adds {
            add(client, &["other".to_owned()]);
        }
        assert_eq!(found(client, &items), 20);
        clock.set(22 * HOUR);
        assert_eq!(found(client, &items), 20);
        clock.set(23 * HOUR + HOUR / 2);
        assert_eq!(found(client, &items), if adds { 0 } else { 20 });
        assert_unharmed(&server);
    }
}

#[test]
fn an_old_file_is_loaded_without_a_look_at_the_clock() {
    for lines in [&["appendonly yes", "appendfsync always"][..], &[]] {
        for days in [1, 7] {
            let clock = Clock::new();
            let mut server =
                lines.iter().fold(at(&clock), |server, line| server.config(line)).start();
            let client = &mut server.client();
            let seconds = days * 86_400;
            client.run(&format!("BF.RESERVE k 0.00000001 1000 WINDOW EX {seconds}"));
            three_days(client, &[&clock], |_| ());
            let last = numbered("last", 20);
            add(client, &last);
            let before = digest(client, "k");
            if lines.is_empty() {
                assert_eq!(client.run("SAVE"), ok());
            }
            server.kill();
            // The server was down for three days.
            clock.advance(3 * DAY);
            server.relaunch();
            let client = &mut server.client();
            assert_eq!(digest(client, "k"), before, "{lines:?}");
            assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
            assert_eq!(found(client, &last), if days == 1 { 0 } else { 20 }, "{lines:?} {days}");
        }
    }
}

#[test]
fn what_changes_nothing_is_not_replicated() {
    let clock = Clock::new();
    let server = at(&clock).start();
    let replica = replica_at(&server, &clock);
    let client = &mut server.client();
    client.run(RESERVE);
    madd(client, "k", &["a", "b"]);
    assert_equal(client, &replica);
    let writes =
        |client: &mut Client| client.server_info("persistence", "rdb_changes_since_last_save");
    let offset = |client: &mut Client| client.server_info("commandstats", "cmdstat_bf.shift");
    let read = &mut replica.client();
    let shifts = offset(read);
    assert!(shifts.starts_with("calls=1,"), "{shifts}");
    let calls = |read: &mut Client| read.server_info("commandstats", "cmdstat_bf.madd");
    let (before, adds) = (writes(client), calls(read));
    for _ in 0..5 {
        assert_eq!(madd(client, "k", &["a", "b"]), [false, false]);
        assert_eq!(client.run("BF.ADD k a"), int(0));
        assert_eq!(found(client, &["a".into(), "z".into()]), 1);
    }
    assert_equal(client, &replica);
    // INCR alone.
    let more = before.parse::<i64>().expect("a number") + 1;
    assert_eq!(writes(client), more.to_string());
    assert_eq!(calls(read), adds);
    // In the next generation, an item that is known is added once more, and replicated once.
    clock.advance(7 * HOUR);
    assert_eq!(madd(client, "k", &["a", "new"]), [false, true]);
    assert_eq!(madd(client, "k", &["a", "new"]), [false, false]);
    assert_equal(client, &replica);
    assert!(offset(read).starts_with("calls=2,"), "{}", offset(read));
    // Also by a command for one item, which changes the filter in place.
    assert_eq!(client.run("BF.ADD k b"), int(0));
    assert_eq!(client.run("BF.ADD k b"), int(0));
    assert_equal(client, &replica);
    let singles = read.server_info("commandstats", "cmdstat_bf.add");
    assert!(singles.starts_with("calls=1,"), "{singles}");
    let digest_before = digest(client, "k");
    clock.advance(5 * DAY);
    assert_eq!(found(client, &["a".into(), "new".into()]), 0);
    assert_eq!(client.run("BF.CARD k"), int(0));
    assert_eq!(digest(client, "k"), digest_before, "questions write nothing");
    // BF.FORGET replicates what it gave back.
    assert_eq!(client.run("BF.FORGET k"), int(2));
    assert_eq!(client.run("BF.FORGET k"), int(0));
    assert_equal(client, &replica);
    assert!(offset(read).starts_with("calls=3,"), "{}", offset(read));
    // A replica neither forgets nor shifts by itself, even if it takes writes.
    assert_eq!(read.run("CONFIG SET replica-read-only no"), ok());
    madd(client, "k", &["x"]);
    assert_equal(client, &replica);
    clock.advance(5 * DAY);
    let refused = err("ERR a filter with a window changes on its primary alone");
    assert_eq!(read.run("BF.FORGET k"), refused);
    assert_eq!(read.run("BF.ADD k own"), refused);
    assert_eq!(read.run("BF.MADD k own other"), array([refused]));
    assert!(read.run("BF.SHIFT k FORGET 1").error().contains("is for servers"));
    assert_eq!(digest(read, "k"), digest(client, "k"));
    // An error leaves no key: the replica would not apply the primary's creation of it.
    for line in ["BF.INSERT new WINDOW EX 60 ITEMS a", "BF.BULKADD new WINDOW EX 60 WIDTH 1 a"] {
        assert!(read.run(line).error().ends_with("on its primary alone"), "{line}");
        assert_eq!(read.run("EXISTS new"), int(0), "{line}");
    }
    client.run("BF.INSERT new WINDOW EX 60 ITEMS a");
    assert_equal(client, &replica);
    assert_eq!(digest(read, "new"), digest(client, "new"));
}

/// An item of another shard is refused before time opens or drops a generation.
#[test]
fn a_foreign_item_does_not_shift_the_window_of_a_shard() {
    let clock = Clock::new();
    let server = at(&clock).start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 1000 WINDOW EX 86400 SHARD 7 8");
    for hours in [0, 48] {
        clock.set(hours * HOUR);
        let before = dump(client, "k");
        for line in ["BF.ADD k 123456789", "BF.MADD k 123456789 a"] {
            assert!(client.run(line).error().starts_with("ERR item belongs to shard "), "{line}");
            assert!(dump(client, "k") == before, "{line} after {hours} hours");
        }
        let own = (0..).map(|number: u32| number.to_string());
        let mut own = own.filter(|item| client.run(&format!("BF.ADD k {item}")) == int(1));
        assert!(own.next().is_some());
    }
}

#[test]
fn a_user_who_may_only_read_asks_a_window() {
    let clock = Clock::new();
    let server = at(&clock).start();
    let client = &mut server.client();
    client.run(RESERVE);
    add(client, &["a".to_owned()]);
    assert_eq!(client.run("ACL SETUSER reader on nopass %R~* +@all"), ok());
    let reader = &mut server.client();
    assert_eq!(reader.run("AUTH reader x"), ok());
    for (hours, expected) in [(0, 1), (31, 0)] {
        clock.set(hours * HOUR);
        assert_eq!(reader.run("BF.EXISTS k a"), int(expected));
        assert_eq!(reader.run("BF.MEXISTS k a"), ints([expected]));
        assert_eq!(reader.run("BF.CARD k"), int(expected));
        for line in ["BF.INFO k", "BF.INFO k GENERATIONS", "BF.DEBUG k", "BF.SCANDUMP k 0"] {
            assert!(!reader.run(line).is_error(), "{line}");
        }
    }
    for line in ["BF.ADD k b", "BF.FORGET k", "BF.SHIFT k FORGET 1"] {
        assert!(reader.run(line).error().starts_with("NOPERM"), "{line}");
    }
}

#[test]
fn reads_during_a_pause_and_a_failover_write_nothing() {
    let clock = Clock::new();
    let primary = at(&clock).start();
    let replica = replica_at(&primary, &clock);
    let client = &mut primary.client();
    client.run(RESERVE);
    let items = numbered("item", 30);
    add(client, &items);
    assert_equal(client, &replica);
    clock.set(31 * HOUR);
    for mode in ["WRITE", "ALL"] {
        // Longer than the test; ALL ends by itself, because it stops the questions too.
        let time = if mode == "ALL" { "50" } else { "1000000" };
        assert_eq!(client.cmd(&["CLIENT", "PAUSE", time, mode]), ok());
        for server in [&primary, &replica] {
            let read = &mut server.client();
            assert_eq!(found(read, &items), 0, "{mode}");
            assert_eq!(read.run("BF.EXISTS k item-0"), int(0));
            assert_eq!(read.run("BF.CARD k"), int(0));
            assert!(!read.run("BF.INFO k GENERATIONS").is_error());
        }
        assert_eq!(client.run("CLIENT UNPAUSE"), ok());
    }
    assert_eq!(client.cmd(&["FAILOVER", "TO", "127.0.0.1", &replica.port().to_string()]), ok());
    let promoted = &mut replica.client();
    wait_until("the replica is primary", || {
        assert_eq!(found(client, &items[..5]), 0);
        promoted.run("ROLE").elements()[0].text() == "master"
    });
    add(promoted, &["after".to_owned()]);
    wait_until("the old primary is in sync", || {
        client.server_info("replication", "master_link_status") == "up"
    });
    assert_equal(promoted, &primary);
    assert_eq!(found(client, &["after".to_owned()]), 1);
    [&primary, &replica].into_iter().for_each(assert_unharmed);
}

#[test]
fn a_filter_travels_between_servers_in_the_middle_of_its_window() {
    let clock = Clock::new();
    let (from, to) = (at(&clock).start(), at(&clock).start());
    let client = &mut from.client();
    client.run(RESERVE);
    let (old, new) = (numbered("old", 20), numbered("new", 20));
    add(client, &old);
    clock.set(20 * HOUR);
    add(client, &new);
    let before = digest(client, "k");
    let port = to.port().to_string();
    assert_eq!(client.cmd(&["MIGRATE", "127.0.0.1", &port, "k", "0", "5000"]), ok());
    let client = &mut to.client();
    assert_eq!(digest(client, "k"), before);
    assert_eq!((found(client, &old), found(client, &new)), (20, 20));
    clock.set(31 * HOUR);
    assert_eq!((found(client, &old), found(client, &new)), (0, 20));
    add(client, &["more".to_owned()]);
    assert_eq!(client.server_info("bf", "bf_forgotten"), "1");
    clock.set(51 * HOUR);
    assert_eq!((found(client, &new), found(client, &["more".to_owned()])), (0, 1));
}

#[test]
fn chunks_of_a_filter_that_shifts_meanwhile_are_refused() {
    let clock = Clock::new();
    let server = at(&clock).start();
    let client = &mut server.client();
    client.run(RESERVE);
    add(client, &numbered("item", 50));
    assert_eq!(client.run("COPY k copy"), int(1));
    let chunk = |client: &mut Client, key: &str, from: i64| {
        let reply = client.cmd(&["BF.SCANDUMP", key, &from.to_string()]);
        (reply.elements()[0].int(), reply.elements()[1].clone().payload())
    };
    let header = chunk(client, "k", 0);
    assert_eq!(load(client, "loaded", &header), ok());
    clock.advance(7 * HOUR);
    add(client, &["later".to_owned()]);
    let next = chunk(client, "k", header.0);
    assert!(load(client, "loaded", &next).is_error());
    // The copy does not change.
    for piece in dump(client, "copy") {
        assert_eq!(load(client, "again", &piece), ok());
    }
    assert_eq!(digest(client, "again"), digest(client, "copy"));
    assert_unharmed(&server);
}

#[test]
fn a_shift_is_announced_like_other_changes() {
    let clock = Clock::new();
    let server = at(&clock).start();
    let client = &mut server.client();
    client.run(RESERVE);
    assert_eq!(client.run("CONFIG SET notify-keyspace-events KEg"), ok());
    let listener = &mut server.client();
    listener.run("PSUBSCRIBE __keyevent*");
    let mut events = |client: &mut Client| {
        client.run("PUBLISH __keyevent-end x");
        let mut seen = Vec::new();
        loop {
            let event = listener.read().elements()[2].text();
            match event.split_once(':') {
                Some((_, name)) => seen.push(name.to_owned()),
                None => return seen.join(" "),
            }
        }
    };
    client.run("BF.ADD k a");
    assert_eq!(events(client), "bloom.add bloom.shift");
    client.run("BF.ADD k b");
    assert_eq!(events(client), "bloom.add");
    clock.advance(7 * HOUR);
    client.run("BF.ADD k a");
    assert_eq!(events(client), "bloom.add bloom.shift");
    client.run("BF.FORGET k");
    assert_eq!(events(client), "");
    clock.advance(5 * DAY);
    let watcher = &mut server.client();
    watcher.run("WATCH k");
    assert_eq!(found(client, &["a".to_owned()]), 0);
    watcher.run("MULTI");
    watcher.run("PING");
    // A question forgets without a change.
    assert_eq!(watcher.run("EXEC").elements(), [simple("PONG")]);
    watcher.run("WATCH k");
    client.run("BF.FORGET k");
    assert_eq!(events(client), "bloom.shift");
    watcher.run("MULTI");
    watcher.run("PING");
    assert_eq!(watcher.run("EXEC"), Reply::NullArray);
    // Nothing new, but generations go.
    client.run("BF.ADD k a");
    clock.advance(5 * DAY);
    events(client);
    assert_eq!(client.run("BF.ADD k a"), int(1));
    assert_eq!(events(client), "bloom.add bloom.shift");
    // A window that does not scale is full of what is alive: for T (1 + 1/G).
    client.run("BF.RESERVE n 0.0000001 4 WINDOW EX 86400 GENERATIONS 1 NONSCALING");
    events(client);
    client.run("BF.ADD n item-0");
    assert_eq!(events(client), "bloom.add bloom.shift");
    (1..3).for_each(|number| drop(client.cmd(&["BF.ADD", "n", &format!("item-{number}")])));
    assert_eq!(events(client), ["bloom.add"; 2].join(" "));
    clock.advance(DAY);
    // A user who returns takes no more room, and is in the newest generation.
    assert_eq!(client.run("BF.ADD n item-2"), int(0));
    assert_eq!(events(client), "bloom.add bloom.shift");
    assert_eq!(client.run("BF.ADD n item-3"), int(1));
    assert_eq!(events(client), "bloom.add bloom.full");
    assert_eq!(client.run("BF.ADD n item-4"), err("ERR non scaling filter is full"));
    assert_eq!(client.run("BF.ADD n item-1"), int(0));
    assert_eq!(events(client), "bloom.add");
    clock.advance(DAY);
    // Item 0 goes.
    assert_eq!(client.run("BF.ADD n item-4"), int(1));
    assert_eq!(events(client), "bloom.add bloom.shift bloom.full");
    assert_eq!(client.run("BF.ADD n item-0"), err("ERR non scaling filter is full"));
    assert_eq!(
        client.run("BF.MEXISTS n item-0 item-1 item-2 item-3 item-4"),
        ints([0, 1, 1, 1, 1])
    );
    assert_eq!(
        client.run("BF.INSERT k ITEMS"),
        err("ERR wrong number of arguments for 'bf.insert' command")
    );
}
