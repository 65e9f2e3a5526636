//! Every byte changed and every length cut: a decoder refuses the bytes, or returns a filter that
//! works. Its memory is bounded by the bytes that it got.

use redis_bloom::{
    codec::{
        Error,
        native::{Load, Stored, dump, rdb},
    },
    filter::{
        Error as FilterError, MAX_TIME,
        pages::{END, Plan},
    },
};

use super::{
    COUNT, Random, above, all, check_sane, crowded, filled, frame, paged, smalls, strings,
};
use crate::{
    allocation::peak,
    forge::{SEAL, patched, seal},
    support::{Reading, Strings},
};

/// The place of the header in a chunk.
const FRAME: usize = 20;
/// Places in the header.
const LAYERS: usize = 28;
const PRESENT: usize = 32;
const PAGE_SLOTS: usize = 53;
const FIRST_PAGES: usize = 55;
const COPIES: usize = 67;

/// Runs `decode`, whose memory is bounded: a size class is at most 1.25 times what it is for, and
/// splits make at most four pages of one. A page without slots takes the most: of a record of 11
/// bytes come four entries of 40 bytes in a list, then four of 24 in the table.
#[track_caller]
fn within<T>(input: usize, decode: impl FnOnce() -> T) -> T {
    let (result, most) = peak(decode);
    let bound = 30 * input + 4_096;
    assert!(most <= bound, "{most} bytes were allocated for {input} bytes, at most {bound}");
    result
}

#[track_caller]
fn read(strings: &Strings) -> Result<Stored, Error> {
    let input = strings.0.iter().map(Vec::len).sum();
    within(input, || rdb::load(&mut Reading(strings.0.iter()), u64::MAX))
}

#[track_caller]
fn begin(header: &[u8]) -> Result<Load, Error> {
    within(header.len(), || Load::begin(header, u64::MAX))
}

#[track_caller]
fn check_stored(stored: Stored) {
    match stored {
        Stored::Pages(filter) => check_sane(&filter),
        Stored::Partial(load) => check_load(&load),
        other => panic!("{other:?}"),
    }
}

/// Checks that a load can be saved, dumped, copied.
#[track_caller]
fn check_load(load: &Load) {
    let mut stored = Strings::default();
    rdb::save(load, &mut stored);
    let again = rdb::load(&mut Reading(stored.0.iter()), u64::MAX).expect("what was saved");
    if let Stored::Partial(again) = again {
        assert_eq!(again.received(), load.received());
    }
    assert_eq!(dump::at(load, 1).is_some(), load.received() > 0);
}

#[test]
fn a_flipped_bit_of_a_header_or_a_chunk_is_refused() {
    for (name, filter) in smalls() {
        let (_, header) = dump::header(&filter);
        let (iterator, chunk) = dump::at(&filter, 1).expect("a chunk");
        for bit in 0..8 * header.len() {
            let mut damaged = header.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(begin(&damaged).is_err(), "{name}: bit {bit}");
            let mut stored = strings(&filter);
            stored.0[0][bit / 8] ^= 1 << (bit % 8);
            assert!(read(&stored).is_err(), "{name}: bit {bit}");
        }
        let mut load = begin(&header).expect(name);
        for byte in 0..chunk.len() {
            let mut damaged = chunk.clone();
            damaged[byte] ^= 1 << (byte % 8);
            assert!(load.take(iterator, &damaged, |_| u64::MAX).is_err(), "{name}: {byte}");
            assert!(dump::repeat(&filter, iterator, &damaged).is_err());
        }
        assert_eq!(load.received(), 0);
    }
}

