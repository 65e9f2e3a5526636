//! BF.ADD and BF.MADD answer yes for a new item, and no for an item that tests present.

use crate::harness::{Protocol, Reply, Server, array, err, fresh, info, int, ok, version};

#[test]
fn add_answers_whether_the_item_was_new() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let (yes, no) = (protocol.bit(true), protocol.bit(false));
        let filter = &["BF.RESERVE k 0.01 100"][..];
        fresh(
            &mut server.speak(protocol),
            &[
                (&[], "BF.ADD k a", yes.clone()),
                (filter, "BF.ADD k a", yes.clone()),
                (filter, "bf.add k a", yes.clone()),
                (&["BF.ADD k a"], "BF.ADD k a", no.clone()),
                (&["BF.ADD k a"], "BF.ADD k b", yes.clone()),
                (&["BF.ADD k a"], "BF.ADD other a", yes),
                (&["BF.MADD k a b"], "BF.ADD k b", no),
            ],
        );
    }
}

#[test]
fn madd_answers_in_the_order_of_the_items() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        fresh(
            &mut server.speak(protocol),
            &[
                (&[], "BF.MADD k a", protocol.bits([1])),
                (&[], "BF.MADD k a b c", protocol.bits([1, 1, 1])),
                (&["BF.ADD k b"], "BF.MADD k a b c", protocol.bits([1, 0, 1])),
                // Items are added one by one: the second of two equal items is not new.
                (&[], "BF.MADD k a a", protocol.bits([1, 0])),
                (&[], "BF.MADD k a b a b c a", protocol.bits([1, 1, 0, 0, 1, 0])),
                (
                    &["BF.RESERVE k 1e-9 2 EXPANSION 1"],
                    "BF.MADD k a b c d e a",
                    protocol.bits([1, 1, 1, 1, 1, 0]),
                ),
                // BF.MADD has no options: every word is an item.
                (&[], "BF.MADD k ITEMS NOCREATE ITEMS", protocol.bits([1, 1, 0])),
            ],
        );
    }
}

#[test]
fn only_new_items_are_counted() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.MADD k a b c a b c");
    assert_eq!(info(client, "k").items, 3);
    client.run("BF.MADD k a b c d");
    client.run("BF.ADD k d");
    assert_eq!(info(client, "k").items, 4);
    assert_eq!(client.run("BF.CARD k"), int(4));
}

#[test]
fn a_filter_made_by_adding_has_the_default_shape() {
    let server = Server::start();
    let client = &mut server.client();
    for make in ["BF.ADD k a", "BF.MADD k a", "BF.INSERT k ITEMS a"] {
        client.run("FLUSHALL");
        client.run(make);
        let made = info(client, "k");
        assert_eq!(
            (made.capacity, made.filters, made.items, made.expansion),
            (100, 1, 1, Some(2)),
            "{make}"
        );
        // The layers are those of a filter reserved with the default error rate, 1 %.
        client.run("BF.RESERVE asked 0.01 100 EXPANSION 2");
        client.run("BF.ADD asked a");
        assert_eq!(client.run("BF.DEBUG k"), client.run("BF.DEBUG asked"), "{make}");
    }
}

#[test]
fn the_commands_work_in_scripts_and_transactions() {
    let server = Server::start();
    let client = &mut server.client();
    let script = "return redis.call('BF.MADD', KEYS[1], 'a', 'b', 'a')";
    assert_eq!(client.cmd(&["EVAL", script, "1", "k"]), Protocol::Resp2.bits([1, 1, 0]));
    let script = "redis.setresp(3); return redis.call('BF.EXISTS', KEYS[1], 'a')";
    // The script gets a boolean; the server converts it to an integer for a RESP2 client.
    assert_eq!(client.cmd(&["EVAL", script, "1", "k"]), int(1));
    client.run("BF.RESERVE ns 1e-9 1 NONSCALING");
    client.run("MULTI");
    client.run("BF.ADD k c");
    client.run("BF.MADD ns x y z");
    client.run("BF.CARD k");
    let full = err("ERR non scaling filter is full");
    assert_eq!(client.run("EXEC"), array([int(1), array([int(1), full]), int(3)]));
}

/// Valkey 9 and later turn an error anywhere in a reply into the error of the call
/// (docs/reference/commands.md, BF.MADD).
#[test]
fn a_script_gets_the_error_inside_the_array_or_instead_of_it() {
    let server = Server::start();
    let client = &mut server.client();
    let full = "ERR non scaling filter is full";
    let instead = version().valkey && version().major >= 9;
    for setresp in ["", "redis.setresp(3);"] {
        for line in ["'BF.MADD', KEYS[1],", "'BF.INSERT', KEYS[1], 'ITEMS',"] {
            let script = |call: &str| {
                format!(
                    "{setresp} local reply = redis.{call}({line} 'a', 'b', 'c', 'd', 'e')
                     redis.call('SET', KEYS[2], 'reached')
                     if reply.err then return 'error: ' .. reply.err end
                     return #reply .. ' elements, the last: ' .. reply[#reply].err"
                )
            };
            for call in ["call", "pcall"] {
                client.run("FLUSHALL");
                assert_eq!(client.run("BF.RESERVE k 0.000001 3 NONSCALING SEED 1"), ok());
                let reply = client.cmd(&["EVAL", &script(call), "2", "k", "after"]);
                let reached = client.run("EXISTS after");
                match (instead, call) {
                    (false, _) => assert_eq!(reply.text(), format!("4 elements, the last: {full}")),
                    (true, "pcall") => assert_eq!(reply.text(), format!("error: {full}")),
                    (true, _) => assert!(
                        matches!(&reply, Reply::Error(error) if error.starts_with(full)),
                        "{reply:?}"
                    ),
                }
                assert_eq!(reached, int(i64::from(!instead || call == "pcall")));
                // The items before the error are added in every case.
                assert_eq!(client.run("BF.CARD k"), int(3));
            }
        }
    }
}

#[test]
fn a_filter_is_a_key_like_any_other() {
    let server = Server::start();
    let client = &mut server.client();
    fresh(
        client,
        &[
            (&["BF.ADD k a", "DEL k"], "BF.EXISTS k a", int(0)),
            (&["BF.ADD k a", "UNLINK k"], "BF.ADD k a", int(1)),
            (&["BF.ADD k a", "RENAME k other"], "BF.EXISTS other a", int(1)),
            (&["BF.ADD k a", "RENAME k other"], "BF.EXISTS k a", int(0)),
            (&["BF.ADD k a"], "EXPIRE k 100", int(1)),
            (
                &["BF.ADD k a", "MOVE k 1", "BF.ADD k b", "SELECT 1"],
                "BF.MEXISTS k a b",
                Protocol::Resp2.bits([1, 0]),
            ),
            (&["SELECT 0", "BF.ADD k a", "SET k v"], "GET k", crate::harness::bulk("v")),
        ],
    );
}

#[test]
fn an_expired_filter_is_gone_for_readers_and_new_for_writers() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    client.run("BF.ADD k a");
    client.run("PEXPIRE k 1");
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(client.run("BF.EXISTS k a"), int(0));
    assert_eq!(client.run("BF.INFO k"), err("ERR not found"));
    assert_eq!(client.run("BF.RESERVE k 0.01 100"), crate::harness::ok());
    client.run("BF.ADD k a");
    client.run("PEXPIRE k 1");
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(client.run("BF.MADD k a b"), Protocol::Resp2.bits([1, 1]));
    assert_eq!(client.run("TTL k"), int(-1), "the new filter does not expire");
}
