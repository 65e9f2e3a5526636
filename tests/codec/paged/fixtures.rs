//! Golden files `v100-rdb-paged-*.bin` and `v100-dump-paged-*.bin`: the strings and the pieces of
//! filters in pages, in the format of the other files (`tests/codec/fixtures.rs`).

use std::{fs, path::PathBuf};

use redis_bloom::{
    codec::native::{
        dump::Taken,
        paged::{
            Settings,
            dump::{self, Load},
            rdb::{self, Stored},
        },
    },
    filter::pages::{Pages, Payload, Plan},
};

use super::{COUNT, GENERATION, crowded, filled, frame, hash, settings, shard};
use crate::{
    fixtures::{framed, unframed},
    support::{Reading, Strings},
};

/// The filters of the files, each of items 0 to n - 1.
fn fixtures() -> [(&'static str, Settings, Pages); 6] {
    let reserved = Plan { first_pages: 3, ..crowded(9, Payload::Nothing) };
    let of_shard = Settings { shard: shard(), ..settings() };
    [
        ("empty", settings(), filled(crowded(11, Payload::Nothing), 0)),
        ("small", of_shard, filled(crowded(11, COUNT), 20)),
        ("wide", settings(), filled(crowded(30, GENERATION), 10)),
        ("grown", settings(), filled(crowded(11, Payload::Nothing), 1_200)),
        ("counts", settings(), filled(crowded(3, COUNT), 900)),
        ("reserved", of_shard, filled(reserved, 300)),
    ]
}

fn read(kind: &str, name: &str) -> Vec<u8> {
    let path = path(kind, name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn path(kind: &str, name: &str) -> PathBuf {
    let name = format!("v100-{kind}-paged-{name}.bin");
    [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", &name].iter().collect()
}

fn pieces(settings: &Settings, pages: &Pages) -> Vec<u8> {
    let chunk = dump::at(settings, pages, 1).expect("a chunk");
    let mut out = Vec::new();
    for (iterator, data) in [dump::header(settings, pages), chunk] {
        out.extend(iterator.to_le_bytes());
        out.extend((data.len() as u32).to_le_bytes());
        out.extend(data);
    }
    out
}

#[test]
fn files_are_read_and_written_again() {
    for (name, settings, pages) in fixtures() {
        for (kind, bytes) in [
            ("rdb", framed(&super::strings_of(&settings, &pages))),
            ("dump", pieces(&settings, &pages)),
        ] {
            if std::env::var_os("REDIS_BLOOM_WRITE_FIXTURES").is_some()
                && !path(kind, name).exists()
            {
                fs::write(path(kind, name), &bytes).expect("a file that can be written");
            }
            assert!(read(kind, name) == bytes, "{name}, {kind}");
        }
        let strings = unframed(&read("rdb", name));
        let (read_settings, copy) = super::loaded(&strings);
        assert_eq!((read_settings, &copy), (settings, &pages), "{name}");
        let file = read("dump", name);
        let length =
            |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("4")) as usize;
        let header = &file[12..12 + length(8)];
        let chunk = &file[12 + header.len() + 12..];
        let end = i64::from_le_bytes(file[12 + header.len()..][..8].try_into().expect("8 bytes"));
        let mut load = Load::begin(header).expect(name);
        assert_eq!(load.take(end, chunk, |_| u64::MAX), Ok(Taken::Last), "{name}");
        assert_eq!(load.finish(), Ok((settings, copy)), "{name}");
    }
}

/// A load that was stored half-way, and the rest of its dump.
#[test]
fn a_half_loaded_file_is_completed() {
    let [.., (_, settings, grown), _, _] = fixtures();
    let (_, chunk) = dump::at(&settings, &grown, 1).expect("a chunk");
    let (end, head) = frame::cut(&chunk, 3);
    let mut load = Load::begin(&dump::header(&settings, &grown).1).expect("its header");
    load.take(end, &head, |_| u64::MAX).expect("the first chunk");
    let mut strings = Strings::default();
    rdb::save_partial(&load, &mut strings);
    let path = path("rdb", "partial");
    if std::env::var_os("REDIS_BLOOM_WRITE_FIXTURES").is_some() && !path.exists() {
        fs::write(&path, framed(&strings)).expect("a file that can be written");
    }
    assert_eq!(unframed(&read("rdb", "partial")), strings);
    let Ok(Stored::Partial(mut load)) = rdb::load(&mut Reading(strings.0.iter()), u64::MAX) else {
        panic!("not partial");
    };
    let (next, rest) = dump::at(&settings, &grown, load.received() as i64 + 1).expect("the rest");
    assert_eq!(load.take(next, &rest, |_| u64::MAX), Ok(Taken::Last));
    let (_, copy) = load.finish().expect("memory");
    assert!((0..1_200).all(|number| copy.find(hash(number)).is_some()));
    assert_eq!(copy, grown);
}