#[test]
fn any_other_length_is_refused() {
    for (name, filter) in smalls() {
        let (_, header) = dump::header(&filter);
        let (iterator, chunk) = dump::at(&filter, 1).expect("a chunk");
        let stored = strings(&filter);
        for length in (0..header.len()).chain(header.len() + 1..header.len() + 20) {
            let mut cut = header.clone();
            cut.resize(length, 0);
            assert!(begin(&cut).is_err(), "{name}: {length}");
            if length >= SEAL {
                seal(&mut cut);
                assert!(begin(&cut).is_err(), "{name}: {length}, sealed");
            }
        }
        let mut load = begin(&header).expect(name);
        for length in (0..chunk.len()).chain(chunk.len() + 1..chunk.len() + 20) {
            let mut cut = chunk.clone();
            cut.resize(length, 0);
            assert!(load.take(iterator, &cut, |_| u64::MAX).is_err(), "{name}: {length}");
            if length >= SEAL {
                seal(&mut cut);
                assert!(load.take(iterator, &cut, |_| u64::MAX).is_err(), "{name}: {length}");
            }
        }
        for length in (0..stored.0[1].len()).chain(stored.0[1].len() + 1..stored.0[1].len() + 20) {
            let mut cut = stored.clone();
            cut.0[1].resize(length, 0);
            assert!(read(&cut).is_err(), "{name}: a string of {length}");
        }
        for count in 0..stored.0.len() {
            let cut = Strings(stored.0[..count].to_vec());
            assert_eq!(read(&cut).map(drop), Err(Error::Truncated), "{name}: {count} strings");
        }
        // Strings without records would never end.
        let mut empty = stored.clone();
        empty.0.insert(1, Vec::new());
        assert!(matches!(read(&empty).map(drop), Err(Error::Order { .. })), "{name}");
    }
}

