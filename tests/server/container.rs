//! A server in a container of 1 GiB, and filters that are larger: what one server accepted, every
//! server loads. The default ceiling binds clients alone.
//!
//! The filter has 1.2 GB and few items, so its pages stay untouched: the tests take the time to
//! save and read zeros, which the server packs (some 4 seconds a save or a load, 14 MB), and little
//! memory. What the container would enforce is not enforced: only the limit that the module reads
//! is there.

use std::time::Instant;

use crate::harness::{
    Builder, Client, Server, assert_unharmed, can_contain, config_name, dump, err, info, load,
    madd, mexists, numbered, ok, skipped, wait_until,
};

const NO_MEMORY: &str = "ERR Insufficient memory to create filter";
const GIB: i64 = 1 << 30;
/// At 9.585 bits an item and more: 1.2e9 bytes.
const RESERVE: &str = "BF.RESERVE k 0.01 1000000000 NONSCALING";
/// Beside the bits: headers, buffers, pages that items touch.
const LITTLE: i64 = 8 << 20;

/// A container of 1 GiB; `None`, and a line that says so, where this machine gives none.
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

/// Makes the filter, with some items, on a server whose operator allows it.
#[track_caller]
fn reserve(client: &mut Client) -> Vec<String> {
    lift_the_ceiling(client);
    assert_eq!(client.run(RESERVE), ok(), "what the operator sets wins");
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
        "the ceiling of clients is what it was"
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
    // A dump that has just begun: a header, and nothing behind it.
    let header = dump_header(client);
    assert_eq!(load(client, "half", &header), ok());
    server.kill_and_restart();
    let client = &mut server.client();
    assert_there(client, "k", &items, "from the commands");
    assert_eq!(load(client, "half", &header), ok(), "it is there, and has begun so");
    assert!(!client.run("BGREWRITEAOF").is_error());
    wait_until("the AOF is rewritten", || !client.has_child());
    assert_eq!(client.server_info("persistence", "aof_last_bgrewrite_status"), "ok");
    server.kill_and_restart();
    let client = &mut server.client();
    assert_there(client, "k", &items, "from the rewritten AOF");
    assert_eq!(load(client, "half", &header), ok(), "it is there, and has begun so");
    assert_unharmed(&server);
}

/// The first piece of a dump, without the others.
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
    // And what comes after it by the stream.
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

/// A load that has just begun is some hundred bytes long when it is stored. Its memory is
/// allocated, under the ceiling, when the next chunk comes.
#[test]
fn half_a_filter_is_read_without_its_memory() {
    let Some(container) = container("half_a_filter_is_read_without_its_memory") else {
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
    assert_eq!(load(client, "half", &header), err(NO_MEMORY), "as a client's");
    let used = client.memory("used_memory");
    assert_eq!(client.call("RESTORE", "half", &[&b"0"[..], &half]), ok());
    let taken = client.memory("used_memory") - used;
    assert!(taken < LITTLE, "{taken} bytes");
    server.restart();
    let client = &mut server.client();
    let chunks = &dump(from, "k")[1..];
    let used = client.memory("used_memory");
    assert_eq!(load(client, "half", &chunks[0]), err(NO_MEMORY), "as a client's");
    let taken = client.memory("used_memory") - used;
    // The connection has a buffer for the chunk.
    assert!(taken < LITTLE + (40 << 20), "{taken} bytes");
    lift_the_ceiling(client);
    for chunk in chunks {
        assert_eq!(load(client, "half", chunk), ok());
    }
    assert_there(client, "half", &items, "goes on");
    assert_unharmed(&server);
}
