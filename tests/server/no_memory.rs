//! Filters that come to a server whose allocator refuses them: with a full sync, by RESTORE and
//! COPY from a primary, in an AOF and an RDB file. The process of such a server has a bounded
//! address space.

use crate::harness::{
    Client, NO_COPY, Server, assert_unharmed, config_name, err, int, ok, simple, wait_until,
};

/// Of the process that is refused memory.
const SPACE: u64 = 1 << 30;
/// A filter of 540 MB: one fits, two do not.
const HALF: &str = "0.01 450000000";
/// A filter of 1.2 GB, which does not fit.
const LARGE: &str = "0.01 1000000000";

/// A server that makes filters of any size.
fn source() -> Server {
    let server = Server::start();
    let bound = config_name("max-filter-bytes");
    assert_eq!(server.client().cmd(&["CONFIG", "SET", &bound, "8gb"]), ok());
    server
}

fn wait_for_link(replica: &mut Client) {
    wait_until("the replica is in sync", || {
        replica.server_info("replication", "master_link_status") == "up"
    });
}

#[track_caller]
fn assert_logged(server: &Server, what: &str, key: &str) {
    let line = format!("{what} of key '{key}' was not applied, though it came from a primary, an");
    let log = server.log();
    let told =
        |text: &str| text.contains(&line) && text.contains("no memory for") && text.contains("bf");
    assert!(log.lines().any(told), "{line}: {log}");
}

/// A replica goes on without the filter, and says so to who asks for it; it takes the rest of the
/// data.
#[test]
fn a_full_sync_of_a_filter_that_a_replica_has_no_memory_for() {
    let primary = source();
    let client = &mut primary.client();
    assert_eq!(client.run("BF.ADD before a"), int(1));
    assert_eq!(client.run(&format!("BF.RESERVE large {HALF}")), ok());
    assert_eq!(client.run("BF.ADD large a"), int(1));
    assert_eq!(client.run("BF.ADD after a"), int(1));
    for socket in ["disabled", "swapdb"] {
        let replica = Server::with()
            .config(&format!("repl-diskless-load {socket}"))
            .address_space(SPACE / 2)
            .replica_of(&primary)
            .start();
        let read = &mut replica.client();
        wait_for_link(read);
        assert_eq!(read.server_info("bf", "bf_unapplied"), "1", "repl-diskless-load {socket}");
        assert_logged(&replica, "a stored filter", "large");
        assert_eq!(read.run("DBSIZE"), int(3));
        for key in ["before", "after"] {
            assert_eq!(read.run(&format!("BF.EXISTS {key} a")), int(1));
        }
        assert_eq!(read.run("BF.EXISTS large a"), err(NO_COPY), "not: absent");
        let taken = read.run("MEMORY USAGE large").int();
        assert!(taken < 1_000, "{taken} bytes");
        let bytes: u64 = read.server_info("bf", "bf_bytes").parse().expect("a number");
        assert!(bytes < 10_000, "{bytes} bytes");
        // What the primary sends for it cannot be applied either; all else can.
        assert_eq!(client.cmd(&["BF.ADD", "large", socket]), int(1));
        assert_eq!(client.cmd(&["BF.ADD", "after", socket]), int(1));
        wait_until("it is counted", || read.server_info("bf", "bf_unapplied") == "2");
        wait_until("it is in", || read.cmd(&["BF.EXISTS", "after", socket]) == int(1));
        assert_eq!(client.run("WAIT 1 30000"), int(1), "the link is up");
        // Stored and read again it is what it was.
        assert_eq!(read.run("DEBUG RELOAD"), ok());
        assert_eq!(read.run("BF.EXISTS large a"), err(NO_COPY));
        assert_unharmed(&replica);
    }
}

