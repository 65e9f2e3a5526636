//! Damaged DUMP payloads with a correct CRC-64: RESTORE refuses them or makes a filter that works.
//!
//! A client that may run RESTORE can send any bytes, with a correct outer checksum. RedisBloom 2.8
//! crashes on some of these payloads, 8.x hangs on others, and an old valkey-bloom crashes on every
//! short one.

use crate::harness::{
    Client, Payload, Random, Reply, Server, add_until_card, assert_sane, assert_unharmed, load, ok,
    sealed, settled_memory,
};

/// Bytes of `used_memory` that refused payloads may leave: statistics and caches of the server.
const NOISE: i64 = 200_000;

fn server() -> Server {
    // The server sanitizes the other types: a changed type byte must not crash it in its own code.
    // Without latency tracking, the first use of a command takes no memory.
    Server::with()
        .config("rdbcompression no")
        .config("latency-tracking no")
        .config("sanitize-dump-payload yes")
        .start()
}

/// Small payloads: filters that grow, a full one, counters, a shard, and half a load.
fn payloads(client: &mut Client) -> Vec<(&'static str, Payload)> {
    client.run("BF.RESERVE single 0.01 10 SEED 1");
    add_until_card(client, "single", "item", 7);
    client.run("BF.RESERVE narrow 0.1 2 EXPANSION 1 SEED 2");
    add_until_card(client, "narrow", "item", 7);
    client.run("BF.RESERVE full 0.1 5 NONSCALING SEED 3");
    add_until_card(client, "full", "item", 5);
    client.run("BF.RESERVE counting 0.1 2 EXPANSION 1 SEED 4 COUNTING");
    add_until_card(client, "counting", "item", 4);
    client.run("BF.DEL counting item-0");
    client.run("BF.RESERVE shard 0.1 2 EXPANSION 1 SEED 5 SHARD 0 1");
    add_until_card(client, "shard", "item", 4);
    let header = crate::harness::dump(client, "narrow").swap_remove(0);
    assert_eq!(load(client, "half", &header), ok());
    let keys = ["single", "narrow", "full", "counting", "shard", "half"];
    keys.map(|key| (key, Payload::of(client, key))).into()
}

/// Counts of payloads, by what RESTORE made of them.
#[derive(Default)]
struct Outcome {
    tried: usize,
    refused: usize,
    filters: usize,
    others: usize,
}

impl Outcome {
    /// Sends a batch, then checks what was accepted.
    #[track_caller]
    fn restore(&mut self, client: &mut Client, batch: Vec<(String, Vec<u8>)>) {
        let commands: Vec<Vec<Vec<u8>>> = batch
            .iter()
            .enumerate()
            .map(|(number, (_, payload))| {
                let key = format!("bad{number}").into_bytes();
                vec![b"RESTORE".to_vec(), key, b"0".to_vec(), payload.clone()]
            })
            .collect();
        for (number, reply) in client.pipeline(&commands).into_iter().enumerate() {
            let (what, key) = (&batch[number].0, format!("bad{number}"));
            self.tried += 1;
            match reply {
                Reply::Error(text) => {
                    assert!(text.starts_with("ERR "), "{what}: {text}");
                    self.refused += 1;
                }
                Reply::Simple(_) if client.cmd(&["TYPE", &key]).text() == "MBbloom--" => {
                    assert_sane(client, &key, what);
                    self.filters += 1;
                }
                Reply::Simple(_) => {
                    client.cmd(&["DEL", &key]);
                    self.others += 1;
                }
                other => panic!("{what}: RESTORE answered {other:?}"),
            }
        }
    }

    fn report(&self, what: &str) {
        let Outcome { tried, refused, filters, others } = self;
        println!(
            "{what}: {tried} payloads, {refused} refused, {filters} sane filters, {others} values \
             of other types"
        );
        assert!(*refused > 0, "{what}: nothing was refused");
    }
}

/// Runs `attempts` on each payload, and checks that no key and no memory is left.
fn attack(
    what: &str,
    mut attempts: impl FnMut(&mut Client, &mut Outcome, &str, &Payload),
) -> Outcome {
    let server = server();
    let payloads = payloads(&mut server.client());
    server.client().run("FLUSHALL SYNC");
    let used = settled_memory(&server);
    let mut outcome = Outcome::default();
    for (name, payload) in &payloads {
        attempts(&mut server.client(), &mut outcome, name, payload);
        assert_unharmed(&server);
    }
    assert_eq!(server.client().run("DBSIZE").int(), 0, "nothing is left");
    let left = settled_memory(&server) - used;
    assert!(left < NOISE, "{what}: {left} bytes of memory are left behind");
    outcome.report(what);
    outcome
}

