//! Chunks with forged numbers and correct checksums, of a filter of one layer of bits.
//! `forged_pages.rs` has those of pages.

use crate::{
    forged::NOISE,
    harness::{
        Client, Server, add_until_card, assert_unharmed, dump, err, info, int, load, mexists,
        numbered, ok, sealed_with_xxh3, settled_memory, wait_until,
    },
};

/// What is no chunk costs nothing, nor does a header: the memory of a load comes with its chunks,
/// and what it takes is what is counted.
#[test]
fn a_load_takes_the_memory_of_what_has_come() {
    let server = Server::start();
    let (pieces, size, half) = {
        let client = &mut server.client();
        // 13 MB, in one chunk.
        assert_eq!(client.run("BF.RESERVE k 0.01 10000000"), ok());
        assert_eq!(client.run("BF.ADD k a"), int(1));
        let (pieces, size) = (dump(client, "k"), info(client, "k").size);
        assert_eq!(load(client, "half", &pieces[0]), ok());
        let half = client.cmd(&["DUMP", "half"]).payload();
        assert_eq!(client.run("DEL half k"), int(2));
        (pieces, size, half)
    };
    let used = settled_memory(&server);
    for begun in ["by its header", "by RESTORE"] {
        let client = &mut server.client();
        match begun {
            "by RESTORE" => assert_eq!(client.call("RESTORE", "half", &[&b"0"[..], &half]), ok()),
            _ => assert_eq!(load(client, "half", &pieces[0]), ok()),
        }
        let (iterator, chunk) = &pieces[1];
        for garbage in [&b"garbage"[..], &chunk[..1_000], &pieces[0].1] {
            let reply = load(client, "half", &(*iterator, garbage.to_vec()));
            assert_eq!(reply, err("ERR received bad data"), "{begun}");
        }
        let counted = |client: &mut Client| -> i64 {
            client.server_info("bf", "bf_bytes").parse().expect("a number")
        };
        let taken = client.memory("used_memory") - used;
        assert!(taken < NOISE, "{begun}: {taken} bytes");
        assert!(client.run("MEMORY USAGE half").int() < 1_000, "{begun}");
        assert!(counted(client) < 1_000, "{begun}");
        assert_eq!(client.run("COPY half other"), int(1));
        assert!(counted(client) < 2_000, "{begun}");
        assert_eq!(load(client, "half", &pieces[1]), ok());
        assert_eq!(info(client, "half").size, size, "{begun}");
        assert!(client.run("MEMORY USAGE half").int() >= size, "{begun}");
        assert_eq!(load(client, "other", &pieces[1]), ok());
        assert_eq!(client.run("DUMP other"), client.run("DUMP half"), "{begun}");
        assert_eq!(counted(client), 2 * size, "{begun}");
        assert_eq!(client.run("DEL half other"), int(2));
        // Some servers free in the background.
        wait_until("both are freed", || counted(client) == 0);
    }
    assert_unharmed(&server);
}

#[test]
fn forged_chunks_are_refused_and_change_nothing() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 1000 SEED 6"), ok());
    let items = add_until_card(client, "k", "item", 900);
    let pieces = dump(client, "k");
    let [(_, header), (iterator, chunk)] = pieces.as_slice() else {
        panic!("a header and a chunk")
    };
    // Magic, version, place, the length of the header, and the header.
    const FRAME: usize = 20;
    /// Offsets in the header.
    const SEED: usize = 8;
    const ITEMS: usize = 59;
    let length = u32::from_le_bytes(chunk[16..FRAME].try_into().expect("four bytes")) as usize;
    let bits = &chunk[FRAME + length..chunk.len() - 8];
    let end = bits.len() as u64;
    let other = |at: usize, number: u64| {
        let mut body = header[..header.len() - 8].to_vec();
        body[at..at + 8].copy_from_slice(&number.to_le_bytes());
        sealed_with_xxh3(body)
    };
    let forge_of = |header: &[u8], first: u64, bits: &[u8]| {
        let mut frame = chunk[..8].to_vec();
        frame.extend(first.to_le_bytes());
        frame.extend((header.len() as u32).to_le_bytes());
        frame.extend(header);
        frame.extend(bits);
        sealed_with_xxh3(frame)
    };
    let forge = |first: u64, bits: &[u8]| forge_of(header, first, bits);
    assert_eq!(&forge(0, bits), chunk, "a rebuilt chunk is identical");
    let rows: Vec<(&str, i64, Vec<u8>)> = vec![
        ("another seed", *iterator, forge_of(&other(SEED, 7), 0, bits)),
        ("more items than the capacity", *iterator, forge_of(&other(ITEMS, 1_001), 0, bits)),
        ("2^64 - 1 items", *iterator, forge_of(&other(ITEMS, u64::MAX), 0, bits)),
        ("no header", *iterator, forge_of(&[], 0, bits)),
        ("no bits", 1, forge(0, &[])),
        ("no bits at the end", *iterator, forge(end, &[])),
        ("a gap before it", *iterator, forge(8, &bits[8..])),
        ("a word too many", iterator + 8, forge(0, &[bits, &[0; 8]].concat())),
        ("a start inside a word", *iterator, forge(1, &bits[1..])),
        ("an end inside a word", iterator - 1, forge(0, &bits[..bits.len() - 1])),
        ("a start past the end", iterator + 8, forge(end, &[0xff; 8])),
        ("an end past 2^64", 8, forge(u64::MAX - 7, &[0xff; 16])),
        ("an end at 2^64", i64::MAX, forge(u64::MAX - 7, &[0xff; 8])),
        ("a start at 2^63", i64::MIN, forge(1 << 63, &[0xff; 8])),
        ("the iterator of another place", *iterator, forge(0, &bits[..8])),
    ];
    let saved = client.run("DUMP k");
    let used = client.memory("used_memory");
    for (what, iterator, data) in &rows {
        client.run("DEL half");
        assert_eq!(load(client, "half", &(1, header.clone())), ok());
        let half = client.run("DUMP half");
        let reply = load(client, "half", &(*iterator, data.clone()));
        assert!(reply.is_error(), "{what}: {reply:?}");
        // A complete filter accepts a chunk whose bits equal its own, at any offset.
        load(client, "k", &(*iterator, data.clone()));
        client.assert_in_step();
        assert_eq!(client.run("DUMP half"), half, "{what}: the half-loaded filter is unchanged");
        assert_eq!(client.run("DUMP k"), saved, "{what}: the complete filter is unchanged");
        assert_eq!(load(client, "half", &pieces[1]), ok(), "{what}: the right chunk still loads");
        assert_eq!(client.run("DUMP half"), saved, "{what}");
    }
    // A chunk may be split, may overlap loaded bits, and may raise the item count.
    client.run("DEL half");
    assert_eq!(load(client, "half", &(1, header.clone())), ok());
    let middle = bits.len() / 2 / 8 * 8;
    let first = forge(0, &bits[..middle]);
    let second = forge_of(&other(ITEMS, 950), middle as u64 - 8, &bits[middle - 8..]);
    assert_eq!(load(client, "half", &(middle as i64 + 1, first)), ok());
    assert!(client.run("BF.EXISTS half item-0").is_error(), "half of the bits are missing");
    assert_eq!(load(client, "half", &(*iterator, second)), ok());
    assert_eq!(info(client, "half").items, 950);
    assert!(mexists(client, "half", &items).iter().all(|&there| there));
    let others = numbered("other", 500);
    assert_eq!(mexists(client, "half", &others), mexists(client, "k", &others));
    assert!(client.memory("used_memory") - used < NOISE);
    assert_unharmed(&server);
}
