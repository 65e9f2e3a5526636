//! Creates and fills filters in every way: commands, transactions, scripts, functions, chunks,
//! payloads.

use crate::harness::{Client, Reply, add_until_card, dump, int, load, madd, numbered, ok};

/// A library whose function `add` calls BF.MADD.
pub(crate) const LIBRARY: &str = "#!lua name=bloom
redis.register_function('add', function(keys, items)
    return redis.call('BF.MADD', keys[1], unpack(items))
end)";

/// Creates and fills filters in every way; returns their keys.
pub(crate) fn write_in_every_way(client: &mut Client) -> Vec<&'static str> {
    assert_eq!(client.run("BF.RESERVE reserved 0.012345678901234567 1000 EXPANSION 3"), ok());
    add_until_card(client, "reserved", "item", 900);
    assert_eq!(client.run("BF.RESERVE full 0.2 30 NONSCALING"), ok());
    client.call("BF.MADD", "full", &numbered("item", 60));
    client.run("BF.ADD added a");
    madd(client, "many", &numbered("item", 700));
    client.run(
        "BF.INSERT inserted CAPACITY 9 ERROR 0.3 EXPANSION 1 ITEMS a b a c d e f g h i j k l m",
    );
    client.run("BF.INSERT defaults ITEMS a b");
    let lines = numbered("item", 700).join("\n");
    for options in ["", "CAPACITY 9 ERROR 0.3 COUNTING", "ERROR 0.012345678901234567 NONSCALING"] {
        let key = ["bulk", "bulk_counting", "bulk_full"][options.split(' ').count() / 2];
        let words = ["BF.BULKADD", key].into_iter().chain(options.split_whitespace());
        client.cmd(&words.chain(["LINES", &lines]).collect::<Vec<_>>());
        // The first items are known, and the last one ends in the middle of a line.
        client.cmd(&["BF.BULKADD", key, "WIDTH", "9", &lines[..lines.len() / 9 * 9]]);
    }
    // Some items are present already, and the filter becomes full within the batch.
    madd(client, "reserved", &numbered("item", 2_000));

    assert_eq!(
        client.run("BF.RESERVE counting 0.012345678901234567 50 EXPANSION 3 COUNTING"),
        ok()
    );
    add_until_card(client, "counting", "item", 900);
    client.call("BF.DEL", "counting", &numbered("item", 500));
    madd(client, "counting", &numbered("item", 800));
    client.call("BF.DEL", "counting", &numbered("item", 1_000));

    // The only shard takes every item.
    client.run("BF.RESERVE shard 0.012345678901234567 50 EXPANSION 3 SHARD 0 1");
    madd(client, "shard", &numbered("item", 900));
    client.cmd(&["BF.BULKADD", "shard_counting", "COUNTING", "SHARD", "0", "1", "LINES", &lines]);
    client.call("BF.DEL", "shard_counting", &numbered("item", 300));

    client.run("BF.RESERVE last 0.012345678901234567 50 WINDOW COUNT GENERATIONS 3");
    madd(client, "last", &numbered("item", 300));
    client.run("BF.RESERVE time 0.05 50 WINDOW EX 86400 EXPANSION 3 NOREFRESH");
    madd(client, "time", &numbered("item", 900));
    client.run("BF.INSERT today CAPACITY 50 WINDOW PX 86400000 SHARD 0 1 NONSCALING ITEMS a b a");
    client.cmd(&["BF.BULKADD", "packed_time", "WINDOW", "EX", "999", "LINES", &lines]);
    client.run("BF.FORGET time");

    client.run("MULTI");
    client.run("BF.RESERVE transaction 0.01 20");
    client.call("BF.MADD", "transaction", &numbered("item", 70));
    client.run("BF.ADD transaction item-1");
    client.run("BF.ADD made_inside a");
    client.run("BF.EXISTS transaction item-3");
    assert!(client.run("EXEC").elements().iter().all(|reply| !reply.is_error()));

    let script = "redis.call('BF.RESERVE', KEYS[1], '0.05', '11')
        for i = 1, 100 do redis.call('BF.ADD', KEYS[1], i) end
        redis.call('BF.INSERT', KEYS[1], 'ITEMS', 1, 2, 200)
        redis.call('BF.ADD', KEYS[2], 'x')
        redis.call('BF.INSERT', KEYS[3], 'COUNTING', 'ITEMS', 1, 2, 2)
        redis.call('BF.DEL', KEYS[3], 1, 2, 3)
        return redis.call('BF.CARD', KEYS[1])";
    let card = client.cmd(&["EVAL", script, "3", "script", "made_by_script", "counting_by_script"]);
    assert!(card.int() > 80, "{card:?}");

    assert_eq!(client.cmd(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]).text(), "bloom");
    assert_eq!(client.run("FCALL add 1 function a b a").answers(), [true, true, false]);
    assert_eq!(client.run("FCALL add 1 function a b c").answers(), [false, false, true]);

    for (from, to) in [("reserved", "loaded"), ("counting", "counting_loaded")] {
        for piece in dump(client, from) {
            assert_eq!(load(client, to, &piece), ok());
        }
    }
    client.call("BF.DEL", "counting_loaded", &numbered("item", 1_000));
    client.run("BF.ADD loaded more");
    assert_eq!(client.run("COPY reserved copied"), int(1));
    client.run("BF.ADD copied more");
    let Reply::Bulk(payload) = client.run("DUMP reserved") else { panic!("no payload") };
    assert_eq!(client.call("RESTORE", "restored", &[b"0", &payload[..]]), ok());
    client.run("BF.ADD restored more");
    client.run("BF.RESERVE temporary 0.01 10");
    assert_eq!(client.run("RENAME temporary renamed"), ok());
    client.run("BF.ADD renamed a");
    vec![
        "reserved",
        "counting",
        "counting_by_script",
        "counting_loaded",
        "full",
        "added",
        "many",
        "inserted",
        "defaults",
        "bulk",
        "bulk_counting",
        "bulk_full",
        "shard",
        "shard_counting",
        "last",
        "time",
        "today",
        "packed_time",
        "transaction",
        "made_inside",
        "script",
        "made_by_script",
        "function",
        "loaded",
        "copied",
        "restored",
        "renamed",
    ]
}
