//! Golden files: bytes that were written once. Every later version must read them and write the
//! same bytes again.
//!
//! `tests/fixtures/v100-rdb-*.bin` are the strings of encoding version 100, `v100-dump-*.bin` the
//! pieces of a dump. All numbers are little-endian.
//!
//! ```text
//!   rdb    ┌────────────┬───────┬─ ─ ─ ┐     dump   ┌──────────────┬────────────┬───────┬─ ─ ─ ┐
//!          │ length u32 │ bytes │ next │            │ iterator i64 │ length u32 │ bytes │ next │
//!          └────────────┴───────┴─ ─ ─ ┘            └──────────────┴────────────┴───────┴─ ─ ─ ┘
//! ```
//!
//! Users may have such files on disk, so the fixtures never change: **if a test here fails, the
//! code is wrong, not the file.** `REDIS_BLOOM_WRITE_FIXTURES=1 cargo test --no-default-features
//! --test codec fixtures` writes missing files. A change to the sizing or the budget breaks only
//! `today_writes_the_same_bytes`: keep the files as files of an old version, and add new ones.

use std::{fs, path::PathBuf};

use redis_bloom::{
    codec::native::{Load, Stored, Taken, dump, rdb},
    filter::{Filter, Params},
    sharding::Shard,
};

use crate::{
    forge, sample,
    support::{Reading, Strings, fill, filter, has, item, layers, params},
};

/// The filter in a file.
struct Fixture {
    name: &'static str,
    params: Params,
    /// Number of counted items: items of set 1 (`support::item`), in order.
    items: u64,
    /// Number of layers, and bytes of bits.
    shape: (usize, u64),
    /// Bytes of bits in the file, if the filter is half-loaded.
    partial: Option<u64>,
}

fn fixtures() -> [Fixture; 7] {
    let row = |name, params, items, shape| Fixture { name, params, items, shape, partial: None };
    let shard = |index, count, params| {
        let shard = Shard::new(index, count);
        assert!(shard.is_some(), "{index} of {count}");
        Params { shard, ..params }
    };
    let blocks = |name| row(name, params(0.01, 4_000, 4, 8), 2_500, (1, 5_376));
    [
        row("shard", shard(5, 8, params(0.01, 100, 2, 11)), 60, (1, 128)),
        row("shard-full", shard(1_023, 1_024, params(0.001, 20, 2, 7)), 20, (1, 40)),
        row("empty", params(0.01, 100, 2, 0), 0, (1, 128)),
        row("one-block", params(0.01, 100, 2, 0x0123_4567_89AB_CDEF), 60, (1, 128)),
        row("full", params(0.000_1, 50, 0, u64::MAX), 50, (1, 128)),
        blocks("blocks"),
        Fixture { partial: Some(256), ..blocks("partial") },
    ]
}

