//! A server in a container of 1 GiB, and filters that are larger. Every server loads a filter that
//! another server accepted: the default ceiling binds only clients.
//!
//! The filter has 1.2 GB and few items, so most of its pages stay untouched and the tests take
//! little memory. Their time goes to saving and reading zeros, which the server compresses (14 MB,
//! some 4 seconds a save or load). The container's limit is not enforced: the module only reads it.

use std::time::Instant;

use crate::harness::{
    Builder, Client, Server, assert_unharmed, can_contain, config_name, dump, err, info, load,
    madd, mexists, numbered, ok, skipped, wait_until,
};

const NO_MEMORY: &str = "ERR Insufficient memory to create filter";
const GIB: i64 = 1 << 30;
/// At least 9.585 bits an item: 1.2e9 bytes.
const RESERVE: &str = "BF.RESERVE k 0.01 1000000000 NONSCALING";
/// Bytes beside the bits: headers, buffers, pages that the items touch.
const LITTLE: i64 = 8 << 20;

/// A server in a container of 1 GiB. Where the machine cannot make one, reports the test as skipped
/// and returns `None`.
fn container(test: &str) -> Option<Builder> {
    if can_contain() {
        return Some(Server::with().container(GIB.unsigned_abs()));
    }
    skipped(test, "needs to be root, with control groups and the right to mount");
    None
}

fn lift_the_ceiling(client: &mut Client) {
    let reply = client.cmd(&["CONFIG", "SET", &config_name("max-filter-bytes"), "2gb"]);
    assert_eq!(reply, ok());
}

/// Raises the ceiling, creates the filter and adds some items.
#[track_caller]
fn reserve(client: &mut Client) -> Vec<String> {
    lift_the_ceiling(client);
    assert_eq!(client.run(RESERVE), ok(), "the configured ceiling wins");
    assert!(info(client, "k").size > GIB, "it is larger than the container");
    let items = numbered("item", 1_000);
    madd(client, "k", &items);
    items
}

#[track_caller]
fn assert_there(client: &mut Client, key: &str, items: &[String], when: &str) {
    assert!(mexists(client, key, items).iter().all(|&there| there), "{when}");
    assert!(info(client, key).size > GIB, "{when}");
}

#[test]
fn a_filter_above_the_container_survives_a_restart() {
    let Some(container) = container("a_filter_above_the_container_survives_a_restart") else {
        return;
    };
    let mut server = container.start();
    let client = &mut server.client();
    assert_eq!(client.run(RESERVE), err(NO_MEMORY), "the default ceiling");
    let items = reserve(client);
    assert_eq!(client.run("COPY k copy").int(), 1);
    assert_there(client, "copy", &items, "a copy");
    assert_eq!(client.run("DEL copy").int(), 1);
    let begin = Instant::now();
    server.restart();
    println!("saved and loaded in {:.1?}", begin.elapsed());
    let client = &mut server.client();
    assert_there(client, "k", &items, "from the RDB file");
    assert_eq!(
        client.run("BF.RESERVE other 0.01 1000000000"),
        err(NO_MEMORY),
        "the default ceiling still binds clients"
    );
    assert_unharmed(&server);
}

#[test]
fn a_filter_above_the_container_survives_in_an_aof() {
    let Some(container) = container("a_filter_above_the_container_survives_in_an_aof") else {
        return;
    };
    let mut server =
        container.config("appendonly yes").config("auto-aof-rewrite-percentage 0").start();
    let client = &mut server.client();
    let items = reserve(client);
    // A load that has just begun: the header alone.
    let header = dump_header(client);
    assert_eq!(load(client, "half", &header), ok());
    server.kill_and_restart();
    let client = &mut server.client();
    assert_there(client, "k", &items, "from the commands");
    assert_eq!(load(client, "half", &header), ok(), "the load can go on");
    assert!(!client.run("BGREWRITEAOF").is_error());
    wait_until("the AOF is rewritten", || !client.has_child());
    assert_eq!(client.server_info("persistence", "aof_last_bgrewrite_status"), "ok");
    server.kill_and_restart();
    let client = &mut server.client();
    assert_there(client, "k", &items, "from the rewritten AOF");
    assert_eq!(load(client, "half", &header), ok(), "the load can go on");
    assert_unharmed(&server);
}

