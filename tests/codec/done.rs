//! The words that an encoder says it is done with: each once, in order, and none whose bits are not
//! written. In a child that saves they are zeros afterwards (`src/module/child.rs`), so one word
//! too early is lost.

use std::collections::HashSet;

use redis_bloom::{
    codec::{
        io::{NumberSink, Sink},
        native::dump::{self, Load},
        native::rdb,
        redisbloom, valkey_bloom,
    },
    filter::{Family, Filter},
};

use crate::{
    forge,
    redisbloom::product::{self, REDISBLOOM},
    sample,
    support::{fill, filter, params},
};

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What was written, and what of it was done with.
#[derive(Default)]
struct Watched {
    /// After the header.
    bits: Option<Vec<u8>>,
    /// Words, by their address.
    done: Vec<(usize, u64)>,
}

impl Sink for Watched {
    fn put(&mut self, bytes: &[u8]) {
        match &mut self.bits {
            None => self.bits = Some(Vec::new()),
            Some(bits) => bits.extend(bytes),
        }
    }

    fn done_with(&mut self, words: &[u64]) {
        assert!(!words.is_empty());
        let written = self.bits.as_ref().and_then(|bits| bits.get(8 * self.done.len()..));
        let written = written.is_some_and(|bits| bits.starts_with(&bytes(words)));
        assert!(written, "after {} words: the next are not written", self.done.len());
        self.done.extend(words.iter().map(|word| (std::ptr::from_ref(word).addr(), *word)));
    }
}

/// The words of a filter, by their address; the first of the stream up to byte `end`.
fn all_words(filter: &Filter, end: u64) -> Vec<(usize, u64)> {
    let words = filter.layers().flat_map(|layer| layer.bits().words());
    words.map(|word| (std::ptr::from_ref(word).addr(), *word)).take(end as usize / 8).collect()
}

/// Filters with borders of pieces and layers in all places.
fn filters() -> Vec<(String, Filter)> {
    // 5 MB in one layer, and 3 MB in seven of which the borders lie anywhere.
    let mut large = filter(&params(0.01, 4_000_001, 0, 3));
    fill(&mut large, 1, 20_000);
    let mut grown = filter(&params(0.001, 10_000, 2, 4));
    fill(&mut grown, 1, 10_000 * 127);
    let mut filters = sample::all();
    filters.push(("large".into(), large));
    filters.push(("seven layers".into(), grown));
    filters
}

#[test]
fn a_saved_filter_is_done_with_word_by_word_and_completely() {
    for (name, filter) in filters() {
        let mut watched = Watched::default();
        rdb::save(&filter, &mut watched);
        assert!(watched.done == all_words(&filter, u64::MAX), "{name}");
    }
}

#[test]
fn of_half_a_load_nothing_is_done_with_that_is_not_there() {
    let mut large = filter(&params(0.01, 30_000_000, 0, 3));
    fill(&mut large, 1, 2_000);
    let pieces = sample::dump(&large);
    let mut load = Load::begin(&pieces[0].1, u64::MAX).expect("a header");
    load.take(pieces[1].0, &pieces[1].1).expect("a chunk");
    let mut watched = Watched::default();
    rdb::save_partial(&load, &mut watched);
    assert!(watched.done == all_words(load.filter(), 16 << 20));
    let (to, _) = load.at(1).expect("a chunk");
    let words: usize = dump::words(load.filter(), 1, to).map(<[u64]>::len).sum();
    assert_eq!(words, (16 << 20) / 8);
    assert_eq!(load.at(to), None);
}

/// Chunk by chunk, as the AOF is rewritten.
#[track_caller]
fn check_chunks(name: &str, filter: &Filter) {
    let (mut done, mut from) = (Vec::new(), dump::header(filter).0);
    while let Some((to, data)) = dump::at(filter, from) {
        let bits = match filter.family() {
            Family::RedisBloom(_) => &data[..],
            _ => &data[forge::frame::BITS..data.len() - forge::SEAL],
        };
        let words: Vec<u64> = dump::words(filter, from, to).flatten().copied().collect();
        assert!(bits.starts_with(&bytes(&words)), "{name}: another place");
        // A layer of RedisBloom's may end inside a word.
        assert!(bits.len() - 8 * words.len() < 8, "{name}: too few words");
        done.extend(
            dump::words(filter, from, to).flatten().map(|word| std::ptr::from_ref(word).addr()),
        );
        from = to;
    }
    let words = all_words(filter, u64::MAX);
    let known: HashSet<_> = words.iter().map(|&(address, _)| address).collect();
    assert!(done.iter().all(|address| known.contains(address)), "{name}");
    let once: HashSet<_> = done.iter().collect();
    assert_eq!(once.len(), done.len(), "{name}: a word twice");
    assert!(
        done.len() + filter.layers().len() >= words.len(),
        "{name}: {} of {} words",
        done.len(),
        words.len()
    );
    // Numbers that no chunk has.
    for (from, to) in [(i64::MIN, i64::MAX), (0, 100), (-5, 3), (1, 1), (9, 1), (i64::MAX, 9)] {
        assert_eq!(dump::words(filter, from, to).count(), 0, "{name}: {from} to {to}");
    }
}

#[test]
fn a_dumped_filter_is_done_with_word_by_word() {
    for (name, filter) in filters() {
        check_chunks(&name, &filter);
    }
    for name in REDISBLOOM {
        let filter = redisbloom::load(&mut product::fields(name).read(), 4, u64::MAX);
        check_chunks(name, &filter.unwrap_or_else(|error| panic!("{name}: {error}")));
    }
}

/// Filters of valkey-bloom's, of which the last word of a layer is not full.
#[track_caller]
pub(crate) fn check_valkey(filter: &Filter) {
    /// The last string, and the addresses of the words that were done with.
    struct Layers(Vec<u8>, Vec<*const u64>);
    impl Sink for Layers {
        fn put(&mut self, bytes: &[u8]) {
            self.0 = bytes.to_vec();
        }

        fn done_with(&mut self, words: &[u64]) {
            // A string of their own was put before.
            assert!(self.0.len() + 8 > words.len() * 8, "{} bytes", self.0.len());
            self.0.clear();
            self.1.push(words.as_ptr());
        }
    }
    impl NumberSink for Layers {
        fn unsigned(&mut self, _: u64) {}

        fn double(&mut self, _: f64) {}
    }
    let mut layers = Layers(Vec::new(), Vec::new());
    valkey_bloom::save(filter, &mut layers);
    let all: Vec<_> = filter.layers().map(|layer| layer.bits().words().as_ptr()).collect();
    assert_eq!(layers.1, all);
    check_chunks("valkey-bloom", filter);
}
