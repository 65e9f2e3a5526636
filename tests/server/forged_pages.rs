//! Headers, pages and chunks of filters in pages, with forged bytes and correct checksums, sent by
//! RESTORE and by BF.LOADCHUNK. `tests/codec/paged/damage.rs` has the errors of each.
//!
//! Both commands refuse what no filter has, before they allocate. They may accept a tag, a count, a
//! start that nobody wrote; then every command must answer.

use std::time::{Duration, Instant};

use crate::{
    forged::NOISE,
    harness::{
        Client, Payload, Piece, Random, Reply, Server, assert_sane, assert_unharmed, dump, err,
        int, load, numbered, ok, sealed_with_xxh3, settled_memory,
    },
};

/// Bytes of the checksum of a header or chunk.
const SEAL: usize = 8;
/// Where a chunk has the header of its filter, behind its magic, version, place and length.
const FRAME: usize = 20;
/// Places in a header.
const PRESENT: usize = 32;
const FIRST_PAGES: usize = 55;
const COPIES: usize = 67;
/// The end of all positions of pages.
const END: u64 = 1 << 40;
/// A bound for a reply that hangs, not a measure of speed.
const AT_ONCE: Duration = Duration::from_secs(10);

/// What BF.LOADCHUNK says of bad bytes, and of a filter that is too large.
const REFUSALS: [&str; 4] = [
    "ERR received bad data",
    "ERR invalid offset - no link found",
    "ERR invalid chunk - Too big for current filter",
    "ERR Insufficient memory to create filter",
];

/// Filters of every form, with the numbers of their items.
const FILTERS: [(&str, &str, usize); 9] = [
    ("empty", "0.01 100", 0),
    ("small", "0.01 100", 70),
    ("page", "0.001 100", 600),
    ("pages", "0.01 100", 6_000),
    ("above", "0.01 500", 900),
    ("few_counts", "0.01 100 COUNTING", 40),
    ("counts", "0.01 1000 COUNTING", 800),
    ("window", "0.01 100 WINDOW PX 9999999", 600),
    ("last", "0.01 600 WINDOW COUNT GENERATIONS 3", 900),
];

/// This server stores strings uncompressed, and the first use of a command takes no memory.
fn server() -> Server {
    let server = Server::with().config("rdbcompression no").config("latency-tracking no").start();
    let client = &mut server.client();
    for (key, options, items) in FILTERS {
        assert_eq!(client.run(&format!("BF.RESERVE {key} {options} SEED 5")), ok());
        for batch in numbered("item", items).chunks(500) {
            client.call("BF.MADD", key, batch);
        }
        if key.ends_with("counts") {
            client.call("BF.MADD", key, &numbered("item", items / 2));
            client.call("BF.DEL", key, &numbered("item", items / 4));
        }
    }
    server
}

/// The bytes with others at `at`, and the right checksum.
fn patched(bytes: &[u8], at: usize, with: &[u8]) -> Vec<u8> {
    let mut bytes = bytes[..bytes.len() - SEAL].to_vec();
    bytes[at..at + with.len()].copy_from_slice(with);
    sealed_with_xxh3(bytes)
}

fn restore(client: &mut Client, payload: &Payload) -> Reply {
    client.call("RESTORE", "forged", &[&b"0"[..], &payload.bytes()])
}

/// Sends pieces until one is refused; returns whether all were taken.
fn load_all(client: &mut Client, pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| match load(client, "forged", piece) {
        reply if reply == ok() => true,
        reply => {
            assert!(REFUSALS.contains(&reply.error()), "{reply:?}");
            false
        }
    })
}

#[derive(Default)]
struct Outcomes {
    refused: usize,
    taken: usize,
}

impl Outcomes {
    /// Checks the key, if there is one, and deletes it.
    #[track_caller]
    fn count(&mut self, client: &mut Client, whole: bool, what: &str) {
        if client.run("EXISTS forged").int() == 1 {
            assert_sane(client, "forged", what);
        }
        if whole {
            self.taken += 1;
        } else {
            self.refused += 1;
        }
    }
}