/// The first piece of a dump.
fn dump_header(client: &mut Client) -> (i64, Vec<u8>) {
    let reply = client.run("BF.SCANDUMP k 0");
    let [iterator, data] = reply.elements() else {
        panic!("BF.SCANDUMP answered {reply:?}");
    };
    (iterator.int(), data.clone().payload())
}

#[test]
fn a_replica_in_a_smaller_container_takes_a_full_sync() {
    let Some(container) = container("a_replica_in_a_smaller_container_takes_a_full_sync") else {
        return;
    };
    let master = Server::start();
    let client = &mut master.client();
    let items = reserve(client);
    let header = dump_header(client);
    let replica = container.replica_of(&master).start();
    let read = &mut replica.client();
    wait_until("the replica is up", || {
        read.server_info("replication", "master_link_status") == "up"
    });
    assert_there(read, "k", &items, "by a full sync");
    // Later writes come by the replication stream.
    assert_eq!(client.run("COPY k copy").int(), 1);
    assert_eq!(load(client, "half", &header), ok());
    assert_eq!(client.run("WAIT 1 60000").int(), 1);
    assert_there(read, "copy", &items, "by the stream");
    assert_eq!(read.run("EXISTS half").int(), 1);
    assert_unharmed(&replica);
}

#[test]
fn restore_takes_a_filter_above_the_container() {
    let Some(container) = container("restore_takes_a_filter_above_the_container") else {
        return;
    };
    let (server, source) = (container.start(), Server::start());
    let items = reserve(&mut source.client());
    let whole = source.client().cmd(&["DUMP", "k"]).payload();
    println!("a dump of {} bytes", whole.len());
    let client = &mut server.client();
    let begin = Instant::now();
    assert_eq!(client.call("RESTORE", "k", &[&b"0"[..], &whole]), ok());
    println!("restored in {:.1?}", begin.elapsed());
    assert_there(client, "k", &items, "by RESTORE");
    assert_unharmed(&server);
}

/// A load that has just begun is stored in some hundred bytes. Its memory is allocated when the
/// next chunk comes, and the ceiling applies then.
#[test]
fn a_load_that_has_begun_is_restored_without_its_memory() {
    let Some(container) = container("a_load_that_has_begun_is_restored_without_its_memory") else {
        return;
    };
    let (mut server, source) = (container.start(), Server::start());
    let from = &mut source.client();
    let items = reserve(from);
    let header = dump_header(from);
    assert_eq!(load(from, "half", &header), ok());
    let half = from.cmd(&["DUMP", "half"]).payload();
    assert!(half.len() < 200, "{} bytes", half.len());
    let client = &mut server.client();
    assert_eq!(load(client, "half", &header), err(NO_MEMORY), "the ceiling binds clients");
    let used = client.memory("used_memory");
    assert_eq!(client.call("RESTORE", "half", &[&b"0"[..], &half]), ok());
    let taken = client.memory("used_memory") - used;
    assert!(taken < LITTLE, "{taken} bytes");
    server.restart();
    let client = &mut server.client();
    let chunks = &dump(from, "k")[1..];
    let used = client.memory("used_memory");
    assert_eq!(load(client, "half", &chunks[0]), err(NO_MEMORY), "the ceiling binds clients");
    let taken = client.memory("used_memory") - used;
    // The connection keeps a buffer for the chunk.
    assert!(taken < LITTLE + (40 << 20), "{taken} bytes");
    lift_the_ceiling(client);
    for chunk in chunks {
        assert_eq!(load(client, "half", chunk), ok());
    }
    assert_there(client, "half", &items, "after the load");
    assert_unharmed(&server);
}
