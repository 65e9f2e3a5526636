//! Headers with forged numbers and correct checksums, sent by RESTORE and by BF.LOADCHUNK.
//! `forged_chunks.rs` has the chunks.
//!
//! The filters have bits (version 1) or counters (version 2). Both commands refuse a header that
//! breaks a rule of a filter, before they allocate. They may accept an odd one (a seed, a rate, a
//! shape that the module would not choose); then every command must answer.

use std::time::{Duration, Instant};

use crate::harness::{
    COUNTING, Client, Header, Payload, Random, Reply, Server, StoredLayer, add_until_card,
    assert_sane, assert_unharmed, dump, err, load, ok, settled_memory,
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

/// Options of BF.RESERVE for a filter of bits and for one of counters.
pub(crate) const CELLS: [&str; 2] = ["", " COUNTING"];

/// Creates a filter of three layers; returns its payload and its header.
fn original(client: &mut Client, cells: &str) -> (Payload, Header) {
    client.run("DEL original");
    assert_eq!(client.run(&format!("BF.RESERVE original 0.01 10 SEED 5{cells}")), ok());
    add_until_card(client, "original", "item", 50);
    let payload = Payload::of(client, "original");
    let header = Header::parse(&payload.strings[0]);
    assert_eq!(header.layers.len(), 3);
    let version = if cells.is_empty() { 1 } else { 2 };
    assert_eq!(header.version, version);
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
fn broken(cells: &str) -> Vec<(String, Edit)> {
    let mut rows = Vec::new();
    for count in [0, 1, 2, 4, 1 << 18, (1 << 18) + 1, 1 << 31, u32::MAX] {
        rows.push(edit(format!("{count} layers announced"), move |header| {
            header.count = count;
        }));
    }
    rows.push(edit("no layers", |header| {
        header.count = 0;
        header.layers.clear();
    }));
    rows.push(edit("a non-scaling filter of three layers", |header| {
        header.expansion = 0;
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
        for layer in 0..3 {
            rows.push(edit(format!("layer {layer}: error rate {rate:?}"), move |header| {
                header.layers[layer].error_rate = rate;
            }));
        }
    }
    for layer in 0..3 {
        let mut change = |what: String, change: fn(&mut StoredLayer)| {
            rows.push(edit(format!("layer {layer}: {what}"), move |header| {
                change(&mut header.layers[layer]);
            }));
        };
        change("kind 1".into(), |layer| layer.kind = 1);
        change("kind 255".into(), |layer| layer.kind = 255);
        change("no probes".into(), |layer| layer.probes = 0);
        change("129 probes".into(), |layer| layer.probes = 129);
        change("255 probes".into(), |layer| layer.probes = 255);
        change("no words in a block".into(), |layer| layer.block_words = 0);
        change("no blocks".into(), |layer| layer.blocks = 0);
        change("2^51 bytes of blocks".into(), |layer| {
            (layer.blocks, layer.block_words) = (u32::MAX, u16::MAX);
        });
        change("a capacity of 0".into(), |layer| layer.capacity = 0);
        change("a capacity of 2^62 + 1, and full".into(), |layer| {
            (layer.capacity, layer.items) = ((1 << 62) + 1, (1 << 62) + 1);
        });
        change("a capacity of 2^64 - 1, and full".into(), |layer| {
            (layer.capacity, layer.items) = (u64::MAX, u64::MAX);
        });
        // A layer of counters may count more items than its capacity; `check_odd_numbers` has such
        // filters.
        if cells.is_empty() {
            change("more items than its capacity".into(), |layer| {
                layer.items = layer.capacity + 1;
            });
            change("2^63 items".into(), |layer| layer.items = 1 << 63);
            change("2^64 - 1 items".into(), |layer| layer.items = u64::MAX);
        }
    }
    if cells.is_empty() {
        rows.push(edit("an older layer that is not full", |header| {
            header.layers[0].items -= 1;
        }));
        rows.push(edit("counters in version 1", |header| {
            header.layers.iter_mut().for_each(|layer| layer.kind = COUNTING);
        }));
    } else {
        rows.push(edit("version 1", |header| header.version = 1));
        rows.push(edit("bits below counters", |header| header.layers[0].kind = 0));
        rows.push(edit("bits above counters", |header| header.layers[2].kind = 0));
    }
    rows.push(edit("version 3", |header| header.version = 3));
    rows
}

#[test]
fn forged_numbers_that_no_filter_has_are_refused() {
    for cells in CELLS {
        check_numbers_that_no_filter_has(cells);
    }
}

fn check_numbers_that_no_filter_has(cells: &str) {
    let server = server();
    let client = &mut server.client();
    let (payload, header) = original(client, cells);
    let used = server.client().memory("used_memory");
    let rows = broken(cells);
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
    for cells in CELLS {
        check_a_header_that_announces_gigabytes(cells);
    }
}

fn check_a_header_that_announces_gigabytes(cells: &str) {
    let server = server();
    let client = &mut server.client();
    let (payload, header) = original(client, cells);
    let (used, resident) = (client.memory("used_memory"), client.memory("used_memory_rss"));
    for gibibytes in [1, 2, 4] {
        let mut forged = header.clone();
        let newest = forged.layers.last_mut().expect("a layer");
        // A block of 512 bytes, or of 2 KiB of counters.
        (newest.block_words, newest.blocks) = (64, gibibytes << 21);
        if newest.kind == COUNTING {
            newest.blocks /= 4;
        }
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
    for cells in CELLS {
        check_odd_numbers(cells);
    }
}

fn check_odd_numbers(cells: &str) {
    const TRIES: usize = 1_500;
    const NUMBERS: [u64; 12] = [0, 1, 2, 3, 7, 8, 10, 64, 1 << 20, 1 << 32, 1 << 62, u64::MAX];
    const RATES: [f64; 9] = [5e-324, 1e-300, 1e-15, 0.001, 0.5, 0.999_999_999, 1.0, 0.0, f64::NAN];
    let server = server();
    let (payload, original) = original(&mut server.client(), cells);
    let used = settled_memory(&server);
    let mut client = server.client();
    let seed = 11;
    let mut random = Random::new(seed);
    let (mut refused, mut accepted, mut halves) = (0, 0, 0);
    for attempt in 0..TRIES {
        let mut header = original.clone();
        // One layer or all three; few changes, so that many headers are accepted.
        if random.below(2) == 0 {
            header.layers.drain(1..);
            header.count = 1;
        }
        for _ in 0..1 + random.below(3) {
            let at = random.below(header.layers.len());
            let layer = &mut header.layers[at];
            match random.below(if cells.is_empty() { 9 } else { 11 }) {
                0 => header.seed = random.next(),
                1 => header.error_rate = *random.pick(&RATES),
                2 => header.expansion = *random.pick(&[0, 1, 2, 3, 32_768]),
                3 => layer.error_rate = *random.pick(&RATES),
                4 => layer.probes = *random.pick(&[1, 2, 63, 64, 65, 127, 128]),
                5 => layer.block_words = *random.pick(&[1, 2, 3, 8, 512, 513, u16::MAX]),
                6 => layer.blocks = *random.pick(&[1, 2, 3, 1_000, 65_537]),
                7 => layer.capacity = *random.pick(&NUMBERS),
                8 => layer.items = *random.pick(&NUMBERS),
                9 => layer.changes = random.next(),
                _ => layer.deletions = *random.pick(&NUMBERS),
            }
            if random.below(2) == 0 {
                let layer = &mut header.layers[at];
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
