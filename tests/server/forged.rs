//! Headers with forged numbers and correct checksums, sent by RESTORE and by BF.LOADCHUNK.
//! `forged_chunks.rs` has the chunks.
//!
//! The filters are of one layer of bits (version 1); `forged_pages.rs` has those of pages. Both
//! commands refuse a header that breaks a rule of a filter, before they allocate. They may accept
//! an odd one (a seed, a rate, a shape that the module would not choose); then every command must
//! answer.

use std::time::{Duration, Instant};

use crate::harness::{
    Client, Header, Payload, Random, Reply, Server, StoredLayer, add_until_card, assert_sane,
    assert_unharmed, dump, err, load, ok, settled_memory,
};

const BAD_DATA: &str = "ERR received bad data";
/// A bound for a reply that hangs, not a measure of speed.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Bytes that the server itself may add to `used_memory`: statistics, connection buffers.
pub(crate) const NOISE: i64 = 200_000;

/// This server stores strings uncompressed, and the first use of a command takes no memory.
fn server() -> Server {
    Server::with().config("rdbcompression no").config("latency-tracking no").start()
}

/// Creates a filter of one layer of blocks; returns its payload and its header.
fn original(client: &mut Client) -> (Payload, Header) {
    client.run("DEL original");
    assert_eq!(client.run("BF.RESERVE original 0.01 200 SEED 5"), ok());
    add_until_card(client, "original", "item", 150);
    let payload = Payload::of(client, "original");
    let header = Header::parse(&payload.strings[0]);
    assert_eq!(header.layers.len(), 1);
    (payload, header)
}

fn with_header(payload: &Payload, header: &Header) -> Vec<u8> {
    let mut forged = payload.clone();
    forged.strings[0] = header.bytes();
    forged.bytes()
}

fn restore(client: &mut Client, payload: &[u8]) -> Reply {
    client.call("RESTORE", "forged", &[b"0", payload])
}

type Edit = Box<dyn Fn(&mut Header)>;

fn edit(what: impl Into<String>, edit: impl Fn(&mut Header) + 'static) -> (String, Edit) {
    (what.into(), Box::new(edit))
}

/// Edits that give a header which no filter has.
fn broken() -> Vec<(String, Edit)> {
    let mut rows = Vec::new();
    for count in [0, 2, 3, 1 << 18, (1 << 18) + 1, 1 << 31, u32::MAX] {
        rows.push(edit(format!("{count} layers announced"), move |header| {
            header.count = count;
        }));
    }
    rows.push(edit("no layers", |header| {
        header.count = 0;
        header.layers.clear();
    }));
    rows.push(edit("two layers", |header| {
        header.count = 2;
        header.layers[0].items = header.layers[0].capacity;
        header.layers.push(StoredLayer { capacity: 400, items: 0, ..header.layers[0] });
        header.present += header.layers[1].bytes();
    }));
    for expansion in [32_769, 65_536, 65_537, 1 << 31, u32::MAX] {
        rows.push(edit(format!("expansion {expansion}"), move |header| {
            header.expansion = expansion;
        }));
    }
    for rate in [
        f64::NAN,
        -f64::NAN,
        0.0,
        -0.0,
        1.0,
        1.5,
        -0.01,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
    ] {
        rows.push(edit(format!("error rate {rate:?}"), move |header| {
            header.error_rate = rate;
        }));
        rows.push(edit(format!("error rate {rate:?} of the layer"), move |header| {
            header.layers[0].error_rate = rate;
        }));
    }
    let mut change = |what: &str, change: fn(&mut StoredLayer)| {
        rows.push(edit(what, move |header| change(&mut header.layers[0])));
    };
    change("kind 1", |layer| layer.kind = 1);
    change("kind 2", |layer| layer.kind = 2);
    change("kind 255", |layer| layer.kind = 255);
    change("no probes", |layer| layer.probes = 0);
    change("129 probes", |layer| layer.probes = 129);
    change("255 probes", |layer| layer.probes = 255);
    change("no words in a block", |layer| layer.block_words = 0);
    change("no blocks", |layer| layer.blocks = 0);
    change("2^51 bytes of blocks", |layer| {
        (layer.blocks, layer.block_words) = (u32::MAX, u16::MAX);
    });
    change("a capacity of 0", |layer| layer.capacity = 0);
    change("a capacity of 2^62 + 1, and full", |layer| {
        (layer.capacity, layer.items) = ((1 << 62) + 1, (1 << 62) + 1);
    });
    change("a capacity of 2^64 - 1, and full", |layer| {
        (layer.capacity, layer.items) = (u64::MAX, u64::MAX);
    });
    change("more items than its capacity", |layer| layer.items = layer.capacity + 1);
    change("2^63 items", |layer| layer.items = 1 << 63);
    change("2^64 - 1 items", |layer| layer.items = u64::MAX);
    for version in [2, 3, 4, 5, u16::MAX] {
        rows.push(edit(format!("version {version}"), move |header| header.version = version));
    }
    rows
}