#[test]
fn any_byte_of_a_header_is_refused_or_makes_a_sane_filter() {
    let (mut refused, mut taken) = (0, 0);
    for (_, filter) in smalls() {
        let stored = strings(&filter);
        for at in 0..stored.0[0].len() - SEAL {
            for byte in (0..=u8::MAX).step_by(15) {
                let mut forged = stored.clone();
                forged.0[0] = patched(&stored.0[0], at, &[byte]);
                match read(&forged) {
                    Err(_) => refused += 1,
                    Ok(Stored::Pages(read)) => {
                        taken += 1;
                        // Most bytes change what only the filter's user set.
                        if read.pages().plan() != filter.pages().plan() || byte == 0 {
                            check_sane(&read);
                        }
                    }
                    Ok(Stored::Partial(load)) => check_load(&load),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(refused > 2_000 && taken > 2_000, "{refused} refused, {taken} taken");
}

/// The server's checksum of an RDB covers the pages; the codec refuses what is no page.
#[test]
fn any_change_of_a_page_is_refused_or_makes_a_sane_filter() {
    let (mut refused, mut taken) = (0, 0);
    for (name, filter) in smalls().into_iter().filter(|(_, filter)| filter.base().is_none()) {
        let stored = strings(&filter);
        let header = dump::header(&filter).1;
        let (iterator, chunk) = dump::at(&filter, 1).expect("a chunk");
        let bytes = stored.0[1].len();
        let mut random = Random(bytes as u64);
        for byte in 0..bytes {
            let mut damaged = stored.clone();
            damaged.0[1][byte] ^= 1 << random.below(8);
            let result = read(&damaged);
            // The same bytes in a chunk, which has the records behind its frame.
            let start = chunk.len() - SEAL - bytes;
            let forged = patched(&chunk, start + byte, &damaged.0[1][byte..=byte]);
            let mut load = begin(&header).expect(name);
            let outcome = within(forged.len(), || load.take(iterator, &forged, |_| u64::MAX));
            assert_eq!(outcome.is_ok(), matches!(result, Ok(Stored::Pages(..))), "{name} {byte}");
            match result {
                Err(_) => refused += 1,
                Ok(stored) => {
                    taken += 1;
                    if byte % 16 == 0 {
                        check_stored(stored);
                    }
                }
            }
        }
    }
    // Bits of tags and payloads may have either value.
    assert!(refused > 5_000 && taken > 5_000, "{refused} refused, {taken} taken");
}

/// Some bytes of large filters changed at once, or a string cut.
#[test]
fn random_damage_is_refused_or_makes_a_sane_filter() {
    let mut random = Random(33);
    for (_, filter) in all() {
        let stored = strings(&filter);
        for _ in 0..40 {
            let mut damaged = stored.clone();
            let string = 1 + random.below(damaged.0.len() as u64 - 1) as usize;
            let bytes = &mut damaged.0[string];
            if random.below(4) == 0 {
                bytes.truncate(random.below(bytes.len() as u64) as usize);
                assert!(read(&damaged).is_err());
                continue;
            }
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            if let Ok(stored) = read(&damaged) {
                check_stored(stored);
            }
        }
    }
}

#[test]
fn a_forged_reservation_is_not_made_when_all_is_forgotten() {
    let (_, filter) = smalls().swap_remove(5);
    let mut forged = strings(&filter);
    forged.0[0] = patched(&forged.0[0], FIRST_PAGES, &(1_u32 << 24).to_le_bytes());
    // A page without slots.
    forged.0[1] = [&[0, 1, 0][..], &[255; 8]].concat();
    let Ok(Stored::Pages(mut window)) = read(&forged) else {
        panic!("numbers in range");
    };
    within(0, || assert!(window.forget(MAX_TIME).is_some()));
    check_sane(&window);
}

#[test]
fn a_forged_size_allocates_nothing() {
    let filter = paged(&filled(crowded(9, COUNT), 1_000));
    let (_, header) = dump::header(&filter);
    let stored = strings(&filter);
    for first_pages in [5_u32, 1_000, 1 << 30, u32::MAX] {
        let header = patched(&header, FIRST_PAGES, &first_pages.to_le_bytes());
        begin(&header).expect("numbers in range");
        let mut forged = stored.clone();
        forged.0[0] = patched(&stored.0[0], FIRST_PAGES, &first_pages.to_le_bytes());
        let outcome = read(&forged).map(drop);
        match first_pages {
            // Of four times as many pages, those are made that are missing.
            5 => assert_eq!(outcome, Ok(())),
            // Tags of other lengths, or pages that no table has.
            _ => assert!(
                matches!(outcome, Err(Error::Filter(FilterError::Impossible(_)))),
                "{first_pages}: {outcome:?}"
            ),
        }
    }
    let forged = patched(&header, FIRST_PAGES, &[0; 4]);
    assert_eq!(begin(&forged).map(drop), Err(FilterError::Capacity(0).into()));
    // A layer of some 80 GB of bits that are not there.
    let above = above(40);
    let blocks = dump::header(&above).1.len() - SEAL - 28;
    let forged = patched(&strings(&above).0[0], blocks, &u32::MAX.to_le_bytes());
    let forged = Strings(vec![forged, vec![0; 64]]);
    assert_eq!(read(&forged).map(drop), Err(Error::Truncated));
    let limited = rdb::load(&mut Reading(forged.0.iter()), 1 << 30).map(drop);
    assert!(matches!(limited, Err(Error::Filter(FilterError::Ceiling { .. }))), "{limited:?}");
    // A page of 65,535 words that are not there.
    let mut forged = stored.clone();
    forged.0[1] = vec![0, 255, 255, 1];
    assert_eq!(read(&forged).map(drop), Err(Error::Truncated));
    // Copies are at most the slots.
    let mut forged = stored.clone();
    forged.0[0] = patched(&stored.0[0], COPIES, &u64::MAX.to_le_bytes());
    if let Ok(stored) = read(&forged) {
        check_stored(stored);
    }
    let forged = patched(&stored.0[0], PRESENT, &(END + 1).to_le_bytes());
    let forged = Strings(vec![forged]);
    assert!(matches!(read(&forged).map(drop), Err(Error::TooBig { .. })));
    for layers in [1, 2] {
        let forged = patched(&header, LAYERS, &[layers]);
        assert_eq!(begin(&forged).map(drop), Err(Error::Truncated));
    }
}

/// A page with so many items that a table of them would have far more pages than were sent.
#[test]
fn a_page_that_makes_many_is_refused() {
    let filter = paged(&filled(Plan { page_slots: 4_000, ..crowded(20, COUNT) }, 3_000));
    let few = 256_u16.to_le_bytes();
    let mut stored = strings(&filter);
    stored.0[0] = patched(&stored.0[0], PAGE_SLOTS, &few);
    let refused = Error::Filter(FilterError::Impossible(
        "the filter grew too much while it was dumped: dump it again",
    ));
    assert_eq!(read(&stored).map(drop), Err(refused));
    let header = patched(&dump::header(&filter).1, PAGE_SLOTS, &few);
    let (end, chunk) = dump::at(&filter, 1).expect("a chunk");
    let chunk = patched(&chunk, FRAME, &header);
    let mut load = begin(&header).expect("its header");
    assert_eq!(load.take(end, &chunk, |_| u64::MAX), Err(refused));
    assert_eq!((load.received(), load.bytes()), (0, 0));
}

/// Of all records, those that take the most memory for each byte.
#[test]
fn pages_without_slots_that_are_split_are_bounded() {
    let mut stored = strings(&paged(&filled(crowded(9, COUNT), 0)));
    let record = |level| [&[level, 1, 0][..], &[255; 8]].concat();
    stored.0[1] = [vec![record(10); 1_023], vec![record(12); 4]].concat().concat();
    let Ok(Stored::Pages(filter)) = read(&stored) else {
        panic!("pages of four levels of a table");
    };
    assert_eq!(filter.pages().pages().len(), 4_096);
    assert_eq!(filter.pages().bytes(), 24 * 4_096);
}

/// Pages at positions where none of their level starts.
#[test]
fn a_page_of_a_wrong_level_is_refused() {
    let filter = paged(&filled(Plan { first_pages: 2, ..crowded(9, COUNT) }, 600));
    let (_, header) = dump::header(&filter);
    let (end, chunk) = dump::at(&filter, 1).expect("a chunk");
    let start =
        chunk.len() - SEAL - frame::records(&chunk, 0).iter().map(|r| r.0.len()).sum::<usize>();
    let second = start + frame::records(&chunk, 0)[0].0.len();
    let not_next = FilterError::Impossible("a page that does not follow the one before");
    for (at, level) in [(start, 41), (second, 0)] {
        let mut load = begin(&header).expect("its header");
        let forged = patched(&chunk, at, &[level]);
        assert_eq!(load.take(end, &forged, |_| u64::MAX).map(drop), Err(not_next.into()));
    }
    // A higher level ends before the iterator says.
    let mut load = begin(&header).expect("its header");
    let forged = patched(&chunk, second, &[40]);
    let outcome = load.take(end, &forged, |_| u64::MAX).map(drop);
    assert!(outcome.is_err(), "{outcome:?}");
}

/// The list of generations is read before it is compared with the rules, so its length is bounded.
#[test]
fn a_window_with_too_many_generations_takes_no_memory() {
    let (_, filter) = smalls().into_iter().find(|(_, it)| it.window().is_some()).expect("a window");
    let window = 44 + 16 * filter.window().expect("a window").generations.len();
    let (_, header) = dump::header(&filter);
    let head = [&3_u16.to_le_bytes()[..], &(window as u32).to_le_bytes()].concat();
    let at = header.windows(head.len()).position(|bytes| bytes == head).expect("a record");
    let end = at + head.len() + window;
    for more in [16 * 64, 1 << 20] {
        let mut forged = header.clone();
        forged.splice(end..end, vec![0; more]);
        forged[at + 2..at + 6].copy_from_slice(&((window + more) as u32).to_le_bytes());
        seal(&mut forged);
        let (outcome, most) = peak(|| Load::begin(&forged, u64::MAX));
        assert!(outcome.is_err() && most < 4_096, "{more} bytes more: {most} bytes of memory");
    }
}
