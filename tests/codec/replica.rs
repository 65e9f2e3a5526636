//! examples/replica.rs: a copy of a filter in the process, replaced while it is asked. The tests of
//! the tool check that it reads what `redis-bloom dump` writes.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use redis_bloom::{
    codec::native::dump,
    filter::{Filter, Params},
    sharding::{Shard, shard_of},
};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::support::{add, filter, item, params};

#[path = "../../examples/replica.rs"]
#[expect(dead_code, unreachable_pub, reason = "a program")]
mod program;

use program::{Copy, Replica};

const ITEMS: u64 = 20_000;

/// A filter with the items 0 to `items`, those of the `shard` if there is one.
fn filled(items: u64, shard: Option<Shard>) -> Filter {
    let mut filter = filter(&Params { shard, ..params(0.01, 2 * ITEMS, 2, 0x5EED) });
    for number in 0..items {
        let item = item(1, number);
        if shard.is_none_or(|shard| shard_of(&item, shard.count()) == shard.index()) {
            add(&mut filter, &item);
        }
    }
    filter
}

/// The bytes of a dump file, as cli/src/dump_file.rs writes it.
fn dumped(filter: &Filter) -> Vec<u8> {
    let (mut file, mut checksums) = (Vec::new(), Xxh3::new());
    let mut push = |record: &[&[u8]], checksums: &mut Xxh3| {
        let record = record.concat();
        let checksum = xxh3_64(&record).to_le_bytes();
        checksums.update(&checksum);
        file.extend([&record[..], &checksum].concat());
    };
    push(&[b"rb-dump\n\x01\x00\x04\x00test"], &mut checksums);
    let (mut chunks, mut bytes) = (0u64, 0);
    let mut next = Some(dump::header(filter));
    while let Some((iterator, data)) = next {
        let length = data.len() as u64;
        push(&[b"C", &iterator.to_le_bytes(), &length.to_le_bytes(), &data], &mut checksums);
        (chunks, bytes) = (chunks + 1, bytes + length);
        next = dump::at(filter, iterator);
    }
    let all = checksums.digest().to_le_bytes();
    push(&[b"E", &chunks.to_le_bytes(), &bytes.to_le_bytes(), &all], &mut checksums);
    file
}

/// Writes a file beside, and renames it.
fn put(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, bytes).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn every_damage_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("urls.dump");
    let mut small = filter(&params(0.01, 100, 2, 0x5EED));
    add(&mut small, b"a");
    let good = dumped(&small);
    put(&path, &good);
    assert!(Copy::read(&path).unwrap().contains(b"a"));
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x11;
        fs::write(&path, bad).unwrap();
        assert!(Copy::read(&path).is_err(), "byte {at}");
        fs::write(&path, &good[..at]).unwrap();
        assert!(Copy::read(&path).is_err(), "the first {at} bytes");
    }
    fs::write(&path, [&good[..], b"x"].concat()).unwrap();
    assert!(Copy::read(&path).is_err(), "a byte more");
}

/// Each file has the items of the one before: a false negative would be an item of an older file.
#[test]
fn a_file_is_replaced_under_questions_without_a_false_negative() {
    const FILES: u64 = 8;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("urls.dump");
    let items_of = |file: u64| file * ITEMS / FILES;
    let files: Vec<_> = (1..=FILES).map(|file| dumped(&filled(items_of(file), None))).collect();
    put(&path, &files[0]);
    let replica = Replica::open(&path).unwrap();
    let (loaded, asked, done) = (AtomicU64::new(1), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let asks = |start: u64| {
            let mut asker = replica.asker();
            let mut number = start;
            while !done.load(Ordering::Acquire) {
                // Of the newest file that `reload` has read before this question.
                number = (number + 7) % items_of(loaded.load(Ordering::Acquire));
                assert!(asker.contains(&item(1, number)), "item {number}");
                asked.fetch_add(1, Ordering::Relaxed);
            }
        };
        let askers = [scope.spawn(move || asks(0)), scope.spawn(move || asks(1))];
        for (file, bytes) in (2..).zip(&files[1..]) {
            let so_far = asked.load(Ordering::Relaxed);
            while asked.load(Ordering::Relaxed) < so_far + 1000 && !askers[0].is_finished() {
                thread::yield_now();
            }
            put(&path, bytes);
            assert!(replica.reload().unwrap());
            loaded.store(file, Ordering::Release);
            assert!(!replica.reload().unwrap(), "nothing has changed");
        }
        done.store(true, Ordering::Release);
    });
    let mut asker = replica.asker();
    assert!((0..ITEMS).all(|number| asker.contains(&item(1, number))));
}

#[test]
fn a_bad_file_leaves_the_copy_and_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("urls.dump");
    put(&path, &dumped(&filled(10, None)));
    let replica = Replica::open(&path).unwrap();
    let mut asker = replica.asker();
    put(&path, b"rb-dump\n");
    for _ in 0..2 {
        assert!(replica.reload().is_err());
        assert!(asker.contains(&item(1, 9)));
    }
    fs::remove_file(&path).unwrap();
    assert!(replica.reload().is_err());
    put(&path, &dumped(&filled(20, None)));
    assert!(replica.reload().unwrap());
    assert!(asker.contains(&item(1, 19)));
}

#[test]
fn a_directory_has_the_shards_of_one_filter() {
    const SHARDS: u16 = 4;
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("monday"), directory.path().join("tuesday"));
    let write = |to: &Path, items: u64| {
        fs::create_dir(to).unwrap();
        fs::write(to.join("descriptor.json"), "{}").unwrap();
        for index in 0..SHARDS {
            let shard = filled(items, Shard::new(index, SHARDS));
            // The names are in another order than the shards.
            fs::write(to.join(format!("{}.rbloom", SHARDS - index)), dumped(&shard)).unwrap();
        }
    };
    let link = |to: &Path| {
        let new = directory.path().join("new");
        std::os::unix::fs::symlink(to, &new).unwrap();
        fs::rename(new, directory.path().join("urls")).unwrap();
    };
    write(&first, 1000);
    write(&second, 2000);
    link(&first);
    let replica = Replica::open(directory.path().join("urls")).unwrap();
    let mut asker = replica.asker();
    assert!((0..1000).all(|number| asker.contains(&item(1, number))));
    // Most of the others are absent: of 1,000 questions 10 are answered by accident at most.
    let absent = (1000..2000).filter(|&number| !asker.contains(&item(1, number))).count();
    assert!(absent > 900, "{absent}");
    link(&second);
    assert!(replica.reload().unwrap());
    assert!((0..2000).all(|number| asker.contains(&item(1, number))));
    // A shard alone is not the filter, nor are some of them, nor one of them twice.
    assert!(Copy::read(&second.join("1.rbloom")).is_err());
    fs::copy(second.join("1.rbloom"), second.join("2.rbloom")).unwrap();
    assert!(Copy::read(&second).is_err());
    fs::remove_file(second.join("2.rbloom")).unwrap();
    assert!(Copy::read(&second).is_err());
}