#[test]
fn any_byte_of_a_header_is_refused_or_makes_a_filter_that_works() {
    let server = server();
    let used = settled_memory(&server);
    let mut client = server.client();
    let client = &mut client;
    let mut random = Random::new(33);
    let (mut restored, mut loaded) = (Outcomes::default(), Outcomes::default());
    for (key, ..) in FILTERS {
        let (payload, pieces) = (Payload::of(client, key), dump(client, key));
        let length = payload.strings[0].len() - SEAL;
        for at in 0..length {
            let old = payload.strings[0][at];
            for byte in [old ^ 1 << random.below(8), *random.pick(&[0, 1, 127, 128, 255])] {
                let what = format!("{key}: byte {at} is {byte}");
                let mut forged = payload.clone();
                forged.strings[0] = patched(&payload.strings[0], at, &[byte]);
                let whole = restore(client, &forged) == ok();
                restored.count(client, whole, &what);
                // Each chunk has the header, too.
                let mut forged = pieces.clone();
                forged[0].1 = patched(&pieces[0].1, at, &[byte]);
                let header = forged[0].1.clone();
                for (_, chunk) in &mut forged[1..] {
                    *chunk = patched(chunk, FRAME, &header);
                }
                let whole = load_all(client, &forged);
                loaded.count(client, whole, &what);
            }
        }
    }
    for (way, Outcomes { refused, taken }) in [("RESTORE", &restored), ("LOADCHUNK", &loaded)] {
        println!("{way}: {refused} headers refused, {taken} sane filters");
        assert!(*refused > 300 && *taken > 300, "too few headers of a kind");
    }
    client.run("QUIT");
    assert!(settled_memory(&server) - used < NOISE);
    assert_unharmed(&server);
}

/// The checksum of the server covers pages, but a client that may write can compute it.
#[test]
fn any_byte_of_a_page_is_refused_or_makes_a_filter_that_works() {
    let server = server();
    let used = settled_memory(&server);
    let mut client = server.client();
    let client = &mut client;
    let mut random = Random::new(34);
    let (mut restored, mut loaded) = (Outcomes::default(), Outcomes::default());
    for (key, ..) in FILTERS {
        let (payload, pieces) = (Payload::of(client, key), dump(client, key));
        let last = payload.strings.len() - 1;
        let bytes = payload.strings[last].len();
        // Every byte of short strings.
        for at in (0..bytes).step_by(1 + bytes / 2_500) {
            let old = payload.strings[last][at];
            let changed = match random.below(4) {
                0 => random.next() as u8,
                _ => old ^ 1 << random.below(8),
            };
            let what = format!("{key}: byte {at} is {changed}, and was {old}");
            let mut forged = payload.clone();
            forged.strings[last][at] = changed;
            let whole = restore(client, &forged) == ok();
            if random.below(20) == 0 {
                restored.count(client, whole, &what);
                // The same bytes end the last chunk.
                let mut forged = pieces.clone();
                let (_, chunk) = forged.last_mut().expect("a chunk");
                *chunk = patched(chunk, chunk.len() - SEAL - bytes + at, &[changed]);
                let also = load_all(client, &forged);
                assert_eq!(also, whole, "{what}: BF.LOADCHUNK");
                loaded.count(client, also, &what);
            } else {
                client.run("DEL forged");
            }
        }
        // Whole words, and bytes cut off or put between.
        for attempt in 0..60 {
            let mut forged = payload.clone();
            let bytes = &mut forged.strings[last];
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes.truncate(at),
                1 => {
                    bytes.insert(at, random.next() as u8);
                }
                _ => {
                    let word = *random.pick(&[0, u64::MAX, 1 << 63, 0xAAAA_AAAA_AAAA_AAAA]);
                    let end = bytes.len().min(at + 8);
                    bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
                }
            }
            let whole = restore(client, &forged) == ok();
            restored.count(client, whole, &format!("{key}: words, attempt {attempt}"));
        }
    }
    for (way, Outcomes { refused, taken }) in [("RESTORE", &restored), ("LOADCHUNK", &loaded)] {
        println!("{way}: {refused} pages refused, {taken} sane filters");
        assert!(*refused > 100 && *taken > 100, "too few pages of a kind");
    }
    client.run("QUIT");
    assert!(settled_memory(&server) - used < NOISE);
    assert_unharmed(&server);
}

