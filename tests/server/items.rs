//! An item is a byte string of any content and any length. A command has any number of items.

use std::iter::repeat_n;

use crate::harness::{Reply, Server, err, info, int, ints, madd, mexists, numbered, ok};

#[test]
fn an_item_is_any_string_of_bytes() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 1e-9 1000"), ok());
    let all_bytes: Vec<u8> = (0..=255).collect();
    let items: [&[u8]; 14] = [
        b"",
        b"\0",
        b"\0\0",
        b"a\0b",
        b"a\0c",
        b"a",
        b" a",
        b"a ",
        b"\r\n",
        b"\xff\xfe",
        "grüße".as_bytes(),
        // The same text in another Unicode normal form has other bytes.
        "gru\u{308}ße".as_bytes(),
        b"$3\r\nabc\r\n",
        &all_bytes,
    ];
    for (place, item) in items.iter().enumerate() {
        let item: &[u8] = item;
        assert_eq!(
            client.call("BF.EXISTS", "k", &[item]),
            int(0),
            "{} is not added yet",
            item.escape_ascii()
        );
        assert_eq!(client.call("BF.ADD", "k", &[item]), int(1), "{}", item.escape_ascii());
        assert_eq!(client.call("BF.ADD", "k", &[item]), int(0), "{} again", item.escape_ascii());
        assert!(mexists(client, "k", &items[..=place]).iter().all(|&there| there));
    }
    assert_eq!(info(client, "k").items, 14);
    client.run("DEL k");
    assert_eq!(client.call("BF.MADD", "k", &items), ints([1; 14]));
    assert_eq!(client.call("BF.MEXISTS", "k", &items), ints([1; 14]));
    assert_eq!(
        client.call("BF.INSERT", "k", &[&b"ITEMS"[..], b"", b"\0", b"new"]),
        ints([0, 0, 1])
    );
}

/// Items of every length below 600 reach every branch of a hash function that depends on the
/// length.
#[test]
fn items_of_different_lengths_are_different() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 1e-9 10000"), ok());
    let items: Vec<Vec<u8>> = (0..600).map(|length| vec![b'x'; length]).collect();
    assert!(madd(client, "k", &items).iter().all(|&new| new), "a length was taken for another");
    // One changed byte, at the front, in the middle and at the end, makes another item.
    let others: Vec<Vec<u8>> = (1..600)
        .flat_map(|length: usize| [0, length / 2, length - 1].map(|place| (length, place)))
        .map(|(length, place)| {
            let mut item = vec![b'x'; length];
            item[place] = b'y';
            item
        })
        .collect();
    let positives = mexists(client, "k", &others).iter().filter(|&&there| there).count();
    assert_eq!(positives, 0, "of {} items that differ in one byte", others.len());
}

#[test]
fn an_item_of_a_megabyte_is_an_item() {
    let server = Server::start();
    let client = &mut server.client();
    let mut item: Vec<u8> =
        (0..1_048_576_u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert_eq!(client.call("BF.ADD", "k", &[&item]), int(1));
    assert_eq!(client.call("BF.ADD", "k", &[&item]), int(0));
    assert_eq!(client.call("BF.EXISTS", "k", &[&item]), int(1));
    // The last byte matters.
    *item.last_mut().expect("the item is not empty") ^= 1;
    assert_eq!(client.call("BF.EXISTS", "k", &[&item]), int(0));
    assert_eq!(client.call("BF.MADD", "k", &[&item, &item]), ints([1, 0]));
}

#[test]
fn a_hundred_thousand_items_fit_in_one_command() {
    const COUNT: usize = 100_000;
    let server = Server::start();
    let client = &mut server.client();
    // At this rate and with a fixed seed, all items are new in every run.
    assert_eq!(client.run("BF.RESERVE k 1e-9 100000 SEED 1"), ok());
    let items = numbered("item", COUNT);
    assert_eq!(client.call("BF.MADD", "k", &items), ints(repeat_n(1, COUNT)));
    assert_eq!(client.call("BF.MADD", "k", &items), ints(repeat_n(0, COUNT)));
    assert_eq!(client.call("BF.MEXISTS", "k", &items), ints(repeat_n(1, COUNT)));
    assert_eq!(client.call("BF.MEXISTS", "k", &numbered("other", COUNT)), ints(repeat_n(0, COUNT)));
    let now = info(client, "k");
    assert_eq!(
        (now.items, now.filters),
        (100_000, 1),
        "a filter exactly at its capacity has not grown"
    );
    // The filter grows within the command: 100, 200, 400, … 51,200, 102,400.
    let mut arguments = vec!["CAPACITY", "100", "ERROR", "1e-9", "SEED", "1", "ITEMS"];
    arguments.extend(items.iter().map(String::as_str));
    assert_eq!(client.call("BF.INSERT", "grown", &arguments), ints(repeat_n(1, COUNT)));
    assert_eq!(info(client, "grown").filters, 10);
    assert_eq!(client.call("BF.MEXISTS", "grown", &items), ints(repeat_n(1, COUNT)));
}

#[test]
fn a_batch_and_single_commands_make_the_same_filter() {
    let server = Server::start();
    let client = &mut server.client();
    // 500 items fill six layers, in batches of every small size. Each item comes twice, the second
    // time a few places later: often in the same batch, and often after a new layer began.
    let items: Vec<String> = (0..1_000_usize)
        .map(|place| if place % 2 == 0 { place / 2 } else { (place / 2).saturating_sub(3) })
        .map(|number| format!("item-{number}"))
        .collect();
    for key in ["single", "batch", "insert", "uneven"] {
        assert_eq!(client.run(&format!("BF.RESERVE {key} 0.01 10 SEED 5")), ok());
    }
    let single: Vec<bool> = items
        .iter()
        .map(|item| client.cmd(&["BF.ADD", "single", item.as_str()]) == int(1))
        .collect();
    assert_eq!(madd(client, "batch", &items), single);
    let mut with_word = vec!["ITEMS".to_owned()];
    with_word.extend_from_slice(&items);
    assert_eq!(client.call("BF.INSERT", "insert", &with_word).answers(), single);
    let mut uneven = Vec::new();
    let mut rest = &items[..];
    for size in (1..).take_while(|size| size * (size + 1) / 2 <= 1_100) {
        let (batch, after) = rest.split_at(usize::min(size, rest.len()));
        if !batch.is_empty() {
            uneven.extend(client.call("BF.MADD", "uneven", batch).answers());
        }
        rest = after;
    }
    assert_eq!(uneven, single);
    let expected = client.run("DUMP single");
    assert!(matches!(expected, Reply::Bulk(_)));
    for key in ["batch", "insert", "uneven"] {
        assert_eq!(client.cmd(&["DUMP", key]), expected, "{key}");
    }
}

/// RedisBloom's `test_load_bloom_with_large_number_of_filters`: one layer per item.
#[test]
fn expansion_one_from_capacity_one_takes_five_thousand_items() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 1 EXPANSION 1 SEED 1"), ok());
    let items = numbered("item", 5_000);
    let new = madd(client, "k", &items).iter().filter(|&&new| new).count();
    // About 50 items (1 %) may test present before they are added; an unlucky seed gives more.
    assert!(new >= 4_800, "only {new} of 5,000 items were new");
    let now = info(client, "k");
    let new = i64::try_from(new).expect("a count of items");
    assert_eq!((now.items, now.filters, now.capacity), (new, new, new), "a layer for each item");
    assert!(mexists(client, "k", &items).iter().all(|&there| there));
    assert_eq!(client.run("BF.INFO k NOPE"), err("ERR Invalid information value"));
}