impl Fixture {
    fn path(&self, kind: &str) -> PathBuf {
        let name = format!("v100-{kind}-{}.bin", self.name);
        [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", &name].iter().collect()
    }

    /// The bytes of the file.
    fn read(&self, kind: &str) -> Vec<u8> {
        let path = self.path(kind);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Builds the filter of the file.
    fn filter(&self) -> Filter {
        let mut filter = filter(&self.params);
        fill(&mut filter, 1, self.items);
        filter
    }

    /// Builds what the file contains: the filter, or its first `partial` bytes.
    fn stored(&self) -> Stored {
        let filter = self.filter();
        let Some(present) = self.partial else {
            return Stored::Layers(filter);
        };
        let (iterator, data) = dump::at(&filter, 1).expect("a chunk");
        let [head, _] = forge::split(iterator, &data, present as usize);
        let mut load = Load::begin(&dump::header(&filter).1, u64::MAX).expect("its header");
        assert_eq!(load.take(head.0, &head.1, |_| u64::MAX), Ok(Taken::Next));
        Stored::Partial(Box::new(load))
    }

    /// Checks a filter that was read from the file.
    #[track_caller]
    fn check(&self, filter: &Filter) {
        let name = self.name;
        assert_eq!(filter.params(), self.params, "{name}");
        assert_eq!(filter.items(), self.items, "{name}");
        assert_eq!((filter.layers().len(), filter.bit_bytes()), self.shape, "{name}");
        let (newest, older) =
            (filter.newest(), filter.older().iter().map(|layer| layer.counted).sum::<u64>());
        assert_eq!(newest.counted + older, self.items, "{name}");
        // The filter has exactly the first items: none of them was a false positive when it was
        // added.
        let missing = (0..self.items).find(|&number| !has(filter, &item(1, number)));
        assert_eq!(missing, None, "{name}");
        let wrong = (0..1_000).filter(|&number| has(filter, &item(2, number))).count();
        assert!(wrong < 30, "{name}: {wrong} of 1000 absent items are there");
    }
}

/// The strings in the format of a file.
pub(crate) fn framed(strings: &Strings) -> Vec<u8> {
    let mut out = Vec::new();
    for string in &strings.0 {
        out.extend((string.len() as u32).to_le_bytes());
        out.extend(string);
    }
    out
}

/// The strings of a file.
#[track_caller]
pub(crate) fn unframed(mut file: &[u8]) -> Strings {
    let mut strings = Strings::default();
    while let Some((length, rest)) = file.split_first_chunk() {
        let (string, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        strings.0.push(string.to_vec());
        file = rest;
    }
    assert_eq!(file, b"", "a file ends after a string");
    strings
}

/// The strings of an RDB of the filter.
fn rdb(stored: &Stored) -> Strings {
    let mut strings = Strings::default();
    rdb::save(stored, &mut strings);
    strings
}

/// The pieces of a dump of the filter, in the format of a file.
fn dump(stored: &Stored) -> Vec<u8> {
    let pieces = match stored {
        Stored::Layers(filter) => sample::dump(filter),
        Stored::Partial(_) => {
            let header = dump::header(stored);
            let chunk = dump::at(stored, header.0).expect("a chunk");
            vec![header, chunk]
        }
        Stored::Pages(_) => panic!("no fixture here has pages"),
    };
    let mut out = Vec::new();
    for (iterator, data) in pieces {
        out.extend(iterator.to_le_bytes());
        out.extend((data.len() as u32).to_le_bytes());
        out.extend(data);
    }
    out
}

/// Loads the pieces of a file.
#[track_caller]
fn load(mut file: &[u8]) -> Stored {
    let mut load: Option<Load> = None;
    while let Some((iterator, rest)) = file.split_first_chunk() {
        let (length, rest) = rest.split_first_chunk().expect("a length");
        let (data, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        file = rest;
        let iterator = i64::from_le_bytes(*iterator);
        match &mut load {
            None => {
                assert_eq!(iterator, 1);
                load = Some(Load::begin(data, u64::MAX).expect("a header"));
            }
            Some(begun) => {
                if begun.take(iterator, data, |_| u64::MAX).expect("the next chunk") == Taken::Last
                {
                    assert_eq!(file, b"", "a file ends with the last chunk");
                    return Stored::Layers(layers(load.expect("begun")));
                }
            }
        }
    }
    Stored::Partial(Box::new(load.expect("a header")))
}

#[test]
fn files_of_strings_are_read_and_written_again() {
    for fixture in fixtures() {
        let strings = unframed(&fixture.read("rdb"));
        let stored = rdb::load(&mut Reading(strings.0.iter()), u64::MAX).expect("a good file");
        match (&stored, fixture.partial) {
            (Stored::Layers(filter), None) => fixture.check(filter),
            (Stored::Partial(load), Some(present)) => {
                assert_eq!(load.received(), present);
            }
            (other, _) => panic!("{}: {other:?}", fixture.name),
        }
        assert_eq!(rdb(&stored), strings, "{}", fixture.name);
    }
}

#[test]
fn files_of_pieces_are_loaded_and_dumped_again() {
    for fixture in fixtures() {
        let file = fixture.read("dump");
        let stored = load(&file);
        match (&stored, fixture.partial) {
            (Stored::Layers(filter), None) => fixture.check(filter),
            (Stored::Partial(load), Some(present)) => {
                assert_eq!(load.received(), present);
            }
            (other, _) => panic!("{}: {other:?}", fixture.name),
        }
        assert!(dump(&stored) == file, "{}", fixture.name);
    }
}

#[test]
fn a_half_loaded_file_is_completed_by_the_file_of_its_filter() {
    let [.., whole, partial] = fixtures();
    let strings = unframed(&partial.read("rdb"));
    let Ok(Stored::Partial(from_rdb)) = rdb::load(&mut Reading(strings.0.iter()), u64::MAX) else {
        panic!("not partial");
    };
    let Stored::Partial(from_dump) = load(&partial.read("dump")) else {
        panic!("not partial");
    };
    // The same filter with all its bits.
    let Stored::Layers(whole) = load(&whole.read("dump")) else {
        panic!("not complete");
    };
    for mut load in [from_rdb, from_dump] {
        let from = load.received() as i64 + 1;
        let (next, rest) = dump::at(&whole, from).expect("the rest");
        assert_eq!(load.take(next, &rest, |_| u64::MAX), Ok(Taken::Last));
        partial.check(&layers(*load));
    }
}

#[test]
fn today_writes_the_same_bytes() {
    for fixture in fixtures() {
        let stored = fixture.stored();
        for (kind, bytes) in [("rdb", framed(&rdb(&stored))), ("dump", dump(&stored))] {
            let path = fixture.path(kind);
            if std::env::var_os("REDIS_BLOOM_WRITE_FIXTURES").is_some() && !path.exists() {
                fs::write(&path, &bytes).expect("a file that can be written");
            }
            assert!(fixture.read(kind) == bytes, "{}", path.display());
        }
    }
}