#[test]
fn every_byte_of_a_payload_may_have_any_value() {
    let outcome = attack("every byte", |client, outcome, name, payload| {
        let body = payload.body();
        for at in 0..body.len() {
            let changed = (1..=u8::MAX).map(|change| {
                let mut changed = body.clone();
                changed[at] ^= change;
                let what =
                    format!("{name}: byte {at} from {:#04x} to {:#04x}", body[at], changed[at]);
                (what, sealed(&changed))
            });
            // Every value for one payload, every seventh for the others.
            let changed = changed.step_by(if name == "single" { 1 } else { 7 });
            outcome.restore(client, changed.collect());
        }
    });
    // Only the outer checksum covers the bits: each of their bytes may have any value.
    assert!(outcome.filters > 1_000, "changed bits make a filter");
}

#[test]
fn a_payload_may_be_cut_or_extended_anywhere() {
    let outcome = attack("every length", |client, outcome, name, payload| {
        let body = payload.body();
        let (value, version) = body.split_at(body.len() - 2);
        let cut = (0..value.len()).map(|len| {
            let what = format!("{name}: cut to {len} of {} bytes", value.len());
            (what, sealed(&[&value[..len], version].concat()))
        });
        let mut batch: Vec<_> = cut.collect();
        // Nothing is inserted before the type byte, which would change the type.
        for at in 1..=value.len() {
            for inserted in
                [&[0][..], &[5], &[0xff], &[0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]]
            {
                let what = format!("{name}: {inserted:?} put in at {at}");
                batch.push((
                    what,
                    sealed(&[&value[..at], inserted, &value[at..], version].concat()),
                ));
            }
            if let Some(rest) = value.get(at + 1..) {
                let what = format!("{name}: byte {at} left out");
                batch.push((what, sealed(&[&value[..at], rest, version].concat())));
            }
        }
        // Payloads without the version, without the checksum, or empty.
        let whole = payload.bytes();
        batch.extend((0..12).map(|len| (format!("{name}: {len} bytes"), whole[..len].to_vec())));
        outcome.restore(client, batch);
    });
    assert_eq!(outcome.others, 0, "a cut filter is not a value of another type");
}

#[test]
fn a_payload_may_be_damaged_in_many_places() {
    const TRIES: usize = 1_500;
    let seed = 3;
    let mut random = Random::new(seed);
    attack("many places", |client, outcome, name, payload| {
        let body = payload.body();
        let batch = (0..TRIES).map(|attempt| {
            let mut changed = body.clone();
            for _ in 0..2 + random.below(6) {
                // After the type and the module id, so that the module reads the damage.
                let at = payload.head.len() + random.below(body.len() - payload.head.len());
                changed[at] = *random.pick(&[0, 1, 5, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xc3, 0xff]);
            }
            (format!("{name}: attempt {attempt} of seed {seed}"), sealed(&changed))
        });
        outcome.restore(client, batch.collect());
    });
}

/// The module writes the bits in strings of 1 MiB, and reads strings of any number of whole words.
#[test]
fn the_bits_may_come_in_other_pieces() {
    let server = server();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 2000000 SEED 4");
    add_until_card(client, "k", "item", 5_000);
    let payload = Payload::of(client, "k");
    let (header, pieces) = payload.strings.split_first().expect("a header");
    assert_eq!(pieces.iter().map(Vec::len).max(), Some(1 << 20), "pieces of 1 MiB");
    let bits = pieces.concat();
    let end = bits.len();
    let with = |cuts: &[usize]| {
        let mut strings = vec![header.clone()];
        let ends = cuts.iter().copied().chain([end]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        strings.extend(starts.zip(ends).map(|(from, to)| bits[from..to].to_vec()));
        strings
    };
    let (mut short, mut long, mut twice, mut swapped) =
        (with(&[]), with(&[]), with(&[]), with(&[]));
    short[1].truncate(end - 8);
    long[1].extend([0; 8]);
    twice.push(bits.clone());
    swapped.swap(0, 1);
    let rows: [(&str, Vec<Vec<u8>>, bool); 13] = [
        ("one piece", with(&[]), true),
        ("pieces of a word", with(&[8, 16, 24]), true),
        ("a cut inside a word", with(&[9]), false),
        ("an empty piece first", with(&[0]), false),
        ("an empty piece last", with(&[end]), false),
        ("many empty pieces", with(&[0; 1_000]), false),
        ("a word too few", short, false),
        ("a word too many", long, false),
        ("all pieces twice", twice, false),
        ("the header after the bits", swapped, false),
        ("the header only", vec![header.clone()], false),
        ("the bits only", with(&[])[1..].to_vec(), false),
        ("nothing", Vec::new(), false),
    ];
    let saved = client.run("DUMP k");
    for (what, strings, accepted) in rows {
        let bytes = Payload { strings, ..payload.clone() }.bytes();
        let reply = client.call("RESTORE", "other", &[b"0", &bytes[..]]);
        assert_eq!(!reply.is_error(), accepted, "{what}: {reply:?}");
        if accepted {
            assert_eq!(client.run("DUMP other"), saved, "{what}");
            assert_sane(client, "other", what);
        }
    }
    assert_unharmed(&server);
}
