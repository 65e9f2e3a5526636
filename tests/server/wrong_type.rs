//! Commands on a key of another type. RedisBloom answers 0 to BF.EXISTS; this module answers an
//! error, because 0 would hide the mistake.

use crate::harness::{Protocol, Server, commands, err, int, ok};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Calls that are made beside those of `commands`.
const MORE: [&str; 5] = [
    "BF.INSERT k NOCREATE ITEMS a",
    "BF.INFO k CAPACITY",
    // The key is checked before the iterator.
    "BF.SCANDUMP k x",
    "BF.LOADCHUNK k 2 data",
    "BF.MERGE new k",
];

#[test]
fn every_command_refuses_a_key_of_another_type() {
    let server = Server::start();
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        for make in [
            "SET k v",
            "HSET k f v",
            "RPUSH k v",
            "SADD k v",
            "ZADD k 1 v",
            "XADD k * f v",
            "SETBIT k 1 1",
        ] {
            client.run("FLUSHALL");
            client.run(make);
            let before = client.run("DUMP k");
            for command in commands().map(|command| command.call).chain(MORE) {
                assert_eq!(
                    client.run(command),
                    err(WRONG_TYPE),
                    "{protocol:?}: {make} ; {command}"
                );
                client.assert_in_step();
            }
            assert_eq!(client.run("DUMP k"), before, "{make}: the value is unchanged");
        }
    }
}

#[test]
fn commands_of_other_types_refuse_a_filter() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.ADD k a");
    for command in
        ["GET k", "APPEND k x", "HGET k f", "LPUSH k x", "SADD k x", "INCR k", "PFADD k x"]
    {
        let reply = client.run(command);
        assert!(reply.error().starts_with("WRONGTYPE"), "{command} answered {reply:?}");
    }
    assert_eq!(client.run("BF.EXISTS k a"), int(1));
    assert_eq!(client.run("SET k v"), ok(), "SET overwrites any type");
}