/// Numbers that announce more than follows.
#[test]
fn what_a_header_announces_costs_nothing() {
    let server = server();
    let (used, resident) = (settled_memory(&server), server.client().memory("used_memory_rss"));
    let mut client = server.client();
    let client = &mut client;
    let begin = Instant::now();
    let payload = Payload::of(client, "counts");
    let with = |at: usize, number: &[u8]| {
        let mut forged = payload.clone();
        forged.strings[0] = patched(&payload.strings[0], at, number);
        forged
    };
    for number in [1_000_u32, 1 << 30, u32::MAX] {
        let reply = restore(client, &with(FIRST_PAGES, &number.to_le_bytes()));
        assert_eq!(reply, err("ERR Bad data format"), "{number} first pages");
    }
    // There are no more copies than slots, so the filter counts no items.
    for number in [801_u64, 1 << 40, u64::MAX] {
        let reply = restore(client, &with(COPIES, &number.to_le_bytes()));
        assert_eq!(reply, ok(), "{number} copies");
        assert_eq!(client.run("BF.CARD forged"), int(0));
        client.call("BF.DEL", "forged", &numbered("item", 800));
        assert_eq!(client.run("BF.CARD forged"), int(0));
        assert_sane(client, "forged", &format!("{number} copies"));
    }
    for number in [END + 1, END + 8, u64::MAX] {
        let reply = restore(client, &with(PRESENT, &number.to_le_bytes()));
        assert_eq!(reply, err("ERR Bad data format"), "{number} present");
    }
    // A page of 65,535 words that are not there.
    let mut forged = payload.clone();
    forged.strings[1] = vec![0, 255, 255, 1];
    assert_eq!(restore(client, &forged), err("ERR Bad data format"));
    // 80 GB of bits below the pages; the number of blocks is 28 bytes before the checksum.
    let payload = Payload::of(client, "above");
    let mut forged = payload.clone();
    let blocks = payload.strings[0].len() - SEAL - 28;
    forged.strings[0] = patched(&payload.strings[0], blocks, &u32::MAX.to_le_bytes());
    assert!(restore(client, &forged).is_error());
    assert_eq!(client.run("EXISTS forged").int(), 0);
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    client.run("QUIT");
    assert!(settled_memory(&server) - used < NOISE);
    let touched = server.client().memory("used_memory_rss") - resident;
    assert!(touched < 100 << 20, "{touched} bytes are resident");
    assert_unharmed(&server);
}

/// Chunks that do not follow each other, or whose iterator or place is of something else.
#[test]
fn a_chunk_at_a_wrong_place_is_refused_and_changes_nothing() {
    let server = server();
    let client = &mut server.client();
    for (key, ..) in FILTERS {
        let pieces = dump(client, key);
        let [(_, header), (iterator, first), more @ ..] = pieces.as_slice() else {
            panic!("{key}: a header and a chunk")
        };
        let last = more.last().map_or(first, |(_, chunk)| chunk);
        assert_eq!(load(client, "half", &(1, header.clone())), ok());
        let half = client.run("DUMP half");
        let place = |place: u64| patched(first, 8, &place.to_le_bytes());
        let mut rows = vec![
            ("the iterator of another place", iterator + 8, first.clone()),
            ("iterator 0", 0, first.clone()),
            ("iterator 1 with a chunk", 1, first.clone()),
            ("the largest iterator", i64::MAX, first.clone()),
            ("the smallest iterator", i64::MIN, first.clone()),
            ("a place inside a word or page", *iterator, place(1)),
            ("a place behind a gap", *iterator, place(8)),
            ("a place at the end", *iterator, place(END)),
            ("the last place", *iterator, place(u64::MAX)),
            ("a header longer than the chunk", *iterator, patched(first, 16, &[255; 4])),
            ("no header", *iterator, patched(first, 16, &[0; 4])),
            ("another seed", *iterator, patched(first, FRAME, &patched(header, 8, &[99]))),
        ];
        if !more.is_empty() {
            rows.push(("the last chunk before the first", pieces[2].0, last.clone()));
        }
        for (what, iterator, data) in rows {
            let reply = load(client, "half", &(iterator, data.clone()));
            assert!(reply.is_error(), "{key}, {what}: {reply:?}");
            assert_eq!(client.run("DUMP half"), half, "{key}, {what}");
            let before = client.cmd(&["DUMP", key]);
            load(client, key, &(iterator, data));
            client.assert_in_step();
            assert_eq!(client.cmd(&["DUMP", key]), before, "{key}, {what}: the whole filter");
        }
        for piece in &pieces[1..] {
            assert_eq!(load(client, "half", piece), ok(), "{key}");
        }
        assert_eq!(client.run("DUMP half"), client.cmd(&["DUMP", key]), "{key}");
        client.run("DEL half");
    }
    assert_unharmed(&server);
}
