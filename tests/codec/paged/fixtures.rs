//! Golden files `v100-rdb-paged-*.bin` and `v100-dump-paged-*.bin`: the strings and the pieces of
//! filters in pages, in the format of the other files (`tests/codec/fixtures.rs`).

use std::{fs, path::PathBuf};

use redis_bloom::{
    codec::native::{Load, Stored, Taken, dump, rdb},
    filter::{
        Plan as FilterPlan,
        paged::Paged,
        pages::{Payload, Plan},
    },
};

use super::{
    COUNT, GENERATION, above, bits, check_equal, crowded, filled, finished, frame, hash, loaded,
    paged, shard, strings,
};
use crate::{
    fixtures::{framed, unframed},
    support::{Reading, Strings},
};

/// The filters of the files, each of items 0 to n - 1.
fn fixtures() -> [(&'static str, Paged); 7] {
    let reserved = Plan { first_pages: 3, ..crowded(9, Payload::Nothing) };
    let small = filled(crowded(11, COUNT), 20);
    let plan = FilterPlan { shard: shard(), ..FilterPlan::of_pages(&paged(&small)) };
    [
        ("empty", paged(&filled(crowded(11, Payload::Nothing), 0))),
        ("small", plan.with_pages(None, small)),
        ("window", paged(&filled(crowded(30, GENERATION), 10))),
        ("grown", paged(&filled(crowded(11, Payload::Nothing), 1_200))),
        ("counts", paged(&filled(crowded(3, COUNT), 900))),
        ("reserved", paged(&filled(reserved, 300))),
        ("above", above(40)),
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

/// Iterators and data of a dump.
fn pieces(filter: &Paged) -> Vec<u8> {
    let mut next = Some(dump::header(filter));
    let mut out = Vec::new();
    while let Some((iterator, data)) = next {
        out.extend(iterator.to_le_bytes());
        out.extend((data.len() as u32).to_le_bytes());
        out.extend(data);
        next = dump::at(filter, iterator);
    }
    out
}

#[test]
fn files_are_read_and_written_again() {
    for (name, filter) in fixtures() {
        for (kind, bytes) in [("rdb", framed(&strings(&filter))), ("dump", pieces(&filter))] {
            let path = path(kind, name);
            if std::env::var_os("REDIS_BLOOM_WRITE_FIXTURES").is_some() && !path.exists() {
                fs::write(path, &bytes).expect("a file that can be written");
            }
            assert!(read(kind, name) == bytes, "{name}, {kind}");
        }
        check_equal(&loaded(&unframed(&read("rdb", name))), &filter, name);
        let (file, mut load, mut last) = (read("dump", name), None::<Load>, None);
        let mut rest = &file[..];
        while let Some((iterator, after)) = rest.split_first_chunk() {
            let (length, after) = after.split_first_chunk().expect("a length");
            let (data, after) = after.split_at(u32::from_le_bytes(*length) as usize);
            rest = after;
            match &mut load {
                None => load = Some(Load::begin(data, u64::MAX).expect(name)),
                Some(load) => {
                    last = Some(load.take(i64::from_le_bytes(*iterator), data, |_| u64::MAX));
                }
            }
        }
        assert_eq!(last, Some(Ok(Taken::Last)), "{name}");
        let load = load.expect("a header");
        check_equal(&finished(load), &filter, name);
    }
}

/// A load that was stored half-way, and the rest of its dump.
#[test]
fn a_half_loaded_file_is_completed() {
    let [_, _, _, (_, grown), ..] = fixtures();
    let (_, chunk) = dump::at(&grown, 1).expect("a chunk");
    let (end, head) = frame::cut(&chunk, bits(&grown), 3);
    let mut load = Load::begin(&dump::header(&grown).1, u64::MAX).expect("its header");
    load.take(end, &head, |_| u64::MAX).expect("the first chunk");
    let mut strings = Strings::default();
    rdb::save(&load, &mut strings);
    let path = path("rdb", "partial");
    if std::env::var_os("REDIS_BLOOM_WRITE_FIXTURES").is_some() && !path.exists() {
        fs::write(&path, framed(&strings)).expect("a file that can be written");
    }
    assert_eq!(unframed(&read("rdb", "partial")), strings);
    let Ok(Stored::Partial(mut load)) = rdb::load(&mut Reading(strings.0.iter()), u64::MAX) else {
        panic!("not partial");
    };
    let (next, rest) = dump::at(&grown, load.received() as i64 + 1).expect("the rest");
    assert_eq!(load.take(next, &rest, |_| u64::MAX), Ok(Taken::Last));
    let copy = finished(*load);
    assert!((0..1_200).all(|number| copy.pages().find(hash(number)).is_some()));
    check_equal(&copy, &grown, "completed");
}