#[test]
fn forged_numbers_that_no_filter_has_are_refused() {
    let server = server();
    let client = &mut server.client();
    let (payload, header) = original(client);
    let used = server.client().memory("used_memory");
    let rows = broken();
    for (what, edit) in &rows {
        let mut forged = header.clone();
        edit(&mut forged);
        let begin = Instant::now();
        let reply = restore(client, &with_header(&payload, &forged));
        assert_eq!(reply, err("ERR Bad data format"), "RESTORE: {what}");
        // In the pieces of a dump no bits follow the header.
        forged.present = 0;
        let reply = load(client, "forged", &(1, forged.bytes()));
        let refused =
            matches!(&reply, Reply::Error(text) if text == BAD_DATA || text.contains("memory"));
        assert!(refused, "BF.LOADCHUNK: {what}: {reply:?}");
        assert!(begin.elapsed() < AT_ONCE, "{what} took {:?}", begin.elapsed());
        assert_eq!(client.run("EXISTS forged").int(), 0, "{what}");
    }
    for present in
        [0, 1, 7, 8, header.present - 1, header.present + 1, header.present + 8, 1 << 40, u64::MAX]
    {
        let forged = Header { present, ..header.clone() };
        let reply = restore(client, &with_header(&payload, &forged));
        assert!(reply.is_error(), "RESTORE: {present} bytes announced: {reply:?}");
        if present > 0 {
            let reply = load(client, "forged", &(1, forged.bytes()));
            assert!(reply.is_error(), "BF.LOADCHUNK: {present} bytes announced: {reply:?}");
        }
    }
    let left = server.client().memory("used_memory") - used;
    assert!(left < NOISE, "{left} bytes of memory are left behind");
    println!("{} headers with broken numbers, all refused by RESTORE and BF.LOADCHUNK", rows.len());
    let right = dump(client, "original").swap_remove(0);
    assert_eq!(load(client, "forged", &right), ok(), "the original header is accepted");
    assert_unharmed(&server);
}

/// The header announces far more bits than follow: the memory is allocated, not touched, and freed.
#[test]
fn a_header_that_announces_gigabytes_costs_nothing() {
    let server = server();
    let client = &mut server.client();
    let (payload, header) = original(client);
    let (used, resident) = (client.memory("used_memory"), client.memory("used_memory_rss"));
    for gibibytes in [1, 2, 4] {
        let mut forged = header.clone();
        let newest = forged.layers.last_mut().expect("a layer");
        // A block of 512 bytes.
        (newest.block_words, newest.blocks) = (64, gibibytes << 21);
        forged.present = newest.bytes();
        let begin = Instant::now();
        for _ in 0..20 {
            let reply = restore(client, &with_header(&payload, &forged));
            assert!(reply.is_error(), "{gibibytes} GiB: {reply:?}");
        }
        assert!(
            begin.elapsed() < 10 * AT_ONCE,
            "20 times {gibibytes} GiB took {:?}",
            begin.elapsed()
        );
        println!("20 refusals of {gibibytes} announced GiB took {:?}", begin.elapsed());
    }
    assert!(client.memory("used_memory") - used < NOISE);
    // The server samples this number when it is idle; touched memory would be gigabytes.
    let touched = client.memory("used_memory_rss") - resident;
    assert!(touched < 100 << 20, "{touched} bytes are resident");
    assert_unharmed(&server);
}

/// Legal values that the module itself would never choose.
#[test]
fn odd_numbers_are_refused_or_make_a_filter_that_works() {
    const TRIES: usize = 1_500;
    const NUMBERS: [u64; 12] = [0, 1, 2, 3, 7, 8, 10, 64, 1 << 20, 1 << 32, 1 << 62, u64::MAX];
    const RATES: [f64; 9] = [5e-324, 1e-300, 1e-15, 0.001, 0.5, 0.999_999_999, 1.0, 0.0, f64::NAN];
    let server = server();
    let (payload, original) = original(&mut server.client());
    let used = settled_memory(&server);
    let mut client = server.client();
    let seed = 11;
    let mut random = Random::new(seed);
    let (mut refused, mut accepted, mut halves) = (0, 0, 0);
    for attempt in 0..TRIES {
        let mut header = original.clone();
        // Few changes, so that many headers are accepted.
        for _ in 0..1 + random.below(3) {
            let layer = &mut header.layers[0];
            match random.below(9) {
                0 => header.seed = random.next(),
                1 => header.error_rate = *random.pick(&RATES),
                2 => header.expansion = *random.pick(&[0, 1, 2, 3, 32_768]),
                3 => layer.error_rate = *random.pick(&RATES),
                4 => layer.probes = *random.pick(&[1, 2, 63, 64, 65, 127, 128]),
                5 => layer.block_words = *random.pick(&[1, 2, 3, 8, 512, 513, u16::MAX]),
                6 => layer.blocks = *random.pick(&[1, 2, 3, 1_000, 65_537]),
                7 => layer.capacity = *random.pick(&NUMBERS),
                _ => layer.items = *random.pick(&NUMBERS),
            }
            if random.below(2) == 0 {
                let layer = &mut header.layers[0];
                layer.items = layer.capacity;
            }
        }
        // All the bits of the layers, or about half of them; all zero or all one.
        let total: u64 = header.layers.iter().map(StoredLayer::bytes).sum();
        if total > 8 << 20 {
            continue;
        }
        let half = random.below(5) == 0;
        header.present = if half { total / 16 * 8 } else { total };
        let filler = *random.pick(&[0, 0xff]);
        let bits = vec![filler; usize::try_from(header.present).expect("megabytes")];
        let what = format!("attempt {attempt} of seed {seed}: {header:?}, bits {filler:#04x}");
        let mut forged = payload.clone();
        forged.strings =
            [header.bytes()].into_iter().chain(bits.chunks(1 << 20).map(<[u8]>::to_vec)).collect();
        let reply = restore(&mut client, &forged.bytes());
        if reply.is_error() {
            refused += 1;
        } else {
            assert_sane(&mut client, "forged", &what);
            accepted += 1;
            halves += usize::from(half);
        }
    }
    println!(
        "{TRIES} odd headers: {refused} refused, {accepted} sane filters, {halves} of them still \
         loading"
    );
    assert!(refused > 50 && accepted > 50 && halves > 5, "too few headers of a kind");
    drop(client);
    let left = settled_memory(&server) - used;
    assert!(left < NOISE, "{left} bytes of memory are left behind");
    assert_unharmed(&server);
}