#[test]
fn restore_and_copy_of_a_primary_that_a_replica_has_no_memory_for() {
    let primary = source();
    let replica = Server::with().address_space(SPACE).replica_of(&primary).start();
    let (client, read) = (&mut primary.client(), &mut replica.client());
    wait_for_link(read);
    assert_eq!(client.run(&format!("BF.RESERVE k {HALF}")), ok());
    assert_eq!(client.run("BF.ADD k a"), int(1));
    assert_eq!(client.run("COPY k copied"), int(1));
    wait_until("COPY is counted", || read.server_info("bf", "bf_unapplied") == "1");
    assert_logged(&replica, "COPY", "copied");
    let payload = client.cmd(&["DUMP", "k"]).payload();
    assert_eq!(client.call("RESTORE", "restored", &[&b"0"[..], &payload]), ok());
    wait_until("RESTORE is counted", || read.server_info("bf", "bf_unapplied") == "2");
    assert_logged(&replica, "a stored filter", "restored");
    assert_eq!(read.run("BF.EXISTS k a"), int(1));
    assert_eq!(read.run("BF.EXISTS copied a"), err(NO_COPY), "not: absent");
    assert_eq!(read.run("BF.EXISTS restored a"), err(NO_COPY), "not: absent");
    assert_eq!(client.run("SET after b"), ok());
    wait_until("the link is up", || read.run("EXISTS after") == int(1));
    assert_eq!(read.server_info("replication", "master_link_status"), "up");
    assert_unharmed(&replica);
}

/// A client is answered, and nothing is counted.
#[test]
fn restore_and_copy_of_a_client_without_memory_are_answered() {
    let source = source();
    let client = &mut source.client();
    assert_eq!(client.run(&format!("BF.RESERVE k {LARGE}")), ok());
    let payload = client.cmd(&["DUMP", "k"]).payload();
    let server = Server::with().address_space(SPACE).start();
    let client = &mut server.client();
    let reply = client.call("RESTORE", "restored", &[&b"0"[..], &payload]);
    assert_eq!(reply, err("ERR Bad data format"));
    let bound = config_name("max-filter-bytes");
    assert_eq!(client.cmd(&["CONFIG", "SET", &bound, "8gb"]), ok());
    assert_eq!(client.run(&format!("BF.RESERVE k {HALF}")), ok());
    assert_eq!(client.run("COPY k copied"), err("ERR module key failed to copy"));
    let log = server.log();
    assert!(log.contains("bf: key 'copied': COPY refused: no memory for 5"), "{log}");
    assert_eq!(client.run("DBSIZE"), int(1));
    assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
    assert_unharmed(&server);
}

/// A server does not start without a filter of its own file: the next file would be without it. It
/// says which, and with the memory it starts. That includes a replica: its primary may continue
/// where the file ends, and send no full copy.
#[test]
fn a_file_with_a_filter_that_there_is_no_memory_for_is_refused() {
    let source = source();
    let client = &mut source.client();
    assert_eq!(client.run("BF.ADD before a"), int(1));
    assert_eq!(client.run(&format!("BF.RESERVE large {HALF}")), ok());
    let payload = client.cmd(&["DUMP", "large"]).payload();
    assert_eq!(client.run("SAVE"), ok());
    let file = std::fs::read(source.dir().join("dump.rdb")).expect("SAVE wrote it");
    let restore: [&[u8]; 4] = [b"RESTORE", b"large", b"0", &payload];
    let mut aof = format!("*{}\r\n", restore.len()).into_bytes();
    for word in restore {
        aof.extend([format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
    }
    for (name, bytes, setting) in [
        ("dump.rdb", &file, "appendonly no"),
        ("appendonly.aof", &aof, "appendonly yes"),
        // An AOF whose beginning is an RDB file.
        ("appendonly.aof", &file, "appendonly yes"),
    ] {
        for role in ["replicaof no one", "replicaof 127.0.0.1 1"] {
            let mut server = Server::with().address_space(SPACE / 2).start();
            server.kill();
            std::fs::write(server.dir().join(name), bytes).expect("a file that can be written");
            server.configure(setting);
            server.configure(role);
            let log = server.try_relaunch().expect_err(name);
            for told in ["a stored filter was refused: no memory for", "filter of key 'large'"] {
                assert!(log.contains(told), "{name}, {role}: {told}: {log}");
            }
            // The value was read to its end; its module did not take it.
            assert!(log.contains("not able to load"), "{name}, {role}: {log}");
        }
        let roomy = Server::on_file(name, bytes, &[setting]);
        assert_eq!(roomy.client().run("TYPE large"), simple("MBbloom--"), "{name}");
    }
}
